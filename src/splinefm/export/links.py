"""How a prediction follows from a score, as a formula for the readers of exported files."""

from __future__ import annotations

from splinefm.train.losses import Loss

_FORMULAS = {
    "logistic": "1 / (1 + exp(-score))",
    "identity": "center + scale * score",
    "log": "scale * exp(score)",
    "softmax": "exp(score) / sum of exp(scores of all classes)",
}


def link_formula(loss: Loss, *, numbers: bool = False) -> str:
    """Return the formula of a prediction, with the names of `center` and `scale` or with their numbers.

    Examples
    --------
    >>> link_formula(Loss("squared")), link_formula(Loss("gamma", scale=2.5), numbers=True)
    ('center + scale * score', '2.5 * exp(score)')
    """
    formula = _FORMULAS[loss.link]
    if numbers:
        formula = formula.replace("center", repr(float(loss.center))).replace("scale", repr(float(loss.scale)))
    return formula
