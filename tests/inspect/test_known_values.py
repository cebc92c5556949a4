"""Views along numbers with nothing in between: values that a cross reads as categories, and days of the week."""

import numpy as np
import pytest

import splinefm as sf
from splinefm.inspect.axes import known_values
from splinefm.inspect.values import curve_values, extremum_text, side_grid, value_grid
from support import random_fitted

HOURS = np.arange(24.0)
VALUES = sf.Cross(sf.Categorical("hour values", column="hour"), name="hour (values)")


def make_fitted(*crosses, special=()):
    rng = np.random.default_rng(0)
    days = np.datetime64("2024-01-01") + np.arange(480) % 9
    table = {"hour": np.resize(HOURS, 480), "size": rng.random(480), "day": days.astype("datetime64[s]")}
    fields = [
        sf.Numerical("hour", sf.MinMax(), sf.BSpline(6), special=special),
        sf.Numerical("size", sf.MinMax(), sf.BSpline(4)),
        sf.Numerical("weekday", sf.MinMax(-0.5, 6.5), sf.BSpline(5), column="day", part="weekday"),
    ]
    return random_fitted(sf.FwFM(k=3), sf.Schema([*fields, *crosses]), table, loss="squared", scale=1.0)


@pytest.fixture(scope="module")
def fitted():
    return make_fitted(VALUES)


@pytest.fixture(scope="module")
def curve(fitted):
    return fitted.segment({"size": 0.5, "weekday": 2.0}, along="hour")


def test_a_grid_has_the_values_that_a_cross_knows(curve):
    np.testing.assert_array_equal(curve.known_values, HOURS)
    np.testing.assert_array_equal(value_grid(curve.field, 201, known=curve.known_values), HOURS)
    few = value_grid(curve.field, 7, np.array([2.0, 20.5]), curve.known_values)
    assert len(few) == 7 and {*few} <= {*HOURS} and (few[0], few[-1]) == (2.0, 20.0)


def test_without_such_a_cross_all_numbers_of_the_range_are_shown():
    fitted = make_fitted(sf.Cross("hour", "size", segments=2))
    curve = fitted.segment({"size": 0.5, "weekday": 2.0}, along="hour")
    assert curve.known_values is None and len(value_grid(curve.field, 50)) == 50


def test_special_values_and_names_that_are_no_numbers_are_not_on_the_axis():
    fitted = make_fitted(VALUES, special=[0.0])
    np.testing.assert_array_equal(fitted.segment({"size": 0.5, "weekday": 2.0}, along="hour").known_values, HOURS[1:])
    item = sf.Numerical("x", sf.MinMax(0.0, 1.0))
    assert known_values(item, [sf.Categorical("x", vocabulary=["n/a", "inf"])]) is None


def test_extremes_are_among_the_known_values(fitted, curve):
    scores = fitted.scores({"hour": HOURS, "size": [0.5] * 24, "day": np.full(24, np.datetime64("2024-01-03", "s"))})
    for found, best in ((curve.maximum(), np.argmax(scores)), (curve.minimum(), np.argmin(scores))):
        assert found.at == HOURS[best] and found.value == pytest.approx(scores[best], abs=1e-5)
    assert 3.0 <= curve.maximum(2.5, 7.5).at <= 7.0
    assert curve.maximum(link=True).value == pytest.approx(scores.max(), abs=1e-5)
    with pytest.raises(ValueError, match=r"'hour' has no known value from 3.2 to 3.8; its 24 values go from 0 to 23"):
        curve.maximum(3.2, 3.8)


def test_each_segment_has_its_own_extreme(fitted):
    rows = {"size": [0.1, 0.5, 0.9], "weekday": [0.0, 2.0, 4.0]}
    curves = sf.segments(fitted, rows, along="hour")
    found = curves.maximum()
    assert found.at.tolist() == [curves[i].maximum().at for i in range(3)]
    np.testing.assert_allclose(found.value, curves(HOURS).max(axis=1))


def test_extremes_of_weekdays_are_days(fitted):
    curve = fitted.segment({"size": 0.5, "hour": 3.0}, along="weekday")
    values = curve_values(curve, value_grid(curve.field, 5, known=curve.known_values))
    assert len(values["x"]) == 5 and {*values["x"]} <= {*range(7)}
    scores = curve(np.arange(7.0))
    assert curve.maximum().at == np.argmax(scores) and curve.maximum().value == scores.max()
    assert (
        extremum_text(fitted, values, "minimum")
        == ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[int(np.argmin(scores))]
    )


def test_a_plot_has_a_point_per_known_value(curve):
    line = sf.plots.curve(curve).get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), HOURS)
    np.testing.assert_allclose(line.get_ydata(), curve(HOURS))
    assert line.get_marker() == "." and line.get_linestyle() == "-"


def test_many_known_values_are_points_without_a_line():
    x = np.round(np.random.default_rng(1).random(100), 6)
    schema = sf.Schema([sf.Numerical("x", sf.MinMax()), sf.Cross(sf.Categorical("x"), name="x (values)")])
    fitted = random_fitted(sf.FM(k=2), schema, {"x": np.repeat(x, 3)})
    line = sf.plots.curve(fitted.segment({}, along="x")).get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), np.unique(x))
    assert line.get_linestyle() == "None"


def test_a_surface_has_a_column_of_cells_per_known_value(fitted):
    surface = fitted.segment({"weekday": 2.0}, along=("hour", "size"))
    assert side_grid(fitted, "hour", 51, 20) == HOURS.tolist() and len(side_grid(fitted, "size", 51, 20)) == 51
    ax = sf.plots.surface(surface)
    cells = ax.collections[0].get_array()
    assert cells.shape[1] == 24 and ax.get_xlim() == (-0.5, 23.5) and len(ax.collections) == 1  # no contours
    y = (np.arange(cells.shape[0]) + 0.5) / cells.shape[0]
    np.testing.assert_allclose(cells[:, 3], surface(3.0, np.interp(y, [0, 1], ax.get_ylim())), atol=1e-6)
