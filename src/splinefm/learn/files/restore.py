"""From a description and arrays to a `Fitted`; everything is checked first."""

from __future__ import annotations

import math
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

import numpy as np
import pyarrow as pa

from splinefm.encode.bases.bins import Bins
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cells import Cells
from splinefm.encode.fields.cross import MOST_PARTS, Cross
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.fields.vocabulary import Vocabulary
from splinefm.encode.schema import Field, Schema
from splinefm.encode.slots import SlotLayout
from splinefm.learn.files.container import Array, Damaged, ModelFileError, demand, take_array
from splinefm.learn.files.kinds import KINDS, MODELS, RUN_NAMES, setting_types
from splinefm.learn.fitted import Fitted
from splinefm.learn.losses import Loss
from splinefm.learn.remarks.evidence import Evidence
from splinefm.learn.search.entries import SearchEntry
from splinefm.learn.training import Epoch, Run, Training
from splinefm.learn.tuning.study import StudySummary
from splinefm.model.family import AnyModel, Params, param_shapes

MAPPED = ("params/factors", "params/linear")
"""The arrays that grow with the number of categories, which `mmap` maps."""
# Former names of settings.
_RENAMED = {"Training": {"refit": "refit_on_all", "refine": "select_resolutions"}}
# Settings that only older files have: `effort` replaced the search for resolutions.
_GONE: dict[str, dict[str, Any]] = {"Training": {"select_resolutions": bool}}
# The behavior before a setting existed: categories were matched by their spelling, and there were no crosses.
_BEFORE: dict[str, dict[str, Any]] = {
    "Categorical": {"values": "text"},
    "MultiValued": {"values": "text"},
    "Training": {"crosses": None, "members": 1},
}
_PARTS = {"encoder", "model", "loss", "training", "history"}
# The settings were searched, by `sf.tune` or by the fit itself; there were held-out rows. Older files have no evidence.
_OPTIONAL = {"study", "evidence", "search"}
_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf}
# Limits of settings that cost memory or time without an array of that size in the file.
_LONGEST_LIST = 1 << 20
_HIGHEST_ORDER = 64
_MOST_ENTRIES = 100_000


def restore_fitted(description: Any, tensors: dict[str, Array], mapped: bool = False) -> Fitted:
    """Check everything and build the model; the arrays are removed from `tensors`."""
    parts = description.keys() - _OPTIONAL
    if "index" in parts:
        raise ModelFileError("it is an item index, which belongs to a model file; load the model")
    demand(parts == _PARTS, f"it must hold {', '.join(sorted(_PARTS))}, but has {list(description)[:9]}")
    model, loss, training = (restore(description[part], tensors, part) for part in ("model", "loss", "training"))
    demand(isinstance(model, MODELS), "its model is invalid")
    demand(isinstance(loss, Loss) and math.isfinite(loss.center) and 0 < loss.scale < math.inf, f"its loss is {loss}")
    # Targets of these are numbers of classes, or shares.
    demand(not loss.most_classes or (loss.center, loss.scale) == (0.0, 1.0), f"its {loss.name} loss has units")
    demand(loss.n_outputs > 0, "its loss has no classes")
    demand(isinstance(training, Training), "its training settings are invalid")
    study = restore(description.get("study"), tensors, "study")
    demand(study is None or isinstance(study, StudySummary), "its study is invalid")
    evidence = restore(description.get("evidence"), tensors, "evidence")
    demand(evidence is None or isinstance(evidence, Evidence), "its evidence is invalid")
    search = _restore_search(description.get("search", []), tensors)
    history = _restore_history(description["history"], take_array(tensors, "history", "F64", 2))
    encoder = _restore_encoder(description["encoder"], tensors)
    highest = max(_HIGHEST_ORDER, encoder.layout.n_units)
    demand(model.order <= highest, f"the order {model.order} of the model exceeds {highest}")
    params = _restore_params(model, encoder.layout, loss.n_outputs, tensors, mapped)
    demand(not tensors, f"nothing refers to the array {next(iter(tensors), None)!r}")
    return Fitted(encoder, model, params, loss, history, training, study, evidence, search)


def _restore_search(description: Any, tensors: dict[str, Array]) -> tuple[SearchEntry, ...]:
    """Return the settings that a fit has tried; a setting that diverged has an infinite loss."""
    demand(isinstance(description, list) and len(description) <= _MOST_ENTRIES, "its search is invalid")
    entries = restore(description, tensors, "search")
    for entry in entries:
        demand(isinstance(entry, SearchEntry), "its search is invalid")
        counts = (entry.n_columns, entry.epochs, entry.folds)
        demand(all(type(count) is int and count >= 0 for count in counts), f"its search has the counts {counts}")
        demand(entry.loss > -math.inf and entry.error >= 0.0, f"its search has the loss {entry.loss} ± {entry.error}")
        demand(0.0 <= entry.seconds < math.inf, f"its search has a setting of {entry.seconds} seconds")
    return tuple(entries)


def _restore_encoder(description: Any, tensors: dict[str, Array]) -> Encoder:
    demand(description.keys() == {"fields", "n_rows", "notes"}, "its encoder is incomplete")
    n_rows, notes, counts = description["n_rows"], description["notes"], take_array(tensors, "row_counts", "F64", 1)
    demand(type(n_rows) is int and 0 < n_rows < 2**63, f"n_rows is {n_rows!r}")
    demand(isinstance(notes, dict) and all(isinstance(note, str) for note in notes.values()), "its notes are not text")
    demand(_is_finite(counts) and not (counts < 0).any(), "row_counts must be finite and at least 0")
    items = tuple(restore(item, tensors, f"fields/{i}") for i, item in enumerate(description["fields"]))
    for item in Schema(items):  # which checks that they are fields with distinct names
        _check_fitted(item, len(counts))
    layout = SlotLayout(tuple(item.layout for item in items))
    demand(
        layout.n_features == len(counts),
        f"its fields have {layout.n_features:,} features, row_counts has {len(counts):,}",
    )
    split = tuple(np.split(counts, layout.feature_ptr[1:-1]))
    weights, ranges = _restore_weights(items, split, tensors), _restore_ranges(len(items), tensors)
    return Encoder(items, n_rows, notes, split, weights, ranges)


def _restore_ranges(n_fields: int, tensors: dict[str, Array]) -> Array:
    """Return the smallest and largest values of numerical fields; formats 1 and 2 have none."""
    if "ranges" not in tensors:
        return np.zeros((0, 2))
    ranges = take_array(tensors, "ranges", "F64", 2)
    demand(ranges.shape == (n_fields, 2), f"ranges has the shape {ranges.shape} instead of ({n_fields}, 2)")
    known = ranges[~np.isnan(ranges).all(axis=1)]
    demand(_is_finite(known) and bool((known[:, 0] <= known[:, 1]).all()), "ranges must be finite and ordered")
    return ranges


def _restore_weights(
    items: tuple[Field, ...], counts: tuple[Array, ...], tensors: dict[str, Array]
) -> tuple[Array, ...]:
    """Return the weights of all features: format 1 has none, and those of categorical fields are the counts."""
    if "row_weights" not in tensors:
        return ()
    values = take_array(tensors, "row_weights", "F64", 1)
    sizes = [0 if isinstance(item, Categorical) else len(part) for item, part in zip(items, counts, strict=True)]
    demand(sum(sizes) == len(values), f"its fields need {sum(sizes):,} row_weights, there are {len(values):,}")
    weights = np.split(values, np.cumsum(sizes)[:-1])
    known = all(_is_finite(part) or np.isnan(part).all() for part in weights)
    demand(known, "row_weights must be finite, or NaN for a whole field")
    return tuple(part if size else count for part, count, size in zip(weights, counts, sizes, strict=True))


def _check_fitted(item: Field, n_features: int) -> None:
    """Raise an error for fields that are not fitted, or larger than the arrays, before memory is allocated."""
    if isinstance(item, Cross):
        for part in item.fields:
            _check_fitted(part, n_features)
        demand(item.n_cells * item.block <= max(n_features, item.block), f"{item.name!r} has too many combinations")
        _check_cells(item)
        return
    if isinstance(item, MultiValued):
        demand(0 < (item.max_length or 0) <= _LONGEST_LIST, f"max_length of {item.name!r} is {item.max_length}")
    if not isinstance(item, Numerical):
        return
    size = sum(item.basis.sizes)
    demand(size <= n_features, f"{item.name!r} has {size:,} basis functions, but there are {n_features:,} features")
    if isinstance(item.transform, str):
        raise Damaged(f"{item.name!r} has no fitted transform")
    ends = np.asarray(item.transform.inverse(np.array([0.0, 1.0])))  # needs everything that was learned
    demand(_is_finite(ends), f"the transform of {item.name!r} runs from {ends[0]} to {ends[-1]}")
    if isinstance(item.basis, Bins):
        cuts = np.array(item.basis.cuts)
        demand(_is_finite(cuts) and not (np.diff(cuts) < 0).any(), f"the cuts of {item.name!r} are out of order")


def _check_cells(cross: Cross) -> None:
    """Raise an error for combinations of features that the parts do not have."""
    if cross.cells is None or not len(cross.cells):
        return
    sizes = [cross.fields[i].layout.n_features for i in cross.categories]
    demand(cross.cells.features.shape[1] == len(sizes), f"the combinations of {cross.name!r} do not fit its parts")
    demand(bool((cross.cells.features < sizes).all()), f"{cross.name!r} combines features that its parts do not have")


def _restore_params(
    model: AnyModel, layout: SlotLayout, n_outputs: int, tensors: dict[str, Array], mapped: bool
) -> Params:
    params = {}
    for name, shape in param_shapes(model, layout, n_outputs).items():
        values = params[name] = take_array(tensors, f"params/{name}", "F32", len(shape))
        demand(values.shape == shape, f"{name} has the shape {values.shape} instead of {shape}")
        if not (mapped and f"params/{name}" in MAPPED):
            demand(_is_finite(values), f"the model's parameters contain NaN or infinity, in {name}")
    return params


def _restore_history(columns: Any, table: Array) -> tuple[Epoch, ...]:
    unknown = [name for name in columns if name not in Epoch._fields]
    demand(not unknown, f"its history has the unknown columns {unknown[:9]}")
    demand(table.shape[1] == len(set(columns)) == len(columns), "its history has the wrong number of columns")
    empty = dict.fromkeys(Epoch._fields, math.nan)
    rows = [{**empty, **dict(zip(columns, row, strict=True))} for row in table.tolist()]
    return tuple(Epoch(**{**row, "epoch": int(row["epoch"]), "run": _run(row["run"])}) for row in rows)


def _run(number: float) -> Run:
    """Return a run by its number; older files do not have it, and it is the first one."""
    if math.isnan(number):
        return "first"
    demand(number in range(len(RUN_NAMES)), f"its history has the unknown run {number:g}")
    return cast(Run, RUN_NAMES[int(number)])


def restore(description: Any, tensors: dict[str, Array], where: str) -> Any:
    if isinstance(description, list):
        return tuple(restore(item, tensors, where) for item in description)
    if not isinstance(description, dict):
        demand(
            not isinstance(description, float) or math.isfinite(description), f"{where} has a number that is not finite"
        )
        demand(not isinstance(description, int) or abs(description) < 2**63, f"{where} has a number that is too large")
        return description
    if "kind" in description:
        return _restore_kind(dict(description), tensors, where)
    demand(len(description) == 1, f"{where} has a part without a kind")
    ((what, value),) = description.items()
    if what == "float":
        return _NOT_FINITE[value]
    if what == "tensor":
        values = take_array(tensors, value, "F64", 1)
        demand(_is_finite(values), f"{value} contains NaN or infinity")
        return tuple(values.tolist())
    if what == "cells":
        return _restore_cells(take_array(tensors, value, "I64", 2), where)
    demand(what == "strings", f"{where} has an unknown part {what!r}")
    return _restore_vocabulary(
        take_array(tensors, f"{value}/offsets", "I64", 1), take_array(tensors, f"{value}/text", "U8", 1)
    )


def _restore_kind(settings: dict[str, Any], tensors: dict[str, Array], where: str) -> Any:
    name = settings.pop("kind")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ModelFileError(f"{where} has the unknown type {name!r}; upgrade splinefm")
    # Without its cuts, this class would create as many as its count says.
    demand(kind is not Bins or settings.get("cuts") is not None, f"{where} is not fitted")
    gone = _GONE.get(name, {})
    hints, renamed = {**setting_types(name), **gone}, _RENAMED.get(name, {})
    values: dict[str, Any] = dict(_BEFORE.get(name, {}))
    read: set[str] = set()
    for old, setting in settings.items():
        key = renamed.get(old, old)
        demand(key not in read, f"{where}: {name} has {key} twice")
        read.add(key)
        if key not in hints:
            raise ModelFileError(
                f"{where}: {name} has no setting {key!r} in this version of splinefm; upgrade splinefm"
            )
        value = values[key] = restore(setting, tensors, f"{where}/{key}")
        if not _fits(value, hints[key]):
            raise Damaged(f"{where}: {key} of {name} is {str(value)[:80]}")
    former = {key: values.pop(key) for key in gone if key in values}
    if kind is Training and "effort" not in read:
        is_searched = former.get("select_resolutions") or values["crosses"] is not None
        values["effort"] = "default" if is_searched else "fast"
    return kind(**values)


def _restore_cells(features: Array, where: str) -> Cells:
    demand(
        features.shape[1] <= MOST_PARTS and not ((features < 0) | (features >= 2**31)).any(),
        f"{where}: its combinations are invalid",
    )
    demand(len(np.unique(features, axis=0)) == len(features), f"{where} has a combination twice")
    return Cells(features.astype(np.int32))


def _restore_vocabulary(offsets: Array, text: Array) -> Vocabulary:
    demand(len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(text), "a vocabulary does not fit its text")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    names = pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
    # Checks that offsets are ordered and that the text is UTF-8. A repeated name would only leave a feature unused, and
    # checking for one takes longer than everything else.
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
