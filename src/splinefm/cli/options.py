"""Arguments and options that several commands share, and helpers to declare others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from splinefm.cli.output import say


def column_option(text: str, **settings: Any) -> Any:
    """An option that takes the name of a column."""
    return typer.Option(metavar="COLUMN", help=text, **settings)


def count_option(text: str, panel: str | None = None, least: int = 1) -> Any:
    """An option that takes an integer."""
    return typer.Option(metavar="N", min=least, help=text, rich_help_panel=panel)


def amount_option(text: str, panel: str, *names: str) -> Any:
    """An option that takes a number of at least 0."""
    return typer.Option(*names, metavar="NUMBER", min=0.0, help=text, rich_help_panel=panel)


def class_option(text: str) -> Any:
    """The option that takes the label of a class."""
    return typer.Option("--class", metavar="LABEL", help=text)


def out_option(text: str, metavar: str = "FILE") -> Any:
    """A required option that takes the path to write to."""
    return typer.Option(metavar=metavar, help=text, show_default=False)


def remarks(quiet: bool) -> Callable[[str], None]:
    """The function that prints remarks; with `--quiet` it prints nothing."""
    return (lambda text: None) if quiet else say


def _parse_separator(text: str | None) -> str | None:
    if text is None:
        return None
    from splinefm.encode.tables.open import check_separator

    sep = "\t" if text == r"\t" else text
    try:
        check_separator(sep)
    except ValueError:
        message = f"must be one character, such as ';', or '\\t' for a tab; got {text!r}"
        raise typer.BadParameter(message, param_hint="--sep") from None
    return sep


FILES = "CSV, TSV or Parquet file, a folder of such files, or a pattern such as 'logs/*.parquet'"

Data = Annotated[str, typer.Argument(metavar="DATA", help=f"A {FILES}.", show_default=False)]
DataOrStandard = Annotated[
    str, typer.Argument(metavar="DATA", help=f"A {FILES}; use - to read CSV from standard input.", show_default=False)
]
Sep = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        callback=_parse_separator,
        help="Column separator of CSV files, such as ';', or '\\t' for a tab. Detected by default.",
    ),
]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file written by 'splinefm fit'.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not print progress or remarks.")]
Threads = Annotated[int | None, count_option("Number of threads. All cores by default. Does not change the results.")]
Weight = Annotated[str | None, column_option("Column of sample weights.")]
ClassName = Annotated[str | None, class_option("Class whose score is shown, if the model has more than two.")]
Ignore = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Column to leave out, such as an identifier. Repeat for several."),
]
