"""Pages of small models, opened in a browser: what tests of the page share."""

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import splinefm as sf
from splinefm.explore.explorer import Explorer
from splinefm.explore.fields import Origin
from splinefm.explore.payload import Items, make_payload
from splinefm.explore.server import ExploreServer
from splinefm.train.results import SearchEntry

EVIL = "<img src=x onerror=alert(1)>"
BREAKOUT = "</script><script>alert(2)</script>"
REVERSED = "\u202egnp.exe\u2066"
QUOTES = "a\"b'c`${alert(3)}&amp;"


def flats_table(rows=600, seed=0):
    """Rents by size, age, floor and district; some ages are missing."""
    rng = np.random.default_rng(seed)
    size, age, floor = rng.lognormal(4, 0.4, rows), rng.uniform(0, 100, rows), rng.integers(0, 9, rows)
    district = rng.choice(["center", "harbor", "hills", "suburb"], rows, p=[0.4, 0.3, 0.2, 0.1])
    rent = 8 * size * (1 + 0.4 * (district == "center")) - 2 * age + 15 * floor + rng.normal(0, 30, rows)
    age[rng.random(rows) < 0.1] = np.nan
    return pa.table({"size": size, "age": age, "floor": floor, "district": district, "rent": rent})


def fit_flats(table):
    """A model of rents."""
    schema = sf.Schema(
        [
            sf.Numerical("size", basis=sf.BSpline(segments=6)),
            sf.Numerical("age", basis=sf.BSpline(segments=5)),
            sf.Numerical("floor", basis=sf.BSpline(segments=3)),
            sf.Categorical("district"),
        ]
    )
    training = sf.Training(epochs=6, threads=1, effort="fast")
    fitted = sf.fit_model(table, "rent", schema=schema, loss="squared", model=sf.FwFM(k=3), training=training)
    return replace(fitted, search=tried("size × age"))


def tried(cross):
    """Settings that a fit may have tried, of which it chose the first."""
    chosen = SearchEntry("FwFM(k=3)", "6 segments", 1e-4, 1e-2, 4, (cross,), 6, 0.02, 0.001, 4, 1.5, is_chosen=True)
    return chosen, *(replace(chosen, crosses=(), loss=0.02 + 0.001 * i, is_chosen=False) for i in range(1, 30))


def hostile_explorer(rows=300, seed=0):
    """Names and values that would do harm as markup."""
    rng = np.random.default_rng(seed)
    kind = rng.choice([BREAKOUT, EVIL, REVERSED, QUOTES, "W" * 60], rows)
    x, n = rng.normal(size=rows), rng.integers(0, 4, rows)
    tags = [list(rng.choice([EVIL, "b"], rng.integers(0, 3), replace=False)) for _ in range(rows)]
    click = np.where(rng.logistic(size=rows) < x, EVIL, BREAKOUT)
    known = rng.choice(["__proto__", "constructor"], rows)
    table = pa.table({EVIL: x, BREAKOUT: kind, QUOTES: n, "tags": tags, "__proto__": known, REVERSED: click})
    schema = sf.Schema(
        [
            sf.Numerical(EVIL),
            sf.Categorical(BREAKOUT),
            sf.Numerical(QUOTES, special=[0.0]),
            sf.MultiValued("tags"),
            sf.Categorical("__proto__"),
        ]
    )
    training = sf.Training(epochs=1, threads=1, effort="fast")
    fitted = sf.fit_model(table, REVERSED, schema=schema, model=sf.FM(k=2), training=training)
    fitted = replace(fitted, search=tried(EVIL))
    items = Items(table.select([BREAKOUT]).slice(0, 4), [EVIL, BREAKOUT, REVERSED, QUOTES])
    return make_explorer_of(fitted, table, REVERSED, items=items, name=BREAKOUT)


def make_explorer_of(fitted, table, target, *, index=None, items=None, name="data.parquet"):
    """The explorer of a model and all rows of a table."""
    payload = make_payload(fitted, table, target=target, items=items, threads=1)
    return Explorer(fitted, payload, Origin("m.sfm", name, len(table), len(table), target), index)


class Visit:
    """A page in a browser, with everything that it asked for or complained about."""

    def __init__(self, context, address):
        self.page = context.new_page()
        self.asked, self.complaints = [], []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready=true]")

    def open(self, view, **state):
        """Open a view, with parts of the state, and wait for its plots."""
        parts = "&".join(f"{name}={json.dumps(value)}" for name, value in state.items())
        self.page.evaluate("hash => { location.hash = hash; }", f"#/{view}" + (f"?{parts}" if parts else ""))
        self.settle()

    def settle(self):
        """Wait until everything is drawn: changes of the address arrive late, and answers are drawn after they came."""
        self.page.evaluate(
            """async () => {
                const pause = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 5)));
                for (let quiet = 0; quiet < 3; quiet = explorer.isIdle ? quiet + 1 : 0) await pause();
            }"""
        )

    def table(self, title, within="main"):
        """The table behind a plot: names of columns, and rows of text."""
        card = self.page.locator(f"{within} figure", has=self.page.get_by_role("heading", name=title, exact=True))
        card.get_by_role("button", name="Table", exact=True).click()
        heads = card.locator(".behind thead th").all_inner_texts()
        rows = card.locator(".behind tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].map(c => c.textContent))"
        )
        card.get_by_role("button", name="Table", exact=True).click()
        return heads, rows

    @property
    def state(self):
        """The state of the page."""
        return self.page.evaluate("explorer.store.state")


@contextmanager
def visiting(browser, address, **options):
    """Open an address in a context of its own."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    try:
        yield Visit(context, address)
    finally:
        context.close()


@contextmanager
def serving(explorer):
    """Serve an explorer in a thread."""
    with ExploreServer(explorer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def shown_text(text):
    """Text as pages show it: control characters are replaced."""
    return re.sub("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", "\ufffd", text)


# Texts that are drawn over each other, or are cut off.
FAULTS = Path(__file__).with_name("layout_faults.js").read_text()
