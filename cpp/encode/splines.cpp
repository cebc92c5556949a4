#include "encode/splines.hpp"

#include <algorithm>

namespace splinefm {
namespace {

// Two numbers in a register, which all 64-bit processors have: of wider ones GCC keeps some in memory.
typedef double Pair __attribute__((vector_size(16)));

// With t the position inside the segment, the weights of degree d follow from degree d - 1: of the weight of
// function j, the part (t + d - 1 - j) / d moves on to function j + 1. The degree is known to the compiler, so that
// divisions by 2 and 4 are products. A number is a double or a pair.
template <int Degree, class Number> [[gnu::always_inline]] inline void weights_at(Number t, Number* weight) {
    if constexpr (Degree == 0) {
        weight[0] = Number{} + 1.0;
    } else {
        weights_at<Degree - 1>(t, weight);
        weight[Degree] = Number{};
        for (int j = Degree - 1; j >= 0; --j) {
            const Number rising = (t + static_cast<double>(Degree - 1 - j)) * (weight[j] / static_cast<double>(Degree));
            weight[j + 1] += rising;
            weight[j] -= rising;
        }
    }
}

template <int Degree, class Weight>
void splines(const double* u, std::int64_t n, std::int32_t segments, std::int32_t first, SplineSlots<Weight> out) {
    // Write the slots of a pair, or of the first of it.
    const auto write = [&](const double* pair, std::int64_t begin, int count) {
        Pair t, weight[Degree + 1];
        for (int lane = 0; lane < 2; ++lane) {
            const double scaled = pair[lane] * segments;
            // In this order NaN becomes 0; conversion of what is not in the range would be undefined.
            const double inside = std::min(std::max(0.0, scaled), segments - 1.0);
            const auto segment = static_cast<std::int32_t>(inside);
            t[lane] = scaled - segment;
            if (lane < count) out.start[(begin + lane) * out.start_stride] = first + segment;
        }
        weights_at<Degree>(t, weight);
        for (int lane = 0; lane < count; ++lane) {
            Weight* const row = out.weight + (begin + lane) * out.weight_stride;
            for (int j = 0; j <= Degree; ++j) row[j] = static_cast<Weight>(weight[j][lane]);
        }
    };
    std::int64_t begin = 0;
    for (; begin + 2 <= n; begin += 2) write(u + begin, begin, 2);
    if (begin == n) return;
    const double last[2] = {u[begin], 0.0};
    write(last, begin, 1);
}

}  // namespace

void spline_weights(int degree, double t, double* weight) {
    switch (degree) {
    case 1: return weights_at<1>(t, weight);
    case 2: return weights_at<2>(t, weight);
    case 3: return weights_at<3>(t, weight);
    case 4: return weights_at<4>(t, weight);
    case 5: return weights_at<5>(t, weight);
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
