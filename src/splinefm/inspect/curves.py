"""Curves, bars and surfaces: the score along one or two fields, for one segment or for several."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import factorial
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray, IndexArray
from splinefm._cached import cached_property
from splinefm.encode.bases import BSpline, MultiResolution, Polynomial
from splinefm.encode.fields.contract import TokenKind
from splinefm.encode.fields.numerical import ORDINARY, first_matches
from splinefm.encode.schema import Single
from splinefm.encode.slots import expand_windows
from splinefm.encode.tables.names import quoted
from splinefm.encode.transforms.transform import Transform
from splinefm.inspect.axes import known_values
from splinefm.inspect.crossed import Crossed, bernstein, crossed_polynomial, polynomial_extrema, single_segment
from splinefm.train.losses import Loss

# Curves and bars: the score along one field, for one segment or for several.


class Extremum(NamedTuple):
    """Where a curve is largest or smallest: in the unit of the column, the value there, and the position in u."""

    at: Any
    value: Any
    u: Any


def segment_words(intercept: Any, loss: Loss) -> str:
    """The segment or segments of a view, in a few words for its repr.

    Examples
    --------
    >>> segment_words(0.25, Loss("squared")), segment_words(np.zeros(3), Loss("squared"))
    ('intercept 0.25, squared loss', '3 segments, squared loss')
    """
    several = np.ndim(intercept) > 0
    return f"{f'{len(intercept):,} segments' if several else f'intercept {intercept:.5g}'}, {loss} loss"


class _Family:
    """The view of one segment, or of several along the first axis of its arrays."""

    intercept: Any

    def __len__(self) -> int:
        """Number of segments of a family."""
        self._check_family()
        return len(self.intercept)

    def __bool__(self) -> bool:
        return True

    def _check_family(self) -> None:
        if not np.ndim(self.intercept):
            raise TypeError(f"this is the {type(self).__name__} of one segment; sf.segments makes several")


@dataclass(frozen=True, eq=False)
class _View(_Family):
    """What curves and bars share: an effect per feature of the field."""

    field: Any
    effects: FloatArray
    intercept: Any
    loss: Loss
    counts: FloatArray | None = None
    crossed: Crossed | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(along {self.field.name!r}, {segment_words(self.intercept, self.loss)})"

    def __call__(self, values: object, *, link: bool = False) -> FloatArray:
        """Scores at raw values; `link=True`: predictions (probability, mean or rate).

        Parameters
        ----------
        values : array
            Values of the field, missing and special ones included.
        link : bool
            Whether to convert scores to predictions.
        """
        if self.crossed is not None:
            column, shape = self.field.as_column(values)
            scores = self.crossed.scores([self.crossed.at_values(self.crossed.axes[0], column)])
            scores = scores.reshape(self.effects.shape[:-1] + shape)
        else:
            effects = _effects_at(self.field, self.effects, values)
            scores = effects + _more_axes(np.asarray(self.intercept), self.effects.ndim - 1, effects.ndim)
        return self.loss.predict(scores) if link else scores

    def __getitem__(self, number: Any) -> Self:
        """The view of one segment of a family, or of some of them."""
        self._check_family()
        crossed = None if self.crossed is None else self.crossed[number]
        return replace(self, effects=self.effects[number], intercept=_plain(self.intercept[number]), crossed=crossed)

    def mean(self) -> Self:
        """The mean of a family: with the rows of a table as segments, their mean score at each value of the column."""
        self._check_family()
        crossed = None if self.crossed is None else self.crossed.mean()
        effects, intercept = self.effects.mean(axis=0), float(np.mean(self.intercept))
        return replace(self, effects=effects, intercept=intercept, crossed=crossed)

    @property
    def tokens(self) -> dict[str, Any]:
        """Scores at the values that have a feature to themselves: special values ("= 0"), "missing", "rare"."""
        return {name: _plain(self.intercept + self.effects[..., i]) for i, name in enumerate(self._token_names())}

    @property
    def met_tokens(self) -> dict[str, Any]:
        """`tokens` without those that no training row had, if that is known: the model never learned them."""
        met = np.ones(self.effects.shape[-1]) if self.counts is None else self.counts
        return {name: scores for (name, scores), n in zip(self.tokens.items(), met, strict=False) if n > 0}

    @property
    def shown_tokens(self) -> dict[str, Any]:
        """`met_tokens` without the buckets of hashed categories, which have no name to show."""
        buckets = self.field.token_names(TokenKind.BUCKET)
        return {name: scores for name, scores in self.met_tokens.items() if name not in buckets}

    def with_crosses(self, crossed: Crossed) -> Self:
        """The view with all that varies along its column."""
        raise NotImplementedError

    def _token_names(self) -> list[str]:
        raise NotImplementedError


@dataclass(frozen=True, eq=False, repr=False)
class Curve(_View):
    """The score along a numerical field: β + Σ_i α_i B_i(T(z)); made by `segment`.

    Parameters
    ----------
    field : Numerical
        The field, with its transform T and basis B.
    effects : array
        The effect of each feature of the field: tokens, then basis functions.
    intercept : float
        β, the score without the field.
    loss : Loss
        The loss, which maps scores to predictions.
    counts : array, optional
        Number of training rows in which each feature is active.
    crossed : Crossed, optional
        The score with the crosses that contain the column.

    Examples
    --------
    >>> import splinefm as sf
    >>> x = sf.Numerical("x", sf.MinMax(0, 10), sf.BSpline(2, 1))
    >>> curve = Curve(x, np.array([5.0, 0, 1, 0]), 1.0, Loss("squared"))
    >>> curve([0.0, 2.5, 10.0, None])
    array([1. , 1.5, 1. , 6. ])
    >>> curve.maximum()
    Extremum(at=5.0, value=2.0, u=0.5)
    >>> curve.tokens
    {'missing': 6.0}
    """

    @property
    def coefficients(self) -> FloatArray:
        """α: one number per basis function.

        Where crosses contain the column, the functions are Bernstein polynomials of a higher degree, piece by piece.
        """
        if self.crossed is not None:
            return bernstein(self.spline, self.intercept)
        return self.effects[..., self.field.n_tokens :]

    @property
    def spline(self) -> Any:
        """The score as a function of u, β included: a SciPy `BSpline`, or a `PPoly` for several resolutions.

        Where crosses contain the column it is a `PPoly` too, of a higher degree: the field and its crosses multiply. A
        family has the axis of its segments last, as SciPy does. Raises `AttributeError` if the basis is neither a
        spline nor a polynomial, or if a cross reads the column in another way.
        """
        if self.crossed is not None:
            try:
                return self._polynomial if self.effects.ndim > 1 else single_segment(self._polynomial)
            except ValueError as error:
                raise AttributeError(str(error)) from error
        basis = self.field.basis
        values = np.moveaxis(self.coefficients, -1, 0)
        if isinstance(basis, BSpline):
            return _scipy_spline(basis, values + self.intercept)
        if isinstance(basis, MultiResolution):
            return _sum_of_levels(basis, values, self.intercept)
        if isinstance(basis, Polynomial):
            return _scipy_polynomial(basis, values, self.intercept)
        raise AttributeError(
            f"the basis of {self.field.name!r}, {type(basis).__name__}, is not a spline: "
            "use `coefficients`, or call the curve on values"
        )

    def derivative(self, values: object) -> FloatArray:
        """Change of the score per unit of the column: the spline's derivative times the transform's.

        It is 0 beyond the ends of the transform and NaN at special and missing values. `spline.derivative()` is the
        derivative by u.
        """
        column, shape = self.field.as_column(values)
        x = self.field.read_axis(column)
        token = self.field.find_tokens(x)
        ordinary = np.ones(len(x), bool) if token is None else token == ORDINARY
        inside = np.where(ordinary, x, 0.0)
        transform = self.field.transform
        by_u = np.moveaxis(self.spline(transform(inside), nu=1), 0, -1)
        slope = np.where(ordinary, by_u * _transform_slope(transform, inside), np.nan)
        return np.asarray(slope.reshape(self.effects.shape[:-1] + shape))

    @cached_property
    def known_values(self) -> FloatArray | None:
        """The values to show, in increasing order, if nothing is between them; None for all numbers of a range.

        These are days of the week, and values that a cross reads as categories.
        """
        crossed = self.crossed
        return known_values(self.field, () if crossed is None else crossed.sources.parts[crossed.axes[0]])

    def maximum(self, low: float | None = None, high: float | None = None, *, link: bool = False) -> Extremum:
        """The largest score of ordinary values, and where it is: exact, from the piecewise polynomial.

        Special and missing values do not count (see `tokens`); next to one, the result is the limit. If there are
        `known_values`, the result is the largest of their scores.

        Parameters
        ----------
        low, high : float, optional
            Search only between these raw values.
        link : bool
            Return the prediction there instead of the score.
        """
        return self._extremum(1.0, low, high, link)

    def minimum(self, low: float | None = None, high: float | None = None, *, link: bool = False) -> Extremum:
        """The smallest score of ordinary values, and where it is; see `maximum`."""
        return self._extremum(-1.0, low, high, link)

    def _token_names(self) -> list[str]:
        names: list[str] = self.field.feature_names()[: self.field.n_tokens]
        return names

    @cached_property
    def _polynomial(self) -> Any:
        assert self.crossed is not None
        return crossed_polynomial(self.crossed)

    def with_crosses(self, crossed: Crossed) -> Self:
        """The curve with all that varies along its column; the effects of tokens are those with crosses."""
        column = pa.array([*first_matches(self.field.rules), None][: self.field.n_tokens], pa.float64())
        scores = crossed.scores([crossed.at_values(crossed.axes[0], column)])
        tokens = scores - np.asarray(self.intercept)[:, None]
        effects = np.concatenate([tokens, self.effects[:, self.field.n_tokens :]], axis=1)
        return replace(self, effects=effects, crossed=crossed)

    def _extremum(self, sign: float, low: float | None, high: float | None, link: bool) -> Extremum:
        if self.known_values is not None:
            return self._known_extremum(self.known_values, sign, low, high, link)
        if self.crossed is not None:
            u, value = polynomial_extrema(self._polynomial, sign, *self.field.unit_range(low, high))
            return self._found(self.field.raw(u), value, u, link)
        coefficients = np.atleast_2d(self.coefficients)
        u, segment = self._candidates(*self.field.unit_range(low, high))
        start, weight = self.field.basis(u)
        effect = (coefficients[segment[:, None], expand_windows(start, self.field.basis.widths)] * weight).sum(axis=1)
        order = np.lexsort((-sign * effect, segment))
        best = order[np.searchsorted(segment[order], np.arange(len(coefficients)))]
        return self._found(self.field.raw(u[best]), self.intercept + effect[best], u[best], link)

    def _known_extremum(
        self, known: FloatArray, sign: float, low: float | None, high: float | None, link: bool
    ) -> Extremum:
        self.field.unit_range(low, high)  # checks the ends
        x = known[(known >= (-np.inf if low is None else low)) & (known <= (np.inf if high is None else high))]
        if not len(x):
            raise ValueError(
                f"{self.field.name!r} has no known value from {low} to {high}; "
                f"its {len(known):,} values go from {known[0]:g} to {known[-1]:g}"
            )
        scores = np.atleast_2d(self(x))
        best = np.argmax(sign * scores, axis=1)
        return self._found(x[best], scores[np.arange(len(scores)), best], self.field.transform(x[best]), link)

    def _found(self, at: FloatArray, value: FloatArray, u: FloatArray, link: bool) -> Extremum:
        found = at, self.loss.predict(value) if link else value, u
        return Extremum(*(found if self.effects.ndim > 1 else (float(part[0]) for part in found)))

    def _candidates(self, first: float, last: float) -> tuple[FloatArray, IndexArray]:
        """Candidates for extrema in [first, last], and the segment of each."""
        n = 1 if self.effects.ndim == 1 else len(self.effects)
        breaks, degree = self.field.pieces()
        inner = np.unique(np.clip(breaks, first, last))
        if degree == 0:  # a point inside each step: rounding could move an edge to the step beside it
            inner = (inner[:-1] + inner[1:]) / 2
        shared = np.concatenate([inner, [first, last]])
        points, segments = [np.tile(shared, n)], [np.repeat(np.arange(n), len(shared))]
        if degree > 1:
            roots = _spline_roots(self.spline, breaks, degree)
            points.append(np.concatenate(roots))
            segments.append(np.repeat(np.arange(n), [len(part) for part in roots]))
        u, segment = np.concatenate(points), np.concatenate(segments)
        kept = (u >= first) & (u <= last)  # drops NaN, which SciPy uses for "zero on a whole piece"
        return u[kept], segment[kept]


@dataclass(frozen=True, eq=False, repr=False)
class Bars(_View):
    """The score of each category of a field; made by `segment`.

    Along a multi-valued field a bar is the score of a list with that one element.

    Parameters
    ----------
    field : Categorical or MultiValued
        The field.
    effects : array
        The effect of each feature of the field: tokens, then categories.
    intercept : float
        The score without the field.
    loss : Loss
        The loss, which maps scores to predictions.
    counts : array, optional
        Number of training rows in which each feature is active.
    crossed : Crossed, optional
        The score with the crosses that contain the column.

    Examples
    --------
    >>> import splinefm as sf
    >>> bars = Bars(sf.Categorical("c", vocabulary=["a", "b"]), np.array([9.0, 8.0, 1.0, 2.0]), 0.5, Loss("squared"))
    >>> dict(zip(bars.names, bars.scores.tolist())), bars.tokens
    ({'a': 1.5, 'b': 2.5}, {'missing': 9.5, 'rare': 8.5})
    """

    @property
    def names(self) -> list[str]:
        """The categories, in the order of the vocabulary: the most frequent first."""
        names: list[str] = self.field.vocabulary.names.to_pylist()
        return names

    @property
    def scores(self) -> FloatArray:
        """The score of each category."""
        return np.asarray(np.asarray(self.intercept)[..., None] + self.effects[..., self._n_tokens :])

    @property
    def predictions(self) -> FloatArray:
        """The prediction for each category."""
        return self.loss.predict(self.scores)

    def with_crosses(self, crossed: Crossed) -> Self:
        """The bars with all that varies along their column."""
        scores = crossed.scores([crossed.at_features(crossed.axes[0])])
        return replace(self, effects=scores - np.asarray(self.intercept)[:, None], crossed=crossed)

    @property
    def _n_tokens(self) -> int:
        return int(self.effects.shape[-1] - len(self.field.vocabulary))

    def _token_names(self) -> list[str]:
        names: list[str] = self.field.feature_names()[: self._n_tokens]
        return names


# Surfaces: the score along two fields, for one segment or for several.


@dataclass(frozen=True, eq=False)
class Surface(_Family):
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
        left, right = _more_axes(left, 0, n_axes + 1), _more_axes(right, 0, n_axes + 1)
        at = self.scales.ndim - 1
        scale = np.expand_dims(self.scales, tuple(range(at, at + n_axes)))
        pairs = np.einsum("...k,...k->...", left * scale, right)
        scores = pairs
        for part in (a, b, np.asarray(self.intercept)):
            scores = scores + _more_axes(part, at, at + n_axes)
        return self.loss.predict(scores) if link else np.asarray(scores)

    def __getitem__(self, number: Any) -> Surface:
        """The surface of one segment of a family, or of some of them."""
        self._check_family()
        effects = self.effects[0][number], self.effects[1][number]
        crossed = None if self.crossed is None else self.crossed[number]
        intercept = _plain(self.intercept[number])
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
        left, right = (values[_first_feature(item) :] for item, values in zip(self.fields, self.factors, strict=True))
        return np.asarray((left * self.scales[..., None, :]) @ right.T)

    @property
    def main_effects(self) -> tuple[FloatArray, FloatArray]:
        """a and b: the main effects of the basis functions (or categories) of either field."""
        self._check_pairs()
        first, second = (
            values[..., _first_feature(item) :] for item, values in zip(self.fields, self.effects, strict=True)
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
        matrix, shape = _weights_at(item, values)
        factors = (matrix @ self.factors[side]).reshape(*shape, -1)
        return _effects_at(item, self.effects[side], values), factors

    def _crossed_scores(self, crossed: Crossed, first: object, second: object) -> FloatArray:
        """Scores at values that broadcast, each of which is encoded once."""
        sides = [item.as_column(values) for item, values in zip(self.fields, (first, second), strict=True)]
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


def _first_feature(item: Single) -> int:
    """Features before the basis functions or categories."""
    return item.n_tokens if item.is_numerical else item.layout.n_features - item.n_categories


def _weights_at(item: Single, values: object) -> tuple[Any, tuple[int, ...]]:
    """Weights of features at raw values, a sparse matrix of shape (n, features), and the shape of the values."""
    from scipy.sparse import csr_array

    column, shape = item.as_column(values)
    features, weight = item.features_on_axis(column)
    row_ptr = np.arange(len(features) + 1) * features.shape[1]
    return csr_array((weight.ravel(), features.ravel(), row_ptr), shape=(len(features), item.layout.n_features)), shape


def _effects_at(item: Single, effects: FloatArray, values: object) -> FloatArray:
    """Σ_i effects_i weight_i at raw values: shape (segments.., values..)."""
    matrix, shape = _weights_at(item, values)
    return np.asarray((matrix @ effects.T).T.reshape(effects.shape[:-1] + shape))


def _plain(value: Any) -> Any:
    """A float instead of a NumPy number; arrays stay."""
    return value if np.ndim(value) else float(value)


def _more_axes(array: FloatArray, at: int, n_axes: int) -> FloatArray:
    """The array with axes of length 1 inserted at `at`, until it has `n_axes`."""
    return np.expand_dims(array, tuple(range(at, at + n_axes - array.ndim)))


def _scipy_spline(basis: BSpline, values: FloatArray) -> Any:
    from scipy.interpolate import BSpline as ScipySpline

    if basis.periodic:  # the functions at the end are those at the start
        values = values[np.arange(basis.segments + basis.degree) % basis.segments]
    return ScipySpline(basis.extended_knots, values, basis.degree, extrapolate="periodic" if basis.periodic else False)


def _sum_of_levels(basis: MultiResolution, values: FloatArray, intercept: Any) -> Any:
    from scipy.interpolate import PPoly

    ends = np.cumsum([0, *basis.sizes])
    levels = [_scipy_spline(level, values[ends[i] : ends[i + 1]]) for i, level in enumerate(basis.levels)]
    breaks = basis.breaks
    # Taylor coefficients at the left end of each piece, the highest power first.
    powers = range(basis.degree, -1, -1)
    c = np.stack([sum(level(breaks[:-1], nu=power) for level in levels) / factorial(power) for power in powers])
    c[-1] += intercept
    return PPoly(c, breaks, extrapolate=False)


def _scipy_polynomial(basis: Polynomial, values: FloatArray, intercept: Any) -> Any:
    from scipy.interpolate import BPoly, PPoly

    n, breaks = basis.degree + 1, np.array([0.0, 1.0])
    if basis.family == "bernstein":
        powers = PPoly.from_bernstein_basis(BPoly(np.eye(n)[:, None, :], breaks)).c[:, 0, :]
    else:
        family = np.polynomial.Chebyshev if basis.family == "chebyshev" else np.polynomial.Legendre
        each = [family.basis(i, domain=[0, 1]) for i in range(n)]
        coefs = [item.convert(kind=np.polynomial.Polynomial, domain=[0, 1], window=[0, 1]).coef for item in each]
        powers = np.stack([np.pad(coef, (0, n - len(coef))) for coef in coefs], axis=1)[::-1]
    c = np.tensordot(powers, values, axes=1)[:, None]
    c[-1] += intercept
    return PPoly(c, breaks, extrapolate=False)


def _spline_roots(spline: Any, breaks: FloatArray, degree: int) -> list[FloatArray]:
    """Where the derivative of a spline is zero, for each segment."""
    from scipy.interpolate import PPoly

    powers = range(degree, 0, -1)
    c = np.stack([spline(breaks[:-1], nu=power) / factorial(power - 1) for power in powers])
    found = PPoly(c, breaks).roots(discontinuity=False, extrapolate=False)
    return [found] if c.ndim == 2 else list(found)


def _transform_slope(transform: Transform, x: FloatArray) -> FloatArray:
    """dT / dx; 0 where the transform clips."""
    derivative = getattr(transform, "derivative", None)
    if derivative is not None:
        return np.asarray(derivative(x), np.float64)
    step = 1e-6 * np.maximum(1.0, np.abs(x))  # nothing is known of a transform of the user's
    return (transform(x + step) - transform(x - step)) / (2.0 * step)
