// HigherOrderFM: the score of a row is Σ_t A[U, t] for t ≥ 2, with A[u + 1, t] = A[u, t] + p_u A[u, t - 1] and
// A[., 0] = 1: products of up to `order` different unit vectors, coordinate by coordinate. A mean of several members
// divides it by their number.
#pragma once

#include "kernels/units.hpp"

namespace splinefm::SPLINEFM_ISA {

template <int K, bool FIXED> struct HigherOrderFM {
    static constexpr bool HAS_SUMS = false;
    static constexpr int PIECE = K;

    static Derivatives derivatives(const Shape& shape, float* D, Index) {
        const Index k = length<K, FIXED>(shape);
        return {D, padded(shape.n_units) * k, k};
    }

    static void scores(const Shape shape, const Weights weights, const Columns columns, Index at, Index n,
                       const Scratch& scratch, const Derivatives, float* out) {
        const Index k = length<K, FIXED>(shape), n_units = shape.n_units, order = shape.order;
        const Index sums = (order + 1) * k, row = padded(n_units) * k;
        all_units<K, FIXED>(shape, weights, columns, at, n, scratch.P, row, out);
        for (Index i = 0; i < n; ++i) {
            Vec<K> score = fill<K>(0.0f);
            for (Index c = 0; c < k; c += K) {
                const float* P = scratch.P + i * row + c;
                float* A = scratch.A + i * (n_units + 1) * sums + c;
                for (Index u = 0; u <= n_units; ++u) store<K>(A + u * sums, fill<K>(1.0f));
                for (Index t = 1; t <= order; ++t) store<K>(A + t * k, fill<K>(0.0f));
                for (Index u = 0; u < n_units; ++u) {
                    const Vec<K> p = load<K>(P + u * k);
                    for (Index t = 1; t <= order; ++t) {
                        float* now = A + u * sums + t * k;
                        store<K>(now + sums, p * load<K>(now - k) + load<K>(now));
                    }
                }
                for (Index t = 2; t <= order; ++t) score = score + load<K>(A + n_units * sums + t * k);
            }
            out[i] += total(score) / static_cast<float>(shape.members);
        }
    }

    // The recursion backwards; E[t] is the derivative by A[u + 1, t].
    static void pairs(const Shape& shape, const Scratch& scratch, const Derivatives& D, Index n, const float*, float*) {
        const Index k = length<K, FIXED>(shape), n_units = shape.n_units, order = shape.order;
        const Index sums = (order + 1) * k, row = padded(n_units) * k;
        const float share = 1.0f / static_cast<float>(shape.members);  // the score is a mean over members
        float* E = scratch.Z;
        for (Index i = 0; i < n; ++i) {
            for (Index c = 0; c < k; c += K) {
                for (Index t = 0; t <= order; ++t) store<K>(E + t * K, fill<K>(t >= 2 ? share : 0.0f));
                for (Index u = n_units - 1; u >= 0; --u) {
                    const Vec<K> p = load<K>(scratch.P + i * row + u * k + c);
                    const float* A = scratch.A + (i * (n_units + 1) + u) * sums + c;
                    Vec<K> sum = fill<K>(0.0f);
                    for (Index t = 1; t <= order; ++t) {  // E[t - 1] is used up before it gets its share of E[t]
                        const Vec<K> derivative = load<K>(E + t * K);
                        sum = derivative * load<K>(A + (t - 1) * k) + sum;
                        store<K>(E + (t - 1) * K, derivative * p + load<K>(E + (t - 1) * K));
                    }
                    store<K>(D.of + i * D.row + u * D.unit + c, sum);
                }
            }
        }
    }
};

}  // namespace splinefm::SPLINEFM_ISA
