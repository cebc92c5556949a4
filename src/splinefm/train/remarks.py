"""Remarks on a fit: what its evidence says to somebody who did not expect it, with a way out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote

from splinefm._wording import for_reader
from splinefm.train.settings import L2, Evidence, Training, penalties_by_field

# A model is no better than a constant if it gains less than so many standard errors, and explains less than this share
# or, of few rows, what chance explains of them where the best of several epochs is kept.
WITHIN, HARDLY, BY_CHANCE = 2.0, 0.01, 10.0
# A column knows the target if the model explains this share, and the column by itself nearly as much: in a model that
# shrinks all weights, columns that know a part of the target take a little of its effect.
NEARLY_ALL, BY_ITSELF = 0.99, 0.95
# Less than this share of what the training rows gain holds for the held-out rows, by so many standard errors.
HOLDS, BEYOND = 0.7, 3.0
# An L2 penalty to try is so many times the one that was used.
MORE = 10.0
# Held-out rows below which standard errors mean little.
FEWEST = 20


class RemarkKind(StrEnum):
    """What a remark is about."""

    NO_GAIN = "no gain"
    LEAK = "leak"
    OVERFIT = "overfit"


@dataclass(frozen=True)
class Remark:
    """Something about a fit that its user may not expect; `str` says it in words.

    Parameters
    ----------
    kind : RemarkKind
        What it is about.
    columns : tuple of str
        The columns it is about, if any.
    share : float
        Of what the best constant leaves, the share that is explained in held-out rows: by the model, or by the column.
    training_share : float
        The share that the model explains in the training rows.
    l2 : float
        The L2 penalty to try.

    Examples
    --------
    >>> print(Remark(RemarkKind.LEAK, ("paid",), share=0.998))
    'paid' alone explains 99.8% of the target: is it known before the target is? If not, leave the column out
    """

    kind: RemarkKind
    columns: tuple[str, ...] = ()
    share: float = 0.0
    training_share: float = 0.0
    l2: float = 0.0

    def __str__(self) -> str:
        return _WORDS[self.kind](self)


def _no_gain(_: Remark) -> str:
    return (
        "the model is hardly better on held-out rows than one constant prediction for all of them. Check that the "
        "target is the right column, that its rows match those of the other columns, and that these could know "
        "something about it; with few rows, more of them may help"
    )


def _leak(remark: Remark) -> str:
    column, *_ = remark.columns
    way_out = for_reader("", f" with --ignore {quote(column)}")
    return (
        f"{column!r} alone explains {math.floor(1000 * remark.share) / 10:.1f}% of the target: is it known "
        f"before the target is? If not, leave the column out{way_out}"
    )


def _overfit(remark: Remark) -> str:
    l2 = for_reader(f"l2={remark.l2:g}", f"--l2 {remark.l2:g}")
    return (
        f"the model explains {remark.training_share:.0%} of the target in the rows it learns from, but "
        f"{max(0.0, remark.share):.0%} in held-out rows: it learns some of them by heart. Try more rows, a larger l2 "
        f"(such as {l2}), or fewer columns"
    )


_WORDS = {RemarkKind.NO_GAIN: _no_gain, RemarkKind.LEAK: _leak, RemarkKind.OVERFIT: _overfit}


def find_remarks(evidence: Evidence | None, training: Training) -> tuple[Remark, ...]:
    """Return the remarks on a fit; without evidence, there are none."""
    if evidence is None or evidence.rows < FEWEST:
        return ()
    found = []
    if evidence.share < max(HARDLY, BY_CHANCE / evidence.rows) and evidence.gain < WITHIN * evidence.gain_error:
        found.append(Remark(RemarkKind.NO_GAIN, share=evidence.share))
    if evidence.column and evidence.share >= NEARLY_ALL and evidence.column_share >= BY_ITSELF:
        found.append(Remark(RemarkKind.LEAK, (evidence.column,), evidence.column_share))
    gap = evidence.loss - evidence.training_loss
    if gap > BEYOND * evidence.error and evidence.share < HOLDS * evidence.training_share:
        l2 = MORE * _largest_l2(training)
        found.append(Remark(RemarkKind.OVERFIT, share=evidence.share, training_share=evidence.training_share, l2=l2))
    return tuple(found)


def _largest_l2(training: Training) -> float:
    given = training.l2 if isinstance(training.l2, float) else max(penalties_by_field(training.l2).values(), default=L2)
    return given or L2
