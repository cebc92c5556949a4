"""Shapes: fitted curves rise or fall in every segment, whatever trained the model."""

import importlib.util

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import splinefm as sf
from splinefm.bounds.shapes import Shapes
from splinefm.cli.main import app
from support import examples, random_fitted

MODELS = [
    sf.FM(k=3),
    sf.FwFM(k=3),
    sf.FwFM(k=3, third=2),
    sf.LowRankFwFM(k=3, rank=2),
    sf.FmFM(k=3),
    sf.FFM(k=2),
    sf.HigherOrderFM(k=2, order=3),
]
BASES = [sf.BSpline(6), sf.BSpline(5, degree=1), sf.MultiResolution((2, 8)), sf.MultiResolution((3, 8), degree=2)]
N = 400


def make_table(seed=0):
    """The target falls where x is small, and rises where it is large, unlike the shapes that are asked for."""
    rng = np.random.default_rng(seed)
    x, z, c = rng.uniform(0, 10, N), rng.normal(size=N), rng.choice(list("abcd"), N)
    y = np.sin(x) * np.where(c == "a", 2.0, -1.0) + 0.5 * z * x / 10 + rng.normal(0, 0.1, N)
    return {"x": x, "z": np.where(rng.random(N) < 0.1, np.nan, z), "c": c, "y": y, "click": (y > 0).astype(int)}


def make_schema(shape, basis=BASES[0], *more):
    x = sf.Numerical("x", sf.MinMax(), basis, shape=shape)
    return sf.Schema([x, sf.Numerical("z", basis=sf.BSpline(4)), sf.Categorical("c"), *more])


def fast(**settings):
    return sf.Training(**{"epochs": 4, "threads": 1, "effort": "fast", "seed": 0} | settings)


def holds(fitted, shape="increasing"):
    certificate = fitted.certify("x")
    return certificate.increasing if shape == "increasing" else certificate.decreasing


def random_pairs(n, seed=0):
    """Rows that differ in x alone, also ones with missing and unseen values."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-2, 12, (n, 2)), axis=1)
    others = {
        "z": np.where(rng.random(n) < 0.2, np.nan, rng.normal(0, 3, n)),
        "c": rng.choice(["a", "b", "c", "d", "unseen", None], n),
    }
    return {"x": x[:, 0], **others}, {"x": x[:, 1], **others}


def largest_violation(fitted, sign=1.0):
    """By how much a score falls (or rises) between two rows, in units of the rounding of float32 scores."""
    low, high = (fitted.scores(rows, watch=False).astype(np.float64) for rows in random_pairs(4000))
    return float((sign * (low - high)).max() / max(1.0, np.abs(low).max()))


@pytest.mark.parametrize("basis", BASES, ids=repr)
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_random_parameters_get_the_shape(model, basis):
    for shape in ("increasing", "decreasing"):
        fitted = random_fitted(model, make_schema(shape, basis), make_table())
        assert not holds(fitted, shape)
        params = Shapes(fitted.encoder, model).impose(fitted.params)
        moved = sf.Fitted(fitted.encoder, model, params, fitted.loss)
        assert holds(moved, shape)
        assert largest_violation(moved, 1.0 if shape == "increasing" else -1.0) < 1e-5


@given(st.integers(0, 10**6), st.sampled_from(MODELS), st.sampled_from(BASES))
@examples(25)
def test_no_pair_of_rows_violates_the_shape(seed, model, basis):
    fitted = random_fitted(model, make_schema("increasing", basis), make_table(), seed=seed)
    params = Shapes(fitted.encoder, model).impose(fitted.params)
    moved = sf.Fitted(fitted.encoder, model, params, fitted.loss)
    assert holds(moved)
    assert largest_violation(moved) < 1e-5


def test_parameters_that_have_the_shape_stay():
    fitted = random_fitted(sf.FwFM(k=3), make_schema("increasing"), make_table())
    shapes = Shapes(fitted.encoder, fitted.model)
    once = shapes.impose(fitted.params)
    twice = shapes.impose(once)
    assert all(np.allclose(once[name], twice[name], atol=1e-5) for name in once)
    others = {name: values for name, values in once.items() if name not in ("linear", "factors")}
    assert all(np.array_equal(values, fitted.params[name]) for name, values in others.items())


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("shape", ["increasing", "decreasing"])
def test_a_fit_keeps_the_shape_that_its_data_do_not_have(model, shape):
    table = make_table()
    fitted = sf.fit_model(table, "y", loss="squared", schema=make_schema(shape), model=model, training=fast())
    assert holds(fitted, shape)
    assert largest_violation(fitted, 1.0 if shape == "increasing" else -1.0) < 1e-5
    free = sf.fit_model(table, "y", loss="squared", schema=make_schema(None), model=model, training=fast())
    assert not holds(free, shape)


@pytest.mark.parametrize(
    "settings",
    [
        {"members": 3},
        {"effort": "default", "epochs": 8},
        {"average": False},
        {"refit_on_all": False},
        {"optimizer": "adagrad"},
        {"batch_size": 32, "threads": 2},
    ],
    ids=repr,
)
def test_every_way_to_fit_keeps_the_shape(settings):
    training = fast(**settings)
    fitted = sf.fit_model(make_table(), "click", schema=make_schema("increasing"), training=training)
    assert holds(fitted)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch: pip install 'splinefm[torch]'")
def test_the_torch_engine_keeps_the_shape():
    training = fast(engine="torch")
    fitted = sf.fit_model(
        make_table(), "click", schema=make_schema("increasing"), model=sf.FwFM(k=3), training=training
    )
    assert holds(fitted)


def test_updates_keep_the_shape():
    fitted = sf.fit_model(make_table(), "click", schema=make_schema("increasing"), model=sf.FM(k=3), training=fast())
    learner = sf.Learner(fitted)
    for seed in range(1, 4):
        more = make_table(seed)
        more["c"] = np.where(np.arange(N) % 2, "new", more["c"])  # 200 rows: a category that the model did not know
        learner.update(more, "click")
        assert holds(learner.fitted())


def test_the_shape_is_part_of_schema_files_and_model_files(tmp_path):
    schema = make_schema("decreasing")
    for name in ("schema.toml", "schema.json"):
        schema.save(tmp_path / name)
        assert sf.Schema.load(tmp_path / name) == schema
    fitted = sf.fit_model(make_table(), "click", schema=schema, model=sf.FM(k=3), training=fast())
    fitted.save(tmp_path / "m.sfm")
    assert sf.load(tmp_path / "m.sfm").encoder.fields[0].shape == "decreasing"
    assert "shape='decreasing'" in repr(schema)


def test_a_search_for_crosses_leaves_out_columns_with_a_shape():
    training = fast(effort="default", crosses=3)
    fitted = sf.fit_model(make_table(), "y", loss="squared", schema=make_schema("increasing"), training=training)
    assert all("x" not in cross.columns for cross in fitted.encoder.schema.crosses)
    assert holds(fitted)


def test_what_cannot_have_a_shape_is_refused():
    with pytest.raises(ValueError, match="shape must be one of"):
        sf.Numerical("x", shape="up")
    for settings in (
        {"basis": sf.Bins(4)},
        {"basis": sf.BSpline(4, periodic=True), "transform": sf.MinMax(0, 1)},
        {"reduction": "identity"},
    ):
        with pytest.raises(ValueError, match="field 'x': shape='increasing' needs a spline"):
            sf.Numerical("x", shape="increasing", **settings)
    table = make_table()
    for more in (sf.Cross("x", "c"), sf.Categorical("level", column="x")):
        with pytest.raises(ValueError, match="reads its column too"):
            sf.fit_model(table, "click", schema=make_schema("increasing", BASES[0], more), training=fast())
    with pytest.raises(ValueError, match="one score per row"):
        schema = sf.Schema(make_schema("increasing").fields[:2])
        sf.fit_model(table, "c", loss="softmax", schema=schema, training=fast())


def without_target(table):
    return {name: values for name, values in table.items() if name in ("x", "z", "c")}


@pytest.mark.parametrize("constraint", [{"x": -1}, {"x": -1, "z": 0}, [-1, 0, 0], np.array([-1, 0, 0])], ids=repr)
def test_estimators_take_monotonic_cst_as_scikit_learn_does(constraint):
    table = make_table()
    settings = {"epochs": 4, "effort": "fast", "n_jobs": 1, "model": sf.FM(k=3)}
    estimator = sf.SplineFMRegressor(monotonic_cst=constraint, **settings).fit(without_target(table), table["y"])
    assert holds(estimator.fitted_, "decreasing")
    assert not estimator.fitted_.certify("z").decreasing
    named = sf.SplineFMClassifier(monotonic_cst=constraint, **settings)
    columns = {name: table[name] for name in ("x", "z", "c", "click")}
    assert holds(named.fit(columns, target="click").fitted_, "decreasing")


def test_a_constraint_on_what_is_not_a_number_is_refused():
    table = make_table()
    for constraint, message in [
        ({"c": 1}, "field 'c' is not numerical"),
        ({"w": 1}, "no field 'w' in the schema"),
        ({"x": 2}, "monotonic_cst must be -1, 0 or 1 for each column, got {'x': 2}"),
        ([1, 0], "monotonic_cst has shape \\(2,\\) but X has 3 features"),
    ]:
        schema = sf.Schema([sf.Numerical("x"), sf.Numerical("z"), sf.Categorical("c")])
        with pytest.raises(ValueError, match=message):
            sf.SplineFMRegressor(schema=schema, monotonic_cst=constraint).fit(without_target(table), table["y"])


def test_an_inferred_field_that_is_no_spline_becomes_one():
    table = without_target(make_table()) | {"level": np.random.default_rng(3).integers(1, 6, N)}
    inferred = sf.infer_schema(table)
    assert not isinstance(inferred["level"], sf.Numerical)
    assert inferred.with_shapes({"level": "increasing"})["level"] == sf.Numerical("level", shape="increasing")


def test_the_command_line_takes_shapes(tmp_path):
    table = make_table()
    columns = {name: table[name] for name in ("x", "z", "c", "click")}
    pq.write_table(pa.table(columns), tmp_path / "clicks.parquet")
    paths = [str(tmp_path / "clicks.parquet"), "--out", str(tmp_path / "m.sfm")]
    options = ["--target", "click", "--effort", "fast", "--epochs", "3", "--threads", "1"]
    assert CliRunner().invoke(app, ["fit", *paths, *options, "--shape", "x=decreasing"]).exit_code == 0
    assert holds(sf.load(tmp_path / "m.sfm"), "decreasing")
    for text, message in [("x=up", "--shape x=up: write NAME=increasing"), ("w=increasing", "no field 'w'")]:
        failed = CliRunner().invoke(app, ["fit", *paths, *options, "--shape", text])
        assert failed.exit_code != 0
        assert message in failed.output
