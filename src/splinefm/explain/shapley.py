"""Exact Shapley values of the score, with the fields as players, or the columns if there are crosses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from splinefm.encode.tables.names import counted
from splinefm.explain.background import known_background
from splinefm.explain.effects import player_shares
from splinefm.explain.inputs import check_closed_form
from splinefm.explain.rows import read_rows
from splinefm.learn.fitted import Fitted

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ShapleyValues:
    """The contribution of each field to the score of each row, compared with the background.

    Parameters
    ----------
    values : array, shape (n, fields)
        Shapley values, in units of the score.
    base : float
        Mean score of the background; `base` plus the values of a row is its score.
    fields : tuple of str
        Names of the fields; of the columns if the model has crosses.
    """

    values: FloatArray
    base: float
    fields: tuple[str, ...]

    def __repr__(self) -> str:
        return f"ShapleyValues({len(self.values):,} rows, base {self.base:.5g}, {counted('field', self.fields)})"

    @property
    def scores(self) -> FloatArray:
        """The scores that were explained."""
        return np.asarray(self.base + self.values.sum(axis=1))


def shapley_values(fitted: Fitted, table: object, background: object, *, threads: int | None = None) -> ShapleyValues:
    """Exact interventional Shapley values of the score, with the fields as players.

    A coalition's worth is the mean score over the rows of the background, with the coalition's fields set to the values
    of the explained row. In closed form, each field of a pair gets half of what the pair changes. The average over the
    background needs only means, so a row costs one to two times as much as its prediction. Products of three fields
    need second moments of the background, and several times the time of a prediction.

    If the model has crosses, the players are columns. What crosses take part in needs the rows of the background: at
    most 500 of them, evenly spaced, unless `Background.of` is told otherwise.

    Parameters
    ----------
    fitted : Fitted
        A model of order 2 or 3.
    table : table, path, dataset or Slots
        The rows to explain; no Slots if the model has crosses.
    background : table, path, dataset, Slots or Background
        The rows to compare with.
    threads : int, optional
        All cores by default. The result does not depend on it.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> shapley = sf.shapley_values(fitted, table, background=table)
    >>> shapley.fields, shapley.values.shape
    (('x', 'c'), (200, 2))
    >>> bool(np.allclose(shapley.scores, fitted.scores(table), atol=1e-5))
    True
    """
    check_closed_form(fitted, "shapley_values")
    known = known_background(fitted, background, threads)
    rows = read_rows(fitted, table, threads)
    return ShapleyValues(player_shares(known, rows, threads), known.base, known.players.names)
