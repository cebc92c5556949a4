"""From a table to a Fitted: schema, encoder, chunks, training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from splinefm.encode.inference import infer_schema
from splinefm.encode.schema import Schema
from splinefm.learn.chunks import Chunks, Source, prepare_chunks
from splinefm.learn.fitted import Fitted
from splinefm.learn.losses import Loss, LossName
from splinefm.learn.progress import SILENT, Progress, make_progress
from splinefm.learn.training import Chunk, Epoch, Trained, Training, make_groups, train
from splinefm.model.family import FFM, AnyModel, FwFM, Params

MANY_FIELDS = 20


def default_model(n_fields: int) -> AnyModel:
    """FFM(k=8) up to 20 fields, FwFM(k=16) beyond: the cost of an FFM grows with the square of the fields."""
    return FFM(k=8) if n_fields <= MANY_FIELDS else FwFM(k=16)


def fit_model(
    table: object,
    target: str,
    *,
    schema: Schema | None = None,
    model: AnyModel | None = None,
    loss: LossName = "logistic",
    sample_weight: str | None = None,
    validation: float | object = 0.1,
    training: Training | None = None,
    report: Callable[[Epoch], None] = lambda epoch: None,
    verbose: bool = False,
) -> Fitted:
    """Fit a model to a table; one that does not fit in memory is read and encoded anew for every epoch.

    Parameters
    ----------
    table : table, path or dataset
        Anything that `open_table` takes and that can be read more than once.
    target : str
        The column to predict: numbers; for the logistic loss two labels of any kind, or numbers from 0 to 1.
    schema : Schema, optional
        The fields; inferred from the table by default.
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM, optional
        FFM(k=8) up to 20 fields and FwFM(k=16) beyond by default.
    loss : {"logistic", "squared", "poisson"}
        What is minimized.
    sample_weight : str, optional
        A column of weights, such as impressions where the target is the share of clicks.
    validation : float or table
        The share of rows (0: none) or the table that chooses the best epoch. At most 200,000 rows are used, or 128 MiB
        of encoded ones, spread over the whole table; the rows that a share does not take are trained on.
    training : Training, optional
        How to train.
    report : callable, optional
        Called with every `Epoch`.
    verbose : bool
        Tell the progress on the standard error stream: a live line on a terminal, plain lines elsewhere.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> len(fitted.history)
    2
    """
    training = training or Training()
    with make_progress(verbose) as progress:
        progress.begin("looking at the columns")
        schema = schema or _without(infer_schema(table, target=target), sample_weight)
        training = training.with_penalties(schema.names)
        chunks = make_chunks(Source(schema, target, sample_weight, table), loss, validation, training, progress)
        chosen = model or default_model(len(schema))
        params, history = _train(chosen, chunks, training, report, progress)
    return Fitted(chunks.encoder, chosen, params, chunks.loss, tuple(history), training)


def make_chunks(
    source: Source, loss: LossName, validation: float | object, training: Training, progress: Progress = SILENT
) -> Chunks:
    """Everything that training needs of a table, for a loss by its name."""
    source = source.with_classes() if loss == "logistic" else source
    return prepare_chunks(source, Loss(loss, classes=source.classes), validation, training, progress)


def train_part(
    model: AnyModel,
    chunks: Chunks,
    training: Training,
    report: Callable[[Epoch], None] = lambda epoch: None,
    progress: Progress = SILENT,
) -> Trained:
    """Train on the rows that are not held out, and choose the best epoch by those that are."""
    options = {"validation": chunks.validation, "report": report, "progress": progress}
    return _run(model, chunks, training, chunks.n_rows, chunks.epoch, **options)


def _train(
    model: AnyModel, chunks: Chunks, training: Training, report: Callable[[Epoch], None], progress: Progress
) -> tuple[Params, list[Epoch]]:
    """Train on the rows that are not held out, and then perhaps on all."""
    first = train_part(model, chunks, training, report, progress)
    if first.interrupted or not training.refit or (whole := chunks.whole()) is None:
        return first.params, first.history
    best = min(first.history, key=lambda epoch: epoch.validation_loss)
    every = [whole]
    with progress.within("all rows"):
        try:
            options = {"progress": progress, "stop_after": best.epoch}
            second = _run(model, chunks, training, len(whole.y), lambda epoch: every, **options)
        except KeyboardInterrupt:
            return first.params, first.history
    return (first if second.interrupted else second).params, first.history


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


def _without(schema: Schema, name: str | None) -> Schema:
    fields = tuple(item for item in schema if item.name != name)
    return Schema(fields, {key: why for key, why in schema.reasons.items() if key != name})
