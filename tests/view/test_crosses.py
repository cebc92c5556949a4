"""Views of models with crosses: along a column, all fields that contain it vary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.model.family import formula_scores
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
    terms = formula_scores(fitted.model, params, sf.Slots(slots.start, np.abs(slots.weight), slots.layout))
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
        one = fitted.segment({name: column[i] for name, column in segments.items()}, along)
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
