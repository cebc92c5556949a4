"""`splinefm compare`: how far the scores of two models differ, in any segment and in given rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from splinefm._wording import number
from splinefm.cli import options as opt
from splinefm.cli.output import print_facts, print_json

if TYPE_CHECKING:
    from splinefm.update.compare import Comparison

Old = Annotated[Path, typer.Argument(metavar="OLD", help="The model file to compare with.", show_default=False)]
New = Annotated[Path, typer.Argument(metavar="NEW", help="The model file that is to replace it.", show_default=False)]
Rows = Annotated[
    str | None,
    typer.Argument(metavar="[DATA]", help=f"Rows to compare as well: a {opt.FILES}.", show_default=False),
]
ClassName = Annotated[str | None, opt.class_option("Compare the score of one of more than two classes.")]


def compare(
    old: Old,
    new: New,
    data: Rows = None,
    class_name: ClassName = None,
    sep: opt.Sep = None,
    as_json: opt.Json = False,
) -> None:
    """Compare two models: the largest change of the score in any segment, proven, and in given rows.

    A segment is any combination of values, also one that no row has, with missing and unseen values.

    Example: splinefm compare old.sfm new.sfm rows.csv
    """
    from splinefm.encode.tables.open import open_table
    from splinefm.store.description import one_class
    from splinefm.store.model_file import load
    from splinefm.update.compare import compare as compare_models

    models = [one_class(load(path), class_name, "compare") for path in (old, new)]
    table = None if data is None else open_table(data, sep=sep)
    found = compare_models(models[0], models[1], table)
    return print_json(found.to_dict()) if as_json else print_comparison(found)


def print_comparison(found: Comparison) -> None:
    """Print the bound, the segment that comes closest, and the rows."""
    from splinefm.update.compare import in_words

    facts = [("any segment", f"the score changes by at most {number(found.bound, '.4g')}")]
    for name, largest in (("largest rise", found.rise), ("largest fall", found.fall)):
        at = f" at {in_words(largest.segment)}" if largest.segment else ""
        facts.append((name, f"at most {number(largest.bound, '.4g')}; found: {largest.change:+.4g}{at}"))
    if found.rows is not None:
        rows = found.rows
        about = f"{rows.rows:,}; mean |change| {number(rows.mean_absolute, '.4g')}"
        facts.append(("rows", f"{about}; largest {rows.change:+.4g}, in row {rows.row:,}: {in_words(rows.values)}"))
    print_facts(facts)
