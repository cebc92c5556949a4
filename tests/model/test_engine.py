"""The CPU engine: the battery of all engines, and what only it has: blocks, tiles, threads, its optimizer state."""

from dataclasses import replace

import numpy as np
import pytest

import splinefm as sf
from battery import (
    GRADIENT,
    MODELS,
    PARTS,
    EngineBattery,
    assert_same,
    each_model,
    make_groups,
    make_slots,
    make_targets,
)
from splinefm._core import MAX_SUMMED
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots
from splinefm.model import workspace
from splinefm.model.cpu import CpuEngine
from splinefm.model.family.formula import formula_scores
from splinefm.model.optimizers import Group, Optimizer
from splinefm.model.scores import BatchScorer, predict_scores
from support import random_params


class TestCpuEngine(EngineBattery):
    def engine(self, *arguments, **options):
        return CpuEngine(*arguments, **options)

    def gradient_of(self, engine):
        return {name: engine.state[name].m.reshape(values.shape) for name, values in engine.values.items()}


ENGINE = TestCpuEngine()


@pytest.mark.parametrize("order", [0, -1, 4])
def test_differences_of_an_order_that_is_not_offered_are_refused(order):
    layout = SlotLayout((FieldLayout("a", 9, (1,), (0,)),))
    with pytest.raises(ValueError, match=f"order of differences must be from 1 to 3, got {order}"):
        CpuEngine(sf.FM(2), layout, random_params(sf.FM(2), layout), groups=[[Group(9, smoothness=1.0, order=order)]])


def test_groups_that_do_not_cover_a_field_are_refused():
    layout = make_slots("sum").layout
    groups = [[Group(field.n_features)] for field in layout.fields]
    groups[2] = [Group(3)]
    with pytest.raises(ValueError, match="groups of field 'country' do not cover its"):
        CpuEngine(sf.FM(4), layout, random_params(sf.FM(4), layout), groups=groups)


def small_blocks(monkeypatch):
    monkeypatch.setattr(workspace, "BLOCK_BYTES", 1)
    monkeypatch.setattr(workspace, "LARGE", 0)
    monkeypatch.setattr(workspace, "TILES", {})
    monkeypatch.setattr(workspace, "TILE", 4)


@each_model
def test_blocks_of_a_batch_do_not_matter(model, monkeypatch):
    slots = make_slots("identity", 150)
    params = random_params(model, slots.layout)
    y, weight = make_targets("logistic", len(slots))
    groups = make_groups(slots.layout, 2, False)
    one, loss = ENGINE.one_step(model, "logistic", params, slots, y, weight, groups=groups)
    small_blocks(monkeypatch)
    engine = CpuEngine(model, slots.layout, params, "logistic", GRADIENT, groups, len(slots), threads=1)
    assert engine.sizes.block * 4 < len(slots) or (isinstance(model, sf.FFM) and engine.sizes.shard * 4 < len(slots))
    assert engine.step(slots, y, weight) == pytest.approx(loss, rel=1e-6)
    assert_same(ENGINE.gradient_of(engine), one, rtol=1e-4, atol=1e-6)


@each_model
@pytest.mark.parametrize("large", [0, workspace.LARGE])
def test_rows_that_a_batch_touches_once_get_the_gradient_of_two_halves(model, large, monkeypatch):
    monkeypatch.setattr(workspace, "LARGE", large)  # shards of 16 rows, or one
    rng, sizes = np.random.default_rng(0), (500, 9, 300, 4, 50)
    widths = ((1,), (4,), (1, 1), (1,), (1,))
    fields = [FieldLayout(f"f{n}", n, w, tuple(range(len(w)))) for n, w in zip(sizes, widths, strict=True)]
    layout = SlotLayout(tuple(fields))
    start = np.array([0, 500, 509, 509, 809, 813]) + rng.integers(0, [500, 6, 300, 300, 4, 50], (90, 6))
    slots = Slots(start.astype(np.int32), rng.normal(size=(90, 9)).astype(np.float32), layout)
    touched = np.bincount(start[:, 0])
    assert (touched == 1).sum() > 20 and (touched > 1).sum() > 5
    params = random_params(model, layout)
    groups = [[Group(400, l2=0.1), Group(100, l2=0.7, l2_linear=0.3)], *([Group(n)] for n in sizes[1:])]
    y, weight = make_targets("logistic", 90)
    gradient, loss = ENGINE.one_step(model, "logistic", params, slots, y, weight, groups=groups)
    twice = np.tile(np.arange(90), 2)
    halves, same = ENGINE.one_step(model, "logistic", params, slots[twice], y[twice], weight[twice] / 2, groups=groups)
    assert same == pytest.approx(loss, rel=1e-6)
    assert_same(gradient, halves, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", MODELS[:2], ids=str)
@pytest.mark.parametrize("widths", [(4,), (4, 4), (4, 2)], ids=str)
def test_a_spline_field_too_large_to_be_summed_near_by_has_the_same_gradient(model, widths):
    rng, gradients = np.random.default_rng(0), []
    n_weights = sum(widths) + 1
    weight = rng.normal(size=(60, n_weights)) * (rng.random((60, n_weights)) < 0.7)
    start = rng.integers(0, [*([6] * len(widths)), 5], (60, len(widths) + 1))
    for size in (10, MAX_SUMMED + 1):
        layout = SlotLayout((FieldLayout("x", size, widths, (0,) * len(widths)), FieldLayout("c", 5, (1,), (0,))))
        used = np.r_[0:10, size : size + 5]
        small = random_params(model, SlotLayout((FieldLayout("x", 10, widths, (0,) * len(widths)), layout.fields[1])))
        params = random_params(model, layout)
        for name in ("linear", "factors"):
            params[name][used] = small[name]
        params |= {name: values for name, values in small.items() if name not in ("linear", "factors")}
        rows = start + np.r_[[0] * len(widths), size]
        slots = Slots(rows.astype(np.int32), weight.astype(np.float32), layout)
        gradient, _ = ENGINE.one_step(model, "logistic", params, slots, *make_targets("logistic", 60))
        gradients.append({name: g[used] if name in ("linear", "factors") else g for name, g in gradient.items()})
    assert np.abs(gradients[0]["factors"]).max() > 1e-3
    assert_same(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [*MODELS, *PARTS[:2]], ids=str)
@pytest.mark.parametrize("small", [False, True])
def test_threads_do_not_change_a_single_bit(model, small, monkeypatch):
    monkeypatch.setattr(workspace, "LARGE", 0)
    if small:
        small_blocks(monkeypatch)
    slots = make_slots("identity", 300)
    start = random_params(model, slots.layout)
    groups = make_groups(slots.layout, 2, False)
    results = []
    for threads in (1, 1, 2, 3):
        optimizer = Optimizer(learning_rate=0.05, weight_decay=0.01, ema=0.8)
        engine = CpuEngine(model, slots.layout, start, "logistic", optimizer, groups, 200, threads)
        rng = np.random.default_rng(0)
        step_losses = []
        for seed in range(4):
            rows = rng.permutation(len(slots))[:200]
            step_losses.append(engine.step(slots, *make_targets("logistic", len(slots), seed), rows=rows))
        averaged = {f"averaged {name}": values for name, values in engine.params(averaged=True).items()}
        results.append({**engine.params(), **averaged, "losses": step_losses})
    for result in results[1:]:
        assert_same(result, results[0])
    assert (results[0]["factors"] != start["factors"]).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "sgd"}, 'optimizer must be "adamw" or "adagrad", got \'sgd\''),
        ({"beta1": 1.0}, "beta1 must be at least 0 and below 1, got 1.0"),
        ({"beta2": -0.1}, "beta2 must be at least 0 and below 1"),
        ({"ema": 1.5}, "ema must be at least 0 and below 1"),
        ({"learning_rate": -1.0}, "learning_rate must be at least 0, got -1.0"),
        ({"learning_rate": np.nan}, "learning_rate must be at least 0"),
        ({"weight_decay": np.inf}, "weight_decay must be at least 0"),
        ({"eps": -1e-8}, "eps must be above 0"),
    ],
)
def test_bad_settings_of_an_optimizer_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Optimizer(**options)


@each_model
@pytest.mark.parametrize("k", [None, 5])  # 5 numbers are padded to 8
def test_a_scorer_scores_batch_after_batch(model, k):
    model = model if k is None else replace(model, k=k * model.members)
    slots = make_slots("identity", 60)
    params = random_params(model, slots.layout)
    scorer = BatchScorer(model, params, slots.layout, threads=1)
    for batch in (slots[:1], slots[:50], slots[50:], slots[:0], slots[:1]):
        np.testing.assert_array_equal(scorer(batch), predict_scores(model, params, batch, 1))
        np.testing.assert_allclose(scorer(batch), formula_scores(model, params, batch), rtol=1e-4, atol=1e-4)


def test_batches_with_much_work_are_divided_among_threads():
    layout = make_slots("sum").layout
    width = layout.n_units + layout.n_weights  # upper bound of the vectors per row
    for batch_size in (20, 32, 64, 128, 1000):
        small, large = (workspace.make_sizes(sf.FwFM(k, third=k), layout, batch_size) for k in (8, 4096))
        assert large.shard < batch_size and large.shard % large.tile == 0 and large.shard % 16 == 0
        if 16 * batch_size * width < workspace.LARGE:
            assert small.block == small.shard
