"""Random schemas, models and rows: every kind of field and model, and values that other programs write differently."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

import splinefm as sf
from support import averages, one_of_each, random_classes, random_fitted

Rng = np.random.Generator

N_TRAINING, N_ROWS = 80, 16
NAMES = ["x", "a b", "é", 'q"uote', "score", "prediction", "0", "__proto__", "日本", "X", "a.b", "toString"]
WORDS = ["a", "b", "ä", "日本", "🙂", "c d", "a,b", 'say "x"', "'", "\\", "line\nbreak", "", "true", "1", "2024-05-28"]
STRANGE_WORDS = ["new", "NaN", "null", " a", "a ", "A", "e\u0301", "\u202e", "\x7f", "x" * 300, "<missing>", "<unseen>"]
SPELLED = ["1", "01", "1.0", "2", "2.50", "-3", "1e5", "0", "-0", "+7", "0.1"]
STRANGE_SPELLED = ["100000", " 1", "1e-7", "9007199254740993", "-0.0", "1E5", "00", ".5", "3."]
ELEMENTS = ["p", "q", "r", "ß", "s t", "7"]
EXTREMES = [0.0, -0.0, 5e-324, -5e-324, 1e-310, 2.2e-308, 1e-30, 1e300, -1e300, 1.7e308, 999.0, -1.0, 2.0**53, 1e-7]
INTEGERS = [0, -1, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63) + 1, 999, 10**15]
ZONES = [None, "UTC", "Europe/Rome", "America/New_York", "Australia/Lord_Howe", "+05:30"]
# Minutes around which clocks change somewhere.
CHANGES = [
    dt.datetime(2024, 3, 31, 1),
    dt.datetime(2024, 10, 27, 1),
    dt.datetime(2024, 3, 10, 7),
    dt.datetime(2024, 11, 3, 6),
    dt.datetime(2024, 4, 6, 15),
    dt.datetime(2045, 3, 26, 1),
    dt.datetime(1970, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(2024, 2, 29, 23, 59, 59),
]


@dataclass
class Column:
    """A column: values to learn from, and rows to score."""

    name: str
    kind: str
    type: pa.DataType
    training: list[Any]
    rows: list[Any]
    zone: str | None = None
    """The zone that its fields convert times to."""

    def table(self, rows: bool = True) -> pa.Array:
        """As Arrow has it."""
        return pa.array(self.rows if rows else self.training, self.type)


class Case(NamedTuple):
    """A model and rows."""

    fitted: sf.Fitted
    schema: sf.Schema
    columns: list[Column]
    training: dict[str, pa.Array]
    table: pa.Table

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Dicts of Python's objects."""
        lists = {column.name: column.rows for column in self.columns}
        return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]

    @property
    def has_infinity(self) -> bool:
        """Whether a number is infinite, which JSON has no word for."""
        return any(isinstance(x, float) and np.isinf(x) for column in self.columns for x in column.rows)

    def readers(self, column: str) -> list[Any]:
        """The fields of a column, also those that are only parts of crosses."""
        every = [
            part
            for item in self.fitted.encoder.schema.resolved
            for part in (item.fields if isinstance(item, sf.Cross) else (item,))
        ]
        return [item for item in every if item.column == column]


def pick(rng: Rng, choices: Sequence[Any]) -> Any:
    """Return one of several things."""
    return choices[int(rng.integers(len(choices)))]


# Columns


def _mixed(rng: Rng, usual: Callable[[], Any], strange: Callable[[], Any], n: int, share: float) -> list[Any]:
    """Return values, of which a share are missing or strange."""
    draws = rng.random(n)
    return [None if d < share / 3 else strange() if d < share else usual() for d in draws]


def _column(
    rng: Rng, name: str, kind: str, type: pa.DataType, usual: Callable[[], Any], strange: Callable[[], Any]
) -> Column:
    share = pick(rng, [0.0, 0.2])
    training = _mixed(rng, usual, usual, N_TRAINING, share)
    training[:4] = [usual() for _ in range(4)]  # a column without values has no field
    return Column(name, kind, type, training, _mixed(rng, usual, strange, N_ROWS, 0.45))


def _number(rng: Rng, name: str) -> Column:
    draw = pick(
        rng,
        [
            lambda: float(rng.normal(3.0, 2.0)),
            lambda: float(rng.gamma(2.0, 1.5) + 0.01),
            lambda: float(rng.lognormal(0.0, 3.0)),
            lambda: float(rng.integers(0, 9)),
            lambda: float(rng.uniform(-1.0, 1.0) * 1e-3),
            lambda: float(1e9 + rng.uniform(0.0, 1e6)),
        ],
    )
    width = pick(rng, [pa.float64(), pa.float64(), pa.float32()])
    if width == pa.float32():
        return _column(
            rng, name, "number", width, lambda: float(np.float32(draw())), lambda: pick(rng, [0.0, 1e30, -1.0, 1e-40])
        )
    return _column(rng, name, "number", width, draw, lambda: pick(rng, EXTREMES))


def _integer(rng: Rng, name: str) -> Column:
    large = rng.random() < 0.3
    return _column(
        rng,
        name,
        "integer",
        pa.int64(),
        lambda: int(rng.integers(-5, 20)) + (2**53 if large else 0),
        lambda: pick(rng, INTEGERS),
    )


def _text(rng: Rng, name: str) -> Column:
    words = [pick(rng, WORDS) for _ in range(6)]
    return _column(rng, name, "text", pa.string(), lambda: pick(rng, words), lambda: pick(rng, WORDS + STRANGE_WORDS))


def _spelled(rng: Rng, name: str) -> Column:
    return _column(
        rng,
        name,
        "spelled",
        pa.string(),
        lambda: pick(rng, SPELLED),
        lambda: pick(rng, SPELLED + STRANGE_SPELLED),
    )


def _list(rng: Rng, name: str) -> Column:
    def usual() -> list[Any]:
        return [pick(rng, ELEMENTS) for _ in range(rng.integers(0, 4))]

    def strange() -> list[Any]:
        return [pick(rng, [*ELEMENTS, "new", "", None, "a\nb"]) for _ in range(rng.integers(0, 9))]

    return _column(rng, name, "list", pa.list_(pa.string()), usual, strange)


def _split(rng: Rng, name: str) -> Column:
    def usual() -> str:
        return "|".join(pick(rng, ELEMENTS) for _ in range(rng.integers(1, 4)))

    return _column(
        rng, name, "split", pa.string(), usual, lambda: pick(rng, ["new", "p||q", " p | q ", "|", "p|" * 9, "p,q"])
    )


def _flag(rng: Rng, name: str) -> Column:
    def draw() -> bool:
        return bool(rng.random() < 0.5)

    return _column(rng, name, "flag", pa.bool_(), draw, draw)


def _day(rng: Rng, name: str) -> Column:
    def usual() -> dt.date:
        return dt.date(2024, 2, 27) + dt.timedelta(days=int(rng.integers(0, 6)))

    days = [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1899, 12, 31)]
    return _column(rng, name, "day", pa.date32(), usual, lambda: pick(rng, days))


def _time(rng: Rng, name: str) -> Column:
    unit, zone, written = pick(rng, ["s", "ms", "us", "ns"]), pick(rng, ZONES), pick(rng, ZONES)

    def place(time: dt.datetime) -> dt.datetime:
        time = time.replace(microsecond={"s": 0, "ms": time.microsecond // 1000 * 1000}.get(unit, time.microsecond))
        if written is None:
            return time
        offset: Any = dt.timezone(dt.timedelta(hours=5, minutes=30)) if written[0] == "+" else ZoneInfo(written)
        # From UTC, so that no clock is ever set to an hour that a change of clocks has left out.
        return time.replace(tzinfo=dt.UTC).astimezone(offset)

    def usual() -> dt.datetime:
        return place(dt.datetime(2020, 1, 1) + dt.timedelta(seconds=float(rng.uniform(0.0, 1.5e8))))

    def strange() -> dt.datetime:
        minutes = pick(rng, [-61, -60, -59, -31, -30, -1, 0, 1, 29, 30, 59, 60, 61])
        return place(pick(rng, CHANGES) + dt.timedelta(minutes=minutes))

    column = _column(rng, name, "time", pa.timestamp(unit, written), usual, strange)
    column.zone = zone
    return column


COLUMNS = [_number, _number, _number, _integer, _text, _text, _spelled, _list, _split, _flag, _day, _time]


# Fields


def _transform(rng: Rng) -> Any:
    return pick(
        rng,
        [
            "auto",
            sf.MinMax(),
            sf.Quantile(),
            sf.Log(),
            sf.ArcsinhSquare(),
            sf.BestFitCDF(),
            sf.BestFitCDF(family=pick(rng, ["gamma", "normal", "lognormal"])),
        ],
    )


def _basis(rng: Rng) -> Any:
    return pick(
        rng,
        [
            sf.BSpline(int(rng.integers(2, 9)), int(rng.integers(0, 6))),
            sf.BSpline(degree=2, knots=(0.0, 0.1, 0.11, 0.9, 1.0)),
            sf.MultiResolution((2, 8), int(rng.integers(0, 4))),
            sf.Bins(int(rng.integers(2, 9)), pick(rng, ["quantile", "uniform"])),
            sf.Polynomial(int(rng.integers(1, 5)), pick(rng, ["legendre", "chebyshev"])),
            sf.Fourier(int(rng.integers(1, 4))),
            sf.Powers(pick(rng, [(1.0, 2.0), (1.0, 2.0, 0.5)])),
        ],
    )


def _numerical(rng: Rng, name: str, column: Column) -> sf.Numerical:
    special = pick(rng, [(), (), (0.0,), (999.0, "negative"), (">= 999", 2.0, "< -0.5")])
    reduction = pick(rng, ["sum", "sum", "identity"])
    transform, basis = _transform(rng), _basis(rng)
    if rng.random() < 0.1:
        known = [0.0, *(float(value) for value in column.training if value is not None)]
        transform, basis = sf.MinMax(min(known) - 1.0, max(known) + 1.0), sf.BSpline(5, 2, periodic=True)
    return sf.Numerical(name, transform, basis, special, reduction=reduction, column=column.name)


def _category_options(rng: Rng) -> dict[str, Any]:
    return {
        "min_count": pick(rng, [1, 1, 3]),
        "unseen": pick(rng, ["rare", "rare", "neutral", "hash"]),
        "buckets": pick(rng, [3, 64]),
    }


def _fields(rng: Rng, column: Column) -> list[Any]:
    """Return one field of a column, or several that read it in different ways."""
    name, kind = column.name, column.kind
    if kind in ("list", "split"):
        options = _category_options(rng) | {"max_length": pick(rng, [None, 2])}
        reduction = pick(rng, ["sum", "mean", "identity"])
        return [sf.MultiValued(name, separator="|" if kind == "split" else None, reduction=reduction, **options)]
    if kind == "time":
        parts = [part for part in ("trend", "hour", "weekday", "yearday") if rng.random() < 0.6] or ["hour"]
        return [sf.Timestamp(name, parts=parts, zone=column.zone)]

    def category(name: str, spelling: str | None) -> sf.Categorical:
        return sf.Categorical(name, column=column.name, values=spelling, **_category_options(rng))

    values = {"integer": ["numbers", "text", None], "spelled": ["numbers", "text", None], "text": ["text", None]}
    spellings = values.get(kind, [None])
    forms: list[Callable[[str], Any]] = [
        lambda name, spelling=spelling: category(name, spelling) for spelling in spellings
    ]
    if column.type == pa.float32():  # the name of 0.1 has other digits in a row, which is of doubles
        forms = []
    if kind in ("number", "integer"):
        forms += 4 * [lambda name: _numerical(rng, name, column)]
    elif kind == "spelled":
        forms.append(lambda name: _numerical(rng, name, column))
    n = 1 if rng.random() < 0.75 else 2
    chosen = [forms[i] for i in rng.permutation(len(forms))[:n]]
    return [form(name if i == 0 else f"{name} again") for i, form in enumerate(chosen)]


def _crosses(rng: Rng, fields: list[Any]) -> list[Any]:
    every = [part for item in fields for part in (item.fields if isinstance(item, sf.Timestamp) else (item,))]
    parts = [item for item in every if isinstance(item, sf.Numerical | sf.Categorical)]
    if len(parts) < 2 or rng.random() < 0.4:
        return []
    chosen = [parts[i] for i in rng.permutation(len(parts))[: pick(rng, [2, 2, 3])]]
    given: list[Any] = [part.name for part in chosen]
    options: dict[str, Any] = {}
    if any(isinstance(part, sf.Numerical) for part in chosen[1:]):
        options = {"segments": pick(rng, [2, 3, (2, 3)]), "degree": 2}
    if any(isinstance(part, sf.Categorical) for part in chosen):
        options |= {"min_count": pick(rng, [1, 3]), "buckets": pick(rng, [None, None, 5])}
    if rng.random() < 0.3:  # a part of its own
        own = chosen[0]
        given[0] = replace(own, name=f"own {own.name}", column=own.column)
        if isinstance(own, sf.Numerical):
            given[0] = replace(given[0], basis=sf.BSpline(2, 1), transform=sf.MinMax())
    return [sf.Cross(*given, **options)]


def make_case(rng: Rng) -> Case:
    """Make a model and rows; raises what a fit of its encoder raises."""
    names = [NAMES[i] for i in rng.permutation(len(NAMES))]
    columns = [pick(rng, COLUMNS)(rng, name) for name in names[: pick(rng, [1, 2, 3, 4, 5])]]
    fields = [item for column in columns for item in _fields(rng, column)]
    schema = sf.Schema([*fields, *_crosses(rng, fields)])
    training = {column.name: column.table(rows=False) for column in columns}
    numbers = [column for column in columns if column.kind == "number"]
    if numbers and rng.random() < 0.05:
        pick(rng, numbers).rows[int(rng.integers(N_ROWS))] = pick(rng, [np.inf, -np.inf])
    n_fields = len(schema.fields)
    models = [
        *one_of_each(n_fields),
        *averages(),
        sf.FM(k=16),
        sf.FwFM(k=10),
        sf.FFM(k=8),
        sf.HigherOrderFM(k=4, order=4),
    ]
    model, seed = pick(rng, models), int(rng.integers(1 << 30))
    table = pa.table({column.name: column.table() for column in columns})
    if rng.random() < 0.2:
        fitted = random_classes(model, schema, training, seed=seed)
    else:
        loss = pick(rng, ["logistic", "squared", "poisson"])
        fitted = random_fitted(model, schema, training, loss=loss, seed=seed, scale=0.4, spread=0.3)
    return Case(fitted, schema, columns, training, table)
