"""Crosses of an index: on one side they are fields like others, across the sides they are refused."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import splinefm as sf
from splinefm.cli.main import app
from splinefm.model.family.formula import formula_scores
from support import CROSSES, cross_schema, cross_table, examples, one_of_each, random_fitted, take_rows

# Some crosses with the columns of a side that has all theirs.
SIDES = {
    "category × category": ("kind", "user"),
    "category × number": ("kind", "x"),
    "category × numbers": ("x", "kind", "z"),
    "number × number": ("x", "z"),
    "levels × one": ("x", "hour"),
    "of bins": ("x", "user"),
    "hashed": ("kind", "user"),
    "hashed × number": ("user", "code", "hour"),
}
COLUMNS = ("x", "kind", "z", "user", "hour", "code")


def made(kinds, model=0, seed=1):
    schema = cross_schema(*kinds)
    return random_fitted(one_of_each(len(schema))[model], schema, cross_table(200), seed=seed, scale=0.4)


def exact(fitted, context, items):
    n = len(next(iter(items.values())))
    table = {**{name: [value] * n for name, value in context.items()}, **items}
    return formula_scores(fitted.model, fitted.params, fitted.encoder.encode(table))


@pytest.mark.parametrize("kind", SIDES)
@pytest.mark.parametrize("of_item", [True, False], ids=["item", "context"])
class TestOneSide:
    @pytest.mark.parametrize("form", ["vectors", "effects"])
    def test_scores_are_exact(self, kind, of_item, form):
        fitted = made([kind], model=1)
        side = set(SIDES[kind])
        item_columns = side if of_item else set(COLUMNS) - side
        items = take_rows(cross_table(120, 3, strange=True), range(120), sorted(item_columns))
        index = sf.ItemIndex(fitted, items, ids=np.arange(120), form=form)
        cross = fitted.encoder.fields[-1].name
        assert cross in (index.item_fields if of_item else index.context_fields)
        assert set(index.context_columns) == set(COLUMNS) - item_columns
        contexts = cross_table(6, 5, strange=True)
        gap = 0.0
        for i in range(6):
            context = {name: contexts[name][i] for name in index.context_columns}
            ids, scores = index.top_k(context, k=120)
            expected = exact(fitted, context, items)
            np.testing.assert_allclose(scores, expected[ids], atol=2e-5)
            gap = max(gap, np.abs(scores - expected[ids]).max())
            as_table, table_scores = index.top_k({name: [value] * 2 for name, value in context.items()}, k=120)
            np.testing.assert_array_equal(as_table[0], ids)
            np.testing.assert_allclose(table_scores[0], scores, atol=1e-5)
        assert gap <= index.error.bound

    def test_bound_of_small_numbers(self, kind, of_item):
        fitted = made([kind])
        item_columns = set(SIDES[kind]) if of_item else set(COLUMNS) - set(SIDES[kind])
        items = take_rows(cross_table(50, 3), range(50), sorted(item_columns))
        index = sf.ItemIndex(fitted, items, ids=np.arange(50), dtype="int8")
        contexts = cross_table(8, 5)
        for i in range(8):
            context = {name: contexts[name][i] for name in index.context_columns}
            ids, scores = index.top_k(context, k=50)
            assert np.abs(scores - exact(fitted, context, items)[ids]).max() <= index.error.bound


@examples(24)
@given(st.sampled_from(sorted(SIDES)), st.integers(0, 6), st.integers(0, 9))
def test_any_model_and_a_catalog_that_changes(kind, model, seed):
    fitted = made([kind], model, seed)
    columns = sorted({*SIDES[kind], "hour"} if kind != "hashed × number" else SIDES[kind])
    index = sf.ItemIndex(fitted, take_rows(cross_table(20, seed), range(20), columns), ids=np.arange(20))
    newer = take_rows(cross_table(20, seed + 1, strange=True), range(20), columns)
    index.add(take_rows(newer, range(10)), ids=np.arange(20, 30))
    index.update(take_rows(newer, range(10, 20)), ids=np.arange(10))
    index.remove([15])
    every = {**dict(enumerate(range(10, 20))), **{20 + i: i for i in range(10)}}
    contexts = cross_table(1, seed)
    context = {name: contexts[name][0] for name in index.context_columns}
    ids, scores = index.top_k(context, k=50, excluded=[3], allowed=sorted(every))
    assert set(ids.tolist()) == set(every) - {3}
    expected = exact(fitted, context, newer)
    np.testing.assert_allclose(scores, [expected[every[i]] for i in ids.tolist()], atol=2e-5)


def test_files_and_approximate_search(tmp_path):
    pytest.importorskip("faiss")
    fitted = made(["number × number", "category × category"])
    items = take_rows(cross_table(200, 3), range(200), ["x", "z"])
    index = sf.ItemIndex(fitted, items, ids=np.arange(200))
    index.save(tmp_path / "items.sfi")
    again = sf.ItemIndex.load(tmp_path / "items.sfi", fitted)
    context = {"kind": "u", "user": "1", "hour": 3.0, "code": "1"}
    for found in (again.top_k(context, k=9), index.approximate().top_k(context, k=9)):
        np.testing.assert_allclose(found[1][0], index.top_k(context, k=9)[1][0], atol=1e-5)


def test_a_cross_of_both_sides_is_refused_with_its_price():
    fitted = made(["category × category"])
    items = take_rows(cross_table(5), range(5), ["user", "z"])
    with pytest.raises(
        ValueError, match=r"the cross 'kind × user' joins 'user' of the items with 'kind' of the context"
    ):
        sf.ItemIndex(fitted, items, ids=np.arange(5))
    with pytest.raises(ValueError, match=r"crosses=None.*fitted.scores, which takes one row per item and context"):
        sf.ItemIndex(fitted, items, ids=np.arange(5))


def test_a_context_lacks_a_column_of_a_cross():
    fitted = random_fitted(
        sf.FM(k=4),
        sf.Schema([sf.Cross(sf.Categorical("kind"), sf.Categorical("user")), sf.Numerical("z")]),
        cross_table(80),
    )
    index = sf.ItemIndex(fitted, {"z": [0.0, 1.0]}, ids=["a", "b"])
    with pytest.raises(ValueError, match="the context has no 'user'"):
        index.top_k({"kind": "u"})
    with pytest.raises(ValueError, match=r"one value per field, but 'user' is list"):
        index._context._encode_columns({"kind": "u", "user": ["1"]})


@pytest.mark.parametrize("kind", CROSSES)
def test_reach_bounds_the_weights(kind):
    fitted = made([kind])
    slots = fitted.encoder.encode(cross_table(300, 7, strange=True))
    first = fitted.encoder.layout.weight_ptr[fitted.encoder.layout.window_ptr[-2]]
    sums = np.abs(slots.weight[:, first:]).sum(axis=1)
    (reach,) = fitted.encoder.fields[-1].weight_reach()
    assert 0.3 * reach < sums.max() <= reach


def test_the_command_line_asks_for_columns(tmp_path):
    fitted = random_fitted(
        sf.FM(k=4),
        sf.Schema([sf.Cross(sf.Categorical("kind"), sf.Categorical("user"), min_count=1), sf.Numerical("z")]),
        cross_table(80),
    )
    fitted.save(tmp_path / "model.sfm")
    (tmp_path / "items.csv").write_text("z\n0.5\n-1\n")
    command = ["rank", str(tmp_path / "model.sfm"), str(tmp_path / "items.csv"), "--json", "--context"]
    ranked = CliRunner().invoke(app, [*command, '{"kind": "u", "user": "1"}'])
    ((best, _),) = json.loads(ranked.stdout)["contexts"]
    scores = fitted.scores({"kind": ["u", "u"], "user": ["1", "1"], "z": [0.5, -1.0]})
    np.testing.assert_allclose(best["score"], scores.max(), atol=1e-5)
    refused = CliRunner().invoke(app, [*command, '{"kind": "u"}'])
    assert refused.exit_code == 1
    assert "the context has no 'user'; it needs 'kind', 'user'" in refused.output
