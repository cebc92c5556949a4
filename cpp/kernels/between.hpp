// Parameters between fields: their gradient from that of pairs of units, a step, and the copy that the kernels read.
//
// | model       | parameters                                       | copy                                     |
// |-------------|--------------------------------------------------|------------------------------------------|
// | FwFM        | a weight R_fe for each pair of fields f ≤ e      | R_uv of all pairs of units, in fours     |
// | LowRankFwFM | U and d of R = U' diag(d) U without its diagonal | the same                                 |
// | FmFM        | a matrix M_fe for each pair of fields f ≤ e      | one matrix between all units, in panels  |
//
// The other models have none. An FwFM of several members has weights and a copy for each, one after the other. The
// gradient between two fields that must not interact is zero, so that they stay apart.
#pragma once

#include "kernels/fmfm.hpp"
#include "kernels/update.hpp"

namespace splinefm::SPLINEFM_ISA {

// The gradient of R_uv of a member: the sum over the numbers that the shards have left, one for each of the member's
// that meet in pairs.
template <int K, bool FIXED> inline float weight_gradient(const Memory& memory, Index u, Index v, Index member = 0) {
    const Index k = FIXED ? K : memory.shape.paired, part = FIXED ? K : k / memory.shape.members;
    const float* d = memory.work.between + (u * padded(memory.shape.n_units) + v) * k + member * part;
    Vec<K> sum = load<K>(d);
    for (Index c = K; c < part; c += K) sum = sum + load<K>(d + c);
    return total(sum);
}

// R_uv and R_vu of a member, in fours: see `fwfm.hpp`.
inline void set_weight(const Memory& memory, Index u, Index v, float value, Index member = 0) {
    const Index n_units = memory.shape.n_units;
    float* R = memory.targets.R + member * (padded(n_units) * n_units);
    R[(u / 4 * n_units + v) * 4 + u % 4] = value;
    R[(v / 4 * n_units + u) * 4 + v % 4] = value;
}

// R_fe of a member of an FwFM for e ≥ f.
template <int K, bool FIXED>
inline void update_weights_of(const Memory& memory, const Step& step, Index field, Index member) {
    const Shape shape = memory.shape;
    const Index n_fields = shape.n_fields, row = (member * n_fields + field) * n_fields;
    const Dense& between = memory.between;
    float* gradient = between.gradient + row;
    for (Index e = 0; e < n_fields; ++e) gradient[e] = 0.0f;
    for (Index u = 0; u < shape.n_units; ++u) {
        if (shape.unit_field[u] != field) continue;
        for (Index v = u + 1; v < shape.n_units; ++v) {
            gradient[shape.unit_field[v]] += weight_gradient<K, FIXED>(memory, u, v, member);
        }
    }
    for (Index at = shape.apart_ptr[field]; at < shape.apart_ptr[field + 1]; ++at) gradient[shape.apart[at]] = 0.0f;
    update_flat(between, row + field, n_fields - field, without_decay(step));
    for (Index u = 0; u < shape.n_units; ++u) {
        if (shape.unit_field[u] != field) continue;
        for (Index v = u + 1; v < shape.n_units; ++v) {
            set_weight(memory, u, v, between.values[row + shape.unit_field[v]], member);
        }
    }
}

// R_fe of an FwFM for e ≥ f.
template <int K, bool FIXED> inline void update_weights(const Memory& memory, const Step& step, Index field) {
    const Index members = FIXED ? 1 : memory.shape.members;
    for (Index member = 0; member < members; ++member) update_weights_of<K, FIXED>(memory, step, field, member);
}

// U and d, all at once; the gradient G of R is in the rest of the buffer for the gradient of U.
template <int K, bool FIXED> inline void update_low_rank(const Memory& memory, const Step& step) {
    const Shape shape = memory.shape;
    const Dense &between = memory.between, &scales = memory.scales;
    const Index n_fields = shape.n_fields, rank = scales.n;
    float *U = between.values, *d = scales.values, *dU = between.gradient, *G = dU + rank * n_fields;
    for (Index at = 0; at < n_fields * n_fields; ++at) G[at] = 0.0f;
    for (Index u = 0; u < shape.n_units; ++u) {
        for (Index v = u + 1; v < shape.n_units; ++v) {
            const Index f = shape.unit_field[u], e = shape.unit_field[v];
            if (f == e) continue;
            const float gradient = weight_gradient<K, FIXED>(memory, u, v);
            G[f * n_fields + e] += gradient;
            G[e * n_fields + f] += gradient;
        }
    }
    for (Index r = 0; r < rank; ++r) {
        scales.gradient[r] = 0.0f;
        for (Index f = 0; f < n_fields; ++f) {
            float product = 0.0f;
            for (Index e = 0; e < n_fields; ++e) product += G[f * n_fields + e] * U[r * n_fields + e];
            dU[r * n_fields + f] = d[r] * product;
            scales.gradient[r] += 0.5f * product * U[r * n_fields + f];
        }
    }
    update_flat(between, 0, rank * n_fields, without_decay(step));
    update_flat(scales, 0, rank, without_decay(step));
    for (Index u = 0; u < shape.n_units; ++u) {
        for (Index v = u + 1; v < shape.n_units; ++v) {
            const Index f = shape.unit_field[u], e = shape.unit_field[v];
            float value = 0.0f;
            for (Index r = 0; r < rank && f != e; ++r) value += U[r * n_fields + f] * d[r] * U[r * n_fields + e];
            set_weight(memory, u, v, value);
        }
    }
}

// M_fe of an FmFM for e ≥ f, and what they are in the panels: see `fmfm.hpp`.
template <int K, bool FIXED> inline void update_matrices(const Memory& memory, const Step& step, Index field) {
    constexpr int PART = K < 16 ? K : 16;
    const Shape shape = memory.shape;
    const Dense& between = memory.between;
    const Index k = length<K, FIXED>(shape), n_fields = shape.n_fields, n = shape.n_units * k;
    const Index first = (field * n_fields + field) * k * k, end = (field + 1) * n_fields * k * k;
    for (Index at = first; at < end; at += K) store<K>(between.gradient + at, fill<K>(0.0f));
    for (Index u = 0; u < shape.n_units; ++u) {
        if (shape.unit_field[u] != field) continue;
        for (Index v = u + 1; v < shape.n_units; ++v) {
            float* gradient = between.gradient + (field * n_fields + shape.unit_field[v]) * k * k;
            for (Index r = 0; r < k; ++r) {
                for (Index c = 0; c < k; c += PART) {
                    const Index column = v * k + c, of_panel = column % 16;
                    const float* d = memory.work.between + panel(column - of_panel) + 16 * (u * k + r) + of_panel;
                    store<PART>(gradient + r * k + c, load<PART>(d) + load<PART>(gradient + r * k + c));
                }
            }
        }
    }
    for (Index at = shape.apart_ptr[field]; at < shape.apart_ptr[field + 1]; ++at) {
        float* gradient = between.gradient + (field * n_fields + shape.apart[at]) * k * k;
        for (Index c = 0; c < k * k; c += K) store<K>(gradient + c, fill<K>(0.0f));
    }
    update_flat(between, first, end - first, without_decay(step));
    float* M = memory.targets.M;
    for (Index u = 0; u < shape.n_units; ++u) {
        if (shape.unit_field[u] != field) continue;
        for (Index v = u + 1; v < shape.n_units; ++v) {
            const float* values = between.values + (field * n_fields + shape.unit_field[v]) * k * k;
            for (Index r = 0; r < k; ++r) {
                const Index row = u * k + r;
                for (Index c = 0; c < k; ++c) {
                    const Index column = v * k + c;
                    M[(column / 16 * n + row) * 16 + column % 16] = values[r * k + c];
                    M[(row / 16 * n + column) * 16 + row % 16] = values[r * k + c];
                }
            }
        }
    }
}

}  // namespace splinefm::SPLINEFM_ISA
