"""The torch engine on the CPU: the battery of all engines, the steps of the CPU engine, and bad input."""

from dataclasses import replace

import numpy as np
import pytest

import splinefm as sf
from battery import EngineBattery, assert_same, each_model, make_groups, make_slots, make_targets
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots
from splinefm.model.cpu import CpuEngine
from splinefm.model.optimizers import Group, Optimizer
from support import random_params

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'splinefm[torch]'")
from splinefm.model.torch import engine as engines  # noqa: E402
from splinefm.model.torch.engine import (  # noqa: E402
    TorchEngine,
    find_device,
    with_threads,
)


class TestTorchEngine(EngineBattery):
    sampled = True

    def assert_equal(self, actual, expected):
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)

    def engine(self, *arguments, **options):
        return TorchEngine(*arguments, **options, device="cpu")

    def gradient_of(self, engine):
        return {name: engine.state[name].m.reshape(values.shape) for name, values in engine.values.items()}


def make(engine, *arguments, **options):
    return CpuEngine(*arguments, **options) if engine == "cpu" else TorchEngine(*arguments, **options, device="cpu")


def stacked(model, layout, n_outputs):
    parts = [random_params(model, layout, seed) for seed in range(n_outputs)]
    return parts[0] if n_outputs == 1 else {name: np.stack([part[name] for part in parts]) for name in parts[0]}


@each_model
@pytest.mark.parametrize("name", ["adamw", "adagrad"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_steps_are_those_of_the_cpu_engine(model, name, n_outputs):
    slots = make_slots("identity", 60)
    params, groups = stacked(model, slots.layout, n_outputs), make_groups(slots.layout, 2, False)
    # Close to a gradient of zero, AdamW would take a step of full size in the direction of a rounding error.
    optimizer = Optimizer(name, learning_rate=0.05, weight_decay=0.01, ema=0.8, eps=1e-3)
    y, weight = make_targets("logistic", len(slots))
    y = y if n_outputs == 1 else np.floor(3 * np.minimum(y, 0.9))
    loss = "logistic" if n_outputs == 1 else "softmax"
    engines = [make(kind, model, slots.layout, params, loss, optimizer, groups, 16, 1) for kind in ("cpu", "torch")]
    rates = np.array([0.05, 0.03, 0.01])
    for steps in (1, 2):
        rows = np.arange(16 * steps) + 20 * (steps - 1)
        losses = [engine.steps(slots, y, weight, rows, rates) for engine in engines]
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
        assert_same(engines[1].params(), engines[0].params(), rtol=1e-4, atol=1e-5)
        averages = [engine.params(averaged=True) for engine in engines]
        assert_same(averages[1], averages[0], rtol=1e-4, atol=1e-5)
    assert engines[0].n_steps == engines[1].n_steps == 3
    for key, state in engines[0].state.items():
        for part in ("m", "v", "average"):
            found = getattr(engines[1].state[key], part)
            if part != "average" or key in ("linear", "factors"):
                np.testing.assert_allclose(found, getattr(state, part), rtol=1e-3, atol=1e-5, err_msg=key)
    np.testing.assert_array_equal(engines[1].state["factors"].last, engines[0].state["factors"].last)
    # Features that are new keep the numbers of old ones where they are.
    fields = [replace(field, n_features=field.n_features + 2) for field in slots.layout.fields]
    layout = SlotLayout(tuple(fields))
    grown = [[*own, Group(2)] for own in groups]
    for engine in engines:
        engine.grow(layout, grown, np.random.default_rng(1))
    np.testing.assert_array_equal(engines[1].state["factors"].last, engines[0].state["factors"].last)
    after = slots.grown(layout)
    losses = [engine.step(after, y, weight, rows=np.arange(16)) for engine in engines]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for averaged in (False, True):
        assert_same(*(engine.params(averaged) for engine in engines[::-1]), rtol=1e-4, atol=1e-5)


@each_model
def test_blocks_of_a_batch_do_not_matter(model, monkeypatch):
    slots = make_slots("identity", 50)
    params, groups = random_params(model, slots.layout), make_groups(slots.layout, 2, False)
    y, weight = make_targets("logistic", len(slots))
    battery = TestTorchEngine()
    one, loss = battery.one_step(model, "logistic", params, slots, y, weight, groups=groups)
    scores = battery.engine(model, slots.layout, params).scores(slots)
    engine = battery.engine(model, slots.layout, params)
    monkeypatch.setattr(engines, "BLOCK_NUMBERS", 7 * slots.layout.n_units * (engine.width + 1))
    many, same = battery.one_step(model, "logistic", params, slots, y, weight, groups=groups)
    assert same == pytest.approx(loss, rel=1e-6)
    assert_same(many, one, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(engine.scores(slots), scores, rtol=1e-5, atol=1e-6)


def test_a_wrong_call_changes_nothing():
    slots = make_slots("sum")
    y, weight = make_targets("logistic", len(slots))
    engine = TorchEngine(sf.FM(4), slots.layout, random_params(sf.FM(4), slots.layout), batch_size=16, device="cpu")
    before, rows, rates = engine.params(), np.arange(40), np.full(3, 0.1)
    start = slots.start.copy()
    start[-1, 1] = slots.layout.n_features
    nan = weight.copy()
    nan[3] = np.nan
    wrong = [
        ((Slots(start, slots.weight, slots.layout), y, weight, rows, rates), ValueError, "outside of the field"),
        ((Slots(start[:, 1:], slots.weight, slots.layout), y, weight, rows, rates), ValueError, "shape of the layout"),
        ((slots, y[1:], weight, rows, rates), ValueError, "a number for every row"),
        ((slots, y, weight[1:], rows, rates), ValueError, "a number for every row"),
        ((slots, y, nan, rows, rates), ValueError, "finite and at least 0, but a batch sums to nan"),
        ((slots, y, -weight, rows, rates), ValueError, "finite and at least 0"),
        ((slots, y, weight, rows + 1, rates), IndexError, "row index is out of range"),
        ((slots, y, weight, rows - 1, rates), IndexError, "row index is out of range"),
        ((slots, y, weight, rows, rates[1:]), ValueError, "every batch needs a learning rate"),
    ]
    for arguments, kind, message in wrong:
        with pytest.raises(kind, match=message):
            engine.steps(*arguments)
    with pytest.raises(ValueError, match="outside of the field"):
        engine.scores(wrong[0][0][0])
    assert engine.n_steps == 0
    assert_same(engine.params(), before)


@pytest.mark.parametrize("bad", [-1.0, 3.0, 0.5, np.nan, np.inf])
def test_targets_that_are_no_class_are_refused(bad):
    slots = make_slots("sum")
    y = np.zeros(len(slots))
    y[-1] = bad
    engine = TorchEngine(sf.FM(4), slots.layout, stacked(sf.FM(4), slots.layout, 3), "softmax", device="cpu")
    with pytest.raises(ValueError, match="integers from 0 to 2, got"):
        engine.step(slots, y, np.ones(len(y)))
    assert engine.n_steps == 0


def test_settings_that_do_not_fit_are_refused():
    layout = make_slots("sum").layout
    params = random_params(sf.FM(4), layout)
    with pytest.raises(ValueError, match=r"loss must be one of .* got 'hinge'"):
        TorchEngine(sf.FM(4), layout, params, "hinge", device="cpu")
    for loss, parameter in (("squared", 0.5), ("tweedie", 1.0), ("quantile", 1.0), ("huber", np.nan)):
        with pytest.raises(ValueError, match=f"the parameter of the {loss} loss is out of range"):
            TorchEngine(sf.FM(4), layout, params, loss, loss_parameter=parameter, device="cpu")
    with pytest.raises(ValueError, match="softmax needs a bias for each"):
        TorchEngine(sf.FM(4), layout, params, "softmax", device="cpu")
    with pytest.raises(ValueError, match="softmax needs a bias for each"):
        TorchEngine(sf.FM(4), layout, stacked(sf.FM(4), layout, 3), device="cpu")
    with pytest.raises(ValueError, match=r"factors of FM\(k=4\) must have the shape \(\d+, 4\)"):
        TorchEngine(sf.FM(4), layout, random_params(sf.FM(3), layout), device="cpu")


@pytest.mark.parametrize("device", ["cuda:99", "mps:7", "meta", "nonsense", ""])
def test_a_device_that_is_not_there_is_named_with_a_way_out(device):
    with pytest.raises(ValueError, match=f"device '{device}' cannot be used here: .*; use one of cpu"):
        find_device(device)


def test_the_default_device_computes():
    assert find_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_the_threads_of_the_process_stay_as_they_are():
    slots, before = make_slots("sum"), torch.get_num_threads()
    engine = TorchEngine(
        sf.FM(4), slots.layout, random_params(sf.FM(4), slots.layout), threads=before + 3, device="cpu"
    )
    engine.scores(slots)
    engine.step(slots, *make_targets("logistic", len(slots)))
    with pytest.raises(RuntimeError, match="stop"), with_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise RuntimeError("stop")
    assert torch.get_num_threads() == before


def test_matrices_between_too_many_units_are_refused_before_they_are_made():
    fields = tuple(FieldLayout(f"f{i}", 1, (1,) * 1000, tuple(range(1000))) for i in range(3))
    layout = SlotLayout(fields)
    params = random_params(sf.FmFM(400), layout)
    with pytest.raises(ValueError, match=r"training FmFM\(k=400\) with 3,000 units of its fields takes about"):
        TorchEngine(sf.FmFM(400), layout, params, device="cpu")
