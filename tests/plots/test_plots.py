"""Pictures: what is drawn equals the views and explanations, and can be read."""

import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.optimize import brentq

import splinefm as sf
from splinefm.inspect.axes import BARS, RawAxis, Scale, choose_scale, tick_text
from splinefm.inspect.curves import Bars, Curve, Surface
from splinefm.inspect.importance import Importance
from splinefm.inspect.survey import Z90, calibration_bins
from splinefm.model.family.parameters import init_params
from splinefm.plots.captions import LONGEST, caption
from splinefm.plots.curves import COLORS
from splinefm.plots.decorations import PALETTE, RED
from splinefm.train.results import StudySummary, TrialSummary
from support import random_fitted

N = 600
BASES = {
    "cubic": sf.BSpline(segments=7),
    "linear": sf.BSpline(segments=7, degree=1),
    "resolutions": sf.MultiResolution((2, 5, 9)),
    "periodic": sf.BSpline(segments=6, periodic=True),
    "bernstein": sf.Polynomial(5),
    "fourier": sf.Fourier(2),
    "custom": sf.CustomBasis((np.ones_like, np.sin)),
}
STEPS = {
    "bins": sf.Bins(6),
    "quantile bins": sf.Bins(6, spacing="quantile"),
    "edges": sf.Bins(edges=(0.0, 2.0, 5.0, 10.0, 500.0)),
    "degree 0": sf.BSpline(segments=7, degree=0),
}
TRANSFORMS = {
    "minmax": sf.MinMax(),
    "quantile": sf.Quantile(knots=50),
    "best fit": sf.BestFitCDF(families=("normal",)),
    "arcsinh": sf.ArcsinhSquare(),
    "log": sf.Log(),
    "custom": sf.CustomTransform(lambda x: x / 80.0, lambda u: u * 80.0),
}
SEGMENT = {"x": 4.0, "y": 3.0, "c": "b", "m": ["t1"]}
NASTY = [f"$a_{i}^{{category}} & a name that is far too long to be shown {i}" for i in range(200)]


def plot_table(seed=0, n=N):
    rng = np.random.default_rng(seed)
    table = {
        "x": rng.gamma(2.0, 5.0, n) + 0.5,
        "y": np.where(rng.random(n) < 0.2, np.nan, rng.normal(3.0, 2.0, n)),
        "c": rng.choice(list("abcde"), n, p=[0.4, 0.3, 0.15, 0.1, 0.05]).tolist(),
        "m": [rng.choice(["t1", "t2", "t3"], rng.integers(0, 3)).tolist() for _ in range(n)],
    }
    table["x"][: n // 10] = 0.0
    return table


TABLE = plot_table()


@cache
def fitted_of(basis=BASES["cubic"], transform=TRANSFORMS["minmax"], loss="logistic", seed=0, special=(0.0, ">= 999")):
    """A model with random parameters."""
    schema = sf.Schema(
        [
            sf.Numerical("x", transform, basis, special=special),
            sf.Numerical("y", sf.MinMax(), sf.BSpline(segments=4, degree=2)),
            sf.Categorical("c"),
            sf.MultiValued("m"),
        ]
    )
    rng = np.random.default_rng(seed)
    encoder, model = sf.fit_encoder(schema, plot_table(seed)), sf.FM(k=2)
    params = init_params(model, encoder.layout, rng, 1.0)
    params["linear"] = rng.normal(size=encoder.layout.n_features).astype(np.float32)
    return sf.Fitted(
        encoder, model, params, sf.Loss(loss, center=2e5, scale=3e4) if loss == "squared" else sf.Loss(loss)
    )


def view(along, fitted=None, **values):
    names = (along,) if isinstance(along, str) else along
    segment = {name: value for name, value in (SEGMENT | values).items() if name not in names}
    return (fitted or fitted_of()).segment(segment, along)


def with_all_tokens(view):
    """As if training had met every token."""
    return replace(view, counts=None)


def family(n=4, along="x"):
    rows = {name: [value] * n for name, value in SEGMENT.items() if name != along}
    return sf.segments(fitted_of(), rows | {"y": np.linspace(0.0, 6.0, n)}, along)


def strip(ax, name):
    return next((child for child in ax.child_axes if child.get_label() == name), None)


def labels(axis):
    return [text.get_text() for text in axis.get_majorticklabels()]


def legend_texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


# Curves


@pytest.mark.parametrize(
    ("basis", "transform"),
    [*((basis, "minmax") for basis in BASES), *(("cubic", transform) for transform in TRANSFORMS), ("linear", "log")],
)
def test_a_line_is_the_curve(basis, transform):
    curve = view("x", fitted_of(BASES[basis], TRANSFORMS[transform]))
    for link in (False, True):
        x, y = sf.plots.curve(curve, link=link).get_lines()[0].get_data()
        assert np.array_equal(y, curve(x, link=link))
        assert len(x) > 250 and np.isfinite(x).all() and (np.diff(x) > 0).all()
        assert not np.isin(x, [0.0]).any() and (x < 999).all(), "special values are not on the curve"


def test_a_line_leaves_no_gap_in_the_column_nor_in_u():
    field = fitted_of(transform=TRANSFORMS["arcsinh"]).encoder.fields[0]
    axis = RawAxis.of([field])
    x = axis.grid([field])
    place = axis.scale.forward(x)
    assert np.diff(place).max() < 0.01 * np.ptp(place)
    assert np.diff(field.transform(x)).max() < 0.01
    assert x[0] <= field.transform.low + 1e-9 and x[-1] == field.transform.high


def test_a_curve_between_special_rules_keeps_to_ordinary_values():
    curve = view("x", fitted_of(special=("< 2", ">= 20")))
    x = sf.plots.curve(curve).get_lines()[0].get_xdata()
    ordinary = TABLE["x"][(TABLE["x"] >= 2) & (TABLE["x"] < 20)]
    assert np.allclose([x[0], x[-1]], [ordinary.min(), ordinary.max()])


@pytest.mark.parametrize("name", ["best fit", "minmax"])
def test_a_curve_stays_where_there_are_data(name):
    curve = view("x", fitted_of(transform=TRANSFORMS[name]))
    ordinary = TABLE["x"][TABLE["x"] > 0]
    x = sf.plots.curve(curve, data=TABLE).get_lines()[0].get_xdata()
    assert ordinary.min() <= x[0] < x[-1] <= ordinary.max()
    x = sf.plots.curve(curve).get_lines()[0].get_xdata()
    ends = curve.field.transform.inverse([0.001, 0.999] if name == "best fit" else [0.0, 1.0])
    assert np.allclose(x[[0, -1]], ends)


@pytest.mark.parametrize("transform", ["minmax", "quantile"])
@pytest.mark.parametrize("basis", STEPS)
def test_steps_rise_at_the_borders_and_nowhere_else(basis, transform):
    curve = view("x", fitted_of(STEPS[basis], TRANSFORMS[transform]))
    ax = sf.plots.curve(curve)
    x, y = ax.get_lines()[0].get_data()
    rises = np.flatnonzero(np.diff(y))
    basis, low, high = curve.field.basis, *ax.get_xlim()
    cuts = basis.cuts if isinstance(basis, sf.Bins) else np.arange(1, 7) / 7
    borders = curve.field.transform.inverse([cut for cut in cuts if cut < 1.0])
    assert np.allclose(x[rises], borders, atol=1e-4 * (high - low)) and np.allclose(x[rises + 1], x[rises], rtol=1e-4)
    assert set(np.round(y, 9)) <= set(np.round(curve.coefficients + curve.intercept, 9))


def test_a_constant_column_is_drawn():
    schema = sf.Schema([sf.Numerical("k"), sf.Numerical("x")])
    encoder = sf.fit_encoder(schema, {"k": [7.0] * 50, "x": np.arange(50.0)})
    rows = np.arange(float(encoder.layout.fields[0].n_features))
    curve = Curve(encoder.fields[0], rows, 0.0, sf.Loss("squared"))
    ax = sf.plots.curve(curve, data=[7.0] * 50)
    assert ax.get_xlim() == pytest.approx((6.5, 7.5))
    heights, edges, _ = strip(ax, "rows").patches[0].get_data()
    assert np.argmax(heights) == 0 and edges[0] < 7.0 < edges[1]


def test_a_family_has_a_line_each():
    curves, names = family(4), ["US", "_hidden", "5 $ and 6 $", "a name that is longer than a legend should be wide"]
    ax = sf.plots.curve(curves, names=names, link=True)
    for i, line in enumerate(ax.get_lines()):
        assert np.array_equal(line.get_ydata(), curves[i](line.get_xdata(), link=True))
    assert len(ax.get_lines()) == 4 and len({line.get_color() for line in ax.get_lines()}) == 4
    found = legend_texts(ax)
    assert found[:3] == ["US", " _hidden", r"5 \$ and 6 \$"] and len(found[3]) <= 32 and "…" in found[3]
    ax.figure.draw_without_rendering()
    assert legend_texts(sf.plots.curve(family(2))) == ["segment 0", "segment 1"]


def test_many_lines_are_thin_and_without_names():
    ax = sf.plots.curve(family(30))
    assert len(ax.get_lines()) == 30 and ax.get_legend() is None
    assert {line.get_linewidth() for line in ax.get_lines()} == {0.7}
    with pytest.raises(ValueError, match="at most 14 lines with names fit one plot, got 30"):
        sf.plots.curve(family(30), names=range(30))


@pytest.mark.parametrize("n", [2, 5, 30])
def test_several_models_are_a_mean_and_a_band(n):
    rng, curves = np.random.default_rng(0), []
    for _ in range(n):  # each with a transform of its own, as models of bootstrap samples have
        field = replace(view("x").field, transform=sf.Quantile(knots=50).fit(rng.gamma(2.0, 5.0, 500)))
        curves.append(Curve(field, rng.normal(size=field.layout.n_features), 0.0, sf.Loss()))
    ax = sf.plots.curve(curves, link=True, label="mean")
    (line,), (band,) = ax.get_lines(), ax.collections
    x = line.get_xdata()
    values = np.stack([curve(x, link=True) for curve in curves])
    assert np.allclose(line.get_ydata(), values.mean(axis=0))
    ends = np.quantile(values, [0.0, 1.0] if n < 20 else [0.05, 0.95], axis=0)
    path = band.get_paths()[0].vertices
    low, high = (np.array([extreme(path[path[:, 0] == at, 1]) for at in x[1:-1]]) for extreme in (np.min, np.max))
    assert np.allclose([low, high], ends[:, 1:-1])
    if n < 20:
        assert (low <= values[:, 1:-1] + 1e-12).all() and (values[:, 1:-1] - 1e-12 <= high).all()
    assert legend_texts(ax) == ["smallest to largest" if n < 20 else "5 % to 95 %", "mean"]
    assert ax.get_xlim()[0] == min(curve.field.transform.x[0] for curve in curves)


def test_special_and_missing_values_stand_beside_the_curve():
    curve = with_all_tokens(view("x"))
    tokens = strip(sf.plots.curve(curve, link=True), "tokens")
    assert labels(tokens.xaxis) == ["= 0", ">= 999", "missing"]
    marks = [line.get_ydata()[0] for line in tokens.get_lines()]
    assert np.allclose(marks, curve.loss.predict(np.array(list(curve.tokens.values()))))
    seen = strip(sf.plots.curve(curve, data=TABLE), "tokens")
    assert labels(seen.xaxis) == ["= 0, 10 %"]
    assert seen.get_lines()[0].get_ydata()[0] == curve.tokens["= 0"]
    assert strip(sf.plots.curve(curve, marks=False), "tokens") is None
    three = with_all_tokens(family(3))
    several = strip(sf.plots.curve(three), "tokens")
    assert [line.get_ydata()[0] for line in several.get_lines()] == [
        value for values in three.tokens.values() for value in values
    ]
    models = [view("x", fitted_of(seed=seed)) for seed in range(3)]
    bar, mark = strip(sf.plots.curve(models), "tokens").get_lines()[:2]
    scores = [model.tokens["= 0"] for model in models]
    assert list(bar.get_ydata()) == [min(scores), max(scores)] and mark.get_ydata()[0] == pytest.approx(np.mean(scores))


def test_a_second_call_adds_to_the_plot():
    ax = sf.plots.curve(view("x"), label="one", data=TABLE)
    low, high = ax.get_xlim()
    assert sf.plots.curve(view("x", fitted_of(special=("> 40",))), ax, label="two", data=TABLE) is ax
    assert legend_texts(ax) == ["one", "two"] and ax.get_xlim() == (min(low, 0.0), high)
    assert [line.get_color() for line in ax.get_lines()] == list(PALETTE[:2])
    assert len(ax.child_axes) == 2, "strips are shared"
    assert labels(strip(ax, "tokens").xaxis) == ["= 0, 10 %", "> 40, 0.3 %"]
    ax = sf.plots.curve(with_all_tokens(view("x", fitted_of(special=("> 40",)))))
    sf.plots.curve(with_all_tokens(view("x")), ax)
    assert labels(strip(ax, "tokens").xaxis) == ["> 40", "missing", "= 0", ">= 999"]


def test_data_may_be_a_table_or_values():
    x = TABLE["x"]
    forms = [x, x.tolist(), pd.Series(x), pl.Series(x), pa.array(x), pa.chunked_array([x[:9], x[9:]])]
    forms += [TABLE, pd.DataFrame({"x": x}), pl.DataFrame({"x": x}), pa.table({"x": x})]
    for data in forms:
        heights, edges, _ = strip(sf.plots.curve(view("x"), data=data), "rows").patches[0].get_data()
        counts, borders = np.histogram(x[x > 0], BARS)
        assert np.allclose(heights, counts / counts.sum()) and np.allclose(edges, borders)


def test_data_from_a_file(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame({"x": TABLE["x"]}).to_csv(path, index=False)
    assert strip(sf.plots.curve(view("x"), data=path), "rows") is not None


def test_axes_are_named_after_columns_and_what_is_shown():
    for loss, link, name in [
        ("logistic", False, "score (log-odds)"),
        ("logistic", True, "probability"),
        ("squared", False, "score (standardized target)"),
        ("squared", True, "prediction"),
        ("poisson", False, "score (log of the rate)"),
        ("poisson", True, "rate"),
        ("gamma", False, "score (log of the mean, relative to the mean target)"),
        ("gamma", True, "prediction"),
        ("quantile", True, "prediction (quantile 0.5)"),
    ]:
        ax = sf.plots.curve(view("x", fitted_of(loss=loss)), link=link)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", name)
    curve = view("x")
    ax = sf.plots.curve(replace(curve, loss=sf.Loss("logistic", classes=("no", "yes"))), link=True)
    assert ax.get_ylabel() == "probability of yes"
    ax.figure.draw_without_rendering()
    assert all(text.endswith(" %") for text in labels(ax.yaxis))
    ax.set_ylim(0.5, 0.5004)
    ax.figure.draw_without_rendering()
    assert len(set(labels(ax.yaxis))) == len(labels(ax.yaxis)) > 3, "ticks that differ have names that differ"


def test_steps_and_splines_in_one_plot():
    steps, spline = view("x", fitted_of(STEPS["bins"])), view("x")
    ax = sf.plots.steps(steps, spline, data=TABLE, link=True, names=("6 bins", "cubic"))
    for curve, line in zip((steps, spline), ax.get_lines(), strict=True):
        assert np.array_equal(line.get_ydata(), curve(line.get_xdata(), link=True))
    assert legend_texts(ax) == ["6 bins", "cubic"]
    assert [line.get_color() for line in ax.get_lines()] == [COLORS[1], COLORS[0]]


# Raw axes


def test_heavy_tails_call_for_another_scale():
    rng = np.random.default_rng(0)
    columns = {
        "linear": rng.random(2000),
        "log": rng.lognormal(0.0, 2.0, 2000),
        "symlog": np.floor(rng.pareto(0.5, 2000)),
    }
    for kind, values in columns.items():
        for transform in (sf.Quantile(), sf.BestFitCDF()):
            encoder = sf.fit_encoder(sf.Schema([sf.Numerical("x", transform)]), {"x": values})
            curve = Curve(encoder.fields[0], np.zeros(encoder.layout.n_features), 0.0, sf.Loss())
            if kind != "symlog" or isinstance(transform, sf.Quantile):
                assert sf.plots.curve(curve, data=values).get_xscale() == kind
    exponential = -np.log1p(-(np.arange(200) + 0.5) / 200)
    assert choose_scale(exponential, 0.0, 7.0).kind == "linear"


@given(
    kind=st.sampled_from(["linear", "log", "symlog"]),
    low=st.floats(-1e6, 1e6),
    decades=st.floats(-3.0, 9.0),
    threshold=st.integers(-3, 3),
    most=st.integers(2, 7),
)
def test_scales_go_back_and_their_ticks_fit(kind, low, decades, threshold, most):
    scale = Scale(kind, 10.0**threshold)
    low = abs(low) + 1e-3 if kind == "log" else low
    high = low + max(10.0**decades, 1e-3 * abs(low))
    axis = RawAxis(low, high, scale)
    values = scale.between(low, high, 50)
    assert (np.diff(values) > 0).all() and (values[0], values[-1]) == (low, high)
    places = scale.forward(values)
    assert np.allclose(np.diff(places), np.diff(places)[0], rtol=1e-4, atol=1e-9 * np.abs(places).max())
    assert np.allclose(scale.backward(places), values, rtol=1e-9)
    if kind != "linear":
        ticks, names = axis.ticks(most)
        tolerance = 1e-6 * max(abs(low), abs(high))
        assert len(ticks) <= 2 * most and len(set(names)) == len(names)
        assert ((ticks >= low - tolerance) & (ticks <= high + tolerance)).all()


@pytest.mark.parametrize(
    "values",
    [np.arange(5.0), np.arange(62.0), np.arange(499.0), np.arange(3.0) ** 9, np.random.default_rng(0).normal(size=300)],
    ids=["few", "some", "many", "uneven", "all differ"],
)
def test_histograms_hold_all_rows_and_show_no_pattern_that_is_not_there(values):
    rows = np.repeat(values, 4) if len(values) != 300 else values
    axis = RawAxis(float(values.min()), float(values.max()), Scale())
    heights, edges = axis.histogram(rows)
    assert (heights * np.diff(edges)).sum() * BARS / np.ptp(values) == pytest.approx(1.0)
    if 20 < len(values) < 500 and len(values) != 300:
        assert np.allclose(heights, heights[0], rtol=0.05), "numbers that are even look even"


def test_values_beyond_the_range_are_counted_at_its_ends():
    heights, _ = RawAxis(0.0, 1.0, Scale()).histogram(np.array([-5.0, 0.31, 0.52, 0.73, 8.0, 9.0]))
    assert heights[0] == pytest.approx(1 / 6) and heights[-1] == pytest.approx(2 / 6)


@given(st.floats(-1e15, 1e15))
def test_numbers_on_axes_are_short_and_right(value):
    text = tick_text(value).replace("−", "-").replace("k", "e3").replace("M", "e6")
    assert float(text) == pytest.approx(value, rel=1e-5) and len(tick_text(value)) <= 13


@given(st.text(max_size=60))
def test_captions_are_one_short_line(name):
    text = caption(name)
    assert text and "\n" not in text and len(text.replace(r"\$", "$")) <= LONGEST


# Bars


@pytest.mark.parametrize("link", [False, True])
def test_bars_are_sorted_and_equal_the_scores(link):
    bars = with_all_tokens(view("c"))
    ax = sf.plots.bars(bars, link=link)
    ends = [bar.get_x() + bar.get_width() for bar in ax.patches]
    values = dict(zip(bars.names, bars.predictions if link else bars.scores, strict=True))
    names = labels(ax.yaxis)
    assert names[5:] == ["(missing)", "(rare)"] and sorted(names[:5]) == sorted(bars.names)
    assert np.allclose(ends[:5], [values[name] for name in names[:5]])
    assert (np.diff(ends[:5]) <= 0).all() and (np.diff([bar.get_y() for bar in ax.patches]) > 0).all()
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the largest is on top"
    tokens = np.array(list(bars.tokens.values()))
    assert np.allclose(ends[5:], bars.loss.predict(tokens) if link else tokens)
    assert np.allclose([bar.get_x() for bar in ax.patches], 0.0 if link else bars.scores.mean())
    assert ax.get_ylabel() == "c"


def test_bars_of_the_most_frequent_categories_with_a_note_on_the_rest():
    bars = with_all_tokens(view("c"))
    ax = sf.plots.bars(bars, most=2)
    assert set(labels(ax.yaxis)[:2]) == set(bars.names[:2]) and len(ax.patches) == 4
    assert "3 rarer not shown" in ax.get_xlabel()
    assert "not shown" not in sf.plots.bars(bars, most=5).get_xlabel()


def test_bars_of_a_family_are_dots():
    bars = family(3, "c")
    ax = sf.plots.bars(bars, names=["p", "q", "r"])
    order = np.argsort(-bars.scores.mean(axis=0), kind="stable")
    for i, line in enumerate(ax.get_lines()):
        assert np.allclose(line.get_xdata()[:5], bars.scores[i, order])
    assert legend_texts(ax) == ["p", "q", "r"]


def test_bars_of_one_category_and_without_tokens_and_of_buckets():
    one = sf.Categorical("c", vocabulary=["a"], missing="error", unseen="neutral")
    ax = sf.plots.bars(Bars(one, np.array([1.5]), 0.5, sf.Loss()))
    assert labels(ax.yaxis) == ["a"]
    ax.figure.draw_without_rendering()
    hashed = sf.Categorical("c", vocabulary=["a"], unseen="hash", buckets=4)
    ax = sf.plots.bars(Bars(hashed, np.arange(6.0), 0.5, sf.Loss("squared")), link=True)
    assert labels(ax.yaxis) == ["a", "(missing)"]


# Surfaces


def test_a_surface_is_drawn_cell_by_cell():
    surface = view(("x", "y"))
    ax = sf.plots.surface(surface, link=True, data=TABLE)
    mesh = ax.collections[0]
    values = mesh.get_array()
    x, y = (np.unique(mesh.get_coordinates()[..., i]) for i in (0, 1))
    middle = [(edges[1:] + edges[:-1]) / 2 for edges in (x, y)]
    assert np.allclose(values, surface(middle[0], middle[1][:, None], link=True))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")
    assert ax.figure.axes[1].get_ylabel() == "probability"
    low, high = values.min(), values.max()
    levels = [float(text.get_text().removesuffix(" %")) / 100 for text in ax.texts]
    assert len(levels) > 1 and all(low < level < high for level in levels)
    dots = ax.get_lines()[0].get_xydata()
    assert 300 < len(dots) <= 800 and not np.isin(dots[:, 0], [0.0]).any() and np.isfinite(dots).all()


def test_a_mean_surface_of_many_rows_with_crosses_has_fewer_cells():
    """Each cell takes the score of every row."""
    rng = np.random.default_rng(0)
    table = {"x": rng.random(100), "y": rng.random(100), "c": rng.choice(["a", "b"], 100)}
    fields = [sf.Numerical("x", sf.MinMax()), sf.Numerical("y", sf.MinMax()), sf.Categorical("c")]
    fitted = random_fitted(sf.FM(k=2), sf.Schema([*fields, sf.Cross("x", "c", min_count=1)]), table)
    family = sf.segments(fitted, {"c": table["c"]}, along=("x", "y"))
    for surface, n_cells in ((family[0], 150), (family.mean(), 51)):
        assert sf.plots.surface(surface).collections[0].get_array().shape == (n_cells, n_cells)


def test_a_surface_along_categories_has_their_names_and_numbers():
    surface = view(("c", "m"))
    ax = sf.plots.surface(surface)
    categories, lists = (field.vocabulary.names.to_pylist() for field in surface.fields)
    assert labels(ax.xaxis) == categories and labels(ax.yaxis) == lists
    expected = np.array([surface(categories, [[name]] * len(categories)) for name in lists])
    assert np.allclose(ax.collections[0].get_array(), expected)
    assert np.allclose([float(text.get_text()) for text in ax.texts], expected.ravel(), atol=0.05)
    mixed = view(("c", "x"))
    ax = sf.plots.surface(mixed, data=TABLE)
    edges = np.unique(ax.collections[0].get_coordinates()[..., 1])
    middle = (edges[1:] + edges[:-1]) / 2
    values = [mixed([name] * len(middle), middle) for name in categories]
    assert np.allclose(ax.collections[0].get_array(), np.transpose(values)) and not ax.texts


def test_a_flat_surface_has_no_contours():
    fields = tuple(sf.Numerical(name, sf.MinMax(0, 1), sf.BSpline(1, 1), missing="error") for name in "xy")
    flat = Surface(fields, (np.zeros(2), np.zeros(2)), (np.zeros((2, 1)), np.zeros((2, 1))), np.ones(1), 1.0, sf.Loss())
    ax = sf.plots.surface(flat)
    ax.figure.draw_without_rendering()
    assert not ax.texts


# Explanations


def make_importance(n, seed=0):
    rng = np.random.default_rng(seed)
    pairs = np.triu(rng.random((n, n)), 1)
    return Importance(tuple(f"f{i}" for i in range(n)), rng.random(n), rng.random(n), pairs + pairs.T)


def test_importance_is_sorted_and_the_rest_is_counted():
    found = make_importance(30)
    ax = sf.plots.importance(found)
    order = np.argsort(-found.shapley)
    assert labels(ax.yaxis) == [f"f{i}" for i in order[:20]]
    assert np.allclose([bar.get_width() for bar in ax.patches], found.shapley[order[:20]])
    assert f"10 more fields, each at most {found.shapley[order[20]]:.2g}" in ax.get_xlabel()
    assert "more" not in sf.plots.importance(make_importance(3)).get_xlabel()


def test_pairs_are_a_triangle_of_the_matrix():
    found = make_importance(5)
    ax = sf.plots.pairs(found)
    names_x, names_y = labels(ax.xaxis), labels(ax.yaxis)
    drawn = ax.images[0].get_array()
    for row, one in enumerate(names_y):
        for column, other in enumerate(names_x):
            if column <= row:
                assert drawn[row, column] == found.pairs[int(one[1:]), int(other[1:])]
            else:
                assert np.ma.is_masked(drawn[row, column]) or np.isnan(drawn[row, column])
    assert len(ax.texts) == 10
    assert np.allclose([float(text.get_text()) for text in ax.texts], [v for v in drawn.ravel() if v == v], atol=0.005)
    many = sf.plots.pairs(make_importance(40))
    assert len(labels(many.xaxis)) == 14 and not many.texts
    assert "25 fields with weaker pairs are not shown" in many.get_xlabel()


def make_history(validation):
    return [sf.Epoch(i + 1, 1.0 / (i + 1), value, 0.1, 1e6, float(i)) for i, value in enumerate(validation)]


def test_history_of_a_list_a_model_and_an_estimator():
    history = make_history([0.9, 0.5, 0.6])
    ax = sf.plots.history(history)
    train, validation, best = ax.get_lines()
    assert list(train.get_ydata()) == [1.0, 0.5, 1 / 3] and list(validation.get_ydata()) == [0.9, 0.5, 0.6]
    assert (best.get_xdata(), best.get_ydata()) == ([2], [0.5]) and "best: epoch 2, 0.5" in legend_texts(ax)
    fitted = replace(fitted_of(), history=tuple(history))
    assert sf.plots.history(fitted).get_ylabel() == "log-loss"
    estimator = sf.SplineFMClassifier()
    estimator.fitted_, estimator.history_ = fitted, history
    assert sf.plots.history(estimator).get_ylabel() == "log-loss"
    assert legend_texts(sf.plots.history(make_history([np.nan] * 2))) == ["training"]
    updated = sf.plots.history([*history, sf.Epoch(4, 0.1, np.nan, 0.1, 1e6, 9.0)])
    assert "best: epoch 2, 0.5" in legend_texts(updated)


# Calibration


def test_calibration_points_are_means_of_equal_bins():
    rng = np.random.default_rng(0)
    p = rng.beta(2, 6, 1000)
    y = (rng.random(1000) < p).astype(float)
    ax = sf.plots.calibration(y, p)
    points = ax.get_lines()[1].get_xydata()
    parts = np.array_split(np.argsort(p), 10)
    assert np.allclose(points, [[p[part].mean(), y[part].mean()] for part in parts])
    heights = [path.vertices[:, 1] for path in ax.collections[0].get_paths()]
    for part, (low, high) in zip(parts, heights, strict=True):
        share, n = y[part].mean(), len(part)
        wilson = [
            brentq(lambda q, share=share, n=n: (share - q) ** 2 - Z90**2 * q * (1 - q) / n, *ends)
            for ends in ((0.0, share), (share, 1.0))
        ]
        assert np.allclose([low, high], wilson)
    assert ax.get_lines()[0].get_xydata().tolist() == [[ax.get_xlim()[i]] * 2 for i in (0, 1)]
    assert strip(ax, "rows") is not None


def test_calibration_of_numbers_has_intervals_of_the_mean():
    rng = np.random.default_rng(1)
    p = rng.normal(size=400)
    y = p + rng.normal(size=400)
    found = calibration_bins(y, p, np.ones(400), 4)
    for i, part in enumerate(np.array_split(np.argsort(p), 4)):
        error = Z90 * y[part].std(ddof=1) / np.sqrt(100)
        assert np.allclose([found.low[i], found.high[i]], [y[part].mean() - error, y[part].mean() + error])
    single = calibration_bins(np.array([2.5]), np.array([2.0]), np.ones(1), 10)
    assert (single.low, single.high) == (2.5, 2.5)


def test_calibration_keeps_equal_predictions_together_and_counts_weights():
    y, p = np.array([0.0, 1, 1, 0, 1, 1]), np.array([0.1, 0.5, 0.5, 0.5, 0.5, 0.9])
    found = calibration_bins(y, p, np.ones(6), 6)
    assert found.predicted.tolist() == [0.1, 0.5, 0.9] and found.measured.tolist() == [0.0, 0.75, 1.0]
    weight = np.array([3, 1, 2, 1, 1, 2])
    twice = calibration_bins(np.repeat(y, weight), np.repeat(p, weight), np.ones(10), 6)
    assert np.allclose(calibration_bins(y, p, weight.astype(float), 6)[:2], twice[:2])
    ax = sf.plots.calibration([*y, 5.0], [*p, 0.7], sample_weight=[1, 1, 1, 1, 1, 1, 0])
    assert ax.get_ylim()[1] < 2, "rows without weight are not there"


def test_calibration_of_small_probabilities_is_logarithmic():
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(-5.0, 1.5, 20_000)))
    y = (rng.random(20_000) < p).astype(int)
    assert sf.plots.calibration(y, p).get_xscale() == "log"
    assert sf.plots.calibration(y[:100], p[:100]).get_xscale() == "linear", "a bin has no positive row"


# Fields


def test_basis_functions_and_those_that_starve():
    values = np.concatenate([np.linspace(0, 10, 200), [100.0]])
    schema = sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(8, degree=2)), sf.Categorical("c")])
    encoder = sf.fit_encoder(schema, {"x": values, "c": ["a"] * 201})
    starved = [share.starved for share in encoder.starvation().functions]
    assert any(starved)
    for source, name in ((encoder, None), (encoder, "x"), (encoder.fields[0], None)):
        ax = sf.plots.basis(source, name, data=values)
        lines = ax.get_lines()
        assert [to_hex(line.get_color()) == RED.lower() for line in lines] == starved
        assert ax.get_title() == f"10 functions of MinMax(x), {sum(starved)} starved"
        for i, line in enumerate(lines):
            x, y = line.get_data()
            start, weight = encoder.fields[0].basis(encoder.fields[0].transform(x))
            inside = (i - start[:, 0]).clip(0, 2)
            expected = np.where((start[:, 0] <= i) & (i < start[:, 0] + 3), weight[np.arange(len(x)), inside], 0.0)
            assert np.allclose(y, expected)
    assert sf.plots.basis(encoder.fields[0]).get_title() == "10 functions of MinMax(x)"
    thin_out = {"x": np.concatenate([100 * np.linspace(0, 1, 2000) ** 20, [-1.0] * 100, [np.nan] * 50])}
    schema = sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(40), special=["negative"])])
    encoder = sf.fit_encoder(schema, thin_out)
    title = f"43 functions of MinMax(x), {sum(share.starved for share in encoder.starvation().functions)} starved"
    assert sf.plots.basis(encoder).get_title() == title != "43 functions of MinMax(x), 0 starved"
    assert sf.plots.basis(encoder.fields[0], data=thin_out).get_title() == title
    assert sf.plots.basis(replace(fitted_of(), encoder=encoder)).get_xlabel() == "x"


@pytest.mark.parametrize("basis", [*BASES, *STEPS])
def test_every_basis_can_be_drawn(basis):
    fitted = fitted_of((BASES | STEPS)[basis])
    ax = sf.plots.basis(fitted, "x", data=TABLE)
    assert len(ax.get_lines()) == sum(fitted.encoder.fields[0].basis.sizes)
    if basis == "resolutions":
        assert labels(ax.yaxis) == ["5 functions", "8 functions", "12 functions"]


def test_columns_before_and_after_their_transform():
    axes = sf.plots.transformed(fitted_of(transform=TRANSFORMS["quantile"]), TABLE)
    assert [ax.get_xlabel() for ax in axes] == ["x", "u = Quantile", "y", "u = MinMax"]
    ordinary = TABLE["x"][TABLE["x"] > 0]
    for ax, values in zip(
        axes,
        (ordinary, fitted_of(transform=TRANSFORMS["quantile"]).encoder.fields[0].transform(ordinary)),
        strict=False,
    ):
        heights, edges, _ = ax.patches[0].get_data()
        counts, borders = np.histogram(values, edges)
        assert np.allclose(heights, counts / len(values)) and np.allclose(edges, borders)
    assert len(sf.plots.transformed(fitted_of(), TABLE, "y")) == 2
    assert len(sf.plots.transformed(fitted_of().encoder.fields[0], TABLE["x"])) == 2
    mine = list(Figure().subplots(1, 3))
    panels = sf.plots.transformed([sf.MinMax(), sf.BestFitCDF(families=("gamma",))], ordinary, axes=mine)
    assert panels == mine and panels[2].get_xlabel() == "u = BestFitCDF (gamma)"
    assert np.allclose(panels[1].patches[0].get_data()[0], panels[0].patches[0].get_data()[0])


# All of them


def every_plot():
    """A plot of every function, on an axes that is given or not."""
    history, found = make_history([0.9, 0.5]), make_importance(4)
    return {
        "curve": lambda ax: sf.plots.curve(view("x"), ax, data=TABLE),
        "steps": lambda ax: sf.plots.steps(view("x", fitted_of(STEPS["bins"])), view("x"), ax),
        "bars": lambda ax: sf.plots.bars(view("c"), ax),
        "surface": lambda ax: sf.plots.surface(view(("x", "y")), ax),
        "importance": lambda ax: sf.plots.importance(found, ax),
        "pairs": lambda ax: sf.plots.pairs(found, ax),
        "history": lambda ax: sf.plots.history(history, ax),
        "calibration": lambda ax: sf.plots.calibration([0, 1, 1], [0.2, 0.4, 0.9], ax),
        "basis": lambda ax: sf.plots.basis(fitted_of().encoder, "x", ax),
    }


@pytest.mark.parametrize("name", every_plot())
def test_plots_draw_on_the_given_axes_or_make_their_own(name):
    draw = every_plot()[name]
    ax = Figure().subplots()
    assert draw(ax) is ax
    own = draw(None)
    assert isinstance(own, Axes) and own is not ax
    FigureCanvasAgg(own.figure).draw()
    with pytest.raises(TypeError, match="ax must be a matplotlib Axes, got str"):
        draw("ax")


def corners(text, renderer):
    """The four corners of a text in pixels, turned as it is."""
    angle = np.deg2rad(text.get_rotation() if text.get_rotation_mode() == "anchor" else 0.0)
    if angle:
        text.set_rotation(0)
    box = text.get_window_extent(renderer)
    if angle:
        text.set_rotation(np.rad2deg(angle))
    points = np.array([[box.x0, box.y0], [box.x1, box.y0], [box.x1, box.y1], [box.x0, box.y1]])
    anchor = text.get_transform().transform(text.get_position())
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return (points - anchor) @ turn + anchor if angle else points


def overlap(one, other):
    """By how many pixels two rectangles lie on each other: a line between them would be along a side of one."""
    sides = np.concatenate([np.diff(points[:3], axis=0) for points in (one, other)])
    normals = sides / np.linalg.norm(sides, axis=1, keepdims=True)
    ends = [(points @ normals.T).min(axis=0) for points in (one, other)]
    tops = [(points @ normals.T).max(axis=0) for points in (one, other)]
    return float((np.minimum(*tops) - np.maximum(*ends)).min())


def drawn_texts(figure):
    """Every text that can be seen, with its corners in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    found = []
    axes = [*figure.axes, *(child for ax in figure.axes for child in ax.child_axes)]
    for ax in axes:
        texts = [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
        texts += ax.get_legend().get_texts() if ax.get_legend() else []
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)  # no labels: a strip
            texts += [text for place, text in ticks if low - 1e-9 <= place <= high + 1e-9]
        found += [text for text in texts if text.get_text() and text.get_visible()]
    renderer = canvas.get_renderer()
    return [(text.get_text(), corners(text, renderer)) for text in found]


@cache
def nasty_views():
    """What is hard to fit: long names, many of them, many tokens, a heavy tail."""
    rng = np.random.default_rng(0)
    name = "a long name of a column with $ in it and more"
    table = {name: np.floor(rng.pareto(0.7, 2000) * 3)}
    table[name][:80] = np.repeat([-1.0, 99999.0, 2e6, 7.0], 20)
    spec = sf.Numerical(name, sf.ArcsinhSquare(), special=["negative", 99999.0, ">= 1000000", 7.0])
    field = sf.fit_encoder(sf.Schema([spec]), table).fields[0]
    curves = Curve(field, rng.normal(size=(14, field.layout.n_features)), np.zeros(14), sf.Loss())
    bars = Bars(sf.Categorical("c", vocabulary=NASTY), rng.normal(size=202), 0.5, sf.Loss())
    return table, curves, bars


def draw_small_panels():
    table, curves, bars = nasty_views()
    figure = Figure(figsize=(10.0, 3.2), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    sf.plots.curve(curves[0], first, data=table, link=True)
    tiny = np.random.default_rng(0).lognormal(-20.0, 2.0, 500)
    field = replace(curves.field, transform=sf.Log().fit(tiny), special=())
    sf.plots.curve(Curve(field, np.arange(float(field.layout.n_features)), 0.0, sf.Loss()), second)
    return sf.plots.bars(bars, third)


def draw_transforms():
    (values,) = nasty_views()[0].values()
    return sf.plots.transformed([sf.MinMax(), sf.Log()], 1e5 * values[80:], "x")[0]


def draw_long_names():
    ones = np.ones(40)
    return sf.plots.importance(Importance(tuple(NASTY[:40]), ones, ones, np.ones((40, 40)) - np.eye(40)))


def draw_study():
    rng = np.random.default_rng(0)
    choices = {
        "segments": ["by column", "schema", "8", "20", "50", "8+32", "16+64+256"],
        "batch_size": [256, 512, 1024, 2048, 4096, 16384],
        "transform": ["auto", "quantile", "minmax", "arcsinh-square"],
        "l2": np.geomspace(1e-6, 1e-2, 40).tolist(),
        "epochs": list(range(3, 60)),
    }
    trials = [
        TrialSummary(
            i, "complete", rng.gamma(2.0), 9, 0.1, tuple((name, rng.choice(of).item()) for name, of in choices.items())
        )
        for i in range(60)
    ]
    best = min(trials, key=lambda trial: trial.value).number
    return sf.plots.study(StudySummary("s", "RMSE", False, best, tuple(trials)))[0]


def draw_categories(first, second, figsize=None):
    rng = np.random.default_rng(0)
    fields = [sf.Categorical("c", vocabulary=first), sf.Categorical("d", vocabulary=second)]
    rows = [rng.normal(size=(item.layout.n_features, 2)) for item in fields]
    surface = Surface(tuple(fields), (rows[0][:, 0], rows[1][:, 0]), tuple(rows), np.ones(2), 0.0, sf.Loss())
    ax = Figure(figsize=figsize, layout="constrained").subplots() if figsize else None
    return sf.plots.surface(surface, ax, link=True)


def draw_close_bars():
    item = sf.Categorical("c", vocabulary=["a", "b", "c", "d"], missing="error", unseen="neutral")
    ax = Figure(figsize=(4.8, 2.4), layout="constrained").subplots()
    rows = np.array([0.3005, 0.2936, 0.3112, 0.2932])
    return sf.plots.bars(Bars(item, rows, 0.0, sf.Loss("squared")), ax, link=True)


FAMILY = ["Married-civ-spouse", "Never-married", "Divorced", "Separated", "Widowed", "Married-spouse-absent"]
NASTY_PICTURES = {
    "study": draw_study,
    "short names": lambda: draw_categories(["US", "FR"], ["phone", "tablet"]),
    "longer names": lambda: draw_categories(FAMILY, FAMILY),
    "long names": lambda: draw_categories(NASTY[:20], NASTY[:20]),
    "numbers": lambda: draw_categories(list(map(str, range(0, 90_000, 777))), FAMILY, (5.6, 4.1)),
    "curve": lambda: sf.plots.curve(nasty_views()[1][0], data=nasty_views()[0], link=True),
    "family": lambda: sf.plots.curve(nasty_views()[1], names=NASTY[:14], data=nasty_views()[0]),
    "bars": lambda: sf.plots.bars(nasty_views()[2]),
    "200 bars": lambda: sf.plots.bars(nasty_views()[2], most=200, link=True),
    "importance": draw_long_names,
    "surface": lambda: sf.plots.surface(view(("x", "y")), link=True),
    "transforms": draw_transforms,
    "small panels": draw_small_panels,
}


# The layout of 200 names takes matplotlib three seconds; "bars" has names of the same kinds.
SLOW = {"200 bars"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in SLOW)) for name in NASTY_PICTURES]
)
def test_no_text_lies_on_another_or_leaves_the_plot(name):
    figure = NASTY_PICTURES[name]().figure
    texts = drawn_texts(figure)
    assert len(texts) > 8
    width, height = figure.bbox.width, figure.bbox.height
    corners_of_all = np.array([box for _, box in texts])
    low, high = corners_of_all.min(axis=1), corners_of_all.max(axis=1)
    for i, (text, box) in enumerate(texts):
        assert (box > -1).all() and (box < [width + 1, height + 1]).all(), f"{text!r} leaves the plot"
        candidates = np.flatnonzero(((low <= high[i]) & (low[i] <= high)).all(axis=1))
        for other, corners_of_other in (texts[j] for j in candidates if j > i):
            assert overlap(box, corners_of_other) < 1.5, f"{text!r} lies on {other!r}"


def test_numbers_below_bars_do_not_run_together():
    ax = draw_close_bars()
    ticks = {text for text, _ in drawn_texts(ax.figure)} & set(labels(ax.xaxis))
    boxes = sorted((box[0, 0], box[1, 0]) for text, box in drawn_texts(ax.figure) if text in ticks)
    assert len(boxes) > 2 and all(after[0] - before[1] > 8.0 for before, after in pairwise(boxes))


# Bad input


BAD = {
    "no curve": (lambda: sf.plots.curve(view("c")), TypeError, "curve must be a Curve or a list of curves"),
    "no curves": (lambda: sf.plots.curve([]), TypeError, "curve must be a Curve"),
    "numbers": (lambda: sf.plots.curve([1.0, 2.0]), TypeError, "curve must be a Curve"),
    "families": (
        lambda: sf.plots.curve([family(2), view("x")]),
        ValueError,
        "got a family of 2 curves where one is needed",
    ),
    "fields": (lambda: sf.plots.curve([view("x"), view("y")]), ValueError, "along the same field, got 'x', 'y'"),
    "names": (lambda: sf.plots.curve(family(3), names=["a"]), ValueError, "one name for each of the 3 lines"),
    "one string": (lambda: sf.plots.curve(family(3), names="abc"), ValueError, "one name for each"),
    "label": (lambda: sf.plots.curve(family(3), label="a"), ValueError, "label names one line, but there are 3"),
    "no column": (lambda: sf.plots.curve(view("x"), data={"z": [1.0]}), ValueError, "no column 'x' in the table"),
    "no numbers": (lambda: sf.plots.curve(view("x"), data={"x": ["a"]}), ValueError, "column 'x'"),
    "no rows": (lambda: sf.plots.curve(view("x"), data=[]), ValueError, "column 'x' has no rows"),
    "text": (lambda: sf.plots.curve(view("x"), data=pd.Series(["a", "b"])), ValueError, "'x'"),
    "infinite": (lambda: sf.plots.curve(view("y"), data=[1.0, np.inf]), ValueError, "column 'y' holds inf"),
    "steps": (lambda: sf.plots.steps(view("x"), 3), TypeError, "spline_curve must be a Curve"),
    "step families": (lambda: sf.plots.steps(family(2), view("x")), ValueError, "a family of 2 curves"),
    "step names": (lambda: sf.plots.steps(view("x"), view("x"), names=["a"]), ValueError, "the two curves"),
    "bars": (lambda: sf.plots.bars(view("x")), TypeError, "bars must be a Bars, made by fitted.segment"),
    "most": (lambda: sf.plots.bars(view("c"), most=0), ValueError, "most must be an integer of at least 1"),
    "bar names": (lambda: sf.plots.bars(view("c"), names=["a", "b"]), ValueError, "names must have one name"),
    "bar segments": (lambda: sf.plots.bars(family(9, "c")), ValueError, "at most 7 segments"),
    "surface": (lambda: sf.plots.surface(view("x")), TypeError, "surface must be a Surface"),
    "surface data": (lambda: sf.plots.surface(view(("x", "y")), data={"x": [1.0]}), ValueError, "no column 'y'"),
    "importance": (lambda: sf.plots.importance({"a": 1}), TypeError, "importance must be an Importance"),
    "many": (lambda: sf.plots.importance(make_importance(3), most=1.5), ValueError, "most must be an integer"),
    "one field": (lambda: sf.plots.pairs(make_importance(1)), ValueError, "has no pairs of fields"),
    "one pair": (lambda: sf.plots.pairs(make_importance(4), most=1), ValueError, "at least 2, got 1"),
    "history": (lambda: sf.plots.history([1, 2]), TypeError, "history must be a Fitted, a fitted estimator or"),
    "unfitted": (lambda: sf.plots.history(sf.SplineFMClassifier()), TypeError, "got SplineFMClassifier"),
    "no epochs": (lambda: sf.plots.history([]), ValueError, "the history has no epochs"),
    "length": (lambda: sf.plots.calibration([1, 0], [0.5]), ValueError, "same length, got 2, 1 and 1"),
    "labels": (lambda: sf.plots.calibration(["a"], [0.5]), ValueError, "y must be numbers; give classes as 0"),
    "nan": (lambda: sf.plots.calibration([1], [np.nan]), ValueError, "prediction must be finite numbers, got nan"),
    "empty": (lambda: sf.plots.calibration([], []), ValueError, "at least one row"),
    "two axes": (
        lambda: sf.plots.calibration([1], [[0.2, 0.8]]),
        ValueError,
        r"one-dimensional array .* shape \(1, 2\)",
    ),
    "weights": (lambda: sf.plots.calibration([1], [0.5], sample_weight=[-1]), ValueError, "at least 0"),
    "no weight": (lambda: sf.plots.calibration([1], [0.5], sample_weight=[0]), ValueError, "not all 0"),
    "bins": (lambda: sf.plots.calibration([1], [0.5], bins=True), ValueError, "bins must be an integer"),
    "which field": (
        lambda: sf.plots.basis(fitted_of()),
        ValueError,
        "name must be one of the numerical fields: 'x', 'y'",
    ),
    "category": (lambda: sf.plots.basis(fitted_of(), "c"), ValueError, "no numerical field 'c'. Numerical fields: 'x'"),
    "no encoder": (lambda: sf.plots.basis("x"), TypeError, "must be an Encoder or a Numerical, got str"),
    "not fitted": (lambda: sf.plots.basis(sf.Numerical("x")), ValueError, "field 'x' is not fitted"),
    "source": (lambda: sf.plots.transformed("x", TABLE), TypeError, "source must be an Encoder"),
    "no candidates": (lambda: sf.plots.transformed([], TABLE), TypeError, "source must be an Encoder"),
    "raw field": (lambda: sf.plots.transformed(sf.Numerical("x"), TABLE), ValueError, "'x' is not fitted"),
    "panels": (
        lambda: sf.plots.transformed(fitted_of(), TABLE, "x", axes=[Figure().subplots()]),
        ValueError,
        "axes must have 2 elements, one per panel, got 1",
    ),
    "all missing": (lambda: sf.plots.transformed(sf.MinMax(), [np.nan] * 3), ValueError, "nothing to plot"),
    "six curves": (lambda: sf.plots.lines([0], {str(i): [0] for i in range(6)}), ValueError, "at most 5 curves"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told(name):
    draw, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        draw()


# The package


def run(code):
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_without_matplotlib_the_error_says_how_to_get_it():
    run("""
import sys
sys.modules["matplotlib"] = None
import splinefm as sf
assert "plots" not in dir(sf)
try:
    sf.plots.curve
except ModuleNotFoundError as error:
    assert "pip install 'splinefm[plots]'" in str(error) and error.name.startswith("matplotlib"), error
else:
    raise AssertionError("matplotlib is absent")
""")


class TestCrosses:
    """Views along columns of crosses are drawn like others; a cross has no plot of its own."""

    def fitted(self):
        rng = np.random.default_rng(0)
        table = {"x": rng.gamma(2.0, 3.0, N), "y": rng.normal(size=N), "c": rng.choice(list("abc"), N)}
        fields = [sf.Numerical("x", sf.MinMax()), sf.Numerical("y", sf.MinMax()), sf.Categorical("c")]
        crosses = [sf.Cross("x", "y", segments=3), sf.Cross("c", "x", segments=3)]
        encoder = sf.fit_encoder(sf.Schema(fields + crosses), table)
        params = init_params(sf.FwFM(k=3), encoder.layout, np.random.default_rng(1), scale=2.0)
        return sf.Fitted(encoder, sf.FwFM(k=3), params, sf.Loss()), table

    def test_a_curve_is_drawn_as_it_is(self):
        fitted, table = self.fitted()
        curve = fitted.segment({"y": 0.5, "c": "a"}, along="x")
        (line, *_) = sf.plots.curve(curve, data=table).get_lines()
        x, y = line.get_data()
        rows = {"x": x, "y": [0.5] * len(x), "c": ["a"] * len(x)}
        np.testing.assert_allclose(y, fitted.scores(rows), atol=1e-5)

    def test_bars_surfaces_and_families(self):
        fitted, table = self.fitted()
        assert sf.plots.bars(fitted.segment({"x": 1.0, "y": 0.5}, along="c")).patches
        for along, values in ((("x", "y"), {"c": "b"}), (("x", "c"), {"y": 0.1})):
            assert sf.plots.surface(fitted.segment(values, along=along), data=table).collections
        family = sf.segments(fitted, {"y": [0.0, 1.0], "c": ["a", "b"]}, along="x")
        assert len(sf.plots.curve(family).get_lines()) >= 2

    def test_plots_of_fields_leave_crosses_out(self):
        fitted, table = self.fitted()
        assert len(sf.plots.transformed(fitted, table)) == 4  # two panels for each of the two numbers
        assert {share.field for share in fitted.encoder.starvation().functions} == {"x", "y"}
        with pytest.raises(ValueError, match="'x × y'"):
            sf.plots.basis(fitted, "x × y")
