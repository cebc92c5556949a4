#include "scorer/checks.hpp"

#include <stdexcept>

#include "encode/splines.hpp"

namespace splinefm {
namespace {

bool increases(const std::vector<double>& x) {
    for (std::size_t i = 1; i < x.size(); ++i)
        if (!(x[i - 1] <= x[i])) return false;
    return true;
}

// A product of sizes, or more than any number of features.
std::int64_t product(const std::int64_t* sizes, std::int64_t n) {
    std::int64_t total = 1;
    for (std::int64_t i = 0; i < n && total <= MAX_FEATURES; ++i) total *= sizes[i];
    return total;
}

void check_parts(const CrossField& field, std::int64_t levels, std::int64_t numbers) {
    std::int64_t i = 0;
    for (const CrossPart& part : field.parts) {
        const NumberField* const number = std::get_if<NumberField>(&part);
        if (!number) continue;
        check(i < numbers && static_cast<std::int64_t>(number->windows.size()) == levels,
              "sizes must have a row for every window of numbers, and a column for every number");
        for (std::int64_t level = 0; level < levels; ++level) {
            const std::int64_t functions = field.sizes[static_cast<std::size_t>(level * numbers + i)];
            check(functions <= MAX_FEATURES &&
                      number->windows[static_cast<std::size_t>(level)].n_features() <= functions,
                  "sizes must be at least those of the windows");
        }
        ++i;
    }
    check(i == numbers && (i || levels == 1), "sizes must have a column for every number");
}

}  // namespace

void check(bool valid, const char* message) {
    if (!valid) throw std::invalid_argument(message);
}

void check_number(const NumberField& field) {
    const Pieces& pieces = field.pieces;
    const std::size_t n = pieces.knots.size();
    check(field.first >= 0 && field.first <= MAX_FEATURES, "first must be a feature");
    check(n != 1 && increases(pieces.knots), "knots must be none, or two and more that increase");
    check(pieces.powers == 1 || pieces.powers == 4, "powers must be 1 or 4");
    check(pieces.values.size() == (pieces.powers == 1 || !n ? n : 4 * (n - 1)),
          "values must be one per knot, or four per piece");
    check(field.limits.low <= field.limits.high, "limits must be numbers that do not decrease");
    check(!field.limits.missing || field.has_missing, "numbers beyond limits have no feature of missing values");
}

void check_window(const BasisWindow& window) {
    check(window.segments >= 1 && window.segments <= MAX_FEATURES, "coefficients must be of all segments, or of one");
    check(window.functions >= 1 && window.functions <= 1 << 20 && window.degree >= 0 && window.degree < 1 << 10,
          "coefficients must be of shape (segments or 1, functions, degree + 1)");
    const auto n = static_cast<std::int64_t>(window.coefficients.size());
    const std::int64_t each = static_cast<std::int64_t>(window.functions) * (window.degree + 1);
    const bool is_spline = n == 0 && window.edges.empty() && window.functions == window.degree + 1 &&
                           window.degree >= 1 && window.degree <= MAX_DEGREE;
    check(is_spline || n == each || n == window.segments * each,
          "coefficients must be of all segments, or of one, or none of a B-spline");
    check(window.start >= 0 && window.start <= MAX_FEATURES && window.moves >= 0 && window.moves <= MAX_FEATURES &&
              window.around >= 1,
          "start, moves and around must not be negative");
    check(window.edges.empty() || static_cast<std::int64_t>(window.edges.size()) == window.segments + 1,
          "edges must be one more than segments, or none");
    check(increases(window.edges), "edges must increase");
    check(window.start + (window.segments - 1) * window.moves + window.functions <= MAX_FEATURES,
          "start and moves must lead to fewer than 2^31 functions");
}

void check_names(const Names& names) {
    check(names.first >= 0 && names.first <= MAX_FEATURES - names.size, "first must be a feature");
    check(names.unseen >= ASK && names.unseen <= MAX_FEATURES && names.missing >= ASK &&
              names.missing <= MAX_FEATURES && names.missing != NO_FEATURE,
          "unseen and missing must be features, or negative numbers that stand for none");
}

void check_length(std::int64_t length) { check(length >= 1 && length <= 1 << 20, "length must be at least 1"); }

void check_cross(const CrossField& field, std::int64_t levels, std::int64_t numbers) {
    check(field.parts.size() >= 1 && field.parts.size() <= CrossField::MAX_PARTS,
          "parts must be an encoder of one to eight fields");
    check_parts(field, levels, numbers);
    const std::int64_t n_names = static_cast<std::int64_t>(field.parts.size()) - numbers;
    if (const Buckets* const buckets = std::get_if<Buckets>(&field.cells)) {
        check(static_cast<std::int64_t>(buckets->multipliers.size()) == n_names && buckets->prime >= 1 &&
                  buckets->prime <= MAX_FEATURES,
              "there must be a multiplier for every name");
        for (const std::int64_t m : buckets->multipliers)
            check(m >= 1 && m <= MAX_FEATURES, "multipliers must be positive");
    }
    std::int64_t block = 0;
    for (std::int64_t level = 0; level < levels && block <= MAX_FEATURES; ++level)
        block += product(field.sizes.data() + level * numbers, numbers);
    check(field.first >= 0 && field.first <= MAX_FEATURES && field.n_cells >= 0 && field.n_cells <= MAX_FEATURES &&
              block <= MAX_FEATURES && field.first + field.n_cells * block <= MAX_FEATURES,
          "first must be a feature, and there may be 2^31 - 1 features");
    check(field.max_terms() <= 1 << 20, "a row has too many products");
}

void check_params(const RowParams& p, std::int64_t n_between, std::int64_t end) {
    const bool is_ffm = p.model == Model::ffm;
    check(p.k >= 4 && p.k <= 1 << 16 && (p.k == 4 || p.k % 8 == 0), "k must be 4 or a multiple of 8");
    check(p.order >= 2 && p.order <= 1 << 16, "order must be at least 2");
    const std::int64_t pairs = is_ffm ? p.k * p.n_fields : p.k, third = p.width - pairs;
    check(third == 0 || (p.model == Model::fwfm && third > 0 && third % 8 == 0 && p.k % 8 == 0),
          "factors must have k numbers per feature (FFM: per field), and multiples of 8 for triples");
    check(end <= p.n_features, "factors must have all features of the fields");
    const bool has_weights = p.model == Model::fwfm && p.members >= 1 && p.members <= p.k && p.k % (8 * p.members) == 0;
    const bool has_shares = p.model == Model::higher && p.members >= 1 && p.members <= p.k;
    check(p.members == 1 || has_weights || has_shares,
          "members must be 1, or of an fwfm with a multiple of 8 numbers for each, or of a higher with some for each");
    const std::int64_t n = p.n_fields * p.n_fields;
    const std::int64_t asked = p.model == Model::fwfm ? n * p.members : p.model == Model::fmfm ? n * p.k * p.k : 0;
    check(n_between >= asked, "between must have a number (FmFM: a matrix) for every pair of fields");
}

}  // namespace splinefm
