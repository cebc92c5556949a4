"""Penalties as they are given: one number for all fields, or numbers by field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from splinefm._wording import setting

_NUMBERS = int | float | np.integer | np.floating
# One number for all fields, numbers by field (kept as sorted pairs), or None for the default.
Penalty = float | Mapping[str, float] | tuple[tuple[str, float], ...] | None


def checked_penalty(name: str, value: Penalty) -> Penalty:
    """Return the penalty with a mapping turned into pairs, which can be compared, hashed and written as JSON."""
    if value is None or isinstance(value, _NUMBERS):
        return None if value is None else checked_number(name, value)
    try:
        given = dict(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or a mapping from field names to numbers, got {value!r}") from None
    return tuple(sorted((str(key), checked_number(f"{name} of {key!r}", number)) for key, number in given.items()))


def checked_number(name: str, value: object) -> float:
    if not isinstance(value, _NUMBERS) or not 0.0 <= value < math.inf:
        raise ValueError(f"{setting(name)} must be at least 0, got {value}")
    return float(value)


def by_name(penalty: Penalty) -> dict[str, float]:
    return {} if penalty is None or isinstance(penalty, float) else dict(penalty)


def filled_in(penalty: Penalty, names: Sequence[str], value: float) -> Penalty:
    if penalty is None or isinstance(penalty, float):
        return value if penalty is None else penalty
    return dict.fromkeys(names, value) | dict(penalty)


def penalty_by_field(penalty: Penalty, names: Sequence[str]) -> list[float]:
    """Return the penalty of each field of these names."""
    if isinstance(penalty, float):
        return [penalty] * len(names)
    found = by_name(penalty)  # once, since there can be thousands of fields
    return [found[name] for name in names]


def rounded(value: float) -> float:
    """Return a number with three digits: users read it in `fitted.training`."""
    return float(f"{value:.3g}")
