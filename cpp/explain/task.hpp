// Inputs and outputs of the loops of exact explanations: views of arrays that the caller owns.
//
// With s_f the sum of the unit vectors of field f, m_f its mean over a background and z_f = s_f - m_f, the score is
//
//     score = const + Σ_f (a_f + z_f' h_f + ½ z_f' q_f),    q_f = Σ_{e≠f} M_fe z_e,    h_f = Σ_{e≠f} M_fe m_e
//
// where a_f is the linear part of a field and the products inside it. The terms of the sum, less
// their means, are the Shapley values; a_f + z_f' h_f and z_f' M_fe z_e are main and pair effects.
#pragma once

#include <cstdint>

#include "layout.hpp"
#include "model.hpp"

namespace splinefm::explain {

struct Task {
    Model model;
    Layout layout;
    const std::int32_t* first_unit;  // field f owns units first_unit[f] to first_unit[f + 1] - 1
    std::int64_t k, stride;          // length of a vector, without and with padding
    std::int64_t width;              // numbers of a feature: k, times the number of fields in an FFM
    const float* factors;            // (features, width)
    const float* linear;             // (features)
    const float* center;             // (fields, width): m
    const float* slope;              // (fields, parts, stride): h; an FFM has a part for every field, others have one
    const float* inside;             // (fields): r of M_ff = r I; an FmFM has it in `between`
    const float* between;            // FwFM: (fields, four) r_fe, zero for f = e; FmFM: (fields, fields, k, stride)
    std::int64_t four;               // the number of fields, rounded up to a multiple of four
    Slots rows;
    const double* offset;  // (fields): subtracted from the terms of a field
    double* out;           // (n, fields), followed by the pairs of fields for effects
    float* vectors;        // (n, fields, width)
};

// Rows first to last - 1 of a task. `workspace` belongs to the caller and is initialized with zeros.
using Loop = void (*)(const Task& task, std::int64_t first, std::int64_t last, float* workspace);

struct Loops {
    int piece;     // numbers per vector instruction: `stride` is a multiple of it
    Loop inner;    // out = a_f - offset_f
    Loop terms;    // out = a_f + z_f' h_f + ½ z_f' q_f - offset_f
    Loop effects;  // out = a_f + z_f' h_f - offset_f of all fields, then z_f' M_fe z_e of all pairs f < e
    Loop vectors;  // vectors = z_f
};

}  // namespace splinefm::explain
