"""ItemIndex against sorting the scores of all items, for every model."""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import splinefm as sf
import support
from splinefm.model.family.formula import formula_scores
from splinefm.rank import catalog as ranking_catalog
from splinefm.rank import store as ranking_store
from splinefm.rank.ids import Groups, Ids, read_keys
from splinefm.rank.store import VectorStore, pack
from support import averages, mixed_schema, mixed_table, one_of_each, take_rows

MODELS = [*one_of_each(6), *averages()]
EXACT: dict[tuple[int, int, str], tuple[object, object, np.ndarray]] = {}
CONTEXT, ITEM = ("x", "tags", "user"), ("kind", "z", "words")


def row_of(table, i):
    return {name: table[name][i] for name in CONTEXT}


def random_fitted(model, schema=None, table=None):
    return support.random_fitted(model, schema or mixed_schema(), table or mixed_table(60))


def crossed(context, items):
    n = len(next(iter(items.values())))
    return {**{name: [value] * n for name, value in context.items()}, **{name: items[name] for name in ITEM}}


def exact_scores(fitted, context, items):
    """Return scores of all items by the formula, in float64; several tests ask for the same."""
    key = id(fitted), id(items), str(context)
    if key not in EXACT:  # with the objects, so that nothing else gets their ids
        EXACT[key] = fitted, items, _exact_scores(fitted, context, items)
    return EXACT[key][2]


def _exact_scores(fitted, context, items):
    return formula_scores(fitted.model, fitted.params, fitted.encoder.encode(crossed(context, items)))


def check_best(found, ids, scores, k, tolerance=2e-5):
    """The k best of all ids by exact scores, best first; equal scores of the index by id."""
    found_ids, found_scores = found
    exact = dict(zip(ids, scores, strict=True))
    assert len(found_ids) == len(found_scores) == min(k, len(ids))
    assert len(set(found_ids.tolist())) == len(found_ids)
    np.testing.assert_allclose(found_scores, [exact[i] for i in found_ids.tolist()], rtol=0, atol=tolerance)
    np.testing.assert_allclose(found_scores, np.sort(scores)[::-1][:k], rtol=0, atol=tolerance)
    pairs = list(zip(-found_scores, found_ids.tolist(), strict=True))
    assert pairs == sorted(pairs)


@pytest.fixture(scope="module")
def items():
    return take_rows(mixed_table(300, seed=2), range(300), ITEM)


@pytest.fixture(scope="module")
def contexts():
    return take_rows(mixed_table(12, seed=3), range(12), CONTEXT)


# With products of items' features there are only vectors.
BOTH = [(model, form) for model in MODELS for form in ("vectors", "effects") if form == "vectors" or model.pairwise]
BOTH.append((sf.HigherOrderFM(k=4, order=2), "effects"))


@pytest.fixture(scope="module", params=BOTH, ids=lambda pair: f"{type(pair[0]).__name__}-{pair[1]}")
def pair(request):
    return random_fitted(request.param[0]), request.param[1]


@pytest.fixture(scope="module")
def fitted(pair):
    return pair[0]


@pytest.fixture(scope="module")
def model_form(pair):
    return pair[1]


@pytest.fixture(scope="module", params=["vectors", "effects"])
def form(request):
    return request.param


@pytest.fixture(scope="module")
def fwfm():
    return random_fitted(sf.FwFM(k=4))


@pytest.fixture
def index(fwfm, items, form):
    groups = ["abc"[i % 3] for i in range(300)]
    return sf.ItemIndex(fwfm, items, ids=np.arange(300)[::-1] * 10, groups=groups, form=form)


IDS = (np.arange(300)[::-1] * 10).tolist()


class TestEveryModel:
    def test_the_best_items_are_those_with_the_best_scores(self, fitted, model_form, items, contexts):
        index = sf.ItemIndex(fitted, items, ids=IDS, form=model_form)
        for i in range(12):
            context = row_of(contexts, i)
            check_best(index.top_k(context, 20), IDS, exact_scores(fitted, context, items), 20)
            check_best(index.top_k(context, 20), IDS, fitted.scores(crossed(context, items)), 20)

    def test_a_table_of_contexts_gives_what_each_gives_alone(self, fitted, model_form, items, contexts):
        index = sf.ItemIndex(fitted, items, ids=IDS, form=model_form)
        ids, scores = index.top_k(contexts, 20)
        assert ids.shape == scores.shape == (12, 20)
        for i in range(12):
            check_best((ids[i], scores[i]), IDS, exact_scores(fitted, row_of(contexts, i), items), 20)

    @pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
    def test_scores_are_within_the_stated_bound(self, fitted, model_form, items, contexts, dtype):
        if dtype != "float32" and model_form == "effects":
            with pytest.raises(ValueError, match=r'needs dtype="float32", got .*; use form="vectors"'):
                sf.ItemIndex(fitted, items, ids=IDS, dtype=dtype, form=model_form)
            return
        index = sf.ItemIndex(fitted, items, ids=IDS, dtype=dtype, form=model_form)
        ids, scores = index.top_k(contexts, 300)
        exact = np.array([exact_scores(fitted, row_of(contexts, i), items) for i in range(12)])
        order = 299 - ids // 10
        gap = np.abs(np.take_along_axis(exact, order, axis=1) - scores).max()
        assert 0 < gap <= index.error.bound
        assert 0 < index.error.measured <= index.error.bound
        # What was measured on other contexts is of the same size.
        assert gap / 8 < index.error.measured < 8 * gap
        limit = {"float32": 1e-5, "float16": 1e-2, "int8": 0.2}[dtype]
        assert gap < limit

    @pytest.mark.parametrize("side", [("x",), ("x", "kind", "tags", "z", "user"), ("words",)])
    def test_any_fields_can_be_the_items(self, fitted, model_form, side):
        table = mixed_table(40, seed=5)
        index = sf.ItemIndex(fitted, take_rows(table, range(40), side), ids=range(40), form=model_form)
        rest = [name for name in CONTEXT + ITEM if name not in side]
        context = {name: table[name][7] for name in rest}
        mixed = {name: table[name] if name in side else [context[name]] * 40 for name in CONTEXT + ITEM}
        scores = formula_scores(fitted.model, fitted.params, fitted.encoder.encode(mixed))
        check_best(index.top_k(context, 40), range(40), scores, 40)
        assert index.item_fields == tuple(name for name in fitted.encoder.schema.names if name in side)
        assert set(index.context_fields) == set(rest)

    def test_a_context_may_have_no_fields(self, fitted, model_form):
        table = mixed_table(40, seed=5)
        index = sf.ItemIndex(fitted, table, ids=range(40), form=model_form)
        scores = formula_scores(fitted.model, fitted.params, fitted.encoder.encode(table))
        check_best(index.top_k({}, 5), range(40), scores, 5)
        ids, _ = index.top_k(pa.table({"anything": [1, 2, 3]}), 5)
        assert ids.tolist() == [index.top_k({}, 5)[0].tolist()] * 3


class TestOrder:
    def test_equal_scores_are_ordered_by_id(self, fwfm, form, contexts):
        rng = np.random.default_rng(0)
        ids = rng.permutation(600)
        same = {"kind": ["u", "v", "w"] * 200, "z": [0.5] * 600, "words": [["a"]] * 600}
        index = sf.ItemIndex(fwfm, same, ids=ids, form=form)
        for i in range(12):
            context = row_of(contexts, i)
            scores = exact_scores(fwfm, context, same)
            best = np.lexsort((ids, -np.round(scores, 6)))
            for k in (1, 7, 200, 250, 600):
                assert index.top_k(context, k)[0].tolist() == ids[best[:k]].tolist()

    def test_more_ties_than_a_search_keeps(self, fwfm, form, contexts):
        n = 3 * ranking_store._MIN_TIES + 17
        ids = np.random.default_rng(0).permutation(n)
        kinds = np.where(ids % 1000 == 5, "u", "v")
        index = sf.ItemIndex(fwfm, {"kind": kinds, "z": [0.5] * n, "words": [["a"]] * n}, ids=ids, form=form)
        for i in range(4):
            context = row_of(contexts, i)
            two = exact_scores(fwfm, context, {"kind": ["u", "v"], "z": [0.5] * 2, "words": [["a"]] * 2})
            few, many = np.arange(5, n, 1000), np.delete(np.arange(n), np.arange(5, n, 1000))
            expected = np.concatenate([few, many] if two[0] > two[1] else [many, few])
            for k in (1, 10, 100):
                assert index.top_k(context, k)[0].tolist() == expected[:k].tolist()
                assert index.top_k(context, k, threads=2)[0].tolist() == expected[:k].tolist()
                both = index.top_k({name: [value] * 3 for name, value in context.items()}, k)[0]
                assert both.tolist() == [expected[:k].tolist()] * 3

    def test_text_ids_are_ordered_as_text(self, fwfm, form, contexts):
        ids = ["9", "10", "é", "a", "B", "aa", "", "a" * 30, "😀", "zß"]
        same = {"kind": ["u"] * 10, "z": [0.5] * 10, "words": [["a"]] * 10}
        index = sf.ItemIndex(fwfm, same, ids=ids, form=form)
        assert index.top_k(row_of(contexts, 0), 10)[0].tolist() == sorted(ids)
        assert index.ids.tolist() == sorted(ids)

    @pytest.mark.parametrize("order", [1, -1])
    def test_sorted_catalogs_are_the_worst_case_of_a_threshold(self, fwfm, form, contexts, order):
        n = 20_000
        z = np.random.default_rng(0).normal(size=n)
        context = row_of(contexts, 1)
        items = {"kind": np.array(["u"] * n), "z": z, "words": pa.array([["a"]] * n)}
        scores = fwfm.scores(crossed(context, items))
        by_score = np.argsort(order * scores)
        index = sf.ItemIndex(fwfm, {**items, "z": z[by_score]}, ids=np.arange(n), form=form)
        for k in (1, 100, 5000):
            check_best(index.top_k(context, k), range(n), scores[by_score], k)


class TestSizes:
    def test_more_than_there_are(self, index, fwfm, items, contexts):
        context = row_of(contexts, 0)
        check_best(index.top_k(context, 5000), IDS, exact_scores(fwfm, context, items), 5000)

    def test_one_item(self, fwfm, form, contexts):
        one = {"kind": ["u"], "z": [0.5], "words": [["a"]]}
        index = sf.ItemIndex(fwfm, one, ids=["only"], form=form)
        ids, scores = index.top_k(row_of(contexts, 0), 10)
        assert ids.tolist() == ["only"]
        assert scores == pytest.approx(exact_scores(fwfm, row_of(contexts, 0), one), abs=1e-5)
        assert len(index) == 1

    def test_no_item(self, fwfm, form, contexts):
        index = sf.ItemIndex(fwfm, {"kind": [], "z": [], "words": []}, ids=[], groups=[], form=form)
        assert len(index) == 0
        ids, scores = index.top_k(row_of(contexts, 0), 10)
        assert ids.shape == scores.shape == (0,)
        ids, scores = index.top_k(contexts, 10, excluded=[1], allowed=[3])
        assert ids.shape == scores.shape == (12, 0)
        assert index.ids.tolist() == []

    def test_no_context(self, index):
        ids, scores = index.top_k({name: [] for name in CONTEXT}, 10)
        assert ids.shape == scores.shape == (0, 10)

    def test_a_table_of_one_row_is_one_context(self, index, contexts):
        ids, scores = index.top_k(row_of(contexts, 4), 10)
        again, scores_again = index.top_k(take_rows(contexts, [4], CONTEXT), 10)
        assert ids.tolist() == again.tolist()
        np.testing.assert_allclose(scores, scores_again, rtol=1e-6)

    @pytest.mark.parametrize("n", [63, 64, 65, 4095, 4096, 4097, 9000])
    def test_around_the_edges_of_panels(self, fwfm, form, contexts, n):
        rng = np.random.default_rng(n)
        items = {"kind": rng.choice(["u", "v"], n), "z": rng.normal(size=n), "words": pa.array([["a"]] * n)}
        index = sf.ItemIndex(fwfm, items, ids=range(n), form=form)
        context = row_of(contexts, 2)
        scores = fwfm.scores(crossed(context, items))
        for k in (3, n):
            check_best(index.top_k(context, k), range(n), scores, k)
            both = index.top_k({name: [value] * 2 for name, value in context.items()}, k)
            check_best((both[0][1], both[1][1]), range(n), scores, k)
            assert (index.top_k(context, k, threads=2)[0] == index.top_k(context, k)[0]).all()

    def test_many_contexts_are_answered_in_several_passes(self, index, fwfm, items, contexts, monkeypatch):
        monkeypatch.setattr(ranking_store, "_BATCH", 4)
        ids, _ = index.top_k(contexts, 5, threads=2)
        monkeypatch.setattr(ranking_store, "_MAX_CANDIDATES", 1)
        again, _ = index.top_k(contexts, 5)
        assert ids.tolist() == again.tolist() == [index.top_k(row_of(contexts, i), 5)[0].tolist() for i in range(12)]


class TestFilters:
    def check(self, index, fwfm, items, contexts, passes, **filters):
        kept = [i for i in range(300) if passes(i)]
        for i in range(5):
            context = row_of(contexts, i)
            scores = exact_scores(fwfm, context, items)[kept]
            check_best(index.top_k(context, 15, **filters), [IDS[j] for j in kept], scores, 15)
        ids, _ = index.top_k(contexts, 15, **filters)
        for i in range(5):
            assert ids[i].tolist() == index.top_k(row_of(contexts, i), 15, **filters)[0].tolist()

    def test_allowed(self, index, fwfm, items, contexts):
        allowed = [IDS[i] for i in range(0, 300, 4)]
        self.check(index, fwfm, items, contexts, lambda i: i % 4 == 0, allowed=[*allowed, -5, 7])
        self.check(index, fwfm, items, contexts, lambda i: i % 4 == 0, allowed=set(allowed))

    def test_excluded(self, index, fwfm, items, contexts):
        excluded = np.array([IDS[i] for i in range(0, 300, 4)] + [10**12])
        self.check(index, fwfm, items, contexts, lambda i: i % 4 != 0, excluded=excluded)

    def test_groups(self, index, fwfm, items, contexts):
        self.check(index, fwfm, items, contexts, lambda i: i % 3 == 1, group="b")
        self.check(index, fwfm, items, contexts, lambda i: i % 3 != 1, group=["a", "c"])
        assert index.groups == ("a", "b", "c")

    def test_all_together(self, index, fwfm, items, contexts):
        allowed, excluded = [IDS[i] for i in range(200)], [IDS[i] for i in range(0, 300, 5)]
        self.check(
            index,
            fwfm,
            items,
            contexts,
            lambda i: i < 200 and i % 5 and i % 3 == 2,
            allowed=allowed,
            excluded=excluded,
            group="c",
        )

    @pytest.mark.parametrize(
        "filters",
        [{"allowed": []}, {"allowed": [-1]}, {"excluded": IDS}, {"group": []}, {"group": "a", "allowed": IDS[1:2]}],
    )
    def test_nothing_left(self, index, contexts, filters):
        ids, scores = index.top_k(row_of(contexts, 0), 5, **filters)
        assert ids.shape == scores.shape == (0,)
        ids, scores = index.top_k(contexts, 5, **filters)
        assert ids.shape == scores.shape == (12, 0)

    def test_few_allowed_ids_of_a_large_catalog(self, fwfm, form, contexts):
        n = 10_000
        z = np.random.default_rng(0).normal(size=n)
        items = {"kind": ["u"] * n, "z": z, "words": pa.array([["a"]] * n)}
        index = sf.ItemIndex(fwfm, items, ids=range(n), form=form)
        scores = fwfm.scores(crossed(row_of(contexts, 1), items))
        few = [9999, 17, 5000]
        check_best(index.top_k(row_of(contexts, 1), 5, allowed=few), few, scores[few], 5)

    def test_an_item_without_a_group_is_in_none(self, fwfm, form, contexts):
        items = {"kind": ["u", "v", "w"], "z": [0.5] * 3, "words": [["a"]] * 3, "shelf": [3.0, None, 4.0]}
        index = sf.ItemIndex(fwfm, items, ids=[1, 2, 3], groups="shelf", form=form)
        assert index.groups == ("3", "4")
        assert sorted(index.top_k(row_of(contexts, 0), group=["3", "4"])[0].tolist()) == [1, 3]
        assert index.top_k(row_of(contexts, 0), group=3)[0].tolist() == [1]
        assert sorted(index.top_k(row_of(contexts, 0))[0].tolist()) == [1, 2, 3]


class TestContexts:
    @pytest.mark.parametrize("make", [pd.DataFrame, pa.table], ids=["pandas", "arrow"])
    def test_tables_of_any_kind(self, index, contexts, make):
        ids, scores = index.top_k(make({**contexts, "noise": ["?"] * 12}), 7)
        expected, expected_scores = index.top_k(contexts, 7)
        assert (ids == expected).all()
        assert (scores == expected_scores).all()

    def test_files(self, fwfm, tmp_path):
        table = mixed_table(30, seed=8)
        frame = pd.DataFrame({"kind": table["kind"], "user": table["user"], "id": [f"n{i}" for i in range(30)]})
        frame.to_csv(tmp_path / "items.csv")
        schema = sf.Schema([sf.Categorical("kind"), sf.Categorical("user")])
        fitted = random_fitted(sf.FM(k=2), schema, table)
        index = sf.ItemIndex(fitted, tmp_path / "items.csv", ids="id", groups="kind")
        again = sf.ItemIndex(fitted, frame, ids=frame["id"], groups=frame["kind"])
        assert index.ids.tolist() == again.ids.tolist()
        assert index.context_fields == ()
        assert index.top_k({}, 30, group="u")[0].tolist() == again.top_k({}, 30, group="u")[0].tolist()
        with pytest.raises(ValueError, match="the context has 'usr', which no field reads; all fields belong to the"):
            index.top_k({"usr": 1})

    def test_values_of_every_kind(self, index):
        expected, _ = index.top_k({"x": 0.5, "tags": ["a", "b"], "user": "3"}, 9)
        for context in (
            {"x": np.float32(0.5), "tags": ("a", "b"), "user": 3},
            {"x": 0.5, "tags": {"a", "b"}, "user": np.int64(3)},
            {"x": 0.5, "tags": np.array(["a", "b"]), "user": 3.0},
        ):
            assert index.top_k(context, 9)[0].tolist() == expected.tolist()
        nothing = {"x": None, "tags": None, "user": None}
        assert index.top_k(nothing, 9)[0].tolist() == index.top_k({k: [v] for k, v in nothing.items()}, 9)[0].tolist()
        assert index.top_k({"x": float("nan"), "tags": [], "user": "unheard of"}, 9)[0].shape == (9,)

    def test_a_context_of_lists_only(self):
        table = mixed_table(60)
        words, tags = sf.MultiValued("words"), sf.MultiValued("tags")
        fitted = random_fitted(sf.FM(k=3), sf.Schema([words, tags, sf.Categorical("kind")]), table)
        index = sf.ItemIndex(fitted, {"kind": ["u", "v", "w"]}, ids=[1, 2, 3])
        one = index.top_k({"words": ["a", "b"], "tags": None}, 3)
        assert one[0].shape == (3,)
        several = index.top_k({"words": [["a", "b"], ["c"]], "tags": [None, ["a"]]}, 3)
        assert several[0].shape == (2, 3)
        np.testing.assert_allclose(several[1][0], one[1], rtol=1e-6)
        index.check_context({"words": ["a", "b"], "tags": None})
        with pytest.raises(ValueError, match=r"got several of 'words', 'tags'; ask for one context at a time"):
            index.check_context({"words": [["a", "b"], ["c"]], "tags": [None, ["a"]]})

    def test_text_that_is_cut(self):
        table = {"tags": ["a|b", "c", "a", "b|c"] * 9, "kind": ["u", "v", "w", "u"] * 9}
        schema = sf.Schema([sf.MultiValued("tags", separator="|"), sf.Categorical("kind")])
        fitted = random_fitted(sf.FM(k=3), schema, table)
        index = sf.ItemIndex(fitted, {"kind": ["u", "v", "w"]}, ids=[1, 2, 3])
        one, several = index.top_k({"tags": "a|b"}, 3), index.top_k({"tags": ["a|b", "c"]}, 3)
        assert one[0].shape == (3,)
        np.testing.assert_allclose(several[1][0], one[1], rtol=1e-6)

    def test_searches_in_several_threads(self, index, contexts):
        expected = [index.top_k(row_of(contexts, i % 12), 20)[0].tolist() for i in range(60)]
        with ThreadPoolExecutor(4) as pool:
            found = list(
                pool.map(lambda i: index.top_k(row_of(contexts, i % 12), 20, threads=2)[0].tolist(), range(60))
            )
        assert found == expected


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"fitted": "model"}, "must be a sf.Fitted, got str"),
            ({"items": {"price": [1.0]}}, "items must have at least one of the model's fields, 'x', 'kind'"),
            ({"items": 3}, "cannot read a table from int"),
            ({"ids": "nr"}, "ids: no column 'nr'"),
            ({"ids": [1, 2]}, "ids has 2 values, but items has 3 rows"),
            ({"ids": [1, 2, 3, 4]}, "ids has 4 values, but items has 3 rows"),
            ({"ids": [1, None, 3]}, "ids: id number 1 is missing"),
            ({"ids": [1, 2, 1]}, "ids: 1 occurs twice; a catalog has one row per item"),
            ({"ids": ["a", "b", "b"]}, "ids: 'b' occurs twice"),
            ({"ids": [0.5, 1.0, 2.0]}, "integers or text, not double"),
            ({"ids": [1, "a", 2]}, "must be all integers or all text"),
            ({"ids": np.array([1, 2, 2**64 - 1], np.uint64)}, "below 2^63"),
            ({"ids": ["a", "b\0", "c"]}, "NUL"),
            ({"ids": 5}, "must be a list or an array of ids, got 5"),
            ({"ids": None}, "ids must be the name of a column or an array, got None"),
            ({"groups": "shelf"}, "groups: no column 'shelf'"),
            ({"groups": ["a"]}, "groups has 1 values, but items has 3 rows"),
            ({"groups": [["a"], ["b"], ["c"]]}, "'groups' holds lists"),
            ({"dtype": "float64"}, "dtype must be one of"),
            ({"form": "both"}, "form must be one of 'auto', 'vectors', 'effects', got 'both'"),
            ({"form": "effects", "dtype": "int8"}, 'form="effects" needs dtype="float32", got \'int8\'; use form='),
            ({"threads": 0}, "threads must be at least 1"),
            ({"items": {"kind": ["u"] * 3, "z": ["?"] * 3, "words": [["a"]] * 3}}, "column 'z' should hold numbers"),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_building(self, fwfm, change, message):
        items = {"kind": ["u", "v", "w"], "z": [0.5] * 3, "words": [["a"]] * 3}
        arguments = {"fitted": fwfm, "items": items, "ids": [1, 2, 3], **change}
        with pytest.raises((ValueError, TypeError), match=re.escape(message)):
            sf.ItemIndex(**arguments)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"context": {"x": 1.0, "tags": []}}, "the context has no 'user'"),
            ({"context": {"x": 1.0}}, "the context has no 'tags', 'user'"),
            (
                {"context": {"x": 1.0, "tags": [], "user": "1", "usr": "2"}},
                "the context has 'usr', which no field reads; nearest: 'user'; it takes 'x', 'tags', 'user'",
            ),
            (
                {"context": {"x": 1.0, "tags": [], "user": "1", "kind": "u"}},
                "the context has 'kind', which is a column of the items",
            ),
            (
                {"context": pa.table({"x": [1.0], "tags": [["a"]], "usr": ["1"]})},
                "no column 'user' in the table; nearest",
            ),
            ({"context": {"x": "high", "tags": [], "user": "1"}}, "column 'x' should hold numbers"),
            ({"context": {"x": 1.0, "tags": "a", "user": "1"}}, "column 'tags' holds text, not lists"),
            ({"context": {"x": 1.0, "tags": [], "user": ["1"]}}, "'user' is list ['1']"),
            ({"context": {"x": float("inf"), "tags": [], "user": "1"}}, "column 'x' holds inf"),
            ({"context": {"x": 1.0, "tags": [], "user": object()}}, "column 'user' holds values of type object"),
            ({"context": {"x": [1.0, 2.0], "tags": [[]], "user": ["1", "2"]}}, "columns must have the same length"),
            ({"context": None}, "cannot read a table from NoneType"),
            ({"k": 0}, "k must be an integer of at least 1, got 0"),
            ({"k": 2.5}, "k must be an integer of at least 1, got 2.5"),
            ({"k": True}, "k must be an integer of at least 1, got True"),
            ({"threads": 0}, "threads must be an integer of at least 1"),
            ({"allowed": ["a"]}, "allowed: the ids of the index are integers, got 'a'"),
            ({"excluded": [0.5]}, "excluded must be integers or text"),
            ({"excluded": ["a", 7]}, "excluded must be all integers or all text, got 'a' and 7"),
            ({"excluded": [7, "a"]}, "excluded must be all integers or all text, got 'a' and 7"),
            ({"allowed": 7}, "allowed must be a list or an array of ids"),
            ({"allowed": "7"}, "allowed must be a list or an array of ids"),
            ({"excluded": [1, None]}, "excluded: id number 1 is missing"),
            ({"group": "d"}, "the index has no 'd'; its groups: 'a', 'b', 'c'"),
            ({"group": ["a", "d"]}, "the index has no 'd'"),
            ({"group": [["a"]]}, "group"),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_searching(self, index, contexts, change, message):
        with pytest.raises((ValueError, TypeError), match=re.escape(message)):
            index.top_k(**{"context": row_of(contexts, 0), **change})

    def test_groups_of_an_index_without_any(self, fwfm, items, contexts):
        index = sf.ItemIndex(fwfm, items, ids=IDS)
        with pytest.raises(ValueError, match="the index has no groups"):
            index.top_k(row_of(contexts, 0), group="a")

    def test_parameters_that_are_not_finite(self, items, contexts):
        broken = random_fitted(sf.FM(k=4))
        broken.params["factors"][broken.encoder.layout.feature_ptr[1] :] = np.nan
        with pytest.raises(ValueError, match="the vector of an item is not finite"):
            sf.ItemIndex(broken, items, ids=IDS)
        broken = random_fitted(sf.FM(k=4))
        index = sf.ItemIndex(broken, items, ids=IDS)
        broken.params["factors"][:] = np.inf
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="the vector of a context is not finite"):
            index.top_k(row_of(contexts, 0))

    def test_numbers_too_large_for_half_floats(self, items):
        large = random_fitted(sf.FM(k=4))
        large.params["factors"] *= 1e5
        with pytest.raises(ValueError, match=r"too large for float16; use float32"):
            sf.ItemIndex(large, items, ids=IDS, dtype="float16")
        index = sf.ItemIndex(large, items, ids=IDS, dtype="int8")
        assert np.isfinite(index.error.bound)


class TestParts:
    def test_int8_keeps_vectors_of_zeros_and_of_any_size(self):
        vectors = np.array([[0.0, 0.0], [1e-30, -1e-30], [1e30, 3.0], [0.1, 0.2]])
        packed = pack(vectors, "int8")
        np.testing.assert_allclose(packed.decoded, vectors, atol=0.6 * np.abs(vectors).max() / 127)
        assert np.abs(packed.decoded - vectors)[3].max() <= 0.2 / 127 * 0.51
        assert packed.decoded[0].tolist() == [0.0, 0.0]

    @pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
    def test_a_store_that_grows_keeps_what_it_has(self, dtype):
        rng = np.random.default_rng(0)
        store, rows, kept = VectorStore(5, dtype), [], []
        for n in (1, 63, 2, 5000, 1, 9000):
            packed = pack(rng.normal(size=(n, 5)), dtype)
            rows.append(store.reserve(n))
            store.write(rows[-1], packed)
            store.publish(rows[-1], np.zeros(n, np.float32))
            kept.append(packed.decoded)
        np.testing.assert_allclose(store.vectors(np.concatenate(rows)), np.concatenate(kept), rtol=1e-6)
        assert store.capacity < 3 * 14067

    def test_ids_survive_many_changes(self):
        rng = np.random.default_rng(0)
        used = {}
        ids = Ids(lambda: np.array(sorted(used), np.int64))
        for step in range(300):
            row = int(rng.integers(0, 500))
            if row in used:
                ids.erase(np.array([row]))
                del used[row]
            else:
                used[row] = f"{row}-{step}" + "x" * (step // 20)
                ids.assign(np.array([row]), read_keys([used[row]], "ids"), 500)
        assert ids.find(read_keys(list(used.values()), "ids")).tolist() == list(used)
        assert ids.find(read_keys(["0", "x" * 999, ""], "ids")).tolist() == [-1, -1, -1]

    def test_no_group_at_all_is_not_every_group(self):
        assert Groups().wanted([]).tolist() == [0]

    def test_repr_says_what_it_is(self, index):
        what = {"vectors": "vectors of 12 float32 numbers", "effects": "effects by 16 numbers"}[index.form]
        assert repr(index) == f"ItemIndex(300 items, {what}, context: 'x', 'tags', 'user')"
        assert index
        assert index.dtype == "float32"

    def test_the_matrix_gives_the_scores(self, index, fwfm, items, contexts):
        ids, vectors, offsets = index.matrix()
        queries, constants = index.queries(index.encode_context(row_of(contexts, 3)))
        scores = vectors @ queries[0] + offsets + constants[0]
        assert ids.tolist() == sorted(IDS)
        np.testing.assert_allclose(scores[::-1], exact_scores(fwfm, row_of(contexts, 3), items), atol=1e-5)

    def test_items_are_read_in_chunks(self, fwfm, items, contexts, monkeypatch):
        whole = sf.ItemIndex(fwfm, items, ids=IDS)
        monkeypatch.setattr(ranking_catalog, "_CHUNK", 32)
        monkeypatch.setattr(ranking_catalog, "BLOCK", 7)
        names = [f"{i:05d}" + "x" * (i % 97) for i in IDS]  # in the order of the numbers, and of many lengths
        parts = sf.ItemIndex(fwfm, pd.DataFrame({**items, "nr": names}), ids="nr")
        ids, scores = parts.top_k(contexts, 30)
        expected, expected_scores = whole.top_k(contexts, 30)
        np.testing.assert_allclose(scores, expected_scores, atol=1e-6)
        assert [[int(name[:5]) for name in line] for line in ids.tolist()] == expected.tolist()
