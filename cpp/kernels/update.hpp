// From gradients to new values, field by field and on touched rows only: penalties, then the optimizer.
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

// The step for parameters that every row touches: they do not decay, and there is no average of them.
inline Step without_decay(Step step) {
    step.decay = 0.0f;
    step.ema = 0.0;
    return step;
}

// One step on n numbers, from place `first` on.
inline void update_flat(const Dense& dense, Index first, Index n, const Step& step) {
    const Index whole = first + n / 16 * 16;
    for (Index at = first; at < whole; at += 16) {
        optimize<16>(dense.values, at, load<16>(dense.gradient + at), 0.0f, dense.state, step);
    }
    for (Index at = whole; at < first + n; ++at) {
        optimize<1>(dense.values, at, load<1>(dense.gradient + at), 0.0f, dense.state, step);
    }
}

// The place of a feature; a new one has gradient zero.
template <int K> [[gnu::always_inline]] inline Index place_of(const Touch& touch, Index width, Index field, Index row) {
    Index place = touch.slot[row];
    if (place < 0) {
        place = touch.ptr[field] + touch.n_places[16 * field]++;
        touch.slot[row] = static_cast<std::int32_t>(place);
        touch.rows[place] = static_cast<std::int32_t>(row);
        touch.linear[place] = 0.0f;
        touch.own[place] = 0.0f;
        for (Index c = 0; c < width; c += K) store<K>(touch.gradient + place * width + c, fill<K>(0.0f));
    }
    return place;
}

// The row, or the one in its place in a periodic group; a division would take longer than all the rest.
inline Index wrapped(Index row, Index begin, Index end) {
    while (row >= end) row -= end - begin;
    return row;
}

// The gradient of λ |Δ^order v|² at the rows from `first` on.
template <int K> inline void add_difference(const Memory& memory, Index width, Index group, Index first) {
    const Touch touch = memory.touch;
    const Penalty& penalty = memory.penalty;
    const Index begin = penalty.begin[group], end = penalty.end[group], order = penalty.order[group];
    const float twice = 2.0f * penalty.smoothness[group];
    Index rows[4], places[4];
    float signs[4], linear = 0.0f;
    for (Index j = 0; j <= order; ++j) {
        rows[j] = wrapped(first + j, begin, end);
        places[j] = touch.slot[rows[j]];
        signs[j] = penalty.signs[4 * group + j];
        linear += signs[j] * memory.weights.L[rows[j]];
    }
    for (Index j = 0; j <= order; ++j) touch.linear[places[j]] += twice * signs[j] * linear;
    for (Index c = 0; c < width; c += K) {
        Vec<K> difference = fill<K>(0.0f);
        for (Index j = 0; j <= order; ++j) {
            difference = signs[j] * load<K>(memory.weights.T + rows[j] * width + c) + difference;
        }
        for (Index j = 0; j <= order; ++j) {
            float* gradient = touch.gradient + places[j] * width + c;
            store<K>(gradient, (twice * signs[j]) * difference + load<K>(gradient));
        }
    }
}

// Smoothed groups as a whole: places for rows that no row of data touches, and the gradient of λ Σ |Δ^order v|².
template <int K> inline void smooth(const Memory& memory, Index width, Index field) {
    const Penalty penalty = memory.penalty;
    for (Index group = penalty.group_ptr[field]; group < penalty.group_ptr[field + 1]; ++group) {
        if (penalty.smoothness[group] > 0.0f) {
            const Index begin = penalty.begin[group], end = penalty.end[group];
            for (Index row = begin; row < end; ++row) place_of<K>(memory.touch, width, field, row);
            const Index last = penalty.periodic[group] ? end : end - penalty.order[group];
            for (Index row = begin; row < last; ++row) add_difference<K>(memory, width, group, row);
        }
    }
}

// Ask for a feature, the optimizer's memory of it, and its place.
[[gnu::always_inline]] inline void fetch_table_row(const Memory& memory, Index width, Index row, bool adam) {
    fetch_row(memory.weights.T + row * width, width);
    fetch_row(memory.vectors.v + row * width, width);
    if (adam) fetch_row(memory.vectors.m + row * width, width);
    fetch(memory.weights.L + row);
    fetch(memory.linear.v + row);
    fetch(memory.touch.slot + row);
}

// The group of a row; `group` is a guess.
inline Index group_of(const Penalty& penalty, Index row, Index group, Index field) {
    if (row < penalty.begin[group]) group = penalty.group_ptr[field];
    while (row >= penalty.end[group]) ++group;
    return group;
}

// One step on a feature, whose gradient is at `place`.
template <int K> [[gnu::always_inline]] inline void update_row(const Memory& memory, Index width, Index row,
                                                               Index place, Index group, const Step& step) {
    const Touch& touch = memory.touch;
    float *T = memory.targets.T, *L = memory.targets.L, keep = 0.0f;
    if (step.ema > 0.0) {
        // While a row is not touched it does not change, and its average approaches it.
        const Index missed = step.number - 1 - memory.vectors.last[row];
        keep = missed > 0 ? static_cast<float>(std::pow(step.ema, static_cast<double>(missed))) : 1.0f;
        memory.vectors.last[row] = step.number;
    }
    const float more = memory.penalty.l2[group] - touch.own[place];
    const State vectors = memory.vectors;
    for (Index c = 0; c < width; c += K) {
        const Index at = row * width + c;
        const Vec<K> g = more * load<K>(T + at) + load<K>(touch.gradient + place * width + c);
        optimize<K>(T, at, g, keep, vectors, step);
    }
    const float g = touch.linear[place] + memory.penalty.l2_linear[group] * L[row];
    optimize<1>(L, row, {g}, keep, memory.linear, step);
}

// Penalties, then one step of the optimizer on the touched rows of a field, which gives up its places.
template <int K> inline void update_field(const Memory& memory, Index width, Index field, const Step step) {
    const Touch touch = memory.touch;
    smooth<K>(memory, width, field);
    const Index first = touch.ptr[field], end = first + touch.n_places[16 * field], ahead = width <= 64 ? 8 : 4;
    Index group = memory.penalty.group_ptr[field];
    for (Index place = first; place < end; ++place) {
        const Index row = touch.rows[place];
        if (place + ahead < end && touch.rows[place + ahead] >= 0) {
            fetch_table_row(memory, width, touch.rows[place + ahead], step.adam);
        }
        if (row >= 0) {
            group = group_of(memory.penalty, row, group, field);
            update_row<K>(memory, width, row, place, group, step);
            touch.slot[row] = -1;
        }
    }
    touch.n_places[16 * field] = 0;
}

}  // namespace splinefm::SPLINEFM_ISA
