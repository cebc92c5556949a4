"""Certificates: no segment has a slope beyond the bound, and the segment that is reported has it."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.bounds.partners import bernstein_at, smallest_inside
from splinefm.bounds.shapes import Shapes
from splinefm.inspect.certificates import marks
from support import random_classes, random_fitted

PAIRS = [sf.FM(k=3), sf.FwFM(k=3), sf.LowRankFwFM(k=3, rank=2), sf.FmFM(k=3), sf.FFM(k=2)]
PRODUCTS = [sf.FwFM(k=3, third=2), sf.HigherOrderFM(k=2, order=3)]
BASES = [sf.BSpline(5), sf.BSpline(4, degree=1), sf.MultiResolution((2, 6), degree=2), sf.Polynomial(4, "chebyshev")]
N = 200


def name(value):
    return repr(value)


def make_table(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.gamma(2.0, 3.0, N),
        "z": np.where(rng.random(N) < 0.1, np.nan, rng.normal(size=N)),
        "c": rng.choice(list("abcdef"), N),
        "tags": [list(rng.choice(list("pqr"), rng.integers(0, 3), replace=False)) for _ in range(N)],
    }


def make_schema(basis, *more):
    return sf.Schema(
        [
            sf.Numerical("x", sf.MinMax(), basis),
            sf.Numerical("z", sf.MinMax(), sf.BSpline(3), special=["negative"]),
            sf.Categorical("c", unseen="neutral"),
            sf.MultiValued("tags", reduction="mean"),
            *more,
        ]
    )


def random_rows(rng, n):
    """Values that no row of the table needs to have, missing and unseen ones included."""
    words = [["p"], ["q", "r"], [], None, ["new"]]
    return {
        "z": [None if rng.random() < 0.1 else float(rng.normal(0, 2)) for _ in range(n)],
        "c": [rng.choice(["a", "b", "f", "new", None]) for _ in range(n)],
        "tags": [words[rng.integers(len(words))] for _ in range(n)],
    }


def slopes_of_rows(fitted, rows):
    """The smallest and the largest slope of the curve of every row, on a fine grid of u."""
    curves = sf.segments(fitted, rows, along="x")
    u = np.linspace(0.0, 1.0, 400)
    found = [curves[i].spline.derivative()(u) for i in range(len(rows["c"]))]
    return min(slope.min() for slope in found), max(slope.max() for slope in found)


@pytest.mark.parametrize("model", PAIRS + PRODUCTS, ids=name)
@pytest.mark.parametrize("basis", BASES, ids=name)
def test_no_segment_has_a_slope_beyond_the_bounds(model, basis):
    fitted = random_fitted(model, make_schema(basis), make_table())
    certificate = fitted.certify("x")
    low, high = slopes_of_rows(fitted, random_rows(np.random.default_rng(1), 60))
    largest = max(abs(certificate.lowest.bound), abs(certificate.highest.bound))
    assert certificate.lowest.bound <= low + 1e-6 * largest
    assert certificate.highest.bound >= high - 1e-6 * largest
    assert certificate.proven


@pytest.mark.parametrize("model", PAIRS, ids=name)
@pytest.mark.parametrize("basis", BASES, ids=name)
def test_models_of_pairs_attain_their_bounds_in_the_segments_that_are_reported(model, basis):
    fitted = random_fitted(model, make_schema(basis), make_table())
    certificate = fitted.certify("x")
    for extreme in (certificate.lowest, certificate.highest):
        assert extreme.attained
        slope = fitted.segment(extreme.segment, along="x", watch=False).spline.derivative()
        u = fitted.encoder.fields[0].transform(np.array([extreme.value]))
        assert slope(u)[0] == pytest.approx(extreme.bound, rel=1e-5)


def test_crosses_of_the_column_only_bound_its_slopes():
    schema = make_schema(sf.BSpline(5), sf.Cross("x", "c"), sf.Cross("z", "c"))
    fitted = random_fitted(sf.FwFM(k=3), schema, make_table())
    certificate = fitted.certify("x")
    low, high = slopes_of_rows(fitted, random_rows(np.random.default_rng(1), 60))
    assert certificate.lowest.bound <= low
    assert certificate.highest.bound >= high
    assert not certificate.lowest.attained


def with_curve(fitted, coefficients):
    """The model with these linear weights for the basis functions of x, and without vectors there."""
    params = {key: values.copy() for key, values in fitted.params.items()}
    item, (first, last) = fitted.encoder.fields[0], fitted.encoder.layout.feature_ptr[:2]
    params["linear"][first + item.n_tokens : last] = coefficients
    params["factors"][first:last] = 0.0
    return replace(fitted, params=params)


def test_a_curve_that_rises_is_certified_and_one_that_falls_a_little_is_not():
    fitted = random_fitted(sf.FwFM(k=3), make_schema(sf.BSpline(5)), make_table())
    rising = np.arange(8.0)
    certificate = with_curve(fitted, rising).certify("x")
    assert (certificate.increasing, certificate.decreasing) == (True, False)
    assert str(certificate) == "x: the score never falls along it, whatever the other columns are"
    certificate = with_curve(fitted, -rising).certify("x")
    assert (certificate.increasing, certificate.decreasing) == (False, True)
    assert "never rises" in str(certificate)
    falling = rising.copy()
    falling[4:6] = 4.5, 3.5
    certificate = with_curve(fitted, falling).certify("x")
    assert (certificate.increasing, certificate.decreasing) == (False, False)
    assert "the score falls at x = " in str(certificate)
    assert "c = " in str(certificate)


def test_a_difference_of_coefficients_below_zero_is_no_proof_of_a_falling_curve():
    """Cubic splines may rise although one coefficient is below the one before: the slope decides."""
    fitted = random_fitted(sf.FM(k=3), make_schema(sf.BSpline(5)), make_table())
    coefficients = np.array([0.0, 1.0, 2.0, 3.0, 2.98, 4.0, 5.0, 6.0])
    assert with_curve(fitted, coefficients).certify("x").increasing


def test_a_level_curve_does_not_change():
    fitted = random_fitted(sf.FM(k=3), make_schema(sf.BSpline(5)), make_table())
    certificate = with_curve(fitted, np.ones(8)).certify("x")
    assert certificate.increasing
    assert certificate.decreasing
    assert str(certificate) == "x: the score does not change along it"


def test_two_fields_of_one_column_are_bounded_without_a_segment():
    table = make_table()
    schema = sf.Schema([sf.Numerical("x"), sf.Numerical("z"), sf.Categorical("sign", column="z"), sf.Categorical("c")])
    certificate = random_fitted(sf.FM(k=3), schema, table).certify("x")
    assert certificate.lowest.segment == {}
    assert np.isnan(certificate.lowest.slope)
    assert certificate.increasing is None
    assert "not decided" in str(certificate)


def test_what_has_no_slope_is_refused():
    fitted = random_fitted(sf.FM(k=2), make_schema(sf.Fourier(2)), make_table())
    with pytest.raises(ValueError, match="'c' is not a numerical field"):
        fitted.certify("c")
    with pytest.raises(ValueError, match="no field 'w' in the model"):
        fitted.certify("w")
    with pytest.raises(ValueError, match="slopes are found for splines and polynomials; the basis of 'x' is Fourier"):
        fitted.certify("x")
    classes = random_classes(sf.FM(k=2), make_schema(sf.BSpline(4)), make_table())
    with pytest.raises(ValueError, match="for_class"):
        classes.certify("x")


def curvatures_of_rows(fitted, rows):
    """The smallest and the largest second derivative by u of the curve of every row, between breaks."""
    curves = sf.segments(fitted, rows, along="x")
    u = np.linspace(0.001, 0.999, 400)
    found = [curves[i].spline.derivative(2)(u) for i in range(len(rows["c"]))]
    return min(bend.min() for bend in found), max(bend.max() for bend in found)


@pytest.mark.parametrize("model", PAIRS + PRODUCTS, ids=name)
@pytest.mark.parametrize("basis", [BASES[0], BASES[2], BASES[3]], ids=name)
def test_no_segment_bends_beyond_the_bounds(model, basis):
    fitted = random_fitted(model, make_schema(basis), make_table())
    certificate = fitted.certify("x")
    low, high = curvatures_of_rows(fitted, random_rows(np.random.default_rng(1), 60))
    largest = max(abs(certificate.least_bend.bound), abs(certificate.most_bend.bound))
    assert certificate.least_bend.bound <= low + 1e-6 * largest
    assert certificate.most_bend.bound >= high - 1e-6 * largest
    for extreme in (certificate.least_bend, certificate.most_bend):
        assert extreme.attained is model.pairwise


def test_splines_of_degree_1_bend_at_their_breaks():
    fitted = random_fitted(sf.FwFM(k=3), make_schema(sf.BSpline(4, degree=1)), make_table())
    certificate = fitted.certify("x")
    rows = random_rows(np.random.default_rng(1), 60)
    curves = sf.segments(fitted, rows, along="x")
    middle = (np.arange(4) + 0.5) / 4
    bends = [np.diff(curves[i].spline.derivative()(middle)) for i in range(60)]
    assert certificate.least_bend.bound <= np.min(bends) + 1e-6
    assert certificate.most_bend.bound >= np.max(bends) - 1e-6
    assert certificate.least_bend.attained
    assert certificate.most_bend.attained
    straight = with_curve(fitted, np.arange(5.0)).certify("x")
    assert straight.convex
    assert straight.concave


def test_slopes_are_in_units_of_the_column_where_the_transform_is_linear():
    fitted = random_fitted(sf.FM(k=3), make_schema(sf.BSpline(5)), make_table())
    certificate = with_curve(fitted, np.arange(8.0)).certify("x")  # 5 segments, one unit of score each
    low, high = fitted.encoder.fields[0].transform.inverse(np.array([0.0, 1.0]))
    assert certificate.slopes == pytest.approx((5.0 / (high - low), 5.0 / (high - low)))
    bent = random_fitted(sf.FM(k=3), sf.Schema([sf.Numerical("x", sf.Log()), sf.Categorical("c")]), make_table())
    certificate = bent.certify("x")
    assert np.isnan(certificate.slopes).all()
    assert certificate.convex is None
    assert certificate.concave is None


@pytest.mark.parametrize("model", PAIRS, ids=name)
@pytest.mark.parametrize("basis", [sf.Bins(5), sf.BSpline(4, degree=0), sf.Bins(1)], ids=name)
def test_steps_are_certified_from_one_to_the_next(model, basis):
    fitted = random_fitted(model, make_schema(basis), make_table())
    certificate = fitted.certify("x")
    edges = fitted.encoder.fields[0].bin_edges()
    inside = np.concatenate([[edges[0] - 1e-6], (edges[:-1] + edges[1:]) / 2, [edges[-1] + 1]]) if len(edges) else [1.0]
    rows = random_rows(np.random.default_rng(1), 60)
    scores = np.array([fitted.scores({**rows, "x": [x] * 60}, watch=False) for x in inside], np.float64)
    steps = np.diff(scores, axis=0) if len(edges) else np.zeros((1, 60))
    assert certificate.lowest.bound <= steps.min() + 1e-4
    assert certificate.highest.bound >= steps.max() - 1e-4
    assert certificate.lowest.attained
    if len(edges):
        low, high = certificate.lowest.before, certificate.lowest.value
        pair = {key: [value] * 2 for key, value in certificate.lowest.segment.items()} | {"x": [low, high]}
        reached = np.diff(fitted.scores(pair, watch=False).astype(np.float64))[0]
        assert reached == pytest.approx(certificate.lowest.bound, abs=1e-4)
        assert "from x = " in str(certificate)


def test_a_column_that_another_field_reads_has_no_slopes_of_its_own():
    for other in (sf.Categorical("level", column="x"), sf.Cross(sf.Categorical("level", column="x"), "c")):
        fitted = random_fitted(sf.FM(k=3), make_schema(sf.BSpline(5), other), make_table())
        with pytest.raises(ValueError, match="reads its column too"):
            fitted.certify("x")


def test_all_fields_with_an_axis_are_certified_at_once():
    size = sf.Categorical("size", column="c", order=list("abcdef"), shape="increasing")
    wave = sf.Numerical("wave", basis=sf.Fourier(2), column="z")
    schema = sf.Schema([sf.Numerical("x", shape="decreasing"), size, wave, sf.MultiValued("tags")])
    fitted = random_fitted(sf.FM(k=3), schema, make_table())
    certificates = fitted.certify()
    assert list(certificates) == ["x", "size"]
    assert certificates.skipped.keys() == {"wave"}
    assert certificates.holds is None  # no value of the wave is known to be the worst
    assert len(str(certificates).splitlines()) == 3
    assert random_fitted(sf.FM(k=3), schema.without("wave"), make_table()).certify().holds is False
    assert random_fitted(sf.FM(k=3), sf.Schema([sf.Numerical("x")]), make_table()).certify().holds is None


def test_marks_say_what_is_proven_of_the_fields_of_a_page():
    fitted = random_fitted(sf.FM(k=3), make_schema(sf.BSpline(5)), make_table())
    assert marks(fitted, ["x", "z", "c"]) == {}
    rising = with_curve(fitted, np.arange(8.0) ** 2)
    assert marks(rising, ["x", "c"]) == {"x": "never falls and is convex in any segment"}
    assert marks(rising, ["z"]) == {}
    assert marks(with_curve(fitted, np.ones(8)), ["x"]) == {"x": "is level in every segment"}
    assert marks(random_classes(sf.FM(k=2), make_schema(sf.BSpline(4)), make_table()), ["x"]) == {}
    wide = [sf.Numerical(f"w{i}", column="z") for i in range(70)]
    many = random_fitted(
        sf.FM(k=1), sf.Schema([*wide, sf.Numerical("x", sf.MinMax(), shape="increasing")]), make_table()
    )
    kept = replace(many, params=Shapes(many.encoder, many.model).impose(many.params))
    assert marks(kept, list(many.encoder.schema.names)).keys() == {"x"}


@pytest.mark.thorough
@given(st.integers(0, 10**6), st.sampled_from(PAIRS), st.sampled_from(BASES))
def test_bounds_hold_for_a_million_pairs_and_are_attained(seed, model, basis):
    fitted = random_fitted(model, make_schema(basis), make_table(), seed=seed)
    certificate = fitted.certify("x")
    assert certificate.lowest.attained
    assert certificate.highest.attained
    rng = np.random.default_rng(seed)
    u = np.sort(rng.uniform(size=(2, 10**6)), axis=0)
    rows = {
        key: pa.array(values).take(pa.array(rng.integers(0, 60, 10**6))) for key, values in random_rows(rng, 60).items()
    }
    low, high = (
        fitted.scores(pa.table({**rows, "x": fitted.encoder.fields[0].transform.inverse(each)}), watch=False)
        for each in u
    )
    rise, width = high.astype(np.float64) - low, u[1] - u[0]
    rounding = 1e-5 * np.abs(low).max()
    assert (rise >= certificate.lowest.bound * width - rounding).all()
    assert (rise <= certificate.highest.bound * width + rounding).all()


@given(st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=4))
def test_the_smallest_value_of_a_polynomial_is_at_an_end_or_where_its_slope_is_zero(coefficients):
    values = np.array([coefficients])
    inner, where = smallest_inside(values)
    least = min(inner[0], coefficients[0], coefficients[-1])
    t = np.linspace(0.0, 1.0, 1001)
    grid = bernstein_at(np.repeat(values, len(t), axis=0), t)
    assert least <= grid.min() + 1e-9
    if np.isfinite(inner[0]):
        assert bernstein_at(values, where)[0] == pytest.approx(inner[0])
