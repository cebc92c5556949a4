"""Trials: training runs at points of the search space, measured on the same validation rows."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from splinefm._cached import cached_property
from splinefm._wording import for_reader
from splinefm.encode.schema import Schema
from splinefm.learn import metrics
from splinefm.learn.fitting import Task, default_model, make_chunks
from splinefm.learn.losses import Loss
from splinefm.learn.refine.resolutions import Resolutions, free_columns, resolutions_of, select_resolutions
from splinefm.learn.rows.chunks import MEMORY_BYTES, Chunks
from splinefm.learn.runs import settings_for, train_part
from splinefm.learn.table_size import l2_strength, penalty_strength
from splinefm.learn.training import Epoch, Trained, Training
from splinefm.learn.tuning.space import OF_FIELDS, Base, TrialSettings
from splinefm.model.family import AnyModel
from splinefm.model.scores import predict_scores

LOSS = "loss"
_OF_NUMBERS: dict[str, Callable[..., float]] = {"rmse": metrics.rmse, "mae": metrics.mae, "r2": metrics.r2}
_OF_CLASSES: dict[str, Callable[..., float]] = {
    "auc": metrics.auc,
    "logloss": metrics.logloss,
    "normalized_entropy": metrics.normalized_entropy,
}
_OF_MANY_CLASSES: dict[str, Callable[..., float]] = {
    "auc": metrics.class_auc,
    "logloss": metrics.class_logloss,
    "accuracy": metrics.accuracy,
}
_MORE_IS_BETTER = ("auc", "r2", "accuracy")


class Metric:
    """The metric that trials are compared by.

    Parameters
    ----------
    name : str
        "loss", as `Loss.metric` reports it: for the squared loss, the root mean squared error; "auc", "logloss"
        or "normalized_entropy" for two classes; "auc", "logloss" or "accuracy" for more; "rmse", "mae" or "r2" for
        numbers.
    loss : Loss
        The loss that training minimizes.

    Examples
    --------
    >>> Metric("loss", Loss("squared")).label, Metric("auc", Loss("logistic")).maximize
    ('RMSE', True)
    """

    def __init__(self, name: str, loss: Loss) -> None:
        known = {"logistic": _OF_CLASSES, "softmax": _OF_MANY_CLASSES}.get(loss.name, _OF_NUMBERS)
        if name != LOSS and name not in known:
            raise ValueError(
                f"metric must be one of {', '.join([LOSS, *known])} with the {loss.name} loss, got {name!r}"
            )
        self.label = loss.metric_name if name == LOSS else name
        self.maximize = name in _MORE_IS_BETTER
        self._function = None if name == LOSS else known[name]

    @property
    def is_loss(self) -> bool:
        """Whether the metric follows from the validation loss of an epoch."""
        return self._function is None

    def of_epoch(self, epoch: Epoch, loss: Loss) -> float:
        """Return what pruning compares: the loss, negated if the metric is maximized."""
        value = loss.metric(epoch.validation_loss)
        return -value if self.maximize else value

    def of_run(self, model: AnyModel, trained: Trained, chunks: Chunks, threads: int | None) -> float:
        """Return the metric of the best epoch on the validation rows."""
        if self._function is None:
            return min(self.of_epoch(epoch, chunks.loss) for epoch in trained.history)
        assert chunks.validation is not None
        slots, y, weight = chunks.validation
        score = predict_scores(model, trained.params, slots, threads).astype(np.float64)
        loss = chunks.loss
        return self._function(loss.center + loss.scale * y, loss.predict(score), weight)


class Result(NamedTuple):
    """The result of a trial."""

    value: float
    best_epoch: int


class Experiment:
    """Runs trials of a task with the same validation rows; encodes the table once per schema.

    Parameters
    ----------
    task : Task
        What to fit, and to what.
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM, optional
        The model of the estimator; `default_model` by default.
    metric : str
        See `Metric`.
    """

    def __init__(self, task: Task, model: AnyModel | None, metric: str) -> None:
        self.task, self.metric = task, Metric(metric, task.loss)
        model = model or default_model(len(task.schema))
        task.training.check_fields(task.schema.names)
        self.chunks = make_chunks(
            task.source(), task.loss, task.validation, task.training, class_weight=task.class_weight
        )
        self._encoded: OrderedDict[str, Chunks] = OrderedDict({repr(task.schema): self.chunks})
        if self.chunks.validation is None:
            raise ValueError(
                "tuning compares trials on validation rows, but there are none; "
                + for_reader(
                    "increase validation, for example to 0.2, or pass an eval_set",
                    "increase --validation, for example to 0.2, or pass a file",
                )
            )
        rows = self.chunks.encoder.n_rows
        settings = TrialSettings(model, task.schema, settings_for(task.training, task.schema, rows))
        strengths = (penalty_strength(rows), l2_strength(rows))
        self.base = Base(settings, self.chunks.n_rows, lambda: self._resolutions, *strengths)

    @cached_property
    def _resolutions(self) -> Resolutions:
        """The result of `select_resolutions`; it is the same in other processes and in later calls."""
        settings, task = self.base.settings, self.task
        first = train_part(settings.model, self.chunks, settings.training)
        chunks, chosen = select_resolutions(settings.model, self.chunks, first, settings.training)
        if chosen.interrupted:
            raise KeyboardInterrupt
        return resolutions_of(chunks.encoder, free_columns(task.schema))

    def run(self, params: Mapping[str, Any], report: Callable[[Epoch], None]) -> Result:
        """Train at a point of the search space; `report` can raise an exception to stop."""
        settings = self.base.at(params)
        chunks = self._chunks(settings.schema)
        trained = train_part(settings.model, chunks, settings.training, [report])
        if trained.interrupted:
            raise KeyboardInterrupt
        best = min(trained.history, key=lambda epoch: epoch.validation_loss)
        return Result(self.metric.of_run(settings.model, trained, chunks, settings.training.threads), best.epoch)

    def fingerprint(self, space: Mapping[str, object]) -> dict[str, str]:
        """Return what must be the same for trials to be comparable, with short descriptions."""
        settings, validation = self.base.settings, self.chunks.validation
        assert validation is not None
        facts: dict[str, object] = {
            "model": type(settings.model).__name__,
            "loss": str(self.task.loss),
            "metric": self.metric.label,
            "target": self.task.target,
            "sample_weight": self.task.sample_weight,
            "rows": self.chunks.encoder.n_rows,
            "validation rows": len(validation.y),
            "class weights": self.chunks.loss.class_weights,
            "validation targets": _digest(validation.y.tobytes()),
            "target mean": ", ".join(f"{value:.6g}" for value in np.ravel(self.chunks.start)),
        }
        fixed = [name for name in self.base.names if name not in space and name not in OF_FIELDS]
        facts |= {name: self.base.start[name] for name in fixed} | {"seed": settings.training.seed}
        facts |= {f"space of {name}": entry for name, entry in space.items()}
        facts |= {f"field {item.name!r}": _digest(repr(item).encode()) for item in self.task.schema}
        return {name: str(fact) for name, fact in facts.items()}

    def _chunks(self, schema: Schema) -> Chunks:
        """Return the table as a schema encodes it; the most recent ones stay within the memory limit."""
        key = repr(schema)
        if key not in self._encoded:
            source = replace(self.chunks.source, schema=schema)
            self._encoded[key] = self.chunks.again(source, self.task.training)
        self._encoded.move_to_end(key)
        while len(self._encoded) > 1 and sum(map(_bytes, self._encoded.values())) > MEMORY_BYTES:
            self._encoded.popitem(last=False)
        return self._encoded[key]


def changed_settings(base: Base, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an estimator at a point of the search space."""
    settings = base.at(params)
    names = {item.name for item in fields(Training)}
    return {
        "model": settings.model,
        "schema": settings.schema,
        "select_resolutions": False,  # the schema has the resolutions
        **{name: getattr(settings.training, name) for name in params if name in names},
    }


def _bytes(chunks: Chunks) -> int:
    parts = [part for part in (chunks.kept, chunks.validation) if part is not None]
    return sum(part.slots.start.nbytes + part.slots.weight.nbytes for part in parts)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]
