// Unit vectors p_u = Σ weight T[row] and linear parts of rows, K numbers at a time. Rows come as columns: see `column`.
#pragma once

#include "kernels/structs.hpp"
#include "vec.hpp"

namespace splinefm::SPLINEFM_ISA {

using Index = std::int64_t;

constexpr Index AHEAD = 16;  // distance of prefetches, in rows

// Units are handled four at a time; those beyond the last have vectors of zeros.
[[gnu::always_inline]] inline Index padded(Index n_units) { return (n_units + 3) / 4 * 4; }

// n numbers and zeros up to a multiple of sixteen.
[[gnu::always_inline]] inline Index lines(Index n) { return (n + 15) / 16 * 16; }

[[gnu::always_inline]] inline Index least(Index a, Index b) { return a < b ? a : b; }

// Prefetch a line. Whatever only prefetches must be inlined always: GCC deletes calls of functions without effect.
[[gnu::always_inline]] inline void fetch(const void* x) { __builtin_prefetch(x, 0, 3); }

// Prefetch n numbers.
[[gnu::always_inline]] inline void fetch_row(const float* x, Index n) {
    for (Index c = 0; c < n; c += 16) fetch(x + c);
}

// The same to the second-level cache only: the vectors of a row of an FFM would push each other out of the first.
[[gnu::always_inline]] inline void fetch_long_row(const float* x, Index n) {
    for (Index c = 0; c < n; c += 16) __builtin_prefetch(x + c, 0, 2);
}

// Index of row i in column w of n columns: sixteen rows of a column are neighbors.
[[gnu::always_inline]] inline Index column(Index i, Index w, Index n) { return (((i >> 4) * n + w) << 4) + (i & 15); }

// k, which the compiler knows unless it is any multiple of 8.
template <int K, bool FIXED> [[gnu::always_inline]] inline Index length(const Shape& shape) {
    if constexpr (FIXED) {
        return K;
    } else {
        return shape.k;
    }
}

// The number of weights of a unit with one window of one or four weights, which are quick to read; else 0.
[[gnu::always_inline]] inline int kind_of(const Shape& shape, Index u) {
    const Index w = shape.unit_ptr[u];
    const int n_weights = shape.weight_ptr[w + 1] - shape.weight_ptr[w];
    return shape.unit_ptr[u + 1] == w + 1 && (n_weights == 1 || n_weights == 4) ? n_weights : 0;
}

// The first feature of window w of row i.
[[gnu::always_inline]] inline Index start_of(const Shape& shape, const Columns& columns, Index i, Index w) {
    return columns.start[column(i, w, shape.n_windows)];
}

// Weight j of row i.
[[gnu::always_inline]] inline const float* weight_of(const Shape& shape, const Columns& columns, Index i, Index j) {
    return columns.weight + column(i, j, shape.n_weights);
}

// Every sixteen rows, prefetch the columns of window w and of weights j to end - 1, two lines ahead. The lines of a
// column are too far apart for the hardware prefetcher.
[[gnu::always_inline]] inline void fetch_columns(const Shape& shape, const Columns& columns, Index i, Index w, Index j,
                                                 Index end) {
    if ((i & 15) == 0) {
        fetch(columns.start + column(i + 32 + AHEAD, w, shape.n_windows));
        for (Index m = j; m < end; ++m) fetch(weight_of(shape, columns, i + 32, m));
    }
}

// Four weights of a row, which are sixteen numbers apart.
struct Four {
    float x0, x1, x2, x3;
};
[[gnu::always_inline]] inline Four four(const float* x) { return {x[0], x[16], x[32], x[48]}; }

// The sum of four vectors times their weights; the next one is `width` numbers behind.
template <int K> [[gnu::always_inline]] inline Vec<K> sum_four(Four x, const float* T, Index width) {
    Vec<K> p = x.x0 * load<K>(T);
    p = x.x1 * load<K>(T + width) + p;
    p = x.x2 * load<K>(T + 2 * width) + p;
    return x.x3 * load<K>(T + 3 * width) + p;
}

[[gnu::always_inline]] inline float sum_four_linear(Four x, const float* L) {
    return (x.x0 * L[0] + x.x2 * L[2]) + (x.x1 * L[1] + x.x3 * L[3]);
}

// Prefetch the feature of a category of a row that comes up soon.
[[gnu::always_inline]] inline void fetch_category(const Shape& shape, const Weights& weights, const Columns& columns,
                                                  Index i, Index end, Index w, Index k) {
    if (i + AHEAD < end) {
        const Index ahead = start_of(shape, columns, i + AHEAD, w);
        fetch_row(weights.T + ahead * k, k);
        fetch(weights.L + ahead);
    }
}

// Numbers c .. c + K - 1 of p_u of row i, for any windows; vectors have `width` numbers.
template <int K> inline Vec<K> part_of_unit(const Shape& shape, const float* T, Index width, const Columns& columns,
                                            Index i, Index u, Index c) {
    Vec<K> p = fill<K>(0.0f);
    for (Index w = shape.unit_ptr[u]; w < shape.unit_ptr[u + 1]; ++w) {
        const Index j = shape.weight_ptr[w], n = shape.weight_ptr[w + 1] - j;
        const float* x = weight_of(shape, columns, i, j);
        const float* from = T + start_of(shape, columns, i, w) * width + c;
        if (n == 4) {
            p = p + sum_four<K>(four(x), from, width);
        } else {
            for (Index m = 0; m < n; ++m) p = x[16 * m] * load<K>(from + m * width) + p;
        }
    }
    return p;
}

// Σ weight · linear weight of unit u of row i.
inline float linear_part(const Shape& shape, const float* L, const Columns& columns, Index i, Index u) {
    float linear = 0.0f;
    for (Index w = shape.unit_ptr[u]; w < shape.unit_ptr[u + 1]; ++w) {
        const Index j = shape.weight_ptr[w], n = shape.weight_ptr[w + 1] - j;
        const float* x = weight_of(shape, columns, i, j);
        const Index feature = start_of(shape, columns, i, w);
        if (n == 4) {
            linear += sum_four_linear(four(x), L + feature);
        } else {
            for (Index m = 0; m < n; ++m) linear += x[16 * m] * L[feature + m];
        }
    }
    return linear;
}

// `use(i, c, p)` gets numbers c .. c + K - 1 of p_u of row i, for n rows from row `at` of the columns on; linear parts
// are added to the scores.
template <int K, bool FIXED, class Use>
[[gnu::always_inline]] inline void each_row(const Shape& shape, const Weights& weights, const Columns& columns,
                                            Index at, Index n, Index u, float* scores, Use use) {
    const Index k = length<K, FIXED>(shape), w = shape.unit_ptr[u], j = shape.weight_ptr[w];
    const int kind = kind_of(shape, u);
    if (kind == 1) {
        for (Index i = 0; i < n; ++i) {
            fetch_category(shape, weights, columns, at + i, at + n, w, k);
            const Index feature = start_of(shape, columns, at + i, w);
            const float x = *weight_of(shape, columns, at + i, j);
            for (Index c = 0; c < k; c += K) use(i, c, x * load<K>(weights.T + feature * k + c));
            scores[i] += x * weights.L[feature];
        }
    } else if (kind == 4) {
        for (Index i = 0; i < n; ++i) {
            const Index feature = start_of(shape, columns, at + i, w);
            const Four x = four(weight_of(shape, columns, at + i, j));
            for (Index c = 0; c < k; c += K) use(i, c, sum_four<K>(x, weights.T + feature * k + c, k));
            scores[i] += sum_four_linear(x, weights.L + feature);
        }
    } else {
        for (Index i = 0; i < n; ++i) {
            for (Index c = 0; c < k; c += K) use(i, c, part_of_unit<K>(shape, weights.T, k, columns, at + i, u, c));
            scores[i] += linear_part(shape, weights.L, columns, at + i, u);
        }
    }
}

// P of n rows, `row_length` numbers per row; linear parts are added to the scores.
template <int K, bool FIXED> inline void all_units(const Shape& shape, const Weights& weights, const Columns& columns,
                                                   Index at, Index n, float* P, Index row_length, float* scores) {
    for (Index u = 0; u < shape.n_units; ++u) {
        float* to = P + u * length<K, FIXED>(shape);
        each_row<K, FIXED>(shape, weights, columns, at, n, u, scores,
                           [=](Index i, Index c, Vec<K> p)
                               __attribute__((always_inline)) { store<K>(to + i * row_length + c, p); });
    }
}

}  // namespace splinefm::SPLINEFM_ISA
