"""Items that a page ranks for a context."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm.encode.fields.sources import Sources
from splinefm.encode.slots import Slots
from splinefm.explore.payload.buffers import Buffers
from splinefm.explore.payload.rows import describe_values
from splinefm.learn.fitted import Fitted

MOST_ITEMS = 20_000


class Items(NamedTuple):
    """Items to rank: the columns of the model that are in their table belong to the item, the others to the context.

    Parameters
    ----------
    table : pyarrow.Table
        A row per item, at most 20,000.
    ids : list of str
        The name of each item.
    """

    table: pa.Table
    ids: list[str]


def check_items(fitted: Fitted, items: Items) -> list[str]:
    """The columns of the model that items have; raise where they have none, or all, or are too many."""
    known = fitted.encoder.schema.columns
    columns = [name for name in known if name in items.table.column_names]
    if not columns or len(columns) == len(known):
        raise ValueError(
            f"the items have {'no' if not columns else 'all'} columns of the model ({', '.join(map(repr, known))}); "
            "a ranking needs some that belong to the items and some that belong to the context"
        )
    if not 0 < len(items.table) <= MOST_ITEMS:
        raise ValueError(f"a page ranks 1 to {MOST_ITEMS:,} items, got {len(items.table):,}; give it the most frequent")
    if len(items.ids) != len(items.table):
        raise ValueError(f"there are {len(items.ids):,} ids for {len(items.table):,} items")
    return columns


def encode_items(fitted: Fitted, items: Items | None, rows: pa.Table, threads: int | None) -> list[Slots]:
    """The items with the context of the first row, encoded: their features are needed in the page."""
    if items is None:
        return []
    columns, first = check_items(fitted, items), pa.array(np.zeros(len(items.table), np.int64))
    context = rows.slice(0, 1).take(first)
    both = {
        name: items.table.column(name) if name in columns else context.column(name)
        for name in fitted.encoder.schema.columns
    }
    return [fitted.encoder.encode(pa.table(both), threads=threads)]


def describe_items(sources: Sources, items: Items | None, buffers: Buffers) -> dict[str, Any] | None:
    """Names and values of items; a source without values belongs to the context."""
    if items is None:
        return None
    table = items.table.combine_chunks()
    return {
        "n": len(table),
        "ids": [str(name) for name in items.ids],
        "columns": describe_values(sources.fields, table, buffers, "items"),
    }
