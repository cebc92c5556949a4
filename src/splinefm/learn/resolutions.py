"""How fine the basis of each column needs to be, seen from a model that has several resolutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.encode.bases.splines import BSpline, MultiResolution
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Field, Schema
from splinefm.learn.losses import Loss
from splinefm.learn.training import Chunk
from splinefm.model.cpu import predict_scores
from splinefm.model.family import AnyModel, Params

FloatArray = npt.NDArray[np.float64]
Resolutions = Mapping[str, tuple[int, ...]]

# A resolution that does less is dropped, one that does so much gets a finer one: as parts of what the model explains,
# or of `ERRORS` times its error, if that is less.
KEEP, REFINE, ERRORS = 0.001, 0.002, 5.0
FINER, FINEST = 4, 2048
# Scores of all validation rows are computed for each resolution of each column, and their time grows with the fields:
# with more than 50 fields only so many rows are looked at that rows x columns x fields stays below this.
FEW_FIELDS, MOST_WORK, FEWEST_ROWS = 50, 50_000_000, 500
_POINTS = 2048  # of a column at which splines are compared


class Level(NamedTuple):
    """A resolution of a column, and the features of its basis functions."""

    column: str
    segments: int
    degree: int
    rows: slice


def choose_resolutions(
    columns: list[list[Level]], model: AnyModel, params: Params, validation: Chunk, loss: Loss, start: float
) -> dict[str, tuple[int, ...]]:
    """Resolutions by column, for a model to be trained anew.

    From the finest on, a resolution is taken out, and what coarser ones can express of it is given to the next. What
    the loss on the validation rows grows by is what only this resolution can do: those that do little are left out. If
    the finest one does much, there may be more to find with a finer one. Measured in parts of what the model explains
    beyond the score `start`.
    """

    validation = _some_rows(validation, len(columns))

    def mean_loss(score: FloatArray) -> float:
        return float(np.average(loss.value(validation.y, score), weights=validation.sample_weight))

    def loss_of(params: Params) -> float:
        return mean_loss(predict_scores(model, params, validation.slots).astype(np.float64))

    whole = loss_of(params)
    weight = float(validation.sample_weight.sum())
    error = whole - loss.floor(validation.y, validation.sample_weight) / weight
    unit = min(mean_loss(np.full(len(validation.y), start)) - whole, ERRORS * error)
    if unit <= 0.0:  # a model that explains nothing tells nothing
        return {}
    chosen: dict[str, tuple[int, ...]] = {}
    for levels in columns:
        done, rest = [], params
        for coarse, fine in reversed(list(pairwise(levels))):
            rest = _merged(rest, fine, coarse)
            done.append((loss_of(rest) - whole) / unit)
        chosen[levels[0].column] = _choose([level.segments for level in levels], done)
    return chosen


def _some_rows(validation: Chunk, n_columns: int) -> Chunk:
    """The validation rows, of a wide table some of them, spread over all."""
    n_rows, n_fields = len(validation.y), len(validation.slots.layout.fields)
    most = max(FEWEST_ROWS, MOST_WORK // max(1, n_columns * n_fields))
    if n_fields <= FEW_FIELDS or n_rows <= most:
        return validation
    rows = np.linspace(0, n_rows - 1, most).astype(np.int64)
    return Chunk(validation.slots[rows], validation.y[rows], validation.sample_weight[rows])


def _choose(segments: list[int], growth: list[float]) -> tuple[int, ...]:
    """Resolutions, from how much the loss grows without the finest one, the two finest ones, and so on."""
    n_dropped = max((i + 1 for i, value in enumerate(growth) if value < KEEP), default=0)
    if n_dropped:
        return tuple(segments[: len(segments) - n_dropped])
    more = growth[0] >= REFINE and FINER * segments[-1] <= FINEST
    return (*segments, FINER * segments[-1]) if more else tuple(segments)


def _merged(params: Params, fine: Level, coarse: Level) -> Params:
    """The parameters without a resolution: the next one takes over what it can, by least squares over the column."""
    changed = dict(params)
    projection = _projection(fine.segments, fine.degree, coarse.segments, coarse.degree)
    for name in ("factors", "linear"):
        values = params[name].copy()
        values[coarse.rows] += (projection @ params[name][fine.rows].astype(np.float64)).astype(np.float32)
        values[fine.rows] = 0.0
        changed[name] = values
    return changed


@lru_cache(maxsize=16)  # columns have the same few resolutions
def _projection(fine: int, fine_degree: int, coarse: int, coarse_degree: int) -> FloatArray:
    """From the weights of a spline to those of the nearest one with fewer segments."""
    u = (np.arange(_POINTS) + 0.5) / _POINTS
    design, wanted = _design(BSpline(coarse, coarse_degree), u), _design(BSpline(fine, fine_degree), u)
    # Normal equations are sound, for B-splines are nearly orthogonal, and take a hundredth of the time of an SVD.
    found = np.asarray(np.linalg.solve(design.T @ design, design.T @ wanted))
    found.flags.writeable = False
    return found


def _design(basis: BSpline, u: FloatArray) -> FloatArray:
    start, weight = basis(u)
    design = np.zeros((len(u), sum(basis.sizes)))
    columns = start.reshape(len(u), 1) + np.arange(weight.shape[1])
    np.put_along_axis(design, columns, weight, axis=1)
    return design


def free_columns(schema: Schema) -> list[str]:
    """Columns whose resolutions were inferred, and not changed since."""
    return [item.name for item in schema if item.name in schema.reasons and _is_free(item)]


def _is_free(item: Field) -> bool:
    return isinstance(item, Numerical) and item.basis == MultiResolution()


def levels_of(encoder: Encoder, names: list[str]) -> list[list[Level]]:
    """The resolutions of some columns that have several."""
    columns = []
    for item, layout, first in zip(encoder.fields, encoder.layout.fields, encoder.layout.feature_ptr, strict=False):
        if item.name in names and isinstance(item, Numerical) and isinstance(item.basis, MultiResolution):
            ends = (
                int(first) + layout.n_features - sum(item.basis.sizes) + np.cumsum(item.basis.sizes)
            )  # behind the tokens
            rows = [slice(int(end) - size, int(end)) for end, size in zip(ends, item.basis.sizes, strict=True)]
            columns.append(
                [Level(item.name, n, item.basis.degree, own) for n, own in zip(item.basis.segments, rows, strict=True)]
            )
    return columns


def resolutions_of(encoder: Encoder, names: list[str]) -> dict[str, tuple[int, ...]]:
    """The resolutions that some columns have."""
    found = {}
    for item in encoder.fields:
        if item.name in names and isinstance(item, Numerical) and isinstance(item.basis, MultiResolution):
            found[item.name] = item.basis.segments
    return found


def with_resolutions(schema: Schema, resolutions: Resolutions) -> Schema:
    """A schema whose columns have other resolutions.

    Examples
    --------
    >>> schema = Schema([Numerical("x", basis=MultiResolution()), Numerical("y", basis=MultiResolution())])
    >>> [item.basis.segments for item in with_resolutions(schema, {"x": (8,), "y": (8, 32)})]
    [(8,), (8, 32)]
    """
    return Schema(tuple(_changed(item, resolutions) for item in schema), schema.reasons)


def with_bases(schema: Schema, encoder: Encoder) -> Schema:
    """A schema with the bases that an encoder has."""
    bases = {item.name: item.basis for item in encoder.fields if isinstance(item, Numerical)}
    items = (replace(item, basis=bases[item.name]) if isinstance(item, Numerical) else item for item in schema)
    return Schema(tuple(items), schema.reasons)


def _changed(item: Field, resolutions: Resolutions) -> Field:
    if item.name not in resolutions or not isinstance(item, Numerical) or not isinstance(item.basis, MultiResolution):
        return item
    # A single one stays a MultiResolution: what was learned with it was learned under the penalties of resolutions.
    return replace(item, basis=replace(item.basis, segments=resolutions[item.name]))
