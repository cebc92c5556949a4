"""POST /v1/score: rows as JSON or as an Arrow stream -> scores and predictions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from splinefm.encode.tables.arrow import plain_column, plain_type
from splinefm.serve.arrow import BadStream, LargeStream, read_batches
from splinefm.serve.bodies import Row, ScoreBody, from_json, to_json
from splinefm.serve.messages import ARROW, Answer, Later, Problem, Request, Response, content_type
from splinefm.serve.rows import BodyRows, Fault, FaultyRows, ListedRows, RequestRows
from splinefm.serve.service import ScoringService
from splinefm.serve.serving import Scored, Serving

# More rows and bytes than these take so long that short requests should not wait for them.
LONG_ROWS, LONG_BYTES = 1000, 1 << 20


def score(service: ScoringService, request: Request) -> Answer:
    """Score the rows of a request: all of them, or none."""
    serving = service.serving  # the models that the request begins with
    arm = serving.known_arm(request.arm())
    if content_type(request.headers) == ARROW:
        return Later(lambda: _score_stream(service, serving, request, arm))
    request.need_json()
    if len(request.body) > LONG_BYTES:
        return Later(lambda: _score_rows(service, serving, request, _read(service, serving, request), arm))
    rows = _read(service, serving, request)
    if len(rows) > LONG_ROWS:
        return Later(lambda: _score_rows(service, serving, request, rows, arm))
    return _score_rows(service, serving, request, rows, arm)


def _read(service: ScoringService, serving: Serving, request: Request) -> RequestRows:
    rows = read_rows(request.body, service.settings.limits.rows, serving)
    request.n_rows = len(rows)
    return rows


def read_rows(body: bytes, max_rows: int, serving: Serving) -> RequestRows:
    """The rows of a body, given as a list of objects or as columns."""
    decode = partial(decode_rows, body, max_rows)
    found = serving.json.read(body, max_rows)
    return ListedRows(decode()) if found is None else BodyRows(found, decode)


def decode_rows(body: bytes, max_rows: int) -> list[Row]:
    """The rows of a body as dicts."""
    content: ScoreBody = from_json(body, ScoreBody)
    if (content.rows is None) == (content.columns is None):
        raise Problem(422, 'the body must have either "rows", a list of objects, or "columns", an object of lists')
    rows = content.rows if content.rows is not None else rows_of_columns(content.columns or {}, max_rows)
    check_count(len(rows), max_rows)
    return rows


def check_count(n: int, max_rows: int) -> None:
    """Raise where a request has no rows, or too many."""
    if n > max_rows:
        raise Problem(
            413, f"the request has {n:,} rows, at most {max_rows:,} are allowed; split it", rows=n, most=max_rows
        )
    if not n:
        raise Problem(422, "the request has no rows; send at least one")


def rows_of_columns(columns: dict[str, list[Any]], max_rows: int) -> list[Row]:
    """A dict for each row.

    Examples
    --------
    >>> rows_of_columns({"x": [1, 2], "c": ["a", None]}, 10)
    [{'x': 1, 'c': 'a'}, {'x': 2, 'c': None}]
    """
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        name, n = max(lengths.items(), key=lambda item: item[1])
        other, m = min(lengths.items(), key=lambda item: item[1])
        raise FaultyRows(
            [Fault(m, other, f"column {other!r} has {m:,} values and {name!r} has {n:,}; give all as many")]
        )
    check_count(next(iter(lengths.values()), 0), max_rows)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _score_rows(
    service: ScoringService, serving: Serving, request: Request, rows: RequestRows, arm: str | None
) -> Response:
    found = service.score(rows, request_id=request.id, arm=arm, serving=serving)
    return Response(200, to_json(as_json(serving, request.id, found)))


def as_json(serving: Serving, request_id: str, found: Scored) -> dict[str, Any]:
    """The answer to a request with JSON."""
    content: dict[str, Any] = {"id": request_id, "versions": found.versions}
    if len(serving.split.weights) > 1:
        content["arms"] = found.arms * len(found.scores) if len(found.arms) == 1 else found.arms
    if serving.n_outputs > 1:
        content["classes"] = serving.classes
    content["scores"], content["predictions"] = found.scores.tolist(), found.predictions.tolist()
    return content


# Arrow

# How many times --max-body the values of a stream may take once every row has its own: rows may share values
# of a dictionary, and bits become bytes.
EXPANSION = 4


def _score_stream(service: ScoringService, serving: Serving, request: Request, arm: str | None) -> Response:
    limits = service.settings.limits
    table = read_stream(request.body, limits.bulk_rows, EXPANSION * limits.body)
    request.n_rows = table.num_rows
    found = service.score(table, request_id=request.id, arm=arm, serving=serving)
    if b"application/json" in request.headers.get(b"accept", b""):
        return Response(200, to_json(as_json(serving, request.id, found)))
    return Response(200, _write_stream(serving, found), ARROW)


def read_stream(body: bytes, max_rows: int, max_bytes: int) -> pa.Table:
    """The table of an Arrow stream."""
    try:
        schema, batches = read_batches(body, max_rows, max_bytes)
        names = schema.names
    except LargeStream as error:
        raise Problem(413, str(error)) from None
    except BadStream as error:
        raise Problem(400, str(error)) from None
    except UnicodeDecodeError:
        raise Problem(400, "a name of the stream's columns is not UTF-8") from None
    check_count(sum(batch.num_rows for batch in batches), max_rows)
    table = _plain(pa.Table.from_batches(batches, schema))
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise FaultyRows([Fault(None, twice, f"column {twice!r} is given twice; give it once")])
    for name in names:
        _refuse_nan(name, table.column(name))
    return table


def _plain(table: pa.Table) -> pa.Table:
    """Return the table without views and other types that Arrow cannot take rows of."""
    schema = pa.schema([pa.field(field.name, plain_type(field.type)) for field in table.schema])
    columns = [
        pa.chunked_array([plain_column(chunk, kind) for chunk in column.chunks], kind)
        for column, kind in zip(table.columns, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _refuse_nan(name: str, column: pa.ChunkedArray) -> None:
    if pa.types.is_floating(column.type) and column.type != pa.float16():
        is_nan = pc.is_nan(column)
        if pc.any(is_nan).as_py():
            row = int(np.flatnonzero(pc.fill_null(is_nan, False).to_numpy())[0])
            raise FaultyRows([Fault(row, name, f"column {name!r} holds NaN; a missing value is null")])


def _write_stream(serving: Serving, found: Scored) -> bytes:
    columns: dict[str, Any] = {}
    for name, values in (("score", found.scores), ("prediction", found.predictions)):
        if values.ndim == 1:
            columns[name] = pa.array(values)
        else:
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    if len(serving.split.weights) > 1:
        arms = found.arms * len(found.scores) if len(found.arms) == 1 else found.arms
        columns["arm"] = pa.array(arms).dictionary_encode()
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]  # pyarrow has no types
