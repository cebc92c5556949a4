// The step of an FFM, whose long vectors make it memory-bound: row by row, all of a row while it is in the cache.
//
// S[f] is the sum of the unit vectors of field f, and S[f, e] its part for field e. The score of a row is
// Σ_{f<e} S[f, e]' S[e, f], and the derivative by p_u[e] of a unit of field f is S[e, f], less p_u[f] if e = f.
//
// Every weight of a batch has a *position*, where the gradient of its feature is summed. A feature that is active in
// several shards has a position in each, linked to the one before. So no two threads write to the same memory, and the
// order of sums does not depend on threads.
#pragma once

#include "kernels/rows.hpp"
#include "kernels/update.hpp"

namespace splinefm::SPLINEFM_ISA {

// Codes in `active.position`: a weight of zero; and from NEW downward, a position that is new and must be cleared.
constexpr Index NONE = -1, NEW = -2;

// Places for the weights of a field of a batch of n rows, shard by shard.
inline void assign_positions(const Memory& memory, Index n, Index field) {
    const Shape shape = memory.shape;
    const Columns columns = memory.columns;
    const Active active = memory.active;
    const Index shard = memory.work.shard;
    Index begin = active.ptr[field], end = begin, next_shard = 0;
    for (Index i = 0; i < n; ++i) {
        if (i == next_shard) {
            begin = end;
            next_shard += shard;
        }
        for (Index w = shape.window_ptr[field]; w < shape.window_ptr[field + 1]; ++w) {
            const Index j = shape.weight_ptr[w], feature = start_of(shape, columns, i, w);
            if (i + AHEAD < n) fetch(active.index_of + start_of(shape, columns, i + AHEAD, w));
            for (Index m = 0; m < shape.weight_ptr[w + 1] - j; ++m) {
                const Index at = column(i, j + m, shape.n_weights);
                Index position = NONE;
                if (columns.weight[at] != 0.0f) {
                    position = active.index_of[feature + m];
                    if (position < begin) {  // none so far, or that of another shard
                        active.before[end] = static_cast<std::int32_t>(position);
                        if (position >= 0) active.features[position] = -1;  // its gradient goes to the next one
                        active.features[end] = static_cast<std::int32_t>(feature + m);
                        active.index_of[feature + m] = static_cast<std::int32_t>(end);
                        active.self_weight[end] = 0.0f;
                        position = NEW - end;
                        ++end;
                    }
                }
                active.position[at] = static_cast<std::int32_t>(position);
            }
        }
    }
    active.n[16 * field] = end - active.ptr[field];
}

// Whether a unit is the only one of its field.
inline bool is_only(const Shape& shape, Index u) {
    const Index field = shape.unit_field[u];
    const bool before = u > 0 && shape.unit_field[u - 1] == field;
    return !before && (u + 1 == shape.n_units || shape.unit_field[u + 1] != field);
}

template <int K, bool FIXED> struct FFM {
    // S = the sum of four neighboring features times their weights, as those of a cubic spline.
    static void set_four(const float* T, Index width, Four x, float* S) {
        for (Index c = 0; c < width; c += K) store<K>(S + c, sum_four<K>(x, T + c, width));
    }

    // S = x T for the first weight of a field, else S += x T.
    static void add_weight(const float* T, Index width, float x, bool first, float* S) {
        constexpr int WIDE = K <= 8 ? 4 * K : K;
        const Index wide_end = width / WIDE * WIDE;
        if (first) {
            for (Index c = 0; c < width; c += K) store<K>(S + c, x * load<K>(T + c));
        } else {
            for (Index c = 0; c < wide_end; c += WIDE) store<WIDE>(S + c, x * load<WIDE>(T + c) + load<WIDE>(S + c));
            for (Index c = wide_end; c < width; c += K) store<K>(S + c, x * load<K>(T + c) + load<K>(S + c));
        }
    }

    // S = p_u for the first unit of a field, else S += p_u; a pass per weight.
    static void add_unit(const Shape& shape, const float* T, const Columns& columns, Index i, Index u, float* S,
                         bool first) {
        const Index width = shape.n_fields * length<K, FIXED>(shape);
        for (Index w = shape.unit_ptr[u]; w < shape.unit_ptr[u + 1]; ++w) {
            const Index j = shape.weight_ptr[w], n = shape.weight_ptr[w + 1] - j;
            const float* from = T + start_of(shape, columns, i, w) * width;
            const float* x = weight_of(shape, columns, i, j);
            for (Index m = 0; m < n; ++m, first = false) add_weight(from + m * width, width, x[16 * m], first, S);
        }
    }

    // to += from
    static void add_vector(const float* from, Index width, float* to) {
        constexpr int WIDE = K < 16 ? 16 : K;
        const Index wide_end = width / WIDE * WIDE;
        for (Index c = 0; c < wide_end; c += WIDE) store<WIDE>(to + c, load<WIDE>(to + c) + load<WIDE>(from + c));
        for (Index c = wide_end; c < width; c += K) store<K>(to + c, load<K>(to + c) + load<K>(from + c));
    }

    // Numbers of S[f, e] and S[f, e + 1], from `row` on.
    static Vec<2 * K> load_two(const float* row, Index k) {
        if constexpr (FIXED) {
            return load<2 * K>(row);
        } else {
            return join(load<K>(row), load<K>(row + k));
        }
    }

    // Σ_{f<e} S[f, e]' S[e, f]; separate sums, so that additions do not wait for each other.
    static float sum_pairs(Index n_fields, Index k, const float* S) {
        const Index width = n_fields * k;
        Vec<2 * K> a = fill<2 * K>(0.0f), b = a;
        Vec<K> rest = fill<K>(0.0f);
        for (Index c = 0; c < k; c += K) {
            for (Index f = 1; f < n_fields; ++f) {
                Index e = 0;
                for (; e + 4 <= f; e += 4) {
                    const float *row = S + f * width + e * k + c, *transposed = S + e * width + f * k + c;
                    a = load_two(row, k) * join(load<K>(transposed), load<K>(transposed + width)) + a;
                    transposed += 2 * width;
                    b = load_two(row + 2 * k, k) * join(load<K>(transposed), load<K>(transposed + width)) + b;
                }
                for (; e < f; ++e)
                    rest = load<K>(S + f * width + e * k + c) * load<K>(S + e * width + f * k + c) + rest;
            }
        }
        return total(a + b) + total(rest);
    }

    // Prefetch the vector of a unit of row i with one feature; those of splines are in the cache anyway.
    [[gnu::always_inline]] static void fetch_vector(const Shape& shape, const Weights& weights, const Columns& columns,
                                                    Index i, Index u) {
        if (kind_of(shape, u) == 1) {
            const Index width = shape.n_fields * length<K, FIXED>(shape);
            const Index feature = start_of(shape, columns, i, shape.unit_ptr[u]);
            fetch_long_row(weights.T + feature * width, width);
            fetch(weights.L + feature);
        }
    }

    // Prefetch the gradient of a unit of row i with one feature.
    [[gnu::always_inline]] static void fetch_gradient(const Shape& shape, const Active& active, Index i, Index u) {
        if (kind_of(shape, u) == 1) {
            const Index width = shape.n_fields * length<K, FIXED>(shape), j = shape.weight_ptr[shape.unit_ptr[u]];
            const Index position = active.position[column(i, j, shape.n_weights)];
            if (position != NONE) {
                fetch_long_row(active.gradient + (position >= 0 ? position : NEW - position) * width, width);
            }
        }
    }

    // Linear part and interactions of row i of the columns; its S is left in `scratch.P`. Where a field has several
    // units their p_u[f] are left in `scratch.A`. `fetch_ahead(u)` prefetches for a unit what is read next: many
    // prefetches at once would wait for each other.
    template <class Ahead> static float score_row(const Shape& shape, const Weights weights, const Columns columns,
                                                  Index i, const Scratch& scratch, Ahead fetch_ahead) {
        const Index k = length<K, FIXED>(shape), n_fields = shape.n_fields, width = n_fields * k;
        const float* T = weights.T;
        float *S = scratch.P, linear = 0.0f;
        Vec<K> score = fill<K>(0.0f);
        for (Index u = 0; u < shape.n_units; ++u) {
            const int kind = kind_of(shape, u);
            const Index field = shape.unit_field[u], w = shape.unit_ptr[u];
            fetch_ahead(u);
            linear += linear_part(shape, weights.L, columns, i, u);
            const bool is_first = u == 0 || shape.unit_field[u - 1] != field;
            if (!is_only(shape, u)) {
                for (Index c = 0; c < k; c += K) {
                    const Vec<K> p = part_of_unit<K>(shape, T, width, columns, i, u, field * k + c);
                    store<K>(scratch.A + u * k + c, p);
                    if (!is_first) score = p * load<K>(S + field * (width + k) + c) + score;
                }
            }
            if (kind == 4 && is_first) {
                const Four x = four(weight_of(shape, columns, i, shape.weight_ptr[w]));
                set_four(T + start_of(shape, columns, i, w) * width, width, x, S + field * width);
            } else {
                add_unit(shape, T, columns, i, u, S + field * width, is_first);
            }
        }
        return linear + total(score) + sum_pairs(n_fields, k, S);
    }

    // The position of a weight, cleared if it is new; the linear part is added.
    static float* ready(const Active& active, Index width, Index at, float factor) {
        Index position = active.position[at];
        if (position < 0) {
            position = NEW - position;
            for (Index c = 0; c < width; c += K) store<K>(active.gradient + position * width + c, fill<K>(0.0f));
            active.linear[position] = 0.0f;
        }
        active.linear[position] += factor;
        return active.gradient + position * width;
    }

    // gradient[e] += factor S[e, f], less p_u[f] for e = f, of which nothing is left in a field with one unit. A fresh
    // gradient is written without being read.
    template <bool FRESH> static void add(Index n_fields, Index k, const Scratch& scratch, Index field, Index u,
                                          bool only, float factor, float* gradient) {
        const Index width = n_fields * k;
        for (Index c = 0; c < k; c += K) {
            const float* S = scratch.P + field * k + c;
            float *to = gradient + c, *self = gradient + field * k + c;
            Vec<K> mine = FRESH ? fill<K>(0.0f) : load<K>(self);
            if constexpr (FIXED) {
                for (Index e = 0; e + 2 <= n_fields; e += 2, to += 2 * k, S += 2 * width) {
                    const Vec<2 * K> g = factor * join(load<K>(S), load<K>(S + width));
                    store<2 * K>(to, FRESH ? g : g + load<2 * K>(to));
                }
                if (n_fields % 2) store<K>(to, factor * load<K>(S) + (FRESH ? fill<K>(0.0f) : load<K>(to)));
            } else {
                for (Index e = 0; e < n_fields; ++e, to += k, S += width) {
                    store<K>(to, factor * load<K>(S) + (FRESH ? fill<K>(0.0f) : load<K>(to)));
                }
            }
            if (!only) {
                const Vec<K> others = load<K>(scratch.P + field * (width + k) + c) - load<K>(scratch.A + u * k + c);
                mine = factor * others + mine;
            }
            store<K>(self, mine);
        }
    }

    // The gradients of four weights of the only unit of a field: shared numbers are read once.
    static void add_four(const Active& active, Index n_fields, Index k, Index at, Index field, float slope,
                         const float* x, const float* S) {
        const Index width = n_fields * k, d = field * k;
        const float x0 = slope * x[0], x1 = slope * x[16], x2 = slope * x[32], x3 = slope * x[48];
        float *g0 = ready(active, width, at, x0), *g1 = ready(active, width, at + 16, x1);
        float *g2 = ready(active, width, at + 32, x2), *g3 = ready(active, width, at + 48, x3);
        for (Index e = 0; e < n_fields; ++e) {
            if (e == field) continue;
            for (Index c = e * k; c < (e + 1) * k; c += K) {
                const Vec<K> s = load<K>(S + e * width + d + (c - e * k));
                store<K>(g0 + c, x0 * s + load<K>(g0 + c));
                store<K>(g1 + c, x1 * s + load<K>(g1 + c));
                store<K>(g2 + c, x2 * s + load<K>(g2 + c));
                store<K>(g3 + c, x3 * s + load<K>(g3 + c));
            }
        }
    }

    // Whether all of four weights have a position.
    static bool all_active(const Active& active, Index at) {
        return active.position[at] != NONE && active.position[at + 16] != NONE && active.position[at + 32] != NONE &&
               active.position[at + 48] != NONE;
    }

    // Add the gradients of all features of row i, and prefetch the vectors of the next one.
    static void add_gradients(const Shape& shape, const Weights weights, const Columns columns, const Active active,
                              Index i, float slope, const Scratch& scratch) {
        const Index k = length<K, FIXED>(shape), n_fields = shape.n_fields, width = n_fields * k;
        for (Index u = 0; u < shape.n_units; ++u) {
            fetch_vector(shape, weights, columns, i + 1, u);
            const Index field = shape.unit_field[u];
            const bool only = is_only(shape, u);
            for (Index w = shape.unit_ptr[u]; w < shape.unit_ptr[u + 1]; ++w) {
                const Index j = shape.weight_ptr[w], n = shape.weight_ptr[w + 1] - j;
                const Index at = column(i, j, shape.n_weights);
                if (only && n == 4 && all_active(active, at)) {
                    add_four(active, n_fields, k, at, field, slope, columns.weight + at, scratch.P);
                } else {
                    for (Index m = at; m < at + 16 * n; m += 16) {
                        if (active.position[m] == NONE) continue;
                        const float factor = slope * columns.weight[m];
                        const Index position = active.position[m];
                        if (position < 0) {
                            active.linear[NEW - position] = factor;
                            add<true>(n_fields, k, scratch, field, u, only, factor,
                                      active.gradient + (NEW - position) * width);
                        } else {
                            active.linear[position] += factor;
                            add<false>(n_fields, k, scratch, field, u, only, factor,
                                       active.gradient + position * width);
                        }
                    }
                }
            }
        }
    }

    static void score(const Scoring& scoring, Index first, Index n) {
        const Shape shape = scoring.shape;
        for (Index at = first; at < first + n; at += shape.tile) {
            const Index n_rows = least(shape.tile, first + n - at);
            transpose(shape, scoring.data, at, n_rows, scoring.columns, 0, true);
            for (Index output = 0; output < scoring.n_outputs; ++output) {
                const Weights weights = scoring.weights[output];
                float* scores = scoring.scores + output * scoring.n_scores + at;
                for (Index i = 0; i < n_rows; ++i) {
                    const auto fetch_ahead = [&](Index u) __attribute__((always_inline)) {
                        fetch_vector(shape, weights, scoring.columns, i + 1, u);
                    };
                    const float score = score_row(shape, weights, scoring.columns, i, scoring.scratch, fetch_ahead);
                    scores[i] = weights.bias[0] + score;
                }
            }
        }
    }

    static void transpose_shard(const Memory& memory, const Block& block, Index part) {
        const Index begin = part * memory.work.shard, n = least(memory.work.shard, block.n - begin);
        transpose(memory.shape, block.data, block.first + begin, n, memory.columns, begin, false);
    }

    static void positions(const Memory& memory, const Block& block, Index field) {
        assign_positions(memory, block.n, field);
    }

    // Loss, slope and gradients of the rows of a shard.
    static void shard(const Memory* outputs, const Block& block, Index part, const Scratch* scratch) {
        const Shape shape = outputs->shape;
        const Columns columns = outputs->columns;
        const Index shard = outputs->work.shard, n_outputs = outputs->work.n_outputs;
        for (Index i = part * shard; i < least((part + 1) * shard, block.n); ++i) {
            for (Index output = 0; output < n_outputs; ++output) {
                const Weights weights = outputs[output].weights;
                const Active active = outputs[output].active;
                const auto fetch_ahead = [&](Index u)
                                             __attribute__((always_inline)) { fetch_gradient(shape, active, i, u); };
                const float score = score_row(shape, weights, columns, i, scratch[output], fetch_ahead);
                outputs[output].work.slopes[i] = weights.bias[0] + score;
            }
            set_slopes(outputs, block, i);
            for (Index output = 0; output < n_outputs; ++output) {
                const Memory& memory = outputs[output];
                add_gradients(shape, memory.weights, columns, memory.active, i, memory.work.slopes[i], scratch[output]);
            }
        }
    }

    // The gradients of the positions of a feature are added up to that of the last one, then the step.
    static void field(const Memory& memory, const Block& block, Index field, const Scratch&) {
        const Active active = memory.active;
        const Index width = memory.shape.n_fields * length<K, FIXED>(memory.shape), first = active.ptr[field];
        const Index end = first + active.n[16 * field];
        for (Index position = first; position < end; ++position) {
            if (position + 4 < end) fetch_long_row(active.gradient + (position + 4) * width, width);
            if (active.features[position] < 0) continue;
            for (Index before = active.before[position]; before >= 0; before = active.before[before]) {
                add_vector(active.gradient + before * width, width, active.gradient + position * width);
                active.linear[position] += active.linear[before];
            }
        }
        update_field<K>(memory, width, field, block.step);
    }
};

}  // namespace splinefm::SPLINEFM_ISA
