"""The description of a fitted numerical field says the same as its transform and its basis."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.fields.numerical import SIGNS, SpecialRule, describe_numerical, parse_special
from splinefm.encode.tables.arrow import to_arrow
from support import examples

BASES = [
    sf.BSpline(7),
    sf.BSpline(5, degree=0),
    sf.BSpline(5, degree=2, periodic=True),
    sf.BSpline(knots=(0.0, 0.1, 0.15, 0.8, 1.0), degree=3),
    sf.MultiResolution((2, 8)),
    sf.Bins(9),
    sf.Polynomial(4, "legendre"),
    sf.Polynomial(0),
    sf.Fourier(3),
    sf.Powers((1.0, 2.0)),
]
TRANSFORMS = [
    sf.MinMax(-2.0, 9.0),
    sf.Quantile().fit(np.random.default_rng(0).normal(size=400)),
    sf.Log(shift=3.0, low=-2.0, high=50.0),
    sf.ArcsinhSquare(low=-4.0, high=100.0),
    sf.BestFitCDF(family="logistic", params=(1.0, 2.0)),
]
X = np.concatenate([np.linspace(-6.0, 12.0, 301), [-1e6, 1e6, 0.0, np.nan]])


def evaluate(found, x):
    """Weights of all features, shape (n, features), by the description alone."""
    n_functions = 1 + max(int(w.start + w.moves * w.segments + w.coefficients.shape[1]) for w in found.windows)
    weights = np.zeros((len(x), found.n_tokens + n_functions))
    for row, value in enumerate(x):
        token = next((i for i, rule in enumerate(found.rules) if rule.matches(value)), None)
        token = found.missing if np.isnan(value) else token
        if token is not None:
            weights[row, token] = 1.0
            continue
        u = value if found.pieces is None else transform_at(found.pieces, value)
        for window in found.windows:
            edges = np.arange(window.segments + 1) / window.segments if window.edges is None else window.edges
            segment = int(np.clip(np.searchsorted(edges, u, side="right") - 1, 0, window.segments - 1))
            low, high = edges[segment : segment + 2]
            t = 0.0 if np.isinf([low, high]).any() else 2.0 * (u - low) / (high - low) - 1.0
            of_segment = window.coefficients[min(segment, len(window.coefficients) - 1)]
            for j, polynomial in enumerate(of_segment):
                function = (window.start + window.moves * segment + j) % window.around
                weights[row, found.n_tokens + function] += np.polyval(polynomial, t)
    return weights


def transform_at(pieces, x):
    knots, values = pieces
    inside = np.clip(x, knots[0], knots[-1])
    piece = int(np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 2))
    t = (inside - knots[piece]) / (knots[piece + 1] - knots[piece])
    if values.shape[1] == 1:
        return values[piece, 0] + t * (values[piece + 1, 0] - values[piece, 0])
    return np.polyval(values[piece, ::-1], t)


@pytest.mark.parametrize("basis", BASES, ids=str)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: type(transform).__name__)
def test_a_description_gives_the_weights_of_the_encoder(transform, basis):
    item = sf.Numerical("x", transform, basis, special=[0.0, ">= 11", "< -5.5"])
    found = describe_numerical(item)
    features, weight = item.features_on_axis(to_arrow(X))
    expected = np.zeros((len(X), item.layout.n_features))
    np.add.at(expected, (np.arange(len(X))[:, None], features), weight)
    weights = evaluate(found, X)
    np.testing.assert_allclose(weights[:, : item.layout.n_features], expected, atol=1e-6)
    assert not weights[:, item.layout.n_features :].any()


def test_what_is_not_of_the_package_has_no_description():
    class Doubled(sf.MinMax):
        def __call__(self, x):
            return np.clip(2.0 * super().__call__(x), 0.0, 1.0)

    custom = sf.CustomTransform(lambda x: x / 9, lambda u: u * 9)
    for transform, basis in [
        (custom, sf.Bins(3)),
        (Doubled(0.0, 1.0), sf.BSpline()),
        (sf.MinMax(0.0, 1.0), sf.CustomBasis((np.sin,))),
        (sf.MinMax(0.0, 1.0), sf.Powers((0.5,))),
        ("auto", sf.BSpline()),
    ]:
        assert describe_numerical(sf.Numerical("x", transform, basis)) is None


def test_bins_have_edges_and_other_bases_do_not():
    assert sf.Numerical("x", sf.MinMax(0.0, 8.0), sf.BSpline(4, degree=0)).bin_edges().tolist() == [2.0, 4.0, 6.0]
    with pytest.raises(ValueError, match="field 'x' has a BSpline basis, which has no bins"):
        sf.Numerical("x", sf.MinMax(0.0, 8.0)).bin_edges()


@examples(50)
@given(st.sampled_from(SIGNS), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_a_rule_is_read_as_it_is_written(sign, number, x):
    rule = parse_special(f"{sign} {number!r}")
    assert rule == SpecialRule(sign, number)
    assert bool(rule.matches(np.array([x]))[0]) == eval(f"{x!r} {sign} {number!r}")
    assert not rule.matches(np.array([np.nan]))[0]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: type(transform).__name__)
def test_the_derivative_of_a_transform_is_its_slope(transform):
    x = np.linspace(-3.5, 60.0, 997)
    step = 1e-6
    slope = (transform(x + step) - transform(x - step)) / (2.0 * step)
    smooth = np.abs(transform(x + step) + transform(x - step) - 2.0 * transform(x)) < 1e-9  # no kink in between
    assert smooth.mean() > 0.9
    np.testing.assert_allclose(transform.derivative(x)[smooth], slope[smooth], atol=1e-6)
