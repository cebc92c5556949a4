// The loops of a search that every instruction set has its own version of.
#pragma once

#include <cstdint>

#include "rank/best.hpp"
#include "rank/items.hpp"

namespace splinefm {

// Columns of a panel that several queries share.
inline constexpr std::int64_t VECTOR_TILE = 1024;
inline constexpr std::int64_t EFFECT_TILE = 512;  // as many as fit into the first cache

// Over items of one form. A request is what items are compared with: queries one after the other, (n, length), or the
// effects of all features, (rows, 1) for one query and (rows, TOGETHER) for several.
template <class Items> struct Searches {
    void (*one)(const Items& items, Visit visit, const float* request, float constant, const Filter& only, Best& best,
                float* workspace) noexcept;
    // For n queries, at most TOGETHER of effects.
    void (*several)(const Items& items, Visit visit, const float* requests, const float* constants, std::int64_t n,
                    const Filter& only, Best* best, float* workspace) noexcept;
    // Writes all rows of one score to `out`, and returns their number.
    std::int64_t (*ties)(const Items& items, Visit visit, const float* request, float constant, const Filter& only,
                         float score, std::int64_t* out, float* workspace) noexcept;
};

struct RankKernels {
    Searches<VectorItems> vectors;
    Searches<EffectItems> effects;

    // out[row, q] = queries[q] · the numbers of the row, for rows in panels of float32; workspace as for `one`.
    void (*row_effects)(const VectorItems& rows, const float* queries, std::int64_t n, float* out,
                        float* workspace) noexcept;
};

}  // namespace splinefm
