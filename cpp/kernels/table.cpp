#include "kernels/table.hpp"

#include "kernels/explain.hpp"
#include "kernels/probe.hpp"

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
};

}  // namespace splinefm::SPLINEFM_ISA
