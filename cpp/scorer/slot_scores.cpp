#include "scorer/slot_scores.hpp"

#include <algorithm>
#include <atomic>

#include "pool.hpp"

namespace splinefm {
namespace {

constexpr std::int64_t ROWS_PER_THREAD = 256, AHEAD = 4;  // rows that parameters are asked for in advance

// The windows of rows, and what is known of them before a row is read.
class Windows {
public:
    explicit Windows(const Shape& shape) : shape(shape) {
        for (std::int64_t w = 0; w < shape.n_windows; ++w)
            if (shape.weight_ptr[w + 1] - shape.weight_ptr[w] == 1) categories.push_back(w);
    }

    // Ask for the parameters of windows of one feature; those of splines are in the cache anyway.
    void fetch(const RowScorer& scorer, const std::int32_t* start) const {
        for (const std::int64_t w : categories)
            if (start[w] >= shape.lowest[w] && start[w] <= shape.highest[w]) scorer.fetch(start[w]);
    }

    // Terms of a row; false if a start is out of range. Weights of zero, such as those of the places that a list leaves
    // free, are no terms.
    bool read(const std::int32_t* start, const float* weight, Terms& terms) const {
        std::int32_t* const features = terms.features.data();
        float* const weights = terms.weights.data();
        std::int64_t n = 0;
        terms.clear();
        bool inside = true;
        for (std::int64_t u = 0; u < shape.n_units; ++u) {
            const std::int64_t begin = n;
            for (std::int64_t w = shape.unit_ptr[u]; w < shape.unit_ptr[u + 1]; ++w) {
                const std::int32_t first = start[w];
                if (first < shape.lowest[w] || first > shape.highest[w]) {
                    inside = false;
                    continue;
                }
                const std::int64_t j = shape.weight_ptr[w], width = shape.weight_ptr[w + 1] - j;
                for (std::int64_t m = 0; m < width; ++m) {
                    features[n] = static_cast<std::int32_t>(first + m);
                    weights[n] = weight[j + m];
                    n += makes_term(weight[j + m]);
                }
            }
            if (n > begin) terms.close_at(shape.unit_field[u], n);
        }
        terms.n_terms = n;
        return inside;
    }

private:
    const Shape shape;
    std::vector<std::int64_t> categories;
};

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
    const Windows windows(shape);
    std::atomic<bool> inside = true;
    Team team(parts);
    team.run(parts, [&](int part) noexcept {
        Workspace& work = workspaces[static_cast<std::size_t>(part)];
        const std::int64_t last = n * (part + 1) / parts;
        for (std::int64_t i = n * part / parts; i < last; ++i) {
            if (i + AHEAD < last) windows.fetch(outputs.front(), slots.start + (i + AHEAD) * shape.n_windows);
            if (!windows.read(slots.start + i * shape.n_windows, slots.weight + i * shape.n_weights, work.terms))
                inside = false;
            for (std::size_t output = 0; output < outputs.size(); ++output)
                scores[static_cast<std::int64_t>(output) * n + i] =
                    static_cast<float>(outputs[output].score(work.terms, work.vectors.data()));
        }
    });
    return inside;
}

}  // namespace splinefm
