// Integers in the order of floating-point numbers.
#pragma once

#include <bit>
#include <cstdint>

namespace splinefm {

// An integer that is larger for larger numbers; 0 and -0 have the same.
inline std::int64_t order_of(double x) {
    const auto bits = std::bit_cast<std::int64_t>(x + 0.0);
    return bits ^ static_cast<std::int64_t>(static_cast<std::uint64_t>(bits >> 63) >> 1);
}

// The number of such an integer.
inline double number_of(std::int64_t order) {
    return std::bit_cast<double>(order ^ static_cast<std::int64_t>(static_cast<std::uint64_t>(order >> 63) >> 1));
}

}  // namespace splinefm
