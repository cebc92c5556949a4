"""Auctions as requests to a server, clicks as feedback, and the server's log as training rows."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from examples.hourly.server import PATIENCE, Server
from paper.ab.simulation import Served, find_shown, run_auctions
from paper.ab.world import FIELDS, Auctions

KEY = "user_id"
AUCTIONS_PER_REQUEST = 400
SIMULATED = 1_704_067_200  # the first hour of the simulation, in seconds since 1970: 2024-01-01


class Hour(NamedTuple):
    """What came of the auctions of an hour."""

    arms: npt.NDArray[np.str_]
    """The arm of each auction."""
    predicted: npt.NDArray[np.float64]
    """The predictions of the server, auctions × candidates."""
    impressions: int
    clicks: int


def serve_hour(server: Server, hour: int, auctions: Auctions, users: npt.NDArray[np.int64]) -> Hour:
    """Ask the server for the click probabilities of all candidates, show the winners, and tell it of clicks."""
    n, candidates = auctions.bid.shape
    parts, arms, outcomes, impressions, clicks = [], [], [], 0, 0
    for number, first in enumerate(range(0, n, AUCTIONS_PER_REQUEST)):
        part = _take(auctions, slice(first, first + AUCTIONS_PER_REQUEST))
        columns = {name: getattr(part.ads, name).ravel().tolist() for name in FIELDS}
        columns[KEY] = np.repeat(users[first : first + AUCTIONS_PER_REQUEST], candidates).tolist()
        name = request_id(hour, number)
        answer = server.ask("/v1/score", {"columns": columns}, name)
        predicted = np.array(answer["predictions"]).reshape(-1, candidates)
        (rows, shown), _ = find_shown(part, predicted)
        clicked = part.luck[rows] < part.ctr[rows, shown]
        for row, click in zip((rows * candidates + shown).tolist(), clicked.tolist(), strict=True):
            outcomes.append({"id": name, "row": row, "outcome": float(click)})
        parts.append(predicted)
        arms += answer["arms"][::candidates]
        impressions, clicks = impressions + len(rows), clicks + int(clicked.sum())
    for first in range(0, len(outcomes), 5000):
        server.ask("/v1/feedback", {"outcomes": outcomes[first : first + 5000]})
    return Hour(np.array(arms), np.concatenate(parts), impressions, clicks)


def value_of(auctions: Auctions, hour: Hour, arm: str) -> Served:
    """Return what an arm's auctions of an hour brought."""
    own = np.flatnonzero(hour.arms == arm)
    return run_auctions(_take(auctions, own), hour.predicted[own])


def _take(auctions: Auctions, at: Any) -> Auctions:
    return Auctions(auctions.ads.take(at), *(column[at] for column in auctions[1:]))


def request_id(hour: int, number: int) -> str:
    """Return the name of a request: the hour of the simulation is in it."""
    return f"h{hour:05}-{number:04}"


class LogReader:
    """Reads what is new in the log of a server: rows with predictions, and outcomes.

    Parameters
    ----------
    folder : path
        The folder that `splinefm serve --log FOLDER --log-rows` writes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._at: dict[Path, int] = {}
        self._shown: dict[str, tuple[list[str], list[dict[str, Any]]]] = {}

    def rows(self, n_outcomes: int) -> dict[str, pa.Table]:
        """Wait for so many outcomes, and return the training rows of each arm: those that were shown."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        outcomes: list[dict[str, Any]] = []
        end = time.monotonic() + PATIENCE
        while len(outcomes) < n_outcomes:
            for line in self._new_lines():
                if "rows" in line:
                    self._shown[line["id"]] = line["arms"], line["rows"]
                elif "outcome" in line:
                    outcomes.append(line)
            if len(outcomes) < n_outcomes:
                if time.monotonic() > end:
                    raise RuntimeError(f"{n_outcomes - len(outcomes)} outcomes are missing in {self.folder}")
                time.sleep(0.05)  # the server flushes a few times a second
        for line in outcomes:
            arms, rows = self._shown[line["id"]]
            row = {name: value for name, value in rows[line["row"]].items() if name != KEY}
            found[arms[line["row"]] if len(arms) > 1 else arms[0]].append(row | {"click": int(line["outcome"])})
        self._shown.clear()
        return {arm: pa.Table.from_pylist(rows) for arm, rows in sorted(found.items())}

    def _new_lines(self) -> list[dict[str, Any]]:
        lines = []
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._at.get(path, 0))
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]  # the last line may not be complete yet
            self._at[path] = self._at.get(path, 0) + len(whole)
            lines += [json.loads(line) for line in whole.splitlines() if line.strip()]
        return lines


def in_simulated_time(log: Path, out: Path) -> Path:
    """Write a copy of a log whose times are those of the simulation, so that a report has its hours."""
    out.mkdir()
    hour_of: dict[str, int] = {}
    with (out / "simulated.jsonl").open("w") as file:
        for path in sorted(log.glob("*.jsonl")):
            for text in path.read_text().splitlines():
                if not text.strip():
                    continue
                line = json.loads(text)
                hour = hour_of.setdefault(line["id"], int(line["id"][1:6]))
                kept = {name: value for name, value in line.items() if name != "rows"}
                file.write(json.dumps(kept | {"at": SIMULATED + 3600.0 * hour}) + "\n")
    return out
