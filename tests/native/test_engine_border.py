"""The border of `_core.Engine` and `_core.score`: wrong arrays are errors, never crashes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm import _core
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots
from splinefm.model import workspace
from splinefm.model.cpu import CpuEngine
from splinefm.model.family.formula import formula_scores
from splinefm.model.family.parameters import init_params
from splinefm.model.optimizers import Group
from splinefm.model.scores import predict_scores
from splinefm.model.workspace import make_shape
from support import examples

LAYOUT = SlotLayout((FieldLayout("spline", 9, (4,), (0,)), FieldLayout("list", 5, (1, 1), (0, 1))))
MODELS = [sf.FM, sf.FwFM, sf.LowRankFwFM, sf.FmFM, sf.FFM, sf.HigherOrderFM]
N = 20
NONE = np.zeros(0, np.float32)


def make_slots(seed: int = 0, n: int = N) -> Slots:
    rng = np.random.default_rng(seed)
    start = np.array([0, 9, 9]) + rng.integers(0, [6, 5, 5], (n, 3))
    return Slots(start.astype(np.int32), rng.random((n, 6), np.float32), LAYOUT)


def make_engine(model=sf.FM, k=5, batch_size=8):
    params = init_params(model(k), LAYOUT, np.random.default_rng(0))
    return CpuEngine(model(k), LAYOUT, params, batch_size=batch_size, threads=1)


def arguments(slots):
    rates = np.full(3, 0.1)
    return {
        "start": slots.start,
        "weight": slots.weight,
        "y": np.zeros(N),
        "sample_weight": np.ones(N),
        "rows": np.arange(N),
        "learning_rates": rates,
        "batch_size": 8,
    }


@pytest.mark.parametrize(
    ("loss", "parameter"),
    [
        *(("squared", 0.5), ("logistic", -1.0), ("tweedie", 1.0), ("tweedie", 2.0), ("quantile", 0.0)),
        *(
            ("softmax", 0.5),
            ("quantile", 1.0),
            ("huber", 0.0),
            ("huber", np.inf),
            ("huber", np.nan),
            ("tweedie", np.nan),
        ),
    ],
)
def test_parameters_of_losses_out_of_range_are_refused(loss, parameter):
    params = init_params(sf.FM(4), LAYOUT, np.random.default_rng(0))
    with pytest.raises(ValueError, match=f"the parameter of the {loss} loss is out of range"):
        CpuEngine(sf.FM(4), LAYOUT, params, loss, loss_parameter=parameter)


@pytest.mark.parametrize("loss", ["hinge", "", "Squared", "squared ", "squared\0"])
def test_unknown_losses_are_refused(loss):
    params = init_params(sf.FM(4), LAYOUT, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"loss must be one of logistic, squared, .*, softmax, got"):
        CpuEngine(sf.FM(4), LAYOUT, params, loss)


CHANGES = {
    "dtype": lambda a: a.astype(np.float64 if a.dtype != np.float64 else np.float32),
    "shorter": lambda a: a[:-1].copy(),
    "stride": lambda a: np.repeat(a, 2, axis=0)[::2],
    "dimensions": lambda a: a[None],
    "empty": lambda a: a[:0],
}


@given(
    st.sampled_from(MODELS), st.sampled_from(["start", "weight", "y", "sample_weight"]), st.sampled_from(list(CHANGES))
)
@examples(100)
def test_arrays_of_another_kind_are_refused(model, name, change):
    given_arrays = arguments(make_slots())
    given_arrays[name] = CHANGES[change](given_arrays[name])
    with pytest.raises((TypeError, ValueError)):
        make_engine(model).core.steps(**given_arrays)


@given(st.sampled_from(MODELS), st.integers(-(2**31), 2**31 - 1), st.integers(0, N - 1), st.integers(0, 2))
@examples(100)
def test_table_rows_outside_of_a_field_are_refused(model, start, row, window):
    slots, engine = make_slots(), make_engine(model)
    low, high = [(0, 5), (9, 13), (9, 13)][window]
    slots.start[row, window] = start
    if low <= start <= high:
        engine.core.steps(**arguments(slots))
        return
    before = engine.params()
    with pytest.raises(ValueError, match="outside of the field"):
        engine.core.steps(**arguments(slots))
    assert engine.n_steps == 0  # not even the batches before made a step
    for name, values in engine.params().items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)
    with pytest.raises(ValueError, match="outside of the field"):
        engine.scores(slots)


@pytest.mark.parametrize("model", MODELS)
def test_one_wrong_row_among_many_is_found_before_the_first_step(model, monkeypatch):
    monkeypatch.setattr("splinefm.model.workspace.LARGE", 0)  # by several threads
    slots, n = make_slots(n=10_000), 10_000
    engine = CpuEngine(model(4), LAYOUT, init_params(model(4), LAYOUT, np.random.default_rng(0)), threads=2)
    rates = np.full(-(-n // engine.batch_size), 0.1)
    slots.start[n - 1, 1] = 14
    before = engine.params()
    with pytest.raises(ValueError, match="outside of the field"):
        engine.steps(slots, np.zeros(n), np.ones(n), np.arange(n), rates)
    assert engine.n_steps == 0
    for name, values in engine.params().items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)
    engine.steps(slots, np.zeros(n), np.ones(n), np.arange(n - 1), rates)  # rows that are not asked for do not matter
    assert engine.n_steps == len(rates)


@pytest.mark.parametrize("row", [-1, N, 2**40])
def test_rows_that_are_not_there_are_refused(row):
    rows = arguments(make_slots()) | {"rows": np.array([0, row])}
    with pytest.raises(IndexError, match="out of range"):
        make_engine().core.steps(**rows)


def test_every_batch_needs_a_learning_rate():
    with pytest.raises(ValueError, match="learning rate"):
        make_engine().core.steps(**arguments(make_slots()) | {"learning_rates": np.ones(2)})


@pytest.mark.parametrize("name", ["weight_ptr", "window_unit", "unit_field", "window_ptr", "feature_ptr", "apart"])
@given(data=st.data())
@examples(100)
def test_layouts_that_make_no_sense_are_refused(name, data):
    pointers = {
        known: getattr(LAYOUT, known).copy()
        for known in ("weight_ptr", "window_unit", "unit_field", "window_ptr", "feature_ptr")
    }
    pointers["apart"] = np.array([0, 1], np.int32)
    before = pointers[name].tolist()
    size = data.draw(st.integers(0, len(before) + 2))
    pointers[name] = np.array(data.draw(st.lists(st.integers(-2, 16), min_size=size, max_size=size)), np.int32)
    try:
        shape = _core.Shape(**pointers)
    except ValueError:
        return
    assert isinstance(shape, _core.Shape)


def test_penalties_that_do_not_fit_are_refused():
    engine = make_engine()
    penalty = engine.penalty
    wrong = (
        penalty._replace(l2=penalty.l2[:1]),
        penalty._replace(l2_third=penalty.l2_third[:1]),
        penalty._replace(end=penalty.end + 1),
        penalty._replace(order=penalty.order + 5),
        penalty._replace(group_ptr=penalty.group_ptr + 1),
        penalty._replace(begin=penalty.begin[::-1].copy()),
    )
    for one in wrong:
        with pytest.raises(ValueError, match=r"group|order"):
            engine.core.set_penalty(**one._asdict())


@pytest.mark.parametrize("model", MODELS)
def test_smoothness_may_come_later(model):
    engine = make_engine(model)
    engine.set_penalty(engine.penalty._replace(smoothness=np.ones(2, np.float32)))
    losses = engine.steps(make_slots(), np.ones(N), np.ones(N), np.arange(N), np.full(3, 0.1))
    assert np.isfinite(losses).all()


def score(values, R=NONE, tile=64, **model):
    slots = make_slots()
    weights = _core.WeightArrays(**values, R=R, M=NONE)
    return _core.score(
        shape=make_shape(LAYOUT),
        model=_core.ModelSettings(**model),
        tile=tile,
        weights=weights,
        start=slots.start,
        weight=slots.weight,
        threads=1,
    )


def test_parameters_of_another_size_are_refused():
    values = {name: np.zeros(n, np.float32) for name, n in (("bias", 1), ("linear", 14), ("factors", 56))}
    for name, size in (("bias", 2), ("linear", 13), ("factors", 55), ("factors", 57)):
        wrong = values | {name: np.zeros(size, np.float32)}
        with pytest.raises(ValueError, match="sizes"):
            score(wrong, name="fm", k=4)
    for k, tile in ((3, 64), (12, 64), (4, 3), (4, 0)):
        wrong = values | {"factors": np.zeros(14 * k, np.float32)}
        with pytest.raises(ValueError, match=r"k must|tile"):
            score(wrong, name="fm", k=k, tile=tile)
    wrong_sizes = [("fwfm", 8, 4, 1), ("fwfm", 4, 8, 1), ("fwfm", 8, -8, 1), ("fm", 8, 8, 1)]
    wrong_sizes += [("fwfm", 8, 0, 2), ("fm", 16, 0, 2), ("fwfm", 16, 0, 0), ("fwfm", 16, 0, 2**60)]
    wrong_sizes += [("fm", 16, 0, 2)]  # means of others have one member with longer vectors
    for model, k, third, members in wrong_sizes:
        wrong = values | {"factors": np.zeros(14 * max(k + third, 0), np.float32)}
        R = np.zeros(64, np.float32)
        with pytest.raises(ValueError, match=r"third|triples|members|sizes"):
            score(wrong, R, name=model, k=k, third=third, members=members)


@pytest.mark.parametrize("members", [-1, 0, 2, 3, 17, 2**60])
@pytest.mark.parametrize("model", [sf.FwFM(16), sf.FM(16), sf.LowRankFwFM(16), sf.FmFM(16)], ids=str)
def test_members_that_do_not_fit_are_refused(model, members, monkeypatch):
    make = _core.ModelSettings
    monkeypatch.setattr(workspace, "ModelSettings", lambda **given: make(**(given | {"members": members})))
    with pytest.raises(ValueError, match=r"members|another size|too short"):
        CpuEngine(model, LAYOUT, init_params(model, LAYOUT, np.random.default_rng(0)))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("k", [1, 3, 7, 12, 17, 33, 40])
def test_any_k_is_scored_as_by_the_formula(model, k):
    rng = np.random.default_rng(k)
    layout = SlotLayout((FieldLayout("spline", 3000, (4,), (0,)), FieldLayout("list", 900, (1, 1), (0, 1))))
    start = np.array([0, 3000, 3000]) + rng.integers(0, [2997, 900, 900], (900, 3))
    slots = Slots(start.astype(np.int32), rng.random((900, 6), np.float32), layout)
    params = init_params(model(k), layout, rng, scale=1.0)
    params["linear"][:] = rng.normal(size=layout.n_features)
    for n in (0, 1, 20, 900):  # few rows need not copy the table
        expected = formula_scores(model(k), params, slots[:n])
        np.testing.assert_allclose(predict_scores(model(k), params, slots[:n]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_vectors_may_be_long(model):
    slots, y = make_slots(), np.arange(N) % 2.0
    engine = make_engine(model, k=600, batch_size=N)
    losses = [engine.step(slots, y, np.ones(N), learning_rate=0.01) for _ in range(4)]
    assert losses[-1] < losses[0]
    expected = formula_scores(model(600), engine.params(), slots)
    np.testing.assert_allclose(engine.scores(slots), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", [sf.FwFM, sf.LowRankFwFM, sf.FmFM])
def test_a_short_batch_sees_nothing_of_the_one_before(model, monkeypatch):
    """Shards that a batch does not have keep gradients between fields of an earlier batch."""
    monkeypatch.setattr("splinefm.model.workspace.LARGE", 0)
    monkeypatch.setattr("splinefm.model.workspace.TILE", 16)
    monkeypatch.setattr("splinefm.model.workspace.TILES", {})
    slots, rng = make_slots(n=200), np.random.default_rng(0)
    y, weight = rng.integers(0, 2, 200).astype(float), np.ones(200)
    engines = []
    for used in (False, True):
        engine = make_engine(model, 4, 128)
        assert engine.sizes.block // engine.sizes.shard > 2
        start = {name: values.copy() for name, values in engine._padded.items()}
        if used:  # a step of no length leaves gradients in every shard, and no other trace
            engine.steps(slots, y, weight, np.arange(128), np.zeros(1))
            for name, state in engine._states.items():
                np.testing.assert_array_equal(engine._padded[name], start[name])
                state.m[:], state.v[:] = 0.0, 0.0
        engine.steps(slots, y, weight, np.arange(128, 138), np.full(1, 0.1))
        engines.append(engine)
    between = [name for name in engines[0].values if name.startswith("field")]
    for name in between:  # steps of AdamW are the same whatever their number, up to the corrections
        first, second = (engine._states[name].m for engine in engines)
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-9)


def test_groups_are_those_of_the_fields():
    with pytest.raises(ValueError, match="do not cover"):
        CpuEngine(
            sf.FM(4), LAYOUT, init_params(sf.FM(4), LAYOUT, np.random.default_rng(0)), groups=[[Group(9)], [Group(4)]]
        )
