// RowEncoder: the raw values of one row -> terms. The counterpart of the table encoder for one row at a time.
//
// The caller goes through the fields and asks each for its terms: `NumberField` for numbers, `Names` for names. If the
// answer is ASK, the text of a value is not enough (other spellings, hashes, an error), and the caller finds the
// features. Nothing is allocated while a row is encoded.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "encode/string_table.hpp"
#include "scorer/number_field.hpp"
#include "scorer/terms.hpp"

namespace splinefm {

// Codes in place of a feature: none, which is the zero vector; and that the caller must find it.
inline constexpr std::int64_t NO_FEATURE = -1, ASK = -2;

// Names that have features, from `first` on.
struct Names {
    StringTable table;
    std::int64_t size, first, unseen;  // the feature of unseen names, NO_FEATURE or ASK
    std::int64_t missing;              // the feature of missing values, or ASK

    // The feature of a name.
    std::int64_t find(std::string_view name) const;
};

// One name.
struct CategoryField {
    Names names;
};

// A list of names, at most `length` of them; their weights are 1, or sum to 1 in an average.
struct ListField {
    Names names;
    std::int64_t length;
    bool averages, apart;
};

// Features and weights that are given.
struct GivenField {
    std::int64_t length;
    bool apart;
};

using RowField = std::variant<NumberField, CategoryField, ListField, GivenField>;

class RowEncoder {
public:
    void add(RowField field);
    // Add a window to the last field; false if that is not numerical.
    bool add(Window window);

    int n_fields() const { return static_cast<int>(fields.size()); }
    const RowField& field(int f) const { return fields[f]; }
    // Fields of one name each, whose features are looked up first.
    const std::vector<int>& categories() const { return category_fields; }
    std::int64_t most_terms() const { return n_terms; }
    // One past the last feature of the fields.
    std::int64_t end_feature() const { return n_features; }

private:
    std::vector<RowField> fields;
    std::vector<int> category_fields;
    std::int64_t n_terms = 0, n_features = 0;
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
