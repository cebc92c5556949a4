"""Statistics as bytes, for other processes and machines: JSON and arrays with checksums, and no code."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm._arrays import Array
from splinefm.distribute.statistics import Scan, ShareStatistics, numerical_parts
from splinefm.encode.fields.categorical import CategoricalStatistics, MultiValuedStatistics
from splinefm.encode.fields.cross import CrossStatistics
from splinefm.encode.fields.numerical import NumericalStatistics
from splinefm.encode.fields.vocabulary import CategoryCounts
from splinefm.encode.tables.arrow import to_arrow, to_numpy
from splinefm.encode.tables.columns import text_buffers
from splinefm.encode.transforms.sketch import QuantileSketch, Summary
from splinefm.store.container import Damaged, ModelFileError, read_container, require, write_container
from splinefm.store.sharded import version
from splinefm.train.target_summary import Moments

FORMAT = 1
_SCAN = ("loss", "target", "sample_weight", "validation", "seed", "block", "offset")


def to_bytes(statistics: ShareStatistics) -> bytes:
    """Return statistics as bytes that `from_bytes` reads in another process.

    Parameters
    ----------
    statistics : ShareStatistics
        The statistics of a share.
    """
    tensors: dict[str, Array] = {}
    scan = statistics.scan
    described = {
        "library": version(),
        "schema": _schema_text(scan),
        "scan": [repr(getattr(scan, name)) for name in _SCAN],
        "blocks": [statistics.begin, statistics.end],
        "rows": statistics.n_rows,
        "sample_share": statistics.sample.share,
        "fields": [_describe(item, f"{i}", tensors) for i, item in enumerate(statistics.counts.fields)],
    }
    for i, tree in enumerate(statistics.sketches):
        tensors[f"sketches/{i}/meta"], tensors[f"sketches/{i}/points"] = _sketch_arrays(tree.waiting)
    for name, waiting in (("moments", statistics.moments.waiting), ("totals", statistics.totals.waiting)):
        tensors[f"{name}/keys"] = np.array(list(waiting), np.int64).reshape(-1, 2)
        tensors[f"{name}/values"] = np.array(list(waiting.values()), np.float64).reshape(
            len(waiting), -1 if waiting else 0
        )
    tensors["sample"], tensors["held_out"] = statistics.sample.rows, statistics.held_out
    file = io.BytesIO()
    contiguous = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    write_container(file, FORMAT, version(), {"statistics": described}, contiguous)
    return file.getvalue()


def from_bytes(data: bytes, scan: Scan, threads: int | None = None) -> ShareStatistics:
    """Return the statistics that another process collected for the same scan.

    Parameters
    ----------
    data : bytes
        What `to_bytes` returned.
    scan : Scan
        What this process collects; another schema or other settings raise an error.
    threads : int, optional
        As for `ShareStatistics`.
    """
    try:
        content, tensors = read_container(io.BytesIO(data), FORMAT)
        described = content["statistics"]
        _check_same(described, scan)
        return _restore_statistics(described, tensors, scan, threads)
    except (Mismatch, MemoryError):
        raise
    except ModelFileError as error:
        raise ModelFileError(f"cannot read statistics of another process: {error}") from error
    except Exception as error:  # an invalid description can raise anything
        raise ModelFileError(f"cannot read statistics of another process: they are damaged ({error!r})") from error


class Mismatch(ValueError):
    """Two processes do not collect the same statistics, or not with the same version."""


def _check_same(described: dict[str, Any], scan: Scan) -> None:
    if described["library"] != version():
        raise Mismatch(
            f"a process runs splinefm {described['library']}, this one {version()}; install one version everywhere"
        )
    for name, theirs in zip(_SCAN, described["scan"], strict=True):
        if theirs != repr(getattr(scan, name)):
            raise Mismatch(f"{name} is {getattr(scan, name)!r} in this process and {theirs} in another")
    mine, theirs = _schema_text(scan), described["schema"]
    if mine != theirs:
        both = [(a, b) for a, b in zip(mine, theirs, strict=False) if a != b]
        fields = (
            f"{both[0][0][:200]} here, {both[0][1][:200]} there" if both else f"{len(mine)} and {len(theirs)} fields"
        )
        raise Mismatch(f"two processes have different schemas: {fields}; give all of them the same schema")


def _schema_text(scan: Scan) -> list[str]:
    """Return the fields as text, in which objects have no addresses."""
    return [re.sub(r" at 0x[0-9a-f]+", "", repr(item)) for item in scan.schema.resolved]


def _restore_statistics(
    described: dict[str, Any], tensors: dict[str, Array], scan: Scan, threads: int | None
) -> ShareStatistics:
    statistics = ShareStatistics(scan, 0, threads)
    statistics.begin, statistics.end = map(int, described["blocks"])
    require(0 <= statistics.begin <= statistics.end, f"blocks are {described['blocks']}")
    fields = statistics.counts.fields
    require(len(described["fields"]) == len(fields), "the number of fields is wrong")
    statistics.counts.n_rows = int(described["rows"])
    for i, (item, state) in enumerate(zip(fields, described["fields"], strict=True)):
        _restore(item, state, f"{i}", tensors)
    for i, tree in enumerate(statistics.sketches):
        tree.waiting = _restore_sketches(tensors.pop(f"sketches/{i}/meta"), tensors.pop(f"sketches/{i}/points"))
    moments, totals = (_pairs(tensors, name) for name in ("moments", "totals"))
    statistics.moments.waiting = {key: Moments(*values.tolist()) for key, values in moments}
    statistics.totals.waiting = dict(totals)
    statistics.sample.share, statistics.sample.rows = float(described["sample_share"]), tensors.pop("sample")
    statistics.held_out = tensors.pop("held_out")
    require(not tensors, f"nothing refers to the array {next(iter(tensors), None)!r}")
    require(all(part.n_rows == statistics.n_rows for part in numerical_parts(fields)), "the numbers of rows differ")
    return statistics


def _pairs(tensors: dict[str, Array], name: str) -> list[tuple[tuple[int, int], Array]]:
    keys, values = tensors.pop(f"{name}/keys"), tensors.pop(f"{name}/values")
    return [((int(a), int(b)), row) for (a, b), row in zip(keys.tolist(), values, strict=True)]


# Sketches: a row of `meta` per summary, with the place of its sketch in the tree, its level in the sketch, its size.


def _sketch_arrays(waiting: dict[tuple[int, int], QuantileSketch]) -> tuple[Array, Array]:
    meta: list[tuple[float, ...]] = []
    points = [np.zeros((3, 0))]
    for (level, number), sketch in waiting.items():
        meta.append((level, number, -1, 0, 0.0, 0.0))  # a sketch without rows has no other row
        for inner, summary in enumerate(sketch.levels):
            if summary is not None:
                meta.append((level, number, inner, len(summary.value), summary.total, summary.error))
                points.append(np.stack([summary.value, summary.below, summary.at]))
    return np.array(meta, np.float64).reshape(-1, 6), np.concatenate(points, axis=1)


def _restore_sketches(meta: Array, points: Array) -> dict[tuple[int, int], QuantileSketch]:
    waiting: dict[tuple[int, int], QuantileSketch] = {}
    at = 0
    for level, number, inner, size, total, error in meta.tolist():
        if inner < 0:
            waiting[int(level), int(number)] = QuantileSketch()
            continue
        levels = waiting[int(level), int(number)].levels
        levels.extend([None] * (int(inner) + 1 - len(levels)))
        value, below, rows = np.ascontiguousarray(points[:, at : at + int(size)])
        levels[int(inner)] = Summary(value, below, rows, total, error)
        at += int(size)
    require(at == points.shape[1], "a sketch has the wrong number of values")
    return waiting


# Fields: what is kept beside the sketches. Each kind of statistics has two functions.


def _describe(statistics: Any, path: str, tensors: dict[str, Array]) -> dict[str, Any]:
    return _KINDS[type(statistics)][0](statistics, path, tensors)


def _restore(statistics: Any, state: dict[str, Any], path: str, tensors: dict[str, Array]) -> None:
    statistics.n_rows = int(state["rows"])
    _KINDS[type(statistics)][1](statistics, state, path, tensors)


def _describe_numerical(item: NumericalStatistics, path: str, tensors: dict[str, Array]) -> dict[str, Any]:
    tensors[f"{path}/special"] = item.special_rows
    return {
        "rows": item.n_rows,
        "missing": item.n_missing,
        "part": item.spec.part,
        "stray_rows": item.n_stray,
        "stray": list(item.stray),
    }


def _restore_numerical(item: NumericalStatistics, state: dict[str, Any], path: str, tensors: dict[str, Array]) -> None:
    item.n_missing, item.n_stray, item.stray = int(state["missing"]), int(state["stray_rows"]), tuple(state["stray"])
    special = tensors.pop(f"{path}/special")
    require(special.shape == item.special_rows.shape, f"{item.spec.name!r} has the wrong number of special values")
    item.special_rows = special
    item.spec = replace(item.spec, part=state["part"])


def _describe_categorical(item: CategoricalStatistics, path: str, tensors: dict[str, Array]) -> dict[str, Any]:
    _put_counts(item.counts, path, tensors)
    return {"rows": item.n_rows, "missing": item.n_missing}


def _restore_categorical(
    item: CategoricalStatistics, state: dict[str, Any], path: str, tensors: dict[str, Array]
) -> None:
    item.n_missing, item.counts = int(state["missing"]), _take_counts(path, tensors)


def _describe_lists(item: MultiValuedStatistics, path: str, tensors: dict[str, Array]) -> dict[str, Any]:
    for length, counts in item.by_length.items():
        _put_counts(counts, f"{path}/{length}", tensors)
    _put_counts(item.left_out, f"{path}/left_out", tensors)
    lengths = list(item.by_length)
    return {"rows": item.n_rows, "missing": item.n_missing, "longest": item.longest, "lengths": lengths}


def _restore_lists(item: MultiValuedStatistics, state: dict[str, Any], path: str, tensors: dict[str, Array]) -> None:
    item.n_missing, item.longest = int(state["missing"]), int(state["longest"])
    item.by_length = {int(length): _take_counts(f"{path}/{length}", tensors) for length in state["lengths"]}
    left_out = _take_counts(f"{path}/left_out", tensors)
    item.left_out = left_out if left_out.pieces[0].num_rows else CategoryCounts()


def _describe_cross(item: CrossStatistics, path: str, tensors: dict[str, Array]) -> dict[str, Any]:
    parts = [_describe(part, f"{path}/{i}", tensors) for i, part in enumerate(item.parts)]
    names, rows = item.cells.every()
    for i, column in enumerate(names):
        _put_names(column, f"{path}/cells/{i}", tensors)
    tensors[f"{path}/cells/rows"] = np.asarray(rows, np.int64)
    return {"rows": item.n_rows, "parts": parts}


def _restore_cross(item: CrossStatistics, state: dict[str, Any], path: str, tensors: dict[str, Array]) -> None:
    for i, (part, described) in enumerate(zip(item.parts, state["parts"], strict=True)):
        _restore(part, described, f"{path}/{i}", tensors)
    columns = {str(i): _take_names(f"{path}/cells/{i}", tensors) for i in range(item.cells.n_parts)}
    rows = to_arrow(tensors.pop(f"{path}/cells/rows"))
    if columns and len(rows):
        item.cells.pieces = [pa.table({**columns, "count": rows})]


_KINDS: dict[type, tuple[Callable[..., dict[str, Any]], Callable[..., None]]] = {
    NumericalStatistics: (_describe_numerical, _restore_numerical),
    CategoricalStatistics: (_describe_categorical, _restore_categorical),
    MultiValuedStatistics: (_describe_lists, _restore_lists),
    CrossStatistics: (_describe_cross, _restore_cross),
}


def _put_counts(counts: CategoryCounts, path: str, tensors: dict[str, Array]) -> None:
    names, rows = counts.every()
    _put_names(names, path, tensors)
    tensors[f"{path}/counts"] = np.asarray(rows, np.int64)


def _take_counts(path: str, tensors: dict[str, Array]) -> CategoryCounts:
    names, rows = _take_names(path, tensors), tensors.pop(f"{path}/counts")
    require(len(names) == len(rows), f"{path} has {len(names)} names and {len(rows)} counts")
    return CategoryCounts([pa.table({"name": names, "count": to_arrow(rows)})])


def _put_names(names: pa.LargeStringArray, path: str, tensors: dict[str, Array]) -> None:
    if names.null_count:
        tensors[f"{path}/known"] = to_numpy(names.is_valid()).astype(np.uint8)
        names = names.fill_null("")
    offsets, text = text_buffers(names)
    tensors[f"{path}/offsets"], tensors[f"{path}/text"] = offsets - offsets[0], text[offsets[0] : offsets[-1]]


def _take_names(path: str, tensors: dict[str, Array]) -> pa.LargeStringArray:
    offsets, text = tensors.pop(f"{path}/offsets"), tensors.pop(f"{path}/text")
    if not (len(offsets) and offsets[0] == 0 and offsets[-1] == len(text)):
        raise Damaged(f"the names of {path} do not fit their text")
    known = tensors.pop(f"{path}/known", None)
    valid = None if known is None else pa.array(known.astype(bool)).buffers()[1]
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(text)]
    names = pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
    names.validate(full=True)
    return names
