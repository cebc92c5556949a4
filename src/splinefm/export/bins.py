"""Simulated bins: which fields can have them, and their edges: given, evenly spaced, or as few as a bound allows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._wording import for_reader
from splinefm.bounds.hulls import CrossRuler, Ruler, make_hulls
from splinefm.bounds.paths import Parameterized, is_steps
from splinefm.encode.bases import Bins, BSpline, MultiResolution
from splinefm.encode.encoder import CHUNK
from splinefm.encode.fields.numerical import ORDINARY, Numerical
from splinefm.encode.schema import Schema
from splinefm.encode.slots import expand_windows
from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.open import open_table
from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.encode.transforms.sketch import QuantileSketch
from splinefm.encode.transforms.transform import CustomTransform
from splinefm.train.fitted import Fitted


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


Spacing = Literal["u", "uniform", "geometric", "quantile"]
_MARGIN = 0.99  # of `max_error` is planned with; the rest is for rounding

MAX_BINS = 1_000_000
"""Most bins of one field."""


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
