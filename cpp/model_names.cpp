#include "model_names.hpp"

#include <array>
#include <stdexcept>

namespace splinefm {

Model model_of(const std::string& name) {
    constexpr std::array NAMES{"fm", "fwfm", "low_rank", "fmfm", "ffm", "higher"};  // in the order of the enumerators
    std::string all;
    for (std::size_t i = 0; i < NAMES.size(); ++i) {
        if (name == NAMES[i]) return static_cast<Model>(i);
        all += (i ? ", " : "") + std::string(NAMES[i]);
    }
    throw std::invalid_argument("model must be one of " + all + ", got '" + name + "'");
}

Model scored_as(Model model) { return model == Model::low_rank ? Model::fwfm : model; }

}  // namespace splinefm
