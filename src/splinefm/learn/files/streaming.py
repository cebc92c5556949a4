"""Model files that are written piece by piece: the tables of parameters are never in memory as a whole."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from splinefm._writing import check_destination, replacing
from splinefm.learn.files.container import (
    NO_DIGEST,
    Array,
    ModelFileError,
    as_bytes,
    header_digest,
    in_file_order,
    make_header,
    parse_json,
    stream_digest,
    to_json,
)
from splinefm.learn.files.describe import describe_fitted
from splinefm.learn.files.modelfile import FORMAT
from splinefm.learn.files.restore import MAPPED, restore_fitted
from splinefm.learn.fitted import Fitted
from splinefm.model.family import param_shapes

TABLES = ("factors", "linear")
"""The parameters with a row per feature: all others are small."""
Piece = tuple[int, Array, Array]
"""The first feature of some neighboring ones, their vectors and their linear weights."""


def write_model(
    path: str | os.PathLike[str],
    head: Fitted,
    pieces: Iterable[Piece],
    before: Callable[[str], None] | None = None,
) -> None:
    """Write a model file from pieces of its tables; the bytes are those that `save` writes for the whole model.

    Parameters
    ----------
    path : path
        The file; an existing one is replaced in one step, or not at all.
    head : Fitted
        The model without "factors" and "linear" in its parameters.
    pieces : iterable of (int, array, array)
        First feature, vectors of shape (features, width), and linear weights, in the order of the features; together
        all of them. Several classes are a first axis, as in the parameters.
    before : callable, optional
        Called with the identity of the model before it replaces the file.

    Raises
    ------
    ModelFileError
        If pieces are missing, out of order, of another shape, or have NaN or infinity. The file is not written then.
    """
    target = check_destination(Path(path))
    try:
        description, tensors = describe_head(head)
        with replacing(target) as file:
            write_tables(file, FORMAT, version(), description, tensors, MAPPED, pieces)
            if before is not None:
                before(header_digest(file))
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"cannot save to {str(path)!r}: {error}") from error


def describe_head(head: Fitted) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the description and arrays of a model; those of its tables are placeholders, which take no memory."""
    given = [name for name in TABLES if name in head.params]
    if given:
        raise ValueError(f"the head of a model has no {' and '.join(given)}: they come in pieces")
    shapes = param_shapes(head.model, head.encoder.layout, head.n_outputs)
    missing = [name for name in shapes if name not in head.params and name not in TABLES]
    if missing:
        raise ValueError(f"the head of the model lacks the parameters {', '.join(missing)}")
    params = {name: head.params.get(name, placeholder(shape)) for name, shape in shapes.items()}
    tensors: dict[str, Array] = {}
    description = describe_fitted(replace(head, params=params), tensors)
    # A description that cannot be read must not replace a file that can.
    restore_fitted(parse_json(to_json(description)), dict(tensors), mapped=True)
    return description, tensors


def placeholder(shape: tuple[int, ...]) -> Array:
    """Return an array of zeros that takes no memory."""
    return np.broadcast_to(np.zeros((), np.float32), shape)


def version() -> str:
    """Return the version of the package, which imports this module and hence is not imported here."""
    return str(sys.modules["splinefm"].__version__)


class _Table(NamedTuple):
    """Where the rows of a table are: of `outputs` tables one after the other, `n` rows of `shape` each."""

    name: str
    at: int
    outputs: int
    n: int
    shape: tuple[int, ...]

    def offset(self, output: int, row: int) -> int:
        return self.at + 4 * (output * self.n + row) * int(np.prod(self.shape, dtype=np.int64))


def write_tables(
    file: BinaryIO,
    number: int,
    written_by: str,
    description: Mapping[str, Any],
    tensors: Mapping[str, Array],
    names: tuple[str, str],
    pieces: Iterable[Piece],
) -> dict[str, str]:
    """Write a container whose tables of vectors and linear weights come in pieces; return all checksums.

    In `tensors`, the tables have placeholders, for their shapes.
    """
    checksums = {name: NO_DIGEST if name in names else _checksum(tensors[name]) for name in tensors}
    header = make_header(number, written_by, description, tensors, checksums)
    file.write(header)
    tables, at = {}, len(header)
    for name, values in in_file_order(tensors):
        if name in names:
            tables[name] = _table(name, at, values.shape, vectors=name == names[0])
        else:
            file.seek(at)
            file.write(as_bytes(values))
        at += values.nbytes
    file.truncate(at)
    checksums |= _write_pieces(file, [tables[name] for name in names], pieces)
    file.seek(0)
    file.write(make_header(number, written_by, description, tensors, checksums))
    return checksums


def _table(name: str, at: int, shape: tuple[int, ...], *, vectors: bool) -> _Table:
    inner = shape[-1:] if vectors else ()
    outer = shape[: len(shape) - len(inner)]
    return _Table(name, at, outer[0] if len(outer) == 2 else 1, outer[-1], inner)


def _write_pieces(file: BinaryIO, tables: list[_Table], pieces: Iterable[Piece]) -> dict[str, str]:
    """Write rows at their offsets, and return the checksums of the tables."""
    n, outputs = tables[0].n, tables[0].outputs
    streams = [hashlib.sha256() for _ in tables]
    at = 0
    for first, *arrays in pieces:
        if first != at:
            what = (
                f"of features {at:,} to {first - 1:,} is missing" if first > at else f"from {first:,} is out of order"
            )
            raise ValueError(f"a piece {what}; pieces must follow each other in the order of the features")
        checked = [_checked(table, given, at) for table, given in zip(tables, arrays, strict=True)]
        if len({values.shape[1] for values in checked}) > 1:
            sizes = " and ".join(f"{values.shape[1]:,}" for values in checked)
            raise ValueError(f"a piece at feature {at:,} has vectors and linear weights of {sizes} features")
        for table, stream, values in zip(tables, streams, checked, strict=True):
            for output in range(outputs):
                rows = as_bytes(values[output])
                file.seek(table.offset(output, at))
                file.write(rows)
                stream.update(rows)
        at += checked[0].shape[1]
    if at != n:
        raise ValueError(f"the pieces have {at:,} of {n:,} features")
    if outputs == 1:
        return {table.name: stream.hexdigest() for table, stream in zip(tables, streams, strict=True)}
    return {table.name: stream_digest(file, table.at, table.offset(outputs, 0)) for table in tables}


def _checked(table: _Table, given: Array, first: int) -> Array:
    """Return a piece with an axis for outputs; raise if it does not fit or is not finite."""
    values = np.ascontiguousarray(given, "<f4")
    if table.outputs == 1 and values.ndim == 1 + len(table.shape):
        values = values[None]
    fits = values.ndim == 2 + len(table.shape) and values.shape[0] == table.outputs and values.shape[2:] == table.shape
    if not fits or first + values.shape[1] > table.n:
        raise ValueError(
            f"a piece of {table.name} at feature {first:,} has shape {np.shape(given)}; there are {table.n:,} features"
            + (f" with vectors of {table.shape[0]}" if table.shape else "")
            + (f" for each of {table.outputs} classes" if table.outputs > 1 else "")
        )
    if not np.isfinite(values).all():
        raise ValueError(f"the model's parameters contain NaN or infinity, in {table.name}; fit it again")
    return values


def _checksum(values: Array) -> str:
    return hashlib.sha256(as_bytes(np.ascontiguousarray(values))).hexdigest()
