// The side of a context: score = constant(context) + offset(item) + query(context) · vector(item).
//
// All sums are of float64 and in one order, and the results are rounded to float32: Python and the C library, which
// both ask here, get the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "rank/linear_map.hpp"
#include "scorer/row_scorer.hpp"
#include "scorer/terms.hpp"

namespace splinefm {

class ContextSide {
public:
    // The memory of a call; it grows to what the largest one needs.
    struct Workspace {
        std::vector<double> units, sums, scratch, out;
    };

    // `of_context` tells for each field whether a context has it. What `map` takes: Σ_u p_u of each of these fields,
    // then the sums of products of 1, 2, .. `products` units, `width` numbers each. What it makes is the query. Throws
    // std::invalid_argument where these do not go together.
    ContextSide(const RowParams& params, const std::vector<char>& of_context, std::int64_t products,
                std::span<const MapBlock> blocks, std::span<const double> weights, std::int64_t length);

    std::int64_t length() const { return map.n_out(); }

    // Terms of the fields of a context -> its query, and what it adds to the scores of all items. False if a number is
    // not finite.
    bool operator()(const Terms& terms, Workspace& work, float* query, float* constant) const;

private:
    void sum_units(const Terms& terms, Workspace& work) const;
    void sum_fields(const Terms& terms, Workspace& work) const;
    bool compute(const Terms& terms, Workspace& work, float* query, float* constant) const;

    RowParams params;
    std::vector<std::int64_t> places;  // of a field among the fields of the context
    std::int64_t n_own, products;
    LinearMap map;
};

// The queries of the features of items from the query of a context; the memory is `scratch` and `out`.
void map_query(const LinearMap& map, const float* query, std::int64_t length, ContextSide::Workspace& work, float* out);

}  // namespace splinefm
