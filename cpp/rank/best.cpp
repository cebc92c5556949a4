#include "rank/best.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace splinefm {
namespace {

constexpr std::int64_t MORE = 128;  // rows beyond k that are worth sorting out, at least
constexpr float INFINITE = std::numeric_limits<float>::infinity();

}  // namespace

Best nothing_found(float* scores, std::int64_t* rows, float* scratch, std::int64_t k, std::int64_t capacity) {
    return {.scores = scores,
            .rows = rows,
            .scratch = scratch,
            .k = k,
            .capacity = capacity,
            .count = 0,
            .limit = std::min(capacity, k + std::max(k, MORE)),
            .least = std::numeric_limits<float>::lowest(),
            .spilled = std::numeric_limits<float>::quiet_NaN()};
}

void compact(Best& best) noexcept {
    float* scores = best.scores;
    const std::int64_t count = best.count, k = best.k;
    std::copy(scores, scores + count, best.scratch);
    std::nth_element(best.scratch, best.scratch + (count - k), best.scratch + count);
    const float kth = best.scratch[count - k];
    std::int64_t above = 0, equal = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        above += scores[i] > kth;
        equal += scores[i] == kth;
    }
    // Half of the capacity must be free afterwards, or the next row would bring the next compaction.
    if (above + equal > k + (best.capacity - k) / 2) {
        equal = k - above;
        best.spilled = kth;
    }
    best.least = kth;
    // Above zero comes the least number that is not denormal, because smaller ones count as zero here.
    if (best.spilled == kth)
        best.least = kth == 0.0f ? std::numeric_limits<float>::min() : std::nextafter(kth, INFINITE);
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const bool tied = scores[i] == kth;
        if (!(scores[i] > kth) && !(tied && equal > 0)) continue;
        equal -= tied;
        scores[kept] = scores[i];
        best.rows[kept] = best.rows[i];
        ++kept;
    }
    best.count = kept;
    best.limit = std::min(best.capacity, kept + std::max(k, MORE));
}

}  // namespace splinefm
