"""Crosses as plain tables: what each feature stands for, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cells import MULTIPLIERS, PRIME
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.description import bin_edges
from splinefm.encode.tables.arrow import to_arrow

Features = npt.NDArray[np.int64]


def part_columns(item: Cross, position: int) -> list[str]:
    """The columns of a cross's table that are about one of its parts."""
    if position in item.numbers:
        return [f"part{position}_low", f"part{position}_high"]
    return [] if item.buckets is not None else [f"part{position}_kind", f"part{position}_value"]


def describe_hash(item: Cross) -> dict[str, Any]:
    """How combinations of categories are mapped to buckets; nothing for a cross that keeps them."""
    if item.buckets is None or not item.categories:
        return {}
    return {"buckets": item.buckets, "multipliers": list(MULTIPLIERS[: len(item.categories)]), "prime": PRIME}


def category_features(part: Categorical) -> pa.Table:
    """The features of a part in order: their numbers are what the hash of a combination takes."""
    names = part.vocabulary.names  # type: ignore[union-attr]  # fitted
    tokens = part.tokens()
    kinds = [token.kind for token in tokens] + ["category"] * len(names)
    values = pa.concat_arrays([pa.nulls(len(tokens), pa.large_string()), names])
    return pa.table({"feature": pa.array(range(len(kinds)), pa.int64()), "kind": pa.array(kinds), "value": values})


def cross_rows(item: Cross, block: int) -> Iterator[tuple[Features, dict[str, Any]]]:
    """Features inside the field, so many at a time, and columns that say what they stand for.

    All numbers have bins. Intervals that hold no number are left out.
    """
    edges = [_intervals(item.fields[i]) for i in item.numbers]
    names = [category_features(part) for part in item.category_parts]
    total = item.n_cells * item.block
    for first in range(0, max(total, 1), block):
        feature = np.arange(first, min(first + block, total), dtype=np.int64)
        cell, inside = np.divmod(feature, item.block)
        bins = np.unravel_index(inside, item.level_sizes[0]) if item.numbers else ()
        used = np.ones(len(feature), bool)
        for (low, high), at in zip(edges, bins, strict=True):
            used &= low[at] < high[at]
        columns: dict[str, Any] = {}
        for (low, high), at, i in zip(edges, bins, item.numbers, strict=True):
            columns |= dict(zip(part_columns(item, i), (low[at[used]], high[at[used]]), strict=True))
        if item.categories and item.buckets is not None:
            columns["bucket"] = cell[used]
        elif item.cells is not None:
            for table, features, i in zip(names, item.cells.features.T, item.categories, strict=True):
                chosen = table.take(to_arrow(features[cell[used]].astype(np.int64)))
                columns |= dict(zip(part_columns(item, i), (chosen["kind"], chosen["value"]), strict=True))
        yield feature[used], columns


def _intervals(part: Any) -> tuple[FloatArray, FloatArray]:
    edges = bin_edges(part)
    return np.append(-np.inf, edges), np.append(edges, np.inf)
