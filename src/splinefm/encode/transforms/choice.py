"""The rule behind transform="auto"."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.encode.transforms.points import Float, distinct_points, weighted_quantile
from splinefm.encode.transforms.quantile import Quantile
from splinefm.encode.transforms.scaling import MinMax
from splinefm.encode.transforms.transform import Transform

FEW_VALUES = 32  # up to this many distinct values are spread by rank
CELLS = 20  # a column is spread evenly if each of this many equal cells of [0, 1] ...
CELL_SHARE = 0.25  # ... holds at least this part of its even share of the rows
ATOM = 0.02  # a value with this share of the rows is an atom, which no smooth CDF can follow
GOOD_FIT = 0.01  # root mean square distance below which a parametric CDF replaces the empirical one
ATOM_SHARE = 0.05  # of [0, 1], the most that "auto" leaves to one value
TAIL_SPAN = 0.5  # heavy tail: the middle 98 % of the rows take less than this part of the range


def choose_transform(x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> tuple[Transform, str]:
    """Choose and fit a transform for a column, with the reason for the choice.

    The first that applies:

    1. At most 32 distinct values: `Quantile` of the distinct values, equally spaced by rank.
    2. Each of 20 equal cells between the ends holds at least a quarter of its even share: `MinMax`.
    3. No value has 2 % of the rows, and a parametric CDF is within 0.01 of the held-out ranks (root
       mean square): `BestFitCDF`.
    4. Otherwise: `Quantile` that leaves at most 5 % of [0, 1] to one value.

    Parameters
    ----------
    x, weight
        Finite values and their non-negative counts (1 each if left out).

    Returns
    -------
    The fitted transform, and the reason in words.

    Examples
    --------
    >>> transform, reason = choose_transform(np.arange(12.0))
    >>> reason
    '12 distinct values: equally spaced by rank'
    """
    values, weights = distinct_points(x, weight)
    if len(values) <= FEW_VALUES:
        plural = "s" if len(values) > 1 else ""
        return Quantile().fit(values), f"{len(values)} distinct value{plural}: equally spaced by rank"
    share = weights / weights.sum()
    return _if_even(values, share) or _if_parametric(values, share) or _by_rank(values, share)


def _if_even(values: Float, share: Float) -> tuple[Transform, str] | None:
    transform = MinMax().fit(values)
    cells = np.minimum((transform(values) * CELLS).astype(np.int64), CELLS - 1)
    emptiest = np.bincount(cells, weights=share, minlength=CELLS).min()
    if emptiest < CELL_SHARE / CELLS:
        return None
    low, high = values[0], values[-1]
    return transform, (
        f"bounded and spread evenly: each of {CELLS} equal cells between {low:.4g} and {high:.4g} "
        f"holds at least {emptiest:.1%} of the rows"
    )


def _if_parametric(values: Float, share: Float) -> tuple[Transform, str] | None:
    if share.max() >= ATOM:
        return None
    transform = BestFitCDF().fit(values, share)
    family, distance = transform.scores[0]
    if distance >= GOOD_FIT:
        return None
    close = f"close to {family} (rms distance {distance:.4f})"
    return transform, "; ".join(filter(None, (_tail_words(values, share), close)))


def _by_rank(values: Float, share: Float) -> tuple[Transform, str]:
    transform = Quantile(atom_share=ATOM_SHARE).fit(values, share)
    why = "; ".join(filter(None, (_tail_words(values, share), _atom_words(values, share))))
    return transform, f"{why or 'unevenly spread, and no parametric CDF is close'}: spread by rank"


def _tail_words(values: Float, share: Float) -> str:
    low, high = values[0], values[-1]
    first, last = (weighted_quantile(values, share, q) for q in (0.01, 0.99))
    if last - first >= TAIL_SPAN * (high - low):
        return ""
    return f"heavy tail (98% of the rows from {first:.4g} to {last:.4g}, all from {low:.4g} to {high:.4g})"


def _atom_words(values: Float, share: Float) -> str:
    top = int(share.argmax())
    return f"the value {values[top]:.4g} has {share[top]:.1%} of the rows" if share[top] >= ATOM else ""
