"""Plain tables: everything that scoring needs in Parquet or CSV files and a manifest, for SQL, C++ or anything else.

Each field has a file with a row per interval, category or token: what it stands for, its linear weight and its vector.
Intervals are in raw units, so that no transform has to be rebuilt elsewhere. docs/production.md explains the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm._checks import check_choice, check_one_score
from splinefm._files import new_file, replacing_folder
from splinefm._wording import as_bins
from splinefm.encode.bases import step_cuts
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import MULTIPLIERS, PRIME, Cross
from splinefm.encode.fields.numerical import Numerical, SpecialRule
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.names import quoted
from splinefm.train.fitted import Fitted
from splinefm.train.offsets import Offset

Features = npt.NDArray[np.int64]


def part_columns(item: Cross, position: int) -> list[str]:
    """The columns of a cross's table that are about one of its parts."""
    if position in item.numbers:
        return [f"part{position}_low", f"part{position}_high"]
    return [] if item.buckets is not None else [f"part{position}_kind", f"part{position}_value"]


def describe_hash(item: Cross) -> dict[str, Any]:
    """How combinations of categories are mapped to buckets; nothing for a cross that keeps them."""
    if item.buckets is None or not item.categories:
        return {}
    return {"buckets": item.buckets, "multipliers": list(MULTIPLIERS[: len(item.categories)]), "prime": PRIME}


def category_features(part: Categorical) -> pa.Table:
    """The features of a part in order: their numbers are what the hash of a combination takes."""
    names = part.vocabulary.names  # type: ignore[union-attr]  # fitted
    tokens = part.tokens()
    kinds = [token.kind.value for token in tokens] + ["category"] * len(names)
    values = pa.concat_arrays([pa.nulls(len(tokens), pa.large_string()), names])
    return pa.table({"feature": pa.array(range(len(kinds)), pa.int64()), "kind": pa.array(kinds), "value": values})


def cross_rows(item: Cross, block: int) -> Iterator[tuple[Features, dict[str, Any]]]:
    """Features inside the field, `block` at a time, and columns that say what they stand for.

    All numbers have bins. Intervals that hold no number are left out.
    """
    edges = [_intervals(item.fields[i]) for i in item.numbers]
    names = [category_features(part) for part in item.category_parts]
    total = item.n_cells * item.block
    for first in range(0, max(total, 1), block):
        feature = np.arange(first, min(first + block, total), dtype=np.int64)
        cell, inside = np.divmod(feature, item.block)
        bins = np.unravel_index(inside, item.level_sizes[0]) if item.numbers else ()
        used = np.ones(len(feature), bool)
        for (low, high), at in zip(edges, bins, strict=True):
            used &= low[at] < high[at]
        columns: dict[str, Any] = {}
        for (low, high), at, i in zip(edges, bins, item.numbers, strict=True):
            columns |= dict(zip(part_columns(item, i), (low[at[used]], high[at[used]]), strict=True))
        if item.categories and item.buckets is not None:
            columns["bucket"] = cell[used]
        elif item.cells is not None:
            for table, features, i in zip(names, item.cells.features.T, item.categories, strict=True):
                chosen = table.take(to_arrow(features[cell[used]].astype(np.int64)))
                columns |= dict(zip(part_columns(item, i), (chosen["kind"], chosen["value"]), strict=True))
        yield feature[used], columns


def _intervals(part: Any) -> tuple[FloatArray, FloatArray]:
    edges = part.bin_edges()
    return np.append(-np.inf, edges), np.append(edges, np.inf)


Format = Literal["parquet", "csv"]

FORMAT = "splinefm tables"
VERSION = 4
MANIFEST = "manifest.json"

_BLOCK = 65_536  # features that are written at a time
_LARGEST = float(np.finfo(np.float64).max)


def export_tables(fitted: Fitted, folder: str | os.PathLike[str], *, format: Format = "parquet") -> Path:
    """Write the model as plain tables and a manifest; returns the folder.

    Numerical fields must consist of bins: use `sf.discretize` first. The folder appears atomically, with all its files.
    An earlier export there is replaced; any other folder that is not empty is left alone.

    Parameters
    ----------
    fitted : Fitted
        The model.
    folder : path
        The folder to write; its parent must exist.
    format : {"parquet", "csv"}
        Of the tables; the manifest is JSON.

    Examples
    --------
    >>> import tempfile
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
    >>> training = sf.Training(epochs=2, threads=1)
    >>> fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     written = export_tables(sf.discretize(fitted, {"x": 200}), f"{parent}/tables")
    ...     sorted(path.name for path in written.iterdir())
    ['field-0-x.parquet', 'field-1-c.parquet', 'manifest.json']
    """
    check_one_score(fitted)
    check_choice("format", format, ("parquet", "csv"))
    _check_steps(fitted)
    target = _check_folder(Path(folder))
    with replacing_folder(target) as temporary:
        files = {}
        fields = []
        for f, item in enumerate(fitted.encoder.fields):
            name = f"field-{f}-{_slug(item.name)}.{format}".replace("-.", ".")
            files[name] = _write(temporary / name, _blocks_of_field(fitted, f))
            about = {"position": f, "name": item.name, "file": name}
            if isinstance(item, Cross):
                parts = [_describe_part(item, i) for i in range(len(item.fields))]
                categories = zip(item.categories, item.category_parts, strict=True)
                for i, part in categories if item.buckets is not None else ():
                    parts[i]["file"] = part_name = f"field-{f}-part-{i}.{format}"
                    features = category_features(part)
                    files[part_name] = _write(temporary / part_name, iter([features]))
                fields.append({**about, "kind": "cross", "parts": parts, **describe_hash(item)})
            else:
                fields.append({**about, "column": item.column, **_describe(item)})
        between = _interactions(fitted)
        if between is not None:
            name = f"interactions.{format}"
            files[name] = _write(temporary / name, iter([between]))
        manifest = _manifest(fitted, fields, files, None if between is None else f"interactions.{format}")
        _write_text(temporary / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return target


# The manifest


def _manifest(
    fitted: Fitted, fields: list[dict[str, Any]], files: dict[str, dict[str, Any]], interactions: str | None
) -> dict[str, Any]:
    model, loss = fitted.model, fitted.loss
    columns = model.product_columns  # whose products of three to `order` units are added
    settings = {} if model.pairwise else {"order": model.order, "product_columns": [columns.start, columns.stop]}
    if model.product_weight != 1.0:
        settings["product_weight"] = model.product_weight
    return {
        "format": FORMAT,
        "version": _version(fitted),
        "written_by": f"splinefm {sys.modules['splinefm'].__version__}",
        "model": {"kind": type(model).__name__, "k": model.part_size(len(fitted.encoder.fields)), **settings},
        "vector_length": int(fitted.params["factors"].shape[1]),
        "bias": float(fitted.params["bias"][0]),
        "loss": {
            "name": loss.name,
            **loss.parameters,
            "prediction": loss.link_formula(),
            "center": float(loss.center),
            "scale": float(loss.scale),
            "classes": None if loss.classes is None else [_plain(label) for label in loss.classes],
            **({} if loss.of_class is None else {"of_class": _plain(loss.of_class)}),
        },
        **({} if fitted.offset is None else {"offset": _describe_offset(fitted, fitted.offset)}),
        "fields": fields,
        "interactions": interactions,
        "files": files,
    }


def _describe_offset(fitted: Fitted, offset: Offset) -> dict[str, Any]:
    """The column that is added to the score, or whose logarithm is, after a division by `divide_by`."""
    return {"column": offset.column, "kind": offset.kind, "divide_by": float(fitted.loss.score_unit)}


def _version(fitted: Fitted) -> int:
    """The first version with what the model has, so that readers of other models need not change."""
    if fitted.offset is not None:
        return VERSION
    if fitted.model.product_weight != 1.0:
        return 3
    return 2 if fitted.encoder.schema.crosses else 1


def _plain(label: object) -> object:
    """A label as JSON knows it."""
    value = label.item() if isinstance(label, np.generic) else label
    return value if isinstance(value, str | bool | int | float) else str(value)


def _describe(item: Any) -> dict[str, Any]:
    """What a reader of the field's file must know."""
    if item.is_numerical:
        part = {} if item.part is None else {"part": item.part, "zone": item.zone or "UTC"}
        return {"kind": "numerical", **part, "missing": item.missing, "special": [_rule(rule) for rule in item.rules]}
    described = {"missing": item.missing, "unseen": item.unseen, "values": item.values}
    if item.unseen == "hash":
        described["buckets"] = item.buckets
    if not item.holds_lists:
        return {"kind": "categorical", **described}
    lists = {"reduction": item.reduction, "max_length": item.max_length, "separator": item.separator}
    return {"kind": "multi-valued", **described, **lists}


def _describe_part(item: Cross, position: int) -> dict[str, Any]:
    """What a reader must know of a part of a cross: its columns in the cross's file among others."""
    part = item.fields[position]
    return {"name": part.name, "column": part.column, "columns": part_columns(item, position), **_describe(part)}


def _rule(rule: SpecialRule) -> dict[str, Any]:
    """A special value as a comparison; infinite numbers are text, because JSON has none."""
    sign, number = rule
    return {"compare": sign, "value": number if np.isfinite(number) else str(number)}


# The tables


def _blocks_of_field(fitted: Fitted, f: int) -> Iterator[pa.Table]:
    item: Any = fitted.encoder.fields[f]
    if item.is_numerical:
        yield _numerical_table(fitted, f, item)
        return
    if f in fitted.encoder.crosses:
        for features, keys in cross_rows(item, _BLOCK):
            yield _table(fitted, fitted.encoder.layout.feature_ptr[f] + features, keys)
        return
    names = item.vocabulary.names
    first, last = fitted.encoder.layout.feature_ptr[f : f + 2].tolist()
    tokens = item.tokens()
    buckets = [token.bucket for token in tokens] if item.unseen == "hash" else None
    none = pa.nulls(len(tokens), pa.large_string())
    yield _category_table(fitted, first, [token.kind.value for token in tokens], none, buckets)
    for at in range(0, len(names), _BLOCK):
        value = names.slice(at, _BLOCK)
        unknown: list[int | None] | None = None if buckets is None else [None] * len(value)
        yield _category_table(fitted, last - len(names) + at, ["category"] * len(value), value, unknown)


def _category_table(
    fitted: Fitted, first: int, kinds: list[str], value: pa.Array, buckets: list[int | None] | None
) -> pa.Table:
    keys = {"kind": pa.array(kinds, pa.string()), "value": value}
    if buckets is not None:
        keys["bucket"] = pa.array(buckets, pa.int64())
    return _table(fitted, first + np.arange(len(kinds)), keys)


def _numerical_table(fitted: Fitted, f: int, item: Numerical) -> pa.Table:
    """Special values and missing ones, then intervals `low <= z < high`; intervals that hold no number are left out."""
    edges = item.bin_edges()
    low, high = np.append(-np.inf, edges), np.append(edges, np.inf)
    used = np.flatnonzero(low < high)
    kinds = [token.kind.value for token in item.tokens()]
    rows = np.concatenate([np.arange(len(kinds)), len(kinds) + used])
    none = pa.nulls(len(kinds), pa.float64())
    keys = {
        "kind": pa.array(kinds + ["bin"] * len(used), pa.string()),
        "low": pa.concat_arrays([none, pa.array(low[used])]),
        "high": pa.concat_arrays([none, pa.array(high[used])]),
    }
    return _table(fitted, fitted.encoder.layout.feature_ptr[f] + rows, keys)


def _table(fitted: Fitted, rows: npt.NDArray[np.integer], keys: dict[str, Any]) -> pa.Table:
    """Columns that say what rows stand for, then their parameters."""
    vectors = fitted.params["factors"][rows]
    columns = {f"v{d}": np.ascontiguousarray(vectors[:, d]) for d in range(vectors.shape[1])}
    return pa.table({**keys, "linear": fitted.params["linear"][rows], **columns})


def _interactions(fitted: Fitted) -> pa.Table | None:
    """What stands between the vectors of two fields; only `first` <= `second` is used. None: nothing."""
    n = len(fitted.encoder.fields)
    if not fitted.model.field_shapes(n) and fitted.model.product_weight == 1.0:
        return None
    first, second = np.triu_indices(n)
    weights = fitted.model.between(fitted.params, first, second)
    if weights.ndim == 1:
        return pa.table({"first": first, "second": second, "weight": weights})
    if weights.ndim == 2:  # a diagonal
        pair, i = (axis.ravel() for axis in np.indices(weights.shape))
        return pa.table({"first": first[pair], "second": second[pair], "i": i, "j": i, "weight": weights.ravel()})
    pair, i, j = (axis.ravel() for axis in np.indices(weights.shape))
    numbers = weights.ravel().astype(np.float32)
    return pa.table({"first": first[pair], "second": second[pair], "i": i, "j": j, "weight": numbers})


def _check_steps(fitted: Fitted) -> None:
    numerical: list[Any] = [item for item in fitted.encoder.schema.column_readers if item.is_numerical]
    limited = [item for item in numerical if item.outside != "clip"]
    if limited:
        raise ValueError(
            f"the first and the last bin of a table have no end, and field {limited[0].name!r} has "
            f'outside={limited[0].outside!r}; fit it with outside="clip", or use sf.export_scorer or sf.export_onnx'
        )
    smooth = list(dict.fromkeys(item.name for item in numerical if step_cuts(item.basis) is None))
    if smooth:
        raise ValueError(
            f"tables hold bins, and {quoted(smooth)} {'has' if len(smooth) == 1 else 'have'} another basis; "
            f"use {as_bins(smooth[0])} first"
        )


# Files


def _slug(name: str) -> str:
    """What of a name is safe in a file name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name)[:40].strip("-")


def _write(path: Path, blocks: Iterator[pa.Table]) -> dict[str, Any]:
    """Write tables of one schema to a file; returns its entry in the manifest."""
    n_rows, first = 0, next(blocks)
    with new_file(path) as file, _writer(path.suffix, file, first.schema) as writer:
        for table in chain([first], blocks):
            writer.write_table(table)
            n_rows += table.num_rows
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"rows": n_rows, "columns": first.schema.names, "sha256": digest}


def _writer(suffix: str, file: Any, schema: pa.Schema) -> Any:
    if suffix == ".csv":
        from pyarrow.csv import CSVWriter

        return CSVWriter(file, schema)
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(file, schema)


def _write_text(path: Path, text: str) -> None:
    with new_file(path) as file:
        file.write(text.encode())


def _check_folder(path: Path) -> Path:
    """The folder to write, which is where a link leads; raise where it may not be replaced."""
    target = path.resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {str(path)!r}: there is no folder {str(target.parent)!r}; make it first")
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"{str(path)!r} is a file; name a folder for the tables")
    if target.exists() and not _is_export(target):
        raise FileExistsError(
            f"the folder {str(path)!r} holds something other than exported tables and is not replaced; "
            "name a new folder, or empty it"
        )
    return target


def _is_export(folder: Path) -> bool:
    """Whether a folder is empty, or has nothing but the files of an export."""
    present = {entry.name for entry in folder.iterdir()}
    if not present:
        return True
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest["format"] == FORMAT and present <= {MANIFEST, *manifest["files"]})
    except (OSError, ValueError, KeyError, TypeError):
        return False
