"""Guard: refuse an update that makes the model worse on new rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import Float32Array, FloatArray
from splinefm._wording import for_reader, setting
from splinefm.bounds.changes import NotComparable
from splinefm.encode.encoder import CHUNK
from splinefm.train.fitted import Fitted
from splinefm.train.losses import Loss
from splinefm.train.rows import MAX_VALIDATION_ROWS, LabeledTable, ValidationSample, as_share, sample_validation
from splinefm.train.settings import Training
from splinefm.update.compare import Comparison, check_comparable, compare, excess

# Sums over the rows that judge an update: losses, predictions and outcomes; sums of several processes add up.

# A difference of fewer standard errors is explained by chance, and refuses no update.
DEVIATIONS = 3.0


@dataclass(frozen=True)
class Judgment:
    """How well a model predicts some rows.

    Parameters
    ----------
    rows : int
        Number of rows.
    loss : float
        Their mean loss.
    predicted, measured : float
        Mean prediction and mean target; of the class that is farthest off, if there are more than two.
    error : float
        Predicted / measured - 1, or (predicted - measured) / standard deviation for the squared loss; NaN where it says
        nothing, as for the Huber loss.
    """

    rows: int
    loss: float
    predicted: float
    measured: float
    error: float


class LossIncrease(NamedTuple):
    """How much the losses of rows rise by an update: the sum over rows, and the sum of squares."""

    total: float
    squares: float

    @staticmethod
    def between(before: FloatArray, after: FloatArray) -> LossIncrease:
        """From the losses of the same rows before and after the update."""
        rise = after - before
        return LossIncrease(float(rise.sum()), float((rise**2).sum()))

    @property
    def is_sure(self) -> bool:
        """Whether chance does not explain it; written so that NaN is sure."""
        return not self.total <= DEVIATIONS * math.sqrt(self.squares)


@dataclass(frozen=True)
class Calibration:
    """Means of one output, the ratio that is judged, and whether chance explains their difference."""

    predicted: float
    measured: float
    ratio: float
    is_sure: bool
    where: str
    scale: float | None  # of the target, if the difference counts and not the ratio

    @property
    def measure(self) -> str:
        return "predicted / measured - 1" if self.scale is None else "(predicted - measured) / standard deviation"

    @property
    def error(self) -> float:
        return self.ratio - 1.0 if self.scale is None else (self.predicted - self.measured) / self.scale

    def lowest(self, bound: float) -> float:
        return 1.0 / (1.0 + bound) - 1.0 if self.scale is None else -bound


class EvaluationSums:
    """Sums over the rows of batches, for one model; `by_row` keeps the loss of each row, to compare two models."""

    def __init__(self, loss: Loss, *, by_row: bool = True) -> None:
        self.loss = loss
        self.rows, self.weight, self.total, self.floor = 0, 0.0, 0.0, 0.0
        self._losses: list[FloatArray] | None = [] if by_row else None
        n = loss.n_outputs
        self.expected, self.measured = np.zeros(n), np.zeros(n)
        self.squares, self.spread = np.zeros(n), np.zeros(n)  # variance of the difference: as seen, and as expected

    def add(self, y: FloatArray, weight: FloatArray, score: FloatArray) -> None:
        """Add rows: their targets, weights and scores."""
        t = self.loss.standardize(y)
        losses = weight * self.loss.value(t, score)
        if self._losses is not None:
            self._losses.append(losses)
        self.total += float(losses.sum())
        self.floor += self.loss.floor(t, weight)
        expected, measured = self._compared(y, score)
        self.expected += weight @ expected
        self.measured += weight @ measured
        self.squares += (weight**2) @ (expected - measured) ** 2
        self.spread += (weight**2) @ self._variance(expected)
        self.rows, self.weight = self.rows + len(y), self.weight + float(weight.sum())

    def to_array(self) -> FloatArray:
        """Return all sums, without the losses of rows; sums of several processes add up."""
        single = [self.rows, self.weight, self.total, self.floor]
        return np.concatenate([single, self.expected, self.measured, self.squares, self.spread])

    @staticmethod
    def from_array(loss: Loss, values: FloatArray) -> EvaluationSums:
        """Return the sums that `to_array` returned."""
        sums = EvaluationSums(loss, by_row=False)
        sums.rows, (sums.weight, sums.total, sums.floor) = int(values[0]), values[1:4].tolist()
        sums.expected, sums.measured, sums.squares, sums.spread = values[4:].reshape(4, -1)
        return sums

    def _compared(self, y: FloatArray, score: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what was predicted and what was measured, a column for each class."""
        prediction = self.loss.predict(score)
        if self.loss.link == "softmax":
            return prediction, (y[:, None] == np.arange(prediction.shape[1])).astype(np.float64)
        expected, measured = self.loss.compared(y, prediction)
        return expected[:, None], np.asarray(measured, np.float64)[:, None]

    def _variance(self, expected: FloatArray) -> FloatArray:
        """Return the least variance of a target with this mean: few rows without a click differ from it by chance."""
        if self.loss.link in ("logistic", "softmax") or self.loss.quantile is not None:
            return expected * (1.0 - expected)
        if self.loss.link == "log":
            return expected if self.loss.name == "poisson" else expected**2
        return np.zeros_like(expected)

    @property
    def row_losses(self) -> FloatArray:
        return np.concatenate([np.empty(0), *(self._losses or ())])

    @property
    def mean_loss(self) -> float:
        return self.total / max(self.weight, 1e-300)

    @property
    def excess(self) -> float:
        """The mean loss above the loss of perfect predictions."""
        return self.mean_loss - self.floor / max(self.weight, 1e-300)

    def farthest(self) -> Calibration | None:
        """Return the output whose means differ the most; None if they say nothing."""
        if not self.weight or not (self.loss.predicts_mean or self.loss.quantile is not None):
            return None
        found = [self._calibration(i) for i in range(len(self.expected))]
        return max(found, key=lambda item: (item.is_sure, abs(math.log(max(item.ratio, 1e-300)))))

    def _calibration(self, i: int) -> Calibration:
        total_p, total_y = float(self.expected[i]), float(self.measured[i])
        predicted, measured = total_p / self.weight, total_y / self.weight
        scale = None
        if self.loss.link == "identity" and self.loss.quantile is None:  # a mean may be zero or negative
            scale = self.loss.scale
            distance = (predicted - measured) / scale
            ratio = 1.0 + distance if distance >= 0.0 else 1.0 / (1.0 - distance)
        else:
            ratio = total_p / total_y if total_y > 0.0 else math.inf if total_p > 0.0 else 1.0
        variance = float(np.maximum(self.squares[i], self.spread[i]))
        is_sure = not abs(total_p - total_y) <= DEVIATIONS * math.sqrt(variance)
        where = "" if self.loss.classes is None or len(self.expected) == 1 else f" for class {self.loss.classes[i]!r}"
        return Calibration(predicted, measured, ratio, is_sure, where, scale)

    def judgment(self) -> Judgment:
        off = self.farthest()
        if off is None:
            return Judgment(self.rows, self.mean_loss, math.nan, math.nan, math.nan)
        return Judgment(self.rows, self.mean_loss, off.predicted, off.measured, off.error)


def add_scores(
    sums: EvaluationSums, score: Callable[[object], Float32Array], rows: LabeledTable, batch: pa.RecordBatch
) -> None:
    """Add the rows of a batch as a model scores them."""
    y, weight = rows.targets(batch)
    sums.loss.check(y, rows.target)
    sums.add(y, weight, score(batch).astype(np.float64))


# Guard: refuse the update of a bad hour.
#
# An hour can be bad in two ways. Its rows are wrong, as when clicks were not logged: then they are far from what the
# model before the update predicts, and a model that learned from them agrees with them. Or learning from them made the
# model worse, as when a step was too long: then the model after the update is worse on rows that it has not seen.


@dataclass(frozen=True)
class Guard:
    """When to refuse an update.

    A bound counts only if it is exceeded by more than chance explains, which is three standard errors: an hour with few
    clicks is not refused because of their number.

    Parameters
    ----------
    validation : float or table
        The rows that judge the model before and after the update: a share of the new rows, which are learned last, once
        the update is accepted; 0 for all new rows, after they were learned; or another table, such as the rows of
        earlier hours. At most 200,000 rows are used.
    max_loss_increase : float
        Largest increase of the loss of those rows, as a share of the loss before the update.
    max_calibration_error : float
        How far predicted / measured may be from 1, for the new rows before the update and for the judging rows after
        it: 0.5 allows ratios from 1 / 1.5 to 1.5. With the squared loss, the difference of the means in standard
        deviations of the target. The Huber loss has no such bound.
    max_change : float, optional
        How far the update may move the score of any segment, also of ones that no row has; see `compare`, which proves
        it. The rows that judge the update are learned before. Models that cannot be compared are refused.

    Examples
    --------
    >>> Guard(validation=0.2).max_calibration_error
    0.5
    """

    validation: float | object = 0.1
    max_loss_increase: float = 0.02
    max_calibration_error: float = 0.5
    max_change: float | None = None

    def __post_init__(self) -> None:
        share = as_share(self.validation)
        if isinstance(self.validation, bool) or (share is not None and not 0.0 <= share < 1.0):
            raise ValueError(
                f"{setting('validation')} must be a share of the rows below 1, or a table, got {self.validation!r}"
            )
        for name in ("max_loss_increase", "max_calibration_error"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{setting(name)} must be at least 0, got {getattr(self, name)!r}")
        if self.max_change is not None and not self.max_change >= 0.0:
            raise ValueError(f"{setting('max_change')} must be at least 0, got {self.max_change!r}")

    def is_off(self, ratio: float) -> bool:
        """Return whether predicted / measured is too far from 1."""
        return not 1.0 / (1.0 + self.max_calibration_error) <= ratio <= 1.0 + self.max_calibration_error


@dataclass(frozen=True)
class Verdict:
    """What a guard measured, and why it refuses an update.

    Parameters
    ----------
    new : Judgment
        The model before the update on the new rows.
    before, after : Judgment
        The models before and after the update on the judging rows.
    reasons : tuple of str
        Why the update is refused; empty if it is not.
    change : Comparison, optional
        How far the update moves scores, if the guard bounds it.
    """

    new: Judgment
    before: Judgment
    after: Judgment
    reasons: tuple[str, ...] = ()
    change: Comparison | None = None

    @property
    def accepted(self) -> bool:
        """Whether the update is accepted."""
        return not self.reasons

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists, strings and numbers."""
        change = None if self.change is None else self.change.to_dict()
        return {**asdict(self), "change": change, "reasons": list(self.reasons), "accepted": self.accepted}


class UpdateRefused(ValueError):
    """The guard refused an update; `verdict` says what it measured, `kept` where the refused model is, if in a file.

    Examples
    --------
    >>> import splinefm as sf
    >>> issubclass(sf.UpdateRefused, ValueError)
    True
    """

    def __init__(self, verdict: Verdict, kept: Path | None = None) -> None:
        self.verdict, self.kept = verdict, kept
        way_out = for_reader("update with guard=None or a larger bound", "add --no-guard or a larger bound")
        aside = "" if kept is None else f"; the refused model is in {str(kept)!r}"
        super().__init__(
            f"the update is refused: {'; '.join(verdict.reasons)}; if the rows are right, {way_out}{aside}"
        )


class GuardedUpdate:
    """One update under a guard: what the model predicted before it, and the rows that judge it.

    Each update holds out other rows, by the steps so far.
    """

    def __init__(self, guard: Guard, before: Fitted, source: LabeledTable, training: Training, n_steps: int) -> None:
        self.guard, self.source, self.threads, self.old = guard, source, training.threads, before
        if guard.max_change is not None:
            check_comparable(before, before)
        share = as_share(guard.validation) or 0.0
        self.held_out = ValidationSample(share, training.seed + n_steps, MAX_VALIDATION_ROWS)
        self.new = EvaluationSums(before.loss, by_row=False)
        score = before.table_scorer(threads=training.threads)
        first = 0
        for batch in source.batches(CHUNK):
            self.held_out.add(first, batch)
            add_scores(self.new, score, source, batch)
            first += batch.num_rows
        self._judges = self._find_judging_rows(training)
        self.before = self._sums(before)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were held out."""
        return _rows_of(self.held_out)

    def judge(self, after: Fitted) -> Verdict:
        """Compare the models before and after the update."""
        sums = self._sums(after)
        rise = LossIncrease.between(self.before.row_losses, sums.row_losses)
        return make_verdict(self.guard, self.new, self.before, sums, rise)

    def judge_change(self, verdict: Verdict, after: Fitted) -> Verdict:
        """Add how far the model moved from the one before the update, once all rows are learned."""
        most = self.guard.max_change
        if most is None:
            return verdict
        try:
            change = compare(self.old, after)
        except NotComparable as error:
            return replace(verdict, reasons=(*verdict.reasons, f"how far scores move is not known: {error}"))
        reason = excess(change, most)
        return replace(verdict, change=change, reasons=(*verdict.reasons, *([] if reason is None else [reason])))

    def _find_judging_rows(self, training: Training) -> ValidationSample:
        """Return the held-out rows, the rows of another table, or the new rows themselves."""
        if as_share(self.guard.validation) is None:
            return sample_validation(replace(self.source, table=self.guard.validation), training)
        return self.held_out if self.held_out.n_rows else sample_validation(self.source, training)

    def _sums(self, fitted: Fitted) -> EvaluationSums:
        sums, score = EvaluationSums(fitted.loss), fitted.table_scorer(threads=self.threads)
        for batch in _rows_of(self._judges):
            add_scores(sums, score, self.source, batch)
        return sums


def make_verdict(
    guard: Guard, new: EvaluationSums, before: EvaluationSums, after: EvaluationSums, rise: LossIncrease
) -> Verdict:
    """Judge an update: the old model on the new rows, and both models on the judging rows, whose losses rise."""
    found = (new.judgment(), before.judgment(), after.judgment())
    return Verdict(*found, tuple(_reasons(guard, new, before, after, rise)))


def _reasons(
    guard: Guard, new: EvaluationSums, before: EvaluationSums, after: EvaluationSums, rise: LossIncrease
) -> Iterator[str]:
    bound = guard.max_loss_increase
    # Written so that NaN is refused.
    if not after.excess <= before.excess * (1.0 + bound) and rise.is_sure:
        yield (
            f"the mean loss of {after.rows:,} judging rows rises from {before.mean_loss:.5g} to "
            f"{after.mean_loss:.5g}, by more than {bound:.2%}"
        )
    for sums, what in ((new, "new rows before the update"), (after, "judging rows after the update")):
        off = sums.farthest()
        if off is not None and guard.is_off(off.ratio) and off.is_sure:
            limit = guard.max_calibration_error
            yield (
                f"{off.measure} of {sums.rows:,} {what} is {off.error:+.3g}{off.where} (predicted "
                f"{off.predicted:.5g}, measured {off.measured:.5g}); allowed: {off.lowest(limit):.3g} to {limit:g}"
            )


def _rows_of(sample: ValidationSample) -> Iterator[pa.RecordBatch]:
    return (batch for _, batch in sample.parts if batch.num_rows)
