"""Descriptions of a model file, for `splinefm info`."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

from splinefm.store.model_file import load, setting_types
from splinefm.store.sharded import Manifest, count_parameters, is_sharded
from splinefm.store.sharded_model import ShardedModel
from splinefm.train.fitted import Fitted
from splinefm.train.results import StudySummary, best_epoch
from splinefm.train.targets import Label, listed


def describe_fit(fitted: Fitted) -> dict[str, Any]:
    """Return what was fitted to what."""
    return {
        "parameters": count_parameters(fitted),
        "loss": fitted.loss.name,
        "loss_parameters": fitted.loss.parameters,
        "classes": fitted.classes,
        "prediction": predicted_thing(fitted),
        "rows": fitted.encoder.n_rows,
        "sample": fitted.has_sample,
        "remarks": describe_remarks(fitted),
        "search": describe_search(fitted),
    }


def describe_file(path: Path) -> dict[str, Any]:
    """Return everything that `info` shows as lists, dicts, strings and numbers, without reading the vectors."""
    if is_sharded(path):
        sharded = ShardedModel.open(path, verify=False)
        manifest = Manifest.read(path)
        files = [entry.to_dict() for entry in manifest.parts]
        size = sum(entry.bytes for entry in (manifest.head, *manifest.parts))
        return _describe(path, sharded.head, size, manifest.format, manifest.version, files)
    fitted = load(path, mmap=True)
    number, version = _file_format(path)
    return _describe(path, fitted, path.stat().st_size, number, version, [])


def _describe(
    path: Path, fitted: Fitted, size: int, number: int, version: str, parts: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "file": str(path),
        "bytes": size,
        "parts": parts,
        "format": number,
        "version": version,
        "model": {"kind": type(fitted.model).__name__, **asdict(fitted.model)},
        "model_text": str(fitted.model),
        **describe_fit(fitted),
        "fields": describe_fields(fitted),
        "interactions": None if fitted.encoder.interactions is None else fitted.encoder.interactions.to_value(),
        "offset": None if fitted.offset is None else {"column": fitted.offset.column, "kind": fitted.offset.kind},
        "training": _describe_training(fitted),
        "validation": describe_validation(fitted),
        "study": None if fitted.study is None else describe_study(fitted.study),
        "history": [epoch._asdict() for epoch in fitted.history],
    }


def describe_fields(fitted: Fitted) -> list[dict[str, Any]]:
    """Return a dict for each field: its settings, and the number of its features."""
    encoder = fitted.encoder
    return [
        {
            "name": item.name,
            "kind": type(item).__name__,
            "rows": layout.n_features,
            **item.describe(),
            "note": encoder.notes.get(item.name, ""),
        }
        for item, layout in zip(encoder.fields, encoder.layout.fields, strict=True)
    ]


def describe_remarks(fitted: Fitted) -> list[dict[str, Any]]:
    """Return a dict for each remark on the fit: its kind, columns and numbers, and its words."""
    return [{**asdict(remark), "kind": remark.kind.value, "text": str(remark)} for remark in fitted.remarks]


def describe_validation(fitted: Fitted) -> dict[str, Any]:
    """Return the number of epochs, and the best one with its validation metric."""
    best = best_epoch(fitted.history)
    measured = best is not None and not math.isnan(best.validation_loss)
    return {
        "epochs": len(fitted.history),
        "best_epoch": best.epoch if best is not None else None,
        "metric": fitted.loss.metric_name if measured else None,
        "value": fitted.loss.metric(best.validation_loss) if best is not None and measured else None,
        "seconds": fitted.history[-1].seconds if fitted.history else None,
    }


def describe_study(study: StudySummary) -> dict[str, Any]:
    """Return a study as lists, dicts, strings and numbers."""
    best, first = study.best_trial, study.trials[0]
    return {
        "name": study.name,
        "metric": study.metric,
        "trials": len(study.trials),
        "states": dict(Counter(trial.state for trial in study.trials)),
        "best_trial": best.number,
        "value": best.value,
        "start_value": first.value if first.state == "complete" else None,
        "params": dict(best.params),
        "table": study.table,
    }


def describe_search(fitted: Fitted) -> list[dict[str, Any]]:
    """Return a dict for each setting that the fit has tried, the chosen one first, with its loss as the metric.

    The error of the metric is half of the difference that two standard errors of the loss make.
    """
    metric = fitted.loss.metric
    return [
        {
            **asdict(entry),
            "text": str(entry),
            "metric": fitted.loss.metric_name,
            "value": metric(entry.loss),
            "value_error": (metric(entry.loss + entry.error) - metric(max(0.0, entry.loss - entry.error))) / 2.0
            if math.isfinite(entry.loss + entry.error)
            else math.inf,
        }
        for entry in fitted.search
    ]


def predicted_thing(fitted: Fitted) -> str:
    """Say what a prediction is."""
    loss = fitted.loss
    if loss.of_class is not None:
        return f"score of class {loss.of_class!r}"
    if loss.name == "softmax":
        return f"probabilities of {loss.n_outputs} classes"
    if loss.name == "logistic":
        return "probability of " + (repr(loss.classes[1]) if loss.classes is not None else "1")
    if loss.quantile is not None:
        return f"quantile {loss.quantile:g} of the target"
    if loss.name == "huber":
        return "mean of the target, with less weight on outliers"
    return "rate (expected count)" if loss.name == "poisson" else "mean of the target"


def prediction_names(fitted: Fitted) -> list[str]:
    """The names of the columns of predictions: one, or one per class if there are more than two.

    A model of one of several classes has scores, which are not predictions without the other classes.
    """
    if fitted.n_outputs > 1:
        return [f"probability_{label}" for label in fitted.classes or ()]
    if fitted.loss.of_class is not None:
        return ["score"]
    return ["probability" if fitted.loss.name == "logistic" else "prediction"]


def one_class(fitted: Fitted, named: str | None, what: str) -> Fitted:
    """Return the model of the class that was named with `--class`, or a model with one score as it is.

    `what` is the part of the command line that needs one score.
    """
    if named is not None:
        return fitted.for_class(find_class(fitted, named))
    check_class_is_named(fitted, what)
    return fitted


def check_class_is_named(fitted: Fitted, what: str) -> None:
    """Raise for a model of more than two classes, of which a command with the option `--class` needs one."""
    if fitted.n_outputs > 1 and fitted.classes is not None:
        raise ValueError(
            f"the model has a score for each of {fitted.n_outputs} classes, but {what} needs one: choose a class, "
            f"such as --class {quote(str(fitted.classes[0]))}"
        )


def find_class(fitted: Fitted, named: str) -> Label:
    """Return the label of the class that was named on the command line."""
    if fitted.n_outputs == 1:
        raise ValueError(f"--class {named}: the model has one score, so there is no class to choose")
    found = [label for label in fitted.classes or () if named in (str(label), str(label).lower())]
    if not found:
        raise ValueError(f"--class {named}: the classes of the model are {listed(fitted.classes or ())}")
    return found[0]


def cross_text(described: dict[str, Any]) -> str:
    """Say what a cross consists of, from its description.

    Examples
    --------
    >>> cross_text({"combinations": 12, "functions": [[7], [15]], "buckets": None})
    '12 combinations × 7 + 15 functions'
    >>> cross_text({"combinations": None, "functions": [[7, 7]], "buckets": None})
    '7 by 7 functions'
    """
    counted = "buckets" if described["buckets"] else "combinations"
    combinations = f"{described['combinations']:,} {counted}" if described["combinations"] is not None else ""
    sizes = " + ".join(" by ".join(map(str, level)) for level in described["functions"])
    return " × ".join(part for part in (combinations, f"{sizes} functions" if sizes else "") if part)


def _describe_training(fitted: Fitted) -> dict[str, Any]:
    settings = {name: getattr(fitted.training, name) for name in setting_types("Training")}
    return {name: dict(value) if isinstance(value, tuple) else value for name, value in settings.items()}


def _file_format(path: Path) -> tuple[int, str]:
    """Return the number of the format and the version that wrote a file, which has been loaded before."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    description = json.loads(header["__metadata__"]["splinefm"])
    return int(description["format"]), str(description["version"])
