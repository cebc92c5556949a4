"""A real server under mixed load with updates and reloads, and training from disk: no error, and memory stays flat.

    python tests/campaigns/soak.py --long                     # 30 minutes each
    python tests/campaigns/soak.py --only server --count 600  # ten minutes of the server alone

Memory is looked at twice a second (`own_kib`). The mean of the last quarter may be above the first by 5 %, of
which a short run needs more (30 %): everything is used for the first time then. Only loopback is used.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import numpy as np
from _campaign import Campaign, main

ALLOWED = {"short": 1.30, "long": 1.05}
"""Memory of the last quarter relative to the first."""
PAUSE = 0.5
UPDATE_SECONDS = {"short": 2.0, "long": 5.0}


def run(campaign: Campaign) -> None:
    """Run each part for `campaign.count` seconds."""
    for name, part in {"server": soak_server, "training": soak_training}.items():
        if campaign.wants(name):
            with tempfile.TemporaryDirectory(prefix="splinefm-soak-") as folder:
                part(campaign, Path(folder))


# Memory


class Memory:
    """The memory of processes, over time."""

    def __init__(self) -> None:
        self.kib: list[float] = []

    def look(self, pids: list[int]) -> None:
        """Add the sum over some processes."""
        found = [own_kib(pid) for pid in pids]
        if all(found):
            self.kib.append(sum(found))

    def judge(self, campaign: Campaign, part: str) -> None:
        """Compare the last quarter with the first, which begins after a twentieth of the time."""
        n = len(self.kib)
        if n < 8:
            campaign.find(f"{part}: only {n} looks at the memory")
            return
        first, last = self.kib[n // 20 : n // 20 + n // 4], self.kib[-(n // 4) :]
        ratio = float(np.mean(last) / np.mean(first))
        campaign.figures[f"{part}_memory"] = {
            "first_quarter_mb": round(float(np.mean(first)) / 1024, 1),
            "last_quarter_mb": round(float(np.mean(last)) / 1024, 1),
            "most_mb": round(max(self.kib) / 1024, 1),
            "ratio": round(ratio, 4),
        }
        if ratio > ALLOWED[campaign.depth]:
            campaign.find(f"{part}: memory has grown to {ratio:.3f} of what it was")


def own_kib(pid: int) -> float:
    """The memory of a process without the pages of programs and libraries, or 0 if it is gone.

    Pages that processes share count in parts. Pages of libraries are shared with all programs: if some end, the
    parts of the others grow, by tens of megabytes for Arrow.
    """
    try:
        return sum_of_mappings(Path(f"/proc/{pid}/smaps").read_text())
    except OSError:
        return 0.0


def sum_of_mappings(text: str) -> float:
    """The kilobytes of a file `smaps`, without the memory of executable files."""
    mappings = [(*_MAPPING.fullmatch(head).groups(), body) for head, body in _BLOCK.findall(text)]
    programs = {path for permissions, path, _ in mappings if "x" in permissions and path.startswith("/")}
    # What a process has changed in the pages of a library is its own.
    return sum(_kib("Anonymous" if path in programs else "Pss", body) for _, path, body in mappings)


_BLOCK = re.compile(r"^([0-9a-f]+-[0-9a-f]+ .*)\n((?:[A-Z].*\n)+)", re.MULTILINE)
_MAPPING = re.compile(r"\S+ (\S+) \S+ \S+ \S+ *(.*)")


def _kib(name: str, body: str) -> float:
    found = re.search(rf"^{name}: +(\d+) kB", body, re.MULTILINE)
    return float(found[1]) if found else 0.0


# The server


def soak_server(campaign: Campaign, folder: Path) -> None:
    """Clients of all kinds, while the model is updated and loaded anew."""
    try:
        import uvicorn  # noqa: F401
    except ModuleNotFoundError:
        campaign.saw("server", "skipped: no uvicorn")
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    import live
    import splinefm as sf
    from live import LiveServer, as_columns, visits_rows
    from support import visits_schema, visits_table

    def hour(seed: int) -> dict[str, object]:
        rng = np.random.default_rng(seed)
        table = visits_table(rng, 300)
        return {**table, "click": rng.integers(0, 2, 300)}

    def save_index(path: Path) -> None:
        items = {"country": ["US", "FR", "DE", "US"] * 50, "device": ["phone", "desk", "phone", "desk"] * 50}
        sf.ItemIndex(sf.load(path), items, ids=list(range(200))).save(folder / "items.sfi")

    live.PATIENCE = 900.0  # campaigns give way to everything else
    model = folder / "model.sfm"
    training = sf.Training(epochs=1, threads=1)
    schema = visits_schema(sf.BSpline(8))
    sf.fit_model(hour(0), "click", schema=schema, model=sf.FwFM(k=8), training=training).save(model)
    save_index(model)
    background = as_columns(visits_rows(50, seed=9, hostile=False))
    pq.write_table(pa.table(background), folder / "background.parquet")
    server = LiveServer(
        *(model, "--workers", 2, "--index", folder / "items.sfi", "--background", folder / "background.parquet"),
        *("--admin-from-loopback", "--max-body", 1 << 20, "--max-rows", 2000, "--log", folder / "log"),
    )
    memory, seen, errors = Memory(), Counter(), []
    end = time.monotonic() + campaign.count
    threads = [threading.Thread(target=_client, args=(server, i, end, seen, errors)) for i in range(3)]
    try:
        for thread in threads:
            thread.start()
        number, due = 0, time.monotonic() + UPDATE_SECONDS[campaign.depth]
        while time.monotonic() < end:
            time.sleep(PAUSE)
            memory.look([server.process.pid, *server.workers()])
            if time.monotonic() >= due:
                number += 1
                sf.update_model(model, hour(number), "click", guard=None, threads=1)
                save_index(model)
                answer = server.ask("POST", "/v1/reload", {})
                seen[f"reload {answer.status}"] += 1
                if answer.status != 200:
                    errors.append(f"reload {number}: {answer.body[:300]!r}")
                due = time.monotonic() + UPDATE_SECONDS[campaign.depth]
        for thread in threads:
            thread.join()
        restarts = server.metric("splinefm_worker_restarts_total")
        if restarts:
            errors.append(f"{restarts:g} workers were started again")
    finally:
        code = server.stop()
    bad = [event for event in server.events if event["event"] in ("bug", "worker failed", "worker died", "text")]
    errors += [f"the log says {event}" for event in bad[:5]] + ([f"the server ended with {code}"] if code else [])
    for what, count in seen.items():
        campaign.counts[f"server: {what}"] += count
    for error in errors[:20]:
        campaign.find(f"server: {error}")
    memory.judge(campaign, "server")


def _requests() -> list[tuple[str, tuple[int, ...], Callable[[np.random.Generator], tuple[str, str, bytes | None]]]]:
    """Return names, the answers that are right, and functions that make the method, path and body of a request."""
    from live import visits_rows

    rows = visits_rows(200)
    context = {"recency": 3.5, "price": None, "tags": ["t1", "t2"]}
    fixed = {"price": 2.0, "country": "US", "tags": ["t1"], "device": "phone"}

    def some(rng: np.random.Generator, n: int) -> list[dict[str, object]]:
        return [rows[i] for i in rng.integers(0, len(rows), n)]

    def post(path: str, content: object) -> tuple[str, str, bytes]:
        return "POST", path, content if isinstance(content, bytes) else json.dumps(content).encode()

    return [
        ("score one", (200,), lambda rng: post("/v1/score", {"rows": some(rng, 1)})),
        ("score many", (200,), lambda rng: post("/v1/score", {"rows": some(rng, int(rng.integers(2, 200)))})),
        ("rank", (200,), lambda rng: post("/v1/rank", {"context": context, "k": int(rng.integers(1, 50))})),
        ("explain", (200,), lambda rng: post("/v1/explain", {"rows": some(rng, 3)})),
        (
            "segment",
            (200,),
            lambda rng: ("GET", f"/v1/segment?along=recency&points=9&values={quote(json.dumps(fixed))}", None),
        ),
        ("metrics", (200,), lambda rng: ("GET", "/metrics", None)),
        ("ready", (200,), lambda rng: ("GET", "/readyz", None)),
        ("bad json", (400, 422), lambda rng: post("/v1/score", rng.bytes(int(rng.integers(0, 300))))),
        ("bad row", (400, 422), lambda rng: post("/v1/score", {"rows": [{"recency": "many", "no": 1}]})),
        ("bad k", (400, 422), lambda rng: post("/v1/rank", {"context": context, "k": -1})),
        ("bad path", (404,), lambda rng: ("GET", f"/v1/{rng.integers(1000)}", None)),
        ("bad method", (405,), lambda rng: ("DELETE", "/v1/score", None)),
        ("too long", (413,), lambda rng: post("/v1/score", b" " * ((1 << 20) + 1))),
        ("too many rows", (413, 422), lambda rng: post("/v1/score", {"rows": [{}] * 2001})),
    ]


def _client(server: object, number: int, end: float, seen: Counter[str], errors: list[str]) -> None:
    """Ask one question after the other on a connection that stays open, until the time is over."""
    from http.client import HTTPException

    from live import JSON, Answer

    rng, questions = np.random.default_rng(number), _requests()
    connection, mine = server.connect(), Counter()  # type: ignore[attr-defined]
    while time.monotonic() < end and len(errors) < 20:
        name, right, make = questions[int(rng.integers(len(questions)))]
        method, path, body = make(rng)
        try:
            connection.request(method, path, body, JSON if body is not None else {})
            answer = Answer(connection.getresponse())
        except (OSError, HTTPException) as error:
            if name != "too long":  # the server need not read what it refuses
                errors.append(f"{name}: {type(error).__name__}: {error}")
            mine[f"{name} closed"] += 1
            connection.close()
            continue
        # A server that is busy says so: it has fewer cores here than clients.
        if answer.status not in (*right, 503):
            errors.append(f"{name}: {answer.status} {answer.body[:300]!r}")
        mine[f"{name} {answer.status}"] += 1
        if answer.headers.get("Connection") == "close":
            connection.close()
    connection.close()
    seen.update(mine)


# Training


TRAINING = """
import sys
import splinefm as sf
from splinefm.train import chunks

chunks.MEMORY_BYTES = 0  # read from disk in every epoch
schema = sf.Schema([sf.Numerical("x"), sf.Numerical("z"), sf.Categorical("c"), sf.Categorical("d")])
training = sf.Training(epochs=10**6, threads=1, patience=None, refit_on_all=False, effort="fast")

def tell(epoch):
    print("epoch", epoch.epoch, flush=True)

sf.fit_model(sys.argv[1], "y", schema=schema, model=sf.FwFM(k=8), training=training, callbacks=[tell])
"""


def soak_training(campaign: Campaign, folder: Path) -> None:
    """One fit from disk, with more epochs than there is time for."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, n = np.random.default_rng(0), 400_000 if campaign.depth == "long" else 60_000
    x = rng.normal(size=n)
    table = {"x": x, "z": rng.random(n), "c": rng.integers(0, 1000, n), "d": rng.integers(0, 50, n)}
    clicks = (rng.random(n) < 0.3 + 0.2 * (x > 0)).astype(int)
    pq.write_table(pa.table({**table, "y": clicks}), folder / "rows.parquet", row_group_size=n // 8)
    command = [sys.executable, "-c", TRAINING, str(folder / "rows.parquet")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True)
    reader.start()
    memory, end = Memory(), time.monotonic() + campaign.count
    try:
        while time.monotonic() < end and process.poll() is None:
            time.sleep(PAUSE)
            if lines:  # the first epoch has begun to use all there is
                memory.look([process.pid])
        if process.poll() is not None:
            campaign.find(f"training: ended with {process.returncode}: {process.stderr.read()[-1000:]}")
    finally:
        process.kill()
        process.wait()
        reader.join(5)
    campaign.counts["training: epochs"] += len(lines)
    campaign.figures["training_rows"] = n
    memory.judge(campaign, "training")


if __name__ == "__main__":
    sys.exit(main("soak", run, short=10, long=1800))
