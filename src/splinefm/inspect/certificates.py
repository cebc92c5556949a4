"""Certificates: whether the score rises or falls along a column for every combination of the other columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from splinefm._checks import check_one_score
from splinefm._wording import number
from splinefm.bounds.partners import Choice
from splinefm.bounds.slopes import Lowest, Slopes
from splinefm.encode.fields.numerical import Numerical
from splinefm.inspect.terms import field_index
from splinefm.train.fitted import Fitted

_ATTAINED = 1e-6
"""A slope is attained if a segment has it up to this share of the largest slope."""


@dataclass(frozen=True)
class Extreme:
    """The smallest or the largest slope of the score along a column, in score per unit of u = T(z).

    Parameters
    ----------
    bound : float
        No segment has a slope beyond it.
    slope : float
        The slope of the segment below, at `value`; NaN where none was found.
    attained : bool
        Whether `slope` is the bound, up to rounding.
    value : float
        The value of the column.
    segment : dict
        Values of the other columns.
    """

    bound: float
    slope: float
    attained: bool
    value: float
    segment: dict[str, Any]


@dataclass(frozen=True)
class Certificate:
    """How the score can change along a column, whatever the values of the other columns; made by `Fitted.certify`.

    Missing and special values of the column are not part of its order.

    Parameters
    ----------
    field : str
        The column.
    lowest, highest : Extreme
        The smallest and the largest slope over all segments.
    rounding : float
        Slopes below it are zero up to the rounding of scores, which are float32.
    proven : bool
        False where a basis is known by its values only, so that the bounds were computed on a grid.

    Examples
    --------
    >>> low, high = Extreme(0.0, 0.0, True, 1.0, {"c": "a"}), Extreme(2.5, 2.5, True, 3.0, {"c": "b"})
    >>> certificate = Certificate("x", low, high)
    >>> certificate.increasing, certificate.decreasing
    (True, False)
    """

    field: str
    lowest: Extreme
    highest: Extreme
    rounding: float = 0.0
    proven: bool = True

    @property
    def increasing(self) -> bool | None:
        """Whether the score never falls along the column; None if it cannot be decided."""
        return _decide(self.lowest.bound, self.lowest.slope, self.rounding)

    @property
    def decreasing(self) -> bool | None:
        """Whether the score never rises along the column; None if it cannot be decided."""
        return _decide(-self.highest.bound, -self.highest.slope, self.rounding)

    def __str__(self) -> str:
        if self.increasing and self.decreasing:
            return f"{self.field}: the score does not change along it"
        for holds, word in ((self.increasing, "falls"), (self.decreasing, "rises")):
            if holds:
                return f"{self.field}: the score never {word} along it, whatever the other columns are{self._on_grid()}"
        falls = _example(self.increasing, self.lowest, "falls", self.field)
        rises = _example(self.decreasing, self.highest, "rises", self.field)
        return f"{self.field}: {falls}; {rises}{self._on_grid()}"

    def _on_grid(self) -> str:
        return "" if self.proven else " (by a grid of values, not proven)"


def _decide(bound: float, slope: float, rounding: float) -> bool | None:
    if bound >= -rounding:
        return True
    return False if slope < -rounding else None


def _example(holds: bool | None, extreme: Extreme, verb: str, field: str) -> str:
    """Where the score falls (or rises), in the segment that does so most steeply."""
    if holds is None:
        return f"whether it {verb} anywhere is not decided (no slope is beyond {number(extreme.bound, '.3g')})"
    values = ", ".join(f"{name} = {_shown(value)}" for name, value in extreme.segment.items())
    return f"the score {verb} at {field} = {number(extreme.value)} with {values}"


def _shown(value: Any) -> str:
    if value is None:
        return "missing"
    return number(value) if isinstance(value, float) else str(value)


def certify(fitted: Fitted, field: str) -> Certificate:
    """See `Fitted.certify`, which is the same."""
    f = field_index(check_one_score(fitted).encoder.layout.names, field)
    item = fitted.encoder.fields[f]
    if not isinstance(item, Numerical):
        raise ValueError(f"{field!r} is not a numerical field: only numbers have slopes")
    slopes = Slopes(fitted, f)
    found = [slopes.lowest(), slopes.lowest(-1.0)]
    largest = max(abs(each.bound) for each in found)
    lowest, highest = (_extreme(fitted, f, each, sign, largest) for each, sign in zip(found, (1.0, -1.0), strict=True))
    return Certificate(field, lowest, highest, slopes.rounding, found[0].is_certified)


def _extreme(fitted: Fitted, f: int, found: Lowest, sign: float, largest: float) -> Extreme:
    """The slope with a segment that has it, computed anew from the curve of that segment."""
    item: Any = fitted.encoder.fields[f]
    segment = segment_of(fitted, found.choices)
    value = float(item.fitted_transform.inverse(np.array([found.u]))[0])
    slope = np.nan
    if segment is not None:
        curve: Any = fitted.segment(segment, along=item.name, watch=False)
        slope, value = _steepest(item, curve.spline, found.u, sign)
    attained = bool(abs(slope - sign * found.bound) <= _ATTAINED * max(largest, 1e-30))
    return Extreme(sign * found.bound, slope, attained, value, segment or {})


def _steepest(item: Any, spline: Any, u: float, sign: float) -> tuple[float, float]:
    """The smallest slope (or the largest) of one curve near u, on both sides of a break, and the raw value."""
    inside = 1e-9
    near = np.clip([u - inside, u, u + inside], 0.0, 1.0)
    slopes = spline.derivative()(near)
    i = int(np.nanargmin(sign * slopes))
    return float(slopes[i]), float(item.fitted_transform.inverse(near[i : i + 1])[0])


def segment_of(fitted: Fitted, choices: dict[int, Choice | None]) -> dict[str, Any] | None:
    """The values that fields take, by name; None if they are unknown or exclude each other."""
    fields = fitted.encoder.fields
    sources = fitted.encoder.schema.sources
    if set(sources.fields) != {item.name for item in fitted.encoder.schema.singles}:
        return None
    columns = [item.column for item in fitted.encoder.schema.singles]
    if len(set(columns)) < len(columns):
        return None  # two fields of one column are not free
    segment = {}
    for e, choice in choices.items():
        if e in fitted.encoder.crosses:
            continue
        if choice is None:
            return None
        segment[fields[e].name] = value_of(fields[e], choice)
    return segment


def value_of(item: Any, choice: Choice) -> Any:
    """A raw value with the feature or at the position that was chosen."""
    if choice.u is not None:
        return float(item.fitted_transform.inverse(np.array([choice.u]))[0])
    if item.holds_lists and not choice.times:
        return []
    value = item.feature_value(int(choice.feature or 0))
    return value if value is None or not item.holds_lists else [value] * choice.times
