"""`splinefm discretize`: a model file with bins in place of curves, for systems that bin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from splinefm.cli.destinations import save_model
from splinefm.cli.output import print_facts, print_table
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.sources import refuse_overwriting
from splinefm.export.discretize import DiscretizationReport, discretization_error, discretize
from splinefm.learn.files.container import check_writable
from splinefm.learn.files.modelfile import load
from splinefm.learn.progress import make_progress


class DiscretizeRequest(NamedTuple):
    """What the command line asks for; `bins` are of the form FIELD=N, or N for all numerical fields."""

    model: Path
    out: Path
    bins: Sequence[str] = ()
    fields: Sequence[str] = ()
    spacing: Literal["u", "uniform", "geometric", "quantile"] = "u"
    max_error: float | None = None
    data: str | None = None
    sep: str | None = None


def discretize_file(request: DiscretizeRequest, verbose: bool = False) -> DiscretizationReport:
    """Write the model with bins; how far its scores can move, and did on the data."""
    refuse_overwriting(request.out, request.model, request.data or request.model)
    check_writable(request.out)
    fitted = load(request.model)
    types = fitted.encoder.schema.column_types()
    data = None if request.data is None else open_table(request.data, types=types, sep=request.sep)
    with make_progress(verbose) as progress:
        progress.say("choosing bins")
        binned = discretize(fitted, _fields(request), spacing=request.spacing, max_error=request.max_error, data=data)
        progress.say("measuring how far scores move")
        report = discretization_error(fitted, binned, data)
    save_model(binned, request.out)
    return report


def _fields(request: DiscretizeRequest) -> Any:
    """The second argument of `discretize`."""
    if request.max_error is not None:
        return list(request.fields) or None
    counts = dict(map(_count, request.bins))
    if None in counts and len(counts) > 1:
        raise ValueError("--bins: give one number for all fields, or FIELD=N for each, not both")
    return counts.get(None, counts)


def _count(text: str) -> tuple[str | None, int]:
    """The field, None for all, and its number of bins."""
    name, equals, number = text.rpartition("=")
    try:
        return (name if equals else None), int(number)
    except ValueError:
        raise ValueError(f"--bins {text!r} is not of the form FIELD=N, such as price=200, or a number") from None


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
    """The report for people."""
    rows = [[item.name, f"{item.bins:,}", f"{item.bound:.2e}"] for item in report.fields]
    print_table(["field", ">bins", ">moves a score by at most"], rows)
    facts = [("all fields", f"at most {report.bound:.2e}" + ("" if report.certified else ", on a grid of points"))]
    if report.n_rows:
        measured = f"at most {report.max_error:.2e}, {report.mean_error:.2e} on average"
        facts.append(("measured", f"{measured}, on {report.n_rows:,} rows"))
    print_facts([*facts, ("model", str(out))])
