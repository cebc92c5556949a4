"""Whose values the parts of crosses take: those of the fields of a schema that read the same column."""

from __future__ import annotations

from splinefm.encode.fields.cross import Part
from splinefm.encode.schema import Schema, Single


class Sources:
    """The fields of single columns that a row of values is made of, and which of them each part of a cross reads.

    A part follows the field of its name, else a field that reads the same column (and the same part of a date), if
    possible one of its kind. A part whose column no field reads is a source itself.

    Parameters
    ----------
    schema : Schema
        The fields of a model; crosses have fields as parts.

    Examples
    --------
    >>> schema = Schema([Numerical("x"), Cross("x", Categorical("day", column="date"))])
    >>> sources = Sources(schema)
    >>> list(sources.fields), sources.of["x × day"]
    (['x', 'day'], ('x', 'day'))
    """

    def __init__(self, schema: Schema) -> None:
        self.fields: dict[str, Single] = {item.name: item for item in schema.singles}
        self.of: dict[str, tuple[str, ...]] = {}
        """For each cross, the source of every part."""
        self.parts: dict[str, list[Part]] = {}
        """For each source in crosses, their parts that take its values."""
        for cross in schema.crosses:
            self.of[cross.name] = tuple(self._find(part, cross.name) for part in cross.fields)
            for name, part in zip(self.of[cross.name], cross.fields, strict=True):
                self.parts.setdefault(name, []).append(part)

    def of_field(self, name: str) -> tuple[str, ...]:
        """The sources of a field: itself, or that of every part of a cross."""
        return self.of.get(name, (name,))

    def readers(self, name: str) -> list[str]:
        """The crosses that contain a source."""
        return [cross for cross, names in self.of.items() if name in names]

    def _find(self, part: Part, cross: str) -> str:
        namesake = self.fields.get(part.name)
        if namesake is not None and _read_alike(part, namesake):
            return part.name
        alike = [name for name, item in self.fields.items() if _read_alike(part, item)]
        same_kind = [name for name in alike if type(self.fields[name]) is type(part)]
        if alike:
            return (same_kind or alike)[0]
        name = part.name if namesake is None else f"{cross}.{part.name}"
        self.fields[name] = part
        return name


def _read_alike(part: Part, item: Single) -> bool:
    """Whether two fields get the same values."""
    return not item.holds_lists and (part.column, part.part) == (item.column, item.part)
