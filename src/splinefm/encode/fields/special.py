"""Special values of a numerical field: numbers and comparisons that have a feature each.

This is the only module that reads their spelling. Everything else asks `Numerical.rules`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# The order is that of `Rule::Sign` in cpp/scorer/number_field.hpp.
SIGNS = ("==", "<", "<=", ">", ">=")
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Comparison(NamedTuple):
    """A rule that a raw value x may match: `x sign number`.

    Examples
    --------
    >>> Comparison(">=", 999.0).matches(np.array([5.0, 999.0]))
    array([False,  True])
    """

    sign: str
    number: float

    def matches(self, x: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether each value matches; NaN matches nothing."""
        return np.asarray(_OPERATORS[self.sign](x, self.number))


def parse_special(rule: float | str) -> Comparison:
    """The comparison that a special value stands for.

    Examples
    --------
    >>> parse_special(0.0), parse_special("negative"), parse_special(">= 999")
    (Comparison(sign='==', number=0.0), Comparison(sign='<', number=0.0), Comparison(sign='>=', number=999.0))
    """
    if not isinstance(rule, str):
        return Comparison("==", rule)
    if rule == "negative":
        return Comparison("<", 0.0)
    for sign in sorted(SIGNS, key=len, reverse=True):
        if rule.startswith(sign):
            return Comparison(sign, float(rule.removeprefix(sign)))
    raise ValueError(rule)


def first_matches(rules: Sequence[Comparison]) -> list[float]:
    """For each comparison a value that it matches and none before it does; its limit if there is no such value.

    Examples
    --------
    >>> first_matches([Comparison("==", 5.0), Comparison(">=", 5.0), Comparison("<", 0.0)])
    [5.0, 5.000000000000001, -5e-324]
    """
    limits = [rule.number for rule in rules]
    # Rules change at their limits only, so that each limit and its neighbors are examples of all that can match.
    beside = [[x, float(np.nextafter(x, np.inf)), float(np.nextafter(x, -np.inf))] for x in limits]
    found = []
    for i, limit in enumerate(limits):
        x = np.array([value for values in (beside[i], *beside) for value in values])
        first = rules[i].matches(x) & ~np.any([rule.matches(x) for rule in rules[:i]], axis=0)
        found.append(float(x[first][0]) if first.any() else limit)
    return found


def check_special(special: Any) -> tuple[float | str, ...]:
    """Special values as floats and strings; raise where one cannot be read or stands there twice."""
    if isinstance(special, str | float | int):
        special = (special,)
    rules: list[float | str] = []
    for rule in special:
        try:
            sign, number = parse_special(rule if isinstance(rule, str) else float(rule))
        except (ValueError, TypeError, OverflowError):
            sign, number = "", np.nan
        if np.isnan(number):
            raise ValueError(
                f'special takes numbers, "negative", or comparisons such as ">= 999"; got {rule!r}'
                + (" (missing values have a feature already: see `missing`)" if isinstance(rule, float) else "")
            )
        rules.append(float(number) if sign == "==" else rule)  # files write infinity as "== inf"
    if len(set(rules)) < len(rules):
        raise ValueError(f"special names a value twice: {rules}")
    return tuple(rules)
