"""Pieces of a transform are found by way of the bits of a number: the same pieces as NumPy's."""

import numpy as np
import pytest

import splinefm as sf
from splinefm.encode.plans import RowFields

TINY = np.nextafter(0.0, 1.0)
KNOTS = {
    "lognormal": lambda rng: rng.lognormal(0.0, 2.0, 1000),
    "both signs": lambda rng: np.concatenate([rng.normal(0.0, 3.0, 500), [0.0]]),
    "far apart": lambda rng: np.concatenate([-(10.0 ** np.arange(300)), 10.0 ** -np.arange(300.0)]),
    "too close for cells": lambda rng: np.concatenate([[0.0], 1.0 + np.arange(400) * 2.0**-52, [1e300]]),
    "below the normal numbers": lambda rng: np.arange(-40, 40) * TINY,
    "whole numbers": lambda rng: np.arange(17.0),
    "few": lambda rng: np.arange(5.0) ** 2,
}


def fitted_to(kind, basis):
    """An encoder of a column with such knots, its rows, the knots, and numbers at, between and beside them."""
    knots = np.unique(KNOTS[kind](np.random.default_rng(0)))
    u = np.linspace(0.0, 1.0, len(knots))
    item = sf.Numerical("x", sf.Quantile(x=tuple(knots.tolist()), u=tuple(u.tolist())), basis)
    fitted = sf.fit_encoder(sf.Schema([item]), {"x": knots})
    between = knots[:-1] / 2 + knots[1:] / 2
    x = np.concatenate(
        [knots, between, np.nextafter(knots, -np.inf), np.nextafter(knots, np.inf), [-0.0, 1e308, -1e308]]
    )
    rows = RowFields(fitted.fields, fitted.layout.feature_ptr[:-1].tolist())
    assert not rows.slow
    return fitted, rows, knots, x


@pytest.mark.parametrize("kind", KNOTS)
def test_positions_are_those_of_interpolation(kind):
    _, rows, knots, x = fitted_to(kind, sf.Polynomial(1))
    expected = np.interp(x, knots, np.linspace(0.0, 1.0, len(knots)))
    for value, exact in zip(x.tolist(), expected.tolist(), strict=True):
        _, weights, _, _ = rows.encoder.encode({"x": value}, rows.columns, rows.readers)
        assert weights[-1] == pytest.approx(exact, abs=2e-7)


@pytest.mark.parametrize("kind", KNOTS)
def test_columns_have_the_positions_of_single_rows(kind):
    """Columns are searched eight numbers at a time."""
    fitted, rows, _, x = fitted_to(kind, sf.BSpline(20))
    slots = fitted.encode({"x": x})
    for i, value in enumerate(x.tolist()):
        features, weights, _, _ = rows.encoder.encode({"x": value}, rows.columns, rows.readers)
        assert slots.start[i, 0] == features[0] and slots.weight[i].tobytes() == weights.tobytes()
