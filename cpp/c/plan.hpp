// What a scorer file says: fields that encode rows, the rules for values that names alone do not decide, parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c/image.hpp"
#include "scorer/row_encoder.hpp"
#include "scorer/row_scorer.hpp"
#include "scorer/spelling.hpp"

namespace splinefm::c {

// Of dates: which part a number of seconds stands for, in the order of PARTS in splinefm.encode.tables.dates.
enum class Part { none, trend, hour, weekday, yearday };

// What a category becomes that is not in the vocabulary.
enum class Unseen { rare, neutral, error, hash };

// How one value of a field, or of a part of a cross, is read.
struct ValueRule {
    std::int64_t column;
    bool is_number;
    Part part = Part::none;
    Spelled spelled = Spelled::text;
    Unseen unseen = Unseen::neutral;
    std::int64_t first_unseen = 0, buckets = 1;
    bool missing = true;  // whether missing values are taken
    bool has_separator = false;
    std::string separator{};
    Limits limits{};  // of a number
};

struct FieldInfo {
    std::string name;
    int kind;
    std::vector<std::int64_t> columns;
};

// Everything that a scorer knows; views of the image, which must outlive it.
struct Plan {
    explicit Plan(const Image& image);

    std::string model, link, written_by;
    std::vector<std::string> columns, classes;
    std::vector<FieldInfo> fields;
    RowEncoder encoder;
    std::vector<ValueRule> values;  // by number of the value, see RowEncoder
    std::vector<RowScorer> outputs;
    std::int64_t n_features = 0;
};

}  // namespace splinefm::c
