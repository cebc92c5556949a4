// A row of Python values, or of JSON -> terms. Floats, integers, strings and lists of them are read here; for anything
// else, and for names that fields do not know, a function of the field is asked: it may raise, and may take its time.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "bindings/arrays.hpp"
#include "scorer/json_rows.hpp"
#include "scorer/row_encoder.hpp"
#include "scorer/row_scorer.hpp"

namespace splinefm::bindings {

using Items = nb::typed<nb::tuple, nb::any, nb::ellipsis>;

// The encoder that Python sees: it owns the arrays of names, and takes no more fields once rows are encoded.
struct EncoderOwner {
    RowEncoder encoder;
    std::vector<bool> plain;  // by value: numbers stand for themselves
    std::vector<In<std::int64_t>> offsets;
    std::vector<In<std::uint8_t>> texts;
    bool finished = false;
};

// Where the values of a row are: a column for each value of the fields, and the functions that are asked.
struct Source {
    nb::handle row;
    const nb::tuple& columns;
    const nb::tuple& readers;
};

// Raises unless there are a column and a reader for every value.
void check_source(const EncoderOwner& owner, const nb::tuple& columns, const nb::tuple& readers);

// The rows of a body of JSON that Python sees, with all that they refer to.
struct JsonOwner {
    nb::bytes body;
    std::shared_ptr<const JsonColumns> columns;
    nb::object decode;  // JSON of a value -> the value
    JsonRows rows;

    nb::object object(const Cell& cell) const;
};

// Where the values of a row of JSON are: a column of the rows for each value of the fields.
struct JsonSource {
    const JsonOwner& owner;
    std::int64_t row;
    const std::vector<std::int64_t>& columns;
    const nb::tuple& readers;
};

// The other inputs of reading a row.
struct RowWorkspace {
    explicit RowWorkspace(int n_fields) : found(static_cast<std::size_t>(n_fields)) {}

    std::vector<std::int64_t> found;  // a number per field
    std::vector<nb::object> values;   // of the row that is read
};

// Write the terms of a row. Features that readers return must be below `n_features`;
// a scorer, if there is one, asks for the parameters of categories while numbers are read.
void read_row(const EncoderOwner& owner, const Source& source, const RowScorer* scorer, std::int64_t n_features,
              RowWorkspace& workspace, Terms& terms);
void read_row(const EncoderOwner& owner, const JsonSource& source, const RowScorer* scorer, std::int64_t n_features,
              RowWorkspace& workspace, Terms& terms);

}  // namespace splinefm::bindings
