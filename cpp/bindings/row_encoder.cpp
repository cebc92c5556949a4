#include "scorer/row_encoder.hpp"

#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "bindings/row_reader.hpp"

namespace splinefm::bindings {
namespace {

using Numbers = In<double>;
constexpr std::int64_t MOST = std::numeric_limits<std::int32_t>::max();

void check(bool sound, const char* message) {
    if (!sound) throw nb::value_error(message);
}

std::vector<double> copy(const Numbers& array, const char* name) {
    const double* const data = numbers(array, name);
    return {data, data + array.size()};
}

bool increases(const std::vector<double>& x) {
    for (std::size_t i = 1; i < x.size(); ++i)
        if (!(x[i - 1] <= x[i])) return false;
    return true;
}

void add(EncoderOwner& self, RowField field, bool plain = true) {
    check(!self.finished, "an encoder that has encoded rows takes no more fields");
    self.encoder.add(std::move(field));
    self.plain.push_back(plain);
}

void add_number(EncoderOwner& self, std::int64_t first, Numbers signs, Numbers bounds, bool missing, bool apart,
                bool plain, Numbers knots, Numbers values, int powers) {
    check(first >= 0 && first <= MOST, "first must be a feature");
    check(signs.size() == bounds.size(), "signs and bounds must have the same length");
    NumberField field{.first = first, .rules = {}, .has_missing = missing, .apart = apart, .pieces = {}, .windows = {}};
    const std::vector<double> kinds = copy(signs, "signs"), limits = copy(bounds, "bounds");
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        check(kinds[i] >= 0 && kinds[i] <= 4, "signs must be whole numbers from 0 to 4");
        field.rules.push_back({static_cast<Rule::Sign>(static_cast<int>(kinds[i])), limits[i]});
    }
    field.pieces = {copy(knots, "knots"), copy(values, "values"), powers};
    const std::size_t n = knots.size();
    check(n != 1 && increases(field.pieces.knots), "knots must be none, or two and more that increase");
    check(powers == 1 || powers == 4, "powers must be 1 or 4");
    check(values.size() == (powers == 1 || !n ? n : 4 * (n - 1)), "values must be one per knot, or four per piece");
    add(self, std::move(field), plain);
}

// Add a window to the last field.
void add_window(EncoderOwner& self, std::int64_t segments, Numbers edges,
                nb::ndarray<const double, nb::ndim<3>, nb::c_contig, nb::device::cpu> coefficients, std::int64_t start,
                std::int64_t moves, std::int64_t around) {
    const auto n = static_cast<std::int64_t>(coefficients.shape(0));
    const std::size_t functions = coefficients.shape(1), powers = coefficients.shape(2);
    check(segments >= 1 && segments <= MOST && (n == segments || n == 1),
          "coefficients must be those of all segments, or of one");
    check(functions >= 1 && functions <= 1 << 20 && powers >= 1 && powers <= 1 << 10,
          "coefficients must be of shape (segments or 1, functions, degree + 1)");
    check(start >= 0 && start <= MOST && moves >= 0 && moves <= MOST && around >= 1,
          "start, moves and around must not be negative");
    Window window{.segments = segments,
                  .edges = copy(edges, "edges"),
                  .coefficients = {},
                  .functions = static_cast<int>(functions),
                  .degree = static_cast<int>(powers) - 1,
                  .start = start,
                  .moves = moves,
                  .around = around};
    check(window.edges.empty() || static_cast<std::int64_t>(window.edges.size()) == segments + 1,
          "edges must be one more than segments, or none");
    check(increases(window.edges), "edges must increase");
    const double* const data = numbers(coefficients, "coefficients");
    window.coefficients.assign(data, data + coefficients.size());
    check(!self.finished, "an encoder that has encoded rows takes no more fields");
    check(self.encoder.add(std::move(window)), "a window belongs to a field of numbers");
}

// Whether these are strings is checked, and the arrays are kept.
Names make_names(EncoderOwner& self, In<std::int64_t> offsets, In<std::uint8_t> text, std::int64_t first,
                 std::int64_t unseen, std::int64_t missing) {
    const std::int64_t* const at = numbers(offsets, "offsets");
    check(offsets.size() >= 1 && offsets.size() <= (1 << 30), "offsets must be one more than there are names");
    const auto n = static_cast<std::int64_t>(offsets.size()) - 1;
    const char* const bytes = reinterpret_cast<const char*>(text.data());
    const Strings names{at, bytes, bytes + text.size(), n};
    check(names.are_inside(static_cast<std::int64_t>(text.size())),
          "offsets must not decrease, and lie between 0 and the length of text");
    check(first >= 0 && first + n <= MOST, "first must be a feature");
    check(unseen >= ASK && unseen <= MOST && missing >= ASK && missing <= MOST && missing != NO_FEATURE,
          "unseen and missing must be features, or negative numbers that stand for none");
    self.offsets.push_back(offsets);
    self.texts.push_back(text);
    return {StringTable(names), n, first, unseen, missing};
}

void add_names(EncoderOwner& self, In<std::int64_t> offsets, In<std::uint8_t> text, std::int64_t first,
               std::int64_t unseen, std::int64_t missing) {
    add(self, CategoryField{make_names(self, offsets, text, first, unseen, missing)});
}

void add_lists(EncoderOwner& self, In<std::int64_t> offsets, In<std::uint8_t> text, std::int64_t first,
               std::int64_t unseen, std::int64_t missing, std::int64_t length, bool averages, bool apart) {
    check(length >= 1 && length <= 1 << 20, "length must be at least 1");
    add(self, ListField{make_names(self, offsets, text, first, unseen, missing), length, averages, apart});
}

void add_given(EncoderOwner& self, std::int64_t length, bool apart) {
    check(length >= 1 && length <= 1 << 20, "length must be at least 1");
    add(self, GivenField{length, apart});
}

using Encoded = std::tuple<Array<std::int32_t>, Array<float>, Array<std::int32_t>, Array<std::int32_t>>;

Encoded encode(EncoderOwner& self, nb::handle row, const Items& columns, const Items& readers) {
    const Source source{row, columns, readers};
    check_source(self, source);
    self.finished = true;
    Terms terms(self.encoder.most_terms());
    std::vector<std::int64_t> found(self.encoder.n_fields());
    read_row(self, source, nullptr, MOST, found, terms);
    terms.features.resize(terms.n_terms);
    terms.weights.resize(terms.n_terms);
    terms.ends.resize(terms.n_units + 1);
    terms.unit_fields.resize(terms.n_units);
    return {give(std::move(terms.features)), give(std::move(terms.weights)), give(std::move(terms.ends)),
            give(std::move(terms.unit_fields))};
}

}  // namespace

void bind_row_encoder(nb::module_& module) {
    const auto offsets = nb::arg("offsets").noconvert(), text = nb::arg("text").noconvert();
    const auto knots = nb::arg("knots").noconvert(), values = nb::arg("values").noconvert();
    const auto signs = nb::arg("signs").noconvert(), bounds = nb::arg("bounds").noconvert();
    const auto edges = nb::arg("edges").noconvert(), coefficients = nb::arg("coefficients").noconvert();
    nb::class_<EncoderOwner>(
        module, "RowEncoder",
        "Raw values of one row -> features and weights. Fields are added in the order of the "
        "model. Rows are mappings; `columns` and `readers` have an item per field: where its value "
        "is, and a function that is asked about values and names that are not known here.")
        .def(nb::init<>())
        .def("add_number", &add_number, nb::arg("first"), signs, bounds, nb::arg("missing"), nb::arg("apart"),
             nb::arg("plain"), knots, values, nb::arg("powers"),
             "A field of numbers; its reader returns a float. Signs of special values: 0 to 4 for ==, <, <=, >, >=.")
        .def("add_window", &add_window, nb::arg("segments"), edges, coefficients, nb::arg("start"), nb::arg("moves"),
             nb::arg("around"), "A window of the basis of the field that was added last.")
        .def("add_names", &add_names, offsets, text, nb::arg("first"), nb::arg("unseen"), nb::arg("missing"),
             "A field of one name; its reader returns a feature, or -1. Rows may be -1 for none, -2 to ask.")
        .def("add_lists", &add_lists, offsets, text, nb::arg("first"), nb::arg("unseen"), nb::arg("missing"),
             nb::arg("length"), nb::arg("averages"), nb::arg("apart"),
             "A field of lists of names; its reader returns features and weights.")
        .def("add_given", &add_given, nb::arg("length"), nb::arg("apart"),
             "A field whose reader returns features and weights of every value.")
        .def("encode", &encode, nb::arg("row"), nb::arg("columns"), nb::arg("readers"),
             "Features and weights of terms; where the terms of units end, after a zero; fields of units.");
}

}  // namespace splinefm::bindings
