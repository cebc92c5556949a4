"""The score as intercept + main effects + pair effects: the functional ANOVA decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from splinefm.explain.background import known_background
from splinefm.explain.inputs import check_quadratic, encode_rows, field_number
from splinefm.explain.terms import field_effects
from splinefm.learn.fitted import Fitted

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The score of each row as intercept + main effects + pair effects.

    Parameters
    ----------
    intercept : float
        Mean score if the fields were independent, each distributed as in the background.
    main : array, shape (n, fields)
        Main effects.
    pairs : array, shape (n, fields (fields - 1) / 2)
        Pair effects, in the order of `pair_fields`.
    fields : tuple of str
        Names of the fields.
    """

    intercept: float
    main: FloatArray
    pairs: FloatArray
    fields: tuple[str, ...]

    @property
    def pair_fields(self) -> tuple[tuple[str, str], ...]:
        """The two fields of every column of `pairs`."""
        return tuple(combinations(self.fields, 2))

    @property
    def scores(self) -> FloatArray:
        """The scores that were decomposed."""
        return np.asarray(self.intercept + self.main.sum(axis=1) + self.pairs.sum(axis=1))

    def pair(self, one: str, other: str) -> FloatArray:
        """The pair effects of two fields, in any order."""
        f, e = sorted(field_number(self.fields, name) for name in (one, other))
        if f == e:
            raise ValueError(f"a pair effect has two different fields, got {one!r} twice")
        return self.pairs[:, self.pair_fields.index((self.fields[f], self.fields[e]))]


def decompose(fitted: Fitted, table: object, background: object, *, threads: int | None = None) -> Decomposition:
    """The score as intercept + main effects + pair effects: the functional ANOVA decomposition.

    With z_f = s_f - m_f, the vector of a field less its mean over the background, the pair effect is z_f' M_fe z_e and
    the main effect a_f + z_f' Σ_{e≠f} M_fe m_e, less its mean over the background. The effects have mean zero, and are
    orthogonal to each other, if fields are drawn independently, each from its values in the background (the product of
    the marginal distributions). Over the rows of the background themselves the main effects have mean zero too; the
    pair effects only where fields are uncorrelated.

    Parameters
    ----------
    fitted : Fitted
        A model; not a HigherOrderFM.
    table : table, path, dataset or Slots
        The rows. The result holds a number for every row and pair of fields: choose a sample of a large table.
    background : table, path, dataset, Slots or Background
        The rows that say what is average.
    threads : int, optional
        All cores by default. The result does not depend on it.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> parts = sf.decompose(fitted, table, background=table)
    >>> parts.main.shape, parts.pair_fields
    ((200, 2), (('x', 'c'),))
    >>> bool(np.allclose(parts.scores, fitted.scores(table), atol=1e-5))
    True
    """
    check_quadratic(fitted, "decompose")
    known = known_background(fitted, background, threads)
    slots = encode_rows(fitted, table, threads)
    n_fields = len(slots.layout.fields)
    effects = field_effects(fitted, slots, known.center, known.slope, known.inner, threads)
    intercept = float(fitted.params["bias"][0]) + 0.5 * float((known.center * known.slope).sum()) + known.inner.sum()
    return Decomposition(float(intercept), effects[:, :n_fields], effects[:, n_fields:], slots.layout.names)
