"""Simulated binning: a model that reads numerical columns in fine bins, for systems that know nothing but bins.

The vector of a numerical field is a curve p(u) = Σ_i B_i(u) v_i in u = T(z). Read at the mid-point of each of N
intervals it becomes a table of N vectors (paper, section on simulating binning): the model that a serving system sees
has bins, though it was not trained with any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._checks import check_choice, check_one_score, check_positive, is_integer
from splinefm._wording import for_reader
from splinefm.bounds.cross_paths import CrossPath, changed_parts
from splinefm.bounds.hulls import CrossRuler, Ruler, make_hulls
from splinefm.bounds.paths import FieldPath, field_features, is_steps
from splinefm.encode.bases import Bins
from splinefm.encode.drift import Watch
from splinefm.encode.encoder import CHUNK
from splinefm.encode.fields.cross import Cross
from splinefm.encode.schema import Provenance
from splinefm.encode.tables.open import open_table
from splinefm.export.bins import (
    MAX_BINS,
    Spacing,
    Target,
    adaptive_bins,
    every_target,
    given_bins,
    is_cross,
    number_at,
    spaced_bins,
    targets_named,
    training_rows,
)
from splinefm.train.fitted import Fitted

MAX_FEATURES = 4_000_000
"""Most features of a cross with bins."""


def discretize(
    fitted: Fitted,
    fields: int | str | Sequence[str] | Mapping[str, int] | None = None,
    *,
    edges: Mapping[str, Sequence[float]] | None = None,
    spacing: Spacing = "u",
    max_error: float | None = None,
    data: object = None,
) -> Fitted:
    """Replace the bases of numerical fields by bins; returns a new `Fitted`.

    A bin has the vector and the linear weight of the field at the mid-point of the bin in u = T(z).
    Transforms, special values and missing ones stay as they are, and so do fields that consist of steps already. A
    cross gets the bins of its numbers, so that one of two numbers has a feature for every pair of bins. Use
    `discretization_error` to see how far scores can move.

    Parameters
    ----------
    fitted : Fitted
        The model; it is not changed.
    fields : mapping of str to int, int, or names
        The number of bins of each field, or one number for all numerical fields; parts of crosses with the same name
        are meant, too. The name of a cross gives a number of bins to each of its own numbers. With `max_error`: the
        name or the names of the fields, by default all numerical ones.
    edges : mapping of str to sequence of float, optional
        Edges of bins in raw units, both ends included; values beyond them fall into the outer bins.
    spacing : {"u", "uniform", "geometric", "quantile"}
        Where a given number of bins is put: equal widths in u, equal widths in raw units, raw widths that grow by a
        constant factor, or equal numbers of rows. Raw widths divide the range of the transform (or of `data`).
    max_error : float, optional
        Choose the bins, as few as possible, so that no score moves by more than this, whatever the values of the
        fields; all fields of this call together.
    data : table, optional
        The table whose range and quantiles `spacing` refers to, instead of the training rows.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
    >>> training = sf.Training(epochs=2, threads=1)
    >>> fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
    >>> binned = sf.discretize(fitted, {"x": 200})
    >>> binned.encoder.fields[0].basis.sizes
    (200,)
    >>> fine = sf.discretize(fitted, max_error=1e-3)
    >>> bool(abs(fine.scores(table) - fitted.scores(table)).max() < 1e-3)
    True
    """
    check_one_score(fitted)
    check_choice("spacing", spacing, ("u", "uniform", "geometric", "quantile"))
    if max_error is not None:
        if edges or isinstance(fields, Mapping | int | np.integer) or spacing != "u":
            raise ValueError("max_error chooses the bins: give it without numbers of bins, edges and spacing")
        return _replaced(fitted, adaptive_bins(fitted, _chosen(fitted, fields), check_positive("max_error", max_error)))
    counts = _counts(fitted, fields)
    given = {name: targets_named(fitted, name) for name in edges or {}}
    for name in given:
        if is_cross(fitted, name):
            raise ValueError(f"{name!r} is a cross: give the edges of its numbers by their own names")
        if name in counts:
            raise ValueError(f"{name!r} has a number of bins and edges: give one of the two")
    if not counts and not edges:
        raise ValueError(
            'give the number of bins or their edges: fields={"name": 200}, edges={"name": [...]} or max_error=1e-3'
        )
    bins: dict[Target, Bins] = {}
    for name in sorted(counts, key=lambda name: is_cross(fitted, name)):  # settings of a cross come last, and win
        for target in targets_named(fitted, name):
            if not is_steps(number_at(fitted, target)):
                bins[target] = spaced_bins(fitted, target, counts[name], spacing, data)
    for name, targets in given.items():
        bins |= {target: given_bins(number_at(fitted, target), (edges or {})[name]) for target in targets}
    return _replaced(fitted, bins)


class FieldReport(NamedTuple):
    """One field of a `DiscretizationReport`: its number of bins, and the most that they can move a score."""

    name: str
    bins: int
    bound: float


@dataclass(frozen=True)
class DiscretizationReport:
    """How far simulated bins move scores; made by `discretization_error`.

    Parameters
    ----------
    fields : tuple of FieldReport
        The fields that differ: their names, numbers of bins, and bounds.
    bound : float
        No score moves by more than this, whatever the values of the fields: the sum of the bounds of the fields. It is
        computed in float64; the rounding of float32 scores comes on top.
    certified : bool
        False where a field has a basis of which only the values are known (`Powers`, `CustomBasis`, custom classes):
        then `bound` was measured on a fine grid of points.
    n_rows : int
        Rows on which the change was measured.
    max_error, mean_error : float
        The largest and the mean absolute change of their scores; NaN without rows.

    Examples
    --------
    >>> print(DiscretizationReport((FieldReport("recency", 200, 0.02),), 0.02, True, 1000, 0.004, 0.0013))
    field      bins     bound
    recency     200  2.00e-02
    no score moves by more than 2.00e-02; measured on 1,000 rows: at most 4.00e-03, 1.30e-03 on average
    """

    fields: tuple[FieldReport, ...]
    bound: float
    certified: bool = True
    n_rows: int = 0
    max_error: float = math.nan
    mean_error: float = math.nan

    def __str__(self) -> str:
        width = max([len("field"), *(len(item.name) for item in self.fields)])
        lines = [f"{'field':{width}}  {'bins':>6}  {'bound':>8}"]
        lines += [f"{item.name:{width}}  {item.bins:6}  {item.bound:8.2e}" for item in self.fields]
        most = f"no score moves by more than {self.bound:.2e}" + ("" if self.certified else " (by a grid of points)")
        if self.n_rows:
            most += (
                f"; measured on {self.n_rows:,} rows: at most {self.max_error:.2e}, {self.mean_error:.2e} on average"
            )
        return "\n".join([*lines, most])


def discretization_error(fitted: Fitted, binned: Fitted, data: object = None) -> DiscretizationReport:
    """How far the scores of `sf.discretize(fitted, ...)` are from the model's: a bound, and a measurement.

    Parameters
    ----------
    fitted : Fitted
        The model.
    binned : Fitted
        The result of `discretize`, which may have been saved and loaded since.
    data : table, optional
        Rows to measure the change of the scores on.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
    >>> training = sf.Training(epochs=2, threads=1)
    >>> fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
    >>> report = sf.discretization_error(fitted, sf.discretize(fitted, {"x": 50}), data=table)
    >>> report.n_rows, report.max_error <= report.bound
    (200, True)
    """
    check_one_score(fitted)
    check_one_score(binned, "binned")
    drifts = {f: _drift(fitted, binned, f) for f in _changed_fields(fitted, binned)}
    hulls = make_hulls(fitted, drifts)
    found, certified = [], True
    for f, drift in drifts.items():
        after: Any = binned.encoder.fields[f]
        if f in fitted.encoder.crosses:
            parts = changed_parts(fitted.encoder.crosses[f], after)
            rulers = CrossRuler(fitted, f, hulls)
            n_bins = math.prod(sum(bins.sizes) for bins in parts.values())
            found.append(FieldReport(after.name, n_bins, rulers.largest_error(parts, drift)))
            certified = certified and all(map(rulers.certified, parts))
            continue
        ruler = Ruler(fitted, f, hulls)
        bins: Any = after.basis
        found.append(FieldReport(after.name, len(drift), ruler.largest_error(bins, drift)))
        certified = certified and ruler.certified
    measured = () if data is None else _measure(fitted, binned, data)
    return DiscretizationReport(tuple(found), sum(item.bound for item in found), certified, *measured)


def _drift(fitted: Fitted, binned: Fitted, f: int) -> FloatArray:
    """How far what is stored for each bin is from the curve, through rounding: shape (bins, 1 + width)."""
    item: Any = binned.encoder.fields[f]
    if f in fitted.encoder.crosses:
        return field_features(binned, f) - CrossPath(fitted, f).features_of(item)
    on_curve = FieldPath(fitted, f).at(item.basis.supports().mean(axis=1))
    return np.asarray(field_features(binned, f)[item.n_tokens :] - on_curve)


def _measure(fitted: Fitted, binned: Fitted, data: object) -> tuple[int, float, float]:
    """Rows of a table, and the largest and the mean change of their scores."""
    schema = fitted.encoder.schema
    source = open_table(data, types=schema.column_types())
    schema.check_columns(source.names)
    watch = Watch(fitted.encoder)
    before, after = fitted.table_scorer(watch=watch), binned.table_scorer()
    n_rows, most, total = 0, 0.0, 0.0
    for chunk in source.chunks(schema.columns, CHUNK):
        change = np.abs(after(chunk).astype(np.float64) - before(chunk))
        n_rows, most, total = n_rows + len(change), max(most, float(change.max())), total + float(change.sum())
    if not n_rows:
        raise ValueError("data has no rows to measure the change of scores on; leave it out, or give at least one")
    watch.warn()
    return n_rows, most, total / n_rows


# Which fields, and checks of arguments


def _chosen(fitted: Fitted, fields: str | Sequence[str] | None) -> list[Target]:
    """The fields and parts of crosses that max_error is for."""
    if fields is None:
        fields = [number_at(fitted, target).name for target in every_target(fitted)]
    names = [fields] if isinstance(fields, str) else list(fields)
    return list(dict.fromkeys(target for name in names for target in targets_named(fitted, name)))


def _counts(fitted: Fitted, fields: object) -> dict[str, int]:
    if is_integer(fields):
        names = [number_at(fitted, target).name for target in every_target(fitted)]
        fields = dict.fromkeys(names, int(fields))  # type: ignore[call-overload]  # an integer
    if fields is None:
        return {}
    if not isinstance(fields, Mapping):
        raise ValueError(f'how many bins? Give numbers, such as {{"name": 200}}, or max_error=1e-3; got {fields!r}')
    for name, count in fields.items():
        targets_named(fitted, name)  # which checks the name
        if not is_integer(count) or not 1 <= count <= MAX_BINS:
            raise ValueError(f"the number of bins of {name!r} must be from 1 to {MAX_BINS:,}, got {count!r}")
    return {name: int(count) for name, count in fields.items()}


def _changed_fields(fitted: Fitted, binned: Fitted) -> list[int]:
    """Fields that have bins instead of another basis; raise where anything else differs."""
    before: tuple[Any, ...] = fitted.encoder.fields
    after: tuple[Any, ...] = binned.encoder.fields
    same = fitted.model == binned.model and [item.name for item in before] == [item.name for item in after]
    same = same and all(
        np.array_equal(values, binned.params[name])
        for name, values in fitted.params.items()
        if name not in ("factors", "linear")
    )
    changed = []
    for f, (old, new) in enumerate(zip(before, after, strict=True) if same else ()):
        n_rows = old.layout.n_features
        if old.basis is not None and isinstance(new.basis, Bins) and not is_steps(old):
            same = same and replace(new, basis=old.basis, reduction=old.reduction) == old
            n_rows = old.n_tokens
            changed.append(f)
        elif isinstance(old, Cross) and isinstance(new, Cross) and _has_new_bins(old, new):
            same = same and _with_bases(new, old) == old
            n_rows = 0
            changed.append(f)
        else:
            same = same and old == new
        mine, theirs = fitted.encoder.layout.feature_ptr[f], binned.encoder.layout.feature_ptr[f]
        same = same and all(
            np.array_equal(fitted.params[name][mine : mine + n_rows], binned.params[name][theirs : theirs + n_rows])
            for name in ("linear", "factors")
        )
    if not same:
        raise ValueError("binned is not a discretization of fitted: they differ in more than the bins of fields")
    return changed


def _has_new_bins(old: Cross, new: Cross) -> bool:
    return old.numbers == new.numbers and bool(changed_parts(old, new))


def _with_bases(new: Cross, old: Cross) -> Cross:
    """The cross with the bases of another instead of bins."""
    parts: list[Any] = list(new.fields)
    for i in changed_parts(old, new):
        before: Any = old.fields[i]
        parts[i] = replace(parts[i], basis=before.basis, reduction=before.reduction)
    return replace(new, parts=tuple(parts))


def _replaced(fitted: Fitted, bins: Mapping[Target, Bins]) -> Fitted:
    """The model with bins instead of some bases; fields that are steps already stay."""
    encoder = fitted.encoder
    smooth = {target: each for target, each in bins.items() if not is_steps(number_at(fitted, target))}
    chosen = {target.f: each for target, each in smooth.items() if target.part is None}
    crosses: dict[int, dict[int, Bins]] = {}
    for target, each in smooth.items():
        if target.part is not None:
            crosses.setdefault(target.f, {})[target.part] = each
    fields: list[Any] = list(encoder.fields)
    counts, weights = list(encoder.feature_counts), list(encoder.feature_weights)
    provenance = dict(encoder.provenance)
    ptr, linear, factors = encoder.layout.feature_ptr, fitted.params["linear"], fitted.params["factors"]
    parts = [(linear[first:last], factors[first:last]) for first, last in pairwise(ptr.tolist())]
    for f, bins_of_field in chosen.items():
        curve = FieldPath(fitted, f)
        new = curve.steps() or bins_of_field
        rows = np.concatenate([curve.tokens, curve.at(new.supports().mean(axis=1))]).astype(np.float32)
        parts[f] = rows[:, 0], rows[:, 1:]
        fields[f] = replace(curve.item, basis=new, reduction="sum")
        counts[f], weights[f] = _rows_of_bins(curve, new)
        name = curve.item.name
        provenance[name] = _binned(provenance[name], f"{sum(new.sizes):,}")
    for f, of_parts in crosses.items():
        path = CrossPath(fitted, f)
        cross = _with_bins(path, of_parts)
        rows = path.features_of(cross).astype(np.float32)
        parts[f] = rows[:, 0], rows[:, 1:]
        # The rows of a cross are counted by category.
        counts[f] = np.repeat(counts[f][:: path.item.block], cross.block)
        fields[f], weights[f] = cross, np.full(len(rows), np.nan)
        words = " × ".join(f"{cross.fields[i].basis.sizes[0]:,}" for i in of_parts)  # type: ignore[union-attr]  # bins
        provenance[cross.name] = _binned(provenance[cross.name], words)
    table = {
        "linear": np.concatenate([part[0] for part in parts]),
        "factors": np.concatenate([part[1] for part in parts]),
    }
    params = {**fitted.params, **table}
    binned = replace(
        encoder,
        fields=tuple(fields),
        provenance=provenance,
        feature_counts=tuple(counts),
        feature_weights=tuple(weights),
    )
    return replace(fitted, encoder=binned, params=params)


def _binned(before: Provenance, bins: str) -> Provenance:
    return replace(before, reason=f"{bins} simulated bins; before: {before.reason}")


def _with_bins(path: CrossPath, bins: Mapping[int, Bins]) -> Cross:
    """The cross with bins in place of the bases of some parts; raise where these are too many features."""
    parts: list[Any] = list(path.item.fields)
    for i, of_part in bins.items():
        parts[i] = replace(parts[i], basis=path.steps(i) or of_part, reduction="sum")
    cross = replace(path.item, parts=tuple(parts))
    n_features = max(1, cross.n_cells) * cross.block
    if n_features > MAX_FEATURES:
        words = " × ".join(f"{sum(parts[i].basis.sizes):,}" for i in bins)
        raise ValueError(
            f"the cross {cross.name!r} would have {n_features:,} features: {words} bins for each of "
            f"{max(1, cross.n_cells):,} combinations of categories; at most {MAX_FEATURES:,} are possible. "
            f"Give it fewer bins, such as {for_reader(f'{{{cross.name!r}: 20}}', f'--bins {cross.name}=20')}, "
            "raise max_error, or fit the model without this cross"
        )
    return cross


def _rows_of_bins(path: FieldPath, bins: Bins) -> tuple[FloatArray, FloatArray]:
    """Training rows in each feature of the field, spread evenly where they are not known, and sums of weights.

    The weights are the rows, times a function in the span of the old basis such that the mean vector stays what it was.
    """
    encoder, f = path.fitted.encoder, path.f
    tokens, functions = np.split(encoder.feature_counts[f], [path.item.n_tokens])
    breaks, rows = training_rows(path.fitted, f) or (np.array([0.0, 1.0]), functions.max(keepdims=True))
    below = np.interp(np.append(bins.supports()[:, 0], 1.0), breaks, np.concatenate([[0.0], np.cumsum(rows)]))
    counts = np.diff(below)
    wanted = encoder.feature_weights[f][path.item.n_tokens :]
    weights = np.full(len(counts), np.nan)
    if not np.isnan(wanted).any():
        matrix = path.weights(bins.supports().mean(axis=1))
        gram = (matrix.T @ (matrix * counts[:, None])).toarray()
        weights = counts * (1.0 + matrix @ np.linalg.lstsq(gram, wanted - matrix.T @ counts, rcond=1e-10)[0])
    return np.concatenate([tokens, counts]), np.concatenate([encoder.feature_weights[f][: len(tokens)], weights])
