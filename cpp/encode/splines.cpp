#include "encode/splines.hpp"

#include <algorithm>

namespace splinefm {
namespace {

// Values that are worked on together: a loop over them is one over lanes of registers.
constexpr int LANES = 8;

// With t the position inside the segment, the weights of degree d follow from those of degree d - 1: of the weight of
// function j, the part (t + d - 1 - j) / d moves on to function j + 1.
template <int Degree> void weights_of(const double (&t)[LANES], double (&weight)[Degree + 1][LANES]) {
    for (int lane = 0; lane < LANES; ++lane) weight[0][lane] = 1.0;
    for (int d = 1; d <= Degree; ++d) {
        for (int lane = 0; lane < LANES; ++lane) weight[d][lane] = 0.0;
        for (int j = d - 1; j >= 0; --j)
            for (int lane = 0; lane < LANES; ++lane) {
                const double rising = (t[lane] + (d - 1 - j)) * (weight[j][lane] / d);
                weight[j + 1][lane] += rising;
                weight[j][lane] -= rising;
            }
    }
}

template <int Degree, class Weight>
void splines(const double* u, std::int64_t n, std::int32_t segments, std::int32_t first, SplineSlots<Weight> out) {
    const double most = segments;
    for (std::int64_t begin = 0; begin < n; begin += LANES) {
        const int count = static_cast<int>(std::min<std::int64_t>(LANES, n - begin));
        double t[LANES] = {}, weight[Degree + 1][LANES];
        std::int32_t segment[LANES];
        for (int lane = 0; lane < count; ++lane) {
            const double scaled = u[begin + lane] * most;
            segment[lane] = scaled >= most ? segments - 1 : scaled > 0.0 ? static_cast<std::int32_t>(scaled) : 0;
            t[lane] = scaled - segment[lane];
        }
        weights_of<Degree>(t, weight);
        for (int lane = 0; lane < count; ++lane) {
            out.start[(begin + lane) * out.start_stride] = first + segment[lane];
            Weight* const row = out.weight + (begin + lane) * out.weight_stride;
            for (int j = 0; j <= Degree; ++j) row[j] = static_cast<Weight>(weight[j][lane]);
        }
    }
}

}  // namespace

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
