// A catalog as the loops see it: views of arrays that the caller owns.
//
// Items are columns of panels: number j of the item in row r is panels[r / size, j, r % size]. Products with a query
// are then sums of whole lines, and memory is read in long runs. A row that is not in use has the offset -inf, so that
// it is never among the best. Sizes of panels and numbers of rows are multiples of STEP: loops without a rest give
// equal items equal scores.
#pragma once

#include <cstdint>

namespace splinefm {

inline constexpr int STEP = 64;     // rows that are compared at a time
inline constexpr int TOGETHER = 8;  // queries whose effects of a feature are neighbors

// How vectors are stored. Halves are their bits; int8 numbers have a scale per item.
enum class Storage { float32, float16, int8 };

// score = constant + offset + scale · Σ_j query_j panels[.., j, ..]
struct VectorItems {
    Storage storage;
    const void* panels;  // (n_panels, length, size)
    std::int64_t n_panels, length, size;
    const float* scales;   // by row; null where all are 1
    const float* offsets;  // by row
    std::int64_t n_rows;   // rows that may be in use
};

// Of the features that items have: effects from `first` on, the largest start, how many weights, and the line of the
// first of them (-1: one weight, which is 1).
struct Window {
    std::int64_t first, last, width, line;
};

// score = constant + offset + Σ_windows Σ_j weight_j effects[first + start + j]
struct EffectItems {
    const std::int32_t*
        starts;            // (n_panels, n_windows, size); may come from a file: clipped at the window's last start
    const float* weights;  // (n_panels, n_weights, size)
    const Window* windows;
    std::int64_t n_panels, n_windows, n_weights, size;
    const float* offsets;  // by row
    std::int64_t n_rows;
};

// Which rows may be found: keep[row], and wanted[codes[row]]; null lets all pass. Rows beyond the codes have none.
struct Filter {
    const std::uint8_t* keep;
    const std::int32_t* codes;
    const std::uint8_t* wanted;
    std::int64_t n_codes, n_wanted;
};

// Panels to look at.
struct Visit {
    const std::int64_t* panels;
    std::int64_t n;
};

}  // namespace splinefm
