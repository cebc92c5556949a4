// Scores of encoded rows by the loops for single rows: a row has the same score, to the bit, in a table and alone.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/structs.hpp"
#include "layout.hpp"
#include "scorer/row_scorer.hpp"

namespace splinefm {

// scores[output * n + i] of row i of the slots, for all outputs of a model. False if a start is out of range.
bool score_slots(const std::vector<RowScorer>& outputs, const Shape& shape, const Slots& slots, int threads,
                 float* scores);

}  // namespace splinefm
