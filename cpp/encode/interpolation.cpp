#include "encode/interpolation.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <utility>

namespace splinefm {
namespace {

constexpr int CELL_BITS = 12;

std::int64_t bits(double x) { return std::bit_cast<std::int64_t>(x); }

}  // namespace

Interpolation::Interpolation(std::vector<double> given, std::vector<double> at)
    : knots(std::move(given)), values(std::move(at)) {
    if (knots.size() < 2 || knots.size() > std::numeric_limits<std::int32_t>::max() || knots.size() != values.size())
        throw std::invalid_argument("knots and values must be of equal length, at least two");
    for (std::size_t i = 1; i < knots.size(); ++i)
        if (!(knots[i - 1] < knots[i])) throw std::invalid_argument("knots must increase strictly");
    first = bits(knots[1] - knots[0]);
    const std::int64_t span = bits(knots.back() - knots[0]) - first;
    shift = std::max(0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(span))) - CELL_BITS);
    guide.resize((span >> shift) + 2);
    std::int32_t last = 1;
    const auto end = static_cast<std::int32_t>(knots.size());
    for (std::int64_t c = 0; c < static_cast<std::int64_t>(guide.size()); ++c) {
        while (last + 1 < end && ((bits(knots[last + 1] - knots[0]) - first) >> shift) < c) ++last;
        guide[c] = last;
    }
}

// At least at the second knot, at most at the last. Clamped: where another library has the processor round tiny numbers
// to zero, a distance can be less than it was when the guide was made.
std::int64_t Interpolation::cell(double x) const {
    const std::int64_t c = (bits(x - knots[0]) - first) >> shift;
    return std::clamp<std::int64_t>(c, 0, static_cast<std::int64_t>(guide.size()) - 2);
}

double Interpolation::operator()(double x) const {
    if (x >= knots.back()) return values.back();
    if (!(x > knots[0])) return x <= knots[0] ? values[0] : x;
    std::size_t low = 0;
    if (x >= knots[1]) {
        const std::int64_t c = cell(x);
        low = guide[c];
        std::size_t high = guide[c + 1] + std::size_t{1};
        while (high - low > 1) {
            const std::size_t middle = (low + high) / 2;
            (knots[middle] <= x ? low : high) = middle;
        }
    }
    low = std::min(low, knots.size() - 2);
    const double part = (x - knots[low]) / (knots[low + 1] - knots[low]);
    return values[low] + part * (values[low + 1] - values[low]);
}

void Interpolation::evaluate(const double* x, std::int64_t n, double* out) const {
    for (std::int64_t i = 0; i < n; ++i) out[i] = (*this)(x[i]);
}

}  // namespace splinefm
