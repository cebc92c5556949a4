"""`splinefm view`: show a model along one or two fields."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splinefm.cli import options as opt
from splinefm.cli.output import print_json

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
    from splinefm.cli.actions.view import ViewRequest
    from splinefm.cli.actions.view_output import print_view, view_file

    if len(along) > 2 or len(set(along)) < len(along):
        raise typer.BadParameter("give one field, or two different ones", param_hint="--along")
    for text in segment or []:
        if "=" not in text:
            raise typer.BadParameter(f"{text!r} is not of the form FIELD=VALUE", param_hint="--segment")
    seen = view_file(ViewRequest(model, along, segment or [], each, data, link, out, sep, class_name), not quiet)
    for remark in seen.segments.remarks:
        opt.remarks(quiet)(remark)
    if as_json:
        return print_json({**seen.to_dict(), **({} if out is None else {"file": str(out)})})
    print_view(seen, out)
