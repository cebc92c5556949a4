// Steps that all models share: transposing rows to columns, loss and slope.
#pragma once

#include <cmath>

#include "kernels/units.hpp"

namespace splinefm::SPLINEFM_ISA {

// Prefetch a row of a batch.
[[gnu::always_inline]] inline void fetch_data(const Shape& shape, const Data& data, Index i) {
    const Index row = data.rows[i];
    for (Index at = 0; at < shape.n_windows; at += 16) fetch(data.start + row * shape.n_windows + at);
    for (Index at = 0; at < shape.n_weights; at += 16) fetch(data.weight + row * shape.n_weights + at);
}

// Copy starts and weights of n rows of a batch, from `first` on, to columns, from row `at` on. `neighbors`: they lie
// one after the other, so that the hardware prefetches them.
inline void transpose(const Shape& shape, const Data& data, Index first, Index n, const Columns& columns, Index at,
                      bool neighbors) {
    constexpr Index SOON = 8;
    const Index n_windows = shape.n_windows, n_weights = shape.n_weights;
    const std::int32_t *lowest = shape.lowest, *highest = shape.highest;
    bool wrong = false;
    for (Index i = 0; i < least(SOON, n) && !neighbors; ++i) fetch_data(shape, data, first + i);
    for (Index i = 0; i < n; ++i) {
        if (!neighbors && i + SOON < n) fetch_data(shape, data, first + i + SOON);
        const Index row = data.rows ? data.rows[first + i] : first + i;
        const std::int32_t* start = data.start + row * n_windows;
        std::int32_t* to = columns.start + column(at + i, 0, n_windows);
        for (Index w = 0; w < n_windows; ++w) {
            const std::int32_t given = start[w], low = lowest[w];
            const bool inside = given >= low && given <= highest[w];
            wrong |= !inside;
            to[16 * w] = inside ? given : low;
        }
        const float* weight = data.weight + row * n_weights;
        float* weights = columns.weight + column(at + i, 0, n_weights);
        for (Index j = 0; j < n_weights; ++j) weights[16 * j] = weight[j];
    }
    if (wrong) __atomic_store_n(columns.wrong, 1, __ATOMIC_RELAXED);
}

// Weighted loss of a row, and its slope by the score over `total_weight`.
inline void set_slope(const Loss& loss, const Data& data, Index row, double score, double total_weight,
                      const Work& work, Index index) {
    const double sample_weight = data.sample_weight[row];
    const LossOfRow found = loss_of_row(loss, score, data.y[row]);
    work.losses[index] = sample_weight * found.value;
    work.slopes[index] = static_cast<float>(sample_weight * found.slope / total_weight);
}

// Weighted cross-entropy of a row, and its slopes p_c - [c = y] by the scores of all classes over `total_weight`. A
// score that is not a number makes the loss and all slopes NaN.
inline void set_softmax(const Memory* classes, const Data& data, Index row, double total_weight, Index index) {
    const Index n = classes->work.n_outputs;
    // It was checked before, but another thread of the caller may have changed it.
    const Index y = data.y[row] >= 0.0 && data.y[row] < static_cast<double>(n) ? static_cast<Index>(data.y[row]) : 0;
    const double sample_weight = data.sample_weight[row], of_y = classes[y].work.slopes[index];
    double largest = of_y, sum = 0.0;
    for (Index c = 0; c < n; ++c) {
        const double score = classes[c].work.slopes[index];
        largest = score > largest ? score : largest;
    }
    for (Index c = 0; c < n; ++c) {
        float& slope = classes[c].work.slopes[index];
        slope = static_cast<float>(std::exp(static_cast<double>(slope) - largest));
        sum += static_cast<double>(slope);
    }
    classes->work.losses[index] = sample_weight * (largest - of_y + std::log(sum));
    for (Index c = 0; c < n; ++c) {
        float& slope = classes[c].work.slopes[index];
        slope = static_cast<float>(sample_weight * (static_cast<double>(slope) / sum - (c == y)) / total_weight);
    }
}

// Loss and slopes of row i of a block, whose scores are where the slopes go.
inline void set_slopes(const Memory* outputs, const Block& block, Index i) {
    const Index row = block.data.rows[block.first + i], index = block.offset + i;
    if (outputs->loss.kind == LossKind::softmax) {
        set_softmax(outputs, block.data, row, block.total_weight, index);
    } else {
        const Work& work = outputs->work;
        double score = work.slopes[index];
        if (block.data.score_offset != nullptr) score += static_cast<double>(block.data.score_offset[row]);
        set_slope(outputs->loss, block.data, row, score, block.total_weight, work, index);
    }
}

}  // namespace splinefm::SPLINEFM_ISA
