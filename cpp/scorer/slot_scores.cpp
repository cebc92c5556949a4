#include "scorer/slot_scores.hpp"

#include <algorithm>
#include <atomic>

#include "pool.hpp"
#include "scorer/slot_terms.hpp"

namespace splinefm {
namespace {

constexpr std::int64_t ROWS_PER_THREAD = 256, AHEAD = 4;  // rows ahead whose parameters are prefetched

}  // namespace

bool score_slots(const std::vector<RowScorer>& outputs, const Shape& shape, const Slots& slots, int threads,
                 float* scores) {
    const std::int64_t n = slots.n;
    if (n == 0) return true;
    const auto parts = static_cast<int>(std::clamp<std::int64_t>(n / ROWS_PER_THREAD, 1, threads));
    struct Workspace {
        Terms terms;
        std::vector<float> vectors;
    };
    const auto size = static_cast<std::size_t>(outputs.front().workspace_size(shape.n_weights));
    std::vector<Workspace> workspaces;
    for (int part = 0; part < parts; ++part)
        workspaces.push_back(
            {Terms(shape.n_weights + 1), std::vector<float>(size)});  // a weight of zero is written, too
    const SlotReader reader(shape);
    std::atomic<bool> inside = true;
    Team team(parts);
    team.run(parts, [&](int part) noexcept {
        Workspace& work = workspaces[static_cast<std::size_t>(part)];
        const std::int64_t last = n * (part + 1) / parts;
        for (std::int64_t i = n * part / parts; i < last; ++i) {
            if (i + AHEAD < last) reader.fetch(outputs.front(), slots.start + (i + AHEAD) * shape.n_windows);
            if (!reader.read(slots.start + i * shape.n_windows, slots.weight + i * shape.n_weights, work.terms))
                inside = false;
            for (std::size_t output = 0; output < outputs.size(); ++output)
                scores[static_cast<std::int64_t>(output) * n + i] =
                    static_cast<float>(outputs[output].score(work.terms, work.vectors.data()));
        }
    });
    return inside;
}

}  // namespace splinefm
