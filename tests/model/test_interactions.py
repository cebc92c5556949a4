"""Columns that must not interact: the rules, and that every model, engine and path keeps them exactly."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.interactions import Interactions
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots
from splinefm.model.cpu import CpuEngine
from splinefm.model.engine import start_engine
from splinefm.model.family.formula import formula_scores
from splinefm.model.family.parameters import init_params, mean_model
from splinefm.model.family.separation import constrained, is_apart, keep_apart
from splinefm.model.optimizers import Optimizer
from support import examples

COLUMNS = tuple("abcde")
SEPARABLE = [sf.FwFM(4), sf.FwFM(6, members=3), sf.FmFM(3), sf.FmFM((2, 3, 4, 1)), sf.FFM(3)]
OTHERS = [sf.FM(4), sf.LowRankFwFM(4), sf.HigherOrderFM(4, 3), sf.FwFM(4, third=2)]


def mixed_difference(score, rows, f, e, layout):
    """score(a, b) - score(a', b) - score(a, b') + score(a', b') of fields f and e, for pairs of rows."""

    def swapped(*fields):
        start, weight = rows.start[::2].copy(), rows.weight[::2].copy()
        for field in fields:
            windows = slice(*layout.window_ptr[field : field + 2])
            weights = slice(layout.weight_ptr[windows.start], layout.weight_ptr[windows.stop])
            start[:, windows], weight[:, weights] = rows.start[1::2, windows], rows.weight[1::2, weights]
        return score(Slots(start, weight, layout))

    return swapped() - swapped(f) - swapped(e) + swapped(f, e)


@st.composite
def layouts(draw):
    """Four fields, some with several windows and units, and pairs of them that are apart."""
    fields = []
    for f in range(4):
        widths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
        new = draw(st.lists(st.booleans(), min_size=len(widths) - 1, max_size=len(widths) - 1))
        units = np.concatenate([[0], np.cumsum(new)]).astype(int).tolist()
        fields.append(FieldLayout(f"f{f}", max(widths) + draw(st.integers(1, 4)), tuple(widths), tuple(units)))
    pairs = list(itertools.combinations(range(4), 2))
    apart = draw(st.sets(st.sampled_from(pairs), min_size=1))
    return SlotLayout(tuple(fields), tuple(sorted(apart)))


def draw_slots(layout, n, rng):
    window_field = layout.unit_field[layout.window_unit]
    last = layout.feature_ptr[window_field + 1] - np.diff(layout.weight_ptr)
    start = rng.integers(layout.feature_ptr[window_field], last + 1, (n, layout.n_windows)).astype(np.int32)
    return Slots(start, rng.uniform(0.2, 1.0, (n, layout.n_weights)).astype(np.float32), layout)


def trained(model, layout, rng, engine="cpu", optimizer="adamw", steps=6, outputs=1):
    loss = "squared" if outputs == 1 else "softmax"
    params = init_params(model, layout, rng, scale=1.0, n_outputs=outputs)
    made = start_engine(engine, "cpu" if engine == "torch" else None, model, layout, params, loss,
                        Optimizer(optimizer, 0.05, ema=0.5), None, 16, 2, 0.0)  # fmt: skip
    n = 16 * steps
    y = rng.normal(size=n) if outputs == 1 else rng.integers(0, outputs, n).astype(float)
    made.steps(draw_slots(layout, n, rng), y, np.ones(n), np.arange(n), np.full(steps, 0.05))
    return made.params(averaged=True)


def scale_of(model, params, layout, rng):
    return np.abs(formula_scores(model, params, draw_slots(layout, 20, rng))).max() + 1.0


class TestTraining:
    @pytest.mark.parametrize("model", SEPARABLE, ids=str)
    @examples(200)
    @given(layouts(), st.integers(0, 2**32 - 1), st.sampled_from(["adamw", "adagrad"]))
    def test_fields_apart_add_nothing_together(self, model, layout, seed, optimizer):
        rng = np.random.default_rng(seed)
        params = trained(model, layout, rng, optimizer=optimizer)
        assert is_apart(model, params, layout)
        rows = draw_slots(layout, 20, rng)
        for f, e in layout.apart:
            found = mixed_difference(lambda slots: formula_scores(model, params, slots), rows, f, e, layout)
            assert np.abs(found).max() <= 1e-12 * scale_of(model, params, layout, rng)

    @pytest.mark.parametrize("model", SEPARABLE, ids=str)
    def test_without_the_constraint_they_would(self, model):
        layout = SlotLayout(tuple(FieldLayout(name, 5, (1,), (0,)) for name in "abcd"), ((0, 2), (1, 3)))
        free, rng = SlotLayout(layout.fields), np.random.default_rng(0)
        params = trained(model, free, rng)
        assert not is_apart(model, params, layout)
        found = mixed_difference(lambda slots: formula_scores(model, params, slots), draw_slots(free, 40, rng), 0, 2,
                                 free)  # fmt: skip
        assert np.abs(found).max() > 1e-3

    @pytest.mark.parametrize("model", SEPARABLE, ids=str)
    def test_other_pairs_still_learn(self, model):
        layout = SlotLayout(tuple(FieldLayout(name, 5, (1,), (0,)) for name in "abcd"), ((0, 2), (1, 3)))
        rng = np.random.default_rng(0)
        params = trained(model, layout, rng)
        rows = draw_slots(layout, 40, rng)
        found = mixed_difference(lambda slots: formula_scores(model, params, slots), rows, 0, 1, layout)
        assert np.abs(found).max() > 1e-3

    @pytest.mark.parametrize("model", SEPARABLE, ids=str)
    def test_the_torch_engine_takes_the_same_steps(self, model):
        pytest.importorskip("torch")
        layout = SlotLayout(tuple(FieldLayout(name, 5, (2,), (0,)) for name in "abcd"), ((0, 2), (0, 3)))
        cpu, other = (trained(model, layout, np.random.default_rng(0), engine) for engine in ("cpu", "torch"))
        assert is_apart(model, other, layout)
        for name in cpu:
            np.testing.assert_allclose(cpu[name], other[name], atol=1e-4, err_msg=name)

    @pytest.mark.parametrize("model", [sf.FwFM(4), sf.FmFM(3), sf.FFM(3)], ids=str)
    def test_every_class_keeps_them(self, model):
        layout = SlotLayout(tuple(FieldLayout(name, 5, (1,), (0,)) for name in "abcd"), ((0, 2),))
        params = trained(model, layout, np.random.default_rng(0), outputs=3)
        assert params["factors"].ndim == 3 and is_apart(model, params, layout)

    @pytest.mark.parametrize("model", [sf.FwFM(4), sf.FmFM(3), sf.FFM(3)], ids=str)
    def test_a_mean_of_models_and_new_features_keep_them(self, model):
        layout = SlotLayout(tuple(FieldLayout(name, 5, (1,), (0,)) for name in "abcd"), ((0, 2),))
        members = [trained(model, layout, np.random.default_rng(seed)) for seed in (0, 1)]
        whole, params = mean_model(model, members, layout)
        assert is_apart(whole, params, layout)
        engine = CpuEngine(whole, layout, params, "squared")
        larger = SlotLayout((FieldLayout("a", 9, (1,), (0,)), *layout.fields[1:]), layout.apart)
        from splinefm.model.optimizers import Group

        engine.grow(larger, [[Group(field.n_features)] for field in larger.fields], np.random.default_rng(2))
        rng = np.random.default_rng(3)
        engine.steps(draw_slots(larger, 32, rng), rng.normal(size=32), np.ones(32), np.arange(32), np.full(1, 0.05), 32)
        assert is_apart(whole, engine.params(), larger)

    @pytest.mark.parametrize("model", OTHERS, ids=str)
    def test_models_without_a_place_for_it_are_refused(self, model):
        layout = SlotLayout(tuple(FieldLayout(name, 5, (1,), (0,)) for name in "abcd"), ((0, 2),))
        with pytest.raises(ValueError, match="cannot keep fields apart; use FwFM, FmFM or FFM"):
            init_params(model, layout, np.random.default_rng(0))

    def test_pairs_of_fields_are_checked_by_the_loops(self):
        layout = SlotLayout((FieldLayout("a", 5, (1,), (0,)),) * 2, ((0, 2),))
        with pytest.raises(ValueError, match="pairs f < e of fields"):
            CpuEngine(sf.FM(4), layout, init_params(sf.FM(4), SlotLayout(layout.fields), np.random.default_rng(0)))


names = st.sampled_from(COLUMNS)
groups = st.lists(st.sets(names, min_size=1), min_size=1, max_size=3)


class TestRules:
    @examples(300)
    @given(groups, st.sets(names, min_size=1, max_size=3))
    def test_sets_mean_what_they_mean_in_scikit_learn(self, sets, together):
        from sklearn.ensemble import HistGradientBoostingRegressor

        numbers = [{COLUMNS.index(name) for name in each} for each in sets]
        other = HistGradientBoostingRegressor(interaction_cst=numbers)
        theirs = other._check_interaction_cst(len(COLUMNS))
        allowed = any({COLUMNS.index(name) for name in together} <= set(each) for each in theirs)
        assert Interactions.of(sets).allows(together) == (allowed or len(together) == 1)

    @examples(300)
    @given(
        st.one_of(groups, st.sampled_from(["pairwise", "no_interactions"])),
        st.lists(st.sets(names, min_size=1, max_size=3), max_size=6),
    )
    def test_pairs_of_fields_are_apart_where_their_columns_are(self, given_, columns):
        rules = Interactions.of(given_)
        pairs = itertools.combinations(range(len(columns)), 2)
        expected = tuple((f, e) for f, e in pairs if not rules.allows(columns[f] | columns[e]))
        assert rules.apart(columns) == expected

    @pytest.mark.parametrize("wrong", ["pairs", [], ["ab"], [[]], [{1, 2}], {"a": "b"}, 3, [{"a"}, None]])
    def test_anything_else_is_told(self, wrong):
        with pytest.raises(ValueError, match="interaction_cst"):
            Interactions.of(wrong)

    def test_a_column_that_is_not_there_is_told(self):
        schema = sf.Schema([sf.Numerical("age"), sf.Numerical("income")])
        with pytest.raises(ValueError, match=r"interaction_cst: no column 'agee'.*age"):
            schema.with_interactions([{"agee", "income"}])

    @pytest.mark.parametrize("suffix", [".toml", ".json"])
    @pytest.mark.parametrize("given_", ["pairwise", [["a", "b"], ["c"]]])
    def test_schema_files_have_them(self, suffix, given_, tmp_path):
        schema = sf.Schema([sf.Numerical("a"), sf.Numerical("b"), sf.Categorical("c")], interaction_cst=given_)
        schema.save(tmp_path / f"s{suffix}")
        again = sf.Schema.load(tmp_path / f"s{suffix}")
        assert again == schema != schema.with_interactions(None)
        assert again.interactions.to_value() == given_
        assert "# interactions: " in str(again)

    def test_other_fields_keep_the_constraint(self):
        schema = sf.Schema([sf.Numerical("a"), sf.Numerical("b"), sf.Categorical("c")], interaction_cst=[{"a", "b"}])
        assert schema.without("c").interactions == schema.interactions
        assert schema.with_bases({"a": sf.BSpline(3)}).interactions == schema.interactions
        assert schema.with_shapes({"a": "increasing"}).interactions == schema.interactions

    @pytest.mark.parametrize("model", OTHERS, ids=str)
    def test_other_models_become_an_fwfm(self, model):
        schema = sf.Schema([sf.Numerical("a"), sf.Numerical("b"), sf.Categorical("c")], interaction_cst=[{"a", "b"}])
        assert constrained(model, schema) == sf.FwFM(4)
        assert constrained(model, schema.with_interactions(None)) == model
        assert constrained(model, schema.with_interactions([{"a", "b", "c"}])) == model

    def test_pairwise_allows_all_pairs_but_no_products_of_three(self):
        schema = sf.Schema([sf.Numerical("a"), sf.Numerical("b"), sf.Categorical("c")], interaction_cst="pairwise")
        assert constrained(sf.FM(4), schema) == sf.FM(4)
        assert constrained(sf.FwFM(4, third=2), schema) == sf.FwFM(4)
        crossed = schema.having([*schema.fields, sf.Cross("a", "b")])
        assert Interactions.of("pairwise").apart([item.columns for item in crossed.resolved]) == ((2, 3),)

    def test_what_is_between_pairs_is_set_to_zero_in_place(self):
        layout = SlotLayout(tuple(FieldLayout(name, 2, (1,), (0,)) for name in "abc"), ((0, 1),))
        params = {"factors": np.ones((6, 6), np.float32)}
        keep_apart(sf.FFM(2), params, layout)
        assert params["factors"][:, ::2].tolist() == [[1, 0, 1]] * 2 + [[0, 1, 1]] * 2 + [[1, 1, 1]] * 2
