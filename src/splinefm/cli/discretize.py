"""`splinefm discretize`: replace curves by fine bins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from splinefm.cli import options as opt
from splinefm.cli.failures import save_model
from splinefm.cli.output import print_facts, print_json, print_table

if TYPE_CHECKING:
    from splinefm.export.discretize import DiscretizationReport

Out = Annotated[Path, opt.out_option("Model file to write, such as binned.sfm.")]
Bins = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=N",
        help="Number of bins of a field. Repeat for several fields; N alone applies to all numerical fields.",
    ),
]
Spacing = Annotated[
    Literal["u", "uniform", "geometric", "quantile"],
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
    spacing: Spacing = "u",
    data: Data = None,
    class_name: ClassName = None,
    sep: opt.Sep = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Replace curves by fine bins, for systems that need bins, and report how much scores change.

    Example: splinefm discretize model.sfm --bins recency=200 --spacing geometric --out binned.sfm
    """
    from splinefm._files import check_writable
    from splinefm.encode.tables.open import open_table, refuse_overwriting
    from splinefm.export.discretize import discretization_error
    from splinefm.export.discretize import discretize as make_bins
    from splinefm.store.description import one_class
    from splinefm.store.model_file import load
    from splinefm.train.progress import make_progress

    if (max_error is None) == (not bins):
        raise typer.BadParameter("give either --bins or --max-error", param_hint="--bins")
    if field and max_error is None:
        raise typer.BadParameter("needs --max-error; with --bins write FIELD=N", param_hint="--field")
    refuse_overwriting(out, model, data or model)
    check_writable(out)
    fitted = one_class(load(model), class_name, "discretize")
    rows = None if data is None else open_table(data, types=fitted.encoder.schema.column_types(), sep=sep)
    counts = _parse_bins(bins or []) if max_error is None else field or None
    with make_progress(not quiet) as progress:
        progress.say("choosing bins")
        binned = make_bins(fitted, counts, spacing=spacing, max_error=max_error, data=rows)
        progress.say("measuring how much scores change")
        report = discretization_error(fitted, binned, rows)
    save_model(binned, out)
    return print_json(report_facts(report, out)) if as_json else print_report(report, out)


def _parse_bins(texts: list[str]) -> Any:
    """The values of --bins: N for all fields, or a dict of FIELD=N."""
    counts = dict(map(_parse_count, texts))
    if None in counts and len(counts) > 1:
        raise ValueError("--bins: give either one number for all fields or FIELD=N for each")
    return counts.get(None, counts)


def _parse_count(text: str) -> tuple[str | None, int]:
    """The field, or None for all, and its number of bins."""
    name, equals, number = text.rpartition("=")
    try:
        return (name if equals else None), int(number)
    except ValueError:
        raise ValueError(f"--bins must be a number or of the form FIELD=N, such as price=200; got {text!r}") from None


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
