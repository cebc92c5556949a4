"""A model whose columns and categories have hostile names, its report, and what a browser shows of reports."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from explorers import visiting

import splinefm as sf
from splinefm.explore.report import explain_file

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
    """A folder with model, data and the report of the model with hostile names, and the facts."""
    folder = tmp_path_factory.mktemp("hostile")
    hostile.save(folder / "m.sfm")
    pa.parquet.write_table(hostile_table, folder / "data.parquet")
    options = {"target": "<i>click", "sample": 300}
    return folder, explain_file(folder / "m.sfm", str(folder / "data.parquet"), folder / "report", **options)


@pytest.fixture
def read_report(request):
    """Return the texts that a browser shows of a report, and the number of plots above the rows; skips without one."""

    def read(folder):
        path = folder / "index.html"
        with visiting(request.getfixturevalue("browser"), path.as_uri(), offline=True) as visit:
            assert visit.complaints == [] and visit.asked == [path.as_uri()]
            return shown(visit), visit.page.locator("main section:not(#rows) svg.plot").count()

    return read


def shown(visit):
    """All texts of a report, also of what is folded."""
    return visit.page.evaluate("['.top', '#main'].map(name => document.querySelector(name).textContent).join(' ')")
