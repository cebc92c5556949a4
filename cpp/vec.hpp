// Short vectors of K numbers that live in registers: the vector extensions of GCC and Clang, no intrinsics.
//
// A Vec<K> is one register, or two halves where K numbers do not fit into one: GCC sends wider vectors through memory.
// Sums go by halves, (a0 + a4) + (a2 + a6) + .., so that their order is the same on every machine.
// For kernels only: everything here is compiled once per instruction set, see dispatch.hpp.
#pragma once

#include <cstring>

namespace splinefm::SPLINEFM_ISA {

#if defined(__AVX512F__)
inline constexpr int LANES = 16;
#elif defined(__AVX__)
inline constexpr int LANES = 8;
#else
inline constexpr int LANES = 4;
#endif

template <int K> struct Vec {
    static_assert(K >= 4 && (K & (K - 1)) == 0, "1, 4, 8, 16, 32, ..");
    Vec<K / 2> low, high;
};

template <int K>
    requires(K <= LANES)
struct Vec<K> {
    typedef float Register __attribute__((vector_size(4 * K)));
    Register v;
};

// A single number, for code that serves vectors and what is left over.
template <> struct Vec<1> {
    typedef float Register;
    Register v;
};

template <int K> [[gnu::always_inline]] inline Vec<K> load(const float* x) {
    Vec<K> a;
    if constexpr (K > LANES)
        a = {load<K / 2>(x), load<K / 2>(x + K / 2)};
    else
        std::memcpy(&a.v, x, sizeof a.v);
    return a;
}

template <int K> [[gnu::always_inline]] inline void store(float* x, const Vec<K>& a) {
    if constexpr (K > LANES) {
        store<K / 2>(x, a.low);
        store<K / 2>(x + K / 2, a.high);
    } else {
        std::memcpy(x, &a.v, sizeof a.v);
    }
}

// K times the same number.
template <int K> [[gnu::always_inline]] inline Vec<K> fill(float x) {
    if constexpr (K > LANES)
        return {fill<K / 2>(x), fill<K / 2>(x)};
    else
        return {typename Vec<K>::Register{} + x};
}

template <int K> [[gnu::always_inline]] inline Vec<K> operator+(const Vec<K>& a, const Vec<K>& b) {
    if constexpr (K > LANES)
        return {a.low + b.low, a.high + b.high};
    else
        return {a.v + b.v};
}

template <int K> [[gnu::always_inline]] inline Vec<K> operator-(const Vec<K>& a, const Vec<K>& b) {
    if constexpr (K > LANES)
        return {a.low - b.low, a.high - b.high};
    else
        return {a.v - b.v};
}

template <int K> [[gnu::always_inline]] inline Vec<K> operator*(const Vec<K>& a, const Vec<K>& b) {
    if constexpr (K > LANES)
        return {a.low * b.low, a.high * b.high};
    else
        return {a.v * b.v};
}

template <int K> [[gnu::always_inline]] inline Vec<K> operator/(const Vec<K>& a, const Vec<K>& b) {
    if constexpr (K > LANES)
        return {a.low / b.low, a.high / b.high};
    else
        return {a.v / b.v};
}

template <int K> [[gnu::always_inline]] inline Vec<K> operator*(float x, const Vec<K>& a) {
    if constexpr (K > LANES)
        return {x * a.low, x * a.high};
    else
        return {x * a.v};
}

template <int K> [[gnu::always_inline]] inline Vec<K>& operator+=(Vec<K>& a, const Vec<K>& b) { return a = a + b; }
template <int K> [[gnu::always_inline]] inline Vec<K>& operator-=(Vec<K>& a, const Vec<K>& b) { return a = a - b; }
template <int K> [[gnu::always_inline]] inline Vec<K>& operator*=(Vec<K>& a, const Vec<K>& b) { return a = a * b; }

// The square root of every number; a loop over the numbers of a register becomes one instruction.
template <int K> [[gnu::always_inline]] inline Vec<K> sqrt(const Vec<K>& a) {
    if constexpr (K > LANES) {
        return {sqrt(a.low), sqrt(a.high)};
    } else if constexpr (K == 1) {
        return {__builtin_sqrtf(a.v)};
    } else {
        Vec<K> root;
        for (int c = 0; c < K; ++c) root.v[c] = __builtin_sqrtf(a.v[c]);
        return root;
    }
}

// The larger of every two numbers; b where either is NaN.
template <int K> [[gnu::always_inline]] inline Vec<K> max(const Vec<K>& a, const Vec<K>& b) {
    if constexpr (K > LANES)
        return {max(a.low, b.low), max(a.high, b.high)};
    else
        return {a.v > b.v ? a.v : b.v};
}

// |a|, number by number.
template <int K> [[gnu::always_inline]] inline Vec<K> abs(const Vec<K>& a) {
    if constexpr (K > LANES) {
        return {abs(a.low), abs(a.high)};
    } else {
        Vec<K> positive;
        for (int c = 0; c < K; ++c) positive.v[c] = __builtin_fabsf(a.v[c]);
        return positive;
    }
}

template <int K> [[gnu::always_inline]] inline Vec<K / 2> low(const Vec<K>& a) {
    if constexpr (K > LANES)
        return a.low;
    else if constexpr (K == 8)
        return {__builtin_shufflevector(a.v, a.v, 0, 1, 2, 3)};
    else
        return {__builtin_shufflevector(a.v, a.v, 0, 1, 2, 3, 4, 5, 6, 7)};
}
template <int K> [[gnu::always_inline]] inline Vec<K / 2> high(const Vec<K>& a) {
    if constexpr (K > LANES)
        return a.high;
    else if constexpr (K == 8)
        return {__builtin_shufflevector(a.v, a.v, 4, 5, 6, 7)};
    else
        return {__builtin_shufflevector(a.v, a.v, 8, 9, 10, 11, 12, 13, 14, 15)};
}

// The numbers of a, then those of b.
template <int K> [[gnu::always_inline]] inline Vec<2 * K> join(const Vec<K>& a, const Vec<K>& b) {
    if constexpr (2 * K > LANES)
        return {a, b};
    else if constexpr (K == 4)
        return {__builtin_shufflevector(a.v, b.v, 0, 1, 2, 3, 4, 5, 6, 7)};
    else
        return {__builtin_shufflevector(a.v, b.v, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}

// The sum of the numbers, by halves.
template <int K> [[gnu::always_inline]] inline float total(const Vec<K>& a) {
    if constexpr (K > 4)
        return total(low(a) + high(a));
    else
        return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]);
}

}  // namespace splinefm::SPLINEFM_ISA
