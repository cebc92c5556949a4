"""Fitted: an encoder, a model and its parameters; immutable."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from splinefm.encode.drift import Watch, as_watch
from splinefm.encode.encoder import Encoder
from splinefm.encode.slots import Slots
from splinefm.learn.labels import Classes
from splinefm.learn.losses import Loss
from splinefm.learn.training import Epoch, Training
from splinefm.learn.tuning.study import StudySummary
from splinefm.model.cpu import predict_scores
from splinefm.model.family import AnyModel, Params

if TYPE_CHECKING:
    from splinefm.serve.scorer import Scorer
    from splinefm.view.segment import Bars, Curve, Surface

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fitted:
    """What training leaves: everything that is needed to score a table.

    Parameters
    ----------
    encoder : Encoder
        Turns tables into slots.
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The formula.
    params : dict of arrays
        Its parameters; they must not be changed.
    loss : Loss
        What was minimized; it says what a prediction is.
    history : list of Epoch
        One entry per epoch of training.
    training : Training
        How it was trained, with the penalties that were chosen.
    study : StudySummary, optional
        The search that found its settings, if `sf.tune` did.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> fitted.predict({"x": [1.5]}).shape
    (1,)
    """

    encoder: Encoder
    model: AnyModel
    params: Params
    loss: Loss
    history: tuple[Epoch, ...] = field(default=(), repr=False)
    training: Training = field(default_factory=Training)
    study: StudySummary | None = field(default=None, repr=False)

    @property
    def classes(self) -> Classes | None:
        """The labels that a logistic target of 0 and of 1 had in the table; None where it was numbers."""
        return self.loss.classes

    def scores(
        self, table: object, *, threads: int | None = None, watch: bool | Watch = True
    ) -> npt.NDArray[np.float32]:
        """Raw scores of all rows of a table, in its order; it is encoded in chunks, and need not fit in memory.

        Parameters
        ----------
        table : table, path or dataset
            Anything that `open_table` takes, or slots.
        threads : int, optional
            All cores by default.
        watch : bool
            Warn (`DriftWarning`) if many values are unseen, out of range or missing that were not so in training.
        """
        watching, warns = as_watch(watch, self.encoder)
        if isinstance(table, Slots):
            return predict_scores(self.model, self.params, table, threads)
        chunks = self.encoder.encode_chunks(table, threads=threads, watch=watching)
        parts = [predict_scores(self.model, self.params, slots, threads) for slots in chunks]
        if watching is not None and warns:
            watching.warn()
        return np.concatenate(parts) if parts else np.empty(0, np.float32)

    def predict(self, table: object, *, threads: int | None = None, watch: bool | Watch = True) -> FloatArray:
        """Predictions of all rows: probabilities (logistic), means (squared) or rates (Poisson); see `scores`."""
        return self.loss.predict(self.scores(table, threads=threads, watch=watch).astype(np.float64))

    def segment(
        self,
        values: Mapping[str, object],
        along: str | Sequence[str],
        *,
        rest: Literal["error", "mean"] = "error",
        background: object = None,
    ) -> Curve | Bars | Surface:
        """The score along one or two fields with the others fixed; see `splinefm.view.segment.segment`."""
        # An import against the order of the folders: a door for users, who look for views on the model that they hold.
        # It is taken when called, so that importing learn does not need use. The scorer below is the other one.
        from splinefm.view.segment import segment

        return segment(self, values, along, rest=rest, background=background)

    def scorer(self) -> Scorer:
        """A function of single rows, given as dicts, that takes microseconds; see `splinefm.serve.scorer.Scorer`."""
        from splinefm.serve.scorer import Scorer

        return Scorer(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file, which `sf.load` reads; see `splinefm.learn.files.modelfile.save`."""
        from splinefm.learn.files.modelfile import save

        save(self, path)
