"""Names of columns: which are repeated, which are absent, and what a misspelled one may stand for."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import Literal

# From this share of common letters on, names are offered in place of one that is not there.
_ALIKE = 0.6


def missing_column_message(
    name: str, names: Sequence[str], kind: Literal["column", "field"] = "column", place: str = "the table"
) -> str:
    """What to tell about a column that a table does not have: the nearest names and those that exist.

    Examples
    --------
    >>> missing_column_message("recencyy", ["recency", "country"])
    "no column 'recencyy' in the table; nearest: 'recency'. Columns: 'recency', 'country'"
    """
    return f"no {kind} {name!r} in {place}{nearest_hint(name, names)}. {kind.capitalize()}s: {quoted(names)}"


def nearest_hint(name: str, names: Sequence[str], most: int = 3) -> str:
    """The names that a misspelled one may stand for, the likeliest first: what to add to a message.

    Examples
    --------
    >>> nearest_hint("Age", ["age in years", "hours", "country"])
    "; nearest: 'age in years'"
    """
    found = nearest_names(name, names, most)
    return f"; nearest: {quoted(found)}" if found else ""


def nearest_names(name: str, names: Sequence[str], most: int = 3) -> list[str]:
    """The names that are most like one: those that are equal but for upper case and signs, then those that contain it
    or are contained in it, then those that share letters. Where none is like it, those that share most.
    """
    wanted = _letters(str(name))
    scored = []
    for place, other in enumerate(names):
        letters = _letters(other)
        within = min(len(wanted), len(letters)) > 1 and (wanted in letters or letters in wanted)
        ratio = difflib.SequenceMatcher(None, wanted, letters).ratio()
        scored.append((-(wanted == letters), -within, -ratio, place))
    scored.sort()
    alike = [names[place] for same, within, ratio, place in scored if same or within or -ratio >= _ALIKE]
    if not alike and len(names) <= most:  # a list of all says no more than the names themselves
        return []
    return (alike or [names[place] for *_, place in scored])[:most]


def _letters(name: str) -> str:
    """A name without what people misremember; itself, if nothing else is in it."""
    return "".join(filter(str.isalnum, name.casefold())) or name


def quoted(names: Sequence[str], most: int = 20) -> str:
    more = f", ... and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def check_names(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"duplicate column names: {quoted(twice)}; rename or drop the repeated columns")
