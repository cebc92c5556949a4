"""Surfaces: the score along two fields, for one segment or for several."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.fields.axis import effects_at, first_feature, more_axes, plain, weights_at
from splinefm.encode.schema import Field
from splinefm.learn.losses import Loss

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

    fields: tuple[Field, Field]
    effects: tuple[FloatArray, FloatArray] = dataclasses.field(repr=False)
    factors: tuple[FloatArray, FloatArray] = dataclasses.field(repr=False)
    scales: FloatArray = dataclasses.field(repr=False)
    intercept: Any
    loss: Loss = dataclasses.field(repr=False)
    counts: tuple[FloatArray | None, FloatArray | None] = dataclasses.field(default=(None, None), repr=False)

    def __call__(self, first: object, second: object, *, link: bool = False) -> FloatArray:
        """Scores at raw values of the two fields, which broadcast: `surface(x[:, None], y)` is a grid.

        Parameters
        ----------
        first, second : arrays
            Values of the fields.
        link : bool
            Whether to convert scores to predictions.
        """
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
        return replace(self, effects=effects, scales=self.scales[number], intercept=plain(self.intercept[number]))

    @property
    def coefficients(self) -> FloatArray:
        """C: the effects of pairs of basis functions (or categories), shape (functions, functions)."""
        left, right = (values[first_feature(item) :] for item, values in zip(self.fields, self.factors, strict=True))
        return np.asarray((left * self.scales[..., None, :]) @ right.T)

    @property
    def main_effects(self) -> tuple[FloatArray, FloatArray]:
        """a and b: the main effects of the basis functions (or categories) of either field."""
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

    def _check_family(self) -> None:
        if self.scales.ndim == 1:
            raise TypeError("this is the Surface of one segment; sf.segments makes several")
