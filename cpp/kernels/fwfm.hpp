// FwFM: the score of a row is ½ Σ_u p_u' q_u with q_u = Σ_{v≠u} R_{f(u) f(v)} p_v, which is the derivative by p_u.
// R_uv of all pairs of units comes in fours: [u // 4, v, u % 4], zero for u = v. A LowRankFwFM is the same. Behind the
// numbers that meet in pairs a vector may have some that meet in triples: they add Σ_{u<v<w} q_u q_v q_w.
#pragma once

#include "kernels/units.hpp"

namespace splinefm::SPLINEFM_ISA {

// Z = slope P of n rows of `units` vectors of k numbers, of which `n_pairs` meet in pairs.
template <int K>
inline void scale_rows(const float* P, Index n, const float* slopes, Index units, Index k, Index n_pairs, float* Z) {
    for (Index i = 0; i < n; ++i) {
        for (Index at = i * units * k; at < (i + 1) * units * k; at += k) {
            for (Index c = at; c < at + n_pairs; c += K) store<K>(Z + c, slopes[i] * load<K>(P + c));
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

// All k numbers meet in pairs if PIECE is K; the first half if it is K / 2. If k is any multiple of 8, `paired` numbers
// do.
template <int K, bool FIXED, int PART> struct FwFM {
    static constexpr bool HAS_SUMS = false;
    static constexpr int PIECE = PART;

    static Derivatives derivatives(const Shape& shape, float* D, Index) {
        const Index k = length<K, FIXED>(shape);
        return {D, padded(shape.n_units) * k, k};
    }

    [[gnu::always_inline]] static Index paired(const Shape& shape) {
        if constexpr (FIXED) {
            return PIECE;
        } else {
            return shape.paired;
        }
    }

    static void scores(const Shape shape, const Weights weights, const Columns columns, Index at, Index n,
                       const Scratch& scratch, const Derivatives derivatives, float* out) {
        const Index k = length<K, FIXED>(shape), n_pairs = paired(shape);
        const Index n_units = shape.n_units, row = padded(n_units) * k, part = n_pairs / (FIXED ? 1 : shape.members);
        float *P = scratch.P, *D = derivatives.of;
        all_units<K, FIXED>(shape, weights, columns, at, n, P, row, out);
        for (Index i = 0; i < n; ++i) {
            Vec<PIECE> score = fill<PIECE>(0.0f);
            for (Index c = 0; c < n_pairs; c += PIECE) {
                const float *p = P + i * row + c, *r = weights.R + c / part * (padded(n_units) * n_units);
                float* q = D + i * row + c;
                for (Index u = 0; u < n_units; u += 4) {  // four sums in registers share every load of p
                    Vec<PIECE> q0 = fill<PIECE>(0.0f), q1 = q0, q2 = q0, q3 = q0;
                    for (Index v = 0; v < n_units; ++v, r += 4) {
                        const Vec<PIECE> other = load<PIECE>(p + v * k);
                        q0 = r[0] * other + q0;
                        q1 = r[1] * other + q1;
                        q2 = r[2] * other + q2;
                        q3 = r[3] * other + q3;
                    }
                    const Index from = u * k;
                    store<PIECE>(q + from, q0);
                    store<PIECE>(q + from + k, q1);
                    store<PIECE>(q + from + 2 * k, q2);
                    store<PIECE>(q + from + 3 * k, q3);
                    score = load<PIECE>(p + from) * q0 + (load<PIECE>(p + from + k) * q1 + score);
                    score = load<PIECE>(p + from + 2 * k) * q2 + (load<PIECE>(p + from + 3 * k) * q3 + score);
                }
            }
            out[i] += 0.5f * total(score);
            for (Index c = n_pairs; c < k; c += PIECE) {
                out[i] += total(sum_triples<PIECE>(P + i * row + c, n_units, k, D + i * row + c));
            }
        }
    }

    // dR_uv += slope p_u p_v, number by number: summed up later. Two by two, so that loads are shared.
    static void pairs(const Shape& shape, const Scratch& scratch, const Derivatives&, Index n, const float* slopes,
                      float* dR) {
        constexpr Index ROWS = 16;  // their unit vectors stay in the nearest cache while all pairs are multiplied
        const Index k = length<K, FIXED>(shape), n_pairs = paired(shape);
        const Index n_units = shape.n_units, units = padded(n_units), row = units * k, below = units * n_pairs;
        const float* P = scratch.P;
        float* Z = scratch.Z;
        scale_rows<PIECE>(P, n, slopes, units, k, n_pairs, Z);
        for (Index first = 0; first < n; first += ROWS) {
            const Index last = least(first + ROWS, n);
            for (Index u = 0; u < n_units; u += 2) {
                for (Index v = u; v < n_units; v += 2) {
                    for (Index c = 0; c < n_pairs; c += PIECE) {
                        float* d = dR + (u * units + v) * n_pairs + c;
                        Vec<PIECE> d00 = load<PIECE>(d), d01 = load<PIECE>(d + n_pairs);
                        Vec<PIECE> d10 = load<PIECE>(d + below), d11 = load<PIECE>(d + below + n_pairs);
                        for (Index i = first; i < last; ++i) {
                            const float *z = Z + i * row + u * k + c, *p = P + i * row + v * k + c;
                            const Vec<PIECE> z0 = load<PIECE>(z), z1 = load<PIECE>(z + k), p0 = load<PIECE>(p),
                                             p1 = load<PIECE>(p + k);
                            d00 = z0 * p0 + d00;
                            d01 = z0 * p1 + d01;
                            d10 = z1 * p0 + d10;
                            d11 = z1 * p1 + d11;
                        }
                        store<PIECE>(d, d00);
                        store<PIECE>(d + n_pairs, d01);
                        store<PIECE>(d + below, d10);
                        store<PIECE>(d + below + n_pairs, d11);
                    }
                }
            }
        }
    }
};

template <int K, bool FIXED> using PairsFwFM = FwFM<K, FIXED, K>;
template <int K, bool FIXED> using HalvesFwFM = FwFM<K, FIXED, K / 2>;

}  // namespace splinefm::SPLINEFM_ISA
