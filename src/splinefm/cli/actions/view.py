"""A model along one or two fields, for the segments that the user asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm.cli.segments import Segments, parse_segments, unknown_field
from splinefm.encode.fields.sources import Sources
from splinefm.encode.tables.open import open_data, require_columns
from splinefm.encode.tables.table import Table
from splinefm.inspect.curves import Bars, Curve, Surface
from splinefm.inspect.rows import read_sample
from splinefm.inspect.segment import segment, segments
from splinefm.inspect.values import View, bar_values, column_values, curve_values, side_grid, surface_values, value_grid
from splinefm.store.description import one_class, predicted_thing
from splinefm.store.model_file import load
from splinefm.train.fitted import Fitted
from splinefm.train.progress import make_progress

BACKGROUND_ROWS = 100_000
"""Maximum number of rows of --data to average over and plot; larger tables are sampled at random."""
_GRID, _SIDE, _CATEGORIES = 201, 51, 1000
_PRINTED_GRID, _PRINTED_SIDE, _PRINTED_CATEGORIES = 11, 7, 20
_PRINTED_VALUES = 31  # hours, days of a month: known values of a curve


@dataclass(frozen=True)
class ViewRequest:
    """What the user asked for.

    Parameters
    ----------
    model : Path
        The model file.
    along : list of str
        One field or two.
    segment : list of str
        NAME=VALUE; several values of a field give several curves.
    each : str, optional
        A field whose most frequent categories give a curve each.
    data : str, optional
        The table to average over, whose distribution is plotted.
    link : bool
        Show predictions instead of scores.
    out : Path, optional
        File of a plot or of values to write.
    sep : str, optional
        Column separator of CSV files.
    class_name : str, optional
        One of more than two classes, as text.
    """

    model: Path
    along: list[str]
    segment: list[str] = field(default_factory=list)
    each: str | None = None
    data: str | None = None
    link: bool = True
    out: Path | None = None
    sep: str | None = None
    class_name: str | None = None


@dataclass(frozen=True, eq=False)
class ViewResult:
    """A view with everything that is needed to print, plot and write it.

    Parameters
    ----------
    fitted : Fitted
        The model.
    view : Curve, Bars or Surface
        The view of all segments; for several, they are its first axis.
    segments : Segments
        The segments.
    averaged : list of str
        Fields that are averaged over.
    rows : int, optional
        Number of rows of the given table; None without one.
    sample : pyarrow.Table, optional
        Some or all rows of that table.
    link : bool
        Whether predictions are shown.
    """

    fitted: Fitted
    view: View
    segments: Segments
    averaged: list[str]
    rows: int | None
    sample: pa.Table | None
    link: bool

    @property
    def along(self) -> list[str]:
        """The fields that vary."""
        return [item.name for item in self.view.fields] if isinstance(self.view, Surface) else [self.view.field.name]

    @property
    def views(self) -> list[Any]:
        """One view per segment."""
        several = len(self.segments.rows) > 1
        return [self.view[i] for i in range(len(self.segments.rows))] if several else [self.view]

    @property
    def shown(self) -> str:
        """What the numbers mean."""
        return predicted_thing(self.fitted) if self.link else "score"

    def values(self, name: str) -> FloatArray | None:
        """The values of a numerical column in the sample."""
        return None if self.sample is None else column_values(self.fitted, self.sample, name)

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain lists, dicts, strings and numbers."""
        described = (self._describe(view, _GRID, _SIDE, _CATEGORIES) for view in self.views)
        return {
            "along": self.along,
            "prediction": predicted_thing(self.fitted),
            "averaged": self.averaged,
            "averaged_over_rows": self.fitted.encoder.n_rows if self.sample is None else self.sample.num_rows,
            "views": [{"segment": row, **values} for row, values in zip(self.segments.rows, described, strict=True)],
        }

    def printed(self) -> list[dict[str, Any]]:
        """The values of every segment at a few points."""
        return [self._describe(view, _PRINTED_GRID, _PRINTED_SIDE, _PRINTED_CATEGORIES) for view in self.views]

    def _describe(self, view: Any, grid: int, side: int, categories: int) -> dict[str, Any]:
        if isinstance(view, Curve):
            n = grid if view.known_values is None else max(grid, _PRINTED_VALUES)
            return curve_values(view, value_grid(view.field, n, self.values(view.field.name), view.known_values))
        if isinstance(view, Bars):
            return bar_values(self.fitted, view, categories)
        x, y = (side_grid(self.fitted, name, side, min(side, categories), self.values(name)) for name in self.along)
        return surface_values(view, x, y)


def make_view(request: ViewRequest, verbose: bool = False) -> ViewResult:
    """Make the requested view of a model."""
    fitted = one_class(load(request.model), request.class_name, "view")
    sources = Sources(fitted.encoder.schema)
    for name in request.along:
        if name not in sources.fields:
            raise ValueError(f"--along {name}: {unknown_field(name, sources)}")
    chosen = parse_segments(fitted, request.along, request.segment, request.each)
    if len(request.along) == 2 and len(chosen.rows) > 1:
        raise ValueError(
            f"two --along give one surface, but there are {len(chosen.rows)} segments; give each field one value"
        )
    named = {*request.along, *chosen.fields}
    averaged = [name for name, item in sources.fields.items() if not {name, item.column} & named]
    rows, sample = None, None
    if request.data is not None:
        table = open_data(request.data, fitted.encoder.schema.column_types(), request.sep)
        columns = list(dict.fromkeys(sources.fields[name].column for name in (*request.along, *averaged)))
        rows, sample = _read_background(table, request.data, columns, verbose)
    view = _make_view(fitted, request.along, chosen, sample if averaged else None)
    return ViewResult(fitted, view, chosen, averaged, rows, sample, request.link)


def _read_background(table: Table, data: str, columns: list[str], verbose: bool) -> tuple[int, pa.Table]:
    require_columns(table, columns)
    with make_progress(verbose) as progress:
        sample = read_sample(table, columns, BACKGROUND_ROWS, progress)
    if not sample.n_seen:
        raise ValueError(f"--data {data!r} has no rows; give at least one to average over")
    return sample.n_seen, sample.table()


def _make_view(fitted: Fitted, along: list[str], chosen: Segments, background: pa.Table | None) -> View:
    if len(chosen.rows) == 1:
        return segment(fitted, chosen.rows[0], along, rest="mean", background=background)
    columns = chosen.columns(fitted.encoder.schema)
    return segments(fitted, columns, along, rest="mean", background=background)
