// Products become scores, and scores the best rows: both as soon as a panel has them, while they are in the cache.
#pragma once

#include <cstdint>

#include "rank/best.hpp"
#include "rank/items.hpp"
#include "vec.hpp"

namespace splinefm::SPLINEFM_ISA {

// Products with rows from `first` on become scores: product · scale + (offset + constant).
inline void finish(float* products, std::int64_t width, const float* scales, const float* offsets, float constant,
                   std::int64_t first) noexcept {
    constexpr int K = LANES;
    const Vec<K> same = fill<K>(constant);
    for (std::int64_t i = 0; i < width; i += K) {
        const Vec<K> own = load<K>(offsets + first + i) + same, product = load<K>(products + i);
        store(products + i, scales ? product * load<K>(scales + first + i) + own : product + own);
    }
}

inline bool any_from(const float* scores, float least) {
    int hits = 0;
    for (int i = 0; i < STEP; ++i) hits |= scores[i] >= least;
    return hits;
}

inline bool passes(const Filter& only, std::int64_t row) {
    if (only.keep && !only.keep[row]) return false;
    if (!only.wanted) return true;
    if (row >= only.n_codes) return false;
    const std::int32_t code = only.codes[row];
    return code >= 0 && code < only.n_wanted && only.wanted[code];
}

// Add the rows from first .. first + width - 1 that may be among the best.
inline void collect(const float* scores, std::int64_t width, std::int64_t first, const Filter& only,
                    Best& best) noexcept {
    float least = best.least;
    for (std::int64_t at = 0; at < width; at += STEP) {
        if (!any_from(scores + at, least)) continue;
        for (std::int64_t i = at; i < at + STEP; ++i) {
            if (!(scores[i] >= least) || !passes(only, first + i)) continue;
            if (best.count == best.limit) {
                compact(best);
                least = best.least;
                if (scores[i] < least) continue;
            }
            best.scores[best.count] = scores[i];
            best.rows[best.count] = first + i;
            ++best.count;
        }
    }
}

}  // namespace splinefm::SPLINEFM_ISA
