// RowScorer: the terms of one row -> its score, b + Σ linear + interactions, or its prediction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "scorer/row_units.hpp"
#include "scorer/terms.hpp"

namespace splinefm {

enum class Link { none, logistic, identity, log, softmax };

// How a prediction follows from a score: center + scale link(score).
struct Prediction {
    Link link;
    double center, scale;
};

// Parameters that the caller owns.
struct RowParams {
    Model model;
    std::int64_t k, width, order, members, n_fields, n_features;
    const float *factors, *linear, *between;
    double bias;
    Prediction prediction;
};

class RowScorer {
public:
    explicit RowScorer(RowParams params) : params(params) {}

    // Size of the workspace that a kernel needs to score a row of at most this many terms.
    std::int64_t workspace_size(std::int64_t max_terms) const;

    // Prefetch the parameters of a feature.
    void fetch(std::int64_t row) const {
        __builtin_prefetch(params.linear + row);
        for (std::int64_t c = 0; c < params.width; c += 16) __builtin_prefetch(params.factors + row * params.width + c);
    }

    // The score, which is a float32 number, whichever way it is asked for.
    double score(const Terms& terms, float* workspace) const;
    double predict(double score) const;  // not for softmax, which needs the scores of all classes: see below

    const RowParams params;

private:
    double linear_part(const Terms& terms) const;
    float rounded_score(const Terms& terms, float* workspace) const;
};

// The scores of n classes become their probabilities.
void to_probabilities(double* scores, std::size_t n);

}  // namespace splinefm
