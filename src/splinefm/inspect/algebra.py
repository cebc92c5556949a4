"""The model as a function of one or two fields: what the other fields leave of it.

The score is affine in the vector of a field: score = β + Σ_i weight_i (w_i + g' v_i). Here are g for every model, the
vectors of the fields that a segment names, and the mean vectors of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from splinefm._arrays import Float32Array, FloatArray, Int32Array
from splinefm._checks import check_choice
from splinefm._wording import for_reader
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.contract import active_features
from splinefm.encode.fields.cross import Cross, GroupMeans, PartGroup, encode_part, known_group, product
from splinefm.encode.fields.sources import Sources
from splinefm.encode.schema import AnyField
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params, through
from splinefm.model.family.parameters import mean_vector
from splinefm.model.towers import symmetric_sums
from splinefm.train.fitted import Fitted

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


@dataclass(frozen=True, eq=False)
class Means:
    """What stands for the columns that a segment does not name.

    Parameters
    ----------
    vectors : dict
        Mean vector and mean linear weight of each field all of whose columns are absent.
    groups : dict
        For each cross with some of its columns absent, the mean weights of these parts.
    """

    vectors: dict[int, tuple[FloatArray, float]] = field(default_factory=dict)
    groups: dict[int, PartGroup] = field(default_factory=dict)


def mean_vectors(fitted: Fitted, sources: Sources, named: list[str], rest: Rest, background: object) -> Means:
    """Means for the sources of values that are not named."""
    check_choice("rest", rest, ("error", "mean"))
    if background is not None and rest != "mean":
        raise ValueError('background is what fields are averaged over: use it with rest="mean"')
    absent = [name for name in sources.fields if name not in named]
    if not absent:
        return Means()
    if rest == "error":
        raise ValueError(f'the segment lacks {quoted(absent)}; give their values, or average over them: rest="mean"')
    fields = fitted.encoder.fields
    parts = [_absent_parts(item, sources, absent) for item in fields]
    whole = [f for f, item in enumerate(fields) if len(parts[f]) == len(item.columns)]
    some = {f: parts[f] for f, item in enumerate(fields) if 0 < len(parts[f]) < len(item.columns)}
    split = [fields[f].name for f in whole if n_units(fitted, f) > 1]
    if split:
        raise ValueError(
            f'{quoted(split)}: reduction="identity" has no mean vector, because the vectors of the field interact with '
            "each other; give values in the segment"
        )
    kept = background is None
    weights, groups = _kept(fitted, sources, whole, some) if kept else _averaged(fitted, whole, some, background)
    first = fitted.encoder.layout.feature_ptr
    vectors = {f: mean_vector(fitted.params, int(first[f]), share) for f, share in zip(whole, weights, strict=True)}
    return Means(vectors, groups)


def _absent_parts(item: AnyField, sources: Sources, absent: list[str]) -> list[int]:
    """Positions of the parts of a field that a segment does not name; a field of one column is its own part."""
    return [i for i, name in enumerate(sources.of_field(item.name)) if name in absent]


def _kept(
    fitted: Fitted, sources: Sources, whole: list[int], some: dict[int, list[int]]
) -> tuple[list[FloatArray], dict[int, PartGroup]]:
    """Mean weights of fields, and of parts of crosses, over the training rows, from the encoder."""
    encoder = fitted.encoder
    means, names = encoder.feature_means, encoder.schema.names
    groups, unknown = {}, [names[f] for f in whole if np.isnan(means[f]).any()]
    for f, parts in some.items():
        cross = encoder.crosses[f]
        source = sources.of[cross.name][parts[0]]
        # A category's own field has the same features; of numbers, and of two columns together, nothing is kept.
        if len(parts) == 1 and source in names and encoder.schema[source] == cross.fields[parts[0]]:
            part = cross.fields[parts[0]]
            share = means[names.index(source)].copy()
            if isinstance(part, Categorical):
                share[part.first_unseen : part.n_tokens] = 0.0  # a cross has no features there
                groups[f] = known_group(parts[0], share, len(cross.levels))
                continue
        unknown.append(cross.name)
    if unknown:
        raise ValueError(
            f"the mean of {quoted(unknown)} is not kept with this model; "
            f"give the rows to average over, {for_reader('such as background=train', 'with --data TABLE')}"
        )
    return [means[f] for f in whole], groups


def _averaged(
    fitted: Fitted, whole: list[int], some: dict[int, list[int]], background: object
) -> tuple[list[FloatArray], dict[int, PartGroup]]:
    """The same over a table."""
    encoder = fitted.encoder
    fields: Any = encoder.fields
    source = open_table(background, types=encoder.schema.column_types())
    columns_of = {f: fields[f].columns for f in whole} | {
        f: tuple(fields[f].columns[i] for i in parts) for f, parts in some.items()
    }
    names = list(dict.fromkeys(name for columns in columns_of.values() for name in columns))
    for name in names:
        if name not in source.names:
            raise ValueError(f"background: {missing_column_message(name, source.names)}")
    totals = {f: np.zeros(encoder.layout.fields[f].n_features) for f in whole}
    means = {f: GroupMeans(fields[f], parts) for f, parts in some.items()}
    n_rows = 0
    for n, columns in read_columns(source, names, _BLOCK_ROWS):
        n_rows += n
        for f, total in totals.items():
            values = [columns[name] for name in columns_of[f]]
            features, weight = active_features(fields[f], fields[f].as_input(values))
            total += np.bincount(features.ravel(), weight.ravel(), minlength=len(total))
        for f, mean in means.items():
            parts = [fields[f].fields[i] for i in mean.parts]
            mean.update([part.read(columns[part.column]) for part in parts])
    if not n_rows:
        raise ValueError("background has no rows; give at least one to average over")
    return [total / n_rows for total in totals.values()], {f: mean.result(n_rows) for f, mean in means.items()}


# Fields that vary


def other_units(
    fitted: Fitted,
    sources: Sources,
    along: list[int],
    n: int,
    columns: dict[str, pa.Array],
    means: Means,
) -> tuple[FloatArray, FloatArray, Int32Array]:
    """Vectors of all units outside of `along`, shape (n, units, width), their linear part, and their fields.

    `columns` has the values along the axis of each source, by its name.
    """
    width = fitted.params["factors"].shape[1]
    parts, linear, unit_field = [np.zeros((n, 0, width))], np.zeros(n), []
    for f, item in enumerate(fitted.encoder.fields):
        if f in along:
            continue
        if f in means.vectors:
            vector, mean_weight = means.vectors[f]
            parts.append(np.broadcast_to(vector, (n, 1, width)))
            linear += mean_weight
        else:
            if isinstance(item, Cross):
                features, weight = product(item, closed_groups(fitted, sources, f, columns, means))
            else:
                features, weight = item.features_on_axis(columns[item.name])
            vectors, weights = unit_vectors(fitted, f, features, weight)
            parts.append(np.broadcast_to(vectors, (n, *vectors.shape[1:])))
            linear += weights
        unit_field += [f] * parts[-1].shape[1]
    return np.concatenate(parts, axis=1), linear, np.array(unit_field, np.int32)


def closed_groups(
    fitted: Fitted, sources: Sources, f: int, columns: dict[str, pa.Array], means: Means
) -> list[PartGroup]:
    """The weights of the parts of a cross that do not vary: fixed ones, and those that are averaged."""
    cross = fitted.encoder.crosses[f]
    groups = [means.groups[f]] if f in means.groups else []
    for i, (part, source) in enumerate(zip(cross.fields, sources.of[cross.name], strict=True)):
        if source in columns:
            groups.append(encode_part(cross, i, part.read_axis(columns[source])))
    return groups


def unit_vectors(fitted: Fitted, f: int, features: Int32Array, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Vectors of a field's units, shape (n, units, width), and its linear part, shape (n,), from active features."""
    layout, params = fitted.encoder.layout, fitted.params
    features = features + layout.feature_ptr[f]
    vectors = np.zeros((len(features), n_units(fitted, f), params["factors"].shape[1]))
    if vectors.shape[1] == 1:
        vectors[:, 0] = _weighted_sum(params["factors"], features, weight)
    else:
        for j, unit in enumerate(np.repeat(layout.fields[f].units, layout.fields[f].widths)):
            vectors[:, unit] += weight[:, j, None] * params["factors"][features[:, j]]
    return vectors, (weight * params["linear"][features]).sum(axis=1)


def _weighted_sum(table: Float32Array, features: Int32Array, weight: FloatArray) -> FloatArray:
    """Σ_j weight_j table[features_j] of every row."""
    total = np.zeros((len(features), table.shape[1]))
    for j in range(features.shape[1]):
        used = np.flatnonzero(weight[:, j])  # most combinations of an average may have no weight
        total[used] += weight[used, j, None] * table[features[used, j]]
    return total


def pair_scale(model: AnyModel, params: Params, P: FloatArray, along: list[int], n_fields: int) -> FloatArray:
    """s of C = L diag(s) R', shape (n, coordinates of L): that of products is the segment's."""
    between = model.between(params, *along)
    weight = between if between.ndim < 2 else np.float64(1.0)
    pairs = np.broadcast_to(weight, (len(P), model.part_size(n_fields)))
    products = symmetric_sums(P[:, :, model.product_columns], model.order - 2)[1:].sum(axis=0)
    return np.concatenate([pairs, model.product_weight * products], axis=1)


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
