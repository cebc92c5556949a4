// Sums of the effects of items' features: out = Σ_windows Σ_j weight_j effects[first + start + j].
//
// The starts in a panel's line are read one after the other, and the effects of a field, which have no order, lie close
// together in a cache. Starts are cut off at the end of the effects, whatever a file says.
#pragma once

#include <cstdint>

#include "rank/items.hpp"
#include "vec.hpp"

namespace splinefm::SPLINEFM_ISA {

// The place of the effect of a window's first feature, from the window's place.
inline std::uint32_t cut(std::int32_t start, std::uint32_t last) {
    const auto at = static_cast<std::uint32_t>(start);
    return at < last ? at : last;
}

// Of rows whose weights are 1.
inline void add(const std::int32_t* starts, std::uint32_t last, const float* effects, std::int64_t width,
                float* __restrict out) noexcept {
    for (std::int64_t i = 0; i < width; ++i) out[i] += effects[cut(starts[i], last)];
}

inline void add_weighted(const std::int32_t* starts, const float* weights, std::uint32_t last, const float* effects,
                         std::int64_t width, float* __restrict out) noexcept {
    for (std::int64_t i = 0; i < width; ++i) out[i] += weights[i] * effects[cut(starts[i], last)];
}

// Of four neighboring rows, the windows of cubic splines: starts are looked up once. Weights are lines at `stride`.
inline void add_four(const std::int32_t* starts, const float* weights, std::int64_t stride, std::uint32_t last,
                     const float* effects, std::int64_t width, float* __restrict out) noexcept {
    const float *a = weights, *b = a + stride, *c = b + stride, *d = c + stride;
    for (std::int64_t i = 0; i < width; ++i) {
        const float* e = effects + cut(starts[i], last);
        const float first = a[i] * e[0] + b[i] * e[1];
        out[i] += first + (c[i] * e[2] + d[i] * e[3]);
    }
}

// For the first `width` items of a panel and one query.
inline void sum(const EffectItems& items, std::int64_t panel, std::int64_t width, const float* effects,
                float* out) noexcept {
    const std::int64_t size = items.size;
    for (std::int64_t i = 0; i < width; ++i) out[i] = 0.0f;
    for (std::int64_t w = 0; w < items.n_windows; ++w) {
        const Window window = items.windows[w];
        const std::int32_t* starts = items.starts + (panel * items.n_windows + w) * size;
        const auto last = static_cast<std::uint32_t>(window.last);
        const float* own = effects + window.first;
        if (window.line < 0) {
            add(starts, last, own, width, out);
            continue;
        }
        const float* weights = items.weights + (panel * items.n_weights + window.line) * size;
        std::int64_t j = 0;
        for (; j + 4 <= window.width; j += 4) add_four(starts, weights + j * size, size, last, own + j, width, out);
        for (; j < window.width; ++j) add_weighted(starts, weights + j * size, last, own + j, width, out);
    }
}

// For items begin .. begin + width - 1 of a panel and TOGETHER queries: tile[i, q], from effects[row, q].
inline void sum_together(const EffectItems& items, std::int64_t panel, std::int64_t begin, std::int64_t width,
                         const float* effects, float* tile) noexcept {
    constexpr int K = TOGETHER;
    const std::int64_t size = items.size;
    for (std::int64_t i = 0; i < width; ++i) store(tile + i * K, fill<K>(0.0f));
    for (std::int64_t w = 0; w < items.n_windows; ++w) {
        const Window window = items.windows[w];
        const std::int32_t* starts = items.starts + (panel * items.n_windows + w) * size + begin;
        const auto last = static_cast<std::uint32_t>(window.last);
        const float* own = effects + window.first * K;
        if (window.line < 0) {
            for (std::int64_t i = 0; i < width; ++i) {
                const float* effect = own + static_cast<std::int64_t>(cut(starts[i], last)) * K;
                store(tile + i * K, load<K>(tile + i * K) + load<K>(effect));
            }
            continue;
        }
        const float* weights = items.weights + (panel * items.n_weights + window.line) * size + begin;
        for (std::int64_t i = 0; i < width; ++i) {
            const float* effect = own + static_cast<std::int64_t>(cut(starts[i], last)) * K;
            Vec<K> total = load<K>(tile + i * K);
            for (std::int64_t j = 0; j < window.width; ++j) total += weights[j * size + i] * load<K>(effect + j * K);
            store(tile + i * K, total);
        }
    }
}

}  // namespace splinefm::SPLINEFM_ISA
