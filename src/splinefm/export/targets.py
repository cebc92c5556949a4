"""Where bins can be put: numerical fields, and the numerical parts of crosses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.names import missing_column_message
from splinefm.train.fitted import Fitted


class Target(NamedTuple):
    """A numerical field, by its number in the model, or a part of a cross."""

    f: int
    part: int | None = None


def number_at(fitted: Fitted, target: Target) -> Numerical:
    """The field or part."""
    item = fitted.encoder.fields[target.f]
    found: Numerical = item.singles[target.part or 0]  # type: ignore[assignment]  # targets are numbers
    return found


def words_for(fitted: Fitted, target: Target) -> str:
    """The name of a target in messages."""
    name = repr(number_at(fitted, target).name)
    return name if target.part is None else f"{name} in the cross {fitted.encoder.fields[target.f].name!r}"


def every_target(fitted: Fitted) -> list[Target]:
    """All numerical fields and numerical parts of crosses."""
    return list(_targets(fitted))


def targets_named(fitted: Fitted, name: str) -> list[Target]:
    """The numerical field of a name and the parts of crosses that have it; of a cross, all its numbers."""
    schema = fitted.encoder.schema
    found = [target for target in _targets(fitted) if number_at(fitted, target).name == name]
    if not found and name in schema.names:
        item = schema[name]
        found = [target for target in _targets(fitted) if fitted.encoder.fields[target.f] is item]
        if not found:
            what = "cross of categories" if isinstance(item, Cross) else f"{type(item).__name__} field"
            raise ValueError(f"{name!r} is a {what}: it has categories, not bins")
    if not found:
        raise ValueError(missing_column_message(name, schema.names, where="the model"))
    for target in found:
        if target.part is None and not fitted.model.pairwise and max(schema.fields[target.f].layout.units) > 0:
            raise ValueError(
                f'{name!r} has reduction="identity": products of three and more of its vectors are not a function of '
                'one vector, so there are no bins for it; fit with reduction="sum"'
            )
    return found


def is_cross(fitted: Fitted, name: str) -> bool:
    """Whether a name is that of a cross."""
    return any(cross.name == name for cross in fitted.encoder.schema.crosses)


def _targets(fitted: Fitted) -> Iterator[Target]:
    for f, item in enumerate(fitted.encoder.fields):
        if item.is_numerical:
            yield Target(f)
        elif f in fitted.encoder.crosses:
            yield from (Target(f, part) for part in fitted.encoder.crosses[f].numbers)
