"""Vectors in registers against NumPy; the file also runs with NUMBA_DISABLE_JIT=1, where the same names are NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from splinefm.model.vectors import (
    absolute,
    add,
    add_to,
    add_to_four,
    axpy,
    column,
    divide,
    fetch,
    fill,
    fma,
    four,
    increase,
    load,
    multiply,
    scale,
    sqrt,
    store,
    subtract,
    sum_four,
    total,
)

SIZES = [1, 3, 4, 8, 16, 17]
EPS = float(np.finfo(np.float32).eps)
NAMES = ["load", "fill", "scale", "axpy", "fma", "add", "subtract", "multiply", "divide", "sqrt"]


# No cache: a change of the vectors does not change this file, and so would not be noticed.
@njit
def every_operation(kt, x, at, number, out, room):
    """One row of `out` per name in NAMES; the last row begins with the total."""
    k = len(kt)
    fetch(x, at)
    a, b, c = load(x, at, kt), load(x, at + k, kt), load(x, at + 2 * k, kt)
    store(out, 0 * room, a)
    store(out, 1 * room, fill(number, kt))
    store(out, 2 * room, scale(number, a))
    store(out, 3 * room, axpy(number, a, b))
    store(out, 4 * room, fma(a, b, c))
    store(out, 5 * room, add(a, b))
    store(out, 6 * room, subtract(a, b))
    store(out, 7 * room, multiply(a, b))
    store(out, 8 * room, divide(a, b))
    store(out, 9 * room, sqrt(c))
    out[10 * room] = total(a)
    fetch(x, at + 1_000)  # beyond the end: only a hint


def run(k, x, at, number):
    """Rows of results with a margin that nothing may write to."""
    room = k + 2
    out = np.full((len(NAMES) + 1) * room, -77.0, np.float32)
    every_operation((0,) * k, x, at, np.float32(number), out, room)
    out = out.reshape(-1, room)
    assert (out[: len(NAMES), k:] == -77.0).all() and (out[-1, 1:] == -77.0).all()
    return dict(zip(NAMES, out[:, :k], strict=False)), out[-1, 0]


numbers = st.floats(-100, 100, width=32)
divisors = st.one_of(st.floats(0.0625, 100, width=32), st.floats(-100, -0.0625, width=32))
squares = st.floats(0, 100, width=32)


@pytest.mark.parametrize("k", SIZES)
@settings(deadline=None, max_examples=40)
@given(data=st.data(), at=st.integers(0, 5), number=numbers)
def test_vectors_compute_what_numpy_computes(k, data, at, number):
    a, b, c = (
        np.array(data.draw(st.lists(kind, min_size=k, max_size=k)), np.float32) for kind in (numbers, divisors, squares)
    )
    x = np.concatenate([np.full(at, 7.0), a, b, c, [7.0]]).astype(np.float32)
    before = x.copy()
    results, whole = run(k, x, at, number)
    np.testing.assert_array_equal(x, before)
    a, b, c, s = a.astype(float), b.astype(float), c.astype(float), float(number)
    expected = {
        "load": (a, 0),
        "fill": (np.full(k, s), 0),
        "scale": (s * a, abs(s * a)),
        "axpy": (s * a + b, abs(s * a) + abs(b)),
        "fma": (a * b + c, abs(a * b) + abs(c)),
        "add": (a + b, abs(a) + abs(b)),
        "subtract": (a - b, abs(a) + abs(b)),
        "multiply": (a * b, abs(a * b)),
        "divide": (a / b, abs(a / b)),
        "sqrt": (np.sqrt(c), np.sqrt(c)),
    }
    assert list(expected) == NAMES
    tiny = float(np.finfo(np.float32).tiny)  # a processor may take smaller numbers for zero
    for name, (value, size) in expected.items():
        error = np.abs(results[name] - value)
        assert (error <= 4 * EPS * size + (tiny if name not in ("load", "fill") else 0.0)).all(), name
    assert abs(whole - a.sum()) <= 8 * EPS * abs(a).sum() + tiny


@pytest.mark.parametrize("k", SIZES)
def test_every_number_counts_once_in_the_total(k):
    for place in range(k):
        x = np.zeros(3 * k, np.float32)
        x[k:] = 1.0  # no division by zero
        x[place] = 2.0
        assert run(k, x, 0, 0.0)[1] == 2.0


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_stays_visible(k, bad):
    for place in range(k):
        x = np.ones(3 * k, np.float32)
        x[place] = bad  # in a
        x[2 * k + place] = -1.0  # in c, under the root
        with np.errstate(invalid="ignore"):
            results, whole = run(k, x, 0, 2.0)
        others = np.arange(k) != place
        for name in ("load", "scale", "axpy", "fma", "add", "subtract", "multiply", "divide", "sqrt"):
            assert not np.isfinite(results[name][place]), name
            assert np.isfinite(results[name][others]).all(), name
        assert np.isnan(results["sqrt"][place])
        assert not np.isfinite(whole)


@pytest.mark.parametrize("k", SIZES)
def test_division_by_zero_is_infinite(k):
    x = np.ones(3 * k, np.float32)
    x[k : 2 * k] = 0.0
    with np.errstate(divide="ignore"):
        results, _ = run(k, x, 0, 1.0)
    assert (results["divide"] == np.inf).all()


@njit
def add_in_place(kt, x, y, number):
    """Vectors that live across a loop: y += number Σ_rows x."""
    k = len(kt)
    a = load(y, 0, kt)
    for at in range(0, len(x), k):
        a = axpy(number, load(x, at, kt), a)
    store(y, 0, a)


@pytest.mark.parametrize("k", SIZES)
def test_a_vector_lives_across_a_loop(k):
    rng = np.random.default_rng(k)
    x, y = rng.normal(size=(9, k)).astype(np.float32), rng.normal(size=k).astype(np.float32)
    expected = y + np.float32(0.5) * x.sum(axis=0)
    add_in_place((0,) * k, x.ravel(), y, np.float32(0.5))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@njit
def four_at_a_time(kt, columns, i, j, n, T, at, d, G, linear):
    """The weights of row i from column j on: their sum of vectors, and what is added to those and to `linear`."""
    k, x = len(kt), four(columns, column(i, j, n))
    store(d, k, sum_four(x, T, at, kt))
    add_to_four(G, at, x, load(d, 0, kt))
    add_to(linear, 1, np.float32(-2.5), x)
    increase(linear, 0, np.float32(0.75))
    store(linear, 5, absolute(x))


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize(("i", "j"), [(0, 0), (5, 2), (15, 1), (16, 0), (31, 2)])
def test_four_neighboring_vectors_at_a_time(k, i, j):
    n, at, rng = 6, 3, np.random.default_rng(0)
    table = rng.normal(size=(32, n)).astype(np.float32)
    columns = table.reshape(2, 16, n).transpose(0, 2, 1).reshape(-1).copy()
    T, G = rng.normal(size=(2, at + 4 * k + 5)).astype(np.float32)
    d, linear, before = rng.normal(size=2 * k).astype(np.float32), np.zeros(10, np.float32), G.copy()
    four_at_a_time((0,) * k, columns, i, j, n, T, at, d, G, linear)
    x, rows = table[i, j : j + 4], slice(at, at + 4 * k)
    np.testing.assert_allclose(d[k:], x @ T[rows].reshape(4, k), rtol=1e-5, atol=1e-5)
    before[rows] += np.outer(x, d[:k]).reshape(-1)
    np.testing.assert_allclose(G, before, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(linear, [0.75, *(-2.5 * x), *np.abs(x), 0.0], rtol=1e-6)
