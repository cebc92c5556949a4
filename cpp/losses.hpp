// The losses: names and ranges of parameters, which Python reads as `_core.losses`, and the formulas of value and
// slope.
//
// To add one: an enumerator, a line of the table and a case of `loss_of_row`. The formula in NumPy, its link and its
// best constant are in src/splinefm/train/losses.py, the formula on tensors in src/splinefm/model/torch/losses.py.
#pragma once

#include <cmath>
#include <cstdint>

namespace splinefm {

enum class LossKind { logistic, squared, poisson, gamma, tweedie, quantile, huber, softmax };

// A name, and the limits of the parameter, both excluded; a loss with limits of 0 has none.
struct LossEntry {
    const char* name;
    double low, high;
};

// In the order of the enumerators.
inline constexpr LossEntry LOSSES[] = {
    {"logistic", 0.0, 0.0},   {"squared", 0.0, 0.0}, {"poisson", 0.0, 0.0},
    {"gamma", 0.0, 0.0},      {"tweedie", 1.0, 2.0},  // the power
    {"quantile", 0.0, 1.0},                           // the level
    {"huber", 0.0, HUGE_VAL},                         // the threshold
    {"softmax", 0.0, 0.0},
};
inline constexpr int N_LOSSES = sizeof(LOSSES) / sizeof(LOSSES[0]);
static_assert(static_cast<int>(LossKind::softmax) + 1 == N_LOSSES);

// A loss and its parameter, 0 if it has none.
struct Loss {
    LossKind kind;
    double parameter;
};

struct LossOfRow {
    double value, slope;
};

#ifdef SPLINEFM_ISA
namespace SPLINEFM_ISA {

// The loss of a row with target y, and its derivative by the score. The slope of a NaN is NaN for every loss. A softmax
// needs the scores of all classes: see `set_softmax`.
inline LossOfRow loss_of_row(const Loss& loss, double score, double y) {
    const double over = score - y;
    switch (loss.kind) {  // without a default, so that the compiler names a kind that has no case
    case LossKind::logistic: {
        const double small = std::exp(-std::fabs(score));
        return {(score > 0.0 ? score : 0.0) + std::log1p(small) - y * score,
                (score >= 0.0 ? 1.0 : small) / (1.0 + small) - y};
    }
    case LossKind::squared: return {0.5 * over * over, over};
    case LossKind::poisson: {
        const double prediction = std::exp(score);
        return {prediction - y * score, prediction - y};
    }
    case LossKind::gamma: {  // half the deviance
        const double ratio = y * std::exp(-score);
        return {ratio - 1.0 + score - std::log(y), 1.0 - ratio};
    }
    case LossKind::tweedie: {  // half the deviance
        const double first = 1.0 - loss.parameter, second = 2.0 - loss.parameter;
        const double expected = std::exp(second * score), seen = y * std::exp(first * score);
        const double best = y > 0.0 ? std::exp(second * std::log(y)) / (first * second) : 0.0;
        return {expected / second - seen / first + best, expected - seen};
    }
    case LossKind::quantile: {
        const double above = 1.0 - loss.parameter, below = -loss.parameter;
        return {(over > 0.0 ? above : below) * over, over > 0.0 ? above : over < 0.0 ? below : over};
    }
    case LossKind::huber: {
        const double delta = loss.parameter, size = std::fabs(over);
        return {size <= delta ? 0.5 * over * over : delta * (size - 0.5 * delta), over > delta    ? delta
                                                                                  : over < -delta ? -delta
                                                                                                  : over};
    }
    case LossKind::softmax: break;
    }
    return {NAN, NAN};  // an unknown kind of loss never trains as another one
}

}  // namespace SPLINEFM_ISA
#endif

}  // namespace splinefm
