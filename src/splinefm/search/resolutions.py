"""How fine the basis of each column has to be, judged by a model with several resolutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.encode.bases import BSpline, MultiResolution
from splinefm.encode.encoder import Encoder
from splinefm.encode.schema import Schema
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.parameters import each_output
from splinefm.model.scores import predict_scores
from splinefm.search.screening import evenly_spaced_rows
from splinefm.train.chunks import Chunks, take_rows
from splinefm.train.losses import Loss
from splinefm.train.rows import Chunk

Resolutions = Mapping[str, tuple[int, ...]]

# A resolution that contributes less than KEEP is dropped; the finest one gets a finer neighbor from REFINE on. The unit
# is what the model explains, or ERRORS times its error if that is less.
KEEP, REFINE, ERRORS = 0.001, 0.002, 5.0
FINER, FINEST = 4, 2048
# Every resolution of every column takes the scores of all validation rows, whose time grows with the number of fields.
# With more than FEW_FIELDS fields, the number of rows is limited such that rows x columns x fields <= MAX_WORK.
FEW_FIELDS, MAX_WORK, MIN_ROWS = 50, 50_000_000, 500
# The most rows of a table that is trained on again with other resolutions.
MAX_ROWS = 200_000
_POINTS = 2048  # grid on which splines are compared


class Level(NamedTuple):
    """A resolution of a column, and the features of its basis functions."""

    column: str
    segments: int
    degree: int
    features: slice


def choose_resolutions(
    columns: list[list[Level]],
    model: AnyModel,
    params: Params,
    validation: Chunk,
    loss: Loss,
    start: float | FloatArray,
) -> dict[str, tuple[int, ...]]:
    """Return resolutions by column for the next model to train.

    Resolutions are removed one by one, from the finest on; the next coarser one is adjusted to make up for it. The
    increase of the validation loss is the contribution of the removed resolution: those with a small one are dropped.
    If the finest resolution contributes a lot, a finer one is added. Contributions are relative to what the model
    explains beyond the constant score `start`.
    """
    validation = _some_rows(validation, len(columns))

    def mean_loss(score: FloatArray) -> float:
        return float(np.average(loss.value(validation.y, score), weights=validation.sample_weight))

    def loss_of(params: Params) -> float:
        return mean_loss(predict_scores(model, params, validation.slots).astype(np.float64))

    whole = loss_of(params)
    weight = float(validation.sample_weight.sum())
    error = whole - loss.floor(validation.y, validation.sample_weight) / weight
    unit = min(mean_loss(validation.constant_scores(start)) - whole, ERRORS * error)
    if unit <= 0.0:  # the model explains nothing
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
    """Return the validation rows, or an evenly spaced part of them if the table is wide."""
    n_rows, n_fields = len(validation.y), len(validation.slots.layout.fields)
    most = max(MIN_ROWS, MAX_WORK // max(1, n_columns * n_fields))
    if n_fields <= FEW_FIELDS or n_rows <= most:
        return validation
    return take_rows(validation, evenly_spaced_rows(validation.sample_weight > 0, most))


def _choose(segments: list[int], growth: list[float]) -> tuple[int, ...]:
    """Return resolutions, given the growth of the loss without the finest one, the two finest ones, and so on."""
    n_dropped = max((i + 1 for i, value in enumerate(growth) if value < KEEP), default=0)
    if n_dropped:
        return tuple(segments[: len(segments) - n_dropped])
    more = growth[0] >= REFINE and FINER * segments[-1] <= FINEST
    return (*segments, FINER * segments[-1]) if more else tuple(segments)


def _merged(params: Params, fine: Level, coarse: Level) -> Params:
    """Return the parameters with a resolution merged into the next one by least squares."""
    changed = params | {name: params[name].copy() for name in ("factors", "linear")}
    projection = _projection(fine.segments, fine.degree, coarse.segments, coarse.degree)
    for own in each_output(changed):
        for values in (own["factors"], own["linear"]):
            values[coarse.features] += (projection @ values[fine.features].astype(np.float64)).astype(np.float32)
            values[fine.features] = 0.0
    return changed


@lru_cache(maxsize=16)  # columns have the same few resolutions
def _projection(fine: int, fine_degree: int, coarse: int, coarse_degree: int) -> FloatArray:
    """Return the matrix from the weights of a spline to the weights of the closest one with fewer segments."""
    u = (np.arange(_POINTS) + 0.5) / _POINTS
    design, wanted = _design(BSpline(coarse, coarse_degree), u), _design(BSpline(fine, fine_degree), u)
    # B-splines are well conditioned, so normal equations are accurate; they take a hundredth of the time of an SVD.
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
    """Return the columns whose resolutions were inferred and not changed since."""
    free = (item.name for item in schema.numerical if item.basis == MultiResolution())
    return [name for name in free if schema.is_chosen(name)]


def levels_of(encoder: Encoder, names: list[str]) -> list[list[Level]]:
    """Return the resolutions of columns that have several."""
    columns = []
    for item, layout, first in zip(encoder.fields, encoder.layout.fields, encoder.layout.feature_ptr, strict=False):
        if item.name in names and isinstance(item.basis, MultiResolution):
            sizes, basis = item.basis.sizes, item.basis
            ends = int(first) + layout.n_features - sum(sizes) + np.cumsum(sizes)  # the tokens come first
            features = [slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)]
            levels = zip(basis.segments, features, strict=True)
            columns.append([Level(item.name, segments, basis.degree, part) for segments, part in levels])
    return columns


def with_resolutions(schema: Schema, resolutions: Resolutions) -> Schema:
    """Return a schema with other resolutions.

    Examples
    --------
    >>> from splinefm import Numerical
    >>> schema = Schema([Numerical("x", basis=MultiResolution()), Numerical("y", basis=MultiResolution())])
    >>> [item.basis.segments for item in with_resolutions(schema, {"x": (8,), "y": (8, 32)})]
    [(8,), (8, 32)]
    """
    # A single resolution stays a MultiResolution, which has its own penalties.
    return schema.with_bases(
        {
            item.name: replace(item.basis, segments=resolutions[item.name])
            for item in schema.numerical
            if item.name in resolutions and isinstance(item.basis, MultiResolution)
        }
    )


def suggest_resolutions(model: AnyModel, chunks: Chunks, params: Params) -> Schema | None:
    """Return a schema with the resolutions by column that a model suggests, or None if it suggests nothing else.

    None too if no resolutions were inferred, without validation rows, and for large tables: a second run on them takes
    long, and with many rows fine resolutions do no harm.
    """
    source, names = chunks.source, free_columns(chunks.source.schema)
    is_small = chunks.kept is not None and chunks.n_rows <= MAX_ROWS
    if not (names and is_small) or chunks.validation is None:
        return None
    levels = levels_of(chunks.encoder, names)
    chosen = choose_resolutions(levels, model, params, chunks.validation, chunks.loss, chunks.start)
    schema = with_resolutions(source.schema, chosen)
    return None if schema == source.schema else schema
