#include "scorer/number_field.hpp"

#include <algorithm>
#include <cmath>

#include "encode/splines.hpp"

namespace splinefm {
namespace {

// How many of n increasing numbers are at most x.
std::int64_t count_at_most(double x, const double* numbers, std::int64_t n) {
    std::int64_t low = 0;
    for (; n >= 8; n -= 7 * (n / 8)) {  // eighths: seven loads that wait together, and no branch to guess
        const std::int64_t step = n / 8;
        std::int64_t before = 0;
        for (std::int64_t i = 1; i < 8; ++i) before += numbers[low + i * step - 1] <= x;
        low += before * step;
    }
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < n; ++i) before += numbers[low + i] <= x;
    return low + before;
}

}  // namespace

bool Rule::holds(double x) const {
    switch (sign) {
    case equal: return x == bound;
    case below: return x < bound;
    case at_most: return x <= bound;
    case above: return x > bound;
    case at_least: return x >= bound;
    }
    return false;
}

double Pieces::operator()(double x) const {
    const auto n = static_cast<std::int64_t>(knots.size()) - 1;
    x = std::clamp(x, knots.front(), knots.back());
    const std::int64_t piece = count_at_most(x, knots.data() + 1, n - 1);
    const double left = knots[piece], t = (x - left) / (knots[piece + 1] - left);
    const double* c = values.data() + powers * piece;
    if (powers == 1) return c[0] + t * (c[1] - c[0]);
    return c[0] + t * (c[1] + t * (c[2] + t * c[3]));
}

std::int64_t BasisWindow::n_features() const {
    const std::int64_t last = start + (segments - 1) * moves, most = std::min(around, last + functions);
    return last < around ? most : std::max(most, last - around + 1);
}

void BasisWindow::add_terms(double u, std::int64_t first, Terms& terms) const {
    std::int64_t segment;
    double inside = 0.0, scaled = 0.0;
    if (edges.empty()) {
        scaled = u > 0.0 ? u * static_cast<double>(segments) : 0.0;
        segment = scaled < static_cast<double>(segments) ? static_cast<std::int64_t>(scaled) : segments - 1;
        inside = 2.0 * (scaled - static_cast<double>(segment)) - 1.0;
    } else {
        segment = count_at_most(u, edges.data() + 1, segments - 1);
        if (degree) inside = 2.0 * (u - edges[segment]) / (edges[segment + 1] - edges[segment]) - 1.0;
    }
    if (coefficients.empty()) {
        double weight[MAX_DEGREE + 1];
        spline_weights(degree, scaled - static_cast<double>(segment), weight);
        std::int64_t row = start + segment * moves;
        for (int i = 0; i < functions; ++i, ++row) {
            if (row >= around) row -= around;
            terms.add(first + row, static_cast<float>(weight[i]));
        }
        return;
    }
    const std::int64_t each = static_cast<std::int64_t>(functions) * (degree + 1);
    const bool alike = static_cast<std::int64_t>(coefficients.size()) == each;
    const double* c = coefficients.data() + (alike ? 0 : segment * each);
    std::int64_t row = start + segment * moves;
    for (int i = 0; i < functions; ++i, ++row, c += degree + 1) {
        double weight = c[0];
        for (int d = 1; d <= degree; ++d) weight = weight * inside + c[d];
        if (row >= around) row -= around;
        terms.add(first + row, static_cast<float>(weight));
    }
}

std::int64_t NumberField::most_terms() const {
    std::int64_t most = 0;
    for (const BasisWindow& window : windows) most += window.functions;
    return std::max<std::int64_t>(most, 1);
}

std::int64_t NumberField::end_feature() const {
    std::int64_t end = 0;
    for (const BasisWindow& window : windows) end = std::max(end, window.n_features());
    return first + static_cast<std::int64_t>(rules.size()) + has_missing + end;
}

std::int64_t NumberField::token(double x) const {
    for (std::size_t at = 0; at < rules.size(); ++at)
        if (rules[at].holds(x)) return static_cast<std::int64_t>(at);
    if (std::isnan(x)) return has_missing ? static_cast<std::int64_t>(rules.size()) : REFUSED;
    return std::isinf(x) ? REFUSED : ORDINARY;
}

bool NumberField::add_terms(double x, Terms& terms) const {
    const std::int64_t found = token(x);
    if (found == REFUSED) return false;
    if (found != ORDINARY) {
        terms.add(first + found, 1.0f);
        return true;
    }
    const double u = position(x);
    const auto n_tokens = static_cast<std::int64_t>(rules.size()) + has_missing;
    for (const BasisWindow& window : windows) window.add_terms(u, first + n_tokens, terms);
    return true;
}

}  // namespace splinefm
