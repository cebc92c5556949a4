// Names that have features.
#pragma once

#include <cstdint>
#include <string_view>

#include "encode/string_table.hpp"

namespace splinefm {

// Codes in place of a feature: none, which is the zero vector; and that the caller must find it.
inline constexpr std::int64_t NO_FEATURE = -1, ASK = -2;

// Names that have features, from `first` on.
struct Names {
    StringTable table;
    std::int64_t size, first, unseen;  // the feature of unseen names, NO_FEATURE or ASK
    std::int64_t missing;              // the feature of missing values, or ASK

    // The feature of a name.
    std::int64_t find(std::string_view name) const {
        const std::int32_t at = table.find(as_string(name));
        return at >= 0 ? first + at : unseen;
    }

    static String as_string(std::string_view name) {
        return {name.data(), static_cast<std::int64_t>(name.size()), name.data() + name.size()};
    }
};

// One name.
struct CategoryField {
    Names names;
};

}  // namespace splinefm
