// The models of the family. Python passes `Model.kind`: see `model_names.hpp`.
#pragma once

#include <cstdint>

namespace splinefm {

enum class Model { fm, fwfm, low_rank, fmfm, ffm, higher };

// A model and its sizes. The first k numbers of a vector meet in pairs, `third` more in triples. The k numbers consist
// of `members` parts of equal length, each with weights of its own. In an FFM a vector has k numbers for every field.
struct ModelSettings {
    Model model;
    std::int64_t k, third, members;
    std::int64_t order;  // of a HigherOrderFM: the most vectors in one product
};

}  // namespace splinefm
