// RowScorer: the terms of one row -> its score, b + Σ linear + interactions, or the prediction that it stands for.
#pragma once

#include <cstdint>

#include "scorer/row_units.hpp"
#include "scorer/terms.hpp"

namespace splinefm {

enum class Link { none, logistic, squared, poisson };

// Parameters that someone else owns.
struct RowParams {
    Model model;
    std::int64_t k, width, order, n_fields, n_rows;
    const float *factors, *linear, *between;
    double bias;
    Link link;
    double center, scale;  // a prediction is center + scale link(score)
};

class RowScorer {
public:
    explicit RowScorer(RowParams params) : params(params) {}

    // How many numbers a kernel writes to while it scores a row of so many terms.
    std::int64_t room(std::int64_t most_terms) const;

    // Ask for the parameters of a feature, so that memory has some time to answer.
    void fetch(std::int64_t row) const {
        __builtin_prefetch(params.linear + row);
        for (std::int64_t c = 0; c < params.width; c += 16) __builtin_prefetch(params.factors + row * params.width + c);
    }

    double score(const Terms& terms, float* room) const;
    double predict(double score) const;

    const RowParams params;
};

}  // namespace splinefm
