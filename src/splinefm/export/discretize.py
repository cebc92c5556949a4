"""Simulated binning: a model that reads numerical columns in fine bins, for systems that know nothing but bins.

The vector of a numerical field is a curve p(u) = Σ_i B_i(u) v_i in u = T(z). Read at the mid-point of each of N
intervals it becomes a table of N vectors (paper, section on simulating binning): the model that a serving system sees
has bins, though it was not trained with any.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._checks import check_choice, check_one_score, check_positive, is_integer
from splinefm._wording import for_reader
from splinefm.bounds.cross_paths import CrossPath, changed_parts
from splinefm.bounds.hulls import CrossRuler, Ruler, make_hulls
from splinefm.bounds.paths import FieldPath, Parameterized, field_features, is_steps
from splinefm.encode.bases import Bins, BSpline, MultiResolution
from splinefm.encode.drift import Watch
from splinefm.encode.encoder import CHUNK
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.numerical import ORDINARY, Numerical
from splinefm.encode.schema import Provenance, Schema
from splinefm.encode.slots import expand_windows
from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.open import open_table
from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.encode.transforms.sketch import QuantileSketch
from splinefm.encode.transforms.transform import CustomTransform
from splinefm.train.fitted import Fitted

Spacing = Literal["u", "uniform", "geometric", "quantile"]
MAX_BINS, MAX_FEATURES = 1_000_000, 4_000_000
"""Maximum number of bins of a field, and of features of a cross with bins."""
_MARGIN = 0.99  # of `max_error` is planned with; the rest is for rounding


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
    """Rows of a table, and the largest and the mean change of their scores, which an offset does not matter for."""
    fitted, binned = fitted.without_offset(), binned.without_offset()
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


# Bins: the fields that can have them, and their edges: given, evenly spaced, or as few as a bound allows.


class Target(NamedTuple):
    """A numerical field, by its number in the model, or a part of a cross."""

    f: int
    part: int | None = None


def number_at(fitted: Fitted, target: Target) -> Numerical:
    """The field or part."""
    item = fitted.encoder.fields[target.f]
    found: Numerical = item.singles[target.part or 0]  # type: ignore[assignment]  # targets are numbers
    return found


def target_text(fitted: Fitted, target: Target) -> str:
    """The name of a target in messages."""
    name = repr(number_at(fitted, target).name)
    return name if target.part is None else f"{name} in the cross {fitted.encoder.fields[target.f].name!r}"


def every_target(fitted: Fitted) -> list[Target]:
    """All numerical fields and numerical parts of crosses."""
    return list(_targets(fitted))


def targets_named(fitted: Fitted, name: str) -> list[Target]:
    """The numerical field of a name and the parts of crosses that have it; of a cross, all its numbers."""
    schema = fitted.encoder.schema
    found = [target for target in _targets(fitted) if number_at(fitted, target).name == name]
    if not found and name in schema.names:
        item = schema[name]
        found = [target for target in _targets(fitted) if fitted.encoder.fields[target.f] is item]
        if not found:
            what = "cross of categories" if item in schema.crosses else f"{type(item).__name__} field"
            raise ValueError(f"{name!r} is a {what}: it has categories, not bins")
    if not found:
        raise ValueError(missing_column_message(name, schema.names, where="the model"))
    for target in found:
        if target.part is None and not fitted.model.pairwise and max(schema.fields[target.f].layout.units) > 0:
            raise ValueError(
                f'{name!r} has reduction="identity": products of three and more of its vectors are not a function of '
                'one vector, so there are no bins for it; fit with reduction="sum"'
            )
    return found


def is_cross(fitted: Fitted, name: str) -> bool:
    """Whether a cross has this name."""
    return any(cross.name == name for cross in fitted.encoder.schema.crosses)


def _targets(fitted: Fitted) -> Iterator[Target]:
    for f, item in enumerate(fitted.encoder.fields):
        if item.is_numerical:
            yield Target(f)
        elif f in fitted.encoder.crosses:
            yield from (Target(f, part) for part in fitted.encoder.crosses[f].numbers)


def given_bins(item: Numerical, edges: Sequence[float]) -> Bins:
    """Bins with edges in raw units."""
    try:
        bins = Bins(count=max(1, len(edges) - 1), edges=tuple(edges))
    except (TypeError, ValueError) as error:
        raise ValueError(f"edges of {item.name!r}: {error}") from error
    return bins.fit(np.zeros(0), np.zeros(0), item.fitted_transform)


def spaced_bins(fitted: Fitted, target: Target, count: int, spacing: Spacing, data: object) -> Bins:
    """A number of bins that are evenly spaced in some sense."""
    item = number_at(fitted, target)
    if spacing == "u":
        return Bins(count)
    if spacing == "quantile":
        return _quantile_bins(fitted, target, count, data)
    low, high = _raw_range(item, count) if data is None else _points_of(item, data)[0][[0, -1]].tolist()
    if low == high or count == 1:
        return Bins(count=1, cuts=())
    if spacing == "uniform":
        return given_bins(item, np.linspace(low, high, count + 1).tolist())
    if low < 0:
        raise ValueError(
            for_reader('spacing="geometric"', "--spacing geometric")
            + f" needs values from 0 on, {item.name!r} starts at {low:g}; use another"
            + for_reader(", or edges=", "")
        )
    if low > 0:
        return given_bins(item, np.geomspace(low, high, count + 1).tolist())
    # No factor leads away from 0: the first bin is as wide as it is in u.
    start = float(item.fitted_transform.inverse(1.0 / count))
    start = start if 0 < start < high else high / count
    return given_bins(item, [0.0, *np.geomspace(start, high, count)])


def _raw_range(item: Any, count: int) -> tuple[float, float]:
    """The ends of the transform; a parametric CDF has them in its tails, so half a bin is left out."""
    endless = isinstance(item.transform, BestFitCDF | CustomTransform)
    ends = np.array([0.5, count - 0.5]) / count if endless else np.array([0.0, 1.0])
    low, high = np.asarray(item.transform.inverse(ends)).tolist()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"the transform of {item.name!r} runs from {low} to {high}; give data= or edges=")
    return low, high


def _points_of(item: Any, data: object) -> tuple[FloatArray, FloatArray]:
    """Ordinary values of a column of a table, in order, and the rows that each stands for."""
    source = open_table(data, types=Schema([item]).column_types())
    if item.column not in source.names:
        raise ValueError(f"data: {missing_column_message(item.column, source.names)}")
    sketch = QuantileSketch()
    for chunk in source.chunks([item.column], CHUNK):
        x = item.read(chunk.column(0))
        token = item.find_tokens(x)
        sketch.update(x if token is None else x[token == ORDINARY])
    summary = sketch.summary()
    if summary is None:
        raise ValueError(f"data: column {item.name!r} has no ordinary values, only missing and special ones")
    return summary.points()


def _quantile_bins(fitted: Fitted, target: Target, count: int, data: object) -> Bins:
    item = number_at(fitted, target)
    if data is not None:
        return Bins(count, spacing="quantile").fit(*_points_of(item, data), item.fitted_transform)
    if target.part is not None:  # the rows of a cross are counted by category only: its field knows more
        same = [other for other in targets_named(fitted, item.name) if other.part is None]
        if same and number_at(fitted, same[0]).transform == item.transform:
            return _quantile_bins(fitted, same[0], count, data)
    known = training_rows(fitted, target.f) if target.part is None else None
    if known is None:
        raise ValueError(
            f"the distribution of {target_text(fitted, target)} is not kept with a {type(item.basis).__name__} basis; "
            + for_reader(
                'give data=, such as the training table, or use spacing="u"',
                "add --data TABLE, such as the training table, or use --spacing u",
            )
        )
    breaks, rows = known
    share = np.concatenate([[0.0], np.cumsum(rows)]) / rows.sum()
    rising = np.concatenate([[True], np.diff(share) > 0])
    cuts = np.unique(np.interp(np.arange(1, count) / count, share[rising], breaks[rising]))
    return Bins(count, spacing="quantile", cuts=tuple(cuts[cuts > 0.0].tolist()))


def training_rows(fitted: Parameterized, f: int) -> tuple[FloatArray, FloatArray] | None:
    """Parts of [0, 1] and the training rows in each; None where they are unknown.

    Each function of a spline has seen the rows of all its segments; least squares find the rows of each segment.
    """
    from scipy.sparse import csr_array, eye_array
    from scipy.sparse.linalg import spsolve

    item: Any = fitted.encoder.fields[f]
    seen = fitted.encoder.feature_counts[f][item.n_tokens :]
    levels = item.basis.levels if isinstance(item.basis, MultiResolution) else (item.basis,)
    if not isinstance(levels[0], BSpline):
        return None
    finest = max(range(len(levels)), key=lambda number: levels[number].segments)
    first = sum(item.basis.sizes[:finest])
    basis = levels[finest]
    breaks, _ = replace(item, basis=basis).pieces()
    start, _ = basis((breaks[:-1] + breaks[1:]) / 2)
    active = expand_windows(start, basis.widths)
    row_ptr = np.arange(len(active) + 1) * active.shape[1]
    sees = csr_array((np.ones(active.size), active.ravel(), row_ptr), shape=(len(active), basis.sizes[0]))
    # A little is added to the diagonal, because periodic splines do not always determine the rows.
    gram = (sees @ sees.T + 1e-9 * eye_array(len(active))).tocsc()
    rows = np.maximum(spsolve(gram, sees @ seen[first : first + basis.sizes[0]]), 0.0)
    n_ordinary = fitted.encoder.n_rows - fitted.encoder.feature_counts[f][: item.n_tokens].sum()
    return (breaks, rows * (n_ordinary / rows.sum())) if rows.sum() > 0 else None


def adaptive_bins(fitted: Fitted, targets: list[Target], max_error: float) -> dict[Target, Bins]:
    """Few bins for a bound of max_error in all: N bins of a field of length L can err by L / 2N."""
    hulls = make_hulls(fitted, {})
    crosses: dict[int, CrossRuler] = {}
    curves: dict[Target, tuple[FloatArray, FloatArray]] = {}
    for target in targets:
        if is_steps(number_at(fitted, target)):
            continue
        if target.part is None:
            ruler = Ruler(fitted, target.f, hulls)
            curves[target] = ruler.path.cells, ruler.lengths
            continue
        cross = crosses.setdefault(target.f, CrossRuler(fitted, target.f, hulls))
        no_length = np.array([0.0, 1.0]), np.zeros(2)
        curves[target] = cross.lengths(target.part) if cross.path.steps(target.part) is None else no_length
    # The sum of all L / 2ε is least for ε in proportion to √L.
    share = {target: math.sqrt(lengths[-1]) for target, (_, lengths) in curves.items()}
    total = sum(share.values())
    bins = {}
    for target, (cells, lengths) in curves.items():
        tolerance = _MARGIN * max_error * share[target] / total if total else max_error
        if lengths[-1] > 2 * tolerance * MAX_BINS:
            raise ValueError(
                f"max_error={max_error:g} takes more than {MAX_BINS:,} bins of {target_text(fitted, target)}; "
                "raise it, or name fewer fields"
            )
        cuts = _walk(cells.tolist(), lengths.tolist(), tolerance)
        bins[target] = Bins(len(cuts) + 1, cuts=tuple(cuts))
    return bins


def _walk(cells: list[float], lengths: list[float], tolerance: float) -> list[float]:
    """Borders, left to right, each as far on as the mid-point allows: at most `tolerance` away from both ends."""

    def length(u: float) -> float:
        i = min(bisect_right(cells, u), len(cells) - 1)
        return lengths[i - 1] + (u - cells[i - 1]) / (cells[i] - cells[i - 1]) * (lengths[i] - lengths[i - 1])

    def reach(value: float) -> float:
        i = bisect_right(lengths, value)
        if i == len(lengths):
            return cells[-1]
        return cells[i - 1] + (value - lengths[i - 1]) / (lengths[i] - lengths[i - 1]) * (cells[i] - cells[i - 1])

    cuts: list[float] = []
    start = behind = 0.0
    while True:
        # The first half is short enough up to here; the second is cut until it is.
        end = min(reach(behind + 2 * tolerance), 2 * reach(behind + tolerance) - start, cells[-1])
        low = start
        most = tolerance * (1 + 1e-9)
        if length(end) - length((start + end) / 2) > most:
            for _ in range(14):
                middle = (low + end) / 2
                fits = length(middle) - length((start + middle) / 2) <= most
                low, end = (middle, end) if fits else (low, middle)
            end = low
        if end >= cells[-1]:
            return cuts
        cuts.append(end)
        start, behind = end, length(end)
