#include "kernels/table.hpp"

#include "kernels/probe.hpp"

#define TEXT(name) #name
#define NAME(name) TEXT(name)

namespace splinefm::SPLINEFM_ISA {

extern const RankKernels rank_kernels;
extern const Kernels table;
const Kernels table{
    .isa = NAME(SPLINEFM_ISA),
    .lanes = LANES,
    .probe = probe,
    .rank = &rank_kernels,
};

}  // namespace splinefm::SPLINEFM_ISA
