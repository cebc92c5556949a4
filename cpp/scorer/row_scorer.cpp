#include "scorer/row_scorer.hpp"

#include <algorithm>
#include <cmath>

#include "dispatch.hpp"

namespace splinefm {

std::int64_t RowScorer::workspace_size(std::int64_t most_terms) const {
    const std::int64_t n = params.n_fields;
    const std::int64_t vectors = params.model == Model::ffm ? most_terms * n + n : most_terms;
    return params.k * std::max(vectors, params.order + 1);
}

double RowScorer::score(const Terms& terms, float* workspace) const {
    double score = params.bias;
    for (std::int64_t t = 0; t < terms.n_terms; ++t)
        score += static_cast<double>(terms.weights[t]) * static_cast<double>(params.linear[terms.features[t]]);
    return score + kernels().score_row({
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
}

double RowScorer::predict(double score) const {
    switch (params.link) {
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
    return params.center + params.scale * score;
}

void to_probabilities(double* scores, std::size_t n) {
    const double largest = *std::max_element(scores, scores + n);
    double sum = 0.0;
    for (std::size_t c = 0; c < n; ++c) sum += scores[c] = std::exp(scores[c] - largest);
    for (std::size_t c = 0; c < n; ++c) scores[c] /= sum;
}

}  // namespace splinefm
