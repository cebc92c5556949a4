"""From a model file and a table to a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.open import open_data, open_table, require_columns
from splinefm.explore.fields import Origin, describe_page
from splinefm.explore.page import d3_script, render_explorer
from splinefm.explore.payload import MAX_ITEMS, Items, Payload, make_payload
from splinefm.fit.evaluation import column_types
from splinefm.inspect.rows import read_sample
from splinefm.rank.ids import written_types
from splinefm.rank.index import ItemIndex
from splinefm.store.model_file import load
from splinefm.train.fitted import Fitted
from splinefm.train.progress import SILENT, Progress

RANK = "rank"
"""Where the page asks its server for rankings, relative to its own address."""
MAX_ROWS = 5000
"""Maximum number of rows in a page, if the user does not say otherwise."""


@dataclass(frozen=True, eq=False)
class Explorer:
    """The data of a page, and the index that its server searches.

    Parameters
    ----------
    fitted : Fitted
        The model.
    payload : Payload
        The model and its rows for the page.
    origin : Origin
        Where they come from.
    index : ItemIndex, optional
        For rankings that the page asks for.
    """

    fitted: Fitted
    payload: Payload
    origin: Origin
    index: ItemIndex | None = None

    def page(self, rank_address: str | None = None) -> str:
        """Render the page; without the address of a server, as a file that makes no requests."""
        about = describe_page(self.fitted, self.origin, self._ranking(rank_address))
        return render_explorer(self.payload, about, connects=rank_address is not None)

    def _ranking(self, address: str | None) -> dict[str, Any] | None:
        items = self.payload.data["items"]
        columns = self.payload.data["columns"]
        if items is not None:
            context = [column["name"] for column, own in zip(columns, items["columns"], strict=True) if own is None]
            return {"n": items["n"], "inPage": True, "context": context}
        if self.index is None:
            return None
        if address is None:
            hint = "The index is ranked by a server, and this file has none: start splinefm explore without --out, or "
            return {"offline": f"{hint}give the catalog itself with --items TABLE --ids COLUMN."}
        return {
            "n": len(self.index),
            "inPage": False,
            "context": list(self.index.context_columns),
            "address": address,
        }


def make_explorer(
    model: Path,
    data: str,
    *,
    target: str | None = None,
    weight: str | None = None,
    sample: int = MAX_ROWS,
    index: str | None = None,
    items: str | None = None,
    ids: str | None = None,
    sep: str | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> Explorer:
    """Read a model, and an item index or a small catalog to rank, and describe them with a sample of a table."""
    d3_script()  # raises before the work where the package is not installed
    progress.begin("reading the model")
    fitted = load(model)
    return describe_model(
        fitted,
        data,
        name=model.name,
        target=target,
        weight=weight,
        sample=sample,
        index=None if index is None else ItemIndex.load(index, fitted),
        items=None if items is None else _read_items(fitted, items, ids, sep),
        sep=sep,
        threads=threads,
        progress=progress,
    )


def describe_model(
    fitted: Fitted,
    data: str,
    *,
    name: str,
    target: str | None = None,
    weight: str | None = None,
    sample: int = MAX_ROWS,
    index: ItemIndex | None = None,
    items: Items | None = None,
    sep: str | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> Explorer:
    """Sample a table and describe it for the page of a model with this name.

    By default the target is the only column that no field reads, if there is one. A page of a model with an offset
    shows scores without it, and no targets.
    """
    if fitted.offset is not None and target is not None:
        raise ValueError(
            f"--target {target}: the page shows scores without the {fitted.offset}, which says nothing about targets "
            "with it; leave --target out, or use splinefm explain"
        )
    has_offset, fitted = fitted.offset is not None, fitted.without_offset()
    known = fitted.encoder.schema.columns
    table = open_data(data, column_types(fitted, target, weight), sep)
    others = [column for column in table.names if column not in (*known, weight)]
    if target is None and len(others) == 1 and not has_offset:
        (target,) = others
    if target in known:
        raise ValueError(f"--target {target}: this column is a field of the model; give the column that it predicts")
    names = list(dict.fromkeys([*known, *(column for column in (target, weight) if column is not None)]))
    require_columns(table, names)
    rows = read_sample(table, names, sample, progress)
    progress.begin("describing the model")
    payload = make_payload(fitted, rows.table(), target=target, weight=weight, items=items, threads=threads)
    origin = Origin(name, Path(data).name or data, rows.n_seen, payload.data["rows"]["n"], target)
    return Explorer(fitted, payload, origin, index)


def _read_items(fitted: Fitted, items: str, ids: str | None, sep: str | None) -> Items:
    """The catalog as the page gets it."""
    types = written_types(ids, None) | fitted.encoder.schema.column_types()
    table = open_table(items, types=types, sep=sep)
    if ids is not None and ids not in table.names:
        raise ValueError(f"--ids: {missing_column_message(ids, table.names)}")
    n_rows = table.count_rows()
    if n_rows > MAX_ITEMS:
        raise ValueError(
            f"--items: {items!r} has {n_rows:,} items, and a page holds {MAX_ITEMS:,} at most; save an index "
            "(splinefm index) and give it with --index, which the server ranks"
        )
    known = [name for name in fitted.encoder.schema.columns if name in table.names]
    wanted = list(dict.fromkeys([*known, *([ids] if ids is not None else [])]))
    rows = pa.concat_tables(pa.Table.from_batches([batch]) for batch in table.chunks(wanted, MAX_ITEMS))
    names = range(len(rows)) if ids is None else rows.column(ids).to_pylist()
    return Items(rows.select(known), [str(one) for one in names])
