// What the kernels work on: pointers and sizes, bundled by purpose. Plain data for all instruction sets; whoever makes
// a bundle owns what it points to. Kernels copy bundles by value into loops: references would be read again and again.
//
// Letters: P unit vectors, T table of vectors, L linear weights, R weights and M matrices between fields, D derivatives
// of the score by the unit vectors. The vector of feature r starts at r · width in T. The width is k; in an FFM it is
// k for every field. k is a multiple of the piece that a kernel works on: see `table.hpp`.
#pragma once

#include <cstdint>

#include "model.hpp"

namespace splinefm {

constexpr int NEAR = 2048;  // features of a field whose gradients are summed in `Sums`
constexpr int SUMS = 8;     // parts in which the gradients of shards are summed

enum class Loss { logistic, squared, poisson };

// The layout; windows unit_ptr[u] .. unit_ptr[u + 1] - 1 belong to unit u. Window w of a row of data starts at a table
// row from `lowest[w]` to `highest[w]`.
struct Shape {
    const std::int32_t *weight_ptr, *window_unit, *unit_field, *unit_ptr, *window_ptr, *feature_ptr;
    const std::int32_t *lowest, *highest;
    std::int64_t n_fields, n_units, n_windows, n_weights;
    std::int64_t k, width, order, tile;
};

// The parameters as scores read them.
struct Weights {
    const float *T, *L, *bias, *R, *M;
};

// The same parameters as steps change them.
struct Targets {
    float *T, *L, *bias, *R, *M;
};

// Encoded rows with targets.
struct Data {
    const std::int32_t* start;
    const float* weight;
    const double *y, *sample_weight;
    const std::int64_t* rows;
};

// Starts and weights of rows, sixteen rows of a column after sixteen of the next: see `column`. `*wrong` is set where a
// start is out of range; it is then replaced by one that is not.
struct Columns {
    std::int32_t* start;
    float* weight;
    std::int32_t* wrong;
};

// Derivatives of a block of rows, `room` numbers each, and gradients of the parameters between fields: `n_between`
// numbers for each of `n_shards` shards, dR of weights and dM of matrices.
struct Work {
    float *D, *slopes;
    double* losses;
    float* between;
    std::int64_t room, n_between, n_shards, shard, block;
};

// Gradients of the features of a field with splines, and how much weight they got: see `scatter.hpp`.
struct Sums {
    float *vectors, *linear, *weight;
};

// Room of one thread for a tile of rows: P, the same times the slopes, and the sums of a HigherOrderFM. In an FFM P is
// S of a row, and A has p_u[f] of its units: see `ffm.hpp`.
struct Scratch {
    float *P, *Z, *A;
    Sums sums;
};

// The features that a batch touches, field by field, and their gradients. `rows[place]` from place `ptr[field]` on;
// `slot[row]` is the place of a row, the last one if it has several. In an FM `own` times its vector is still to be
// subtracted from the gradient of a row; elsewhere `own` is zero. `place` and `before` are for an FFM: see `ffm.hpp`.
struct Touch {
    std::int32_t *slot, *rows;
    float *gradient, *linear, *own;
    std::int32_t *place, *before;
    const std::int64_t* ptr;
    std::int64_t* n_places;  // 16 per field: a cache line, since threads write to them all the time
};

// Groups of features with penalties of their own; `signs` has the four coefficients of Δ^order per group.
struct Penalty {
    const std::int64_t *group_ptr, *begin, *end;
    const float *l2, *l2_linear, *smoothness;
    const std::int64_t* order;
    const float* signs;
    const std::int64_t* periodic;
};

// The optimizer's memory of some parameters.
struct State {
    float *m, *v, *average;
    std::int64_t* last;
};

// Parameters between fields, n numbers, their gradient, and the optimizer's memory of them.
struct Dense {
    float *values, *gradient;
    std::int64_t n;
    State state;
};

// The numbers of one optimizer step.
struct Step {
    bool adam;
    float lr, rate1, rate2, correct1, correct2, eps, decay;
    double ema;
    std::int64_t number;
};

// All that a step works on, but for the data and what each thread has of its own.
struct Memory {
    Shape shape;
    Weights weights;
    Targets targets;
    Columns columns;
    Work work;
    Touch touch;
    Penalty penalty;
    State vectors, linear, bias;
    Dense between, scales;
    Loss loss;
    bool low_rank;
};

// A block of n rows of a batch: from row `first` of the data on, which is `place` in the batch.
struct Block {
    Data data;
    std::int64_t first, place, n;
    bool last;  // the batch ends with it
    double total_weight;
    Step step;
};

// All that scoring works on; D has room for the derivatives of a tile.
struct Scoring {
    Shape shape;
    Weights weights;
    Data data;
    Columns columns;
    Scratch scratch;
    float *scores, *D;
};

}  // namespace splinefm
