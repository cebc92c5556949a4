"""Update a model on several processes: what `update_model` does on one machine."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._wording import setting
from splinefm.distribute.first_pass import FirstPass, check_validation, read_validation, run_first_pass
from splinefm.distribute.fit import (
    JobSettings,
    make_job,
    open_checkpoints,
    open_same_rows,
    run_facts,
    settings_for_process,
    train,
)
from splinefm.distribute.model import ParallelModel, adapt_penalties, first_penalties
from splinefm.distribute.processes import Processes
from splinefm.distribute.results import OldModel, open_old, set_tables
from splinefm.distribute.rows import ParquetRows
from splinefm.distribute.statistics import Scan
from splinefm.distribute.training import ADAGRAD_RATE, Job
from splinefm.distribute.update_state import OptimizerState, find_optimizer_state, write_with_state
from splinefm.encode.drift import Watch
from splinefm.encode.encoder import CHUNK, Encoder
from splinefm.train.fitted import Fitted
from splinefm.train.penalties import make_groups
from splinefm.train.progress import SILENT, Progress
from splinefm.train.results import Epoch
from splinefm.train.rows import Chunk, ValidationSample, as_share
from splinefm.train.settings import Training, seeded
from splinefm.update.files import DEFAULT_GUARD, UpdateReport, rejected_path, update_lock
from splinefm.update.guard import EvaluationSums, Guard, LossIncrease, UpdateRefused, Verdict, add_scores, make_verdict
from splinefm.update.learner import UPDATE_RATE

# Trial: an update on several processes under a guard, as `GuardedUpdate` of `update.guard` is on one machine.


class DistributedTrial:
    """One update under a guard: what the model said before it, and the rows of this process that judge it.

    Every process scores its own rows with the old model, whose tables are mapped into memory.
    """

    def __init__(
        self,
        guard: Guard,
        old: OldModel,  # the model before the update
        rows: ParquetRows,
        scan: Scan,
        held_out: ValidationSample,  # the rows of this process that are learned last
        others: ParquetRows | None,  # rows of other files, which judge the update in place of those that are held out
        processes: Processes,
        threads: int | None,  # threads of this process
    ) -> None:
        self.guard, self.processes, self.loss, self.threads = guard, processes, old.head.loss, threads
        self.source = scan.source(None)
        n_held_out = processes.sums([held_out.n_rows])[0]
        with processes.fail_together():
            score = old.table_scorer(threads=threads)
            new = EvaluationSums(self.loss, by_row=False)
            for batch in rows.table(*processes.part(rows.n_rows)).chunks(scan.columns, CHUNK):
                add_scores(new, score, self.source, batch)
            if others is None and n_held_out:
                judges = held_out
            else:
                judges = read_validation(rows if others is None else others, scan, processes)
            self._judges = [batch for _, batch in judges.parts if batch.num_rows]
            self._before = EvaluationSums(self.loss)
            for batch in self._judges:
                add_scores(self._before, score, self.source, batch)
        self.new, self.before = self._summed(new), self._summed(self._before)

    def judge(self, job: Job, encoder: Encoder) -> Verdict:
        """Compare the models before and after the update; all processes get the same verdict."""
        after = EvaluationSums(self.loss)
        with self.processes.fail_together():
            chunks = [self.source.encode(batch, encoder, self.loss, self.threads) for batch in self._judges]
        scores = _scores(job, chunks)
        with self.processes.fail_together():
            for batch, score in zip(self._judges, scores, strict=True):
                after.add(*self.source.targets(batch), score)
            rise = LossIncrease.between(self._before.row_losses, after.row_losses)
        found = LossIncrease(*self.processes.sums(rise).tolist())
        return make_verdict(self.guard, self.new, self.before, self._summed(after), found)

    def _summed(self, own: EvaluationSums) -> EvaluationSums:
        return EvaluationSums.from_array(self.loss, self.processes.sums(own.to_array()))


def _scores(job: Job, chunks: list[Chunk]) -> list[FloatArray]:
    """Scores of the chunks of this process; processes without rows take part with empty batches."""
    size, model = job.feed.size, job.model
    places = [(i, at) for i, chunk in enumerate(chunks) for at in range(0, len(chunk.y), size)]
    found: list[list[FloatArray]] = [[] for _ in chunks]
    for step in range(int(job.processes.maxima([len(places)])[0])):
        i, at = places[step] if step < len(places) else (0, 0)
        chunk = chunks[i] if step < len(places) else None
        n_rows = 0 if chunk is None else min(size, len(chunk.y) - at)
        batch = job.feed.batch(chunk, np.arange(at, at + n_rows))
        batch.total[:] = 1.0
        scores = model.evaluate(batch.to(job.processes.device))[:n_rows, 1:].double().cpu().numpy()
        if n_rows:
            found[i].append(scores[:, 0] if model.shape.outputs == 1 else scores)
    return [np.concatenate(parts) for parts in found]


def learn_held_out(job: Job, chunk: Chunk | None) -> None:
    """Take the steps of the rows that were held out, once the update is accepted; they are at most a million."""
    size, model, rate = job.feed.size, job.model, job.constant or 0.0
    n_rows = 0 if chunk is None else len(chunk.y)
    order = seeded(job.training.seed, model.dense.n_steps).permutation(n_rows)
    model.set_rate(rate, ADAGRAD_RATE * rate)
    for at in range(0, int(job.processes.maxima([n_rows])[0]), size):
        batch = job.feed.batch(chunk, order[at : at + size])
        batch.total[:] = job.processes.sums([float(batch.weight.sum())])[0]
        model.step(batch.to(job.processes.device))


def validation_files(guard: Guard) -> str:
    """Return the files of a guard whose `validation` is not a share."""
    if not isinstance(guard.validation, str):
        raise ValueError(
            f"on several processes, validation must be a share of the rows or Parquet files, got {guard!r}"
        )
    return guard.validation


def updated_epoch(head: Fitted, epoch: Epoch, verdict: Verdict | None) -> Epoch:
    """Return the entry of an update in the history, which continues the history of the model before it."""
    seconds = (head.history[-1].seconds if head.history else 0.0) + epoch.seconds
    judged = math.nan if verdict is None else verdict.after.loss
    return epoch._replace(epoch=len(head.history) + 1, validation_loss=judged, seconds=seconds)


# Update a model on several processes: what `update_model` does on one machine.


@dataclass(frozen=True)
class DistributedUpdate:
    """What to update on several processes."""

    model: Path  # a model file, or the folder of a sharded model
    data: str | Sequence[str]  # Parquet files, folders or globs with the new rows, which all processes see
    target: str  # the column to predict
    sample_weight: str | None = None  # a column of weights
    # When to refuse the update; a `validation` that is not a share is a path of Parquet files. None accepts
    # everything.
    guard: Guard | None = DEFAULT_GUARD
    training: Training | None = None  # how to train; as in the fit by default


def update_on_processes(
    request: DistributedUpdate, settings: JobSettings, processes: Processes, progress: Progress = SILENT
) -> UpdateReport:
    """Train a model for one pass over new rows, with features for new categories, and write it.

    The report has the loss of the old model on the new rows. Without a guard, nothing measures it, and each row
    is measured before the step that learns from it.

    Raises
    ------
    UpdateRefused
        On all processes, if the guard refuses the update. The refused model is kept beside the file, as by
        `update_model`.
    """
    began = time.perf_counter()
    with ExitStack() as stack:
        with processes.fail_together():
            if processes.first:
                stack.enter_context(update_lock(settings.out))
            old = open_old(request.model)
            kept = find_optimizer_state(request.model, old.identity, settings.optimizer, warn=processes.first)
        job, verdict = _run(request, old, kept, settings, processes, progress)
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
        steps=model.dense.n_steps,
        continued=kept is not None,
        verdict=verdict,
        seconds=time.perf_counter() - began,
    )


class _Updated(NamedTuple):
    """A job that is done, and its model without the tables."""

    job: Job
    fitted: Fitted


def _run(
    request: DistributedUpdate,
    old: OldModel,
    kept: OptimizerState | None,
    settings: JobSettings,
    processes: Processes,
    progress: Progress,
) -> tuple[_Updated, Verdict | None]:
    """Train on the new rows and judge the result; nothing is written yet."""
    head, guard = old.head, request.guard
    if guard is not None and guard.max_change is not None:
        bound = f"{setting('max_change')}={guard.max_change:g}"
        raise ValueError(f"{bound} is for updates on one machine: the tables of the models are on several processes")
    training = replace(settings_for_process(request.training or head.training, processes), average=False)
    rows = open_same_rows(request.data, processes)
    share = None if guard is None else as_share(guard.validation)
    others = None if guard is None or share is not None else open_same_rows(validation_files(guard), processes, 0)
    # Each update holds out other rows.
    seed = training.seed + (0 if kept is None else kept.n_steps)
    weights = request.sample_weight
    scan = Scan(head.encoder.schema, head.loss, request.target, weights, share or 0.0, seed, offset=head.offset)
    with processes.fail_together():  # before the pass over all rows
        if others is not None:
            check_validation(others, scan)
    checkpoints = open_checkpoints(settings, processes)
    progress.begin("reading the table", rows.n_rows)
    first_pass = run_first_pass(rows, scan, processes, settings.folder, training.threads or 1, settings.resume)
    trial = None
    if guard is not None:
        progress.begin("scoring the table", rows.n_rows)
        trial = DistributedTrial(guard, old, rows, scan, first_pass.sample, others, processes, training.threads)
    encoder = _extended(head, first_pass, processes)
    model = _start_model(old, kept, encoder, training, rows.n_rows, settings, processes)
    progress.say(model.describe())
    once = replace(training, epochs=1, patience=None)
    job = make_job(model, rows, scan, first_pass, encoder, once, checkpoints, settings, progress)
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


def _extended(head: Fitted, first_pass: FirstPass, processes: Processes) -> Encoder:
    """The encoder with features for new categories."""
    with processes.fail_together():
        watch = Watch(head.encoder)
        encoder = head.encoder.extended(first_pass.statistics.whole(), watch)
    if processes.first:
        watch.warn()
    return encoder


def _start_model(
    old: OldModel,
    kept: OptimizerState | None,
    encoder: Encoder,
    training: Training,
    n_rows: int,
    settings: JobSettings,
    processes: Processes,
) -> ParallelModel:
    """The model before the update on all processes, with the state of its optimizers if there is one."""
    head, size = old.head, training.rows_per_step(n_rows)
    with processes.fail_together():
        groups = make_groups(encoder, training)
    model = ParallelModel(head.model, encoder.layout, head.loss, groups, processes, size, settings.optimizer)
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
    """As in a `Learner`."""
    if not head.history:
        first_penalties(model)
        return
    noise = 1.0 if head.loss.has_floor else head.loss.dispersion(head.history[-1].train_loss)
    adapt_penalties(model, noise)
