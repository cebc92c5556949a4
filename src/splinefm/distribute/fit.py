"""Fit and update a model on several ranks: what `fit_model` and `Learner` do on one machine."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from splinefm._parallel import count_threads
from splinefm.distribute.checkpoints import Checkpoints
from splinefm.distribute.feed import Feed
from splinefm.distribute.ranks import Ranks, digest
from splinefm.distribute.results import pieces_for_first
from splinefm.distribute.rows import Rows, open_rows
from splinefm.distribute.sharded.model import ShardedModel
from splinefm.distribute.statistics import (
    Scan,
    collect_labels,
    collect_statistics,
    merge_labels,
    merge_statistics,
)
from splinefm.distribute.training import Job, RunState
from splinefm.encode.encoder import Encoder
from splinefm.encode.schema import Schema
from splinefm.learn.chunks import ValidationSample
from splinefm.learn.files.streaming import write_model
from splinefm.learn.fitted import Fitted
from splinefm.learn.losses import Loss
from splinefm.learn.penalties import make_groups
from splinefm.learn.progress import Progress
from splinefm.learn.runs import filled_penalties
from splinefm.learn.training import Chunk, Training
from splinefm.model.family import AnyModel, check_trainable

# The most validation rows of all ranks.
VALIDATION_ROWS = 2_000_000


@dataclass(frozen=True)
class RankFit:
    """What to fit on several ranks.

    Parameters
    ----------
    data : str or list of str
        Parquet files, folders or globs, which all ranks see.
    target : str
        The column to predict.
    out : Path
        The model file to write, or with `sharded` a folder.
    schema, model, loss
        As in `fit_model`.
    sample_weight : str, optional
        A column of weights.
    validation : float
        The share of rows that choose the best epoch.
    training : Training
        How to train. Refits, crosses, resolutions by column, averages and members are for one machine.
    optimizer : {"adagrad", "rowwise-adagrad", "adam"}
        The optimizer of large tables.
    checkpoints : Path, optional
        A folder that all ranks see; by default the name of the model file with ".checkpoints".
    minutes : float
        Time between two checkpoints.
    resume : bool
        Continue from the last checkpoint, if there is one.
    sharded : bool
        Write a folder of parts instead of one file.
    """

    data: str | Sequence[str]
    target: str
    out: Path
    schema: Schema
    model: AnyModel
    loss: Loss
    sample_weight: str | None = None
    validation: float = 0.1
    training: Training = Training()
    optimizer: str = "adagrad"
    checkpoints: Path | None = None
    minutes: float = 10.0
    resume: bool = False
    sharded: bool = False

    @property
    def folder(self) -> Path:
        """Where checkpoints are."""
        return self.checkpoints or self.out.with_name(self.out.name + ".checkpoints")


def fit_on_ranks(request: RankFit, ranks: Ranks, progress: Progress) -> RunState:
    """Fit a model on all ranks, and write it."""
    torch.set_num_threads(max(1, count_threads(request.training.threads) // ranks.local_size))
    with ranks.together():
        rows = open_rows(request.data)
        rows.check_ranks(ranks.size)
        check_trainable(request.model)
    ranks.check_same({"data": rows.fingerprint}, "files")
    training = filled_penalties(_on_ranks(request.training, ranks), request.schema)
    scan = _scan(request, rows, ranks)
    progress.begin("reading the table", rows.n_rows)
    encoder, loss, start, sample, n_held_out = _statistics(scan, rows, ranks, training)
    model = _make_model(request, encoder, loss, training, ranks, rows.n_rows - n_held_out)
    model.initialize(training.seed, start)
    progress.say(model.describe())
    job = _job(request, model, rows, scan, encoder, loss, training, sample, n_held_out, progress)
    state = (job.resume() if request.resume else None) or RunState()
    if state.step:
        progress.say(f"continuing from step {state.step:,} of epoch {state.epoch + 1}")
    state = job.train(state)
    fitted = Fitted(encoder, request.model, model.between(), loss, tuple(state.history), training)
    write_result(request, fitted, model)
    if request.checkpoints is None:
        job.checkpoints.remove()
    return state


def write_result(request: RankFit, head: Fitted, model: ShardedModel) -> None:
    """Write the model of all ranks."""
    pieces = pieces_for_first(model)
    with model.ranks.together():
        if model.ranks.first:
            write_model(request.out, head, pieces)
        else:
            list(pieces)


def _on_ranks(training: Training, ranks: Ranks) -> Training:
    """The settings, with threads for one of the ranks of this machine, and without what only one machine does."""
    threads = max(1, count_threads(training.threads) // ranks.local_size)
    return replace(
        training, threads=threads, average=False, refit_on_all=False, select_resolutions=False, crosses=None, members=1
    )


def _scan(request: RankFit, rows: Rows, ranks: Ranks) -> Scan:
    """What to collect: the classes of the target must be known before."""
    loss, most = request.loss, request.loss.most_classes
    if most and loss.classes is None:
        with ranks.together():
            shares = loss.name == "logistic"
            own = collect_labels(rows, request.target, ranks.rank, ranks.size, most=most, shares=shares)
        everyone = [json.loads(data) for data in ranks.gather(json.dumps(None if own is None else list(own)).encode())]
        with ranks.together():
            found = [None if labels is None else set(labels) for labels in everyone]
            loss = replace(loss, classes=merge_labels(found, request.target, most))
    return Scan(
        request.schema, loss, request.target, request.sample_weight, request.validation, request.training.seed
    )


def _statistics(
    scan: Scan, rows: Rows, ranks: Ranks, training: Training
) -> tuple[Encoder, Loss, float | np.ndarray, ValidationSample, int]:
    """Return encoder and loss of all rows, the best constant score, and the validation rows of this rank."""
    sample = ValidationSample(scan.validation, scan.seed, VALIDATION_ROWS // ranks.size)
    with ranks.together():
        own = collect_statistics(rows, scan, ranks.rank, ranks.size, threads=training.threads, keep=sample)
    everyone = [pickle.loads(data) for data in ranks.gather(pickle.dumps(own))]
    with ranks.together():
        whole = merge_statistics(everyone, rows.n_rows)
        encoder = whole.encoder()
        loss, start = whole.targets().fitted()
    sample.share = min(sample.share, float(-ranks.largest([-sample.share])[0]), whole.validation_share(VALIDATION_ROWS))
    sample.parts = [(r, b) for r, b in sample.parts]
    sample.limit(math.inf)
    return encoder, loss, start, sample, whole.validation_rows(VALIDATION_ROWS)


def _make_model(
    request: RankFit, encoder: Encoder, loss: Loss, training: Training, ranks: Ranks, n_rows: int
) -> ShardedModel:
    groups = make_groups(encoder, training)
    batch_size = training.rows_per_step(n_rows)
    return ShardedModel(request.model, encoder.layout, loss, groups, ranks, batch_size, request.optimizer)


def _job(
    request: RankFit,
    model: ShardedModel,
    rows: Rows,
    scan: Scan,
    encoder: Encoder,
    loss: Loss,
    training: Training,
    sample: ValidationSample,
    n_held_out: int,
    progress: Progress,
) -> Job:
    source = replace(scan, loss=loss).source(None)
    n_rows = rows.n_rows - n_held_out
    maker = model.batch_maker(encoder.feature_counts, encoder.n_rows)

    def encode(batch: object) -> Chunk:
        return source.encode(batch, encoder, loss, training.threads)

    validation = sample.encode(source, encoder, loss, training.threads)
    feed = Feed(scan.columns, encode, sample.has, maker, model.rows_per_rank, loss.floor)
    checkpoints = Checkpoints(request.folder, model.ranks)
    paced = training.for_fields(len(encoder.fields))
    return Job(model, rows, feed, paced, n_rows, validation, checkpoints, request.minutes, progress)
