// Vec<K>: K numbers in registers. One register if K fits, else two halves, recursively: a plain vector type beyond a
// register goes through the stack in GCC. Sums go by halves, in the same order on every machine.
//
// Everything here lies in the namespace of one instruction set, so that no code for one leaks into another.
#pragma once

#include <cstdint>
#include <cstring>

namespace splinefm::SPLINEFM_ISA {

using Index = std::int64_t;

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

template <int K> struct Lanes {
    typedef float numbers __attribute__((vector_size(4 * K)));
    typedef std::int32_t integers __attribute__((vector_size(4 * K)));
};
template <> struct Lanes<1> {
    typedef float numbers;
    typedef std::int32_t integers;
};

template <int K, bool FITS = (K <= LANES)> struct Vec {
    typename Lanes<K>::numbers v;
};
template <int K> struct Vec<K, false> {
    Vec<K / 2> low, high;
};

template <int K> [[gnu::always_inline]] inline Vec<K> load(const float* from) {
    Vec<K> a;
    if constexpr (K <= LANES) {
        std::memcpy(&a.v, from, sizeof a.v);
    } else {
        a.low = load<K / 2>(from);
        a.high = load<K / 2>(from + K / 2);
    }
    return a;
}

template <int K> [[gnu::always_inline]] inline void store(float* to, Vec<K> a) {
    if constexpr (K <= LANES) {
        std::memcpy(to, &a.v, sizeof a.v);
    } else {
        store<K / 2>(to, a.low);
        store<K / 2>(to + K / 2, a.high);
    }
}

template <int K> [[gnu::always_inline]] inline Vec<K> fill(float x) {
    if constexpr (K == 1) {
        return {x};
    } else if constexpr (K <= LANES) {
        return {x - typename Lanes<K>::numbers{}};
    } else {
        return {fill<K / 2>(x), fill<K / 2>(x)};
    }
}

#define SPLINEFM_OPERATOR(sign)                                                                                        \
    template <int K, bool FITS>                                                                                        \
    [[gnu::always_inline]] inline Vec<K, FITS> operator sign(Vec<K, FITS> a, Vec<K, FITS> b) {                    \
        if constexpr (FITS) {                                                                                          \
            return {a.v sign b.v};                                                                                     \
        } else {                                                                                                       \
            return {a.low sign b.low, a.high sign b.high};                                                             \
        }                                                                                                              \
    }
SPLINEFM_OPERATOR(+)
SPLINEFM_OPERATOR(-)
SPLINEFM_OPERATOR(*)
SPLINEFM_OPERATOR(/)
#undef SPLINEFM_OPERATOR

template <int K, bool FITS> [[gnu::always_inline]] inline Vec<K, FITS> operator*(float x, Vec<K, FITS> a) {
    if constexpr (FITS) {
        return {x * a.v};
    } else {
        return {x * a.low, x * a.high};
    }
}

// √a; the loop becomes one instruction.
template <int K, bool FITS> [[gnu::always_inline]] inline Vec<K, FITS> sqrt(Vec<K, FITS> a) {
    if constexpr (!FITS) {
        return {sqrt(a.low), sqrt(a.high)};
    } else if constexpr (K == 1) {
        return {__builtin_sqrtf(a.v)};
    } else {
        float numbers[K];
        std::memcpy(numbers, &a.v, sizeof numbers);
        for (int c = 0; c < K; ++c) numbers[c] = __builtin_sqrtf(numbers[c]);
        std::memcpy(&a.v, numbers, sizeof numbers);
        return a;
    }
}

// |a|, number by number.
template <int K, bool FITS> [[gnu::always_inline]] inline Vec<K, FITS> abs(Vec<K, FITS> a) {
    if constexpr (!FITS) {
        return {abs(a.low), abs(a.high)};
    } else {
        typename Lanes<K>::integers bits;
        std::memcpy(&bits, &a.v, sizeof bits);
        bits &= 0x7fffffff;
        std::memcpy(&a.v, &bits, sizeof bits);
        return a;
    }
}

// The numbers of a, then those of b.
template <int K, bool FITS> [[gnu::always_inline]] inline Vec<2 * K> join(Vec<K, FITS> a, Vec<K, FITS> b) {
    if constexpr (2 * K <= LANES) {
        Vec<2 * K> both;
        if constexpr (K == 4) {
            both.v = __builtin_shufflevector(a.v, b.v, 0, 1, 2, 3, 4, 5, 6, 7);
        } else {
            both.v = __builtin_shufflevector(a.v, b.v, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        }
        return both;
    } else {
        return {a, b};
    }
}

// The sum of the K numbers, by halves.
template <int K, bool FITS> [[gnu::always_inline]] inline float total(Vec<K, FITS> a) {
    if constexpr (!FITS) {
        return total(a.low + a.high);
    } else if constexpr (K == 1) {
        return a.v;
    } else {
        float numbers[K];
        std::memcpy(numbers, &a.v, sizeof numbers);
        if constexpr (K == 4) {
            return (numbers[0] + numbers[2]) + (numbers[1] + numbers[3]);
        } else {
            return total(load<K / 2>(numbers) + load<K / 2>(numbers + K / 2));
        }
    }
}

}  // namespace splinefm::SPLINEFM_ISA
