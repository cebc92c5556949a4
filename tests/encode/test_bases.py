"""Bases against SciPy and the identities that define them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import BSpline as ScipyBSpline

from splinefm import Bins, BSpline, CustomBasis, Fourier, MultiResolution, Polynomial, Powers
from splinefm.encode.bases import smoothing, supports
from support import examples

units = st.lists(st.floats(0, 1), min_size=1, max_size=20).map(np.array)
degrees = st.integers(0, 5)
ALL = [
    BSpline(),
    BSpline(5, 2, periodic=True),
    BSpline(knots=(0, 0.1, 0.5, 1)),
    MultiResolution((3, 9)),
    Bins(7),
    Polynomial(4),
    Polynomial(4, "chebyshev"),
    Polynomial(4, "legendre"),
    Fourier(3),
    Powers(),
    CustomBasis((np.ones_like, np.sqrt)),
]


@st.composite
def knots(draw):
    inner = draw(st.lists(st.integers(1, 999), max_size=10, unique=True))
    return (0.0, *(value / 1000 for value in sorted(inner)), 1.0)


def dense(basis, u):
    """The matrix B[i, f] = B_f(u_i), as the window contract defines it."""
    start, weight = basis(u)
    assert start.dtype == np.int32 and start.shape == (len(u), len(basis.widths))
    assert weight.dtype == np.float64 and weight.shape == (len(u), sum(basis.widths))
    matrix = np.zeros((len(u), sum(basis.sizes)))
    for i in range(len(u)):
        at = 0
        for window, width in enumerate(basis.widths):
            for j in range(width):
                matrix[i, start[i, window] + j] += weight[i, at + j]
            at += width
    return matrix


def scipy_matrix(basis, u):
    return ScipyBSpline.design_matrix(u, basis.extended_knots, basis.degree).toarray()


@given(units, st.integers(1, 40), degrees)
def test_uniform_splines_agree_with_scipy(u, segments, degree):
    basis = BSpline(segments, degree)
    u = np.concatenate([u, [0.0, 1.0], np.arange(segments + 1) / segments])
    np.testing.assert_allclose(dense(basis, u), scipy_matrix(basis, u), atol=1e-12)


@given(units, knots(), degrees)
def test_splines_on_given_knots_agree_with_scipy(u, breaks, degree):
    basis = BSpline(degree=degree, knots=breaks)
    assert basis.segments == len(breaks) - 1
    u = np.concatenate([u, breaks])
    np.testing.assert_allclose(dense(basis, u), scipy_matrix(basis, u), atol=1e-12)


@given(units, knots(), degrees, st.booleans())
def test_periodic_splines_are_scipy_splines_with_wrapped_columns(u, breaks, degree, uniform):
    basis = BSpline(len(breaks) - 1, degree, None if uniform else breaks, periodic=True)
    unwrapped = scipy_matrix(basis, u)
    wrapped = np.zeros((len(u), basis.segments))
    for column in range(unwrapped.shape[1]):
        wrapped[:, column % basis.segments] += unwrapped[:, column]
    np.testing.assert_allclose(dense(basis, u), wrapped, atol=1e-12)


@given(knots(), st.integers(1, 5), st.booleans())
def test_a_periodic_spline_closes(breaks, degree, uniform):
    basis = BSpline(len(breaks) - 1, degree, None if uniform else breaks, periodic=True)
    ends = dense(basis, np.array([0.0, 1.0]))
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-12)


@given(units, knots(), degrees, st.booleans(), st.booleans())
def test_weights_of_a_spline_are_a_convex_combination(u, breaks, degree, uniform, periodic):
    basis = BSpline(len(breaks) - 1, degree, None if uniform else breaks, periodic)
    _, weight = basis(np.concatenate([u, [0.0, 1.0]]))
    assert (weight >= -1e-12).all()
    np.testing.assert_allclose(weight.sum(axis=1), 1.0, atol=1e-12)


@given(units, st.integers(1, 50))
def test_degree_zero_is_binning(u, segments):
    u = np.concatenate([u, [0.0, 1.0], np.arange(segments + 1) / segments])
    np.testing.assert_array_equal(dense(BSpline(segments, 0), u), dense(Bins(segments), u))


@given(units, knots())
def test_degree_zero_on_knots_is_binning_by_cuts(u, breaks):
    u = np.concatenate([u, breaks])
    np.testing.assert_array_equal(dense(BSpline(degree=0, knots=breaks), u), dense(Bins(cuts=breaks[1:-1]), u))


@given(units)
def test_resolutions_stand_side_by_side(u):
    basis = MultiResolution((3, 9), degree=2)
    np.testing.assert_array_equal(dense(basis, u), np.hstack([dense(BSpline(3, 2), u), dense(BSpline(9, 2), u)]))


@given(units, st.integers(0, 6))
def test_polynomials_span_the_powers_and_bernstein_sums_to_one(u, degree):
    grid = np.linspace(0, 1, 50)
    for kind in ("bernstein", "chebyshev", "legendre"):
        basis = Polynomial(degree, kind)
        solution, *_ = np.linalg.lstsq(dense(basis, grid), grid**degree, rcond=None)
        np.testing.assert_allclose(dense(basis, u) @ solution, u**degree, atol=1e-9)
    np.testing.assert_allclose(Polynomial(degree)(u)[1].sum(axis=1), 1.0, atol=1e-12)


def test_fourier_is_orthogonal_and_closes():
    grid = np.arange(64) / 64
    matrix = dense(Fourier(3), grid)
    gram = matrix.T @ matrix / 64
    np.testing.assert_allclose(gram, np.diag([1.0] + [0.5] * 6), atol=1e-12)
    np.testing.assert_allclose(*dense(Fourier(3), np.array([0.0, 1.0])), atol=1e-12)


def test_powers_and_custom_functions_are_what_they_say():
    u = np.array([0.0, 0.25, 1.0])
    np.testing.assert_array_equal(dense(Powers(), u), np.stack([u, u**2, np.sqrt(u)], axis=1))
    np.testing.assert_array_equal(dense(CustomBasis((np.sqrt,)), u), np.sqrt(u)[:, None])


@pytest.mark.parametrize("basis", ALL, ids=lambda basis: type(basis).__name__)
def test_functions_vanish_outside_their_support(basis):
    u = np.linspace(0, 1, 501)
    matrix = dense(basis, u)
    interval = supports(basis)
    assert interval.shape == (sum(basis.sizes), 2)
    outside = (u[:, None] < interval[:, 0] - 1e-9) | (u[:, None] > interval[:, 1] + 1e-9)
    assert np.abs(matrix[outside]).max(initial=0.0) < 1e-12


class Scale:
    """u = x / high."""

    def __init__(self, high=1.0):
        self.high = high

    def __call__(self, x):
        return np.clip(np.asarray(x) / self.high, 0.0, 1.0)

    def inverse(self, u):
        return np.asarray(u) * self.high


identity = Scale()


def test_quantile_bins_hold_equal_numbers_of_rows():
    x = np.random.default_rng(0).random(1000) ** 3
    basis = Bins(10, "quantile").fit(x, np.ones(1000), identity)
    assert basis.sizes == (10,)
    assert np.ptp(np.bincount(basis(x)[0].ravel())) <= 2


def test_repeated_quantiles_are_merged():
    x = np.array([0.0] * 90 + [0.5] * 5 + [1.0] * 5)
    basis = Bins(10, "quantile").fit(x, np.ones(100), identity)
    # The tenths of the rows are 0 nine times: no border separates anything there.
    assert basis.sizes == (1,)
    weighted = Bins(3, "quantile").fit(np.array([0.1, 0.2, 0.3]), np.array([1.0, 1.0, 1.0]), identity)
    np.testing.assert_array_equal(weighted(np.array([0.1, 0.2, 0.3]))[0].ravel(), [1, 2, 2])


def test_raw_edges_close_bins_on_the_left_and_outer_bins_are_open():
    scale = Scale(50.0)
    x = np.array([0.0, 5.0, 50.0])
    basis = Bins(edges=(0, 5, 10, 100, 200)).fit(x, np.ones(3), scale)
    values = np.array([-3.0, 0.0, 4.99, 5.0, 9.99, 10.0, 50.0, 99.0])
    np.testing.assert_array_equal(basis(scale(values))[0].ravel(), [0, 0, 0, 1, 1, 2, 2, 2])
    assert basis.sizes == (4,)
    assert Bins(edges=(0, 1)).fit(x, np.ones(3), scale).sizes == (1,)


def test_bins_that_need_data_say_so():
    with pytest.raises(ValueError, match="call fit first"):
        _ = Bins(5, "quantile").sizes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BSpline(0), "segments must be at least 1, got 0"),
        (lambda: BSpline(2.5), "segments must be an integer, got 2.5"),
        (lambda: BSpline(True), "an integer"),
        (lambda: BSpline(3, -1), "degree must be from 0 to 5, got -1"),
        (lambda: BSpline(3, 6), "degree must be from 0 to 5, got 6"),
        (lambda: BSpline(knots=(0.0, 0.5)), "knots must run from 0 to 1"),
        (lambda: BSpline(knots=(0.0, 0.7, 0.5, 1.0)), "increasing"),
        (lambda: BSpline(knots=(0.0, np.nan, 1.0)), "increasing finite"),
        (lambda: MultiResolution(()), "at least one resolution"),
        (lambda: MultiResolution((8, 0)), "segments must be at least 1"),
        (lambda: Bins(0), "count must be at least 1"),
        (lambda: Bins(5, "log"), "spacing must be one of 'uniform', 'quantile'"),
        (lambda: Bins(edges=(1.0,)), "edges must be at least two increasing"),
        (lambda: Polynomial(-1), "degree must be from 0 to 65,536"),
        (lambda: Polynomial(2, "hermite"), "family must be"),
        (lambda: Fourier(0), "order must be from 1 to 65,536"),
        (lambda: Powers(()), "exponents must be positive"),
        (lambda: Powers((0.0,)), "exponents must be positive"),
        (lambda: CustomBasis(()), "non-empty list of callables"),
        (lambda: CustomBasis((3,)), "callables"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("function", [lambda u: 1.0 / (u * 0.0 + 2.0) * np.inf, lambda u: u[:-1]])
def test_a_custom_function_must_give_a_finite_value_per_u(function):
    with pytest.raises(ValueError, match="function 0 of the custom basis"):
        CustomBasis((function,))(np.array([0.0, 0.5]))


@pytest.mark.parametrize("basis", ALL, ids=lambda basis: type(basis).__name__)
def test_no_rows_is_fine(basis):
    start, weight = basis(np.zeros(0))
    assert start.shape == (0, len(basis.widths)) and weight.shape == (0, sum(basis.widths))


# Smoothness


def roughness(basis, values, order):
    """The integral over u of the squared derivative of SciPy's spline, by quadrature on every segment."""
    if basis.periodic:
        values = values[np.arange(basis.segments + basis.degree) % basis.segments]
    derivative = ScipyBSpline(basis.extended_knots, values, basis.degree).derivative(order)
    at, weight = np.polynomial.legendre.leggauss(basis.degree + 1)
    left = np.arange(basis.segments)[:, None] / basis.segments
    points = left + (at + 1) / 2 / basis.segments
    return float((derivative(points) ** 2 @ weight).sum() / 2 / basis.segments)


def penalty(basis, values, order):
    """What training adds to its objective for a smoothness of 1, in units of u instead of its twentieths."""
    rows = values
    for _ in range(order):
        rows = np.roll(rows, -1) - rows if basis.periodic else np.diff(rows)
    (weight,) = smoothing(basis, order)
    return weight * (rows**2).sum() * 20.0 ** (2 * order - 1)


@given(
    segments=st.integers(4, 39),
    degree=st.integers(1, 5),
    order=st.integers(1, 3),
    periodic=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_smoothness_penalty_bounds_the_integral_of_the_squared_derivative(segments, degree, order, periodic, seed):
    basis, order = BSpline(segments, degree, periodic=periodic), min(order, degree)
    values = np.random.default_rng(seed).normal(size=basis.sizes[0])
    integral, found = roughness(basis, values, order), penalty(basis, values, order)
    # Of the B-splines of the derivative, which sum to one, it takes every product for one of a function with itself.
    assert integral <= found * (1 + 1e-9)
    if degree == order:  # they are steps: nothing to neglect
        assert found == pytest.approx(integral)
    if (degree, order, periodic) == (3, 2, True):
        assert found <= 3 * integral


@examples(30)
@given(turns=st.integers(1, 2), phase=st.floats(0, 6), order=st.sampled_from([1, 2, 3]), periodic=st.booleans())
def test_a_curve_has_the_same_smoothness_for_any_number_of_segments(turns, phase, order, periodic):
    u = (np.arange(1000) + 0.5) / 1000
    integral = (2 * np.pi * turns) ** (2 * order) / 2
    for segments in (20, 39) if order == 3 else (20, 40, 80):
        basis = BSpline(segments, periodic=periodic)
        values = np.linalg.lstsq(dense(basis, u), np.sin(2 * np.pi * turns * u + phase))[0]
        assert roughness(basis, values, order) == pytest.approx(integral, rel=0.05)
        # Functions that reach beyond the ends of [0, 1] count in full; on a circle there are none.
        error = 60 / segments**2 if periodic else 8 / segments
        assert penalty(basis, values, order) == pytest.approx(integral, rel=error)


def test_the_weight_of_smoothness_stops_growing_where_steps_could_not_follow():
    assert BSpline(100).smoothing(2) == BSpline(5000).smoothing(2) == (125.0,)
    assert BSpline(5000).smoothing(1) == (250.0,)
    assert BSpline(39).smoothing(3) < BSpline(40).smoothing(3) == BSpline(5000).smoothing(3) == (31.25,)


def test_every_resolution_is_as_smooth_as_twenty_segments():
    for order in (1, 2, 3):
        assert MultiResolution((8, 32, 128)).smoothing(order) == 3 * BSpline(20).smoothing(order) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "basis", [*ALL[4:], BSpline(9, 0), MultiResolution((4, 8), 0)], ids=lambda basis: type(basis).__name__
)
def test_bases_whose_neighbors_are_not_alike_are_not_smoothed(basis):
    for order in (1, 2, 3):
        assert smoothing(basis, order) == (0.0,) * len(basis.sizes)


@pytest.mark.parametrize("periodic", [-np.inf, 1, "yes", None])
def test_periodic_is_true_or_false(periodic):
    with pytest.raises(ValueError, match="periodic must be True or False, got"):
        BSpline(4, periodic=periodic)
