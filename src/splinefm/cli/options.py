"""Arguments and options that several commands share, and helpers to declare others."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

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


def share_or_file(text: str | None) -> float | str | None:
    """The value of --validation: a share of rows, or the path of a file."""
    try:
        share = float(text or "")
    except ValueError:
        return text
    if not 0.0 <= share < 1.0:
        raise typer.BadParameter(
            f"must be a share of at least 0 and below 1, or a file; got {text}", param_hint="--validation"
        )
    return share


COUNT: dict[str, Any] = {"metavar": "N", "min": 1}
AMOUNT: dict[str, Any] = {"metavar": "NUMBER", "min": 0.0}


def option(text: str, *names: str, default: Any = None, panel: str | None = None, **settings: Any) -> Any:
    """A field of a dataclass of options, see `with_option_groups`."""
    shown = typer.Option(*names, help=text, rich_help_panel=panel, show_default=default is not None, **settings)
    return dataclasses.field(default=default, metadata={"option": shown})


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Declare the fields of each dataclass that a command takes as options of the command line.

    Commands that share options, such as `fit` and `tune`, share a dataclass of them.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group: Any = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = group
        hints = get_type_hints(group, include_extras=True)
        for field in fields(group):
            hint: Any = hints[field.name]
            if "option" in field.metadata:
                hint = Annotated[hint, field.metadata["option"]]
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(field.name, kind, default=default, annotation=hint))

    @functools.wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


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
OffsetColumn = Annotated[
    str | None, column_option("Column that is added to the score, here and in predictions: log-odds, logarithms, ...")
]
Exposure = Annotated[
    str | None,
    column_option("Column of exposures, such as years, that predictions of poisson, gamma or tweedie multiply."),
]
ClassName = Annotated[str | None, class_option("Class whose score is shown, if the model has more than two.")]
Ignore = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Column to leave out, such as an identifier. Repeat for several."),
]
