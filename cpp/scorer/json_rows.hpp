// Rows in a body of JSON -> cells, without an object for each value.
//
// Taken are {"rows": [{"x": 1.5, "c": "a"}, ..]} and {"columns": {"x": [1.5, ..], "c": ["a", ..]}} where every row has
// exactly the known columns, in any order, and values are null, booleans, numbers, strings, and lists of them.
// Everything else, errors among it, is left to a decoder that knows all of JSON, and what to tell about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scorer/cell.hpp"

namespace splinefm {

class JsonRows {
public:
    std::int64_t n_rows() const { return n; }
    // Texts lie in the body, or if they have escapes here. Other values, which are long integers and lists, are JSON.
    const Cell& at(std::int64_t row, std::int64_t column) const {
        return cells[static_cast<std::size_t>(first[static_cast<std::size_t>(column)] + row * stride)];
    }

private:
    friend class JsonParser;

    std::int64_t n = 0, stride = 0;
    std::vector<std::int64_t> first;  // cell of each column in the first row
    std::vector<Cell> cells;
    std::unique_ptr<char[]> texts;
};

// The columns of rows; names are different.
class JsonColumns {
public:
    explicit JsonColumns(std::vector<std::string> names);
    JsonColumns(const JsonColumns&) = delete;
    JsonColumns& operator=(const JsonColumns&) = delete;

    std::int64_t size() const { return static_cast<std::int64_t>(names.size()); }
    const std::string& name(std::int64_t column) const { return names[static_cast<std::size_t>(column)]; }
    // The number of a column, or -1.
    std::int64_t find(std::string_view name) const;

    // The rows of a body, which must live as long as they do; none if they are not as above, or more than `most`.
    std::optional<JsonRows> read(std::string_view body, std::int64_t most) const;

private:
    std::vector<std::string> names;
    std::vector<std::int64_t> offsets;
    std::string text;
    std::optional<StringTable> table;
};

}  // namespace splinefm
