"""Files of item indices: the arrays and a description in JSON; reading one never runs code."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from splinefm.encode.tables.names import quoted
from splinefm.learn.files.container import (
    DTYPES,
    Array,
    Damaged,
    Foreign,
    ModelFileError,
    check_destination,
    demand,
    read_container,
    replacing,
    write_container,
)
from splinefm.learn.fitted import Fitted
from splinefm.model.split import Split
from splinefm.rank.catalog import Catalog
from splinefm.rank.effects import Effects
from splinefm.rank.error import Maxima
from splinefm.rank.ids import Groups, Ids
from splinefm.rank.store import PANEL_TYPES, STEP, WIDEST, Panels, Store, Vectors

FORMAT = 2
"""Raised when older releases would misread a file. Format 1 had vectors only."""

_CONTAINER, _ANY_CONTAINER = 1, 2**31  # models count the formats of their files on their own
_PARTS = {
    "index",
    "index_format",
    "written_by",
    "form",
    "dtype",
    "items",
    "context",
    "n_rows",
    "ids",
    "id_column",
    "group_column",
    "groups",
}
_MAPPED = ("panels", "scales", "starts", "weights", "offsets", "ids")


def digest(fitted: Fitted) -> str:
    """Of the model and all its parameters: what an index depends on."""
    whole = hashlib.sha256(repr((fitted.model, fitted.encoder.schema.names)).encode())
    for name, values in sorted(fitted.params.items()):
        whole.update(f"{name} {values.shape} ".encode())
        whole.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return whole.hexdigest()


def save(catalog: Catalog, fitted: Fitted, path: str | os.PathLike[str]) -> None:
    """Write an index; see `ItemIndex.save`."""
    target = check_destination(Path(path))
    store, ids = catalog.store, catalog.ids
    n = store.n_panels * store.size
    text = [name.encode() for name in catalog.groups.names]
    tensors: dict[str, Array] = {
        **(_effect_arrays(store) if isinstance(store, Effects) else _vector_arrays(cast(Vectors, store))),
        "offsets": store.offsets[:n],
        "ids": np.ascontiguousarray(_padded(ids.words, n)).view(np.int64),
        "codes": _padded(catalog.groups.codes, n, -1).astype(np.int64),
        "text": np.frombuffer(b"".join(text), np.uint8),
        "text_ends": np.cumsum([0, *map(len, text)], dtype=np.int64),
    }
    for item in fields(Maxima):
        tensors[f"maxima/{item.name}"] = np.atleast_1d(np.asarray(getattr(catalog.meter.maxima, item.name), np.float64))
    description = {
        "index": digest(fitted),
        "index_format": FORMAT,
        # Not imported: modules of the package import from its folders.
        "written_by": str(sys.modules["splinefm"].__version__),
        "form": store.form,
        "dtype": store.dtype,
        "items": list(catalog.part.names),
        "context": [fitted.encoder.schema.names[f] for f in catalog.split.context],
        "n_rows": store.n_rows,
        "ids": ids.kind,
        "id_column": catalog.id_column,
        "group_column": catalog.group_column,
        "groups": catalog.has_groups,
    }
    with replacing(target) as file:
        write_container(file, _CONTAINER, str(description["written_by"]), description, tensors)


def _vector_arrays(store: Vectors) -> dict[str, Array]:
    lines = np.ascontiguousarray(store.panels.values[: store.n_panels])
    return {
        "panels": lines if store.dtype == "float32" else lines.view(np.uint8),
        "scales": store.scales[: store.n_panels * store.size],
    }


def _effect_arrays(store: Effects) -> dict[str, Array]:
    starts, weights = (np.ascontiguousarray(part.values[: store.n_panels]) for part in (store.starts, store.weights))
    arrays: dict[str, Array] = {"starts": starts.view(np.uint8), "weights": weights}
    for i, table in enumerate(store.tables):
        if table.is_compact:  # others are a copy of what the model has
            n_panels = -(-len(table) // table.panels.size)
            arrays[_table_name(i)] = np.ascontiguousarray(table.panels.values[:n_panels])
            arrays[f"table_rows/{i}"] = table.rows
    return arrays


def _table_name(i: int) -> str:
    return f"tables/{i}"


def _padded(values: npt.NDArray[Any], n: int, filler: int = 0) -> npt.NDArray[Any]:
    """The first n rows, as many as there are and then filled up."""
    missing = [(0, max(0, n - len(values))), *[(0, 0)] * (values.ndim - 1)]
    return np.pad(values[:n], missing, constant_values=filler)


def load(path: str | os.PathLike[str], fitted: Fitted, mmap: bool) -> Catalog:
    """Read an index; see `ItemIndex.load`."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; name the index file in it")
    if not path.exists():
        raise FileNotFoundError(f"no file {str(path)!r}; an index file is what ItemIndex.save writes")
    if not path.is_file():  # opening a pipe would wait for ever
        raise ModelFileError(f"cannot load {str(path)!r}: it is no regular file; copy the index to one")
    failed, again = f"cannot load {str(path)!r}", "copy it again, or save the index anew"
    with path.open("rb") as file:
        try:
            mapped = [*_MAPPED, *map(_table_name, range(len(fitted.encoder.fields)))] if mmap else []
            description, tensors = read_container(file, _ANY_CONTAINER, mapped)
            return _restore(description, tensors, fitted)
        except (OSError, MemoryError):
            raise
        except Damaged as error:
            raise ModelFileError(f"{failed}: {error}; {again}") from error
        except Foreign as error:
            reason = "it is not an index file of splinefm; such a file is what ItemIndex.save writes"
            raise ModelFileError(f"{failed}: {reason}") from error
        except ModelFileError as error:
            raise ModelFileError(f"{failed}: {error}") from error
        except Exception as error:  # there is no end to what a made-up description can raise
            raise ModelFileError(f"{failed}: it is damaged ({str(error)[:200]}); {again}") from error


def _restore(description: dict[str, Any], tensors: dict[str, Array], fitted: Fitted) -> Catalog:
    """Check everything and put it together."""
    if "index" not in description:
        raise ModelFileError("it is a model, not an index; read it by sf.load, and make an index by sf.ItemIndex")
    number: Any = description.get("index_format")
    demand(type(number) is int and number > 0, f"its format is {str(number)[:20]!r}")
    if number > FORMAT:
        raise ModelFileError(
            f"it has format {number} and was written by splinefm {str(description.get('written_by'))[:40]}, "
            f"this version reads formats up to {FORMAT}; upgrade splinefm"
        )
    if number == 1:
        demand("form" not in description, "its format is 1, which has no form")
        description = {**description, "form": "vectors"}
    demand(description.keys() == _PARTS, f"it must hold {', '.join(sorted(_PARTS))}, but has {list(description)[:9]}")
    own = _check_model(description, fitted)
    dtype, n_rows, kind = description["dtype"], description["n_rows"], description["ids"]
    demand(dtype in PANEL_TYPES and kind in (None, "numbers", "text"), "its types are unknown")
    columns = [description[name] for name in ("id_column", "group_column")]
    demand(all(isinstance(name, str | None) for name in columns), "a column is no text")
    demand(isinstance(description["written_by"], str), "its version is no text")
    demand(isinstance(description["groups"], bool), "groups must be true or false")
    form = description["form"]
    demand(form in ("vectors", "effects"), f"its form is {str(form)[:20]!r}")
    split = Split(fitted.model, fitted.params, fitted.encoder.layout, own)
    demand(form == "vectors" or (dtype == "float32" and split.is_linear), "its form does not go with its type or model")
    catalog = Catalog(fitted, own, form, dtype, columns[0], columns[1], description["groups"])
    _restore_store(catalog.store, tensors, n_rows)
    words = _take(tensors, "ids", "I64", 2)
    demand(len(words) == catalog.store.capacity and words.shape[1] > 0, "ids and vectors do not match")
    catalog.ids = Ids(catalog.store.used, kind, words.view(np.uint64))
    catalog.groups = _restore_groups(tensors, catalog.store.capacity)
    _restore_maxima(catalog, tensors)
    demand(not tensors, f"nothing refers to the array {next(iter(tensors), None)!r}")
    return catalog


def _check_model(description: dict[str, Any], fitted: Fitted) -> tuple[int, ...]:
    """Numbers of the fields of an item."""
    names = fitted.encoder.schema.names
    for part in ("items", "context"):
        demand(isinstance(description[part], list), f"its {part} are no list")
        demand(all(isinstance(name, str) for name in description[part]), f"its {part} are no text")
    if sorted([*description["items"], *description["context"]]) != sorted(names):
        raise ModelFileError(
            f"it belongs to another model, with the fields {quoted([*description['items'], *description['context']])}; "
            f"this one has {quoted(names)}; load the model that the index was made with, or make the index anew"
        )
    if description["index"] != digest(fitted):
        raise ModelFileError(
            "it belongs to another model, with the same fields but other parameters; "
            "load the model that the index was made with, or make the index anew"
        )
    return tuple(names.index(name) for name in description["items"])


def _restore_store(store: Store, tensors: dict[str, Array], n_rows: Any) -> None:
    if isinstance(store, Effects):
        _restore_effects(store, tensors)
    else:
        _restore_vectors(cast(Vectors, store), tensors)
    demand(type(n_rows) is int and 0 <= n_rows <= store.capacity, f"n_rows is {n_rows!r}")
    store.n_rows, store.offsets = n_rows, _take(tensors, "offsets", "F32", 1)
    demand(len(store.offsets) == store.capacity, "offsets and vectors do not match")
    store.free = np.flatnonzero(~(store.offsets[:n_rows] > -np.inf))[::-1].tolist()
    # The kernels look at some rows beyond the last.
    demand(bool((store.offsets[n_rows:] == -np.inf).all()), "there are offsets beyond the last row")


def _restore_vectors(store: Vectors, tensors: dict[str, Array]) -> None:
    plain = store.dtype == "float32"
    panels = _take(tensors, "panels", "F32" if plain else "U8", 3)
    if not plain:
        demand(panels.shape[2] % PANEL_TYPES[store.dtype].itemsize == 0, "a panel is cut short")
        panels = panels.view(PANEL_TYPES[store.dtype])
    _restore_panels(store.panels, panels)
    store.scales = _take(tensors, "scales", "F32", 1)
    demand(len(store.scales) == (store.capacity if store.dtype == "int8" else 0), "scales and vectors do not match")


def _restore_effects(store: Effects, tensors: dict[str, Array]) -> None:
    starts = _take(tensors, "starts", "U8", 3)
    demand(starts.shape[2] % store.starts.values.itemsize == 0, "a panel is cut short")
    # What the places point at is up to the kernels, which let none point elsewhere.
    _restore_panels(store.starts, starts.view(store.starts.values.dtype))
    _restore_panels(store.weights, _take(tensors, "weights", "F32", 3))
    demand(store.weights.values[:, 0:0].shape == store.starts.values[:, 0:0].shape, "places and weights do not match")
    for i, table in enumerate(store.tables):
        if table.is_compact:
            values, rows = _take(tensors, _table_name(i), "F32", 3), _take(tensors, f"table_rows/{i}", "I64", 1)
            inside = len(rows) > 0 and rows[0] == -1 and bool(((rows[1:] >= 0) & (rows[1:] < table.n_field_rows)).all())
            demand(inside and len(np.unique(rows)) == len(rows), f"table {i} has rows that the model does not")
            _restore_panels(table.panels, values)
            demand(len(rows) <= table.panels.capacity, f"table {i} is cut short")
            table.restore(rows, values)


def _restore_panels(panels: Panels, values: Array) -> None:
    n_panels, length, size = values.shape
    expected = panels.values.shape[1]
    demand(length == expected, f"its vectors have {length} numbers instead of {expected}")
    demand(0 < size <= WIDEST and size % STEP == 0 and (n_panels < 2 or size == WIDEST), f"a panel has {size} columns")
    panels.values = np.require(values, requirements="A")


def _restore_groups(tensors: dict[str, Array], capacity: int) -> Groups:
    codes, text = _take(tensors, "codes", "I64", 1), _take(tensors, "text", "U8", 1)
    ends = _take(tensors, "text_ends", "I64", 1)
    demand(len(codes) == capacity, "groups and vectors do not match")
    demand(len(ends) > 0 and ends[0] == 0 and ends[-1] == len(text) and bool((np.diff(ends) >= 0).all()), "its groups")
    names = [text[a:b].tobytes().decode() for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    demand(len(set(names)) == len(names), "a group is there twice")
    demand(bool(((codes >= -1) & (codes < len(names))).all()), "an item has a group that does not exist")
    return Groups(names, codes.astype(np.int32))


def _restore_maxima(catalog: Catalog, tensors: dict[str, Array]) -> None:
    maxima = catalog.meter.maxima
    for item in fields(Maxima):
        values = _take(tensors, f"maxima/{item.name}", "F64", 1)
        like = np.atleast_1d(getattr(maxima, item.name))
        demand(values.shape == like.shape and bool(np.isfinite(values).all()), f"its {item.name} is damaged")
        setattr(maxima, item.name, values if isinstance(getattr(maxima, item.name), np.ndarray) else float(values[0]))


def _take(tensors: dict[str, Array], name: str, dtype: str, ndim: int) -> Array:
    values = tensors.pop(name, None)
    if values is None:
        raise Damaged(f"the array {name!r} is missing")
    demand(values.dtype == DTYPES[dtype], f"{name} is of the type {values.dtype} instead of {DTYPES[dtype]}")
    demand(values.ndim == ndim, f"{name} has {values.ndim} dimensions instead of {ndim}")
    return np.require(values, requirements="A")  # files of ours are aligned
