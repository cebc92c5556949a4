// Uniform B-splines on [0, 1], by a recurrence on the degree; see splinefm.encode.bases.splines.
#pragma once

#include <cstdint>

namespace splinefm {

// Where the first feature and the weights of row i go: start[i * start_stride], weight[i * weight_stride + j].
template <class Weight> struct SplineSlots {
    std::int32_t* start;
    std::int64_t start_stride;
    Weight* weight;
    std::int64_t weight_stride;
};

constexpr int MAX_DEGREE = 5;

// The degree + 1 weights at a position from 0 to 1 inside a segment.
void spline_weights(int degree, double t, double* weight);

// The first active function at u[i], counted from `first`, and the degree + 1 weights of it and those behind it. A u
// beyond the ends belongs to the first or the last segment, and the weights at NaN are NaN. Degree 1 to MAX_DEGREE.
template <class Weight> void uniform_splines(const double* u, std::int64_t n, std::int32_t segments, int degree,
                                             std::int32_t first, SplineSlots<Weight> out);

}  // namespace splinefm
