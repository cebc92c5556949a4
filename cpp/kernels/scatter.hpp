// From the derivatives of rows to the gradients of the features of a field.
//
// A cubic spline activates four neighboring features of few: their gradients are summed in `Sums`, which stays in the
// cache, before the features get a position.
#pragma once

#include "kernels/update.hpp"

namespace splinefm::SPLINEFM_ISA {

// Whether a field has few enough features to be summed in `Sums`.
inline bool is_summed(const Shape& shape, Index field) {
    return shape.feature_ptr[field + 1] - shape.feature_ptr[field] <= MAX_SUMMED;
}

template <int K> [[gnu::always_inline]] inline void add_to(float* to, float x, Vec<K> a) {
    store<K>(to, x * a + load<K>(to));
}

// Add weight slope d of a window of four weights: numbers of vectors.
template <int K> [[gnu::always_inline]] inline void add_to_four(float* to, Index k, Four x, Vec<K> a) {
    add_to<K>(to, x.x0, a);
    add_to<K>(to + k, x.x1, a);
    add_to<K>(to + 2 * k, x.x2, a);
    add_to<K>(to + 3 * k, x.x3, a);
}

// The same for the linear parts, and the total weight.
inline void add_linear_four(const Sums& sums, Index feature, Four x, float slope) {
    const float weights[4] = {x.x0, x.x1, x.x2, x.x3};
    const Vec<4> four = load<4>(weights);
    add_to<4>(sums.linear + feature, slope, four);
    store<4>(sums.weight + feature, abs(four) + load<4>(sums.weight + feature));
}

// Add the sums of a field to the gradients of its features, and clear them.
template <int K>
inline void add_sums(const Shape& shape, Index k, Index field, const Sums& sums, const Active& active) {
    const Index first = shape.feature_ptr[field], n = shape.feature_ptr[field + 1] - first;
    for (Index feature = 0; feature < n; ++feature) {
        if (!(sums.weight[feature] <= 0.0f)) {
            const Index position = activate<K>(active, k, field, first + feature);
            for (Index c = 0; c < k; c += K) {
                float* gradient = active.gradient + position * k + c;
                store<K>(gradient, load<K>(sums.vectors + feature * k + c) + load<K>(gradient));
            }
            active.linear[position] += sums.linear[feature];
        }
        for (Index c = 0; c < k; c += K) store<K>(sums.vectors + feature * k + c, fill<K>(0.0f));
        sums.linear[feature] = 0.0f;
        sums.weight[feature] = 0.0f;
    }
}

// Add rows of a unit with one weight, as that of a category, of an FM. Its p_u is x v, where v is the vector of one
// feature. Σ x slope (s - x v) is Σ x slope s - (Σ x² slope) v: v need not be read for every row, since the
// update has it at hand.
template <int K> inline void add_categories(const Shape& shape, Index k, const Columns columns, const float* slopes,
                                            const float* D, Index n, Index field, Index w, Index j,
                                            const Active active) {
    for (Index i = 0; i < n; ++i) {
        fetch_columns(shape, columns, i, w, j, j + 1);
        if (i + AHEAD < n) fetch(active.index_of + start_of(shape, columns, i + AHEAD, w));
        const float x = *weight_of(shape, columns, i, j);
        if (x != 0.0f) {
            const float slope = x * slopes[i];
            const Index position = activate<K>(active, k, field, start_of(shape, columns, i, w));
            for (Index c = 0; c < k; c += K)
                add_to<K>(active.gradient + position * k + c, slope, load<K>(D + i * k + c));
            active.linear[position] += slope;
            active.self_weight[position] += x * slope;
        }
    }
}

// Add weight slope D and weight slope of the rows of a block to the gradients of a field. `derivative(i, u, c)` has
// numbers c .. c + K - 1 of the derivative by p_u of row i.
template <int K, bool FIXED, class Derivative>
[[gnu::always_inline]] inline void scatter_windows(const Shape& shape, const Columns columns, const float* slopes,
                                                   Index n, Index field, Index w, const Active active, const Sums sums,
                                                   bool& summed, Derivative derivative) {
    const Index k = length<K, FIXED>(shape), base = shape.feature_ptr[field], u = shape.window_unit[w];
    const Index j = shape.weight_ptr[w], end = shape.weight_ptr[w + 1];
    if (end - j == 4 && is_summed(shape, field)) {
        for (Index i = 0; i < n; ++i) {
            fetch_columns(shape, columns, i, w, j, end);
            const Index feature = start_of(shape, columns, i, w) - base;
            const Four x = four(weight_of(shape, columns, i, j));
            for (Index c = 0; c < k; c += K) {
                add_to_four<K>(sums.vectors + feature * k + c, k, x, slopes[i] * derivative(i, u, c));
            }
            add_linear_four(sums, feature, x, slopes[i]);
        }
        summed = true;
    } else {
        for (Index i = 0; i < n; ++i) {
            fetch_columns(shape, columns, i, w, j, end);
            if (i + AHEAD < n) fetch(active.index_of + start_of(shape, columns, i + AHEAD, w));
            const Index feature = start_of(shape, columns, i, w);
            const float* x = weight_of(shape, columns, i, j);
            for (Index c = 0; c < k; c += K) {
                const Vec<K> d = derivative(i, u, c);
                for (Index m = 0; m < end - j; ++m) {
                    if (x[16 * m] == 0.0f) continue;
                    const float factor = x[16 * m] * slopes[i];
                    const Index position = activate<K>(active, k, field, feature + m);
                    add_to<K>(active.gradient + position * k + c, factor, d);
                    if (c == 0) active.linear[position] += factor;
                }
            }
        }
    }
}

// D is s = Σ p, as in an FM, or has the derivative by every p_u.
template <int K, bool FIXED, bool HAS_SUMS> inline void
scatter(const Memory& memory, const Block& block, const Derivatives derivatives, Index field, const Sums sums) {
    const Shape shape = memory.shape;
    const Weights weights = memory.weights;
    const Columns columns = memory.columns;
    const Active active = memory.active;
    const float *slopes = memory.work.slopes + block.offset, *D = derivatives.of;
    const Index k = length<K, FIXED>(shape), n = block.n;
    bool summed = false;
    for (Index w = shape.window_ptr[field]; w < shape.window_ptr[field + 1]; ++w) {
        const Index u = shape.window_unit[w], j = shape.weight_ptr[w];
        const int kind = kind_of(shape, u);
        if constexpr (HAS_SUMS) {
            if (kind == 1) {
                add_categories<K>(shape, k, columns, slopes, D, n, field, w, j, active);
            } else if (kind == 4) {
                scatter_windows<K, FIXED>(shape, columns, slopes, n, field, w, active, sums, summed,
                                          [=, &shape](Index i, Index, Index c) __attribute__((always_inline)) {
                                              const float* T = weights.T + start_of(shape, columns, i, w) * k + c;
                                              return load<K>(D + i * k + c) -
                                                     sum_four<K>(four(weight_of(shape, columns, i, j)), T, k);
                                          });
            } else {
                scatter_windows<K, FIXED>(shape, columns, slopes, n, field, w, active, sums, summed,
                                          [=, &shape](Index i, Index unit, Index c) __attribute__((always_inline)) {
                                              return load<K>(D + i * k + c) -
                                                     part_of_unit<K>(shape, weights.T, k, columns, i, unit, c);
                                          });
            }
        } else {
            scatter_windows<K, FIXED>(shape, columns, slopes, n, field, w, active, sums, summed,
                                      [=](Index i, Index unit, Index c) __attribute__((always_inline)) {
                                          const float* d = D + i * derivatives.row + unit * derivatives.unit + c;
                                          fetch(d + AHEAD * derivatives.row);
                                          return load<K>(d);
                                      });
        }
    }
    if (summed) add_sums<K>(shape, k, field, sums, active);
}

}  // namespace splinefm::SPLINEFM_ISA
