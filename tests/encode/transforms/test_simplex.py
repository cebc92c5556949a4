"""The simplex against SciPy's."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.optimize

from splinefm.encode.transforms import bestfit
from splinefm.encode.transforms.bestfit import FAMILIES, nelder_mead

NEAR, FLAT, STEPS = 1e-3, 1e-6, 199
RNG = np.random.default_rng(3)
COLUMNS = {
    "normal": RNG.normal(3.0, 2.0, 900),
    "cauchy": RNG.standard_cauchy(900),
    "gamma": RNG.gamma(2.0, 30.0, 900),
    "pareto": RNG.pareto(1.1, 900),
    "beta": RNG.beta(0.7, 3.0, 900),
    "counts": RNG.poisson(3.0, 900).astype(float),
    "three": np.array([0.1, 0.2, 0.9]),
}


def by_scipy(loss, simplex, near=NEAR, flat=FLAT, steps=STEPS):
    # SciPy counts its iterations from 1.
    options = {"initial_simplex": simplex, "xatol": near, "fatol": flat, "maxiter": steps + 1}
    return scipy.optimize.minimize(loss, simplex[0], method="Nelder-Mead", options=options).x


def around(*point, size=0.25):
    start = np.array(point, dtype=float)
    return start + size * np.eye(len(start) + 1, len(start), k=-1)


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, x):
        self.calls += 1
        return self.function(x)


def rosenbrock(x):
    return (1.0 - x[0]) ** 2 + sum(100.0 * (b - a * a) ** 2 for a, b in pairwise(x))


# Never the same at two vertices: SciPy puts equal losses in an order that depends on the processor.
SLOPES = np.array([1.0, 1.7, 0.6, 2.3])
LOSSES = {
    "rosenbrock": rosenbrock,
    "bowl": lambda x: float(x @ x),
    "edges": lambda x: float(np.abs(x - 0.3) @ SLOPES[: len(x)]),
    "wall": lambda x: float(x @ x) if x.min() > 0.4 else 1e290,
    "no ground": lambda x: float(x @ SLOPES[: len(x)]),
}


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("name", LOSSES)
def test_it_is_the_simplex_of_scipy(name, n):
    simplex = around(*np.linspace(-0.7, 1.3, n) if name != "wall" else np.linspace(0.5, 1.5, n))
    for steps in (1, 7, STEPS):
        ours, theirs = Counted(LOSSES[name]), Counted(LOSSES[name])
        found = nelder_mead(ours, simplex, xatol=NEAR, fatol=FLAT, steps=steps)
        np.testing.assert_allclose(found, by_scipy(theirs, simplex, steps=steps), rtol=1e-12, atol=1e-12)
        assert ours.calls == theirs.calls


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_it_finds_the_bottom_of_a_curved_valley(n):
    found = nelder_mead(rosenbrock, around(*[-0.5] * n), xatol=1e-8, fatol=1e-12, steps=5000)
    np.testing.assert_allclose(found, np.ones(n), atol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_steps_are_walked_down(n):
    def loss(x):
        return float(np.floor(np.abs(4.0 * x)).sum())

    simplex = around(*np.linspace(1.0, 2.0, n), size=1.0)
    found = nelder_mead(loss, simplex, xatol=NEAR, fatol=FLAT, steps=STEPS)
    assert loss(found) <= loss(simplex[0]) / 2.0


@pytest.mark.parametrize("column", COLUMNS)
def test_fits_of_all_families_are_those_of_scipy(monkeypatch, column):
    tried = []

    def both(loss, simplex, *, xatol, fatol, steps):
        ours, theirs = nelder_mead(loss, simplex, xatol=xatol, fatol=fatol, steps=steps), by_scipy(loss, simplex)
        assert (xatol, fatol, steps) == (NEAR, FLAT, STEPS)
        assert loss(ours) <= loss(theirs) + 1e-12
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
        tried.append(len(ours))
        return ours

    monkeypatch.setattr(bestfit, "nelder_mead", both)
    # The simplex is for what the equations of a family do not find: here they find nothing.
    plain = {name: family._replace(maximum=lambda z, weight: None) for name, family in FAMILIES.items()}
    monkeypatch.setattr(bestfit, "find_family", plain.__getitem__)
    found = bestfit.fit_families(COLUMNS[column], bounds=(-1e9, 1e9) if column == "cauchy" else None)
    eligible = sum(not FAMILIES[name].exact for name, _, _ in found)
    assert len(tried) >= eligible > 0


@pytest.mark.parametrize("beyond", [np.inf, np.nan])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_loss_that_is_not_finite_is_walked_away_from(beyond, n):
    # Only the first vertex is inside, in a corner.
    def loss(x):
        return float(((x - 2.0) ** 2).sum()) if (x < 3.0).all() else beyond

    simplex = around(*[2.9] * n)
    assert np.isfinite([loss(vertex) for vertex in simplex]).sum() == 1
    found = nelder_mead(loss, simplex, xatol=NEAR, fatol=FLAT, steps=STEPS)
    assert (found < 3.0).all()
    assert loss(found) < loss(simplex[0]) / 10.0


@pytest.mark.parametrize("steps", [0, 1, 5, STEPS])
def test_nan_counts_as_infinite(steps):
    def found(beyond):
        loss = Counted(lambda x: float(((x - 2.0) ** 2).sum()) if (x < 3.0).all() else beyond)
        return [*nelder_mead(loss, around(2.9, 2.95), xatol=NEAR, fatol=FLAT, steps=steps), loss.calls]

    assert found(np.nan) == found(np.inf)


@pytest.mark.parametrize("value", [0.0, 1e290, np.inf, np.nan])
def test_where_all_is_flat_it_ends_before_the_last_step(value):
    loss = Counted(lambda x: value)
    found = nelder_mead(loss, around(1.0, 2.0), xatol=NEAR, fatol=FLAT, steps=10**6)
    assert loss.calls < 100
    assert np.abs(found - [1.0, 2.0]).max() <= 0.25


def test_minus_infinity_is_the_best_there_is():
    found = nelder_mead(lambda x: -np.inf if x[0] > 1.0 else -x[0], around(0.0), xatol=NEAR, fatol=FLAT, steps=STEPS)
    assert found[0] > 1.0


def test_the_simplex_that_was_given_stays_as_it_is():
    simplex = around(0.5, 0.5)
    before = simplex.copy()
    first, again = (nelder_mead(rosenbrock, simplex, xatol=NEAR, fatol=FLAT, steps=50) for _ in range(2))
    np.testing.assert_array_equal(simplex, before)
    np.testing.assert_array_equal(first, again)


def test_without_a_step_the_best_vertex_is_the_answer():
    simplex = np.array([[2.0, 2.0], [0.1, 0.0], [3.0, 0.0]])
    np.testing.assert_array_equal(nelder_mead(LOSSES["bowl"], simplex, xatol=NEAR, fatol=FLAT, steps=0), simplex[1])
