// The models of the family. Python passes `Model.kind`: see `model_names.hpp`.
#pragma once

namespace splinefm {

enum class Model { fm, fwfm, low_rank, fmfm, ffm, higher };

}  // namespace splinefm
