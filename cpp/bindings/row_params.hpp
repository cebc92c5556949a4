// The parameters of a model as single rows are scored with them: arrays that Python keeps, checked once.
#pragma once

#include "bindings/arrays.hpp"
#include "scorer/checks.hpp"

namespace splinefm::bindings {

// The parameters of several classes come one class after the other.
struct ParamArrays {
    Model model;
    std::int64_t k, members, order;
    In2<float> factors;
    In<float> linear, between, bias;
};

// The parameters of one output, for fields whose last feature is before `end_feature`.
inline RowParams params_of(const ParamArrays& arrays, std::int64_t n_fields, std::int64_t end_feature,
                           std::size_t output, const Prediction& prediction) {
    const std::size_t n_outputs = arrays.bias.size();
    check(n_outputs > 0 && arrays.factors.shape(0) % n_outputs == 0 && arrays.between.size() % n_outputs == 0,
          "factors, linear and between must have the same size for every bias");
    const auto at = static_cast<std::int64_t>(output);
    const auto n_features = static_cast<std::int64_t>(arrays.factors.shape(0) / n_outputs);
    const auto n_between = static_cast<std::int64_t>(arrays.between.size() / n_outputs);
    const auto width = static_cast<std::int64_t>(arrays.factors.shape(1));
    check(arrays.linear.size() == arrays.factors.shape(0), "linear must have a number per feature");
    const RowParams params{.model = arrays.model,
                           .k = arrays.k,
                           .width = width,
                           .order = arrays.order,
                           .members = arrays.members,
                           .n_fields = n_fields,
                           .n_features = n_features,
                           .factors = numbers(arrays.factors, "factors") + at * n_features * width,
                           .linear = numbers(arrays.linear, "linear") + at * n_features,
                           .between = numbers(arrays.between, "between") + at * n_between,
                           .bias = static_cast<double>(numbers(arrays.bias, "bias")[output]),
                           .prediction = prediction};
    check_params(params, n_between, end_feature);
    return params;
}

}  // namespace splinefm::bindings
