"""Guard: refuse the update of a bad hour.

An hour can be bad in two ways. Its rows are wrong, as when clicks were not logged: then they are far from what the
model before the update predicts, and a model that learned from them agrees with them. Or learning from them made the
model worse, as when a step was too long: then the model after the update is worse on rows that it has not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from splinefm._wording import for_reader, setting
from splinefm.encode.encoder import CHUNK
from splinefm.learn.fitted import Fitted
from splinefm.learn.rows.held_out import MOST_VALIDATION_ROWS, ValidationSample, as_share, sample_validation
from splinefm.learn.rows.source import Source
from splinefm.learn.training import Training
from splinefm.learn.updates.sums import Judgment, Rise, Sums, score_rows


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

    Examples
    --------
    >>> Guard(validation=0.2).max_calibration_error
    0.5
    """

    validation: float | object = 0.1
    max_loss_increase: float = 0.02
    max_calibration_error: float = 0.5

    def __post_init__(self) -> None:
        share = as_share(self.validation)
        if isinstance(self.validation, bool) or (share is not None and not 0.0 <= share < 1.0):
            raise ValueError(
                f"{setting('validation')} must be a share of the rows below 1, or a table, got {self.validation!r}"
            )
        for name in ("max_loss_increase", "max_calibration_error"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{setting(name)} must be at least 0, got {getattr(self, name)!r}")

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
    """

    new: Judgment
    before: Judgment
    after: Judgment
    reasons: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the update is accepted."""
        return not self.reasons

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists, strings and numbers."""
        return {**asdict(self), "reasons": list(self.reasons), "accepted": self.accepted}


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


class Trial:
    """One update under a guard: what the model said before it, and the rows that judge it.

    Parameters
    ----------
    guard : Guard
        The bounds.
    before : Fitted
        The model before the update.
    source : Source
        The new rows.
    training : Training
        Seed and threads.
    number : int
        Steps so far: each update holds out other rows.
    """

    def __init__(self, guard: Guard, before: Fitted, source: Source, training: Training, number: int) -> None:
        self.guard, self.source, self.threads = guard, source, training.threads
        share = as_share(guard.validation) or 0.0
        self.held_out = ValidationSample(share, training.seed + number, MOST_VALIDATION_ROWS)
        self.new = Sums(before.loss, by_row=False)
        score = before.table_scorer(threads=training.threads)
        first = 0
        for batch in source.batches(CHUNK):
            self.held_out.add(first, batch)
            score_rows(self.new, score, source, batch)
            first += batch.num_rows
        self._judges = self._find_judges(training)
        self.before = self._sums(before)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were held out."""
        return _rows_of(self.held_out)

    def judge(self, after: Fitted) -> Verdict:
        """Compare the model after the update with that before it."""
        sums = self._sums(after)
        rise = Rise.between(self.before.row_losses, sums.row_losses)
        return make_verdict(self.guard, self.new, self.before, sums, rise)

    def _find_judges(self, training: Training) -> ValidationSample:
        """Return the held-out rows, those of another table, or the new rows themselves."""
        if as_share(self.guard.validation) is None:
            return sample_validation(replace(self.source, table=self.guard.validation), training)
        return self.held_out if self.held_out.n_rows else sample_validation(self.source, training)

    def _sums(self, fitted: Fitted) -> Sums:
        sums, score = Sums(fitted.loss), fitted.table_scorer(threads=self.threads)
        for batch in _rows_of(self._judges):
            score_rows(sums, score, self.source, batch)
        return sums


def make_verdict(guard: Guard, new: Sums, before: Sums, after: Sums, rise: Rise) -> Verdict:
    """Judge an update.

    Parameters
    ----------
    guard : Guard
        The bounds.
    new : Sums
        The model before the update on the new rows.
    before, after : Sums
        The models before and after the update on the judging rows.
    rise : Rise
        How the losses of the judging rows change.
    """
    found = (new.judgment(), before.judgment(), after.judgment())
    return Verdict(*found, tuple(_reasons(guard, new, before, after, rise)))


def _reasons(guard: Guard, new: Sums, before: Sums, after: Sums, rise: Rise) -> Iterator[str]:
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
