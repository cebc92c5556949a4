"""`splinefm fit`: from a file to a model file, with the loss that suits the target."""

import json
import time
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

import splinefm as sf
from commands import with_positive_amounts
from splinefm.cli import fit as module
from splinefm.cli.targets import choose_loss, suggest_for, suggest_loss
from splinefm.model.family import AnyModel

# Kernels are compiled for each model and k: one is enough here.
SMALL = ("--model", "fm", "--k", "2", "--epochs", "2", "--threads", "1")


def fit(run, data, target, *options):
    result = run("fit", data, "--target", target, "--out", "new.sfm", *SMALL, "--json", *options)
    return json.loads(result.stdout), result


def test_a_model_is_fitted_and_saved(run, data, table):
    summary, result = fit(run, data, "click", "--ignore", "id", "--ignore", "amount", "--seed", "3")
    fitted = sf.load("new.sfm")
    assert fitted.encoder.schema.names == ("price", "city", "views") and fitted.classes == ("no", "yes")
    assert (fitted.model, fitted.training.epochs, fitted.training.seed) == (sf.FM(k=2), 2, 3)
    assert (summary["loss"], summary["rows"], summary["fields"], summary["epochs"]) == ("logistic", 300, 3, 2)
    assert summary["validation_loss"] == min(epoch.validation_loss for epoch in fitted.history)
    assert "two values: 'no', 'yes'" in result.stderr and "epoch 2/2" in result.stderr
    training = sf.Training(epochs=2, threads=1, seed=3)
    same = sf.fit_model(
        table.drop_columns(["id", "amount"]), "click", model=sf.FM(k=2), training=training, validation=0.1
    )
    assert np.array_equal(fitted.scores(table), same.scores(table))


def test_the_result_for_people(run, data):
    result = run("fit", data, "--target", "amount", "--out", "new.sfm", *SMALL, "--quiet")
    assert not result.stderr
    assert "RMSE" in result.stdout and "splinefm predict new.sfm NEW.csv" in result.stdout
    without = run("fit", data, "--target", "amount", "--out", "new.sfm", *SMALL, "--quiet", "--validation", "0").stdout
    assert "none; the last epoch is kept" in without


def test_a_schema_file_is_obeyed(run, data):
    sf.Schema([sf.Numerical("price", basis=sf.Bins(3)), sf.Categorical("city")]).save("schema.toml")
    fit(run, data, "click", "--schema", "schema.toml", "--ignore", "city")
    (only,) = sf.load("new.sfm").encoder.fields
    assert only.name == "price" and only.basis.count == 3


class TestRemarks:
    def test_those_that_ask_something_are_printed(self, run, write, tmp_path):
        n = 1200
        table = pa.table({"id": range(n), "x": [0.5, 1.5, 2.5] * (n // 3), "y": [0, 1] * (n // 2)})
        path = write(table, tmp_path / "data.csv")
        _, result = fit(run, path, "y")
        (remark,) = [line for line in result.stderr.splitlines() if line.startswith("remark: ")]
        assert remark.startswith("remark: id: numbers with 1,200 distinct values") and "an identifier?" in remark
        assert "remark" not in fit(run, path, "y", "--ignore", "id")[1].stderr

    def test_five_at_most(self):
        columns = {f"c{i}": np.arange(i, 2000 + i) for i in range(8)}
        lines = module.questions(sf.infer_schema(columns))
        assert [line.split(":")[1] for line in lines[:5]] == [f" c{i}" for i in range(5)]
        assert lines[5:] == ["... and 3 more remarks; splinefm schema prints all"]


def test_weights_and_a_file_for_validation(run, data, make_table, write, tmp_path):
    other = write(make_table(100, seed=1), tmp_path / f"other{data.suffix}")
    summary, _ = fit(run, data, "click", "--ignore", "id", "--weight", "views", "--validation", other)
    assert summary["rows"] == 300 and sf.load("new.sfm").encoder.schema.names == ("price", "city", "amount")


@pytest.mark.parametrize(
    ("values", "loss", "classes"),
    [
        ([0, 1], "logistic", None),
        ([1, 2], "logistic", (1, 2)),
        ([False, True], "logistic", (False, True)),
        (["b", "a"], "logistic", ("a", "b")),
        ([0.5, 1.5, 2.5], "squared", None),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_target_decides_the_loss(run, write, tmp_path, values, loss, classes, suffix):
    write(pa.table({"x": np.arange(60.0), "y": (values * 30)[:60]}), tmp_path / f"d.{suffix}")
    summary, _ = fit(run, f"d.{suffix}", "y")
    assert summary["loss"] == loss and sf.load("new.sfm").classes == classes


def test_a_dictionary_of_two_values_is_two_values(run, write, tmp_path):
    labels = pa.array(["a", "b", None] * 20).dictionary_encode()
    write(pa.table({"x": np.arange(60.0), "y": labels}), tmp_path / "d.parquet")
    assert choose_loss(sf.open_table(tmp_path / "d.parquet"), "y").loss.name == "logistic"


@pytest.mark.parametrize(("labels", "ends"), [("abcde", "'d', 'e'"), ("abcdef", "'d', 'e', ...")])
def test_only_labels_that_are_left_out_are_hinted_at(labels, ends):
    table = sf.open_table({"y": list(labels) * 3})
    assert choose_loss(table, "y").reason.endswith(ends)


def test_a_loss_that_is_given_is_taken(run, data):
    summary, result = fit(run, data, "views", "--loss", "poisson", "--ignore", "id")
    assert summary["loss"] == "poisson" and sf.load("new.sfm").loss.name == "poisson" and "as given" in result.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--loss", "gamma"), {}),
        (("--loss", "tweedie", "--power", "1.7"), {"power": 1.7}),
        (("--loss", "quantile", "--quantile", "0.9"), {"quantile": 0.9}),
        (("--loss", "quantile"), {"quantile": 0.5}),
        (("--loss", "huber", "--delta", "2.5"), {"delta": 2.5}),
    ],
)
def test_losses_with_parameters(run, table, write, tmp_path, options, expected):
    write(with_positive_amounts(table), tmp_path / "d.csv")
    summary, result = fit(run, "d.csv", "amount", *options, "--ignore", "id", "--seed", "1")
    fitted = sf.load("new.sfm")
    assert summary["loss_parameters"] == expected == fitted.loss.parameters and "suggestion" not in result.stderr
    assert summary["validation_metric"] == fitted.loss.metric_name and summary["validation_loss"] > 0
    assert np.isfinite(fitted.predict(table)).all()


def test_the_threshold_of_a_huber_loss_is_found(run, data):
    summary, _ = fit(run, data, "amount", "--loss", "huber", "--ignore", "id")
    assert summary["loss_parameters"]["delta"] > 0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--quantile", "0.9"), 2, "belongs to the quantile loss; add --loss"),
        (("--loss", "squared", "--power", "1.5"), 1, "--power belongs to the tweedie loss"),
        (("--loss", "quantile", "--quantile", "1.5"), 1, "--quantile must lie between 0 and 1"),
        (("--loss", "huber", "--delta", "0"), 1, "--delta must be above 0"),
    ],
)
def test_parameters_of_other_losses_are_refused(run, data, options, code, message):
    result = run("fit", data, "--target", "amount", "--out", "new.sfm", *SMALL, *options, code=code)
    assert message in " ".join(result.stderr.split())


def test_targets_that_a_loss_refuses(run, write, tmp_path):
    write(pa.table({"x": np.arange(60.0), "y": np.arange(60.0)}), tmp_path / "d.csv")
    result = run("fit", "d.csv", "--target", "y", "--out", "new.sfm", *SMALL, "--loss", "gamma", code=1)
    assert "above 0, got 0; with zeros, use --loss tweedie" in result.stderr


RNG = np.random.default_rng(0)
SKEWED = {
    "gamma": RNG.lognormal(3, 1, 500),
    "tweedie": RNG.lognormal(3, 1, 500) * (RNG.random(500) < 0.4),
    "poisson": RNG.poisson(2.0, 500).astype(float),
}
FINE = {
    "normal": RNG.normal(size=500),
    "far from 0": RNG.normal(100, 3, 500),
    "uniform": RNG.uniform(1, 2, 500),
    "stars": RNG.choice([1.0, 2, 3, 4, 5], 500, p=[0.05, 0.1, 0.2, 0.3, 0.35]),
    "losses": -RNG.lognormal(3, 1, 500),
}


class TestSuggestions:
    @pytest.mark.parametrize("loss", SKEWED)
    def test_skewed_targets_get_one(self, run, write, tmp_path, loss):
        y = SKEWED[loss]
        write(pa.table({"x": np.arange(500.0), "y": y}), tmp_path / "d.csv")
        summary, result = fit(run, "d.csv", "y")
        assert summary["loss"] == "squared" and summary["loss_suggestion"] == loss
        (line,) = [line for line in result.stderr.splitlines() if line.startswith("suggestion: ")]
        assert f"--loss {loss} may fit better" in line and "'y'" in line and f"mean {y.mean():.4g}" in line
        again, _ = fit(run, "d.csv", "y", "--loss", loss)
        assert again["loss"] == loss and again["loss_suggestion"] is None

    @pytest.mark.parametrize("name", FINE)
    def test_others_do_not(self, name):
        assert suggest_for("y", FINE[name]) is None

    def test_odd_columns_do_not(self, write, tmp_path):
        path = write(pa.table({"x": [1.0] * 4, "y": ["1", "2", "4", "90"]}), tmp_path / "d.parquet")
        assert suggest_loss(sf.open_table(path), "y") is None
        assert suggest_for("y", np.zeros(0)) is None and suggest_for("y", np.full(9, 2.5)) is None


def searchable():
    """A table that is large enough for a search."""
    rng = np.random.default_rng(0)
    x, z = rng.random(1200), rng.random(1200)
    return pa.table({"x": x, "z": z, "y": 10 * np.sin(6 * x * z) + rng.normal(size=1200)})


def search_by(run, path, *options, code=0):
    """The result of a fit whose model is open, and its words."""
    return run("fit", path, "--target", "y", "--out", "new.sfm", "--threads", "1", "--epochs", "3", *options, code=code)


def test_the_effort_says_how_much_is_searched(run, write, tmp_path):
    path = write(searchable(), tmp_path / "d.csv")
    fast = json.loads(search_by(run, path, "--effort", "fast", "--json").stdout)
    assert fast["search"] == [] and fast["model"] == "FwFM(k=16, third=16)"
    assert sf.load("new.sfm").training.effort == "fast"
    done = search_by(run, path, "--time-limit", "60")
    fitted = sf.load("new.sfm")
    assert fitted.training.effort == "default" and fitted.training.time_limit == 60.0
    assert f"the best 5 of {len(fitted.search)} settings" in done.stdout and "RMSE" in done.stdout
    chosen = [line for line in done.stdout.splitlines() if line.endswith("chosen")]
    assert chosen[0].startswith(str(fitted.search[0])) and "search: tried" in done.stderr
    given = json.loads(search_by(run, path, "--k", "4", "--json").stdout)
    assert {entry["model"] for entry in given["search"]} == {"FwFM(k=4, third=16)"}
    assert all(entry["metric"] == "RMSE" and entry["value"] > 0.5 for entry in given["search"])


def test_a_time_limit_ends_a_fit(run, write, tmp_path):
    path = write(searchable(), tmp_path / "d.csv")
    begin = time.monotonic()
    search_by(run, path, "--epochs", "1000000", "--patience", "1000000", "--time-limit", "1", "--quiet")
    assert time.monotonic() - begin < 20.0
    assert np.isfinite(sf.load("new.sfm").predict(searchable())).all()


@pytest.mark.parametrize(
    ("option", "code", "why"),
    [(("--effort", "none"), 2, "--effort"), (("--time-limit", "0"), 1, "--time-limit must be above 0 seconds")],
)
def test_wrong_efforts_and_limits_are_refused(run, data, option, code, why):
    assert why in " ".join(search_by(run, data, *option, code=code).output.split())


def test_classes_can_be_balanced_and_averages_left_out(run, data, table):
    fit(run, data, "click", "--ignore", "id", "--balanced", "--no-average")
    fitted = sf.load("new.sfm")
    weights = fitted.loss.class_weights
    assert weights is not None and weights[0] != weights[1] and not fitted.training.average
    rate = np.mean([value == "yes" for value in table["click"].to_pylist()])
    assert weights[0] * (1.0 - rate) == pytest.approx(weights[1] * rate)


def test_the_learning_rate_may_stay_as_it_is(run, data):
    options = ("--ignore", "id", "--effort", "fast", "--learning-rate", "0.01", "--schedule")
    fit(run, data, "click", *options, "constant")
    constant = sf.load("new.sfm")
    assert {epoch.learning_rate for epoch in constant.history} == {0.01} and constant.training.schedule == "constant"
    fit(run, data, "click", *options, "cosine")
    assert sf.load("new.sfm").training.schedule == "cosine"


def test_models_and_sizes(monkeypatch):
    said = []

    def make(n_fields=2, **settings):
        schema = sf.Schema([sf.Numerical(f"x{i}") for i in range(n_fields)])
        return module.make_model(
            module.FitOptions(data="d.csv", target="y", out="m.sfm", **settings), schema, said.append
        )

    assert make() == sf.FwFM(k=16, third=16) and make(k=3) == sf.FwFM(k=3, third=16)
    assert said == ["model: FwFM(k=16, third=16)", "model: FwFM(k=3, third=16)"]
    assert make(1000) == sf.FM(k=16) and "instead of FwFM(k=16, third=16)" in said[-1]
    assert make(1000, model="fwfm") == sf.FwFM(k=16) and said[-1] == "model: FwFM(k=16)"
    assert make(model="low-rank-fwfm", k=3, rank=2) == sf.LowRankFwFM(k=3, rank=2)
    assert make(third=2) == make(model="fwfm", third=2) == sf.FwFM(k=16, third=2)
    assert said[-1] == "model: FwFM(k=16, third=2)"
    with pytest.raises(ValueError, match=r"--third is for fwfm, but the default for 1000 fields is FM\(k=16\)"):
        make(1000, third=2)
    assert make(model="higher-order-fm", order=4) == sf.HigherOrderFM(order=4)
    assert [make(model=name) for name in ("fm", "fwfm", "fmfm")] == [sf.FM(), sf.FwFM(), sf.FmFM()]


def test_every_model_of_the_command_line_exists():
    schema = sf.Schema([sf.Numerical("x")])
    for name in get_args(module.ModelName):
        options = module.FitOptions(data="d.csv", target="y", out="m.sfm", model=name)
        assert type(module.make_model(options, schema, str)).__name__.lower() == name.replace("-", "")
    assert len(get_args(module.ModelName)) == len(get_args(AnyModel))


def test_products_of_three_and_members(run, data):
    fit(run, data, "click", "--model", "fwfm", "--third", 1, "--members", 2)
    assert sf.load("new.sfm").model == sf.FwFM(k=4, third=2, members=2)
    assert "FwFM(k=4, third=2, members=2)" in run("info", "new.sfm").stdout


def test_settings_reach_the_training(run, data):
    options = {"--l2": 0.5, "--smoothness": 0.25, "--learning-rate": 0.125, "--batch-size": 50, "--patience": 1}
    fit(run, data, "click", *(part for option in options.items() for part in option))
    training = sf.load("new.sfm").training
    found = (training.l2, training.smoothness, training.learning_rate, training.batch_size, training.patience)
    assert found == tuple(options.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv", "--target", "click"], "no file or folder 'none.csv'"),
        (["data.csv", "--target", "clic"], "no column 'clic' in the table; nearest: 'click'"),
        (["data.csv", "--target", "id"], "more than 100 values"),
        (["one.csv", "--target", "y"], "the target 'y' is 1 in all rows"),
        (["one.csv", "--target", "y", "--loss", "logistic"], "the target 'y' is 1 in all rows"),
        (["holes.csv", "--target", "y"], "has no values"),
        (["empty.csv", "--target", "y"], "cannot read 'empty.csv'"),
        (["header.csv", "--target", "y"], "has no values"),
        (["data.csv", "--target", "amount", "--loss", "logistic"], "more than two"),
        (["data.csv", "--target", "click", "--weight", "wait"], "no column 'wait'"),
        (["data.csv", "--target", "click", "--weight", "city"], "column 'city' must be numbers, but the column has '"),
        (["data.csv", "--target", "views", "--weight", "views"], "--weight 'views': this is the target"),
        (["data.csv", "--target", "click", "--ignore", "none"], "no column 'none'"),
        (["data.csv", "--target", "click", "--ignore", "click"], "--ignore click: this is the target"),
        (["data.csv", "--target", "click", "--schema", "none.toml"], "no schema file 'none.toml'; splinefm schema"),
        (["data.csv", "--target", "click", "--schema", "wrong.toml"], "wrong.toml: "),
        (["data.csv", "--target", "click", "--schema", "other.toml"], "no column 'weather'"),
        (["data.csv", "--target", "click", "--validation", "none.csv"], "no file or folder 'none.csv'"),
        (["data.csv", "--target", "click", "--validation", "one.csv"], "no column 'click'"),
        (["data.csv", "--target", "click", "--out", "nowhere/m.sfm"], "there is no folder"),
        (["data.csv", "--target", "click", "--out", "."], "is a folder"),
        (["data.csv", "--target", "click", "--out", "data.csv"], "would replace the input 'data.csv'"),
    ],
)
def test_bad_input_is_a_message(run, table, write, tmp_path, arguments, message):
    write(table.set_column(0, "id", pa.array([f"u{i}" for i in range(300)])), tmp_path / "data.csv")
    (tmp_path / "one.csv").write_text("x,y\n" + "1,1\n2,1\n" * 20)
    (tmp_path / "holes.csv").write_text("x,y\n1,\n2,NA\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("x,y\n")
    (tmp_path / "wrong.toml").write_text("fields = 3\n")
    sf.Schema([sf.Categorical("weather")]).save(tmp_path / "other.toml")
    out = () if "--out" in arguments else ("--out", "new.sfm")
    result = run("fit", *arguments, *out, *SMALL, code=1)
    assert message in result.stderr and not result.stdout
    assert "epoch" not in result.stderr  # all of this is found before training
    assert not (tmp_path / "new.sfm").exists()


class TestCrosses:
    def test_are_added_to_an_inferred_and_to_a_given_schema(self, run, data):
        options = ("--ignore", "id", "--ignore", "amount", "--cross", "price, city", "--cross", "city,views")
        fit(run, data, "click", *options)
        assert sf.load("new.sfm").encoder.schema.names == ("price", "city", "views", "price × city", "city × views")
        sf.Schema([sf.Numerical("price"), sf.Categorical("city")]).save("schema.toml")
        fit(run, data, "click", "--schema", "schema.toml", "--cross", "city,price")
        fitted = sf.load("new.sfm")
        assert fitted.encoder.schema.names == ("price", "city", "city × price")
        fitted.encoder.schema.save("fitted.toml")
        fit(run, data, "click", "--schema", "fitted.toml")
        assert sf.load("new.sfm").encoder.fields == fitted.encoder.fields

    def test_a_name_with_a_comma_is_quoted(self, run, write, tmp_path):
        names = ["price, net", 'size "L"', "y"]
        rows = np.arange(60.0)
        write(pa.table([rows, rows % 7 + 0.5, rows % 2], names), tmp_path / "d.csv")
        fit(run, "d.csv", "y", "--cross", '"price, net", "size ""L"""')
        assert sf.load("new.sfm").encoder.schema.names == ("price, net", 'size "L"', 'price, net × size "L"')

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            (("--cross", '"price,city'), """--cross "price,city: quotes are not closed"""),
            (("--cross", '"price"x,city'), """--cross "price"x,city: quotes are not closed"""),
            (("--cross", "price"), "--cross price: a cross takes two or three different fields"),
            (("--cross", "price,price"), "--cross price,price: a cross takes two or three different fields"),
            (("--cross", "price,town"), "--cross price,town: cross 'price × town': no field 'town' in the schema"),
            (("--cross", "price,city", "--cross", "price,city"), "names a field twice: 'price × city'"),
            (("--cross", "price,click"), "no field 'click' in the schema"),
        ],
    )
    def test_mistakes(self, run, data, options, match):
        result = run("fit", data, "--target", "click", "--out", "new.sfm", *SMALL, *options, code=1)
        assert match in result.stderr

    @pytest.mark.parametrize(("text", "value"), [("auto", "auto"), ("none", None), ("2", 2), ("0", 0)])
    def test_are_looked_for(self, run, data, text, value):
        fit(run, data, "click", "--crosses", text)
        assert sf.load("new.sfm").training.crosses == value

    @pytest.mark.parametrize("text", ["some", "-1", "1.5", ""])
    def test_the_number_to_look_for(self, run, data, text):
        result = run("fit", data, "--target", "click", "--out", "new.sfm", f"--crosses={text}", code=2)
        assert "must be auto, none or a number of crosses" in " ".join(result.stderr.replace("│", " ").split())


class TestInteractions:
    OPTIONS = ("--ignore", "id", "--ignore", "amount", "--effort", "fast")

    def test_sets_and_words_reach_the_model(self, run, data):
        run("fit", data, "--target", "click", "--out", "new.sfm", "--epochs", "1", "--interactions", "price,city",
            *self.OPTIONS)  # fmt: skip
        fitted = sf.load("new.sfm")
        assert fitted.encoder.schema.interactions.to_value() == [["city", "price"]]
        assert fitted.model == sf.FwFM(k=16) and fitted.encoder.layout.apart == ((0, 2), (1, 2))
        assert "only within city, price" in run("info", "new.sfm").stdout
        assert json.loads(run("info", "new.sfm", "--json").stdout)["interactions"] == [["city", "price"]]
        run("fit", data, "--target", "click", "--out", "new.sfm", "--epochs", "1", "--interactions", "pairwise",
            "--k", "2", *self.OPTIONS)  # fmt: skip
        assert sf.load("new.sfm").model == sf.FwFM(k=2)

    @pytest.mark.parametrize(
        "options, match",
        [
            (("pairwise", "price,city"), "--interactions pairwise: give it alone, or only sets of columns"),
            (("price,town",), "no column 'town'"),
            (('"price,town',), "quotes are not closed"),
            (("price,city", "--model", "fm"), r"FM(k=16) cannot keep two fields apart"),
            (("no_interactions", "--cross", "price,city"), "joins columns that may not interact"),
        ],
    )
    def test_mistakes(self, run, data, options, match):
        first = [option for text in options if not text.startswith("--") for option in ("--interactions", text)]
        if "--model" in options or "--cross" in options:
            first = ["--interactions", *options]
        result = run("fit", data, "--target", "click", "--out", "new.sfm", *first, *self.OPTIONS, code=1)
        assert match in " ".join(result.stderr.split())
