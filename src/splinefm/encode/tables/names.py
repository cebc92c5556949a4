"""Names of columns: which are repeated, which are absent, and what a misspelled one may stand for."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import Literal

# Names that share at least this part of their letters are offered for one that does not exist.
_ALIKE = 0.6


def missing_column_message(
    name: str, names: Sequence[str], kind: Literal["column", "field"] = "column", where: str = "the table"
) -> str:
    """The message for a column that a table does not have: the closest names and those that exist.

    Examples
    --------
    >>> missing_column_message("recencyy", ["recency", "country"])
    "no column 'recencyy' in the table; nearest: 'recency'. Columns: 'recency', 'country'"
    """
    return f"no {kind} {name!r} in {where}{nearest_hint(name, names)}. {kind.capitalize()}s: {quoted(names) or 'none'}"


def nearest_hint(name: str, names: Sequence[str], most: int = 3) -> str:
    """The part of a message that suggests names for a misspelled one, the likeliest first.

    Examples
    --------
    >>> nearest_hint("Age", ["age in years", "hours", "country"])
    "; nearest: 'age in years'"
    """
    found = nearest_names(name, names, most)
    return f"; nearest: {quoted(found)}" if found else ""


def nearest_names(name: str, names: Sequence[str], most: int = 3) -> list[str]:
    """The names that are most like one: those that are equal but for upper case and signs, then those that contain it
    or are contained in it, then those that share letters. None where none is like it.
    """
    wanted = _letters(str(name))
    scored = []
    for index, other in enumerate(names):
        letters = _letters(other)
        within = min(len(wanted), len(letters)) > 1 and (wanted in letters or letters in wanted)
        ratio = difflib.SequenceMatcher(None, wanted, letters).ratio()
        scored.append((-(wanted == letters), -within, -ratio, index))
    scored.sort()
    return [names[index] for same, within, ratio, index in scored if same or within or -ratio >= _ALIKE][:most]


def _letters(name: str) -> str:
    """The letters and digits of a name, in lower case; the name itself if it has none."""
    return "".join(filter(str.isalnum, name.casefold())) or name


def quoted(names: Sequence[str], most: int = 20) -> str:
    more = f", ... and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def counted(what: str, names: Sequence[str], most: int = 3) -> str:
    """How many names there are and the first of them, for short texts on an object.

    Examples
    --------
    >>> counted("field", ["x"]), counted("field", list("abcde"))
    ("1 field: 'x'", "5 fields: 'a', 'b', 'c', ... and 2 more")
    """
    return f"{len(names):,} {what}{'' if len(names) == 1 else 's'}: {quoted(names, most)}"


def check_names(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"duplicate column names: {quoted(twice)}; rename or drop the repeated columns")
