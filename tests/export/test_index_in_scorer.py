"""The index of a scorer file in the C library: the items and scores of `ItemIndex.top_k`, to the bit."""

import re
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_float, c_size_t

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from c_library import ERROR_ARGUMENT, ERROR_VALUE, CallError, CError, CFilter, CItems, CScorer, CValue, library
from splinefm.model.split import Split
from splinefm.rank.sides import ContextQueries
from support import (
    averages,
    cross_schema,
    cross_table,
    examples,
    mixed_schema,
    mixed_table,
    one_of_each,
    random_fitted,
    take_rows,
)

CONTEXT, ITEM = ("x", "tags", "user"), ("kind", "z", "words")
MODELS = [*one_of_each(6), *averages(), sf.FwFM(k=16), sf.FFM(k=8)]
N = 300
ITEMS = take_rows(mixed_table(N, seed=2), range(N), ITEM)
CONTEXTS = take_rows(mixed_table(12, seed=3), range(12), CONTEXT)
NUMBERS = (np.arange(N)[::-1] * 10 - 500).tolist()
TEXTS = [f"{'näher ' * (i % 4)}{i}" for i in range(N)]


def context_of(i, table=CONTEXTS, names=CONTEXT):
    return {name: table[name][i] for name in names}


def opened(index, path):
    index.fitted.export_scorer(path, index=index)
    return CScorer(path)


def check_same(found, expected):
    assert found[0] == expected[0].tolist()
    assert found[1].tobytes() == expected[1].tobytes()


@pytest.mark.parametrize("form", ["vectors", "effects"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: re.sub(r"\W+", "-", str(model)))
def test_the_best_items_are_those_of_python(model, form, tmp_path):
    if form == "effects" and not model.pairwise:
        pytest.skip("products of an item's features have no effects")
    index = sf.ItemIndex(random_fitted(model, mixed_schema(), mixed_table(60)), ITEMS, ids=TEXTS, form=form)
    with opened(index, tmp_path / "m.sfs") as scorer:
        tables = index.top_k(CONTEXTS, 20)
        for i in range(12):
            check_same(scorer.top_k(context_of(i), 20), index.top_k(context_of(i), 20))
            check_same(scorer.top_k(context_of(i), N + 5), index.top_k(context_of(i), N))
            if form == "vectors":  # for several contexts, effects are summed up in another order
                check_same(scorer.top_k(context_of(i), 20), (tables[0][i], tables[1][i]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_every_storage_type(dtype, tmp_path):
    fitted = random_fitted(sf.FwFM(k=4), mixed_schema(), mixed_table(60))
    index = sf.ItemIndex(fitted, ITEMS, ids=NUMBERS, dtype=dtype, form="vectors")
    with opened(index, tmp_path / "m.sfs") as scorer:
        for i in range(12):
            check_same(scorer.top_k(context_of(i), 50), index.top_k(context_of(i), 50))


@pytest.mark.parametrize("form", ["vectors", "effects"])
def test_crosses_of_the_items_and_of_the_context(form, tmp_path):
    schema = cross_schema("category × number", "number × number", "hashed", "categories")
    fitted = random_fitted(sf.FwFM(k=4), schema, cross_table(200))
    # All columns of a cross belong to one side.
    sides = [{name} for name in {name for item in fitted.encoder.fields for name in item.columns}]
    for item in fitted.encoder.fields:
        joined = [side for side in sides if side & set(item.columns)]
        sides = [side for side in sides if side not in joined] + [set().union(*joined)]
    own = sorted(min(sides, key=sorted))
    table = cross_table(40)
    if len(sides) == 1:
        pytest.skip("the crosses join all columns")
    index = sf.ItemIndex(fitted, {name: table[name] for name in own}, ids=range(40), form=form)
    with opened(index, tmp_path / "m.sfs") as scorer:
        for i in range(5):
            context = {name: list(table[name])[i] for name in index.context_columns}
            context = {name: v.item() if isinstance(v, np.generic) else v for name, v in context.items()}
            check_same(scorer.top_k(context, 9), index.top_k(context, 9))


@pytest.mark.parametrize("side", [("x",), ("x", "kind", "tags", "z", "user"), (*CONTEXT, *ITEM)])
@pytest.mark.parametrize("model", [sf.FM(k=3), sf.FmFM(k=5), sf.FFM(k=3), sf.HigherOrderFM(k=3)], ids=lambda m: m.kind)
def test_any_fields_can_be_the_items(model, side, tmp_path):
    fitted, table = random_fitted(model, mixed_schema(), mixed_table(60)), mixed_table(40, seed=5)
    index = sf.ItemIndex(fitted, take_rows(table, range(40), side), ids=range(40))
    rest = [name for name in CONTEXT + ITEM if name not in side]
    with opened(index, tmp_path / "m.sfs") as scorer:
        for i in (3, 7):
            context = {name: table[name][i] for name in rest}
            check_same(scorer.top_k(context, 11), index.top_k(context, 11))
        of_items = [scorer.lib.sfm_index_has_column(scorer.handle, c) for c in range(len(scorer.columns))]
        assert of_items == [name in side for name in scorer.columns]


@pytest.fixture(scope="module", params=["vectors", "effects"])
def pair(request, tmp_path_factory):
    fitted = random_fitted(sf.FwFM(k=4), mixed_schema(), mixed_table(60))
    groups = [None if i % 7 == 0 else "abc"[i % 3] for i in range(N)]
    index = sf.ItemIndex(fitted, ITEMS, ids=NUMBERS, groups=groups, form=request.param)
    index.remove([NUMBERS[3], NUMBERS[200]])
    with opened(index, tmp_path_factory.mktemp("index") / "m.sfs") as scorer:
        yield index, scorer


class TestFilters:
    @given(data=st.data())
    @examples(40)
    def test_they_are_those_of_python(self, pair, data):
        index, scorer = pair
        some = st.none() | st.lists(st.sampled_from([*NUMBERS, 7, -(2**63), 2**63 - 1]), max_size=30)
        allowed, excluded = data.draw(some), data.draw(some)
        groups = data.draw(st.none() | st.lists(st.sampled_from("abc"), max_size=3))
        context, k = context_of(data.draw(st.integers(0, 11))), data.draw(st.integers(1, 40))
        found = scorer.top_k(context, k, allowed=allowed, excluded=excluded, groups=groups)
        check_same(found, index.top_k(context, k, allowed=allowed, excluded=excluded, group=groups))

    def test_ids_and_groups_are_described(self, pair):
        index, scorer = pair
        assert scorer.ids == index.ids.tolist()
        assert len(scorer.ids) == len(index) == N - 2
        assert sorted(scorer.groups) == sorted(index.groups)
        assert [scorer.find(i) for i in scorer.ids] == list(range(N - 2))
        assert scorer.find(NUMBERS[3]) == scorer.find("text") == scorer.find(1.0) == -1
        assert scorer.lib.sfm_index_id(scorer.handle, N, None) == ERROR_ARGUMENT
        assert scorer.lib.sfm_index_group_name(scorer.handle, 9) is None

    def test_a_search_of_a_catalog_in_between_changes_nothing(self, pair):
        """Both use the memory of one workspace."""
        index, scorer = pair
        table = mixed_table(9000, seed=4)
        items = [{name: table[name][i] for name in ITEM} for i in range(9000)]
        with CItems(scorer, items, list(ITEM)) as catalog:
            before = catalog.top_k(context_of(0), 5)
            check_same(
                scorer.top_k(context_of(1), 5, allowed=NUMBERS[:5]),
                index.top_k(context_of(1), 5, allowed=NUMBERS[:5]),
            )
            after = catalog.top_k(context_of(0), 5)
            assert before[0].tolist() == after[0].tolist()
            assert before[1].tobytes() == after[1].tobytes()

    def test_wrong_arguments_are_named(self, pair):
        _, scorer = pair
        for options, code, message in (
            ({"allowed": ["text"]}, ERROR_VALUE, "ids of the index are integers"),
            ({"excluded": [1.5]}, ERROR_VALUE, "ids of the index are integers"),
            ({"groups": ["d"]}, ERROR_VALUE, "no group 'd'"),
            ({"groups": [3]}, ERROR_ARGUMENT, "groups must be SFM_TEXT"),
        ):
            with pytest.raises(CallError, match=message) as caught:
                scorer.top_k(context_of(0), 3, **options)
            assert caught.value.code == code
        with pytest.raises(CallError, match="column 'user'"):
            scorer.top_k({"x": 1.0, "tags": []}, 3)
        assert scorer.top_k(context_of(0), 0) == ([], pytest.approx(np.zeros(0)))


@pytest.mark.parametrize("ids", [NUMBERS, TEXTS], ids=["numbers", "text"])
@pytest.mark.parametrize("form", ["vectors", "effects"])
def test_ties_are_ordered_by_id(form, ids, tmp_path):
    """More equal items than a search keeps: those with the lowest ids are the best."""
    n = 5000
    items = {name: [ITEMS[name][i // (n // 2)] for i in range(n)] for name in ITEM}
    names = [(i * 7919) % n for i in range(n)]
    names = [f"{i}" for i in names] if ids is TEXTS else names
    fitted = random_fitted(sf.FwFM(k=4), mixed_schema(), mixed_table(60))
    index = sf.ItemIndex(fitted, items, ids=names, form=form)
    with opened(index, tmp_path / "m.sfs") as scorer:
        for k in (1, 10, n // 2 + 3):
            check_same(scorer.top_k(context_of(0), k), index.top_k(context_of(0), k))
        some = names[100:4900:3]
        check_same(scorer.top_k(context_of(0), 9, allowed=some), index.top_k(context_of(0), 9, allowed=some))


def test_an_empty_index(tmp_path):
    index = sf.ItemIndex(random_fitted(sf.FM(k=4), mixed_schema(), mixed_table(60)), ITEMS, ids=NUMBERS)
    index.remove(NUMBERS)
    with opened(index, tmp_path / "m.sfs") as scorer:
        assert scorer.ids == scorer.top_k(context_of(0), 3)[0] == []
        assert scorer.lib.sfm_has_index(scorer.handle) == 1


def test_a_file_without_an_index(tmp_path):
    fitted = random_fitted(sf.FM(k=4), mixed_schema(), mixed_table(60))
    fitted.export_scorer(tmp_path / "m.sfs")
    with CScorer(tmp_path / "m.sfs") as scorer:
        assert scorer.lib.sfm_has_index(scorer.handle) == 0
        assert scorer.ids == scorer.groups == []
        assert scorer.find(3) == -1
        with pytest.raises(CallError, match="the file has no index") as caught:
            scorer.top_k(context_of(0), 3)
        assert caught.value.code == ERROR_ARGUMENT


def test_an_index_of_another_model_is_refused(tmp_path):
    fitted, other = (random_fitted(sf.FM(k=4), mixed_schema(), mixed_table(n)) for n in (60, 61))
    index = sf.ItemIndex(fitted, ITEMS, ids=NUMBERS)
    with pytest.raises(ValueError, match=r"index belongs to another model; .*index\.fitted"):
        other.export_scorer(tmp_path / "m.sfs", index=index)
    assert not (tmp_path / "m.sfs").exists()


def test_an_index_that_was_loaded(tmp_path):
    fitted = random_fitted(sf.FwFM(k=4), mixed_schema(), mixed_table(60))
    sf.ItemIndex(fitted, ITEMS, ids=TEXTS, dtype="int8").save(tmp_path / "i.sfi")
    index = sf.ItemIndex.load(tmp_path / "i.sfi", fitted)
    with opened(index, tmp_path / "m.sfs") as scorer:
        check_same(scorer.top_k(context_of(4), 30), index.top_k(context_of(4), 30))


def test_threads_find_the_same(tmp_path):
    index = sf.ItemIndex(random_fitted(sf.FwFM(k=4), mixed_schema(), mixed_table(60)), ITEMS, ids=NUMBERS)
    expected = [index.top_k(context_of(i), 20) for i in range(12)]
    with opened(index, tmp_path / "m.sfs") as scorer, ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda i: scorer.top_k(context_of(i % 12), 20, excluded=[]), range(200))
        for i, each in enumerate(found):
            check_same(each, expected[i % 12])


def test_parameters_that_are_not_finite(tmp_path):
    fitted = random_fitted(sf.FM(k=4), mixed_schema(), mixed_table(60))
    index = sf.ItemIndex(fitted, ITEMS, ids=NUMBERS)
    fitted.params["bias"][:] = np.nan
    with opened(index, tmp_path / "m.sfs") as scorer, pytest.raises(CallError, match="not finite"):
        scorer.top_k(context_of(0), 3)


@given(seed=st.integers(0, 2**32 - 1), model=st.sampled_from(MODELS))
@examples(60)
def test_queries_are_those_of_the_formula(seed, model):
    """The compiled side of a context against NumPy's, for any division of the fields."""
    fitted = random_fitted(model, mixed_schema(), mixed_table(60))
    rng = np.random.default_rng(seed)
    chosen = rng.random(6) < 0.5
    chosen[rng.integers(6)] = True
    items = tuple(np.flatnonzero(chosen).tolist())
    split = Split(fitted.model, fitted.params, fitted.encoder.layout, items)
    slots = split.part(fitted.encoder.encode(mixed_table(20, seed=seed % 100)), split.context)
    compiled = ContextQueries(split)
    queries, constants = compiled(slots)
    exact = split.context_side(slots)
    scale = max(1.0, float(np.abs(exact.vectors).max(initial=0.0)))
    np.testing.assert_allclose(queries, exact.vectors, rtol=2e-7, atol=1e-9 * scale)
    np.testing.assert_allclose(constants, exact.scores + split.bias, rtol=1e-6, atol=1e-6)
    if split.is_linear:
        for own, formula in zip(
            compiled.feature_queries(queries), split.feature_queries(queries.astype(np.float64)), strict=True
        ):
            np.testing.assert_allclose(own, formula, rtol=2e-7, atol=1e-9 * scale)


def test_null_arguments(tmp_path):
    index = sf.ItemIndex(random_fitted(sf.FM(k=4), mixed_schema(), mixed_table(60)), ITEMS, ids=NUMBERS)
    with opened(index, tmp_path / "m.sfs") as scorer:
        lib = library()
        code = lib.sfm_index_top_k(scorer.handle, None, None, 3, None, None, None, None, None)
        assert code == ERROR_ARGUMENT
        assert lib.sfm_index_find(scorer.handle, None) == -1
        for name in ("allowed", "excluded", "groups"):  # or a mistake of the caller would let all items pass
            given, only, ids = scorer.context(context_of(0)), CFilter(**{f"n_{name}": 1}), (CValue * 1)()
            score, found, error = c_float(), c_size_t(), CError()
            code = lib.sfm_index_top_k(
                scorer.handle, None, given.array, 1, byref(only), ids, byref(score), byref(found), byref(error)
            )
            assert code == ERROR_ARGUMENT and error.message == f"{name} is NULL".encode()
