"""The model as a function of one or two fields: what the other fields leave of it.

The score is affine in the vector of a field: score = β + Σ_i weight_i (w_i + g' v_i). Here are g for every model, the
vectors of the fields that a segment names, and the mean vectors of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._checks import check_choice
from splinefm._wording import for_reader
from splinefm.encode.fields.axis import active_features, features_on_axis
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.learn.fitted import Fitted
from splinefm.model.family import AnyModel, Params, through
from splinefm.model.means import mean_vector
from splinefm.model.towers import symmetric_sums

FloatArray = npt.NDArray[np.float64]
Rest = Literal["error", "mean"]

_BLOCK_ROWS = 65_536  # rows of a background that are read at a time
_BLOCK_SIZE = 1 << 21  # coordinates of vectors that are converted to float64 at a time


def n_units(fitted: Fitted, f: int) -> int:
    return max(fitted.encoder.layout.fields[f].units) + 1


def read_columns(source: Table, names: list[str], rows: int) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    """Number of rows and the columns of the given names, chunk by chunk."""
    for chunk in source.chunks(names or source.names[:1], rows):
        yield chunk.num_rows, {name: chunk.column(name) for name in names}


# Fields that the segment does not name


def mean_vectors(
    fitted: Fitted, named: list[str], rest: Rest, background: object
) -> dict[int, tuple[FloatArray, float]]:
    """Mean vector and mean linear weight of every field that is not named."""
    check_choice("rest", rest, ("error", "mean"))
    if background is not None and rest != "mean":
        raise ValueError('background is what fields are averaged over: use it with rest="mean"')
    fields = fitted.encoder.fields
    absent = [f for f, item in enumerate(fields) if item.name not in named]
    if not absent:
        return {}
    if rest == "error":
        raise ValueError(
            f"the segment lacks {quoted([fields[f].name for f in absent])}; give their values, "
            'or average over them: rest="mean"'
        )
    split = [fields[f].name for f in absent if n_units(fitted, f) > 1]
    if split:
        raise ValueError(
            f'{quoted(split)}: reduction="identity" has no mean vector, because the vectors of the field interact with '
            "each other; give values in the segment"
        )
    weights = _kept(fitted, absent) if background is None else _averaged(fitted, absent, background)
    first = fitted.encoder.layout.feature_ptr
    return {f: mean_vector(fitted.params, int(first[f]), share) for f, share in zip(absent, weights, strict=True)}


def _kept(fitted: Fitted, absent: list[int]) -> list[FloatArray]:
    """Mean weights of fields over the training rows, from the encoder."""
    means, names = fitted.encoder.feature_means, fitted.encoder.schema.names
    unknown = [names[f] for f in absent if np.isnan(means[f]).any()]
    if unknown:
        raise ValueError(
            f"the mean of {quoted(unknown)} is not kept with this model; "
            f"give the rows to average over, {for_reader('such as background=train', 'with --data TABLE')}"
        )
    return [means[f] for f in absent]


def _averaged(fitted: Fitted, absent: list[int], background: object) -> list[FloatArray]:
    """Mean weights of fields over a table."""
    encoder = fitted.encoder
    source = open_table(background, types=encoder.schema.column_types())
    names = list(dict.fromkeys(encoder.fields[f].column for f in absent))
    for name in names:
        if name not in source.names:
            raise ValueError(f"background: {missing_column_message(name, source.names)}")
    totals = [np.zeros(encoder.layout.fields[f].n_features) for f in absent]
    n_rows = 0
    for n, columns in read_columns(source, names, _BLOCK_ROWS):
        n_rows += n
        for f, total in zip(absent, totals, strict=True):
            features, weight = active_features(encoder.fields[f], columns[encoder.fields[f].column])
            total += np.bincount(features.ravel(), weight.ravel(), minlength=len(total))
    if not n_rows:
        raise ValueError("background has no rows; give at least one to average over")
    return [total / n_rows for total in totals]


# Fields that vary


def other_units(
    fitted: Fitted,
    along: list[int],
    n: int,
    columns: dict[str, pa.Array],
    means: dict[int, tuple[FloatArray, float]],
) -> tuple[FloatArray, FloatArray, npt.NDArray[np.int32]]:
    """Vectors of all units outside of `along`, shape (n, units, width), their linear part, and their fields.

    `columns` has the values along the axis of each field, by its name.
    """
    width = fitted.params["factors"].shape[1]
    parts, linear, unit_field = [np.zeros((n, 0, width))], np.zeros(n), []
    for f, item in enumerate(fitted.encoder.fields):
        if f in along:
            continue
        if f in means:
            vector, weight = means[f]
            parts.append(np.broadcast_to(vector, (n, 1, width)))
            linear += weight
        else:
            vectors, weights = _unit_vectors(fitted, f, columns[item.name])
            parts.append(vectors)
            linear += weights
        unit_field += [f] * parts[-1].shape[1]
    return np.concatenate(parts, axis=1), linear, np.array(unit_field, np.int32)


def _unit_vectors(fitted: Fitted, f: int, column: pa.Array) -> tuple[FloatArray, FloatArray]:
    """Vectors of a field's units, shape (n, units, width), and its linear part, shape (n,)."""
    layout, params = fitted.encoder.layout, fitted.params
    features, weight = features_on_axis(fitted.encoder.fields[f], column)
    features = features + layout.feature_ptr[f]
    units = np.repeat(layout.fields[f].units, layout.fields[f].widths)
    vectors = np.zeros((len(features), n_units(fitted, f), params["factors"].shape[1]))
    for j, unit in enumerate(units):
        vectors[:, unit] += weight[:, j, None] * params["factors"][features[:, j]]
    return vectors, (weight * params["linear"][features]).sum(axis=1)


def pair_scale(model: AnyModel, params: Params, P: FloatArray, along: list[int], n_fields: int) -> FloatArray:
    """s of C = L diag(s) R', shape (n, coordinates of L): that of products is the segment's."""
    between = model.between(params, *along)
    weight = between if between.ndim < 2 else np.float64(1.0)
    pairs = np.broadcast_to(weight, (len(P), model.part_size(n_fields)))
    products = symmetric_sums(P[:, :, model.product_columns], model.order - 2)[1:].sum(axis=0)
    return np.concatenate([pairs, products], axis=1)


def pair_factors(fitted: Fitted, f: int, e: int) -> tuple[FloatArray, FloatArray]:
    """L and R: the vectors of two fields, transformed so that their interaction is a sum over coordinates.

    Coordinates for pairs come first, then those of products with units of other fields.
    """
    ptr, model, table = fitted.encoder.layout.feature_ptr, fitted.model, fitted.params["factors"]
    (left, more_left), (right, more_right) = (
        [
            table[ptr[g] : ptr[g + 1], columns].astype(np.float64)
            for columns in (model.columns(h), model.product_columns)
        ]
        for g, h in ((f, e), (e, f))
    )
    between = model.between(fitted.params, f, e)
    left = through(left, between) if between.ndim == 2 else left
    return np.concatenate([left, more_left], axis=1), np.concatenate([right, more_right], axis=1)


def feature_effects(fitted: Fitted, f: int, slopes: FloatArray) -> FloatArray:
    """α: the effect w_i + g' v_i of every feature of a field, shape (n, features)."""
    first, last = fitted.encoder.layout.feature_ptr[f : f + 2].tolist()
    effects = np.empty((len(slopes), last - first))
    most = max(1, _BLOCK_SIZE // slopes.shape[1])
    for at in range(first, last, most):
        block = slice(at, min(at + most, last))
        vectors = fitted.params["factors"][block].astype(np.float64)
        effects[:, block.start - first : block.stop - first] = slopes @ vectors.T + fitted.params["linear"][block]
    return effects
