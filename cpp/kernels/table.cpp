#include "kernels/table.hpp"

#include "kernels/explain.hpp"
#include "kernels/probe.hpp"

#define TEXT(name) #name
#define NAME(name) TEXT(name)

namespace splinefm::SPLINEFM_ISA {

extern const Kernels table;
const Kernels table{
    .isa = NAME(SPLINEFM_ISA),
    .lanes = LANES,
    .probe = probe,
    .explain = explain::loops,
};

}  // namespace splinefm::SPLINEFM_ISA
