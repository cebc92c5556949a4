"""Auctions as requests to a server, clicks as feedback, and the server's log as training rows."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from examples.hourly.server import PATIENCE, Server
from paper.ab.simulation import Served, find_shown, run_auctions
from paper.ab.world import FIELDS, Auctions
from splinefm.serve import training_rows

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


class NewRows:
    """The training rows that the log of a server has since the last time: rows whose outcomes have come.

    Each outcome is in the rows of the hour in which it comes, however old its row is; if an hour has several of a row,
    the last one counts.

    Parameters
    ----------
    folder : path
        The folder that `splinefm serve --log FOLDER --log-rows` writes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._since = 0.0

    def by_arm(self, n_rows: int) -> dict[str, pa.Table]:
        """Wait until the log has the given number of new rows with outcomes, and return those of each arm."""
        until = time.time()  # later than all outcomes, since the server has acknowledged them
        end = time.monotonic() + PATIENCE
        while True:
            rows = training_rows(self.folder, "click", outcomes_since=self._since, outcomes_until=until, details=True)
            if len(rows) >= n_rows:
                break
            if time.monotonic() > end:
                raise RuntimeError(f"{n_rows - len(rows)} rows with outcomes are missing in {self.folder}")
            time.sleep(0.3)  # the server writes predictions a few times a second
        self._since = until
        if not len(rows):
            return {}
        columns = [name for name in rows.column_names if name != KEY and not name.startswith("_")]
        arms = rows["_arm"].to_numpy()
        return {arm: rows.filter(arms == arm).select(columns) for arm in np.unique(arms).tolist()}


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
