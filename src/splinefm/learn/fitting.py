"""From a table to a `Fitted`: schema, encoder, chunks, training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from splinefm.encode.inference import infer_schema
from splinefm.encode.schema import Schema
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.learn.chunks import Chunks, Source, prepare_chunks
from splinefm.learn.crosses import (
    MOST_CROSSES,
    candidates_for,
    find_candidates,
    loss_fall,
    split_halves,
    with_cross,
    with_reasons,
)
from splinefm.learn.fitted import Fitted
from splinefm.learn.labels import Classes, ClassWeight
from splinefm.learn.loop import train
from splinefm.learn.losses import Loss, LossName, as_loss
from splinefm.learn.penalties import make_groups, unsmoothed_fields
from splinefm.learn.progress import SILENT, Progress, make_progress
from splinefm.learn.resolutions import choose_resolutions, free_columns, levels_of, with_resolutions
from splinefm.learn.training import Callback, Chunk, Diverged, Epoch, FloatArray, Run, Trained, Training
from splinefm.learn.tuning.study import StudySummary
from splinefm.model.cpu import predict_scores
from splinefm.model.family import FM, AnyModel, FwFM, Params, check_members, check_trainable, mean_model

# The time of an FwFM grows with the number of pairs of fields, so tables with more fields get another default model.
# See docs/decisions.md.
DEFAULT_MODEL, DEFAULT_OF_MANY, MOST_FIELDS_IN_PAIRS = FwFM(k=16, third=16), FM(k=16), 256
# The most rows of a table that is trained on a second time, and the relative gain in validation loss that justifies
# more basis functions than before.
MOST_ROWS, MARGIN = 200_000, 0.002
# With fewer training rows, the halves are too small to tell crosses from noise.
FEWEST_ROWS = 1_000


@dataclass(frozen=True)
class Task:
    """What to fit, and to what; tables are open.

    Parameters
    ----------
    table : Table
        The table to learn from.
    target : str
        Its target column.
    sample_weight : str, optional
        Its column of weights.
    schema : Schema
        The fields.
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
    classes : tuple of labels, optional
        The labels in the target column, if they are known; some may have no rows.
    """

    table: Table
    target: str
    sample_weight: str | None
    schema: Schema
    loss: Loss
    validation: float | Table
    training: Training
    class_weight: ClassWeight = None
    labels: Classes | None = None
    classes: Classes | None = None

    def source(self, schema: Schema | None = None) -> Source:
        """Return the table with its columns, for this or another schema."""
        return Source(schema or self.schema, self.target, self.sample_weight, self.table, self.classes)


def fit_model(
    table: object,
    target: str,
    *,
    schema: Schema | None = None,
    model: AnyModel | None = None,
    loss: LossName | Loss = "logistic",
    sample_weight: str | None = None,
    validation: float | object = 0.1,
    training: Training | None = None,
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
        By default, FwFM(k=16, third=16), or FM(k=16) for more than 256 fields.
    loss : {"logistic", "squared", "poisson", "gamma", "tweedie", "quantile", "huber", "softmax"} or Loss
        The loss to minimize; a `Loss` can have a parameter, such as `sf.Loss("quantile", quantile=0.9)`, or classes, of
        which some may have no rows. Softmax is for more than two classes, with a score for each.
    sample_weight : str, optional
        A column of weights, such as impressions if the target is the share of clicks.
    validation : float or table
        The rows that choose the best epoch: a share of the table (0 for none), or another table. At most 200,000
        rows or 128 MiB of encoded rows are used, spread over the whole table. Training uses all other rows.
    training : Training, optional
        How to train.
    class_weight : "balanced" or mapping of labels to numbers, optional
        Weights of the classes under the logistic loss and softmax, in training and validation, multiplied by the
        sample weights. A class that is not named has weight 1. "balanced" gives all classes the same total weight. If
        the target is a share, the labels are 0 and 1.
    callbacks : list of callable, optional
        Functions that are called with an `Epoch` after every epoch of every run. If one returns True, the fit stops:
        the best epoch so far becomes the model, and no further run begins.
    verbose : bool
        Report progress on standard error: a live line on a terminal, plain lines elsewhere.

    Returns
    -------
    Fitted
        The fitted model.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> len(fitted.history)
    2
    """
    called, given = check_callbacks(callbacks), as_loss(loss)
    opened = open_table(table)
    with make_progress(verbose) as progress:
        progress.begin("inspecting the columns")
        schema = schema or infer_schema(opened, target=target).without(sample_weight)
        task = Task(
            opened,
            target,
            sample_weight,
            schema,
            given,
            open_validation(validation),
            training or Training(),
            _class_weight(given, class_weight),
            classes=given.classes,
        )
        return fit_task(task, model, called, progress)[0]


def _class_weight(loss: Loss, given: ClassWeight) -> ClassWeight:
    """Return the class weights of a loss, such as that of another model, or those that are given."""
    if loss.class_weights is None:
        return given
    if given is not None:
        raise ValueError(f"class_weight={given!r} is given beside a Loss with class weights; write it into the Loss")
    return dict(zip(loss.classes or (0, 1), loss.class_weights, strict=True))


def open_validation(validation: float | object) -> float | Table:
    """Return a share of rows as it is, and anything else as an open table."""
    return validation if isinstance(validation, float | int) else open_table(validation)


def fit_task(
    task: Task,
    model: AnyModel | None,
    callbacks: Sequence[Callback],
    progress: Progress,
    study: StudySummary | None = None,
) -> tuple[Fitted, Chunks]:
    """Fit a model; return it with the encoded rows that it was fitted to."""
    n_fields = len(task.schema)
    training = filled_penalties(task.training, task.schema)
    chosen = model or default_model(n_fields)
    check_trainable(chosen)
    check_members(chosen, training.members)
    chunks = make_chunks(task.source(), task.loss, task.validation, training, progress, task.class_weight)
    if model is None and n_fields > MOST_FIELDS_IN_PAIRS:
        progress.say(f"model: {describe_default(n_fields)}")
    trained = train_part(chosen, chunks, training, callbacks, progress)
    chunks, trained, training = add_crosses(chosen, chunks, trained, task, training, callbacks, progress)
    chunks, trained = select_resolutions(chosen, chunks, trained, training, task.validation, callbacks, progress)
    trained = _refit_on_all(chosen, chunks, trained, training, callbacks, progress)
    members = [trained.params]
    if not trained.interrupted:
        members += _more_members(chosen, chunks, training, callbacks, progress)
    chosen, params = mean_model(chosen, members, chunks.encoder.layout)
    training = replace(training, members=len(members))  # fewer if the fit was stopped
    loss = chunks.loss if task.labels is None else replace(chunks.loss, classes=task.labels)
    encoder = with_reasons(chunks.encoder, chunks.source.schema)
    return Fitted(encoder, chosen, params, loss, tuple(trained.history), training, study), chunks


def check_callbacks(callbacks: object) -> Sequence[Callback]:
    """Return the callbacks as a sequence; raise an error for anything else."""
    given: Any = callbacks
    if given is None:
        return ()
    if not isinstance(given, list | tuple) or not all(map(callable, given)):
        raise ValueError(f"callbacks must be a list of functions that take an Epoch, got {given!r}")
    return given


def default_model(n_fields: int) -> AnyModel:
    """Return the default model: FwFM(k=16, third=16), or FM(k=16) for more than 256 fields.

    Examples
    --------
    >>> default_model(40), default_model(5000)
    (FwFM(k=16, third=16), FM(k=16))
    """
    return DEFAULT_MODEL if n_fields <= MOST_FIELDS_IN_PAIRS else DEFAULT_OF_MANY


def describe_default(n_fields: int) -> str:
    """Describe the default model, and say why it differs from the usual one if it does."""
    if n_fields <= MOST_FIELDS_IN_PAIRS:
        return str(DEFAULT_MODEL)
    pairs = f"each of the {n_fields * (n_fields - 1) // 2:,} pairs of {n_fields:,} fields"
    return f"{DEFAULT_OF_MANY} instead of {DEFAULT_MODEL}, which has a weight for {pairs}"


def make_chunks(
    source: Source,
    loss: Loss,
    validation: float | object,
    training: Training,
    progress: Progress = SILENT,
    class_weight: ClassWeight = None,
) -> Chunks:
    """Return everything that training needs from a table."""
    if not loss.most_classes and class_weight is not None:
        raise ValueError(f"class_weight requires the logistic loss or softmax, got {loss.name}; use sample_weight")
    if loss.most_classes and source.classes is None:
        source = source.with_classes(loss.most_classes, shares=loss.name == "logistic")
    weights = source.find_class_weights(class_weight)
    source = replace(source, class_weights=weights)
    return prepare_chunks(
        source, replace(loss, classes=source.classes, class_weights=weights), validation, training, progress
    )


def train_part(
    model: AnyModel,
    chunks: Chunks,
    training: Training,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
    run: Run = "first",
) -> Trained:
    """Train on the training rows, and choose the best epoch on the validation rows."""
    options = {"validation": chunks.validation, "callbacks": callbacks, "progress": progress, "run": run}
    return _run(model, chunks, training, chunks.n_rows, chunks.epoch, **options)


def select_resolutions(
    model: AnyModel,
    chunks: Chunks,
    first: Trained,
    training: Training,
    validation: float | object,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
) -> tuple[Chunks, Trained]:
    """Train again with the resolutions by column that the first run suggests, and return the better of the two.

    Returns the first run if no resolutions were inferred, without validation rows, and for large tables: a second run
    on them takes long, and with many rows fine resolutions do no harm.
    """
    source, names = chunks.source, free_columns(chunks.source.schema)
    is_small = chunks.kept is not None and chunks.n_rows <= MOST_ROWS
    if not (training.select_resolutions and names and is_small) or chunks.validation is None or first.interrupted:
        return chunks, first
    levels = levels_of(chunks.encoder, names)
    chosen = choose_resolutions(levels, model, first.params, chunks.validation, chunks.loss, chunks.start)
    schema = with_resolutions(source.schema, chosen)
    if schema == source.schema:
        return chunks, first
    with progress.within("resolutions by column"):
        try:
            # The loss has the classes and class weights of the first run.
            other = prepare_chunks(replace(source, schema=schema), chunks.loss, validation, training, progress)
            second = train_part(model, other, training, callbacks, progress, "by column")
        except (KeyboardInterrupt, Diverged) as error:
            return chunks, first._replace(interrupted=isinstance(error, KeyboardInterrupt))
    if second.interrupted:
        return chunks, first._replace(interrupted=True)
    before, after = (best_epoch(trained).validation_loss for trained in (first, second))
    is_simpler = other.encoder.layout.n_features < chunks.encoder.layout.n_features
    return (other, second) if before - after > (0.0 if is_simpler else MARGIN * abs(before)) else (chunks, first)


def filled_penalties(training: Training, schema: Schema) -> Training:
    """Return the settings of training with the default penalties of all fields filled in."""
    return training.with_penalties(schema.names, unsmoothed=unsmoothed_fields(schema.resolved))


def add_crosses(
    model: AnyModel,
    chunks: Chunks,
    first: Trained,
    task: Task,
    training: Training,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
) -> tuple[Chunks, Trained, Training]:
    """Look for crosses, and train again with those that lower the loss of held-out rows; see `Training`."""
    unchanged = (chunks, first, training)
    names = candidates_for(chunks.source.schema, training.crosses)
    is_small = chunks.kept is not None and FEWEST_ROWS <= chunks.n_rows <= MOST_ROWS
    if len(names) < 2 or not is_small or chunks.validation is None or first.interrupted:
        return unchanged
    with progress.within("crosses"):
        try:
            found = _find_crosses(model, chunks, names, task, training, progress)
            if found is None:
                return unchanged
            other, training = found
            second = train_part(model, other, training, callbacks, progress, "crosses")
        except (KeyboardInterrupt, Diverged) as error:
            return chunks, first._replace(interrupted=isinstance(error, KeyboardInterrupt)), unchanged[2]
    if second.interrupted:
        return chunks, first._replace(interrupted=True), unchanged[2]
    return other, second, training


def _find_crosses(
    model: AnyModel, chunks: Chunks, names: Sequence[str], task: Task, training: Training, progress: Progress
) -> tuple[Chunks, Training] | None:
    """Return the rows encoded with the crosses that help, or None if none do."""
    assert chunks.kept is not None and chunks.validation is not None
    halves = split_halves(chunks.kept, training.seed)
    judged = (halves.judged, chunks.validation)
    before = _train_half(model, chunks, halves.learned, training, progress)
    candidates = find_candidates(chunks, halves, model, before, names, training.seed)
    most = MOST_CROSSES if training.crosses == "auto" else int(training.crosses or 0)
    scores = _scores(model, before, judged)
    best: tuple[Chunks, Training] | None = None
    for candidate in candidates[:most]:
        schema = with_cross(chunks.source.schema if best is None else best[0].source.schema, candidate)
        penalties = filled_penalties(task.training, schema)
        other = prepare_chunks(replace(chunks.source, schema=schema), chunks.loss, task.validation, penalties, progress)
        if other.kept is None or other.validation is None:
            break
        halves = split_halves(other.kept, training.seed)
        after = _train_half(model, other, halves.learned, penalties, progress)
        new = _scores(model, after, (halves.judged, other.validation))
        fall = loss_fall(chunks.loss, judged, scores, new)
        if fall > 0.0:
            other.source = replace(other.source, schema=with_cross(schema, candidate, fall))
            best, scores = (other, penalties), new
    return best


def _scores(model: AnyModel, params: Params, judged: Sequence[Chunk]) -> list[FloatArray]:
    return [predict_scores(model, params, chunk.slots).astype(np.float64) for chunk in judged]


def _train_half(model: AnyModel, chunks: Chunks, half: Chunk, training: Training, progress: Progress) -> Params:
    trained = _run(
        model,
        chunks,
        training,
        len(half.y),
        lambda epoch: [half],
        validation=chunks.validation,
        progress=progress,
        run="half",
    )
    if trained.interrupted:
        raise KeyboardInterrupt
    return trained.params


def best_epoch(trained: Trained) -> Epoch:
    """Return the epoch whose parameters were kept."""
    return min(trained.history, key=lambda epoch: epoch.validation_loss)


def _refit_on_all(
    model: AnyModel,
    chunks: Chunks,
    first: Trained,
    training: Training,
    callbacks: Sequence[Callback],
    progress: Progress,
) -> Trained:
    """Return the parameters of a run on all rows, if requested and possible, with the history of the first run."""
    if first.interrupted or not training.refit_on_all or (whole := chunks.whole()) is None:
        return first
    every = [whole]
    with progress.within("all rows"):
        try:
            last = best_epoch(first).epoch
            options = {"progress": progress, "stop_after": last, "callbacks": callbacks, "run": "all rows"}
            second = _run(model, chunks, training, len(whole.y), lambda epoch: every, **options)
        except KeyboardInterrupt:
            return first._replace(interrupted=True)
    return first._replace(interrupted=True) if second.interrupted else first._replace(params=second.params)


def _more_members(
    model: AnyModel, chunks: Chunks, training: Training, callbacks: Sequence[Callback], progress: Progress
) -> Iterator[Params]:
    """Yield the parameters of all members but the first; none after one that was stopped."""
    for i in range(1, training.members):
        own = replace(training, seed=training.seed + i)
        with progress.within(f"member {i + 1} of {training.members}"):
            try:
                trained = train_part(model, chunks, own, callbacks, progress)
            except KeyboardInterrupt:
                return
            trained = _refit_on_all(model, chunks, trained, own, callbacks, progress)
        if trained.interrupted:
            return
        yield trained.params


def _run(
    model: AnyModel,
    chunks: Chunks,
    training: Training,
    rows: int,
    epoch: Callable[[int], Iterable[Chunk]],
    **options: Any,
) -> Trained:
    groups = make_groups(chunks.encoder, training)
    return train(
        model, chunks.encoder.layout, groups, epoch, rows, chunks.loss, training, start=chunks.start, **options
    )
