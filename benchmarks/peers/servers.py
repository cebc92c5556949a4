"""Servers of benchmarks: started as processes, asked by wrk or `peers.load`, and how much processor time they take."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from _shared import N_CATEGORICAL, N_NUMERICAL, random_model

import splinefm as sf

PATIENCE = 120.0
CONTEXT = 20  # columns of a context; the others are those of items
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}  # in milliseconds


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server process, and its children."""

    def __init__(self, name: str, command: Sequence[str], port: int, env: Mapping[str, str] | None = None) -> None:
        self.name, self.port = name, port
        self.process = subprocess.Popen(
            command, env={**os.environ, **(env or {})}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.process.poll() is not None:
                assert self.process.stderr is not None
                raise RuntimeError(f"{self.name} ended: {self.process.stderr.read()[-2000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.5).close()
                return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError(f"{self.name} does not answer")

    def pids(self) -> list[int]:
        """Process ids, with all descendants."""
        found, at = [self.process.pid], 0
        while at < len(found):
            path = Path(f"/proc/{found[at]}/task/{found[at]}/children")
            found += map(int, path.read_text().split()) if path.exists() else []
            at += 1
        return found

    def cpu_seconds(self) -> float:
        """Processor time of all its processes."""
        ticks = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        """Resident memory of all its processes, shared pages counted for each."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def stop(self) -> None:
        """End it."""
        every = self.pids()
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in every[1:]:  # a worker may be in the middle of a long answer that is not read
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def running(servers: Sequence[Server]) -> Iterator[Sequence[Server]]:
    """Stop servers at the end, whatever happens."""
    try:
        yield servers
    finally:
        for server in servers:
            server.stop()


def write_requests(path: Path, url: str, bodies: Sequence[bytes]) -> Path:
    """Write a script for wrk that posts one body after the other, and the same for `peers.load`."""
    content = {"path": url, "bodies": [body.decode() for body in bodies]}
    path.with_suffix(".json").write_text(json.dumps(content))
    lines = ["local bodies = {}"]
    lines += [f"bodies[{i}] = [==[{body.decode()}]==]" for i, body in enumerate(bodies, start=1)]
    lines.append('local headers = {["Content-Type"] = "application/json"}')
    lines.append("local i = 0")
    lines.append(
        f'request = function() i = i % #bodies + 1; return wrk.format("POST", "{url}", headers, bodies[i]) end'
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def load(server: Server, script: Path, seconds: float, connections: int) -> dict[str, float]:
    """Load a server: requests per second, latency in ms, and processor time per request."""
    if shutil.which("wrk") is None:
        return _load_without_wrk(server, script.with_suffix(".json"), seconds, connections)
    before = server.cpu_seconds()
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds:.0f}s",
        "--latency",
        "--timeout",
        "30s",
        "-s",
        str(script),
    ]
    text = subprocess.run([*command, f"http://127.0.0.1:{server.port}"], capture_output=True, text=True).stdout
    cpu = server.cpu_seconds() - before
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text) or re.search(r"Socket errors: (.*)", text)
    if bad is not None:
        raise RuntimeError(f"{server.name}: {bad[0]}")
    found = re.search(r"(\d+) requests in ([\d.]+)(us|ms|s|m)", text)
    if found is None or not int(found[1]):
        raise RuntimeError(f"{server.name}: no request was answered: {text}")
    n, milliseconds = int(found[1]), float(found[2]) * _UNITS[found[3]]
    return {
        "requests_per_s": n / milliseconds * 1e3,
        "p50_ms": _latency(text, "50%"),
        "p99_ms": _latency(text, "99%"),
        "cpu_ms": 1e3 * cpu / n,
    }


def _load_without_wrk(server: Server, requests: Path, seconds: float, connections: int) -> dict[str, float]:
    """The same with clients in Python."""
    before = server.cpu_seconds()
    command = [sys.executable, "-m", "peers.load", str(server.port), str(seconds), str(connections), str(requests)]
    here = Path(__file__).resolve().parents[1]
    found = json.loads(subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout)
    if found["failed"]:
        raise RuntimeError(f"{server.name}: {found['failed']} requests were not answered with 200")
    cpu = server.cpu_seconds() - before
    return {
        "requests_per_s": found["n"] / found["elapsed"],
        "p50_ms": found["p50_ms"],
        "p99_ms": found["p99_ms"],
        "cpu_ms": 1e3 * cpu / found["n"],
    }


def _latency(text: str, which: str) -> float:
    found = re.search(rf"\s{which}\s+([\d.]+)(us|ms|s|m)", text)
    assert found is not None
    return float(found[1]) * _UNITS[found[2]]


# What is served


class Served:
    """A model with random parameters, an index of items, LightGBM on the same columns, and rows, all in a folder."""

    def __init__(self, folder: Path, n_items: int, *, peer: bool = True) -> None:
        from single_row import N_FIT, make_table, train_lightgbm

        rng = np.random.default_rng(0)
        table, codes, schema = make_table(N_FIT + 500, rng)
        encoder = sf.fit_encoder(schema, {name: values[:N_FIT] for name, values in table.items()})
        self.folder = folder
        self.fitted = random_model(encoder, sf.FwFM(16))
        self.fitted.save(folder / "model.sfm")
        self.names = list(table)
        rows = zip(*(values[N_FIT:].tolist() for values in table.values()), strict=True)
        self.rows = [dict(zip(self.names, row, strict=True)) for row in rows]
        if n_items:
            at = rng.integers(0, N_FIT, n_items)
            items = {name: table[name][at] for name in self.names[CONTEXT:]}
            self.index = sf.ItemIndex(self.fitted, items, ids=np.arange(n_items))
            self.index.save(folder / "items.sfi")
        if peer:
            train_lightgbm(codes[:N_FIT], rng).save_model(folder / "lightgbm.txt")
            known: dict[str, list[str]] = {item.name: _names(item) for item in schema.fields[N_NUMERICAL:]}
            self.fitted.export_onnx(folder / "model.onnx")
            (folder / "categories.json").write_text(json.dumps(known))
            if n_items:
                np.save(folder / "items.npy", codes[at][:, CONTEXT:])
        assert len(self.names) == N_NUMERICAL + N_CATEGORICAL

    def bodies(self, n_rows: int, n: int = 50) -> list[bytes]:
        """Requests of `n_rows` rows each."""
        every = [[self.rows[(i * n_rows + j) % len(self.rows)] for j in range(n_rows)] for i in range(n)]
        return [json.dumps({"rows": rows}).encode() for rows in every]

    def contexts(self, k: int, n: int = 50) -> list[bytes]:
        """Requests for the best k items."""
        own = [{name: row[name] for name in self.names[:CONTEXT]} for row in self.rows[:n]]
        return [json.dumps({"context": context, "k": k}).encode() for context in own]


def _names(item: Any) -> list[str]:
    return [str(name) for name in item.vocabulary.names.to_pylist()]
