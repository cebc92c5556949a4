"""How smoothly does the page of `splinefm explore` follow a slider?

Each page is opened in Chromium without a window. A slider of the Segment view is moved in every animation frame, by the
events that a hand would cause, and every move asks the worker for the curves of all numerical columns. Counted are
animation frames, which show whether the page is free to react, and how many moves of the slider to another value were
drawn: `updates_per_second` is that share of the frames. (A column of integers has fewer values than frames.) A screen
has 60 frames per second. `answer_ms` is the median time of one answer of the worker, with 200 points for each curve,
and its way there and back.

The models are fitted with the defaults to California housing and Adult, if --data says where they are, and random for
13 numerical and 26 categorical columns with 10⁵ features, of which a page keeps those of the frequent categories.

`NAME_updates_vs_60` is the number of updates per second / 60; the goal is 0.9.

    python benchmarks/explore.py [--quick] [--json] [--save] [--data FOLDER] [--chromium PATH]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _shared import Result, criteo_columns, criteo_schema, finish, make_parser, random_model, say
from tables import load

import splinefm as sf
from splinefm.explore.explorer import Explorer
from splinefm.explore.fields import Origin
from splinefm.explore.payload import make_payload

ROWS, CRITEO_ROWS = 5000, 300_000
NAMES = ("chromium", "chromium-browser", "google-chrome")
# Moves the first slider in every frame, back and forth, and watches the curves that are seen.
DRAG = """async (seconds) => {
  const slider = document.querySelector("input[type=range]");
  const [low, high] = [Number(slider.min), Number(slider.max)];
  const isSeen = ({ top, bottom }) => bottom > 0 && top < innerHeight;
  const paths = [...document.querySelectorAll("main svg path")].filter((path) => isSeen(path.getBoundingClientRect()));
  const curves = paths.filter((path) => path.getAttribute("d")?.length > 500);
  const drawing = () => curves.map((path) => path.getAttribute("d")).join();
  const frames = [];
  const row = () => JSON.stringify(explorer.store.state.row);
  let [updates, shown, moves, last] = [0, drawing(), 0, row()];
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const begin = performance.now();
  while (performance.now() - begin < 1000 * seconds) {
    frames.push(await frame());
    const drawn = drawing();
    if (drawn !== shown) updates += 1;
    shown = drawn;
    const turn = Math.abs(((frames.length / 90) % 2) - 1);
    slider.value = String(Math.round(low + (high - low) * (0.1 + 0.8 * turn)));
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    if (row() !== last) moves += 1;
    last = row();
  }
  const elapsed = (performance.now() - begin) / 1000;
  slider.dispatchEvent(new Event("change", { bubbles: true }));
  const steps = frames.slice(1).map((at, i) => at - frames[i]).sort((a, b) => a - b);
  return {
    frames_per_second: frames.length / elapsed,
    updates_per_second: (frames.length / elapsed) * Math.min(1, updates / moves),
    frame_p95_ms: steps[Math.floor(0.95 * steps.length)],
  };
}"""
# `wait_for_function` would evaluate text, which the page's policy forbids.
SETTLE = """async () => {
  while (!explorer.isIdle) await new Promise((resolve) => setTimeout(resolve, 20));
}"""
ASK = """async (n) => {
  const { client, store } = explorer;
  const times = [];
  for (let i = 0; i < n; ++i) {
    const begin = performance.now();
    await client.call("curves", store.state.row, 200);
    times.push(performance.now() - begin);
  }
  return times.sort((a, b) => a - b)[n >> 1];
}"""


def fit_table(name: str, folder: Path) -> tuple[sf.Fitted, pa.Table, str]:
    """A model of a table, some of its rows, and the target."""
    train, test, target, loss = load(name, folder, part="test")
    fitted = sf.fit_model(train, target, loss=loss, training=sf.Training(seed=0))
    return fitted, test.slice(0, ROWS), target


def make_random() -> tuple[sf.Fitted, pa.Table, None]:
    """A random model with the shape of Criteo's data, and some rows."""
    table = pa.table(criteo_columns(CRITEO_ROWS, text=True))
    encoder = sf.fit_encoder(criteo_schema(table.column_names), table)
    return random_model(encoder, sf.FwFM(16)), table.slice(0, ROWS), None


def make_page(path: Path, fitted: sf.Fitted, rows: pa.Table, target: str | None) -> Result:
    """Write a page; its sizes and how long it took."""
    begin = time.perf_counter()
    payload = make_payload(fitted, rows, target=target)
    origin = Origin("model.sfm", "rows", len(rows), len(rows), target)
    path.write_text(Explorer(fitted, payload, origin).page(), encoding="utf-8")
    columns = payload.data["columns"]
    return {
        "features": fitted.encoder.layout.n_features,
        "kept": payload.data["model"]["features"],
        "crosses": payload.data["training"]["crosses"],
        "curves": sum(column["kind"] == "numerical" for column in columns),
        "page_mb": path.stat().st_size / 1e6,
        "make_s": time.perf_counter() - begin,
    }


def drag(browser: Any, path: Path, seconds: float, rounds: int) -> Result:
    """The best of several drags, and how long the page takes to open and to answer."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    begin = time.perf_counter()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=true]")
    page.evaluate(SETTLE)
    found: Result = {"open_s": time.perf_counter() - begin}
    page.evaluate(DRAG, 0.5)  # until the scripts are compiled
    drags = [page.evaluate(DRAG, seconds) for _ in range(rounds)]
    found |= max(drags, key=lambda one: float(one["updates_per_second"]))
    found["answer_ms"] = page.evaluate(ASK, 50)
    page.close()
    return found


def measure(options: argparse.Namespace) -> Result:
    """All pages."""
    from playwright.sync_api import sync_playwright

    models: dict[str, Callable[[], Any]] = {"criteo_shaped": make_random}
    if options.data is not None:
        models = {name: partial(fit_table, name, options.data) for name in ("california", "adult")} | models
    figures: Result = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        for name, make in models.items():
            say(f"{name}: model")
            path = Path(folder) / f"{name}.html"
            figures[name] = make_page(path, *make())
            say(f"{name}: drag")
            figures[name] |= drag(browser, path, *((2.0, 2) if options.quick else (5.0, 4)))
        browser.close()
    ratios = {f"{name}_updates_vs_60": each["updates_per_second"] / 60 for name, each in figures.items()}
    return {"figures": figures, "ratios": ratios | {"updates_vs_60": float(np.min(list(ratios.values())))}}


def main() -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, "two drags of two seconds instead of four of five")
    parser.add_argument("--data", type=Path, help="folder with california_housing.parquet and adult.parquet")
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, NAMES)), None), help="its path")
    options = parser.parse_args()
    if options.chromium is None:
        parser.error("there is no Chromium: apt-get install chromium, or say where it is with --chromium PATH")
    finish(__file__, measure(options), options)


if __name__ == "__main__":
    main()
