"""From a `Fitted` to a description in JSON and arrays."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm.encode.bases.basis import BASES
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cells import Cells
from splinefm.encode.fields.vocabulary import Vocabulary
from splinefm.encode.tables.columns import text_buffers
from splinefm.encode.transforms.transform import TRANSFORMS
from splinefm.learn.files.container import Array, ModelFileError
from splinefm.learn.files.kinds import KINDS, RUN_NAMES, setting_types
from splinefm.learn.fitted import Fitted
from splinefm.learn.search.entries import SearchEntry
from splinefm.learn.training import Epoch

_MOST_NUMBERS = 16  # longer tuples of numbers, such as the knots of a transform, become arrays


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
    weighted = [values for item, values in weights if not isinstance(item, Categorical)]
    tensors["row_weights"] = np.concatenate([np.zeros(0), *weighted], dtype=np.float64)
    epochs = [(*epoch[:-1], RUN_NAMES.index(epoch.run)) for epoch in fitted.history]
    tensors["history"] = np.array(epochs, np.float64).reshape(-1, len(Epoch._fields))
    tensors["ranges"] = np.asarray(encoder.ranges, np.float64)
    for name, values in fitted.params.items():
        tensors[f"params/{name}"] = np.asarray(values)
    notes = {str(name): str(note) for name, note in encoder.notes.items()}
    optional = {"study": fitted.study, "evidence": fitted.evidence, "search": tuple(map(_bounded, fitted.search))}
    known = {part: describe(value, part, f"the {part}", tensors) for part, value in optional.items() if value}
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
        if len(value) > _MOST_NUMBERS and all(isinstance(item, float) and math.isfinite(item) for item in value):
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
