"""Learner: updates a fitted model with new data."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm._arrays import BoolArray, FloatArray
from splinefm._checks import check_fitted
from splinefm._parallel import prefetch
from splinefm.bounds.shapes import Shapes
from splinefm.encode.drift import Watch
from splinefm.encode.schema import Schema
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.names import counted
from splinefm.model.engine import start_engine
from splinefm.model.optimizers import Optimizer, OptimizerState
from splinefm.store.model_file import load_identified, saving
from splinefm.train.fitted import Fitted
from splinefm.train.loop import Diverged, divergence_advice, in_groups, train_on
from splinefm.train.losses import SMALLEST, Loss, find_root
from splinefm.train.penalties import AdaptivePenalties, make_groups
from splinefm.train.results import Epoch
from splinefm.train.rows import STREAM_ROWS, Chunk, LabeledTable, ValidationSample
from splinefm.train.settings import Training, check_columns, check_training, seeded
from splinefm.train.targets import check_total_weight
from splinefm.update.guard import Guard, GuardedUpdate, UpdateRefused, Verdict
from splinefm.update.state import PENALTIES, LearnerState, find_state, saving_state

# Classes that a model was fitted without, and that first occur in an update.
#
# Their share was taken for SMALLEST. Steps of an update would need tens of thousands of rows to make up for it, so the
# bias is set at once, by the share of the rows that the class has. What the class depends on is learned as usual.

# A class whose bias is lower than all shares but SMALLEST, up to what a fit adds to it, and of which the model expects
# fewer rows than this among all rows that it knows, was not among them.
MARGIN, MIN_EXPECTED = 1.0, 0.5
# The largest shift, and rounds for several classes.
MAX_SHIFT, ROUNDS = 60.0, 20


def may_lack_class(bias: FloatArray) -> bool:
    """Return whether a fit may have had no rows of a class: its bias is as low as for a share of SMALLEST.

    Examples
    --------
    >>> may_lack_class(np.array([-14.2])), may_lack_class(np.array([-1.0, -0.5, -6.0]))
    (True, False)
    """
    return bool((_low(bias) if len(bias) > 1 else abs(bias) > -math.log(SMALLEST) - MARGIN).any())


def _low(bias: FloatArray) -> BoolArray:
    return np.asarray(bias - bias.max() < math.log(SMALLEST) + MARGIN)


def shift_for_new_classes(
    loss: Loss, bias: FloatArray, rows: Chunk, score: FloatArray, n_known: int
) -> FloatArray | None:
    """Return what to add to the biases for classes that occur for the first time; None if there is no such class.

    `bias` has one number, or one per class of a softmax; `score` has the new rows' scores, and `n_known` is the number
    of rows that the model has learned from.
    """
    if not may_lack_class(bias) or not rows.sample_weight.any() or not np.isfinite(score).all():
        return None
    # One more row of another class keeps the share of few rows below one.
    certain = len(rows.y) / (len(rows.y) + 1.0)
    if score.ndim == 1:
        return _shift_of_two(loss, float(bias[0]), rows, score, n_known, certain)
    share = certain * _mean(rows, np.eye(score.shape[1])[rows.y.astype(np.intp)])
    new = _low(bias) & (share > 0.0) & (n_known * _mean(rows, loss.predict(score)) < MIN_EXPECTED)
    if not new.any():
        return None
    shift = np.zeros(score.shape[1])
    for _ in range(ROUNDS):  # the share of one class depends on the bias of the others
        predicted = _mean(rows, loss.predict(score + shift))
        shift[new] += np.log(share[new] / np.maximum(predicted[new], np.finfo(np.float64).tiny))
    return shift


def _shift_of_two(
    loss: Loss, bias: float, rows: Chunk, score: FloatArray, n_known: int, certain: float
) -> FloatArray | None:
    # Of the class that the bias is far away from: the second one if it is negative.
    sign = math.copysign(1.0, -bias)
    predicted = _mean(rows, loss.predict(sign * score))
    share = certain * float(_mean(rows, rows.y if bias < 0.0 else 1.0 - rows.y))
    if n_known * float(predicted) >= MIN_EXPECTED or not share > 0.0:
        return None
    return np.array(
        sign * find_root(lambda by: float(_mean(rows, loss.predict(sign * score + by))) - share, 0.0, MAX_SHIFT)
    )


def _mean(rows: Chunk, values: FloatArray) -> FloatArray:
    """Return the weighted mean over the rows."""
    return np.asarray(np.average(values, axis=0, weights=rows.sample_weight))


# New data refine a model that is already good, so updates take smaller steps than the fit.
UPDATE_RATE = 0.1


class Learner:
    """Updates a model with new data, for example every hour, without refitting it.

    The optimizer keeps its state between updates. New categories that are frequent enough get features; transforms and
    bases do not change.

    Parameters
    ----------
    fitted : Fitted
        The model to start from; it is not modified.
    training : Training, optional
        Penalties, optimizer, batch size, seed and engine; as in the fit by default, on the CPU engine. Updates use
        a tenth of its learning rate.
    state : LearnerState, optional
        Where an earlier learner of this model stopped: its `state()`. `Learner.load` finds it next to a model file.

    Attributes
    ----------
    verdict : Verdict or None
        What the guard of the last update measured.

    Examples
    --------
    >>> import splinefm as sf
    >>> old = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(old, "click", training=sf.Training(epochs=2, threads=1))
    >>> learner = sf.Learner(fitted, sf.Training(threads=1))
    >>> loss = learner.update({"c": ["b", "new"] * 50, "click": [1, 1] * 50}, "click")
    >>> learner.fitted().encoder.layout.n_features - fitted.encoder.layout.n_features
    1
    """

    def __init__(self, fitted: Fitted, training: Training | None = None, state: LearnerState | None = None) -> None:
        check_fitted(fitted)
        check_training(training)
        # How many fits the model is the mean of does not change: it is trained as one model.
        self.training = replace(training or fitted.training, members=fitted.training.members)
        self.encoder, self.model, self.loss = fitted.encoder, fitted.model, fitted.loss
        self.loss.check(np.empty(0))  # the score of one class cannot learn from rows
        self.history, self.study, self.evidence = fitted.history, fitted.study, fitted.evidence
        self.search, self.offset = fitted.search, fitted.offset
        self.verdict: Verdict | None = None
        self.rng = seeded(self.training.seed)
        self.engine = start_engine(
            self.training.engine,
            self.training.device,
            self.model,
            self.encoder.layout,
            fitted.params,
            self.loss.name,
            Optimizer(
                self.training.optimizer, UPDATE_RATE * self.training.for_fields(len(self.encoder.fields)).learning_rate
            ),
            make_groups(self.encoder, self.training),
            min(self.training.batch_size or 4096, STREAM_ROWS),  # chunks have no more rows than this
            self.training.threads,
            self.loss.parameter,
        )
        self.penalties = AdaptivePenalties(self.engine)
        if state is not None:
            self._continue(state)
        elif noise := self._noise():
            self.penalties.adapt(fitted.params["factors"], noise)

    def __repr__(self) -> str:
        names = counted("field", self.encoder.schema.names)
        return f"Learner({self.model}, {self.loss} loss, {self.engine.n_steps:,} steps, {names})"

    @staticmethod
    def load(path: str | os.PathLike[str], training: Training | None = None, *, threads: int | None = None) -> Learner:
        """Continue with a model file, and with the optimizer state next to it if `save` has written one.

        Parameters
        ----------
        path : path
            A model file. A state that belongs to another model is ignored with a warning.
        training : Training, optional
            As for `Learner`, with the optimizer of the fit.
        threads : int, optional
            Number of threads, in place of `training.threads`.

        Raises
        ------
        ModelFileError
            If one of the files is truncated, damaged, or from a newer version of splinefm.
        """
        fitted, identity = load_identified(path)
        state, foreign = find_state(Path(path), identity, fitted)
        if foreign is not None:
            warnings.warn(
                f"{str(foreign)!r} belongs to another model than {str(path)!r} and is ignored: the optimizer starts "
                "again, as after a fit",
                stacklevel=2,
            )
        check_training(training)
        training = training or fitted.training
        return Learner(fitted, training if threads is None else replace(training, threads=threads), state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the current model to a file, and the optimizer state next to it, to path + ".state".

        A crash at any moment leaves the old model with its old state, or the new model with its new one.

        Parameters
        ----------
        path : path
            The model file, usually with the suffix ".sfm".

        Examples
        --------
        >>> import tempfile
        >>> import splinefm as sf
        >>> hours = [{"c": ["a", "b"] * 50, "click": [i, 1] * 50} for i in (0, 1, 0)]
        >>> learner = sf.Learner(sf.fit_model(hours[0], "click", training=sf.Training(epochs=2, threads=1)))
        >>> loss = learner.update(hours[1], "click")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     learner.save(f"{folder}/model.sfm")
        ...     again = sf.Learner.load(f"{folder}/model.sfm")
        >>> again.update(hours[2], "click") == learner.update(hours[2], "click")
        True
        """
        target, fitted = Path(path).resolve(), self.fitted()
        with saving_state(target) as write, saving(fitted, path) as identity:
            write(self.state(), identity)

    def update(
        self, table: object, target: str, *, sample_weight: str | None = None, guard: Guard | None = None
    ) -> float:
        """Train for one pass over new data.

        Returns the mean loss of its rows, each measured before the model learned from it.

        Parameters
        ----------
        table : table, path or dataset
            The new rows; see `open_table`.
        target : str
            The column to predict.
        sample_weight : str, optional
            A column of weights.
        guard : Guard, optional
            Judges the model before and after the update. By default, every update is accepted.

        Raises
        ------
        UpdateRefused
            If the guard refuses the update. `fitted()` is then the refused model: continue with another learner, of the
            model before the update.
        """
        check_columns(target, sample_weight)
        known = (self.loss.classes, self.loss.class_weights)
        schema = Schema(self.encoder.fields)
        source = LabeledTable(schema, target, sample_weight, table, *known, offset=self.offset)
        before, began, self.verdict = self.encoder.n_rows, time.perf_counter(), None
        n_rows = self._check(source)
        guarded = None
        if guard is not None:
            guarded = GuardedUpdate(guard, self.fitted(), source, self.training, self.engine.n_steps)
        self._extend(source)
        batches = source.batches(STREAM_ROWS)
        if guarded is None:
            learned = self._learn(source, batches, n_rows, before)
        else:
            learned = self._learn(source, _without(batches, guarded.held_out), n_rows, before)
            self.verdict = guarded.judge(self.fitted())
            if not self.verdict.accepted:
                raise UpdateRefused(self.verdict)
            learned = learned + self._learn(source, guarded.rows(), n_rows, before)
            self.verdict = guarded.judge_change(self.verdict, self.fitted())
            if not self.verdict.accepted:
                raise UpdateRefused(self.verdict)
        losses, floor, weights = learned
        if weights == 0.0:  # nothing was learned
            return 0.0
        self.penalties.adapt(self.engine.values["factors"], self.loss.dispersion((losses - floor) / weights))
        loss = float(losses / weights)
        self._add_to_history(loss, self.encoder.n_rows - before, time.perf_counter() - began)
        return loss

    def fitted(self) -> Fitted:
        """Return the current model."""
        params = Shapes(self.encoder, self.model).impose(self.engine.params())
        training = self.training.on_any_machine()
        known = (self.study, self.evidence, self.search, self.offset)
        return Fitted(self.encoder, self.model, params, self.loss, self.history, training, *known)

    def state(self) -> LearnerState:
        """Return a copy of the state that the next update depends on: another learner can continue from it."""
        penalty = {name: getattr(self.engine.penalty, name) for name in PENALTIES}
        moments = {name: OptimizerState(*map(np.array, state)) for name, state in self.engine.state.items()}
        return LearnerState(
            self.engine.optimizer.name, self.engine.n_steps, moments, penalty, self.rng.bit_generator.state
        )

    def _noise(self) -> float | None:
        """Return the noise of the training rows, if the history knows it; an update of no rows has a loss of 0."""
        if self.loss.has_floor:  # which is not known yet
            return 1.0 if self.history else None
        losses = [epoch.train_loss for epoch in self.history if epoch.train_loss > 0.0]
        return self.loss.dispersion(losses[-1]) if losses else None

    def _continue(self, state: LearnerState) -> None:
        if state.optimizer != self.engine.optimizer.name:
            raise ValueError(
                f"the state belongs to {state.optimizer}, and the optimizer is {self.engine.optimizer.name}; "
                "continue with the same optimizer, or without a state"
            )
        self.engine.restore(state.moments, state.n_steps)
        penalty: dict[str, Any] = dict(state.penalty)
        self.engine.set_penalty(self.engine.penalty._replace(**penalty))
        self.rng.bit_generator.state = state.rng

    def _learn(self, source: LabeledTable, batches: Iterable[pa.RecordBatch], n_rows: int, n_known: int) -> FloatArray:
        """Train on batches of a table of `n_rows` rows, after `n_known` others.

        Returns the sums of losses before the steps, of their floor, and of weights.
        """
        size = self.training.batch_size or self.training.rows_per_step(n_rows)
        size = min(size, self.engine.batch_size)
        losses = floor = weights = 0.0
        encoded = (source.encode(batch, self.encoder, self.loss, self.training.threads) for batch in batches)
        for chunk in prefetch(encoded):
            self._set_bias_of_new_classes(chunk, n_known)
            order = self.rng.permutation(len(chunk.y))
            for rows in in_groups(order, size, self.engine):
                rates = np.full(-(-len(rows) // size), self.engine.optimizer.learning_rate)
                weight, loss, part_floor = train_on(self.engine, chunk, rows, rates, size, self.loss)
                losses, floor, weights = losses + loss, floor + part_floor, weights + weight
        if not np.isfinite(losses):
            advice = divergence_advice(self.training)
            raise Diverged(f"the update diverged; return to the last fitted model, and {advice}")
        shapes = Shapes(self.encoder, self.model)
        if shapes.fields:
            self.engine.set_features(shapes.impose(self.engine.params()))
        return np.array([losses, floor, weights])

    def _set_bias_of_new_classes(self, chunk: Chunk, n_known: int) -> None:
        """Set the bias of classes that no earlier row had."""
        bias = np.asarray(self.engine.values["bias"], np.float64).reshape(-1)
        if not self.loss.max_classes or not len(chunk.y) or not may_lack_class(bias):
            return  # scores take time
        score = self.engine.scores(chunk.slots).astype(np.float64)
        shift = shift_for_new_classes(self.loss, bias, chunk, score, n_known)
        if shift is not None:
            self.engine.shift_bias(shift)

    def _add_to_history(self, loss: float, n_rows: int, seconds: float) -> None:
        """Add an entry to the history."""
        total = (self.history[-1].seconds if self.history else 0.0) + seconds
        judged = math.nan if self.verdict is None else self.verdict.after.loss
        rate, speed = self.engine.optimizer.learning_rate, n_rows / max(seconds, 1e-9)
        self.history = (*self.history, Epoch(len(self.history) + 1, loss, judged, rate, speed, total, "update"))

    def _check(self, source: LabeledTable) -> int:
        """Raise for invalid targets and weights before anything changes; return the number of rows."""
        n_rows, total = 0, 0.0
        for batch in source.target_batches(STREAM_ROWS):
            y, weight = source.targets(batch)
            self.loss.check(y, source.target, n_rows)
            if (offset := source.offsets(batch, n_rows)) is not None and source.offset is not None:
                source.offset.in_scores(offset, self.loss, n_rows)
            n_rows, total = n_rows + batch.num_rows, total + float(weight.sum())
        check_total_weight(total)
        return n_rows

    def _extend(self, source: LabeledTable) -> None:
        """Add features for new categories."""
        watch = Watch(self.encoder)
        encoder = self.encoder.extend(source.opened, target=source.target, threads=self.training.threads, watch=watch)
        watch.warn()
        if encoder.layout != self.encoder.layout:
            groups = make_groups(encoder, self.training)
            penalty = self.engine.penalty
            self.engine.grow(encoder.layout, groups, seeded(self.training.seed, self.engine.n_steps))
            self.penalties = AdaptivePenalties(self.engine)
            kept = {name: getattr(penalty, name) for name in PENALTIES}
            self.engine.set_penalty(self.engine.penalty._replace(**kept))
        self.encoder = encoder


def _without(batches: Iterable[pa.RecordBatch], held_out: ValidationSample) -> Iterator[pa.RecordBatch]:
    """Yield batches of a table without the rows of a sample."""
    first = 0
    for batch in batches:
        kept = ~held_out.has(np.arange(first, first + batch.num_rows))
        first += batch.num_rows
        if kept.any():
            yield batch if kept.all() else batch.filter(to_arrow(kept))
