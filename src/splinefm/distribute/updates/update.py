"""Update a model on several ranks: what `update_model` does on one machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from splinefm.distribute.fit import (
    RankSettings,
    for_ranks,
    make_job,
    open_checkpoints,
    open_same_rows,
    run_facts,
    train,
)
from splinefm.distribute.prepared import Prepared, check_validation, prepare
from splinefm.distribute.ranks import Ranks
from splinefm.distribute.results import OldModel, open_old, set_tables
from splinefm.distribute.sharded.model import ParallelModel
from splinefm.distribute.sharded.penalties import adapt_penalties, first_penalties
from splinefm.distribute.statistics import Scan
from splinefm.distribute.training import Job
from splinefm.distribute.updates.state import RankState, find_rank_state, write_with_state
from splinefm.distribute.updates.trial import RankTrial, judging_files, learn_held_out, updated_epoch
from splinefm.encode.drift import Watch
from splinefm.encode.encoder import Encoder
from splinefm.learn.fitted import Fitted
from splinefm.learn.loop.penalties import make_groups
from splinefm.learn.progress import SILENT, Progress
from splinefm.learn.rows.held_out import as_share
from splinefm.learn.training import Training
from splinefm.learn.updates.files import DEFAULT_GUARD, UpdateReport, alone, rejected_path
from splinefm.learn.updates.guard import Guard, UpdateRefused, Verdict
from splinefm.learn.updates.learner import UPDATE_RATE


@dataclass(frozen=True)
class RankUpdate:
    """What to update on several ranks.

    Parameters
    ----------
    model : Path
        A model file, or the folder of a sharded model.
    data : str or list of str
        Parquet files, folders or globs with the new rows, which all ranks see.
    target : str
        The column to predict.
    sample_weight : str, optional
        A column of weights.
    guard : Guard, optional
        When to refuse the update; a `validation` that is not a share is a path of Parquet files. None accepts
        everything.
    training : Training, optional
        How to train; as in the fit by default.
    """

    model: Path
    data: str | Sequence[str]
    target: str
    sample_weight: str | None = None
    guard: Guard | None = DEFAULT_GUARD
    training: Training | None = None


def update_on_ranks(
    request: RankUpdate, settings: RankSettings, ranks: Ranks, progress: Progress = SILENT
) -> UpdateReport:
    """Train a model for one pass over new rows, with features for new categories, and write it.

    The loss of the report is that of the old model on the new rows. Without a guard, nothing measures it, and each row
    is measured before the step that learns from it.

    Raises
    ------
    UpdateRefused
        On all ranks, if the guard refuses the update. The refused model is kept beside the file, as by `update_model`.
    """
    began = time.perf_counter()
    with ExitStack() as stack:
        with ranks.together():
            if ranks.first:
                stack.enter_context(alone(settings.out))
            old = open_old(request.model)
            kept = find_rank_state(request.model, old.identity, settings.optimizer, warn=ranks.first)
        job, verdict = _run(request, old, kept, settings, ranks, progress)
        fitted, model = job.fitted, job.job.model
        refused = verdict is not None and not verdict.accepted
        out = rejected_path(settings.out) if refused else settings.out
        write_with_state(out, settings.sharded, fitted, model, settings.optimizer)
        if settings.checkpoints is None:
            job.job.checkpoints.remove()
    if verdict is not None and refused:
        raise UpdateRefused(verdict, out)
    return UpdateReport(
        file=str(out),
        rows=fitted.encoder.n_rows - old.head.encoder.n_rows,
        loss=fitted.history[-1].train_loss if verdict is None else verdict.new.loss,
        new_features=fitted.encoder.layout.n_features - old.head.encoder.layout.n_features,
        steps=model.dense.number,
        continued=kept is not None,
        verdict=verdict,
        seconds=time.perf_counter() - began,
    )


class _Updated(NamedTuple):
    """A job that is done, and its model without the tables."""

    job: Job
    fitted: Fitted


def _run(
    request: RankUpdate,
    old: OldModel,
    kept: RankState | None,
    settings: RankSettings,
    ranks: Ranks,
    progress: Progress,
) -> tuple[_Updated, Verdict | None]:
    """Train on the new rows and judge the result; nothing is written yet."""
    head, guard = old.head, request.guard
    training = replace(for_ranks(request.training or head.training, ranks), average=False)
    rows = open_same_rows(request.data, ranks)
    share = None if guard is None else as_share(guard.validation)
    others = None if guard is None or share is not None else open_same_rows(judging_files(guard), ranks, 0)
    # Each update holds out other rows.
    seed = training.seed + (0 if kept is None else kept.number)
    scan = Scan(head.encoder.schema, head.loss, request.target, request.sample_weight, share or 0.0, seed)
    with ranks.together():  # before the pass over all rows
        if others is not None:
            check_validation(others, scan)
    checkpoints = open_checkpoints(settings, ranks)
    progress.begin("reading the table", rows.n_rows)
    prepared = prepare(rows, scan, ranks, settings.folder, training.threads or 1, settings.resume)
    trial = None
    if guard is not None:
        progress.begin("scoring the table", rows.n_rows)
        trial = RankTrial(guard, old, rows, scan, prepared.sample, others, ranks, training.threads)
    encoder = _extended(head, prepared, ranks)
    model = _start_model(old, kept, encoder, training, rows.n_rows, settings, ranks)
    progress.say(model.describe())
    once = replace(training, epochs=1, patience=None)
    job = make_job(model, rows, scan, prepared, encoder, once, checkpoints, settings, progress)
    job.run, job.constant = "update", UPDATE_RATE * job.training.learning_rate
    held_out, job.validation = job.validation, None  # those rows are learned at the end
    facts = {"the model before the update": old.identity[:16], "share of rows held out": f"{scan.validation:g}"}
    state = train(job, run_facts(head.model, once, settings) | facts, settings)
    verdict = None if trial is None else trial.judge(job, encoder)
    if verdict is None or verdict.accepted:
        learn_held_out(job, held_out)
    history = (*head.history, updated_epoch(head, state.history[-1], verdict))
    own = replace(training, threads=head.training.threads)
    fitted = replace(head, encoder=encoder, params=model.between(), history=history, training=own)
    return _Updated(job, fitted), verdict


def _extended(head: Fitted, prepared: Prepared, ranks: Ranks) -> Encoder:
    """The encoder with features for new categories."""
    with ranks.together():
        watch = Watch(head.encoder)
        encoder = head.encoder.extended(prepared.statistics.whole(), watch)
    if ranks.first:
        watch.warn()
    return encoder


def _start_model(
    old: OldModel,
    kept: RankState | None,
    encoder: Encoder,
    training: Training,
    n_rows: int,
    settings: RankSettings,
    ranks: Ranks,
) -> ParallelModel:
    """The model before the update on all ranks, with the state of its optimizers if there is one."""
    head, size = old.head, training.rows_per_step(n_rows)
    with ranks.together():
        groups = make_groups(encoder, training)
    model = ParallelModel(head.model, encoder.layout, head.loss, groups, ranks, size, settings.optimizer)
    _take_over(model, old, training.seed)
    if kept is None:
        _first_penalties_of_update(model, head)
    else:
        kept.restore(model)
    return model


def _take_over(model: ParallelModel, old: OldModel, seed: int) -> None:
    """Initial values for new features, and the values of the old model for all others."""
    outputs = model.shape.outputs
    model.initialize(seed, np.zeros(outputs))
    set_tables(model, old.read)
    model.set_between({n: v if outputs > 1 else v[None] for n, v in old.head.params.items()})


def _first_penalties_of_update(model: ParallelModel, head: Fitted) -> None:
    """As those of a `Learner`."""
    if not head.history:
        first_penalties(model)
        return
    noise = 1.0 if head.loss.has_floor else head.loss.dispersion(head.history[-1].train_loss)
    adapt_penalties(model, noise)
