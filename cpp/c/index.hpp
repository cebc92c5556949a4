// The index of a scorer file: items with ids, in the order of their ids, and how contexts meet them.
//
// `splinefm.rank.file` writes its sections. Searches compute what `ItemIndex.top_k` computes, by the same loops.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "c/image.hpp"
#include "c/plan.hpp"
#include "c/search.hpp"
#include "rank/context.hpp"
#include "rank/top_k.hpp"
#include "splinefm.h"

namespace splinefm::c {

class Index {
public:
    // Throws Problem where the sections do not go with each other or with the model.
    Index(const Image& image, const Plan& plan);

    static bool is_in(const Image& image) { return !image.section(Section::index).empty(); }

    std::int64_t size() const { return n; }
    sfm_value id(std::int64_t item) const;
    // The number of an item, or -1. Throws Problem for a value that is no id.
    std::int64_t find(const sfm_value& id) const;
    const std::vector<std::string>& groups() const { return group_names; }
    bool is_of_item(std::size_t field) const { return of_items[field]; }
    bool is_item_column(std::size_t column) const { return item_columns[column]; }

    // The k best items for a context, given the terms of its fields: best first, and of equal ones those with a lower
    // id. How many.
    std::int64_t top_k(const Terms& context, std::int64_t k, const sfm_filter* filter, Search& work, sfm_value* ids,
                       float* scores) const;

private:
    // Features of a field of the items, whose effects are computed for each context.
    struct Table {
        VectorItems rows;
        LinearMap queries;
        std::int64_t first;  // effect
    };

    void read_fields(Cursor& cursor, const Plan& plan);
    void read_ids(Cursor& cursor, const Image& image);
    void read_groups(Cursor& cursor, const Image& image);
    void read_vectors(Cursor& cursor, const Image& image);
    void read_effects(Cursor& cursor, const Image& image, const RowParams& params);
    void check_offsets() const;
    std::int64_t n_panels() const { return (n + panel - 1) / panel; }

    splinefm::Filter select(const sfm_filter& filter, Search& work, Visit& visit) const;
    const float* make_request(const Terms& context, Search& work, float* constant) const;

    std::int64_t n = 0, panel = 0, id_words = 1;
    bool has_text_ids = false, has_groups = false;
    std::vector<char> of_items, item_columns;
    std::span<const std::uint64_t> ids;
    std::span<const std::int32_t> codes;
    std::span<const float> offsets;
    std::vector<std::string> group_names;
    std::optional<ContextSide> side;
    std::vector<Table> tables;
    std::int64_t n_effects = 0;
    std::optional<TopK> items;
};

}  // namespace splinefm::c
