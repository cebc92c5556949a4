"""Shapes that a field asks for: rising or falling, convex or concave, with slopes between two limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from splinefm._checks import check_choice

DIRECTIONS = {"increasing": 1, "decreasing": -1}
CURVATURES = {"convex": 1, "concave": -1}
SHAPES = (*DIRECTIONS, *CURVATURES)


class Shape(NamedTuple):
    """What holds for the curves of a field in every segment.

    Examples
    --------
    >>> Shape(direction=1, high=2.0).slopes, Shape(curvature=-1).is_monotone
    ((0.0, 2.0), False)
    """

    direction: int = 0
    """1 for curves that never fall, -1 for curves that never rise."""
    curvature: int = 0
    """1 for convex curves, -1 for concave ones."""
    low: float = -math.inf
    high: float = math.inf
    """Limits of the slope, in score per unit of the column."""

    @property
    def slopes(self) -> tuple[float, float]:
        """The limits of the slope, the direction included."""
        low = max(self.low, 0.0) if self.direction > 0 else self.low
        high = min(self.high, 0.0) if self.direction < 0 else self.high
        return low, high

    @property
    def has_limits(self) -> bool:
        """Whether slopes have limits of their own."""
        return math.isfinite(self.low) or math.isfinite(self.high)

    @property
    def is_monotone(self) -> bool:
        """Whether it says nothing but the direction, which no increasing transform of the column changes."""
        return not self.curvature and not self.has_limits


def check_shape(shape: Any) -> str | tuple[str, ...] | None:
    """One word or two of them that go together; raise for anything else.

    Examples
    --------
    >>> check_shape(["increasing", "concave"]), check_shape(["convex"])
    (('increasing', 'concave'), 'convex')
    """
    if shape is None:
        return None
    words = (shape,) if isinstance(shape, str) else tuple(shape) if isinstance(shape, Sequence) else (shape,)
    for word in words:
        check_choice("shape", word, SHAPES)
    if not words or len(words) != len(set(words)):
        raise ValueError(f"shape takes one word or two different ones, got {shape!r}")
    for pair in (DIRECTIONS, CURVATURES):
        if len([word for word in words if word in pair]) > 1:
            raise ValueError(f"shape must be one of {', '.join(pair)}, not both, got {shape!r}")
    return words[0] if len(words) == 1 else words


def check_slope(slope: Any) -> tuple[float, float] | None:
    """Two limits, infinite where there is none; raise for anything else.

    Examples
    --------
    >>> check_slope([0, 2]), check_slope((None, 1.5))
    ((0.0, 2.0), (-inf, 1.5))
    """
    if slope is None:
        return None
    try:
        low, high = (_limit(end, default) for end, default in zip(slope, (-math.inf, math.inf), strict=True))
    except (TypeError, ValueError) as error:
        raise ValueError(f"slope takes two numbers, the lowest and the highest slope, got {slope!r}") from error
    if not low < high or low == math.inf or high == -math.inf:
        raise ValueError(f"slope must be (low, high) with low < high, got {slope!r}")
    if math.isinf(low) and math.isinf(high):
        raise ValueError(f"slope needs a limit, got {slope!r}")
    return low, high


def _limit(end: Any, default: float) -> float:
    if isinstance(end, str):  # files write infinity as "== inf"
        end = end.removeprefix("==").strip()
        if end not in ("inf", "-inf"):
            raise ValueError(end)
    return default if end is None else float(end)


def describe_shape(shape: str | tuple[str, ...] | None, slope: tuple[float, float] | None = None) -> dict[str, str]:
    """The settings in words, for those that are given.

    Examples
    --------
    >>> describe_shape(("increasing", "concave"), (0.0, math.inf))
    {'shape': 'increasing, concave', 'slope': '0 to inf'}
    """
    words = {} if shape is None else {"shape": shape if isinstance(shape, str) else ", ".join(shape)}
    return words if slope is None else {**words, "slope": f"{slope[0]:g} to {slope[1]:g}"}


def make_shape(shape: str | tuple[str, ...] | None, slope: tuple[float, float] | None = None) -> Shape | None:
    """What checked words and limits ask for; None where they ask for nothing, an error where they contradict.

    Examples
    --------
    >>> make_shape(("increasing", "concave"), (-math.inf, 2.0))
    Shape(direction=1, curvature=-1, low=-inf, high=2.0)
    """
    if shape is None and slope is None:
        return None
    words = () if shape is None else (shape,) if isinstance(shape, str) else shape
    found = Shape(
        sum(DIRECTIONS.get(word, 0) for word in words),
        sum(CURVATURES.get(word, 0) for word in words),
        *(slope or (-math.inf, math.inf)),
    )
    first, last = found.slopes
    if first >= last:
        raise ValueError(f"shape={shape!r} and slope={slope!r} leave no slope")
    return found
