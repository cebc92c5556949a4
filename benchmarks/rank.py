"""How long does it take to find the best 100 of a million items, compared with a matrix product and with LightGBM?

There are 1,000,000 items with 10 fields and contexts with 10 others: on each side 3 numerical ones (cubic splines on 20
segments) and 7 categorical ones (10,000 distinct values each, Zipf); k = 8. Parameters are random, which makes no
difference to the time. A request is a dict of raw values, and its time is all of `ItemIndex.top_k`, from the dict to
ids and scores, with one thread. Contenders alternate:

- `matrix @ vector`: NumPy's product with the matrix of item vectors in float32. The product with the transposed matrix
  is in the figures as well.
- LightGBM, 300 trees of 63 leaves, predicts the same candidates from a float64 matrix that is ready. It predicts a
  sample of them, five times beside each model, and its time is scaled up.

`matvec_vs_topk` is the time of `matrix @ vector` / the time of top-100, `topk_vs_lightgbm` the time of LightGBM / the
time of top-100. Both are ratios of medians, for the model with the lowest ratio; the goals are 1/1.5 and 300. An index
chooses its form: `effects` in the figures is 1 where items are stored as features whose effects are looked up, and 0
where they are vectors, as int8 always is. The quick run has 200,000 items with the FFM, because the matrix of all items
takes 3.2 GB, and scales LightGBM accordingly.

    python benchmarks/rank.py [--quick] [--json] [--save]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _shared import finish, make_parser, random_model, say, spline_schema, zipf_codes
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import splinefm as sf
from splinefm.model.family import AnyModel

N_ITEMS, N_FIT, N_NUMERICAL, N_CATEGORICAL, DISTINCT = 1_000_000, 100_000, 3, 7, 10_000
BEST, SAMPLE, N_QUICK_FFM = 100, 50_000, 200_000
MODELS: dict[str, AnyModel] = {"fm_k8": sf.FM(8), "fwfm_k8": sf.FwFM(8), "ffm_k8": sf.FFM(8)}
Columns = dict[str, Any]
Jobs = dict[str, Callable[[Columns], object]]


def make_columns(prefix: str, rows: int, seed: int) -> Columns:
    """One side's columns."""
    rng = np.random.default_rng(seed)
    columns: Columns = {f"{prefix}_number{i}": rng.lognormal(0.0, 1.5, rows) for i in range(N_NUMERICAL)}
    for i in range(N_CATEGORICAL):
        columns[f"{prefix}_category{i}"] = 1 + zipf_codes(rng, rows, DISTINCT)
    return columns


def make_encoder() -> sf.Encoder:
    """Fitted to some contexts with some items."""
    table = make_columns("context", N_FIT, 0) | make_columns("item", N_FIT, 1)
    numbers = [name for name in table if "number" in name]
    schema = spline_schema(numbers, [name for name in table if name not in numbers])
    return sf.fit_encoder(schema, table)


def check(index: sf.ItemIndex, matrix: Any, offsets: Any, context: Columns) -> None:
    """Check that the best items are those that the product and a sort find."""
    ids, scores = index.top_k(context, BEST)
    queries, constants = index.queries(index.encode_context(context))
    every = matrix @ queries[0] + offsets + constants[0]
    if np.abs(np.sort(every)[::-1][:BEST] - scores).max() > 1e-4 or np.abs(every[ids] - scores).max() > 1e-4:
        raise RuntimeError("the best items are not those with the largest scores")


def measure_model(
    fitted: sf.Fitted, items: Columns, requests: list[Columns], trees: Callable[[Columns], object]
) -> dict[str, float]:
    """Median and 99th percentile of every contender, in milliseconds; `trees` predict a sample."""
    n_items = len(items["item_number0"])
    building = time.perf_counter()
    index = sf.ItemIndex(fitted, items, ids=np.arange(n_items))
    figures = {"build_s": time.perf_counter() - building, "items": n_items, "numbers_per_vector": index.length}
    figures["effects"] = float(index.form == "effects")
    _, matrix, offsets = index.matrix()
    check(index, matrix, offsets, requests[0])
    query = index.queries(index.encode_context(requests[0]))[0][0]
    jobs: Jobs = {
        "topk": lambda context: index.top_k(context, BEST),
        "matvec": lambda context: matrix @ query,
        "encode": index.encode_context,
    }
    figures |= alternate(jobs, requests, {"lightgbm": trees})
    figures["lightgbm_ms"] = figures.pop("lightgbm_p50_ms") * N_ITEMS / SAMPLE
    figures.pop("lightgbm_p99_ms")
    few = requests[: max(10, len(requests) // 5)]
    if matrix.nbytes < 1 << 30:
        transposed = np.ascontiguousarray(matrix.T)
        figures |= alternate({"transposed_matvec": lambda context: query @ transposed}, few)
    small = sf.ItemIndex(fitted, items, ids=np.arange(n_items), dtype="int8")
    figures |= alternate({"int8_topk": lambda context: small.top_k(context, BEST)}, few)
    return figures | {"float32_error_measured": index.error.measured, "int8_error_measured": small.error.measured}


def alternate(jobs: Jobs, requests: list[Columns], seldom: Jobs | None = None) -> dict[str, float]:
    """Median and 99th percentile of jobs on the same requests, of the seldom ones on five of them."""
    long = seldom or {}
    times: dict[str, list[float]] = {name: [] for name in [*jobs, *long]}
    for job in jobs.values():
        job(requests[-1])
    for i, context in enumerate(requests):
        for name, job in (long | jobs if i % (len(requests) // 5) == 0 else jobs).items():
            begin = time.perf_counter()
            job(context)
            times[name].append(1e3 * (time.perf_counter() - begin))
    figures = {}
    for name, values in times.items():
        figures[f"{name}_p50_ms"], figures[f"{name}_p99_ms"] = np.percentile(values, [50, 99]).tolist()
    return figures


def make_lightgbm(items: Columns, context: Columns) -> Callable[[Columns], object]:
    """A job that predicts a sample of the items with one thread."""
    import lightgbm

    rng = np.random.default_rng(2)
    table = make_columns("context", N_FIT, 3) | make_columns("item", N_FIT, 4)
    y = np.log1p(table["item_number0"]) * np.cos(table["context_number1"]) + 0.1 * (table["item_category2"] % 7)
    options = {"num_leaves": 63, "verbose": -1, "objective": "regression", "num_threads": 1}
    data = lightgbm.Dataset(np.column_stack(list(table.values())), y + rng.normal(0.0, 0.1, N_FIT))
    booster = lightgbm.train(options, data, num_boost_round=300)
    sample = rng.permutation(N_ITEMS)[:SAMPLE]
    fixed = [np.full(SAMPLE, float(value)) for value in context.values()]
    candidates = np.column_stack([*fixed, *(values[sample] for values in items.values())])
    return lambda _: booster.predict(candidates, num_threads=1)


def measure(n_ffm: int, n_requests: int) -> dict[str, Any]:
    """All models, and the ratios."""
    encoder, items = make_encoder(), make_columns("item", N_ITEMS, 5)
    several = make_columns("context", n_requests, 6)
    requests = [{name: values[i].item() for name, values in several.items()} for i in range(n_requests)]
    say("lightgbm")
    trees = make_lightgbm(items, requests[0])
    figures: dict[str, Any] = {"lightgbm_sample": SAMPLE}
    ratios: dict[str, float] = {}
    for name, model in MODELS.items():
        say(name)
        n = n_ffm if isinstance(model, sf.FFM) else N_ITEMS
        some = {column: values[:n] for column, values in items.items()}
        figures[name] = found = measure_model(random_model(encoder, model), some, requests, trees)
        ratios[f"{name}_matvec_vs_topk"] = found["matvec_p50_ms"] / found["topk_p50_ms"]
        ratios[f"{name}_topk_vs_lightgbm"] = found["lightgbm_ms"] * n / N_ITEMS / found["topk_p50_ms"]
        ratios[f"{name}_int8_topk_vs_lightgbm"] = found["lightgbm_ms"] * n / N_ITEMS / found["int8_topk_p50_ms"]
    for ratio in ("matvec_vs_topk", "topk_vs_lightgbm"):
        ratios[ratio] = min(ratios[f"{name}_{ratio}"] for name in MODELS)
    return {"figures": figures, "ratios": ratios}


def main() -> None:
    """Measure, print and save."""
    options = make_parser(__doc__, "50 requests, fewer items with the FFM").parse_args()
    with threadpool_limits(1):
        result = measure(N_QUICK_FFM, 50) if options.quick else measure(N_ITEMS, 200)
    finish(__file__, result, options)


if __name__ == "__main__":
    main()
