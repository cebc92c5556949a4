// Cell: one raw value of a row.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "scorer/names.hpp"
#include "scorer/row_encoder.hpp"

namespace splinefm {

struct Cell {
    enum Kind : std::uint32_t { missing, boolean, integer, number, text, other };

    Kind kind;
    union {
        double x;
        std::int64_t i;     // 0 or 1 of a boolean
        const char* bytes;  // of a text, in UTF-8; of another value whatever its owner keeps
    };
    std::size_t size;  // of the bytes

    static Cell none() { return {missing, {0.0}, 0}; }
    static Cell of(double x) { return {number, {.x = x}, 0}; }
    static Cell of(Kind kind, std::int64_t i) { return {kind, {.i = i}, 0}; }
    static Cell of(Kind kind, const char* bytes, std::size_t size) { return {kind, {.bytes = bytes}, size}; }

    std::string_view view() const { return {bytes, size}; }
};

// Whether a value is a number, NaN if it is missing.
inline bool read_number(const Cell& cell, double& x) {
    switch (cell.kind) {
    case Cell::number: x = cell.x; return true;
    case Cell::missing: x = std::numeric_limits<double>::quiet_NaN(); return true;
    case Cell::boolean:
    case Cell::integer: x = static_cast<double>(cell.i); return true;
    default: return false;
    }
}

// The feature of a value that is one name, NO_FEATURE, or ASK.
inline std::int64_t find_name(const Names& names, const Cell& cell) {
    constexpr double EXACT = 9007199254740992.0;  // 2^53: floats below it that are integers are spelled like integers
    switch (cell.kind) {
    case Cell::text: return names.find(cell.view());
    case Cell::missing: return names.missing;
    case Cell::boolean: return names.find(cell.i ? "true" : "false");
    case Cell::integer: return names.find(Digits(cell.i).text());
    case Cell::number:
        if (std::isnan(cell.x)) return names.missing;
        if (cell.x != std::trunc(cell.x) || std::abs(cell.x) >= EXACT) return ASK;
        return names.find(Digits(static_cast<std::int64_t>(cell.x)).text());
    case Cell::other: break;
    }
    return ASK;
}

}  // namespace splinefm
