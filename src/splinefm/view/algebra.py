"""The model as a function of one or two fields: what the other fields leave of it.

The score is affine in the vector of a field: score = β + Σ_i weight_i (w_i + g' v_i). Here are g for every model, the
vectors of the fields that a segment names, and the mean vectors of those that it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._wording import for_reader
from splinefm.encode.fields.axis import active_features, features_on_axis
from splinefm.encode.fields.numerical import check_choice
from splinefm.encode.tables.open import Table, missing_column_message, open_table, quoted
from splinefm.learn.fitted import Fitted
from splinefm.model.between import field_weights
from splinefm.model.family import FFM, AnyModel, FmFM, FwFM, HigherOrderFM, LowRankFwFM, Params
from splinefm.model.means import mean_vector

FloatArray = npt.NDArray[np.float64]
Rest = Literal["error", "mean"]

_BLOCK = 65_536  # rows of a background that are read at a time
_ROOM = 1 << 21  # numbers of the table of vectors that become float64 at a time


def n_units(fitted: Fitted, f: int) -> int:
    return max(fitted.encoder.layout.fields[f].units) + 1


def read_columns(source: Table, names: list[str], rows: int) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    """Number of rows and the columns of the given names, chunk by chunk."""
    for chunk in source.chunks(names or source.names[:1], rows):
        yield chunk.num_rows, {name: chunk.column(name) for name in names}


# The fields that are not named


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
    """Mean weights of fields over the training rows, as the encoder knows them."""
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
    for n, columns in read_columns(source, names, _BLOCK):
        n_rows += n
        for f, total in zip(absent, totals, strict=True):
            rows, weight = active_features(encoder.fields[f], columns[encoder.fields[f].column])
            total += np.bincount(rows.ravel(), weight.ravel(), minlength=len(total))
    if not n_rows:
        raise ValueError("background has no rows; give at least one to average over")
    return [total / n_rows for total in totals]


# The model as a function of the fields that vary


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
    rows, weight = features_on_axis(fitted.encoder.fields[f], column)
    rows = rows + layout.feature_ptr[f]
    units = np.repeat(layout.fields[f].units, layout.fields[f].widths)
    vectors = np.zeros((len(rows), n_units(fitted, f), params["factors"].shape[1]))
    for j, unit in enumerate(units):
        vectors[:, unit] += weight[:, j, None] * params["factors"][rows[:, j]]
    return vectors, (weight * params["linear"][rows]).sum(axis=1)


def score_slope(
    model: AnyModel, params: Params, P: FloatArray, unit_field: npt.NDArray[np.int32], f: int, n_fields: int
) -> FloatArray:
    """The derivative of the score by the vector of field f, given the vectors of other units: shape (n, width)."""
    if isinstance(model, FwFM | LowRankFwFM):
        return np.asarray(np.einsum("nud,u->nd", P, field_weights(model, params)[f, unit_field]))
    if isinstance(model, FmFM):
        M = params["field_matrices"].astype(np.float64)
        before = (unit_field < f)[:, None, None]
        matrices = np.where(before, M[unit_field, f].transpose(0, 2, 1), M[f, unit_field])
        return np.asarray(np.einsum("uij,nuj->ni", matrices, P, optimize=True))
    if isinstance(model, FFM):
        meant = P.reshape(*P.shape[:2], n_fields, model.k)[:, :, f]
        owner = (unit_field[:, None] == np.arange(n_fields)).astype(np.float64)
        return np.asarray(np.einsum("nuk,ue->nek", meant, owner, optimize=True)).reshape(len(P), -1)
    if isinstance(model, HigherOrderFM):
        return np.asarray(_products(P, model.order - 1)[1:].sum(axis=0))
    return np.asarray(P.sum(axis=1))


def pair_scale(model: AnyModel, params: Params, P: FloatArray, along: list[int]) -> FloatArray:
    """s of C = L diag(s) R', shape (n, k); only products of more than two vectors make it depend on the segment."""
    if isinstance(model, HigherOrderFM):
        return np.asarray(_products(P, model.order - 2).sum(axis=0))
    scale = field_weights(model, params)[along[0], along[1]] if isinstance(model, FwFM | LowRankFwFM) else 1.0
    k = model.k if isinstance(model, FFM) else P.shape[2]
    return np.broadcast_to(np.float64(scale), (len(P), k))


def pair_factors(fitted: Fitted, f: int, e: int) -> tuple[FloatArray, FloatArray]:
    """L and R: the rows of the two fields, so turned that their interaction is a product of equal coordinates."""
    ptr, model, table = fitted.encoder.layout.feature_ptr, fitted.model, fitted.params["factors"]
    left, right = (table[ptr[g] : ptr[g + 1]].astype(np.float64) for g in (f, e))
    if isinstance(model, FFM):
        n_fields = len(fitted.encoder.fields)
        return left.reshape(-1, n_fields, model.k)[:, e], right.reshape(-1, n_fields, model.k)[:, f]
    if isinstance(model, FmFM):
        M = fitted.params["field_matrices"]
        left = left @ (M[f, e] if f < e else M[e, f].T).astype(np.float64)
    return left, right


def feature_effects(fitted: Fitted, f: int, slopes: FloatArray) -> FloatArray:
    """α: the effect w_i + g' v_i of every feature of a field, shape (n, rows)."""
    first, last = fitted.encoder.layout.feature_ptr[f : f + 2].tolist()
    effects = np.empty((len(slopes), last - first))
    most = max(1, _ROOM // slopes.shape[1])
    for at in range(first, last, most):
        block = slice(at, min(at + most, last))
        vectors = fitted.params["factors"][block].astype(np.float64)
        effects[:, block.start - first : block.stop - first] = slopes @ vectors.T + fitted.params["linear"][block]
    return effects


def _products(P: FloatArray, order: int) -> FloatArray:
    """Sums of products of t different units, coordinate by coordinate, for t = 0 .. order."""
    products = np.zeros((order + 1, P.shape[0], P.shape[2]))
    products[0] = 1.0
    for u in range(P.shape[1]):
        for t in range(order, 0, -1):
            products[t] += P[:, u] * products[t - 1]
    return products
