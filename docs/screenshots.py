"""Draw the screenshots of docs/explore.md again: real models, pages in the Chromium of the system.

python docs/screenshots.py --data DIR   # a folder with california_housing.parquet and adult.parquet
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
from playwright.sync_api import Browser, sync_playwright

import splinefm as sf
from splinefm.explore.making import ExploreRequest, make_explorer
from splinefm.learn.progress import SILENT

IMAGES = Path(__file__).parent / "images"
DARK, PHONE = {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 780}}


def make_page(folder: Path, data: Path, target: str, ignored: list[str]) -> str:
    """Fit a model with the defaults, and write its page; returns its address."""
    table = pq.read_table(data).drop_columns(ignored)
    loss = "logistic" if table.schema.field(target).type == "string" or "income" in target else "squared"
    sf.fit_model(table, target, loss=loss).save(folder / f"{data.stem}.sfm")
    pq.write_table(table, folder / data.name)
    explorer = make_explorer(ExploreRequest(folder / f"{data.stem}.sfm", str(folder / data.name)), SILENT)
    path = folder / f"{data.stem}.html"
    path.write_text(explorer.page())
    return path.as_uri()


def shoot(browser: Browser, address: str, name: str, options: dict[str, object], height: int = 860) -> None:
    """Save what a view looks like."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": height}, **options})  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready=true]")
    page.wait_for_timeout(1500)
    path = IMAGES / f"explore-{name}.png"
    page.screenshot(path=path)
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
        pins = [
            {
                "name": "A",
                "row": {
                    **fresno,
                    "HouseAge": 30,
                    "AveRooms": 5.2,
                    "AveBedrms": 1.05,
                    "Population": 1200,
                    "AveOccup": 2.8,
                },
            }
        ]
        shoot(browser, homes + hash_of("segment", row=oakland, pins=pins), "segment", {})
        surface = {"a": "Longitude", "b": "Latitude", "kind": "heat"}
        shoot(browser, homes + hash_of("surface", row=oakland, surface=surface), "surface", DARK)
        shoot(browser, adult + hash_of("row", row={"age": 48, "occupation": "Exec-managerial"}), "row", {})
        browser.close()


if __name__ == "__main__":
    main()
