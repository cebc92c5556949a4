#include "encode/splines.hpp"

#include <algorithm>

namespace splinefm {
namespace {

// Values that are worked on together: a loop over them is one over lanes of registers.
constexpr int LANES = 8;

// With t the position inside the segment, the weights of degree d follow from those of degree d - 1: of the weight of
// function j, the part (t + d - 1 - j) / d moves on to function j + 1. The degree is known to the compiler, so that
// divisions by 2 and 4 are products.
template <int Degree, int N> void weights_at(const double* t, double (*weight)[N]) {
    if constexpr (Degree == 0) {
        for (int lane = 0; lane < N; ++lane) weight[0][lane] = 1.0;
    } else {
        weights_at<Degree - 1>(t, weight);
        for (int lane = 0; lane < N; ++lane) weight[Degree][lane] = 0.0;
        for (int j = Degree - 1; j >= 0; --j)
            for (int lane = 0; lane < N; ++lane) {
                const double rising = (t[lane] + (Degree - 1 - j)) * (weight[j][lane] / Degree);
                weight[j + 1][lane] += rising;
                weight[j][lane] -= rising;
            }
    }
}

// Segments and weights of LANES values.
template <int Degree>
void splines_at(const double* u, double segments, std::int32_t* segment, double (*weight)[LANES]) {
    double t[LANES];
    for (int lane = 0; lane < LANES; ++lane) {
        const double scaled = u[lane] * segments;
        // In this order NaN becomes 0; conversion of what is not in the range would be undefined.
        const double inside = std::min(std::max(0.0, scaled), segments - 1.0);
        segment[lane] = static_cast<std::int32_t>(inside);
        t[lane] = scaled - segment[lane];
    }
    weights_at<Degree>(t, weight);
}

template <int Degree, class Weight>
void splines(const double* u, std::int64_t n, std::int32_t segments, std::int32_t first, SplineSlots<Weight> out) {
    double weight[Degree + 1][LANES];
    std::int32_t segment[LANES];
    const auto write = [&](std::int64_t begin, int count) {
        for (int lane = 0; lane < count; ++lane) {
            out.start[(begin + lane) * out.start_stride] = first + segment[lane];
            Weight* const row = out.weight + (begin + lane) * out.weight_stride;
            for (int j = 0; j <= Degree; ++j) row[j] = static_cast<Weight>(weight[j][lane]);
        }
    };
    std::int64_t begin = 0;
    for (; begin + LANES <= n; begin += LANES) {
        splines_at<Degree>(u + begin, segments, segment, weight);
        write(begin, LANES);
    }
    if (begin == n) return;
    double rest[LANES] = {};
    std::copy(u + begin, u + n, rest);
    splines_at<Degree>(rest, segments, segment, weight);
    write(begin, static_cast<int>(n - begin));
}

}  // namespace

void spline_weights(int degree, double t, double* weight) {
    auto* const one = reinterpret_cast<double (*)[1]>(weight);
    switch (degree) {
    case 1: return weights_at<1>(&t, one);
    case 2: return weights_at<2>(&t, one);
    case 3: return weights_at<3>(&t, one);
    case 4: return weights_at<4>(&t, one);
    case 5: return weights_at<5>(&t, one);
    }
}

template <class Weight> void uniform_splines(const double* u, std::int64_t n, std::int32_t segments, int degree,
                                             std::int32_t first, SplineSlots<Weight> out) {
    switch (degree) {
    case 1: return splines<1>(u, n, segments, first, out);
    case 2: return splines<2>(u, n, segments, first, out);
    case 3: return splines<3>(u, n, segments, first, out);
    case 4: return splines<4>(u, n, segments, first, out);
    case 5: return splines<5>(u, n, segments, first, out);
    }
}

template void uniform_splines(const double*, std::int64_t, std::int32_t, int, std::int32_t, SplineSlots<float>);
template void uniform_splines(const double*, std::int64_t, std::int32_t, int, std::int32_t, SplineSlots<double>);

}  // namespace splinefm
