"""Interaction constraints from the table to every score: fits, searches, updates, files, exports."""

import json
from dataclasses import replace

import numpy as np
import pytest

import splinefm as sf
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.cross import SEPARATOR, VALUES
from splinefm.encode.tables.open import open_table
from splinefm.model.family.formula import formula_scores
from splinefm.model.family.separation import is_apart
from splinefm.search.crosses import find_candidates
from splinefm.search.recurring import find_recurring
from splinefm.search.screening import Unexplained
from splinefm.search.search import MODELS, MORE_MODELS, Search, find_open_choices
from splinefm.search.setting import Setting
from splinefm.store.model_file import ModelFileError, describe_fitted, restore_fitted
from splinefm.train.chunks import prepare_chunks
from splinefm.train.rows import LabeledTable

GROUPS = [{"age", "city"}, {"income", "shop"}]
FORBIDDEN = [("age", "income"), ("age", "shop"), ("city", "income"), ("city", "shop")]
FAST = sf.Training(epochs=2, effort="fast", threads=1)


def draw_table(n=400, seed=0, cities="xyz"):
    rng = np.random.default_rng(seed)
    age, income = rng.normal(size=n), rng.normal(size=n)
    city, shop = rng.choice(list(cities), n), rng.choice(list("uvw"), n)
    y = 2.0 * age * income + 3.0 * (city == "x") * (shop == "u") + age * (city == "y") + rng.normal(size=n) * 0.1
    return {"age": age, "income": income, "city": city, "shop": shop, "y": y}


TABLE = draw_table()


def mixed_differences(score, seed=0, n=50, special=True):
    """For every forbidden pair of columns: the largest |score(a, b) - score(a', b) - score(a, b') + score(a', b')|."""
    rng = np.random.default_rng(seed)

    def draw():
        values = {
            "age": list(rng.normal(0.0, 3.0, n)),
            "income": list(rng.normal(0.0, 3.0, n)),
            "city": list(rng.choice(list("xyz?"), n)),
            "shop": list(rng.choice(list("uvw?"), n)),
        }
        if special:
            for name in values:
                values[name][int(rng.integers(n))] = None
        return values

    first, second = draw(), draw()
    found = {}
    for f, e in FORBIDDEN:
        swaps = [score({**first, **{name: second[name] for name in names}}) for names in ((), (f,), (e,), (f, e))]
        found[f, e] = float(np.abs(swaps[0] - swaps[1] - swaps[2] + swaps[3]).max())
    return found


def exact(fitted):
    """The score by the formula in float64."""
    return lambda rows: formula_scores(fitted.model, fitted.params, fitted.encoder.encode(rows))


def assert_kept(fitted, tolerance=1e-10):
    assert is_apart(fitted.model, fitted.params, fitted.encoder.layout)
    assert max(mixed_differences(exact(fitted)).values()) < tolerance
    assert max(mixed_differences(fitted.scores).values()) < 1e-4


@pytest.mark.parametrize("model", [sf.FwFM(4), sf.FmFM(3), sf.FFM(3)], ids=str)
@pytest.mark.parametrize("members", [1, 2])
def test_a_fit_keeps_them_and_would_not_without(model, members):
    training = sf.Training(epochs=2, effort="fast", threads=1, members=members)
    fitted = sf.fit_model(TABLE, "y", loss="squared", model=model, interaction_cst=GROUPS, training=training)
    assert_kept(fitted)
    free = sf.fit_model(TABLE, "y", loss="squared", model=model, training=training)
    assert min(mixed_differences(exact(free)).values()) > 1e-3


def test_no_interactions_leave_a_sum_of_curves():
    fitted = sf.fit_model(TABLE, "y", loss="squared", interaction_cst="no_interactions", training=FAST)
    assert fitted.model == sf.FwFM(16)
    pairs = {(f, e) for f in range(4) for e in range(f + 1, 4)}
    assert set(fitted.encoder.layout.apart) == pairs
    assert_kept(fitted)


@pytest.mark.parametrize("model", [sf.FM(4), sf.LowRankFwFM(4), sf.HigherOrderFM(4, 3), sf.FwFM(4, third=2)], ids=str)
def test_other_models_are_refused_with_the_way_out(model):
    with pytest.raises(ValueError, match=r"; use FwFM\(k=4\)$"):
        sf.fit_model(TABLE, "y", loss="squared", model=model, interaction_cst=GROUPS, training=FAST)


def test_forbidden_crosses_are_refused_and_others_kept_apart():
    fields = [sf.Numerical("age"), sf.Numerical("income"), sf.Categorical("city"), sf.Categorical("shop")]
    with pytest.raises(ValueError, match="cross 'age × shop' joins columns that may not interact"):
        sf.fit_model(TABLE, "y", schema=sf.Schema([*fields, sf.Cross("age", "shop")], interaction_cst=GROUPS),
                     loss="squared", training=FAST)  # fmt: skip
    schema = sf.Schema([*fields, sf.Cross("age", "city")], interaction_cst=GROUPS)
    fitted = sf.fit_model(TABLE, "y", schema=schema, loss="squared", training=FAST)
    assert set(fitted.encoder.layout.apart) == {(0, 1), (0, 3), (1, 2), (2, 3), (1, 4), (3, 4)}
    assert_kept(fitted)


def columns_of(item):
    return frozenset(item.name.removesuffix(VALUES).split(SEPARATOR))


def row_dicts(rows):
    return [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]


class TestSearch:
    def test_it_tries_only_models_that_keep_them(self):
        schema = sf.infer_schema(TABLE, target="y").with_interactions(GROUPS)
        search = Search.__new__(Search)
        search.base = Setting(schema, sf.FwFM(16), sf.Training())
        tried = [model for model, _ in search._candidates(MODELS + MORE_MODELS)]
        assert tried == [sf.FwFM(48), sf.FFM(8), sf.FwFM(16), sf.FwFM(48), sf.FwFM(64), sf.FFM(16), sf.FFM(16)] + [
            sf.FwFM(64)
        ] * (tried.count(sf.FwFM(64)) - 1)
        assert all(model.pairwise and model.can_separate for model in tried)

    @pytest.mark.parametrize("constraint", [None, GROUPS])
    def test_forbidden_pairs_are_never_crossed(self, constraint):
        table = draw_table(4000)
        schema = sf.infer_schema(table, target="y").with_interactions(constraint)
        encoder = sf.fit_encoder(schema, table)
        values = {name: np.asarray(table[name]) for name in ("age", "income")}
        for name in ("city", "shop"):
            f = schema.names.index(name)
            values[name] = encoder.encode(table).start[:, encoder.layout.window_ptr[f]] - encoder.layout.feature_ptr[f]
        residual = table["y"] - table["y"].mean()
        left = Unexplained(values, [residual], [np.zeros(4000)], 1.0, np.arange(4000))
        crossed = {columns_of(each.cross) for each in find_candidates(encoder, left, 0)}
        assert (frozenset(("city", "shop")) in crossed) == (constraint is None)
        assert (frozenset(("age", "income")) in crossed) == (constraint is None)
        rounded = {**values, "age": np.round(values["age"]), "income": np.round(values["income"])}
        recurring = {columns_of(each.field) for each in find_recurring(encoder, rounded, residual)}
        assert (frozenset(("age", "income")) in recurring) == (constraint is None)
        for columns in (*crossed, *recurring):
            assert schema.interactions is None or schema.interactions.allows(columns)

    def test_candidates_for_a_search_are_open_as_before(self):
        schema = sf.infer_schema(TABLE, target="y").with_interactions(GROUPS)
        assert find_open_choices(schema, None, sf.Training()).model

    @pytest.mark.thorough
    def test_a_whole_search_keeps_them(self):
        fitted = sf.fit_model(draw_table(3000), "y", loss="squared", interaction_cst=GROUPS)
        assert fitted.search and not any("×" in name for name in fitted.encoder.layout.names)
        assert_kept(fitted, 1e-8)


class TestEstimators:
    def test_by_name_by_position_and_in_words(self):
        X = np.column_stack([TABLE["age"], TABLE["income"], TABLE["age"] ** 2])
        settings = {"model": sf.FwFM(4), "epochs": 2, "effort": "fast", "n_jobs": 1}
        by_position = sf.SplineFMRegressor(interaction_cst=[{0, 2}], **settings).fit(X, TABLE["y"])
        by_name = sf.SplineFMRegressor(interaction_cst=[["x0", "x2"]], **settings).fit(X, TABLE["y"])
        assert by_position.fitted_.encoder.layout.apart == ((0, 1), (1, 2))
        np.testing.assert_array_equal(by_position.predict(X), by_name.predict(X))
        none = sf.SplineFMRegressor(interaction_cst="no_interactions", **settings).fit(X, TABLE["y"])
        assert len(none.schema_.interactions.apart([item.columns for item in none.schema_])) == 3

    @pytest.mark.parametrize("wrong", [[{0, 5}], [{True}], [{-1}], ["ab"], "some", [{"nothing"}]])
    def test_anything_else_is_told(self, wrong):
        with pytest.raises(ValueError, match="interaction_cst"):
            sf.SplineFMRegressor(interaction_cst=wrong).fit(np.zeros((20, 3)), np.arange(20.0))

    def test_partial_fit_keeps_them(self):
        X = {name: TABLE[name] for name in ("age", "income", "city", "shop")}
        fitted = sf.SplineFMRegressor(sf.FFM(3), interaction_cst=GROUPS, epochs=2, effort="fast", n_jobs=1)
        fitted.fit(X, TABLE["y"])
        more = draw_table(seed=1)
        fitted.partial_fit({name: more[name] for name in X}, more["y"])
        assert_kept(fitted.fitted_)


@pytest.mark.parametrize("model", [sf.FwFM(4), sf.FmFM(3), sf.FFM(3)], ids=str)
@pytest.mark.parametrize("members", [1, 2])
def test_files_and_updates_with_new_categories_keep_them(model, members, tmp_path):
    training = sf.Training(epochs=2, effort="fast", threads=1, members=members)
    sf.fit_model(TABLE, "y", loss="squared", model=model, interaction_cst=GROUPS, training=training).save(
        tmp_path / "m.sfm"
    )
    loaded = sf.load(tmp_path / "m.sfm")
    assert loaded.encoder.schema.interactions.to_value() == [["age", "city"], ["income", "shop"]]
    learner = sf.Learner(loaded)
    learner.update(draw_table(seed=2, cities="xyzpq"), "y")
    after = learner.fitted()
    assert len(after.encoder.fields[2].vocabulary) > len(loaded.encoder.fields[2].vocabulary)
    assert after.encoder.layout.apart == loaded.encoder.layout.apart != ()
    assert_kept(after)


def test_a_file_whose_parameters_break_them_is_damaged():
    fitted = sf.fit_model(TABLE, "y", loss="squared", model=sf.FwFM(4), interaction_cst=GROUPS, training=FAST)
    arrays = {}
    description = json.loads(json.dumps(describe_fitted(fitted, arrays)))
    assert restore_fitted(description, dict(arrays)).encoder == fitted.encoder
    broken = fitted.params["field_weights"].copy()
    broken[0, 1] = 0.5
    with pytest.raises(ModelFileError, match="columns interact that must not"):
        restore_fitted(description, {**arrays, "params/field_weights": broken})
    for wrong in ("pairs", [], [["nothing"]], [[1]], 3, {}):
        with pytest.raises(ModelFileError, match="its interactions are invalid"):
            restore_fitted({**description, "interactions": wrong}, dict(arrays))


def test_exports_have_nothing_between_them(tmp_path):
    ort = pytest.importorskip("onnxruntime")
    fitted = sf.fit_model(TABLE, "y", loss="squared", model=sf.FFM(3), interaction_cst=GROUPS, training=FAST)
    scorer = fitted.scorer()
    assert max(mixed_differences(lambda rows: scorer.many(row_dicts(rows), link=True), special=False).values()) < 1e-4
    binned = sf.discretize(fitted, 20)
    assert binned.encoder.layout.apart == fitted.encoder.layout.apart
    assert is_apart(binned.model, binned.params, binned.encoder.layout)
    assert max(mixed_differences(exact(binned)).values()) < 1e-10
    sf.export_onnx(fitted, tmp_path / "m.onnx")
    session = ort.InferenceSession(tmp_path / "m.onnx")

    def onnx_scores(rows):
        return np.ravel(session.run(["score"], sf.onnx_inputs(fitted, rows))[0])

    assert max(mixed_differences(onnx_scores, special=False).values()) < 1e-3


def test_a_module_of_torch_has_nothing_between_them():
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'splinefm[torch]'")
    fitted = sf.fit_model(TABLE, "y", loss="squared", model=sf.FFM(3), interaction_cst=GROUPS, training=FAST)
    again = sf.from_torch(sf.to_torch(fitted), fitted)
    assert is_apart(again.model, again.params, again.encoder.layout)


def test_rows_that_are_encoded_again_keep_them():
    schema = sf.infer_schema(TABLE, target="y").with_interactions(GROUPS)
    rows = LabeledTable.of(open_table(TABLE), "y", None, schema)
    chunks = prepare_chunks(rows, sf.Loss("squared"), 0.2, FAST)
    coarse = schema.with_bases({"age": sf.BSpline(2)})
    again = chunks.encode_again(replace(rows, schema=coarse), FAST)
    assert again.encoder.interactions == chunks.encoder.interactions == schema.interactions is not None
    assert again.encoder.layout.apart == chunks.encoder.layout.apart != ()


def test_an_encoder_without_them_is_another_one():
    schema = sf.infer_schema(TABLE, target="y")
    with_, without = (sf.fit_encoder(each, TABLE) for each in (schema.with_interactions("pairwise"), schema))
    assert isinstance(with_, Encoder) and with_ != without
