"""Threads that train, score, rank and serve at once, with the thread sanitizer: no race, and every answer a right one.

`make sanitized-thread` builds what this needs. The scenarios run in a process of their own, with the sanitizer loaded
before everything else; it writes its reports to files, which are counted here. Without the build they run all the
same, and only wrong answers are found; the result says so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from _campaign import ROOT, Campaign, main

PACKAGE = ROOT / "build" / "thread" / "package"
INNER = "--scenario"


def run(campaign: Campaign) -> None:
    """Run each scenario for `campaign.count` seconds, and count the reports of the sanitizer."""
    environment, is_sanitized = thread_environment()
    campaign.figures["thread_sanitizer"] = is_sanitized
    for name in SCENARIOS:
        if not campaign.wants(name) or campaign.is_over:
            continue
        with tempfile.TemporaryDirectory(prefix="splinefm-threads-") as folder:
            options = environment.get("TSAN_OPTIONS", "")
            own = {**os.environ, **environment, "TSAN_OPTIONS": f"{options}:log_path={folder}/report"}
            command = [sys.executable, __file__, INNER, name, str(campaign.count), str(campaign.seed), folder]
            done = subprocess.run(command, capture_output=True, text=True, env=own, timeout=3600)
            if done.returncode:
                campaign.find(f"{name}: ended with {done.returncode}: {done.stderr[-1500:]}")
            else:
                for outcome, number in json.loads(done.stdout.splitlines()[-1]).items():
                    campaign.counts[f"{name}: {outcome}"] += number
            for path in sorted(Path(folder).glob("report*")):
                text = path.read_text(errors="replace")
                campaign.find(f"{name}: {text.count('WARNING: ThreadSanitizer')} reports: {text[:1500]}")


def thread_environment() -> tuple[dict[str, str], bool]:
    """Return the variables of a process with the thread sanitizer, and whether it is there."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None or not any(PACKAGE.glob("splinefm/_core*.so")):
        return {}, False
    ask = [[compiler, f"-print-file-name={name}"] for name in ("libtsan.so", "libstdc++.so")]
    libraries = [subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip() for line in ask]
    if not all(Path(library).is_file() for library in libraries):
        return {}, False
    suppressions = ROOT / "cpp" / "thread.suppressions"
    return {
        "SPLINEFM_SANITIZED": "thread",
        "PYTHONPATH": str(PACKAGE),
        "LD_PRELOAD": " ".join(libraries),
        "OPENBLAS_NUM_THREADS": "1",  # its threads would look like races
        "OMP_NUM_THREADS": "1",
        "TSAN_OPTIONS": f"halt_on_error=0:die_after_fork=0:suppressions={suppressions}",
    }, True


# Scenarios


def train(seconds: float, seed: int, folder: Path) -> Counter[str]:
    """All models and losses, with more threads than the machine has."""
    import numpy as np

    import splinefm as sf
    from support import mixed_schema, mixed_table, one_of_each

    table, schema, seen = mixed_table(400, seed), mixed_schema(), Counter()
    rng = np.random.default_rng(seed)
    labels = {
        "logistic": rng.integers(0, 2, 400),
        "squared": rng.normal(size=400),
        "poisson": rng.poisson(1.0, 400),
        "softmax": rng.choice(["a", "b", "c"], 400).tolist(),
    }
    end = time.monotonic() + seconds
    while not seen or time.monotonic() < end:
        number = sum(seen.values())
        models, losses = one_of_each(6), list(labels)
        model, loss = models[number % len(models)], losses[number % len(losses)]
        training = sf.Training(epochs=1, threads=4, batch_size=32, seed=seed)
        fitted = sf.fit_model(
            {**table, "y": labels[loss]}, "y", schema=schema, model=model, loss=loss, training=training
        )
        assert all(np.isfinite(values).all() for values in fitted.params.values())
        seen["fits"] += 1
    return seen


def score(seconds: float, seed: int, folder: Path) -> Counter[str]:
    """One model, scored as tables and as rows by many threads; every score equals a single thread's, to the bit."""
    import numpy as np

    import splinefm as sf
    from live import visits_model, visits_rows
    from support import visits_table

    fitted = visits_model(seed)
    table = visits_table(np.random.default_rng(seed), 300, hostile=True)
    rows = visits_rows(20)
    scorer = fitted.scorer()
    whole, single = fitted.scores(table, threads=1, watch=False), [scorer.predict(row) for row in rows]
    shapley = sf.shapley_values(fitted, _head(table, 10), background=_head(table, 20)).values

    def tables() -> None:
        assert np.array_equal(fitted.scores(table, threads=3, watch=False), whole)

    def some_rows() -> None:
        assert [scorer.predict(row) for row in rows] == single

    def explanations() -> None:
        found = sf.shapley_values(fitted, _head(table, 10), background=_head(table, 20)).values
        assert np.array_equal(found, shapley)

    return _together(seconds, [tables, tables, some_rows, some_rows, explanations])


def rank(seconds: float, seed: int, folder: Path) -> Counter[str]:
    """Requests to an index that changes: each id has a score of one of the items that it stood for."""
    import numpy as np
    from _targets import NEW

    import splinefm as sf

    names = [f"i{i}" for i in range(20)]
    context = {"price": 0.3, "city": "Rome"}
    known = np.asarray(NEW.scores({**{name: [value] * 20 for name, value in context.items()}, "item": names}))
    index = sf.ItemIndex(NEW, {"item": names}, ids=list(range(20)))
    rng = np.random.default_rng(seed)

    def ask() -> None:
        ids, scores = index.top_k(context, k=10)
        differences = np.abs(np.asarray(scores, np.float64)[:, None] - known)
        # Ids from 20 on come and go and stand for any item, the others for the item of their number or the one before.
        assert len(set(np.asarray(ids).tolist())) == len(ids) and (differences.min(axis=1) < 1e-4).all()
        for number, row in zip(np.asarray(ids).tolist(), differences, strict=True):
            allowed = [number, (number - 1) % 20] if number < 20 else list(range(20))
            assert row[allowed].min() < 1e-4, (number, row.min())

    def change() -> None:
        number = int(rng.integers(20))
        index.update({"item": [names[(number - int(rng.integers(2))) % 20]]}, ids=[number])
        added = 20 + int(rng.integers(1000))
        if added not in present:
            index.add({"item": [names[added % 20]]}, ids=[added])
            present.add(added)
        if len(present) > 15:
            index.remove([present.pop()])
        index.save(folder / "i.sfi")

    present: set[int] = set()
    return _together(seconds, [ask, ask, ask, change])


def reload(seconds: float, seed: int, folder: Path) -> Counter[str]:
    """A real server whose models change under clients; workers have threads for loading and for long requests."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import live
    from live import LiveServer, visits_model, visits_rows
    from support import visits_table

    live.PATIENCE = 900.0  # a server with the thread sanitizer starts slowly
    models = [visits_model(number) for number in (1, 2)]
    path = folder / "model.sfm"
    models[0].save(path)
    rows = visits_rows(5)
    expected = [np.asarray(model.scorer().many(rows), np.float32).tolist() for model in models]
    pq.write_table(pa.table(visits_table(np.random.default_rng(0), 50)), folder / "background.parquet")
    server = LiveServer(path, "--workers", 2, "--admin-from-loopback", "--background", folder / "background.parquet")
    turn = [0]

    def ask() -> None:
        answer = server.score({"rows": rows})
        assert answer.status == 200 and answer.json["scores"] in expected

    def explain() -> None:
        answer = server.ask("POST", "/v1/explain", {"rows": rows[:2]})
        assert answer.status == 200, answer.body

    def change() -> None:
        turn[0] += 1
        models[turn[0] % 2].save(path)
        answer = server.ask("POST", "/v1/reload", {})
        assert answer.status == 200, answer.body

    try:
        seen = _together(seconds, [ask, ask, ask, explain, change])
    finally:
        code = server.stop()
    assert code == 0, code
    return seen


SCENARIOS: dict[str, Callable[[float, int, Path], Counter[str]]] = {
    "train": train,
    "score": score,
    "rank": rank,
    "reload": reload,
}


def _head(table: dict[str, object], n: int) -> dict[str, object]:
    return {name: values[:n] for name, values in table.items()}  # type: ignore[index]


def _together(seconds: float, works: list[Callable[[], None]]) -> Counter[str]:
    """Repeat functions in a thread each; returns how often, and raises what one of them raised."""
    end, seen, errors = time.monotonic() + seconds, Counter(), []

    def repeat(work: Callable[[], None]) -> None:
        number = 0
        try:
            while (not number or time.monotonic() < end) and not errors:
                work()
                number += 1
        except BaseException as error:
            errors.append(error)
        seen[work.__name__] += number  # after the work: one thread at a time reads and writes a key under the GIL

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return seen


if __name__ == "__main__":
    if INNER in sys.argv:
        _, _, chosen, how_long, number, where = sys.argv
        print(json.dumps(SCENARIOS[chosen](float(how_long), int(number), Path(where))))
        sys.exit(0)
    sys.exit(main("threads", run, short=1, long=60))
