// A catalog of items, prepared for contexts: score = constant(context) + offset(item) + query(context) · vector(item).
//
// With s_f the sum of the unit vectors of field f, an item's vector is made of s_f of its fields, and a query of what
// they meet: Σ_e s_e for an FM, Σ_e R_fe s_e for an FwFM, Σ_e M_fe s_e for an FmFM, and s_e[f] for an FFM. Numbers
// that meet in triples add e_1(item) e_2(context) + e_2(item) e_1(context), with e_a the sums of products of a units.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer.hpp"
#include "c/plan.hpp"
#include "c/search.hpp"
#include "rank/items.hpp"

namespace splinefm::c {

class Items {
public:
    // `of_item` tells for every column whether items have it. Throws Problem for models whose items have no vector.
    Items(const Plan& plan, const std::vector<char>& of_item, std::int64_t n);

    // Terms of the fields of an item, and its score without the context.
    void set(std::int64_t item, const Terms& terms, double score, Search& work);

    std::int64_t size() const { return n; }
    bool is_of_item(std::size_t field) const { return of_items[field]; }

    // Scores of all items for a context, given the terms of its fields and its score without an item.
    void score(const Terms& context, double constant, Search& work, float* out) const;
    // The k best, or all if there are fewer: best first, and of equal ones those with a lower number. How many.
    std::int64_t top_k(const Terms& context, double constant, std::int64_t k, Search& work, std::int64_t* found,
                       float* scores) const;

private:
    void sum_fields(const Terms& terms, Search& work) const;
    void make_query(const Terms& context, Search& work) const;
    VectorItems view() const;

    const RowParams& params;
    std::vector<char> of_items;                // by field
    std::vector<std::int64_t> fields, others;  // of items, and of contexts
    std::int64_t n, length, panel, third = 0;
    Buffer<float> vectors, offsets;
};

}  // namespace splinefm::c
