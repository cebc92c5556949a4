"""`splinefm view`: the curves of the library, for the segments that the options name."""

import json
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import splinefm as sf
from splinefm.cli import view
from splinefm.cli.segments import parse_segments
from splinefm.inspect import rows as samples
from splinefm.inspect.rows import RowSample
from splinefm.inspect.values import category_counts, value_grid
from support import random_fitted


def _make_rich_table(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    recency = np.where(rng.random(rows) < 0.2, 0.0, rng.gamma(2.0, 5.0, rows))
    city = rng.choice(["Rome", "Oslo", "Lima=Peru", "[red]Paris"], rows, p=[0.4, 0.3, 0.2, 0.1])
    tags = [list(rng.choice(["a", "b", "c"], rng.integers(0, 3), replace=False)) for _ in range(rows)]
    age = np.where(rng.random(rows) < 0.1, np.nan, rng.integers(18, 80, rows))
    score = np.sin(recency / 4) * (city == "Rome") + 0.02 * np.nan_to_num(age) - 0.5
    return pa.table(
        {
            "recency": recency,
            "age": age,
            "city": city,
            "tags": tags,
            "click": np.where(rng.logistic(size=rows) < score, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def rich_table():
    return _make_rich_table()


@pytest.fixture(scope="module")
def training_rows():
    return _make_rich_table(380, seed=1)


@pytest.fixture(scope="module")
def rich(training_rows):
    schema = sf.Schema(
        [
            sf.Numerical("recency", basis=sf.BSpline(segments=6), special=[0.0]),
            sf.Numerical("age", basis=sf.BSpline(segments=4)),
            sf.Categorical("city"),
            sf.MultiValued("tags"),
        ]
    )
    return sf.fit_model(
        training_rows, "click", schema=schema, model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1)
    )


@pytest.fixture
def rich_model(rich, rich_table, write, tmp_path):
    rich.save(tmp_path / "rich.sfm")
    write(rich_table, tmp_path / "rich.parquet")
    return "rich.sfm"


def seen(run, *arguments):
    return json.loads(run("view", *arguments, "--json").stdout)


# What is shown


def test_values_that_a_cross_knows_are_printed_and_nothing_in_between(run, tmp_path):
    schema = sf.Schema([sf.Numerical("hour", sf.MinMax()), sf.Cross(sf.Categorical("hour"), name="hour (values)")])
    fitted = random_fitted(sf.FwFM(k=2), schema, {"hour": np.arange(96.0) % 24}, loss="squared", scale=1.0)
    fitted.save(tmp_path / "hours.sfm")
    scores = fitted.scores({"hour": np.arange(24.0)})
    lines = run("view", "hours.sfm", "--along", "hour", "--score").stdout.splitlines()
    printed = [line.split() for line in lines if line.split() and line.split()[0].isdigit()]
    assert [int(hour) for hour, _ in printed] == [*range(24)]
    assert [float(score) for _, score in printed] == pytest.approx(scores.tolist(), rel=1e-3)
    assert f"at {np.argmax(scores)}, minimum" in lines[-1]
    assert seen(run, "hours.sfm", "--along", "hour")["views"][0]["x"] == [*range(24)]


def test_a_curve_is_that_of_the_library(run, model, fitted):
    found = seen(run, model, "--along", "price", "--segment", "city=Rome")
    assert found["along"] == ["price"] and found["averaged"] == [] and len(found["views"]) == 1
    curve = found["views"][0]
    rows = {"price": curve["x"], "city": ["Rome"] * len(curve["x"])}
    assert np.allclose(curve["predictions"], fitted.predict(rows), atol=1e-6)
    assert np.allclose(curve["scores"], fitted.scores(rows), atol=1e-5)
    assert curve["maximum"]["prediction"] >= max(curve["predictions"]) - 1e-9
    assert curve["minimum"]["prediction"] <= min(curve["predictions"]) + 1e-9


def test_fields_that_are_not_named_are_averaged(run, rich_model, rich, rich_table):
    found = seen(run, rich_model, "--along", "recency", "--segment", "city=Rome", "--data", "rich.parquet")
    assert found["averaged"] == ["age", "tags"] and found["averaged_over_rows"] == 400
    expected = rich.segment({"city": "Rome"}, "recency", rest="mean", background=rich_table)
    assert np.allclose(found["views"][0]["scores"], expected(found["views"][0]["x"]))
    text = run("view", rich_model, "--along", "recency", "--segment", "city=Rome", "--data", "rich.parquet").stdout
    assert "age, tags" in text and "400 rows of the data" in text
    assert "380 training rows" in run("view", rich_model, "--along", "recency", "--segment", "city=Rome").stdout


def test_a_part_of_a_large_table_is_averaged_over(run, rich_model, monkeypatch):
    monkeypatch.setattr(view, "BACKGROUND_ROWS", 100)
    arguments = (rich_model, "--along", "recency", "--data", "rich.parquet")
    assert seen(run, *arguments)["averaged_over_rows"] == 100
    assert "100 of 400 rows of the data" in run("view", *arguments).stdout


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("city=Oslo", "Oslo"),
        ("city=Lima=Peru", "Lima=Peru"),
        ("city=", None),
        ("age=33", 33.0),
        ("age=3.3e1", 33.0),
        ("age=", None),
        ("age=nan", None),
        ("tags=a", ["a"]),
        ("tags=a|c", ["a", "c"]),
        ("tags=", None),
    ],
)
def test_a_value_has_the_type_of_its_field(run, rich_model, rich, rich_table, option, value):
    found = seen(run, rich_model, "--along", "recency", "--segment", option, "--data", "rich.parquet")["views"][0]
    name = option.split("=")[0]
    assert found["segment"] == {name: value}
    expected = rich.segment({name: value}, "recency", rest="mean", background=rich_table)
    assert np.allclose(found["scores"], expected(found["x"]))


def test_a_separator_of_the_field_cuts_a_list(run, tmp_path):
    table = {"tags": ["a;b", "b", "c;a"] * 30, "x": np.arange(90.0), "y": np.arange(90.0)}
    schema = sf.Schema([sf.MultiValued("tags", separator=";"), sf.Numerical("x", basis=sf.BSpline(2))])
    options = {"loss": "squared", "schema": schema, "model": sf.FM(k=2), "training": sf.Training(epochs=1, threads=1)}
    sf.fit_model(table, "y", **options).save(tmp_path / "m.sfm")
    assert seen(run, "m.sfm", "--along", "x", "--segment", "tags=a; c")["views"][0]["segment"] == {"tags": ["a", "c"]}


def test_several_values_make_a_family(run, rich_model, rich, rich_table):
    options = ["--segment", "city=Rome", "--segment", "age=", "--segment", "city=Oslo", "--segment", "age=30"]
    found = seen(run, rich_model, "--along", "recency", *options, "--data", "rich.parquet")["views"]
    assert [view["segment"] for view in found] == [
        {"city": city, "age": age} for city in ("Rome", "Oslo") for age in (None, 30.0)
    ]
    for one in found:
        expected = rich.segment(one["segment"], "recency", rest="mean", background=rich_table)
        assert np.allclose(one["scores"], expected(one["x"]))
    text = run("view", rich_model, "--along", "recency", *options, "--data", "rich.parquet").stdout
    assert "city=Rome, age=(missing)" in text and text.count("maximum") == 4


def test_each_takes_the_most_frequent_categories(run, rich_model, training_rows):
    result = run("view", rich_model, "--along", "recency", "--each", "city", "--json")
    cities = [view["segment"]["city"] for view in json.loads(result.stdout)["views"]]
    counts = dict(zip(*np.unique(training_rows["city"].to_pylist(), return_counts=True), strict=True))
    assert cities == sorted(counts, key=lambda city: -counts[city])
    assert "[red]Paris" in run("view", rich_model, "--along", "recency", "--each", "city").stdout
    assert len(seen(run, rich_model, "--along", "recency", "--each", "tags")["views"]) == 3


def test_each_says_what_it_leaves_out(run, fitted, tmp_path):
    names = [f"c{i:02}" for i in range(15)]
    table = {"c": [name for i, name in enumerate(names) for _ in range(10 + i)], "x": 0.0, "y": 0.0}
    table["x"] = table["y"] = np.arange(float(len(table["c"])))
    options = {"loss": "squared", "model": sf.FM(k=2), "training": sf.Training(epochs=1, threads=1)}
    schema = sf.Schema([sf.Categorical("c", vocabulary=names), sf.Numerical("x", basis=sf.BSpline(2))])
    sf.fit_model(table, "y", schema=schema, **options).save(tmp_path / "m.sfm")
    result = run("view", "m.sfm", "--along", "x", "--each", "c", "--json")
    # By count, though the vocabulary was given the other way round.
    assert [view["segment"]["c"] for view in json.loads(result.stdout)["views"]] == names[:2:-1]
    assert (
        "showing the 12 most frequent of 15 categories of 'c'; to choose others, repeat --segment c=VALUE"
        in result.stderr
    )
    assert not run("view", "m.sfm", "--along", "x", "--each", "c", "--json", "--quiet").stderr


def test_bars_and_surfaces(run, rich_model, rich, rich_table):
    bars = seen(run, rich_model, "--along", "city", "--data", "rich.parquet")["views"][0]
    expected = rich.segment({}, "city", rest="mean", background=rich_table)
    assert np.allclose(bars["scores"], expected(bars["categories"])) and bars["tokens"] == {}
    for pair in (("recency", "age"), ("city", "age"), ("tags", "city")):
        along = [part for name in pair for part in ("--along", name)]
        found = seen(run, rich_model, *along, "--data", "rich.parquet")["views"][0]
        surface = rich.segment({}, pair, rest="mean", background=rich_table)
        x = [[name] for name in found["x"]] if pair[0] == "tags" else found["x"]
        flat = surface([one for one in x for _ in found["y"]], found["y"] * len(x))
        assert np.allclose(np.ravel(found["scores"]), flat)
        assert pair[1] in run("view", rich_model, *along).stdout


def test_scores_or_predictions_are_printed(run, model, fitted):
    link = run("view", model, "--along", "price", "--segment", "city=Rome").stdout
    score = run("view", model, "--along", "price", "--segment", "city=Rome", "--score").stdout
    for text, measure in ((link, fitted.predict), (score, fitted.scores)):
        price, value = map(float, text.split("\n")[8].split())
        assert value == pytest.approx(measure({"price": [price], "city": ["Rome"]})[0], abs=1e-4)
    assert "probability of 'yes' along price" in link and "score along price" in score
    assert "maximum" in link and "minimum" in link


def test_tokens_that_training_never_met_are_not_shown(run, rich_model, rich, rich_table):
    """Ages were missing in training, recencies were 0 and never missing, cities neither missing nor rare."""
    for name, met in (("age", ["missing"]), ("recency", ["= 0"]), ("city", [])):
        assert list(seen(run, rich_model, "--along", name)["views"][0]["tokens"]) == met
        printed = run("view", rich_model, "--along", name).stdout
        assert "(rare)" not in printed and ("(missing)" in printed) == (name == "age")
    shown = seen(run, rich_model, "--along", "age")["views"][0]["tokens"]["missing"]["score"]
    assert shown == pytest.approx(rich.segment({}, "age", rest="mean")([None])[0])
    asked = seen(run, rich_model, "--along", "age", "--segment", "city=")  # asked for, it is told
    assert asked["views"][0]["segment"] == {"city": None}


def test_categories_that_are_numbers_keep_their_order(run, tmp_path):
    rng = np.random.default_rng(0)
    code = rng.choice(["10", "9", "100", "1", "2"], 500, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    day = rng.choice(["Sun", "Mon", "Fri"], 500, p=[0.5, 0.3, 0.2])
    table = {"code": code.tolist(), "day": day.tolist(), "y": rng.normal(size=500)}
    schema = sf.Schema([sf.Categorical("code"), sf.Categorical("day")])
    fitted = sf.fit_model(
        table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1)
    )
    assert fitted.encoder.schema["code"].vocabulary.names.to_pylist() == ["10", "9", "100", "1", "2"]
    fitted.save(tmp_path / "m.sfm")
    bars = seen(run, "m.sfm", "--along", "code")["views"][0]
    assert bars["categories"] == ["1", "2", "9", "10", "100"]
    assert np.allclose(bars["scores"], fitted.segment({}, "code", rest="mean")(bars["categories"]))
    assert bars["training_counts"] == [int((code == name).sum()) for name in bars["categories"]]
    surface = seen(run, "m.sfm", "--along", "code", "--along", "day")["views"][0]
    assert (surface["x"], surface["y"]) == (["1", "2", "9", "10", "100"], ["Mon", "Fri", "Sun"])
    assert category_counts(fitted, "code", 3)[0] == ["9", "10", "100"], "chosen by frequency, then in order"
    each = seen(run, "m.sfm", "--along", "code", "--each", "day")["views"]
    assert [one["segment"]["day"] for one in each] == ["Mon", "Fri", "Sun"]
    printed = run("view", "m.sfm", "--along", "code").stdout
    places = [printed.index(f"\n{name} ") for name in ("1", "2", "9", "10", "100")]
    assert places == sorted(places)


def test_the_grid_stays_inside_of_the_data(run, model, table, write, tmp_path):
    write(table.filter(pa.compute.less(table["price"], 1.0)), tmp_path / "cheap.csv")
    whole = seen(run, model, "--along", "price", "--segment", "city=Rome")["views"][0]["x"]
    cheap = seen(run, model, "--along", "price", "--segment", "city=Rome", "--data", "cheap.csv")["views"][0]
    assert max(whole) > 2.0 and max(cheap["x"]) < 1.0 and cheap["maximum"]["at"] < 1.0


def test_special_values_are_no_part_of_the_grid():
    x = sf.Numerical("x", sf.MinMax(0, 10), special=[0.0, ">= 8"])
    grid = value_grid(x, 11)
    assert grid[0] > 0.0 and grid[-1] < 8.0 and (np.diff(grid) > 0).all()
    assert len(value_grid(x, 5, np.array([0.0, 0.0]))) > 1  # nothing ordinary in the data


def test_infinite_ends_of_a_distribution_are_left_out(run, tmp_path):
    x = np.random.default_rng(0).normal(size=300)
    schema = sf.Schema([sf.Numerical("x", sf.BestFitCDF(families=("normal",)), sf.BSpline(4))])
    options = {"loss": "squared", "schema": schema, "model": sf.FM(k=2), "training": sf.Training(epochs=1, threads=1)}
    sf.fit_model({"x": x, "y": x}, "y", **options).save(tmp_path / "m.sfm")
    curve = seen(run, "m.sfm", "--along", "x")["views"][0]
    assert -6 < curve["x"][0] < -2 and 2 < curve["x"][-1] < 6 and None not in curve["scores"]


def test_a_basis_without_known_extrema_has_none(run, tmp_path):
    x = np.linspace(0, 24, 200)
    schema = sf.Schema([sf.Numerical("x", sf.MinMax(0, 24), sf.Fourier(2))])
    options = {"loss": "squared", "schema": schema, "model": sf.FM(k=2), "training": sf.Training(epochs=1, threads=1)}
    sf.fit_model({"x": x, "y": x}, "y", **options).save(tmp_path / "m.sfm")
    assert seen(run, "m.sfm", "--along", "x")["views"][0]["maximum"] is None
    assert "maximum" not in run("view", "m.sfm", "--along", "x").stdout


def test_data_from_the_standard_input(run, rich_model, rich_table):
    columns = rich_table.select(["recency", "age", "city"])
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(columns, sink)
    arguments = ["view", rich_model, "--along", "recency", "--segment", "tags=a", "--data"]
    piped = json.loads(run(*arguments, "-", "--json", stdin=sink.getvalue().to_pybytes()).stdout)
    assert piped == json.loads(run(*arguments, "rich.parquet", "--json").stdout)


def test_a_large_table_is_sampled(run, rich_model, monkeypatch):
    monkeypatch.setattr(view, "BACKGROUND_ROWS", 50)
    text = run("view", rich_model, "--along", "recency", "--data", "rich.parquet").stdout
    assert "50 of 400 rows of the data" in text


# Files


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
def test_plots(run, rich_model, tmp_path, suffix, start):
    out = tmp_path / f"curve.{suffix}"
    result = run("view", rich_model, "--along", "recency", "--each", "city", "--data", "rich.parquet", "--out", out)
    assert out.read_bytes().startswith(start) and str(out) in result.stdout
    assert not any(word in out.read_bytes() for word in (b"Matplotlib v", b"CreationDate", b"dc:date"))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_plot_shows_the_curve(rich_model, run, monkeypatch, rich, rich_table):
    drawn = []
    real = view.draw
    monkeypatch.setattr(view, "draw", lambda seen: drawn.append(real(seen)) or drawn[-1])
    run(
        "view",
        rich_model,
        "--along",
        "recency",
        "--segment",
        "city=Rome",
        "--data",
        "rich.parquet",
        "--out",
        "c.png",
        "--score",
    )
    line = max(drawn[0].get_lines(), key=lambda line: len(line.get_xdata()))
    expected = rich.segment({"city": "Rome"}, "recency", rest="mean", background=rich_table)
    assert np.allclose(line.get_ydata(), expected(line.get_xdata())) and drawn[0].get_title() == "city=Rome"


@pytest.mark.parametrize("along", [["city"], ["city", "age"], ["recency", "age"], ["tags", "city"]])
def test_plots_of_bars_and_surfaces(run, rich_model, tmp_path, along):
    arguments = [part for name in along for part in ("--along", name)]
    run("view", rich_model, *arguments, "--data", "rich.parquet", "--out", "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000


def test_values_as_csv(run, rich_model, tmp_path):
    arguments = ["--along", "recency", "--segment", "city=Rome", "--segment", "city=Oslo", "--segment", "tags=a|b"]
    run("view", rich_model, *arguments, "--out", "values.csv")
    values = pa.csv.read_csv(tmp_path / "values.csv").to_pydict()
    assert list(values) == ["city", "tags", "recency", "token", "score", "probability"]
    found = seen(run, rich_model, *arguments)["views"]
    assert values["score"] == pytest.approx(
        [s for one in found for s in [*one["scores"], *(t["score"] for t in one["tokens"].values())]]
    )
    assert values["tags"][0] == "a|b" and values["token"][-1] == "= 0" and values["recency"][-1] is None
    run("view", rich_model, "--along", "city", "--along", "age", "--out", "surface.csv")
    surface = pa.csv.read_csv(tmp_path / "surface.csv")
    assert surface.column_names == ["city", "age", "score", "probability"] and surface.num_rows == 4 * 51


def test_a_field_that_is_called_like_ours(run, fitted, tmp_path):
    named = replace(fitted.encoder, fields=(replace(fitted.encoder.fields[0], name="score"), fitted.encoder.fields[1]))
    replace(fitted, encoder=named).save(tmp_path / "m.sfm")
    run("view", "m.sfm", "--along", "score", "--out", "values.csv")
    assert pa.csv.read_csv(tmp_path / "values.csv").column_names == [
        "score",
        "token",
        "score of the model",
        "probability",
    ]


def test_values_as_json(run, model, tmp_path):
    found = seen(run, model, "--along", "price", "--out", "values.json")
    assert found.pop("file") == "values.json" and json.loads((tmp_path / "values.json").read_text()) == found


def test_plots_without_matplotlib(run, model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "splinefm.plots.figures", None)
    for name in ["matplotlib", *(name for name in sys.modules if name.startswith("matplotlib."))]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "splinefm.plots.figures")
    monkeypatch.delattr("splinefm.plots.figures", raising=False)
    assert "pip install 'splinefm[plots]'" in run("view", model, "--along", "price", "--out", "c.png", code=1).stderr
    run("view", model, "--along", "price", "--out", "c.csv")
    assert not (tmp_path / "c.png").exists() and (tmp_path / "c.csv").exists()


# Bad input


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--along"],
        ["--along", "price", "--along", "city", "--along", "price"],
        ["--along", "price", "--along", "price"],
        ["--along", "price", "--segment", "city"],
        ["--along", "price", "--nonsense"],
        ["--along", "price", "--link=maybe"],
    ],
)
def test_wrong_usage_exits_with_2(run, model, arguments):
    assert "Error" in run("view", model, *arguments, code=2).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--along", "prise"],
            "--along prise: no field 'prise' in the model; nearest: 'price'. Fields: 'price', 'city'",
        ),
        (["--along", "price", "--segment", "town=Rome"], "no field 'town' in the model"),
        (["--along", "price", "--segment", "=Rome"], "no field '' in the model"),
        (["--along", "price", "--segment", "city=Rom"], "no category 'Rom'; nearest: 'Rome'. It has"),
        (["--along", "city", "--segment", "price=cheap"], "'price' is numerical, but 'cheap' is not a number"),
        (["--along", "city", "--segment", "price=inf"], "column 'price' holds inf"),
        (["--along", "price", "--segment", "price=1"], "'price' varies (--along price)"),
        (["--along", "price", "--segment", "city=Rome", "--segment", "city=Rome"], "is given twice"),
        (["--along", "price", "--each", "town"], "--each town: no field 'town'"),
        (["--along", "city", "--each", "price"], "numerical and has no categories"),
        (["--along", "city", "--each", "city"], "'city' varies"),
        (["--along", "price", "--each", "city", "--segment", "city=Rome"], "both choose values of 'city'"),
        (["--along", "price", "--along", "city", "--segment", "price=1"], "'price' varies"),
        (["--along", "price", "--out", "curve.gif"], "must end in .png, .svg, .pdf, .csv, .json"),
        (["--along", "price", "--out", "folder.png"], "is a folder"),
        (["--along", "price", "--out", "nowhere/curve.png"], "no folder"),
        (["--along", "price", "--out", "data.csv", "--data", "data.csv"], "would replace the input"),
        (["--along", "price", "--data", "none.csv"], "no file or folder 'none.csv'"),
        (["--along", "price", "--data", "other.csv"], "no column"),
        (["--along", "price", "--data", "empty.csv"], "has no rows"),
        (["--along", "price", "--data", "text.csv"], "price"),
    ],
)
def test_bad_input_is_a_message(run, model, write, table, tmp_path, arguments, message):
    write(table, tmp_path / "data.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty.csv").write_text("price,city\n")
    (tmp_path / "text.csv").write_text("price,city\ncheap,Rome\n")
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.rglob("*"))
    result = run("view", model, *arguments, code=1)
    assert message in result.stderr and result.stderr.startswith("splinefm: ") and not result.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_a_surface_is_of_one_segment(run, rich_model):
    along = ["--along", "recency", "--along", "age"]
    assert "give each field one value" in run("view", rich_model, *along, "--each", "city", code=1).stderr


def test_a_model_that_does_not_know_its_means_needs_data(run, rich_model, rich, monkeypatch):
    forgetful = replace(rich, encoder=replace(rich.encoder, feature_weights=()))
    monkeypatch.setattr("splinefm.store.model_file.load", lambda path: forgetful)
    message = run("view", rich_model, "--along", "city", code=1).stderr
    assert "the mean of 'recency', 'age'" in message and "with --data TABLE" in message
    run("view", rich_model, "--along", "city", "--data", "rich.parquet")


def test_too_many_segments(run, rich_model):
    ages = [part for age in range(25) for part in ("--segment", f"age={age}")]
    assert "got 25 segments, but at most 24" in run("view", rich_model, "--along", "recency", *ages, code=1).stderr


def _fit_small(**settings):
    table = {"c": ["a", "b", "b"] * 20, "tags": [["a"], ["b"], ["a", "b"]] * 20, "z": np.arange(60.0)}
    table |= {"x": np.arange(60.0), "y": np.arange(60.0)}
    unseen = {name: value for name, value in settings.items() if name == "unseen"}
    others = {name: value for name, value in settings.items() if name != "unseen"}
    numbers = [sf.Numerical(name, basis=sf.BSpline(2), **others) for name in ("x", "z")]
    schema = sf.Schema([*numbers, sf.Categorical("c", **settings), sf.MultiValued("tags", **others, **unseen)])
    training = sf.Training(epochs=1, threads=1)
    return sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)


def test_a_field_without_missing_values_says_so():
    strict = _fit_small(missing="error")
    for option in ("z=", "c=", "tags="):
        with pytest.raises(ValueError, match="cannot be missing in this model"):
            parse_segments(strict, ["x"], [option])


def test_a_hashed_category_need_not_be_known():
    chosen = parse_segments(_fit_small(unseen="hash"), ["x"], ["c=Bonn", "tags=a|Bonn"])
    assert chosen.rows == [{"c": "Bonn", "tags": ["a", "Bonn"]}] and len(chosen.remarks) == 2
    assert "shares a feature" in chosen.remarks[0]


# Samples


def test_a_sample_is_uniform_and_repeats():
    hits = np.zeros(100)
    table = sf.open_table({"x": range(100)})
    first = samples.read_sample(table, ["x"], 30).table()
    assert first.equals(samples.read_sample(table, ["x"], 30).table()) and len(set(first["x"].to_pylist())) == 30
    for seed in range(300):
        sample = RowSample(10)
        sample._rng = np.random.default_rng(seed)
        for start in range(0, 100, 25):
            sample.add(pa.record_batch({"x": range(start, start + 25)}))
        values = sample.table()["x"].to_numpy()
        assert (np.diff(values) > 0).all() and (sample.numbers == values).all()
        hits[values] += 1
    assert hits.sum() == 3000 and abs(hits[:50].sum() - 1500) < 100 and hits.max() < 60  # 30 each, ± 5


def test_a_sample_of_dictionaries_that_differ():
    sample = RowSample(3)
    for names in (["a", "b"], ["c", "d"]):
        sample.add(pa.record_batch({"c": pa.array(names).dictionary_encode()}))
    assert len(sample.table()["c"].to_pylist()) == 3
    with pytest.raises(ValueError, match="no rows"):
        RowSample(3).table()


@pytest.fixture(scope="module")
def crossed(training_rows, tmp_path_factory):
    schema = sf.Schema(
        [
            sf.Numerical("recency", basis=sf.BSpline(segments=6), special=[0.0]),
            sf.Numerical("age", basis=sf.BSpline(segments=4)),
            sf.Categorical("city"),
            sf.Cross("recency", "age", segments=3),
            sf.Cross("city", "age", segments=3),
        ]
    )
    training = sf.Training(epochs=2, threads=1)
    fitted = sf.fit_model(training_rows, "click", schema=schema, model=sf.FM(k=2), training=training)
    path = tmp_path_factory.mktemp("crossed") / "m.sfm"
    fitted.save(path)
    return fitted, path


class TestCrosses:
    """Crosses are followed along the columns that they contain."""

    def test_the_curve_is_that_of_the_library(self, run, crossed):
        fitted, path = crossed
        options = ("--along", "age", "--segment", "recency=3", "--segment", "city=Rome", "--score", "--json")
        (found,) = json.loads(run("view", path, *options).stdout)["views"]
        rows = {"age": found["x"], "recency": [3.0] * len(found["x"]), "city": ["Rome"] * len(found["x"])}
        np.testing.assert_allclose(found["scores"], fitted.scores(rows), atol=1e-5)
        assert found["maximum"]["score"] >= max(found["scores"]) - 1e-9

    def test_surfaces_bars_and_several_segments(self, run, crossed):
        fitted, path = crossed
        along = ("--along", "recency", "--along", "age", "--segment", "city=Oslo", "--json")
        (found,) = json.loads(run("view", path, *along).stdout)["views"]
        rows = {"recency": [found["x"][3]], "age": [found["y"][5]], "city": ["Oslo"]}
        assert found["scores"][3][5] == pytest.approx(fitted.scores(rows)[0], abs=1e-5)
        along = ("--along", "city", "--segment", "recency=3", "--segment", "age=30", "--segment", "age=50", "--json")
        views = json.loads(run("view", path, *along).stdout)["views"]
        rows = {"city": views[1]["categories"], "recency": [3.0] * 4, "age": [50.0] * 4}
        np.testing.assert_allclose(views[1]["scores"], fitted.scores(rows), atol=1e-5)

    def test_averages_over_numbers_of_crosses_need_data(self, run, crossed, write, training_rows, tmp_path):
        _, path = crossed
        message = "the mean of 'recency × age' is not kept with this model; give the rows to average over, with --data"
        assert message in run("view", path, "--along", "age", code=1).stderr.replace("\n", " ")
        data = write(training_rows.drop_columns(["tags"]), tmp_path / "d.parquet")
        assert "recency" in run("view", path, "--along", "age", "--data", data).stdout

    @pytest.mark.parametrize(
        "options", [("--along", "recency × age"), ("--along", "age", "--segment", "recency × age=3")]
    )
    def test_a_cross_is_no_column(self, run, crossed, options):
        text = run("view", crossed[1], *options, code=1).stderr
        assert "'recency × age' is a cross, which has no values of its own; use its columns, 'recency', 'age'" in text
