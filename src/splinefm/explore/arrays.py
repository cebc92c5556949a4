"""The arrays of a page: named buffers, rows of a table, and the features of a large model that a page gets."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._arrays import Array, BoolArray, FloatArray, IndexArray, Int32Array
from splinefm.encode.fields.categorical import MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import AnyField, Single, Sources
from splinefm.encode.slots import Slots, expand_windows
from splinefm.encode.tables.arrow import to_numpy
from splinefm.encode.tables.columns import Categories, one_array
from splinefm.train.fitted import Fitted
from splinefm.train.targets import as_targets, as_weights

# Numbers of a page as named arrays, beside the JSON that refers to them by name.

# Types that browsers have an array for.
_TYPES = {"float32": "Float32Array", "float64": "Float64Array", "int32": "Int32Array"}


class Buffers:
    """Named arrays of a payload.

    Examples
    --------
    >>> buffers = Buffers()
    >>> buffers.add("field 0: knots", [0, 1], np.float64)
    'field 0: knots'
    >>> buffers.arrays["field 0: knots"]
    array([0., 1.])
    """

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}

    def add(self, name: str, values: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        """Keep an array, flat; returns its name."""
        if name in self.arrays:
            raise ValueError(f"two arrays of a page have the name {name!r}")
        self.arrays[name] = np.ascontiguousarray(values, dtype).reshape(-1)
        return name


def encode_array(values: Array) -> dict[str, str]:
    """An array as JSON: its type in JavaScript, and its bytes, the lowest of each number first, in base64.

    Examples
    --------
    >>> encode_array(np.array([1, 2], np.int32))
    {'type': 'Int32Array', 'data': 'AQAAAAIAAAA='}
    """
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return {"type": _TYPES[values.dtype.name], "data": base64.b64encode(little.tobytes()).decode("ascii")}


def json_number(value: float) -> float | str | None:
    """A number as JSON, which has no infinities: `Number("Infinity")` reads them; None for NaN.

    Examples
    --------
    >>> json_number(0.5), json_number(float("-inf")), json_number(float("nan"))
    (0.5, '-Infinity', None)
    """
    number = float(value)
    if np.isnan(number):
        return None
    return number if np.isfinite(number) else "Infinity" if number > 0 else "-Infinity"


# Which features of a large model a page gets: all that its rows have, and the most frequent of the others.
#
# Categories and combinations of categories can be left out; tokens and basis functions cannot.


@dataclass(frozen=True, eq=False)
class KeptFeatures:
    """The features of a field that a page gets.

    Parameters
    ----------
    members : array
        Positions of the categories (or, of a cross, the combinations) that are kept, ascending.
    total : int
        Number of categories or combinations of the field.
    features : array
        The features of the field that are kept, ascending.
    """

    members: IndexArray
    total: int
    features: IndexArray

    @property
    def is_cut(self) -> bool:
        """Whether something is left out."""
        return len(self.members) < self.total


def keep_features(fitted: Fitted, most: int, slots: Sequence[Slots]) -> list[KeptFeatures]:
    """What is kept of each field so that about `most` features are left, and all those that occur in `slots`."""
    fields, counts = fitted.encoder.fields, fitted.encoder.feature_counts
    sizes = [item.n_categories for item in fields]
    if fitted.encoder.layout.n_features <= most:
        return [_kept(item, np.arange(total)) for item, total in zip(fields, sizes, strict=True)]
    used = _used(fitted, slots)
    costs = [item.features_per_category for item in fields]
    fixed = sum(item.layout.n_features - total * cost for item, total, cost in zip(fields, sizes, costs, strict=True))
    # One line per category or combination of any field: needed ones first, then by rows per feature.
    field = np.repeat(np.arange(len(fields)), sizes)
    member = np.concatenate([np.arange(total) for total in sizes])
    rows = np.concatenate([_rows(*each) for each in zip(fields, counts, sizes, strict=True)])
    needed = np.concatenate([_needed(*each) for each in zip(fields, used, sizes, strict=True)])
    cost = np.array(costs)[field]
    order = np.lexsort((-rows / cost, ~needed))
    inside = needed[order] | (np.cumsum(cost[order]) <= most - fixed)
    chosen = np.zeros(len(order), bool)
    chosen[order[inside]] = True
    return [_kept(item, np.sort(member[chosen & (field == f)])) for f, item in enumerate(fields)]


def _rows(item: AnyField, counts: FloatArray, total: int) -> FloatArray:
    """Training rows of each of them."""
    first, cost = item.n_tokens, item.features_per_category
    return counts[first : first + total * cost : cost]


def _needed(item: AnyField, used: BoolArray, total: int) -> BoolArray:
    first, cost = item.n_tokens, item.features_per_category
    return np.asarray(used[first : first + total * cost].reshape(total, cost).any(axis=1))


def _kept(item: AnyField, members: IndexArray) -> KeptFeatures:
    total, first, cost = item.n_categories, item.n_tokens, item.features_per_category
    n_features = item.layout.n_features
    own = (first + members[:, None] * cost + np.arange(cost)).ravel()
    others: Any = np.concatenate([np.arange(first), np.arange(first + total * cost, n_features)])
    return KeptFeatures(members.astype(np.intp), total, np.sort(np.concatenate([others, own])).astype(np.intp))


def _used(fitted: Fitted, slots: Sequence[Slots]) -> list[BoolArray]:
    """For each field, which of its features some rows have."""
    layout = fitted.encoder.layout
    used = np.zeros(layout.n_features, bool)
    for part in slots:
        features = expand_windows(part.start, np.diff(layout.weight_ptr).tolist())
        used[features[part.weight != 0.0]] = True
    return [used[first:last] for first, last in zip(layout.feature_ptr[:-1], layout.feature_ptr[1:], strict=True)]


# Rows of a table as a page keeps them: numbers, and codes of names.


def describe_rows(
    fitted: Fitted, sources: Sources, table: pa.Table, target: str | None, weight: str | None, buffers: Buffers
) -> dict[str, Any]:
    """All rows of a table, with targets and weights if they are known."""
    found: dict[str, Any] = {"n": len(table), "columns": describe_values(sources.fields, table, buffers, "rows")}
    found |= {"target": None, "weight": None, "target_name": target, "weight_name": weight}
    if target is not None:
        y = as_targets(one_array(table.column(target)), target, fitted.classes)
        fitted.loss.check(y, target, 0)
        found["target"] = buffers.add("rows: target", y, np.float64)
    if weight is not None:
        found["weight"] = buffers.add("rows: weight", as_weights(one_array(table.column(weight)), weight), np.float64)
    return found


def describe_values(
    fields: dict[str, Single], table: pa.Table, buffers: Buffers, name: str
) -> list[dict[str, Any] | None]:
    """The values of each source in a table: `null` where the table does not have its column.

    Numbers are an array, NaN for missing values. Names are codes with a dictionary, -1 for missing values. Lists are
    codes of their elements, with the end of each list; a list whose length is -1 is missing.
    """
    return [
        _values(item, one_array(table.column(item.column)), buffers, f"{name}: source {i}")
        if item.column in table.column_names
        else None
        for i, item in enumerate(fields.values())
    ]


def _values(item: Single, column: pa.Array, buffers: Buffers, name: str) -> dict[str, Any]:
    if isinstance(item, Numerical):
        return {"kind": "numbers", "values": buffers.add(name, item.read(column), np.float64)}
    if isinstance(item, MultiValued):
        lists = item.read(column)
        codes, names = _coded(Categories(lists.names, None))
        lengths = np.where(lists.missing, -1, np.diff(lists.offsets))
        return {
            "kind": "lists",
            "names": names,
            "codes": buffers.add(name, codes, np.int32),
            "lengths": buffers.add(f"{name}: lengths", lengths, np.int32),
        }
    codes, names = _coded(item.read(column))
    return {"kind": "names", "names": names, "codes": buffers.add(name, codes, np.int32)}


def _coded(categories: Categories) -> tuple[Int32Array, list[str]]:
    """Codes of rows, -1 for missing values, and the names that occur."""
    names, codes = categories
    if codes is None:
        coded = names.dictionary_encode()
        return to_numpy(coded.indices.fill_null(-1)).astype(np.int32), coded.dictionary.to_pylist()
    used, again = np.unique(codes[codes >= 0], return_inverse=True)
    found = np.full(len(codes), -1, np.int32)
    found[codes >= 0] = again
    return found, names.take(pa.array(used)).to_pylist()
