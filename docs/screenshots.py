"""Draw the screenshots of docs/explore.md again: real models, pages in the Chromium of the system.

python docs/screenshots.py --data DIR   # a folder with california_housing.parquet and adult.parquet
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import splinefm as sf
from splinefm.explore.explorer import make_explorer

IMAGES = Path(__file__).parent / "images"
# A row of the data with another age, and what it would take to reach a probability of one half.
WHAT_IF = """() => {
  const view = explorer.view("row");
  view.pick(8);
  explorer.setValue("age", 45, true);
  view.wanted.value = 0.5;
  view.search();
}"""


def make_page(folder: Path, data: Path, target: str, ignored: list[str]) -> str:
    """Fit a model with the defaults, and write its page; returns its address."""
    table = pq.read_table(data).drop_columns(ignored)
    loss = "squared" if pa.types.is_floating(table.schema.field(target).type) else "logistic"
    sf.fit_model(table, target, loss=loss).save(folder / f"{data.stem}.sfm")
    pq.write_table(table, folder / data.name)
    explorer = make_explorer(folder / f"{data.stem}.sfm", str(folder / data.name))
    path = folder / f"{data.stem}.html"
    path.write_text(explorer.page())
    return path.as_uri()


def shoot(
    browser: Browser, address: str, name: str, *, theme: Literal["light", "dark"] = "light", script: str = "() => {}"
) -> None:
    """Save what a view looks like, after a script has changed it."""
    context = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme=theme)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready=true]")
    page.evaluate(script)
    page.wait_for_timeout(2500)
    path = IMAGES / f"explore-{name}.png"
    page.screenshot(path=path)
    with Image.open(path) as image:  # 256 colors take half the bytes
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")
    context.close()


def hash_of(view: str, **state: object) -> str:
    """The part of an address that opens a view."""
    return f"#/{view}?" + "&".join(f"{name}={quote(json.dumps(value))}" for name, value in state.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        homes = make_page(Path(folder), data / "california_housing.parquet", "MedHouseVal", [])
        adult = make_page(Path(folder), data / "adult.parquet", "income", ["split", "fnlwgt"])
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        oakland = {"MedInc": 4.2, "Latitude": 37.8, "Longitude": -122.2}
        fresno = {"MedInc": 4.2, "Latitude": 36.75, "Longitude": -119.8}
        pins = [{"name": "A", "row": fresno}]
        shoot(browser, homes + hash_of("segment", row=oakland, pins=pins), "segment")
        surface = {"a": "Longitude", "b": "Latitude", "kind": "heat"}
        shoot(browser, homes + hash_of("surface", row=oakland, surface=surface), "surface", theme="dark")
        shoot(browser, adult + hash_of("row"), "row", script=WHAT_IF)
        browser.close()


if __name__ == "__main__":
    main()
