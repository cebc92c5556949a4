"""The judge of epochs: which one is the best, and which later one is as good."""

from __future__ import annotations

import math

import numpy as np

from splinefm.learn.losses import Loss
from splinefm.learn.metrics import mean_and_error
from splinefm.learn.remarks.evidence import Evidence
from splinefm.learn.training import Chunk, FloatArray
from splinefm.model.engine import Engine
from splinefm.model.family import Params

# Standard errors by which the validation loss of an epoch may exceed the best one.
TIE = 0.25


class Judge:
    """Compares epochs by the losses of the validation rows.

    Where a few rows have most of the loss, the best epoch may be an early one by chance. A later epoch with a loss that
    is larger by less than TIE standard errors is as good: it has seen the rows more often, at a lower learning rate.

    Attributes
    ----------
    as_good : int
        The last epoch that is as good as the best one, counted from 1.
    """

    def __init__(self, validation: Chunk | None) -> None:
        self.validation, self.n_epochs, self.as_good = validation, 0, 0
        self._least, self._losses = math.inf, np.zeros(0)

    def look(self, engine: Engine, params: Params, loss: Loss) -> tuple[float, bool]:
        """Return the validation loss of the next epoch, and whether the epoch is the best so far.

        Without validation rows, the loss is NaN, and every epoch is better than those before.
        """
        self.n_epochs += 1
        if self.validation is None:
            self.as_good = self.n_epochs
            return math.nan, True
        score = engine.scores_of(params, self.validation.slots).astype(np.float64)
        losses, weight = loss.value(self.validation.y, score), self.validation.sample_weight
        value = float(np.average(losses, weights=weight))
        is_best = value < self._least
        if is_best:
            self._least, self._losses = value, losses
        if is_best or self._ties(losses, weight):
            self.as_good = self.n_epochs
        return value, is_best

    def evidence(self, loss: Loss, start: float | FloatArray, training_loss: float) -> Evidence | None:
        """Return what the validation rows tell of the best epoch, whose training rows had this loss."""
        if self.validation is None or not len(self._losses):
            return None
        y, weight = self.validation.y, self.validation.sample_weight
        constant = loss.value(y, np.full((len(y), *np.shape(start)), start))
        value, error = mean_and_error(self._losses, weight)
        gain, gain_error = mean_and_error(constant - self._losses, weight)
        floor = loss.floor(y, weight) / float(weight.sum())
        numbers = (training_loss, value, error, value + gain, gain_error, floor)
        return Evidence(len(y), *numbers) if all(map(math.isfinite, numbers)) else None

    def _ties(self, losses: FloatArray, weight: FloatArray) -> bool:
        """Return whether the losses of an epoch differ from those of the best one by chance."""
        if not len(self._losses):
            return False
        with np.errstate(over="ignore", invalid="ignore"):  # an epoch that diverges does not tie
            mean, error = mean_and_error(losses - self._losses, weight)
        return math.isfinite(error) and mean <= TIE * error
