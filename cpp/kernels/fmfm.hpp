// FmFM: the score of a row is ½ Σ_u p_u' q_u with q_u = Σ_{v≠u} M_{f(u) f(v)} p_v, the derivative by p_u. With all unit
// vectors end to end that is one product P M of matrices. M comes in panels of sixteen columns, and so does the sum of
// slope P' P, the gradient of M: see `panel`.
#pragma once

#include "kernels/fwfm.hpp"

namespace splinefm::SPLINEFM_ISA {

// As many rows at a time as make sums of sixteen columns fill the registers. It does not change the order of any sum.
#if defined(__aarch64__)
inline constexpr int SUMMED_ROWS = 6;
#else
inline constexpr int SUMMED_ROWS = LANES == 16 ? 12 : LANES == 8 ? 6 : 2;
#endif

// Where the panel of columns c .. c + 15 of the gradient of M begins: it has rows 0 .. c + 15 of sixteen numbers. The
// rest of the matrix is that above the diagonal, mirrored.
[[gnu::always_inline]] inline Index panel(Index c) { return c * (c + 16) / 2; }

// Rows at a time for less than R rows that are left.
constexpr int fewer(int R) { return R > 8 ? 8 : R > 4 ? 4 : R / 2; }

template <int K, bool FIXED> struct FmFM {
    static constexpr bool HAS_SUMS = false;
    static constexpr int PIECE = K;
    static constexpr int PART = K < 16 ? K : 16;  // of sixteen columns, belongs to one unit

    // Unit by unit: their rows are read one after the other when the gradients are summed.
    static Derivatives derivatives(const Shape& shape, float* D, Index rows) {
        const Index k = length<K, FIXED>(shape);
        return {D, k, rows * k};
    }

    static void scores(const Shape shape, const Weights weights, const Columns columns, Index at, Index n,
                       const Scratch& scratch, const Derivatives D, float* out) {
        const Index size = shape.n_units * length<K, FIXED>(shape), row = lines(size);
        all_units<K, FIXED>(shape, weights, columns, at, n, scratch.P, row, out);
        for (Index c = 0; c < row; c += 16)
            times_panel<SUMMED_ROWS>(shape, weights.M + c * size, c, 0, n, scratch.P, D, out);
    }

    // Rows i .. n - 1, R at a time, then what is left.
    template <int R> static void times_panel(const Shape& shape, const float* M, Index c, Index i, Index n,
                                             const float* P, const Derivatives D, float* out) {
        for (; i + R <= n; i += R) times_rows<R>(shape, M, c, i, P, D, out);
        if constexpr (R > 1) {
            if (i < n) times_panel<fewer(R)>(shape, M, c, i, n, P, D, out);
        }
    }

    // Columns c .. c + 15 of P M for R rows, in registers.
    template <int R> [[gnu::always_inline]] static void times_rows(const Shape& shape, const float* M, Index c, Index i,
                                                                   const float* P, const Derivatives D, float* out) {
        const Index k = length<K, FIXED>(shape), size = shape.n_units * k, row = lines(size);
        const float* p = P + i * row;
        Vec<16> q[R];
#pragma GCC unroll 12
        for (int j = 0; j < R; ++j) q[j] = fill<16>(0.0f);
        for (Index r = 0; r < size; ++r) {
            const Vec<16> m = load<16>(M + 16 * r);
#pragma GCC unroll 12
            for (int j = 0; j < R; ++j) q[j] = p[j * row + r] * m + q[j];
        }
#pragma GCC unroll 12
        for (int j = 0; j < R; ++j) {
            float* to = D.of + (i + j) * D.row;
            put<16>(q[j], k, size, c, D.unit, to);
            out[i + j] += 0.5f * total(load<16>(p + j * row + c) * q[j]);
        }
    }

    // Numbers c .. c + N - 1 of the derivatives of a row, to their units.
    template <int N>
    [[gnu::always_inline]] static void put(const Vec<N>& q, Index k, Index size, Index c, Index unit, float* to) {
        if constexpr (N > PART) {
            put<N / 2>(low(q), k, size, c, unit, to);
            put<N / 2>(high(q), k, size, c + N / 2, unit, to);
        } else if (c < size) {
            store<N>(to + c / k * unit + c % k, q);
        }
    }

    // dM_uv += slope p_u p_v' for u ≤ v (what is below the diagonal is garbage).
    static void pairs(const Shape& shape, const Scratch& scratch, const Derivatives&, Index n, const float* slopes,
                      float* dM) {
        const Index row = lines(shape.n_units * length<K, FIXED>(shape));
        const float* P = scratch.P;
        float* Z = scratch.Z;
        for (Index c = 0; c < row; c += 16) {
            for (Index i = 0; i < n; ++i) store<16>(Z + 16 * i, slopes[i] * load<16>(P + i * row + c));
            pairs_panel<SUMMED_ROWS>(P, row, Z, n, 0, c + 16, dM + panel(c));
        }
    }

    // Rows r .. end - 1 of a panel, R at a time, then what is left.
    template <int R>
    static void pairs_panel(const float* P, Index row, const float* Z, Index n, Index r, Index end, float* d) {
        for (; r + R <= end; r += R) pairs_rows<R>(P + r, row, Z, n, d + 16 * r);
        if constexpr (R > 1) {
            if (r < end) pairs_panel<fewer(R)>(P, row, Z, n, r, end, d);
        }
    }

    // R rows of a panel, in registers.
    template <int R>
    [[gnu::always_inline]] static void pairs_rows(const float* P, Index row, const float* Z, Index n, float* d) {
        Vec<16> sum[R];
#pragma GCC unroll 12
        for (int j = 0; j < R; ++j) sum[j] = load<16>(d + 16 * j);
        for (Index i = 0; i < n; ++i) {
            const Vec<16> z = load<16>(Z + 16 * i);
#pragma GCC unroll 12
            for (int j = 0; j < R; ++j) sum[j] = P[i * row + j] * z + sum[j];
        }
#pragma GCC unroll 12
        for (int j = 0; j < R; ++j) store<16>(d + 16 * j, sum[j]);
    }
};

}  // namespace splinefm::SPLINEFM_ISA
