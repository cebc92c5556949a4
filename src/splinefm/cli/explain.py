"""`splinefm explain`: explain a model on a table, as facts and as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from splinefm._wording import in_bytes, number
from splinefm.cli import options as opt
from splinefm.cli.output import print_facts, print_json

Target = Annotated[str | None, opt.column_option("Column with the true values. Adds metrics and calibration.")]
Weight = Annotated[str | None, opt.column_option("Column of sample weights for metrics and calibration.")]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Folder of the page, index.html. Created if it does not exist.", show_default=False
    ),
]
Sample = Annotated[
    int,
    typer.Option(
        "--sample", metavar="N", min=1, help="Maximum number of rows to explain; larger data are sampled at random."
    ),
]


def explain(
    model: opt.ModelFile,
    data: opt.DataOrStandard,
    out: Out = None,
    target: Target = None,
    weight: Weight = None,
    sample: Sample = 10_000,
    class_name: opt.ClassName = None,
    sep: opt.Sep = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Explain a model on a table, as one page that opens in any browser without a network.

    The page shows what the model predicts and how well, which fields and pairs matter, curves, surfaces, calibration,
    and why individual rows get their predictions. With --json, --out is optional. Of a model of more than two classes,
    --class chooses the one whose score is explained.
    """
    from splinefm.explore.report import explain_file

    if out is None and not as_json:
        raise typer.BadParameter("give the folder of the page, such as --out report", param_hint="--out")
    if weight is not None and target is None:
        raise typer.BadParameter("weights are used for metrics only; add --target COLUMN", param_hint="--weight")
    facts = explain_file(
        model,
        data,
        out,
        target=target,
        weight=weight,
        sample=sample,
        class_name=class_name,
        sep=sep,
        threads=threads,
        verbose=not quiet,
    )
    return print_json(facts) if as_json else print_explanation(facts)


def print_explanation(facts: dict[str, Any]) -> None:
    """Print the most important facts, and the path of the page."""
    model, data, importance = facts["model"], facts["data"], facts["importance"]
    lines = [
        ("model", f"{model['kind']}, {model['prediction']}"),
        ("data", f"{data['rows']:,} rows, {data['sample_rows']:,} of them explained"),
    ]
    if facts["metrics"]:
        shown = [f"{name} {number(value)}" for name, value in facts["metrics"].items() if value is not None]
        lines.append(("metrics", ", ".join(shown[:4])))
    if importance is not None:
        lines.append(("fields", ", ".join(field["name"] for field in importance["fields"][:5])))
        pairs = [" × ".join(pair["fields"]) for pair in importance["pairs"][:3]]
        lines += [("pairs", ", ".join(pairs))] if pairs else []
    lines.append(("page", f"{facts['page']}, {in_bytes(facts['page_bytes'])}; open it in a browser"))
    lines.append(("time", f"{facts['seconds']:.1f} seconds"))
    print_facts(lines)
