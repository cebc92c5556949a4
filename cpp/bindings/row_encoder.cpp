#include "scorer/row_encoder.hpp"

#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "bindings/row_reader.hpp"
#include "scorer/checks.hpp"
#include "scorer/columns.hpp"

namespace splinefm::bindings {
namespace {

using Numbers = In<double>;

std::vector<double> copy(const Numbers& array, const char* name) {
    const double* const data = numbers(array, name);
    return {data, data + array.size()};
}

void add(EncoderOwner& self, RowField field, bool plain = true) {
    check(!self.finished && !self.encoder.has_offset(),
          "an encoder that has encoded rows, or has an offset, takes no more fields");
    self.encoder.add(std::move(field));
    self.plain.resize(static_cast<std::size_t>(self.encoder.n_values()), plain);
}

void add_number(EncoderOwner& self, std::int64_t first, Numbers signs, Numbers bounds, bool missing, bool apart,
                bool plain, Numbers knots, Numbers values, int powers, double low, double high, bool beyond_missing) {
    check(signs.size() == bounds.size(), "signs and bounds must have the same length");
    NumberField field{.first = first,
                      .rules = {},
                      .has_missing = missing,
                      .apart = apart,
                      .pieces = {},
                      .windows = {},
                      .limits = {low, high, beyond_missing}};
    const std::vector<double> kinds = copy(signs, "signs"), limits = copy(bounds, "bounds");
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        check(kinds[i] >= 0 && kinds[i] <= 4, "signs must be integers from 0 to 4");
        field.rules.push_back({static_cast<Rule::Sign>(static_cast<int>(kinds[i])), limits[i]});
    }
    field.pieces.knots = copy(knots, "knots");
    field.pieces.values = copy(values, "values");
    field.pieces.powers = powers;
    check_number(field);
    field.pieces.make_guide();
    add(self, std::move(field), plain);
}

// Add a window to the last field.
void add_window(EncoderOwner& self, std::int64_t segments, Numbers edges,
                nb::ndarray<const double, nb::ndim<3>, nb::c_contig, nb::device::cpu> coefficients, std::int64_t start,
                std::int64_t moves, std::int64_t around) {
    const std::size_t functions = coefficients.shape(1), powers = coefficients.shape(2);
    check(functions <= 1 << 20 && powers >= 1 && powers <= 1 << 10,
          "coefficients must be of shape (segments or 1, functions, degree + 1)");
    BasisWindow window{.segments = segments,
                       .edges = copy(edges, "edges"),
                       .coefficients = {},
                       .functions = static_cast<int>(functions),
                       .degree = static_cast<int>(powers) - 1,
                       .start = start,
                       .moves = moves,
                       .around = around};
    const double* const data = numbers(coefficients, "coefficients");
    window.coefficients.assign(data, data + coefficients.size());
    check_window(window);
    check(!self.finished, "an encoder that has encoded rows takes no more fields");
    check(self.encoder.add(std::move(window)), "a window belongs to a field of numbers");
}

// Whether these are strings is checked, and the arrays are kept.
Names make_names(EncoderOwner& self, In<std::int64_t> offsets, In<std::uint8_t> text, std::int64_t first,
                 std::int64_t unseen, std::int64_t missing) {
    const std::int64_t* const at = numbers(offsets, "offsets");
    check(offsets.size() >= 1 && offsets.size() <= MAX_NAMES, "offsets must be one more than there are names");
    const auto n = static_cast<std::int64_t>(offsets.size()) - 1;
    const char* const bytes = reinterpret_cast<const char*>(text.data());
    const Strings names{at, bytes, bytes + text.size(), n};
    check(names.are_inside(static_cast<std::int64_t>(text.size())),
          "offsets must not decrease, and lie between 0 and the length of text");
    self.offsets.push_back(offsets);
    self.texts.push_back(text);
    Names made{StringTable(names), n, first, unseen, missing};
    check_names(made);
    return made;
}

void add_names(EncoderOwner& self, In<std::int64_t> offsets, In<std::uint8_t> text, std::int64_t first,
               std::int64_t unseen, std::int64_t missing) {
    add(self, CategoryField{make_names(self, offsets, text, first, unseen, missing)});
}

void add_lists(EncoderOwner& self, In<std::int64_t> offsets, In<std::uint8_t> text, std::int64_t first,
               std::int64_t unseen, std::int64_t missing, std::int64_t length, bool averages, bool apart) {
    check_length(length);
    add(self, ListField{make_names(self, offsets, text, first, unseen, missing), length, averages, apart});
}

void add_given(EncoderOwner& self, std::int64_t length, bool apart, std::int64_t n_values) {
    check_length(length);
    check(n_values >= 1 && n_values <= 1 << 10, "values must be at least 1");
    add(self, GivenField{length, n_values, apart});
}

void add_offset(EncoderOwner& self, bool logarithm, double unit, double largest) {
    check(!self.finished && !self.encoder.has_offset(), "an encoder has one offset, before it encodes rows");
    check(unit > 0.0 && largest > 0.0, "unit and largest must be above 0");
    self.encoder.add(ScoreOffset{logarithm ? ScoreOffset::logarithm : ScoreOffset::plain, unit, largest});
    self.plain.resize(static_cast<std::size_t>(self.encoder.n_values()), true);
}

// The parts of a cross, from the fields of an encoder of their own.
std::vector<CrossPart> parts_of(const EncoderOwner& owner) {
    std::vector<CrossPart> parts;
    for (int f = 0; f < owner.encoder.n_fields(); ++f) {
        const RowField& field = owner.encoder.field(f);
        const NumberField* const number = std::get_if<NumberField>(&field);
        const CategoryField* const category = std::get_if<CategoryField>(&field);
        check(number || category, "parts must be fields of numbers and of one name");
        if (number)
            parts.push_back(*number);
        else
            parts.push_back(*category);
    }
    return parts;
}

void add_cross(EncoderOwner& self, std::int64_t first, const EncoderOwner& owner, In2<std::int64_t> sizes,
               In2<std::int32_t> cells, std::int64_t buckets, In<std::int64_t> multipliers, std::int64_t prime) {
    CrossField field{.first = first, .n_cells = 1, .parts = parts_of(owner), .sizes = {}, .cells = {}};
    const std::int64_t* const size = numbers(sizes, "sizes");
    field.sizes.assign(size, size + sizes.size());
    const auto n_names = static_cast<std::size_t>(static_cast<std::int64_t>(field.parts.size()) - field.n_numbers());
    check(buckets >= 0 && buckets <= MAX_FEATURES, "buckets must not be negative");
    if (n_names && buckets) {
        const std::int64_t* const m = numbers(multipliers, "multipliers");
        field.cells = Buckets{buckets, {m, m + multipliers.size()}, prime};
        field.n_cells = buckets;
    } else if (n_names) {
        const std::int32_t* const features = numbers(cells, "cells");
        check(cells.shape(1) == n_names && cells.shape(0) <= MAX_FEATURES, "cells must have a column for every name");
        field.cells = Cells({features, features + cells.size()}, static_cast<std::int64_t>(n_names));
        field.n_cells = static_cast<std::int64_t>(cells.shape(0));
    }
    check_cross(field, static_cast<std::int64_t>(sizes.shape(0)), static_cast<std::int64_t>(sizes.shape(1)));
    self.offsets.insert(self.offsets.end(), owner.offsets.begin(), owner.offsets.end());
    self.texts.insert(self.texts.end(), owner.texts.begin(), owner.texts.end());
    add(self, std::move(field));
    std::copy(owner.plain.begin(), owner.plain.end(),
              self.plain.end() - static_cast<std::ptrdiff_t>(owner.plain.size()));
}

Array<std::int32_t> cell_places(In2<std::int32_t> cells) {
    const std::int32_t* const features = numbers(cells, "cells");
    check(cells.shape(0) <= MAX_FEATURES, "cells must be fewer than 2^31");
    const Cells table({features, features + cells.size()}, std::max<std::int64_t>(1, cells.shape(1)));
    return give(std::vector(table.table().begin(), table.table().end()));
}

// The slots of the only field of an encoder, for arrays with a number per row.
FieldSlots slots_of(EncoderOwner& self, std::int64_t n, const In<std::int64_t>& widths,
                    const OutRows<std::int32_t>& start, const OutRows<float>& weight) {
    check(self.encoder.n_fields() == 1, "columns are encoded by an encoder of one field");
    self.finished = true;
    const std::int64_t* const width = numbers(widths, "widths");
    FieldSlots slots{.n = n,
                     .start = rows(start, n, static_cast<std::int64_t>(widths.size()), "start"),
                     .start_stride = start.stride(0),
                     .weight = nullptr,
                     .weight_stride = weight.stride(0),
                     .widths = {width, width + widths.size()}};
    std::int64_t total = 0;
    for (const std::int64_t each : slots.widths) {
        check(each >= 1 && each <= 1 << 20, "widths must be at least 1");
        total += each;
    }
    slots.weight = rows(weight, n, total, "weight");
    return slots;
}

std::int64_t total(const std::vector<std::int64_t>& widths) {
    return std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
}

std::int64_t encode_column(EncoderOwner& self, const In<double>& x, const In<std::int64_t>& widths,
                           const OutRows<std::int32_t>& start, const OutRows<float>& weight) {
    const FieldSlots slots = slots_of(self, static_cast<std::int64_t>(x.size()), widths, start, weight);
    const NumberField* const field = std::get_if<NumberField>(&self.encoder.field(0));
    check(field && !field->windows.empty() && total(slots.widths) == field->max_terms(),
          "widths do not match a field of numbers");
    const double* const values = numbers(x, "x");
    const nb::gil_scoped_release released;
    return encode_numbers(*field, values, slots);
}

std::int64_t encode_columns(EncoderOwner& self, const In<std::int32_t>& cells, const In2<double>& x,
                            const In<std::int64_t>& widths, const OutRows<std::int32_t>& start,
                            const OutRows<float>& weight) {
    const auto n = static_cast<std::int64_t>(cells.size());
    const FieldSlots slots = slots_of(self, n, widths, start, weight);
    const CrossField* const field = std::get_if<CrossField>(&self.encoder.field(0));
    check(field && total(slots.widths) == field->n_terms(), "widths do not match a cross");
    check(static_cast<std::int64_t>(x.shape(0)) == field->n_numbers() && (static_cast<std::int64_t>(x.shape(1)) == n),
          "x must have a row for every number, with a number per row of the table");
    const std::int32_t* const cell = numbers(cells, "cells");
    const double* const values = numbers(x, "x");
    std::vector<const double*> columns;
    for (std::int64_t p = 0; p < field->n_numbers(); ++p) columns.push_back(values + p * n);
    const nb::gil_scoped_release released;
    for (std::int64_t i = 0; i < n; ++i)
        if (cell[i] < -1 || cell[i] >= std::max<std::int64_t>(1, field->n_cells))
            throw std::invalid_argument("cells must be cells of the cross, or -1");
    return encode_products(*field, cell, columns.data(), slots);
}

using Encoded = std::tuple<Array<std::int32_t>, Array<float>, Array<std::int32_t>, Array<std::int32_t>>;

Encoded encode(EncoderOwner& self, nb::handle row, const Items& columns, const Items& readers) {
    const Source source{row, columns, readers};
    check_source(self, columns, readers);
    self.finished = true;
    Terms terms(self.encoder.max_terms());
    terms.keep_zeros = true;
    RowWorkspace workspace(self.encoder.n_fields());
    read_row(self, source, nullptr, MAX_FEATURES, workspace, terms);
    terms.features.resize(terms.n_terms);
    terms.weights.resize(terms.n_terms);
    terms.ends.resize(terms.n_units + 1);
    terms.unit_fields.resize(terms.n_units);
    return {give(std::move(terms.features)), give(std::move(terms.weights)), give(std::move(terms.ends)),
            give(std::move(terms.unit_fields))};
}

}  // namespace

void bind_row_encoder(nb::module_& module) {
    module.def("cell_places", &cell_places, nb::arg("cells").noconvert(),
               "The hash table of combinations of features: positions, or -1, for files that are used in place.");
    const auto offsets = nb::arg("offsets").noconvert(), text = nb::arg("text").noconvert();
    const auto knots = nb::arg("knots").noconvert(), values = nb::arg("values").noconvert();
    const auto signs = nb::arg("signs").noconvert(), bounds = nb::arg("bounds").noconvert();
    const auto sizes = nb::arg("sizes").noconvert(), cells = nb::arg("cells").noconvert();
    const auto edges = nb::arg("edges").noconvert(), coefficients = nb::arg("coefficients").noconvert();
    nb::class_<EncoderOwner>(
        module, "RowEncoder",
        "Raw values of one row -> features and weights. Fields are added in the order of the "
        "model. Rows are mappings; `columns` and `readers` have an item per field, or per part of a cross: where its "
        "value is, and a function that is asked about values and names that are not known here.")
        .def(nb::init<>())
        .def("add_number", &add_number, nb::kw_only(), nb::arg("first"), signs, bounds, nb::arg("missing"),
             nb::arg("apart"), nb::arg("plain"), knots, values, nb::arg("powers"), nb::arg("low"), nb::arg("high"),
             nb::arg("beyond_missing"),
             "A field of numbers; its reader returns a float. Signs of special values: 0 to 4 for ==, <, <=, >, >=.")
        .def("add_window", &add_window, nb::kw_only(), nb::arg("segments"), edges, coefficients, nb::arg("start"),
             nb::arg("moves"), nb::arg("around"), "A window of the basis of the field that was added last.")
        .def("add_names", &add_names, offsets, text, nb::arg("first"), nb::arg("unseen"), nb::arg("missing"),
             "A field of one name; its reader returns a feature, or -1. Rows may be -1 for none, -2 to ask.")
        .def("add_lists", &add_lists, offsets, text, nb::arg("first"), nb::arg("unseen"), nb::arg("missing"),
             nb::arg("length"), nb::arg("averages"), nb::arg("apart"),
             "A field of lists of names; its reader returns features and weights.")
        .def("add_given", &add_given, nb::arg("length"), nb::arg("apart"), nb::arg("values") = 1,
             "A field whose reader returns features and weights of every value; of several values, it is given a list.")
        .def("add_offset", &add_offset, nb::kw_only(), nb::arg("logarithm"), nb::arg("unit"), nb::arg("largest"),
             "A value that is added to the score, or whose logarithm is, in a unit of the scores; its reader returns a "
             "float. It is the last value of a row.")
        .def("add_cross", &add_cross, nb::kw_only(), nb::arg("first"), nb::arg("parts"), sizes, cells,
             nb::arg("buckets"), nb::arg("multipliers").noconvert(), nb::arg("prime"),
             "The products of the fields of an encoder: numbers, with a window for every row of `sizes`, which are the "
             "functions of each number, and names, whose combinations are rows of `cells` or hashed to `buckets`.")
        .def("encode_column", &encode_column, nb::arg("x").noconvert(), nb::arg("widths").noconvert(),
             nb::arg("start").noconvert(), nb::arg("weight").noconvert(),
             "Write the slots of a column of numbers, for an encoder of one field; returns the first row with a number "
             "that it does not take, or -1.")
        .def("encode_columns", &encode_columns, nb::arg("cells").noconvert(), nb::arg("x").noconvert(),
             nb::arg("widths").noconvert(), nb::arg("start").noconvert(), nb::arg("weight").noconvert(),
             "The same for an encoder of one cross: the cell of the names of every row, or -1, and the numbers.")
        .def("encode", &encode, nb::arg("row"), nb::arg("columns"), nb::arg("readers"),
             "Features and weights of terms; where the terms of units end, after a zero; fields of units.");
}

}  // namespace splinefm::bindings
