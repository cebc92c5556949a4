// FwFM: the score of a row is ½ Σ_u p_u' q_u with q_u = Σ_{v≠u} R_{f(u) f(v)} p_v, which is the derivative by p_u.
// R_uv of all pairs of units comes in fours: [u // 4, v, u % 4], zero for u = v. A LowRankFwFM is the same. Behind the
// numbers that meet in pairs a vector may have some that meet in triples: they add Σ_{u<v<w} q_u q_v q_w.
#pragma once

#include "kernels/units.hpp"

namespace splinefm::SPLINEFM_ISA {

// Z = slope P of n rows.
inline void scale_rows(const float* P, Index n, const float* slopes, Index row_length, float* Z) {
    for (Index i = 0; i < n; ++i) {
        for (Index at = i * row_length; at < (i + 1) * row_length; at += 4) {
            store<4>(Z + at, slopes[i] * load<4>(P + at));
        }
    }
}

// The sum over all triples of units, K numbers at a time, from the vectors P of a row, k numbers apart; D gets the
// derivatives: without unit u, the sum over all pairs is that over all pairs with it - q_u (Σ q - q_u).
template <int K> inline Vec<K> sum_triples(const float* P, Index n_units, Index k, float* D) {
    Vec<K> ones = fill<K>(0.0f), twos = ones, threes = ones;
    for (Index u = 0; u < n_units; ++u) {
        const Vec<K> q = load<K>(P + u * k);
        threes = q * twos + threes;
        twos = q * ones + twos;
        ones = q + ones;
    }
    for (Index u = 0; u < n_units; ++u) {
        const Vec<K> q = load<K>(P + u * k);
        store<K>(D + u * k, twos - q * (ones - q));
    }
    return threes;
}

template <int K, bool FIXED> struct FwFM {
    static constexpr bool HAS_SUMS = false;

    static void scores(const Shape shape, const Weights weights, const Columns columns, Index at, Index n,
                       const Scratch& scratch, float* D, float* out) {
        const Index k = length<K, FIXED>(shape), n_pairs = paired<K, FIXED>(shape);
        const Index n_units = shape.n_units, row = padded(n_units) * k, part = n_pairs / (FIXED ? 1 : shape.members);
        float* P = scratch.P;
        all_units<K, FIXED>(shape, weights, columns, at, n, P, row, out);
        for (Index i = 0; i < n; ++i) {
            Vec<K> score = fill<K>(0.0f);
            for (Index c = 0; c < n_pairs; c += K) {
                const float *p = P + i * row + c, *r = weights.R + c / part * (padded(n_units) * n_units);
                float* q = D + i * row + c;
                for (Index u = 0; u < n_units; u += 4) {  // four sums in registers share every load of p
                    Vec<K> q0 = fill<K>(0.0f), q1 = q0, q2 = q0, q3 = q0;
                    for (Index v = 0; v < n_units; ++v, r += 4) {
                        const Vec<K> other = load<K>(p + v * k);
                        q0 = r[0] * other + q0;
                        q1 = r[1] * other + q1;
                        q2 = r[2] * other + q2;
                        q3 = r[3] * other + q3;
                    }
                    const Index from = u * k;
                    store<K>(q + from, q0);
                    store<K>(q + from + k, q1);
                    store<K>(q + from + 2 * k, q2);
                    store<K>(q + from + 3 * k, q3);
                    score = load<K>(p + from) * q0 + (load<K>(p + from + k) * q1 + score);
                    score = load<K>(p + from + 2 * k) * q2 + (load<K>(p + from + 3 * k) * q3 + score);
                }
            }
            out[i] += 0.5f * total(score);
            for (Index c = n_pairs; c < k; c += K) {
                out[i] += total(sum_triples<K>(P + i * row + c, n_units, k, D + i * row + c));
            }
        }
    }

    // dR_uv += slope p_u p_v, number by number: summed up later. Two by two, so that loads are shared.
    static void pairs(const Shape& shape, const Scratch& scratch, float*, Index n, const float* slopes, float* dR) {
        constexpr Index ROWS = 16;  // their unit vectors stay in the nearest cache while all pairs are multiplied
        const Index k = length<K, FIXED>(shape), n_pairs = paired<K, FIXED>(shape);
        const Index n_units = shape.n_units, units = padded(n_units), row = units * k, below = units * n_pairs;
        const float* P = scratch.P;
        float* Z = scratch.Z;
        scale_rows(P, n, slopes, row, Z);
        for (Index first = 0; first < n; first += ROWS) {
            const Index last = least(first + ROWS, n);
            for (Index u = 0; u < n_units; u += 2) {
                for (Index v = u; v < n_units; v += 2) {
                    for (Index c = 0; c < n_pairs; c += K) {
                        float* d = dR + (u * units + v) * n_pairs + c;
                        Vec<K> d00 = load<K>(d), d01 = load<K>(d + n_pairs);
                        Vec<K> d10 = load<K>(d + below), d11 = load<K>(d + below + n_pairs);
                        for (Index i = first; i < last; ++i) {
                            const float *z = Z + i * row + u * k + c, *p = P + i * row + v * k + c;
                            const Vec<K> z0 = load<K>(z), z1 = load<K>(z + k), p0 = load<K>(p), p1 = load<K>(p + k);
                            d00 = z0 * p0 + d00;
                            d01 = z0 * p1 + d01;
                            d10 = z1 * p0 + d10;
                            d11 = z1 * p1 + d11;
                        }
                        store<K>(d, d00);
                        store<K>(d + n_pairs, d01);
                        store<K>(d + below, d10);
                        store<K>(d + below + n_pairs, d11);
                    }
                }
            }
        }
    }
};

}  // namespace splinefm::SPLINEFM_ISA
