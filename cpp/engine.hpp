// Training: steps of an optimizer on batches of encoded rows; and scores.
//
// A batch goes through two phases, each divided into parts that threads take one by one:
// 1. by rows, a tile at a time: the unit vectors P, score, loss and its slope, and the derivatives D of the score;
// 2. by fields: slope · D is added to the gradients of a field's features, and the active ones are updated.
// An FFM has no D: it sums its gradients in the first phase, after assigning a position to each: see kernels/ffm.hpp.
//
// A feature belongs to one field, so phase 2 needs no locks, and every sum has one order: the result does not depend on
// the number of threads.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "buffer.hpp"
#include "kernels/engine.hpp"
#include "pool.hpp"

namespace splinefm {

// A layout, checked so that kernels stay inside the arrays. Throws std::invalid_argument.
class ShapeData {
public:
    using Numbers = std::vector<std::int32_t>;
    // `apart` has pairs f < e of fields that must not interact, one after the other.
    ShapeData(Numbers weight_ptr, Numbers window_unit, Numbers unit_field, Numbers window_ptr, Numbers feature_ptr,
              const Numbers& apart);

    Shape view(const ModelSettings& model, std::int64_t tile) const;
    std::int64_t n_features() const { return feature_ptr.back(); }
    std::int64_t n_fields() const { return static_cast<std::int64_t>(feature_ptr.size()) - 1; }
    std::int64_t n_units() const { return static_cast<std::int64_t>(unit_field.size()); }
    std::int64_t n_windows() const { return static_cast<std::int64_t>(window_unit.size()); }
    std::int64_t n_weights() const { return weight_ptr.back(); }
    // Weights of a row in field f.
    std::int64_t weights_of(std::int64_t f) const { return weight_ptr[window_ptr[f + 1]] - weight_ptr[window_ptr[f]]; }
    // The largest number of features of a field with splines that is summed in `Sums`.
    std::int64_t summed_features() const;

private:
    Numbers weight_ptr, window_unit, unit_field, unit_ptr, window_ptr, feature_ptr, lowest, highest;
    Numbers apart_ptr, apart_fields;
};

// Size of D for a row, and of the gradients between fields.
std::int64_t stride_of(Model model, const Shape& shape);
std::int64_t between_of(Model model, const Shape& shape);

// Numbers of the copies R and M of the parameters between fields.
std::int64_t copied_weights(Model model, const Shape& shape);
std::int64_t copied_matrices(Model model, const Shape& shape);

// The workspace of one thread, for a number of outputs that are scored before the slopes of any are known.
class ScratchData {
public:
    ScratchData(Model model, const ShapeData& layout, const Shape& shape, std::int64_t n_outputs = 1);
    const Scratch* views() const { return by_output.data(); }  // one for every output

private:
    Buffer<float> P, Z, A, vectors, linear, weight;
    std::vector<Scratch> by_output;
};

// The memory of `Active` of one output.
struct ActiveData {
    Buffer<std::int32_t> index_of, features, position, before;
    Buffer<float> gradient, linear, self_weight;
    Buffer<std::int64_t> n_active;
};

// Penalties on groups of features, checked against a layout.
struct Groups {
    std::vector<std::int64_t> group_ptr, begin, end;
    std::vector<float> l2, l2_third, l2_linear, smoothness;
    std::vector<std::int64_t> order;
    std::vector<float> signs;
    std::vector<std::int64_t> periodic, lengths;

    void check(const ShapeData& layout) const;  // throws std::invalid_argument
    Penalty view() const;
};

struct OptimizerSettings {
    bool adam;
    double beta1, beta2, eps, weight_decay, ema;
};

// How the rows of a batch are divided, which affects rounding: a tile is scored at once, a thread takes a shard, and a
// block's derivatives are kept.
struct BatchSizes {
    std::int64_t tile, shard, block, batch_size;
};

// The settings of an engine. Parameters and optimizer state belong to the caller.
struct Settings {
    ModelSettings model;
    Loss loss;
    OptimizerSettings optimizer;
    BatchSizes sizes;
    int threads;
    std::int64_t n_steps;    // so far
    std::int64_t n_outputs;  // classes of a softmax, else 1
};

// The parameters of all outputs, one after the other; one output has `n_between` and `n_scales` numbers.
struct Parameters {
    Targets targets;
    State vectors, linear, bias;
    float *between, *scales;
    std::int64_t n_between, n_scales;
    State between_state, scales_state;
};

class Engine {
public:
    Engine(std::shared_ptr<const ShapeData> layout, const Settings& settings, const Parameters& parameters);

    // A step on every batch of `batch_size` of n rows, with a learning rate for each; a batch without weight has loss 0
    // and takes no step. Throws std::invalid_argument before anything has changed.
    void steps(const Data& data, std::int64_t n, std::int64_t batch_size, const double* learning_rates, double* losses);

    void set_penalty(Groups groups);
    std::int64_t n_steps() const { return settings.n_steps; }
    const ShapeData& shape() const { return *layout; }
    std::int64_t batch_size() const { return settings.sizes.batch_size; }

private:
    void set_output(std::int64_t output, const Shape& shape, const Parameters& parameters);
    void make_active();
    void check_starts(const Data& data, std::int64_t n);
    double by_rows(const Data& data, std::int64_t begin, std::int64_t end, double total_weight, const Step& step);
    double by_positions(const Data& data, std::int64_t begin, std::int64_t end, double total_weight, const Step& step);
    Step next_step(double learning_rate);
    template <class Part> void with_scratch(std::int64_t parts, Part part);

    std::shared_ptr<const ShapeData> layout;
    Settings settings;
    ModelKernels kernels;
    Groups groups;
    std::vector<Memory> outputs;
    Team team, single_thread;
    Team* current = nullptr;  // one of the two
    std::mutex busy;          // held during a call

    std::vector<ScratchData> scratch;
    std::vector<std::atomic<bool>> taken;  // which scratch is in use
    std::vector<ActiveData> active;
    Buffer<float> D, slopes, shards, between_gradient, scales_gradient, weight;
    std::vector<float> powers;  // of the average's decay: see `Step`
    Buffer<double> row_losses;
    Buffer<std::int32_t> start;
    std::vector<std::int64_t> ptr;
    std::int32_t wrong = 0;
};

// Scores of n rows with any parameters, output after output; throws std::invalid_argument.
void score(const ShapeData& layout, const ModelSettings& model, std::int64_t tile, const std::vector<Weights>& weights,
           const Data& data, std::int64_t n, int threads, float* scores);

}  // namespace splinefm
