// The loops of exact explanations of one instruction set; see explain/task.hpp.
#pragma once

#include "explain/task.hpp"

namespace splinefm::SPLINEFM_ISA::explain {

// Those for a model and vectors of k numbers.
splinefm::explain::Loops loops(splinefm::Model model, std::int64_t k);

}  // namespace splinefm::SPLINEFM_ISA::explain
