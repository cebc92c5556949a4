// FmFM: the score of a row is ½ Σ_u p_u' q_u with q_u = Σ_{v≠u} M_{f(u) f(v)} p_v, the derivative by p_u. With all unit
// vectors end to end that is one product P M of matrices. M comes in panels of sixteen columns.
#pragma once

#include "kernels/fwfm.hpp"

namespace splinefm::SPLINEFM_ISA {

template <int K, bool FIXED> struct FmFM {
    static constexpr bool HAS_SUMS = false;
    static constexpr int PIECE = K;

    static void scores(const Shape shape, const Weights weights, const Columns columns, Index at, Index n,
                       const Scratch& scratch, float* D, float* out) {
        const Index size = shape.n_units * length<K, FIXED>(shape), row = lines(size);
        float* P = scratch.P;
        all_units<K, FIXED>(shape, weights, columns, at, n, P, row, out);
        for (Index c = 0; c < row; c += 16) {
            for (Index i = 0; i < n; i += 4) times_panel(P + i * row, row, weights.M + c * size, size, D + i * row + c);
            for (Index i = 0; i < n; ++i) {
                out[i] += 0.5f * total(load<16>(P + i * row + c) * load<16>(D + i * row + c));
            }
        }
    }

    // Sixteen columns of P M for four rows, in registers; buffers are padded beyond the last row.
    static void times_panel(const float* P, Index row, const float* panel, Index n, float* D) {
        Vec<16> q0 = fill<16>(0.0f), q1 = q0, q2 = q0, q3 = q0;
        for (Index r = 0; r < n; ++r) {
            const Vec<16> m = load<16>(panel + 16 * r);
            q0 = P[r] * m + q0;
            q1 = P[row + r] * m + q1;
            q2 = P[2 * row + r] * m + q2;
            q3 = P[3 * row + r] * m + q3;
        }
        store<16>(D, q0);
        store<16>(D + row, q1);
        store<16>(D + 2 * row, q2);
        store<16>(D + 3 * row, q3);
    }

    // dM_uv += slope p_u p_v' for u ≤ v (what is below is garbage), four by sixteen numbers in registers.
    static void pairs(const Shape& shape, const Scratch& scratch, float*, Index n, const float* slopes, float* dM) {
        const Index size = shape.n_units * length<K, FIXED>(shape), row = lines(size);
        const float* P = scratch.P;
        float* Z = scratch.Z;
        scale_rows<4>(P, n, slopes, 1, row, row, Z);
        for (Index r = 0; r < size; r += 4) {
            for (Index c = r / 16 * 16; c < row; c += 16) {
                float* d = dM + r * row + c;
                Vec<16> d0 = load<16>(d), d1 = load<16>(d + row);
                Vec<16> d2 = load<16>(d + 2 * row), d3 = load<16>(d + 3 * row);
                for (Index i = 0; i < n; ++i) {
                    const float* z = Z + i * row + r;
                    const Vec<16> p = load<16>(P + i * row + c);
                    d0 = z[0] * p + d0;
                    d1 = z[1] * p + d1;
                    d2 = z[2] * p + d2;
                    d3 = z[3] * p + d3;
                }
                store<16>(d, d0);
                store<16>(d + row, d1);
                store<16>(d + 2 * row, d2);
                store<16>(d + 3 * row, d3);
            }
        }
    }
};

}  // namespace splinefm::SPLINEFM_ISA
