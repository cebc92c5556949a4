"""Files of item indices, and an index as sections of a scorer file. Reading one never runs code."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from splinefm._arrays import Array
from splinefm._files import check_destination, replacing
from splinefm.encode.tables.names import quoted
from splinefm.model.split import Split
from splinefm.rank.catalog import Catalog
from splinefm.rank.effects import table_name, write_map
from splinefm.rank.ids import Groups, Ids
from splinefm.rank.store import PANEL_TYPES, panel_size
from splinefm.store.container import (
    ModelFileError,
    NotAModelFile,
    opened,
    read_container,
    require,
    take_array,
    write_container,
)
from splinefm.store.scorer_image import ImageWriter
from splinefm.train.fitted import Fitted

# An index as sections of a scorer file, for the C library; `cpp/c/index.cpp` reads them in the order of this module.
#
# Items are written in the order of their ids, without the positions of removed ones. Equal scores are then ordered by
# position, and an id is found by bisection.


def index_sections(catalog: Catalog) -> dict[str, Array]:
    """Return the sections of an index; see `ItemIndex.image`."""
    store, ids, split, groups = catalog.store, catalog.ids, catalog.split, catalog.groups
    positions = store.published()
    positions = positions[np.argsort(ids.order(positions))]
    writer = ImageWriter()
    writer.integers(*(f in split.items for f in range(len(split.layout.fields))))
    size = panel_size(len(positions))
    offsets = np.full(-(-len(positions) // size) * size, -np.inf, np.float32)  # the rest of a panel is never found
    offsets[: len(positions)] = store.offsets[positions]
    writer.integers(len(positions), size)
    words = ids.words[positions]
    writer.integers(ids.kind == "text", words.shape[1])
    writer.integers(catalog.has_groups)
    writer.texts(groups.names)
    writer.integers(split.products, split.length)
    write_map(writer, catalog.queries.context_map)
    writer.integers(store.form == "effects")
    sections = store.sections(writer, positions)
    meta, tables = writer.sections()
    codes = groups.codes[positions] if catalog.has_groups else np.zeros(0, np.int32)
    return {"index": meta, "index_tables": tables, "ids": words, "offsets": offsets, "groups": codes, **sections}


# Files of item indices: the arrays and a description in JSON. Reading one never runs code.

FORMAT = 2
"""Incremented when older releases would misread a file. Format 1 had vectors only."""

_CONTAINER, _ANY_CONTAINER = 1, 2**31  # the formats of model files are counted separately
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
# Names of the maxima in files, and as attributes.
_MAXIMA = {
    "shift": "shift",
    "size": "size",
    "own_shift": "offset_shift",
    "own_size": "offset_size",
    "measured": "measured",
}


def digest(fitted: Fitted) -> str:
    """Digest of everything that an index depends on: the model and all its parameters."""
    combined = hashlib.sha256(repr((fitted.model, fitted.encoder.schema.names)).encode())
    for name, values in sorted(fitted.params.items()):
        combined.update(f"{name} {values.shape} ".encode())
        combined.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return combined.hexdigest()


def save(catalog: Catalog, fitted: Fitted, path: str | os.PathLike[str]) -> None:
    """Write an index; see `ItemIndex.save`."""
    target = check_destination(Path(path))
    store, ids = catalog.store, catalog.ids
    n = store.n_panels * store.size
    text = [name.encode() for name in catalog.groups.names]
    tensors: dict[str, Array] = {
        **store.arrays(),
        "offsets": store.offsets[:n],
        "ids": np.ascontiguousarray(_padded(ids.words, n)).view(np.int64),
        "codes": _padded(catalog.groups.codes, n, -1).astype(np.int64),
        "text": np.frombuffer(b"".join(text), np.uint8),
        "text_ends": np.cumsum([0, *map(len, text)], dtype=np.int64),
    }
    for name, attribute in _MAXIMA.items():
        values = np.asarray(getattr(catalog.meter.maxima, attribute), np.float64)
        tensors[f"maxima/{name}"] = np.atleast_1d(values)
    description = {
        "index": digest(fitted),
        "index_format": FORMAT,
        # Not imported: modules must not import the package itself.
        "written_by": str(sys.modules["splinefm"].__version__),
        "form": store.form,
        "dtype": store.dtype,
        "items": list(catalog.item_subset.names),
        "context": [fitted.encoder.schema.names[f] for f in catalog.split.context],
        "n_rows": store.n_positions,
        "ids": ids.kind,
        "id_column": catalog.id_column,
        "group_column": catalog.group_column,
        "groups": catalog.has_groups,
    }
    with replacing(target) as file:
        write_container(file, _CONTAINER, str(description["written_by"]), description, tensors)


def _padded(values: Array, n: int, filler: int = 0) -> Array:
    """The first n values, padded if there are fewer."""
    missing = [(0, max(0, n - len(values))), *[(0, 0)] * (values.ndim - 1)]
    return np.pad(values[:n], missing, constant_values=filler)


def load(path: str | os.PathLike[str], fitted: Fitted, mmap: bool) -> Catalog:
    """Read an index; see `ItemIndex.load`."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; name the index file in it")
    if not path.exists():
        raise FileNotFoundError(f"no file {str(path)!r}; ItemIndex.save writes index files")
    if not path.is_file():  # opening a pipe would block forever
        raise ModelFileError(f"cannot load {str(path)!r}: it is not a regular file; copy the index to one")
    with opened(path, "copy it again, or save the index again") as file:
        mapped = [*_MAPPED, *map(table_name, range(len(fitted.encoder.fields)))] if mmap else []
        try:
            description, tensors = read_container(file, _ANY_CONTAINER, mapped)
        except NotAModelFile as error:
            reason = "it is not an index file of splinefm; ItemIndex.save and splinefm index write such files"
            raise ModelFileError(reason) from error
        catalog = _restore(description, tensors, fitted)
        if not mmap:
            catalog.store.check_numbers()
        return catalog


def _restore(description: dict[str, Any], tensors: dict[str, Array], fitted: Fitted) -> Catalog:
    """Check everything and assemble the catalog."""
    if "index" not in description:
        raise ModelFileError("it is a model, not an index; load it with sf.load and build an index with sf.ItemIndex")
    number: Any = description.get("index_format")
    require(type(number) is int and number > 0, f"its format is {str(number)[:20]!r}")
    if number > FORMAT:
        raise ModelFileError(
            f"it has format {number} and was written by splinefm {str(description.get('written_by'))[:40]}, "
            f"this version reads formats up to {FORMAT}; upgrade splinefm"
        )
    if number == 1:
        require("form" not in description, "its format is 1, which has no form")
        description = {**description, "form": "vectors"}
    require(description.keys() == _PARTS, f"it must hold {', '.join(sorted(_PARTS))}, but has {list(description)[:9]}")
    item_fields = _check_model(description, fitted)
    dtype, n_rows, kind = description["dtype"], description["n_rows"], description["ids"]
    require(dtype in PANEL_TYPES and kind in (None, "numbers", "text"), "its types are unknown")
    columns = [description[name] for name in ("id_column", "group_column")]
    require(all(isinstance(name, str | None) for name in columns), "a column is not text")
    require(isinstance(description["written_by"], str), "its version is not text")
    require(isinstance(description["groups"], bool), "groups must be true or false")
    form = description["form"]
    require(form in ("vectors", "effects"), f"its form is {str(form)[:20]!r}")
    split = Split(fitted.model, fitted.params, fitted.encoder.layout, item_fields)
    require(form == "vectors" or (dtype == "float32" and split.is_linear), "its form does not match its type or model")
    catalog = Catalog(fitted, item_fields, form, dtype, columns[0], columns[1], description["groups"])
    catalog.store.restore(tensors, n_rows)
    words = take_array(tensors, "ids", "I64", 2)
    require(len(words) == catalog.store.capacity and words.shape[1] > 0, "ids and vectors do not match")
    catalog.ids = Ids(catalog.store.published, kind, words.view(np.uint64))
    catalog.groups = _restore_groups(tensors, catalog.store.capacity)
    _restore_maxima(catalog, tensors)
    require(not tensors, f"nothing refers to the array {next(iter(tensors), None)!r}")
    return catalog


def _check_model(description: dict[str, Any], fitted: Fitted) -> tuple[int, ...]:
    """Numbers of the fields of an item."""
    names = fitted.encoder.schema.names
    for part in ("items", "context"):
        require(isinstance(description[part], list), f"its {part} is not a list")
        require(all(isinstance(name, str) for name in description[part]), f"its {part} has names that are not text")
    if sorted([*description["items"], *description["context"]]) != sorted(names):
        raise ModelFileError(
            f"it belongs to another model, with the fields {quoted([*description['items'], *description['context']])}; "
            f"this one has {quoted(names)}; load the model that the index was built with, or rebuild the index"
        )
    if description["index"] != digest(fitted):
        raise ModelFileError(
            "it belongs to another model, with the same fields but other parameters; "
            "load the model that the index was built with, or rebuild the index"
        )
    return tuple(names.index(name) for name in description["items"])


def _restore_groups(tensors: dict[str, Array], capacity: int) -> Groups:
    codes, text = take_array(tensors, "codes", "I64", 1), take_array(tensors, "text", "U8", 1)
    ends = take_array(tensors, "text_ends", "I64", 1)
    require(len(codes) == capacity, "groups and vectors do not match")
    require(len(ends) > 0 and ends[0] == 0 and ends[-1] == len(text) and bool((np.diff(ends) >= 0).all()), "its groups")
    names = [text[a:b].tobytes().decode() for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    require(len(set(names)) == len(names), "a group occurs twice")
    require(bool(((codes >= -1) & (codes < len(names))).all()), "an item has a group that does not exist")
    return Groups(names, codes.astype(np.int32))


def _restore_maxima(catalog: Catalog, tensors: dict[str, Array]) -> None:
    maxima = catalog.meter.maxima
    for name, attribute in _MAXIMA.items():
        values, before = take_array(tensors, f"maxima/{name}", "F64", 1), getattr(maxima, attribute)
        same_shape = values.shape == np.atleast_1d(before).shape
        require(same_shape and bool(np.isfinite(values).all()), f"its {name} is damaged")
        setattr(maxima, attribute, values if isinstance(before, np.ndarray) else float(values[0]))
