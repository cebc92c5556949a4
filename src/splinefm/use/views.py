"""Segmentized views: the score along one or two columns for fixed values of the others, in closed form.

A field with sum reduction is one vector p_f = Σ_i weight_i v_i, and the score of every model is affine in it:

    score = β + Σ_i α_i weight_i,    α_i = w_i + g' v_i,    g = ∂ score / ∂ p_f

where β and g depend on the other fields only. With the basis functions as weights that is a spline in u = T(z) (the
paper's spanning lemma). Along two fields the pairs of rows add Σ_ij C_ij weight_i weight_j (pairwise lemma), and
C = L diag(s) R' has at most the rank k. All of it is computed in float64 from the rows that a segment touches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.bases import Polynomial
from splinefm.encode.categorical import MultiValued
from splinefm.encode.columns import as_numbers
from splinefm.encode.numerical import ORDINARY, Numerical, spread
from splinefm.encode.schema import Field, Schema
from splinefm.encode.splines import BSpline, MultiResolution
from splinefm.encode.table import missing_column_message, open_table
from splinefm.learn.fitted import Fitted
from splinefm.learn.losses import Loss
from splinefm.use.algebra import (
    Rest,
    active_rows,
    mean_vectors,
    n_units,
    other_units,
    pair_factors,
    pair_scale,
    read_columns,
    row_effects,
    score_slope,
)
from splinefm.use.splines import (
    pieces,
    scipy_polynomial,
    scipy_spline,
    spline_roots,
    sum_of_levels,
    transform_slope,
    unit_range,
)

FloatArray = npt.NDArray[np.float64]
Along = str | Sequence[str]

_ROOM = 1 << 22  # numbers in the vectors of the segments that are worked on at a time


class Extremum(NamedTuple):
    """Where a curve is largest or smallest: in the unit of the column, the value there, and the place in u."""

    at: Any
    value: Any
    u: Any


def segment(
    fitted: Fitted, values: Mapping[str, object], along: Along, *, rest: Rest = "error", background: object = None
) -> Curve | Bars | Surface:
    """The score along one or two fields, with the other fields fixed; `fitted.segment` is the same.

    Parameters
    ----------
    fitted : Fitted
        The model.
    values : mapping of str to value
        The segment: the value of every other field (None is a missing value, a list belongs to a multi-valued field).
    along : str or pair of str
        The field, or the two fields, that vary.
    rest : {"error", "mean"}
        What to do with fields that are not named: raise, or average the score over their values. The average is
        exact for independent fields: it is the score of the mean of each field's vectors.
    background : table, optional
        The rows to average over. Without it, the counts of the training rows serve, which are known for categorical
        fields only.

    Returns
    -------
    Curve, Bars or Surface
        A curve along a numerical field, bars along a categorical or multi-valued one, a surface along two fields.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> curve = sf.segment(fitted, {"c": "a"}, along="x")
    >>> bool(np.allclose(curve([0.5, 2.5]), fitted.scores({"x": [0.5, 2.5], "c": ["a", "a"]}), atol=1e-5))
    True
    """
    schema, names = fitted.encoder.schema, _along_names(along)
    _check_along(fitted, names)
    if not isinstance(values, Mapping):
        raise TypeError(f"a segment is a dict of values, got {type(values).__name__}; for a table use sf.segments")
    for name in values:
        if name not in schema.names:
            raise ValueError(f"the segment: {missing_column_message(str(name), schema.names)}")
        if name in names:
            raise ValueError(f"{name!r} is in the segment and varies (along): take it out of one of the two")
    columns = {name: pa.array([_one_value(schema[name], value)], from_pandas=True) for name, value in values.items()}
    means = mean_vectors(fitted, [*columns, *names], rest, background)
    return _view(fitted, names, iter([(1, columns)]), means)[0]


def segments(
    fitted: Fitted, table: object, along: Along, *, rest: Rest = "error", background: object = None
) -> Curve | Bars | Surface:
    """The views of many segments at once, one per row of a table.

    The result has an axis of segments in front: `curves.coefficients` has the shape (n, functions), `curves(z)` the
    shape (n, *z.shape), and `curves[i]` is the curve of row i.

    Parameters
    ----------
    fitted : Fitted
        The model.
    table : table, path or dataset
        A row per segment, a column per field. The fields of `along` are not read. Columns that are no fields are
        ignored, except with `rest="mean"`, where a misspelled field would go unnoticed.
    along, rest, background
        As in `segment`.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> curves = sf.segments(fitted, {"c": ["a", "b"]}, along="x")
    >>> curves([0.0, 1.0, 2.0]).shape, curves[1](1.0).shape
    ((2, 3), ())
    """
    schema, names = fitted.encoder.schema, _along_names(along)
    _check_along(fitted, names)
    source = open_table(table, types=schema.column_types())
    if rest == "mean":
        for name in source.names:
            if name not in schema.names:
                raise ValueError(f'with rest="mean" all columns must be fields; {_unknown_field(name, schema)}')
    given = [name for name in schema.names if name in source.names and name not in names]
    means = mean_vectors(fitted, [*given, *names], rest, background)
    units = fitted.encoder.layout.n_units * fitted.params["factors"].shape[1]
    return _view(fitted, names, read_columns(source, given, max(1, _ROOM // units)), means)


@dataclass(frozen=True, eq=False)
class _View:
    """What curves and bars share: a number per table row of the field, for one segment or for several."""

    field: Any
    rows: FloatArray = dataclasses.field(repr=False)
    intercept: Any
    loss: Loss = dataclasses.field(repr=False)

    def __call__(self, values: object, *, link: bool = False) -> FloatArray:
        """Scores at raw values; `link=True`: predictions (probability, mean or rate).

        Parameters
        ----------
        values : array
            Values of the field, missing and special ones included.
        link : bool
            Whether to turn scores into predictions.
        """
        effects = _effects(self.field, self.rows, values)
        scores = effects + _more_axes(np.asarray(self.intercept), self.rows.ndim - 1, effects.ndim)
        return self.loss.predict(scores) if link else scores

    def __len__(self) -> int:
        """Number of segments of a family."""
        self._check_family()
        return len(self.rows)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, number: Any) -> Self:
        """The view of one segment of a family, or of some of them."""
        self._check_family()
        return replace(self, rows=self.rows[number], intercept=_plain(self.intercept[number]))

    @property
    def tokens(self) -> dict[str, Any]:
        """Scores at the values that have a row of their own: special values ("= 0"), "missing", "rare"."""
        return {name: _plain(self.intercept + self.rows[..., i]) for i, name in enumerate(self._token_names())}

    def _token_names(self) -> list[str]:
        raise NotImplementedError

    def _check_family(self) -> None:
        if self.rows.ndim == 1:
            raise TypeError(f"this is the {type(self).__name__} of one segment; sf.segments makes several")


@dataclass(frozen=True, eq=False)
class Curve(_View):
    """The score along a numerical field: β + Σ_i α_i B_i(T(z)); made by `segment`.

    Parameters
    ----------
    field : Numerical
        The field, with its transform T and basis B.
    rows : array
        The effect of each table row of the field: tokens, then basis functions.
    intercept : float
        β, the score without the field.
    loss : Loss
        Says what a prediction is.

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
        """α, one number per basis function."""
        return self.rows[..., self.field.n_tokens :]

    @property
    def spline(self) -> Any:
        """The score as a function of u, β included: a SciPy `BSpline`, or a `PPoly` for several resolutions.

        A family has the axis of its segments last, as SciPy does. An `AttributeError` where the basis is
        neither a spline nor a polynomial.
        """
        basis = self.field.basis
        values = np.moveaxis(self.coefficients, -1, 0)
        if isinstance(basis, BSpline):
            return scipy_spline(basis, values + self.intercept)
        if isinstance(basis, MultiResolution):
            return sum_of_levels(basis, values, self.intercept)
        if isinstance(basis, Polynomial):
            return scipy_polynomial(basis, values, self.intercept)
        raise AttributeError(
            f"the basis of {self.field.name!r}, {type(basis).__name__}, is no spline: "
            "use `coefficients`, or call the curve on values"
        )

    def derivative(self, values: object) -> FloatArray:
        """Change of the score per unit of the column: the spline's derivative times that of the transform.

        0 beyond the ends of the transform, NaN at special and missing values. `spline.derivative()` is the one
        by u.
        """
        column, shape = _column(self.field, values)
        x = as_numbers(column, self.field.name)
        token = self.field.tokens(x)
        ordinary = np.ones(len(x), bool) if token is None else token == ORDINARY
        inside = np.where(ordinary, x, 0.0)
        transform = self.field.transform
        by_u = np.moveaxis(self.spline(transform(inside), nu=1), 0, -1)
        slope = np.where(ordinary, by_u * transform_slope(transform, inside), np.nan)
        return np.asarray(slope.reshape(self.rows.shape[:-1] + shape))

    def maximum(self, low: float | None = None, high: float | None = None, *, link: bool = False) -> Extremum:
        """The largest score of ordinary values, and where: from the piecewise polynomial, without a grid.

        Special and missing values do not count (see `tokens`); next to one, it is the limit.

        Parameters
        ----------
        low, high : float, optional
            Look between these raw values only.
        link : bool
            Give the prediction there instead of the score.
        """
        return self._extremum(1.0, low, high, link)

    def minimum(self, low: float | None = None, high: float | None = None, *, link: bool = False) -> Extremum:
        """The smallest score of ordinary values, and where; see `maximum`."""
        return self._extremum(-1.0, low, high, link)

    def _token_names(self) -> list[str]:
        names: list[str] = self.field.row_names()[: self.field.n_tokens]
        return names

    def _extremum(self, sign: float, low: float | None, high: float | None, link: bool) -> Extremum:
        rows = np.atleast_2d(self.coefficients)
        u, owner = self._candidates(*unit_range(self.field, low, high))
        start, weight = self.field.basis(u)
        effect = (rows[owner[:, None], spread(start, self.field.basis.widths)] * weight).sum(axis=1)
        order = np.lexsort((-sign * effect, owner))
        best = order[np.searchsorted(owner[order], np.arange(len(rows)))]
        value = self.intercept + effect[best]
        found = (self.field.transform.inverse(u[best]), self.loss.predict(value) if link else value, u[best])
        return Extremum(*(found if self.rows.ndim > 1 else (float(part[0]) for part in found)))

    def _candidates(self, first: float, last: float) -> tuple[FloatArray, npt.NDArray[np.intp]]:
        """Points of [first, last] among which the extrema are, and the segment of each."""
        n = 1 if self.rows.ndim == 1 else len(self.rows)
        breaks, degree = pieces(self.field)
        inner = np.unique(np.clip(breaks, first, last))
        if degree == 0:  # a point inside of each step: rounding could put a border into the step beside it
            inner = (inner[:-1] + inner[1:]) / 2
        shared = np.concatenate([inner, [first, last]])
        points, owners = [np.tile(shared, n)], [np.repeat(np.arange(n), len(shared))]
        if degree > 1:
            roots = spline_roots(self.spline, breaks, degree)
            points.append(np.concatenate(roots))
            owners.append(np.repeat(np.arange(n), [len(part) for part in roots]))
        u, owner = np.concatenate(points), np.concatenate(owners)
        kept = (u >= first) & (u <= last)  # drops NaN, which SciPy uses for "zero on a whole piece"
        return u[kept], owner[kept]


@dataclass(frozen=True, eq=False)
class Bars(_View):
    """The score of each category of a field; made by `segment`.

    Along a multi-valued field a bar is the score of a list with that one element.

    Parameters
    ----------
    field : Categorical or MultiValued
        The field.
    rows : array
        The effect of each table row of the field: tokens, then categories.
    intercept : float
        The score without the field.
    loss : Loss
        Says what a prediction is.

    Examples
    --------
    >>> import splinefm as sf
    >>> bars = Bars(sf.Categorical("c", vocabulary=["a", "b"]), np.array([9.0, 8.0, 1.0, 2.0]), 0.5, Loss("squared"))
    >>> dict(zip(bars.names, bars.scores.tolist())), bars.tokens
    ({'a': 1.5, 'b': 2.5}, {'missing': 9.5, 'rare': 8.5})
    """

    @property
    def names(self) -> list[str]:
        """The categories, the most frequent first."""
        names: list[str] = self.field.vocabulary.names.to_pylist()
        return names

    @property
    def scores(self) -> FloatArray:
        """The score of each category."""
        return np.asarray(np.asarray(self.intercept)[..., None] + self.rows[..., self._n_tokens :])

    @property
    def predictions(self) -> FloatArray:
        """The prediction for each category."""
        return self.loss.predict(self.scores)

    @property
    def _n_tokens(self) -> int:
        return int(self.rows.shape[-1] - len(self.field.vocabulary))

    def _token_names(self) -> list[str]:
        names: list[str] = self.field.row_names()[: self._n_tokens]
        return names


@dataclass(frozen=True, eq=False)
class Surface:
    """The score along two fields: β + Σ_i a_i A_i + Σ_j b_j B_j + Σ_ij C_ij A_i B_j; made by `segment`.

    A_i and B_j are the basis functions of the two fields (indicators, for a categorical field).

    Parameters
    ----------
    fields : pair of fields
        The two fields.
    rows : pair of arrays
        The effect of each table row of either field on its own.
    factors : pair of arrays, shapes (rows of the first, k) and (rows of the second, k)
        L and R of C = L diag(s) R'.
    scales : array, shape (k,)
        s.
    intercept : float
        β, the score without the two fields.
    loss : Loss
        Says what a prediction is.

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
    rows: tuple[FloatArray, FloatArray] = dataclasses.field(repr=False)
    factors: tuple[FloatArray, FloatArray] = dataclasses.field(repr=False)
    scales: FloatArray = dataclasses.field(repr=False)
    intercept: Any
    loss: Loss = dataclasses.field(repr=False)

    def __call__(self, first: object, second: object, *, link: bool = False) -> FloatArray:
        """Scores at raw values of the two fields, which broadcast: `surface(x[:, None], y)` is a grid.

        Parameters
        ----------
        first, second : arrays
            Values of the fields.
        link : bool
            Whether to turn scores into predictions.
        """
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

    def __len__(self) -> int:
        """Number of segments of a family."""
        self._check_family()
        return len(self.scales)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, number: Any) -> Surface:
        """The surface of one segment of a family, or of some of them."""
        self._check_family()
        rows = self.rows[0][number], self.rows[1][number]
        return replace(self, rows=rows, scales=self.scales[number], intercept=_plain(self.intercept[number]))

    @property
    def coefficients(self) -> FloatArray:
        """C: what pairs of basis functions (or categories) add, shape (functions, functions)."""
        left, right = (values[_first(item) :] for item, values in zip(self.fields, self.factors, strict=True))
        return np.asarray((left * self.scales[..., None, :]) @ right.T)

    @property
    def main_effects(self) -> tuple[FloatArray, FloatArray]:
        """a and b: what the basis functions (or categories) of either field add on their own."""
        first, second = (values[..., _first(item) :] for item, values in zip(self.fields, self.rows, strict=True))
        return first, second

    @property
    def rank(self) -> Any:
        """The numerical rank of `coefficients`, at most k."""
        rank = np.linalg.matrix_rank(self.coefficients)
        return rank if np.ndim(rank) else int(rank)

    def _along(self, side: int, values: object) -> tuple[FloatArray, FloatArray]:
        """Main effects, shape (segments.., values..), and the factors at the values, shape (values.., k)."""
        item = self.fields[side]
        matrix, shape = _weights(item, values)
        factors = (matrix @ self.factors[side]).reshape(*shape, -1)
        return _effects(item, self.rows[side], values), factors

    def _check_family(self) -> None:
        if self.scales.ndim == 1:
            raise TypeError("this is the Surface of one segment; sf.segments makes several")


# Arguments


def _along_names(along: Along) -> tuple[str, ...]:
    names = (along,) if isinstance(along, str) else tuple(along)
    if len(names) not in (1, 2) or len(set(names)) < len(names):
        raise ValueError(f"along must be the name of a field or two different ones, got {along!r}")
    return names


def _check_along(fitted: Fitted, names: tuple[str, ...]) -> None:
    schema, layout = fitted.encoder.schema, fitted.encoder.layout
    for name in names:
        if name not in schema.names:
            raise ValueError(f"along: {_unknown_field(name, schema)}")
        if n_units(fitted, schema.names.index(name)) > 1:
            n = max(layout.fields[schema.names.index(name)].units) + 1
            raise ValueError(
                f'{name!r} has reduction="identity": its {n} vectors interact with each other, so that the score '
                'is not in the span of its basis; views need reduction="sum"'
            )


def _unknown_field(name: str, schema: Schema) -> str:
    return missing_column_message(name, schema.names).replace(" in the table", " in the model")


def _one_value(item: Field, value: object) -> object:
    """A value of a segment, in a form that Arrow takes."""
    several = isinstance(value, list | tuple | Set | np.ndarray) or hasattr(value, "to_numpy")
    if not several:
        return value
    if not isinstance(item, MultiValued):
        raise ValueError(
            f"a segment has one value per field, {item.name!r} has {type(value).__name__} {value!r}; "
            "for several segments use sf.segments"
        )
    return list(value)  # type: ignore[call-overload]  # a collection, as was just found


def _view(
    fitted: Fitted,
    names: tuple[str, ...],
    chunks: Iterator[tuple[int, dict[str, pa.Array]]],
    means: dict[int, tuple[FloatArray, float]],
) -> Curve | Bars | Surface:
    """The view of all segments."""
    schema, layout, model, params = fitted.encoder.schema, fitted.encoder.layout, fitted.model, fitted.params
    along = [schema.names.index(name) for name in names]
    levels, slopes, scales = [], [], []
    for n, columns in chunks:
        P, linear, unit_field = other_units(fitted, along, n, columns, means)
        interaction = model.interaction(P, params, unit_field) if len(unit_field) else 0.0
        levels.append(params["bias"].astype(np.float64) + linear + interaction)
        slopes.append([score_slope(model, params, P, unit_field, f, len(layout.fields)) for f in along])
        scales.append(pair_scale(model, params, P, along) if len(along) == 2 else None)
    if not levels:
        raise ValueError("the table of segments has no rows; give at least one")
    intercept = np.concatenate(levels)
    rows = [
        row_effects(fitted, f, np.concatenate(parts)) for f, parts in zip(along, zip(*slopes, strict=True), strict=True)
    ]
    if len(along) == 2:
        first, second = (fitted.encoder.fields[f] for f in along)
        scale = np.concatenate([part for part in scales if part is not None])
        factors = pair_factors(fitted, along[0], along[1])
        return Surface((first, second), (rows[0], rows[1]), factors, scale, intercept, fitted.loss)
    item = fitted.encoder.fields[along[0]]
    return (Curve if isinstance(item, Numerical) else Bars)(item, rows[0], intercept, fitted.loss)


# Fields


def _first(item: Field) -> int:
    """Rows before the basis functions or categories."""
    if isinstance(item, Numerical):
        return item.n_tokens
    return item.layout.n_rows - len(item.vocabulary or ())


def _column(item: Field, values: object) -> tuple[pa.Array, tuple[int, ...]]:
    """Raw values as an Arrow column, and their shape."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = values.to_pylist()
    try:
        if isinstance(item, MultiValued):
            lists: list[Any] = list(values)  # type: ignore[call-overload]  # what is no collection raises
            return pa.array(lists), (len(lists),)
        array = np.asarray(values)
        return pa.array(array.ravel(), from_pandas=True), array.shape
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"values of {item.name!r}: {error}; give an array of values of one type") from error


def _weights(item: Field, values: object) -> tuple[Any, tuple[int, ...]]:
    """Weights of the field's rows at raw values, a sparse matrix of shape (n, rows), and the shape of the values."""
    from scipy.sparse import csr_array

    column, shape = _column(item, values)
    rows, weight = active_rows(item, column)
    row_ptr = np.arange(len(rows) + 1) * rows.shape[1]
    return csr_array((weight.ravel(), rows.ravel(), row_ptr), shape=(len(rows), item.layout.n_rows)), shape


def _effects(item: Field, rows: FloatArray, values: object) -> FloatArray:
    """Σ_i rows_i weight_i at raw values: shape (segments.., values..)."""
    matrix, shape = _weights(item, values)
    return np.asarray((matrix @ rows.T).T.reshape(rows.shape[:-1] + shape))


def _plain(value: Any) -> Any:
    """A float instead of a NumPy number; arrays stay."""
    return value if np.ndim(value) else float(value)


def _more_axes(array: FloatArray, at: int, n_axes: int) -> FloatArray:
    """The array with axes of length 1 put in at `at`, until it has `n_axes`."""
    return np.expand_dims(array, tuple(range(at, at + n_axes - array.ndim)))
