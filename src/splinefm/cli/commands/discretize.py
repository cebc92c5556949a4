"""`splinefm discretize`: replace curves by fine bins."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splinefm.cli import options as opt
from splinefm.cli.output import print_facts, print_json, print_table

if TYPE_CHECKING:
    from splinefm.export.discretize import DiscretizationReport


class SpacingName(StrEnum):
    """How bin edges are spaced."""

    U = "u"
    UNIFORM = "uniform"
    GEOMETRIC = "geometric"
    QUANTILE = "quantile"


Out = Annotated[Path, opt.out_option("Model file to write, such as binned.sfm.")]
Bins = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=N",
        help="Number of bins of a field. Repeat for several fields; N alone applies to all numerical fields.",
    ),
]
Spacing = Annotated[
    SpacingName,
    typer.Option(
        help="Spacing of the bins: equal widths after the transform (u) or in the unit of the column (uniform), "
        "widths that grow by a factor (geometric), or equal numbers of rows (quantile)."
    ),
]
MaxError = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        min=0.0,
        help="Instead of --bins: use the fewest bins that keep the score of any row within this error.",
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="FIELD", help="With --max-error: field to bin. Default: all numerical fields."),
]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="DATA", help="Table whose range and quantiles define the bins, and on which the error is measured."
    ),
]
ClassName = Annotated[
    str | None, opt.class_option("Class to write, if the model has more than two; its file has the score of this one.")
]


def discretize(
    model: opt.ModelFile,
    out: Out,
    bins: Bins = None,
    max_error: MaxError = None,
    field: Fields = None,
    spacing: Spacing = SpacingName.U,
    data: Data = None,
    class_name: ClassName = None,
    sep: opt.Sep = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Replace curves by fine bins, for systems that need bins, and report how much scores change.

    Example: splinefm discretize model.sfm --bins recency=200 --spacing geometric --out binned.sfm
    """
    from splinefm.cli.actions.discretize import DiscretizeRequest, discretize_file

    if (max_error is None) == (not bins):
        raise typer.BadParameter("give either --bins or --max-error", param_hint="--bins")
    if field and max_error is None:
        raise typer.BadParameter("needs --max-error; with --bins write FIELD=N", param_hint="--field")
    request = DiscretizeRequest(model, out, bins or [], field or [], spacing.value, max_error, data, sep, class_name)
    report = discretize_file(request, not quiet)
    return print_json(report_facts(report, out)) if as_json else print_report(report, out)


def report_facts(report: DiscretizationReport, out: Path) -> dict[str, Any]:
    """The report for `--json`."""
    measured = {"n_rows": report.n_rows, "max_error": report.max_error, "mean_error": report.mean_error}
    return {
        "model": str(out),
        "fields": [item._asdict() for item in report.fields],
        "bound": report.bound,
        "certified": report.certified,
        **(measured if report.n_rows else {}),
    }


def print_report(report: DiscretizationReport, out: Path) -> None:
    """Print the report."""
    rows = [[item.name, f"{item.bins:,}", f"{item.bound:.2e}"] for item in report.fields]
    print_table(["field", ">bins", ">changes a score by at most"], rows)
    facts = [("all fields", f"at most {report.bound:.2e}" + ("" if report.certified else ", on a grid of points"))]
    if report.n_rows:
        measured = f"at most {report.max_error:.2e}, {report.mean_error:.2e} on average"
        facts.append(("measured", f"{measured}, on {report.n_rows:,} rows"))
    print_facts([*facts, ("model", str(out))])
