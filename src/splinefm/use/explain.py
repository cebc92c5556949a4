"""Exact explanations: Shapley values, partial dependence, main and pair effects, importance.

The models (all but the HigherOrderFM) are quadratic in the vectors of their fields. With s_f the sum of the unit
vectors of field f, and a_f what the field adds on its own (its linear part, and the products of its units),

    score = b + Σ_f a_f + Σ_{f<e} s_f' M_fe s_e

All that an explanation needs of a background is then the mean m_f of every s_f and a few numbers per field, so that its
cost does not grow with the rows of the background, and nothing has to be sampled.

Each kind of explanation has a module of its own; here they are together.
"""

from splinefm.use.background import Background
from splinefm.use.decomposition import Decomposition, decompose
from splinefm.use.dependence import individual_curves, partial_dependence
from splinefm.use.importance import Importance, importance
from splinefm.use.shapley import ShapleyValues, shapley_values

__all__ = [
    "Background",
    "Decomposition",
    "Importance",
    "ShapleyValues",
    "decompose",
    "importance",
    "individual_curves",
    "partial_dependence",
    "shapley_values",
]
