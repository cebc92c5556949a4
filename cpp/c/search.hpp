// The best items for one context, for a catalog and for the index of a file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "denormals.hpp"
#include "dispatch.hpp"
#include "rank/best.hpp"
#include "rank/context.hpp"
#include "rank/items.hpp"
#include "rank/kernels.hpp"

namespace splinefm::c {

// Columns of a panel, at most.
inline constexpr std::int64_t WIDEST = 4096;

// The memory of a search; it grows to what the largest one needs.
struct Search {
    std::vector<float> sums, unit, query, products, scores, scratch, effects;
    std::vector<std::int64_t> rows, order, visited, found, tied;
    std::vector<std::uint8_t> keep, wanted;
    ContextSide::Workspace context;
};

template <class T> T* room(std::vector<T>& memory, std::int64_t size) {
    if (static_cast<std::int64_t>(memory.size()) < size) memory.resize(static_cast<std::size_t>(size));
    return memory.data();
}

inline std::int64_t up_to(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

// All of n panels, at work.visited.
inline Visit visit_all(std::int64_t n, Search& work) {
    std::int64_t* const panels = room(work.visited, n);
    std::iota(panels, panels + n, 0);
    return {panels, n};
}

inline const Searches<VectorItems>& searches(const VectorItems&) { return kernels().rank->vectors; }
inline const Searches<EffectItems>& searches(const EffectItems&) { return kernels().rank->effects; }

// The best k of those found, in order, at work.order; how many.
inline std::int64_t put_in_order(const Best& best, std::int64_t k, Search& work) {
    const std::int64_t n = std::min(k, best.count);
    std::int64_t* const order = room(work.order, best.count);
    std::iota(order, order + best.count, 0);
    std::partial_sort(order, order + n, order + best.count, [&](std::int64_t a, std::int64_t b) {
        return best.scores[a] != best.scores[b] ? best.scores[a] > best.scores[b] : best.rows[a] < best.rows[b];
    });
    return n;
}

// The best k rows, 1 or more, and their scores, given what items are compared with: best first, and of equal ones those
// with a lower number. How many.
template <class Items> std::int64_t search(const Items& items, Visit visit, const float* request, float constant,
                                           const Filter& only, std::int64_t k, Search& work, std::int64_t* rows,
                                           float* scores) {
    constexpr std::int64_t TIES = 2048;
    const Searches<Items>& loops = searches(items);
    const std::int64_t capacity = k + std::min(items.n_rows, std::max(k, TIES)) + 2;
    float* const products = room(work.products, items.size);
    Best best = nothing_found(room(work.scores, capacity), room(work.rows, capacity), room(work.scratch, capacity), k,
                              capacity);
    const FlushDenormals flushed;
    loops.one(items, visit, request, constant, only, best, products);
    const std::int64_t n = put_in_order(best, k, work);
    for (std::int64_t i = 0; i < n; ++i) {
        rows[i] = best.rows[work.order[static_cast<std::size_t>(i)]];
        scores[i] = best.scores[work.order[static_cast<std::size_t>(i)]];
    }
    if (n < k || best.spilled != scores[n - 1]) return n;
    // Some items tied with the last were left out: those with the lowest numbers come first.
    const float last = scores[n - 1];
    std::int64_t* const tied = room(work.tied, items.n_rows);
    loops.ties(items, visit, request, constant, only, last, tied, products);
    const std::int64_t above = std::find(scores, scores + n, last) - scores;
    std::copy(tied, tied + (n - above), rows + above);
    return n;
}

}  // namespace splinefm::c
