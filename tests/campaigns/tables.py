"""Tables of every type and encoding: schema, fit, save, load, predict, scorer, ONNX and Shapley values agree.

Or there is one clear error, of a type that the library raises. Scores of the loaded model, of one row at a time and of
the scorer are the same to the bit; ONNX and the sums of Shapley values differ by 1e-5 of the largest score at most.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from _campaign import Campaign, Wrong, main


def run(campaign: Campaign) -> None:
    """Try `campaign.count` tables."""
    from _odd_tables import follow, make_case

    with tempfile.TemporaryDirectory(prefix="splinefm-tables-") as name:
        folder = Path(name)
        for number in range(campaign.count):
            if campaign.is_over:
                break
            rng = campaign.rng("tables", number)
            try:
                case = make_case(lambda choices: choices[rng.integers(len(choices))], folder)  # noqa: B023
            except ImportError:
                campaign.saw("tables", "no such form")
                continue
            try:
                campaign.saw(case.form, follow(case, folder))
            except Wrong as error:
                campaign.find(f"table {number} of seed {campaign.seed}, {case.form}, {_types(case)}: {error}")
            except Exception as error:
                campaign.find(f"table {number} of seed {campaign.seed}, {case.form}, {_types(case)}", error)


def _types(case: object) -> str:
    table = case.table  # type: ignore[attr-defined]
    return ", ".join(f"{field.name!r}: {field.type}" for field in table.schema) + f", {table.num_rows} rows"


if __name__ == "__main__":
    sys.exit(main("tables", run, short=60, long=5000))
