"""Numbers that stand by themselves: days of the week, and values that a cross reads as categories.

Between two such numbers there is nothing to show. The score there is that of a value the model has not met: a cross
has no feature for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import Part
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Single
from splinefm.view.axes import special_values
from splinefm.view.formats import axis_format

FloatArray = npt.NDArray[np.float64]


def known_values(item: Single, parts: Iterable[Part] = ()) -> FloatArray | None:
    """The values of a field that views show, in increasing order and without special ones; None if it has a range.

    Parameters
    ----------
    item : field
        The field along which a view runs.
    parts : iterable of fields
        The parts of crosses that read the same values; see `Sources.parts`.

    Examples
    --------
    >>> hour = Numerical("hour")
    >>> known_values(hour), known_values(hour, [Categorical("hour", vocabulary=["10", "9", "n/a"])])
    (None, array([ 9., 10.]))
    >>> known_values(Numerical("day", part="weekday"))
    array([0., 1., 2., 3., 4., 5., 6.])
    """
    if not isinstance(item, Numerical):
        return None
    found = [_numbers(part) for part in parts if isinstance(part, Categorical)]
    if axis_format(item).integers:
        found.append(np.arange(7.0))
    every = np.unique(np.concatenate([np.empty(0), *found]))
    ordinary: FloatArray = every[~special_values(item, every)]
    return ordinary if len(ordinary) else None


def shown_values(known: FloatArray, low: float, high: float, n: int) -> FloatArray:
    """At most n > 1 of the values from low to high: the first, the last, and others evenly spread over their ranks.

    Examples
    --------
    >>> shown_values(np.arange(24.0), 0.0, 30.0, 4), shown_values(np.arange(24.0), 0.5, 2.5, 4)
    (array([ 0.,  8., 15., 23.]), array([1., 2.]))
    """
    return spread_values(known[(known >= low) & (known <= high)], n)


def spread_values(known: FloatArray, n: int) -> FloatArray:
    """At most n > 1 of all values, likewise.

    Examples
    --------
    >>> spread_values(np.arange(24.0), 3)
    array([ 0., 12., 23.])
    """
    return known[np.linspace(0, len(known) - 1, min(n, len(known))).round().astype(np.intp)]


def _numbers(part: Categorical) -> FloatArray:
    """The names of the categories that are finite numbers."""
    names = pa.array([], pa.large_string()) if part.vocabulary is None else part.vocabulary.names
    numbers = np.array([_number(name) for name in names.to_pylist()], np.float64)
    return numbers[np.isfinite(numbers)]


def _number(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return np.nan
