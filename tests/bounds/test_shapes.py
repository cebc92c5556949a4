"""Shapes: fitted curves rise or fall in every segment, whatever trained the model."""

import importlib.util
import json

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
from splinefm.search.mixture import join_schemas
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


def make_schema(shape, basis=BASES[0], *more, **settings):
    x = sf.Numerical("x", sf.MinMax(), basis, shape=shape, **settings)
    return sf.Schema([x, sf.Numerical("z", basis=sf.BSpline(4)), sf.Categorical("c"), *more])


CURVES = [
    {"shape": "convex"},
    {"shape": "concave"},
    {"shape": ("increasing", "concave")},
    {"shape": ("decreasing", "convex")},
    {"shape": ("increasing", "convex")},
    {"slope": (-0.1, 0.2)},
    {"slope": (0.05, None)},
    {"shape": "decreasing", "slope": (-0.3, None)},
    {"shape": ("increasing", "convex"), "slope": (0.02, 0.3)},
    {"shape": "concave", "slope": (-0.2, 0.4)},
]


def curve_schema(curve, basis=BASES[0], others=()):
    return make_schema(curve.get("shape"), basis, *others, slope=curve.get("slope"))


def violation_of_curve(fitted, n=4000, seed=0):
    """By how much three equally spaced rows break the shape of x, relative to the largest score."""
    rng = np.random.default_rng(seed)
    low, high = fitted.encoder.fields[0].fitted_transform.inverse(np.array([0.0, 1.0]))
    ends = np.sort(rng.uniform(low, high, (n, 2)), axis=1)
    others = random_pairs(n, seed)[0]
    first, middle, last = (
        fitted.scores(others | {"x": x}, watch=False).astype(np.float64)
        for x in (ends[:, 0], ends.mean(axis=1), ends[:, 1])
    )
    shape, width = fitted.encoder.fields[0].required_shape, ends[:, 1] - ends[:, 0]
    found = [-shape.curvature * (first - 2.0 * middle + last)]
    if np.isfinite(shape.slopes[0]):
        found.append(shape.slopes[0] * width - (last - first))
    if np.isfinite(shape.slopes[1]):
        found.append(last - first - shape.slopes[1] * width)
    return float(np.max(found) / max(1.0, np.abs(middle).max()))


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


@pytest.mark.parametrize("curve", CURVES, ids=repr)
@pytest.mark.parametrize("model", [sf.FwFM(k=3), sf.FwFM(k=3, third=2), sf.FFM(k=2)], ids=repr)
def test_random_parameters_get_curves_and_limits(model, curve):
    for seed, basis in enumerate(BASES):
        if curve.get("slope") and basis == BASES[3]:
            continue  # refused
        fitted = random_fitted(model, curve_schema(curve, basis), make_table(), seed=seed)
        assert fitted.certify("x").holds is False
        assert violation_of_curve(fitted) > 1e-3
        params = Shapes(fitted.encoder, model).impose(fitted.params)
        moved = sf.Fitted(fitted.encoder, model, params, fitted.loss)
        certificate = moved.certify("x")
        assert certificate.holds, certificate
        assert violation_of_curve(moved) < 1e-5
        again = Shapes(fitted.encoder, model).impose(params)  # the margin for rounding follows the size of the scores
        assert all(np.allclose(params[name], again[name], atol=3e-3) for name in params)
        third = Shapes(fitted.encoder, model).impose(again)
        assert all(np.allclose(third[name], again[name], atol=1e-5) for name in params)


@given(
    st.integers(0, 10**6),
    st.sampled_from(MODELS),
    st.sampled_from(BASES[:3]),
    st.sampled_from(CURVES),
    st.sampled_from(CURVES),
)
@examples(60)
def test_two_fields_get_their_shapes_at_once(seed, model, basis, one, other):
    """Each repair changes what the other field meets; the last pass has to leave both whole."""
    x = sf.Numerical("x", sf.MinMax(), basis, **one)
    z = sf.Numerical("z", sf.MinMax(), sf.BSpline(5), **other)
    c = sf.Categorical("c", order=list("abcd"), shape="decreasing")
    fitted = random_fitted(model, sf.Schema([x, z, c]), make_table(), seed=seed)
    params = Shapes(fitted.encoder, model).impose(fitted.params)
    certificates = sf.Fitted(fitted.encoder, model, params, fitted.loss).certify()
    assert certificates.holds, str(certificates)
    assert violation_of_curve(sf.Fitted(fitted.encoder, model, params, fitted.loss)) < 1e-5


@pytest.mark.thorough
@given(st.integers(0, 10**6), st.sampled_from(MODELS), st.sampled_from(BASES[:3]), st.sampled_from(CURVES))
@examples(20)
def test_no_triple_among_a_million_violates_a_shape(seed, model, basis, curve):
    fitted = random_fitted(model, curve_schema(curve, basis), make_table(), seed=seed)
    params = Shapes(fitted.encoder, model).impose(fitted.params)
    assert violation_of_curve(sf.Fitted(fitted.encoder, model, params, fitted.loss), 10**6, seed) < 1e-5


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_ordered_categories_rise_from_each_to_the_next(model):
    schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c", order=["d", "a", "c", "b"], shape="increasing")])
    fitted = random_fitted(model, schema, make_table())
    certificate = fitted.certify("c")
    assert certificate.increasing is (False if model.pairwise else None)
    assert certificate.lowest.before in "dac"
    params = Shapes(fitted.encoder, model).impose(fitted.params)
    moved = sf.Fitted(fitted.encoder, model, params, fitted.loss)
    assert moved.certify("c").increasing
    x = np.random.default_rng(1).uniform(-2, 12, 500)
    scores = [moved.scores({"x": x, "c": [name] * 500}, watch=False) for name in "dacb"]
    assert (np.diff(scores, axis=0) >= -1e-5).all()


def test_a_fit_keeps_the_order_of_categories_and_updates_add_none():
    table = make_table()
    schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c", order=["d", "a", "c"], shape="decreasing")])
    fitted = sf.fit_model(table, "click", schema=schema, model=sf.FM(k=3), training=fast())
    assert fitted.certify("c").holds
    learner = sf.Learner(fitted)
    learner.update(make_table(1), "click")
    assert learner.fitted().certify("c").holds
    assert learner.fitted().encoder.fields[1].vocabulary.names.to_pylist() == ["d", "a", "c"]
    free = sf.Schema([sf.Numerical("x"), sf.Categorical("c", order=["d", "a", "c"])])
    assert not sf.fit_model(table, "click", schema=free, model=sf.FM(k=3), training=fast()).certify("c").decreasing


@pytest.mark.parametrize("curve", [CURVES[2], CURVES[5]], ids=repr)
@pytest.mark.parametrize("settings", [{}, {"members": 2}, {"effort": "default", "epochs": 6}], ids=repr)
def test_fits_and_updates_keep_curves_and_limits(curve, settings):
    schema = curve_schema(curve)
    fitted = sf.fit_model(
        make_table(), "y", loss="squared", schema=schema, model=sf.FwFM(k=3), training=fast(**settings)
    )
    assert fitted.certify("x").holds
    assert violation_of_curve(fitted) < 1e-5
    learner = sf.Learner(fitted)
    learner.update(make_table(1), "y")
    assert learner.fitted().certify("x").holds


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch: pip install 'splinefm[torch]'")
def test_the_torch_engine_keeps_curves_and_orders():
    ordered = sf.Categorical("c", order=list("abcd"), shape="decreasing")
    schema = sf.Schema([*curve_schema(CURVES[8]).fields[:2], ordered])
    fitted = sf.fit_model(make_table(), "y", loss="squared", schema=schema, training=fast(engine="torch"))
    assert fitted.certify().holds


def test_the_mean_of_settings_keeps_limits_that_are_for_the_sum_of_resolutions():
    def joined(one, other, **shape):
        schemas = [sf.Schema([sf.Numerical("x", basis=sf.BSpline(n), **shape)]) for n in (one, other)]
        return join_schemas(schemas)

    assert joined(8, 20, slope=(0, 1)) is None
    assert joined(8, 16, slope=(0, 1))["x"].basis == sf.MultiResolution((8, 16))
    assert joined(8, 20, shape="concave")["x"].shape == "concave"


def test_estimators_take_orders_and_learn_on():
    table = make_table()
    schema = sf.Schema(
        [sf.Numerical("x", slope=(-0.2, 0.3)), sf.Numerical("z"), sf.Categorical("c", order=list("dcba"))]
    )
    settings = {"epochs": 4, "effort": "fast", "n_jobs": 1, "model": sf.FM(k=3)}
    estimator = sf.SplineFMRegressor(schema=schema, monotonic_cst={"c": 1}, **settings)
    estimator.fit(without_target(table), table["y"])
    assert estimator.fitted_.encoder.fields[2].shape == "increasing"
    assert estimator.fitted_.certify().holds
    more = make_table(1)
    estimator.partial_fit(without_target(more), more["y"])
    assert estimator.fitted_.certify().holds


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch: pip install 'splinefm[torch]'")
def test_several_processes_refuse_shapes_of_all_fields():
    from splinefm.distribute.fit import DistributedFit

    for item in (sf.Numerical("x", slope=(0, 1)), sf.Categorical("c", order=["a", "b"], shape="increasing")):
        request = DistributedFit("rows", "y", sf.Schema([item, sf.Numerical("z")]), sf.FM(k=2), sf.Loss("squared"))
        with pytest.raises(ValueError, match=f"shapes are for one machine, and field '{item.name}' has one"):
            request.check()


def test_curves_have_a_linear_transform():
    table = make_table()
    table["x"] = np.exp(table["x"])
    schema = sf.Schema([sf.Numerical("x", shape="concave"), sf.Categorical("c")])
    field = sf.fit_model(table, "y", loss="squared", schema=schema, training=fast()).encoder.fields[0]
    assert isinstance(field.transform, sf.MinMax)
    assert field.units_per_u == pytest.approx(np.ptp(table["x"]))
    for transform in (sf.Log(), sf.Quantile()):
        with pytest.raises(ValueError, match="holds in units of the column, which needs a linear transform"):
            sf.Numerical("x", transform, shape="convex")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": ("increasing", "decreasing")}, "increasing, decreasing, not both"),
        ({"shape": ("convex", "concave")}, "convex, concave, not both"),
        ({"shape": ("convex", "convex")}, "two different ones"),
        ({"shape": ()}, "one word or two"),
        ({"shape": ("increasing", "up")}, "shape must be one of"),
        ({"shape": 1}, "shape must be one of"),
        ({"slope": 1.0}, "slope takes two numbers"),
        ({"slope": (1.0, "high")}, "slope takes two numbers"),
        ({"slope": (2.0, 1.0)}, "low < high"),
        ({"slope": (float("nan"), 1.0)}, "low < high"),
        ({"slope": (None, None)}, "needs a limit"),
        ({"slope": (-2.0, -1.0), "shape": "increasing"}, "leave no slope"),
        ({"slope": (0, 1), "basis": sf.BSpline(4, degree=0)}, "degree 1 or more"),
        ({"slope": (0, 1), "basis": sf.MultiResolution((3, 8))}, "resolutions that divide the finest"),
    ],
    ids=repr,
)
def test_shapes_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        sf.Numerical("x", **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": "increasing"}, "needs the order"),
        ({"shape": "convex", "order": ["a", "b"]}, "shape must be one of 'increasing', 'decreasing'"),
        ({"order": ["a"]}, "two or more different categories"),
        ({"order": "abc"}, "two or more different categories"),
        ({"order": ["a", "b", "a"]}, "two or more different categories"),
        ({"order": ["a", "b"], "vocabulary": ["b", "a"]}, "order is the vocabulary"),
    ],
    ids=repr,
)
def test_orders_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        sf.Categorical("c", **settings)


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


def test_curves_limits_and_orders_are_part_of_files(tmp_path):
    x = sf.Numerical("x", shape=("increasing", "concave"), slope=(None, 2.5))
    c = sf.Categorical("c", order=["d", "c", "b", "a"], shape="increasing")
    schema = sf.Schema([x, c])
    for name in ("schema.toml", "schema.json"):
        schema.save(tmp_path / name)
        assert sf.Schema.load(tmp_path / name) == schema
    (tmp_path / "own.toml").write_text('[[field]]\nkind = "Numerical"\nname = "x"\nslope = [-inf, 2.5]\n')
    assert sf.Schema.load(tmp_path / "own.toml")["x"].slope == (-np.inf, 2.5)
    fitted = sf.fit_model(make_table(), "click", schema=schema, model=sf.FM(k=3), training=fast())
    fitted.save(tmp_path / "m.sfm")
    loaded = sf.load(tmp_path / "m.sfm").encoder.fields
    assert (loaded[0].shape, loaded[0].slope) == (("increasing", "concave"), (-np.inf, 2.5))
    assert (loaded[1].order, loaded[1].shape) == (("d", "c", "b", "a"), "increasing")


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
    curves = ["--shape", "x=increasing,concave", "--slope", "x=,0.5", "--slope", "z=-1,"]
    assert CliRunner().invoke(app, ["fit", *paths, *options, *curves]).exit_code == 0
    fields = sf.load(tmp_path / "m.sfm").encoder.fields
    assert (fields[0].shape, fields[0].slope, fields[1].slope) == (
        ("increasing", "concave"),
        (-np.inf, 0.5),
        (-1.0, np.inf),
    )
    for option, text, message in [
        ("--shape", "x=up", "--shape x=up: write NAME="),
        ("--shape", "increasing", "--shape increasing: write NAME="),
        ("--shape", "w=increasing", "no field 'w'"),
        ("--slope", "x=1", "--slope x=1: write NAME=LOW,HIGH"),
        ("--slope", "x=2,1", "low < high"),
    ]:
        failed = CliRunner().invoke(app, ["fit", *paths, *options, option, text])
        assert failed.exit_code != 0
        assert message in failed.output


def test_info_prints_certificates(tmp_path):
    schema = make_schema("increasing", BASES[0], sf.Numerical("wave", sf.MinMax(), sf.Fourier(2)))
    table = make_table() | {"wave": np.random.default_rng(1).uniform(size=N)}
    sf.fit_model(table, "click", schema=schema, model=sf.FM(k=3), training=fast()).save(tmp_path / "m.sfm")
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "m.sfm"), "--certify"])
    assert shown.exit_code == 0
    assert "shape increasing" in " ".join(shown.output.split())
    assert "holds" in shown.output
    assert "slopes are found for splines" in " ".join(shown.output.split())
    found = CliRunner().invoke(app, ["info", str(tmp_path / "m.sfm"), "--certify", "--json"])
    certificates = {each["field"]: each for each in json.loads(found.output)["certificates"]}
    assert certificates["x"]["increasing"] is True
    assert certificates["x"]["holds"] is True
    assert certificates["z"]["lowest"]["value"] is not None
