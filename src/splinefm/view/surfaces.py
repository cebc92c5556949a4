"""Surfaces: the score along two fields, for one segment or for several."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.fields.axis import as_column, effects_at, first_feature, more_axes, plain, weights_at
from splinefm.encode.schema import Single
from splinefm.encode.tables.names import quoted
from splinefm.learn.losses import Loss
from splinefm.view.crossed import Crossed
from splinefm.view.curves import segment_words
from splinefm.view.known import known_values

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Surface:
    """The score along two fields: β + Σ_i a_i A_i + Σ_j b_j B_j + Σ_ij C_ij A_i B_j; made by `segment`.

    A_i and B_j are the basis functions of the two fields (indicators, for a categorical field).

    Parameters
    ----------
    fields : pair of fields
        The two fields.
    effects : pair of arrays
        The main effect of each feature of either field.
    factors : pair of arrays, shapes (features of the first, k) and (features of the second, k)
        L and R of C = L diag(s) R'.
    scales : array, shape (k,)
        s.
    intercept : float
        β, the score without the two fields.
    loss : Loss
        The loss, which maps scores to predictions.
    counts : pair of arrays, optional
        Number of training rows in which each feature of either field is active.
    crossed : Crossed, optional
        The score with the crosses that contain one of the columns, instead of factors and scales.

    Examples
    --------
    >>> import splinefm as sf
    >>> x = sf.Numerical("x", sf.MinMax(0, 1), sf.BSpline(1, 1), missing="error")
    >>> c = sf.Categorical("c", vocabulary=["a", "b"])
    >>> factors = np.array([[0.0], [1.0]]), np.array([[0.0], [0.0], [2.0], [4.0]])
    >>> surface = Surface((x, c), (np.zeros(2), np.zeros(4)), factors, np.ones(1), 1.0, Loss("squared"))
    >>> surface([0.0, 0.5, 0.5], ["a", "a", "b"]), surface.rank
    (array([1., 2., 3.]), 1)
    """

    fields: tuple[Single, Single]
    effects: tuple[FloatArray, FloatArray]
    factors: tuple[FloatArray, FloatArray]
    scales: FloatArray
    intercept: Any
    loss: Loss
    counts: tuple[FloatArray | None, FloatArray | None] = (None, None)
    crossed: Crossed | None = None

    def __repr__(self) -> str:
        names = quoted([item.name for item in self.fields])
        return f"Surface(along {names}, {segment_words(self.intercept, self.loss)})"

    def __call__(self, first: object, second: object, *, link: bool = False) -> FloatArray:
        """Scores at raw values of the two fields, which broadcast: `surface(x[:, None], y)` is a grid.

        Parameters
        ----------
        first, second : arrays
            Values of the fields.
        link : bool
            Whether to convert scores to predictions.
        """
        if self.crossed is not None:
            scores = self._crossed_scores(self.crossed, first, second)
            return self.loss.predict(scores) if link else scores
        (a, left), (b, right) = map(self._along, (0, 1), (first, second))
        n_axes = max(left.ndim, right.ndim) - 1
        left, right = more_axes(left, 0, n_axes + 1), more_axes(right, 0, n_axes + 1)
        at = self.scales.ndim - 1
        scale = np.expand_dims(self.scales, tuple(range(at, at + n_axes)))
        pairs = np.einsum("...k,...k->...", left * scale, right)
        scores = pairs
        for part in (a, b, np.asarray(self.intercept)):
            scores = scores + more_axes(part, at, at + n_axes)
        return self.loss.predict(scores) if link else np.asarray(scores)

    def __len__(self) -> int:
        """Number of segments of a family."""
        self._check_family()
        return len(self.scales)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, number: Any) -> Surface:
        """The surface of one segment of a family, or of some of them."""
        self._check_family()
        effects = self.effects[0][number], self.effects[1][number]
        crossed = None if self.crossed is None else self.crossed[number]
        intercept = plain(self.intercept[number])
        return replace(self, effects=effects, scales=self.scales[number], intercept=intercept, crossed=crossed)

    def mean(self) -> Surface:
        """The mean of a family: with the rows of a table as segments, their mean score at each pair of values."""
        self._check_family()
        crossed = None if self.crossed is None else self.crossed.mean()
        effects = self.effects[0].mean(axis=0), self.effects[1].mean(axis=0)
        intercept, scales = float(np.mean(self.intercept)), self.scales.mean(axis=0)
        return replace(self, effects=effects, scales=scales, intercept=intercept, crossed=crossed)

    def known_values(self, side: int) -> FloatArray | None:
        """The values of one of the fields to show, if nothing is between them; see `Curve.known_values`."""
        parts = () if self.crossed is None else self.crossed.sources.parts.get(self.crossed.axes[side], ())
        return known_values(self.fields[side], parts)

    @property
    def coefficients(self) -> FloatArray:
        """C: the effects of pairs of basis functions (or categories), shape (functions, functions)."""
        self._check_pairs()
        left, right = (values[first_feature(item) :] for item, values in zip(self.fields, self.factors, strict=True))
        return np.asarray((left * self.scales[..., None, :]) @ right.T)

    @property
    def main_effects(self) -> tuple[FloatArray, FloatArray]:
        """a and b: the main effects of the basis functions (or categories) of either field."""
        self._check_pairs()
        first, second = (
            values[..., first_feature(item) :] for item, values in zip(self.fields, self.effects, strict=True)
        )
        return first, second

    @property
    def rank(self) -> Any:
        """The numerical rank of `coefficients`, at most k; k + third with products of three."""
        rank = np.linalg.matrix_rank(self.coefficients)
        return rank if np.ndim(rank) else int(rank)

    def _along(self, side: int, values: object) -> tuple[FloatArray, FloatArray]:
        """Main effects, shape (segments.., values..), and the factors at the values, shape (values.., k)."""
        item = self.fields[side]
        matrix, shape = weights_at(item, values)
        factors = (matrix @ self.factors[side]).reshape(*shape, -1)
        return effects_at(item, self.effects[side], values), factors

    def _crossed_scores(self, crossed: Crossed, first: object, second: object) -> FloatArray:
        """Scores at values that broadcast, each of which is encoded once."""
        sides = [as_column(item, values) for item, values in zip(self.fields, (first, second), strict=True)]
        shape = np.broadcast_shapes(*(side for _, side in sides))
        points = []
        for axis, (column, side) in zip(crossed.axes, sides, strict=True):
            rows = np.broadcast_to(np.arange(len(column)).reshape(side), shape).ravel()
            points.append(crossed.at_values(axis, column).rows(rows))
        return crossed.scores(points).reshape(*self.scales.shape[:-1], *shape)

    def _check_pairs(self) -> None:
        if self.crossed is not None:
            names = quoted([self.crossed.fitted.encoder.fields[f].name for f in self.crossed.along])
            raise AttributeError(
                f"the surface is a sum of products of {names}, not of pairs of basis functions of two fields: "
                "call it on values"
            )

    def _check_family(self) -> None:
        if self.scales.ndim == 1:
            raise TypeError("this is the Surface of one segment; sf.segments makes several")
