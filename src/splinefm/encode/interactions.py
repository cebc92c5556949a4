"""Interaction constraints: which columns may act together on the score."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from splinefm._arrays import BoolArray
from splinefm._checks import brief
from splinefm.encode.tables.names import missing_column_message

InteractionShorthand = Literal["pairwise", "no_interactions"]
InteractionCst: TypeAlias = InteractionShorthand | Iterable[Collection[str]] | None
"""What `interaction_cst` takes."""
SHORTHANDS: tuple[str, ...] = get_args(InteractionShorthand)
_FORMS = '"pairwise", "no_interactions" or a list of sets of column names, such as [{"age", "income"}, {"city"}]'


@dataclass(frozen=True)
class Interactions:
    """Which columns may interact, in the words of scikit-learn and LightGBM.

    Columns interact in a term of the score that depends on all of them at once. A pair of fields, a cross and a product
    of three fields are such terms, and depend on the columns of all their fields.

    Parameters
    ----------
    allowed : {"pairwise", "no_interactions"} or tuple of tuple of str
        Two columns at most in a term, one only, or sets of columns: a term is allowed if a set has all its columns.
        Columns that are in no set form another one.

    Examples
    --------
    >>> some = Interactions.of([{"age", "income"}, {"income", "city"}])
    >>> some.allows(["income", "age"]), some.allows(["age", "city"]), some.allows(["age", "income", "city"])
    (True, False, False)
    >>> some.allows(["day", "hour"]), some.allows(["day", "age"]), some.allows(["age"])
    (True, False, True)
    """

    allowed: InteractionShorthand | tuple[tuple[str, ...], ...]

    @staticmethod
    def of(given: InteractionCst | Interactions) -> Interactions:
        """Read `interaction_cst`; sets are sorted, and each is kept once."""
        sets: Any = given
        if isinstance(sets, Interactions):
            return sets
        if isinstance(sets, str):
            if sets not in SHORTHANDS:
                raise ValueError(f"interaction_cst must be {_FORMS}, got {sets!r}")
            return Interactions(sets)  # type: ignore[arg-type]  # it is one of the words
        if not isinstance(sets, Iterable) or isinstance(sets, Mapping):
            raise ValueError(f"interaction_cst must be {_FORMS}, got {brief(sets)}")
        found = []
        for names in sets:
            if isinstance(names, str | Mapping) or not isinstance(names, Iterable):
                raise ValueError(f"interaction_cst must be {_FORMS}; one of its sets is {brief(names)}")
            own = list(names)
            if not own or not all(isinstance(name, str) for name in own):
                raise ValueError(f"every set of interaction_cst must have names of columns, got {brief(names)}")
            found.append(tuple(sorted(set(own))))
        if not found:
            raise ValueError('interaction_cst has no sets; for no interactions, write "no_interactions"')
        return Interactions(tuple(dict.fromkeys(found)))

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that are in a set, each once."""
        sets = () if isinstance(self.allowed, str) else self.allowed
        return tuple(dict.fromkeys(name for names in sets for name in names))

    def check_columns(self, known: Collection[str], also: Collection[str] = ()) -> None:
        """Raise where a set has a column that is not known; `also` may be named, but are not read."""
        for name in self.named:
            if name not in known and name not in also:
                raise ValueError("interaction_cst: " + missing_column_message(name, list(known)))

    def allows(self, columns: Iterable[str]) -> bool:
        """Whether one term of the score may depend on all these columns."""
        together = set(columns)
        if len(together) <= 1:
            return True
        if isinstance(self.allowed, str):
            return self.allowed == "pairwise" and len(together) == 2
        return any(together.issubset(names) for names in self.allowed) or together.isdisjoint(self.named)

    def apart(self, columns: Sequence[Collection[str]]) -> tuple[tuple[int, int], ...]:
        """The pairs f < e of fields that may not interact, given the columns of every field.

        Examples
        --------
        >>> Interactions.of([{"a", "b"}]).apart([{"a"}, {"b"}, {"c"}, {"a", "b"}])
        ((0, 2), (1, 2), (2, 3))
        """
        f, e = np.nonzero(np.triu(~self._together(columns), 1))
        return tuple(zip(f.tolist(), e.tolist(), strict=True))

    def _together(self, columns: Sequence[Collection[str]]) -> BoolArray:
        """Whether two fields may interact, for all of them."""
        if isinstance(self.allowed, str):
            each = [[self.allows({*mine, *others}) for others in columns] for mine in columns]
            return np.array(each, bool).reshape(len(columns), len(columns))
        sets = [set(names) for names in self.allowed]
        sets.append({name for names in columns for name in names} - set(self.named))
        inside = np.array([[names.issuperset(own) for names in sets] for own in columns], np.float32)
        place = {name: i for i, name in enumerate(dict.fromkeys(name for names in columns for name in names))}
        one = np.array([place[next(iter(own))] if len(set(own)) == 1 else -1 for own in columns])
        return np.asarray((inside @ inside.T > 0.0) | ((one[:, None] == one) & (one >= 0)), bool)

    def __str__(self) -> str:
        if isinstance(self.allowed, str):
            return self.allowed
        return "; ".join(", ".join(names) for names in self.allowed)

    def to_value(self) -> str | list[list[str]]:
        """What a schema file and a model file hold, which `of` reads."""
        return self.allowed if isinstance(self.allowed, str) else [list(names) for names in self.allowed]
