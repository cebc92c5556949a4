// FM: the score of a row is ½ (|s|² - Σ |p|²) with s = Σ p; the derivative by p_u is s - p_u, so that D is s.
#pragma once

#include "kernels/units.hpp"

namespace splinefm::SPLINEFM_ISA {

// Each model has `scores`, which adds linear parts and interactions of n rows, from row `at` of the columns on, to
// `out` and fills D, and `pairs`, which does what is left for the gradient: the rest of D, and dR or dM of a shard.
// `derivatives` says how D of a block of rows is laid out.
template <int K, bool FIXED> struct FM {
    static constexpr bool HAS_SUMS = true;  // D is s, not the derivative by every p_u
    static constexpr int PIECE = K;

    static Derivatives derivatives(const Shape& shape, float* D, Index) { return {D, length<K, FIXED>(shape), 0}; }

    // The squares are summed in P.
    static void scores(const Shape shape, const Weights weights, const Columns columns, Index at, Index n,
                       const Scratch& scratch, const Derivatives derivatives, float* out) {
        const Index k = length<K, FIXED>(shape), end = at + n;
        float *P = scratch.P, *D = derivatives.of;
        for (Index c = 0; c < n * k; c += K) {
            store<K>(D + c, fill<K>(0.0f));
            store<K>(P + c, fill<K>(0.0f));
        }
        for (Index u = 0; u < shape.n_units; ++u) {
            const Index w = shape.unit_ptr[u], j = shape.weight_ptr[w];
            if (u + 1 < shape.n_units && kind_of(shape, u) == 1 && kind_of(shape, u + 1) == 1) {
                for (Index i = 0; i < n; ++i) {  // two categories share what is read and written
                    fetch_category(shape, weights, columns, at + i, end, w, k);
                    fetch_category(shape, weights, columns, at + i, end, w + 1, k);
                    const Index first = start_of(shape, columns, at + i, w);
                    const Index second = start_of(shape, columns, at + i, w + 1);
                    const float* x = weight_of(shape, columns, at + i, j);
                    const float a = x[0], b = x[16];
                    for (Index c = 0; c < k; c += K) {
                        const Vec<K> p = a * load<K>(weights.T + first * k + c);
                        const Vec<K> q = b * load<K>(weights.T + second * k + c);
                        float *s = D + i * k + c, *squares = P + i * k + c;
                        store<K>(s, load<K>(s) + p + q);
                        store<K>(squares, q * q + (p * p + load<K>(squares)));
                    }
                    out[i] = out[i] + a * weights.L[first] + b * weights.L[second];
                }
                ++u;
            } else {
                each_row<K, FIXED>(shape, weights, columns, at, n, u, out,
                                   [=](Index i, Index c, Vec<K> p) __attribute__((always_inline)) {
                                       float *s = D + i * k + c, *squares = P + i * k + c;
                                       store<K>(s, load<K>(s) + p);
                                       store<K>(squares, p * p + load<K>(squares));
                                   });
            }
        }
        for (Index i = 0; i < n; ++i) {
            Vec<K> sum = fill<K>(0.0f);
            for (Index c = 0; c < k; c += K) {
                const Vec<K> s = load<K>(D + i * k + c);
                sum = sum + (s * s - load<K>(P + i * k + c));
            }
            out[i] += 0.5f * total(sum);
        }
    }

    static void pairs(const Shape&, const Scratch&, const Derivatives&, Index, const float*, float*) {}
};

}  // namespace splinefm::SPLINEFM_ISA
