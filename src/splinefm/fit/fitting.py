"""From a table to a `Fitted`: schema, encoder, chunks, search, training."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._wording import number_of
from splinefm.encode.interactions import InteractionCst
from splinefm.encode.schema import Schema, check_interactions
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.model.engine import EngineName, find_engine
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.field_weighted import FwFM
from splinefm.model.family.fm import FM
from splinefm.model.family.parameters import check_trainable, mean_model
from splinefm.model.family.separation import check_model_keeps, constrained
from splinefm.model.scores import predict_scores
from splinefm.search.columns import with_column
from splinefm.search.crosses import findings, with_findings, without_found
from splinefm.search.search import SearchResult, can_search, find_open_choices, search
from splinefm.search.setting import Setting
from splinefm.train.chunks import Chunks, prepare_chunks
from splinefm.train.fitted import Fitted
from splinefm.train.loop import rows_of_concurrent_refit, settings_for, train
from splinefm.train.losses import Loss, LossName, as_loss, find_root
from splinefm.train.offsets import as_offset
from splinefm.train.progress import Progress, make_progress
from splinefm.train.results import Callback, StopReason, StudySummary, TrainingResult
from splinefm.train.rows import Chunk, LabeledTable, as_share
from splinefm.train.settings import (
    MODEL_ARGUMENTS,
    Training,
    argument_places,
    check_columns,
    check_model,
    check_optional_schema,
    check_training,
    explain_unknown,
)
from splinefm.train.targets import Classes, ClassWeight

# The bias of a trained model, set so that the model is right on average.
#
# The parameters of a model are moving averages. The steps around an average move the vectors of a row together, and the
# product of two averages does not have what their products had in common: the scores of averages are shifted against
# those that training saw. The bias, which has no penalty, makes up for it.
#
# Slopes of the loss that add up to zero mean that predictions and targets have the same total, except with the gamma
# and Tweedie losses, whose slopes weigh rows by their predictions: a sum of predicted expenses could be 10 % too low.
# Totals count there, too, and the slopes of the Poisson loss, which has the same link, are used.

# The most rows that are scored, and the largest shift that is believed: beyond it, something else is wrong.
MAX_ROWS, LARGEST_SHIFT = 200_000, 4.0
# Rounds for the classes of a softmax, whose biases depend on each other; halvings of the interval of other shifts.
ROUNDS, HALVINGS = 10, 24


def center(model: AnyModel, params: Params, rows: Chunk, loss: Loss) -> Params:
    """Return the parameters with a bias for which the model is right on average over these rows."""
    some = np.arange(0, len(rows.y), max(1, -(-len(rows.y) // MAX_ROWS)))
    score = predict_scores(model, params, rows.slots[some]).astype(np.float64)
    shift = find_shift(loss, rows.y[some], score, rows.sample_weight[some])
    return params | {"bias": (params["bias"] + shift.reshape(params["bias"].shape)).astype(np.float32)}


def find_shift(loss: Loss, y: FloatArray, score: FloatArray, weight: FloatArray) -> FloatArray:
    """Return what to add to the scores, for each class, so that weighted slopes add up to zero; 0 if nothing does.

    Examples
    --------
    >>> y, score = np.array([0.0, 1.0, 1.0]), np.zeros(3)
    >>> find_shift(Loss("logistic"), y, score, np.ones(3)).round(3).tolist()  # log(2 / 1)
    0.693
    """
    return _shifts_of_classes(loss, y, score, weight) if score.ndim > 1 else np.array(_shift(loss, y, score, weight))


def _shift(loss: Loss, y: FloatArray, score: FloatArray, weight: FloatArray) -> float:
    totals = Loss("poisson") if loss.link == "log" else loss

    def total(by: float) -> float:
        return float(np.sum(weight * totals.slope(y, score + by)))

    ends = (total(-LARGEST_SHIFT), total(LARGEST_SHIFT))
    if not np.isfinite(ends).all() or np.sign(ends[0]) * np.sign(ends[1]) >= 0.0:  # tiny weights: no plain product
        return 0.0
    return find_root(total, -LARGEST_SHIFT, LARGEST_SHIFT, HALVINGS)


def _shifts_of_classes(loss: Loss, y: FloatArray, score: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the shifts of all classes: by turns, each moves by the logarithm of its share over the predicted one."""
    share = np.bincount(y.astype(np.int64), weight, score.shape[1])
    present, shift = share > 0.0, np.zeros(score.shape[1])
    for _ in range(ROUNDS):
        # The slopes are p - 1 for a row's class, else p.
        predicted = share + np.sum(weight[:, None] * loss.slope(y, score + shift), axis=0)
        if not np.isfinite(predicted).all() or (predicted[present] <= 0.0).any():
            return np.zeros_like(shift)
        shift[present] += np.log(share[present] / predicted[present])
    return shift if np.abs(shift).max() <= LARGEST_SHIFT else np.zeros_like(shift)


# From a table to a `Fitted`: schema, encoder, chunks, training.

# The time of an FwFM grows with the number of pairs of fields, so tables with more fields get another default model:
# decisions 34 and 36.
DEFAULT_MODEL, DEFAULT_OF_MANY, MAX_FIELDS_IN_PAIRS = FwFM(k=16, third=16), FM(k=16), 256
# The share of a time limit that the search takes at most (decision 105).
SEARCH_SHARE = 0.6
_SAME = {"random_state": "seed", "n_jobs": "threads"}
_ELSEWHERE = {**argument_places(Training, "training=sf.Training", _SAME), **MODEL_ARGUMENTS}


@dataclass(frozen=True)
class Task:
    """What to fit, and to what.

    Parameters
    ----------
    rows : LabeledTable
        The table to learn from, with its fields and its target.
    loss : Loss
        The loss to minimize.
    validation : float or Table
        The validation rows: a share of the table, or another table.
    training : Training
        How to train.
    class_weight : "balanced" or mapping of labels to numbers, optional
        See `fit_model`.
    labels : tuple of labels, optional
        What the targets 0, 1, ... stand for, if the caller has replaced labels by numbers.
    """

    rows: LabeledTable
    loss: Loss
    validation: float | Table
    training: Training
    class_weight: ClassWeight = None
    labels: Classes | None = None

    @property
    def schema(self) -> Schema:
        """The fields."""
        return self.rows.schema


class FitResult(NamedTuple):
    """A fitted model, and the encoded rows that it was fitted to; if the fit was stopped, why, and what was kept."""

    fitted: Fitted
    chunks: Chunks
    stop: StopReason | None = None
    kept: str = ""


@explain_unknown(_ELSEWHERE)
def fit_model(
    table: object,
    target: str,
    *,
    schema: Schema | None = None,
    model: AnyModel | None = None,
    loss: LossName | Loss = "logistic",
    sample_weight: str | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    validation: float | object = 0.1,
    training: Training | None = None,
    interaction_cst: InteractionCst = None,
    engine: EngineName | None = None,
    device: str | None = None,
    class_weight: ClassWeight = None,
    callbacks: Sequence[Callback] = (),
    verbose: bool = False,
) -> Fitted:
    """Fit a model to a table.

    A table that does not fit in memory is read and encoded again for every epoch.

    Parameters
    ----------
    table : table, path or dataset
        Anything that `open_table` takes and that can be read more than once.
    target : str
        The column to predict. It holds numbers; for the logistic loss, two labels of any kind or numbers between 0
        and 1; for softmax, two or more labels: text, integers or booleans.
    schema : Schema, optional
        The fields; inferred from the table by default.
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM, optional
        By default, the search chooses one: see `effort` of `Training`. It begins with FwFM(k=16, third=16), or with
        FM(k=16) for more than 256 fields, which are the defaults where nothing is searched.
    loss : {"logistic", "squared", "poisson", "gamma", "tweedie", "quantile", "huber", "softmax"} or Loss
        The loss to minimize; a `Loss` can have a parameter, such as `sf.Loss("quantile", quantile=0.9)`, or classes, of
        which some may have no rows. Softmax is for more than two classes, with a score for each.
    sample_weight : str, optional
        A column of weights, such as impressions if the target is the share of clicks.
    offset : str, optional
        A column that is added to the score, in training and in every prediction: in the unit of the target for losses
        that predict center + scale * score, in log-odds for the logistic loss, as a logarithm for the others.
    exposure : str, optional
        For the Poisson, gamma and Tweedie losses, instead of an offset: a positive column whose logarithm is added to
        the score, so that predictions are proportional to it.
    validation : float or table
        The rows that choose the best epoch: a share of the table (0 for none), or another table. At most 200,000
        rows or 128 MiB of encoded rows are used, spread over the whole table. Training uses all other rows.
    training : Training, optional
        How to train.
    interaction_cst : {"pairwise", "no_interactions"} or list of sets of str, optional
        Which columns may interact: pairs only, none, or the columns of the same set, where columns that are in no set
        form another one. The model keeps it exactly, and updates do; see `Schema.with_interactions`.
    engine : {"cpu", "torch"}, optional
        What computes the steps: the compiled loops, which are the default, or PyTorch.
    device : str, optional
        The device of the torch engine, such as "cuda"; see `Training`, which can have both settings, too.
    class_weight : "balanced" or mapping of labels to numbers, optional
        Weights of the classes under the logistic loss and softmax, in training and validation, multiplied by the
        sample weights. A class that is not named has weight 1. "balanced" gives all classes the same total weight. If
        the target is a share, the labels are 0 and 1.
    callbacks : list of callable, optional
        Functions that are called with an `Epoch` after every epoch, except during the search. If one returns
        True, the fit stops: the best epoch so far becomes the model, and no further run begins.
    verbose : bool
        Report progress on standard error: a live line on a terminal, plain lines elsewhere.

    Returns
    -------
    Fitted
        The fitted model. After Ctrl-C, it is the best one so far, and a warning says which; in the first epoch there is
        none yet, and KeyboardInterrupt is raised.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> len(fitted.history)
    2
    """
    check_columns(target, sample_weight)
    check_optional_schema(schema)
    check_model(model)
    check_training(training)
    called, given = check_callbacks(callbacks), as_loss(loss)
    opened = open_table(table)
    with make_progress(verbose) as progress:
        progress.begin("inspecting the columns")
        rows = LabeledTable.of(opened, target, sample_weight, schema, as_offset(offset, exposure, given))
        rows = rows.with_interactions(interaction_cst)
        task = Task(
            replace(rows, classes=given.classes),
            given,
            open_validation(validation),
            _on_engine(training or Training(), engine, device),
            _class_weight(given, class_weight),
        )
        result = fit_task(task, model, called, progress)
    if result.stop is StopReason.INTERRUPT:
        warnings.warn(f"interrupted: {result.kept}", stacklevel=3)  # beyond the decorator
    return result.fitted


def _on_engine(training: Training, engine: EngineName | None, device: str | None) -> Training:
    """Return the settings of training with the engine and the device that are given."""
    named: dict[str, Any] = {"engine": engine, "device": device}
    chosen = {name: value for name, value in named.items() if value is not None}
    for name, value in chosen.items():
        known = getattr(training, name)
        if known not in (value, getattr(Training, name)):
            raise ValueError(f"{name}={value!r} conflicts with Training({name}={known!r}); write it in one place")
    return replace(training, **chosen)


def _class_weight(loss: Loss, given: ClassWeight) -> ClassWeight:
    """Return the given class weights, or else the weights of a loss, such as another model's."""
    if loss.class_weights is None:
        return given
    if given is not None:
        raise ValueError(f"class_weight={given!r} conflicts with the class weights of the Loss; write it into the Loss")
    return dict(zip(loss.classes or (0, 1), loss.class_weights, strict=True))


def open_validation(validation: float | object) -> float | Table:
    """Return a share of rows as it is, and anything else as an open table."""
    share = as_share(validation)
    return open_table(validation) if share is None else share


def fit_task(
    task: Task,
    model: AnyModel | None,
    callbacks: Sequence[Callback],
    progress: Progress,
    study: StudySummary | None = None,
    found: SearchResult | None = None,
) -> FitResult:
    """Fit a model; if the user stops, return the best one so far. Nothing is searched if the setting is given."""
    begin = time.monotonic()
    given = without_found(task.training, task.schema, progress)
    given.check_fields(task.schema.names)
    check_trainable(model or default_model(task.schema))
    check_interactions(task.schema)
    if model is not None:
        check_model_keeps(model, task.schema)
    find_engine(given.engine, given.device)
    if found is None:
        chunks = prepare_chunks(task.rows, task.loss, task.validation, given, progress, task.class_weight)
        deadline = None if given.time_limit is None else begin + SEARCH_SHARE * given.time_limit
        found = find_setting(task.schema, model, chunks, given, deadline, progress)
    chunks, chosen = found.chunks, found.setting.model
    training = settings_for(found.setting.training, chunks.source.schema, chunks.encoder.n_rows)
    # Members that the search has fitted are fitted again if the user wants to hear of it, or by another engine.
    again = bool(callbacks) or training.engine != "cpu"
    callbacks = _with_limit(callbacks, given, begin)
    members, stop, kept = _train_members(found, training, given.members, again, callbacks, progress)
    first = members[0]
    evidence = with_column(first.evidence, chosen, first.params, chunks)
    chosen, params = mean_model(chosen, [each.params for each in members], chunks.encoder.layout)
    if training.refit_on_all and first.stop is None and (whole := chunks.whole()) is not None:
        params = center(chosen, params, whole, chunks.loss)
    training = replace(training, members=len(members)).on_any_machine()  # fewer members if the fit was stopped
    loss = chunks.loss if task.labels is None else replace(chunks.loss, classes=task.labels)
    encoder = with_findings(chunks.encoder, findings(chunks.source.schema, task.schema))
    known = (study, evidence, found.entries, chunks.source.offset)
    fitted = Fitted(encoder, chosen, params, loss, tuple(first.history), training, *known)
    return FitResult(fitted, chunks, stop, kept)


def find_setting(
    schema: Schema,
    model: AnyModel | None,
    chunks: Chunks,
    given: Training,
    deadline: float | None,
    progress: Progress,
) -> SearchResult:
    """Return the best setting that the search of a fit finds until the deadline, or the one to begin with."""
    n_fields = len(schema)
    base = Setting(schema, model or default_model(schema), given)
    if model is None and n_fields > MAX_FIELDS_IN_PAIRS:
        progress.say(f"model: {describe_default(schema)}")
    found = None
    if can_search(chunks, given):
        is_open = find_open_choices(schema, model, given)
        found = search(base, is_open, chunks, given, progress, deadline)
    if found is None:
        return SearchResult(base, chunks)
    progress.say(f"search: tried {number_of(len(found.entries), 'setting')}; chosen: {found.entries[0]}")
    for name, provenance in findings(found.chunks.source.schema, schema).items():
        progress.say(f"{name!r} {provenance.finding}")
    return found


def _train_members(
    found: SearchResult,
    training: Training,
    n_members: int | None,
    again: bool,
    callbacks: Sequence[Callback],
    progress: Progress,
) -> tuple[list[TrainingResult], StopReason | None, str]:
    """Return the trained members of the model; if the fit was stopped, why, and what was kept."""
    n = n_members or max(1, len(found.members))
    if found.is_interrupted:
        first = found.members[0] if found.members else found.of_sample()
        first = first._replace(stop=StopReason.INTERRUPT, kept="the best setting of the search so far is kept")
        return [first], first.stop, first.kept
    fitted = [] if again else found.members[:n]
    if n == len(fitted) > 1:
        return fitted, None, ""
    model, chunks = found.setting.model, found.chunks
    if fitted:
        first = _refit_on_all(model, chunks, fitted[0], training, callbacks, progress)
    else:
        first = _train_member(model, chunks, training, callbacks, progress)
    members = [first]
    if first.stop is not None:
        return members, first.stop, first.kept
    for i in range(1, n):
        own = replace(training, seed=training.seed + i)
        with progress.within(f"member {i + 1} of {n}"):
            try:
                member = _train_member(model, chunks, own, callbacks, progress)
            except KeyboardInterrupt:
                return members, StopReason.INTERRUPT, f"members kept: {i} of {n}"
        if member.stop is not None:
            return members, member.stop, f"members kept: {i} of {n}"
        members.append(member)
    return members, None, ""


def _train_member(
    model: AnyModel, chunks: Chunks, training: Training, callbacks: Sequence[Callback], progress: Progress
) -> TrainingResult:
    """Train on the training rows, and again on all rows if that is possible and requested."""
    all_rows = rows_of_concurrent_refit(model, chunks, training, callbacks)
    first = train(
        model,
        chunks,
        training,
        validation=chunks.validation,
        all_rows=all_rows,
        callbacks=callbacks,
        progress=progress,
    )
    return _refit_on_all(model, chunks, first, training, callbacks, progress)


def _refit_on_all(
    model: AnyModel,
    chunks: Chunks,
    first: TrainingResult,
    training: Training,
    callbacks: Sequence[Callback],
    progress: Progress,
) -> TrainingResult:
    """Return the parameters of a run on all rows, if requested and possible, with the history of the first run.

    No history tells how good they are, so the bias can be set right afterwards.
    """
    if first.stop is not None or not training.refit_on_all or (whole := chunks.whole()) is None:
        return first
    if first.refit_params is not None:
        return first._replace(params=first.refit_params, refit_params=None)
    with progress.within("all rows"):
        try:
            second = train(
                model,
                chunks,
                training,
                rows=whole,
                callbacks=callbacks,
                progress=progress,
                stop_after=first.last_tied_epoch,
                run="all rows",
            )
        except KeyboardInterrupt:
            return first.stopped_in_refit(StopReason.INTERRUPT)
    return first._replace(params=second.params) if second.stop is None else first.stopped_in_refit(second.stop)


def _with_limit(callbacks: Sequence[Callback], given: Training, begin: float) -> Sequence[Callback]:
    """Return the callbacks, with one more that ends a run when the time is up."""
    if given.time_limit is None:
        return callbacks
    end = begin + given.time_limit
    return [*callbacks, lambda epoch: time.monotonic() >= end]


def check_callbacks(callbacks: object) -> Sequence[Callback]:
    """Return the callbacks as a sequence; raise an error for anything else."""
    given: Any = callbacks
    if given is None:
        return ()
    if not isinstance(given, list | tuple) or not all(map(callable, given)):
        raise ValueError(f"callbacks must be a list of functions that take an Epoch, got {given!r}")
    return given


def default_model(schema: Schema) -> AnyModel:
    """Return the default model: FwFM(k=16, third=16), or FM(k=16) for more than 256 fields.

    Where that model cannot keep the constraints on interactions, it is FwFM(k=16).

    Examples
    --------
    >>> from splinefm.encode.fields.numerical import Numerical
    >>> some, many = (Schema([Numerical(f"x{i}") for i in range(n)]) for n in (40, 300))
    >>> default_model(some), default_model(many), default_model(some.with_interactions([{"x1", "x2"}]))
    (FwFM(k=16, third=16), FM(k=16), FwFM(k=16))
    """
    usual = DEFAULT_MODEL if len(schema) <= MAX_FIELDS_IN_PAIRS else DEFAULT_OF_MANY
    model: AnyModel = constrained(usual, schema)
    return model


def describe_default(schema: Schema) -> str:
    """Describe the default model, and say why it differs from the usual one if it does."""
    n_fields, model = len(schema), default_model(schema)
    if model not in (DEFAULT_MODEL, DEFAULT_OF_MANY):
        return f"{model}, which can keep apart columns that may not interact"
    if n_fields <= MAX_FIELDS_IN_PAIRS:
        return str(DEFAULT_MODEL)
    pairs = f"each of the {n_fields * (n_fields - 1) // 2:,} pairs of {n_fields:,} fields"
    return f"{DEFAULT_OF_MANY} instead of {DEFAULT_MODEL}, which has a weight for {pairs}"
