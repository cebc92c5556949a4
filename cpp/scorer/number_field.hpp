// A numerical field for one row at a time: transform and basis are piecewise polynomials.
//
// u = T(x) is linear or a cubic in each piece of [knots[0], knots[n]], constant beyond. The weights of a window are
// polynomials of the position inside the segment of u, from -1 to 1. Features: [special values.., missing,
// functions..]. Steps (bins) have no transform: their windows take x itself.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "scorer/terms.hpp"

namespace splinefm {

// A special value, which has a feature: x == bound, x < bound, and so on.
struct Rule {
    enum Sign { equal, below, at_most, above, at_least };
    Sign sign;
    double bound;

    bool holds(double x) const;
};

// The range of training, where numbers beyond it are not clipped: they count as missing, or are refused.
struct Limits {
    double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
    bool missing = false;

    bool any() const {
        return low > -std::numeric_limits<double>::infinity() || high < std::numeric_limits<double>::infinity();
    }
    bool exclude(double x) const { return x < low || x > high; }
};

// u = T(x).
struct Pieces {
    std::vector<double> knots;  // n + 1, increasing
    std::vector<double>
        values;  // at the knots (one power), or coefficients of cubics of the position from 0 to 1 (four)
    int powers = 1;

    // Prepare for faster searches, once knots are known to increase.
    void make_guide();
    double operator()(double x) const;
    // u[i] = T(x[i]), the same numbers.
    void evaluate(const double* x, std::int64_t n, double* u) const;

private:
    std::int64_t find(double x) const;
    double inside(double x, std::int64_t piece) const;

    // Cells of numbers that share their highest bits: how many knots but the first and the last are in the cells before
    // each. A search looks at `most` knots from there on. Knots and values side by side are in the same cache lines;
    // behind the last are infinite knots.
    std::vector<std::int32_t> guide;
    std::vector<double> joined;
    std::int64_t first = 0, most = 0;
    int shift = 0;
};

// Neighboring functions of a basis that are not zero in a segment.
struct BasisWindow {
    std::int64_t segments;
    std::vector<double> edges;         // segments + 1, where segments are not of equal length; or none
    std::vector<double> coefficients;  // (segments or 1, functions, degree + 1), highest power first; none: the
                                       // degree + 1 functions of a B-spline whose segments are of equal length
    int functions, degree;
    std::int64_t start, moves;  // the first function in the first segment, and its change from segment to segment
    std::int64_t around;        // function `around` is function 0 again

    // The largest number of a function, plus one, or a few more.
    std::int64_t n_features() const;

    void add_terms(double u, std::int64_t first, Terms& terms) const;

    // Whether it is a B-spline whose segments are of equal length and whose functions do not begin again.
    bool is_uniform() const {
        return edges.empty() && coefficients.empty() && moves == 1 && start + segments + functions - 1 <= around;
    }
};

struct NumberField {
    std::int64_t first;  // its first feature
    std::vector<Rule> rules;
    bool has_missing;  // a feature for missing values
    bool apart;        // a unit per term
    Pieces pieces;     // no knots: windows take x
    std::vector<BasisWindow> windows;
    Limits limits = {};

    std::int64_t max_terms() const;
    std::int64_t end_feature() const;

    static constexpr std::int64_t ORDINARY = -1, REFUSED = -2;
    // The token of a number, which is its only feature; ORDINARY, or REFUSED if the field does not take it.
    std::int64_t token(double x) const;
    // u = T(x) of an ordinary number, or x itself for steps.
    double position(double x) const { return pieces.knots.empty() ? x : pieces(x); }

    // Terms of a number, NaN if it is missing; false if the field does not take it.
    bool add_terms(double x, Terms& terms) const;
};

}  // namespace splinefm
