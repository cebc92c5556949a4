"""Transforms: identities that hold for all of them, oracles for each, and the automatic choice."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import QuantileTransformer

import splinefm as sf
from splinefm.encode.transforms.transform import TRANSFORMS, Transform, choose_transform
from support import examples

SPECS = [
    sf.MinMax(),
    sf.MinMax(low=-2e3),
    sf.Quantile(),
    sf.Quantile(knots=4),
    sf.Quantile(atom_share=0.1),
    sf.BestFitCDF(families=("normal", "laplace", "weibull")),
    sf.ArcsinhSquare(),
    sf.ArcsinhSquare(clip=0.9),
    sf.Log(),
    sf.Log(shift=2e3),
]
LEARNED_ENDS = [spec for spec in SPECS if not isinstance(spec, sf.BestFitCDF)]
each_spec = pytest.mark.parametrize("spec", SPECS, ids=repr)
each_class = pytest.mark.parametrize("cls", TRANSFORMS)
quick = examples(20)
finite = st.floats(allow_nan=False, allow_infinity=False)
# Without values that differ by less than 1e-300, which Quantile merges.
number = st.floats(-1e3, 1e3).filter(lambda v: v == 0 or abs(v) > 1e-200)
ordinary = st.lists(number | st.integers(-5, 5).map(float), min_size=1, max_size=40)
counted = st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 4)), min_size=1, max_size=40).filter(
    lambda pairs: any(count for _, count in pairs)
)
DEGENERATE = [
    [7.0],
    [0.0, 0.0],
    [-3.0],
    [1e308],
    [-1e308],
    [1.0, 2.0],
    [0.0, 1.0],
    [-(2.0**63), 2.0**63 - 1],
    [-(2.0**63), 0.0, 5.0, 2.0**63],
    [-1.7e308, 0.0, 1.7e308],
    [1.0, 1e308],
    [1e-300, 2e-300],
    [0.0, 5e-324],
    [5e-324, 1e-323, 1.0],
    [1e16, 1e16 + 2],
]


def spread_sample(kind, size=20_000):
    return getattr(np.random.default_rng(7), kind)(size=size)


# ---------------------------------------------------------------- identities


@each_spec
@given(x=st.lists(finite, min_size=1, max_size=30), probe=st.lists(st.floats(allow_nan=False), min_size=1))
@quick
def test_images_are_in_the_unit_interval_and_monotone(spec, x, probe):
    t = spec_for(spec, x)
    u = t(np.sort(np.concatenate((probe, x))))
    assert u.dtype == np.float64 and ((u >= 0) & (u <= 1)).all()
    assert (np.diff(u) >= -1e-12).all()


def spec_for(spec, x):
    """Fit, after making room where a given value excludes the column."""
    if isinstance(spec, sf.MinMax) and spec.low is not None and spec.low > max(x):
        spec = sf.MinMax()
    if isinstance(spec, sf.Log) and spec.shift is not None and max(x) + spec.shift <= 0:
        spec = sf.Log()
    return spec.fit(np.array(x))


@each_spec
@given(x=ordinary.filter(lambda x: np.ptp(x) > 1e-3), share=st.floats(0, 1))
@quick
def test_inverse_undoes_the_transform(spec, x, share):
    t = spec.fit(np.array(x))
    value = t.inverse(share)
    u = t(value)
    np.testing.assert_allclose(t.inverse(u), value, rtol=1e-6, atol=1e-6)
    if isinstance(spec, sf.MinMax | sf.ArcsinhSquare | sf.Log):  # the others may be too steep for floats
        np.testing.assert_allclose(u, share, atol=1e-6)


@each_spec
def test_transform_undoes_the_inverse_on_smooth_data(spec):
    t = spec.fit(spread_sample("standard_normal", 2000))
    share = np.linspace(0.001, 0.999, 101)
    np.testing.assert_allclose(t(t.inverse(share)), share, atol=1e-9)


@each_spec
@given(pairs=counted)
@quick
def test_weights_are_counts(spec, pairs):
    x, count = np.array(pairs).T
    assert spec.fit(x, count) == spec.fit(np.repeat(x, count))


@each_spec
@given(x=ordinary)
@quick
def test_fitting_a_fitted_transform_changes_nothing(spec, x):
    t = spec.fit(np.array(x))
    assert t.fit(np.array([0.5, *x])) == t


@each_spec
@given(x=ordinary)
@quick
def test_fields_survive_json(spec, x):
    t = spec.fit(np.array(x))
    assert type(t)(**json.loads(json.dumps(asdict(t)))) == t
    assert hash(t) == hash(spec.fit(np.array(x)))


@pytest.mark.parametrize("spec", LEARNED_ENDS, ids=repr)
@given(x=ordinary)
@quick
def test_ends_map_to_zero_and_one_and_values_beyond_are_clipped(spec, x):
    t = spec.fit(np.array(x))
    low, high = t.inverse(np.array([0.0, 1.0]))
    assert t(np.array([low, high])).tolist() == [0, 1]
    assert t(np.array([-np.inf, low - 1, high + 1, np.inf])).tolist() == [0, 0, 1, 1]
    assert low == (min(x) if getattr(spec, "low", None) is None else spec.low)
    if len(set(x)) > 1 and getattr(spec, "clip", None) is None:
        assert high == max(x)


@each_spec
def test_order_of_the_values_does_not_matter(spec):
    x = spread_sample("standard_normal", 300)
    assert spec.fit(x) == spec.fit(x[::-1]) == spec.fit(np.sort(x))


@each_spec
def test_scalars_give_scalars_and_nan_passes(spec):
    t = spec.fit(np.arange(50.0))
    for image in (t(3.0), t.inverse(0.5), t(np.float64(99))):
        assert isinstance(image, np.ndarray) and image.shape == ()
    u = t(np.array([np.nan, 25.0]))
    assert np.isnan(u[0]) and 0 < u[1] < 1
    assert np.isnan(t.inverse(np.nan))


@each_class
@pytest.mark.parametrize("x", DEGENERATE, ids=repr)
def test_degenerate_columns_work(cls, x):
    t = cls().fit(np.array(x))
    probe = np.sort(np.array([-np.inf, -1.7e308, -1.0, 0.0, 1.0, 1.7e308, np.inf, *x]))
    u = t(probe)
    assert ((u >= 0) & (u <= 1)).all() and (np.diff(u) >= 0).all()
    back = t.inverse(np.linspace(0, 1, 11))
    assert np.isfinite(back).all() and (np.diff(back) >= 0).all()


@pytest.mark.parametrize("cls", [sf.MinMax, sf.Quantile, sf.ArcsinhSquare, sf.Log])
@pytest.mark.parametrize("value", [0.0, 7.0, -3.0, 1e16, 1e-320])
def test_a_constant_column_steps_at_its_value(cls, value):
    t = cls().fit(np.full(5, value))
    assert t(np.array([value - 1 - abs(value), value, value + 1 + abs(value)])).tolist() == [0, 0, 1]
    np.testing.assert_allclose(t.inverse([0.0, 0.5, 1.0]), value, rtol=1e-15, atol=1e-299)


def test_a_constant_column_is_the_middle_of_its_normal():
    t = sf.BestFitCDF().fit(np.full(5, 7.0))
    assert t.family == "normal" and t([7.0]) == 0.5


# ---------------------------------------------------------------- MinMax, ArcsinhSquare, Log


@given(x=ordinary, low=st.floats(-5e3, -2e3), high=st.floats(2e3, 5e3), shift=st.floats(6e3, 9e3))
@quick
def test_given_values_are_kept(x, low, high, shift):
    assert sf.MinMax(low, high).fit(x) == sf.MinMax(low, high)
    assert sf.MinMax(high=high).fit(x) == sf.MinMax(min(x), high)
    assert sf.ArcsinhSquare(None, low, high).fit(x) == sf.ArcsinhSquare(None, low, high)
    assert sf.Log(shift, low).fit(x) == sf.Log(shift, low, max(x))
    assert sf.BestFitCDF(family="laplace").fit(x).family == "laplace" or len(set(x)) == 1


def test_given_family_and_params_are_kept():
    given_params = sf.BestFitCDF(family="normal", params=(0.0, 1.0))
    assert given_params.fit(np.arange(9.0)) is given_params


def test_a_constant_at_a_given_end_keeps_that_end():
    below, above = sf.MinMax(high=5.0).fit([5.0, 5.0]), sf.MinMax(low=5.0).fit([5.0, 5.0])
    assert below.high == 5 and below([4.0, 5.0, 6.0]).tolist() == [0, 1, 1]
    assert above.low == 5 and above([4.0, 5.0, 6.0]).tolist() == [0, 0, 1]


def test_min_max_formula():
    u = sf.MinMax().fit(np.array([4.0, 2.0, 10.0]))([2.0, 4.0, 10.0])
    np.testing.assert_allclose(u, [0, 0.25, 1])


def test_arcsinh_square_formula():
    x = np.array([-30.0, -0.5, 0.0, 2.0, 400.0])
    w = np.sign(x) * np.log(np.abs(x) + np.sqrt(x**2 + 1)) ** 2
    np.testing.assert_allclose(sf.ArcsinhSquare().fit(x)(x), (w - w[0]) / (w[-1] - w[0]), atol=1e-14)


def test_arcsinh_square_clips_at_the_weighted_quantile():
    x = np.arange(1.0, 101.0)
    assert sf.ArcsinhSquare(clip=0.9).fit(x).high == 90
    assert sf.ArcsinhSquare(clip=0.9).fit([1.0, 2.0, 50.0], [8, 1, 1]).high == 2
    assert sf.ArcsinhSquare(clip=0.9, high=70.0).fit(x).high == 70


@pytest.mark.parametrize(("x", "shift"), [([3.0, 9.0], 0.0), ([0.0, 9.0], 1.0), ([-4.0, 9.0], 5.0)])
def test_log_learns_its_shift(x, shift):
    t = sf.Log().fit(np.array(x))
    assert t.shift == shift
    middle = np.exp((np.log(x[0] + shift) + np.log(x[1] + shift)) / 2) - shift
    np.testing.assert_allclose(t([-1e9, middle]), [0, 0.5], atol=1e-12)


def test_log_sends_values_at_or_below_minus_shift_to_zero():
    t = sf.Log(shift=0.0).fit(np.array([-5.0, 0.0, 2.0, 8.0]))
    assert t.low == 2
    np.testing.assert_allclose(t([-5.0, 0.0, 1.0, 4.0, 8.0]), [0, 0, 0, 0.5, 1])


def test_log_leaves_room_for_a_given_low():
    assert sf.Log(low=0.0).fit(np.array([3.0, 9.0])).shift == 1


# ---------------------------------------------------------------- Quantile


def naive_mid_ranks(x):
    """(rows below + half the rows at the value) for each distinct value, stretched to [0, 1]."""
    ranks = [sum(y < v for y in x) + sum(y == v for y in x) / 2 for v in sorted(set(x))]
    return [(r - ranks[0]) / (ranks[-1] - ranks[0]) for r in ranks]


@given(x=ordinary.filter(lambda x: len(set(x)) > 1))
@quick
def test_quantile_matches_the_naive_mid_ranks(x):
    t = sf.Quantile().fit(np.array(x))
    assert t.x == tuple(sorted(set(x)))
    np.testing.assert_allclose(t.u, naive_mid_ranks(x), atol=1e-9)
    np.testing.assert_allclose(t(np.array(t.x)), t.u, atol=1e-12)


def test_values_too_close_for_a_finite_slope_are_one():
    t = sf.Quantile().fit(np.array([0.0, 5e-324, 1e-310, 1.0]))
    assert t.x == (0.0, 1.0)
    assert sf.Quantile().fit(np.array([0.0, 1e-310, 1.0, 2.0])).u == pytest.approx((0, 0.6, 1))


@given(x=st.lists(st.floats(-1e3, 1e3) | st.just(0.0), min_size=1, max_size=200), knots=st.integers(2, 20))
@quick
def test_quantile_knots_are_few_and_increasing_and_include_the_ends(x, knots):
    t = sf.Quantile(knots=knots).fit(np.array(x))
    assert 2 <= len(t.x) == len(t.u) <= knots
    assert (np.diff(t.x) > 0).all() and (np.diff(t.u) > 0).all()
    assert (t.u[0], t.u[-1], t.x[0]) == (0, 1, min(x))


def test_thinned_quantile_stays_near_the_exact_one():
    x = spread_sample("standard_cauchy", 50_000)
    exact, thinned = sf.Quantile(knots=50_000).fit(x), sf.Quantile(knots=200).fit(x)
    assert len(exact.x) == 50_000 and len(thinned.x) <= 200
    assert np.abs(exact(x) - thinned(x)).max() < 1 / 150


def test_thinned_quantile_keeps_atoms_and_their_neighbors():
    x = np.concatenate((np.linspace(0, 1, 5000), np.full(3000, 0.43210)))
    exact, thinned = sf.Quantile(knots=9000).fit(x), sf.Quantile(knots=100).fit(x)
    assert 0.43210 in thinned.x
    assert np.abs(exact(x) - thinned(x)).max() < 0.01


@pytest.mark.parametrize("seed", range(20))
def test_every_atom_is_kept_within_the_number_of_knots(seed):
    x, weight = np.arange(1000.0), np.ones(1000)
    atoms = np.random.default_rng(seed).choice(1000, 4, replace=False)
    weight[atoms] = 250  # 12.5 % of the rows each, above 1 / knots
    t = sf.Quantile(knots=10).fit(x, weight)
    assert set(atoms) <= set(t.x) and len(t.x) <= 10


def test_quantile_is_close_to_sklearn_on_continuous_data():
    x = spread_sample("standard_normal", 5000)
    theirs = QuantileTransformer(n_quantiles=1000, subsample=None).fit(x[:, None])
    assert np.abs(theirs.transform(x[:, None]).ravel() - sf.Quantile().fit(x)(x)).max() < 2e-3


def test_quantile_spreads_continuous_data_evenly():
    u = sf.Quantile().fit(spread_sample("standard_exponential"))(spread_sample("standard_exponential"))
    assert scipy.stats.kstest(u, "uniform").statistic < 1e-3


@given(weights=st.lists(st.integers(1, 1000), min_size=2, max_size=60), cap=st.floats(0.01, 0.5))
@quick
def test_no_value_takes_more_than_its_share(weights, cap):
    x = np.arange(len(weights), dtype=float)
    t = sf.Quantile(atom_share=cap).fit(x, weights)
    # Mid-ranks lie half of each neighbor's share apart, before stretching the span between the end
    # mid-ranks (at least 1 - share) to [0, 1].
    share = max(cap, 1 / len(weights))
    assert np.diff(t.u).max() <= share / (1 - share) + 1e-9


def test_atom_share_caps_only_what_exceeds_it():
    x, weight = np.arange(5.0), np.array([1.0, 6.0, 1.0, 1.0, 1.0])
    assert sf.Quantile(atom_share=0.7).fit(x, weight) == sf.Quantile(
        atom_share=0.7, **knots(sf.Quantile().fit(x, weight))
    )
    # 0.5 of the ranks for the atom: weight 4 beside the other four.
    halved = sf.Quantile(atom_share=0.5).fit(x, weight)
    np.testing.assert_allclose(halved.u, naive_mid_ranks([0, 1, 1, 1, 1, 2, 3, 4]))
    few = sf.Quantile(atom_share=0.1).fit(x, weight)
    np.testing.assert_allclose(few.u, np.linspace(0, 1, 5))


def knots(t):
    return {"x": t.x, "u": t.u}


# ---------------------------------------------------------------- BestFitCDF, CustomTransform


@pytest.mark.parametrize(
    ("family", "oracle"),
    [
        ("gamma", scipy.stats.gamma(2.0, scale=50)),
        ("cauchy", scipy.stats.cauchy(3, 2)),
        ("lognormal", scipy.stats.lognorm(1.5, scale=1e-6)),
        ("beta", scipy.stats.beta(0.5, 2.0)),
        ("gumbel", scipy.stats.gumbel_r(-8, 3)),
    ],
)
def test_best_fit_finds_the_generating_family(family, oracle):
    x = oracle.rvs(50_000, random_state=np.random.default_rng(3))
    t = sf.BestFitCDF().fit(x)
    assert t.family == family
    assert np.abs(t(x) - oracle.cdf(x)).max() < 0.01


def test_scores_and_report_name_the_families_best_first():
    t = sf.BestFitCDF(families=["normal", "cauchy", "gumbel"]).fit(spread_sample("standard_normal"))
    assert t.scores[0][0] == t.family == "normal"
    assert [d for _, d in t.scores] == sorted(d for _, d in t.scores)
    head, titles, *rows = t.report().splitlines()
    assert head.startswith("normal") and titles.split()[0] == "family"
    assert [row.split()[0] for row in rows] == [name for name, _ in t.scores]
    assert {len(line) for line in (titles, *rows)} == {len(titles)}
    ratio = t.scores[-1][1] / t.scores[0][1]
    assert rows[0].split()[2] == "1.0" and float(rows[-1].split()[2]) == pytest.approx(ratio, abs=0.05)


def test_best_fit_uses_the_weights():
    assert sf.BestFitCDF(family="normal").fit([0.0, 4.0], [3, 1]).params == pytest.approx((1, np.sqrt(3)))


def test_report_of_a_constant_column():
    assert "normal" in sf.BestFitCDF().fit(np.ones(3)).report()


def test_bounds_reach_the_bounded_families():
    x = 10 + 5 * spread_sample("random") ** 2
    t = sf.BestFitCDF(families=("beta", "kumaraswamy"), bounds=(10, 15)).fit(x)
    assert t.params[:2] == (10, 5)
    assert np.abs(t(x) - np.sqrt((x - 10) / 5)).max() < 0.02
    assert t([9.0, 16.0]).tolist() == [0, 1]


def test_custom_clips_and_learns_nothing():
    t = sf.CustomTransform(lambda x: x / 10, lambda u: u * 10)
    assert t.fit(np.arange(3.0)) is t and isinstance(t, Transform)
    assert t([-5.0, 5.0, 50.0]).tolist() == [0, 0.5, 1]
    assert t.inverse([-1.0, 0.5, 2.0]).tolist() == [0, 5, 10]


# ---------------------------------------------------------------- the automatic choice


@pytest.mark.parametrize("n", [1, 2, 12, 32])
def test_few_values_are_equally_spaced_by_rank(n):
    x = np.concatenate((2.0 ** np.arange(n), np.ones(100)))
    t, reason = choose_transform(x)
    assert isinstance(t, sf.Quantile)
    assert reason == f"{n} distinct value{'s' * (n > 1)}: equally spaced by rank"
    np.testing.assert_allclose(t(2.0 ** np.arange(n)), np.linspace(0, 1, n), atol=1e-12)


def test_even_columns_get_min_max():
    t, reason = choose_transform(spread_sample("random") * 100)
    assert isinstance(t, sf.MinMax) and t(50.0) == pytest.approx(0.5, abs=0.01)
    assert reason.startswith("bounded and spread evenly") and "and 99.99 holds" in reason


def test_the_emptiest_cell_decides_between_min_max_and_the_rest():
    centers = (np.arange(40) + 0.5) / 40
    x, weight = np.concatenate(([0.0], centers, [1.0])), np.full(42, 100.0)
    weight[1 + 20 : 1 + 22] = 30.0  # cell 10 holds 60 of about 4060 rows: above 1.25 %
    assert isinstance(choose_transform(x, weight)[0], sf.MinMax)
    weight[1 + 20 : 1 + 22] = 20.0  # 40 rows: below
    assert not isinstance(choose_transform(x, weight)[0], sf.MinMax)


@pytest.mark.parametrize(("kind", "family"), [("standard_cauchy", "cauchy"), ("standard_normal", "normal")])
def test_smooth_columns_get_a_parametric_cdf(kind, family):
    t, reason = choose_transform(spread_sample(kind))
    assert isinstance(t, sf.BestFitCDF) and t.family == family
    assert f"close to {family} (rms distance 0.00" in reason
    assert ("heavy tail" in reason) == (family == "cauchy")


def test_atoms_get_the_capped_empirical_cdf():
    x = np.concatenate((spread_sample("standard_exponential"), np.zeros(30_000)))
    t, reason = choose_transform(x)
    assert isinstance(t, sf.Quantile) and t.atom_share == 0.05
    assert "the value 0 has 60.0% of the rows" in reason and "spread by rank" in reason
    assert np.diff(t.u).max() < 0.06


def test_a_small_atom_rules_out_a_smooth_cdf():
    x = spread_sample("standard_normal")
    for n_zeros, cls in ((200, sf.BestFitCDF), (600, sf.Quantile)):
        assert isinstance(choose_transform(np.concatenate((x, np.zeros(n_zeros))))[0], cls)


def test_a_two_humped_column_is_spread_by_rank():
    x = spread_sample("standard_normal")
    t, reason = choose_transform(np.concatenate((x - 10, x + 10)))
    assert isinstance(t, sf.Quantile) and reason.startswith("unevenly spread")


@given(pairs=counted)
@quick
def test_the_choice_sees_weights_as_counts(pairs):
    x, count = np.array(pairs).T
    assert choose_transform(x, count) == choose_transform(np.repeat(x, count))


def test_the_choice_survives_extreme_columns():
    rng = np.random.default_rng(0)
    for x in (10.0 ** rng.uniform(-300, 307, 500), rng.integers(-(2**63), 2**63 - 1, 500).astype(float)):
        t, reason = choose_transform(x)
        assert reason and ((t(x) >= 0) & (t(x) <= 1)).all()


# ---------------------------------------------------------------- errors


@each_class
def test_not_fitted(cls):
    for use in (lambda: cls()([1.0]), lambda: cls().inverse([0.5])):
        with pytest.raises(ValueError, match=f"{cls.__name__} is not fitted; call fit first"):
            use()


@each_class
@pytest.mark.parametrize("x", [[], [np.nan], [np.inf], [[1.0]]], ids=repr)
def test_bad_columns(cls, x):
    with pytest.raises(ValueError, match=r"^x must"):
        cls().fit(np.array(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sf.MinMax(2.0, 1.0), "low must be less than high, got low=2.0 and high=1.0"),
        (lambda: sf.MinMax(1.0, 1.0), "low must be less than high"),
        (lambda: sf.MinMax(low=np.nan), "low must lie between .*got nan"),
        (lambda: sf.MinMax(high=np.inf), "high must lie between"),
        (lambda: sf.MinMax(low=5.0).fit([1.0, 2.0]), "low must be at most the largest value, 2.0, got 5.0"),
        (lambda: sf.MinMax(high=0.0).fit([1.0, 2.0]), "high must be at least the smallest value"),
        (lambda: sf.Quantile(knots=1), "knots must be an integer of at least 2, got 1"),
        (lambda: sf.Quantile(knots=2.5), "knots must be an integer"),
        (lambda: sf.Quantile(atom_share=0.0), "atom_share must be above 0 and at most 1, got 0.0"),
        (lambda: sf.Quantile(x=(1.0,), u=()), "x and u must have the same length"),
        (lambda: sf.Quantile(x=(2.0, 1.0), u=(0.0, 1.0)), "x and u must increase strictly"),
        (lambda: sf.Quantile(x=(1.0, 2.0), u=(0.0, 0.9)), "u from 0 to 1"),
        (lambda: sf.BestFitCDF(families=("gama",)), "family must be one of normal, .*got 'gama'"),
        (lambda: sf.BestFitCDF(family="gama"), "family must be one of"),
        (lambda: sf.BestFitCDF(families=()), "families must name at least one"),
        (lambda: sf.BestFitCDF(bounds=(1.0, 0.0)), "low must be less than high"),
        (lambda: sf.BestFitCDF(bounds=(1.0,)), r"bounds must be \(low, high\)"),
        (lambda: sf.BestFitCDF(params=(0.0, 1.0)), "params must be .* of a given family"),
        (lambda: sf.BestFitCDF(family="normal", params=(0.0, 0.0)), "params must be"),
        (lambda: sf.BestFitCDF().report(), "BestFitCDF is not fitted"),
        (lambda: sf.ArcsinhSquare(clip=1.5), "clip must be above 0 and at most 1, got 1.5"),
        (lambda: sf.ArcsinhSquare(low=1.0, high=0.0), "low must be less than high"),
        (lambda: sf.Log(shift=0.0, low=-1.0), "low must exceed -shift"),
        (lambda: sf.Log(shift=np.inf), "shift must lie between"),
        (lambda: sf.Log(shift=0.0).fit([-2.0, -1.0]), "shift must exceed 1.0 for this column, got 0.0"),
        (lambda: sf.CustomTransform(None, abs), "forward must be a function"),
        (lambda: sf.CustomTransform(abs, 3), "backward must be a function of an array, got 3"),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("transform", [sf.ArcsinhSquare(), sf.MinMax(), sf.Log()], ids=repr)
def test_derivatives_are_those_of_finite_differences(transform):
    fitted = transform.fit(np.linspace(0.0, 50.0, 200))
    x, h = np.linspace(1.0, 45.0, 40), 1e-5
    assert np.allclose(fitted.derivative(x), (fitted(x + h) - fitted(x - h)) / (2.0 * h), rtol=1e-6)
