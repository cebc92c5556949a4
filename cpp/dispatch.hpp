// Which instruction set the kernels use: chosen once, when the module is loaded.
//
// The files of kernels/ are compiled once per instruction set, each time in another namespace (`SPLINEFM_ISA`),
// and export one table of functions. Everything in such a file must be in that namespace: of an inline function that
// two sets share, the linker keeps one copy, which might have instructions that the processor lacks.
#pragma once

#include <string>
#include <vector>

#include "kernels/table.hpp"

namespace splinefm {

// Names of the instruction sets that this processor has and that were compiled, slowest first.
std::vector<std::string> available_isas();

// The table that SPLINEFM_ISA names ("baseline" is the slowest on every machine), or that of the fastest set.
// Throws std::runtime_error for a name that is unknown or not available here.
const Kernels& choose_kernels();

// Whether one was chosen, and the table in use.
bool has_kernels();
const Kernels& kernels();

}  // namespace splinefm
