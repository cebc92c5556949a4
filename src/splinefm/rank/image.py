"""An index as sections of a scorer file, for the C library; `cpp/c/index.cpp` reads them in the order of this module.

Items are written in the order of their ids, without the positions of removed ones. Equal scores are then ordered by
position, and an id is found by bisection.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from splinefm.learn.files.image import Array, ImageWriter
from splinefm.model.maps import MapArrays
from splinefm.rank.catalog import Catalog
from splinefm.rank.effects import EffectStore
from splinefm.rank.store import WIDEST, Dtype, Panels, Positions, VectorStore

_STORAGES: tuple[Dtype, ...] = ("float32", "float16", "int8")


def index_sections(catalog: Catalog) -> dict[str, Array]:
    """Return the sections of an index; see `ItemIndex.image`."""
    store, ids, split, groups = catalog.store, catalog.ids, catalog.split, catalog.groups
    positions = store.used()
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
