"""`splinefm ab report`: what a server's log says about its arms."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from splinefm._wording import number
from splinefm.cli import options as opt
from splinefm.cli.output import print_json, print_table

LogFolder = Annotated[
    str, typer.Argument(metavar="LOG", help="The folder that 'splinefm serve --log' writes.", show_default=False)
]
NoOutcome = Annotated[
    Literal["zero", "skip"],
    typer.Option(help="What a row without feedback means: nothing happened (zero), or not known yet (skip)."),
]
Confidence = Annotated[float, typer.Option(metavar="SHARE", help="Share of intervals that hold the true value.")]

ab = typer.Typer(help="Compare the arms of a server.", no_args_is_help=True)


@ab.callback()
def _about() -> None:
    """Compare the arms of a server."""


Start = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="When the test began, such as 2026-11-19T08:00 (UTC). Outcomes before that make the comparison sharper.",
    ),
]


Out = Annotated[
    Path | None, typer.Option(metavar="PAGE", help="Also write an HTML page with plots.", show_default=False)
]


@ab.command()
def report(
    log: LogFolder,
    no_outcome: NoOutcome = "zero",
    confidence: Confidence = 0.95,
    start: Start = None,
    out: Out = None,
    as_json: opt.Json = False,
) -> None:
    """Print predicted / measured - 1 of each arm, by hour and in all, and the differences between the arms.

    Example: splinefm ab report log/ --out report.html
    """
    from splinefm._files import check_destination, check_writable, replacing
    from splinefm.serve.ab import ab_report, as_rows
    from splinefm.serve.ab_page import ab_page

    began = None if start is None else _seconds(start)
    if out is not None:
        check_writable(out)
    found = ab_report(log, no_outcome=no_outcome, confidence=confidence, start=began)
    if out is not None:
        since = "" if start is None else f", since {start}"
        content = ab_page(found, f"{log}, {confidence:.0%} confidence, rows without an outcome: {no_outcome}{since}")
        with replacing(check_destination(out)) as file:
            file.write(content.encode())
    rows = as_rows(found.figures)
    if as_json:
        differences = [asdict(item) for item in found.differences]
        history = [asdict(item) for item in found.history]
        print_json(
            {"arms": rows, "differences": differences, "history": history, "unmatched_outcomes": found.unmatched}
        )
        return
    header = ["arm", "hour (UTC)", ">rows", ">outcomes", ">predicted", ">measured", ">predicted / measured - 1"]
    print_table(header, [_cells(row) for row in rows])
    for item in found.differences:
        value = item.difference
        text = f"{item.arm} - {item.base}: {value.value:+.4g} ({value.low:+.4g} to {value.high:+.4g}) per row"
        explained = f"; {item.reduction:.0%} of the variance explained by outcomes before" if item.reduction else ""
        print(f"{text}, {item.keys:,} keys, valid whenever you look{explained}")
    if found.unmatched:
        print(f"{found.unmatched:,} outcomes are of no prediction in this log")
    if out is not None:
        print(f"page: {out}; open it in a browser")


def _seconds(text: str) -> float:
    """Seconds since 1970 of a time, which is in UTC unless it names another zone."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _cells(row: dict[str, Any]) -> list[str]:
    name = f"{row['arm']} (shadow)" if row["shadow"] else row["arm"]
    ratio = f"{row['ratio']:+.2%}"
    if math.isfinite(row["ratio_low"]):
        ratio += f" ({row['ratio_low']:+.2%} to {row['ratio_high']:+.2%})"
    sizes = [f"{row['rows']:,}", f"{row['outcomes']:,.6g}"]
    means = [number(row[which], ".4g") for which in ("predicted", "measured")]
    return [name, row["hour"], *sizes, *means, ratio if math.isfinite(row["ratio"]) else "no outcomes"]
