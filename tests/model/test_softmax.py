"""Several scores per row in the CPU engine: the softmax loss, whose classes have parameters of their own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from battery import (
    GRADIENT,
    MODELS,
    active_features,
    assert_same,
    each_model,
    finite_difference,
    in_double,
    make_groups,
    make_slots,
    problems,
)
from splinefm.encode.slots import FieldLayout, SlotLayout
from splinefm.model import workspace
from splinefm.model.cpu import CpuEngine
from splinefm.model.family.formula import formula_scores
from splinefm.model.family.parameters import count_outputs, each_output, init_params, param_shapes
from splinefm.model.optimizers import Group, Optimizer, make_penalty
from splinefm.model.scores import BatchScorer, predict_scores
from support import examples, random_params

N_CLASSES = 3


def stacked_params(model, layout, n_classes=N_CLASSES, seed=0):
    parts = [random_params(model, layout, 7 * seed + c) for c in range(n_classes)]
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def make_labels(n, n_classes=N_CLASSES, seed=0):
    """Classes and sample weights other than 0 and 1."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, n_classes, n).astype(np.float64), rng.uniform(0.2, 3.0, n)


def mean_loss(model, params, slots, y, weight):
    score = formula_scores(model, params, slots)
    each = np.log(np.exp(score).sum(axis=1)) - score[np.arange(len(y)), y.astype(int)]
    return (weight * each).sum() / weight.sum()


def one_step(model, params, slots, y, weight, groups=None, batch_size=None, threads=1):
    engine = CpuEngine(
        model, slots.layout, params, "softmax", GRADIENT, groups, batch_size or max(1, len(slots)), threads
    )
    value = engine.step(slots, y, weight)
    return {name: engine.state[name].m.reshape(values.shape) for name, values in engine.values.items()}, value


@each_model
@pytest.mark.parametrize("reduction", ["sum", "identity"])
def test_scores_of_all_classes_are_those_of_the_formula(model, reduction):
    slots = make_slots(reduction)
    params = stacked_params(model, slots.layout)
    expected = formula_scores(model, params, slots)
    assert expected.shape == (len(slots), N_CLASSES) and expected.std(axis=0).min() > 0.1
    for scores in (
        CpuEngine(model, slots.layout, params, "softmax", threads=1).scores(slots),
        predict_scores(model, params, slots, 1),
    ):
        assert scores.dtype == np.float32 and scores.flags.c_contiguous
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


@each_model
def test_scores_of_a_class_are_those_of_its_parameters_alone(model):
    slots = make_slots("identity", 1_700)
    params = stacked_params(model, slots.layout)
    whole = predict_scores(model, params, slots, 1)
    for threads in (2, 3):
        np.testing.assert_array_equal(predict_scores(model, params, slots, threads), whole)
    for c, own in enumerate(each_output(params)):
        np.testing.assert_array_equal(predict_scores(model, own, slots, 1), whole[:, c])
    scorer = BatchScorer(model, params, slots.layout, threads=1)  # few rows are copied to a small table
    for rows in (slice(0, 1), slice(3, 5), slice(0, 0)):
        np.testing.assert_array_equal(scorer(slots[rows]), whole[rows])


@examples(60)
@given(problems(), st.integers(2, 7))
def test_the_gradient_gives_the_slope_in_any_direction(problem, n_classes):
    model, slots, rng = problem
    params = stacked_params(model, slots.layout, n_classes, int(rng.integers(1000)))
    y, weight = make_labels(len(slots), n_classes, rng)
    gradient, value = one_step(model, params, slots, y, weight)
    exact = in_double(params)
    assert value == pytest.approx(mean_loss(model, exact, slots, y, weight), rel=1e-4, abs=1e-5)
    for name in params:
        direction = rng.normal(size=params[name].shape)
        ends = [mean_loss(model, exact | {name: exact[name] + h * direction}, slots, y, weight) for h in (1e-5, -1e-5)]
        slope = (ends[0] - ends[1]) / 2e-5
        size = np.abs(gradient[name] * direction).sum()
        assert (gradient[name] * direction).sum() == pytest.approx(slope, rel=1e-3, abs=1e-4 * size + 1e-5), name


@each_model
def test_gradients_are_those_of_the_formula(model):
    slots = make_slots("identity")
    params = stacked_params(model, slots.layout)
    y, weight = make_labels(len(slots))
    gradient, value = one_step(model, params, slots, y, weight)
    exact, rng = in_double(params), np.random.default_rng(0)
    assert value == pytest.approx(mean_loss(model, exact, slots, y, weight), rel=1e-5)
    rows, checked = np.flatnonzero(active_features(slots)), 0
    for name, values in params.items():
        for c in range(N_CLASSES):
            for _ in range(3):
                index = (c, *(int(rng.integers(size)) for size in values.shape[1:]))
                if name in ("linear", "factors"):
                    index = (c, int(rng.choice(rows)), *index[2:])
                expected = finite_difference(lambda p: mean_loss(model, p, slots, y, weight), exact, name, index)
                assert gradient[name][index] == pytest.approx(expected, rel=1e-3, abs=1e-5), (name, index)
                checked += abs(expected) > 1e-4
    assert checked > 10


@each_model
def test_two_classes_of_which_one_scores_zero_are_a_logistic_regression(model):
    slots = make_slots("sum")
    own = random_params(model, slots.layout)
    params = {name: np.stack([np.zeros_like(values), values]) for name, values in own.items()}
    y, weight = make_labels(len(slots), 2)
    gradient, value = one_step(model, params, slots, y, weight)
    logistic = CpuEngine(model, slots.layout, own, "logistic", GRADIENT, batch_size=len(slots), threads=1)
    assert value == pytest.approx(logistic.step(slots, y, weight), rel=1e-6)
    for name, values in own.items():
        expected = logistic.state[name].m.reshape(values.shape)
        np.testing.assert_allclose(gradient[name][1], expected, rtol=1e-4, atol=1e-7, err_msg=name)
    for name in ("bias", "linear"):  # whose slopes do not depend on their values
        np.testing.assert_allclose(gradient[name][0], -gradient[name][1], rtol=1e-4, atol=1e-7, err_msg=name)


@each_model
def test_slopes_of_a_row_sum_to_zero_over_the_classes(model):
    slots = make_slots("sum")
    gradient, _ = one_step(model, stacked_params(model, slots.layout, 5), slots, *make_labels(len(slots), 5))
    for name in ("bias", "linear"):
        np.testing.assert_allclose(gradient[name].sum(axis=0), 0.0, atol=1e-6)


@pytest.mark.parametrize("model", [MODELS[0], MODELS[1], MODELS[4]], ids=str)
def test_every_class_has_the_penalties_of_one(model):
    slots = make_slots("sum")[:12]
    params, groups = stacked_params(model, slots.layout), make_groups(slots.layout, 2, False)
    y, weight = make_labels(len(slots))
    with_penalty, value = one_step(model, params, slots, y, weight, groups)
    without, same = one_step(model, params, slots, y, weight)
    assert value == same
    for c, own in enumerate(each_output(params)):
        engines = [
            CpuEngine(model, slots.layout, own, "logistic", GRADIENT, given, len(slots), 1) for given in (groups, None)
        ]
        for engine in engines:
            engine.step(slots, y / 2, weight)
        for name in ("linear", "factors"):
            alone = engines[0].state[name].m - engines[1].state[name].m
            found = (with_penalty[name][c] - without[name][c]).reshape(-1)
            np.testing.assert_allclose(found, alone, rtol=1e-3, atol=1e-5, err_msg=name)
            assert np.abs(alone).max() > 0.01


@each_model
@pytest.mark.parametrize("small", [False, True])
def test_threads_do_not_change_a_single_bit(model, small, monkeypatch):
    monkeypatch.setattr(workspace, "LARGE", 0)
    if small:
        monkeypatch.setattr(workspace, "BLOCK_BYTES", 1)
    slots = make_slots("identity", 300)
    start, groups = stacked_params(model, slots.layout, 4), make_groups(slots.layout, 2, False)
    results = []
    for threads in (1, 1, 2, 3):
        optimizer = Optimizer(learning_rate=0.05, weight_decay=0.01, ema=0.8)
        engine = CpuEngine(model, slots.layout, start, "softmax", optimizer, groups, 200, threads)
        rng, losses = np.random.default_rng(0), []
        for seed in range(4):
            rows = rng.permutation(len(slots))[:200]
            losses.append(engine.step(slots, *make_labels(len(slots), 4, seed), rows=rows))
        averaged = {f"averaged {name}": values for name, values in engine.params(averaged=True).items()}
        results.append({**engine.params(), **averaged, "losses": losses})
    for result in results[1:]:
        assert_same(result, results[0])
    assert (results[0]["factors"] != start["factors"]).any(axis=(1, 2)).all()


@each_model
def test_blocks_of_a_batch_do_not_matter(model, monkeypatch):
    slots = make_slots("identity", 150)
    params, groups = stacked_params(model, slots.layout), make_groups(slots.layout, 2, False)
    y, weight = make_labels(len(slots))
    one, loss = one_step(model, params, slots, y, weight, groups)
    monkeypatch.setattr(workspace, "BLOCK_BYTES", 1)
    monkeypatch.setattr(workspace, "LARGE", 0)
    monkeypatch.setattr(workspace, "TILES", {})
    sizes = workspace.make_sizes(model, slots.layout, len(slots), N_CLASSES)
    assert sizes.block * 4 < len(slots) or (isinstance(model, sf.FFM) and sizes.shard * 4 < len(slots))
    many, same = one_step(model, params, slots, y, weight, groups)
    assert same == pytest.approx(loss, rel=1e-6)
    assert_same(many, one, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [sf.FM(5), sf.FwFM(4), sf.FFM(3)], ids=str)  # 5 numbers are padded to 8
@pytest.mark.parametrize("name", ["adamw", "adagrad"])
def test_a_grown_engine_keeps_what_every_class_has_learned(model, name):
    before = make_slots("sum")
    fields = tuple(
        FieldLayout(field.name, field.n_features + 3, field.widths, field.units) for field in before.layout.fields
    )
    layout = SlotLayout(fields)
    groups = [[Group(field.n_features, l2=0.1)] for field in layout.fields]
    optimizer = Optimizer(name, learning_rate=0.05, ema=0.8)
    params = stacked_params(model, before.layout)
    engines = [CpuEngine(model, before.layout, params, "softmax", optimizer, batch_size=40, threads=1) for _ in "ab"]
    y, weight = make_labels(len(before))
    for engine in engines:
        engine.step(before, y, weight)
    engines[1].grow(layout, groups, np.random.default_rng(0))
    after = before.grown(layout)
    np.testing.assert_array_equal(engines[1].scores(after), engines[0].scores(before))
    engines[0].set_penalty(make_penalty(before.layout, [[Group(f.n_features, l2=0.1)] for f in before.layout.fields]))
    assert engines[1].step(after, y, weight) == engines[0].step(before, y, weight)
    np.testing.assert_allclose(engines[1].scores(after), engines[0].scores(before), rtol=1e-4, atol=1e-5)
    averaged = [
        engine.scores_of(engine.params(averaged=True), slots)
        for engine, slots in zip(engines, (before, after), strict=True)
    ]
    np.testing.assert_allclose(*averaged, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", range(N_CLASSES))
def test_a_parameter_that_is_not_finite_is_seen(bad, where):
    slots = make_slots("sum")
    params = stacked_params(sf.FM(4), slots.layout)
    params["bias"][where] = bad
    y = np.full(len(slots), where, np.float64)
    gradient, value = one_step(sf.FM(4), params, slots, y, np.ones(len(y)))
    assert not np.isfinite(value)
    if np.isnan(bad) or bad > 0:  # exp(-inf) is 0: the other classes are still defined
        assert not np.isfinite(gradient["bias"]).any()


@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_a_shift_of_all_scores_changes_no_loss(shift):
    slots = make_slots("sum")
    params = stacked_params(sf.FM(4), slots.layout)
    y, weight = make_labels(len(slots))
    one, loss = one_step(sf.FM(4), params, slots, y, weight)
    params["bias"] += np.float32(shift)
    other, same = one_step(sf.FM(4), params, slots, y, weight)
    assert same == pytest.approx(loss, rel=2e-3)
    np.testing.assert_allclose(one["bias"], other["bias"], atol=1e-3)


@pytest.mark.parametrize("bad", [-1.0, 3.0, 0.5, np.nan, np.inf, 1e300])
def test_targets_that_are_no_class_are_refused_before_a_step(bad):
    slots = make_slots("sum")
    y, weight = make_labels(len(slots))
    y[-1] = bad
    engine = CpuEngine(sf.FM(4), slots.layout, stacked_params(sf.FM(4), slots.layout), "softmax", threads=1)
    with pytest.raises(ValueError, match="integers from 0 to 2, got"):
        engine.step(slots, y, weight)
    assert engine.n_steps == 0


def test_classes_without_softmax_and_softmax_without_classes_are_refused():
    layout = make_slots("sum").layout
    with pytest.raises(ValueError, match="softmax needs a bias for each"):
        CpuEngine(sf.FM(4), layout, stacked_params(sf.FM(4), layout), "logistic", threads=1)
    with pytest.raises(ValueError, match="softmax needs a bias for each"):
        CpuEngine(sf.FM(4), layout, random_params(sf.FM(4), layout), "softmax", threads=1)


@each_model
def test_initial_parameters_of_classes_differ_and_have_the_shapes_of_the_model(model):
    layout = make_slots("sum").layout
    params = init_params(model, layout, np.random.default_rng(0), n_outputs=4)
    assert {name: values.shape for name, values in params.items()} == param_shapes(model, layout, 4)
    assert count_outputs(params) == 4 and count_outputs(each_output(params)[0]) == 1
    assert (params["factors"][0] != params["factors"][1]).any()
