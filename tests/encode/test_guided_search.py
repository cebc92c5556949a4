"""Pieces of a transform are found by way of the bits of a number: the same pieces as NumPy's."""

import numpy as np
import pytest

import splinefm as sf
from splinefm.encode.rows.fields import RowFields

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


@pytest.mark.parametrize("kind", KNOTS)
def test_positions_are_those_of_interpolation(kind):
    rng = np.random.default_rng(0)
    knots = np.unique(KNOTS[kind](rng))
    u = np.linspace(0.0, 1.0, len(knots))
    item = sf.Numerical("x", sf.Quantile(x=tuple(knots.tolist()), u=tuple(u.tolist())), sf.Polynomial(1))
    fitted = sf.fit_encoder(sf.Schema([item]), {"x": knots})
    between = knots[:-1] / 2 + knots[1:] / 2
    x = np.concatenate(
        [knots, between, np.nextafter(knots, -np.inf), np.nextafter(knots, np.inf), [-0.0, 1e308, -1e308]]
    )
    rows = RowFields(fitted.fields, fitted.layout.feature_ptr[:-1].tolist())
    assert not rows.slow
    expected = np.interp(x, knots, u)
    for value, exact in zip(x.tolist(), expected.tolist(), strict=True):
        _, weights, _, _ = rows.encoder.encode({"x": value}, rows.columns, rows.readers)
        assert weights[-1] == pytest.approx(exact, abs=2e-7)
