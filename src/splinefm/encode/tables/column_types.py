"""Types of the columns of text files: as the caller asks, or as the beginnings of the files suggest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import pyarrow as pa


def ordered_types(types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    return {name: kind for name, kind in types.items() if not _is_wish(kind)}


def _is_wish(kind: pa.DataType) -> bool:
    # A caller that asks for numbers also takes text, and names the value that is not a number.
    return bool(pa.types.is_float64(kind))


def column_type(found: Sequence[pa.DataType], wanted: pa.DataType | None) -> pa.DataType:
    """The type to read a column with, from what the beginnings of the files look like."""
    if wanted is not None and not _is_wish(wanted):
        return wanted
    kinds = {kind for kind in found if not pa.types.is_null(kind)}
    are_numbers = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds)
    if wanted is not None:
        return wanted if are_numbers else pa.large_string()
    if len(kinds) == 1:
        return kinds.pop()
    if kinds and are_numbers:
        return pa.float64()
    if kinds and all(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in kinds):
        return _time_type(kinds)
    # Nothing has been seen of a column that is empty in the beginning: text takes whatever comes.
    return pa.large_string()


def _time_type(kinds: Set[pa.DataType]) -> pa.DataType:
    """A type for dates and times; those of a zone and those of none cannot be compared and stay text."""
    times = [kind for kind in kinds if pa.types.is_timestamp(kind)]
    if len({kind.tz for kind in times}) > 1 or (times[0].tz and len(times) < len(kinds)):
        return pa.large_string()
    return max(times, key=lambda kind: ["s", "ms", "us", "ns"].index(kind.unit))
