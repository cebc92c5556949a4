"""Model files: a `Fitted` in one file; reading it never runs code."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

from splinefm.encode.bases.kinds import BASES, Bins
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import Categorical, MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.fields.vocabulary import Vocabulary
from splinefm.encode.schema import Field, Schema
from splinefm.encode.slots import SlotLayout
from splinefm.encode.tables.columns import text_buffers
from splinefm.encode.transforms.kinds import TRANSFORMS
from splinefm.learn.files.container import (
    DTYPES,
    Array,
    Damaged,
    ModelFileError,
    check_destination,
    demand,
    parse_json,
    read_container,
    replacing,
    to_json,
    write_container,
)
from splinefm.learn.fitted import Fitted
from splinefm.learn.losses import Loss
from splinefm.learn.training import RUNS, Epoch, Run, Training
from splinefm.learn.tuning.study import StudySummary, TrialSummary
from splinefm.model.family import FFM, FM, AnyModel, FmFM, FwFM, HigherOrderFM, LowRankFwFM, Params

FORMAT = 3
"""Raised when older releases would misread a file; files of every lower number stay readable."""

_MODELS = (FM, FwFM, LowRankFwFM, FmFM, FFM, HigherOrderFM)
_FIELD_KINDS = (Numerical, Categorical, MultiValued, *TRANSFORMS, *BASES)
# The only classes that a file can name.
_KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (*_FIELD_KINDS, *_MODELS, Loss, Training, StudySummary, TrialSummary)
}
# What settings were called when files were written.
_RENAMED = {"Training": {"refit": "refit_on_all", "refine": "select_resolutions"}}
_RUNS = tuple(RUNS)  # the history has their places; new ones come last
# What settings meant before there were such settings: categories were looked up as they were spelled.
_BEFORE: dict[str, dict[str, Any]] = {"Categorical": {"values": "text"}, "MultiValued": {"values": "text"}}
_PARTS = {"encoder", "model", "loss", "training", "history"}  # and "study", where the settings were searched
_MAPPED = ("params/factors", "params/linear")  # those that grow with the number of categories
_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf}
_MOST_NUMBERS = 16  # longer tuples of numbers, such as the knots of a transform, become arrays
# Settings that cost memory or time without any array to show for it.
_LONGEST_LIST = 1 << 20
_HIGHEST_ORDER = 64


def save(fitted: Fitted, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to one file; an existing file is replaced in one step, or not at all.

    Parameters
    ----------
    fitted : Fitted
        The model. Transforms and bases with code of your own cannot be saved.
    path : path
        Where to; the usual ending is ".sfm".

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
    target = check_destination(Path(path))
    tensors: dict[str, Array] = {}
    try:
        description = _describe_fitted(fitted, tensors)
        # What could not be read again must not replace a file that can.
        _restore_fitted(parse_json(to_json(description)), dict(tensors))
        version = sys.modules["splinefm"].__version__  # not imported: modules of the package import from its folders
        with replacing(target) as file:
            write_container(file, FORMAT, version, description, tensors)
    except (ValueError, TypeError) as error:
        way_out = "; the model is not sound, fit it anew" if isinstance(error, Damaged) else ""
        raise ModelFileError(f"cannot save to {str(path)!r}: {error}{way_out}") from error


def load(path: str | os.PathLike[str], *, mmap: bool = False) -> Fitted:
    """Read a model file; the scores are those of the saved model, to the bit.

    Parameters
    ----------
    path : path
        A file that `Fitted.save` wrote.
    mmap : bool
        Map the vectors and linear weights into memory instead of reading them: they are read when they are first used,
        processes share them, and their checksums are not verified.

    Raises
    ------
    ModelFileError
        If the file is cut short, damaged, of another kind, or of a newer version of splinefm.

    Examples
    --------
    >>> import tempfile
    >>> import splinefm as sf
    >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted.save(f"{folder}/model.sfm")
    ...     sf.load(f"{folder}/model.sfm").model
    FwFM(k=16)
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; name the model file in it")
    if not path.exists():
        raise FileNotFoundError(f"no file {str(path)!r}; a model file is what Fitted.save and splinefm fit write")
    if not path.is_file():  # opening a pipe would wait for ever
        raise ModelFileError(f"cannot load {str(path)!r}: it is no regular file; copy the model to one")
    failed, again = f"cannot load {str(path)!r}", "copy it again, or save the model anew"
    with path.open("rb") as file:
        try:
            return _restore_fitted(*read_container(file, FORMAT, _MAPPED if mmap else ()), mapped=mmap)
        except (OSError, MemoryError):
            raise
        except Damaged as error:
            raise ModelFileError(f"{failed}: {error}; {again}") from error
        except ModelFileError as error:
            raise ModelFileError(f"{failed}: {error}") from error
        except Exception as error:  # there is no end to what a made-up description can raise
            raise ModelFileError(f"{failed}: it is damaged ({str(error)[:200]}); {again}") from error


def _describe_fitted(fitted: Fitted, tensors: dict[str, Array]) -> dict[str, Any]:
    """What JSON can hold; arrays go to `tensors`."""
    if not isinstance(fitted, Fitted):
        raise TypeError(f"only a sf.Fitted can be saved, got {type(fitted).__name__}; an estimator has one in fitted_")
    encoder = fitted.encoder
    described = [
        _describe(item, f"fields/{i}", f"field {item.name!r}", tensors) for i, item in enumerate(encoder.fields)
    ]
    tensors["row_counts"] = np.concatenate(encoder.feature_counts, dtype=np.float64)
    weights = zip(encoder.fields, encoder.feature_weights, strict=True)
    weighted = [rows for item, rows in weights if not isinstance(item, Categorical)]
    tensors["row_weights"] = np.concatenate([np.zeros(0), *weighted], dtype=np.float64)
    rows = [(*epoch[:-1], _RUNS.index(epoch.run)) for epoch in fitted.history]
    tensors["history"] = np.array(rows, np.float64).reshape(-1, len(Epoch._fields))
    tensors["ranges"] = np.asarray(encoder.ranges, np.float64)
    for name, values in fitted.params.items():
        tensors[f"params/{name}"] = np.asarray(values)
    notes = {str(name): str(note) for name, note in encoder.notes.items()}
    study = {} if fitted.study is None else {"study": _describe(fitted.study, "study", "the study", tensors)}
    return {
        "encoder": {"fields": described, "n_rows": int(encoder.n_rows), "notes": notes},
        "model": _describe(fitted.model, "model", "the model", tensors),
        "loss": _describe(fitted.loss, "loss", "the loss", tensors),
        "training": _describe(fitted.training, "training", "the training", tensors),
        "history": list(Epoch._fields),
        **study,
    }


def _describe(value: Any, path: str, owner: str, tensors: dict[str, Array]) -> Any:
    """A setting with everything below it. Defaults are written too: they may change from version to version."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Vocabulary):
        tensors[f"{path}/offsets"], tensors[f"{path}/text"] = _strings(value)
        return {"strings": path}
    if isinstance(value, tuple | list):
        if len(value) > _MOST_NUMBERS and all(isinstance(item, float) and math.isfinite(item) for item in value):
            tensors[path] = np.array(value, np.float64)
            return {"tensor": path}
        return [_describe(item, f"{path}/{i}", owner, tensors) for i, item in enumerate(value)]
    kind = _KINDS.get(type(value).__name__)
    if type(value) is not kind:  # a class of the same name is not the same class
        raise ModelFileError(_not_savable(value, owner))
    described = {
        name: _describe(getattr(value, name), f"{path}/{name}", owner, tensors) for name in _hints(kind.__name__)
    }
    return {"kind": kind.__name__, **described}


def _not_savable(value: object, owner: str) -> str:
    known = ", ".join(kind.__name__ for kind in (*TRANSFORMS, *BASES))
    return (
        f"{owner} has a {type(value).__name__}, and a model file holds no code; "
        f"use one of {known}, or apply your function to the column before fitting"
    )


def _strings(vocabulary: Vocabulary) -> tuple[Array, Array]:
    """Offsets and UTF-8 bytes of the names, both from 0."""
    offsets, text = text_buffers(vocabulary.names.cast(pa.large_string()))
    return offsets - offsets[0], text[offsets[0] : offsets[-1]]


def _restore_fitted(description: Any, tensors: dict[str, Array], mapped: bool = False) -> Fitted:
    """Check everything and put it together; the arrays of `tensors` are used up."""
    parts = description.keys() - {"study"}
    demand(parts == _PARTS, f"it must hold {', '.join(sorted(_PARTS))}, but has {list(description)[:9]}")
    model, loss, training = (_restore(description[part], tensors, part) for part in ("model", "loss", "training"))
    demand(isinstance(model, _MODELS), "its model is none")
    demand(isinstance(loss, Loss) and math.isfinite(loss.center) and 0 < loss.scale < math.inf, f"its loss is {loss}")
    demand(isinstance(training, Training), "its training settings are none")
    study = _restore(description.get("study"), tensors, "study")
    demand(study is None or isinstance(study, StudySummary), "its study is none")
    history = _restore_history(description["history"], _take(tensors, "history", "F64", 2))
    encoder = _restore_encoder(description["encoder"], tensors)
    if isinstance(model, HigherOrderFM):
        highest = max(_HIGHEST_ORDER, encoder.layout.n_units)
        demand(model.order <= highest, f"the order {model.order} of the model exceeds {highest}")
    params = _restore_params(model, encoder.layout, tensors, mapped)
    demand(not tensors, f"nothing refers to the array {next(iter(tensors), None)!r}")
    return Fitted(encoder, model, params, loss, history, training, study)


def _restore_encoder(description: Any, tensors: dict[str, Array]) -> Encoder:
    demand(description.keys() == {"fields", "n_rows", "notes"}, "its encoder lacks a part")
    n_rows, notes, counts = description["n_rows"], description["notes"], _take(tensors, "row_counts", "F64", 1)
    demand(type(n_rows) is int and 0 < n_rows < 2**63, f"n_rows is {n_rows!r}")
    demand(isinstance(notes, dict) and all(isinstance(note, str) for note in notes.values()), "its notes are no text")
    demand(_is_finite(counts) and not (counts < 0).any(), "row_counts must be finite and at least 0")
    items = tuple(_restore(item, tensors, f"fields/{i}") for i, item in enumerate(description["fields"]))
    for item in Schema(items):  # which checks that they are fields with different names
        _check_fitted(item, len(counts))
    layout = SlotLayout(tuple(item.layout for item in items))
    demand(
        layout.n_features == len(counts),
        f"its fields need {layout.n_features:,} rows, feature_counts has {len(counts):,}",
    )
    split = tuple(np.split(counts, layout.feature_ptr[1:-1]))
    weights, ranges = _restore_weights(items, split, tensors), _restore_ranges(len(items), tensors)
    return Encoder(items, n_rows, notes, split, weights, ranges)


def _restore_ranges(n_fields: int, tensors: dict[str, Array]) -> Array:
    """Least and largest values of numerical fields; formats 1 and 2 have none."""
    if "ranges" not in tensors:
        return np.zeros((0, 2))
    ranges = _take(tensors, "ranges", "F64", 2)
    demand(ranges.shape == (n_fields, 2), f"ranges has the shape {ranges.shape} instead of ({n_fields}, 2)")
    known = ranges[~np.isnan(ranges).all(axis=1)]
    demand(
        _is_finite(known) and bool((known[:, 0] <= known[:, 1]).all()), "ranges must run from a number to a larger one"
    )
    return ranges


def _restore_weights(
    items: tuple[Field, ...], counts: tuple[Array, ...], tensors: dict[str, Array]
) -> tuple[Array, ...]:
    """Weights of the rows of all fields: format 1 has none, and those of categorical fields are the counts."""
    if "row_weights" not in tensors:
        return ()
    values = _take(tensors, "row_weights", "F64", 1)
    sizes = [0 if isinstance(item, Categorical) else len(rows) for item, rows in zip(items, counts, strict=True)]
    demand(sum(sizes) == len(values), f"its fields need {sum(sizes):,} feature_weights, there are {len(values):,}")
    weights = np.split(values, np.cumsum(sizes)[:-1])
    known = all(_is_finite(rows) or np.isnan(rows).all() for rows in weights)
    demand(known, "row_weights must be finite, or NaN for a whole field")
    return tuple(rows if size else own for rows, own, size in zip(weights, counts, sizes, strict=True))


def _check_fitted(item: Field, n_rows: int) -> None:
    """Refuse what is not fitted, and sizes that the arrays do not bear out, before anything is made of them."""
    if isinstance(item, MultiValued):
        demand(0 < (item.max_length or 0) <= _LONGEST_LIST, f"max_length of {item.name!r} is {item.max_length}")
    if not isinstance(item, Numerical):
        return
    size = sum(item.basis.sizes)
    demand(size <= n_rows, f"{item.name!r} has {size:,} basis functions, but there are {n_rows:,} rows in all")
    if isinstance(item.transform, str):
        raise Damaged(f"{item.name!r} has no fitted transform")
    ends = np.asarray(item.transform.inverse(np.array([0.0, 1.0])))  # needs all that was learned, and no kernels
    demand(_is_finite(ends), f"the transform of {item.name!r} runs from {ends[0]} to {ends[-1]}")
    if isinstance(item.basis, Bins):
        cuts = np.array(item.basis.cuts)
        demand(_is_finite(cuts) and not (np.diff(cuts) < 0).any(), f"the cuts of {item.name!r} are out of order")


def _restore_params(model: AnyModel, layout: SlotLayout, tensors: dict[str, Array], mapped: bool) -> Params:
    params = {}
    for name, shape in param_shapes(model, layout).items():
        values = params[name] = _take(tensors, f"params/{name}", "F32", len(shape))
        demand(values.shape == shape, f"{name} has the shape {values.shape} instead of {shape}")
        if not (mapped and f"params/{name}" in _MAPPED):
            demand(_is_finite(values), f"{name} holds numbers that are not finite")
    return params


def param_shapes(model: AnyModel, layout: SlotLayout) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model's parameters.

    Examples
    --------
    >>> from splinefm.encode.slots import FieldLayout
    >>> param_shapes(FM(k=2), SlotLayout((FieldLayout("c", 3, (1,), (0,)),)))
    {'bias': (1,), 'linear': (3,), 'factors': (3, 2)}
    """
    n = len(layout.fields)
    width = model.width(n)
    shapes: dict[str, tuple[int, ...]] = {
        "bias": (1,),
        "linear": (layout.n_features,),
        "factors": (layout.n_features, width),
    }
    if isinstance(model, FwFM):
        shapes["field_weights"] = (n, n)
    if isinstance(model, LowRankFwFM):
        shapes |= {"field_factors": (model.rank, n), "field_scales": (model.rank,)}
    if isinstance(model, FmFM):
        shapes["field_matrices"] = (n, n, width, width)
    return shapes


def _restore_history(columns: Any, table: Array) -> tuple[Epoch, ...]:
    unknown = [name for name in columns if name not in Epoch._fields]
    demand(not unknown, f"its history has the unknown columns {unknown[:9]}")
    demand(table.shape[1] == len(set(columns)) == len(columns), "its history has a column too many or too few")
    empty = dict.fromkeys(Epoch._fields, math.nan)
    rows = [{**empty, **dict(zip(columns, row, strict=True))} for row in table.tolist()]
    return tuple(Epoch(**{**row, "epoch": int(row["epoch"]), "run": _run(row["run"])}) for row in rows)


def _run(number: float) -> Run:
    """Files that do not tell the run, as it was before there were names for them, have that of the first."""
    if math.isnan(number):
        return "first"
    demand(number in range(len(_RUNS)), f"its history has the unknown run {number:g}")
    return _RUNS[int(number)]


def _restore(description: Any, tensors: dict[str, Array], where: str) -> Any:
    if isinstance(description, list):
        return tuple(_restore(item, tensors, where) for item in description)
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
        values = _take(tensors, value, "F64", 1)
        demand(_is_finite(values), f"{value} holds numbers that are not finite")
        return tuple(values.tolist())
    demand(what == "strings", f"{where} has an unknown part {what!r}")
    return _restore_vocabulary(_take(tensors, f"{value}/offsets", "I64", 1), _take(tensors, f"{value}/text", "U8", 1))


def _restore_kind(settings: dict[str, Any], tensors: dict[str, Array], where: str) -> Any:
    name = settings.pop("kind")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ModelFileError(f"{where} is of the unknown kind {name!r}; upgrade splinefm, a newer one may know it")
    # Without its cuts this class would make as many as its count says.
    demand(kind is not Bins or settings.get("cuts") is not None, f"{where} is not fitted")
    hints, renamed = _hints(name), _RENAMED.get(name, {})
    values: dict[str, Any] = dict(_BEFORE.get(name, {}))
    read: set[str] = set()
    for old, setting in settings.items():
        key = renamed.get(old, old)
        demand(key not in read, f"{where}: {name} has {key} twice")
        read.add(key)
        if key not in hints:
            raise ModelFileError(f"{where}: {name} has no setting {key!r} in this version of splinefm; upgrade it")
        value = values[key] = _restore(setting, tensors, f"{where}/{key}")
        if not _fits(value, hints[key]):
            raise Damaged(f"{where}: {key} of {name} is {str(value)[:80]}")
    return kind(**values)


def _restore_vocabulary(offsets: Array, text: Array) -> Vocabulary:
    demand(len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(text), "a vocabulary does not fit its text")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    names = pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
    # Offsets in order, and UTF-8. A name that stands twice would leave a row unused; looking for one takes longer
    # than all the rest.
    names.validate(full=True)
    return Vocabulary(names)


@cache
def _hints(name: str) -> dict[str, Any]:
    """The settings of a class with their types."""
    hints = get_type_hints(_KINDS[name])
    return {item.name: hints[item.name] for item in fields(_KINDS[name])}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a setting is of its declared type; numbers are numbers, their ranges are for the classes to check."""
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


def _take(tensors: dict[str, Array], name: str, dtype: str, ndim: int) -> Array:
    values = tensors.pop(name, None)
    if values is None:
        raise Damaged(f"the array {name!r} is missing")
    demand(values.dtype == DTYPES[dtype], f"{name} is of the type {values.dtype} instead of {DTYPES[dtype]}")
    demand(values.ndim == ndim, f"{name} has {values.ndim} dimensions instead of {ndim}")
    return values


def _is_finite(values: Array) -> bool:
    """Large float32 arrays by their sum, which needs no memory and for which float64 has room."""
    if values.dtype == np.float32:
        with np.errstate(all="ignore"):
            return math.isfinite(values.sum(dtype=np.float64))
    return bool(np.isfinite(values).all())
