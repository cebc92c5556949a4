"""`splinefm view`: show a model along one or two fields."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from splinefm._wording import number
from splinefm.cli import options as opt
from splinefm.cli.output import print_facts, print_json, print_lines, print_table

if TYPE_CHECKING:
    import pyarrow as pa

    from splinefm._arrays import FloatArray
    from splinefm.cli.segments import Segments
    from splinefm.inspect.values import View
    from splinefm.train.fitted import Fitted

BACKGROUND_ROWS = 100_000
"""Maximum number of rows of --data to average over and plot; larger tables are sampled at random."""


class Resolution(NamedTuple):
    """The number of points of a curve, of a side of a surface, and the maximum number of categories."""

    curve: int
    side: int
    categories: int


WRITTEN, PRINTED = Resolution(201, 51, 1000), Resolution(11, 7, 20)
PRINTED_VALUES = 31  # hours, days of a month: known values of a curve

Along = Annotated[
    list[str],
    typer.Option(metavar="FIELD", help="Field that varies. Give two for a surface.", show_default=False),
]
SegmentValues = Annotated[
    list[str] | None,
    typer.Option(
        "--segment",
        metavar="FIELD=VALUE",
        help="Value of another field: FIELD= is missing, a|b is a list. Repeat for several fields; several values of "
        "one field give a curve each.",
    ),
]
Each = Annotated[
    str | None,
    typer.Option(metavar="FIELD", help="Show a curve for each of the 12 most frequent categories of this field."),
]
Background = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="Table to average the other fields over, whose distribution is plotted. By default the training rows, "
        "as summarized in the model. Use - to read CSV from standard input.",
    ),
]
Link = Annotated[
    bool, typer.Option("--link/--score", help="Show predictions, such as probabilities, or the underlying scores.")
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a plot (.png, .svg, .pdf) or the values (.csv, .json) to this file."),
]


def view(
    model: opt.ModelFile,
    along: Along,
    segment: SegmentValues = None,
    each: Each = None,
    data: Background = None,
    class_name: opt.ClassName = None,
    sep: opt.Sep = None,
    link: Link = True,
    out: Out = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Show the model along one or two fields: an exact curve, bars or surface.

    Fields that are not named are averaged over. Example: splinefm view model.sfm --along price --segment country=US
    """
    from splinefm._files import check_writable
    from splinefm.encode.tables.open import refuse_overwriting
    from splinefm.plots.files import FORMATS, import_plots
    from splinefm.store.description import one_class
    from splinefm.store.model_file import load

    if len(along) > 2 or len(set(along)) < len(along):
        raise typer.BadParameter("give one field, or two different ones", param_hint="--along")
    for text in segment or []:
        if "=" not in text:
            raise typer.BadParameter(f"{text!r} is not of the form FIELD=VALUE", param_hint="--segment")
    if out is not None:
        suffix, endings = out.suffix.lower(), (*FORMATS, ".csv", ".json")
        if suffix not in endings:
            raise ValueError(f"--out {str(out)!r} must end in {', '.join(endings)}")
        if out.is_dir():
            raise IsADirectoryError(f"--out {str(out)!r} is a folder; give the name of a file in it")
        check_writable(out)
        refuse_overwriting(out, model, *([] if data is None else [data]))
        if suffix in FORMATS:
            import_plots()  # before the work, not after it
    fitted = one_class(load(model), class_name, "view")
    result = make_view(fitted, along, segment or [], each, data, sep, link, not quiet)
    if out is not None:
        write_view(result, out)
    for remark in result.segments.remarks:
        opt.remarks(quiet)(remark)
    if as_json:
        return print_json({**result.to_dict(), **({} if out is None else {"file": str(out)})})
    print_view(result, out)


@dataclass(frozen=True, eq=False)
class ViewResult:
    """A view with everything that is needed to print, plot and write it."""

    fitted: Fitted
    along: list[str]
    view: View  # of all segments; for several, they are its first axis
    segments: Segments
    averaged: list[str]  # fields that are averaged over
    n_rows: int | None  # of the given table; None without one
    sample: pa.Table | None  # some or all rows of that table
    link: bool  # show predictions, not scores

    @property
    def value_name(self) -> str:
        """The name of the values that are shown."""
        from splinefm.store.description import prediction_names

        return prediction_names(self.fitted)[0] if self.link else "score"

    @property
    def views(self) -> list[Any]:
        """One view per segment."""
        n = len(self.segments.rows)
        return [self.view] if n == 1 else [self.view[i] for i in range(n)]

    def values(self, name: str) -> FloatArray | None:
        """The values of a numerical column in the sample."""
        from splinefm.inspect.values import numerical_values

        return None if self.sample is None else numerical_values(self.fitted, self.sample, name)

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain lists, dicts, strings and numbers."""
        from splinefm.store.description import predicted_thing

        described = self.describe(WRITTEN)
        return {
            "along": self.along,
            "prediction": predicted_thing(self.fitted),
            "averaged": self.averaged,
            "averaged_over_rows": self.fitted.encoder.n_rows if self.sample is None else self.sample.num_rows,
            "views": [{"segment": row, **values} for row, values in zip(self.segments.rows, described, strict=True)],
        }

    def describe(self, resolution: Resolution) -> list[dict[str, Any]]:
        """The values of every segment."""
        from splinefm.inspect import values
        from splinefm.inspect.curves import Bars, Curve

        if isinstance(self.view, Bars):
            return [values.bar_values(self.fitted, view, resolution.categories) for view in self.views]
        if isinstance(self.view, Curve):
            known = self.view.known_values
            n = resolution.curve if known is None else max(resolution.curve, PRINTED_VALUES)
            field = self.view.field
            points = values.value_grid(field, n, self.values(field.name), known)
            return [values.curve_values(view, points) for view in self.views]
        most = min(resolution.side, resolution.categories)
        x, y = (values.side_grid(self.fitted, name, resolution.side, most, self.values(name)) for name in self.along)
        return [values.surface_values(view, x, y) for view in self.views]


def make_view(
    fitted: Fitted,
    along: list[str],
    given: Sequence[str],
    each: str | None,
    data: str | None,
    sep: str | None,
    link: bool,
    verbose: bool,
) -> ViewResult:
    """The view of a model along some fields, for the given segments."""
    from splinefm.cli.segments import parse_segments, unknown_field
    from splinefm.encode.tables.open import open_data, require_columns
    from splinefm.inspect.rows import read_sample
    from splinefm.inspect.segment import segment, segments
    from splinefm.train.progress import make_progress

    sources = fitted.encoder.schema.sources
    for name in along:
        if name not in sources.fields:
            raise ValueError(f"--along {name}: {unknown_field(name, sources)}")
    chosen = parse_segments(fitted, along, given, each)
    if len(along) == 2 and len(chosen.rows) > 1:
        raise ValueError(
            f"two --along give one surface, but there are {len(chosen.rows)} segments; give each field one value"
        )
    named = {*along, *chosen.fields}
    averaged = [name for name, item in sources.fields.items() if not {name, item.column} & named]
    n_rows, sample = None, None
    if data is not None:
        table = open_data(data, fitted.encoder.schema.column_types(), sep)
        columns = list(dict.fromkeys(sources.fields[name].column for name in (*along, *averaged)))
        require_columns(table, columns)
        with make_progress(verbose) as progress:
            read = read_sample(table, columns, BACKGROUND_ROWS, progress)
        if not read.n_seen:
            raise ValueError(f"--data {data!r} has no rows; give at least one to average over")
        n_rows, sample = read.n_seen, read.table()
    background = sample if averaged else None
    view: View
    if len(chosen.rows) == 1:
        view = segment(fitted, chosen.rows[0], along, rest="mean", background=background)
    else:
        columns_of_segments = chosen.columns(fitted.encoder.schema)
        view = segments(fitted, columns_of_segments, along, rest="mean", background=background)
    return ViewResult(fitted, along, view, chosen, averaged, n_rows, sample, link)


def write_view(result: ViewResult, out: Path) -> None:
    """Write a plot or the values, as the ending of the file says."""
    from splinefm._files import check_destination, replacing
    from splinefm.plots.files import FORMATS, write_plot

    if out.suffix.lower() in FORMATS:
        return write_plot(draw(result), out)
    is_csv = out.suffix.lower() == ".csv"
    content = csv_bytes(result) if is_csv else json.dumps(result.to_dict(), allow_nan=False).encode() + b"\n"
    with replacing(check_destination(out)) as file:
        file.write(content)


def draw(result: ViewResult) -> Any:
    """Plot a view; returns an Axes."""
    from splinefm.inspect.curves import Curve, Surface
    from splinefm.plots.captions import caption
    from splinefm.plots.files import import_plots, make_axes

    plots, ax = import_plots(), make_axes((7.0, 4.5))
    names = result.segments.names
    several = names if len(names) > 1 else None
    if isinstance(result.view, Surface):
        plots.surface(result.view, ax, link=result.link, data=result.sample)
    elif isinstance(result.view, Curve):
        plots.curve(result.view, ax, data=result.values(result.along[0]), link=result.link, names=several)
    else:
        plots.bars(result.view, ax, link=result.link, names=several)
    if len(names) == 1 and names[0]:
        ax.set_title(caption(names[0], 80), fontsize="medium")
    return ax


def csv_bytes(result: ViewResult) -> bytes:
    """One line per value: segment, fields that vary, a token instead of a value, score and prediction.

    One of several classes has a score only.
    """
    import pyarrow as pa
    from pyarrow.csv import write_csv

    from splinefm.store.description import prediction_names

    fields = [*result.segments.fields, *result.along]
    wanted = list(dict.fromkeys(["score", prediction_names(result.fitted)[0]]))
    wanted = [*([] if len(result.along) == 2 else ["token"]), *wanted]
    results = [name if name not in fields else f"{name} of the model" for name in wanted]
    lines = [line for described in result.to_dict()["views"] for line in _lines(described)]
    columns = []
    for values in zip(*lines, strict=True):
        has_text = any(isinstance(value, str) for value in values)
        columns.append(pa.array(values, pa.string() if has_text else pa.float64()))
    content = pa.BufferOutputStream()
    write_csv(pa.Table.from_arrays(columns, names=[*fields, *results]), content)
    return bytes(content.getvalue())


def _lines(values: dict[str, Any]) -> Iterator[list[Any]]:
    from splinefm.inspect.values import value_text

    row = [value_text(value) if isinstance(value, list) else value for value in values["segment"].values()]
    results = [values[name] for name in ("scores", "predictions") if name in values]
    if "y" in values:
        for i, x in enumerate(values["x"]):
            for j, y in enumerate(values["y"]):
                yield [*row, x, y, *(grid[i][j] for grid in results)]
        return
    for x, *numbers in zip(_points(values), *results, strict=True):
        yield [*row, x, None, *numbers]
    for name, token in values["tokens"].items():
        yield [*row, None, name, *token.values()]


def _points(values: dict[str, Any]) -> list[Any]:
    """The points at which a curve or bars were evaluated."""
    return list(values["x"] if "x" in values else values["categories"])


def print_view(result: ViewResult, out: Path | None) -> None:
    """Print what is shown, and the values at a few points unless a file has them."""
    from splinefm.store.description import predicted_thing

    shown = predicted_thing(result.fitted) if result.link else "score"
    facts = [("shown", f"{shown} along {' and '.join(result.along)}")]
    if result.segments.fields:
        facts.append(("segment" if len(result.segments.rows) == 1 else "segments", "; ".join(result.segments.names)))
    if result.averaged:
        facts.append(("averaged", f"{', '.join(result.averaged)}: each separately, over {_rows_averaged(result)}"))
    if out is not None:
        facts.append(("file", str(out)))
    printed = result.describe(PRINTED) if out is None else []  # first, since the data may turn out to be invalid
    print_facts(facts)
    if printed:
        print()
        _print_surface(result, shown, printed[0]) if "y" in printed[0] else _print_lines(result, printed)


def _rows_averaged(result: ViewResult) -> str:
    if result.n_rows is None or result.sample is None:
        return f"the {result.fitted.encoder.n_rows:,} training rows"
    part = "" if result.n_rows == result.sample.num_rows else f"{result.sample.num_rows:,} of "
    return f"{part}{result.n_rows:,} rows of the data"


def _print_lines(result: ViewResult, printed: list[dict[str, Any]]) -> None:
    """Print a line per value or category, with a column per segment."""
    from splinefm.encode.fields.contract import TokenKind
    from splinefm.inspect.values import extremum_text, shown_numbers, source_field

    first = printed[0]
    names = _side_texts(result, 0, _points(first))
    columns = [shown_numbers(each, result.link) for each in printed]
    cells = [[number(value) for value in values] for values in zip(*columns, strict=True)]
    lines = [[name, *row] for name, row in zip(names, cells, strict=True)]
    buckets = source_field(result.fitted, result.along[0]).token_names(TokenKind.BUCKET)
    tokens = [name for name in first["tokens"] if name not in buckets]
    lines += [
        [f"({name})", *(number(shown_numbers(each["tokens"][name], result.link)) for each in printed)]
        for name in tokens
    ]
    heads = result.segments.names if len(printed) > 1 else [result.value_name]
    side = ">" if "x" in first else ""
    print_table([side + result.along[0], *(f">{head}" for head in heads)], lines)
    if first.get("categories_in_all", 0) > len(names):
        print_lines(f"The {len(names)} most frequent of {first['categories_in_all']:,} categories.")
    for head, each in zip(heads, printed, strict=True):
        found = [(which, each[which]) for which in ("maximum", "minimum") if each.get(which)]
        if found:
            ends = ", ".join(
                f"{which} {number(shown_numbers(end, result.link))} at {extremum_text(result.fitted, each, which)}"
                for which, end in found
            )
            print_lines(f"{head}: {ends}" if len(printed) > 1 else ends)


def _print_surface(result: ViewResult, shown: str, values: dict[str, Any]) -> None:
    from splinefm.inspect.values import shown_numbers

    rows = shown_numbers(values, result.link)
    sides = [_side_texts(result, side, values[name]) for side, name in enumerate("xy")]
    lines = [[x, *map(number, row)] for x, row in zip(sides[0], rows, strict=True)]
    first, second = result.along
    columns = [f">{y}" for y in sides[1]]
    print_table([first, *columns], lines, f"{shown}; columns: {second}")


def _side_texts(result: ViewResult, side: int, values: Sequence[Any]) -> list[str]:
    """Values of one of the fields that vary, as text."""
    from splinefm.inspect.axes import axis_format
    from splinefm.inspect.values import source_field, value_text

    item = source_field(result.fitted, result.along[side])
    return axis_format(item).texts(values) if item.is_numerical else [value_text(value) for value in values]
