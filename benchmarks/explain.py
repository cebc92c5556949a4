"""How long do exact Shapley values take, compared with plain prediction of the same rows?

There are 100,000 rows with 26 categorical columns (100,000 distinct values in all, Zipf) and 13 numerical ones (cubic
splines on 20 segments): 39 fields. Both contenders start from the same slots and use the same threads. Parameters are
random, which makes no difference to the time. The background of 10,000 rows is prepared once and timed separately: the
time per explained row does not depend on it. The run checks that the values of a row sum to its score minus the mean.
Contenders alternate, and the best round counts.

`predict_vs_shapley` is the time of prediction / the time of Shapley values, for the slower of the two rated models; the
goal is at least 0.2.

    python benchmarks/explain.py [--quick] [--json] [--save]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from _shared import criteo_columns, criteo_schema, finish, make_parser, random_model, say, seconds

import splinefm as sf
from splinefm.encode.slots import Slots
from splinefm.model.family import AnyModel

BACKGROUND = 10_000
RATED: dict[str, AnyModel] = {"fwfm_k16": sf.FwFM(16), "ffm_k8": sf.FFM(8)}
FURTHER: dict[str, AnyModel] = {
    "fm_k16": sf.FM(16),
    "low_rank_fwfm_k16": sf.LowRankFwFM(16, 3),
    "fmfm_k8": sf.FmFM(8),
    "fwfm_k16_third8": sf.FwFM(16, third=8),
}


def make_rows(rows: int) -> tuple[sf.Encoder, Slots]:
    """An encoder, and the encoded rows that it was fitted to."""
    table = criteo_columns(rows, text=False)
    encoder = sf.fit_encoder(criteo_schema(table), table)
    return encoder, encoder.encode(table)


def check(fitted: sf.Fitted, slots: Slots, background: sf.Background) -> None:
    """Check that the values of a row sum to its score minus the mean of the background."""
    found, scores = sf.shapley_values(fitted, slots, background), fitted.scores(slots)
    gap = float(np.abs(found.scores - scores).max())
    if gap > 1e-4 * max(1.0, float(np.abs(scores).max())):
        raise RuntimeError(f"{fitted.model}: the Shapley values miss the score by {gap}")


def measure_model(fitted: sf.Fitted, slots: Slots, rounds: int) -> dict[str, float]:
    """Best times of every contender, by name and threads."""
    rows = slots[:BACKGROUND]
    background = sf.Background.of(fitted, rows)
    check(fitted, slots[:1000], background)
    best: dict[str, float] = {}
    for _ in range(rounds):
        for threads in (2, 1):
            jobs: dict[str, Callable[[], object]] = {
                "predict": lambda threads=threads: fitted.scores(slots, threads=threads),  # type: ignore[misc]
                "shapley": lambda threads=threads: sf.shapley_values(fitted, slots, background, threads=threads),  # type: ignore[misc]
                "background": lambda threads=threads: sf.Background.of(fitted, rows, threads=threads),  # type: ignore[misc]
            }
            for name, job in jobs.items():
                key = f"{name}_{threads}_threads_s"
                best[key] = min(best.get(key, np.inf), seconds(job))
    return best


def measure(rows: int, models: dict[str, AnyModel], rounds: int) -> dict[str, Any]:
    """All models, and the ratios."""
    encoder, slots = make_rows(rows)
    figures: dict[str, dict[str, float]] = {}
    ratios: dict[str, float] = {}
    for name, model in models.items():
        say(name)
        best = figures[name] = measure_model(random_model(encoder, model), slots, rounds)
        ratios[f"{name}_predict_vs_shapley"] = best["predict_2_threads_s"] / best["shapley_2_threads_s"]
        ratios[f"{name}_predict_vs_shapley_1_thread"] = best["predict_1_threads_s"] / best["shapley_1_threads_s"]
    ratios["predict_vs_shapley"] = min(ratios[f"{name}_predict_vs_shapley"] for name in RATED)
    return {"figures": figures, "ratios": ratios}


def main() -> None:
    """Measure, print and save."""
    options = make_parser(__doc__, "the two rated models, three rounds").parse_args()
    result = measure(100_000, RATED if options.quick else RATED | FURTHER, 3 if options.quick else 7)
    finish(__file__, result, options)


if __name__ == "__main__":
    main()
