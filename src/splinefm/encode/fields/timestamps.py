"""Timestamp: the parts of a column of dates, each as a numerical field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from splinefm._checks import check_choice
from splinefm.encode.bases.functions import Bins
from splinefm.encode.bases.splines import BSpline, MultiResolution
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.columns import Stray
from splinefm.encode.tables.dates import PARTS, Part
from splinefm.encode.transforms.scaling import MinMax

# How the parts of a date are encoded: cycles as periodic splines; days of the week have nothing in between.
_FORMS: dict[Part, dict[str, Any]] = {
    "trend": {"basis": MultiResolution()},
    "hour": {"transform": MinMax(0.0, 24.0), "basis": BSpline(24, periodic=True)},
    "weekday": {"transform": MinMax(-0.5, 6.5), "basis": Bins(7)},
    "yearday": {"transform": MinMax(1.0, 367.0), "basis": BSpline(26, periodic=True)},
}


@dataclass(frozen=True)
class Timestamp:
    """A column of dates and times as several fields of a schema, one for each part.

    A schema takes it apart: `Timestamp("seen_at", parts=["hour", "trend"])` stands for the numerical fields
    "seen_at.hour" and "seen_at.trend", which both read the column "seen_at". Hours and days of the year are periodic
    splines, days of the week have a feature each, and the trend is a spline of several resolutions. Numbers are seconds
    since 1970; a fit refuses those in milliseconds or smaller units.

    Parameters
    ----------
    name : str
        Name of the column.
    parts : sequence of {"trend", "hour", "weekday", "yearday"}
        Which parts; all by default.
    format : str, optional
        How dates are written as text, such as "%m/%d/%Y"; as ISO 8601 says by default.
    zone : str, optional
        The time zone that times with a zone are converted to; UTC by default.
    missing : {"token", "error"}
        Whether missing values have a feature or are errors.
    text : {"error", "missing", "auto"}
        Whether text that is not a date is an error or a missing value; see `Numerical`.

    Examples
    --------
    >>> from splinefm import Schema
    >>> Schema([Timestamp("seen_at", parts=["hour", "weekday"])]).names
    ('seen_at.hour', 'seen_at.weekday')
    """

    name: str
    parts: Sequence[Part] = PARTS
    format: str | None = None
    zone: str | None = None
    missing: Literal["token", "error"] = "token"
    text: Stray = "error"

    def __post_init__(self) -> None:
        check_choice("name of a field", self.name, None)
        if isinstance(self.parts, str) or not self.parts:
            raise ValueError(f'parts takes a list of parts, such as ["hour", "weekday"], got {self.parts!r}')
        object.__setattr__(self, "parts", tuple(self.parts))
        _ = self.fields  # which check the rest

    @property
    def fields(self) -> tuple[Numerical, ...]:
        """The fields that it stands for."""
        return tuple(self._field(part) for part in self.parts)

    def _field(self, part: Part) -> Numerical:
        check_choice("part", part, PARTS)
        return Numerical(
            f"{self.name}.{part}",
            **_FORMS[part],
            missing=self.missing,
            text=self.text,
            part=part,
            format=self.format,
            zone=self.zone,
            column=self.name,
        )
