"""Tables of every type and encoding, and the path that each of them takes: all results agree, or there is one error."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import io
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _campaign import Wrong, check_clear

import splinefm as sf

Pick = Callable[[Sequence[Any]], Any]
"""Chooses one of several things: at random, or as Hypothesis says."""

TEXTS = [
    "a",
    "b",
    "",
    " a",
    "a ",
    "ä",
    "日本",
    "🙂",
    "nan",
    "NULL",
    "None",
    "true",
    "01",
    "1",
    "1.0",
    "1e5",
    "-0",
    "2024-05-28",
]
ODD_TEXTS = ['say "x"', "a,b", "a;b", "a\tb", "line\nbreak", "'", "\\", "\u202e", "\x00", "x" * 300]
NUMBERS = [0.0, -0.0, 1.0, 2.5, -3.0, 1e-300, 1e15, 1e300, 0.1, 123456789.123]
NAMES = [
    "x",
    "X",
    "a b",
    "a.b",
    "",
    "é",
    "日本",
    "🙂",
    'q"uote',
    "new\nline",
    "0",
    "score",
    "prediction",
    "y ",
    "__index__",
]
ZONES = [None, "UTC", "Europe/Rome", "+05:30"]


class Case(NamedTuple):
    """A table as Arrow has it, and in the form that the model is given."""

    table: pa.Table
    form: str
    source: Any
    rows: list[dict[str, Any]] | None


# Columns: each takes a number of rows and a way to choose, and gives an array


def _values(n: int, pick: Pick, choices: Sequence[Any]) -> list[Any]:
    """Return some of the choices, in a pattern that repeats: few choices are to be made."""
    period = [pick(choices) for _ in range(min(n, 5))]
    return [period[i % len(period)] if (i * 7) % 11 else period[(i * 3) % len(period)] for i in range(n)]


def _with_gaps(values: list[Any], pick: Pick) -> list[Any]:
    gaps = pick(["none", "some", "first", "last", "all"])
    n = len(values)
    missing = {"none": set(), "some": set(range(0, n, 3)), "first": {0}, "last": {n - 1}, "all": set(range(n))}[gaps]
    return [None if i in missing else value for i, value in enumerate(values)]


def _floats(n: int, pick: Pick) -> pa.Array:
    kind = pick([pa.float64(), pa.float32(), pa.float16()])
    most = {pa.float64(): 1e301, pa.float32(): 1e38, pa.float16(): 6e4}[kind]
    choices = [*(value for value in NUMBERS if abs(value) < most), np.nan, np.inf, -np.inf]
    values = _values(n, pick, choices)
    if pick([True, False]):
        values = [value + i / 8 if abs(value) < 1e3 else value for i, value in enumerate(values)]
    # Arrow makes numbers of 16 bits of NumPy's alone.
    return pa.array(
        [None if v is None else np.float16(v) if kind == pa.float16() else v for v in _with_gaps(values, pick)], kind
    )


def _integers(n: int, pick: Pick) -> pa.Array:
    kind = pick([pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
    least, most = (np.iinfo(str(kind)).min, np.iinfo(str(kind)).max)
    choices = [value for value in (0, 1, 2, -1, 100, 2**53 + 1, least, most) if least <= value <= most]
    values = _values(n, pick, choices) if pick([True, False]) else [i % 100 for i in range(n)]
    return pa.array(_with_gaps(values, pick), kind)


def _decimals(n: int, pick: Pick) -> pa.Array:
    kind = pick([pa.decimal128(10, 2), pa.decimal128(38, 0), pa.decimal256(50, 5)])
    values = [decimal.Decimal(value) for value in _values(n, pick, ["0", "1", "-2", "12345", "99"])]
    return pa.array(_with_gaps(values, pick), kind)


def _booleans(n: int, pick: Pick) -> pa.Array:
    return pa.array(_with_gaps(_values(n, pick, [True, False]), pick), pa.bool_())


def _texts(n: int, pick: Pick) -> pa.Array:
    kind = pick([pa.string(), pa.large_string(), pa.string_view()])
    return pa.array(_with_gaps(_values(n, pick, [*TEXTS, *ODD_TEXTS]), pick), kind)


def _dictionaries(n: int, pick: Pick) -> pa.Array:
    column = pick([_texts, _integers, _booleans, _floats])(n, pick)
    if column.type == pa.string_view() or column.type == pa.float16():
        column = column.cast(pa.string() if column.type == pa.string_view() else pa.float32())
    encoded = column.dictionary_encode()
    index = pick([pa.int8(), pa.int32(), pa.uint16()])
    return encoded.cast(pa.dictionary(index, encoded.type.value_type))


def _dates(n: int, pick: Pick) -> pa.Array:
    kind = pick([pa.date32(), pa.date64()])
    days = [dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1899, 12, 31), dt.date(2262, 1, 1), dt.date(1, 1, 1)]
    return pa.array(_with_gaps(_values(n, pick, days), pick), kind)


def _timestamps(n: int, pick: Pick) -> pa.Array:
    unit, zone = pick(["s", "ms", "us", "ns"]), pick(ZONES)
    times = [
        dt.datetime(2024, 3, 31, 1, 30),
        dt.datetime(1970, 1, 1),
        dt.datetime(2024, 10, 27, 1, 59, 59),
        dt.datetime(1901, 1, 1),
    ]
    values = [value + dt.timedelta(hours=i) for i, value in enumerate(_values(n, pick, times))]
    return pa.array(_with_gaps(values, pick), pa.timestamp(unit)).cast(pa.timestamp(unit, zone))


def _clocks(n: int, pick: Pick) -> pa.Array:
    kind = pick([pa.time32("s"), pa.time64("us"), pa.duration("ms")])
    return (
        pa.array(_with_gaps([i % 1000 for i in range(n)], pick), pa.int64())
        .cast(pa.int32() if kind == pa.time32("s") else pa.int64())
        .cast(kind)
    )


def _lists(n: int, pick: Pick) -> pa.Array:
    kind = pick(
        [
            pa.list_(pa.string()),
            pa.large_list(pa.string()),
            pa.list_(pa.int64()),
            pa.list_(pa.float64()),
            pa.list_(pa.bool_()),
        ]
    )
    inner = {
        pa.string(): ["a", "b", "", None],
        pa.int64(): [1, 2, None],
        pa.float64(): [1.5, 2.0, None],
        pa.bool_(): [True, None],
    }
    choices = inner[kind.value_type]
    values = _values(n, pick, [[], choices[:1], choices, choices[:2] * 2])
    return pa.array(_with_gaps(values, pick), kind)


def _strange(n: int, pick: Pick) -> pa.Array:
    """Types that no field reads: an error, or a column that is left out."""
    kind = pick(["null", "binary", "fixed", "struct", "map", "vector", "list of lists", "views", "list view", "runs"])
    if kind == "null":
        return pa.nulls(n)
    if kind in ("binary", "fixed"):
        return pa.array([b"ab"] * n, pa.binary() if kind == "binary" else pa.binary(2))
    if kind == "struct":
        return pa.array([{"a": 1}] * n, pa.struct([("a", pa.int64())]))
    if kind == "map":
        return pa.array([[("k", 1)]] * n, pa.map_(pa.string(), pa.int64()))
    if kind == "views":
        return pa.array([["a", "b"]] * n, pa.list_(pa.string_view()))
    if kind == "list view":
        return pa.array([["a", "b"]] * n, pa.list_view(pa.string()))
    if kind == "runs":
        return pa.RunEndEncodedArray.from_arrays(pa.array([n] if n else [], pa.int32()), pa.array(["a"] if n else []))
    if kind == "vector":
        return pa.array([[1.0, 2.0]] * n, pa.list_(pa.float64(), 2))
    return pa.array([[["a"]]] * n, pa.list_(pa.list_(pa.string())))


COLUMNS = [
    _floats,
    _integers,
    _texts,
    _booleans,
    _dictionaries,
    _dates,
    _timestamps,
    _lists,
    _decimals,
    _clocks,
    _strange,
]


# Forms of a table


def _chunked(table: pa.Table, pick: Pick) -> pa.Table:
    """Cut a table into chunks, some of them empty."""
    cuts = pick([[0], [0, 0], [1], [table.num_rows // 2, table.num_rows // 2], [table.num_rows]])
    bounds = [0, *(min(cut, table.num_rows) for cut in cuts), table.num_rows]
    parts = [table.slice(a, b - a).to_batches() or [_empty(table)] for a, b in pairwise(bounds)]
    return pa.Table.from_batches([batch for part in parts for batch in part], table.schema)


def _empty(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in table.schema.types], schema=table.schema)


def _write_csv(table: pa.Table, folder: Path, pick: Pick) -> Path:
    """Write text by Python's own writer."""
    separator, mark = pick([",", ";", "\t", "|"]), pick(["", "\ufeff"])
    quoting, end = pick([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), pick(["\n", "\r\n"])
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=end)
    writer.writerow(table.column_names)
    rows = [["" if value is None else str(value) for value in row.values()] for row in table.to_pylist()]
    writer.writerows(rows)
    path = folder / "t.csv"
    encoding = "utf-8" if mark else pick(["utf-8", "utf-8", "utf-8-sig", "utf-16"])
    path.write_bytes((mark + text.getvalue()).encode(encoding))
    return path


def _as_form(table: pa.Table, form: str, folder: Path, pick: Pick) -> Any:
    if form == "arrow":
        return _chunked(table, pick)
    if form == "parquet":
        path = folder / "t.parquet"
        options = {"row_group_size": pick([1, 7, 10**6]), "use_dictionary": pick([True, False])}
        pq.write_table(_chunked(table, pick), path, **options)
        return path
    if form == "pandas":
        return table.to_pandas()
    if form == "pandas with Arrow's types":
        import pandas as pd

        return table.to_pandas(types_mapper=pd.ArrowDtype)
    if form == "pandas with nullable types":
        return table.to_pandas().convert_dtypes()
    if form == "polars":
        import polars as pl

        if "decimal256" in str(table.schema):
            raise ValueError("polars panics")
        return pl.from_arrow(table)
    if form == "lists":
        return table.to_pydict()
    if form == "arrays":
        return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    assert form == "structured"
    frame = table.to_pandas()
    return frame.to_records(index=False)


FORMS = [
    "arrow",
    "parquet",
    "csv",
    "pandas",
    "pandas with Arrow's types",
    "pandas with nullable types",
    "polars",
    "lists",
    "arrays",
    "structured",
]
LATER = ("score", "predict")


def make_case(pick: Pick, folder: Path) -> Case:
    """Make a table and give it a form; errors of other packages, which have no such form, are ImportError."""
    n = pick([40, 40, 40, 1, 2, 3, 0])
    columns, names = [], []
    for _ in range(pick([1, 2, 3])):
        columns.append(pick(COLUMNS)(n, pick))
        name = pick(NAMES) if pick([False, True]) else f"c{len(names)}"
        names.append(name)
    if pick([True, True, True, True, False]):  # the same name twice otherwise
        names = [f"{name}{i}" if name in names[:i] or name == "y" else name for i, name in enumerate(names)]
    target = pa.array([i % 2 if (i * 5) % 7 else (i + 1) % 2 for i in range(n)])
    table = pa.Table.from_arrays([*columns, target], names=[*names, "y"])
    form = pick(FORMS)
    rows = None
    try:
        if form == "csv":
            source = _write_csv(table, folder, pick)
        else:
            source = _as_form(table, form, folder, pick)
            rows = table.to_pylist() if form in ("arrow", "parquet", "lists") else None
            rows = source.to_dicts() if form == "polars" else rows
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of polars
            raise
        raise ImportError(f"{form} has no such table: {error}") from error
    return Case(table, form, source, rows)


# The path


def follow(case: Case, folder: Path) -> str:
    """Take a table from its schema to an explanation; returns how it ended, or raises `Wrong`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schema = sf.infer_schema(case.source, target="y")
            training = sf.Training(epochs=1, threads=1)
            fitted = sf.fit_model(case.source, "y", schema=schema, loss="logistic", model=sf.FM(k=2), training=training)
            scores = np.asarray(fitted.scores(case.source))
    except Exception as error:
        check_clear(error, (ValueError, TypeError, OSError))
        return "refused"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _agree(case, fitted, scores, folder)
    return "agree"


def _agree(case: Case, fitted: sf.Fitted, scores: np.ndarray, folder: Path) -> None:
    if len(scores) != case.table.num_rows or not np.isfinite(scores).all():
        raise Wrong(f"{len(scores)} scores for {case.table.num_rows} rows, or some that are not finite")
    fitted.save(folder / "m.sfm")
    again = sf.load(folder / "m.sfm")
    _same("the loaded model", again.scores(case.source), scores)
    if case.form == "arrow":
        _same("rows one by one", [again.scores(case.source.slice(i, 1))[0] for i in range(len(scores))], scores)
    rows = case.rows
    if case.form == "csv":  # which words stand for missing values, the reader of files knows
        schema = fitted.encoder.schema
        chunks = sf.open_table(case.source, types=schema.column_types()).chunks(list(schema.columns))
        rows = [row for chunk in chunks for row in pa.Table.from_batches([chunk]).to_pylist()]
    if rows is not None:
        try:
            found = fitted.scorer().many([{key: row[key] for key in fitted.encoder.schema.columns} for row in rows])
        except Exception as error:
            check_clear(error, (ValueError, TypeError))
            _refused_by_rows(case, error)
        else:
            _same("the scorer of rows", found, scores)
    _agree_onnx(case, fitted, scores, folder)
    if len(scores):
        shapley = sf.shapley_values(fitted, case.source, background=case.source)
        _same("Shapley values", shapley.base + shapley.values.sum(axis=1), scores, 1e-5)


def _refused_by_rows(case: Case, error: Exception) -> None:
    """Rows may refuse Python's objects for what JSON has no words for; text, numbers, booleans and dates are theirs."""
    plain = (str, int, float, bool, list, dt.date, dt.datetime, type(None))
    if all(isinstance(value, plain) for row in case.rows or [] for value in row.values()):
        raise Wrong(f"rows are refused where the table is not: {error}") from error


def _agree_onnx(case: Case, fitted: sf.Fitted, scores: np.ndarray, folder: Path) -> None:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return
    try:
        sf.export_onnx(fitted, folder / "m.onnx")
        inputs = sf.onnx_inputs(fitted, case.source)
    except Exception as error:
        check_clear(error, (ValueError, TypeError))
        return
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder / "m.onnx", options, providers=["CPUExecutionProvider"])
    output = session.get_outputs()[0].name
    _same("ONNX", session.run([output], inputs)[0], scores, 1e-5)


def _same(what: str, found: Any, scores: np.ndarray, tolerance: float = 0.0) -> None:
    found = np.asarray(found, np.float64)
    limit = tolerance * max(1.0, float(np.abs(scores).max(initial=0.0)))
    if found.shape != scores.shape or not (np.abs(found - scores) <= limit).all():
        worst = int(np.argmax(np.abs(found - scores))) if found.shape == scores.shape else -1
        raise Wrong(f"{what} differs, most in row {worst}: {found[worst : worst + 1]} and {scores[worst : worst + 1]}")
