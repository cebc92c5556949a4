// How much of some residuals the cells of a column, or of a pair of columns, explain: the screening of crosses.
#pragma once

#include <cstdint>
#include <vector>

namespace splinefm {

// Columns as cells of several sizes, from coarse to fine: the cell of every row, and the number of cells.
struct CodedColumns {
    const std::int32_t* cells;  // [column, level, row]
    const std::int64_t* sizes;  // [column, level]
    std::int64_t n_columns, n_levels, n_rows;
};

// The rows of each fold are explained by the rows of all other folds.
struct Folds {
    const std::int32_t* of_row;
    std::int64_t n;
};

// For every pair of columns, of which the second may be -1, how much smaller the squared residuals of all folds get by
// the cell means of the other folds. A level explains what the coarser ones have left; its means are shrunk as by
// `shrinkage` rows without a residual. A pair passes over levels with as many cells as the one before.
// Throws std::invalid_argument for cells, folds or columns that do not exist. The result does not depend on `threads`.
std::vector<double> cell_gains(const CodedColumns& columns, const std::int64_t* pairs, std::int64_t n_pairs,
                               const double* residual, const Folds& folds, double shrinkage, int threads);

}  // namespace splinefm
