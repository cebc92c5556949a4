// Whole columns of numbers -> slots, by the code for single rows: a number has the same weights in a table and alone.
#pragma once

#include <cstdint>
#include <vector>

#include "scorer/cross_field.hpp"
#include "scorer/number_field.hpp"

namespace splinefm {

// Where the slots of a field go: start[i * start_stride + w] and weight[i * weight_stride + j]. Window w has widths[w]
// weights, all windows together as many as the field has terms.
struct FieldSlots {
    std::int64_t n;
    std::int32_t* start;
    std::int64_t start_stride;
    float* weight;
    std::int64_t weight_stride;
    std::vector<std::int64_t> widths;
};

// Both return the first row with a number that the field does not take, or -1. A row without terms, and windows behind
// the token of a special value, get weights of zero.
std::int64_t encode_numbers(const NumberField& field, const double* x, const FieldSlots& slots);

// `cells` has the cell of the names of every row, or -1; `x` has a column for every number.
std::int64_t encode_products(const CrossField& field, const std::int32_t* cells, const double* const* x,
                             const FieldSlots& slots);

}  // namespace splinefm
