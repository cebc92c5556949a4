"""Learner: a fitted model that goes on learning from new data."""

from __future__ import annotations

import numpy as np

from splinefm.encode.drift import Watch
from splinefm.encode.schema import Schema
from splinefm.learn.chunks import STREAM_ROWS, Source, ahead
from splinefm.learn.fitted import Fitted
from splinefm.learn.training import (
    AdaptivePenalties,
    Diverged,
    Training,
    divergence_advice,
    in_groups,
    make_groups,
    seeded,
    train_on,
)
from splinefm.model.cpu import CpuEngine
from splinefm.model.optimizers import Optimizer

# New data refine a model that is already good: smaller steps than those that found it.
SLOWER = 0.1


class Learner:
    """Updates a model with new data, hour by hour, without fitting it anew.

    The optimizer's state is kept from update to update. Categories that are frequent enough in the new data get rows of
    their own; transforms and bases stay as they are.

    Parameters
    ----------
    fitted : Fitted
        Where to start; it is not changed.
    training : Training, optional
        Penalties, optimizer, batch size and seed, by default those of the fit; the learning rate of updates is a tenth
        of its learning rate.

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
        self.training = training or fitted.training
        self.encoder, self.model, self.loss = fitted.encoder, fitted.model, fitted.loss
        self.history, self.study = fitted.history, fitted.study
        self.rng = seeded(self.training.seed)
        self.engine = CpuEngine(
            self.model,
            self.encoder.layout,
            fitted.params,
            self.loss.name,
            Optimizer(
                self.training.optimizer, SLOWER * self.training.for_fields(len(self.encoder.fields)).learning_rate
            ),
            make_groups(self.encoder, self.training),
            min(self.training.batch_size or 4096, STREAM_ROWS),  # there is never more to do at once
            self.training.threads,
        )
        self.penalties = AdaptivePenalties(self.engine)
        if self.history:  # of a Poisson loss the floor is not known yet, and the noise is taken to be 1
            noise = self.loss.dispersion(self.history[-1].train_loss) if self.loss.name == "squared" else 1.0
            self.penalties.adapt(fitted.params["factors"], noise)

    def update(self, table: object, target: str, *, sample_weight: str | None = None) -> float:
        """One pass over new data; returns the mean loss of its rows, each scored before the model learned from it."""
        known = (self.loss.classes, self.loss.class_weights)
        source = Source(Schema(self.encoder.fields), target, sample_weight, table, *known)
        self._meet(source)
        batch_size = self.training.batch_size or self.training.rows_per_step(source.opened.n_rows or STREAM_ROWS)
        batch_size = min(batch_size, self.engine.batch_size)
        losses = floor = weights = 0.0
        batches = source.batches(STREAM_ROWS)
        for chunk in ahead(source.encode(batch, self.encoder, self.loss, self.training.threads) for batch in batches):
            order = self.rng.permutation(len(chunk.y))
            for rows in in_groups(order, batch_size, self.engine):
                rates = np.full(-(-len(rows) // batch_size), self.engine.optimizer.learning_rate)
                weight, loss, own_floor = train_on(self.engine, chunk, rows, rates, batch_size, self.loss)
                losses, floor, weights = losses + loss, floor + own_floor, weights + weight
        if not np.isfinite(losses):
            advice = divergence_advice(self.training)
            raise Diverged(f"the update diverged; go back to the last fitted model, and {advice}")
        if weights > 0.0:
            self.penalties.adapt(self.engine.values["factors"], self.loss.dispersion((losses - floor) / weights))
        return losses / max(weights, 1e-300)

    def fitted(self) -> Fitted:
        """The model as it is now."""
        params = self.engine.params()
        return Fitted(self.encoder, self.model, params, self.loss, self.history, self.training, self.study)

    def _meet(self, source: Source) -> None:
        """Check targets and weights and give new categories their rows, before anything is learned."""
        for batch in source.batches(STREAM_ROWS):
            self.loss.check(source.targets(batch)[0])
        watch = Watch(self.encoder)
        encoder = self.encoder.extend(source.opened, target=source.target, threads=self.training.threads, watch=watch)
        watch.warn()
        if encoder.layout != self.encoder.layout:
            groups = make_groups(encoder, self.training)
            now = self.engine.penalty
            self.engine.grow(encoder.layout, groups, seeded(self.training.seed, self.engine.number))
            self.penalties = AdaptivePenalties(self.engine)
            self.engine.set_penalty(
                self.engine.penalty._replace(l2=now.l2, l2_linear=now.l2_linear, smoothness=now.smoothness)
            )
        self.encoder = encoder
