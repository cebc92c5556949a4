// A row of values of the C interface -> terms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "c/plan.hpp"
#include "splinefm.h"

namespace splinefm::c {

// For `read_row`. Throws Problem for values that a column does not take.
class Reader {
public:
    // `row` has a value for every column; texts are made in the buffer.
    Reader(const Plan& plan, const sfm_value* row, std::string& buffer) : plan(plan), row(row), buffer(buffer) {}

    std::string_view text(int v) const {
        const sfm_value& given = value(v);
        if (given.kind != SFM_TEXT) return {};
        return {given.size ? given.of.text : "", static_cast<std::size_t>(given.size)};
    }
    double number(int v) const {
        const sfm_value& given = row[rule(v).column];
        return given.kind == SFM_NUMBER && rule(v).part == Part::none ? given.of.number : other_number(v);
    }
    std::int64_t category(int v, const Names& names, std::int64_t end) const;
    void list(int v, const ListField& field, Terms& terms) const;
    void given(int v, const GivenField& field, Terms& terms) const;
    [[noreturn]] void refuse(int v, double x) const;
    [[noreturn]] void refuse_offset(int v, double x) const;
    std::int64_t n_features() const { return plan.n_features; }

private:
    const sfm_value& value(int v) const {
        const sfm_value& given = row[rule(v).column];
        const bool points = given.kind == SFM_TEXT || given.kind == SFM_LIST;
        if (given.kind <= SFM_ABSENT || given.kind > SFM_LIST || (points && given.size && !given.of.text))
            refuse_value(v);
        return given;
    }
    [[noreturn]] void refuse_value(int v) const;
    double other_number(int v) const;
    const ValueRule& rule(int v) const { return plan.values[static_cast<std::size_t>(v)]; }
    // The feature of a name, in any spelling.
    std::int64_t find(int v, const Names& names, std::string_view name) const;
    std::int64_t find_unknown(int v, const Names& names, std::string_view name) const;
    std::int64_t find_number(int v, const Names& names, double x) const;
    std::int64_t missing(int v, const Names& names) const;
    bool add_element(int v, const ListField& field, const sfm_value& element, Terms& terms) const;
    std::int64_t add_parts(int v, const ListField& field, std::string_view text, Terms& terms) const;
    [[noreturn]] void wrong(int v, const std::string& why) const;

    const Plan& plan;
    const sfm_value* row;
    std::string& buffer;
};

}  // namespace splinefm::c
