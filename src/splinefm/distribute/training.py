"""The training loop of a process: steps in common, validation, early stop and checkpoints decided together."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist

from splinefm.distribute.batches import Batch, Feed, Step, StepRequest
from splinefm.distribute.checkpoints import Checkpoints, checkpoint_tensors, table_tensors
from splinefm.distribute.model import Averages, ParallelModel, adapt_penalties, set_penalties
from splinefm.distribute.processes import Processes, Terminated, Termination
from splinefm.distribute.rows import ParquetRows, Position, plan_shares
from splinefm.train.loop import Diverged, divergence_message
from splinefm.train.progress import Progress
from splinefm.train.results import Epoch, Run
from splinefm.train.rows import Chunk
from splinefm.train.settings import Training

# Adagrad divides by the root of all squared gradients so far, AdamW by a mean of them: with ten times the learning
# rate, its losses were the closest to AdamW's. See decision 89.
ADAGRAD_RATE = 10.0
# Epoch sums: loss, its floor, weight.
_NOTHING = (0.0, 0.0, 0.0)


@dataclass
class RunState:
    """Where a run is: what a checkpoint keeps beside the tables."""

    epoch: int = 0  # the epoch that is being trained, counted from 0
    seen: int = 0  # rows of this epoch so far, on all processes
    step: int = 0
    position: Position | None = None  # what is left of the epoch; all of it by default
    # Loss, its floor and weight of the rows of this epoch so far, on all processes.
    sums: tuple[float, float, float] = _NOTHING
    history: list[Epoch] = field(default_factory=list)
    best: int | None = None  # the epoch whose parameters are the best so far; none if they are the current ones
    seconds: float = 0.0  # time before this process began
    penalties: list[list[float]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Lists, strings and numbers for JSON."""
        return {
            **vars(self),
            "position": None if self.position is None else self.position.to_dict(),
            "history": [
                [repr(value) if isinstance(value, float) else value for value in item] for item in self.history
            ],
        }

    @staticmethod
    def from_dict(given: dict[str, Any]) -> RunState:
        """The state that `to_dict` described."""
        known = dict(given)
        position = known.pop("position")
        history = [Epoch._make([int(number), *map(float, rest), run]) for number, *rest, run in known.pop("history")]
        known["sums"] = tuple(known["sums"])
        return RunState(position=None if position is None else Position.from_dict(position), history=history, **known)


class PendingStep(NamedTuple):
    """A step, and what takes it and returns losses and scores of the rows of this process."""

    given: Step
    take: Callable[[], torch.Tensor]


@dataclass
class Job:
    """A run on several processes."""

    model: ParallelModel
    rows: ParquetRows  # the rows of all processes
    feed: Feed
    training: Training  # how to train, with the learning rate for the number of fields
    n_rows: int  # training rows of all processes
    validation: Chunk | None  # the validation rows of this process
    checkpoints: Checkpoints  # where to write checkpoints
    minutes: float  # time between two checkpoints
    progress: Progress  # silent on all processes but the first
    run: Run = "first"  # the name of the run in the history
    constant: float | None = None  # the learning rate, in place of the schedule
    after_step: Callable[[int], None] | None = None  # called with the number of steps after each of them
    facts: dict[str, str] = field(default_factory=dict)  # settings that must be the same if a run continues
    # Use TorchRec's pipeline: on GPUs, where it hides the time that features take between processes.
    pipelined: bool = False
    averages: Averages | None = None  # averages of the tables, which are measured and kept in their place
    termination: Termination = field(default_factory=Termination)  # whether this process is asked to end

    @property
    def processes(self) -> Processes:
        """The processes."""
        return self.model.processes

    def train(self, state: RunState) -> RunState:
        """Train from a state to the end; the model then has the parameters of the best epoch."""
        begin = time.perf_counter() - state.seconds
        self._saved_at, self._has_asked = time.perf_counter(), False
        if state.penalties is not None:
            set_penalties(self.model, np.array(state.penalties))
        n_epochs = self.training.max_epochs(self.n_rows)
        while state.epoch < n_epochs:
            self._has_asked = False  # what was asked after the last rows of an epoch is asked again
            self.progress.begin_epoch(
                state.epoch + 1, n_epochs, self.n_rows - state.seen
            )  # what is left after a restart
            started, before = time.perf_counter(), state.seen
            rate = self._pass(state, begin)
            if state.seen != self.n_rows:
                raise RuntimeError(f"epoch {state.epoch + 1} had {state.seen:,} of {self.n_rows:,} rows")
            loss, floor, weight = state.sums
            train_loss, floor = loss / max(weight, 1e-300), floor / max(weight, 1e-300)
            if not math.isfinite(train_loss):
                raise Diverged(divergence_message(self.training, state.epoch))
            with nullcontext() if self.averages is None else self.averages.in_place(state.step):
                adapt_penalties(self.model, self.model.loss.dispersion(train_loss - floor))
                now = time.perf_counter()
                value = self._validation_loss()
                speed = (state.seen - before) / max(now - started, 1e-9)
                state.history.append(Epoch(state.epoch + 1, train_loss, value, rate, speed, now - begin, self.run))
                self.progress.end_epoch(state.history[-1], self.model.loss)
                ends = self._ends(state)
            if ends:
                break
            state.epoch, state.seen, state.position, state.sums = state.epoch + 1, 0, None, _NOTHING
        self.checkpoints.wait()
        if state.best is not None:
            self.checkpoints.load("best", state.best, table_tensors(self.model))
        elif self.averages is not None:
            self.averages.swap()
        return state

    def _pass(self, state: RunState, begin: float) -> float:
        """Train on the rest of an epoch; return the last learning rate."""
        seed = self.training.seed
        shares = plan_shares(self.rows, self.processes.count, seed=seed, epoch=state.epoch, position=state.position)
        own = np.zeros(3)
        rates, rate = self.training.rates(state.epoch, self.n_rows), math.nan
        steps = self.feed.steps(shares[self.processes.index], self.processes, self._request)
        for step, take in (self._piped if self.pipelined else self._plain)(steps):
            rate = self.constant if self.constant is not None else rates(state.seen)
            self.model.set_rate(rate, ADAGRAD_RATE * rate)
            own += self._measured(take(), step)
            state.seen, state.step = state.seen + step.n_rows, state.step + 1
            if self.averages is not None:
                self.averages.after_step(state.step)
            self.progress.advance(step.n_rows, own[0] / max(own[2], 1e-300))
            if self.after_step is not None:
                self.after_step(state.step)
            if step.checkpoint or step.end:
                state.sums, own = self._added(state.sums, own), np.zeros(3)
                self._save(state, step.position(), begin)
            if step.end:
                self.checkpoints.wait()
                raise Terminated(
                    f"stopped by SIGTERM after step {state.step:,}; the checkpoint in "
                    f"{str(self.checkpoints.folder)!r} is complete: continue with --resume"
                )
        state.sums = self._added(state.sums, own)
        return rate

    def _plain(self, steps: Iterable[Step]) -> Iterator[PendingStep]:
        """Take one step after the other."""
        for step in steps:
            yield PendingStep(step, partial(self.model.step, step.batch))

    def _piped(self, steps: Iterable[Step]) -> Iterator[PendingStep]:
        """Move the features of later steps between processes while a step is computed; the steps are the same."""
        waiting: deque[Step] = deque()

        def batches() -> Iterator[Batch]:
            for step in steps:
                waiting.append(step)
                yield step.batch

        pipeline = TrainPipelineSparseDist(self.model.parallel, self.model.dense, self.processes.device)
        coming = batches()
        try:
            while True:
                pipeline.fill_pipeline(coming)
                if not waiting:
                    return
                yield PendingStep(waiting.popleft(), partial(pipeline.progress, coming))
        finally:
            pipeline.detach()

    def _added(self, sums: tuple[float, float, float], own: Any) -> tuple[float, float, float]:
        loss, floor, weight = (np.array(sums) + self.processes.sums(own)).tolist()
        return loss, floor, weight

    @staticmethod
    def _measured(measured: torch.Tensor, step: Step) -> Any:
        """Loss, floor and weight of the rows of this process."""
        weight = step.batch.weight.double()
        loss = (measured[:, 0].double() * weight).sum()
        return np.array([float(loss), step.floor, float(weight.sum())])

    def _validation_loss(self) -> float:
        chunk, size = self.validation, self.feed.size
        n_batches = int(self.processes.maxima([0.0 if chunk is None else -(-len(chunk.y) // size)])[0])
        if not n_batches:
            return math.nan
        sums = np.zeros(2)
        for i in range(n_batches):
            batch = self.feed.batch(chunk, np.arange(0 if chunk is None else len(chunk.y))[i * size : (i + 1) * size])
            batch.total[:] = 1.0
            batch = batch.to(self.processes.device)
            losses, weight = self.model.evaluate(batch)[:, 0].double(), batch.weight.double()
            sums += [float((losses * weight).sum()), float(weight.sum())]
        loss, weight_sum = self.processes.sums(sums)
        return float(loss / weight_sum) if weight_sum > 0.0 else math.nan

    def _ends(self, state: RunState) -> bool:
        """Keep the parameters if they are the best so far; return whether there is no more to expect."""
        last = state.epoch + 1 >= self.training.max_epochs(self.n_rows)
        losses = [epoch.validation_loss for epoch in state.history]
        if math.isnan(losses[-1]):
            return False
        best = int(np.nanargmin(losses))
        if best == state.epoch:
            state.best = None if last else state.epoch
            if not last:
                self.checkpoints.save("best", state.epoch, table_tensors(self.model), {"epoch": state.epoch + 1})
        patience = self.training.max_epochs_without_gain(self.n_rows)
        if patience is not None and state.epoch - best >= patience:
            self.progress.say(f"stopped: no better validation loss since epoch {best + 1}")
            return True
        return False

    def _request(self) -> StepRequest:
        """A checkpoint if it is time, which process 0 decides for all, or if the last one has failed."""
        due = self.processes.first and time.perf_counter() - self._saved_at >= 60.0 * self.minutes
        # A step asks before the checkpoint of the step before it is written, and must not ask for another one.
        asks, self._has_asked = due and not self._has_asked, self._has_asked or due
        return StepRequest(asks or self.checkpoints.has_failed, self.termination.requested)

    def _save(self, state: RunState, position: Position, begin: float) -> None:
        everyone = self.processes.gather_json(position.to_dict())
        state.position = Position.merge([Position.from_dict(description) for description in everyone])
        state.seconds, state.penalties = time.perf_counter() - begin, self.model.penalties.tolist()
        averaged = 0 if self.averages is None else self.averages.n_steps
        numbers = {"dense_number": self.model.dense.n_steps, "averaged": averaged}
        kept = {**state.to_dict(), **numbers, "facts": self.facts}
        self.checkpoints.save("step", state.step, self._checkpoint_tensors(), kept)
        self._saved_at, self._has_asked = time.perf_counter(), False

    def _checkpoint_tensors(self) -> dict[str, Any]:
        """What a checkpoint has to hold."""
        return checkpoint_tensors(self.model) | ({} if self.averages is None else self.averages.tensors)

    def resume(self, facts: dict[str, str]) -> RunState | None:
        """Read the last checkpoint, if there is one; a run with other settings cannot go on from it."""
        number = self.checkpoints.last()
        if number is None:
            return None
        with self.processes.fail_together():
            kept = self.checkpoints.state("step", number)
            before = kept.pop("facts")
            for name in {**before, **facts}:  # one of them may have what the other does not, such as validation rows
                if before.get(name) != facts.get(name):
                    raise ValueError(
                        f"the checkpoint in {str(self.checkpoints.folder)!r} is of another run: {name} is "
                        f"{before.get(name)} there and {facts.get(name)} here; use the settings of that run, or "
                        "another folder"
                    )
            if kept["best"] is not None:  # it is read at the end, and must not be missing only then
                self.checkpoints.check("best", kept["best"])
        self.checkpoints.load("step", number, self._checkpoint_tensors())
        self.model.dense.n_steps, averaged = kept.pop("dense_number"), kept.pop("averaged", 0)
        if self.averages is not None:
            self.averages.n_steps = averaged
        return RunState.from_dict(kept)
