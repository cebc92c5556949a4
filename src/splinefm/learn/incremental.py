"""Learner: updates a fitted model with new data."""

from __future__ import annotations

import numpy as np

from splinefm.encode.drift import Watch
from splinefm.encode.schema import Schema
from splinefm.learn.chunks import STREAM_ROWS, Source, ahead
from splinefm.learn.fitted import Fitted
from splinefm.learn.loop import in_groups, train_on
from splinefm.learn.penalties import AdaptivePenalties, make_groups
from splinefm.learn.training import Diverged, Training, divergence_advice, seeded
from splinefm.model.engine import start_engine
from splinefm.model.optimizers import Optimizer

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
        Penalties, optimizer, batch size, seed and engine; those of the fit by default, on the CPU engine. Updates use
        a tenth of its learning rate.

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

    def __init__(self, fitted: Fitted, training: Training | None = None) -> None:
        if fitted.training.members > 1:
            raise ValueError(
                f"a model with members={fitted.training.members} is the mean of several fits and has no updates; "
                "fit it again, or fit with members=1"
            )
        self.training = training or fitted.training
        self.encoder, self.model, self.loss = fitted.encoder, fitted.model, fitted.loss
        self.loss.check(np.empty(0))  # the score of one class cannot learn from rows
        self.history, self.study = fitted.history, fitted.study
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
        if self.history:  # the floor of a Poisson loss is not known yet, so its noise is taken to be 1
            noise = 1.0 if self.loss.has_floor else self.loss.dispersion(self.history[-1].train_loss)
            self.penalties.adapt(fitted.params["factors"], noise)

    def update(self, table: object, target: str, *, sample_weight: str | None = None) -> float:
        """Train for one pass over new data.

        Returns the mean loss of its rows, each measured before the model learned from it.
        """
        known = (self.loss.classes, self.loss.class_weights)
        source = Source(Schema(self.encoder.fields), target, sample_weight, table, *known)
        self._prepare(source)
        batch_size = self.training.batch_size or self.training.rows_per_step(source.opened.n_rows or STREAM_ROWS)
        batch_size = min(batch_size, self.engine.batch_size)
        losses = floor = weights = 0.0
        batches = source.batches(STREAM_ROWS)
        for chunk in ahead(source.encode(batch, self.encoder, self.loss, self.training.threads) for batch in batches):
            order = self.rng.permutation(len(chunk.y))
            for rows in in_groups(order, batch_size, self.engine):
                rates = np.full(-(-len(rows) // batch_size), self.engine.optimizer.learning_rate)
                weight, loss, part_floor = train_on(self.engine, chunk, rows, rates, batch_size, self.loss)
                losses, floor, weights = losses + loss, floor + part_floor, weights + weight
        if not np.isfinite(losses):
            advice = divergence_advice(self.training)
            raise Diverged(f"the update diverged; return to the last fitted model, and {advice}")
        if weights > 0.0:
            self.penalties.adapt(self.engine.values["factors"], self.loss.dispersion((losses - floor) / weights))
        return losses / max(weights, 1e-300)

    def fitted(self) -> Fitted:
        """Return the current model."""
        params = self.engine.params()
        training = self.training.on_any_machine()
        return Fitted(self.encoder, self.model, params, self.loss, self.history, training, self.study)

    def _prepare(self, source: Source) -> None:
        """Check targets and weights, and add features for new categories, before training begins."""
        for batch in source.batches(STREAM_ROWS):
            self.loss.check(source.targets(batch)[0])
        watch = Watch(self.encoder)
        encoder = self.encoder.extend(source.opened, target=source.target, threads=self.training.threads, watch=watch)
        watch.warn()
        if encoder.layout != self.encoder.layout:
            groups = make_groups(encoder, self.training)
            penalty = self.engine.penalty
            self.engine.grow(encoder.layout, groups, seeded(self.training.seed, self.engine.number))
            self.penalties = AdaptivePenalties(self.engine)
            kept = {name: getattr(penalty, name) for name in ("l2", "l2_third", "l2_linear", "smoothness")}
            self.engine.set_penalty(self.engine.penalty._replace(**kept))
        self.encoder = encoder
