"""Simulated bins: read off the curve at mid-points, and never further from its scores than the bound says."""

import dataclasses
import itertools
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.bounds import hulls, paths
from splinefm.export import discretize
from splinefm.model.family.formula import formula_scores
from splinefm.model.family.parameters import mean_model
from support import all_models, averages, examples, random_fitted, visits_schema, visits_table

MODELS = [*all_models(5), *averages()]
QUADRATIC = MODELS[:6]
SMALL = [sf.FM(3), sf.FwFM(3), sf.LowRankFwFM(3, 2), sf.FmFM(3), sf.FFM(2)]
BASES = {
    "cubic": sf.BSpline(segments=7),
    "linear": sf.BSpline(segments=7, degree=1),
    "quintic": sf.BSpline(segments=4, degree=5),
    "knots": sf.BSpline(knots=(0.0, 0.1, 0.15, 0.7, 1.0)),
    "periodic": sf.BSpline(segments=6, periodic=True),
    "resolutions": sf.MultiResolution((2, 5, 9)),
    "bernstein": sf.Polynomial(5),
    "chebyshev": sf.Polynomial(4, "chebyshev"),
    "high bernstein": sf.Polynomial(12),
    "high chebyshev": sf.Polynomial(12, "chebyshev"),
    "high legendre": sf.Polynomial(12, "legendre"),
    "fourier": sf.Fourier(2),
    "powers": sf.Powers(),
    "custom": sf.CustomBasis((np.ones_like, np.sin)),
}
GRID = ("powers", "custom")  # of which nothing is known but their values
STEPS = [sf.Bins(6), sf.Bins(6, spacing="quantile"), sf.BSpline(segments=7, degree=0), sf.Polynomial(0)]
N = 300


def make_schema(basis=BASES["cubic"], reduction="sum", tags="mean", transform=None):
    return visits_schema(basis, transform, reduction=reduction, tags=tags)


def fitted_to(schema, model=MODELS[0], seed=0, table=None, loss="logistic"):
    table = table or visits_table(np.random.default_rng(1))
    return random_fitted(model, schema, table, loss=loss, seed=seed, scale=1.0, spread=0.5)


@cache
def fitted_of(basis="cubic", model=MODELS[0], reduction="sum", tags="mean"):
    return fitted_to(make_schema(BASES[basis], reduction, tags), model)


def exact_scores(fitted, table):
    return formula_scores(fitted.model, fitted.params, fitted.encoder.encode(table))


def largest_change(fitted, binned, table):
    return float(np.abs(exact_scores(fitted, table) - exact_scores(binned, table)).max())


def basis_of(fitted, name="recency"):
    return fitted.encoder.schema[name].basis


def assert_reads_the_curve(fitted, binned, table):
    """Scores of binned values equal the model's at the mid-points of their bins."""
    item, bins = fitted.encoder.schema["recency"], basis_of(binned)
    x = np.asarray(table["recency"], float)
    ordinary = np.isfinite(x) & (x != 0.0) & (x < 999.0)
    u = item.transform(x[ordinary])
    middle = bins.supports().mean(axis=1)[bins(u)[0][:, 0]]
    moved = x.copy()
    moved[ordinary] = item.transform.inverse(middle)
    np.testing.assert_allclose(
        exact_scores(binned, table), exact_scores(fitted, {**table, "recency": moved}), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("model", MODELS, ids=str)
class TestEveryModel:
    def test_bins_are_read_off_the_curve(self, model):
        fitted = fitted_of(model=model)
        binned = sf.discretize(fitted, {"recency": 40})
        assert basis_of(binned) == sf.Bins(40)
        assert_reads_the_curve(fitted, binned, visits_table(np.random.default_rng(2), hostile=True))

    def test_special_and_missing_values_keep_their_scores(self, model):
        fitted, table = fitted_of(model=model), visits_table(np.random.default_rng(3), 60)
        table["recency"] = np.tile([0.0, 999.0, np.nan], 20)
        table["price"] = np.full(60, np.nan)
        binned = sf.discretize(fitted, 5)
        np.testing.assert_allclose(binned.scores(table), fitted.scores(table), rtol=2e-6, atol=2e-6)  # rounding

    @pytest.mark.parametrize("max_error", [0.5, 0.05])
    def test_max_error_is_kept(self, model, max_error):
        fitted = fitted_of(model=model)
        binned = sf.discretize(fitted, max_error=max_error)
        table = visits_table(np.random.default_rng(4), 1000, hostile=True)
        report = sf.discretization_error(fitted, binned, table)
        assert largest_change(fitted, binned, table) <= report.bound <= max_error
        assert report.certified and report.bound > 0.95 * max_error
        np.testing.assert_allclose(report.max_error, largest_change(fitted, binned, table), atol=1e-5)

    def test_the_bound_holds_with_lists(self, model):
        fitted = fitted_of(model=model, tags="identity")
        binned = sf.discretize(fitted, {"recency": 20, "price": 10})
        table = visits_table(np.random.default_rng(5), 1000, hostile=True)
        assert largest_change(fitted, binned, table) <= sf.discretization_error(fitted, binned).bound


@pytest.mark.parametrize("basis", BASES)
class TestEveryBasis:
    def test_bins_are_read_off_the_curve(self, basis):
        fitted = fitted_of(basis)
        binned = sf.discretize(fitted, {"recency": 33})
        assert_reads_the_curve(fitted, binned, visits_table(np.random.default_rng(2), hostile=True))

    def test_max_error_is_kept(self, basis):
        fitted = fitted_of(basis)
        binned = sf.discretize(fitted, "recency", max_error=0.05)
        table = visits_table(np.random.default_rng(4), 1000, hostile=True)
        table["recency"][:500] = fitted.encoder.schema["recency"].transform.inverse(np.linspace(0.0, 1.0, 500))
        report = sf.discretization_error(fitted, binned)
        assert largest_change(fitted, binned, table) <= report.bound <= 0.05
        assert report.certified == (basis not in GRID)

    def test_identity_reduction_becomes_one_vector(self, basis):
        fitted = fitted_of(basis, sf.FwFM(k=4), "identity")
        binned = sf.discretize(fitted, {"recency": 33})
        assert_reads_the_curve(fitted, binned, visits_table(np.random.default_rng(2), hostile=True))
        table = visits_table(np.random.default_rng(4), 1000, hostile=True)
        report = sf.discretization_error(fitted, binned)
        assert largest_change(fitted, binned, table) <= report.bound + 1e-6
        assert report.certified == (basis not in (*GRID, "fourier") and not basis.startswith("high"))


@pytest.mark.parametrize("model", QUADRATIC, ids=str)
def test_identity_reduction_under_every_quadratic_model(model):
    fitted = fitted_of(model=model, reduction="identity")
    binned = sf.discretize(fitted, max_error=0.02)  # bins so narrow that none reaches from part to part
    table = visits_table(np.random.default_rng(4), 1000, hostile=True)
    assert largest_change(fitted, binned, table) <= sf.discretization_error(fitted, binned).bound <= 0.02


def test_an_identity_field_beside_the_bins_of_a_higher_order_model():
    fitted = fitted_of(model=MODELS[-1], reduction="identity")
    binned = sf.discretize(fitted, {"price": 12})
    table = visits_table(np.random.default_rng(4), 1000, hostile=True)
    assert largest_change(fitted, binned, table) <= sf.discretization_error(fitted, binned).bound
    with pytest.raises(ValueError, match="'recency' has reduction=\"identity\""):
        sf.discretize(fitted, {"recency": 12})


class TestBound:
    """The bound against the largest change over all rows that there can be."""

    @staticmethod
    def every_row(bins):
        """All combinations of categories with a grid of numbers and both sides of every border."""
        borders = 10.0 * bins.supports().ravel()
        beside = np.clip(np.concatenate([borders - 1e-9, borders + 1e-9]), 0.0, 10.0)
        grid = [*np.linspace(0.0, 10.0, 101).tolist(), *beside.tolist(), None]
        rows = list(itertools.product(grid, ["a", "b", "c", None, "new"], ["p", "q", None, "new"]))
        return {name: list(column) for name, column in zip(("x", "c", "d"), zip(*rows, strict=True), strict=True)}

    @staticmethod
    def small(model, seed, basis=None):
        table = {"x": np.linspace(0.0, 10.0, 60), "c": ["a", "b", "c"] * 20, "d": ["p", "q"] * 30}
        schema = sf.Schema(
            [
                sf.Numerical("x", sf.MinMax(), basis or sf.BSpline(segments=5)),
                sf.Categorical("c"),
                sf.Categorical("d", unseen="neutral"),
            ]
        )
        return fitted_to(schema, model, seed, table)

    @pytest.mark.parametrize("model", [*SMALL, sf.HigherOrderFM(3, 2)], ids=str)
    @examples(4)
    @given(seed=st.integers(0, 10**6), bins=st.integers(1, 60))
    def test_it_is_attained_and_not_exceeded(self, model, seed, bins):
        fitted = self.small(model, seed)
        binned = sf.discretize(fitted, {"x": bins})
        found = largest_change(fitted, binned, self.every_row(basis_of(binned, "x")))
        bound = sf.discretization_error(fitted, binned).bound
        assert found <= bound + 1e-6
        # Left over: the grid, and the distance of control points from the curve.
        assert bound <= 1.05 * found + 1e-4

    @examples(10)
    @given(seed=st.integers(0, 10**6), max_error=st.floats(0.05, 1.0), order=st.integers(2, 5))
    def test_higher_orders(self, seed, max_error, order):
        fitted = self.small(sf.HigherOrderFM(3, order) if order > 2 else sf.FwFM(2, third=3), seed)
        binned = sf.discretize(fitted, max_error=max_error)
        bound = sf.discretization_error(fitted, binned).bound
        found = largest_change(fitted, binned, self.every_row(basis_of(binned, "x")))
        assert found <= bound + 1e-6 <= max_error

    @pytest.mark.parametrize("order", [2, 3, 4])
    def test_the_mean_of_equal_models_has_their_bound(self, order):
        one = self.small(sf.HigherOrderFM(3, order), 5)
        model, params = mean_model(one.model, [one.params] * 3, one.encoder.layout)
        bounds = [
            sf.discretization_error(fitted, sf.discretize(fitted, {"x": 20})).bound
            for fitted in (one, dataclasses.replace(one, model=model, params=params))
        ]
        assert bounds[1] == pytest.approx(bounds[0], rel=1e-5)

    @examples(8)
    @given(model=st.sampled_from(MODELS), seed=st.integers(0, 10**6), rows=st.integers(0, 10**6))
    def test_random_models_and_rows(self, model, seed, rows):
        fitted = fitted_to(make_schema(tags="sum"), model, seed)
        binned = sf.discretize(fitted, max_error=0.1)
        table = visits_table(np.random.default_rng(rows), 500, hostile=True)
        assert largest_change(fitted, binned, table) <= 0.1
        assert sf.discretization_error(fitted, binned).bound <= 0.1

    @examples(10)
    @given(seed=st.integers(0, 10**6), bins=st.integers(2, 40))
    def test_finer_is_better(self, seed, bins):
        fitted = self.small(sf.FFM(2), seed)
        bounds = [sf.discretization_error(fitted, sf.discretize(fitted, {"x": bins * n})).bound for n in (1, 4, 16)]
        assert bounds[0] >= bounds[1] > 3 * bounds[2]

    @pytest.mark.parametrize("reduction", ["sum", "mean", "identity"])
    @pytest.mark.parametrize("order", [2, 3])
    def test_lists(self, reduction, order):
        table = {"x": np.linspace(0.0, 10.0, 60), "tags": [["s"], ["t", "s", "t"], []] * 20}
        schema = sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(5)), sf.MultiValued("tags", reduction=reduction)])
        fitted = fitted_to(schema, sf.HigherOrderFM(3, order), table=table)
        binned = sf.discretize(fitted, {"x": 20})
        lists = [None, *(list(tags) for n in range(4) for tags in itertools.product(["s", "t", "new"], repeat=n))]
        grid = np.concatenate([np.linspace(0.0, 10.0, 101), np.arange(0.5, 10.0, 0.5) - 1e-9])
        rows = list(itertools.product(grid.tolist(), lists))
        found = largest_change(fitted, binned, {"x": [x for x, _ in rows], "tags": [tags for _, tags in rows]})
        bound = sf.discretization_error(fitted, binned).bound
        assert found <= bound + 1e-6
        if order == 2 or reduction != "identity":
            assert bound <= 1.1 * found

    @pytest.mark.parametrize("basis", [name for name in BASES if name not in GRID])
    @pytest.mark.parametrize("reduction", ["sum", "identity"])
    def test_coarse_parts_give_a_bound_too(self, basis, reduction, monkeypatch):
        """Control points and third derivatives bound the curve however far apart the points are that they come from."""
        monkeypatch.setattr(paths, "_CELLS", 1)
        monkeypatch.setattr(paths, "_HULL", 1)
        monkeypatch.setattr(paths, "_parts_for", lambda *arguments: 6)
        item = sf.Numerical("x", sf.MinMax(), BASES[basis], reduction=reduction)
        table = {"x": np.linspace(0.0, 1.0, 2001)}
        fitted = fitted_to(sf.Schema([item]), table=table)
        for bins in (2, 5, 60):
            binned = sf.discretize(fitted, {"x": bins})
            report = sf.discretization_error(fitted, binned)
            if report.certified:
                assert largest_change(fitted, binned, table) <= report.bound + 1e-6

    def test_changes_of_two_fields_at_once_are_covered(self):
        """Products of two changes add to the changes of either field: the bound must hold for both together."""
        table = {"x": np.linspace(0.0, 1.0, 50), "y": np.linspace(0.0, 1.0, 50)}
        schema = sf.Schema([sf.Numerical(name, sf.MinMax(), sf.BSpline(2, 1)) for name in table])
        for seed in range(8):
            fitted = fitted_to(schema, sf.FM(2), seed, table)
            binned = sf.discretize(fitted, 3)
            x, y = (axis.ravel() for axis in np.meshgrid(*[np.linspace(0.0, 1.0, 101)] * 2))
            report = sf.discretization_error(fitted, binned)
            assert largest_change(fitted, binned, {"x": x, "y": y}) <= report.bound + 1e-6
            assert report.bound == sum(item.bound for item in report.fields)

    def test_many_categories_go_into_a_ball(self, monkeypatch):
        rng = np.random.default_rng(0)
        table = {"x": rng.random(2000), "c": [f"c{i}" for i in rng.integers(0, 900, 2000)]}
        schema = sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(6)), sf.Categorical("c")])
        for model in (sf.FM(4), sf.FFM(3), sf.FmFM(3)):
            fitted = fitted_to(schema, model, table=table)
            binned = sf.discretize(fitted, {"x": 30})
            exact = sf.discretization_error(fitted, binned).bound
            with monkeypatch.context() as patch:
                patch.setattr(hulls, "_MAX_POINTS", 20)
                patch.setattr(paths, "_BLOCK_NUMBERS", 500)
                loose = sf.discretization_error(fitted, binned).bound
            found = largest_change(fitted, binned, table)
            assert found <= exact <= loose * (1 + 1e-9) <= 3 * exact

    def test_vectors_that_have_left_the_curve_are_noticed(self):
        fitted = fitted_of()
        binned = sf.discretize(fitted, {"recency": 50, "price": 50})
        params = {**binned.params, "factors": binned.params["factors"].copy()}
        params["factors"][30] += 3.0
        moved = sf.Fitted(binned.encoder, binned.model, params, binned.loss)
        table = visits_table(np.random.default_rng(0), 2000)
        before, after = (sf.discretization_error(fitted, model) for model in (binned, moved))
        assert largest_change(fitted, moved, table) <= after.bound
        assert after.fields[0].bound > before.fields[0].bound + 1.0
        assert after.fields[1].bound > 1.1 * before.fields[1].bound  # which meets the moved vector


class TestFewestBins:
    def test_adaptive_bins_are_fewer_than_uniform_ones(self):
        schema = sf.Schema(
            [sf.Numerical("x", sf.MinMax(), sf.BSpline(knots=(0.0, 0.8, 0.9, 1.0))), sf.Categorical("c")]
        )
        table = {"x": np.linspace(0.0, 1.0, 50), "c": ["a", "b"] * 25}
        fitted = fitted_to(schema, table=table)
        n = sum(basis_of(sf.discretize(fitted, max_error=0.05), "x").sizes)
        uniform = sf.discretization_error(fitted, sf.discretize(fitted, {"x": n}))
        assert uniform.bound > 1.5 * 0.05

    def test_a_straight_line_gets_equal_bins(self):
        """A score of slope 2 along u in [0, 1] takes 2 / 2ε bins; of the error, a hundredth is kept back."""
        table = {"x": np.linspace(0.0, 1.0, 50)}
        schema = sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(1, 1), missing="error")])
        fitted = fitted_to(schema, sf.FM(1), table=table)
        fitted.params["linear"][:] = [0.0, 2.0]
        bins = basis_of(sf.discretize(fitted, max_error=0.1 / 0.99 * 1.0001), "x")
        np.testing.assert_allclose(bins.cuts, np.arange(1, 10) / 10, rtol=2e-4)

    def test_a_constant_needs_one_bin(self):
        fitted = fitted_to(make_schema())
        fitted.params["factors"][3:13] = fitted.params["factors"][3]
        fitted.params["linear"][3:13] = 1.0
        binned = sf.discretize(fitted, "recency", max_error=1e-4)
        assert sum(basis_of(binned).sizes) == 1
        assert sf.discretization_error(fitted, binned, visits_table(np.random.default_rng(0))).max_error < 1e-5

    def test_the_budget_is_split_by_the_lengths_of_the_curves(self):
        fitted = fitted_of()
        binned = sf.discretize(fitted, max_error=0.01)
        recency, price = sf.discretization_error(fitted, binned).fields
        # ε in proportion to √L and n = L / 2ε bins: ε / n is the same for all.
        np.testing.assert_allclose(recency.bound / recency.bins, price.bound / price.bins, rtol=0.05)
        even = sf.discretize(sf.discretize(fitted, "recency", max_error=0.005), "price", max_error=0.005)
        rows = [model.encoder.layout.n_features for model in (binned, even)]
        assert rows[0] <= rows[1]


class TestSpacing:
    def bins(self, spacing, n=8, transform=None, data=None, basis=BASES["cubic"]):
        fitted = fitted_to(make_schema(basis, transform=transform))
        return basis_of(sf.discretize(fitted, {"recency": n}, spacing=spacing, data=data))

    def edges(self, *arguments, **options):
        return np.array(self.bins(*arguments, **options).edges)

    def test_uniform_in_raw_units(self):
        values = visits_table(np.random.default_rng(1))["recency"]
        for transform in (sf.MinMax(), sf.Quantile(), sf.Log()):
            edges = self.edges("uniform", transform=transform)
            np.testing.assert_allclose(edges, np.linspace(values.min(), values.max(), 9))

    def test_geometric(self):
        edges = self.edges("geometric", transform=sf.Log())
        np.testing.assert_allclose(edges[1:] / edges[:-1], edges[1] / edges[0])
        from_zero = self.edges("geometric", transform=sf.MinMax(low=0.0, high=80.0))
        assert (from_zero[0], from_zero[1], from_zero[-1]) == (0.0, 10.0, 80.0)
        np.testing.assert_allclose(from_zero[2:] / from_zero[1:-1], from_zero[2] / from_zero[1])

    def test_parametric_cdfs_have_no_ends(self):
        transform = sf.BestFitCDF(families=("cauchy",)).fit(visits_table(np.random.default_rng(1))["recency"])
        edges = self.edges("uniform", transform=transform)
        np.testing.assert_allclose(edges[[0, -1]], transform.inverse([1 / 16, 15 / 16]))

    def test_quantiles_of_the_training_rows(self):
        values = visits_table(np.random.default_rng(1))["recency"]
        for basis in (sf.BSpline(40), sf.MultiResolution((8, 64)), sf.BSpline(50, periodic=True)):
            bins = self.bins("quantile", transform=sf.MinMax(), basis=basis)
            u = sf.MinMax().fit(values)(values)
            counts = np.bincount(bins(u)[0][:, 0], minlength=8)
            assert len(counts) == 8 and counts.min() > 25 and counts.max() < 50, counts

    def test_quantiles_and_range_of_a_table(self):
        data = {"recency": [2.0, 3.0, 4.0, 5.0, None, 0.0, 999.0] * 10}
        bins = self.bins("quantile", n=4, transform=sf.MinMax(0.0, 10.0), data=data)
        np.testing.assert_allclose(bins.cuts, [0.2, 0.3, 0.4])
        edges = self.edges("uniform", n=3, data=pa.table(data))
        np.testing.assert_allclose(edges, [2.0, 3.0, 4.0, 5.0])

    def test_edges_in_raw_units(self):
        fitted = fitted_of()
        edges = [-5.0, 1.0, 2.0, 4.0, 8.0, 1e6, 1e7]
        binned = sf.discretize(fitted, edges={"recency": edges})
        assert basis_of(binned).edges == tuple(edges)
        assert_reads_the_curve(fitted, binned, visits_table(np.random.default_rng(2), hostile=True))
        binned = sf.discretize(fitted, {"price": 7}, edges={"recency": edges})
        assert basis_of(binned).edges == tuple(edges) and basis_of(binned, "price") == sf.Bins(7)
        table = visits_table(np.random.default_rng(4), 2000, hostile=True)
        assert largest_change(fitted, binned, table) <= sf.discretization_error(fitted, binned).bound

    def test_a_range_of_one_value_is_one_bin(self):
        assert sum(self.bins("uniform", data={"recency": [3.0, 3.0]}).sizes) == 1
        assert sum(self.bins("geometric", n=1).sizes) == 1


class TestSteps:
    @pytest.mark.parametrize("basis", STEPS, ids=str)
    def test_steps_stay_as_they_are(self, basis):
        fitted = fitted_to(make_schema(basis))
        several = [sf.discretize(fitted, {"recency": 50}, spacing=spacing) for spacing in ("u", "uniform", "quantile")]
        for binned in (*several, sf.discretize(fitted, "recency", max_error=1e-3)):
            assert binned.encoder.fields == fitted.encoder.fields
            np.testing.assert_array_equal(binned.params["factors"], fitted.params["factors"])
        report = sf.discretization_error(fitted, binned)
        assert (report.fields, report.bound) == ((), 0.0)

    @pytest.mark.parametrize("basis", STEPS, ids=str)
    def test_the_bound_knows_steps_of_other_fields(self, basis):
        fitted = fitted_to(make_schema(basis))
        binned = sf.discretize(fitted, {"price": 20})
        table = visits_table(np.random.default_rng(4), 1000, hostile=True)
        report = sf.discretization_error(fitted, binned)
        assert largest_change(fitted, binned, table) <= report.bound and report.certified

    @pytest.mark.parametrize("reduction", ["sum", "identity"])
    def test_steps_of_several_resolutions_become_bins_without_an_error(self, reduction):
        fitted = fitted_to(make_schema(sf.MultiResolution((2, 3, 8), degree=0), reduction))
        binned = sf.discretize(fitted, {"recency": 5})
        assert basis_of(binned).sizes == (10,)  # 1/8 .. 7/8, and the thirds
        table = visits_table(np.random.default_rng(4), 2000, hostile=True)
        assert largest_change(fitted, binned, table) < 1e-5
        assert sf.discretization_error(fitted, binned).bound < 1e-5

    def test_bins_across_steps_are_no_steps_of_the_model(self):
        fitted = fitted_to(make_schema(sf.MultiResolution((2, 3), degree=0)))
        other = sf.discretize(fitted_to(make_schema()), {"recency": 4})
        rows = {name: fitted.params[name] for name in ("factors", "linear")}
        middle = {name: own[[3, 3, 4, 4]] + own[[5, 6, 6, 7]] for name, own in rows.items()}  # halves and thirds
        put = {name: np.concatenate([own[:3], middle[name], own[8:]]) for name, own in rows.items()}
        binned = sf.Fitted(other.encoder, fitted.model, {**fitted.params, **put}, fitted.loss)
        table = visits_table(np.random.default_rng(4), 1000, hostile=True)
        assert 0.1 < largest_change(fitted, binned, table) <= sf.discretization_error(fitted, binned).bound


class TestLife:
    """What can be done with a model can be done with its discretization."""

    def test_the_model_itself_is_not_changed(self):
        fitted = fitted_of()
        before = {name: values.copy() for name, values in fitted.params.items()}
        sf.discretize(fitted, 7)
        assert all(np.array_equal(values, fitted.params[name]) for name, values in before.items())
        assert basis_of(fitted) == BASES["cubic"]

    @pytest.mark.parametrize("model", MODELS, ids=str)
    def test_saved_and_loaded(self, model, tmp_path):
        fitted = fitted_of(model=model)
        binned = sf.discretize(fitted, max_error=0.3)
        binned.save(tmp_path / "m.sfm")
        again = sf.load(tmp_path / "m.sfm")
        table = visits_table(np.random.default_rng(4), hostile=True)
        np.testing.assert_array_equal(again.scores(table), binned.scores(table))
        assert again.encoder == binned.encoder
        reports = sf.discretization_error(fitted, again), sf.discretization_error(fitted, binned)
        assert repr(reports[0]) == repr(reports[1])  # NaN, which they have without a table, is never equal

    def test_a_custom_basis_can_be_saved_once_it_is_bins(self, tmp_path):
        sf.discretize(fitted_of("custom"), {"recency": 9}).save(tmp_path / "m.sfm")

    def test_curves_are_steps_near_the_spline(self):
        fitted = fitted_of(model=MODELS[1])
        binned = sf.discretize(fitted, max_error=0.05)
        segment = {"price": 3.0, "country": "FR", "tags": ["t1"], "device": "phone"}
        z = np.linspace(0.6, 40.0, 200)
        curve, steps = (model.segment(segment, along="recency") for model in (fitted, binned))
        assert np.abs(curve(z) - steps(z)).max() <= 0.05
        np.testing.assert_allclose(
            steps(z), binned.scores({**{k: [v] * 200 for k, v in segment.items()}, "recency": z}), atol=1e-4
        )
        assert abs(curve.maximum().value - steps.maximum().value) <= 0.05

    @pytest.mark.parametrize("basis", [*BASES, "steps"])
    def test_means_over_training_rows_stay(self, basis):
        known = sf.MultiResolution((2, 3), degree=0) if basis == "steps" else BASES[basis]
        fitted = fitted_to(make_schema(known))
        binned = sf.discretize(fitted, {"recency": 200, "price": 30})
        values = {"tags": ["t1"], "device": "phone"}
        bars = [model.segment(values, "country", rest="mean") for model in (fitted, binned)]
        np.testing.assert_allclose(bars[0].scores, bars[1].scores, atol=1e-4)

    def test_rows_per_bin(self):
        table = visits_table(np.random.default_rng(1), 5000)
        fitted = fitted_to(make_schema(sf.BSpline(40)), table=table)
        binned = sf.discretize(fitted, {"recency": 10})
        counts = binned.encoder.feature_counts[0]
        slots = binned.encoder.encode(table)
        expected = np.bincount(slots.start[:, 0], minlength=len(counts))[: len(counts)]
        np.testing.assert_allclose(counts, expected, atol=60)
        np.testing.assert_array_equal(counts[:3], fitted.encoder.feature_counts[0][:3])
        assert len(binned.encoder.starvation().functions) == 10 + 6
        unknown = sf.discretize(fitted_to(make_schema(sf.Fourier(2)), table=table), {"recency": 10})
        np.testing.assert_allclose(unknown.encoder.feature_counts[0][3:], 500.0, rtol=1e-3)
        assert "10 simulated bins; before: MinMax" in binned.encoder.notes["recency"]

    def test_learning_goes_on(self):
        table = visits_table(np.random.default_rng(1), 2000)
        table["click"] = (table["recency"] > 8).astype(int).tolist()
        fitted = fitted_to(make_schema(), sf.FM(k=2))
        learner = sf.Learner(sf.discretize(fitted, {"recency": 30}), sf.Training(threads=1))
        losses = [learner.update(table, "click") for _ in range(5)]
        assert losses[-1] < losses[0]
        assert basis_of(learner.fitted()) == sf.Bins(30)
        with pytest.raises(ValueError, match="not a discretization of fitted"):
            sf.discretization_error(fitted, learner.fitted())

    def test_twice(self):
        fitted = fitted_of()
        once = sf.discretize(fitted, {"recency": 30})
        twice = sf.discretize(once, {"price": 20})
        both = sf.discretize(fitted, {"recency": 30, "price": 20})
        assert twice.encoder.fields == both.encoder.fields
        np.testing.assert_array_equal(twice.params["factors"], both.params["factors"])

    def test_a_report_for_people(self):
        fitted = fitted_of()
        binned = sf.discretize(fitted, {"recency": 30})
        lines = str(sf.discretization_error(fitted, binned, visits_table(np.random.default_rng(1)))).splitlines()
        assert lines[1].split()[:2] == ["recency", "30"] and "300 rows" in lines[2]
        grid = sf.discretization_error(fitted_of("powers"), sf.discretize(fitted_of("powers"), {"recency": 30}))
        assert "by a grid of points" in str(grid) and "measured" not in str(grid) and np.isnan(grid.max_error)

    def test_scores_are_measured_chunk_by_chunk_and_drift_is_told_once(self, monkeypatch):
        monkeypatch.setattr(discretize, "CHUNK", 70)
        fitted, table = fitted_of(), visits_table(np.random.default_rng(1))
        binned = sf.discretize(fitted, {"recency": 5})
        change = np.abs(binned.scores(table).astype(np.float64) - fitted.scores(table))
        report = sf.discretization_error(fitted, binned, table)
        assert report.n_rows == len(change)
        np.testing.assert_allclose([report.max_error, report.mean_error], [change.max(), change.mean()])
        with pytest.warns(sf.DriftWarning, match="'country': 100% of the values are unseen") as told:
            sf.discretization_error(fitted, binned, {**table, "country": ["new"] * len(change)})
        assert len(told) == 1


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "give the number of bins or their edges"),
            ({"fields": {}}, "give the number of bins or their edges"),
            ({"fields": {"recencyy": 9}}, "no column 'recencyy' in the model; nearest: 'recency'"),
            ({"fields": {"country": 9}}, "'country' is a Categorical field"),
            ({"fields": {"recency": 0}}, "from 1 to 1,000,000, got 0"),
            ({"fields": {"recency": 10**7}}, "from 1 to 1,000,000"),
            ({"fields": {"recency": 2.5}}, "must be from 1"),
            ({"fields": {"recency": True}}, "must be from 1"),
            ({"fields": 0}, "must be from 1"),
            ({"fields": "recency"}, "how many bins"),
            ({"fields": ["recency"]}, "how many bins"),
            ({"fields": {"recency": 9}, "spacing": "linear"}, "spacing must be"),
            ({"fields": {"recency": 9}, "edges": {"recency": [0, 1]}}, "give one of the two"),
            ({"fields": {"recency": 9}, "max_error": 0.1}, "max_error chooses the bins"),
            ({"max_error": 0.1, "edges": {"recency": [0, 1]}}, "max_error chooses the bins"),
            ({"max_error": 0.1, "spacing": "quantile"}, "max_error chooses the bins"),
            ({"max_error": 0.1, "fields": "country"}, "'country' is a Categorical field"),
            ({"max_error": 0.1, "fields": ["nope"]}, "no column 'nope'"),
            ({"max_error": 0.0}, "max_error must be a positive number"),
            ({"max_error": float("nan")}, "max_error must be a positive number"),
            ({"max_error": "small"}, "max_error must be a positive number"),
            ({"max_error": 1e-12}, "takes more than 1,000,000 bins of 'recency'"),
            ({"edges": {"recency": [3.0]}}, "edges of 'recency': edges must be at least two"),
            ({"edges": {"recency": [3.0, 2.0]}}, "edges of 'recency': edges must be at least two increasing"),
            ({"edges": {"recency": 3}}, "edges of 'recency'"),
            ({"edges": {"tags": [1.0, 2.0]}}, "'tags' is a MultiValued field"),
            ({"fields": {"price": 9}, "spacing": "geometric"}, "'price' starts at -"),
            ({"fields": {"recency": 9}, "spacing": "quantile", "data": {"x": [1.0]}}, "data: no column 'recency'"),
            ({"fields": {"recency": 9}, "spacing": "quantile", "data": {"recency": [0.0, None]}}, "no ordinary values"),
        ],
    )
    def test_discretize(self, options, message):
        with pytest.raises(ValueError, match=message):
            sf.discretize(fitted_of(), **options)

    def test_no_distribution_to_take_quantiles_of(self):
        with pytest.raises(ValueError, match="is not kept with a Fourier basis; give data="):
            sf.discretize(fitted_of("fourier"), {"recency": 9}, spacing="quantile")

    def test_what_is_no_model(self):
        with pytest.raises(TypeError, match="fitted_"):
            sf.discretize(sf.SplineFMClassifier(), {"recency": 9})
        with pytest.raises(TypeError, match="fitted_"):
            sf.discretization_error(fitted_of(), None)

    def test_models_that_have_nothing_to_do_with_each_other(self):
        fitted = fitted_of()
        others = [
            sf.discretize(fitted_of(model=MODELS[1]), 9),
            sf.discretize(fitted_to(make_schema(), seed=1), 9),
            fitted_to(make_schema(sf.BSpline(6))),
            fitted_to(sf.Schema(make_schema().fields[:4])),
            sf.discretize(fitted_to(make_schema(transform=sf.Log())), 9),
        ]
        for other in others:
            with pytest.raises(ValueError, match="not a discretization of fitted"):
                sf.discretization_error(fitted, other)

    def test_data_to_measure_on(self):
        fitted = fitted_of()
        binned = sf.discretize(fitted, 9)
        with pytest.raises(ValueError, match="no column"):
            sf.discretization_error(fitted, binned, {"recency": [1.0]})
        nothing = {name: values[:0] for name, values in visits_table(np.random.default_rng(0), 3).items()}
        with pytest.raises(ValueError, match="data has no rows"):
            sf.discretization_error(fitted, binned, nothing)
