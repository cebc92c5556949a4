"""The training loop: chunks of slots in, the best parameters and a history out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np

from splinefm._parallel import count_threads
from splinefm.learn.loop.divergence import Diverged, divergence_message
from splinefm.learn.loop.judge import Judge
from splinefm.learn.loop.passes import Problem, Rows, Trainee
from splinefm.learn.loop.twin import Twin
from splinefm.learn.progress import SILENT, Progress
from splinefm.learn.training import RUNS, Callback, Chunk, Epoch, Run, Trained, Training


def train(
    problem: Problem,
    rows: Rows,
    n_rows: int,
    training: Training,
    validation: Chunk | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
    stop_after: int | None = None,
    run: Run = "first",
    whole: Chunk | None = None,
) -> Trained:
    """Train a model on the rows of every epoch.

    `rows(epoch)` yields the chunks of an epoch, counted from 0, with standardized targets; an epoch has `n_rows` rows,
    and each chunk must fit in memory. `stop_after` ends the run after this many epochs without changing the learning
    rate schedule. `whole` has all rows, validation rows included: a second model learns from them at the same time.

    Returns the parameters of the epoch with the best validation loss (of the last epoch without validation rows), and
    the history. Ctrl-C stops training within tenths of a second or 8,192 rows and keeps the best parameters so far.
    A callback that returns True stops training after its epoch.
    """
    best, history, since, begin = None, [], 0, time.perf_counter()
    trainee, twin = _begin(problem, rows, n_rows, training, whole)
    judge = Judge(validation)
    n_epochs, interrupted, left = stop_after or training.most_epochs(n_rows), False, ""
    patience = training.most_waiting(n_rows)
    try:
        with twin or nullcontext():
            for epoch in range(n_epochs):
                progress.begin_epoch(epoch + 1, n_epochs, n_rows)
                started = time.perf_counter()
                if twin is not None:
                    twin.begin(epoch)
                lesson = trainee.learn(epoch, progress)
                if not lesson.is_finite:
                    raise Diverged(divergence_message(training, epoch))
                now = time.perf_counter()
                value, is_best = judge.look(trainee.engine, lesson.params, problem.loss)
                speed = lesson.n_rows / (now - started)
                history.append(Epoch(epoch + 1, lesson.loss, value, lesson.rate, speed, now - begin, run))
                best, since = (lesson.params, 0) if is_best else (best, since + 1)
                if twin is not None:
                    twin.end(keep=judge.as_good == epoch + 1)
                progress.end_epoch(history[-1], problem.loss)
                if call_all(callbacks, history[-1]):
                    interrupted = True
                    progress.say(f"{RUNS[run]} stopped by a callback; keeping the best epoch")
                    break
                if patience is not None and since >= patience:
                    if run != "search":  # there are many, whose epochs are not shown
                        progress.say(f"{RUNS[run]} stopped: no better validation loss since epoch {epoch + 1 - since}")
                    break
    except KeyboardInterrupt:
        if best is None:
            raise
        interrupted, left = True, f"the best epoch so far is kept ({len(history) - since} of {n_epochs})"
    if best is None:
        raise Diverged(divergence_message(training, len(history) - 1))
    evidence = judge.evidence(problem.loss, problem.start, history[len(history) - 1 - since].train_loss)
    on_all = None if twin is None else twin.params
    return Trained(best, history, interrupted, judge.as_good, left, on_all, evidence)


def _begin(
    problem: Problem, rows: Rows, n_rows: int, training: Training, whole: Chunk | None
) -> tuple[Trainee, Twin | None]:
    """Return the model that learns, and the one that learns from all rows; they share the threads."""
    if whole is None:
        return Trainee.begin(problem, rows, n_rows, training), None
    threads, every = count_threads(training.threads), [whole]
    mine, other = (replace(training, threads=max(1, share)) for share in (-(-threads // 2), threads // 2))
    twin = Twin(Trainee.begin(problem, lambda epoch: every, len(whole.y), other))
    return Trainee.begin(problem, rows, n_rows, mine), twin


def call_all(callbacks: Sequence[Callback], epoch: Epoch) -> bool:
    """Call every callback, and return whether one of them asks to stop.

    Only True does: many functions happen to return something else.
    """
    answers = [callback(epoch) for callback in callbacks]
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)
