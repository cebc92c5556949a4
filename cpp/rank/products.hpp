// Products of queries with the lines of a panel, four lines at a time: out = Σ_j query_j lines[j].
//
// The order of the sums is the same in every function and for every row: equal items must have equal scores, wherever
// they are stored. Widths are multiples of STEP.
#pragma once

#include <cstdint>

#include "rank/numbers.hpp"

namespace splinefm::SPLINEFM_ISA {

inline constexpr int COLUMNS = LANES;  // of a panel, at a time

// One product after the other: which of them a compiler fuses with the sum depends on what stands first.
template <class V> inline V four(const V& t, const V& u, const V& v, const V& w, const float* query) {
    const V first = query[0] * t, second = query[1] * u, one = first + second;
    const V third = query[2] * v, fourth = query[3] * w, two = third + fourth;
    return one + two;
}

// `stride` is the distance between lines.
template <class Number> inline void multiply(const Number* lines, std::int64_t length, std::int64_t stride,
                                             std::int64_t width, const float* query, float* out) noexcept {
    constexpr int K = COLUMNS;
    for (std::int64_t i = 0; i < width; i += K) store(out + i, fill<K>(0.0f));
    std::int64_t j = 0;
    for (; j + 4 <= length; j += 4) {
        const float each[4] = {query[j], query[j + 1], query[j + 2], query[j + 3]};
        const Number *t = lines + j * stride, *u = t + stride, *v = u + stride, *w = v + stride;
        for (std::int64_t i = 0; i < width; i += K) {
            const Vec<K> sum = four(numbers<K>(t + i), numbers<K>(u + i), numbers<K>(v + i), numbers<K>(w + i), each);
            store(out + i, load<K>(out + i) + sum);
        }
    }
    for (; j < length; ++j) {
        const Number* t = lines + j * stride;
        const float a = query[j];
        for (std::int64_t i = 0; i < width; i += K) store(out + i, load<K>(out + i) + a * numbers<K>(t + i));
    }
}

// tile[j] = a piece of lines[j], as float32 and close together, for queries that share it.
template <class Number> inline void unpack(const Number* lines, std::int64_t length, std::int64_t stride,
                                           std::int64_t width, float* tile) noexcept {
    for (std::int64_t j = 0; j < length; ++j)
        for (std::int64_t i = 0; i < width; i += COLUMNS)
            store(tile + j * width + i, numbers<COLUMNS>(lines + j * stride + i));
}

// The products of two queries with a tile, which is read once for both.
inline void multiply_two(const float* tile, std::int64_t length, std::int64_t width, const float* one, const float* two,
                         float* out, float* out_two) noexcept {
    constexpr int K = COLUMNS;
    for (std::int64_t i = 0; i < width; i += K) {
        store(out + i, fill<K>(0.0f));
        store(out_two + i, fill<K>(0.0f));
    }
    std::int64_t j = 0;
    for (; j + 4 <= length; j += 4) {
        const float a[4] = {one[j], one[j + 1], one[j + 2], one[j + 3]};
        const float b[4] = {two[j], two[j + 1], two[j + 2], two[j + 3]};
        const float *t = tile + j * width, *u = t + width, *v = u + width, *w = v + width;
        for (std::int64_t i = 0; i < width; i += K) {
            const Vec<K> p = load<K>(t + i), q = load<K>(u + i), r = load<K>(v + i), s = load<K>(w + i);
            store(out + i, load<K>(out + i) + four(p, q, r, s, a));
            store(out_two + i, load<K>(out_two + i) + four(p, q, r, s, b));
        }
    }
    for (; j < length; ++j) {
        const float* t = tile + j * width;
        const float a = one[j], b = two[j];
        for (std::int64_t i = 0; i < width; i += K) {
            store(out + i, load<K>(out + i) + a * load<K>(t + i));
            store(out_two + i, load<K>(out_two + i) + b * load<K>(t + i));
        }
    }
}

}  // namespace splinefm::SPLINEFM_ISA
