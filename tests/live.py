"""Real servers on loopback for tests: started once, spoken to over HTTP."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

import splinefm as sf
from splinefm.serve import Arm, ScoringService, ServiceSettings
from support import random_fitted, visits_schema, visits_table

TOKEN, ADMIN = "t" * 32, "a" * 32
JSON = {"Content-Type": "application/json"}
ARROW = "application/vnd.apache.arrow.stream"
PATIENCE = 180.0  # seconds; machines of tests are busy


def run_coroutine(work: Coroutine) -> object:
    """Run a coroutine in a thread of its own: that of a test can have the loop of a browser, which is running."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class Answer:
    """Status, headers and body of a response."""

    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)


class LiveServer:
    """`splinefm serve` in a process of its own, on a free port."""

    def __init__(self, *arguments):
        self.process = self.start(arguments)
        self.events = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.port = int(re.search(r":(\d+)$", self.wait_for("listening")["url"])[1])
        except BaseException:  # nothing else would end it
            self.process.kill()
            self.process.wait()
            raise

    def start(self, arguments):
        """Start the process."""
        command = [sys.executable, "-m", "splinefm", "serve", "--port", "0", *map(str, arguments)]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))

    def _read(self):
        for line in self.process.stderr:
            with self._changed:
                self.events.append(json.loads(line) if line.startswith("{") else {"event": "text", "text": line})
                self._changed.notify_all()
        with self._changed:
            self.events.append({"event": "end of log"})
            self._changed.notify_all()

    def wait_for(self, event, after=0):
        """Wait for an event of the log, and return it."""
        end = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                found = [entry for entry in self.events[after:] if entry["event"] == event]
                if found:
                    return found[0]
                assert self.events[-1:] != [{"event": "end of log"}], self.events
                assert self._changed.wait(end - time.monotonic()), self.events

    def stop(self):
        """End the server, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self.process.stderr.close()
        return code

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(self, method, path, content=None, headers=None):
        """Send one request; anything but bytes is sent as JSON."""
        headers = dict(headers or {})
        if content is not None and not isinstance(content, bytes):
            content, headers = json.dumps(content).encode(), JSON | headers
        with closing(self.connect()) as connection:
            connection.request(method, path, content, headers)
            return Answer(connection.getresponse())

    def score(self, content, path="/v1/score", **headers):
        return self.ask("POST", path, content, headers)

    def raw(self, data, *, wait=PATIENCE):
        """Send bytes, and return all that comes back until the server closes; it must close."""
        with closing(socket.create_connection(("127.0.0.1", self.port), wait)) as client:
            client.sendall(data)
            parts = []
            try:
                while part := client.recv(1 << 16):
                    parts.append(part)
            except ConnectionResetError:
                pass
            return b"".join(parts)

    def metrics(self, headers=None):
        """All samples of the metrics, by name and labels."""
        from prometheus_client.parser import text_string_to_metric_families as parse

        text = self.ask("GET", "/metrics", None, headers).body.decode()
        found = [sample for family in parse(text) for sample in family.samples]
        return {(sample.name, *sorted(sample.labels.items())): sample.value for sample in found}

    def metric(self, name, **labels):
        """A sample; 0 where nothing was counted."""
        return self.metrics().get((name, *sorted(labels.items())), 0.0)

    def eventually(self, holds):
        """Wait until something holds: metrics are written a few times a second."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.05)

    def workers(self):
        """Process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


def visits_model(seed=1, **options):
    """A model of visits, and rows of them."""
    table = visits_table(np.random.default_rng(0), 300)
    return random_fitted(sf.FwFM(k=16), visits_schema(sf.BSpline(8)), table, seed=seed, **options)


def visits_rows(n, seed=3, *, hostile=True):
    """Rows as JSON has them: None where a number is missing."""
    table = visits_table(np.random.default_rng(seed), n, hostile=hostile)
    columns = {name: [plain(value) for value in values] for name, values in table.items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def plain(value):
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and value != value else value


def as_columns(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


def make_service(*, key=None, shadow=None, background=None, index=None, **models):
    """A service in this process, with metrics of its own; each model is the path of a file."""
    from prometheus_client import CollectorRegistry

    arms = tuple(Arm(name, str(path), shadow=name == shadow, index=index) for name, path in models.items())
    settings = ServiceSettings(arms, key=key, background=background)
    return ScoringService(settings, registry=CollectorRegistry())


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def spoil(draw, value):
    """Replace, remove or add something somewhere inside of a JSON value."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(value)))
        kept = {other: item for other, item in value.items() if other != name}
        more = draw(st.sampled_from(["spoil", "drop", "rename"]))
        return kept | {"spoil": {name: spoil(draw, value[name])}, "drop": {}, "rename": {name + "x": value[name]}}[more]
    if isinstance(value, list) and value and draw(st.booleans()):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], spoil(draw, value[at]), *value[at + 1 :]]
    return draw(ANY_JSON)
