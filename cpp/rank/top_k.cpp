#include "rank/top_k.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

#include "denormals.hpp"
#include "dispatch.hpp"
#include "pool.hpp"
#include "rank/kernels.hpp"

namespace splinefm {
namespace {

void require(bool holds, const std::string& message) {
    if (!holds) throw std::invalid_argument(message);
}

const Searches<VectorItems>& searches(const VectorItems&) { return kernels().rank->vectors; }
const Searches<EffectItems>& searches(const EffectItems&) { return kernels().rank->effects; }

// The workspace of a thread, besides its results.
template <class Items> std::int64_t widest(const Items& items) { return std::min(items.size, items.n_rows); }
std::int64_t workspace(const VectorItems& items) { return (items.length + 2) * VECTOR_TILE; }
std::int64_t workspace(const EffectItems&) { return (TOGETHER + 1) * EFFECT_TILE; }

// The request of one query among several.
std::vector<float> request_of(const VectorItems& items, const float* requests, std::int64_t, std::int64_t, int q) {
    return {requests + q * items.length, requests + (q + 1) * items.length};
}
std::vector<float> request_of(const EffectItems&, const float* requests, std::int64_t rows, std::int64_t columns,
                              int q) {
    std::vector<float> column(rows);
    for (std::int64_t r = 0; r < rows; ++r) column[r] = requests[r * columns + q];
    return column;
}

// What a thread finds, for each of n queries.
struct Part {
    std::vector<float> scores, scratch, workspace;
    std::vector<std::int64_t> rows;
    std::vector<Best> best;

    Part(std::int64_t n, const Wish& wish, std::int64_t work)
        : scores(n * wish.capacity), scratch(wish.capacity), workspace(work), rows(n * wish.capacity) {
        for (std::int64_t q = 0; q < n; ++q)
            best.push_back(nothing_found(&scores[q * wish.capacity], &rows[q * wish.capacity], scratch.data(), wish.k,
                                         wish.capacity));
    }
};

// What the parts found for a query, from its k-th best score up, and whether rows with that score are missing.
bool merge(const std::vector<Part>& parts, int q, std::int64_t k, Found& found) {
    for (const Part& part : parts) {
        const Best& best = part.best[q];
        found.scores.insert(found.scores.end(), best.scores, best.scores + best.count);
        found.rows.insert(found.rows.end(), best.rows, best.rows + best.count);
    }
    if (static_cast<std::int64_t>(found.scores.size()) < k) return false;
    std::vector<float> sorted = found.scores;
    std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<float>());
    const float last = sorted[k - 1];
    std::size_t kept = 0;
    for (std::size_t i = 0; i < found.scores.size(); ++i) {
        if (found.scores[i] < last) continue;
        found.scores[kept] = found.scores[i];
        found.rows[kept++] = found.rows[i];
    }
    found.scores.resize(kept);
    found.rows.resize(kept);
    return std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return part.best[q].spilled == last; });
}

// A search, as one of the threads of a team: search(panels to visit, part).
template <class Search>
std::vector<Part> share(std::int64_t n, const Wish& wish, std::int64_t work, const Search& search) {
    const std::int64_t n_visit = wish.visit.size();
    const int n_parts = static_cast<int>(std::clamp<std::int64_t>(n_visit, 1, wish.threads));
    std::vector<Part> parts;
    for (int i = 0; i < n_parts; ++i) parts.emplace_back(n, wish, work);
    Team team(n_parts);
    team.run(n_parts, [&](int i) noexcept {
        const std::int64_t begin = n_visit * i / n_parts, end = n_visit * (i + 1) / n_parts;
        search(Visit{wish.visit.data() + begin, end - begin}, parts[i]);
    });
    return parts;
}

template <class Items> Found search_one(const Items& items, const float* request, float constant, const Wish& wish) {
    const Searches<Items>& loops = searches(items);
    Found found;
    const bool spilled =
        merge(share(1, wish, widest(items),
                    [&](Visit visit, Part& part) noexcept {
                        loops.one(items, visit, request, constant, wish.only, part.best[0], part.workspace.data());
                    }),
              0, wish.k, found);
    if (!spilled) return found;
    const float last = *std::min_element(found.scores.begin(), found.scores.end());
    std::vector<std::int64_t> tied(wish.visit.size() * widest(items));
    std::vector<float> scores(widest(items));
    std::int64_t n_tied = 0;
    const Visit visit{wish.visit.data(), static_cast<std::int64_t>(wish.visit.size())};
    Team(1).run(1, [&](int) noexcept {
        n_tied = loops.ties(items, visit, request, constant, wish.only, last, tied.data(), scores.data());
    });
    Found all;
    for (std::size_t i = 0; i < found.scores.size(); ++i) {
        if (!(found.scores[i] > last)) continue;
        all.scores.push_back(found.scores[i]);
        all.rows.push_back(found.rows[i]);
    }
    all.scores.insert(all.scores.end(), n_tied, last);
    all.rows.insert(all.rows.end(), tied.begin(), tied.begin() + n_tied);
    return all;
}

template <class Items> std::vector<Found> search_several(const Items& items, const float* requests, std::int64_t rows,
                                                         std::int64_t columns, const float* constants, std::int64_t n,
                                                         const Wish& wish) {
    const Searches<Items>& loops = searches(items);
    const std::vector<Part> parts = share(n, wish, workspace(items), [&](Visit visit, Part& part) noexcept {
        loops.several(items, visit, requests, constants, n, wish.only, part.best.data(), part.workspace.data());
    });
    std::vector<Found> every(n);
    for (int q = 0; q < n; ++q) {
        if (!merge(parts, q, wish.k, every[q])) continue;
        every[q] = search_one(items, request_of(items, requests, rows, columns, q).data(), constants[q], wish);
    }
    return every;
}

template <class Items> void check_panels(const Items& items) {
    require(items.size > 0 && items.size % STEP == 0, "a panel must have a multiple of 64 columns, and some");
    require(items.n_rows >= 0 && items.n_rows % STEP == 0 && items.n_rows <= items.n_panels * items.size,
            "n_rows must be a multiple of 64, and the panels must hold all rows");
}

void check_request(const VectorItems& items, std::int64_t rows, std::int64_t columns, std::int64_t n) {
    require(columns == items.length && rows == n, "requests must be of shape (queries, length)");
}

void check_request(const EffectItems& items, std::int64_t rows, std::int64_t columns, std::int64_t n) {
    require(columns == (n == 1 ? 1 : TOGETHER) && n <= columns, "effects must be of one query, or of 8 for up to 8");
    for (std::int64_t w = 0; w < items.n_windows; ++w) {
        const Window window = items.windows[w];
        require(window.first <= rows && window.width <= rows - window.first &&
                    window.last <= rows - window.first - window.width,
                "windows reach beyond the effects");
    }
}

void check_wish(const Wish& wish, std::int64_t n_rows, std::int64_t size) {
    require(wish.k >= 1 && wish.k <= n_rows, "k must be from 1 to the number of rows");
    require(wish.capacity >= wish.k + 2 && wish.capacity <= 2 * n_rows + wish.k + size,
            "capacity must be larger than k + 1");
    require(wish.threads >= 1, "threads must be at least 1");
    for (const std::int64_t panel : wish.visit)
        require(panel >= 0 && panel < (n_rows + size - 1) / size, "visit names a panel that does not exist");
}

}  // namespace

TopK::TopK(const VectorItems& items) : viewed(items) { check_panels(items); }

TopK::TopK(const EffectItems& items) : windows(items.windows, items.windows + items.n_windows) {
    // A copy: it cannot change after it is checked.
    EffectItems own = items;
    own.windows = windows.data();
    check_panels(own);
    for (const Window& window : windows) {
        require(window.first >= 0 && window.last >= 0 && window.last <= std::numeric_limits<std::int32_t>::max() &&
                    window.width >= 1 && window.line >= -1 &&
                    (window.line < 0 || (window.width <= own.n_weights && window.line <= own.n_weights - window.width)),
                "a window reaches beyond the weights");
    }
    viewed = own;
}

std::int64_t TopK::n_rows() const {
    return std::visit([](const auto& items) { return items.n_rows; }, viewed);
}

std::vector<Found> TopK::search(const float* requests, std::int64_t rows, std::int64_t columns, const float* constants,
                                std::int64_t n, const Wish& wish) const {
    return std::visit(
        [&](const auto& items) {
            check_wish(wish, items.n_rows, items.size);
            require(n >= 1, "there must be a query");
            check_request(items, rows, columns, n);
            if (n > 1) return search_several(items, requests, rows, columns, constants, n, wish);
            return std::vector<Found>{search_one(items, requests, constants[0], wish)};
        },
        viewed);
}

void row_effects(const VectorItems& rows, const float* queries, std::int64_t n, float* out) {
    check_panels(rows);
    require(rows.storage == Storage::float32, "features must be float32");
    std::vector<float> products(widest(rows));
    const FlushDenormals flushed;
    kernels().rank->row_effects(rows, queries, n, out, products.data());
}

}  // namespace splinefm
