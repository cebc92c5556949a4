"""Files of item indices, and an index as sections of a scorer file. Reading one never runs code."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np

from splinefm._arrays import Array
from splinefm._files import check_destination, replacing
from splinefm.encode.tables.names import quoted
from splinefm.model.split import MapArrays, Split
from splinefm.rank.catalog import Catalog
from splinefm.rank.effects import EffectStore
from splinefm.rank.ids import Groups, Ids
from splinefm.rank.store import PANEL_TYPES, STEP, WIDEST, Dtype, Panels, Positions, Store, VectorStore
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

_STORAGES: tuple[Dtype, ...] = ("float32", "float16", "int8")


def index_sections(catalog: Catalog) -> dict[str, Array]:
    """Return the sections of an index; see `ItemIndex.image`."""
    store, ids, split, groups = catalog.store, catalog.ids, catalog.split, catalog.groups
    positions = store.published()
    positions = positions[np.argsort(ids.order(positions))]
    writer = ImageWriter()
    writer.integers(*(f in split.items for f in range(len(split.layout.fields))))
    offsets = _offsets(store.offsets[positions])
    writer.integers(len(positions), _size(len(positions)))
    words = ids.words[positions]
    writer.integers(ids.kind == "text", words.shape[1])
    writer.integers(catalog.has_groups)
    writer.texts(groups.names)
    writer.integers(split.products, split.length)
    _write_map(writer, catalog.queries.context_map)
    writer.integers(isinstance(store, EffectStore))
    if isinstance(store, EffectStore):
        sections = _write_effects(writer, store, positions)
    else:
        sections = _write_vectors(writer, cast(VectorStore, store), positions)
    meta, tables = writer.sections()
    codes = groups.codes[positions] if catalog.has_groups else np.zeros(0, np.int32)
    return {"index": meta, "index_tables": tables, "ids": words, "offsets": offsets, "groups": codes, **sections}


def _write_map(writer: ImageWriter, own: MapArrays) -> None:
    writer.array(own.blocks, np.int64)
    writer.array(own.weights, np.float64)


def _write_vectors(writer: ImageWriter, store: VectorStore, positions: Positions) -> dict[str, Array]:
    writer.integers(_STORAGES.index(store.dtype))
    panels = _ordered(store.panels, positions)
    scales = np.zeros(0, np.float32)
    if store.dtype == "int8":
        scales = np.zeros(panels.capacity, np.float32)
        scales[: len(positions)] = store.scales[positions]
    return {"panels": panels.values, "scales": scales}


def _write_effects(writer: ImageWriter, store: EffectStore, positions: Positions) -> dict[str, Array]:
    store.check_indices(positions)
    features = [np.zeros(0, np.float32)]
    for table, own in zip(store.tables, store.queries.item_maps, strict=True):
        size = table.panels.size
        writer.integers(len(table), size, own.length)
        _write_map(writer, own)
        features.append(table.panels.values[: -(-len(table) // size)].ravel())
    writer.array(store.windows(), np.int64)
    writer.integers(len(store.kept))
    starts, weights = _ordered(store.starts, positions), _ordered(store.weights, positions)
    return {"panels": starts.values, "weights": weights.values, "features": np.concatenate(features)}


def _size(n: int) -> int:
    """Columns of a panel of n items."""
    panels = Panels(0, np.float32)
    if n:
        panels.resize(n)
    return panels.size


def _ordered(panels: Panels, positions: Positions) -> Panels:
    """Copy the columns at positions."""
    made = Panels(panels.values.shape[1], panels.values.dtype)
    if len(positions):
        made.resize(len(positions))
    for at in range(0, len(positions), WIDEST):
        part = positions[at : at + WIDEST]
        made.write(np.arange(at, at + len(part)), panels.read(part))
    return made


def _offsets(used: Array) -> Array:
    """The offsets of items, and of the rest of the last panel, which is never found."""
    size = _size(len(used))
    out = np.full(-(-len(used) // size) * size, -np.inf, np.float32)
    out[: len(used)] = used
    return out


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
        **(_effect_arrays(store) if isinstance(store, EffectStore) else _vector_arrays(cast(VectorStore, store))),
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


def _vector_arrays(store: VectorStore) -> dict[str, Array]:
    panels = np.ascontiguousarray(store.panels.values[: store.n_panels])
    return {
        "panels": panels if store.dtype == "float32" else panels.view(np.uint8),
        "scales": store.scales[: store.n_panels * store.size],
    }


def _effect_arrays(store: EffectStore) -> dict[str, Array]:
    starts, weights = (np.ascontiguousarray(part.values[: store.n_panels]) for part in (store.starts, store.weights))
    arrays: dict[str, Array] = {"starts": starts.view(np.uint8), "weights": weights}
    for i, table in enumerate(store.tables):
        if table.is_compact:  # others are copies of the model's parameters
            n_panels = -(-len(table) // table.panels.size)
            arrays[_table_name(i)] = np.ascontiguousarray(table.panels.values[:n_panels])
            arrays[f"table_rows/{i}"] = table.features
    return arrays


def _table_name(i: int) -> str:
    return f"tables/{i}"


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
        mapped = [*_MAPPED, *map(_table_name, range(len(fitted.encoder.fields)))] if mmap else []
        try:
            description, tensors = read_container(file, _ANY_CONTAINER, mapped)
        except NotAModelFile as error:
            reason = "it is not an index file of splinefm; ItemIndex.save and splinefm index write such files"
            raise ModelFileError(reason) from error
        catalog = _restore(description, tensors, fitted)
        if not mmap:
            _check_numbers(catalog.store)
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
    _restore_store(catalog.store, tensors, n_rows)
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


def _restore_store(store: Store, tensors: dict[str, Array], n_rows: Any) -> None:
    if isinstance(store, EffectStore):
        _restore_effects(store, tensors)
    else:
        _restore_vectors(cast(VectorStore, store), tensors)
    require(type(n_rows) is int and 0 <= n_rows <= store.capacity, f"n_rows is {n_rows!r}")
    store.n_positions, store.offsets = n_rows, take_array(tensors, "offsets", "F32", 1)
    require(len(store.offsets) == store.capacity, "offsets and vectors do not match")
    require(bool((store.offsets < np.inf).all()), "its offsets contain NaN or infinity")
    store.free = np.flatnonzero(~(store.offsets[:n_rows] > -np.inf))[::-1].tolist()
    # The kernels read some positions beyond the last.
    require(bool((store.offsets[n_rows:] == -np.inf).all()), "it has offsets beyond the last item")


def _check_numbers(store: Store) -> None:
    """Raise for numbers that are not finite, and for features that do not exist; what is mapped is not read for it."""
    if isinstance(store, EffectStore):
        numbers = [store.weights.values, *(table.panels.values for table in store.tables)]
        store.check_indices(store.published())
    else:
        vectors = cast(VectorStore, store)
        numbers = [vectors.scales, vectors.panels.values.view(vectors.dtype)]
    require(all(bool(np.isfinite(part).all()) for part in numbers), "its vectors contain NaN or infinity")


def _restore_vectors(store: VectorStore, tensors: dict[str, Array]) -> None:
    plain = store.dtype == "float32"
    panels = take_array(tensors, "panels", "F32" if plain else "U8", 3)
    if not plain:
        require(panels.shape[2] % PANEL_TYPES[store.dtype].itemsize == 0, "a panel is truncated")
        panels = panels.view(PANEL_TYPES[store.dtype])
    _restore_panels(store.panels, panels)
    store.scales = take_array(tensors, "scales", "F32", 1)
    require(len(store.scales) == (store.capacity if store.dtype == "int8" else 0), "scales and vectors do not match")


def _restore_effects(store: EffectStore, tensors: dict[str, Array]) -> None:
    starts = take_array(tensors, "starts", "U8", 3)
    require(starts.shape[2] % store.starts.values.itemsize == 0, "a panel is truncated")
    # The kernels check the bounds of the indices.
    _restore_panels(store.starts, starts.view(store.starts.values.dtype))
    _restore_panels(store.weights, take_array(tensors, "weights", "F32", 3))
    require(store.weights.values[:, 0:0].shape == store.starts.values[:, 0:0].shape, "indices and weights do not match")
    for i, table in enumerate(store.tables):
        if table.is_compact:
            values, features = (
                take_array(tensors, _table_name(i), "F32", 3),
                take_array(tensors, f"table_rows/{i}", "I64", 1),
            )
            known = (features[1:] >= 0) & (features[1:] < table.n_field_features)
            valid = len(features) > 0 and features[0] == -1 and bool(known.all())
            require(valid and len(np.unique(features)) == len(features), f"table {i} has features unknown to the model")
            _restore_panels(table.panels, values)
            require(len(features) <= table.panels.capacity, f"table {i} is truncated")
            table.restore(features, values)


def _restore_panels(panels: Panels, values: Array) -> None:
    n_panels, length, size = values.shape
    expected = panels.values.shape[1]
    require(length == expected, f"its vectors have {length} numbers instead of {expected}")
    require(0 < size <= WIDEST and size % STEP == 0 and (n_panels < 2 or size == WIDEST), f"a panel has {size} columns")
    panels.values = np.require(values, requirements="A")


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
