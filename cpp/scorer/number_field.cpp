#include "scorer/number_field.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "encode/order.hpp"
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

constexpr int CELL_BITS = 10;
constexpr std::int64_t MAX_IN_CELL = 24;

// count_at_most for several x. Halves: loads of different x wait together.
constexpr int LANES = 8;
void count_at_most(const double* x, const double* numbers, std::int64_t n, std::int64_t* count) {
    std::fill_n(count, LANES, std::int64_t{0});
    if (n == 0) return;
    for (; n > 1; n -= n / 2) {
        const double* const middle = numbers + n / 2 - 1;
        for (int lane = 0; lane < LANES; ++lane)
            count[lane] += -static_cast<std::int64_t>(middle[count[lane]] <= x[lane]) & (n / 2);
    }
    for (int lane = 0; lane < LANES; ++lane) count[lane] += numbers[count[lane]] <= x[lane];
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

void Pieces::make_guide() {
    const auto n = static_cast<std::int64_t>(knots.size()) - 1;
    if (n < 16) return;
    first = order_of(knots.front());
    const auto span = static_cast<std::uint64_t>(order_of(knots.back())) - static_cast<std::uint64_t>(first);
    shift = std::max(0, static_cast<int>(std::bit_width(span)) - CELL_BITS);
    const auto cell = [&](double x) {
        return (static_cast<std::uint64_t>(order_of(x)) - static_cast<std::uint64_t>(first)) >> shift;
    };
    guide.assign((span >> shift) + 2, 0);
    for (std::int64_t i = 1; i < n; ++i) ++guide[cell(knots[i]) + 1];
    most = *std::max_element(guide.begin(), guide.end());
    if (most > MAX_IN_CELL) return guide.clear();  // knots are too close to each other
    std::partial_sum(guide.begin(), guide.end(), guide.begin());
    joined.assign(2 * static_cast<std::size_t>(n + 1 + most), std::numeric_limits<double>::infinity());
    for (std::int64_t i = 0; i <= n; ++i) {
        joined[2 * i] = knots[i];
        joined[2 * i + 1] = powers == 1 ? values[i] : 0.0;
    }
}

// The piece of a number from the first to the last knot.
std::int64_t Pieces::find(double x) const {
    const auto n = static_cast<std::int64_t>(knots.size()) - 1;
    if (!guide.empty()) {
        const auto cell = (static_cast<std::uint64_t>(order_of(x)) - static_cast<std::uint64_t>(first)) >> shift;
        const std::int64_t low = guide[std::min<std::uint64_t>(cell, guide.size() - 2)];
        const double* const from = joined.data() + 2 * (low + 1);
        std::int64_t piece = low;
        for (std::int64_t i = 0; i < most; ++i) piece += from[2 * i] <= x;
        piece = std::min(piece, n - 1);
        // Where another library has the processor round tiny numbers to zero, cells may be others than at first.
        const double* const found = joined.data() + 2 * piece;
        if (found[0] <= x && (piece == n - 1 || x < found[2])) return piece;
    }
    return count_at_most(x, knots.data() + 1, n - 1);
}

double Pieces::operator()(double x) const {
    x = std::clamp(x, knots.front(), knots.back());
    return inside(x, find(x));
}

void Pieces::evaluate(const double* x, std::int64_t n, double* u) const {
    const auto n_pieces = static_cast<std::int64_t>(knots.size()) - 1;
    const double lowest = knots.front(), highest = knots.back();
    std::int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        double clamped[LANES];
        std::int64_t piece[LANES];
        for (int lane = 0; lane < LANES; ++lane) clamped[lane] = std::clamp(x[i + lane], lowest, highest);
        count_at_most(clamped, knots.data() + 1, n_pieces - 1, piece);
        for (int lane = 0; lane < LANES; ++lane) u[i + lane] = inside(clamped[lane], piece[lane]);
    }
    for (; i < n; ++i) u[i] = (*this)(x[i]);
}

// T(x) in a piece.
double Pieces::inside(double x, std::int64_t piece) const {
    if (powers == 1 && !joined.empty()) {
        const double* const c = joined.data() + 2 * piece;
        return c[1] + (x - c[0]) / (c[2] - c[0]) * (c[3] - c[1]);
    }
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

std::int64_t NumberField::max_terms() const {
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
    if (std::isinf(x)) return REFUSED;
    if (!limits.exclude(x)) return ORDINARY;
    return limits.missing ? static_cast<std::int64_t>(rules.size()) : REFUSED;
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
