// Distinct values of a block of a column with the rows below and at each of them: the leaf of a quantile sketch.
//
// If there are more than `capacity`, those are kept that are first or last, whose rows exceed a share of 2 / capacity,
// or that are the first with their middle rank in the next of capacity / 2 - 3 equal parts.
#pragma once

#include <cstdint>
#include <vector>

namespace splinefm {

struct Summary {
    std::vector<double> value, below, at;
};

// Values in any order; 0 and -0 are one value. Throws std::invalid_argument for NaN, for 2³² values or more, or for a
// capacity below 2.
Summary summarize(const double* x, std::int64_t n, std::int64_t capacity);

}  // namespace splinefm
