// Stored numbers as float32, a few at a time: float32 as they are, int8, and halves, which are stored as their bits.
//
// The vector extensions do not widen numbers well, hence a few intrinsics.
#pragma once

#include <cstdint>

#include "vec.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace splinefm::SPLINEFM_ISA {

using Half = std::uint16_t;

// One half, by integers where it is denormal: denormal float32 numbers may count as zero.
inline float number(Half half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, exponent = half & 0x7c00u, mantissa = half & 0x03ffu;
    std::uint32_t bits;
    if (exponent == 0x7c00u) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent == 0) {
        const float small = static_cast<float>(static_cast<std::int32_t>(mantissa)) * 0x1p-24f;
        std::memcpy(&bits, &small, sizeof bits);
        bits |= sign;
    } else {
        bits = sign | ((exponent + 0x1c000u) << 13 | mantissa << 13);
    }
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline float number(std::int8_t x) { return static_cast<float>(x); }

// K stored numbers.
template <int K> inline Vec<K> numbers(const float* x) { return load<K>(x); }

template <int K, class Number> inline Vec<K> numbers(const Number* x) {
    if constexpr (K > LANES) {
        return {numbers<K / 2>(x), numbers<K / 2>(x + K / 2)};
    } else {
        Vec<K> a;
#if defined(__AVX512F__) && defined(__F16C__)
        if constexpr (K == 16) {
            const auto bits = reinterpret_cast<const __m128i*>(x);
            if constexpr (sizeof(Number) == 2)
                a.v = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
            else
                a.v = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(bits)));
            return a;
        }
#endif
#if defined(__AVX2__) && defined(__F16C__)
        if constexpr (K == 8) {
            const auto bits = reinterpret_cast<const __m128i*>(x);
            if constexpr (sizeof(Number) == 2)
                a.v = _mm256_cvtph_ps(_mm_loadu_si128(bits));
            else
                a.v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(bits)));
            return a;
        }
#endif
        for (int c = 0; c < K; ++c) a.v[c] = number(x[c]);
        return a;
    }
}

}  // namespace splinefm::SPLINEFM_ISA
