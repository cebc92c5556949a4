"""Parametric families: formulas against scipy.stats, fits against the truth, degenerate columns."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from splinefm.encode.transforms import bestfit
from splinefm.encode.transforms.bestfit import FAMILIES, cdf, fit_families, ppf
from splinefm.encode.transforms.scaling import distinct_points, mid_ranks, weighted_quantile
from support import examples

# name -> (params as we write them, the same distribution by scipy)
ORACLES = {
    "normal": ((3.0, 2.0), scipy.stats.norm(3, 2)),
    "logistic": ((-4.0, 0.5), scipy.stats.logistic(-4, 0.5)),
    "laplace": ((1.0, 7.0), scipy.stats.laplace(1, 7)),
    "gumbel": ((5.0, 2.0), scipy.stats.gumbel_r(5, 2)),
    "cauchy": ((-1.0, 3.0), scipy.stats.cauchy(-1, 3)),
    "exponential": ((0.0, 40.0), scipy.stats.expon(scale=40)),
    "half-normal": ((0.0, 0.2), scipy.stats.halfnorm(scale=0.2)),
    "weibull": ((0.0, 6.0, 3.0), scipy.stats.weibull_min(3.0, scale=6)),
    "gamma": ((0.0, 9.0, 2.5), scipy.stats.gamma(2.5, scale=9)),
    "lognormal": ((0.0, 8.0, 1.5), scipy.stats.lognorm(1.5, scale=8)),
    "log-logistic": ((0.0, 2.0, 1.7), scipy.stats.fisk(1.7, scale=2)),
    "lomax": ((0.0, 5.0, 1.3), scipy.stats.lomax(1.3, scale=5)),
    "beta": ((0.0, 1.0, 0.6, 2.2), scipy.stats.beta(0.6, 2.2)),
}
SCALES = [1e-9, 1.0, 1e9]


def kumaraswamy_sample(size, a=0.7, b=3.0):
    u = np.random.default_rng(5).random(size)
    return (1 - (1 - u) ** (1 / b)) ** (1 / a)


def sample(name, size):
    if name == "kumaraswamy":
        return kumaraswamy_sample(size)
    return ORACLES[name][1].rvs(size, random_state=np.random.default_rng(5))


def true_cdf(name, x):
    return 1 - (1 - x**0.7) ** 3 if name == "kumaraswamy" else ORACLES[name][1].cdf(x)


def test_every_family_has_an_oracle():
    assert set(ORACLES) | {"kumaraswamy"} == set(FAMILIES)


@pytest.mark.parametrize("name", ORACLES)
def test_cdf_ppf_and_density_match_scipy(name):
    params, oracle = ORACLES[name]
    location, scale, *shapes = params
    u = np.linspace(0.001, 0.999, 201)
    x = oracle.ppf(u)
    np.testing.assert_allclose(cdf(name, params, x), u, rtol=1e-9)
    np.testing.assert_allclose(ppf(name, params, u), x, rtol=1e-9, atol=1e-9)
    log_density = FAMILIES[name].log_density((x - location) / scale, *shapes) - np.log(scale)
    np.testing.assert_allclose(log_density, oracle.logpdf(x), rtol=1e-9, atol=1e-9)


def test_kumaraswamy_matches_its_formula():
    params, x = (0.0, 1.0, 0.7, 3.0), np.linspace(0.001, 0.999, 201)
    u = 1 - (1 - x**0.7) ** 3
    np.testing.assert_allclose(cdf("kumaraswamy", params, x), u, rtol=1e-9)
    np.testing.assert_allclose(ppf("kumaraswamy", params, u), x, rtol=1e-9)
    slope = np.gradient(u, x, edge_order=2)[5:-5]
    density = np.exp(FAMILIES["kumaraswamy"].log_density(x, 0.7, 3.0))[5:-5]
    np.testing.assert_allclose(slope, density, rtol=0.02)


@pytest.mark.parametrize("name", FAMILIES)
def test_cdf_and_ppf_stay_in_range_at_the_extremes(name):
    shapes = ORACLES.get(name, ((0.0, 1.0, 0.7, 3.0),))[0][2:]
    extremes = np.array([-np.inf, -1.7e308, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1.7e308, np.inf])
    for scale in (1e-300, 1.0, 1e290):
        u = cdf(name, (0.0, scale, *shapes), extremes)
        assert u[0] == 0 and u[-1] == 1 and (np.diff(u) >= 0).all()
        assert np.isfinite(ppf(name, (0.0, scale, *shapes), np.array([0.0, 0.5, 1.0]))).all()
    assert np.isnan(cdf(name, (0.0, 1.0, *shapes), [np.nan])).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_extreme_shapes_still_give_finite_quantiles(name):
    n_shapes = {"real": 0, "positive": 1, "bounded": 2}[FAMILIES[name].support]
    n_shapes = 0 if name in ("exponential", "half-normal") else n_shapes
    for shape in (0.01, 100.0):
        x = ppf(name, (0.0, 1.0, *[shape] * n_shapes), np.linspace(0, 1, 11))
        assert np.isfinite(x).all() and (np.diff(x) >= 0).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_fit_recovers_the_generating_cdf(name):
    x = sample(name, 20_000)
    ((found, params, distance),) = fit_families(x, names=[name])
    assert found == name
    grid = np.quantile(x, np.linspace(0, 1, 301))
    assert np.abs(cdf(name, params, grid) - true_cdf(name, grid)).max() < 0.02
    assert distance < 0.01


@pytest.mark.parametrize("name", FAMILIES)
def test_the_winner_is_near_the_truth_whatever_its_name(name):
    x = sample(name, 20_000)
    winner, params, distance = fit_families(x)[0]
    grid = np.quantile(x, np.linspace(0, 1, 301))
    assert np.abs(cdf(winner, params, grid) - true_cdf(name, grid)).max() < 0.02
    assert distance < 0.01


@pytest.mark.parametrize("name", [name for name in FAMILIES if FAMILIES[name].support != "bounded"])
def test_fit_maximizes_the_likelihood(name):
    x = sample(name, 600)
    train = np.sort(x)[np.arange(600) % 3 != 1]
    ((_, params, _),) = fit_families(x, names=[name])

    def likelihood(params):
        location, scale, *shapes = params
        return np.sum(FAMILIES[name].log_density((train - location) / scale, *shapes) - np.log(scale))

    for i in range(FAMILIES[name].support == "positive", len(params)):
        for factor in (0.9, 1.1):
            other = list(params)
            other[i] = params[i] * factor if i else params[0] + (factor - 1) * params[1]
            assert likelihood(other) < likelihood(params)


@pytest.mark.parametrize("data", ["logistic", "lognormal", "exponential", "lomax", "gamma"])
def test_a_family_finds_its_own_maximum_where_the_simplex_finds_it(monkeypatch, data):
    x = np.abs(sample(data, 700)) + 0.01
    own = {name: params for name, params, _ in fit_families(x)}
    slow = {name: family._replace(maximum=lambda z, weight: None) for name, family in FAMILIES.items()}
    monkeypatch.setattr(bestfit, "find_family", slow.__getitem__)
    by_simplex = {name: params for name, params, _ in fit_families(x)}
    assert own.keys() == by_simplex.keys()
    for name in own:
        u = cdf(name, own[name], np.sort(x))
        np.testing.assert_allclose(u, cdf(name, by_simplex[name], np.sort(x)), atol=2e-3)


def test_ordinary_columns_need_no_simplex(monkeypatch):
    """It looks at all values of a column about seventy times for each family, and tables have thousands of columns."""
    calls = []
    monkeypatch.setattr(bestfit, "nelder_mead", lambda *args, **kwargs: calls.append(args))
    rng = np.random.default_rng(0)
    for x in (rng.normal(size=1000), rng.lognormal(size=1000), rng.integers(1, 1000, 1000) / 10):
        fit_families(x)
    assert not calls


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["gamma", "normal", "cauchy", "lomax"])
def test_fit_follows_the_units(name, scale):
    x = sample(name, 2000)
    ((_, params, distance),) = fit_families(x, names=[name])
    ((_, scaled, scaled_distance),) = fit_families(x * scale, names=[name])
    assert scaled_distance == pytest.approx(distance, abs=1e-4)
    assert scaled[1] == pytest.approx(params[1] * scale, rel=1e-2)
    assert scaled[2:] == pytest.approx(params[2:], rel=1e-2)


def test_bounds_move_the_bounded_families():
    x = 20 + 60 * sample("beta", 20_000)
    ((name, params, distance),) = fit_families(x, names=["beta"], bounds=(20.0, 80.0))
    assert name == "beta" and params[:2] == (20.0, 60.0) and distance < 0.01
    assert params[2:] == pytest.approx((0.6, 2.2), rel=0.05)


def test_eligibility_follows_the_support():
    names = {name for name, _, _ in fit_families([-1.0, 2.0, 3.0, 5.0])}
    assert names == {name for name, family in FAMILIES.items() if family.support == "real"}
    names = {name for name, _, _ in fit_families([0.0, 2.0, 3.0, 5.0])}
    assert names == {name for name, family in FAMILIES.items() if family.support != "bounded"}
    assert {name for name, _, _ in fit_families([0.0, 0.2, 0.3, 0.5, 1.0])} == set(FAMILIES)


def test_an_ineligible_family_falls_back_to_the_normal_by_moments():
    ((name, params, _),) = fit_families([-3.0, 1.0], names=["gamma"])
    assert name == "normal" and params == pytest.approx((-1.0, 2.0))


def test_the_fallback_does_not_overflow():
    ((name, params, _),) = fit_families([-1e200, 3e200], names=["gamma"])
    assert name == "normal" and params == pytest.approx((1e200, 2e200))


def test_a_dominant_value_leaves_the_real_families_in():
    names = {name for name, _, _ in fit_families([-2.0, -1.0, 0.0, 1.0, 3.0], [1, 1, 20, 1, 1])}
    assert {"normal", "logistic", "gumbel"} <= names


def test_distinct_points_drop_weightless_values_and_pull_in_huge_ones():
    values, weights = distinct_points([1e308, 2.0, 1e300, 7.0, -1e308], [1, 2, 3, 0, 1])
    assert values.tolist() == [-1e290, 2.0, 1e290] and weights.tolist() == [1, 2, 4]


def test_results_are_sorted_by_distance():
    distances = [distance for _, _, distance in fit_families(sample("gamma", 500))]
    assert distances == sorted(distances) and len(distances) > 8


def test_distance_is_measured_on_points_the_fit_does_not_see():
    x = np.sort(sample("normal", 300))
    ((_, params, distance),) = fit_families(x, names=["normal"])
    train, held_out = np.delete(x, np.s_[1::3]), x[1::3]
    assert params == pytest.approx((train.mean(), train.std()))
    ranks = (np.arange(100) + 0.5) / 100
    expected = np.sqrt(np.mean((scipy.stats.norm(*params).cdf(held_out) - ranks) ** 2))
    assert distance == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), min_size=2, max_size=40))
@examples(20)
def test_weights_are_counts(pairs):
    x, count = np.array(pairs).T
    names = ["normal", "gamma", "logistic"]
    assert fit_families(x, count, names) == fit_families(np.repeat(x, count), None, names)


def test_many_points_are_thinned_by_rank():
    x = np.arange(5000.0)
    weight = np.ones(5000)
    weight[0] = 5000.0
    thin_x, thin_weight = bestfit._thin(x, weight)
    assert len(thin_x) <= 1000 and thin_weight.sum() == 1000 and thin_weight[0] == 500
    ranks = np.interp(thin_x[1:], x, mid_ranks(weight))
    assert np.abs(mid_ranks(thin_weight)[1:] - ranks).max() < 1e-3


@pytest.mark.parametrize(
    "x",
    [
        [7.0],
        [0.0],
        [1.0, 2.0],
        [0.0, 1.0],
        [0.0, 0.0, 0.0, 1e-9],
        [-(2.0**63), 0.0, 2.0**63],
        [-1.7e308, 1.7e308],
        [1e-300, 2e-300, 4e-300],
        [0.0, 5e-324, 1e-323],
        [1.0, 1e308],
        [1e16, 1e16 + 2],
        list(10.0 ** np.arange(-300, 300, 20)),
    ],
)
def test_degenerate_columns_give_finite_monotone_cdfs(x):
    for name, params, distance in fit_families(x):
        u = cdf(name, params, np.sort(x))
        assert np.isfinite(params).all() and params[1] > 0 and np.isfinite(distance)
        assert ((u >= 0) & (u <= 1)).all() and (np.diff(u) >= 0).all()
        assert np.isfinite(ppf(name, params, [0.0, 0.5, 1.0])).all()


def test_a_constant_is_a_normal_of_scale_one_around_it():
    assert fit_families([4.0, 4.0]) == [("normal", (4.0, 1.0), 0.0)]


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 3)), min_size=1), st.floats(0.01, 1))
def test_weighted_quantile_is_the_quantile_of_the_repeated_values(pairs, share):
    x, count = np.array(pairs).T
    repeated = np.sort(np.repeat(x, count.astype(int)))
    if len(repeated) == 0:
        return
    values, weights = distinct_points(x, count)
    expected = repeated[int(np.ceil(share * len(repeated))) - 1]
    assert weighted_quantile(values, weights, share) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "x must hold at least one value"),
        (([1.0], [0.0]), "x must hold at least one value"),
        (([[1.0]],), "one dimension"),
        (([np.nan],), "x must be finite"),
        (([1.0], [-1.0]), "weight must be finite and at least 0"),
        (([1.0], [1.0, 2.0]), "weight must have the shape of x"),
        (([1.0], None, ["gama"]), "family must be one of normal, .*kumaraswamy, got 'gama'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_families(*arguments)
