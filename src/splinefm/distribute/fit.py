"""Fit a model on several processes: what `fit_model` does on one machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from splinefm._parallel import count_threads
from splinefm._wording import for_reader, setting
from splinefm.distribute.batches import Feed
from splinefm.distribute.checkpoints import Checkpoints
from splinefm.distribute.first_pass import FirstPass, check_validation, read_validation, run_first_pass
from splinefm.distribute.model import Averages, ParallelModel, first_penalties
from splinefm.distribute.processes import Processes, Termination
from splinefm.distribute.results import write_result
from splinefm.distribute.rows import ParquetRows, open_rows, refuse_other_files
from splinefm.distribute.statistics import Scan, collect_labels, collect_totals, merge_labels
from splinefm.distribute.training import Job, RunState
from splinefm.encode.encoder import Encoder
from splinefm.encode.schema import Schema, check_interactions
from splinefm.model.family import AnyModel
from splinefm.model.family.parameters import check_trainable
from splinefm.model.family.separation import check_model_keeps
from splinefm.train.fitted import Fitted
from splinefm.train.loop import settings_for
from splinefm.train.losses import Loss
from splinefm.train.offsets import Offset
from splinefm.train.penalties import make_groups
from splinefm.train.progress import SILENT, Progress
from splinefm.train.rows import Chunk, LabeledTable
from splinefm.train.settings import Training
from splinefm.train.targets import BALANCED, ClassWeight, balanced_weights, class_weights


@dataclass(frozen=True)
class JobSettings:
    """How to run on several processes."""

    out: Path  # the model file to write; with `sharded`, a folder of parts
    sharded: bool = False  # write a folder of parts
    optimizer: str = "adagrad"  # the optimizer of large tables, fused into the backward pass
    # A folder that all processes see; it is kept. By default, the name of the model with ".checkpoints", which is
    # removed at the end.
    checkpoints: Path | None = None
    minutes: float = 10.0  # time between two checkpoints
    resume: bool = False  # continue from the last checkpoint, if there is one
    pipelined: bool | None = None  # use TorchRec's TrainPipelineSparseDist; on GPUs by default
    # Called with the number of steps after each of them.
    after_step: Callable[[int], None] | None = field(default=None, repr=False)
    termination: Termination = field(default_factory=Termination, repr=False)  # whether this process is asked to end

    @property
    def folder(self) -> Path:
        """Where checkpoints are."""
        return self.checkpoints or self.out.with_name(self.out.name + ".checkpoints")


@dataclass(frozen=True)
class DistributedFit:
    """What to fit on several processes."""

    data: str | Sequence[str]  # Parquet files, folders or globs, which all processes see
    target: str  # the column to predict
    schema: Schema
    model: AnyModel
    loss: Loss
    sample_weight: str | None = None
    # The share of rows that choose the best epoch, or other Parquet files with such rows.
    validation: float | str | Sequence[str] = 0.1
    # How to train. There is no final run on all rows; crosses, resolutions by column and members are for one machine.
    training: Training = field(default_factory=Training)
    class_weight: ClassWeight = None
    offset: Offset | None = None  # the column that is a known part of the score

    def check(self) -> None:
        """Raise if it asks for what several processes do not have."""
        check_trainable(self.model)
        check_interactions(self.schema)
        check_model_keeps(self.model, self.schema)
        if self.offset is not None:
            self.offset.check_loss(self.loss)
        training = self.training
        training.check_fields(self.schema.names)
        shaped = [item.name for item in self.schema.singles if item.required_shape is not None]
        if shaped:
            raise ValueError(
                f"shapes are for one machine, and field {shaped[0]!r} has one; on several processes, leave it out"
            )
        if (training.members or 1) > 1:
            raise ValueError(
                f"{setting('members')} {training.members} is for one machine; on several processes, fit with other "
                "seeds and average the predictions"
            )
        if training.crosses not in (None, "auto"):
            raise ValueError(
                f"{setting('crosses')} {training.crosses} looks for pairs of columns on one machine; on several "
                f"processes, {for_reader('write them into the schema', 'give them with --cross')}"
            )
        if training.optimizer != Training.optimizer:
            raise ValueError(
                f"optimizer {training.optimizer!r} is for one machine; on several processes, small tables have AdamW, "
                "and --table-optimizer chooses the optimizer of large ones"
            )
        if self.class_weight is not None and not self.loss.max_classes:
            raise ValueError(
                f"class_weight requires the logistic loss or softmax, got {self.loss.name}; use sample weights"
            )


def fit_on_processes(
    request: DistributedFit, settings: JobSettings, processes: Processes, progress: Progress = SILENT
) -> Fitted:
    """Fit a model on all processes and write it; return it without its tables."""
    with processes.fail_together():
        request.check()
    rows = open_same_rows(request.data, processes)
    given = None if isinstance(request.validation, float | int) else open_same_rows(request.validation, processes, 0)
    training = settings_for_process(request.training, processes)
    loss = _with_weights(_with_classes(request.loss, request.target, rows, processes), request, rows, processes)
    share = request.validation if isinstance(request.validation, float | int) else 0.0
    scan = Scan(
        request.schema, loss, request.target, request.sample_weight, share, training.seed, offset=request.offset
    )
    with processes.fail_together():  # before the pass over all rows
        if given is not None:
            check_validation(given, scan)
    checkpoints = open_checkpoints(settings, processes)
    progress.begin("reading the table", rows.n_rows)
    first_pass = run_first_pass(rows, scan, processes, settings.folder, training.threads or 1, settings.resume)
    with processes.fail_together():
        encoder = first_pass.statistics.encoder()
        loss, start = first_pass.statistics.targets().fit_loss()
        training = settings_for(training, request.schema, encoder.n_rows)
        groups = make_groups(encoder, training)
    size = training.rows_per_step(first_pass.n_rows)
    model = ParallelModel(
        request.model, encoder.layout, loss, groups, processes, size, settings.optimizer, training.average
    )
    model.initialize(training.seed, start)
    progress.say(model.describe())
    job = make_job(model, rows, scan, first_pass, encoder, training, checkpoints, settings, progress)
    facts = run_facts(request.model, training, settings)
    if given is not None:
        with processes.fail_together():
            sample = read_validation(given, scan, processes)
            job.validation = sample.encode(scan.source(None), encoder, loss, training.threads)
        facts["validation rows"] = given.fingerprint[:8]
    if training.average:
        job.averages = Averages(model, max(1, first_pass.n_rows // size))
    first_penalties(model)
    state = train(job, facts, settings)
    kept = replace(training, threads=request.training.threads)
    history = tuple(state.history)
    fitted = Fitted(encoder, request.model, model.between(), loss, history, kept, offset=request.offset)
    return _finish(fitted, model, job, settings)


def open_same_rows(data: str | Sequence[str], processes: Processes, least: int | None = None) -> ParquetRows:
    """Open the files, which must be the same on all processes; by default, every process must have a row."""
    with processes.fail_together():
        rows = open_rows(data)
        rows.check_processes(processes.count if least is None else least)
        own = [rows.fingerprint, rows.files]
    found = processes.gather_json(own)
    with processes.fail_together():
        if processes.first:
            refuse_other_files([fingerprint for fingerprint, _ in found], [dict(files) for _, files in found])
    return rows


def settings_for_process(training: Training, processes: Processes) -> Training:
    """The settings with threads for one of the processes of this machine, and without what only one machine does.

    All cores encode by default, but torch has one thread on each process: on a busy machine, its threads mostly wait
    for each other, and more processes use the cores better.
    """
    threads = max(1, count_threads(training.threads) // processes.local_count)
    torch.set_num_threads(1 if training.threads is None else threads)
    return replace(training, threads=threads, refit_on_all=False, effort="fast", crosses=None, members=1)


def _with_classes(loss: Loss, target: str, rows: ParquetRows, processes: Processes) -> Loss:
    """The loss with the labels of the target, which all processes look for."""
    most = loss.max_classes
    if not most or loss.classes is not None:
        return loss
    with processes.fail_together():
        own = collect_labels(rows, target, processes.index, processes.count, most=most, shares=loss.name == "logistic")
    everyone = processes.gather_json(None if own is None else sorted(own, key=str))
    found = [None if labels is None else set(labels) for labels in everyone]
    with processes.fail_together():
        return replace(loss, classes=merge_labels(found, target, most))


def _with_weights(loss: Loss, request: DistributedFit, rows: ParquetRows, processes: Processes) -> Loss:
    """The loss with class weights; for "balanced", all processes add up the weights of the classes."""
    if request.class_weight is None:
        return loss
    with processes.fail_together():
        if loss.class_weights is not None:
            raise ValueError("class_weight conflicts with the class weights of the loss; write it into the loss")
        if request.class_weight != BALANCED:
            return replace(loss, class_weights=class_weights(request.class_weight, loss.classes or (0, 1)))
        source = LabeledTable(request.schema, request.target, request.sample_weight, None, loss.classes)
        own = collect_totals(rows, source, processes.index, processes.count)
    totals = processes.sums(own).tolist()
    with processes.fail_together():
        return replace(loss, class_weights=balanced_weights(*totals))


def open_checkpoints(settings: JobSettings, processes: Processes) -> Checkpoints:
    """The folder of checkpoints; checkpoints of another run are not overwritten."""
    checkpoints = Checkpoints(settings.folder, processes)
    last = checkpoints.last()
    with processes.fail_together():
        if processes.first and last is not None and not settings.resume:
            raise ValueError(
                f"{str(settings.folder)!r} has checkpoints of another run; add --resume to continue it, or remove them"
            )
    return checkpoints


def run_facts(model: AnyModel, training: Training, settings: JobSettings) -> dict[str, str]:
    """What must not change between a run and its continuation."""
    return {
        "model": str(model),
        "training": str(replace(training, threads=None)),
        "optimizer of large tables": settings.optimizer,
    }


def train(job: Job, facts: dict[str, str], settings: JobSettings) -> RunState:
    state = job.resume(facts) if settings.resume else None
    if state is not None:
        job.progress.say(f"continuing in epoch {state.epoch + 1}, after {state.seen:,} rows of it")
    job.facts = facts
    with job.termination.while_taking_steps():
        return job.train(state or RunState())


def make_job(
    model: ParallelModel,
    rows: ParquetRows,
    scan: Scan,
    first_pass: FirstPass,
    encoder: Encoder,
    training: Training,
    checkpoints: Checkpoints,
    settings: JobSettings,
    progress: Progress,
) -> Job:
    source, loss = scan.source(None), model.loss

    def encode(batch: Any) -> Chunk:
        return source.encode(batch, encoder, loss, training.threads)

    with model.processes.fail_together():
        validation = first_pass.sample.encode(source, encoder, loss, training.threads)
    maker = model.batch_maker(encoder.feature_counts, encoder.n_rows)
    feed = Feed(scan.columns, encode, first_pass.sample.has, maker, model.rows_per_process, loss.floor)
    paced = training.for_fields(len(encoder.fields))
    return Job(
        model,
        rows,
        feed,
        paced,
        first_pass.n_rows,
        validation,
        checkpoints,
        settings.minutes,
        progress,
        after_step=settings.after_step,
        termination=settings.termination,
        pipelined=model.processes.device.type == "cuda" if settings.pipelined is None else settings.pipelined,
    )


def _finish(fitted: Fitted, model: ParallelModel, job: Job, settings: JobSettings) -> Fitted:
    write_result(settings.out, settings.sharded, fitted, model)
    if settings.checkpoints is None:
        job.checkpoints.remove()
    return fitted
