"""Models as modules of torch: the same scores, gradients, files, and back again."""

import copy

import numpy as np
import pytest

import splinefm as sf
from splinefm.model.family.formula import formula_scores
from support import (
    all_models,
    averages,
    cross_schema,
    cross_table,
    mixed_schema,
    mixed_table,
    random_classes,
    random_fitted,
)

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'splinefm[torch]'")
TABLE = mixed_table(60)


def tensors(fitted, table):
    slots = fitted.encoder.encode(table)
    return torch.tensor(slots.start), torch.tensor(slots.weight)


@pytest.mark.parametrize("model", [*all_models(6), *averages()], ids=str)
def test_a_module_has_the_scores_of_its_model(model):
    fitted = random_fitted(model, mixed_schema(), TABLE)
    module = sf.to_torch(fitted)
    scores = module(*tensors(fitted, TABLE)).detach().numpy()
    expected = formula_scores(model, fitted.params, fitted.encoder.encode(TABLE))
    assert expected.std() > 0.1
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    assert module.units(*tensors(fitted, TABLE)).shape == (60, fitted.encoder.layout.n_units, model.width(6))
    again = sf.from_torch(module, fitted)
    np.testing.assert_array_equal(again.scores(TABLE), fitted.scores(TABLE))


def test_a_module_of_several_classes_has_a_score_for_each():
    fitted = random_classes(sf.FwFM(k=3, third=2), mixed_schema(), TABLE)
    module = sf.to_torch(fitted)
    scores = module(*tensors(fitted, TABLE))
    np.testing.assert_allclose(scores.detach().numpy(), fitted.scores(TABLE), rtol=1e-4, atol=1e-5)
    assert module.units(*tensors(fitted, TABLE)).shape == (60, 3, fitted.encoder.layout.n_units, 5)
    np.testing.assert_array_equal(sf.from_torch(module, fitted).scores(TABLE), fitted.scores(TABLE))


def test_crosses_are_slots_like_any_other():
    table = cross_table(50)
    fitted = random_fitted(sf.FwFM(k=3), cross_schema("category × number", "number × number"), table)
    scores = sf.to_torch(fitted)(*tensors(fitted, table)).detach().numpy()
    np.testing.assert_allclose(scores, fitted.scores(table), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", [sf.FwFM(k=3, third=2), sf.FFM(k=2), sf.FmFM(k=3)], ids=str)
def test_scores_are_differentiable_by_weights_and_parameters(model):
    fitted = random_fitted(model, mixed_schema(), TABLE)
    module = sf.to_torch(fitted).double()
    start, weight = tensors(fitted, TABLE)
    start, weight = start[:4], weight[:4].double().requires_grad_()
    assert torch.autograd.gradcheck(lambda given: module(start, given), weight)
    module.zero_grad()
    module(start, weight).square().sum().backward()
    for name, values in module.named_parameters():
        assert values.grad.abs().max() > 0.0, name


def test_a_state_dict_has_the_names_of_parameters_and_loads_back():
    fitted = random_fitted(sf.LowRankFwFM(k=4), mixed_schema(), TABLE)
    module = sf.to_torch(fitted)
    state = copy.deepcopy(module.state_dict())
    assert state.keys() == fitted.params.keys()
    with torch.no_grad():
        module.linear += 1.0
    assert not np.allclose(sf.from_torch(module, fitted).scores(TABLE), fitted.scores(TABLE))
    module.load_state_dict(state)
    np.testing.assert_array_equal(sf.from_torch(module, fitted).scores(TABLE), fitted.scores(TABLE))
    assert "LowRankFwFM(k=4, rank=3)" in repr(module)


def test_a_module_is_a_copy_and_so_is_what_comes_back():
    fitted = random_fitted(sf.FM(k=4), mixed_schema(), TABLE)
    before, module = fitted.scores(TABLE), sf.to_torch(fitted)
    again = sf.from_torch(module, fitted)
    with torch.no_grad():
        module.factors.zero_()
    np.testing.assert_array_equal(fitted.scores(TABLE), before)
    np.testing.assert_array_equal(again.scores(TABLE), before)


def test_a_module_of_another_model_is_refused():
    fitted = random_fitted(sf.FM(k=4), mixed_schema(), TABLE)
    with pytest.raises(TypeError, match=r"must come from sf.to_torch, got a Linear"):
        sf.from_torch(torch.nn.Linear(2, 1), fitted)
    with pytest.raises(ValueError, match=r"the module is FM\(k=4\) .* fitted is FM\(k=3\)"):
        sf.from_torch(sf.to_torch(fitted), random_fitted(sf.FM(k=3), mixed_schema(), TABLE))
    other = random_fitted(sf.FM(k=4), mixed_schema(("x", "kind")), TABLE)
    with pytest.raises(ValueError, match="other fields or features"):
        sf.from_torch(sf.to_torch(fitted), other)


def test_numbers_that_are_not_finite_do_not_come_back():
    fitted = random_fitted(sf.FM(k=4), mixed_schema(), TABLE)
    module = sf.to_torch(fitted)
    with torch.no_grad():
        module.factors[3, 1] = torch.nan
    with pytest.raises(ValueError, match="factors of the module has numbers that are not finite"):
        sf.from_torch(module, fitted)
