"""From a model file and a table to a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.open import open_data, open_table, require_columns
from splinefm.encode.tables.table import Table
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


@dataclass(frozen=True)
class ExploreRequest:
    """What a user asks to explore."""

    model: Path
    data: str
    target: str | None = None  # by default the only column that is not a field, if there is one
    weight: str | None = None
    sample: int = 5000  # maximum number of rows in the page
    index: str | None = None  # an item index, which the server ranks
    items: str | None = None  # a small catalog, which the page itself ranks
    ids: str | None = None  # its column of ids
    sep: str | None = None
    threads: int | None = None


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


def make_explorer(request: ExploreRequest, progress: Progress) -> Explorer:
    """Read the model, sample the table, and describe both for the page."""
    d3_script()  # raises before the work where the package is not installed
    progress.begin("reading the model")
    fitted = load(request.model)
    index = None if request.index is None else ItemIndex.load(request.index, fitted)
    return describe_model(fitted, request, index, progress)


def describe_model(
    fitted: Fitted, request: ExploreRequest, index: ItemIndex | None = None, progress: Progress = SILENT
) -> Explorer:
    """Sample the table of a request and describe it for the page of a model that is loaded."""
    table = open_data(request.data, column_types(fitted, request.target, request.weight), request.sep)
    target = request.target if request.target is not None else _only_unread_column(fitted, table, request.weight)
    rows, n_rows = _sampled(fitted, table, target, request, progress)
    items = None if request.items is None else _read_items(fitted, request)
    progress.begin("describing the model")
    payload = make_payload(fitted, rows, target=target, weight=request.weight, items=items, threads=request.threads)
    origin = Origin(request.model.name, Path(request.data).name or request.data, n_rows, len(rows), target)
    return Explorer(fitted, payload, origin, index)


def _only_unread_column(fitted: Fitted, table: Table, weight: str | None) -> str | None:
    others = [name for name in table.names if name not in fitted.encoder.schema.columns and name != weight]
    return others[0] if len(others) == 1 else None


def _sampled(
    fitted: Fitted, table: Table, target: str | None, request: ExploreRequest, progress: Progress
) -> tuple[pa.Table, int]:
    """Some rows of the columns that the page needs, and how many the table has."""
    known = fitted.encoder.schema.columns
    if target in known:
        raise ValueError(f"--target {target}: this column is a field of the model; give the column that it predicts")
    names = list(dict.fromkeys([*known, *(name for name in (target, request.weight) if name is not None)]))
    require_columns(table, names)
    sample = read_sample(table, names, request.sample, progress)
    return sample.table(), sample.n_seen


def _read_items(fitted: Fitted, request: ExploreRequest) -> Items:
    """The catalog as the page gets it."""
    assert request.items is not None
    types = written_types(request.ids, None) | fitted.encoder.schema.column_types()
    table = open_table(request.items, types=types, sep=request.sep)
    if request.ids is not None and request.ids not in table.names:
        raise ValueError(f"--ids: {missing_column_message(request.ids, table.names)}")
    n_rows = table.count_rows()
    if n_rows > MAX_ITEMS:
        raise ValueError(
            f"--items: {request.items!r} has {n_rows:,} items, and a page holds {MAX_ITEMS:,} at most; save an index "
            "(splinefm index) and give it with --index, which the server ranks"
        )
    known = [name for name in fitted.encoder.schema.columns if name in table.names]
    wanted = list(dict.fromkeys([*known, *([request.ids] if request.ids is not None else [])]))
    rows = pa.concat_tables(pa.Table.from_batches([batch]) for batch in table.chunks(wanted, MAX_ITEMS))
    ids = range(len(rows)) if request.ids is None else rows.column(request.ids).to_pylist()
    return Items(rows.select(known), [str(one) for one in ids])
