// The data of the kernels: structs of pointers and sizes, the same for all instruction sets. The creator of a struct
// owns the memory. Kernels copy structs by value, because the compiler would reload references in loops.
//
// Letters: P unit vectors, T table of vectors, L linear weights, R weights and M matrices between fields, D derivatives
// of the score by the unit vectors. The vector of feature r starts at r · width in T. The width is k; in an FFM it is
// k for every field. k is a multiple of the piece that a kernel works on: see `table.hpp`. The first `paired` of the k
// numbers of an FwFM meet in pairs, the others in triples; in other models `paired` is k. They are `members` parts of
// equal length, each with an R of its own.
#pragma once

#include <cstdint>

#include "losses.hpp"
#include "model.hpp"

namespace splinefm {

constexpr int MAX_SUMMED = 2048;  // fields with splines and at most this many features sum gradients in `Sums`
constexpr int SUMS = 8;           // parts in which the gradients of shards are summed

// The layout; windows unit_ptr[u] .. unit_ptr[u + 1] - 1 belong to unit u. Window w of a row starts at a feature
// from `lowest[w]` to `highest[w]`. Field f must not interact with apart[apart_ptr[f]] .. apart[apart_ptr[f + 1] - 1].
struct Shape {
    const std::int32_t *weight_ptr, *window_unit, *unit_field, *unit_ptr, *window_ptr, *feature_ptr;
    const std::int32_t *lowest, *highest, *apart_ptr, *apart;
    std::int64_t n_fields, n_units, n_windows, n_weights;
    std::int64_t k, paired, members, width, order, tile;
};

// The parameters as scores read them.
struct Weights {
    const float *T, *L, *bias, *R, *M;
};

// The same parameters as steps change them.
struct Targets {
    float *T, *L, *bias, *R, *M;
};

// Encoded rows with targets. `score_offset` is added to the scores before the loss; it may be null.
struct Data {
    const std::int32_t* start;
    const float* weight;
    const double *y, *sample_weight;
    const std::int64_t* rows;
    const float* score_offset;
};

// Starts and weights of rows in column order, in blocks of sixteen rows: see `column`. `*wrong` is set if a start is
// out of range; it is then replaced by one in range.
struct Columns {
    std::int32_t* start;
    float* weight;
    std::int32_t* wrong;
};

// Derivatives of rows by their unit vectors: those of unit u of row i begin at `of + i * row + u * unit`. In an FM a
// row has their sum only.
struct Derivatives {
    float* of;
    std::int64_t row, unit;
};

// Derivatives of a block of rows, and gradients of the parameters between fields: `n_between` numbers for each of
// `n_shards` shards, dR of weights and dM of matrices.
struct Work {
    float *D, *slopes;
    double* losses;
    float* between;
    std::int64_t n_between, n_shards, shard, block;
    std::int64_t n_outputs;  // scores per row: more than one for softmax, where every class has a `Memory` of its own
};

// Gradients of the features of a field with splines, and their total weights: see `scatter.hpp`.
struct Sums {
    float *vectors, *linear, *weight;
};

// The workspace of one thread for a tile of rows: P, P times the slopes, and the sums of a HigherOrderFM. In an FFM, P
// is S of a row, and A has p_u[f] of its units: see `ffm.hpp`.
struct Scratch {
    float *P, *Z, *A;
    Sums sums;
};

// The active features of a batch, field by field, and their gradients: `features[position]` for positions from
// `ptr[field]` on. `index_of[feature]` is the position of a feature, the last one if it has several, and -1 if it is
// not active. In an FM, `self_weight` times a feature's vector is still to be subtracted from its gradient; in other
// models it is zero. `position` and `before` are for an FFM: see `ffm.hpp`.
struct Active {
    std::int32_t *index_of, *features;
    float *gradient, *linear, *self_weight;
    std::int32_t *position, *before;
    const std::int64_t* ptr;
    std::int64_t* n;  // active features, 16 numbers per field: a cache line, because threads write to them often
};

// Groups of features that share penalties; `signs` has the four coefficients of Δ^order per group. `l2_third` is for
// the numbers of a vector that meet in triples, `l2` for the others. A group is a number of blocks, each a tensor of
// three `lengths`, which is smoothed along each axis; bit a of `periodic` is for axis 2 - a.
struct Penalty {
    const std::int64_t *group_ptr, *begin, *end;
    const float *l2, *l2_third, *l2_linear, *smoothness;
    const std::int64_t* order;
    const float* signs;
    const std::int64_t *periodic, *lengths;
};

// The optimizer state of some parameters.
struct State {
    float *m, *v, *average;
    std::int64_t* last;
};

// Parameters between fields, n numbers, their gradient, and their optimizer state.
struct Dense {
    float *values, *gradient;
    std::int64_t n;
    State state;
};

constexpr std::int64_t POWERS = 1024;  // more than most features miss steps in a row

// The numbers of one optimizer step.
struct Step {
    bool adam;
    float lr, rate1, rate2, correct1, correct2, eps, decay;
    double ema;
    const float* powers;  // ema^0 .. ema^(POWERS - 1)
    std::int64_t number;
};

// The memory of a step, without the data and the workspaces of threads. The classes of a softmax share shape, columns,
// losses and penalty.
struct Memory {
    Shape shape;
    Weights weights;
    Targets targets;
    Columns columns;
    Work work;
    Active active;
    Penalty penalty;
    State vectors, linear, bias;
    Dense between, scales;
    Loss loss;
};

// A block of n rows: from row `first` of the data on, at `offset` in the batch.
struct Block {
    Data data;
    std::int64_t first, offset, n;
    bool last;  // the batch ends with it
    double total_weight;
    Step step;
};

// The memory of scoring; D holds the derivatives of a tile. There are `n_outputs` weights, and as many runs of
// `n_scores` scores.
struct Scoring {
    Shape shape;
    const Weights* weights;
    std::int64_t n_outputs, n_scores;
    Data data;
    Columns columns;
    Scratch scratch;
    float *scores, *D;
};

}  // namespace splinefm
