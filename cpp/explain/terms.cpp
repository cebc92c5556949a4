#include "explain/terms.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "dispatch.hpp"
#include "model_names.hpp"
#include "windows.hpp"

namespace splinefm::explain {
namespace {

constexpr std::int64_t BLOCK = 256;  // rows that a thread takes at a time; an FmFM takes four of them together

void need(bool holds, const char* problem) {
    if (!holds) throw std::invalid_argument(problem);
}

// Rows of k numbers, padded with zeros.
std::vector<float> padded(std::span<const float> numbers, std::int64_t k, std::int64_t stride) {
    const std::int64_t n = static_cast<std::int64_t>(numbers.size()) / k;
    std::vector<float> rows(static_cast<std::size_t>(n * stride));
    for (std::int64_t i = 0; i < n; ++i) std::copy_n(numbers.data() + i * k, k, rows.data() + i * stride);
    return rows;
}

}  // namespace

Terms::Terms(const Source& source, int threads) : team(threads) {
    task.model = scored_as(model_of(source.model));
    need(task.model != Model::higher, "products of more than two units have no such terms");
    need(source.k >= 1, "k must be at least 1");
    read_layout(source);
    read_parameters(source);
}

void Terms::read_layout(const Source& source) {
    unit_ptr = check_windows(source.weight_ptr, source.window_unit, source.unit_field);
    weight_ptr.assign(source.weight_ptr.begin(), source.weight_ptr.end());
    unit_field.assign(source.unit_field.begin(), source.unit_field.end());
    first_unit = beginnings(source.unit_field);
    const auto n_windows = static_cast<int>(source.window_unit.size());
    task.layout = {unit_field.back() + 1,
                   static_cast<int>(unit_field.size()),
                   n_windows,
                   weight_ptr.back(),
                   nullptr,
                   unit_field.data(),
                   unit_ptr.data(),
                   weight_ptr.data()};
    task.first_unit = first_unit.data();
    for (int w = 0; w < n_windows; ++w) {
        const std::int64_t last = source.n_features - (weight_ptr[w + 1] - weight_ptr[w]);
        highest.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(last, INT32_MAX)));
    }
}

void Terms::read_parameters(const Source& source) {
    const std::int64_t n_fields = task.layout.n_fields, k = source.k;
    task.k = k;
    // Products of the sizes of existing arrays do not overflow.
    need(k <= source.width && source.width <= INT32_MAX &&
             source.width == (task.model == Model::ffm ? n_fields * k : k),
         "factors do not have the width of the model");
    task.width = source.width;
    need(static_cast<std::int64_t>(source.linear.size()) == source.n_features, "linear must have a number per feature");
    const auto size = static_cast<std::size_t>(n_fields * task.width);
    need(source.center.size() == size && source.slope.size() == size,
         "center and slope must have a vector for every field");
    const std::int64_t each = task.model == Model::fmfm ? k * k : task.model == Model::fwfm ? 1 : 0;
    need(static_cast<std::int64_t>(source.between.size()) == n_fields * n_fields * each,
         "between does not have the size of the model");
    loops = kernels().explain(task.model, k);
    task.stride = (k + loops.piece - 1) / loops.piece * loops.piece;
    task.factors = source.factors;
    task.linear = source.linear.data();
    task.center = source.center.data();
    slope = padded(source.slope, k, task.stride);
    task.slope = slope.data();
    inside_weights.assign(static_cast<std::size_t>(n_fields), 1.0f);
    task.four = (n_fields + 3) / 4 * 4;
    if (task.model == Model::fmfm) {
        between = padded(source.between, k, task.stride);
    } else if (task.model == Model::fwfm) {
        between.assign(static_cast<std::size_t>(n_fields * task.four), 0.0f);
        for (std::int64_t f = 0; f < n_fields; ++f) {
            inside_weights[f] = source.between[f * n_fields + f];
            for (std::int64_t e = f + 1; e < n_fields; ++e)
                between[f * task.four + e] = between[e * task.four + f] = source.between[f * n_fields + e];
        }
    }
    task.inside = inside_weights.data();
    task.between = between.data();
}

void Terms::inner(const Slots& rows, const double* offset, double* out) { fill(loops.inner, rows, offset, out); }
void Terms::terms(const Slots& rows, const double* offset, double* out) { fill(loops.terms, rows, offset, out); }
void Terms::effects(const Slots& rows, const double* offset, double* out) { fill(loops.effects, rows, offset, out); }

void Terms::fill(Loop loop, const Slots& rows, const double* offset, double* out) {
    Task todo = task;
    todo.rows = rows;
    todo.offset = offset;
    todo.out = out;
    run(loop, todo);
}

void Terms::vectors(const Slots& rows, float* out) {
    Task todo = task;
    todo.rows = rows;
    todo.vectors = out;
    run(loops.vectors, todo);
}

// Threads take blocks of rows from one counter. Rows are independent, so the result does not depend on which thread
// takes which.
void Terms::run(Loop loop, const Task& todo) {
    const std::int64_t n = todo.rows.n, n_blocks = (n + BLOCK - 1) / BLOCK;
    const auto workers = static_cast<int>(std::min<std::int64_t>(team.threads(), n_blocks));
    // An FmFM needs vectors and sums of four rows, the others the vectors of one and an FFM a sum per field; and all
    // need two vectors of units.
    const std::int64_t parts = task.model == Model::ffm ? task.layout.n_fields : 1;
    const std::int64_t n_fields = task.layout.n_fields, vectors = n_fields * parts * task.stride;
    const std::int64_t workspace =
        (task.model == Model::fmfm ? 8 * vectors : vectors + n_fields * task.stride) + 2 * task.stride;
    std::vector<float> workspaces(static_cast<std::size_t>(workers * workspace));
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> outside{false};
    team.run(workers, [&](int worker) noexcept {
        for (std::int64_t block; (block = next.fetch_add(1)) < n_blocks && !outside;) {
            const std::int64_t first = block * BLOCK, last = std::min(first + BLOCK, n);
            if (inside(todo.rows, first, last))
                loop(todo, first, last, workspaces.data() + worker * workspace);
            else
                outside = true;
        }
    });
    if (outside) throw std::out_of_range("start has features that do not exist");
}

bool Terms::inside(const Slots& rows, std::int64_t first, std::int64_t last) const {
    const int n_windows = task.layout.n_windows;
    bool all = true;
    for (std::int64_t i = first; i < last; ++i) {
        const std::int32_t* start = rows.start + i * n_windows;
        for (int w = 0; w < n_windows; ++w) all &= start[w] >= 0 && start[w] <= highest[w];
    }
    return all;
}

}  // namespace splinefm::explain
