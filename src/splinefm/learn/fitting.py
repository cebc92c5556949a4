"""From a table to a Fitted: schema, encoder, chunks, training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from splinefm.encode.inference import infer_schema
from splinefm.encode.schema import Schema
from splinefm.encode.tables.open import open_table
from splinefm.learn.chunks import Chunks, Source, prepare_chunks
from splinefm.learn.fitted import Fitted
from splinefm.learn.labels import ClassWeight
from splinefm.learn.losses import Loss, LossName
from splinefm.learn.progress import SILENT, Progress, make_progress
from splinefm.learn.resolutions import choose_resolutions, free_columns, levels_of, with_resolutions
from splinefm.learn.training import Callback, Chunk, Diverged, Epoch, Run, Trained, Training, make_groups, train
from splinefm.model.family import FM, AnyModel, FwFM, Params

# The time of an FwFM grows with the pairs of fields; with more fields than these the other model is the default. See
# docs/decisions.md.
DEFAULT_MODEL, DEFAULT_OF_MANY, MOST_FIELDS_IN_PAIRS = FwFM(k=16), FM(k=16), 256
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
    class_weight: ClassWeight = None,
    callbacks: Sequence[Callback] = (),
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
        `default_model` of the number of fields by default: FwFM(k=16), for more than 256 fields FM(k=16).
    loss : {"logistic", "squared", "poisson"}
        What is minimized.
    sample_weight : str, optional
        A column of weights, such as impressions where the target is the share of clicks.
    validation : float or table
        The share of rows (0: none) or the table that chooses the best epoch. At most 200,000 rows are used, or 128 MiB
        of encoded ones, spread over the whole table; the rows that a share does not take are trained on.
    training : Training, optional
        How to train.
    class_weight : "balanced" or mapping of labels to numbers, optional
        For the logistic loss: what the rows of a class count, in training and validation, on top of their weights. A
        class that is not named counts 1. "balanced" makes both count the same in all. The target may be shares: then
        0 and 1 are the labels.
    callbacks : list of callable, optional
        Each is called with the `Epoch` after every epoch, in all runs. One that returns True ends the fit: the best
        epoch so far is the model, and no other run begins.
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
    return fit_chunks(
        table, target, schema, model, loss, sample_weight, validation, training, class_weight, callbacks, verbose
    )[0]


def fit_chunks(
    table: object,
    target: str,
    schema: Schema | None,
    model: AnyModel | None,
    loss: LossName,
    sample_weight: str | None,
    validation: float | object,
    training: Training | None,
    class_weight: ClassWeight,
    callbacks: Sequence[Callback],
    verbose: bool,
) -> tuple[Fitted, Chunks]:
    """What `fit_model` does, with the encoded rows that the model was fitted to."""
    training, callbacks = training or Training(), check_callbacks(callbacks)
    table = open_table(table)  # once: a DataFrame with thousands of columns takes a second to convert
    with make_progress(verbose) as progress:
        progress.begin("looking at the columns")
        schema = schema or infer_schema(table, target=target).without(sample_weight)
        training = training.with_penalties(schema.names)
        source = Source(schema, target, sample_weight, table)
        chunks = make_chunks(source, loss, validation, training, progress, class_weight)
        chosen = model or default_model(len(schema))
        if model is None and len(schema) > MOST_FIELDS_IN_PAIRS:
            progress.say(f"model: {describe_default(len(schema))}")
        trained = train_part(chosen, chunks, training, callbacks, progress)
        chunks, trained = select_resolutions(chosen, chunks, trained, training, validation, callbacks, progress)
        params, history = _refit_on_all(chosen, chunks, trained, training, callbacks, progress)
    return Fitted(chunks.encoder, chosen, params, chunks.loss, tuple(history), training), chunks


def check_callbacks(callbacks: object) -> Sequence[Callback]:
    """The callbacks, if that is what they are."""
    given: Any = callbacks
    if given is None:
        return ()
    if not isinstance(given, list | tuple) or not all(map(callable, given)):
        raise ValueError(f"callbacks must be a list of functions that take an Epoch, got {given!r}")
    return given


def default_model(n_fields: int) -> AnyModel:
    """The model where none is given: FwFM(k=16), for more than 256 fields FM(k=16).

    Examples
    --------
    >>> default_model(40), default_model(5000)
    (FwFM(k=16), FM(k=16))
    """
    return DEFAULT_MODEL if n_fields <= MOST_FIELDS_IN_PAIRS else DEFAULT_OF_MANY


def describe_default(n_fields: int) -> str:
    """The default model, and why it is not the usual one where it is not."""
    if n_fields <= MOST_FIELDS_IN_PAIRS:
        return str(DEFAULT_MODEL)
    pairs = f"each of the {n_fields * (n_fields - 1) // 2:,} pairs of {n_fields:,} fields"
    return f"{DEFAULT_OF_MANY} instead of {DEFAULT_MODEL}, which has a weight for {pairs}"


def make_chunks(
    source: Source,
    loss: LossName,
    validation: float | object,
    training: Training,
    progress: Progress = SILENT,
    class_weight: ClassWeight = None,
) -> Chunks:
    """Everything that training needs of a table, for a loss by its name."""
    if loss != "logistic" and class_weight is not None:
        raise ValueError(f"class_weight is for the logistic loss, and the loss is {loss}; use sample_weight")
    source = source.with_classes() if loss == "logistic" else source
    weights = source.find_class_weights(class_weight)
    source = replace(source, class_weights=weights)
    return prepare_chunks(
        source, Loss(loss, classes=source.classes, class_weights=weights), validation, training, progress
    )


def train_part(
    model: AnyModel,
    chunks: Chunks,
    training: Training,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
    run: Run = "first",
) -> Trained:
    """Train on the rows that are not held out, and choose the best epoch by those that are."""
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
            # Classes and their weights are those of the first run.
            other = prepare_chunks(replace(source, schema=schema), chunks.loss, validation, training, progress)
            second = train_part(model, other, training, callbacks, progress, "by column")
        except (KeyboardInterrupt, Diverged) as error:
            return chunks, first._replace(interrupted=isinstance(error, KeyboardInterrupt))
    if second.interrupted:
        return chunks, first._replace(interrupted=True)
    before, after = (best_epoch(trained).validation_loss for trained in (first, second))
    is_simpler = other.encoder.layout.n_features < chunks.encoder.layout.n_features
    return (other, second) if before - after > (0.0 if is_simpler else MARGIN * abs(before)) else (chunks, first)


def best_epoch(trained: Trained) -> Epoch:
    """The epoch whose parameters were kept."""
    return min(trained.history, key=lambda epoch: epoch.validation_loss)


def _refit_on_all(
    model: AnyModel,
    chunks: Chunks,
    first: Trained,
    training: Training,
    callbacks: Sequence[Callback],
    progress: Progress,
) -> tuple[Params, list[Epoch]]:
    """Train on all rows, if that is wanted and possible."""
    if first.interrupted or not training.refit_on_all or (whole := chunks.whole()) is None:
        return first.params, first.history
    every = [whole]
    with progress.within("all rows"):
        try:
            last = best_epoch(first).epoch
            options = {"progress": progress, "stop_after": last, "callbacks": callbacks, "run": "all rows"}
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
