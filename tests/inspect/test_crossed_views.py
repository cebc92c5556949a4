"""Views of models with crosses: along a column, all fields that contain it vary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import BPoly, PPoly

import splinefm as sf
from splinefm.encode.slots import Slots
from splinefm.model.family.formula import formula_scores, unit_sums
from support import examples, random_fitted

N = 240
BASES = {
    "cubic": sf.BSpline(6),
    "quintic": sf.BSpline(3, degree=5),
    "linear": sf.BSpline(5, degree=1),
    "resolutions": sf.MultiResolution((2, 5)),
    "bins": sf.Bins(5),
    "bernstein": sf.Polynomial(3),
    "periodic": sf.BSpline(6, periodic=True),
}
CROSSES = {
    "two categories": sf.Cross("kind", "zone", min_count=3),
    "category and number": sf.Cross("kind", "lat", min_count=3, segments=4),
    "number and category": sf.Cross("long", "zone", min_count=3, segments=(2, 3), degree=2),
    "two numbers": sf.Cross("lat", "long", segments=(2, 3)),
    "a number twice": sf.Cross(
        "lat", sf.Numerical("lat2", sf.MinMax(), sf.BSpline(2), [0.0], column="lat"), name="square"
    ),
    "three": sf.Cross("lat", "kind", "long", min_count=3, segments=2),
    "three categories": sf.Cross("kind", "zone", "size", min_count=1),
    "hashed": sf.Cross("zone", "size", buckets=7),
    "steps": sf.Cross("lat", "size", segments=3, degree=0, min_count=1),
    "a column of its own": sf.Cross("lat", sf.Categorical("day"), min_count=3, segments=3),
}
NAMES = ("lat", "long", "kind", "zone", "size", "day")
MODELS = [
    sf.FM(3),
    sf.FwFM(4),
    sf.FwFM(3, third=2),
    sf.LowRankFwFM(3, 2),
    sf.FmFM(3),
    sf.FFM(2),
    sf.HigherOrderFM(3, 2),
    sf.HigherOrderFM(3, 4),
]


def make_table(seed=0, n=N):
    rng = np.random.default_rng(seed)
    lat = rng.choice([0.0, np.nan, 1.0], n, p=[0.1, 0.1, 0.8]) * rng.gamma(2.0, 3.0, n)
    return {
        "lat": lat,
        "long": rng.uniform(-3.0, 5.0, n),
        "kind": rng.choice(np.array(["a", "b", "c", None], object), n, p=[0.5, 0.3, 0.1, 0.1]),
        "zone": rng.choice(list("uvwx"), n),
        "size": rng.integers(1, 4, n),
        "day": rng.choice(["mon", "tue"], n),
    }


def make_schema(crosses, basis="cubic"):
    fields = [
        sf.Numerical("lat", sf.MinMax(), BASES[basis], special=[0.0]),
        *(CROSSES[name] for name in crosses[:1]),
        sf.Numerical("long", sf.MinMax(), sf.BSpline(4)),
        sf.Categorical("kind"),
        sf.Categorical("zone", min_count=5),
        sf.Categorical("size"),
        *(CROSSES[name] for name in crosses[1:]),
    ]
    return sf.Schema(fields)


def make_fitted(model, crosses, basis="cubic", seed=0):
    return random_fitted(model, make_schema(crosses, basis), make_table(), seed=seed, scale=1.0, spread=0.5)


def names_of(fitted):
    return [name for name in NAMES if name in fitted.encoder.schema.columns]


def draw_values(rng, n, table):
    """Values that occur, and some that do not."""
    strange = {"lat": 1e3, "long": np.nan, "kind": "new", "zone": None, "size": 9, "day": "sun"}
    return {
        name: [strange[name] if rng.random() < 0.1 else rng.choice(v) for _ in range(n)] for name, v in table.items()
    }


def assert_scores(found, fitted, rows):
    slots = fitted.encoder.encode(rows)
    params = {name: np.abs(values) for name, values in fitted.params.items()}
    terms = formula_scores(fitted.model, params, Slots(slots.start, np.abs(slots.weight), slots.layout))
    assert np.shape(found) == terms.shape
    assert (np.abs(found - formula_scores(fitted.model, fitted.params, slots)) <= 2e-7 * terms).all()
    assert (np.abs(found - fitted.scores(slots)) <= 5e-7 * terms).all()


fitted_models = st.builds(
    make_fitted,
    st.sampled_from(MODELS),
    st.lists(st.sampled_from(list(CROSSES)), min_size=1, max_size=3, unique=True),
    st.sampled_from(list(BASES)),
    st.integers(0, 99),
)


@given(fitted_models, st.data())
@examples(160)
def test_views_are_the_scores(fitted, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    names = names_of(fitted)
    along = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    values = draw_values(rng, 25, make_table(1))
    segments = {name: draw_values(rng, 3, make_table(2))[name] for name in names if name not in along}
    views = sf.segments(fitted, segments, along)
    found = views(*(np.array(values[name], object if name in ("kind", "zone", "day") else None) for name in along))
    for i in range(3):
        fixed = {name: [column[i]] * 25 for name, column in segments.items()}
        rows = {**fixed, **{name: values[name] for name in along}}
        assert_scores(found[i], fitted, rows)
        one = fitted.segment({name: column[i] for name, column in segments.items()}, along, watch=False)
        at = [np.array(values[name], object if name in ("kind", "zone", "day") else None) for name in along]
        np.testing.assert_allclose(one(*at), found[i], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(views[i](*at), found[i], rtol=1e-10, atol=1e-10)


@given(fitted_models)
@examples(120)
def test_a_curve_is_a_piecewise_polynomial(fitted):
    segments = {
        name: values[:4] for name, values in make_table(3).items() if name in names_of(fitted) and name != "lat"
    }
    curves = sf.segments(fitted, segments, "lat")
    item = fitted.encoder.schema["lat"]
    z = np.linspace(0.01, item.transform.high, 151)
    size = 1.0 + np.abs(curves(z)).max()
    if isinstance(item.basis, sf.Bins) and curves.crossed is None:
        return
    np.testing.assert_allclose(curves.spline(item.transform(z)).T, curves(z), atol=1e-8 * size)
    inner = z[:-1]
    if not isinstance(item.basis, sf.Bins) and "steps" not in str(fitted.encoder.schema.names):
        step = 1e-6 * item.transform.high
        slope = (curves(inner + step) - curves(inner - step)) / (2 * step)
        by_pieces = curves.derivative(inner)
        away = distance_to_breaks(curves, item.transform(inner)) > 1e-4
        np.testing.assert_allclose(by_pieces[:, away], slope[:, away], atol=1e-4 * size, rtol=1e-4)


def distance_to_breaks(curves, u):
    spline = curves.spline
    breaks = getattr(spline, "x", getattr(spline, "t", None))
    return np.abs(u[:, None] - breaks).min(axis=1)


@pytest.mark.thorough
@given(fitted_models)
@examples(80)
def test_extrema_beat_a_dense_search(fitted):
    segments = {
        name: values[:3] for name, values in make_table(4).items() if name in names_of(fitted) and name != "lat"
    }
    curves = sf.segments(fitted, segments, "lat")
    item = fitted.encoder.schema["lat"]
    for low, high in [(None, None), (2.0, 7.5)]:
        ends = low or 1e-9, high or item.transform.high
        dense = curves(np.linspace(*ends, 4001))
        size = 1.0 + np.abs(dense).max()
        most, least = curves.maximum(low, high), curves.minimum(low, high)
        assert (most.value >= dense.max(axis=1) - 1e-8 * size).all()
        assert (least.value <= dense.min(axis=1) + 1e-8 * size).all()
        np.testing.assert_allclose(most.value, dense.max(axis=1), atol=0.02 * size)
        if not isinstance(item.basis, sf.Bins) and not has_steps(fitted):
            attained = [curve(max(at, 1e-300)) for curve, at in zip(curves, most.at, strict=True)]
            np.testing.assert_allclose(attained, most.value, atol=1e-6 * size)


def has_steps(fitted):
    return any(getattr(item, "degree", 3) == 0 for item in fitted.encoder.fields)


def score_of_means(fitted, rows):
    """The score of the mean vectors of all fields over some rows."""
    slots = fitted.encoder.encode(rows)
    P, linear = (unit_sums(fitted.params[name], slots).mean(axis=0, keepdims=True) for name in ("factors", "linear"))
    interaction = fitted.model.interaction(P, fitted.params, slots.layout.unit_field)
    return float(fitted.params["bias"][0] + linear.sum() + interaction[0])


@given(fitted_models, st.data())
@examples(120)
def test_the_mean_is_that_of_the_vectors_of_every_field(fitted, data):
    names = names_of(fitted)
    along = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    named = data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    background, one = make_table(5, 30), make_table(6, 4)
    background = {name: background[name] for name in names if name not in along}
    values = {name: one[name][0] for name in named if name not in along}
    view = fitted.segment(values, along, rest="mean", background=background)
    found = view(*(one[name] for name in along))
    for i in range(4):
        fixed = {**values, **{name: one[name][i] for name in along}}
        rows = {**background, **{name: [value] * 30 for name, value in fixed.items()}}
        assert found[i] == pytest.approx(score_of_means(fitted, rows), rel=1e-5, abs=1e-5)


class TestMeans:
    fitted = make_fitted(sf.FwFM(3), ["two categories", "two numbers", "category and number", "three categories"])

    def test_of_categories_are_kept(self):
        """Of a cross of categories, and of a category beside a number that is given."""
        table = make_table()
        for values, along in [
            ({"lat": 1.0, "long": 2.0, "kind": "a", "zone": "u"}, "size"),
            ({"lat": 1.0, "long": 2.0, "size": 3}, "kind"),
            ({"lat": 1.0, "long": 2.0, "size": 1}, "zone"),
            ({"long": 2.0, "zone": "u", "size": 1}, "lat"),
        ]:
            kept = self.fitted.segment(values, along, rest="mean")
            averaged = self.fitted.segment(values, along, rest="mean", background=table)
            np.testing.assert_allclose(kept(table[along]), averaged(table[along]), atol=1e-6)

    @pytest.mark.parametrize("along", ["kind", "lat", "long"])
    def test_of_numbers_need_rows(self, along):
        with pytest.raises(
            ValueError, match=r"the mean of .*'lat × long'.* is not kept with this model; .*background=train"
        ):
            self.fitted.segment({}, along, rest="mean")

    def test_of_buckets_need_rows(self):
        fitted = make_fitted(sf.FwFM(3), ["hashed"])
        with pytest.raises(ValueError, match="the mean of 'zone × size' is not kept"):
            fitted.segment({"long": 1.0, "kind": "a"}, "lat", rest="mean")

    def test_a_background_lacks_a_column(self):
        with pytest.raises(ValueError, match="background: no column 'long'"):
            self.fitted.segment({"kind": "a", "zone": "u", "size": 1}, "lat", rest="mean", background={"lat": [1.0]})
        with pytest.raises(ValueError, match="background has no rows"):
            self.fitted.segment({"kind": "a", "zone": "u", "size": 1}, "lat", rest="mean", background={"long": []})

    def test_of_a_family_is_the_mean_of_its_views(self):
        rows = {name: values[:7] for name, values in make_table(8).items() if name in names_of(self.fitted)}
        z = np.linspace(0.1, 9.0, 30)
        rest = {name: values for name, values in rows.items() if name != "lat"}
        curves = sf.segments(self.fitted, rest, "lat")
        mean = curves.mean()
        np.testing.assert_allclose(mean(z), curves(z).mean(axis=0), atol=1e-10)
        assert mean.tokens["missing"] == pytest.approx(curves.tokens["missing"].mean())
        assert mean.maximum().value == pytest.approx(mean(mean.maximum().at), abs=1e-8)
        bars = sf.segments(self.fitted, {name: values for name, values in rows.items() if name != "zone"}, "zone")
        np.testing.assert_allclose(bars.mean().scores, bars.scores.mean(axis=0))
        for along in (("lat", "long"), ("size", "kind")):
            surfaces = sf.segments(self.fitted, {name: v for name, v in rows.items() if name not in along}, along)
            at = [rows[name] for name in along]
            np.testing.assert_allclose(surfaces.mean()(*at), surfaces(*at).mean(axis=0), atol=1e-10)


SEGMENT = {"long": 1.0, "kind": "a", "zone": "u", "size": 2, "day": "mon"}


def segment_of(fitted, **values):
    return {name: value for name, value in {**SEGMENT, **values}.items() if name in names_of(fitted)}


class TestCurves:
    def test_the_degree_is_the_sum_of_those_that_multiply(self):
        for model, crosses, degree in [
            (sf.FwFM(3), ["two numbers"], 6),
            (sf.FwFM(3), ["two numbers", "category and number"], 6),
            (sf.HigherOrderFM(3, 2), ["two numbers", "category and number"], 6),
            (sf.HigherOrderFM(3, 3), ["two numbers", "category and number"], 9),
            (sf.FwFM(3), ["a number twice"], 9),
            (sf.FwFM(3), ["two categories"], 3),
        ]:
            fitted = make_fitted(model, crosses)
            curve = fitted.segment(segment_of(fitted), "lat")
            spline = curve.spline
            assert (spline.c.shape[0] - 1 if isinstance(spline, PPoly) else spline.k) == degree

    def test_coefficients_are_those_of_bernstein_polynomials(self):
        fitted = make_fitted(sf.FFM(2), ["two numbers", "category and number"])
        table = make_table(3)
        curves = sf.segments(fitted, {name: table[name][:3] for name in segment_of(fitted)}, "lat")
        breaks, u = curves.spline.x, np.linspace(0.0, 1.0, 50)
        assert curves.coefficients.shape == (3, (len(breaks) - 1) * 7)
        c = curves[1].coefficients.reshape(-1, 7).T + curves[1].intercept
        np.testing.assert_allclose(BPoly(c, breaks)(u), curves[1].spline(u), atol=1e-8)
        np.testing.assert_allclose(curves[1].coefficients, curves.coefficients[1], atol=1e-9)

    def test_a_rare_combination_leaves_the_curve_of_the_field(self):
        fitted = make_fitted(sf.FwFM(3), ["category and number"])
        without = sf.Schema([item for item in fitted.encoder.schema if not isinstance(item, sf.Cross)])
        f = fitted.encoder.schema.names.index("kind × lat")
        first, last = fitted.encoder.layout.feature_ptr[f : f + 2]
        keep = np.delete(np.arange(fitted.encoder.layout.n_features), np.arange(first, last))
        params = {**fitted.params, "linear": fitted.params["linear"][keep], "factors": fitted.params["factors"][keep]}
        fields = np.delete(np.arange(len(fitted.encoder.fields)), f)
        params["field_weights"] = fitted.params["field_weights"][np.ix_(fields, fields)]
        plain = sf.Fitted(sf.fit_encoder(without, make_table()), fitted.model, params, fitted.loss)
        z = np.linspace(0.5, 9.0, 40)
        values = segment_of(fitted, kind="never seen")
        np.testing.assert_allclose(
            fitted.segment(values, "lat", watch=False)(z), plain.segment(values, "lat", watch=False)(z), atol=1e-9
        )
        assert fitted.segment(values, "lat", watch=False).maximum().value == pytest.approx(
            plain.segment(values, "lat", watch=False).maximum().value
        )

    def test_tokens_are_scores(self):
        fitted = make_fitted(sf.FFM(2), ["two numbers", "category and number", "two categories"])
        curve = fitted.segment(segment_of(fitted), "lat")
        rows = {name: [value] * 2 for name, value in segment_of(fitted).items()}
        assert list(curve.tokens) == ["= 0", "missing"]
        assert_scores(list(curve.tokens.values()), fitted, {**rows, "lat": [0.0, None]})
        values = {name: value for name, value in {"lat": 2.0, **segment_of(fitted)}.items() if name != "kind"}
        bars = fitted.segment(values, "kind")
        rows = {name: [value] * 5 for name, value in values.items()}
        assert list(bars.tokens) == ["missing", "rare"]
        assert_scores([*bars.tokens.values(), *bars.scores], fitted, {**rows, "kind": [None, "new", *bars.names]})

    def test_a_cross_that_reads_the_column_in_another_way_can_be_called(self):
        table = make_table()
        known = sf.fit_encoder(make_schema(["two numbers"]), table).schema["lat"].transform
        for other in (
            sf.Numerical("other", sf.MinMax(0.0, 5.0), sf.BSpline(2), special=[0.0], column="lat"),
            sf.Numerical("other", known, sf.BSpline(2), column="lat"),  # 0 is not special
            sf.Numerical("other", sf.MinMax(), sf.Fourier(1), special=[0.0], column="lat"),
            sf.Categorical("other", column="lat"),
        ):
            schema = sf.Schema([*make_schema(["two numbers"]), sf.Cross(other, "kind", min_count=1)])
            fitted = random_fitted(sf.FwFM(3), schema, table, scale=1.0)
            curve = fitted.segment(segment_of(fitted), "lat")
            rows = {name: [value] * N for name, value in segment_of(fitted).items()}
            assert_scores(curve(table["lat"]), fitted, {**rows, "lat": table["lat"]})
            with pytest.raises(AttributeError, match=r"in another way|is not a spline|splines, bins and polynomials"):
                _ = curve.spline
            if isinstance(other, sf.Categorical):  # the largest of the values that it knows
                assert curve.maximum().value == curve(curve.known_values).max()
                continue
            with pytest.raises(ValueError, match=r"in another way|splines, bins and polynomials"):
                curve.maximum()

    def test_a_number_beside_bars_of_its_column(self):
        schema = sf.Schema(
            [
                sf.Categorical("size"),
                sf.Cross(sf.Numerical("n", sf.MinMax(), column="size"), "kind"),
                sf.Categorical("kind"),
            ]
        )
        fitted = random_fitted(sf.FwFM(3), schema, make_table(), scale=1.0)
        bars = fitted.segment({"kind": "a"}, "size")
        assert_scores(bars.scores, fitted, {"size": [int(name) for name in bars.names], "kind": ["a"] * 3})
        assert_scores(bars([2, 3]), fitted, {"size": [2, 3], "kind": ["a"] * 2})

    def test_parts_of_dates(self):
        rng = np.random.default_rng(0)
        when = np.datetime64("2024-01-01") + rng.integers(0, 365 * 24, 300).astype("timedelta64[h]")
        table = {"when": when, "kind": rng.choice(list("ab"), 300)}
        schema = sf.Schema([sf.Timestamp("when"), sf.Categorical("kind"), sf.Cross("when.hour", "kind", min_count=1)])
        fitted = random_fitted(sf.FwFM(3), schema, table, scale=1.0)
        date = "2024-05-28T07:00"
        hours = fitted.segment({"when": date, "kind": "b"}, "when.hour")
        assert_scores(hours([7.0]), fitted, {"when": [date], "kind": ["b"]})
        assert (
            np.ptp(hours(np.arange(24.0)) - fitted.segment({"when": date, "kind": "a"}, "when.hour")(np.arange(24.0)))
            > 0.1
        )
        kinds = fitted.segment({"when": date}, "kind")
        assert_scores(kinds.scores, fitted, {"when": [date] * 2, "kind": kinds.names})

    def test_families_are_worked_on_in_blocks(self, monkeypatch):
        for crosses in (["two numbers"], ["category and number", "two categories"]):
            fitted, table = make_fitted(sf.HigherOrderFM(2, 3), crosses), make_table(3, 9)
            rows = {name: table[name] for name in segment_of(fitted)}
            z = np.linspace(0.1, 9.0, 30)
            whole = sf.segments(fitted, rows, "lat")(z)
            with monkeypatch.context() as patch:
                patch.setattr("splinefm.inspect.segment._BATCH_SIZE", 80)
                patch.setattr("splinefm.inspect.crossed._BLOCK_SIZE", 1500)
                np.testing.assert_allclose(sf.segments(fitted, rows, "lat")(z), whole, atol=1e-10)


class TestErrors:
    fitted = make_fitted(sf.FwFM(3), ["two numbers", "a column of its own"])

    @pytest.mark.parametrize("along", ["lat × long", ("lat", "lat × long")])
    def test_a_cross_has_no_axis(self, along):
        with pytest.raises(ValueError, match=r"along: 'lat × long' is a cross.*use its columns, 'lat', 'long'"):
            self.fitted.segment({"kind": "a"}, along)

    def test_a_cross_has_no_value(self):
        with pytest.raises(ValueError, match=r"'lat × long' is a cross.*use its columns, 'lat', 'long'"):
            self.fitted.segment({"lat × long": 3.0}, "kind")
        with pytest.raises(ValueError, match=r"'lat × long' is a cross.*use its columns, 'lat', 'long'"):
            sf.segments(self.fitted, {"lat × long": [3.0]}, "kind", rest="mean", background=make_table())

    def test_a_column_that_only_a_cross_reads_needs_a_value(self):
        values = {"long": 1.0, "kind": "a", "zone": "u", "size": 1}
        with pytest.raises(ValueError, match="the segment lacks 'day'; give their values"):
            self.fitted.segment(values, "lat")
        curve = self.fitted.segment({**values, "day": "mon"}, "lat")
        assert curve(3.0).shape == () and curve([]).shape == (0,)
        bars = self.fitted.segment({**values, "lat": 3.0}, "day")
        assert sorted(bars.names) == ["mon", "tue"] and bars.counts is None
        with pytest.raises(ValueError, match=r"no column 'dya'.*nearest: 'day'"):
            self.fitted.segment({**values, "dya": "mon"}, "lat")

    def test_a_surface_has_no_coefficients(self):
        surface = self.fitted.segment({"kind": "a", "zone": "u", "size": 1, "day": "mon"}, ("lat", "long"))
        for name in ("coefficients", "main_effects", "rank"):
            with pytest.raises(AttributeError, match="sum of products of 'lat', 'lat × long', 'long', 'lat × day'"):
                getattr(surface, name)


@pytest.mark.parametrize(
    ("special", "values"),
    [
        ([5.0, ">= 5"], [5.0, 9.0]),
        ([7.0, "<= 1", "<= 7"], [7.0, 0.5, 6.0]),
        ([0.0, ">= 5", "<= 0", 6.0], [0.0, 8.0, -3.0, 6.0]),  # no value has the last token: any will do
    ],
    ids=str,
)
def test_tokens_of_rules_that_overlap(special, values):
    """A value stands for a token if no rule before it matches."""
    table = {"x": [*np.linspace(-4, 9.5, 60)], "a": ["u", "v"] * 30}
    schema = sf.Schema([sf.Numerical("x", special=special), sf.Categorical("a"), sf.Cross("x", "a")])
    fitted = random_fitted(sf.FwFM(k=3), schema, table)
    tokens = fitted.segment({"a": "u"}, along="x").tokens
    expected = fitted.scores({"x": [*values, None], "a": ["u"] * (len(values) + 1)})
    np.testing.assert_allclose([*tokens.values()], expected, atol=1e-5)
