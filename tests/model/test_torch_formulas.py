"""Scores from unit vectors and losses on tensors: the NumPy formulas, and their slopes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from battery import problems
from splinefm.encode.slots import FieldLayout, SlotLayout
from splinefm.model.family.formula import unit_sums
from splinefm.train.losses import LOSSES
from support import all_models, averages, examples, random_params

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'splinefm[torch]'")
formulas = pytest.importorskip("splinefm.model.torch")


def in_torch(params):
    return {name: torch.tensor(values, dtype=torch.float64, requires_grad=True) for name, values in params.items()}


def assert_scores(model, layout, P, params, linear):
    between = in_torch({name: params[name] for name in model.field_shapes(len(layout.fields))})
    units = torch.tensor(P, dtype=torch.float64, requires_grad=True)
    scores = formulas.unit_scores(model, units, torch.tensor(linear), between, layout)
    expected = linear + model.interaction(P, params, layout.unit_field)
    np.testing.assert_allclose(scores.detach().numpy(), expected, rtol=1e-10, atol=1e-10)
    return scores, units, between


@examples(60)
@given(problems())
def test_scores_of_units_are_those_of_the_formula(problem):
    model, slots, rng = problem
    params = random_params(model, slots.layout, rng, dtype=np.float64)
    P, linear = unit_sums(params["factors"], slots), rng.normal(size=len(slots))
    assert_scores(model, slots.layout, P, params, linear)


# Four fields, of which the second has two units and the last three.
LAYOUT = SlotLayout(
    tuple(FieldLayout(f"f{i}", 5, (1,) * units, tuple(range(units))) for i, units in enumerate((1, 2, 1, 3)))
)


@pytest.mark.parametrize("model", [*all_models(4), *averages()], ids=str)
def test_slopes_by_units_and_by_parameters_between_fields_are_those_of_the_formula(model):
    rng = np.random.default_rng(0)
    params = random_params(model, LAYOUT, dtype=np.float64)
    P = rng.normal(size=(5, LAYOUT.n_units, model.width(4)))
    scores, units, between = assert_scores(model, LAYOUT, P, params, rng.normal(size=5))
    row_weight = rng.uniform(0.2, 3.0, 5)
    (scores * torch.tensor(row_weight)).sum().backward()

    def slope(name, direction):
        ends = []
        for h in (1e-6, -1e-6):
            moved = params | ({name: params[name] + h * direction} if name in params else {})
            at = P + h * direction if name == "units" else P
            ends.append(row_weight @ model.interaction(at, moved, LAYOUT.unit_field))
        return (ends[0] - ends[1]) / 2e-6

    for name, tensor in {"units": units, **between}.items():
        direction = rng.normal(size=tuple(tensor.shape))
        found = float((tensor.grad.numpy() * direction).sum())
        assert abs(found) > 1e-3
        assert found == pytest.approx(slope(name, direction), rel=1e-5), name


def test_no_rows_have_no_scores():
    for model in all_models(4):
        between = in_torch({name: random_params(model, LAYOUT)[name] for name in model.field_shapes(4)})
        units = torch.zeros(0, LAYOUT.n_units, model.width(4), dtype=torch.float64)
        assert formulas.unit_scores(model, units, units.sum((1, 2)), between, LAYOUT).shape == (0,)


def loss_of(name):
    options = {"quantile": {"quantile": 0.8}, "tweedie": {"power": 1.3}, "huber": {"delta": 0.7}}.get(name, {})
    return sf.Loss(name, classes=(0, 1, 2) if name == "softmax" else None, **options)


@pytest.mark.parametrize("name", LOSSES)
@examples(60)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([0.1, 3.0, 30.0]))
def test_losses_of_rows_and_their_slopes_are_those_of_the_formula(name, seed, size):
    rng, loss = np.random.default_rng(seed), loss_of(name)
    n = 20
    scores = rng.normal(scale=size, size=(n, 3) if name == "softmax" else n)
    y = {
        "logistic": lambda: rng.random(n),
        "softmax": lambda: rng.integers(0, 3, n).astype(float),
        "gamma": lambda: rng.lognormal(size=n),
        "tweedie": lambda: rng.lognormal(size=n) * (rng.random(n) < 0.6),
        "poisson": lambda: rng.poisson(2.0, n).astype(float),
    }.get(name, lambda: rng.normal(size=n))()
    given_scores = torch.tensor(scores, requires_grad=True)
    found = formulas.row_losses(loss, given_scores, torch.tensor(y))
    assert found.shape == (n,)
    np.testing.assert_allclose(found.detach().numpy(), loss.value(y, scores), rtol=1e-9, atol=1e-12)
    row_weight = rng.uniform(0.2, 3.0, n)
    (found * torch.tensor(row_weight)).sum().backward()
    expected = (row_weight * loss.slope(y, scores).T).T
    np.testing.assert_allclose(given_scores.grad.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_a_score_or_target_that_is_no_number_is_seen(name):
    loss, shape = loss_of(name), (2, 3) if name == "softmax" else (2,)
    scores = torch.full(shape, 0.5, dtype=torch.float64)
    scores[0] = torch.nan
    scores.requires_grad_()
    found = formulas.row_losses(loss, scores, torch.ones(2, dtype=torch.float64))
    found.sum().backward()
    assert found.isnan().tolist() == [True, False] and scores.grad[0].isnan().all() and scores.grad[1].isfinite().all()
    if name != "softmax":
        scores = torch.tensor([0.5, 0.5], dtype=torch.float64, requires_grad=True)
        found = formulas.row_losses(loss, scores, torch.tensor([torch.nan, 1.0], dtype=torch.float64))
        found.sum().backward()
        assert found[0].isnan() and scores.grad[0].isnan()


def test_a_quantile_has_no_slope_at_the_target():
    scores = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    formulas.row_losses(sf.Loss("quantile", quantile=0.9), scores, torch.zeros(1)).sum().backward()
    assert scores.grad.item() == 0.0
