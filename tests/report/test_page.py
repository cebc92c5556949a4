"""`splinefm explain`: the facts are those of the library, and the page shows them, whatever the columns are called."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import splinefm as sf
from splinefm.learn.losses import Loss
from splinefm.learn.metrics import auc, logloss
from splinefm.learn.progress import SILENT
from splinefm.report import explanation as module
from splinefm.report import survey as survey_module
from splinefm.report.effects import Effects
from splinefm.report.explanation import ExplainRequest, explain_file
from splinefm.report.markup import Html, escaped, joined, table, tag
from splinefm.report.survey import NOTHING, OTHERS, FieldTally

SCRIPT, QUOTES, FORMULA = "<script>alert(1)</script>", "a\"b'c&d>", r"$\frac$ {{content}}"
BREAKOUT = "</style></svg></script><img src=x onerror=alert(2)>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


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


def _fit(table, target="<i>click", schema=SCHEMA, model=None, **options):
    training = sf.Training(epochs=2, threads=1)
    return sf.fit_model(table, target, schema=schema, model=model or sf.FM(k=2), training=training, **options)


@pytest.fixture(scope="module")
def hostile_table():
    return _hostile_table()


@pytest.fixture(scope="module")
def hostile(hostile_table):
    return _fit(hostile_table)


@pytest.fixture(scope="module")
def made(hostile, hostile_table, tmp_path_factory):
    """A folder with model, data and the page of the model with hostile names, and the facts."""
    folder = tmp_path_factory.mktemp("hostile")
    hostile.save(folder / "m.sfm")
    pa.parquet.write_table(hostile_table, folder / "data.parquet")
    request = ExplainRequest(folder / "m.sfm", str(folder / "data.parquet"), folder / "report", "<i>click", sample=300)
    return folder, explain_file(request)


@pytest.fixture(scope="module")
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


# The facts


def test_facts_are_those_of_the_library(made, hostile, hostile_table):
    _, facts = made
    assert facts["data"]["rows"] == 500 and facts["data"]["sample_rows"] == 300
    assert facts["data"]["other_columns"] == ["<i>click", "n"] and facts["model"]["classes"] == (
        "<b>no</b>",
        "<b>yes</b>",
    )
    y = np.array(hostile_table["<i>click"].to_pylist()) == "<b>yes</b>"
    assert facts["metrics"]["auc"] == pytest.approx(auc(y, hostile.predict(hostile_table)))
    sample = hostile_table.take(pa.array(_numbers(made)))
    expected = sf.importance(hostile, sample, sample)
    ranked = [(one["name"], pytest.approx(one["shapley"])) for one in facts["importance"]["fields"]]
    assert ranked == expected.ranked_fields()
    one, other, effect = expected.ranked_pairs()[0]
    assert facts["importance"]["pairs"][0] == {"fields": [one, other], "effect": pytest.approx(effect)}
    json.dumps(facts, allow_nan=False)


def _numbers(made):
    """The rows of the sample."""
    folder, _ = made
    sample = module.make_explanation(
        ExplainRequest(folder / "m.sfm", str(folder / "data.parquet"), target="<i>click", sample=300), SILENT
    ).survey
    return sample.numbers


def test_curves_and_surfaces_are_partial_dependences(made, hostile, hostile_table):
    _, facts = made
    sample = hostile_table.take(pa.array(_numbers(made)))
    for curve in facts["curves"]:
        name = curve["along"][0]
        places = curve.get("x", curve.get("categories"))
        grid = [[place] for place in places] if name == "tags" else places
        assert np.allclose(curve["scores"], sf.partial_dependence(hostile, name, grid, sample), atol=1e-5)
    surface = facts["surfaces"][0]
    x, y = surface["along"]
    i, j = len(surface["x"]) - 1, len(surface["y"]) // 2
    columns = {name: sample[name] for name in SCHEMA.names}
    for name, value in ((x, surface["x"][i]), (y, surface["y"][j])):
        columns[name] = [[value] if name == "tags" else value] * 300
    assert surface["scores"][i][j] == pytest.approx(hostile.scores(columns).mean(), abs=1e-5)


def test_examples_add_up(made, hostile, hostile_table):
    _, facts = made
    titles = [example["title"] for example in facts["examples"]]
    assert titles[:2] == ["the lowest prediction", "the median prediction"] and any(
        "the largest overestimate" in title for title in titles
    )
    p = hostile.predict(hostile_table)
    for example in facts["examples"]:
        score = facts["base"] + sum(example["shapley"].values())
        assert example["prediction"] == pytest.approx(p[example["row"]], abs=1e-6)
        assert hostile.loss.predict(np.array(score)) == pytest.approx(p[example["row"]], abs=1e-5)
        assert example["values"][QUOTES] == hostile_table[QUOTES][example["row"]].as_py()


def test_groups_are_complete_and_their_means_right(made, hostile, hostile_table):
    _, facts = made
    p, y = hostile.predict(hostile_table), np.array(hostile_table["<i>click"].to_pylist()) == "<b>yes</b>"
    by_column = {one["column"]: one["groups"] for one in facts["calibration"]["by_column"]}
    kinds = np.array(hostile_table[QUOTES].to_pylist())
    for group in by_column[QUOTES]:
        rows = kinds == group["group"]
        assert group["rows"] == rows.sum() and group["predicted"] == pytest.approx(p[rows].mean())
        assert group["measured"] == pytest.approx(y[rows].mean())
        sigma = np.sqrt((p[rows] * (1 - p[rows])).sum())
        assert group["deviation"] == pytest.approx((p[rows] - y[rows]).sum() / sigma)
    for name in (SCRIPT, FORMULA):
        assert sum(group["rows"] for group in by_column[name]) == 500
        assert 8 <= len(by_column[name]) <= 13
    zero = next(group for group in by_column[SCRIPT] if group["group"] == "= 0")
    assert zero["rows"] == (hostile_table[SCRIPT].to_numpy() == 0).sum()
    deviating = [abs(group["deviation"]) for group in facts["calibration"]["deviating"]]
    assert deviating == sorted(deviating, reverse=True)
    predicted, measured = (np.array(facts["calibration"]["bins"][name]) for name in ("predicted", "measured"))
    assert (np.diff(predicted) > 0).all() and measured.mean() == pytest.approx(y.mean(), abs=0.02)


def test_fields_tell_what_is_missing_special_and_starved(made, hostile, hostile_table):
    fields = {field["name"]: field for field in made[1]["fields"]}
    missing = np.isnan(hostile_table[FORMULA].to_numpy(zero_copy_only=False)).mean()
    assert fields[FORMULA]["missing"] == pytest.approx(missing) == fields[FORMULA]["missing_in_training"]
    assert fields[SCRIPT]["special_values"] == {"= 0": pytest.approx((hostile_table[SCRIPT].to_numpy() == 0).mean())}
    empty = np.mean([not tags for tags in hostile_table["tags"].to_pylist()])
    assert fields["tags"]["without_category"] == pytest.approx(empty) and fields["tags"]["rare_or_unseen"] == 0
    starved = hostile.encoder.starvation().functions
    assert fields[SCRIPT]["starved"] == sum(one.starved for one in starved if one.field == SCRIPT)


def test_a_column_is_cut_into_intervals_of_the_data():
    tally = FieldTally(sf.Numerical("x", sf.MinMax(0, 100), special=[">= 90"]))
    x, ones = np.arange(0.0, 100.0), np.ones(100)
    for part in (slice(0, 30), slice(30, 100)):  # in chunks, which must not matter
        tally.add(pa.array(x[part]), ones[part], x[part], x[part], ones[part])
    groups = tally.groups()
    assert groups[0].name == "(>= 90)" and groups[0].rows == 10
    assert groups[1].name == "0 to 8" and groups[-1].name.endswith("to 89") and len(groups) == 11
    assert all(group.deviation == 0.0 and group.predicted == pytest.approx(group.measured) for group in groups)


def test_large_values_keep_their_digits():
    tally = FieldTally(sf.Numerical("time", sf.MinMax(1.7e9, 1.8e9)))
    tally.add(pa.array([1_704_067_200.0, 1_704_067_201.0]), *[np.ones(2)] * 4)
    assert [group.name for group in tally.groups()] == ["1,704,067,200 to 1,704,067,201"]


def test_frequent_categories_are_told_apart_and_others_are_not(monkeypatch):
    monkeypatch.setattr(survey_module, "MOST_CATEGORIES", 2)
    tally = FieldTally(sf.Categorical("c", vocabulary=["a", "b", "d", "e"], unseen="neutral"))
    ones = np.ones(6)
    tally.add(pa.array(["a", "d", "e", "new", None, "b"]), ones, ones, np.full(6, np.nan), ones)
    found = {group.name: group.rows for group in tally.groups()}
    assert found == {"(missing)": 1, "a": 1, "b": 1, OTHERS: 2, NOTHING: 1}
    assert tally.token_rows() == {"missing": 1, NOTHING: 1}


def test_groups_of_categories_are_in_their_order_and_all_others_last(monkeypatch):
    monkeypatch.setattr(survey_module, "MOST_CATEGORIES", 3)
    tally = FieldTally(sf.Categorical("code", vocabulary=["10", "9", "100", "1"], unseen="neutral"))
    values, ones = ["100", "10", "9", "1", None, "new"], np.ones(6)
    tally.add(pa.array(values), ones, ones, np.full(6, np.nan), ones)
    assert [group.name for group in tally.groups()] == ["(missing)", "9", "10", "100", OTHERS, NOTHING]
    assert [group.name for group in survey_module.largest(tally.groups(), 2)] == ["(missing)", "9"]


@pytest.mark.usefixtures("empty_plots")
def test_the_page_shows_numbers_in_order_and_only_what_training_met(run, tmp_path):
    rng = np.random.default_rng(0)
    code = rng.permutation([str(n) for n in range(30) for _ in range(n + 1)])  # the larger, the more frequent
    part = pa.table({"code": code, "x": rng.random(len(code)), "y": rng.normal(size=len(code))})
    schema = sf.Schema([sf.Categorical("code"), sf.Numerical("x", basis=sf.BSpline(segments=4))])
    fitted = _fit(part, "y", schema, loss="squared")
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--target", "y", "--out", "r", "--json").stdout)
    curves = {curve["along"][0]: curve for curve in facts["curves"]}
    assert curves["code"]["categories"] == [str(n) for n in range(30)] and curves["code"]["tokens"] == {}
    by_column = {
        one["column"]: [group["group"] for group in one["groups"]] for one in facts["calibration"]["by_column"]
    }
    assert by_column["code"] == [str(n) for n in range(30)]
    text = (tmp_path / "r" / "index.html").read_text()
    (named,) = re.findall(r"Highest \S+ for (\d+), lowest \S+ for (\d+)\.", text)
    assert min(map(int, named)) >= 10, "only of the 20 that are drawn"
    assert curves["x"]["tokens"] == {} and "missing: " not in text


@pytest.mark.parametrize(("loss", "variance"), [("squared", 4.0), ("poisson", 3.0), ("logistic", 0.1875)])
def test_the_variance_of_a_target_suits_the_loss(loss, variance):
    p = 0.25 if loss == "logistic" else 3.0
    assert survey_module._variance(Loss(loss), np.array([p]), np.array([1.0])) == variance


def test_without_a_target(run, made, page):
    folder, _ = made
    facts = json.loads(run("explain", folder / "m.sfm", folder / "data.parquet", "--json", "--sample", 50).stdout)
    assert facts["metrics"] == {} and facts["calibration"] is None and "page" not in facts
    assert [example["target"] for example in facts["examples"]] == [None] * 3


def test_weights_change_metrics(run, model, data, fitted, table):
    arguments = ("explain", model, data, "--target", "click", "--json")
    weighted = json.loads(run(*arguments, "--weight", "views").stdout)
    y, w = np.array(table["click"].to_pylist()) == "yes", table["views"].to_numpy()
    assert weighted["metrics"]["logloss"] == pytest.approx(logloss(y, fitted.predict(table), w), abs=1e-6)
    assert weighted["metrics"]["logloss"] != json.loads(run(*arguments).stdout)["metrics"]["logloss"]


def test_csv_on_the_standard_input(run, model, table, write, tmp_path):
    csv = write(table, tmp_path / "data.csv").read_bytes()
    piped = json.loads(run("explain", model, "-", "--target", "click", "--json", stdin=csv).stdout)
    read = json.loads(run("explain", model, "data.csv", "--target", "click", "--json").stdout)
    for facts in (piped, read):
        facts["data"].pop("file"), facts.pop("seconds")
    assert piped == read


def test_chunks_do_not_matter(run, model, data, monkeypatch):
    def numbers():
        facts = json.loads(run("explain", model, data, "--target", "click", "--json").stdout)
        return facts["metrics"], facts["importance"], facts["calibration"]["by_column"]

    whole = numbers()
    monkeypatch.setattr(survey_module, "ROWS", 70)
    for one, other in zip(whole, numbers(), strict=True):
        assert json.dumps(_rounded(one)) == json.dumps(_rounded(other))


def _rounded(value):
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.usefixtures("empty_plots")
def test_a_regression_is_told_in_the_unit_of_its_target(run, table, tmp_path):
    schema = sf.Schema([sf.Numerical("price", basis=sf.BSpline(segments=4)), sf.Categorical("city")])
    part = table.select(["price", "city", "amount"])
    fitted = _fit(part, "amount", schema, loss="squared")
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--target", "amount", "--out", "r", "--json").stdout)
    expected = sf.importance(fitted, part, part)
    assert facts["importance"]["fields"][0]["shapley"] == pytest.approx(expected.shapley.max() * fitted.loss.scale)
    example = facts["examples"][0]
    whole = facts["base"] + sum(example["shapley"].values())
    assert whole == pytest.approx(example["prediction"], rel=1e-4) and facts["unit"] == "units of the target"
    assert "RMSE" in (tmp_path / "r" / "index.html").read_text()


@pytest.mark.usefixtures("empty_plots")
def test_a_higher_order_model_says_what_it_lacks(run, table, tmp_path):
    schema = sf.Schema([sf.Numerical("price", basis=sf.BSpline(segments=4)), sf.Categorical("city")])
    part = table.select(["price", "city", "click"])
    fitted = _fit(part, "click", schema, sf.HigherOrderFM(k=3, order=3))
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--target", "click", "--out", "r", "--json").stdout)
    assert facts["importance"] is None and "HigherOrderFM" in facts["not_available"] and facts["surfaces"] == []
    expected = fitted.segment({}, "price", rest="mean", background=part)
    curve = next(curve for curve in facts["curves"] if curve["along"] == ["price"])
    assert np.allclose(curve["scores"], expected(curve["x"]))
    assert all(not example["shapley"] for example in facts["examples"]) and facts["calibration"]["deviating"]
    text = (tmp_path / "r" / "index.html").read_text()
    assert text.count("not available") == 3 and text.count("<svg") == 4  # history, two curves, calibration
    Reader(text)


@pytest.mark.usefixtures("empty_plots")
@pytest.mark.parametrize("which", ["price", "tags"])
def test_fields_with_several_vectors_have_curves_on_a_grid(run, tmp_path, which):
    rng = np.random.default_rng(0)
    tags = [["a", "b"][: n + 1] for n in rng.integers(0, 2, 200)]
    part = pa.table({"price": rng.random(200), "tags": tags, "y": rng.random(200)})
    reductions = dict.fromkeys(("price", "tags"), "sum") | {which: "identity"}
    schema = sf.Schema(
        [
            sf.Numerical("price", basis=sf.BSpline(segments=4), reduction=reductions["price"]),
            sf.MultiValued("tags", reduction=reductions["tags"]),
        ]
    )
    fitted = _fit(part, "y", schema, loss="squared")
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--out", "r", "--json").stdout)
    curves = {curve["along"][0]: curve for curve in facts["curves"]}
    assert np.allclose(
        curves["price"]["scores"], sf.partial_dependence(fitted, "price", curves["price"]["x"], part), atol=1e-6
    )
    assert curves["tags"]["categories"] == ["a", "b"] and facts["surfaces"] == []
    text = (tmp_path / "r" / "index.html").read_text()
    assert "no pair of fields to plot" in text and text.count("<svg") == 4  # history, pairs, two curves


@pytest.mark.usefixtures("empty_plots")
def test_one_field_and_one_row(run, tmp_path):
    x = np.linspace(0, 1, 50)
    _fit({"x": x, "y": x}, "y", sf.Schema([sf.Numerical("x", basis=sf.BSpline(4))]), loss="squared").save(
        tmp_path / "m.sfm"
    )
    (tmp_path / "one.csv").write_text("x,y\n0.5,0.4\n")
    run("explain", "m.sfm", "one.csv", "--target", "y", "--out", "report")
    Reader((tmp_path / "report" / "index.html").read_text())


# The page


def test_the_page_is_well_formed_and_complete(page, made):
    reader = Reader(page)
    text = " ".join(reader.texts)
    for part in ("Overview", "Fields", "Importance", "Curves", "Surfaces", "Calibration", "Example rows"):
        assert part in text
    assert "a random sample of 300 is explained" in text and "logloss" in text and "Strongest pairs" in text
    targets = {attributes["href"] for name, attributes in reader.elements if name == "a"}
    anchors = {f"#{attributes['id']}" for name, attributes in reader.elements if name == "section"}
    assert targets == anchors and len(anchors) == 7
    plots = [attributes for name, attributes in reader.elements if name == "svg"]
    facts = made[1]
    assert len(plots) == 3 + len(facts["curves"]) + len(facts["surfaces"])
    assert all(len(plot["aria-label"]) > 20 and plot["role"] == "img" for plot in plots)
    names = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(names) == len(set(names))
    assert len(page.encode()) == facts["page_bytes"] < 3_000_000


def test_names_are_shown_as_they_are_and_do_nothing(page):
    reader = Reader(page)
    names = [name for name, _ in reader.elements]
    assert names.count("script") == 1 and names.count("style") == 1 + names.count("svg") and "img" not in names
    assert not [key for _, attributes in reader.elements for key in attributes if key.startswith("on")]
    cells = [text.strip() for text in reader.texts]
    for name in (SCRIPT, QUOTES, FORMULA, BREAKOUT, "tags"):
        assert name in cells
    assert "\x07" not in page and "\u202e" not in page and any("gnp.exe\ufffd" in text for text in cells)
    assert "x" * 100 not in re.sub(r'title="[^"]*"|aria-label="[^"]*"', "", page)


def test_the_page_asks_for_nothing(page):
    reader = Reader(page)
    links = [
        value
        for _, attributes in reader.elements
        for key, value in attributes.items()
        if key in ("href", "src", "xlink:href", "srcset", "action", "data")
    ]
    assert links and all(link.startswith(("#", "data:")) for link in links)
    assert all(place.startswith("#") for place in re.findall(r"url\(([^)]*)\)", page)) and "@import" not in page
    policy = next(attributes["content"] for _, attributes in reader.elements if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'") and "script-src 'sha256-" in policy
    spaces = {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    assert set(re.findall(r"https?://[^\"' <]*", page)) <= spaces


def test_the_same_input_gives_the_same_page(made, page):
    folder, _ = made
    request = ExplainRequest(folder / "m.sfm", str(folder / "data.parquet"), folder / "again", "<i>click", sample=300)
    explain_file(request)
    assert (folder / "again" / "index.html").read_text() == page


@pytest.mark.usefixtures("empty_plots")
def test_a_page_is_never_half_written(run, model, table, write, tmp_path, monkeypatch):
    data = write(table, tmp_path / "data.csv")
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").write_text("old")

    def fail(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("splinefm.learn.files.container.os.fsync", fail)
        assert "no space left" in run("explain", model, data, "--target", "click", "--out", "report", code=1).stderr
    assert (tmp_path / "report" / "index.html").read_text() == "old"
    run("explain", model, data, "--target", "click", "--out", "report", "--quiet")
    assert (tmp_path / "report" / "index.html").read_text().startswith("<!doctype html>")
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["index.html"]


@pytest.mark.usefixtures("empty_plots")
def test_what_is_printed(run, model, table, write, tmp_path):
    data = write(table, tmp_path / "data.csv")
    result = run("explain", model, data, "--target", "click", "--out", "report")
    for part in ("probability of 'yes'", "300 rows", "logloss", "price", "price × city", "report/index.html"):
        assert part in result.stdout


def test_html_is_escaped_unless_it_is_html():
    assert tag("a", "<", Html("<b>"), title='"', hidden=True, x=None) == '<a title="&quot;" hidden>&lt;<b></a>'
    assert escaped("\x00\ud800") == "\ufffd\ufffd" and joined(["&", Html("&amp;")]) == "&amp;&amp;"
    assert "<td>&lt;script&gt;</td>" in table(["a"], [["<script>"]])


# A browser


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium here: on Debian, apt-get install chromium")

    def visit(path, *options):
        """The document after its scripts have run, the console, and the addresses that the page asked for."""
        home = tmp_path_factory.mktemp("browser")
        quiet = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
        quiet += " disable-component-update disable-sync disable-dev-shm-usage enable-logging=stderr v=0 dump-dom"
        log = home / "net.json"
        command = [CHROMIUM, *(f"--{option}" for option in quiet.split()), f"--user-data-dir={home / 'user'}"]
        # Names are not resolved: the browser itself would ask for this and that.
        command += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--log-net-log={log}", "--virtual-time-budget=3000"]
        done = subprocess.run([*command, *options, path.as_uri()], capture_output=True, timeout=180, cwd=home)
        assert done.returncode == 0, done.stderr.decode()
        console = [line for line in done.stderr.decode().splitlines() if "CONSOLE" in line]
        return done.stdout.decode(), console, _asked(json.loads(log.read_text()))

    return visit


def _asked(log):
    """Addresses beyond the page itself that a page, not the browser, began to load."""
    began = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    found = [event.get("params", {}) for event in log["events"] if event["type"] == began]
    return [request["url"] for request in found if request.get("initiator") not in (None, "not an origin")]


def test_a_browser_shows_the_page_without_errors_and_without_a_network(browse, made):
    document, console, asked = browse(made[0] / "report" / "index.html")
    assert console == [] and asked == []
    assert document.count("<svg") == 3 + len(made[1]["curves"]) + len(made[1]["surfaces"])
    elements = Reader(document).elements
    assert [name for name, _ in elements].count("script") == 1
    assert any("aria-current" in attributes for _, attributes in elements)  # the script of the page has run


def test_the_browser_tells_of_faults(browse, tmp_path):
    bad = '<!doctype html><body><img src="http://127.0.0.1:9/x.png"><script>nothing();</script>'
    (tmp_path / "bad.html").write_text(bad)
    _, console, asked = browse(tmp_path / "bad.html")
    assert "nothing is not defined" in console[0] and asked == ["http://127.0.0.1:9/x.png"]


def test_tables_are_sorted_and_a_narrow_window_is_not_too_wide(browse, made):
    (made[0] / "frame.html").write_text(
        """<!doctype html><body><iframe src="report/index.html" style="width: 360px; height: 700px"></iframe>
<pre></pre><script>
document.querySelector("iframe").addEventListener("load", (event) => {
  const page = event.target.contentDocument;
  const table = page.querySelector("#importance table.sortable");
  const [field, , shapley] = table.querySelectorAll("th button");
  const order = () => [...table.tBodies[0].rows].map((row) => row.cells[2].dataset.value);
  const orders = [order()];
  for (const head of [field, shapley, shapley]) { head.click(); orders.push(order()); }
  const [outer, inner] = [page.documentElement.clientWidth, page.documentElement.scrollWidth];
  document.querySelector("pre").textContent = JSON.stringify({orders, outer, inner});
});
</script>"""
    )
    document, console, _ = browse(made[0] / "frame.html", "--allow-file-access-from-files")
    found = json.loads(re.search("<pre>(.*)</pre>", document)[1])
    given, by_name, falling, rising = [[float(value) for value in order] for order in found["orders"]]
    assert console == [] and given == falling == sorted(given, reverse=True) and rising == sorted(given)
    assert sorted(by_name) == rising and found["inner"] <= found["outer"] <= 360


# Bad input


@pytest.mark.parametrize(
    "arguments",
    [
        ["--out", "report"],
        ["data.csv"],
        ["data.csv", "--out", "report", "--sample", "0"],
        ["data.csv", "--out", "report", "--threads", "0"],
        ["data.csv", "--out", "report", "--weight", "views"],
        ["data.csv", "--out", "report", "--nonsense"],
    ],
)
def test_wrong_usage_exits_with_2(run, model, arguments):
    assert "Error" in run("explain", model, *arguments, code=2).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv"], "no file or folder 'none.csv'"),
        (["other.csv"], "no column 'price'"),
        (["empty.csv"], "has no rows to explain"),
        (["text.csv"], "price"),
        (["data.csv", "--target", "clik"], "nearest: 'click'"),
        (["data.csv", "--target", "price"], "is a field of the model"),
        (["data.csv", "--target", "city"], "is a field of the model"),
        (["data.csv", "--target", "amount"], "amount"),
        (["data.csv", "--target", "click", "--weight", "wait"], "no column 'wait'"),
        (["data.csv", "--target", "click", "--weight", "amount"], "at least 0"),
        (["data.csv", "--target", "click", "--weight", "zero"], "'zero' is 0 throughout"),
        (["data.csv", "--out", "data.csv"], "is a file; give a folder"),
        (["data.csv", "--out", "report.html"], "must be a folder; the page in it will be index.html"),
        (["data.csv", "--out", "no/where"], "no folder"),
        (["data.csv", "--out", "blocked"], "is a folder"),
    ],
)
def test_bad_input_is_a_message(run, model, table, write, tmp_path, arguments, message):
    write(table.append_column("zero", pa.array(np.zeros(300))), tmp_path / "data.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty.csv").write_text("price,city\n")
    (tmp_path / "text.csv").write_text("price,city\ncheap,Rome\n")
    (tmp_path / "blocked" / "index.html").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    arguments = arguments if "--out" in arguments else [*arguments, "--out", "report"]
    result = run("explain", model, *arguments, code=1)
    assert message in result.stderr and result.stderr.startswith("splinefm: ") and not result.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_without_matplotlib_there_are_facts_but_no_page(run, model, data, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "splinefm.plots.figures"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delattr("splinefm.plots.figures", raising=False)
    assert "pip install 'splinefm[plots]'" in run("explain", model, data, "--out", "report", code=1).stderr
    assert not (tmp_path / "report").exists()
    assert json.loads(run("explain", model, data, "--json").stdout)["importance"]


def test_effects_of_nothing_are_nothing():
    nothing = Effects("log-odds", None, 0, None, [], [], [], "because")
    assert replace(nothing, reason="").to_dict()["not_available"] is None


def test_the_template_is_part_of_the_package():
    assert (Path(module.__file__).parent / "page.html").is_file()


@pytest.mark.parametrize("model", [sf.FwFM(k=2), sf.HigherOrderFM(k=2, order=4)], ids=str)
def test_a_model_with_crosses(model, tmp_path):
    rng = np.random.default_rng(0)
    rows = {"lat": rng.random(400), "long": rng.normal(size=400), "kind": rng.choice(list("abc"), 400)}
    rows["zone"] = rng.choice(list("uv"), 400)
    rows["y"] = np.sin(5 * rows["lat"]) * rows["long"] + (rows["kind"] == "a") * (rows["zone"] == "u")
    schema = sf.Schema(
        [
            sf.Numerical("lat"),
            sf.Numerical("long"),
            sf.Categorical("kind"),
            sf.Cross("lat", "long", segments=(4, 12)),
            sf.Cross("kind", sf.Categorical("zone")),
        ]
    )
    fitted = _fit(pa.table(rows), "y", schema, model, loss="squared")
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(pa.table(rows), tmp_path / "data.parquet")
    request = ExplainRequest(tmp_path / "m.sfm", str(tmp_path / "data.parquet"), tmp_path / "report", "y", sample=120)
    facts = explain_file(request)
    assert [field["name"] for field in facts["fields"]] == ["lat", "long", "kind", "lat × long", "kind × zone"]
    assert facts["fields"][3]["functions"] == [[7, 7], [15, 15]] and facts["fields"][3]["missing"] == 0.0
    curves = {curve["along"][0]: curve for curve in facts["curves"]}
    assert {"lat", "long", "kind"} <= set(curves) <= {"lat", "long", "kind", "zone"}
    # Partial dependence: the mean score of the sample with one column set to a value.
    sample = pa.table(rows).take(pa.array(survey_rows(request, fitted)))
    for name in curves:
        key = "x" if "x" in curves[name] else "categories"
        value, score = curves[name][key][2 % len(curves[name][key])], curves[name]["scores"][2 % len(curves[name][key])]
        changed = sample.set_column(sample.column_names.index(name), name, pa.array([value] * len(sample)))
        assert score == pytest.approx(fitted.scores(changed).mean(), abs=1e-4), name
    page = (tmp_path / "report" / "index.html").read_text()
    assert "7 by 7 + 15 by 15 functions" in page
    assert "lat × long" not in {column["column"] for column in facts["calibration"]["by_column"]}


def survey_rows(request, fitted):
    found = survey_module.survey(fitted, request.data, request.target, None, request.sample, 1, SILENT)
    return found.numbers
