// The best rows of a query so far, in no order, and from which score on a row joins them.
//
// All rows with the k-th best score are kept as well, as long as there is capacity: who comes first among equals is
// decided by the ids, which the loops do not know. `spilled` is the score of which some were left out.
#pragma once

#include <cstdint>

namespace splinefm {

struct Best {
    float* scores;  // (capacity)
    std::int64_t* rows;
    float* scratch;
    std::int64_t k, capacity;  // capacity is at least k + 2
    std::int64_t count;
    std::int64_t limit;  // from which count on the best are sorted out: soon, since that raises `least`
    float least;
    float spilled;  // NaN: none
};

// Nothing found yet, of k rows that are asked for.
Best nothing_found(float* scores, std::int64_t* rows, float* scratch, std::int64_t k, std::int64_t capacity);

// Keep the k best rows and all rows that are tied with the last of them. Call it where denormal numbers are zero.
void compact(Best& best) noexcept;

}  // namespace splinefm
