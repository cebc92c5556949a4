"""Numerical fields: special values and missing ones become tokens, the rest a transform and a basis."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import Array, BoolArray, FloatArray, Int32Array
from splinefm._checks import check_choice
from splinefm._wording import as_field, for_reader
from splinefm.encode.bases import (
    REACH_MARGIN,
    Basis,
    Bins,
    BSpline,
    MultiResolution,
    Polynomial,
    PolynomialWindow,
    polynomial_windows,
    smoothing,
    step_cuts,
    step_window,
    supports,
    write_windows,
)
from splinefm.encode.fields.contract import OneColumn, PenaltyBlock, Token, TokenKind
from splinefm.encode.fields.shapes import Shape, check_shape, check_slope, describe_shape, make_shape
from splinefm.encode.slots import FieldLayout, expand_windows
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.columns import (
    STRAY,
    Decimal,
    Stray,
    as_numbers,
    as_seconds,
    holds_dates,
    is_number,
    is_text,
    parse_numbers,
)
from splinefm.encode.tables.dates import PARTS, Part, as_written, check_unit, find_zone, take_part
from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.encode.transforms.scaling import MinMax
from splinefm.encode.transforms.sketch import QuantileSketch
from splinefm.encode.transforms.transform import (
    TRANSFORMS,
    Pieces,
    Transform,
    choose_transform,
    raw_edges,
    transform_pieces,
)

# In the order of `Rule::Sign` in cpp/scorer/number_field.hpp.
SIGNS = ("==", "<", "<=", ">", ">=")
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class SpecialRule(NamedTuple):
    """A rule that a raw value x may match: `x sign number`.

    Examples
    --------
    >>> SpecialRule(">=", 999.0).matches(np.array([5.0, 999.0]))
    array([False,  True])
    """

    sign: str
    number: float

    def matches(self, x: FloatArray) -> BoolArray:
        """Whether each value matches; NaN matches nothing."""
        return np.asarray(_OPERATORS[self.sign](x, self.number))


def parse_special(rule: float | str) -> SpecialRule:
    """The comparison that a special value stands for.

    Examples
    --------
    >>> parse_special(0.0), parse_special("negative"), parse_special(">= 999")
    (SpecialRule(sign='==', number=0.0), SpecialRule(sign='<', number=0.0), SpecialRule(sign='>=', number=999.0))
    """
    if not isinstance(rule, str):
        return SpecialRule("==", rule)
    if rule == "negative":
        return SpecialRule("<", 0.0)
    for sign in sorted(SIGNS, key=len, reverse=True):
        if rule.startswith(sign):
            return SpecialRule(sign, float(rule.removeprefix(sign)))
    raise ValueError(rule)


def first_matches(rules: Sequence[SpecialRule]) -> list[float]:
    """For each comparison a value that it matches and none before it does; its limit if there is no such value.

    Examples
    --------
    >>> first_matches([SpecialRule("==", 5.0), SpecialRule(">=", 5.0), SpecialRule("<", 0.0)])
    [5.0, 5.000000000000001, -5e-324]
    """
    limits = [rule.number for rule in rules]
    # Rules change at their limits only, so that each limit and its neighbors are examples of all that can match.
    neighbors = [[x, float(np.nextafter(x, np.inf)), float(np.nextafter(x, -np.inf))] for x in limits]
    found = []
    for i, limit in enumerate(limits):
        x = np.array([value for values in (neighbors[i], *neighbors) for value in values])
        first = rules[i].matches(x) & ~np.any([rule.matches(x) for rule in rules[:i]], axis=0)
        found.append(float(x[first][0]) if first.any() else limit)
    return found


def check_special(special: Any) -> tuple[float | str, ...]:
    """Special values as floats and strings; raise where one cannot be read or stands there twice."""
    if isinstance(special, str | float | int):
        special = (special,)
    rules: list[float | str] = []
    for rule in special:
        try:
            sign, number = parse_special(rule if isinstance(rule, str) else float(rule))
        except (ValueError, TypeError, OverflowError):
            sign, number = "", np.nan
        if np.isnan(number):
            raise ValueError(
                f'special takes numbers, "negative", or comparisons such as ">= 999"; got {rule!r}'
                + (" (missing values have a feature already: see `missing`)" if isinstance(rule, float) else "")
            )
        rules.append(float(number) if sign == "==" else rule)  # files write infinity as "== inf"
    if len(set(rules)) < len(rules):
        raise ValueError(f"special names a value twice: {rules}")
    return tuple(rules)


# Numerical fields: special values and missing ones become tokens, the rest a transform and a basis.

ORDINARY = -1
EXAMPLES = 3


Outside = Literal["clip", "missing", "error"]
OUTSIDE: tuple[Outside, ...] = ("clip", "missing", "error")


class OutOfRange(ValueError):
    """A number that a field refuses because it is beyond the range of the training rows.

    Parameters
    ----------
    message : str
        Names column, value and range.
    row : int
        The row, counted from the first that was given.
    """

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.message, self.row = message, row

    def __reduce__(self) -> tuple[Any, ...]:
        return OutOfRange, (self.message, self.row)


@contextmanager
def rows_from(first: int) -> Iterator[None]:
    """Count the row of an `OutOfRange` error from earlier rows on."""
    try:
        yield
    except OutOfRange as error:
        raise OutOfRange(error.message, first + error.row) from None


@contextmanager
def naming_rows(first: int = 0) -> Iterator[None]:
    """Name the row of an `OutOfRange` error, after `first` rows, in its message."""
    try:
        yield
    except OutOfRange as error:
        raise ValueError(f"row {first + error.row:,} (counted from 0): {error.message}") from None


def _check_limits(limits: Any) -> tuple[float, float] | None:
    if limits is None:
        return None
    try:
        low, high = map(float, limits)
    except (TypeError, ValueError) as error:
        raise ValueError(f"limits takes two numbers, the ends of a range, got {limits!r}") from error
    if not -math.inf < low <= high < math.inf:
        raise ValueError(f"limits must be finite (low, high) with low <= high, got {limits!r}")
    return low, high


_REACH_GRID = 4097  # points at which a basis is evaluated for the largest weights
_EXAMPLE_DATE = "2024-05-28T12:00:00"


@dataclass(frozen=True)
class Numerical(OneColumn):
    """A column of numbers: z -> T(z) in [0, 1] -> the values of a function basis.

    The field's features are [special values.., missing, basis functions..].

    Parameters
    ----------
    name : str
        Name of the column.
    transform : Transform or "auto"
        How raw values are spread over [0, 1]; "auto" chooses from the data, see `choose_transform`.
    basis : Basis
        The functions of u = T(z) whose values are the field's weights.
    special : sequence of numbers and rules
        Values that are not quantities, with a feature each: numbers (`0.0`), "negative", or a comparison such as
        ">= 999". The first that matches wins. They take no part in the fit of the transform.
    missing : {"token", "error"}
        Whether missing values (null or NaN) have a feature or are errors.
    reduction : {"sum", "identity"}
        Sum the basis-weighted vectors into one (paper: sum reduction), or keep one unit per active function.
    text : {"error", "missing", "auto"}
        Whether text that is not a number (or a date, for a `part`) is an error or a missing value; with "auto", a
        missing value if the training rows have such text, and otherwise an error from then on. Numbers may be written
        as text, such as `1,234`, `5%` or `$5`; see `splinefm.encode.tables.columns.parse_numbers`.
    decimal : {".", ","}
        The decimal sign of numbers that are written as text.
    part : {"trend", "hour", "weekday", "yearday"}, optional
        For a column of dates: the time itself in seconds since 1970, hours since midnight, days since Monday (0 to 6),
        or the day of the year as a leap year counts (1 to 366). `sf.Timestamp` makes a field of each.
    format : str, optional
        How dates are written as text, such as "%m/%d/%Y"; as ISO 8601 says by default.
    zone : str, optional
        The time zone that times with a zone are converted to, such as "Europe/Paris"; UTC by default.
    column : str, optional
        The column of the table; the name by default. Several fields may read one column.
    shape : {"increasing", "decreasing", "convex", "concave"}, or a direction and a curvature, optional
        The score never falls (or never rises, or its slope does not) along the column, whatever the values of the other
        columns are: `Fitted.certify` proves it of the fitted model. The basis must be a spline; crosses cannot contain
        the column. Convex and concave curves need a linear transform, which "auto" then is.
    slope : pair of float or None, optional
        The lowest and the highest slope, in score per unit of the column; None where there is no limit. It needs a
        linear transform too. Beyond the ends of the transform the slope is 0, where values are clipped.

    outside : {"clip", "missing", "error"}
        What a value beyond the range of the column is: the value at the end of the range, a missing value, or an error
        that names it. The range reaches from the smallest to the largest value of the training rows, and to the ends of
        the transform where these are further out, such as of `MinMax(low=0, high=100)` (not of `BestFitCDF`, which has
        tails). Special values have their
        features wherever they are, and infinite numbers are always errors.
    limits : pair of float, optional
        The range, which a fit finds unless `outside` is "clip". A range that is given holds for training rows as well.

    Examples
    --------
    >>> Numerical("recency", basis=BSpline(segments=32), special=[0.0, "negative"]).special
    (0.0, 'negative')
    >>> hour = Numerical("hour", MinMax(0, 24), BSpline(24, periodic=True), column="seen_at", part="hour")
    >>> hour.read(pa.array(["2024-05-28T13:30", None]))
    array([13.5,  nan])
    """

    is_numerical: ClassVar[bool] = True
    n_categories: ClassVar[int] = 0

    name: str
    transform: Transform | Literal["auto"] = "auto"
    basis: Basis = field(default_factory=BSpline)
    special: tuple[float | str, ...] = ()
    missing: Literal["token", "error"] = "token"
    reduction: Literal["sum", "identity"] = "sum"
    text: Stray = "error"
    decimal: Decimal = "."
    part: Part | None = None
    format: str | None = None
    zone: str | None = None
    column: str = ""
    shape: str | tuple[str, ...] | None = None
    slope: tuple[float, float] | None = None
    outside: Outside = "clip"
    limits: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_choice("name of a field", self.name, None)
        object.__setattr__(self, "column", self.column or self.name)
        check_choice("column of a field", self.column, None)
        check_choice("text", self.text, STRAY)
        check_choice("decimal", self.decimal, (".", ","))
        self._check_dates()
        check_choice("missing", self.missing, ("token", "error"))
        self._check_outside()
        check_choice("reduction", self.reduction, ("sum", "identity"))
        object.__setattr__(self, "special", check_special(self.special))
        _check_part("transform", self.transform, ("fit", "__call__", "inverse"), self.name)
        _check_part("basis", self.basis, ("widths", "__call__"), self.name)
        if self.transform == "auto" and getattr(self.basis, "periodic", False):
            raise ValueError(
                f"field {self.name!r}: a periodic basis needs the period in raw units; "
                "give it, such as "
                + for_reader("transform=sf.MinMax(low=0, high=24)", 'transform = {kind = "MinMax", low = 0, high = 24}')
            )

        object.__setattr__(self, "shape", check_shape(self.shape))
        object.__setattr__(self, "slope", check_slope(self.slope))
        if self.required_shape is not None:
            self._check_shape(self.required_shape)

    @property
    def required_shape(self) -> Shape | None:
        """What has to hold for all curves along the field; None if nothing has to."""
        return make_shape(self.shape, self.slope)

    def _check_shape(self, shape: Shape) -> None:
        words = " and ".join(
            f"{name}={value!r}" for name, value in (("shape", self.shape), ("slope", self.slope)) if value is not None
        )
        basis: Any = self.basis
        spline = isinstance(basis, BSpline | MultiResolution) and not getattr(basis, "periodic", False)
        if not spline or self.reduction != "sum":
            raise ValueError(
                f"field {self.name!r}: {words} needs a spline that is not periodic, with the sum of its "
                f"vectors; got {self.basis!r} with reduction={self.reduction!r}"
            )
        if basis.degree < 1 and not (shape.is_monotone and isinstance(basis, BSpline)):
            raise ValueError(f"field {self.name!r}: {words} needs a spline of degree 1 or more, got {self.basis!r}")
        if shape.is_monotone:
            return
        if shape.has_limits and isinstance(self.basis, MultiResolution) and not self.basis.is_nested:
            raise ValueError(
                f"field {self.name!r}: {words} needs resolutions that divide the finest one, got {self.basis!r}"
            )
        if self.transform != "auto" and not isinstance(self.transform, MinMax):
            raise ValueError(
                f"field {self.name!r}: {words} holds in units of the column, which needs a linear transform: leave it "
                f'"auto", or give sf.MinMax(); got {type(self.transform).__name__}'
            )

    def _check_dates(self) -> None:
        if self.part is not None:
            check_choice("part", self.part, PARTS)
        if self.zone is not None:
            find_zone(self.zone)
        if self.part is None and (self.format is not None or self.zone is not None):
            raise ValueError(
                f'field {self.name!r}: format and zone are for dates; say which part, such as part="trend"'
            )

    def _check_outside(self) -> None:
        check_choice("outside", self.outside, OUTSIDE)
        object.__setattr__(self, "limits", _check_limits(self.limits))
        if self.outside == "missing" and self.missing == "error":
            raise ValueError(
                f'field {self.name!r}: outside="missing" needs a feature of missing values, and missing="error" has '
                'none; use missing="token", or outside="error"'
            )
        if self.outside == "clip" and self.limits is not None:
            raise ValueError(
                f"field {self.name!r}: limits={self.limits} say where values are missing or errors, and "
                'outside="clip" takes all; leave limits out, or use outside="missing" or outside="error"'
            )

    @property
    def value_limits(self) -> tuple[float, float]:
        """The range beyond which values are missing or errors; infinite where they are clipped."""
        return (-math.inf, math.inf) if self.limits is None else self.limits

    def is_beyond(self, x: FloatArray) -> BoolArray:
        """Whether values are beyond the range, so that they are missing or errors; NaN is not."""
        if self.limits is None:
            return np.zeros(len(x), bool)
        return np.asarray((x < self.limits[0]) | (x > self.limits[1]))

    @property
    def is_linear(self) -> bool:
        """Whether the transform is linear between its ends, so that u is the column in other units."""
        return isinstance(self.transform, MinMax)

    @property
    def units_per_u(self) -> float:
        """Units of the column between u = 0 and u = 1; 1 where the transform is not linear."""
        if not self.is_linear:
            return 1.0
        first, last = np.asarray(self.fitted_transform.inverse(np.array([0.0, 1.0]))).tolist()
        return float(last - first)

    @property
    def n_tokens(self) -> int:
        """Features before the basis functions."""
        return len(self.special) + (self.missing == "token")

    @property
    def has_binary_weights(self) -> bool:
        """Whether all weights are 0 or 1, as of bins."""
        return isinstance(self.basis, Bins)

    def describe(self) -> dict[str, Any]:
        """The settings that `splinefm info` shows."""
        return {
            "transform": type(self.transform).__name__,
            "basis": type(self.basis).__name__,
            "functions": sum(self.basis.sizes),
            "special": list(self.special),
            **describe_shape(self.shape, self.slope),
            **({} if self.outside == "clip" else {"outside": self.outside, "limits": self.limits}),
        }

    @property
    def rules(self) -> tuple[SpecialRule, ...]:
        """The special values as comparisons; the first that a value matches is its token."""
        return tuple(map(parse_special, self.special))

    @property
    def missing_token(self) -> int | None:
        """The token of missing values; None where they are errors."""
        return len(self.special) if self.missing == "token" else None

    @property
    def layout(self) -> FieldLayout:
        """Features, windows and units of the fitted field."""
        widths = self.basis.widths
        if self.reduction == "identity":
            widths = (1,) * sum(widths)
        units = range(len(widths)) if self.reduction == "identity" else [0] * len(widths)
        return FieldLayout(self.name, self.n_tokens + sum(self.basis.sizes), tuple(widths), tuple(units))

    def collect(self) -> NumericalStatistics:
        """Empty statistics, to be updated chunk by chunk."""
        return NumericalStatistics(self)

    def fit(self, statistics: NumericalStatistics) -> tuple[Numerical, str]:
        """The field with transform and basis filled in, and how the transform was chosen."""
        if statistics.n_missing == statistics.n_rows:
            raise ValueError(
                f"column {self.column!r} has no values: all {statistics.n_rows:,} rows are missing"
                f"{statistics.stray_words()}; leave it out of the schema"
            )
        x, weight = statistics.points()
        shape = self.required_shape
        if self.transform == "auto" and shape is not None and not shape.is_monotone:
            transform: Transform = MinMax().fit(x, weight)
            why = "linear, for a shape in units of the column"
        elif self.transform == "auto":
            edges = getattr(self.basis, "edges", None)
            transform, why = _over_edges(edges) if edges is not None else choose_transform(x, weight)
        else:
            transform = self.transform.fit(x, weight)
            why = f"{type(transform).__name__}, as given"
            if hasattr(transform, "report"):
                why += f"; {transform.report().splitlines()[0]}"
        fit = getattr(self.basis, "fit", None)
        basis = self.basis if fit is None else fit(x, weight, transform)
        why += statistics.stray_words()
        text: Stray = self.text if self.text != "auto" else "missing" if statistics.n_stray else "error"
        limits = None if self.outside == "clip" else self._fit_limits(transform, x, statistics.n_ordinary)
        part = statistics.spec.part
        return replace(self, transform=transform, basis=basis, part=part, text=text, limits=limits), why

    def _fit_limits(self, transform: Transform, x: FloatArray, n_ordinary: int) -> tuple[float, float]:
        """From the smallest to the largest value, or as given, and to the ends of the transform."""
        ends = np.asarray(transform.inverse(np.array([0.0, 1.0])), np.float64).tolist()
        seen = [float(x.min()), float(x.max())] if n_ordinary else ends
        low, high = self.limits or seen
        if isinstance(transform, BestFitCDF):  # whose ends are far out in the tails
            return low, high
        return min(low, ends[0]), max(high, ends[1])

    def raw(self, u: Array) -> FloatArray:
        """Values at positions in [0, 1]; where values are not clipped, inside of the range."""
        return np.clip(np.asarray(self.fitted_transform.inverse(u), np.float64), *self.value_limits)

    def extend(self, statistics: NumericalStatistics) -> Numerical:
        """The same field: transform and basis stay as they are when more data come in."""
        return self

    def read(self, column: pa.Array) -> FloatArray:
        """The numbers of a column of the table, NaN where missing; of dates, their part."""
        if self.part is None:
            return as_numbers(column, self.column, text=self.text, decimal=self.decimal)
        return take_part(self.seconds(column), self.part)

    def seconds(self, column: pa.Array) -> FloatArray:
        """The times of a column of dates, in seconds since 1970."""
        return as_seconds(column, self.column, text=self.text, format=self.format, zone=self.zone)

    def read_axis(self, column: pa.Array) -> FloatArray:
        """The numbers along the field's axis: numbers are values of the part, while dates have them."""
        return as_numbers(column, self.name) if is_number(column.type) else self.read(column)

    def read_numbers(self, column: pa.Array) -> FloatArray:
        """The values of a column, in the form that `encode_values` takes."""
        return self.read(column)

    def encode_values(self, x: FloatArray) -> tuple[Int32Array, FloatArray]:
        """Features inside the field and weights of numbers."""
        widths = self.layout.widths
        start, weight = np.empty((len(x), len(widths)), np.int32), np.empty((len(x), sum(widths)))
        self.encode_into(x, 0, start, weight)
        return start, weight

    def encode_into(self, x: FloatArray, first: int, start: Int32Array, weight: Array) -> None:
        """Write features, counted from `first`, and weights of numbers into arrays, such as some columns of slots."""
        token = self.find_tokens(x)
        if token is not None:
            x = np.where(token == ORDINARY, x, 0.0)
        # PAPER: z -> u = T(z) -> B_1(u) .. B_l(u); the sum reduction Σ_i B_i(u) v_i is left to the model.
        u = self.fitted_transform(x)
        if self.reduction == "identity":
            starts, weight[...] = self.basis(u)
            np.add(expand_windows(starts, self.basis.widths), np.int32(first + self.n_tokens), out=start)
        else:
            write_windows(self.basis, u, first + self.n_tokens, start, weight)
        if token is not None:
            special = np.flatnonzero(token != ORDINARY)
            start[special, 0] = token[special] + np.int32(first)
            weight[special] = 0.0
            weight[special, 0] = 1.0

    def find_tokens(self, x: FloatArray) -> Int32Array | None:
        """Token of each value, or `ORDINARY`; None where all are ordinary."""
        finite, beyond = np.isfinite(x), self.is_beyond(x)
        if not self.special and finite.all() and not beyond.any():
            return None
        token = np.full(len(x), ORDINARY, np.int32)
        for position, rule in reversed(list(enumerate(self.rules))):
            token[rule.matches(x)] = position
        missing = np.isnan(x)
        token[missing] = len(self.special)
        if self.missing == "error" and missing.any():
            raise ValueError(
                f"column {self.column!r} has missing values; fill them, "
                "or " + as_field("Numerical", self.name, 'missing="token"')
            )
        infinite = x[~finite & (token == ORDINARY)]
        if len(infinite):
            raise ValueError(
                f"column {self.column!r} holds {infinite[0]}; remove it, or make it a special value: "
                + as_field(
                    "Numerical",
                    self.name,
                    for_reader(f'special=[float("{infinite[0]}")]', f'special=["== {infinite[0]}"]'),
                )
            )
        beyond &= token == ORDINARY
        if beyond.any():
            if self.outside == "error":
                raise self._out_of_range(x, int(np.argmax(beyond)))
            token[beyond] = len(self.special)
        return None if (token == ORDINARY).all() else token

    def _out_of_range(self, x: FloatArray, row: int) -> OutOfRange:
        low, high = self.value_limits
        return OutOfRange(
            f"column {self.column!r} holds {float(x[row])!r}, beyond its range in training, {low!r} to {high!r}; "
            "correct it, or fit a model that takes it: "
            + as_field("Numerical", self.name, for_reader('outside="clip"', 'outside = "clip"')),
            row,
        )

    def tokens(self) -> list[Token]:
        """What the features before the basis functions stand for: special values, then missing ones."""
        special = [Token(TokenKind.SPECIAL, rule=rule) for rule in self.special]
        return special + [Token(TokenKind.MISSING)] * (self.missing == "token")

    def feature_names(self) -> list[str]:
        """What each feature stands for."""
        return [token.name for token in self.tokens()] + [f"B{i}" for i in range(sum(self.basis.sizes))]

    def check_fitted(self, n_features: int) -> None:
        """Raise where something was not learned, or there are more functions than features."""
        size = sum(self.basis.sizes)
        if size > n_features:
            raise ValueError(f"{self.name!r} has {size:,} basis functions, but there are {n_features:,} features")
        if isinstance(self.transform, str):
            raise ValueError(f"{self.name!r} has no fitted transform")
        ends = np.asarray(self.transform.inverse(np.array([0.0, 1.0])))  # needs everything that was learned
        if not np.isfinite(ends).all():
            raise ValueError(f"the transform of {self.name!r} runs from {ends[0]} to {ends[-1]}")
        if self.outside != "clip" and (self.limits is None or not np.isfinite(self.limits).all()):
            raise ValueError(f"{self.name!r} has outside={self.outside!r} and no limits")
        if isinstance(self.basis, Bins):
            cuts = np.array(self.basis.cuts)
            if not np.isfinite(cuts).all() or (np.diff(cuts) < 0).any():
                raise ValueError(f"the cuts of {self.name!r} are out of order")

    def weight_reach(self) -> FloatArray:
        """An upper bound of the sum of absolute weights of each unit; the basis is evaluated on a fine grid."""
        _, weight = self.basis(np.linspace(0.0, 1.0, _REACH_GRID))
        is_one_unit = max(self.layout.units) == 0
        reach = (np.abs(weight).sum(axis=1, keepdims=True) if is_one_unit else np.abs(weight)).max(axis=0)
        return np.asarray(REACH_MARGIN * np.maximum(reach, 1.0))  # tokens have the weight 1

    def penalty_blocks(self, order: int) -> list[PenaltyBlock]:
        """Tokens, then the functions of each resolution, smooth where their basis says so."""
        blocks = [PenaltyBlock(self.n_tokens)] if self.n_tokens else []
        periodic = bool(getattr(self.basis, "periodic", False))
        for size, weight in zip(self.basis.sizes, smoothing(self.basis, order), strict=True):
            is_smooth = size > order and weight > 0.0
            blocks.append(PenaltyBlock(size, weight, periodic) if is_smooth else PenaltyBlock(size))
        return blocks

    def feature_value(self, feature: int) -> float | None:
        """A raw value for which the feature is active; None for missing values."""
        if feature == self.missing_token:
            return None
        if feature < len(self.special):
            return first_matches(self.rules)[feature]
        return float(self.feature_ranges()[feature].mean())

    @property
    def value_type(self) -> pa.DataType:
        """The Arrow type of numbers."""
        return pa.float64()

    @property
    def example_rank(self) -> int:
        """The order in which fields of one column are asked for an example, the smallest first."""
        return int(self.part is not None)

    def example_value(self, low: float) -> float | str:
        """The smallest number of the training rows, or a date."""
        if self.part is not None:
            return self.as_written(_EXAMPLE_DATE)
        return low if math.isfinite(low) else float(self.raw(np.array([0.5]))[0])

    def as_written(self, text: str) -> str:
        """A date as the column has it, which a user may give as ISO 8601."""
        return as_written(text, self.format, self.zone)

    def feature_ranges(self) -> FloatArray:
        """Raw-unit interval of each feature, NaN for tokens; shape (features, 2)."""
        ends = supports(self.basis)
        ranges = self.raw(ends.ravel()).reshape(ends.shape)
        return np.concatenate([np.full((self.n_tokens, 2), np.nan), ranges])

    def pieces(self) -> tuple[FloatArray, int]:
        """Borders in u and degree of the polynomials that a curve is made of."""
        basis = self.basis
        if isinstance(basis, Bins):
            return basis.breaks, 0
        if isinstance(basis, BSpline | MultiResolution | Polynomial):
            return basis.breaks, basis.degree
        raise ValueError(
            f"extrema are found for splines, bins and polynomials; the basis of {self.name!r} is "
            f"{type(basis).__name__}: call the curve on a grid of values"
        )

    def unit_range(self, low: float | None, high: float | None) -> tuple[float, float]:
        """The part of [0, 1] where ordinary values between low and high lie."""
        first, last = (-np.inf if low is None else float(low)), (np.inf if high is None else float(high))
        if not first <= last:
            raise ValueError(f"low must not be above high, got low={low} and high={high}")
        first, last = max(first, self.value_limits[0]), min(last, self.value_limits[1])
        for sign, number in self.rules:
            if sign.startswith("<"):
                first = max(first, number)
            elif sign.startswith(">"):
                last = min(last, number)
        if first > last:
            raise ValueError(f"all values of {self.name!r} from {low} to {high} are special or out of range")
        ends = np.array([first, last])
        limits = np.isinf(ends)
        unit = np.where(limits, [0.0, 1.0], self.fitted_transform(np.where(limits, 0.0, ends)))
        return float(unit[0]), float(unit[1])

    def bin_edges(self) -> FloatArray:
        """The inner edges of the bins, in raw units: bin i holds `edges[i - 1] <= z < edges[i]`.

        Examples
        --------
        >>> from splinefm import Bins, MinMax
        >>> Numerical("x", MinMax(low=0.0, high=10.0), Bins(4)).bin_edges()
        array([2.5, 5. , 7.5])
        """
        cuts = step_cuts(self.basis)
        if cuts is None:
            raise ValueError(f"field {self.name!r} has a {type(self.basis).__name__} basis, which has no bins")
        return raw_edges(self.fitted_transform, cuts)

    def feature_counts(self, statistics: NumericalStatistics) -> FloatArray:
        """Number of training rows in which each feature is active."""
        return self._totals(statistics, lambda weight: weight != 0.0)

    def feature_weights(self, statistics: NumericalStatistics) -> FloatArray:
        """Sum of the weights of each feature over the training rows; as exact as the summary of the values."""
        return self._totals(statistics, lambda weight: weight)

    def _totals(self, statistics: NumericalStatistics, of: Callable[[FloatArray], Array]) -> FloatArray:
        """Sums over the training rows of a function of the weights, which is 1 for a weight of 1."""
        tokens = statistics.special_rows
        if self.missing == "token":
            tokens = np.append(tokens, statistics.n_missing)
        x, n_rows = statistics.points()
        start, weight = self.basis(self.fitted_transform(x))
        features = expand_windows(start, self.basis.widths)
        share = of(weight) * n_rows[:, None] * (statistics.n_ordinary > 0)
        totals = np.bincount(features.ravel(), share.ravel(), minlength=sum(self.basis.sizes))
        return np.concatenate([tokens, totals])

    @property
    def fitted_transform(self) -> Transform:
        """The transform; raise where it is not known yet."""
        if isinstance(self.transform, str):
            raise ValueError(f"field {self.name!r} is not fitted; use sf.fit_encoder")
        return self.transform


@dataclass
class NumericalStatistics:
    """What one pass over a numerical column keeps; statistics of parts can be merged."""

    spec: Numerical
    n_rows: int = 0
    n_missing: int = 0
    special_rows: FloatArray = field(init=False)
    sketch: QuantileSketch = field(default_factory=QuantileSketch)
    n_stray: int = 0
    stray: tuple[str, ...] = ()
    """Text that counts as missing: how many rows, and examples."""

    def __post_init__(self) -> None:
        self.special_rows = np.zeros(len(self.spec.special))

    @property
    def n_ordinary(self) -> int:
        """Rows that go through the transform."""
        return self.n_rows - self.n_missing - int(self.special_rows.sum())

    def update(self, column: pa.Array) -> None:
        """Add the rows of a chunk."""
        if self.n_missing == self.n_rows and self.spec.part is None and holds_dates(column):
            self.spec = replace(self.spec, part="trend")
        if self.spec.part is not None and is_number(column.type):
            check_unit(as_numbers(column, self.spec.column), self.spec.column)
        x = self.spec.read(column)
        self._count_stray(column, x)
        token = self.spec.find_tokens(x)
        self.n_rows += len(x)
        if token is not None:
            n_special = len(self.spec.special)
            count = np.bincount(token + 1, minlength=n_special + 2)
            self.special_rows += count[1 : n_special + 1]
            self.n_missing += int(count[n_special + 1])
            x = x[token == ORDINARY]
        self.sketch.update(x)

    def merge(self, other: NumericalStatistics) -> None:
        """Add the rows of other statistics of the same field."""
        if other.n_missing < other.n_rows:
            if self.n_missing < self.n_rows and self.spec.part != other.spec.part:
                raise ValueError(
                    f"column {self.spec.column!r} holds dates in some parts of the table and numbers in others"
                )
            self.spec = other.spec
        self.n_rows += other.n_rows
        self.n_missing += other.n_missing
        self.special_rows = self.special_rows + other.special_rows
        self.sketch.merge(other.sketch)
        self.n_stray += other.n_stray
        self.stray = tuple(dict.fromkeys(self.stray + other.stray))[:EXAMPLES]

    def _count_stray(self, column: pa.Array, x: FloatArray) -> None:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if is_text(kind) and self.spec.text != "error":
            stray = column.filter(to_arrow(np.isnan(x))).cast(pa.large_string()).drop_null()
            if self.spec.part is None:  # "nan" is a missing number
                mask = parse_numbers(stray, self.spec.decimal)[1]
                stray = stray.filter(to_arrow(np.zeros(len(stray), bool) if mask is None else mask))
            self.n_stray += len(stray)
            self.stray = tuple(dict.fromkeys([*self.stray, *stray[:100].to_pylist()]))[:EXAMPLES]

    def stray_words(self) -> str:
        """A remark on text that counts as missing."""
        if not self.n_stray:
            return ""
        what = "not numbers" if self.spec.part is None else "not dates"
        return f"; {what}, hence missing: {self.n_stray:,} rows such as {', '.join(map(repr, self.stray))}"

    def points(self) -> tuple[FloatArray, FloatArray]:
        """Values with the rows that each stands for; without ordinary values, a column counts as constant."""
        summary = self.sketch.summary()
        return (np.zeros(1), np.ones(1)) if summary is None else summary.points()


def _check_part(what: str, part: object, members: tuple[str, ...], name: str) -> None:
    if what == "transform" and part == "auto":
        return
    lacks = [member for member in members if not hasattr(part, member)]
    if lacks or isinstance(part, type):
        hint = "an instance, not the class" if isinstance(part, type) else f"an object with {', '.join(members)}"
        raise ValueError(f"{what} of field {name!r} must be {hint}, got {part!r}")


def _over_edges(edges: tuple[float, ...]) -> tuple[Transform, str]:
    return MinMax(low=edges[0], high=edges[-1]), "from the first to the last bin edge"


# A fitted numerical field without its objects: rules for tokens, pieces of polynomials in raw units, features.


@dataclass(frozen=True, eq=False)
class NumericalDescription:
    """What it takes to encode a number.

    The first rule that matches a value names its only feature, a token. Other values have the weights of the windows.

    Parameters
    ----------
    rules : tuple of SpecialRule
        Rule i belongs to feature i of the field.
    missing : int or None
        The feature of missing values; None where they are errors.
    n_tokens : int
        Features before the functions of the basis.
    windows : tuple of PolynomialWindow
        The functions of the basis; their numbers count from `n_tokens` on.
    pieces : pair of arrays, optional
        The transform, see `transform_pieces`. Without it the windows take raw values: they are steps.
    """

    rules: tuple[SpecialRule, ...]
    missing: int | None
    n_tokens: int
    windows: tuple[PolynomialWindow, ...]
    pieces: Pieces | None = None


def describe_numerical(item: Numerical) -> NumericalDescription | None:
    """The description of a fitted field; None where its transform or basis is not one of the package.

    Bins are looked up by the raw value, so that a value on an edge falls into the same bin as in the encoder.

    Examples
    --------
    >>> from splinefm import Bins, MinMax
    >>> found = describe_numerical(Numerical("x", MinMax(low=0.0, high=10.0), Bins(2), special=["negative"]))
    >>> found.rules, found.missing, found.windows[0].edges
    ((SpecialRule(sign='<', number=0.0),), 1, array([-inf,   5.,  inf]))
    """
    if type(item.transform) not in TRANSFORMS:
        return None
    windows, pieces = None, None
    if step_cuts(item.basis) is not None:
        windows = [step_window(np.concatenate([[-np.inf], item.bin_edges(), [np.inf]]))]
    else:
        windows, pieces = polynomial_windows(item.basis), transform_pieces(item.fitted_transform)
        if pieces is None:
            return None
    if windows is None:
        return None
    return NumericalDescription(item.rules, item.missing_token, item.n_tokens, tuple(windows), pieces)


# Timestamp: the parts of a column of dates, each as a numerical field.


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
    outside : {"clip", "missing", "error"}
        What a time beyond the range of the training rows is, see `Numerical`; hours and days are never beyond.

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
    outside: Outside = "clip"

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
            outside=self.outside,
        )
