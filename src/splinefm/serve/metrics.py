"""Metrics of all workers in one shared file, and their text for Prometheus.

The file is an array of float64 with a row for each worker and one for the supervisor. Which cell means what follows
from the settings and the models, so that all processes know it without talking. A process writes its own row alone,
without locks between processes, and reads those of the others when it is asked for metrics. A worker that replaces a
dead one goes on with its row: counters never go back.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np

Kind = Literal["counter", "gauge", "histogram"]
Combine = Literal["sum", "max", "min"]
Labels = tuple[str, ...]

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper ends of the buckets of times."""


@dataclass(frozen=True)
class Family:
    """Cells of one name: one for each combination of labels, for a histogram one for each bucket and the sum."""

    name: str
    kind: Kind
    help: str
    labels: Labels = ()
    values: tuple[Labels, ...] = ((),)
    combine: Combine = "sum"

    @property
    def width(self) -> int:
        """Cells for each combination of labels."""
        return len(SECONDS) + 2 if self.kind == "histogram" else 1


class MetricCatalog:
    """Which cell means what.

    Parameters
    ----------
    families : sequence of Family
        All metrics, in the order of the text.
    """

    def __init__(self, families: Sequence[Family]) -> None:
        self.families = tuple(families)
        self.cells: dict[tuple[str, Labels], int] = {}
        at = 0
        for family in families:
            for values in family.values:
                self.cells[family.name, values] = at
                at += family.width
        self.n_cells = at


class Metrics:
    """The row of one process, and the sum over all rows.

    Parameters
    ----------
    catalog : Catalog
        Which cell means what.
    path : path
        The shared file, made by `create_file`.
    row, n_rows : int
        The row of this process, and how many there are.

    Examples
    --------
    >>> import tempfile
    >>> catalog = MetricCatalog([Family("hits_total", "counter", "Hits.", ("page",), (("a",), ("b",)))])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "metrics"
    ...     create_file(path, catalog, 2)
    ...     first, second = Metrics(catalog, path, 0, 2), Metrics(catalog, path, 1, 2)
    ...     first.add("hits_total", "a")
    ...     second.add("hits_total", "a", amount=2.0)
    ...     print(first.text().splitlines()[2])
    hits_total{page="a"} 3
    """

    def __init__(self, catalog: MetricCatalog, path: Path, row: int, n_rows: int) -> None:
        self.catalog = catalog
        self._lock = Lock()  # long requests are counted on another thread
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        view = memoryview(self._map).cast("d")
        self._own = view[row * catalog.n_cells : (row + 1) * catalog.n_cells]
        self._every = np.frombuffer(self._map, np.float64).reshape(n_rows, catalog.n_cells)

    def cell(self, name: str, *labels: str) -> int:
        """The number of a cell, for those that are counted often."""
        return self.catalog.cells[name, labels]

    def increase(self, cell: int, amount: float = 1.0) -> None:
        """Add to a cell."""
        with self._lock:
            self._own[cell] += amount

    def add(self, name: str, *labels: str, amount: float = 1.0) -> None:
        """Add to a counter."""
        self.increase(self.catalog.cells[name, labels], amount)

    def set(self, name: str, *labels: str, value: float) -> None:
        """Set a gauge."""
        self._own[self.catalog.cells[name, labels]] = value

    def observe(self, cell: int, seconds: float) -> None:
        """Add a time to a histogram."""
        with self._lock:
            self._own[cell + bisect_left(SECONDS, seconds)] += 1.0
            self._own[cell + len(SECONDS) + 1] += seconds

    def value(self, name: str, *labels: str) -> float:
        """A counter or gauge over all rows."""
        family = next(family for family in self.catalog.families if family.name == name)
        return self._combined(family, self._every[:, self.catalog.cells[name, labels]])

    def forget_gauges(self, row: int | None = None) -> None:
        """Set the gauges of a row to 0, by default those of this process: a worker that ends or died has none."""
        own = self._own if row is None else self._every[row]
        for family in self.catalog.families:
            if family.kind == "gauge":
                for values in family.values:
                    own[self.catalog.cells[family.name, values]] = 0.0

    def text(self) -> str:
        """All metrics, as Prometheus reads them."""
        lines: list[str] = []
        for family in self.catalog.families:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            for values in family.values:
                at = self.catalog.cells[family.name, values]
                if family.kind == "histogram":
                    lines += self._histogram(family, values, at)
                else:
                    number = self._combined(family, self._every[:, at])
                    lines.append(f"{family.name}{_labels(family.labels, values)} {_number(number)}")
        return "\n".join(lines) + "\n"

    def _combined(self, family: Family, cells: Any) -> float:
        if family.combine == "min":  # over the workers; the last row is the supervisor's
            return float(cells[:-1].min())
        return float(cells.max() if family.combine == "max" else cells.sum())

    def _histogram(self, family: Family, values: Labels, at: int) -> Iterable[str]:
        cells = self._every[:, at : at + family.width].sum(axis=0)
        counts = np.cumsum(cells[:-1])
        names = (*family.labels, "le")
        for end, count in zip((*map(str, SECONDS), "+Inf"), counts, strict=True):
            yield f"{family.name}_bucket{_labels(names, (*values, end))} {_number(count)}"
        yield f"{family.name}_sum{_labels(family.labels, values)} {_number(cells[-1])}"
        yield f"{family.name}_count{_labels(family.labels, values)} {_number(counts[-1])}"


def create_file(path: Path, catalog: MetricCatalog, n_rows: int) -> None:
    """Make the shared file, with zeros."""
    path.write_bytes(bytes(8 * max(1, n_rows * catalog.n_cells)))


def _labels(names: Labels, values: Labels) -> str:
    pairs = [f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
