#include "scorer/row_scorer.hpp"

#include <algorithm>
#include <cmath>

#include "denormals.hpp"
#include "dispatch.hpp"

namespace splinefm {

std::int64_t RowScorer::workspace_size(std::int64_t max_terms) const {
    const std::int64_t n = params.n_fields;
    const std::int64_t vectors = params.model == Model::ffm ? max_terms * n + n : max_terms;
    return params.k * std::max(vectors, params.order + 1);
}

double RowScorer::linear_part(const Terms& terms) const {
    const std::int32_t* const features = terms.features.data();
    const float *const weights = terms.weights.data(), *const linear = params.linear;
    const std::int64_t n = terms.n_terms;
    const auto part = [=](std::int64_t t) {
        return static_cast<double>(weights[t]) * static_cast<double>(linear[features[t]]);
    };
    double a = params.bias, b = 0.0, c = 0.0, d = 0.0;  // four sums, which do not wait for each other
    std::int64_t t = 0;
    for (; t + 4 <= n; t += 4) {
        a += part(t);
        b += part(t + 1);
        c += part(t + 2);
        d += part(t + 3);
    }
    for (; t < n; ++t) a += part(t);
    return (a + b) + (c + d);
}

// Not inlined: see FlushDenormals.
[[gnu::noinline]] float RowScorer::rounded_score(const Terms& terms, float* workspace) const {
    const double score = linear_part(terms) + kernels().score_row({
                                                  .model = params.model,
                                                  .k = params.k,
                                                  .width = params.width,
                                                  .order = params.order,
                                                  .members = params.members,
                                                  .n_fields = params.n_fields,
                                                  .n_units = terms.n_units,
                                                  .factors = params.factors,
                                                  .between = params.between,
                                                  .features = terms.features.data(),
                                                  .weights = terms.weights.data(),
                                                  .ends = terms.ends.data(),
                                                  .unit_fields = terms.unit_fields.data(),
                                                  .vectors = workspace,
                                              });
    const float rounded = static_cast<float>(score);
    return terms.has_offset ? rounded + terms.offset : rounded;
}

double RowScorer::score(const Terms& terms, float* workspace) const {
    const FlushDenormals flushed;  // as in the threads of a team
    return static_cast<double>(rounded_score(terms, workspace));
}

double RowScorer::predict(double score) const {
    switch (params.prediction.link) {
    case Link::none: return score;
    case Link::logistic: {
        const double small = std::exp(-std::abs(score));
        score = (score >= 0.0 ? 1.0 : small) / (1.0 + small);
        break;
    }
    case Link::identity:
    case Link::softmax: break;
    case Link::log: score = std::exp(std::min(score, 700.0)); break;
    }
    return params.prediction.center + params.prediction.scale * score;
}

void to_probabilities(double* scores, std::size_t n) {
    const double largest = *std::max_element(scores, scores + n);
    double sum = 0.0;
    for (std::size_t c = 0; c < n; ++c) sum += scores[c] = std::exp(scores[c] - largest);
    for (std::size_t c = 0; c < n; ++c) scores[c] /= sum;
}

}  // namespace splinefm
