"""A model whose columns and categories have hostile names, its page, and a reader of pages."""

from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest

import splinefm as sf
from splinefm.report.explanation import ExplainRequest, explain_file

SCRIPT, QUOTES, FORMULA = "<script>alert(1)</script>", "a\"b'c&d>", r"$\frac$ {{content}}"
BREAKOUT = "</style></svg></script><img src=x onerror=alert(2)>"


def _hostile_table(rows=500, seed=0):
    rng = np.random.default_rng(seed)
    amount = np.where(rng.random(rows) < 0.2, 0.0, rng.lognormal(1, 1, rows))
    kind = rng.choice([BREAKOUT, "plain", "\u202egnp.exe\x07", "x" * 300], rows, p=[0.5, 0.3, 0.1, 0.1])
    age = np.where(rng.random(rows) < 0.1, np.nan, rng.integers(18, 80, rows))
    tags = [list(rng.choice([SCRIPT, "b"], rng.integers(0, 3), replace=False)) for _ in range(rows)]
    score = np.log1p(amount) * (kind == BREAKOUT) + 0.02 * np.nan_to_num(age) - 1.0
    click = np.where(rng.logistic(size=rows) < score, "<b>yes</b>", "<b>no</b>")
    return pa.table(
        {SCRIPT: amount, QUOTES: kind, FORMULA: age, "tags": tags, "<i>click": click, "n": np.arange(rows) % 3}
    )


SCHEMA = sf.Schema(
    [
        sf.Numerical(SCRIPT, basis=sf.BSpline(segments=4), special=[0.0]),
        sf.Categorical(QUOTES),
        sf.Numerical(FORMULA, basis=sf.BSpline(segments=4)),
        sf.MultiValued("tags"),
    ]
)


def fit_part(table, target="<i>click", schema=SCHEMA, model=None, **options):
    training = sf.Training(epochs=2, threads=1)
    return sf.fit_model(table, target, schema=schema, model=model or sf.FM(k=2), training=training, **options)


@pytest.fixture(scope="session")
def hostile_table():
    return _hostile_table()


@pytest.fixture(scope="session")
def hostile(hostile_table):
    return fit_part(hostile_table)


@pytest.fixture(scope="session")
def made(hostile, hostile_table, tmp_path_factory):
    """A folder with model, data and the page of the model with hostile names, and the facts."""
    folder = tmp_path_factory.mktemp("hostile")
    hostile.save(folder / "m.sfm")
    pa.parquet.write_table(hostile_table, folder / "data.parquet")
    request = ExplainRequest(folder / "m.sfm", str(folder / "data.parquet"), folder / "report", "<i>click", sample=300)
    return folder, explain_file(request)


@pytest.fixture(scope="session")
def page(made):
    return (made[0] / "report" / "index.html").read_text()


class Reader(HTMLParser):
    """Texts and elements of a page; every element that is opened must be closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in ("meta", "link"):
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, text):
        if "script" not in self.open and "style" not in self.open:
            self.texts.append(text)
