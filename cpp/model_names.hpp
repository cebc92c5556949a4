// Names of models at the border to Python. Kernels do not include this: they are compiled once per instruction set, and
// inline functions of the standard library must not be.
#pragma once

#include <string>

#include "model.hpp"

namespace splinefm {

// The model of a name; throws std::invalid_argument.
Model model_of(const std::string& name);

// The model whose formula computes the scores: a LowRankFwFM with its weights multiplied out is an FwFM.
Model scored_as(Model model);

}  // namespace splinefm
