"""One row, one score: random schemas, models and rows through every path that scores.

A row has the same score, to the bit, in a table of Arrow, lists, pandas, polars, Parquet and CSV (where its text
survives), in a saved model, in a scorer, in the C library, and over HTTP as rows, columns and Arrow. ONNX, torch,
libffm and the engine of the explorer page agree to `TOLERANCE` of the largest score, at least of 1.

    python tests/campaigns/differential.py --seconds 1800 --count 100000
    python tests/campaigns/differential.py --seed 123 --count 1    # case 123 alone

Case i of seed s is case 0 of seed s + i, so that a finding can be repeated alone. `--only` chooses paths.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _campaign import Campaign, Wrong, main

TOLERANCE = 1e-5
Route = Callable[[Any, Path], Any]


def run(campaign: Campaign) -> None:
    """Try `campaign.count` cases."""
    from _paths import CLOSE, SAME_BITS, Page

    with tempfile.TemporaryDirectory(prefix="splinefm-differential-") as name:
        folder = Path(name)
        page = Page(folder)
        paths = {**SAME_BITS, **CLOSE, "page": page.score}
        worst: dict[str, float] = {}
        try:
            for number in range(campaign.count):
                if campaign.is_over:
                    break
                _try(campaign, campaign.seed + number, paths, folder, worst)
        finally:
            page.close()
    campaign.figures["worst"] = {name: float(f"{value:.2g}") for name, value in worst.items()}


def _try(campaign: Campaign, seed: int, paths: dict[str, Route], folder: Path, worst: dict[str, float]) -> None:
    """Try one case."""
    from _paths import NOT_INFINITE
    from _random_cases import make_case

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows that differ from the training rows
        try:
            case = make_case(np.random.default_rng([seed, *b"differential"]))
        except Exception as error:
            campaign.find(f"--seed {seed} --count 1: no model", error)
            return
        campaign.saw("cases", type(case.fitted.model).__name__)
        chosen = {name: path for name, path in paths.items() if campaign.wants(name)}
        if case.has_infinity:
            chosen = {name: path for name, path in chosen.items() if name not in NOT_INFINITE}
        try:
            expected = case.fitted.scores(case.table, watch=False, threads=1)
        except Exception as error:
            _refuse(campaign, seed, case, chosen, folder, error)
            return
        for name, path in chosen.items():
            _follow(campaign, seed, case, name, path, folder, expected, worst)


def _follow(
    campaign: Campaign,
    seed: int,
    case: Any,
    name: str,
    path: Route,
    folder: Path,
    expected: Any,
    worst: dict[str, float],
) -> None:
    """Compare the scores of one path with a table's."""
    from _paths import SAME_BITS, NotHere

    try:
        at, scores = path(case, folder)
        off = _compare(scores, expected[at], 0.0 if name in SAME_BITS else TOLERANCE, case, at)
    except NotHere as reason:
        campaign.saw(name, str(reason) if str(reason).startswith("known") else "no such model or rows")
    except Wrong as error:
        campaign.find(f"--seed {seed} --count 1, {name}: {error}; {_about(case)}")
    except Exception as error:
        campaign.find(f"--seed {seed} --count 1, {name}, {_about(case)}", error)
    else:
        campaign.saw(name, "agree")
        if name not in SAME_BITS:
            worst[name] = max(off, worst.get(name, 0.0))


def _refuse(campaign: Campaign, seed: int, case: Any, paths: dict[str, Route], folder: Path, error: Exception) -> None:
    """Check that a table is refused for a reason, and by every path."""
    from _paths import SAME_BITS, NotHere

    if not case.has_infinity or "inf" not in str(error):
        campaign.find(f"--seed {seed} --count 1, a table, {_about(case)}", error)
        return
    for name in paths.keys() & SAME_BITS.keys():
        try:
            paths[name](case, folder)
        except NotHere:
            continue
        except Exception as other:
            if "inf" in str(other):
                campaign.saw(name, "refuses an infinite number")
            else:
                campaign.find(f"--seed {seed} --count 1, {name}, {_about(case)}", other)
        else:
            campaign.find(f"--seed {seed} --count 1, {name} takes an infinite number; {_about(case)}")


def _compare(found: Any, expected: Any, tolerance: float, case: Any, at: Any) -> float:
    """Raise a finding unless scores agree; returns by how much they differ, relative to the largest."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if found.shape != expected.shape:
        raise Wrong(f"scores of shape {found.shape} instead of {expected.shape}")
    if not len(found):
        return 0.0
    off = np.abs(found - expected).reshape(len(found), -1).max(axis=1) / max(1.0, float(np.abs(expected).max()))
    row = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
    if not off[row] <= tolerance:
        text = f"{int((~(off <= tolerance)).sum())} rows differ, by {off[row]:.2g} of the largest score; "
        raise Wrong(f"{text}row {at[row]}: {found[row]} instead of {expected[row]}: {case.rows[at[row]]!r:.600}")
    return float(off[row])


def _about(case: Any) -> str:
    columns = ", ".join(f"{column.name!r}: {column.type}" for column in case.columns)
    return f"{case.fitted.model!r:.100} of {str(case.schema)!r:.800} on {{{columns}}}"


if __name__ == "__main__":
    sys.exit(main("differential", run, short=40, long=10_000))
