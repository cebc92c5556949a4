// Rows of slots -> terms.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/structs.hpp"
#include "scorer/row_scorer.hpp"
#include "scorer/terms.hpp"

namespace splinefm {

// The windows of rows, and what is known of them before a row is read.
class SlotReader {
public:
    explicit SlotReader(const Shape& shape) : shape(shape) {
        for (std::int64_t w = 0; w < shape.n_windows; ++w)
            if (shape.weight_ptr[w + 1] - shape.weight_ptr[w] == 1) categories.push_back(w);
    }

    // Prefetch the parameters of windows of one feature; parameters of splines are in the cache anyway.
    void fetch(const RowScorer& scorer, const std::int32_t* start) const {
        for (const std::int64_t w : categories)
            if (start[w] >= shape.lowest[w] && start[w] <= shape.highest[w]) scorer.fetch(start[w]);
    }

    // Terms of a row; false if a start is out of range. Weights of zero, as in the unused places of a list, are no
    // terms.
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

}  // namespace splinefm
