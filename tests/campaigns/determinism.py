"""Determinism: the same bits for any number of threads, any chunks of the table, any process; golden files score alike.

Within an instruction set, parameters and scores have the same bits for 1, 2, 3 and 8 threads, for a table as a whole or
in chunks, from memory or from files, and in new processes with other hash seeds. Instruction sets differ in how they
round sums of float32: the encoding has the same bits on all of them, and scores agree to 1e-5.

    python tests/campaigns/determinism.py --long
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _campaign import FOLDER, Campaign, main

THREADS = (1, 2, 3, 8)
SEEDS = ("0", "1", "4711")


def digest(*arrays: Any) -> str:
    """Return a short checksum of the bytes of arrays."""
    found = hashlib.sha256()
    for values in arrays:
        array = np.ascontiguousarray(values)
        found.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return found.hexdigest()[:20]


def make_table(n: int) -> pa.Table:
    """Return rows with every kind of column."""
    rng = np.random.default_rng(5)
    x = rng.gamma(2.0, 3.0, n)
    words = [list(rng.choice(list("abcdef"), rng.integers(0, 4), replace=False)) for _ in range(n)]
    user = rng.zipf(1.5, n) % 300
    columns = {
        "x": pa.array(np.where(rng.random(n) < 0.05, np.nan, x), from_pandas=True),
        "hour": pa.array(rng.uniform(0, 24, n)),
        "user": pa.array([f"user {number}" for number in user.tolist()]),
        "words": pa.array(words, pa.list_(pa.string())),
        "when": pa.array(rng.integers(0, 10**9, n), pa.timestamp("s")),
        "count": pa.array(rng.integers(0, 50, n)),
    }
    score = np.sin(x) + 0.1 * (user % 7) - 0.5 * np.array([len(word) for word in words])
    columns["y"] = pa.array((rng.random(n) < 1 / (1 + np.exp(-score))).astype(np.int64))
    columns["w"] = pa.array(rng.gamma(1.0, 1.0, n))
    return pa.table(columns)


def sources(table: pa.Table, folder: Path) -> dict[str, Any]:
    """Return the same rows as a whole, in chunks, and as files."""
    cuts = [0, 1, 8, 100, 333, len(table) // 2, len(table)]
    chunks = pa.concat_tables([table.slice(a, b - a) for a, b in itertools.pairwise(cuts)])
    pq.write_table(table, folder / "whole.parquet")
    pq.write_table(table, folder / "groups.parquet", row_group_size=217)
    (folder / "parts").mkdir(exist_ok=True)
    for i, (a, b) in enumerate(itertools.pairwise(cuts)):
        pq.write_table(table.slice(a, b - a), folder / "parts" / f"part-{i}.parquet")
    return {
        "whole": table.combine_chunks(),
        "chunks": chunks,
        "file": str(folder / "whole.parquet"),
        "row groups": str(folder / "groups.parquet"),
        "files": str(folder / "parts" / "*.parquet"),
    }


def models() -> dict[str, Any]:
    """Return the models to fit."""
    import splinefm as sf

    return {
        "FwFM third": sf.FwFM(k=8, third=4),
        "FFM": sf.FFM(k=4),
        "FmFM": sf.FmFM(k=4),
        "HigherOrderFM": sf.HigherOrderFM(k=4, order=3),
    }


def child(n: int, depth: str) -> dict[str, Any]:
    """Return digests of one process: names that end in the same words must have the same digest."""
    import splinefm as sf
    from splinefm import _core
    from splinefm.model.scores import predict_scores
    from support import random_params

    found: dict[str, Any] = {"isa": _core.isa, "same": {}, "close": {}}
    same: dict[str, dict[str, str]] = found["same"]

    def note(what: str, how: str, *arrays: Any) -> None:
        same.setdefault(what, {})[how] = digest(*arrays)

    table = make_table(n)
    schema = sf.Schema(
        [
            sf.Numerical("x", sf.Quantile(), sf.BSpline(12)),
            sf.Numerical("hour", sf.MinMax(0, 24), sf.BSpline(6, periodic=True)),
            sf.Categorical("user", min_count=2),
            sf.MultiValued("words", reduction="mean"),
            sf.Timestamp("when"),
            sf.Numerical("count", sf.BestFitCDF(), sf.MultiResolution((2, 6))),
            sf.Cross("user", "hour", segments=3, min_count=3),
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        given = sources(table, Path(folder))
        for title, model in list(models().items())[: 2 if depth == "short" else None]:
            variants = [("whole", threads) for threads in THREADS] + [
                (source, 2) for source in given if source != "whole"
            ]
            for source, threads in variants:
                if depth == "short" and title != "FwFM third" and (source, threads) not in (("whole", 1), ("files", 2)):
                    continue
                training = sf.Training(epochs=2, threads=threads, batch_size=128, effort="fast", seed=3)
                fitted = sf.fit_model(
                    given[source], "y", schema=schema, model=model, sample_weight="w", training=training
                )
                how = f"{source}, {threads} threads"
                note(f"{title}: parameters", how, *(fitted.params[name] for name in sorted(fitted.params)))
                scores = fitted.scores(given[source], threads=threads, watch=False)
                note(f"{title}: scores", how, scores)
            parts = [fitted.scores(table.slice(at, 97), threads=3, watch=False) for at in range(0, n, 97)]
            note(f"{title}: scores", "slices of 97 rows", np.concatenate(parts))
            rows = table.slice(0, 50).to_pylist()
            note(f"{title}: rows", "scorer", fitted.scorer().many(rows).astype(np.float32))
            note(f"{title}: rows", "table", fitted.scores(table.slice(0, 50), watch=False))
            note(f"{title}: rows", "one by one", np.array([fitted.scorer()(row) for row in rows], np.float32))
            if title != "HigherOrderFM":
                for threads in THREADS:
                    values = sf.shapley_values(
                        fitted, table.slice(0, 300), background=table.slice(0, 200), threads=threads
                    )
                    note(f"{title}: Shapley values", f"{threads} threads", values.values)
            fixed = random_params(model, fitted.encoder.layout, scale=0.3)
            slots = fitted.encoder.encode(table, threads=2)
            found["close"][title] = predict_scores(model, fixed, slots)[:200].astype(float).tolist()
        for threads in THREADS:
            slots = fitted.encoder.encode(table, threads=threads)
            note("slots", f"{threads} threads", slots.start, slots.weight)
        plain = sf.fit_encoder(schema, table)
        found["slots"] = digest(plain.encode(table).start, plain.encode(table).weight)
        _note_index(sf, table, note)
    return found


def _note_index(sf: Any, table: pa.Table, note: Any) -> None:
    schema = sf.Schema([sf.Numerical("x"), sf.Categorical("user"), sf.Categorical("count")])
    training = sf.Training(epochs=1, threads=1, effort="fast")
    fitted = sf.fit_model(table, "y", schema=schema, model=sf.FwFM(k=4), training=training)
    items = {"user": table.column("user").unique().to_pylist()}
    context = table.select(["x", "count"]).slice(0, 9)
    for dtype in ("float32", "int8"):
        for threads in THREADS:
            index = sf.ItemIndex(fitted, items, ids=items["user"], dtype=dtype, form="vectors", threads=threads)
            ids, scores = index.top_k(context, 20, threads=threads)
            note(f"index {dtype}", f"{threads} threads", scores, np.char.encode(ids, "utf-8"))


def compare(campaign: Campaign, runs: list[dict[str, Any]]) -> None:
    """Compare the digests of all processes."""
    by_isa: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_isa.setdefault(run["isa"], []).append(run)
    for isa, some in by_isa.items():
        for what in some[0]["same"]:
            found = {
                f"{how}, process {i}": value for i, one in enumerate(some) for how, value in one["same"][what].items()
            }
            campaign.counts[f"{isa}, {what.split(': ')[-1]}: compared"] += len(found)
            if len(set(found.values())) > 1:
                first = next(iter(found.values()))
                other = [how for how, value in found.items() if value != first]
                campaign.find(f"{isa}: {what} differ from {next(iter(found))}'s: {other[:8]}")
    if len({run["slots"] for run in runs}) > 1:
        campaign.find("slots differ between instruction sets or processes")
    first = runs[0]
    for run in runs[1:]:
        for title, scores in run["close"].items():
            campaign.counts["instruction sets: compared"] += 1
            if not np.allclose(scores, first["close"][title], rtol=1e-5, atol=1e-5):
                campaign.find(f"{title}: scores of {run['isa']} differ from scores of {first['isa']}")
    campaign.figures["instruction_sets"] = sorted(by_isa)


def processes(campaign: Campaign) -> None:
    """Run processes on every instruction set, with other hash seeds."""
    from splinefm import _core

    runs = []
    for number, isa in enumerate(_core.isas):
        seeds = SEEDS[: 2 if number == len(_core.isas) - 1 else 1] if campaign.depth == "short" else SEEDS
        for seed in seeds:
            environment = os.environ | {"SPLINEFM_ISA": isa, "PYTHONHASHSEED": seed}
            command = [sys.executable, __file__, "--child", str(campaign.count), campaign.depth]
            run = subprocess.run(command, env=environment, capture_output=True, text=True)
            if run.returncode:
                campaign.find(f"{isa}, hash seed {seed}: {run.stderr[-1500:]}")
                continue
            runs.append(json.loads(run.stdout.splitlines()[-1]))
            campaign.saw(isa, "processes")
    if runs:
        compare(campaign, runs)


def golden(campaign: Campaign) -> None:
    """Read the golden files of every format."""
    sys.path.append(str(FOLDER.parent / "golden"))
    import make_golden_files

    for what, error in make_golden_files.check_all():
        if error is None:
            campaign.saw("golden", what)
        else:
            campaign.find(f"golden {what}", error)


def run(campaign: Campaign) -> None:
    """Run both parts."""
    if campaign.wants("processes"):
        processes(campaign)
    if campaign.wants("golden"):
        golden(campaign)


if __name__ == "__main__":
    if "--child" in sys.argv[1:2]:
        print(json.dumps(child(int(sys.argv[2]), sys.argv[3])))
        sys.exit(0)
    sys.exit(main("determinism", run, short=700, long=20_000))
