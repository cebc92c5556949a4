"""Every path from rows to scores. A path gives the scores of some rows, or says why it has none."""

from __future__ import annotations

import csv
import datetime as dt
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _campaign import FOLDER, Wrong, check_clear
from _random_cases import Case

import splinefm as sf
from c_library import LIBRARY, CScorer
from live import ARROW, make_service
from splinefm.encode.tables.delimited import _NULL_SPELLINGS
from splinefm.explore.payload import make_payload
from splinefm.serve.endpoints.score import score as answer
from splinefm.serve.messages import Later, Request

EXACT = 2**53


class NotHere(Exception):
    """A path that does not take such a model or such rows; the reason is counted."""


class Scored(NamedTuple):
    """Scores of some rows."""

    at: np.ndarray
    scores: Any


def every_row(case: Case, scores: Any) -> Scored:
    """Return scores of all rows."""
    return Scored(np.arange(case.table.num_rows), scores)


# Tables


def _scores(case: Case, source: Any) -> Any:
    return case.fitted.scores(source, watch=False, threads=1)


def score_lists(case: Case, folder: Path) -> Scored:
    """Lists by column."""
    return every_row(case, _scores(case, {column.name: column.rows for column in case.columns}))


def score_slices(case: Case, folder: Path) -> Scored:
    """Tables of one row each."""
    return every_row(case, np.concatenate([_scores(case, case.table.slice(i, 1)) for i in range(case.table.num_rows)]))


def score_pandas(case: Case, folder: Path) -> Scored:
    """A DataFrame of NumPy's types, in which integers with gaps are floats."""
    for column in case.columns:
        if column.kind == "integer" and None in column.rows and any(abs(x or 0) >= EXACT for x in column.rows):
            raise NotHere("pandas rounds integers")
    return every_row(case, _scores(case, case.table.to_pandas()))


def score_pandas_arrow(case: Case, folder: Path) -> Scored:
    """A DataFrame of Arrow's types."""
    import pandas as pd

    return every_row(case, _scores(case, case.table.to_pandas(types_mapper=pd.ArrowDtype)))


def score_polars(case: Case, folder: Path) -> Scored:
    """A DataFrame of polars."""
    import polars as pl

    if any("+05:30" in str(column.type) for column in case.columns):
        raise NotHere("polars has no offsets as zones")
    return every_row(case, _scores(case, pl.from_arrow(case.table)))


def score_parquet(case: Case, folder: Path) -> Scored:
    """A Parquet file of several row groups."""
    pq.write_table(case.table, folder / "t.parquet", row_group_size=7)
    return every_row(case, _scores(case, folder / "t.parquet"))


def score_csv(case: Case, folder: Path) -> Scored:
    """A CSV file, for rows whose text is not one of the spellings of missing values."""
    if any(column.kind == "list" for column in case.columns):
        raise NotHere("CSV has no lists")
    for column in case.columns:
        named = any(isinstance(item, sf.Categorical) for item in case.readers(column.name))
        # The text of such a number is an integer's, whose name has all its digits.
        if named and column.kind == "number" and any(abs(x or 0.0) >= EXACT for x in column.rows):
            raise NotHere("large numbers as names")
    with (folder / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in case.columns])
        for row in case.rows:
            writer.writerow(["" if value is None else str(value) for value in row.values()])
    kept = [not any(isinstance(v, str) and v in _NULL_SPELLINGS for v in row.values()) for row in case.rows]
    at = np.flatnonzero(kept)
    return Scored(at, _scores(case, folder / "t.csv")[at])


def score_saved(case: Case, folder: Path) -> Scored:
    """The model, saved and loaded."""
    case.fitted.save(folder / "m.sfm")
    return every_row(case, sf.load(folder / "m.sfm").scores(case.table, watch=False, threads=1))


# Rows


def score_rows(case: Case, folder: Path) -> Scored:
    """Dicts, in a list."""
    return every_row(case, case.fitted.scorer().many(case.rows))


def score_row(case: Case, folder: Path) -> Scored:
    """Dicts, one by one."""
    scorer = case.fitted.scorer()
    return every_row(case, np.array([scorer(row) for row in case.rows]))


def as_json(value: Any) -> Any:
    """A value as JSON has it."""
    return value.isoformat() if isinstance(value, dt.date) else value


def json_rows(case: Case) -> list[dict[str, Any]]:
    """Rows as JSON has them."""
    return [{name: as_json(value) for name, value in row.items()} for row in case.rows]


def score_plain_rows(case: Case, folder: Path) -> Scored:
    """Dicts of what JSON has."""
    return every_row(case, case.fitted.scorer().many(json_rows(case)))


def score_c(case: Case, folder: Path) -> Scored:
    """The C library."""
    if not LIBRARY.exists():
        raise NotHere("libsplinefm is not built")
    try:
        case.fitted.export_scorer(folder / "m.sfs")
    except ValueError as error:
        raise _refusal(error) from error
    lists = {column.name: [as_json(value) for value in column.rows] for column in case.columns}
    for column in case.columns:
        readers = case.readers(column.name)
        if column.kind == "spelled" and any(isinstance(item, sf.Numerical) for item in readers):
            raise NotHere("numbers as text")
        if column.kind == "time":
            seconds = readers[0].seconds(column.table()).tolist()
            lists[column.name] = [None if value != value else value for value in seconds]
    with CScorer(folder / "m.sfs") as scorer:
        rows = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
        return every_row(case, scorer.score(rows))


# HTTP: what a worker answers to a request


def over_http(case: Case, folder: Path, body: bytes, kind: str) -> Scored:
    """The answer of a worker to one request."""
    headers = {b"content-type": kind.encode(), b"accept": b"application/json"}
    request = Request("POST", "/v1/score", "", headers, 0.0)
    request.body = body
    with tempfile.TemporaryDirectory(dir=folder) as own:
        case.fitted.save(Path(own) / "m.sfm")
        with make_service(default=Path(own) / "m.sfm") as service:
            found = answer(service, request)
            found = found.compute() if isinstance(found, Later) else found
    return every_row(case, np.array(json.loads(found.body)["scores"]))


def score_http_rows(case: Case, folder: Path) -> Scored:
    """JSON, a list of objects."""
    return over_http(case, folder, json.dumps({"rows": json_rows(case)}).encode(), "application/json")


def score_http_columns(case: Case, folder: Path) -> Scored:
    """JSON, lists by column; letters beyond ASCII as they are."""
    columns = {column.name: [as_json(value) for value in column.rows] for column in case.columns}
    body = json.dumps({"columns": columns}, ensure_ascii=False).encode()
    return over_http(case, folder, body, "application/json")


def score_http_arrow(case: Case, folder: Path) -> Scored:
    """A stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, case.table.schema) as writer:
        writer.write_table(case.table, 5)
    return over_http(case, folder, sink.getvalue().to_pybytes(), ARROW)


# Other programs


def _refusal(error: Exception) -> NotHere:
    """The reason for which an export has no such model, if it says so."""
    check_clear(error, (ValueError, TypeError))
    return NotHere(str(error)[:40])


def score_onnx(case: Case, folder: Path) -> Scored:
    """ONNX Runtime."""
    if not (importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime")):
        raise NotHere("onnxruntime is not installed")
    import onnxruntime as ort

    try:
        sf.export_onnx(case.fitted, folder / "m.onnx")
        inputs = sf.onnx_inputs(case.fitted, case.table)
    except ValueError as error:
        raise _refusal(error) from error
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(folder / "m.onnx", options, providers=["CPUExecutionProvider"])
    scores = session.run([session.get_outputs()[0].name], inputs)[0]
    return every_row(case, scores)


def _torch() -> Any:
    if not importlib.util.find_spec("torch"):
        raise NotHere("torch is not installed")
    import torch

    return torch


def score_torch_module(case: Case, folder: Path) -> Scored:
    """The module of torch."""
    torch = _torch()
    slots = case.fitted.encoder.encode(case.table, threads=1)
    found = sf.to_torch(case.fitted)(torch.tensor(slots.start), torch.tensor(slots.weight))
    return every_row(case, found.detach().numpy())


def score_torch_engine(case: Case, folder: Path) -> Scored:
    """The engine that trains with torch."""
    _torch()
    from splinefm.model.torch.engine import TorchEngine

    fitted = case.fitted
    loss = "softmax" if fitted.n_outputs > 1 else "logistic"
    engine = TorchEngine(fitted.model, fitted.encoder.layout, fitted.params, loss, threads=1, device="cpu")
    return every_row(case, engine.scores(fitted.encoder.encode(case.table, threads=1)))


def score_libffm(case: Case, folder: Path) -> Scored:
    """The files of libffm, by its published formula."""
    try:
        sf.export_libffm(case.fitted, folder / "m.ffm", raw=True)
    except ValueError as error:
        raise _refusal(error) from error
    return every_row(case, _libffm_reader()(case.fitted, case.table, folder))


@cache
def _libffm_reader() -> Callable[..., Any]:
    path = FOLDER.parent / "export"
    sys.path.append(str(path))
    from test_libffm import scores_from_files

    return scores_from_files


class Page:
    """The engine of the page in Node.js, which answers line by line."""

    def __init__(self, folder: Path) -> None:
        node = shutil.which("node")
        self.process = None
        if node is not None:
            modules = folder / "js"
            shutil.copytree(Path(sf.__file__).parent / "explore" / "js", modules)
            (folder / "package.json").write_text('{"type": "module"}')
            script = shutil.copy(FOLDER / "_page.js", folder)
            command = [node, str(script), str(modules)]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.communicate()

    def score(self, case: Case, folder: Path) -> Scored:
        """The scores of the page."""
        if self.process is None:
            raise NotHere("Node.js is not installed")
        try:
            payload = make_payload(case.fitted, case.table, explain=False, threads=1)
        except ValueError as error:
            raise _refusal(error) from error
        asked = {"text": payload.to_json(), "rows": self._rows(case, payload.data["columns"])}
        self.process.stdin.write(json.dumps(asked, allow_nan=False) + "\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline())
        if "error" in found:
            raise Wrong(found["error"][:600])
        n = case.table.num_rows
        shape = (n,) if case.fitted.n_outputs == 1 else (n, -1)
        scores = np.reshape(np.array(found["scores"], np.float64), shape)
        if not np.array_equal(scores, np.reshape(np.array(found["alone"], np.float64), shape)):
            raise Wrong("rows have other scores alone")
        return every_row(case, scores)

    @staticmethod
    def _rows(case: Case, columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        by_name = {column.name: column for column in case.columns}
        lists = {}
        for described in columns:
            column = by_name[described["column"]]
            readers = case.readers(column.name)
            if column.kind == "spelled" and any(isinstance(item, sf.Numerical) for item in readers):
                raise NotHere("numbers as text")
            values = [as_json(value) for value in column.rows]
            if described.get("part"):
                item = next(item for item in readers if item.part == described["part"])
                values = [None if x != x else x for x in item.read(column.table()).tolist()]
            lists[described["name"]] = values
        return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


# Paths by name. The first ones have the bits of a table, the others agree up to rounding.

SAME_BITS: dict[str, Callable[[Case, Path], Scored]] = {
    "lists": score_lists,
    "one row": score_slices,
    "pandas": score_pandas,
    "pandas of Arrow": score_pandas_arrow,
    "polars": score_polars,
    "Parquet": score_parquet,
    "CSV": score_csv,
    "saved": score_saved,
    "rows": score_rows,
    "row": score_row,
    "plain rows": score_plain_rows,
    "C": score_c,
    "HTTP rows": score_http_rows,
    "HTTP columns": score_http_columns,
    "HTTP Arrow": score_http_arrow,
}
NOT_INFINITE = ("HTTP rows", "HTTP columns", "ONNX", "page")
"""Paths that have no word for an infinite number, or take it for the end of the range."""
CLOSE: dict[str, Callable[[Case, Path], Scored]] = {
    "ONNX": score_onnx,
    "torch module": score_torch_module,
    "torch engine": score_torch_engine,
    "libffm": score_libffm,
}
