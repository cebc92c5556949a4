// The units of one row and their parameters, as kernels see them. Views, copied by value.
#pragma once

#include <cstdint>

#include "model.hpp"

namespace splinefm {

struct RowUnits {
    Model model;
    std::int64_t k;        // numbers of a vector (FFM: for each field): 4, or a multiple of 8
    std::int64_t width;    // numbers per feature: k, in an FFM n_fields k; the rest of an FwFM's meet in triples
    std::int64_t order;    // of a model of higher order
    std::int64_t members;  // parts of the k numbers: in an FwFM with weights of their own, in a HigherOrderFM of a mean
    std::int64_t n_fields, n_units;
    const float* factors;             // (features, width)
    const float* between;             // weights of pairs of fields (for each member), or matrices by their second field
    const std::int32_t* features;     // of terms
    const float* weights;             // of terms
    const std::int32_t* ends;         // unit u has terms ends[u] to ends[u + 1] - 1
    const std::int32_t* unit_fields;  // ascending
    float* vectors;                   // workspace
};

}  // namespace splinefm
