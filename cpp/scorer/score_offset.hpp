// A value of a row that is added to its score, or whose logarithm is: see splinefm.train.offsets.
#pragma once

#include <cmath>

namespace splinefm {

struct ScoreOffset {
    enum Kind { none, plain, logarithm };

    Kind kind = none;
    double unit = 1.0;     // of the scores
    double largest = 0.0;  // distance from zero, in this unit

    // What a number adds to the score; false if it cannot be an offset.
    bool convert(double x, float& added) const {
        if (!std::isfinite(x) || (kind == logarithm && !(x > 0.0))) return false;
        const double score = (kind == logarithm ? std::log(x) : x) / unit;
        added = static_cast<float>(score);
        return std::fabs(score) <= largest;
    }
};

}  // namespace splinefm
