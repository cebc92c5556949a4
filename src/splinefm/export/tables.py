"""Plain tables: everything that scoring needs in Parquet or CSV files and a manifest, for SQL, C++ or anything else.

Each field has a file with a row per interval, category or token: what it stands for, its linear weight and its vector.
Intervals are in raw units, so that no transform has to be rebuilt elsewhere. docs/production.md explains the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._wording import as_bins
from splinefm.encode.bases.curves import pieces
from splinefm.encode.bases.kinds import Bins, Polynomial
from splinefm.encode.bases.splines import BSpline
from splinefm.encode.fields.categorical import MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.open import quoted
from splinefm.encode.transforms.kinds import Transform
from splinefm.learn.files.container import sync_folder
from splinefm.learn.fitted import Fitted

FloatArray = npt.NDArray[np.float64]
Format = Literal["parquet", "csv"]

FORMAT = "splinefm tables"
VERSION = 1
MANIFEST = "manifest.json"

_BLOCK = 65_536  # features that are written at a time
_LARGEST = float(np.finfo(np.float64).max)
_PREDICTIONS = {
    "logistic": "1 / (1 + exp(-score))",
    "squared": "center + scale * score",
    "poisson": "exp(score)",
}


def export_tables(fitted: Fitted, folder: str | os.PathLike[str], *, format: Format = "parquet") -> Path:
    """Write the model as plain tables and a manifest; returns the folder.

    Numerical fields must consist of bins: use `sf.discretize` first. The folder appears in one step with all its files.
    An earlier export in its place is replaced; any other folder that is not empty is left alone.

    Parameters
    ----------
    fitted : Fitted
        The model.
    folder : path
        Where to; the folder above it must exist.
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
    >>> with tempfile.TemporaryDirectory() as place:
    ...     written = export_tables(sf.discretize(fitted, {"x": 200}), f"{place}/tables")
    ...     sorted(path.name for path in written.iterdir())
    ['field-0-x.parquet', 'field-1-c.parquet', 'manifest.json']
    """
    if not isinstance(fitted, Fitted):
        raise TypeError(f"a sf.Fitted is needed, got {type(fitted).__name__}; an estimator has one in fitted_")
    if format not in ("parquet", "csv"):
        raise ValueError(f'format must be "parquet" or "csv", got {format!r}')
    _check_steps(fitted)
    target = _check_folder(Path(folder))
    with _replacing_folder(target) as place:
        files = {}
        fields = []
        for f, item in enumerate(fitted.encoder.fields):
            name = f"field-{f}-{_slug(item.name)}.{format}".replace("-.", ".")
            files[name] = _write(place / name, _blocks_of_field(fitted, f))
            fields.append({"position": f, "name": item.name, "column": item.column, "file": name, **_describe(item)})
        between = _interactions(fitted)
        if between is not None:
            name = f"interactions.{format}"
            files[name] = _write(place / name, iter([between]))
        manifest = _manifest(fitted, fields, files, None if between is None else f"interactions.{format}")
        _write_text(place / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return target


# The manifest


def _manifest(
    fitted: Fitted, fields: list[dict[str, Any]], files: dict[str, dict[str, Any]], interactions: str | None
) -> dict[str, Any]:
    model, loss = fitted.model, fitted.loss
    settings = {} if model.pairwise else {"order": model.order}
    return {
        "format": FORMAT,
        "version": VERSION,
        "written_by": f"splinefm {sys.modules['splinefm'].__version__}",
        "model": {"kind": type(model).__name__, "k": model.part_size(len(fitted.encoder.fields)), **settings},
        "vector_length": int(fitted.params["factors"].shape[1]),
        "bias": float(fitted.params["bias"][0]),
        "loss": {
            "name": loss.name,
            "prediction": _PREDICTIONS[loss.name],
            "center": float(loss.center),
            "scale": float(loss.scale),
            "classes": None if loss.classes is None else [_plain(label) for label in loss.classes],
        },
        "fields": fields,
        "interactions": interactions,
        "files": files,
    }


def _plain(label: object) -> object:
    """A label as JSON knows it."""
    value = label.item() if isinstance(label, np.generic) else label
    return value if isinstance(value, str | bool | int | float) else str(value)


def _describe(item: Any) -> dict[str, Any]:
    """What a reader of the field's file must know."""
    if isinstance(item, Numerical):
        part = {} if item.part is None else {"part": item.part, "zone": item.zone or "UTC"}
        return {"kind": "numerical", **part, "missing": item.missing, "special": [_rule(rule) for rule in item.special]}
    described = {"missing": item.missing, "unseen": item.unseen, "values": item.values}
    if item.unseen == "hash":
        described["buckets"] = item.buckets
    if not isinstance(item, MultiValued):
        return {"kind": "categorical", **described}
    lists = {"reduction": item.reduction, "max_length": item.max_length, "separator": item.separator}
    return {"kind": "multi-valued", **described, **lists}


def _rule(rule: float | str) -> dict[str, Any]:
    """A special value as a comparison; infinite numbers are text, because JSON has none."""
    sign, number = "==", rule
    if rule == "negative":
        sign, number = "<", 0.0
    elif isinstance(rule, str):
        sign = re.match(r"[<>=]+", rule).group()  # type: ignore[union-attr]  # the field has checked it
        number = rule.removeprefix(sign)
    value = float(number)
    return {"compare": sign, "value": value if np.isfinite(value) else str(value)}


# The tables


def _blocks_of_field(fitted: Fitted, f: int) -> Iterator[pa.Table]:
    item: Any = fitted.encoder.fields[f]
    if isinstance(item, Numerical):
        yield _numerical_table(fitted, f, item)
        return
    names = item.vocabulary.names
    first, last = fitted.encoder.layout.feature_ptr[f : f + 2].tolist()
    tokens, buckets = _category_tokens(item)
    yield _category_table(fitted, first, tokens, pa.nulls(len(tokens), pa.large_string()), buckets)
    for at in range(0, len(names), _BLOCK):
        value = names.slice(at, _BLOCK)
        unknown: list[int | None] | None = None if buckets is None else [None] * len(value)
        yield _category_table(fitted, last - len(names) + at, ["category"] * len(value), value, unknown)


def _category_tokens(item: Any) -> tuple[list[str], list[int | None] | None]:
    """What the rows before the categories stand for, and the numbers of hash buckets."""
    tokens = ["missing"] * (item.missing == "token")
    if item.unseen == "hash":
        return tokens + ["bucket"] * item.buckets, [None] * len(tokens) + list(range(item.buckets))
    return tokens + ["rare"] * (item.unseen == "rare"), None


def _category_table(
    fitted: Fitted, first: int, kinds: list[str], value: pa.Array, buckets: list[int | None] | None
) -> pa.Table:
    keys = {"kind": pa.array(kinds, pa.string()), "value": value}
    if buckets is not None:
        keys["bucket"] = pa.array(buckets, pa.int64())
    return _table(fitted, first + np.arange(len(kinds)), keys)


def _numerical_table(fitted: Fitted, f: int, item: Any) -> pa.Table:
    """Special values and missing ones, then intervals `low <= z < high`; intervals that hold no number are left out."""
    cuts = np.array(item.basis.cuts) if isinstance(item.basis, Bins) else pieces(item)[0][1:-1]
    edges = raw_edges(item.transform, cuts)
    low, high = np.append(-np.inf, edges), np.append(edges, np.inf)
    used = np.flatnonzero(low < high)
    kinds = ["special"] * len(item.special) + ["missing"] * (item.missing == "token")
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
    if not fitted.model.field_shapes(n):
        return None
    first, second = np.triu_indices(n)
    weights = fitted.model.between(fitted.params, first, second)
    if weights.ndim == 1:
        return pa.table({"first": first, "second": second, "weight": weights})
    pair, i, j = (axis.ravel() for axis in np.indices(weights.shape))
    numbers = weights.ravel().astype(np.float32)
    return pa.table({"first": first[pair], "second": second[pair], "i": i, "j": j, "weight": numbers})


# Intervals in raw units


def _check_steps(fitted: Fitted) -> None:
    smooth = []
    for item in fitted.encoder.fields:
        basis = getattr(item, "basis", None)
        steps = isinstance(basis, Bins) or (isinstance(basis, BSpline | Polynomial) and basis.degree == 0)
        if isinstance(item, Numerical) and not steps:
            smooth.append(item.name)
    if smooth:
        raise ValueError(
            f"tables hold bins, and {quoted(smooth)} {'has' if len(smooth) == 1 else 'have'} another basis; "
            f"use {as_bins(smooth[0])} first"
        )


def raw_edges(transform: Transform, cuts: FloatArray) -> FloatArray:
    """For each border in u the smallest number that the transform takes to it or beyond; infinite if there is none.

    Found by bisection of the floating-point numbers themselves, so that `z >= edge` says the same as
    `transform(z) >= cut` for every z, on and beside an edge too, if the transform is monotone to the last bit. The
    CDFs of some families are not: there, a number within a few units in its last place of an edge may differ.

    Examples
    --------
    >>> from splinefm import MinMax
    >>> raw_edges(MinMax(0.0, 10.0), np.array([0.0, 0.25, 2.0]))
    array([-inf,  2.5,  inf])
    """
    with np.errstate(all="ignore"):
        guess = np.clip(np.nan_to_num(np.asarray(transform.inverse(np.clip(cuts, 0.0, 1.0)))), -_LARGEST, _LARGEST)
        low, high = _bracket(transform, cuts, _to_key(guess))
        while True:
            middle = low + (high - low) // np.uint64(2)
            if (middle == low).all():
                break
            above = transform(_from_key(middle)) >= cuts
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        edges = _from_key(high)
        edges = np.where(transform(edges) >= cuts, edges, np.inf)
        return np.where(transform(np.full(len(cuts), -_LARGEST)) >= cuts, -np.inf, edges) + 0.0  # no negative zero


def _bracket(transform: Transform, cuts: FloatArray, key: Any) -> tuple[Any, Any]:
    """Keys of numbers below and at or above each border, found by steps of double size from a guess."""
    ends = _to_key(np.array([-_LARGEST, _LARGEST]))
    low, high = key.copy(), key.copy()
    for power in range(64):
        step = np.uint64(1) << np.uint64(power)
        below, above = transform(_from_key(low)) < cuts, transform(_from_key(high)) >= cuts
        if (below | (low == ends[0])).all() and (above | (high == ends[1])).all():
            break
        low = np.where(below, low, np.where(low - ends[0] > step, low - step, ends[0]))
        high = np.where(above, high, np.where(ends[1] - high > step, high + step, ends[1]))
    return low, high


_SIGN = np.uint64(1 << 63)


def _to_key(x: FloatArray) -> npt.NDArray[np.uint64]:
    """Whole numbers in the order of the floating-point numbers."""
    bits = np.ascontiguousarray(x, np.float64).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _from_key(key: npt.NDArray[np.uint64]) -> FloatArray:
    return np.where(key & _SIGN, key ^ _SIGN, ~key).view(np.float64)


# Files


def _slug(name: str) -> str:
    """What of a name is safe in a file name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name)[:40].strip("-")


def _write(path: Path, blocks: Iterator[pa.Table]) -> dict[str, Any]:
    """Write tables of one schema to a file; returns its entry in the manifest."""
    n_rows, first = 0, next(blocks)
    with path.open("xb") as file:
        with _writer(path.suffix, file, first.schema) as writer:
            for table in chain([first], blocks):
                writer.write_table(table)
                n_rows += table.num_rows
        file.flush()
        os.fsync(file.fileno())
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
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _check_folder(path: Path) -> Path:
    """The folder to write, which is where a link leads; raise where it may not be replaced."""
    target = path.resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {str(path)!r}: there is no folder {str(target.parent)!r}; make it first")
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"{str(path)!r} is a file; name a folder for the tables")
    if target.exists() and not _is_export(target):
        raise FileExistsError(
            f"the folder {str(path)!r} holds something else than exported tables and is not replaced; "
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


@contextmanager
def _replacing_folder(target: Path) -> Iterator[Path]:
    """A new folder that takes the place of the target once all of it is on the disk, or vanishes."""
    token = secrets.token_hex(8)
    temporary, old = (target.with_name(f".{target.name[:32]}.{token}.{end}") for end in ("part", "old"))
    try:
        temporary.mkdir()
    except PermissionError as error:
        raise PermissionError(f"the folder {str(target.parent)!r} is not writable; choose another") from error
    try:
        yield temporary
        sync_folder(temporary)
        try:
            if target.exists():
                target.rename(old)
            temporary.rename(target)
        except BaseException:
            if old.exists() and not target.exists():
                old.rename(target)
            raise
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)
    sync_folder(target.parent)
