"""Arms of an A/B split: which key belongs to which arm."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from splinefm.encode.plans import name_of

_SALT = b"splinefm arms"


def position_of(key: str) -> float:
    """Where a key lies between 0 and 1: always the same, in all processes, and uniform over keys.

    Examples
    --------
    >>> 0.0 <= position_of("user 7") < 1.0
    True
    """
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, person=_SALT).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


def key_name(value: Any) -> str:
    """The text of a key: 7, 7.0 and "7" are one user.

    Examples
    --------
    >>> key_name(7.0), key_name("7")
    ('7', '7')
    """
    name = name_of(value)
    return str(value) if name is None else name


class ArmSplit:
    """Shares of the keys.

    Keys lie between 0 and 1, and arms have intervals in the order in which they are named: if weights change, only the
    keys between the old and the new ends change their arm.

    Parameters
    ----------
    weights : mapping of str to float
        Weight of each arm; at least one is above 0.

    Examples
    --------
    >>> split = ArmSplit({"control": 90, "new": 10})
    >>> split.arm_at(0.0), split.arm_at(0.95)
    ('control', 'new')
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = {name: float(weight) for name, weight in weights.items()}
        total = sum(self.weights.values())
        if not (total > 0.0 and total < float("inf")) or min(self.weights.values()) < 0.0:
            raise ValueError(f"weights must be at least 0, and one of them above 0; got {dict(weights)}")
        live = [(name, weight) for name, weight in self.weights.items() if weight > 0.0]
        self.names = [name for name, _ in live]
        self._ends = list(accumulate(weight / total for _, weight in live))[:-1]  # the last one ends at 1

    def arm_at(self, place: float) -> str:
        """The arm at a place between 0 and 1."""
        return self.names[bisect_right(self._ends, place)]

    def arm_of(self, key: Any) -> str:
        """The arm of a key."""
        return self.names[0] if len(self.names) == 1 else self.arm_at(position_of(key_name(key)))

    def arms_of(self, keys: Sequence[Any]) -> list[str]:
        """The arm of each key."""
        return [self.arm_of(key) for key in keys]
