#include "encode/elementary.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <stdexcept>
#include <string>

namespace splinefm {
namespace {

// The first half of the bits of |x|, by which C libraries choose the formula.
std::uint32_t high_word(double x) {
    return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(x) >> 32) & 0x7fffffffu;
}

// As glibc 2.36 computes it, by the formulas of fdlibm; glibc 2.43 rounds one value in six differently. The functions
// in the formulas have the same bits in both.
double asinh(double x) {
    const std::uint32_t high = high_word(x);
    const double z = std::fabs(x);
    if (high < high_word(0x1p-28) || !std::isfinite(x)) return x;
    if (high > high_word(0x1p28)) return std::copysign(std::log(z) + std::numbers::ln2, x);
    if (high > high_word(2.0)) return std::copysign(std::log(2.0 * z + 1.0 / (std::sqrt(z * z + 1.0) + z)), x);
    return std::copysign(std::log1p(z + z * z / (1.0 + std::sqrt(1.0 + z * z))), x);
}

struct Entry {
    std::string_view name;
    double (*function)(double);
};

constexpr std::array<Entry, 6> FUNCTIONS{{{"log", &std::log},
                                          {"log1p", &std::log1p},
                                          {"exp", &std::exp},
                                          {"expm1", &std::expm1},
                                          {"asinh", &asinh},
                                          {"atan", &std::atan}}};

}  // namespace

void elementary(std::string_view function, const double* x, std::int64_t n, double* out) {
    const auto* const found = std::find_if(FUNCTIONS.begin(), FUNCTIONS.end(),
                                           [function](const Entry& entry) { return entry.name == function; });
    if (found == FUNCTIONS.end()) throw std::invalid_argument("no function is called " + std::string(function));
    std::transform(x, x + n, out, found->function);
}

void power(const double* x, std::int64_t n, double exponent, double* out) {
    std::transform(x, x + n, out, [exponent](double value) { return std::pow(value, exponent); });
}

}  // namespace splinefm
