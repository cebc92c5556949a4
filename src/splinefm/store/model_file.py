"""Model files: save and load a `Fitted`; loading never runs code."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

from splinefm._arrays import Array
from splinefm._files import check_destination, replacing
from splinefm.encode.bases import BASES, Bins
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import Categorical, MultiValued
from splinefm.encode.fields.cross import MAX_PARTS, Cells, Cross
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.fields.vocabulary import Vocabulary
from splinefm.encode.interactions import Interactions
from splinefm.encode.schema import AnyField, Provenance, Schema, check_interactions
from splinefm.encode.slots import SlotLayout
from splinefm.encode.tables.columns import text_buffers
from splinefm.encode.transforms.transform import TRANSFORMS
from splinefm.model.family import MODELS, AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.parameters import param_shapes
from splinefm.model.family.separation import is_apart
from splinefm.store.container import (
    Damaged,
    ModelFileError,
    header_digest,
    opened,
    parse_json,
    read_container,
    require,
    take_array,
    to_json,
    write_container,
)
from splinefm.train.fitted import Fitted
from splinefm.train.losses import Loss
from splinefm.train.offsets import Offset
from splinefm.train.results import Epoch, Evidence, Run, SearchEntry, StudySummary, TrialSummary
from splinefm.train.settings import Training

# The classes that a model file can name, and their settings with types.

KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Numerical, Categorical, MultiValued, Cross, *TRANSFORMS, *BASES),
        *MODELS,
        *(Loss, Training, StudySummary, TrialSummary, Evidence, SearchEntry),
    )
}
RUN_NAMES = ("first", "by column", "all rows", "update", "half", "crosses", "search")
"""The history has their indices, so new runs come last. "by column", "half" and "crosses" are runs of version 0.1."""


@cache
def setting_types(name: str) -> dict[str, Any]:
    """Return the settings of a class with their types, without settings of the machine."""
    hints = get_type_hints(KINDS[name])
    return {item.name: hints[item.name] for item in fields(KINDS[name]) if item.metadata.get("saved", True)}


# From a `Fitted` to a description in JSON and arrays.

_MAX_NUMBERS = 16  # longer tuples of numbers, such as the knots of a transform, become arrays


def describe_fitted(fitted: Fitted, tensors: dict[str, Array]) -> dict[str, Any]:
    """Return a description for JSON, and add arrays to `tensors`."""
    if not isinstance(fitted, Fitted):
        raise TypeError(
            f"only a sf.Fitted can be saved, got {type(fitted).__name__}; for an estimator, pass estimator.fitted_"
        )
    encoder = fitted.encoder
    described = [
        describe(item, f"fields/{i}", f"field {item.name!r}", tensors) for i, item in enumerate(encoder.fields)
    ]
    tensors["row_counts"] = np.concatenate(encoder.feature_counts, dtype=np.float64)
    weights = zip(encoder.fields, encoder.feature_weights, strict=True)
    weighted = [values for item, values in weights if not item.weights_are_counts]
    tensors["row_weights"] = np.concatenate([np.zeros(0), *weighted], dtype=np.float64)
    epochs = [(*epoch[:-1], RUN_NAMES.index(epoch.run)) for epoch in fitted.history]
    tensors["history"] = np.array(epochs, np.float64).reshape(-1, len(Epoch._fields))
    tensors["ranges"] = np.asarray(encoder.ranges, np.float64)
    for name, values in fitted.params.items():
        tensors[f"params/{name}"] = np.asarray(values)
    notes = {str(name): each.reason for name, each in encoder.provenance.items()}
    sources = {str(name): replace(each, reason="").to_dict() for name, each in encoder.provenance.items()}
    optional = {"study": fitted.study, "evidence": fitted.evidence, "search": tuple(map(_bounded, fitted.search))}
    known = {part: describe(value, part, f"the {part}", tensors) for part, value in optional.items() if value}
    if encoder.interactions is not None:
        known["interactions"] = encoder.interactions.to_value()
    if fitted.offset is not None:
        known["offset"] = {"column": fitted.offset.column, "kind": fitted.offset.kind}
    if any(sources.values()):
        known["provenance"] = {name: source for name, source in sources.items() if source}
    return {
        "encoder": {"fields": described, "n_rows": int(encoder.n_rows), "notes": notes},
        "model": describe(fitted.model, "model", "the model", tensors),
        "loss": describe(fitted.loss, "loss", "the loss", tensors),
        "training": describe(fitted.training, "training", "the training", tensors),
        "history": list(Epoch._fields),
        **known,
    }


def _bounded(entry: SearchEntry) -> SearchEntry:
    """Return an entry of a search without NaN, which files do not have: a setting that diverged has no error."""
    return replace(entry, error=math.inf) if math.isnan(entry.error) else entry


def describe(value: Any, path: str, owner: str, tensors: dict[str, Array]) -> Any:
    """Return the description of a setting. Defaults are included, because they can change between versions."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Vocabulary):
        tensors[f"{path}/offsets"], tensors[f"{path}/text"] = _strings(value)
        return {"strings": path}
    if isinstance(value, Cells):
        tensors[path] = value.features.astype(np.int64)
        return {"cells": path}
    if isinstance(value, tuple | list):
        if len(value) > _MAX_NUMBERS and all(isinstance(item, float) and math.isfinite(item) for item in value):
            tensors[path] = np.array(value, np.float64)
            return {"tensor": path}
        return [describe(item, f"{path}/{i}", owner, tensors) for i, item in enumerate(value)]
    kind = KINDS.get(type(value).__name__)
    if type(value) is not kind:  # another class can have the same name
        raise ModelFileError(_not_savable(value, owner))
    described = {
        name: describe(getattr(value, name), f"{path}/{name}", owner, tensors) for name in setting_types(kind.__name__)
    }
    return {"kind": kind.__name__, **described}


def _not_savable(value: object, owner: str) -> str:
    known = ", ".join(kind.__name__ for kind in (*TRANSFORMS, *BASES))
    return (
        f"{owner} has a {type(value).__name__}, but a model file contains no code; "
        f"use one of {known}, or apply your function to the column before fitting"
    )


def _strings(vocabulary: Vocabulary) -> tuple[Array, Array]:
    """Return the offsets and UTF-8 bytes of the names, both starting at 0."""
    offsets, text = text_buffers(vocabulary.names.cast(pa.large_string()))
    return offsets - offsets[0], text[offsets[0] : offsets[-1]]


# From a description and arrays to a `Fitted`; everything is checked first.

MAPPED = ("params/factors", "params/linear")
"""The arrays that grow with the number of categories, which `mmap` maps."""
# Former names of settings.
_RENAMED_SETTINGS = {"Training": {"refit": "refit_on_all", "refine": "select_resolutions"}}
# Settings that only older files have: `effort` replaced the search for resolutions.
_REMOVED_SETTINGS: dict[str, dict[str, Any]] = {"Training": {"select_resolutions": bool}}
# The behavior before a setting existed: categories were matched by their spelling, and there were no crosses.
_FORMER_DEFAULTS: dict[str, dict[str, Any]] = {
    "Categorical": {"values": "text"},
    "MultiValued": {"values": "text"},
    "Training": {"crosses": None, "members": 1},
}
_PARTS = {"encoder", "model", "loss", "training", "history"}
# The settings were searched, by `sf.tune` or by the fit itself; there were held-out rows. Older files have no evidence.
_OPTIONAL = {"study", "evidence", "search", "provenance", "interactions", "offset"}
_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf}
# Limits of settings that cost memory or time without an array of that size in the file.
_HIGHEST_ORDER = 64
_MAX_ENTRIES = 100_000


def restore_fitted(description: Any, tensors: dict[str, Array], mapped: bool = False) -> Fitted:
    """Check everything and build the model; the arrays are removed from `tensors`."""
    parts = description.keys() - _OPTIONAL
    if "index" in parts:
        raise ModelFileError("it is an item index, which belongs to a model file; load the model")
    require(parts == _PARTS, f"it must hold {', '.join(sorted(_PARTS))}, but has {list(description)[:9]}")
    model, loss, training = (restore(description[part], tensors, part) for part in ("model", "loss", "training"))
    require(isinstance(model, MODELS), "its model is invalid")
    require(isinstance(loss, Loss) and math.isfinite(loss.center) and 0 < loss.scale < math.inf, f"its loss is {loss}")
    # Targets of these are numbers of classes, or shares.
    require(not loss.max_classes or (loss.center, loss.scale) == (0.0, 1.0), f"its {loss.name} loss has units")
    require(loss.n_outputs > 0, "its loss has no classes")
    require(isinstance(training, Training), "its training settings are invalid")
    study = restore(description.get("study"), tensors, "study")
    require(study is None or isinstance(study, StudySummary), "its study is invalid")
    evidence = restore(description.get("evidence"), tensors, "evidence")
    require(evidence is None or isinstance(evidence, Evidence), "its evidence is invalid")
    search = _restore_search(description.get("search", []), tensors)
    history = _restore_history(description["history"], take_array(tensors, "history", "F64", 2))
    encoder = _restore_encoder(description["encoder"], description.get("provenance", {}), tensors)
    if "interactions" in description:
        encoder = replace(encoder, interactions=_restore_interactions(description["interactions"], encoder))
    highest = max(_HIGHEST_ORDER, encoder.layout.n_units)
    require(model.order <= highest, f"the order {model.order} of the model exceeds {highest}")
    params = _restore_params(model, encoder.layout, loss.n_outputs, tensors, mapped)
    require(is_apart(model, params, encoder.layout, vectors=not mapped), "columns interact that must not")
    require(not tensors, f"nothing refers to the array {next(iter(tensors), None)!r}")
    offset = _restore_offset(description.get("offset"), loss)
    return Fitted(encoder, model, params, loss, history, training, study, evidence, search, offset)


def _restore_offset(description: Any, loss: Loss) -> Offset | None:
    if description is None:
        return None
    known = isinstance(description, dict) and description.keys() == {"column", "kind"}
    require(known and isinstance(description["column"], str), "its offset is invalid")
    require(description["kind"] in ("offset", "exposure"), "its offset is invalid")
    offset = Offset(**description)
    try:
        offset.check_loss(loss)
    except ValueError as error:
        raise Damaged(f"its offset is invalid: {error}") from error
    return offset


def _restore_search(description: Any, tensors: dict[str, Array]) -> tuple[SearchEntry, ...]:
    """Return the settings that a fit has tried; a setting that diverged has an infinite loss."""
    require(isinstance(description, list) and len(description) <= _MAX_ENTRIES, "its search is invalid")
    entries = restore(description, tensors, "search")
    for entry in entries:
        require(isinstance(entry, SearchEntry), "its search is invalid")
        counts = (entry.n_columns, entry.epochs, entry.folds)
        require(all(type(count) is int and count >= 0 for count in counts), f"its search has the counts {counts}")
        require(entry.loss > -math.inf and entry.error >= 0.0, f"its search has the loss {entry.loss} ± {entry.error}")
        require(0.0 <= entry.seconds < math.inf, f"its search has a setting of {entry.seconds} seconds")
    return tuple(entries)


def _restore_encoder(description: Any, sources: Any, tensors: dict[str, Array]) -> Encoder:
    require(description.keys() == {"fields", "n_rows", "notes"}, "its encoder is incomplete")
    n_rows, notes, counts = description["n_rows"], description["notes"], take_array(tensors, "row_counts", "F64", 1)
    require(type(n_rows) is int and 0 < n_rows < 2**63, f"n_rows is {n_rows!r}")
    require(isinstance(notes, dict) and all(isinstance(note, str) for note in notes.values()), "its notes are not text")
    require(_is_finite(counts) and not (counts < 0).any(), "row_counts must be finite and at least 0")
    items = tuple(restore(item, tensors, f"fields/{i}") for i, item in enumerate(description["fields"]))
    for item in Schema(items):  # which checks that they are fields with distinct names
        try:
            item.check_fitted(len(counts))
        except ValueError as error:
            raise Damaged(str(error)) from error
    layout = SlotLayout(tuple(item.layout for item in items))
    require(
        layout.n_features == len(counts),
        f"its fields have {layout.n_features:,} features, row_counts has {len(counts):,}",
    )
    split = tuple(np.split(counts, layout.feature_ptr[1:-1]))
    weights, ranges = _restore_weights(items, split, tensors), _restore_ranges(len(items), tensors)
    return Encoder(items, n_rows, _restore_provenance(notes, sources), split, weights, ranges)


def _restore_interactions(description: Any, encoder: Encoder) -> Interactions:
    """Return the constraints on interactions, which name columns of the fields."""
    try:
        found = Interactions.of(description)
        check_interactions(replace(encoder, interactions=found).schema)
    except ValueError as error:
        raise Damaged(f"its interactions are invalid: {error}") from error
    return found


def _restore_provenance(notes: dict[str, str], sources: Any) -> dict[str, Provenance]:
    """Return where fields come from; earlier versions only wrote notes, and counted all fields as inferred."""
    is_valid = isinstance(sources, dict) and all(isinstance(each, dict) for each in sources.values())
    require(is_valid, "its provenance is invalid")
    try:
        return {name: Provenance.from_dict({**sources.get(name, {}), "reason": note}) for name, note in notes.items()}
    except (TypeError, ValueError) as error:
        raise Damaged(f"its provenance is invalid: {error}") from error


def _restore_ranges(n_fields: int, tensors: dict[str, Array]) -> Array:
    """Return the smallest and largest values of numerical fields; formats 1 and 2 have none."""
    if "ranges" not in tensors:
        return np.zeros((0, 2))
    ranges = take_array(tensors, "ranges", "F64", 2)
    require(ranges.shape == (n_fields, 2), f"ranges has the shape {ranges.shape} instead of ({n_fields}, 2)")
    known = ranges[~np.isnan(ranges).all(axis=1)]
    require(_is_finite(known) and bool((known[:, 0] <= known[:, 1]).all()), "ranges must be finite and ordered")
    return ranges


def _restore_weights(
    items: tuple[AnyField, ...], counts: tuple[Array, ...], tensors: dict[str, Array]
) -> tuple[Array, ...]:
    """Return the weights of all features: format 1 has none, and categorical fields have counts."""
    if "row_weights" not in tensors:
        return ()
    values = take_array(tensors, "row_weights", "F64", 1)
    sizes = [0 if item.weights_are_counts else len(part) for item, part in zip(items, counts, strict=True)]
    require(sum(sizes) == len(values), f"its fields need {sum(sizes):,} row_weights, there are {len(values):,}")
    weights = np.split(values, np.cumsum(sizes)[:-1])
    known = all(_is_finite(part) or np.isnan(part).all() for part in weights)
    require(known, "row_weights must be finite, or NaN for a whole field")
    return tuple(part if size else count for part, count, size in zip(weights, counts, sizes, strict=True))


def _restore_params(
    model: AnyModel, layout: SlotLayout, n_outputs: int, tensors: dict[str, Array], mapped: bool
) -> Params:
    params = {}
    for name, shape in param_shapes(model, layout, n_outputs).items():
        values = params[name] = take_array(tensors, f"params/{name}", "F32", len(shape))
        require(values.shape == shape, f"{name} has the shape {values.shape} instead of {shape}")
        if not (mapped and f"params/{name}" in MAPPED):
            require(_is_finite(values), f"the model's parameters contain NaN or infinity, in {name}")
    return params


def _restore_history(columns: Any, table: Array) -> tuple[Epoch, ...]:
    unknown = [name for name in columns if name not in Epoch._fields]
    require(not unknown, f"its history has the unknown columns {unknown[:9]}")
    require(table.shape[1] == len(set(columns)) == len(columns), "its history has the wrong number of columns")
    empty = dict.fromkeys(Epoch._fields, math.nan)
    rows = [{**empty, **dict(zip(columns, row, strict=True))} for row in table.tolist()]
    return tuple(Epoch(**{**row, "epoch": int(row["epoch"]), "run": _run(row["run"])}) for row in rows)


def _run(number: float) -> Run:
    """Return a run by its number; older files do not have it, and it is the first one."""
    if math.isnan(number):
        return "first"
    require(number in range(len(RUN_NAMES)), f"its history has the unknown run {number:g}")
    return cast(Run, RUN_NAMES[int(number)])


def restore(description: Any, tensors: dict[str, Array], where: str) -> Any:
    if isinstance(description, list):
        return tuple(restore(item, tensors, where) for item in description)
    if not isinstance(description, dict):
        require(
            not isinstance(description, float) or math.isfinite(description), f"{where} has a number that is not finite"
        )
        require(not isinstance(description, int) or abs(description) < 2**63, f"{where} has a number that is too large")
        return description
    if "kind" in description:
        return _restore_kind(dict(description), tensors, where)
    require(len(description) == 1, f"{where} has a part without a kind")
    ((what, value),) = description.items()
    if what == "float":
        return _NOT_FINITE[value]
    if what == "tensor":
        values = take_array(tensors, value, "F64", 1)
        require(_is_finite(values), f"{value} contains NaN or infinity")
        return tuple(values.tolist())
    if what == "cells":
        return _restore_cells(take_array(tensors, value, "I64", 2), where)
    require(what == "strings", f"{where} has an unknown part {what!r}")
    return _restore_vocabulary(
        take_array(tensors, f"{value}/offsets", "I64", 1), take_array(tensors, f"{value}/text", "U8", 1)
    )


def _restore_kind(settings: dict[str, Any], tensors: dict[str, Array], where: str) -> Any:
    name = settings.pop("kind")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ModelFileError(f"{where} has the unknown type {name!r}; upgrade splinefm")
    # Without its cuts, this class would create as many as its count says.
    require(kind is not Bins or settings.get("cuts") is not None, f"{where} is not fitted")
    removed = _REMOVED_SETTINGS.get(name, {})
    hints, renamed = {**setting_types(name), **removed}, _RENAMED_SETTINGS.get(name, {})
    values: dict[str, Any] = dict(_FORMER_DEFAULTS.get(name, {}))
    read: set[str] = set()
    for old, setting in settings.items():
        key = renamed.get(old, old)
        require(key not in read, f"{where}: {name} has {key} twice")
        read.add(key)
        if key not in hints:
            raise ModelFileError(
                f"{where}: {name} has no setting {key!r} in this version of splinefm; upgrade splinefm"
            )
        value = values[key] = restore(setting, tensors, f"{where}/{key}")
        if not _fits(value, hints[key]):
            raise Damaged(f"{where}: {key} of {name} is {str(value)[:80]}")
    former = {key: values.pop(key) for key in removed if key in values}
    if kind is Training and "effort" not in read:
        is_searched = former.get("select_resolutions") or values["crosses"] is not None
        values["effort"] = "default" if is_searched else "fast"
    return kind(**values)


def _restore_cells(features: Array, where: str) -> Cells:
    require(
        features.shape[1] <= MAX_PARTS and not ((features < 0) | (features >= 2**31)).any(),
        f"{where}: its combinations are invalid",
    )
    require(len(np.unique(features, axis=0)) == len(features), f"{where} has a combination twice")
    return Cells(features.astype(np.int32))


def _restore_vocabulary(offsets: Array, text: Array) -> Vocabulary:
    require(len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(text), "a vocabulary does not fit its text")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    names = pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
    # Checks that offsets are ordered and that the text is UTF-8. A repeated name would only leave a feature unused;
    # looking for one takes longer than everything else.
    names.validate(full=True)
    return Vocabulary(names)


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a setting has its declared type; the classes check the ranges of numbers."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin is Literal:
        return value in args
    if origin is tuple:
        inner = args[:1] * len(value) if isinstance(value, tuple) and args[-1] is Ellipsis else args
        return isinstance(value, tuple) and len(inner) == len(value) and all(map(_fits, value, inner))
    if hint in (bool, int, float):
        return isinstance(value, bool | int | float)
    return isinstance(value, origin or hint)


def _is_finite(values: Array) -> bool:
    """Return whether all values are finite; for float32, by their float64 sum, which cannot overflow or allocate."""
    if values.dtype == np.float32:
        with np.errstate(all="ignore"):
            return math.isfinite(values.sum(dtype=np.float64))
    return bool(np.isfinite(values).all())


FORMAT = 3
"""Raised when older releases would misread a file; files of all lower numbers stay readable."""
MANIFEST = "manifest.json"
"""The file that makes a folder a sharded model."""


def save(fitted: Fitted, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file; an existing file is replaced in one step, or not at all.

    Parameters
    ----------
    fitted : Fitted
        The model. Custom transforms and bases cannot be saved, because the file contains no code.
    path : path
        The file, usually with the suffix ".sfm".

    Examples
    --------
    >>> import tempfile
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(fitted, f"{folder}/model.sfm")
    ...     again = load(f"{folder}/model.sfm")
    >>> bool((again.scores(table) == fitted.scores(table)).all())
    True
    """
    with saving(fitted, path):
        pass


@contextmanager
def saving(fitted: Fitted, path: str | os.PathLike[str]) -> Iterator[str]:
    """Write a model file as `save` does, and yield its identity before it replaces the target.

    What is written inside the block is there before the model is; an error there leaves the target as it was.
    """
    target = check_destination(Path(path))
    tensors: dict[str, Array] = {}
    try:
        description = describe_fitted(fitted, tensors)
        # A description that cannot be read must not replace a file that can.
        restore_fitted(parse_json(to_json(description)), dict(tensors))
        version = sys.modules["splinefm"].__version__  # not imported: the package imports this module
        with replacing(target) as file:
            write_container(file, FORMAT, version, description, tensors)
            yield header_digest(file)
    except (ValueError, TypeError) as error:
        advice = "; the model is invalid, refit it" if isinstance(error, Damaged) else ""
        raise ModelFileError(f"cannot save to {str(path)!r}: {error}{advice}") from error


def load(path: str | os.PathLike[str], *, mmap: bool = False) -> Fitted:
    """Read a model file; its scores equal the scores of the saved model, to the bit.

    Parameters
    ----------
    path : path
        A file that `Fitted.save` wrote.
    mmap : bool
        Map the vectors and linear weights into memory instead of reading them. They are read on first use and shared
        between processes, and their checksums are not verified.

    Raises
    ------
    ModelFileError
        If the file is truncated, damaged, not a model file, or from a newer version of splinefm.

    Examples
    --------
    >>> import tempfile
    >>> import splinefm as sf
    >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted.save(f"{folder}/model.sfm")
    ...     sf.load(f"{folder}/model.sfm").model
    FwFM(k=16, third=16)
    """
    return load_identified(path, mmap=mmap)[0]


def load_identified(path: str | os.PathLike[str], *, mmap: bool = False) -> tuple[Fitted, str]:
    """Read a model file as `load` does; return the model and the identity of the file, see `saving`."""
    path = Path(path)
    if (path / MANIFEST).is_file():
        raise IsADirectoryError(f"{str(path)!r} is a sharded model; use sf.ShardedModel.open, whose save writes a file")
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; pass a model file in it")
    if not path.exists():
        raise FileNotFoundError(f"no file {str(path)!r}; Fitted.save and splinefm fit write model files")
    if not path.is_file():  # opening a pipe would block
        raise ModelFileError(f"cannot load {str(path)!r}: it is not a regular file; copy the model to one")
    with opened(path, "copy it again, or save the model again") as file:
        fitted = restore_fitted(*read_container(file, FORMAT, MAPPED if mmap else ()), mapped=mmap)
        return fitted, header_digest(file)
