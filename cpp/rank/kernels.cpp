#include "rank/kernels.hpp"

#include "rank/collect.hpp"
#include "rank/products.hpp"
#include "rank/sums.hpp"

namespace splinefm::SPLINEFM_ISA {
namespace {

inline std::int64_t least_of(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// A function on the lines of a panel, whatever their storage.
template <class Body> inline void with_lines(const VectorItems& items, std::int64_t panel, Body body) {
    const std::int64_t at = panel * items.length * items.size;
    switch (items.storage) {
    case Storage::float32: body(static_cast<const float*>(items.panels) + at); break;
    case Storage::float16: body(static_cast<const Half*>(items.panels) + at); break;
    case Storage::int8: body(static_cast<const std::int8_t*>(items.panels) + at); break;
    }
}

inline void score(const VectorItems& items, std::int64_t panel, std::int64_t width, const float* query, float constant,
                  float* out) {
    with_lines(items, panel, [&](auto* lines) { multiply(lines, items.length, items.size, width, query, out); });
    finish(out, width, items.scales, items.offsets, constant, panel * items.size);
}

inline void score(const EffectItems& items, std::int64_t panel, std::int64_t width, const float* effects,
                  float constant, float* out) {
    sum(items, panel, width, effects, out);
    finish(out, width, nullptr, items.offsets, constant, panel * items.size);
}

template <class Items> void search_one(const Items& items, Visit visit, const float* request, float constant,
                                       const Filter& only, Best& best, float* scores) noexcept {
    for (std::int64_t v = 0; v < visit.n; ++v) {
        const std::int64_t panel = visit.panels[v], first = panel * items.size;
        const std::int64_t width = least_of(items.size, items.n_rows - first);
        score(items, panel, width, request, constant, scores);
        collect(scores, width, first, only, best);
    }
}

template <class Items> std::int64_t find_ties(const Items& items, Visit visit, const float* request, float constant,
                                              const Filter& only, float wanted, std::int64_t* out,
                                              float* scores) noexcept {
    std::int64_t count = 0;
    for (std::int64_t v = 0; v < visit.n; ++v) {
        const std::int64_t panel = visit.panels[v], first = panel * items.size;
        const std::int64_t width = least_of(items.size, items.n_rows - first);
        score(items, panel, width, request, constant, scores);
        for (std::int64_t i = 0; i < width; ++i)
            if (scores[i] == wanted && passes(only, first + i)) out[count++] = first + i;
    }
    return count;
}

// body(panel, begin, width) for pieces of panels.
template <class Items, class Body>
inline void each_tile(const Items& items, Visit visit, std::int64_t tile, Body body) {
    for (std::int64_t v = 0; v < visit.n; ++v) {
        const std::int64_t panel = visit.panels[v], end = least_of(items.size, items.n_rows - panel * items.size);
        for (std::int64_t begin = 0; begin < end; begin += tile) body(panel, begin, least_of(tile, end - begin));
    }
}

void search_vectors(const VectorItems& items, Visit visit, const float* queries, const float* constants, std::int64_t n,
                    const Filter& only, Best* best, float* workspace) noexcept {
    const std::int64_t length = items.length;
    float *one = workspace, *two = one + VECTOR_TILE, *tile = two + VECTOR_TILE;
    each_tile(items, visit, VECTOR_TILE, [&](std::int64_t panel, std::int64_t begin, std::int64_t width) {
        const std::int64_t first = panel * items.size + begin;
        const auto end = [&](float* products, std::int64_t q) {
            finish(products, width, items.scales, items.offsets, constants[q], first);
            collect(products, width, first, only, best[q]);
        };
        with_lines(items, panel, [&](auto* lines) { unpack(lines + begin, length, items.size, width, tile); });
        std::int64_t q = 0;
        for (; q + 2 <= n; q += 2) {
            multiply_two(tile, length, width, queries + q * length, queries + (q + 1) * length, one, two);
            end(one, q);
            end(two, q + 1);
        }
        if (q < n) {
            multiply(tile, length, width, width, queries + q * length, one);
            end(one, q);
        }
    });
}

void search_effects(const EffectItems& items, Visit visit, const float* effects, const float* constants, std::int64_t n,
                    const Filter& only, Best* best, float* workspace) noexcept {
    float *scores = workspace, *tile = scores + EFFECT_TILE;
    each_tile(items, visit, EFFECT_TILE, [&](std::int64_t panel, std::int64_t begin, std::int64_t width) {
        const std::int64_t first = panel * items.size + begin;
        sum_together(items, panel, begin, width, effects, tile);
        for (std::int64_t q = 0; q < n; ++q) {
            for (std::int64_t i = 0; i < width; ++i) scores[i] = tile[i * TOGETHER + q];
            finish(scores, width, nullptr, items.offsets, constants[q], first);
            collect(scores, width, first, only, best[q]);
        }
    });
}

void row_effects(const VectorItems& rows, const float* queries, std::int64_t n, float* out, float* products) noexcept {
    for (std::int64_t first = 0; first < rows.n_rows; first += rows.size) {
        const std::int64_t width = least_of(rows.size, rows.n_rows - first);
        const float* lines = static_cast<const float*>(rows.panels) + first * rows.length;
        for (std::int64_t q = 0; q < n; ++q) {
            multiply(lines, rows.length, rows.size, width, queries + q * rows.length, products);
            for (std::int64_t i = 0; i < width; ++i) out[(first + i) * n + q] = products[i];
        }
    }
}

}  // namespace

extern const RankKernels rank_kernels;
const RankKernels rank_kernels{
    .vectors = {search_one<VectorItems>, search_vectors, find_ties<VectorItems>},
    .effects = {search_one<EffectItems>, search_effects, find_ties<EffectItems>},
    .row_effects = row_effects,
};

}  // namespace splinefm::SPLINEFM_ISA
