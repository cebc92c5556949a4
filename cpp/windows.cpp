#include "windows.hpp"

#include <algorithm>
#include <stdexcept>

namespace splinefm {
namespace {

void need(bool holds, const char* problem) {
    if (!holds) throw std::invalid_argument(problem);
}

// Whether numbers count 0, 0, .., 1, .., with no step above one.
bool counts(std::span<const std::int32_t> numbers) {
    std::int32_t before = 0;
    for (const std::int32_t number : numbers) {
        if (number != before && number != before + 1) return false;
        before = number;
    }
    return !numbers.empty() && numbers.front() == 0;
}

}  // namespace

bool ascending(std::span<const std::int32_t> offsets) {
    return !offsets.empty() && offsets.front() == 0 && std::is_sorted(offsets.begin(), offsets.end());
}

std::vector<std::int32_t> beginnings(std::span<const std::int32_t> numbers) {
    std::vector<std::int32_t> first(static_cast<std::size_t>(numbers.back()) + 2);
    for (const std::int32_t number : numbers) ++first[number + 1];
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    return first;
}

std::vector<std::int32_t> check_windows(std::span<const std::int32_t> weight_ptr,
                                        std::span<const std::int32_t> window_unit,
                                        std::span<const std::int32_t> unit_field) {
    need(counts(window_unit) && counts(unit_field), "window_unit and unit_field must count from 0 by ones");
    need(unit_field.size() == static_cast<std::size_t>(window_unit.back()) + 1,
         "unit_field must have a field for every unit of window_unit");
    need(weight_ptr.size() == window_unit.size() + 1 && ascending(weight_ptr),
         "weight_ptr must begin at 0 and have an end for every window");
    return beginnings(window_unit);
}

}  // namespace splinefm
