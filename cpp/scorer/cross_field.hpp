// A cross for one row at a time: the products of the features of its parts, which are names and numbers.
//
// Names choose a cell: a combination of their features that is kept, or a bucket of a hash. A cell has `block`
// features, the products of the functions of the numbers: for every resolution all combinations, the last number's next
// to each other. A row without a cell, and one with a special or missing number, has no terms.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "scorer/names.hpp"
#include "scorer/number_field.hpp"
#include "scorer/terms.hpp"

namespace splinefm {

// Combinations of features, with a table that finds them.
class Cells {
public:
    // `features` has `parts` features for each of n combinations.
    Cells(std::vector<std::int32_t> features, std::int64_t parts);
    // Combinations and a table that live elsewhere, such as in a file.
    Cells(std::span<const std::int32_t> features, std::int64_t parts, std::span<const std::int32_t> places)
        : features(features), parts(parts), places(places) {}

    // The position of a combination, or -1.
    std::int64_t find(const std::int64_t* combination) const;

    std::span<const std::int32_t> table() const { return places; }

private:
    struct Built {
        std::vector<std::int32_t> features, places;
    };

    std::shared_ptr<const Built> built;  // copies share it
    std::span<const std::int32_t> features;
    std::int64_t parts;
    std::span<const std::int32_t> places;  // a power of two of positions, -1 in one of them at least
};

// A bucket for every combination: ((f_0 + 1) m_0 + (f_1 + 1) m_1 + ..) modulo a prime, modulo the number of buckets.
struct Buckets {
    std::int64_t n;
    std::vector<std::int64_t> multipliers;
    std::int64_t prime;

    std::int64_t find(const std::int64_t* combination) const;
};

using CrossPart = std::variant<NumberField, CategoryField>;

struct CrossField {
    static constexpr int MAX_PARTS = 8;

    std::int64_t first, n_cells;
    std::vector<CrossPart> parts;     // numbers have a window per resolution
    std::vector<std::int64_t> sizes;  // (resolutions, numbers): how many functions there are
    std::variant<std::monostate, Cells, Buckets> cells;

    std::int64_t n_numbers() const;
    std::int64_t n_levels() const;
    // Features per cell.
    std::int64_t block() const;
    std::int64_t n_terms() const;    // of a row with a cell
    std::int64_t max_terms() const;  // those, and what they are made of until they are done
    std::int64_t end_feature() const { return first + n_cells * block(); }

    // The cell of the features of the names, or -1; 0 where there are no names.
    std::int64_t find(const std::int64_t* combination) const;
    // Terms of a cell at the positions u of the numbers.
    void add_terms(std::int64_t cell, const double* u, Terms& terms) const;
};

}  // namespace splinefm
