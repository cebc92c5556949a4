// Checks of the windows, units and fields of a layout before loops use them; see layout.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace splinefm {

// Whether offsets begin at 0 and do not decrease.
bool ascending(std::span<const std::int32_t> offsets);

// First index of each value in 0, 0, .., 1, .., and the end.
std::vector<std::int32_t> beginnings(std::span<const std::int32_t> numbers);

// Throws std::invalid_argument unless windows belong to units and units to fields, in order and without gaps, and every
// window has an end of its weights. Returns `unit_ptr`.
std::vector<std::int32_t> check_windows(std::span<const std::int32_t> weight_ptr,
                                        std::span<const std::int32_t> window_unit,
                                        std::span<const std::int32_t> unit_field);

}  // namespace splinefm
