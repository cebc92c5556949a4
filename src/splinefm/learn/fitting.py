"""From a table to a Fitted: schema, encoder, chunks, training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from splinefm.encode.inference import infer_schema
from splinefm.encode.schema import Schema
from splinefm.learn.chunks import Chunks, Source, prepare_chunks
from splinefm.learn.fitted import Fitted
from splinefm.learn.losses import Loss, LossName
from splinefm.learn.progress import SILENT, Progress, make_progress
from splinefm.learn.resolutions import choose_resolutions, free_columns, levels_of, with_resolutions
from splinefm.learn.training import Chunk, Diverged, Epoch, Trained, Training, make_groups, train
from splinefm.model.family import AnyModel, FwFM, Params

# Where none is given: see docs/decisions.md.
DEFAULT_MODEL: AnyModel = FwFM(k=16)
# Tables that are trained on a second time, and what that must gain with more basis functions than before.
MOST_ROWS, MARGIN = 200_000, 0.002


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
        FwFM(k=16) by default.
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
        chosen = model or DEFAULT_MODEL
        trained = train_part(chosen, chunks, training, report, progress)
        chunks, trained = select_resolutions(chosen, chunks, trained, training, validation, report, progress)
        params, history = _refit_on_all(chosen, chunks, trained, training, progress)
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


def select_resolutions(
    model: AnyModel,
    chunks: Chunks,
    first: Trained,
    training: Training,
    validation: float | object,
    report: Callable[[Epoch], None] = lambda epoch: None,
    progress: Progress = SILENT,
) -> tuple[Chunks, Trained]:
    """Train once more with resolutions by column, as the first run suggests them; what is better of the two.

    Nothing is done where no resolutions were inferred, where there is no validation part, and for large tables: there
    the time of a second run is long, and many rows bear fine resolutions anyway.
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
            other = make_chunks(replace(source, schema=schema), chunks.loss.name, validation, training, progress)
            second = train_part(model, other, training, report, progress)
        except (KeyboardInterrupt, Diverged) as error:
            return chunks, first._replace(interrupted=isinstance(error, KeyboardInterrupt))
    if second.interrupted:
        return chunks, first._replace(interrupted=True)
    before, after = (best_epoch(trained).validation_loss for trained in (first, second))
    is_simpler = other.encoder.layout.n_rows < chunks.encoder.layout.n_rows
    return (other, second) if before - after > (0.0 if is_simpler else MARGIN * abs(before)) else (chunks, first)


def best_epoch(trained: Trained) -> Epoch:
    """The epoch whose parameters were kept."""
    return min(trained.history, key=lambda epoch: epoch.validation_loss)


def _refit_on_all(
    model: AnyModel, chunks: Chunks, first: Trained, training: Training, progress: Progress
) -> tuple[Params, list[Epoch]]:
    """Train on all rows, if that is wanted and possible."""
    if first.interrupted or not training.refit_on_all or (whole := chunks.whole()) is None:
        return first.params, first.history
    every = [whole]
    with progress.within("all rows"):
        try:
            options = {"progress": progress, "stop_after": best_epoch(first).epoch}
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
