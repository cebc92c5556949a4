// The terms of the score of every row: parameters, layout and background once, then rows, by several threads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "explain/task.hpp"
#include "pool.hpp"

namespace splinefm::explain {

// The inputs of the terms; see Task. The caller keeps the arrays alive as long as the terms.
struct Source {
    std::string model;  // a name of `model_of`, but not of a HigherOrderFM
    std::int64_t k;
    std::span<const std::int32_t> weight_ptr, window_unit, unit_field;
    std::int64_t n_features, width;  // shape of `factors`
    const float* factors;            // (features, width)
    std::span<const float> linear;   // (features)
    std::span<const float> between;  // FwFM: (fields, fields), FmFM: (fields, fields, k, k); those with f <= e are read
    std::span<const float> center, slope;  // (fields, width)
};

class Terms {
public:
    // Throws std::invalid_argument if the parts of the source do not fit each other.
    Terms(const Source& source, int threads);

    std::int64_t n_fields() const { return task.layout.n_fields; }
    std::int64_t n_windows() const { return task.layout.n_windows; }
    std::int64_t n_weights() const { return task.layout.n_weights; }
    std::int64_t width() const { return task.width; }

    // See Loops. Throw std::out_of_range if a window of a row is not inside the table.
    void inner(const Slots& rows, const double* offset, double* out);
    void terms(const Slots& rows, const double* offset, double* out);
    void effects(const Slots& rows, const double* offset, double* out);
    void vectors(const Slots& rows, float* out);

private:
    void read_layout(const Source& source);
    void read_parameters(const Source& source);
    void fill(Loop loop, const Slots& rows, const double* offset, double* out);
    void run(Loop loop, const Task& todo);
    bool inside(const Slots& rows, std::int64_t first, std::int64_t last) const;

    Task task{};
    Loops loops{};
    Team team;
    std::vector<std::int32_t> weight_ptr, unit_field, unit_ptr, first_unit;
    std::vector<std::int32_t> highest;  // the last feature at which each window may begin
    std::vector<float> slope, inside_weights, between;
};

}  // namespace splinefm::explain
