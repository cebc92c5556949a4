// TopK: the best k items of a catalog for some queries, in one pass over it.
//
// Threads look at consecutive parts of the panels, and what they find is put together. For each query all rows from the
// k-th best score up are told, hence the same whatever the number of threads.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "rank/items.hpp"

namespace splinefm {

struct Found {
    std::vector<float> scores;
    std::vector<std::int64_t> rows;
};

// What is asked for. `capacity`: rows that are kept at a time for a query, more than k + 1.
struct Wish {
    std::int64_t k, capacity;
    std::vector<std::int64_t> visit;
    Filter only;
    int threads;
};

class TopK {
public:
    using Items = std::variant<VectorItems, EffectItems>;

    // Throws std::invalid_argument where sizes do not go with each other.
    explicit TopK(const VectorItems& items);
    explicit TopK(const EffectItems& items);
    TopK(const TopK&) = delete;
    TopK& operator=(const TopK&) = delete;

    const Items& items() const { return viewed; }
    std::int64_t n_rows() const;

    // Requests of shape (rows, columns), see Searches, and a constant for each of n queries. Throws
    // std::invalid_argument for a request or wish that does not go with the items.
    std::vector<Found> search(const float* requests, std::int64_t rows, std::int64_t columns, const float* constants,
                              std::int64_t n, const Wish& wish) const;

private:
    Items viewed;
    std::vector<Window> windows;
};

// out[row, q] = queries[q] · the numbers of the row, for rows in panels of float32; the effects that TopK looks up.
void row_effects(const VectorItems& rows, const float* queries, std::int64_t n, float* out);

}  // namespace splinefm
