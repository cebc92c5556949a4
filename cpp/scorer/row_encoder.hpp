// RowEncoder: the raw values of one row -> terms. It is what the encoder of tables is, for a row at a time.
//
// Whoever has the values goes through the fields and asks each for its terms: numbers of `NumberField`, rows of names
// of `Names`. Where the answer is ASK, more must be known about a value than that it is this text (other spellings,
// hashes, an error), and features are given instead. Nothing is allocated while a row is encoded.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "encode/string_table.hpp"
#include "scorer/number_field.hpp"
#include "scorer/terms.hpp"

namespace splinefm {

// Instead of a feature: none, which is the zero vector; and that whoever has the value must say.
inline constexpr std::int64_t NO_ROW = -1, ASK = -2;

// Names that have features, the first of them row `first`.
struct Names {
    StringTable table;
    std::int64_t size, first, unseen;  // the row of unseen names, NO_ROW or ASK
    std::int64_t missing;              // the row of missing values, or ASK

    // The row of a name.
    std::int64_t find(std::string_view name) const;
};

// One name.
struct CategoryField {
    Names names;
};

// A list of names, of which so many count; their weights are 1, or share 1 in an average.
struct ListField {
    Names names;
    std::int64_t length;
    bool averages, apart;
};

// Table rows and weights that are given.
struct GivenField {
    std::int64_t length;
    bool apart;
};

using RowField = std::variant<NumberField, CategoryField, ListField, GivenField>;

class RowEncoder {
public:
    void add(RowField field);
    // A window more of the field that was added last; false if that has no numbers.
    bool add(Window window);

    int n_fields() const { return static_cast<int>(fields.size()); }
    const RowField& field(int f) const { return fields[f]; }
    // Fields of one name each, whose rows are found first.
    const std::vector<int>& categories() const { return category_fields; }
    std::int64_t most_terms() const { return n_terms; }
    // Beyond the last feature that the fields have by themselves.
    std::int64_t end_row() const { return n_rows; }

private:
    std::vector<RowField> fields;
    std::vector<int> category_fields;
    std::int64_t n_terms = 0, n_rows = 0;
};

// The decimal digits of a number.
class Digits {
public:
    explicit Digits(std::int64_t number);
    std::string_view text() const { return {buffer, size}; }

private:
    char buffer[20];
    std::size_t size;
};

}  // namespace splinefm
