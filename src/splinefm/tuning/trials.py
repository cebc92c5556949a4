"""Trials: training runs at points of the search space, measured on the same validation rows."""

from __future__ import annotations

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from splinefm import metrics
from splinefm._arrays import Array
from splinefm._wording import for_reader
from splinefm.encode.schema import Provenance, Schema
from splinefm.fit.fitting import SEARCH_SHARE, Task, default_model, find_setting
from splinefm.model.engine import find_engine
from splinefm.model.family import AnyModel
from splinefm.model.family.parameters import check_trainable
from splinefm.model.family.separation import check_model_keeps
from splinefm.model.scores import predict_scores
from splinefm.search.crosses import without_found
from splinefm.search.race import Race, make_folds
from splinefm.search.search import SearchResult
from splinefm.search.setting import Setting
from splinefm.store.model_file import describe, restore
from splinefm.train.chunks import MEMORY_BYTES, Chunks, prepare_chunks
from splinefm.train.loop import settings_for, train
from splinefm.train.losses import Loss
from splinefm.train.progress import SILENT, Progress
from splinefm.train.results import Epoch, StopReason, TrainingResult
from splinefm.train.settings import penalties_by_field
from splinefm.tuning.space import OF_FIELDS, OF_TRAINING, Space

# The base of a study: the setting that a fit finds, and its form in the storage.


class StartingPoint(NamedTuple):
    """The setting that trials start from.

    Parameters
    ----------
    setting : Setting
        What the search of a fit has found, or the setting of the estimator if there was no search.
    n_members : int
        How many members the model of that fit has.
    """

    setting: Setting
    n_members: int = 1

    def describe(self, given: Schema) -> dict[str, Any]:
        """Return a description for JSON; fields that are as in the given schema are named only.

        A study that is resumed reads it: what a search finds can depend on its time limit and, in the last digit, on
        the machine.
        """
        schema, arrays = self.setting.schema, dict[str, Array]()
        known = {item.name: item for item in given.fields}
        described = {
            "fields": [
                item.name
                if known.get(item.name) == item
                else describe(item, f"fields/{i}", f"field {item.name!r}", arrays)
                for i, item in enumerate(schema.fields)
            ],
            "provenance": {
                name: each.to_dict() for name, each in schema.provenance.items() if given.provenance.get(name) != each
            },
            "model": describe(self.setting.model, "model", "the model", arrays),
            "training": describe(self.setting.training, "training", "the training", arrays),
            "members": self.n_members,
        }
        return {**described, "arrays": {name: array.tolist() for name, array in arrays.items()}}

    @classmethod
    def restore(cls, described: Mapping[str, Any], given: Setting) -> StartingPoint:
        """Return the starting point that was described, for the same schema; the machine is the given setting's."""
        arrays = {name: np.array(values, np.float64) for name, values in described["arrays"].items()}
        fields = [
            given.schema[item] if isinstance(item, str) else restore(item, arrays, "the study")
            for item in described["fields"]
        ]
        own = given.training
        training = replace(
            restore(described["training"], arrays, "the study"),
            threads=own.threads,
            engine=own.engine,
            device=own.device,
            time_limit=own.time_limit,
        )
        changed = {name: Provenance.from_dict(each) for name, each in described["provenance"].items()}
        schema = given.schema.having(fields, {**given.schema.provenance, **changed})
        model = restore(described["model"], arrays, "the study")
        return cls(Setting(schema, model, training), int(described["members"]))


# Trials: training runs at points of the search space, measured on the same validation rows.
#
# The first of them is the setting that a fit finds.

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

    def of_run(self, model: AnyModel, trained: TrainingResult, chunks: Chunks, threads: int | None) -> float:
        """Return the metric of the best epoch on the validation rows."""
        if self._function is None:
            return min(self.of_epoch(epoch, chunks.loss) for epoch in trained.history)
        assert chunks.validation is not None
        slots, y, weight = chunks.validation
        score = predict_scores(model, trained.params, slots, threads).astype(np.float64)
        loss = chunks.loss
        return self._function(loss.center + loss.scale * y, loss.predict(score), weight)


class TrialResult(NamedTuple):
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
        The model of the estimator. By default, the search of a fit chooses one, or it is `default_model`.
    metric : str
        See `Metric`.
    progress : Progress
        Where to report.

    Attributes
    ----------
    space : Space
        What trials can change. Until `start_from`, it begins with the setting of the estimator.
    """

    def __init__(self, task: Task, model: AnyModel | None, metric: str, progress: Progress = SILENT) -> None:
        self.task, self.model, self.metric, self.progress = task, model, Metric(metric, task.loss), progress
        self.training = without_found(task.training, task.schema, progress)
        self.training.check_fields(task.schema.names)
        check_trainable(model or default_model(task.schema))
        if model is not None:
            check_model_keeps(model, task.schema)
        find_engine(self.training.engine, self.training.device)
        self.chunks = prepare_chunks(task.rows, task.loss, task.validation, self.training, progress, task.class_weight)
        self._encoded: OrderedDict[str, Chunks] = OrderedDict({repr(task.schema): self.chunks})
        if self.chunks.validation is None:
            raise ValueError(
                "tuning compares trials on validation rows, but there are none; "
                + for_reader(
                    "increase validation, for example to 0.2, or pass an eval_set",
                    "increase --validation, for example to 0.2, or pass a file",
                )
            )
        self.given = Setting(task.schema, model or default_model(task.schema), self.training)
        self.found: SearchResult | None = None
        self.n_members = 1
        self.space = self._space(self.given)

    def find_base(self, deadline: float = math.inf) -> StartingPoint:
        """Return the setting that a fit finds; the search takes a part of the time until the deadline."""
        found = self.found = self._find(deadline)
        if found.is_interrupted:
            raise KeyboardInterrupt
        return StartingPoint(found.best, max(1, len(found.members) // max(1, len(found.parts))))

    def start_from(self, base: StartingPoint) -> None:
        """Make a base the first trial."""
        self.n_members = base.n_members
        self.space = self._space(base.setting)

    def run(self, params: Mapping[str, Any], report: Callable[[Epoch], None]) -> TrialResult:
        """Train at a point of the search space; `report` can raise an exception to stop."""
        setting = self.space.at(params)
        chunks = self._chunks(setting.schema)
        training = self._filled(setting).training
        trained = train(setting.model, chunks, training, validation=chunks.validation, callbacks=[report])
        if trained.stop is not None:
            raise KeyboardInterrupt
        best = min(trained.history, key=lambda epoch: epoch.validation_loss)
        return TrialResult(self.metric.of_run(setting.model, trained, chunks, self.training.threads), best.epoch)

    def fit(self, params: Mapping[str, Any]) -> SearchResult:
        """Return a point of the search space with as many members as the fit of the base has.

        The first of them is the run of the trial. If one is enough, nothing is fitted yet. The base is what a fit
        finds, which can be a mixture of several settings.
        """
        setting, is_compiled = self.space.at(params), self.training.engine == "cpu"
        if setting == self.space.base and is_compiled:  # a search fits by the compiled loops
            found = self.found or self._find()
            if found.is_interrupted or setting == self._filled(found.best):
                return found
        chunks = self._chunks(setting.schema)
        if self.n_members == 1 or chunks.kept is None or not is_compiled:
            return SearchResult(setting, chunks)
        first = train(setting.model, chunks, self._filled(setting).training, validation=chunks.validation)
        race = Race(chunks, self.training, SILENT)
        race.folds = make_folds(chunks, self.n_members, self.training.seed)
        try:
            if first.stop is None:
                race.run([setting], range(1, self.n_members))
        except KeyboardInterrupt:
            first = first._replace(stop=StopReason.INTERRUPT)
        is_interrupted = first.stop is not None
        others = [] if is_interrupted else [entrant.trained for entrant in race.results.values()]
        members = [first, *(trained for trained in others if trained is not None)]
        return SearchResult(setting, chunks, members, is_interrupted=is_interrupted)

    def fingerprint(self, distributions: Mapping[str, object]) -> dict[str, str]:
        """Return what must be the same for trials to be comparable, with short descriptions."""
        given, validation = self._space(self.given), self.chunks.validation
        assert validation is not None
        facts: dict[str, object] = {
            "model": "the choice of the search" if self.model is None else type(self.model).__name__,
            "loss": str(self.task.loss),
            "metric": self.metric.label,
            "target": self.task.rows.target,
            "sample_weight": self.task.rows.sample_weight,
            **({} if (offset := self.task.rows.offset) is None else {"offset": offset}),
            "rows": self.chunks.encoder.n_rows,
            "validation rows": len(validation.y),
            "class weights": self.chunks.loss.class_weights,
            "validation targets": _digest(validation.y.tobytes()),
            "target mean": ", ".join(f"{value:.6g}" for value in np.ravel(self.chunks.start)),
        }
        facts |= {name: given.start[name] for name in given.names if name not in OF_FIELDS and name != "model"}
        facts |= {name: getattr(self.training, name) for name in ("effort", "crosses", "members", "seed")}
        facts |= {f"space of {name}": entry for name, entry in distributions.items()}
        facts |= {f"field {item.name!r}": _digest(repr(item).encode()) for item in self.task.schema}
        return {name: str(fact) for name, fact in facts.items()}

    def _find(self, deadline: float = math.inf) -> SearchResult:
        begin, limit = time.monotonic(), self.training.time_limit or math.inf
        end = begin + SEARCH_SHARE * max(0.0, min(deadline - begin, limit))
        return find_setting(self.task.schema, self.model, self.chunks, self.training, end, self.progress)

    def _space(self, base: Setting) -> Space:
        return Space(self._filled(base), self.given, self.chunks.n_rows)

    def _filled(self, setting: Setting) -> Setting:
        """Return a setting with the defaults of the table filled in."""
        training = settings_for(setting.training, setting.schema, self.chunks.encoder.n_rows)
        return replace(setting, training=training)

    def _chunks(self, schema: Schema) -> Chunks:
        """Return the table as a schema encodes it; the most recent ones stay within the memory limit."""
        key = repr(schema)
        if key not in self._encoded:
            source = replace(self.chunks.source, schema=schema)
            self._encoded[key] = self.chunks.encode_again(source, self.training)
        self._encoded.move_to_end(key)
        while len(self._encoded) > 1 and sum(map(_bytes, self._encoded.values())) > MEMORY_BYTES:
            self._encoded.popitem(last=False)
        return self._encoded[key]


def settings_of_estimator(setting: Setting, n_members: int | None) -> dict[str, Any]:
    """Return the parameters of an estimator that fits a setting, without a search."""
    training = {name: getattr(setting.training, name) for name in OF_TRAINING}
    training |= {name: penalties_by_field(value) for name, value in training.items() if isinstance(value, tuple)}
    return {
        "model": setting.model,
        "schema": setting.schema,
        "effort": "fast",
        "time_limit": None,
        "members": n_members,
        **training,
    }


def _bytes(chunks: Chunks) -> int:
    parts = [part for part in (chunks.kept, chunks.validation) if part is not None]
    return sum(part.slots.start.nbytes + part.slots.weight.nbytes for part in parts)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]
