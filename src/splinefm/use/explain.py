"""Exact explanations: Shapley values, partial dependence, main and pair effects, importance.

The models (all but the HigherOrderFM) are quadratic in the vectors of their fields. With s_f the sum of the unit
vectors of field f, and a_f what the field adds on its own (its linear part, and the products of its units),

    score = b + Σ_f a_f + Σ_{f<e} s_f' M_fe s_e

All that an explanation needs of a background is then the mean m_f of every s_f and a few numbers per field, so that its
cost does not grow with the rows of the background, and nothing has to be sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.encoder import Encoder, count_threads, in_order
from splinefm.encode.slots import Slots
from splinefm.encode.table import missing_column_message
from splinefm.learn.fitted import Fitted
from splinefm.model.cpu import predict_scores
from splinefm.model.family import FFM, FM, FmFM, HigherOrderFM, LowRankFwFM

FloatArray = npt.NDArray[np.float64]
# Memory for the fields' vectors of a block of rows.
BLOCK_BYTES = 1 << 24
# Rows whose effects are in memory at the same time where only their spread is asked for.
_EFFECT_ROWS = 4096


@dataclass(frozen=True, eq=False)
class ShapleyValues:
    """What each field adds to the score of each row, compared with the background.

    Parameters
    ----------
    values : array, shape (n, fields)
        Shapley values, in units of the score.
    base : float
        Mean score of the background; `base` plus the values of a row is its score.
    fields : tuple of str
        Names of the fields.
    """

    values: FloatArray
    base: float
    fields: tuple[str, ...]

    @property
    def scores(self) -> FloatArray:
        """The scores that were explained."""
        return np.asarray(self.base + self.values.sum(axis=1))


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
        f, e = sorted(_field_number(self.fields, name) for name in (one, other))
        if f == e:
            raise ValueError(f"a pair effect has two different fields, got {one!r} twice")
        return self.pairs[:, self.pair_fields.index((self.fields[f], self.fields[e]))]


@dataclass(frozen=True, eq=False)
class Importance:
    """How much fields and pairs of fields move the score on a table; printing it shows both, largest first.

    Parameters
    ----------
    fields : tuple of str
        Names of the fields.
    shapley : array, shape (fields,)
        Mean absolute Shapley value.
    main : array, shape (fields,)
        Standard deviation of the main effect.
    pairs : array, shape (fields, fields)
        Standard deviation of the pair effect; symmetric, with a zero diagonal.
    """

    fields: tuple[str, ...]
    shapley: FloatArray
    main: FloatArray
    pairs: FloatArray

    def ranked_fields(self) -> list[tuple[str, float]]:
        """Fields and their mean absolute Shapley values, largest first."""
        order = np.argsort(-self.shapley, kind="stable")
        return [(self.fields[f], float(self.shapley[f])) for f in order]

    def ranked_pairs(self) -> list[tuple[str, str, float]]:
        """Pairs of fields and the standard deviations of their effects, largest first."""
        one, other = np.triu_indices(len(self.fields), 1)
        order = np.argsort(-self.pairs[one, other], kind="stable")
        pairs = zip(one[order], other[order], strict=True)
        return [(self.fields[f], self.fields[e], float(self.pairs[f, e])) for f, e in pairs]

    def __str__(self) -> str:
        main = dict(zip(self.fields, self.main, strict=True))
        singles = [(name, f"{value:.4g}", f"{main[name]:.4g}") for name, value in self.ranked_fields()]
        pairs = [(f"{one} × {other}", f"{value:.4g}") for one, other, value in self.ranked_pairs()[:10]]
        parts = [_columns(("field", "mean |Shapley|", "main effect"), singles)]
        if pairs:
            parts.append(_columns(("pair of fields", "pair effect"), pairs))
        return "\n\n".join(parts)


@dataclass(frozen=True, eq=False)
class Background:
    """What explanations need to know of a background table; make it with `Background.of` to use it several times.

    Parameters
    ----------
    fitted : Fitted
        The model.
    n_rows : int
        Rows of the table.
    center : array, shape (fields, width)
        Mean m_f of the vectors of each field.
    slope : array, shape (fields, width)
        h_f = Σ_{e≠f} M_fe m_e, the derivative of the mean score by the vector of a field.
    own, terms : arrays, shape (fields,)
        Means of a_f, and of a_f + z_f' h_f + ½ Σ_e z_f' M_fe z_e with z_f = s_f - m_f.
    base : float
        Mean score.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> background = sf.Background.of(fitted, table)
    >>> sf.shapley_values(fitted, {"x": [1.5], "c": ["b"]}, background).values.shape
    (1, 2)
    """

    fitted: Fitted
    n_rows: int
    center: FloatArray = field(repr=False)
    slope: FloatArray = field(repr=False)
    own: FloatArray = field(repr=False)
    terms: FloatArray = field(repr=False)
    base: float

    @staticmethod
    def of(fitted: Fitted, table: object, *, threads: int | None = None) -> Background:
        """The background that a table is.

        Parameters
        ----------
        fitted : Fitted
            A model; not a HigherOrderFM.
        table : table, path, dataset or Slots
            At least one row.
        threads : int, optional
            All cores by default.
        """
        _check_quadratic(fitted, "a background")
        slots = _encode_background(fitted, table, threads)
        means = _field_means(fitted, slots)
        # The kernels compute in float32: what is derived from the means must be derived from what they see.
        center = means.astype(np.float32).astype(np.float64)
        slope = np.stack([_toward(fitted, center[None], f)[0] for f in range(len(center))])
        own = _own_parts(fitted, slots, threads).mean(axis=0)
        terms = _terms(fitted, slots, center, slope, np.zeros(len(center)), threads).mean(axis=0)
        base = float(fitted.params["bias"][0]) + 0.5 * float((center * slope).sum()) + float(terms.sum())
        return Background(fitted, len(slots), center, slope, own, terms, base)


def shapley_values(fitted: Fitted, table: object, background: object, *, threads: int | None = None) -> ShapleyValues:
    """Exact interventional Shapley values of the score, with the fields as players.

    A coalition's worth is the mean score over the rows of the background, with the coalition's fields set to the values
    of the explained row. For every pair of fields the closed form is half of what the pair changes, for each; averaged
    over the background it only needs means, so that a row costs one to two times as much as its prediction.

    Parameters
    ----------
    fitted : Fitted
        A model; not a HigherOrderFM.
    table : table, path, dataset or Slots
        The rows to explain.
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
    _check_quadratic(fitted, "shapley_values")
    known = _known(fitted, background, threads)
    slots = _encode(fitted, table, threads)
    values = _terms(fitted, slots, known.center, known.slope, known.terms, threads)
    return ShapleyValues(values, known.base, slots.layout.names)


def partial_dependence(
    fitted: Fitted,
    field: str,
    grid: Sequence[Any] | npt.NDArray[Any],
    background: object,
    *,
    threads: int | None = None,
) -> FloatArray:
    """The mean score over a background with one field set to each value of a grid; exact.

    Parameters
    ----------
    fitted : Fitted
        A model. For a HigherOrderFM the background is scored once per value.
    field : str
        Name of the field.
    grid : sequence
        Values of the column, in raw units; None is missing.
    background : table, path, dataset, Slots or Background
        The rows to average over.
    threads : int, optional
        All cores by default.

    Returns
    -------
    array, shape (values,)
        Mean scores; a mean of probabilities is not a function of them.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> sf.partial_dependence(fitted, "x", [0.0, 1.5, None], table).shape
    (3,)
    """
    f, slots = _encode_grid(fitted, field, grid)
    if isinstance(fitted.model, HigherOrderFM):
        rows = _encode_background(fitted, background, threads)
        return np.array([scores.mean() for scores in _scored(fitted, rows, f, slots, threads)])
    known = _known(fitted, background, threads)
    own, vectors = _alone(fitted, f, slots)
    products = 2.0 * (known.terms[f] - known.own[f])  # mean of Σ_e z_f' M_fe z_e, which setting the field takes away
    return np.asarray(known.base - known.own[f] - products + own + (vectors - known.center[f]) @ known.slope[f])


def individual_curves(
    fitted: Fitted, table: object, field: str, grid: Sequence[Any] | npt.NDArray[Any], *, threads: int | None = None
) -> FloatArray:
    """The score of every row with one field set to each value of a grid; exact.

    Parameters
    ----------
    fitted : Fitted
        A model. For a HigherOrderFM the table is scored once per value.
    table : table, path, dataset or Slots
        The rows.
    field : str
        Name of the field.
    grid : sequence
        Values of the column, in raw units; None is missing.
    threads : int, optional
        All cores by default.

    Returns
    -------
    array, shape (n, values)
        Scores; `fitted.loss.predict` makes predictions of them.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> sf.individual_curves(fitted, table, "x", [0.0, 1.5, 3.0]).shape
    (200, 3)
    """
    f, values = _encode_grid(fitted, field, grid)
    slots = _encode(fitted, table, threads)
    if isinstance(fitted.model, HigherOrderFM):
        scored = list(_scored(fitted, slots, f, values, threads))
        return np.stack(scored, axis=1) if scored else np.empty((len(slots), 0))
    own, vectors = _alone(fitted, f, values)
    # With the weights of the field at zero it adds nothing: the score of the rest.
    weight = slots.weight.copy()
    weight[:, _columns_of(slots, f)[1]] = 0.0
    rest = predict_scores(fitted.model, fitted.params, Slots(slots.start, weight, slots.layout), threads)
    curves = rest[:, None] + own
    for rows, Z in _blocks(fitted, slots, np.zeros(_size(fitted)), threads):
        curves[rows] += _toward(fitted, Z, f) @ vectors.T
    return curves


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
    _check_quadratic(fitted, "decompose")
    known = _known(fitted, background, threads)
    slots = _encode(fitted, table, threads)
    n_fields = len(slots.layout.fields)
    effects = _effects(fitted, slots, known, threads)
    intercept = float(fitted.params["bias"][0]) + 0.5 * float((known.center * known.slope).sum()) + known.own.sum()
    return Decomposition(float(intercept), effects[:, :n_fields], effects[:, n_fields:], slots.layout.names)


def importance(
    fitted: Fitted, table: object, background: object | None = None, *, threads: int | None = None
) -> Importance:
    """How much fields and pairs of fields matter for the scores of a table.

    Of a field: the mean absolute Shapley value, and the standard deviation of its main effect (see `decompose`). Of a
    pair: the standard deviation of the pair effect. All are in units of the score.

    Parameters
    ----------
    fitted : Fitted
        A model; not a HigherOrderFM.
    table : table, path, dataset or Slots
        The rows; some thousands are enough.
    background : table, path, dataset, Slots or Background, optional
        The rows to compare with; by default the table itself.
    threads : int, optional
        All cores by default. The result does not depend on it.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> found = sf.importance(fitted, table)
    >>> found.ranked_fields()[0][0], found.pairs.shape
    ('x', (2, 2))
    """
    _check_quadratic(fitted, "importance")
    slots = _encode(fitted, table, threads)
    if not len(slots):
        raise ValueError("the table has no rows; importance is measured on at least one")
    known = _known(fitted, slots if background is None else background, threads)
    values = _terms(fitted, slots, known.center, known.slope, known.terms, threads)
    n_fields = len(slots.layout.fields)
    sums = np.zeros((2, n_fields * (n_fields + 1) // 2))
    for at in range(0, len(slots), _EFFECT_ROWS):
        effects = _effects(fitted, slots[at : at + _EFFECT_ROWS], known, threads)
        sums += effects.sum(axis=0), (effects**2).sum(axis=0)
    mean, square = sums / len(slots)
    spread = np.sqrt(np.maximum(square - mean**2, 0.0))
    pairs = np.zeros((n_fields, n_fields))
    pairs[np.triu_indices(n_fields, 1)] = spread[n_fields:]
    return Importance(slots.layout.names, np.abs(values).mean(axis=0), spread[:n_fields], pairs + pairs.T)


# Input


def _check_quadratic(fitted: Fitted, what: str) -> None:
    if isinstance(fitted.model, HigherOrderFM):
        raise ValueError(
            f"{what}: not available for a HigherOrderFM, whose score has products of more than two fields; "
            "partial_dependence and individual_curves are, and the other models have them all"
        )


def _encode(fitted: Fitted, table: object, threads: int | None) -> Slots:
    if not isinstance(table, Slots):
        return fitted.encoder.encode(table, threads=threads)
    if table.layout != fitted.encoder.layout:
        raise ValueError("these slots were made by another encoder; pass the table, or fitted.encoder.encode(table)")
    return table


def _encode_background(fitted: Fitted, table: object, threads: int | None) -> Slots:
    slots = _encode(fitted, table, threads)
    if not len(slots):
        raise ValueError("the background has no rows; it needs at least one to compare with")
    return slots


def _known(fitted: Fitted, background: object, threads: int | None) -> Background:
    if not isinstance(background, Background):
        return Background.of(fitted, background, threads=threads)
    if background.fitted is not fitted:
        raise ValueError("the background was made for another model; make it with sf.Background.of(fitted, table)")
    return background


def _encode_grid(fitted: Fitted, name: str, grid: Sequence[Any] | npt.NDArray[Any]) -> tuple[int, Slots]:
    """The number of a field, and rows in which it has the values of the grid and all other fields weigh nothing."""
    layout, encoder = fitted.encoder.layout, fitted.encoder
    f = _field_number(layout.names, name)
    alone = Encoder((encoder.fields[f],), encoder.n_rows, {name: encoder.notes[name]}, (encoder.row_counts[f],))
    values = alone.encode({name: grid}, threads=1)
    first = np.repeat(layout.row_ptr[:-1], np.diff(layout.window_ptr))
    slots = Slots(np.tile(first, (len(values), 1)), np.zeros((len(values), layout.n_weights), np.float32), layout)
    windows, weights = _columns_of(slots, f)
    slots.start[:, windows] += values.start
    slots.weight[:, weights] = values.weight
    return f, slots


def _field_number(names: tuple[str, ...], name: str) -> int:
    if name not in names:
        raise ValueError(missing_column_message(name, names).replace("in the table", "among the fields"))
    return names.index(name)


def _columns_of(slots: Slots, f: int) -> tuple[slice, slice]:
    """The windows and the weights of a field."""
    first, last = slots.layout.window_ptr[f : f + 2]
    return slice(first, last), slice(slots.layout.weight_ptr[first], slots.layout.weight_ptr[last])


def _scored(fitted: Fitted, slots: Slots, f: int, values: Slots, threads: int | None) -> Iterator[FloatArray]:
    """Scores of all rows with field f set to each of the values: for models with no closed form."""
    start, weight = slots.start.copy(), slots.weight.copy()
    windows, weights = _columns_of(slots, f)
    for g in range(len(values)):
        start[:, windows], weight[:, weights] = values.start[g, windows], values.weight[g, weights]
        scores = predict_scores(fitted.model, fitted.params, Slots(start, weight, slots.layout), threads)
        yield scores.astype(np.float64)


# The parts of the score, in NumPy: Z are vectors of fields, shape (n, fields, width)


def _size(fitted: Fitted) -> tuple[int, int]:
    """Fields, and the length of their vectors."""
    return len(fitted.encoder.layout.fields), fitted.params["factors"].shape[1]


def _field_weights(fitted: Fitted) -> FloatArray:
    """R of M_fe = R_fe I, symmetric; the diagonal is for units of one field."""
    model, n_fields = fitted.model, _size(fitted)[0]
    if isinstance(model, FM):
        return np.ones((n_fields, n_fields))
    if isinstance(model, LowRankFwFM):
        U = fitted.params["field_factors"].astype(np.float64)
        R = U.T @ (fitted.params["field_scales"][:, None] * U)
        np.fill_diagonal(R, 0.0)
        return np.asarray(R)
    R = np.triu(fitted.params["field_weights"].astype(np.float64))
    return np.asarray(R + np.triu(R, 1).T)


def _toward(fitted: Fitted, Z: npt.NDArray[np.floating], f: int) -> FloatArray:
    """Σ_{e≠f} M_fe z_e: the derivative of the products by z_f, shape (n, width)."""
    if isinstance(fitted.model, FFM):
        parts = Z.reshape(*Z.shape[:2], -1, fitted.model.k)[:, :, f].astype(np.float64)
        parts[:, f] = 0.0
        return parts.reshape(len(Z), -1)
    if isinstance(fitted.model, FmFM):
        M = fitted.params["field_matrices"].astype(np.float64)
        later = np.tensordot(Z[:, f + 1 :], M[f, f + 1 :], axes=((1, 2), (0, 2)))
        return np.asarray(later + np.tensordot(Z[:, :f], M[:f, f], axes=((1, 2), (0, 1))))
    R = _field_weights(fitted)[f]
    R[f] = 0.0
    return np.asarray(np.tensordot(Z, R, axes=(1, 0)))


def _field_means(fitted: Fitted, slots: Slots) -> FloatArray:
    """m_f: how often table rows are touched, times the rows; a row of the table is read once."""
    layout, factors = slots.layout, fitted.params["factors"]
    means = np.zeros(_size(fitted))
    most = max(1, BLOCK_BYTES // (8 * factors.shape[1]))
    for f in range(len(means)):
        counts = np.zeros(layout.fields[f].n_rows)
        for w in range(layout.window_ptr[f], layout.window_ptr[f + 1]):
            for j in range(layout.weight_ptr[w + 1] - layout.weight_ptr[w]):
                weight = slots.weight[:, layout.weight_ptr[w] + j]
                used = np.flatnonzero(weight)
                row = slots.start[used, w] + j - layout.row_ptr[f]
                counts += np.bincount(row, weight[used], len(counts))
        touched = np.flatnonzero(counts)
        for at in range(0, len(touched), most):
            rows = touched[at : at + most]
            means[f] += counts[rows] @ factors[layout.row_ptr[f] + rows].astype(np.float64)
    return means / len(slots)


# The kernels


def _weights(fitted: Fitted, center: FloatArray, slope: FloatArray) -> Any:
    """Parameters as the kernels read them; nothing large is copied."""
    from splinefm.use.kernels import FOUR, Weights

    n_fields, k = len(center), len(_kt(fitted))
    R: FloatArray = np.zeros(0)
    M = fitted.params.get("field_matrices", np.zeros(0, np.float32))
    inside = np.zeros((n_fields, k, k))
    if isinstance(fitted.model, FmFM):
        inside[:] = M[np.arange(n_fields), np.arange(n_fields)]
    elif isinstance(fitted.model, FFM):
        inside[:] = np.eye(k)
    else:
        weights = _field_weights(fitted)
        inside[:] = np.eye(k) * np.diag(weights)[:, None, None]
        R = np.zeros((-(-n_fields // FOUR) * FOUR, n_fields))
        R[:n_fields] = weights * (1.0 - np.eye(n_fields))
        R = R.reshape(-1, FOUR, n_fields).transpose(0, 2, 1)
    return Weights(
        fitted.params["factors"].reshape(-1),
        fitted.params["linear"],
        R=_flat(R),
        M=_flat(M),
        inside=_flat(inside),
        center=_flat(center),
        slope=_flat(slope),
        room=np.zeros(k, np.float32),
    )


def _flat(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(values, np.float32).reshape(-1)


def _shape(slots: Slots) -> Any:
    from splinefm.use.kernels import Shape

    layout = slots.layout
    first_unit = np.searchsorted(layout.unit_field, np.arange(len(layout.fields) + 1)).astype(np.int32)
    unit_ptr = np.searchsorted(layout.window_unit, np.arange(layout.n_units + 1)).astype(np.int32)
    return Shape(first_unit, layout.window_ptr, unit_ptr, layout.weight_ptr)


def _kt(fitted: Fitted) -> tuple[int, ...]:
    """k as the kernels know it: the length of a tuple."""
    return (0,) * (fitted.model.k if isinstance(fitted.model, FFM) else _size(fitted)[1])


def _own_parts(fitted: Fitted, slots: Slots, threads: int | None) -> FloatArray:
    """a_f of all rows, shape (n, fields)."""
    from splinefm.use.kernels import own_parts

    none = np.zeros(_size(fitted))
    out = np.empty((len(slots), len(none)))
    _run(own_parts, fitted, slots, _weights(fitted, none, none), np.zeros(len(none)), out, threads)
    return out


def _terms(
    fitted: Fitted, slots: Slots, center: FloatArray, slope: FloatArray, offset: FloatArray, threads: int | None
) -> FloatArray:
    """a_f + z_f' h_f + ½ Σ_e z_f' M_fe z_e - offset_f of all rows, shape (n, fields)."""
    from splinefm.use import kernels

    special = {FM: kernels.terms_fm, FmFM: kernels.terms_fmfm, FFM: kernels.terms_ffm}
    kernel = special.get(type(fitted.model), kernels.terms_fwfm)
    out = np.empty((len(slots), len(center)))
    _run(kernel, fitted, slots, _weights(fitted, center, slope), offset, out, threads)
    return out


def _effects(fitted: Fitted, slots: Slots, known: Background, threads: int | None) -> FloatArray:
    """Main effects, then pair effects of all rows, shape (n, fields + pairs)."""
    from splinefm.use.kernels import effects

    n_fields = len(known.own)
    out = np.empty((len(slots), n_fields * (n_fields + 1) // 2))
    _run(effects, fitted, slots, _weights(fitted, known.center, known.slope), known.own, out, threads)
    return out


def _run(
    kernel: Any, fitted: Fitted, slots: Slots, weights: Any, offset: FloatArray, out: FloatArray, threads: int | None
) -> None:
    """Run a kernel on all rows; every thread has room of its own."""
    kt, shape, (n_fields, width) = _kt(fitted), _shape(slots), _size(fitted)
    # An FmFM needs vectors and sums of four rows, the others the vectors of one and an FFM a sum per field.
    room = n_fields * (8 * width if isinstance(fitted.model, FmFM) else width + len(kt))

    def work(rows: slice) -> None:
        mine, Z = weights._replace(room=np.zeros(len(kt), np.float32)), np.zeros(room, np.float32)
        kernel(kt, shape, mine, slots.start[rows], slots.weight[rows], Z, offset, out[rows])

    _in_parts(work, len(slots), threads)


def _in_parts(work: Callable[[slice], None], n: int, threads: int | None) -> None:
    """Rows in as many parts as there are threads; few rows take no thread.

    An FmFM takes four rows at a time, which may be rounded differently: parts begin where fours do.
    """
    n_parts = max(1, min(count_threads(threads), n // 512))
    cuts = [n * part // n_parts // 4 * 4 for part in range(n_parts)]
    parts = [slice(a, b) for a, b in pairwise([*cuts, n])]
    if n_parts == 1:
        work(parts[0])
        return
    with ThreadPoolExecutor(n_parts) as pool:
        list(pool.map(work, parts))


def _blocks(
    fitted: Fitted, slots: Slots, center: FloatArray, threads: int | None
) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """The vectors of all fields less `center`, block by block: shape (rows, fields, width)."""
    from splinefm.use.kernels import center_rows

    kt, shape, weights = _kt(fitted), _shape(slots), _weights(fitted, center, center)
    most = max(1, BLOCK_BYTES // (8 * center.size))

    def vectors(first: int) -> tuple[slice, npt.NDArray[np.float32]]:
        last = min(first + most, len(slots))
        Z = np.empty((last - first, *center.shape), np.float32)
        center_rows(kt, shape, weights, slots.start, slots.weight, first, last, Z.reshape(-1))
        return slice(first, last), Z

    return in_order(vectors, range(0, len(slots), most), threads)


def _alone(fitted: Fitted, f: int, values: Slots) -> tuple[FloatArray, FloatArray]:
    """a_f and s_f of rows that have nothing but field f."""
    none = np.zeros(_size(fitted))
    vectors = [Z[:, f].astype(np.float64) for _, Z in _blocks(fitted, values, none, 1)]
    own = _own_parts(fitted, values, 1)[:, f]
    return own, np.concatenate(vectors) if vectors else np.empty((0, none.shape[1]))


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text, the first column to the left."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for first, *others in (header, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)
