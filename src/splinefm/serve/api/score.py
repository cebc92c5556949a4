"""POST /v1/score: rows as JSON or as an Arrow stream -> scores and predictions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from splinefm.encode.tables.arrow import plain_column, plain_type
from splinefm.serve.api.state import State, need_json
from splinefm.serve.arms.faults import Fault, FaultyRows
from splinefm.serve.arms.rows import BodyRows, ListedRows, RequestRows
from splinefm.serve.arms.serving import Scored, Serving
from splinefm.serve.http.arrow import BadStream, LargeStream, read_batches
from splinefm.serve.http.codec import Row, ScoreBody, from_json, to_json
from splinefm.serve.http.messages import ARROW, Answer, Later, Problem, Request, Response, content_type

# More rows than this take so long that short requests should not wait for them.
LONG_ROWS = 1000


def score(state: State, request: Request) -> Answer:
    """Score the rows of a request: all of them, or none."""
    serving = state.serving  # the models that the request begins with
    arm = state.asked_arm(request)
    if content_type(request.headers) == ARROW:
        return Later(lambda: _score_stream(state, serving, request, arm))
    need_json(request)
    rows = read_rows(request.body, state.limits.rows, serving)
    request.n_rows = len(rows)
    if len(rows) > LONG_ROWS:
        return Later(lambda: _score_rows(state, serving, request, rows, arm))
    return _score_rows(state, serving, request, rows, arm)


def read_rows(body: bytes, most: int, serving: Serving) -> RequestRows:
    """The rows of a body, given as a list of objects or as columns."""
    decode = partial(decode_rows, body, most)
    found = serving.read_json(body, most)
    return ListedRows(decode()) if found is None else BodyRows(found, decode)


def decode_rows(body: bytes, most: int) -> list[Row]:
    """The rows of a body as dicts."""
    content: ScoreBody = from_json(body, ScoreBody)
    if (content.rows is None) == (content.columns is None):
        raise Problem(422, 'the body must have either "rows", a list of objects, or "columns", an object of lists')
    rows = content.rows if content.rows is not None else rows_of_columns(content.columns or {}, most)
    check_count(len(rows), most)
    return rows


def check_count(n: int, most: int) -> None:
    """Raise where a request has no rows, or too many."""
    if n > most:
        raise Problem(413, f"the request has {n:,} rows, at most {most:,} are allowed; split it", rows=n, most=most)
    if not n:
        raise Problem(422, "the request has no rows; send at least one")


def rows_of_columns(columns: dict[str, list[Any]], most: int) -> list[Row]:
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
    check_count(next(iter(lengths.values()), 0), most)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _score_rows(state: State, serving: Serving, request: Request, rows: RequestRows, arm: str | None) -> Response:
    found = serving.score(rows, request.id, arm)
    remember(state, serving, request, rows, found)
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


def remember(state: State, serving: Serving, request: Request, rows: RequestRows, found: Scored) -> None:
    """Log what was shown, and hand the rows to shadow arms and to the watch of drift, when there is time."""
    if state.log is not None:
        logged = rows.dicts if state.settings.log_rows else None
        state.log.scored(request.id, found.arms, found.predictions, _keys(serving, rows), logged)
    if state.drift is not None and state.drift.has_room:
        state.drift.take(serving, found.arms, rows.dicts)
    for name in serving.shadows:
        if not state.after.add(len(rows), partial(_shadow, state, serving, request.id, rows, name, found)):
            state.metrics.add("splinefm_shadow_dropped_total", name, amount=float(len(rows)))


def _shadow(state: State, serving: Serving, request_id: str, rows: RequestRows, name: str, found: Scored) -> None:
    predictions = serving.shadow(name, rows, found.predictions)
    if state.log is not None and predictions is not None:
        state.log.scored(request_id, [name], predictions, _keys(serving, rows), None, shadow=True)


def _keys(serving: Serving, rows: RequestRows) -> list[Any] | None:
    """The keys of rows, if arms follow from them: rows of one key are not independent in a report."""
    return None if serving.key is None else rows.column(serving.key)


# Arrow

# How many times --max-body the values of a stream may take once every row has its own: rows may share those of a
# dictionary, and bits become bytes.
EXPANSION = 4


def _score_stream(state: State, serving: Serving, request: Request, arm: str | None) -> Response:
    table = read_stream(request.body, state.limits.bulk_rows, EXPANSION * state.limits.body)
    request.n_rows = table.num_rows
    found = serving.score_table(table, request.id, arm)
    if state.log is not None:
        keys = table.column(serving.key).to_pylist() if serving.key is not None else None
        state.log.scored(request.id, found.arms, found.predictions, keys, None)
    if state.drift is not None:
        state.drift.take(serving, found.arms, table)
    if b"application/json" in request.headers.get(b"accept", b""):
        return Response(200, to_json(as_json(serving, request.id, found)))
    return Response(200, _write_stream(serving, found), ARROW)


def read_stream(body: bytes, most: int, max_bytes: int) -> pa.Table:
    """The table of an Arrow stream."""
    try:
        schema, batches = read_batches(body, most, max_bytes)
        names = schema.names
    except LargeStream as error:
        raise Problem(413, str(error)) from None
    except BadStream as error:
        raise Problem(400, str(error)) from None
    except UnicodeDecodeError:
        raise Problem(400, "a name of the stream's columns is not UTF-8") from None
    check_count(sum(batch.num_rows for batch in batches), most)
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
