"""Certificates: whether the score rises or falls along a column for every combination of the other columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from splinefm._checks import check_one_score
from splinefm._wording import number
from splinefm.bounds.partners import Choice
from splinefm.bounds.slopes import Lowest, Slopes
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.fields.shapes import SHAPES, Shape
from splinefm.inspect.terms import field_index
from splinefm.train.fitted import Fitted

_ATTAINED = 1e-6
"""A slope is attained if a segment has it up to this share of the largest slope."""
_MAX_CERTIFIED = 64
"""Fields of a model all of which are certified for a page."""


@dataclass(frozen=True)
class Extreme:
    """The smallest or the largest slope of the score along a column, or second derivative.

    Slopes of numbers are in score per unit of u = T(z) (see `Certificate.slopes` for units of the column), those of
    steps and ordered categories the change of the score from `before` to `value`.

    Parameters
    ----------
    bound : float
        No segment has a slope beyond it.
    slope : float
        The slope of the segment below, at `value`; NaN where none was found.
    attained : bool
        Whether `slope` is the bound, up to rounding.
    value : float or str
        The value of the column.
    segment : dict
        Values of the other columns.
    before : float or str, optional
        The value of the step before.
    """

    bound: float
    slope: float
    attained: bool
    value: Any
    segment: dict[str, Any]
    before: Any = None


@dataclass(frozen=True)
class Certificate:
    """How the score can change along a column, whatever the values of the other columns; made by `Fitted.certify`.

    Missing and special values of the column are not part of its order, nor are unseen categories.

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
    least_bend, most_bend : Extreme, optional
        The smallest and the largest second derivative by u, for splines with a linear transform that no cross reads;
        for splines of degree 1, the smallest and the largest change of the slope at a break.
    units_per_u : float
        Units of the column between u = 0 and u = 1; NaN where the transform is not linear.
    shape : Shape, optional
        What the field asks for.

    Examples
    --------
    >>> low, high = Extreme(0.0, 0.0, True, 1.0, {"c": "a"}), Extreme(2.5, 2.5, True, 3.0, {"c": "b"})
    >>> certificate = Certificate("x", low, high)
    >>> certificate.increasing, certificate.decreasing, certificate.convex
    (True, False, None)
    """

    field: str
    lowest: Extreme
    highest: Extreme
    rounding: float = 0.0
    proven: bool = True
    least_bend: Extreme | None = None
    most_bend: Extreme | None = None
    units_per_u: float = np.nan
    shape: Shape | None = None

    @property
    def increasing(self) -> bool | None:
        """Whether the score never falls along the column; None if it cannot be decided."""
        return _decide(self.lowest.bound, self.lowest.slope, self.rounding)

    @property
    def decreasing(self) -> bool | None:
        """Whether the score never rises along the column; None if it cannot be decided."""
        return _decide(-self.highest.bound, -self.highest.slope, self.rounding)

    @property
    def convex(self) -> bool | None:
        """Whether the slope never falls between the ends of the transform; None if it cannot be decided."""
        bend = self.least_bend
        return None if bend is None else _decide(bend.bound, bend.slope, self.rounding)

    @property
    def concave(self) -> bool | None:
        """Whether the slope never rises between the ends of the transform; None if it cannot be decided."""
        bend = self.most_bend
        return None if bend is None else _decide(-bend.bound, -bend.slope, self.rounding)

    @property
    def slopes(self) -> tuple[float, float]:
        """Between what all slopes are, in score per unit of the column; NaN where the transform is not linear."""
        return self.lowest.bound / self.units_per_u, self.highest.bound / self.units_per_u

    @property
    def holds(self) -> bool | None:
        """Whether the field has the shape that it asks for; None if it asks for none, or it cannot be decided."""
        if self.shape is None:
            return None
        shape, unit = self.shape, self.units_per_u
        found = [
            *([self.increasing] if shape.direction > 0 else [self.decreasing] if shape.direction < 0 else []),
            *([self.convex] if shape.curvature > 0 else [self.concave] if shape.curvature < 0 else []),
        ]
        for sign, limit, extreme in ((1.0, shape.low, self.lowest), (-1.0, shape.high, self.highest)):
            if np.isfinite(limit):
                bound, slope = (sign * (end - limit * unit) for end in (extreme.bound, extreme.slope))
                found.append(_decide(bound, slope, self.rounding))
        return False if False in found else None if None in found else True

    @property
    def mark(self) -> str:
        """What is proven in a few words, to be shown beside curves; empty where nothing is.

        Examples
        --------
        >>> low, high = Extreme(0.0, 0.0, True, 1.0, {}), Extreme(2.5, 2.5, True, 3.0, {})
        >>> Certificate("x", low, high).mark
        'never falls in any segment'
        """
        if not self.proven:
            return ""
        if self.increasing and self.decreasing:
            return "is level in every segment"
        words = ["never falls"] * (self.increasing is True) + ["never rises"] * (self.decreasing is True)
        words += ["is convex"] * (self.convex is True) + ["is concave"] * (self.concave is True)
        return f"{' and '.join(words)} in any segment" if words else ""

    def to_dict(self) -> dict[str, Any]:
        """What is decided, and the steepest slopes with their segments, as JSON has them."""
        decided = {name: getattr(self, name) for name in (*SHAPES, "holds", "proven", "rounding")}
        found = {
            name: {key: None if value != value else value for key, value in asdict(extreme).items()}
            for name in ("lowest", "highest", "least_bend", "most_bend")
            if (extreme := getattr(self, name)) is not None
        }
        units = None if np.isnan(self.units_per_u) else self.units_per_u
        return {"field": self.field, **decided, "units_per_u": units, **found}

    def __str__(self) -> str:
        return f"{self.field}: {self._directions()}{self._curvature()}{self._limits()}{self._on_grid()}"

    def _directions(self) -> str:
        if self.increasing and self.decreasing:
            return "the score does not change along it"
        for holds, word in ((self.increasing, "falls"), (self.decreasing, "rises")):
            if holds:
                return f"the score never {word} along it, whatever the other columns are"
        falls = _example(self.increasing, self.lowest, "falls", self.field)
        rises = _example(self.decreasing, self.highest, "rises", self.field)
        return f"{falls}; {rises}"

    def _curvature(self) -> str:
        if self.increasing and self.decreasing:
            return ""
        if self.convex and self.concave:
            return ""  # a straight line
        return "; it is convex" if self.convex else "; it is concave" if self.concave else ""

    def _limits(self) -> str:
        if self.shape is None or not self.shape.has_limits:
            return ""
        low, high = (number(end, ".3g") for end in self.slopes)
        return f"; its slope is between {low} and {high} per unit"

    def _on_grid(self) -> str:
        return "" if self.proven else " (by a grid of values, not proven)"


class Certificates(Mapping[str, Certificate]):
    """The certificates of all fields with an axis, by name; made by `Fitted.certify`.

    Examples
    --------
    >>> level = Extreme(0.0, 0.0, True, 1.0, {})
    >>> print(Certificates({"x": Certificate("x", level, level)}, {"wave": "its basis is Fourier"}))
    x: the score does not change along it
    wave: its basis is Fourier
    """

    def __init__(self, found: Mapping[str, Certificate], skipped: Mapping[str, str] | None = None) -> None:
        self._found, self.skipped = dict(found), dict(skipped or {})

    def __getitem__(self, field: str) -> Certificate:
        return self._found[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def holds(self) -> bool | None:
        """Whether all fields have the shapes that they ask for; None if none asks, or it cannot be decided."""
        found = [each.holds for each in self.values() if each.shape is not None]
        return None if not found else False if False in found else None if None in found else True

    def to_list(self) -> list[dict[str, Any]]:
        """A dict for each field, as JSON has them: what is decided, and the steepest slopes with their segments."""
        return [each.to_dict() for each in self.values()]

    def __str__(self) -> str:
        return "\n".join([*map(str, self.values()), *(f"{name}: {why}" for name, why in self.skipped.items())])

    def __repr__(self) -> str:
        return f"Certificates({', '.join(map(repr, self))})"


def _decide(bound: float, slope: float, rounding: float) -> bool | None:
    if bound >= -rounding:
        return True
    return False if slope < -rounding else None


def _example(holds: bool | None, extreme: Extreme, verb: str, field: str) -> str:
    """Where the score falls (or rises), in the segment that does so most steeply."""
    if holds is None:
        return f"whether it {verb} anywhere is not decided (no slope is beyond {number(extreme.bound, '.3g')})"
    values = ", ".join(f"{name} = {_shown(value)}" for name, value in extreme.segment.items())
    at = f"at {field} = {_shown(extreme.value)}"
    if extreme.before is not None:
        at = f"from {field} = {_shown(extreme.before)} to {_shown(extreme.value)}"
    return f"the score {verb} {at}" + (f" with {values}" if values else "")


def _shown(value: Any) -> str:
    if value is None:
        return "missing"
    return number(value) if isinstance(value, float) else str(value)


def certify(fitted: Fitted, field: str) -> Certificate:
    """See `Fitted.certify`, which is the same for one field."""
    f = field_index(check_one_score(fitted).encoder.layout.names, field)
    item = fitted.encoder.fields[f]
    if not _has_axis(item):
        raise ValueError(f"{field!r} is not a numerical field, nor one of ordered categories: only these have slopes")
    slopes = Slopes(fitted, f)
    lowest, highest = _extremes(fitted, slopes, [slopes.lowest(), slopes.lowest(-1.0)], _slope_at)
    certificate = Certificate(field, lowest, highest, slopes.rounding, slopes.is_certified, shape=item.required_shape)
    if isinstance(item, Numerical) and item.is_linear:
        certificate = replace(certificate, units_per_u=item.units_per_u)
    if slopes.has_bends:
        bend = _bend_at if slopes.degree > 1 else _kink_at
        found = _extremes(fitted, slopes, [slopes.least_bend(), slopes.least_bend(-1.0)], bend)
        certificate = replace(certificate, least_bend=found[0], most_bend=found[1])
    return certificate


def certify_all(fitted: Fitted) -> Certificates:
    """See `Fitted.certify`, which is the same without a field."""
    found, skipped = {}, {}
    for item in check_one_score(fitted).encoder.fields:
        if _has_axis(item):
            try:
                found[item.name] = certify(fitted, item.name)
            except ValueError as error:
                skipped[item.name] = str(error)
    return Certificates(found, skipped)


def marks(fitted: Fitted, names: Sequence[str]) -> dict[str, str]:
    """What is proven of some fields, by name; only of those that ask for a shape if the model has many fields.

    A certificate takes time for every other field. Several classes have none.
    """
    if fitted.loss.n_outputs > 1:
        return {}
    few = len(fitted.encoder.fields) <= _MAX_CERTIFIED
    found = {}
    for item in fitted.encoder.fields:
        if item.name in names and _has_axis(item) and (few or item.required_shape is not None):
            with suppress(ValueError):  # no slopes
                found[item.name] = certify(fitted, item.name).mark
    return {name: mark for name, mark in found.items() if mark}


def _has_axis(item: Any) -> bool:
    return isinstance(item, Numerical) or (isinstance(item, Categorical) and item.order is not None)


Measure = Callable[[Any, float, float], tuple[float, float]]
"""What is the smallest of a curve near u, times a sign, and where."""


def _extremes(fitted: Fitted, slopes: Slopes, found: list[Lowest], measure: Measure) -> list[Extreme]:
    largest = max(abs(each.bound) for each in found)
    return [_extreme(fitted, slopes, each, sign, largest, measure) for each, sign in zip(found, (1, -1), strict=True)]


def _extreme(fitted: Fitted, slopes: Slopes, found: Lowest, sign: float, largest: float, measure: Measure) -> Extreme:
    """The slope with a segment that has it, computed anew from the curve of that segment."""
    item = slopes.item
    segment, slope = segment_of(fitted, found.choices), np.nan
    if slopes.steps:
        if segment is not None and found.is_exact:
            slope = sign * found.reached
        before, value = _step_values(item, int(found.u))
    else:
        before, u = None, found.u
        if segment is not None:
            curve: Any = fitted.segment(segment, along=item.name, watch=False)
            slope, u = measure(curve.spline, u, sign)
        value = float(item.raw(np.array([u]))[0])
    attained = bool(abs(slope - sign * found.bound) <= _ATTAINED * max(largest, 1e-30))
    return Extreme(sign * found.bound, slope, attained, value, segment or {}, before)


def _step_values(item: Any, step: int) -> tuple[Any, Any]:
    """The values of a step and of the one after it."""
    if item.basis is None:
        return item.order[step], item.order[step + 1]
    edges = item.bin_edges()
    if not len(edges):
        return None, float(item.raw(np.array([0.5]))[0])
    ends = np.concatenate([[edges[0]], edges, [edges[-1]]])
    first, after = ends[step : step + 2].mean(), ends[step + 1 : step + 3].mean()
    return float(np.nextafter(edges[step], -np.inf) if step == 0 else first), float(after)


_INSIDE = 1e-9


def _slope_at(spline: Any, u: float, sign: float) -> tuple[float, float]:
    return _least(spline.derivative(), u, sign)


def _bend_at(spline: Any, u: float, sign: float) -> tuple[float, float]:
    return _least(spline.derivative(2), u, sign)


def _kink_at(spline: Any, u: float, sign: float) -> tuple[float, float]:
    first, last = spline.derivative()(np.clip([u - _INSIDE, u + _INSIDE], 0.0, 1.0))
    return float(last - first), u


def _least(values: Any, u: float, sign: float) -> tuple[float, float]:
    """The smallest value (or the largest) near u, on both sides of a break, and where."""
    near = np.clip([u - _INSIDE, u, u + _INSIDE], 0.0, 1.0)
    found = values(near)
    i = int(np.nanargmin(sign * found))
    return float(found[i]), float(near[i])


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
        return float(item.raw(np.array([choice.u]))[0])
    if item.holds_lists and not choice.times:
        return []
    value = item.feature_value(int(choice.feature or 0))
    return value if value is None or not item.holds_lists else [value] * choice.times
