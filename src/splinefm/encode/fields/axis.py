"""Raw values of a field, and the weights that its features have there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray, IndexArray, Int32Array
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Field, Single
from splinefm.encode.slots import expand_windows


def first_feature(item: Single) -> int:
    """Features before the basis functions or categories."""
    if isinstance(item, Numerical):
        return item.n_tokens
    return item.layout.n_features - len(item.vocabulary or ())


def frequent_positions(item: Categorical | MultiValued, counts: FloatArray | None, most: int) -> IndexArray:
    """Positions in the vocabulary of the most frequent categories, in the order to show them.

    `counts` are the training rows of all features of the field. Without them the order of the vocabulary counts: the
    most frequent first, unless it was extended. Categories without a natural order (see `display_order`) stay in that
    of frequency.

    Examples
    --------
    >>> code = Categorical("code", vocabulary=["10", "9", "1", "5"])
    >>> frequent_positions(code, None, 3), frequent_positions(code, np.array([0.0, 0, 4, 3, 2, 9]), 2)
    (array([2, 1, 0]), array([3, 0]))
    """
    n = len(item.vocabulary or ())
    order = np.arange(n) if counts is None else np.argsort(-counts[len(counts) - n :], kind="stable")
    return item.display_order(order[:most])


def as_column(item: Field, values: Any) -> tuple[pa.Array, tuple[int, ...]]:
    """Raw values as an Arrow column, and their shape."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = values.to_pylist()
    try:
        if isinstance(item, MultiValued):
            lists = list(values)  # what is not a collection raises
            return pa.array(lists), (len(lists),)
        array = np.asarray(values)
        return pa.array(array.ravel(), from_pandas=True), array.shape
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"values of {item.name!r}: {error}; give an array of values of one type") from error


def weights_at(item: Field, values: object) -> tuple[Any, tuple[int, ...]]:
    """Weights of features at raw values, a sparse matrix of shape (n, features), and the shape of the values."""
    from scipy.sparse import csr_array

    column, shape = as_column(item, values)
    features, weight = features_on_axis(item, column)
    row_ptr = np.arange(len(features) + 1) * features.shape[1]
    return csr_array((weight.ravel(), features.ravel(), row_ptr), shape=(len(features), item.layout.n_features)), shape


def effects_at(item: Field, effects: FloatArray, values: object) -> FloatArray:
    """Σ_i effects_i weight_i at raw values: shape (segments.., values..)."""
    matrix, shape = weights_at(item, values)
    return np.asarray((matrix @ effects.T).T.reshape(effects.shape[:-1] + shape))


def plain(value: Any) -> Any:
    """A float instead of a NumPy number; arrays stay."""
    return value if np.ndim(value) else float(value)


def more_axes(array: FloatArray, at: int, n_axes: int) -> FloatArray:
    """The array with axes of length 1 inserted at `at`, until it has `n_axes`."""
    return np.expand_dims(array, tuple(range(at, at + n_axes - array.ndim)))


def active_features(item: Field, column: pa.Array) -> tuple[Int32Array, FloatArray]:
    """Active features inside the field, and their weights; both of shape (n, weights)."""
    start, weight = item.encode(column)
    return expand_windows(start, item.layout.widths), weight


def features_on_axis(item: Field, column: pa.Array) -> tuple[Int32Array, FloatArray]:
    """The same for values along the axis of the field, such as hours for the hour of a date."""
    start, weight = encode_on_axis(item, column)
    return expand_windows(start, item.layout.widths), weight


def encode_on_axis(item: Field, column: pa.Array) -> tuple[Int32Array, FloatArray]:
    """Features inside the field and weights of values along its axis."""
    return item.encode_values(values_on_axis(item, column))


def values_on_axis(item: Any, column: pa.Array) -> Any:
    """What a field reads from values along its axis."""
    return item.on_axis(column) if isinstance(item, Numerical) else item.read(column)
