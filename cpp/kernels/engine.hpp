// The kernels of training and scoring as tables of functions, of which every instruction set has its own.
//
// A batch goes through phases, each cut into parts that threads take one by one. A sum over rows has one order,
// whatever thread makes it: the result does not depend on the number of threads.
#pragma once

#include "kernels/structs.hpp"

namespace splinefm {

// Kernels of one model and one way to handle k numbers: K at once for K = 4, 8, 16 and 32, else 8 after 8.
struct ModelKernels {
    // Scores of n rows, from row `first` on.
    void (*score)(const Scoring&, std::int64_t first, std::int64_t n);
    // An FFM first transposes the rows of a shard, and assigns positions to the weights of a field.
    void (*transpose_shard)(const Memory&, const Block&, std::int64_t part);
    void (*assign_positions)(const Memory&, const Block&, std::int64_t field);
    // Losses, slopes and derivatives of the rows of a shard, for all outputs: each has its memory and its scratch.
    void (*shard)(const Memory*, const Block&, std::int64_t part, const Scratch*);
    // Gradients of the features of a field, and their step at the end of a batch.
    void (*field)(const Memory&, const Block&, std::int64_t field, const Scratch&);
    // The step of the parameters between a field and those not before it.
    void (*between)(const Memory&, const Step&, std::int64_t field);
};

struct EngineKernels {
    ModelKernels (*choose)(const ModelSettings&);
    // One of `SUMS` parts of the gradients between fields is added up over the first `n_shards` shards.
    void (*sum_shards)(const Memory&, std::int64_t n_shards, std::int64_t part);
    // The mean loss of a batch of n rows before the step, and the step of the bias.
    double (*finish)(const Memory&, std::int64_t n, double total_weight, const Step&);
};

}  // namespace splinefm
