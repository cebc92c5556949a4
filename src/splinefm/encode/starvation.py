"""BasisStarvation: how many training rows each basis function sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm.encode.bases import supports
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.names import counted

_BARS = "▁▂▃▄▅▆▇█"
# A function is starved where it sees less than this part of the rows that an even spread would give it.
STARVED = 0.1
_NAMED = 3
_WIDTH = 40


@dataclass(frozen=True)
class FunctionShare:
    """One basis function: its interval in raw units and the share of training rows in it."""

    field: str
    function: str
    low: float
    high: float
    share: float
    even_share: float
    block: int = 0
    """Number of its block of neighbors: the resolution, where there are several."""

    @property
    def starved(self) -> bool:
        """Whether it sees far fewer rows than under an even spread."""
        return self.share < STARVED * self.even_share


@dataclass(frozen=True)
class BasisStarvation:
    """The share of training rows in the support of each basis function of the numerical fields.

    A transform spreads the data well when no function is starved: one that sees hardly any rows cannot be
    learned (paper, section on arbitrary domains). Print it for a table; `to_arrow` has all the numbers.

    Examples
    --------
    >>> from splinefm import BSpline, MinMax, Numerical, Schema, fit_encoder
    >>> schema = Schema([Numerical("x", MinMax(), BSpline(segments=4, degree=1))])
    >>> print(fit_encoder(schema, {"x": [0.0, 1.0, 2.0, 2.5, 100.0]}).starvation())
    field  transform  functions    least    median  spread over [0, 1]
    x      MinMax             5     0.0 %    20.0 %  █▆▁▁▃
        starved: B2 on [25, 75] sees 0.0 % of the rows
        starved: B3 on [50, 100] sees 0.0 % of the rows
    """

    functions: tuple[FunctionShare, ...]
    transforms: dict[str, str]

    @staticmethod
    def of(fields: Iterable[Any], counts: Sequence[FloatArray], n_rows: int) -> BasisStarvation:
        """The report for fitted fields."""
        numerical = [(item, rows) for item, rows in zip(fields, counts, strict=True) if item.is_numerical]
        functions = [share for item, rows in numerical for share in _shares(item, rows / n_rows)]
        return BasisStarvation(tuple(functions), {item.name: type(item.transform).__name__ for item, _ in numerical})

    def to_arrow(self) -> pa.Table:
        """One row per basis function."""
        columns = ("field", "function", "low", "high", "share", "even_share", "starved")
        return pa.table({name: [getattr(item, name) for item in self.functions] for name in columns})

    def __repr__(self) -> str:
        starved = sum(item.starved for item in self.functions)
        functions = f"{len(self.functions):,} basis functions, {starved:,} of them starved"
        return f"BasisStarvation({functions}, {counted('field', list(self.transforms))})"

    def __str__(self) -> str:
        if not self.functions:
            return "no numerical fields"
        width = max(len("field"), *map(len, self.transforms))
        kind = max(len("transform"), *map(len, self.transforms.values()))
        lines = [f"{'field':{width}}  {'transform':{kind}}  functions    least    median  spread over [0, 1]"]
        for name, transform in self.transforms.items():
            group = [item for item in self.functions if item.field == name]
            for block in range(max(item.block for item in group) + 1):
                share = np.array([item.share for item in group if item.block == block])
                first = f"{name:{width}}  {transform:{kind}}" if block == 0 else " " * (width + 2 + kind)
                lines.append(
                    f"{first}  {len(share):9d}  {_percent(share.min())}  "
                    f"{_percent(float(np.median(share)))}  {_sparkline(share)}"
                )
            lines += _starved_lines([item for item in group if item.starved])
        return "\n".join(lines)


def _shares(item: Numerical, share: FloatArray) -> list[FunctionShare]:
    first = item.n_tokens
    # A function that covers the whole of [0, 1] sees all ordinary rows at best, not the special ones.
    even = np.diff(supports(item.basis), axis=1)[:, 0] * max(0.0, 1.0 - float(share[:first].sum()))
    ranges = item.feature_ranges()[first:]
    blocks = np.repeat(np.arange(len(item.basis.sizes)), item.basis.sizes)
    names = item.feature_names()[first:]
    return [
        FunctionShare(item.name, name, float(low), float(high), float(part), float(evenly), int(block))
        for name, (low, high), part, evenly, block in zip(names, ranges, share[first:], even, blocks, strict=True)
    ]


def _starved_lines(starved: list[FunctionShare]) -> list[str]:
    lines = [
        f"    starved: {item.function} on [{item.low:g}, {item.high:g}] sees {100 * item.share:.1f} % of the rows"
        for item in starved[:_NAMED]
    ]
    more = len(starved) - _NAMED
    return lines + ([f"    ... and {more} more; another transform may spread the data better"] if more > 0 else [])


def _percent(share: float) -> str:
    return f"{100 * share:6.1f} %"


def _sparkline(share: FloatArray) -> str:
    if len(share) > _WIDTH:  # the least of neighbors: a gap must not vanish
        share = np.array([part.min() for part in np.array_split(share, _WIDTH)])
    top = share.max() or 1.0
    level = np.minimum((share / top * len(_BARS)).astype(int), len(_BARS) - 1)
    return "".join(_BARS[i] for i in level)
