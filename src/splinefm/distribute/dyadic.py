"""Sums whose rounding does not depend on who adds what: parts are added in a fixed tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Part = TypeVar("_Part")


@dataclass
class Dyadic(Generic[_Part]):
    """Values of numbered blocks, joined in pairs: 0 with 1, 2 with 3, then 0-1 with 2-3, and so on.

    Two processes that have neighboring blocks and merge what they have get what one process has: every pair is joined
    once, the left one with the right one. At most two values per level of the tree wait for their neighbor.

    Parameters
    ----------
    join : callable
        Joins a value with that of the blocks after it.

    Examples
    --------
    >>> first, second = Dyadic(lambda a, b: f"({a}{b})"), Dyadic(lambda a, b: f"({a}{b})")
    >>> for block, letter in enumerate("abcde"):
    ...     (first if block < 3 else second).add(block, letter)
    >>> first.merge(second)
    >>> first.values()
    ['((ab)(cd))', 'e']
    """

    join: Callable[[_Part, _Part], _Part]
    waiting: dict[tuple[int, int], _Part] = field(default_factory=dict)
    """Values by level and number: number i of level l stands for the blocks from i 2^l to (i + 1) 2^l - 1."""

    def add(self, block: int, value: _Part) -> None:
        """Add the value of a block."""
        self._put(0, block, value)

    def merge(self, other: Dyadic[_Part]) -> None:
        """Add the values of other blocks."""
        for (level, number), value in sorted(other.waiting.items(), key=lambda item: item[0]):
            self._put(level, number, value)

    def values(self) -> list[_Part]:
        """Return what is not joined, in the order of the blocks; at most one value per level if blocks begin at 0."""
        return [value for _, value in sorted(self.waiting.items(), key=lambda item: item[0][1] << item[0][0])]

    def _put(self, level: int, number: int, value: _Part) -> None:
        if (level, number) in self.waiting:
            raise ValueError(f"block {number << level} was added twice")
        neighbor = self.waiting.pop((level, number ^ 1), None)
        if neighbor is None:
            self.waiting[level, number] = value
        elif number % 2:
            self._put(level + 1, number // 2, self.join(neighbor, value))
        else:
            self._put(level + 1, number // 2, self.join(value, neighbor))
