"""Curves, extrema and surfaces of the page in a real browser equal `fitted.segment`."""

import numpy as np
import pytest
from engine_rows import assert_equal, page_rows

import splinefm as sf
from splinefm.encode.slots import expand_windows
from splinefm.explore.payload import make_payload
from support import (
    all_models,
    averages,
    cross_schema,
    cross_table,
    mixed_schema,
    mixed_table,
    random_classes,
    random_fitted,
    take_rows,
    visits_schema,
    visits_table,
)

SUMS = ("x", "kind", "tags", "user")
KINDS = (
    "category × number",
    "category × numbers",
    "number × number",
    "levels × one",
    "of bins",
    "hashed × number",
    "values",
)
SPLINES = [sf.BSpline(8), sf.BSpline(6, 1), sf.BSpline(5, 5), sf.MultiResolution((3, 8), 2), sf.Polynomial(5)]
MODELS = [*all_models(13), *averages()]


def loaded(engine, fitted, table):
    """Load a model; return its first row."""
    payload = make_payload(fitted, table, explain=False)
    engine.load(payload)
    return page_rows(payload, take_rows(table, range(1)) if isinstance(table, dict) else table)[0]


def curve_of(fitted, row, name):
    return fitted.segment({other: value for other, value in row.items() if other != name}, along=name, watch=False)


def check_curves(engine, fitted, row):
    """All curves, and one on values of all kinds."""
    curves = engine.call("curves", row, 50)
    assert curves
    for name, found in curves.items():
        curve = curve_of(fitted, row, name)
        assert len(found["x"]) >= 50
        assert_equal(found["score"], curve(np.array(found["x"])))
        assert_equal(found["prediction"], curve(np.array(found["x"]), link=True))
        assert np.all(np.diff(found["u"]) >= 0)
        odd = [None, 1e9, -1e9, 0.0, -1.0, 0.3]
        assert_equal(engine.call("curve", row, name, odd), curve(odd))


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_curves_with_and_without_crosses(engine, model):
    table = cross_table(200)
    for kinds in ((), KINDS):
        fitted = random_fitted(all_models_like(model, 7 + len(kinds)), cross_schema(*kinds), table)
        check_curves(engine, fitted, loaded(engine, fitted, table))


def test_a_column_may_have_a_name_that_objects_know(engine):
    every = cross_table(100)
    table = {"__proto__": every["x"], "kind": every["kind"]}
    fitted = random_fitted(sf.FM(k=2), sf.Schema([sf.Numerical("__proto__"), sf.Categorical("kind")]), table)
    check_curves(engine, fitted, loaded(engine, fitted, table))


def all_models_like(model, n_fields):
    """Return the model for another number of fields."""
    sizes = model.k if isinstance(model.k, tuple) else ()
    return sf.FmFM(k=tuple(sizes[i % len(sizes)] for i in range(n_fields))) if sizes else model


def test_a_curve_of_a_field_with_the_identity_reduction_is_that_of_its_scores(engine):
    table = mixed_table(200)
    fitted = random_fitted(sf.FwFM(k=4), mixed_schema(), table)
    row = loaded(engine, fitted, table)
    z = [-1e9, -1.0, 0.0, 0.5, 1e9, None]
    rows = {name: [value] * len(z) for name, value in row.items()} | {"z": z}
    assert_equal(engine.call("curve", row, "z", z), fitted.scores(rows))


def test_curves_of_one_of_several_classes(engine):
    table = {name: values for name, values in mixed_table(200).items() if name in SUMS}
    fitted = random_classes(sf.FwFM(k=4), mixed_schema(SUMS), table)
    row = loaded(engine, fitted, table)
    for cls, label in enumerate(fitted.classes):
        found = engine.call("curves", row, 40, cls)["x"]
        assert_equal(found["score"], curve_of(fitted.for_class(label), row, "x")(np.array(found["x"])))
        rows = {name: [value] * len(found["x"]) for name, value in row.items()} | {"x": found["x"]}
        assert_equal(found["prediction"], fitted.predict(rows)[:, cls])


def local_extrema(curve):
    """Scores at the local extrema of a curve, by SciPy's derivative of its spline."""
    spline, degree = curve.spline, curve.field.basis.degree
    derivative = spline.derivative()
    roots = np.asarray(derivative.roots(extrapolate=False)) if hasattr(derivative, "roots") else _roots(derivative)
    breaks = np.unique(np.concatenate([[0.0, 1.0], curve.field.basis.breaks])) if degree < 2 else np.array([0.0, 1.0])
    u = np.unique(np.concatenate([roots[(roots > 0.0) & (roots < 1.0)], breaks]))
    values = np.asarray(spline(u))
    steps = np.sign(np.diff(values))
    inner = np.flatnonzero(steps[1:] * steps[:-1] < 0) + 1
    return u[[0, *inner, len(u) - 1]], values[[0, *inner, len(u) - 1]]


def _roots(derivative):
    from scipy.interpolate import PPoly

    return PPoly.from_spline(derivative).roots(extrapolate=False)


@pytest.mark.parametrize(
    "basis",
    [sf.BSpline(8), sf.BSpline(6, 1), sf.BSpline(5, 5), sf.MultiResolution((3, 8), 2), sf.Polynomial(5)],
    ids=str,
)
@pytest.mark.parametrize("transform", [sf.MinMax(), sf.Quantile()], ids=["MinMax", "Quantile"])
def test_extrema_are_those_of_scipy(engine, basis, transform):
    rng = np.random.default_rng(3)
    table = visits_table(rng)
    fitted = random_fitted(sf.FwFM(k=4), visits_schema(basis, transform, special=()), table)
    row = loaded(engine, fitted, {name: list(values) for name, values in table.items()})
    found = engine.call("extrema", row, "recency")
    curve = curve_of(fitted, row, "recency")
    if not isinstance(basis, sf.Polynomial):
        u, values = local_extrema(curve)
        assert_equal([one["score"] for one in found], values, 1e-9)
        assert_equal([one["u"] for one in found], u, 1e-6)
    check_global(found, curve)


def check_global(found, curve):
    for kind, expected in (("maximum", curve.maximum()), ("minimum", curve.minimum())):
        best = [one for one in found if one["kind"] == kind and one["isGlobal"]]
        assert_equal(best[0]["score"], expected.value, 1e-9)
        assert_equal(curve(best[0]["x"]), expected.value, 1e-9)


@pytest.mark.parametrize("model", [sf.FwFM(k=4), sf.FwFM(k=3, third=2), sf.HigherOrderFM(k=3, order=3)], ids=str)
def test_extrema_with_crosses(engine, model):
    table = cross_table(200)
    fitted = random_fitted(model, cross_schema("number × number", "category × number"), table)
    row = loaded(engine, fitted, table)
    for name in ("x", "z", "hour"):
        check_global(engine.call("extrema", row, name), curve_of(fitted, row, name))


def test_extrema_of_bins_are_inside_of_them(engine):
    rng = np.random.default_rng(3)
    table = visits_table(rng)
    fitted = random_fitted(sf.FwFM(k=4), visits_schema(sf.Bins(6), sf.Quantile()), table)
    row = loaded(engine, fitted, {name: list(values) for name, values in table.items()})
    check_global(engine.call("extrema", row, "recency"), curve_of(fitted, row, "recency"))


@pytest.mark.parametrize("names", [("x", "z"), ("kind", "z"), ("x", "user"), ("kind", "code")])
@pytest.mark.parametrize("kinds", [(), ("number × number", "category × number")], ids=["fields", "crosses"])
@pytest.mark.parametrize("model", [sf.FFM(k=3), sf.FwFM(k=3, third=2)], ids=str)
def test_surfaces(engine, model, kinds, names):
    table = cross_table(200)
    fitted = random_fitted(model, cross_schema(*kinds), table)
    row = loaded(engine, fitted, table)
    found = engine.call("surface", row, *names, 7, 9)
    surface = fitted.segment(
        {name: value for name, value in row.items() if name not in names}, along=names, watch=False
    )
    x, y = np.asarray(found["x"])[:, None], np.asarray(found["y"])[None]
    expected = surface(x, y)
    assert_equal(np.reshape(found["score"], expected.shape), expected)
    assert_equal(np.reshape(found["prediction"], expected.shape), surface(x, y, link=True))


def test_bars(engine):
    table = cross_table(200)
    fitted = random_fitted(sf.FwFM(k=4), cross_schema("category × number"), table)
    row = loaded(engine, fitted, table)
    found, bars = engine.call("bars", row, "kind"), curve_of(fitted, row, "kind")
    assert found["names"] == [*bars.names, "missing"]
    assert_equal(found["score"], [*bars.scores, bars.tokens["missing"]])


def test_the_spread_has_the_quantiles_of_the_curves_of_similar_rows(engine):
    table = cross_table(100)
    fitted = random_fitted(sf.FwFM(k=4), cross_schema(), table)
    row = loaded(engine, fitted, table)
    found = engine.call("spread", row, "z", 20, 0, 15)
    assert found["rows"][0] == 0  # the row itself
    segments = take_rows(table, found["rows"], [name for name in table if name != "z"])
    curves = sf.segments(fitted, segments, along="z")(np.array(found["x"]))
    assert_equal(found["score"], np.quantile(curves, found["levels"], axis=0))


def test_the_functions_of_a_basis(engine):
    table = cross_table(100)
    fitted = random_fitted(sf.FwFM(k=4), cross_schema(), table)
    loaded(engine, fitted, table)
    for name in ("x", "z", "hour"):
        found = engine.call("basis", name, 30)
        field = fitted.encoder.fields[fitted.encoder.schema.names.index(name)]
        start, weight = field.basis(field.transform(np.array(found["x"])))
        dense = np.zeros((len(found["x"]), sum(field.basis.sizes)))
        features = expand_windows(start, field.basis.widths)
        np.add.at(dense, (np.arange(len(dense))[:, None], features), weight)
        assert_equal(np.transpose(found["functions"]), dense, 1e-9)


@pytest.mark.parametrize("degree", range(8))
def test_roots_of_polynomials(engine, degree):
    rng = np.random.default_rng(degree)
    roots = np.sort(rng.uniform(-1.5, 1.5, degree))
    coefficients = np.polynomial.polynomial.polyfromroots(roots).tolist()
    found = engine.run("([coefficients]) => engine.rootsOf(coefficients)", coefficients)
    assert_equal(found, roots[np.abs(roots) <= 1.0], 1e-7)
    nodes = engine.run("([n]) => Array.from(engine.chebyshevNodes(n))", degree + 1)
    values = np.polynomial.polynomial.polyval(np.array(nodes), coefficients).tolist()
    assert_equal(engine.run("([v]) => Array.from(engine.throughNodes(v))", values), coefficients, 1e-9)
