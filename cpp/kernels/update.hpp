// From gradients to new values, field by field, on active features only: penalties, then the optimizer.
#pragma once

#include <cmath>

#include "kernels/units.hpp"

namespace splinefm::SPLINEFM_ISA {

// One step of lazy AdamW or Adagrad, and of the average, for K numbers with gradient g.
template <int K> [[gnu::always_inline]] inline void optimize(float* values, Index at, Vec<K> g, float keep,
                                                             const State& state, const Step& step) {
    const Vec<K> before = load<K>(values + at);
    Vec<K> change, v = load<K>(state.v + at);
    if (step.adam) {
        Vec<K> m = load<K>(state.m + at);
        m = step.rate1 * (g - m) + m;
        v = step.rate2 * (g * g - v) + v;
        store<K>(state.m + at, m);
        change = (step.correct1 * m) / (step.correct2 * sqrt(v) + fill<K>(step.eps));
    } else {
        v = g * g + v;
        change = g / (sqrt(v) + fill<K>(step.eps));
    }
    store<K>(state.v + at, v);
    const Vec<K> after = -step.lr * (step.decay * before + change) + before;
    store<K>(values + at, after);
    if (step.ema > 0.0) {
        const Vec<K> average = keep * (load<K>(state.average + at) - before) + before;
        store<K>(state.average + at, static_cast<float>(step.ema) * (average - after) + after);
    }
}

// The step for parameters that are active in every row: they have no weight decay and no average.
inline Step without_decay(Step step) {
    step.decay = 0.0f;
    step.ema = 0.0;
    return step;
}

// One step on n numbers, from index `first` on.
inline void update_flat(const Dense& dense, Index first, Index n, const Step& step) {
    const Index whole = first + n / 16 * 16;
    for (Index at = first; at < whole; at += 16) {
        optimize<16>(dense.values, at, load<16>(dense.gradient + at), 0.0f, dense.state, step);
    }
    for (Index at = whole; at < first + n; ++at) {
        optimize<1>(dense.values, at, load<1>(dense.gradient + at), 0.0f, dense.state, step);
    }
}

// The position of a feature, which becomes active with a gradient of zero if it was not.
template <int K>
[[gnu::always_inline]] inline Index activate(const Active& active, Index width, Index field, Index feature) {
    Index position = active.index_of[feature];
    if (position < 0) {
        position = active.ptr[field] + active.n[16 * field]++;
        active.index_of[feature] = static_cast<std::int32_t>(position);
        active.features[position] = static_cast<std::int32_t>(feature);
        active.linear[position] = 0.0f;
        active.self_weight[position] = 0.0f;
        for (Index c = 0; c < width; c += K) store<K>(active.gradient + position * width + c, fill<K>(0.0f));
    }
    return position;
}

// One line of features of a smoothed block: neighbors are `stride` apart.
struct Line {
    Index group, length, stride;
};

// The gradient of λ |Δ^order v|² at the features of a line from `first` on, which has `position` in it.
template <int K>
inline void add_difference(const Memory& memory, Index width, const Line& line, Index first, Index position) {
    const Active active = memory.active;
    const Penalty& penalty = memory.penalty;
    const Index group = line.group, order = penalty.order[group];
    const float twice = 2.0f * penalty.smoothness[group];
    Index features[4], positions[4];
    float signs[4], linear = 0.0f;
    for (Index j = 0; j <= order; ++j) {
        Index at = position + j;
        while (at >= line.length) at -= line.length;  // periodic; a division would take longer than all the rest
        features[j] = first + (at - position) * line.stride;
        positions[j] = active.index_of[features[j]];
        signs[j] = penalty.signs[4 * group + j];
        linear += signs[j] * memory.weights.L[features[j]];
    }
    for (Index j = 0; j <= order; ++j) active.linear[positions[j]] += twice * signs[j] * linear;
    for (Index c = 0; c < width; c += K) {
        Vec<K> difference = fill<K>(0.0f);
        for (Index j = 0; j <= order; ++j) {
            difference = signs[j] * load<K>(memory.weights.T + features[j] * width + c) + difference;
        }
        for (Index j = 0; j <= order; ++j) {
            float* gradient = active.gradient + positions[j] * width + c;
            store<K>(gradient, (twice * signs[j]) * difference + load<K>(gradient));
        }
    }
}

// The same for all second differences of a line that ends: each number is read once. `v` and `gradient` hold the
// numbers of `width` per feature and position, `positions` those of the line's first feature and the ones behind it.
template <int K> inline void add_second_differences(const float* v, float* gradient, const std::int32_t* positions,
                                                    Index width, const Line line, float twice) {
    const Index step = line.stride * width;
    Vec<K> second = fill<K>(0.0f), first = second, a = load<K>(v), b = load<K>(v + step);  // of earlier features
    for (Index j = 0; j < line.length; ++j) {
        Vec<K> difference = fill<K>(0.0f);
        if (j + 2 < line.length) {
            const Vec<K> c = load<K>(v + (j + 2) * step);
            difference = (a - b) - (b - c);
            a = b;
            b = c;
        }
        float* g = gradient + positions[j * line.stride] * width;
        store<K>(g, twice * ((second - first) - (first - difference)) + load<K>(g));
        second = first;
        first = difference;
    }
}

// All second differences of a line that ends, of vectors and linear weights, from feature `first` on.
template <int K> inline void smooth_line(const Memory& memory, Index width, const Line line, Index first) {
    const Active active = memory.active;
    const float twice = 2.0f * memory.penalty.smoothness[line.group];
    for (Index c = 0; c < width; c += K) {
        const float* v = memory.weights.T + first * width + c;
        add_second_differences<K>(v, active.gradient + c, active.index_of + first, width, line, twice);
    }
    add_second_differences<1>(memory.weights.L + first, active.linear, active.index_of + first, 1, line, twice);
}

// One block of a smoothed group: activate its features, and add the gradient of λ Σ |Δ^order v|² along every axis.
template <int K>
inline void smooth_block(const Memory& memory, Index width, Index field, Index group, Index begin, Index size) {
    const Penalty& penalty = memory.penalty;
    for (Index feature = begin; feature < begin + size; ++feature) {
        activate<K>(memory.active, width, field, feature);
    }
    Index stride = 1;
    for (Index axis = 2; axis >= 0; --axis) {
        const Index length = penalty.lengths[3 * group + axis];
        const bool periodic = (penalty.periodic[group] >> (2 - axis)) & 1;
        const Index last = periodic ? length : length - penalty.order[group];
        const Line line{group, length, stride};
        if (penalty.order[group] == 2 && !periodic && length > 2) {
            for (Index outer = begin; outer < begin + size; outer += length * stride) {
                for (Index first = outer; first < outer + stride; ++first) smooth_line<K>(memory, width, line, first);
            }
        } else if (length > 1) {
            for (Index outer = begin; outer < begin + size; outer += length * stride) {
                for (Index position = 0; position < last; ++position) {
                    for (Index first = outer + position * stride; first < outer + (position + 1) * stride; ++first) {
                        add_difference<K>(memory, width, line, first, position);
                    }
                }
            }
        }
        stride *= length;
    }
}

// Smoothed groups. One of several blocks, such as a spline for each category, is smoothed where the batch has active
// features.
template <int K> inline void smooth(const Memory& memory, Index width, Index field) {
    const Penalty penalty = memory.penalty;
    for (Index group = penalty.group_ptr[field]; group < penalty.group_ptr[field + 1]; ++group) {
        if (penalty.smoothness[group] > 0.0f) {
            const Index begin = penalty.begin[group], end = penalty.end[group];
            const std::int64_t* lengths = penalty.lengths + 3 * group;
            const Index size = lengths[0] * lengths[1] * lengths[2];
            for (Index first = begin; first < end; first += size) {
                bool active = size == end - begin;
                for (Index at = first; at < first + size && !active; ++at) active = memory.active.index_of[at] >= 0;
                if (active) smooth_block<K>(memory, width, field, group, first, size);
            }
        }
    }
}

// Prefetch a feature, its optimizer state, and its position.
[[gnu::always_inline]] inline void fetch_feature(const Memory& memory, Index width, Index feature, const Step& step) {
    fetch_row(memory.weights.T + feature * width, width);
    fetch_row(memory.vectors.v + feature * width, width);
    if (step.adam) fetch_row(memory.vectors.m + feature * width, width);
    if (step.ema > 0.0) {
        fetch_row(memory.vectors.average + feature * width, width);
        fetch(memory.vectors.last + feature);
    }
    fetch(memory.weights.L + feature);
    fetch(memory.linear.v + feature);
    fetch(memory.active.index_of + feature);
}

// The group of a feature; `group` is a guess.
inline Index group_of(const Penalty& penalty, Index feature, Index group, Index field) {
    if (feature < penalty.begin[group]) group = penalty.group_ptr[field];
    while (feature >= penalty.end[group]) ++group;
    return group;
}

// ema^n, of which most are known: a power takes as long as the rest of a feature's step.
[[gnu::always_inline]] inline float power_of_ema(const Step& step, Index n) {
    return n < POWERS ? step.powers[n < 0 ? 0 : n] : static_cast<float>(std::pow(step.ema, static_cast<double>(n)));
}

// One step on a feature, whose gradient is at `position`.
template <int K> [[gnu::always_inline]] inline void update_feature(const Memory& memory, Index width, Index feature,
                                                                   Index position, Index group, const Step& step) {
    constexpr int WIDE = K < 16 ? 16 : K;  // a root and a quotient take as long for four numbers as for eight
    const Active& active = memory.active;
    float *T = memory.targets.T, *L = memory.targets.L, keep = 0.0f;
    if (step.ema > 0.0) {
        // A feature does not change while it is inactive, and its average approaches it.
        const Index missed = step.number - 1 - memory.vectors.last[feature];
        keep = power_of_ema(step, missed);
        memory.vectors.last[feature] = step.number;
    }
    const float more = memory.penalty.l2[group] - active.self_weight[position];
    const float more_third = memory.penalty.l2_third[group];
    const Index end_of_pairs = width - (memory.shape.k - memory.shape.paired), wide_end = end_of_pairs / WIDE * WIDE;
    const float* gradient = active.gradient + position * width;
    const State vectors = memory.vectors;
    for (Index c = 0; c < wide_end; c += WIDE) {
        const Index at = feature * width + c;
        optimize<WIDE>(T, at, more * load<WIDE>(T + at) + load<WIDE>(gradient + c), keep, vectors, step);
    }
    for (Index c = wide_end; c < width; c += K) {
        const Index at = feature * width + c;
        const float penalty = c < end_of_pairs ? more : more_third;
        optimize<K>(T, at, penalty * load<K>(T + at) + load<K>(gradient + c), keep, vectors, step);
    }
    const float g = active.linear[position] + memory.penalty.l2_linear[group] * L[feature];
    optimize<1>(L, feature, {g}, keep, memory.linear, step);
}

// Penalties, then one optimizer step on the active features of a field, which become inactive.
template <int K> inline void update_field(const Memory& memory, Index width, Index field, const Step step) {
    const Active active = memory.active;
    smooth<K>(memory, width, field);
    const Index first = active.ptr[field], end = first + active.n[16 * field], ahead = width <= 64 ? 8 : 4;
    Index group = memory.penalty.group_ptr[field];
    for (Index position = first; position < end; ++position) {
        const Index feature = active.features[position];
        if (position + ahead < end && active.features[position + ahead] >= 0) {
            fetch_feature(memory, width, active.features[position + ahead], step);
        }
        if (feature >= 0) {
            group = group_of(memory.penalty, feature, group, field);
            update_feature<K>(memory, width, feature, position, group, step);
            active.index_of[feature] = -1;
        }
    }
    active.n[16 * field] = 0;
}

}  // namespace splinefm::SPLINEFM_ISA
