"""The order in which people expect categories that are numbers, booleans, days, months or dates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from splinefm.encode.tables.arrow import to_arrow, to_numpy

_NUMBER = r"^-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_DATE = r"^\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}.*)?)?$"
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_WORDS = tuple({word[:cut]: i for i, word in enumerate(words) for cut in (3, None)} for words in (_DAYS, _MONTHS))
_ORDERED_WORDS = ({"false": 0, "true": 1}, *_WORDS)
_MOST_WORDS = 100


def natural_ranks(names: pa.LargeStringArray) -> npt.NDArray[np.intp] | None:
    """The ranks of names in the order of what they mean; None where they mean nothing that has an order.

    Numbers by size, false before true, days from Monday to Sunday, months from January to December (in English, whole
    or in three letters), ISO dates and months in time. More than half of the names must be of one such kind; the
    others share the last rank.

    Examples
    --------
    >>> natural_ranks(pa.array(["10", "9", "?", "-1"], pa.large_string()))
    array([2, 1, 3, 0])
    >>> natural_ranks(pa.array(["Tue", "Mon"], pa.large_string())), natural_ranks(pa.array(["b"], pa.large_string()))
    (array([1, 0]), None)
    """
    for keys in (_numbers(names), _dates(names), *_words(names)):
        known = np.isfinite(keys)
        if 2 * known.sum() > len(names):
            ranks = np.full(len(names), len(names), np.intp)
            ranks[known] = np.unique(keys[known], return_inverse=True)[1]
            return np.unique(ranks, return_inverse=True)[1].astype(np.intp)
    return None


def _numbers(names: pa.LargeStringArray) -> npt.NDArray[np.float64]:
    """The number of each name, NaN where it is none."""
    keys = np.full(len(names), np.nan)
    numeric = to_numpy(pc.match_substring_regex(names, _NUMBER))
    keys[numeric] = to_numpy(names.filter(to_arrow(numeric)).cast(pa.float64()))
    return keys


def _dates(names: pa.LargeStringArray) -> npt.NDArray[np.float64]:
    """The rank of each name among those that are dates, whose text sorts by time; NaN where it is none."""
    keys = np.full(len(names), np.nan)
    dates = to_numpy(pc.match_substring_regex(names, _DATE))
    keys[dates] = np.unique(names.filter(to_arrow(dates)).to_pylist(), return_inverse=True)[1]
    return keys


def _words(names: pa.LargeStringArray) -> list[npt.NDArray[np.float64]]:
    """For each set of ordered words the rank of each name, NaN where it is none of them."""
    if len(names) > _MOST_WORDS:
        return []
    lower = [name.lower() for name in names.to_pylist()]
    return [np.array([ranks.get(name, np.nan) for name in lower], np.float64) for ranks in _ORDERED_WORDS]
