"""A view as a plot, as a file of values, or as a printed table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from splinefm._files import check_destination, check_writable, replacing
from splinefm._wording import number
from splinefm.cli.actions.predict import prediction_names
from splinefm.cli.actions.view import ViewRequest, ViewResult, make_view
from splinefm.cli.output import print_facts, print_lines, print_table
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.open import refuse_overwriting
from splinefm.inspect.axes import axis_format
from splinefm.inspect.curves import Curve, Surface
from splinefm.inspect.values import extremum_text, shown_numbers, source_field, text_of
from splinefm.plots.captions import caption
from splinefm.plots.files import FORMATS, import_plots, make_axes, plot_bytes


def view_file(request: ViewRequest, verbose: bool = False) -> ViewResult:
    """Make a view of a model, and write it to the requested file."""
    write = _check_out(request)
    seen = make_view(request, verbose)
    if request.out is not None:
        write(seen, request.out)
    return seen


def _check_out(request: ViewRequest) -> Any:
    """The function that writes the output; raise if the output cannot be written."""
    if request.out is None:
        return None
    out, suffix = request.out, request.out.suffix.lower()
    writers = {**dict.fromkeys(FORMATS, _write_plot), ".csv": _write_csv, ".json": _write_json}
    if suffix not in writers:
        raise ValueError(f"--out {str(out)!r} must end in {', '.join(writers)}")
    if out.is_dir():
        raise IsADirectoryError(f"--out {str(out)!r} is a folder; give the name of a file in it")
    check_writable(out)
    refuse_overwriting(out, request.model, *([request.data] if request.data is not None else []))
    if suffix in FORMATS:
        import_plots()  # before the work, not after it
    return writers[suffix]


def _write_plot(seen: ViewResult, out: Path) -> None:
    content = plot_bytes(draw(seen), out)
    with replacing(check_destination(out)) as file:
        file.write(content)


def draw(seen: ViewResult) -> Any:
    """Plot a view; returns an Axes."""
    plots, ax = import_plots(), make_axes((7.0, 4.5))
    names = seen.segments.names
    if isinstance(seen.view, Surface):
        plots.surface(seen.view, ax, link=seen.link, data=seen.sample)
    elif isinstance(seen.view, Curve):
        several = names if len(names) > 1 else None
        plots.curve(seen.view, ax, data=seen.values(seen.along[0]), link=seen.link, names=several)
    else:
        plots.bars(seen.view, ax, link=seen.link, names=names if len(names) > 1 else None)
    if len(names) == 1 and names[0]:
        ax.set_title(caption(names[0], 80), fontsize="medium")
    return ax


def _write_json(seen: ViewResult, out: Path) -> None:
    with replacing(check_destination(out)) as file:
        file.write(json.dumps(seen.to_dict(), allow_nan=False).encode() + b"\n")


def _write_csv(seen: ViewResult, out: Path) -> None:
    """Write one line per value: segment, fields that vary, a token instead of a value, score and prediction.

    One of several classes has a score only.
    """
    from pyarrow.csv import write_csv

    fields = [*seen.segments.fields, *seen.along]
    wanted = list(dict.fromkeys(["score", prediction_names(seen.fitted)[0]]))
    wanted = [*([] if len(seen.along) == 2 else ["token"]), *wanted]
    results = [name if name not in fields else f"{name} of the model" for name in wanted]
    lines = [line for row, values in _described(seen) for line in _lines(row, values)]
    columns = [_csv_column(column) for column in zip(*lines, strict=True)]
    with replacing(check_destination(out)) as file:
        write_csv(pa.Table.from_arrays(columns, names=[*fields, *results]), file)


def _described(seen: ViewResult) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    for described in seen.to_dict()["views"]:
        yield [_cell(value) for value in described["segment"].values()], described


def _cell(value: Any) -> Any:
    return text_of(value) if isinstance(value, list) else value


def _lines(row: list[Any], values: dict[str, Any]) -> Iterator[list[Any]]:
    results = [values[name] for name in ("scores", "predictions") if name in values]
    if "y" in values:
        for i, x in enumerate(values["x"]):
            for j, y in enumerate(values["y"]):
                yield [*row, x, y, *(result[i][j] for result in results)]
        return
    for x, *found in zip(_points(values), *results, strict=True):
        yield [*row, x, None, *found]
    for name, token in values["tokens"].items():
        yield [*row, None, name, *token.values()]


def _points(values: dict[str, Any]) -> list[Any]:
    """The points at which a curve or bars were evaluated."""
    return list(values["x"] if "x" in values else values["categories"])


def _csv_column(values: Sequence[Any]) -> pa.Array:
    texts = any(isinstance(value, str) for value in values)
    return pa.array(values, pa.string() if texts else pa.float64())


# Printed tables


def print_view(seen: ViewResult, out: Path | None) -> None:
    """Print what is shown, and the values at a few points unless a file has them."""
    facts = [("shown", f"{seen.shown} along {' and '.join(seen.along)}")]
    if seen.segments.fields:
        facts.append(("segment" if len(seen.segments.rows) == 1 else "segments", "; ".join(seen.segments.names)))
    if seen.averaged:
        facts.append(("averaged", f"{', '.join(seen.averaged)}: each separately, over {_rows_averaged(seen)}"))
    if out is not None:
        facts.append(("file", str(out)))
    printed = seen.printed() if out is None else []  # first, since the data may turn out to be invalid
    print_facts(facts)
    if printed:
        print()
        _print_surface(seen, printed[0]) if "y" in printed[0] else _print_lines(seen, printed)


def _rows_averaged(seen: ViewResult) -> str:
    if seen.rows is None or seen.sample is None:
        return f"the {seen.fitted.encoder.n_rows:,} training rows"
    part = "" if seen.rows == seen.sample.num_rows else f"{seen.sample.num_rows:,} of "
    return f"{part}{seen.rows:,} rows of the data"


def _print_lines(seen: ViewResult, printed: list[dict[str, Any]]) -> None:
    """Print a line per value or category, with a column per segment."""
    first = printed[0]
    names = _side_texts(seen, 0, _points(first))
    columns = [shown_numbers(each, seen.link) for each in printed]
    cells = [[number(value) for value in values] for values in zip(*columns, strict=True)]
    lines = [[name, *row] for name, row in zip(names, cells, strict=True)]
    tokens = [name for name in first["tokens"] if not name.startswith("bucket ")]
    lines += [
        [f"({name})", *(number(shown_numbers(each["tokens"][name], seen.link)) for each in printed)] for name in tokens
    ]
    heads = seen.segments.names if len(printed) > 1 else [_head(seen)]
    side = ">" if "x" in first else ""
    print_table([side + seen.along[0], *(f">{head}" for head in heads)], lines)
    if first.get("categories_in_all", 0) > len(names):
        print_lines(f"The {len(names)} most frequent of {first['categories_in_all']:,} categories.")
    for head, each in zip(heads, printed, strict=True):
        found = [(which, each[which]) for which in ("maximum", "minimum") if each.get(which)]
        if found:
            ends = ", ".join(
                f"{which} {number(shown_numbers(end, seen.link))} at {extremum_text(seen.fitted, each, which)}"
                for which, end in found
            )
            print_lines(f"{head}: {ends}" if len(printed) > 1 else ends)


def _head(seen: ViewResult) -> str:
    """The name of the column of values."""
    return prediction_names(seen.fitted)[0] if seen.link else "score"


def _print_surface(seen: ViewResult, values: dict[str, Any]) -> None:
    rows = shown_numbers(values, seen.link)
    sides = [_side_texts(seen, side, values[name]) for side, name in enumerate("xy")]
    lines = [[x, *map(number, row)] for x, row in zip(sides[0], rows, strict=True)]
    first, second = seen.along
    columns = [f">{y}" for y in sides[1]]
    print_table([first, *columns], lines, f"{seen.shown}; columns: {second}")


def _side_texts(seen: ViewResult, side: int, values: Sequence[Any]) -> list[str]:
    """Values of one of the fields that vary, as text."""
    item = source_field(seen.fitted, seen.along[side])
    return axis_format(item).texts(values) if isinstance(item, Numerical) else [text_of(value) for value in values]
