#include "kernels/table.hpp"

#include "kernels/explain.hpp"
#include "kernels/probe.hpp"
#include "kernels/row_score.hpp"

#define TEXT(name) #name
#define NAME(name) TEXT(name)

namespace splinefm::SPLINEFM_ISA {

extern const EngineKernels engine_kernels;
extern const RankKernels rank_kernels;
extern const Kernels table;
const Kernels table{
    .isa = NAME(SPLINEFM_ISA),
    .lanes = LANES,
    .probe = probe,
    .engine = &engine_kernels,
    .explain = explain::loops,
    .rank = &rank_kernels,
    .score_row = score_row_of,
};

}  // namespace splinefm::SPLINEFM_ISA
