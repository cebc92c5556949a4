// Fields, units, windows, and rows of slots: how the loops see what crosses from data to model.
//
// Window w of row i owns features start[i, w] + j with weights weight[i, weight_ptr[w] + j]. All windows of a unit
// are summed into one vector p_u, and the field of a unit says which parameters between fields apply. Views of arrays
// that the caller owns; copy them by value, because the compiler would reload references in loops.
#pragma once

#include <cstdint>

namespace splinefm {

struct Layout {
    int n_fields, n_units, n_windows, n_weights;
    const std::int32_t* feature_ptr;  // field f owns features feature_ptr[f] to feature_ptr[f + 1] - 1
    const std::int32_t* unit_field;   // the field of each unit
    const std::int32_t* unit_ptr;     // unit u is the sum of windows unit_ptr[u] to unit_ptr[u + 1] - 1
    const std::int32_t* weight_ptr;   // window w owns weights weight_ptr[w] to weight_ptr[w + 1] - 1
};

struct Slots {
    std::int64_t n;
    const std::int32_t* start;  // (n, n_windows)
    const float* weight;        // (n, n_weights)
};

}  // namespace splinefm
