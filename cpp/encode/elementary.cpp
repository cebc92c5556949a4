#include "encode/elementary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

namespace splinefm {
namespace {

struct Entry {
    std::string_view name;
    double (*function)(double);
};

constexpr std::array<Entry, 6> FUNCTIONS{{{"log", &std::log},
                                          {"log1p", &std::log1p},
                                          {"exp", &std::exp},
                                          {"expm1", &std::expm1},
                                          {"asinh", &std::asinh},
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
