// The functions that every instruction set has its own version of.
#pragma once

#include "explain/task.hpp"
#include "kernels/engine.hpp"
#include "rank/kernels.hpp"
#include "scorer/row_units.hpp"

namespace splinefm {

struct Kernels {
    const char* isa;  // name of the instruction set
    int lanes;        // float32 numbers in a register

    // What the tests ask of Vec<K>, see probe.hpp; false where there is no such k.
    bool (*probe)(int k, const float* a, const float* b, float* out);

    const EngineKernels* engine;  // training and scoring
    // Terms of explanations, for vectors of k numbers.
    explain::Loops (*explain)(Model model, std::int64_t k);
    const RankKernels* rank;  // search through a catalog
    // The interactions of one row, see row_score.hpp.
    float (*score_row)(const RowUnits& row);
};

}  // namespace splinefm
