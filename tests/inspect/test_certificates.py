"""Certificates: no segment has a slope beyond the bound, and the segment that is reported has it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.bounds.partners import bernstein_at, smallest_inside
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
    fitted = random_fitted(sf.FM(k=2), make_schema(sf.Bins(4)), make_table())
    with pytest.raises(ValueError, match="'c' is not a numerical field"):
        fitted.certify("c")
    with pytest.raises(ValueError, match="no field 'w' in the model"):
        fitted.certify("w")
    with pytest.raises(ValueError, match="slopes are found for splines and polynomials; the basis of 'x' is Bins"):
        fitted.certify("x")
    classes = random_classes(sf.FM(k=2), make_schema(sf.BSpline(4)), make_table())
    with pytest.raises(ValueError, match="for_class"):
        classes.certify("x")


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
