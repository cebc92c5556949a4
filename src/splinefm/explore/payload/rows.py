"""Rows of a table as a page keeps them: numbers, and codes of names."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.fields.sources import Sources
from splinefm.encode.schema import Single
from splinefm.encode.tables.arrow import to_numpy
from splinefm.encode.tables.columns import Categories, one_array
from splinefm.explore.payload.buffers import Buffers
from splinefm.learn.fitted import Fitted
from splinefm.learn.targets.labels import as_targets, as_weights

Int32 = npt.NDArray[np.int32]


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


def _coded(categories: Categories) -> tuple[Int32, list[str]]:
    """Codes of rows, -1 for missing values, and the names that occur."""
    names, codes = categories
    if codes is None:
        coded = names.dictionary_encode()
        return to_numpy(coded.indices.fill_null(-1)).astype(np.int32), coded.dictionary.to_pylist()
    used, again = np.unique(codes[codes >= 0], return_inverse=True)
    found = np.full(len(codes), -1, np.int32)
    found[codes >= 0] = again
    return found, names.take(pa.array(used)).to_pylist()
