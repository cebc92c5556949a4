// Interactions of the units of one row, by model. All but FmFM go coordinate by coordinate: a vector of k numbers is
// handled K at a time, in one step where k is 4, 8, 16 or 32, else 8 at a time.
#pragma once

#include <cstdint>

#include "kernels/table.hpp"
#include "vec.hpp"

namespace splinefm::SPLINEFM_ISA {

// Numbers c .. c + K - 1 of the vector of unit u.
template <int K> inline Vec<K> part(const RowUnits& row, std::int64_t u, std::int64_t c) {
    std::int64_t t = row.ends[u];
    const std::int64_t end = row.ends[u + 1];
    Vec<K> p = row.weights[t] * load<K>(row.factors + row.features[t] * row.width + c);
    for (++t; t < end; ++t) p += row.weights[t] * load<K>(row.factors + row.features[t] * row.width + c);
    return p;
}

// ½ (|Σ p|² - Σ |p|²)
template <int K> float fm_part(RowUnits row, std::int64_t c) {
    Vec<K> sum = fill<K>(0.0f), squares = sum;
    for (std::int64_t u = 0; u < row.n_units; ++u) {
        const Vec<K> p = part<K>(row, u, c);
        sum += p;
        squares += p * p;
    }
    return 0.5f * total(sum * sum - squares);
}

// Σ_u p_u' Σ_{v<u} R_{f(u) f(v)} p_v, in four sums, which do not wait for each other. EVERY: every field has one unit,
// and weights are read in order.
template <int K, bool EVERY> float fwfm_sum(const RowUnits row, std::int64_t c) {
    float* const P = row.vectors;
    const std::int32_t* const unit_fields = row.unit_fields;
    const float* const between = row.between + c * row.members / row.k * row.n_fields * row.n_fields;
    Vec<K> score = fill<K>(0.0f);
    for (std::int64_t u = 0; u < row.n_units; ++u) {
        const float* const R = between + (EVERY ? u : unit_fields[u]) * row.n_fields;
        const auto r = [=](std::int64_t v) { return R[EVERY ? v : unit_fields[v]]; };
        Vec<K> q0 = fill<K>(0.0f), q1 = q0, q2 = q0, q3 = q0;
        std::int64_t v = 0;
        for (; v + 4 <= u; v += 4) {
            q0 += r(v) * load<K>(P + v * K);
            q1 += r(v + 1) * load<K>(P + (v + 1) * K);
            q2 += r(v + 2) * load<K>(P + (v + 2) * K);
            q3 += r(v + 3) * load<K>(P + (v + 3) * K);
        }
        for (; v < u; ++v) q0 += r(v) * load<K>(P + v * K);
        const Vec<K> p = part<K>(row, u, c);
        store(P + u * K, p);
        score += p * ((q0 + q1) + (q2 + q3));
    }
    return total(score);
}

template <int K> float fwfm_part(const RowUnits& row, std::int64_t c) {
    bool every = row.n_units == row.n_fields;
    for (std::int64_t u = 0; u < row.n_units; ++u) every &= row.unit_fields[u] == u;
    return every ? fwfm_sum<K, true>(row, c) : fwfm_sum<K, false>(row, c);
}

// Σ_t A_t for t ≥ 2, where every unit adds p A_{t-1} to A_t; A_0 = 1
template <int K> float higher_part(RowUnits row, std::int64_t c) {
    float* const A = row.vectors;
    store(A, fill<K>(1.0f));
    for (std::int64_t t = 1; t <= row.order; ++t) store(A + t * K, fill<K>(0.0f));
    for (std::int64_t u = 0; u < row.n_units; ++u) {
        const Vec<K> p = part<K>(row, u, c);
        for (std::int64_t t = row.order; t > 0; --t)
            store(A + t * K, load<K>(A + t * K) + p * load<K>(A + (t - 1) * K));
    }
    Vec<K> score = fill<K>(0.0f);
    for (std::int64_t t = 2; t <= row.order; ++t) score += load<K>(A + t * K);
    return total(score);
}

// Σ_{u<v<w} q_u q_v q_w of the numbers behind the first k, K at a time
template <int K> float triples_by(const RowUnits& row, std::int64_t k) {
    Vec<K> score = fill<K>(0.0f);
    for (std::int64_t c = k; c < row.width; c += K) {
        Vec<K> ones = fill<K>(0.0f), twos = ones;
        for (std::int64_t u = 0; u < row.n_units; ++u) {
            const Vec<K> q = part<K>(row, u, c);
            score += q * twos;
            twos += q * ones;
            ones += q;
        }
    }
    return total(score);
}

// Every pass reads the terms of all units again, so one of sixteen numbers is better than two of eight.
inline float triples(const RowUnits& row, std::int64_t k) {
    return (row.width - k) % 16 == 0 ? triples_by<16>(row, k) : triples_by<8>(row, k);
}

// The vector of a unit, which is long in an FFM: a pass per four terms.
template <int K> void sum_terms(const RowUnits& row, std::int64_t u, float* out) {
    const std::int64_t width = row.width, end = row.ends[u + 1];
    std::int64_t t = row.ends[u];
    for (std::int64_t c = 0; c < width; c += K) store(out + c, fill<K>(0.0f));
    for (; t + 4 <= end; t += 4) {
        const float *v0 = row.factors + row.features[t] * width, *v1 = row.factors + row.features[t + 1] * width;
        const float *v2 = row.factors + row.features[t + 2] * width, *v3 = row.factors + row.features[t + 3] * width;
        const float* x = row.weights + t;
        const float x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
        for (std::int64_t c = 0; c < width; c += K) {
            Vec<K> p = load<K>(out + c) + x0 * load<K>(v0 + c);
            p += x1 * load<K>(v1 + c);
            p += x2 * load<K>(v2 + c);
            p += x3 * load<K>(v3 + c);
            store(out + c, p);
        }
    }
    for (; t < end; ++t) {
        const float* const v = row.factors + row.features[t] * width;
        const float x = row.weights[t];
        for (std::int64_t c = 0; c < width; c += K) store(out + c, load<K>(out + c) + x * load<K>(v + c));
    }
}

// Σ_{v<u} p_u[f(v)]' p_v[f(u)]; D[e, v] = p_v[e] is kept for the fields e that are still to come
template <int K> float ffm(RowUnits row, std::int64_t k) {
    const std::int64_t n = row.n_units, n_fields = row.n_fields;
    const std::int32_t* const unit_fields = row.unit_fields;
    float *const D = row.vectors, *const whole = D + n_fields * n * k;
    Vec<K> even = fill<K>(0.0f), odd = even;
    for (std::int64_t u = 0; u < n; ++u) {
        const std::int64_t field = unit_fields[u], t = row.ends[u];
        const float* p = row.factors + row.features[t] * row.width;  // the vector of a category stays where it is
        if (row.ends[u + 1] > t + 1 || row.weights[t] != 1.0f) {
            sum_terms<K>(row, u, whole);
            p = whole;
        }
        const float* const theirs = D + field * n * k;
        for (std::int64_t c = 0; c < k; c += K) {
            std::int64_t v = 0;
            for (; v + 2 <= u; v += 2) {
                even += load<K>(p + unit_fields[v] * k + c) * load<K>(theirs + v * k + c);
                odd += load<K>(p + unit_fields[v + 1] * k + c) * load<K>(theirs + (v + 1) * k + c);
            }
            if (v < u) even += load<K>(p + unit_fields[v] * k + c) * load<K>(theirs + v * k + c);
            for (std::int64_t e = field; e < n_fields; ++e) store(D + (e * n + u) * k + c, load<K>(p + e * k + c));
        }
    }
    return total(even + odd);
}

// Σ_v (Σ_{u<v} p_u' M_{f(u) f(v)}) p_v, in four sums; M is stored by its second field
template <int K> float fmfm(RowUnits row, std::int64_t k) {
    const std::int64_t block = k * k;
    float* const P = row.vectors;
    const std::int32_t* const unit_fields = row.unit_fields;
    Vec<K> score = fill<K>(0.0f);
    for (std::int64_t v = 0; v < row.n_units; ++v) {
        const float* const M = row.between + unit_fields[v] * row.n_fields * block;
        for (std::int64_t c = 0; c < k; c += K) {
            Vec<K> q0 = fill<K>(0.0f), q1 = q0, q2 = q0, q3 = q0;
            std::int64_t u = 0;
            for (; u + 4 <= v; u += 4) {
                const float *m0 = M + unit_fields[u] * block + c, *m1 = M + unit_fields[u + 1] * block + c;
                const float *m2 = M + unit_fields[u + 2] * block + c, *m3 = M + unit_fields[u + 3] * block + c;
                const float* const p = P + u * k;
                for (std::int64_t i = 0; i < k; ++i) {
                    q0 += p[i] * load<K>(m0 + i * k);
                    q1 += p[i + k] * load<K>(m1 + i * k);
                    q2 += p[i + 2 * k] * load<K>(m2 + i * k);
                    q3 += p[i + 3 * k] * load<K>(m3 + i * k);
                }
            }
            for (; u < v; ++u) {
                const float* const m = M + unit_fields[u] * block + c;
                for (std::int64_t i = 0; i < k; ++i) q0 += P[u * k + i] * load<K>(m + i * k);
            }
            const Vec<K> p = part<K>(row, v, c);
            store(P + v * k + c, p);
            score += ((q0 + q1) + (q2 + q3)) * p;
        }
    }
    return total(score);
}

// The sum over parts of K coordinates.
template <int K, class Part> inline float by_parts(Part part, const RowUnits& row, std::int64_t k) {
    float score = 0.0f;
    for (std::int64_t c = 0; c < k; c += K) score += part(row, c);
    return score;
}

// FIXED: k is K, a constant for the compiler.
template <int K, bool FIXED> float score_row(const RowUnits& row) {
    const std::int64_t k = FIXED ? K : row.k;
    switch (row.model) {
    case Model::fm: return by_parts<K>(fm_part<K>, row, k);
    case Model::fwfm: return by_parts<K>(fwfm_part<K>, row, k) + triples(row, k);
    case Model::fmfm: return fmfm<K>(row, k);
    case Model::ffm: return ffm<K>(row, k);
    case Model::higher: return by_parts<K>(higher_part<K>, row, k) / static_cast<float>(row.members);
    case Model::low_rank: break;  // is an FwFM: see `scored_as`
    }
    return 0.0f;
}

inline float score_row_of(const RowUnits& row) {
    // In an FwFM, a piece of eight numbers belongs to one member.
    switch (row.model == Model::fwfm && row.members > 1 ? 0 : row.k) {
    case 4: return score_row<4, true>(row);
    case 8: return score_row<8, true>(row);
    case 16: return score_row<16, true>(row);
    case 32: return score_row<32, true>(row);
    default: return score_row<8, false>(row);
    }
}

}  // namespace splinefm::SPLINEFM_ISA
