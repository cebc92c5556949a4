// RowEncoder: the raw values of one row -> terms. The counterpart of the table encoder for one row at a time.
//
// The caller goes through the fields and asks each for its terms: `NumberField` for numbers, `Names` for names,
// `CrossField` for both. If the answer is ASK, the text of a value is not enough (other spellings, hashes, an error),
// and the caller finds the features. Nothing is allocated while a row is encoded.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "scorer/cross_field.hpp"
#include "scorer/names.hpp"
#include "scorer/number_field.hpp"
#include "scorer/score_offset.hpp"
#include "scorer/terms.hpp"

namespace splinefm {

// A list of names, at most `length` of them; their weights are 1, or sum to 1 in an average.
struct ListField {
    Names names;
    std::int64_t length;
    bool averages, apart;
};

// Features and weights that are given; they may depend on several values.
struct GivenField {
    std::int64_t length, n_values;
    bool apart;
};

using RowField = std::variant<NumberField, CategoryField, ListField, GivenField, CrossField>;

class RowEncoder {
public:
    void add(RowField field);
    // Add a window to the last field; false if that is not numerical.
    bool add(BasisWindow window);
    // An offset, whose value follows those of all fields: nothing is added after it.
    void add(ScoreOffset offset) { score_offset = offset; }

    int n_fields() const { return static_cast<int>(fields.size()); }
    const RowField& field(int f) const { return fields[f]; }
    // The values of a row that field f is made of: all of them are numbered through, most fields have one.
    int first_value(int f) const { return value_ptr[f]; }
    int n_values() const { return value_ptr.back() + (has_offset() ? 1 : 0); }
    bool has_offset() const { return score_offset.kind != ScoreOffset::none; }
    const ScoreOffset& offset() const { return score_offset; }
    int offset_value() const { return value_ptr.back(); }
    // Fields of one name each and crosses, whose features are looked up first.
    const std::vector<int>& categories() const { return category_fields; }
    std::int64_t max_terms() const { return n_terms; }
    // One past the last feature of the fields.
    std::int64_t end_feature() const { return n_features; }

private:
    std::vector<RowField> fields;
    std::vector<int> category_fields, value_ptr = {0};
    std::int64_t n_terms = 0, n_features = 0;
    ScoreOffset score_offset;
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
