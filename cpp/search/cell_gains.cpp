#include "search/cell_gains.hpp"

#include <algorithm>
#include <stdexcept>

#include "pool.hpp"

namespace splinefm {
namespace {

// More cells than a screening asks for; a table of means has as many numbers.
constexpr std::int64_t MAX_CELLS = 1 << 24, MAX_FOLDS = 64;

void need(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

void check(const CodedColumns& columns, const std::int64_t* pairs, std::int64_t n_pairs, const Folds& folds) {
    need(folds.n >= 2 && folds.n <= MAX_FOLDS, "there must be from 2 to 64 folds");
    for (std::int64_t i = 0; i < columns.n_rows; ++i)
        need(folds.of_row[i] >= 0 && folds.of_row[i] < folds.n, "fold must have a fold for every row, from 0 on");
    for (std::int64_t at = 0; at < columns.n_columns * columns.n_levels; ++at) {
        const std::int64_t size = columns.sizes[at];
        need(size >= 1 && size <= MAX_CELLS, "sizes must be at least 1, and not too large");
        const std::int32_t* const cell = columns.cells + at * columns.n_rows;
        for (std::int64_t i = 0; i < columns.n_rows; ++i)
            need(cell[i] >= 0 && cell[i] < size, "cells must be below their number");
    }
    for (std::int64_t p = 0; p < n_pairs; ++p) {
        const std::int64_t a = pairs[2 * p], b = pairs[2 * p + 1];
        need(a >= 0 && a < columns.n_columns && b >= -1 && b < columns.n_columns, "pairs must be of columns, or -1");
        for (std::int64_t level = 0; b >= 0 && level < columns.n_levels; ++level) {
            const std::int64_t *first = columns.sizes + a * columns.n_levels,
                               *second = columns.sizes + b * columns.n_levels;
            need(first[level] * second[level] <= MAX_CELLS, "a pair of columns has too many cells");
        }
    }
}

// The workspace of one thread, and the gain of a pair.
class Screen {
public:
    Screen(const CodedColumns& columns, const double* residual, const Folds& folds, double shrinkage,
           std::int64_t most_cells)
        : columns(columns), residual(residual), folds(folds), shrinkage(shrinkage), cell(columns.n_rows),
          left(folds.n * columns.n_rows), sum(most_cells), count(most_cells) {}

    double gain(std::int64_t a, std::int64_t b) noexcept {
        const std::int64_t n = columns.n_rows;
        for (std::int64_t fold = 0; fold < folds.n; ++fold) std::copy_n(residual, n, left.data() + fold * n);
        std::int64_t before = 0;
        for (std::int64_t level = 0; level < columns.n_levels; ++level) {
            const std::int64_t n_cells = set_cells(a, b, level);
            if (b >= 0 && n_cells == before) continue;
            before = n_cells;
            for (std::int64_t fold = 0; fold < folds.n; ++fold) explain(fold, n_cells);
        }
        double total = 0.0;
        for (std::int64_t i = 0; i < n; ++i) {
            const double own = left[folds.of_row[i] * n + i];
            total += residual[i] * residual[i] - own * own;
        }
        return total;
    }

private:
    std::int64_t set_cells(std::int64_t a, std::int64_t b, std::int64_t level) {
        const std::int64_t n = columns.n_rows, at = a * columns.n_levels + level, other = b * columns.n_levels + level;
        const std::int32_t* const first = columns.cells + at * n;
        if (b < 0) {
            std::copy_n(first, n, cell.data());
            return columns.sizes[at];
        }
        const std::int32_t* const second = columns.cells + other * n;
        const auto width = static_cast<std::int32_t>(columns.sizes[other]);
        for (std::int64_t i = 0; i < n; ++i) cell[i] = first[i] * width + second[i];
        return columns.sizes[at] * width;
    }

    // Subtract the means that the rows of all other folds have in the cells.
    void explain(std::int64_t fold, std::int64_t n_cells) {
        const std::int64_t n = columns.n_rows;
        double* const rest = left.data() + fold * n;
        std::fill_n(sum.data(), n_cells, 0.0);
        std::fill_n(count.data(), n_cells, 0.0);
        for (std::int64_t i = 0; i < n; ++i) {
            const double learned = folds.of_row[i] == fold ? 0.0 : 1.0;
            sum[cell[i]] += learned * rest[i];
            count[cell[i]] += learned;
        }
        for (std::int64_t c = 0; c < n_cells; ++c) sum[c] /= count[c] + shrinkage;
        for (std::int64_t i = 0; i < n; ++i) rest[i] -= sum[cell[i]];
    }

    const CodedColumns& columns;
    const double* const residual;
    const Folds& folds;
    const double shrinkage;
    std::vector<std::int32_t> cell;
    std::vector<double> left, sum, count;
};

std::int64_t most_cells(const CodedColumns& columns, const std::int64_t* pairs, std::int64_t n_pairs) {
    std::int64_t most = 1;
    for (std::int64_t p = 0; p < n_pairs; ++p) {
        for (std::int64_t level = 0; level < columns.n_levels; ++level) {
            const std::int64_t b = pairs[2 * p + 1], size = columns.sizes[pairs[2 * p] * columns.n_levels + level];
            most = std::max(most, b < 0 ? size : size * columns.sizes[b * columns.n_levels + level]);
        }
    }
    return most;
}

}  // namespace

std::vector<double> cell_gains(const CodedColumns& columns, const std::int64_t* pairs, std::int64_t n_pairs,
                               const double* residual, const Folds& folds, double shrinkage, int threads) {
    need(threads >= 1, "threads must be at least 1");
    need(shrinkage > 0.0, "shrinkage must be above 0");
    check(columns, pairs, n_pairs, folds);
    // Each thread has a workspace and a part of the pairs; a gain does not depend on who computes it.
    const auto parts = static_cast<int>(std::clamp<std::int64_t>(n_pairs, 1, threads));
    std::vector<Screen> screens;
    screens.reserve(static_cast<std::size_t>(parts));
    const std::int64_t most = most_cells(columns, pairs, n_pairs);
    for (int part = 0; part < parts; ++part) screens.emplace_back(columns, residual, folds, shrinkage, most);
    std::vector<double> gains(n_pairs);
    Team team(parts);
    team.run(parts, [&](int part) noexcept {
        for (std::int64_t p = part; p < n_pairs; p += parts)
            gains[p] = screens[static_cast<std::size_t>(part)].gain(pairs[2 * p], pairs[2 * p + 1]);
    });
    return gains;
}

}  // namespace splinefm
