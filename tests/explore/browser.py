"""Chromium for tests of the page, and the engine of the page in it; tests skip where one is missing."""

import json
import os
import shutil
from pathlib import Path

import pytest

import splinefm

SCRIPTS = Path(splinefm.__file__).parent / "explore" / "js"
ORIGIN = "http://engine.test/"
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium():
    """Return the path of Chromium: what SPLINEFM_CHROMIUM says, or the one of the system; None without one."""
    return os.environ.get("SPLINEFM_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser():
    """A browser without a window."""
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright: pip install playwright")
    path = find_chromium()
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium, or set SPLINEFM_CHROMIUM to its path")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


class Engine:
    """The modules of js/engine in an empty page. They come from the disk: nothing is asked of a network."""

    def __init__(self, browser):
        self.page = browser.new_page()
        self.errors = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.route("**/*", _answer)
        self.page.goto(ORIGIN)
        self.page.evaluate(
            """async () => {
                window.engine = {
                    ...(await import("/engine/model.js")),
                    ...(await import("/engine/payload.js")),
                    ...(await import("/engine/encode/names.js")),
                    ...(await import("/engine/encode/dates.js")),
                    ...(await import("/engine/polynomials.js")),
                };
                window.plain = (key, value) => {
                    if (ArrayBuffer.isView(value)) return Array.from(value);
                    return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
                };
            }"""
        )

    def load(self, payload):
        """Make `model` from a payload."""
        self.page.evaluate(
            """text => {
                const { payload, buffers } = engine.decodePayload(text);
                window.model = engine.Model.from(payload, buffers);
            }""",
            payload.to_json(),
        )

    def call(self, method, *arguments):
        """Return what a method of the model returns; numbers that are not finite are text."""
        return self.calls(method, [arguments])[0]

    def calls(self, method, every):
        """Return what a method returns for each of several lists of arguments."""
        # As text: Playwright takes seconds for thousands of rows.
        text = self.page.evaluate(
            "([method, every]) => JSON.stringify(JSON.parse(every).map(args => model[method](...args)), plain)",
            [method, json.dumps([list(arguments) for arguments in every], allow_nan=False)],
        )
        return json.loads(text)

    def run(self, function, *arguments):
        """Return the result of a function of JavaScript, as JSON."""
        return self.page.evaluate(function, list(arguments))


@pytest.fixture(scope="session")
def engine(browser):
    """The engine of the page."""
    found = Engine(browser)
    yield found
    found.page.close()


def _answer(route):
    path = route.request.url.removeprefix(ORIGIN)
    file = SCRIPTS / path
    if not path:
        route.fulfill(body="<!doctype html><title>engine</title>", content_type="text/html")
    elif file.suffix == ".js" and file.is_file():
        route.fulfill(body=file.read_text(), content_type="text/javascript")
    else:
        route.abort()
