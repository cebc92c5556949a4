"""Views: curves, bars and surfaces equal the engine's scores, and what is read from them is exact."""

import itertools
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.interpolate import BSpline as ScipySpline
from scipy.interpolate import PPoly

import splinefm as sf
from splinefm.cli.segments import parse_segments
from splinefm.encode.slots import Slots
from splinefm.model.family.formula import formula_scores
from support import all_models, averages, random_fitted, visits_schema, visits_table

MODELS = [*all_models(5), *averages()]
BASES = {
    "cubic": sf.BSpline(segments=7),
    "linear": sf.BSpline(segments=7, degree=1),
    "steps": sf.BSpline(segments=7, degree=0),
    "quintic": sf.BSpline(segments=4, degree=5),
    "knots": sf.BSpline(knots=(0.0, 0.1, 0.15, 0.7, 1.0)),
    "periodic": sf.BSpline(segments=6, periodic=True),
    "short period": sf.BSpline(segments=2, periodic=True),
    "resolutions": sf.MultiResolution((2, 5, 9)),
    "bins": sf.Bins(6),
    "bins by quantile": sf.Bins(6, spacing="quantile"),
    "bins by edges": sf.Bins(edges=(0.0, 0.1, 5.0, 10.0, 500.0, 600.0)),
    "constant": sf.Polynomial(0),
    "bernstein": sf.Polynomial(5),
    "chebyshev": sf.Polynomial(5, "chebyshev"),
    "legendre": sf.Polynomial(5, "legendre"),
    "fourier": sf.Fourier(2),
    "powers": sf.Powers(),
    "custom": sf.CustomBasis((np.ones_like, np.sin)),
}
PIECEWISE = [name for name in BASES if name not in ("fourier", "powers", "custom")]
SMOOTH = [name for name in PIECEWISE if not name.startswith("bins")]
TRANSFORMS = {
    "minmax": sf.MinMax(),
    "quantile": sf.Quantile(knots=9),
    "best fit": sf.BestFitCDF(families=("gamma", "lognormal")),
    "arcsinh": sf.ArcsinhSquare(),
    "log": sf.Log(),
    "custom": sf.CustomTransform(lambda x: x / 60.0, lambda u: u * 60.0),
}
SEGMENT = {"price": 3.0, "country": "FR", "tags": ["t1", "t2"], "device": "phone"}


def make_schema(basis="cubic", transform="minmax", **options):
    return visits_schema(BASES[basis], TRANSFORMS[transform], **options)


def fitted_to(schema, table, model=MODELS[0], loss="logistic", seed=0):
    loss = sf.Loss(loss, center=2.0, scale=3.0) if loss == "squared" else sf.Loss(loss)
    return random_fitted(model, schema, table, loss=loss, seed=seed, scale=1.0, spread=0.5)


@cache
def fitted_of(basis="cubic", transform="minmax", model=MODELS[0]):
    return fitted_to(make_schema(basis, transform), visits_table(np.random.default_rng(1)), model)


def rows_of(segment, **columns):
    """The table that has the segment in every row, besides some columns."""
    n = len(next(iter(columns.values())))
    return {**{name: [value] * n for name, value in segment.items()}, **columns}


def without(*names):
    return {name: value for name, value in SEGMENT.items() if name not in names}


def segment_rows(n, rng=None):
    table = visits_table(rng or np.random.default_rng(5), n)
    del table["recency"]
    return table


def sum_of_terms(fitted, slots):
    """Σ |terms| of the score of each row, in float64: what its rounding is in proportion to."""
    params = {name: np.abs(values) for name, values in fitted.params.items()}
    return formula_scores(fitted.model, params, Slots(slots.start, np.abs(slots.weight), slots.layout))


def assert_scores(found, fitted, table):
    """Values of a view are the formula's, and the engine's up to the rounding of its sums.

    The formula is in float64, but the weights in slots are float32. The engine is float32 throughout.
    """
    slots = fitted.encoder.encode(table)
    terms = sum_of_terms(fitted, slots)
    assert np.shape(found) == terms.shape
    assert (np.abs(found - formula_scores(fitted.model, fitted.params, slots)) <= 6e-8 * terms).all()
    assert (np.abs(found - fitted.scores(slots)) <= 3e-7 * terms).all()


Z = np.concatenate([np.linspace(-5.0, 80.0, 60), [0.0, 999.0, 2000.0, np.nan, 0.5]])


@pytest.mark.parametrize("model", MODELS, ids=str)
class TestEveryModel:
    def test_a_curve_is_the_score(self, model):
        fitted = fitted_of(model=model)
        curve = fitted.segment(SEGMENT, along="recency")
        assert_scores(curve(Z), fitted, rows_of(SEGMENT, recency=Z))
        link = fitted.predict(rows_of(SEGMENT, recency=Z))
        np.testing.assert_allclose(curve(Z, link=True), link, atol=1e-5)

    @pytest.mark.parametrize("along", ["price", "country", "tags", "device"])
    def test_so_it_is_along_every_field(self, model, along):
        fitted, segment = fitted_of(model=model), {"recency": 7.0, **without(along)}
        values = {
            "price": [1.0, np.nan, 9.0],
            "country": ["US", "DE", None, "elsewhere"],
            "tags": [[], ["t1"], ["t3", "t1"], None],
            "device": ["desk", "unknown", None],
        }[along]
        assert_scores(fitted.segment(segment, along)(values), fitted, rows_of(segment, **{along: values}))

    def test_a_surface_is_the_score(self, model):
        fitted, rng = fitted_of(model=model), np.random.default_rng(2)
        price = rng.choice([1.0, 4.0, np.nan, 8.5], len(Z))
        rows = rows_of(without("price"), recency=Z, price=price)
        for along, values in [(("recency", "price"), (Z, price)), (("price", "recency"), (price, Z))]:
            surface = fitted.segment(without("price"), along)
            assert_scores(surface(*values), fitted, rows)

    def test_a_surface_of_a_number_and_a_category_is_the_score(self, model):
        fitted, countries = fitted_of(model=model), ["US", "FR", None, "other"]
        for along in (("recency", "country"), ("country", "recency")):
            surface = fitted.segment(without("country"), along)
            values = {"recency": Z[:, None], "country": np.array(countries, object)}
            grid = surface(*(values[name] for name in along))
            for column, country in zip(grid.T, countries, strict=True):
                assert_scores(column, fitted, rows_of({**SEGMENT, "country": country}, recency=Z))

    def test_surface_coefficients_reproduce_it_and_have_low_rank(self, model):
        fitted = fitted_of(model=model)
        surface = fitted.segment(without("price"), ("recency", "price"))
        x, y = (fitted.encoder.schema[name] for name in ("recency", "price"))
        z, price = np.linspace(1.0, 30.0, 20), np.linspace(0.0, 6.0, 20)
        A, B = (weights_of(item.basis, item.transform(v)) for item, v in ((x, z), (y, price)))
        a, b = surface.main_effects
        rebuilt = surface.intercept + A @ a + B @ b + np.einsum("ni,ij,nj->n", A, surface.coefficients, B)
        np.testing.assert_allclose(surface(z, price), rebuilt, atol=1e-10)
        k = min(model.k[:2]) if isinstance(model, sf.FmFM) and isinstance(model.k, tuple) else model.k
        k += model.third
        assert surface.rank == k < min(surface.coefficients.shape)

    def test_a_family_is_its_segments(self, model):
        fitted, table = fitted_of(model=model), segment_rows(5)
        curves = sf.segments(fitted, table, along="recency")
        rest = segment_rows(5)
        del rest["price"]
        surfaces = sf.segments(fitted, rest, along=("recency", "price"))
        price = np.linspace(0.0, 5.0, len(Z))
        assert curves.coefficients.shape == (5, 10) and len(curves) == len(surfaces) == 5
        for i in range(5):
            one = {name: values[i] for name, values in table.items()}
            single = fitted.segment(one, along="recency")
            np.testing.assert_allclose(curves[i](Z), single(Z), atol=1e-10)
            np.testing.assert_allclose(curves(Z)[i], single(Z), atol=1e-10)
            np.testing.assert_allclose(curves.tokens["missing"][i], single.tokens["missing"], atol=1e-10)
            del one["price"]
            surface = fitted.segment(one, along=("recency", "price"))
            np.testing.assert_allclose(surfaces[i](Z, price), surface(Z, price), atol=1e-10)
            np.testing.assert_allclose(surfaces(Z, price)[i], surface(Z, price), atol=1e-10)
            np.testing.assert_allclose(surfaces.coefficients[i], surface.coefficients, atol=1e-10)

    def test_the_mean_is_that_over_independent_draws(self, model):
        rng = np.random.default_rng(3)
        table = visits_table(rng, 12)
        fitted = fitted_to(make_schema(), table, model)
        curve = fitted.segment(without("price", "country"), "recency", rest="mean", background=table)
        z = np.array([1.0, 5.0, 20.0])
        recency, price, country = zip(*itertools.product(z, table["price"], table["country"]), strict=True)
        rows = rows_of(without("price", "country", "recency"), recency=recency, price=price, country=country)
        expected = fitted.scores(rows).reshape(3, 144).mean(axis=1)
        np.testing.assert_allclose(curve(z), expected, atol=1e-5, rtol=1e-5)

    def test_the_mean_over_the_training_rows_needs_no_background(self, model):
        fitted, table = fitted_of(model=model), visits_table(np.random.default_rng(1))
        for named, along, values in [
            ({}, "recency", (Z,)),
            ({"country": "FR"}, "tags", ([[], ["t1"], ["t2", "t3"]],)),
            ({}, "country", (["US", "DE", None],)),
            ({"price": 2.0}, ("recency", "device"), (Z[:, None], np.array(["phone", None], object))),
        ]:
            kept = fitted.segment(named, along, rest="mean")
            averaged = fitted.segment(named, along, rest="mean", background=table)
            np.testing.assert_allclose(kept(*values), averaged(*values), atol=1e-9)
            if named:
                rows = {name: [value, None] for name, value in named.items()}
                np.testing.assert_allclose(sf.segments(fitted, rows, along, rest="mean")(*values)[0], kept(*values))


def weights_of(basis, u):
    """All basis functions at u, as a dense matrix, from the basis alone."""
    start, weight = basis(u)
    dense = np.zeros((len(u), sum(basis.sizes)))
    at = 0
    for window, width in enumerate(basis.widths):
        for j in range(width):
            np.add.at(dense, (np.arange(len(u)), start[:, window] + j), weight[:, at])
            at += 1
    return dense


@pytest.mark.parametrize("basis", BASES)
class TestEveryBasis:
    def test_alpha_and_beta_reproduce_the_score(self, basis):
        fitted = fitted_of(basis, "minmax", sf.FFM(k=3))
        curve, item = fitted.segment(SEGMENT, "recency"), fitted.encoder.schema["recency"]
        z = np.linspace(0.6, 60.0, 200)
        rebuilt = curve.intercept + weights_of(item.basis, item.transform(z)) @ curve.coefficients
        assert_scores(rebuilt, fitted, rows_of(SEGMENT, recency=z))
        np.testing.assert_allclose(curve(z), rebuilt, atol=1e-10)

    def test_the_spline_is_the_score_in_u(self, basis):
        fitted = fitted_of(basis, "quantile", sf.FwFM(k=4))
        curve, item = fitted.segment(SEGMENT, "recency"), fitted.encoder.schema["recency"]
        if basis not in SMOOTH:
            with pytest.raises(AttributeError, match=r"'recency'.*is not a spline"):
                _ = curve.spline
            return
        assert isinstance(curve.spline, ScipySpline if isinstance(item.basis, sf.BSpline) else PPoly)
        z = np.linspace(0.6, 60.0, 300)
        np.testing.assert_allclose(curve.spline(item.transform(z)), curve(z), atol=1e-9)
        family = sf.segments(fitted, segment_rows(4), "recency")
        np.testing.assert_allclose(family.spline(item.transform(z)).T, family(z), atol=1e-9)

    def test_extrema_beat_a_dense_search_and_are_attained(self, basis):
        fitted = fitted_of(basis, "minmax", sf.FFM(k=3))
        curves = sf.segments(fitted, segment_rows(6), "recency")
        if basis not in PIECEWISE:
            with pytest.raises(ValueError, match="'recency'"):
                curves.maximum()
            return
        item = fitted.encoder.schema["recency"]
        for low, high in [(None, None), (3.0, 9.0)]:
            ends = np.array([low or item.transform.low, high or item.transform.high])
            dense = curves(np.linspace(*ends, 20_001))
            highest, lowest = curves.maximum(low, high), curves.minimum(low, high)
            for extremum, grid in ((highest, dense.max(axis=1)), (lowest, dense.min(axis=1))):
                np.testing.assert_allclose(extremum.value, grid, atol=1e-3)  # a grid misses the tips
                assert ((extremum.at >= ends[0] - 1e-9) & (extremum.at <= ends[1] + 1e-9)).all()
                attained = [curve(at) for curve, at in zip(curves, extremum.at, strict=True)]
                np.testing.assert_allclose(attained, extremum.value, atol=1e-9)
            assert (highest.value >= dense.max(axis=1) - 1e-9).all()
            assert (lowest.value <= dense.min(axis=1) + 1e-9).all()
            one = curves[3].maximum(low, high)
            assert one == pytest.approx((highest.at[3], highest.value[3], highest.u[3]))


@pytest.mark.parametrize("transform", TRANSFORMS)
class TestEveryTransform:
    def test_a_curve_is_the_score(self, transform):
        for basis in ("cubic", "resolutions", "bins"):
            fitted = fitted_of(basis, transform, sf.FwFM(k=4))
            assert_scores(fitted.segment(SEGMENT, "recency")(Z), fitted, rows_of(SEGMENT, recency=Z))

    @pytest.mark.parametrize("basis", ["cubic", "steps", "periodic", "resolutions", "legendre", "constant"])
    def test_the_derivative_is_the_limit_of_differences(self, transform, basis):
        fitted = fitted_of(basis, transform, sf.FwFM(k=4))
        curves = sf.segments(fitted, segment_rows(3), "recency")
        knots = np.array(getattr(fitted.encoder.schema["recency"].transform, "x", ()))
        z = np.linspace(1.0, 100.0, 80)  # the largest value is near 40: beyond it nothing changes
        if len(knots):
            z = z[np.abs(z[:, None] - knots).min(axis=1) > 1e-3]
        step = 1e-5
        differences = (curves(z + step) - curves(z - step)) / (2 * step)
        np.testing.assert_allclose(curves.derivative(z), differences, atol=1e-6, rtol=1e-5)
        np.testing.assert_allclose(curves[1].derivative(z), curves.derivative(z)[1], atol=1e-12)

    @pytest.mark.parametrize("basis", ["resolutions", "bins", "steps"])
    def test_the_raw_place_of_an_extremum_gives_its_value(self, transform, basis):
        curves = sf.segments(fitted_of(basis, transform, sf.FwFM(k=4)), segment_rows(30), "recency")
        for highest in (curves.maximum(), curves.minimum()):
            # It may be at the end of the range, 0, which is a special value here.
            at = np.where(highest.at == 0.0, 1e-300, highest.at)
            np.testing.assert_allclose(np.diag(curves(at)), highest.value, atol=1e-6)
        probability = 1 / (1 + np.exp(-curves.maximum().value))
        np.testing.assert_allclose(curves.maximum(link=True).value, probability)


class TestTokens:
    def test_special_and_missing_values_have_scores_by_name(self):
        fitted = fitted_of()
        curve = fitted.segment(SEGMENT, "recency")
        assert list(curve.tokens) == ["= 0", ">= 999", "missing"]
        assert_scores(list(curve.tokens.values()), fitted, rows_of(SEGMENT, recency=[0.0, 5000.0, None]))

    def test_the_derivative_is_nan_there(self):
        curve = fitted_of().segment(SEGMENT, "recency")
        assert np.isnan(curve.derivative([0.0, 1000.0, None, 2.0])).tolist() == [True, True, True, False]

    @pytest.mark.parametrize("special", [["negative", "> 50"], ["<= 0", ">= 50"]])
    def test_extrema_are_those_of_ordinary_values(self, special):
        table = visits_table(np.random.default_rng(1))
        schema = sf.Schema(
            [
                sf.Numerical("recency", sf.MinMax(-100.0, 100.0), special=special),
                *list(make_schema())[1:],
            ]
        )
        curves = sf.segments(fitted_to(schema, table), segment_rows(20), "recency")
        for extremum in (curves.maximum(), curves.minimum()):
            assert ((extremum.at >= -1e-9) & (extremum.at <= 50 + 1e-9)).all()
        assert curves.maximum().value == pytest.approx(
            curves(np.linspace(1e-9, 50 - 1e-9, 20_001)).max(axis=1), abs=1e-4
        )
        with pytest.raises(ValueError, match="are special"):
            curves.maximum(60.0, 70.0)

    def test_bars_name_categories_and_tokens(self):
        fitted, segment = fitted_of(), {"recency": 3.0, **without("country")}
        bars = fitted.segment(segment, "country")
        assert bars.names == ["US", "FR", "DE"] and list(bars.tokens) == ["missing", "rare"]
        rows = rows_of(segment, country=["US", "FR", "DE", None, "new"])
        assert_scores([*bars.scores, *bars.tokens.values()], fitted, rows)
        np.testing.assert_allclose(bars.predictions, fitted.predict(rows_of(segment, country=bars.names)), atol=1e-5)

    def test_a_bar_of_a_multi_valued_field_is_a_list_with_one_element(self):
        fitted, segment = fitted_of(), {"recency": 3.0, **without("tags")}
        bars = fitted.segment(segment, "tags")
        assert_scores(bars.scores, fitted, rows_of(segment, tags=[[name] for name in bars.names]))
        np.testing.assert_allclose(bars.intercept, fitted.scores(rows_of(segment, tags=[[]]))[0], atol=1e-5)


class TestSegments:
    @pytest.mark.parametrize("kind", [dict, pd.DataFrame, pl.DataFrame])
    def test_any_table_will_do_and_other_columns_are_ignored(self, kind):
        fitted, table = fitted_of(), segment_rows(4)
        curves = sf.segments(fitted, kind({**table, "recency": [1.0] * 4, "target": [0] * 4}), "recency")
        np.testing.assert_allclose(curves(Z), sf.segments(fitted, table, "recency")(Z))

    def test_many_segments_are_worked_on_in_chunks(self, monkeypatch):
        fitted, table = fitted_of(), segment_rows(50)
        whole = sf.segments(fitted, table, "recency")
        monkeypatch.setattr("splinefm.inspect.segment._BATCH_SIZE", 7 * 5 * 4)
        np.testing.assert_allclose(sf.segments(fitted, table, "recency").effects, whole.effects, atol=1e-12)
        assert_scores(whole(4.0), fitted, {**table, "recency": [4.0] * 50})

    def test_slices_and_loops(self):
        curves = sf.segments(fitted_of(), segment_rows(4), "recency")
        assert len(curves[1:3]) == 2 and len(list(curves)) == 4
        assert curves[2].effects is not None and isinstance(curves[2].intercept, float)
        assert curves(np.ones((2, 3))).shape == (4, 2, 3) and curves[0](1.0).shape == ()

    def test_shapes_of_surfaces_broadcast(self):
        table = segment_rows(4)
        del table["price"]
        surfaces = sf.segments(fitted_of(model=sf.HigherOrderFM(k=4, order=3)), table, ("recency", "price"))
        x, y = np.linspace(1, 9, 5), np.linspace(0, 4, 3)
        assert surfaces(x[:, None], y).shape == (4, 5, 3) and surfaces(x, 1.0).shape == (4, 5)
        assert surfaces[0](1.0, 2.0).shape == () and surfaces.rank.shape == (4,)
        np.testing.assert_allclose(surfaces(x[:, None], y)[2, 3, 1], surfaces[2](x[3], y[1]))

    def test_one_segment_is_no_family(self):
        curve = fitted_of().segment(SEGMENT, "recency")
        surface = fitted_of().segment(without("price"), ("recency", "price"))
        assert curve and surface
        for use in (len, lambda view: view[0]):
            for view in (curve, surface):
                with pytest.raises(TypeError, match="one segment"):
                    use(view)

    def test_a_table_of_segments_needs_rows(self):
        with pytest.raises(ValueError, match="no rows"):
            sf.segments(fitted_of(), {name: [] for name in segment_rows(1)}, "recency")


def test_the_kept_mean_of_many_values_is_within_the_error_of_their_summary():
    rng = np.random.default_rng(4)
    table = {"x": rng.lognormal(0, 1, 100_000), "y": rng.normal(size=100_000)}
    schema = sf.Schema([sf.Numerical("x", sf.Quantile()), sf.Numerical("y", sf.Quantile())])
    statistics = sf.EncoderStatistics(schema)
    statistics.update(table)
    fitted = fitted_to(schema, table)
    z = np.linspace(0.1, 5.0, 50)
    kept = fitted.segment({}, "x", rest="mean")(z)
    difference = np.abs(kept - fitted.segment({}, "x", rest="mean", background=table)(z)).max()
    effects = fitted.segment({"x": 1.0}, "y").effects
    assert 1e-9 < difference < 2 * statistics.fields[1].sketch.rank_error() * np.abs(effects).sum()
    assert difference < 1e-4


@pytest.mark.parametrize("model", [sf.FM(4), sf.FwFM(4), sf.FmFM(4), sf.FFM(3)], ids=str)
def test_where_scores_are_large_it_is_the_engine_that_rounds(model):
    rng = np.random.default_rng(0)
    table = {f"x{i}": rng.lognormal(size=200) for i in range(12)} | {
        f"c{i}": rng.integers(0, 9, 200) for i in range(12)
    }
    schema = sf.Schema(
        [sf.Numerical(name, sf.Quantile()) if name.startswith("x") else sf.Categorical(name) for name in table]
    )
    fitted = fitted_to(schema, table, model)
    fitted.params["factors"] *= np.float32(4.0)
    others = {name: values for name, values in table.items() if name != "x0"}
    found = np.diag(sf.segments(fitted, others, "x0")(table["x0"]))
    assert_scores(found, fitted, table)
    slots = fitted.encoder.encode(table)
    exact = formula_scores(model, fitted.params, slots)
    view, engine = (np.abs(scores - exact).max() for scores in (found, fitted.scores(slots)))
    assert engine > 1e-5 and view < engine / 2


def test_a_model_of_one_field_has_a_segment_without_values():
    table = {"x": np.linspace(0.0, 9.0, 50)}
    for model in (sf.FM(k=2), sf.FFM(k=2), sf.FmFM(k=2), sf.FwFM(k=2), sf.HigherOrderFM(k=2)):
        fitted = fitted_to(sf.Schema([sf.Numerical("x")]), table, model)
        assert_scores(fitted.segment({}, "x")(table["x"]), fitted, table)


def test_other_fields_may_keep_their_vectors_apart():
    table = visits_table(np.random.default_rng(1))
    fields = list(make_schema())
    fields[1] = sf.Numerical("price", sf.MinMax(), sf.BSpline(segments=4), reduction="identity")
    fields[3] = sf.MultiValued("tags", reduction="identity")
    for model in MODELS:
        fitted = fitted_to(sf.Schema(fields), table, model)
        assert_scores(fitted.segment(SEGMENT, "recency")(Z), fitted, rows_of(SEGMENT, recency=Z))
        with pytest.raises(ValueError, match=r"'price' has reduction=.*not in the span"):
            fitted.segment({"recency": 1.0, **without("price")}, "price")
        with pytest.raises(ValueError, match=r"'tags'.*no mean vector"):
            fitted.segment(without("tags"), "recency", rest="mean", background=table)


def test_dates_are_raw_values_too():
    days = np.arange("2024-01-01", "2024-03-01", dtype="datetime64[D]")
    table = {"day": days, "c": ["a", "b"] * (len(days) // 2)}
    fitted = fitted_to(sf.Schema([sf.Numerical("day"), sf.Categorical("c")]), table)
    assert_scores(fitted.segment({"c": "a"}, "day")(days), fitted, {"day": days, "c": ["a"] * len(days)})


def test_predictions_are_in_the_unit_of_the_target():
    fitted = fitted_to(make_schema(), visits_table(np.random.default_rng(1)), loss="squared")
    curve = fitted.segment(SEGMENT, "recency")
    np.testing.assert_allclose(curve(Z, link=True), 2.0 + 3.0 * curve(Z))


@pytest.mark.parametrize("missing", [False, True])
def test_a_moment_of_pandas_is_one_value(missing):
    times = pd.date_range("2020-01-01", periods=400, freq="7h").to_numpy()
    schema = sf.Schema([sf.Timestamp("when"), sf.Numerical("x")])
    fitted = fitted_to(schema, {"when": times, "x": np.linspace(0, 1, 400)})
    one, other = (pd.NaT, None) if missing else (pd.Timestamp(times[7]), times[7])
    x = np.linspace(0, 1, 9)
    curves = [fitted.segment({"when": when}, along="x")(x) for when in (one, other)]
    np.testing.assert_array_equal(*curves)


class TestErrors:
    @pytest.mark.parametrize(
        ("values", "options", "message"),
        [
            ({**SEGMENT, "contry": "US"}, {}, "no column 'contry'.*nearest: 'country'"),
            ({**SEGMENT, "recency": 1.0}, {}, "'recency' is in the segment and varies"),
            ({**SEGMENT, "country": ["US", "FR"]}, {}, "one value per field, 'country'.*sf.segments"),
            ({**SEGMENT, "price": "cheap"}, {}, "column 'price' should hold numbers"),
            ({**SEGMENT, "price": 2**70}, {}, "column 'price' holds integers of more than 64 bits, such as 118059"),
            (without("price", "tags"), {}, "lacks 'price', 'tags'.*rest=\"mean\""),
            (without("price"), {"rest": "average"}, "rest must be one of 'error', 'mean'"),
            (SEGMENT, {"background": {"price": [1.0]}}, 'background.*rest="mean"'),
            (without("price"), {"rest": "mean", "background": {"prize": [1.0]}}, "background: no column 'price'"),
            (without("price"), {"rest": "mean", "background": {"price": []}}, "background has no rows"),
            (SEGMENT, {"along": "recencyy"}, "along: no column 'recencyy' in the model; nearest: 'recency'"),
            (SEGMENT, {"along": ("recency", "recency")}, "along must be the name of a field or two different"),
            (SEGMENT, {"along": ("recency", "price", "tags")}, "along must be the name of a field or two"),
        ],
    )
    def test_of_a_segment_say_what_and_how(self, values, options, message):
        with pytest.raises(ValueError, match=message):
            fitted_of().segment(values, **{"along": "recency", **options})

    def test_of_a_mean_that_is_not_kept(self):
        fitted = fitted_of()
        old = replace(fitted, encoder=replace(fitted.encoder, feature_weights=()))
        with pytest.raises(
            ValueError, match=r"mean of 'price', 'tags' is not kept with this model; .*background=train"
        ):
            old.segment({"device": "phone"}, "recency", rest="mean")
        expected = fitted.segment(without("country", "device"), "recency", rest="mean")(Z)
        np.testing.assert_array_equal(old.segment(without("country", "device"), "recency", rest="mean")(Z), expected)

    def test_a_table_is_for_segments(self):
        with pytest.raises(TypeError, match=r"sf\.segments"):
            fitted_of().segment(pd.DataFrame(segment_rows(2)), "recency")

    def test_of_a_table_of_segments(self):
        fitted, table = fitted_of(), segment_rows(3)
        del table["country"]
        with pytest.raises(ValueError, match="lacks 'country'"):
            sf.segments(fitted, table, "recency")
        with pytest.raises(ValueError, match="no column 'contry' in the model; nearest: 'country'"):
            sf.segments(fitted, {**table, "contry": ["US"] * 3}, "recency", rest="mean")
        np.testing.assert_allclose(
            sf.segments(fitted, table, "recency", rest="mean")[1](Z),
            fitted.segment({name: values[1] for name, values in table.items()}, "recency", rest="mean")(Z),
        )

    def test_of_values(self):
        curve = fitted_of().segment(SEGMENT, "recency")
        with pytest.raises(ValueError, match="column 'recency' should hold numbers"):
            curve(["soon"])
        with pytest.raises(ValueError, match="column 'recency' holds -inf"):
            curve([-np.inf])
        with pytest.raises(ValueError, match="low must not be above high"):
            curve.maximum(3.0, 1.0)
        with pytest.raises(ValueError, match="'tags'"):
            fitted_of().segment({"recency": 1.0, **without("tags")}, "tags")(3)


def test_categories_that_the_model_does_not_know_are_named():
    table = {"x": [0.0, 1.0, 2.0] * 20, "c": ["red", "blue"] * 30, "tags": [["a"], ["b", "a"]] * 30}
    schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c"), sf.MultiValued("tags")])
    fitted = random_fitted(sf.FM(k=2), schema, table)
    with pytest.warns(UserWarning) as caught:
        curve = fitted.segment({"c": "rde", "tags": ["a", "z"]}, along="x")
    message = str(caught[0].message)
    assert "'c' has no category 'rde'; nearest: 'red'" in message and "'tags' has no category 'z'" in message
    assert (
        message.endswith("the view shows rare and unseen categories")
        and caught[0].filename == __file__
        and len(caught) == 1
    )
    expected = fitted.scores({"x": [1.0], "c": ["rde"], "tags": [["a", "z"]]}, watch=False)
    assert curve(1.0) == pytest.approx(expected[0], abs=1e-5)
    for known in ({"c": None, "tags": None}, {"c": "red", "tags": []}):  # silent
        fitted.segment(known, along="x")
    fitted.segment({"c": "rde", "tags": []}, along="x", watch=False)


def test_unseen_categories_that_share_a_feature_are_not_mistakes():
    schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c", unseen="hash", buckets=3, min_count=50)])
    fitted = random_fitted(sf.FM(k=2), schema, {"x": [0.0, 1.0] * 20, "c": ["red", "blue"] * 20})
    fitted.segment({"c": "rde"}, along="x")


@pytest.mark.parametrize("format", ["%m/%d/%Y", "%d.%m.%Y %H:%M", None])
def test_dates_of_a_segment_may_be_iso_dates(format):
    days = [datetime(2012, 1, 1) + timedelta(hours=31 * i) for i in range(60)]
    table = {"x": [0.0, 1.0, 2.0] * 20, "day": [day.strftime(format or "%Y-%m-%d") for day in days]}
    dates = [sf.Numerical(f"day.{part}", column="day", part=part, format=format) for part in ("weekday", "trend")]
    fitted = random_fitted(sf.FM(k=2), sf.Schema([sf.Numerical("x"), *dates]), table)
    written = datetime(2012, 3, 4).strftime(format or "%Y-%m-%d")
    expected = fitted.segment({"day": written}, along="x")([0.5, 1.5])
    np.testing.assert_array_equal(fitted.segment({"day": "2012-03-04"}, along="x")([0.5, 1.5]), expected)
    found = [parse_segments(fitted, ["x"], [f"day={text}"]).rows for text in ("2012-03-04", written)]
    assert found[0] == found[1] == [{"day": written}]
    (of_field,) = parse_segments(fitted, ["x"], ["day.weekday=2012-03-04"]).rows
    assert of_field == {"day.weekday": 6.0}  # a field takes its part of the date, Sunday
    with pytest.raises(ValueError, match="2012-02-30"):
        parse_segments(fitted, ["x"], ["day=2012-02-30"])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_extrema_of_polynomials_are_those_of_a_fine_grid(sign):
    from scipy.interpolate import PPoly

    from splinefm.inspect.crossed import polynomial_extrema

    rng = np.random.default_rng(3)
    piecewise = PPoly(rng.normal(size=(4, 3, 5)) * [[[9.0]], [[4.0]], [[2.0]], [[1.0]]], [0.0, 0.3, 0.7, 1.0])
    at, value = polynomial_extrema(piecewise, sign, 0.1, 0.9)
    grid = np.linspace(0.1, 0.9, 20_001)
    best = (sign * piecewise(grid)).max(axis=0)
    # A limit from the left at a break is not on the grid, so that an extremum may be a little beyond it.
    assert (sign * value >= best - 1e-12).all() and np.allclose(sign * value, best, atol=2e-3)
    assert ((at >= 0.1) & (at <= 0.9)).all()
