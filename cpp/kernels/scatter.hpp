// From the derivatives of rows to the gradients of the features of a field.
//
// A spline touches four neighboring features, and few different ones: what rows of data add to them is summed near
// by, in `Sums`, before the features get a place.
#pragma once

#include "kernels/update.hpp"

namespace splinefm::SPLINEFM_ISA {

// Whether a field has few enough features to be summed near by.
inline bool is_near(const Shape& shape, Index field) {
    return shape.feature_ptr[field + 1] - shape.feature_ptr[field] <= NEAR;
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

// The same for the linear parts, and how much weight there is.
inline void add_linear_four(const Sums& sums, Index row, Four x, float slope) {
    const float weights[4] = {x.x0, x.x1, x.x2, x.x3};
    const Vec<4> four = load<4>(weights);
    add_to<4>(sums.linear + row, slope, four);
    store<4>(sums.weight + row, abs(four) + load<4>(sums.weight + row));
}

// Add the sums of a field to the gradients of its features, and clear them.
template <int K>
inline void place_sums(const Shape& shape, Index k, Index field, const Sums& sums, const Touch& touch) {
    const Index first = shape.feature_ptr[field], n = shape.feature_ptr[field + 1] - first;
    for (Index row = 0; row < n; ++row) {
        if (!(sums.weight[row] <= 0.0f)) {
            const Index place = place_of<K>(touch, k, field, first + row);
            for (Index c = 0; c < k; c += K) {
                float* gradient = touch.gradient + place * k + c;
                store<K>(gradient, load<K>(sums.vectors + row * k + c) + load<K>(gradient));
            }
            touch.linear[place] += sums.linear[row];
        }
        for (Index c = 0; c < k; c += K) store<K>(sums.vectors + row * k + c, fill<K>(0.0f));
        sums.linear[row] = 0.0f;
        sums.weight[row] = 0.0f;
    }
}

// Add rows of a unit with one weight, as that of a category, of an FM. Its p_u is x v, where v is the vector of one
// feature. Σ x slope (s - x v) is Σ x slope s - (Σ x² slope) v: v need not be read for every row of data, since the
// update has it at hand.
template <int K> inline void add_categories(const Shape& shape, Index k, const Columns columns, const float* slopes,
                                            const float* D, Index n, Index field, Index w, Index j, const Touch touch) {
    for (Index i = 0; i < n; ++i) {
        fetch_columns(shape, columns, i, w, j, j + 1);
        if (i + AHEAD < n) fetch(touch.slot + start_of(shape, columns, i + AHEAD, w));
        const float x = *weight_of(shape, columns, i, j);
        if (x != 0.0f) {
            const float slope = x * slopes[i];
            const Index place = place_of<K>(touch, k, field, start_of(shape, columns, i, w));
            for (Index c = 0; c < k; c += K) add_to<K>(touch.gradient + place * k + c, slope, load<K>(D + i * k + c));
            touch.linear[place] += slope;
            touch.own[place] += x * slope;
        }
    }
}

// Add weight slope D and weight slope of the rows of a block to the gradients of a field. `derivative(i, u, c)` has
// numbers c .. c + K - 1 of the derivative by p_u of row i.
template <int K, bool FIXED, class Derivative>
[[gnu::always_inline]] inline void scatter_windows(const Shape& shape, const Columns columns, const float* slopes,
                                                   Index n, Index field, Index w, const Touch touch, const Sums sums,
                                                   bool& summed, Derivative derivative) {
    const Index k = length<K, FIXED>(shape), base = shape.feature_ptr[field], u = shape.window_unit[w];
    const Index j = shape.weight_ptr[w], end = shape.weight_ptr[w + 1];
    if (end - j == 4 && is_near(shape, field)) {
        for (Index i = 0; i < n; ++i) {
            fetch_columns(shape, columns, i, w, j, end);
            const Index row = start_of(shape, columns, i, w) - base;
            const Four x = four(weight_of(shape, columns, i, j));
            for (Index c = 0; c < k; c += K) {
                add_to_four<K>(sums.vectors + row * k + c, k, x, slopes[i] * derivative(i, u, c));
            }
            add_linear_four(sums, row, x, slopes[i]);
        }
        summed = true;
    } else {
        for (Index i = 0; i < n; ++i) {
            fetch_columns(shape, columns, i, w, j, end);
            if (i + AHEAD < n) fetch(touch.slot + start_of(shape, columns, i + AHEAD, w));
            const Index row = start_of(shape, columns, i, w);
            const float* x = weight_of(shape, columns, i, j);
            for (Index c = 0; c < k; c += K) {
                const Vec<K> d = derivative(i, u, c);
                for (Index m = 0; m < end - j; ++m) {
                    if (x[16 * m] == 0.0f) continue;
                    const float factor = x[16 * m] * slopes[i];
                    const Index place = place_of<K>(touch, k, field, row + m);
                    add_to<K>(touch.gradient + place * k + c, factor, d);
                    if (c == 0) touch.linear[place] += factor;
                }
            }
        }
    }
}

// D is s = Σ p, as in an FM, or has the derivative by every p_u.
template <int K, bool FIXED, bool HAS_SUMS>
inline void scatter(const Memory& memory, const Block& block, Index field, const Sums sums) {
    const Shape shape = memory.shape;
    const Weights weights = memory.weights;
    const Columns columns = memory.columns;
    const Touch touch = memory.touch;
    const float *slopes = memory.work.slopes + block.place, *D = memory.work.D;
    const Index k = length<K, FIXED>(shape), room = memory.work.room, n = block.n;
    bool summed = false;
    for (Index w = shape.window_ptr[field]; w < shape.window_ptr[field + 1]; ++w) {
        const Index u = shape.window_unit[w], j = shape.weight_ptr[w];
        const int kind = kind_of(shape, u);
        if constexpr (HAS_SUMS) {
            if (kind == 1) {
                add_categories<K>(shape, k, columns, slopes, D, n, field, w, j, touch);
            } else if (kind == 4) {
                scatter_windows<K, FIXED>(shape, columns, slopes, n, field, w, touch, sums, summed,
                                          [=, &shape](Index i, Index, Index c) __attribute__((always_inline)) {
                                              const float* T = weights.T + start_of(shape, columns, i, w) * k + c;
                                              return load<K>(D + i * k + c) -
                                                     sum_four<K>(four(weight_of(shape, columns, i, j)), T, k);
                                          });
            } else {
                scatter_windows<K, FIXED>(shape, columns, slopes, n, field, w, touch, sums, summed,
                                          [=, &shape](Index i, Index unit, Index c) __attribute__((always_inline)) {
                                              return load<K>(D + i * k + c) -
                                                     part_of_unit<K>(shape, weights.T, k, columns, i, unit, c);
                                          });
            }
        } else {
            scatter_windows<K, FIXED>(shape, columns, slopes, n, field, w, touch, sums, summed,
                                      [=](Index i, Index unit, Index c) __attribute__((always_inline)) {
                                          const float* d = D + i * room + unit * k + c;
                                          fetch(d + AHEAD * room);
                                          return load<K>(d);
                                      });
        }
    }
    if (summed) place_sums<K>(shape, k, field, sums, touch);
}

}  // namespace splinefm::SPLINEFM_ISA
