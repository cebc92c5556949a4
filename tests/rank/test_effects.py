"""Items stored as features, whose effects add up: the same as vectors, for every kind of field."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.slots import FieldLayout, SlotLayout
from splinefm.model.family.formula import formula_scores
from splinefm.model.family.parameters import init_params
from splinefm.model.split import Split
from splinefm.rank import file as ranking_file
from splinefm.rank.effects import prefer_effects
from support import examples, one_of_each, random_fitted

SCHEMA = sf.Schema(
    [
        sf.Categorical("user"),
        sf.Categorical("ad", unseen="neutral"),
        sf.Numerical("price", sf.MinMax(), sf.BSpline(4), special=[0.0]),
        sf.Numerical("hour", sf.MinMax(), sf.BSpline(3)),
        sf.MultiValued("tags", max_length=3),
        sf.MultiValued("words", reduction="mean"),
        sf.Numerical("day", sf.MinMax(), sf.BSpline(4, degree=2, periodic=True)),
        sf.Numerical("age", sf.MinMax(), sf.Bins(5), reduction="identity"),
        sf.Numerical("rank", sf.MinMax(), sf.MultiResolution((2, 4), degree=1)),
    ]
)
CONTEXT = ("user", "hour")
ITEM = tuple(name for name in SCHEMA.names if name not in CONTEXT)
MODELS = [*one_of_each(9)[:5], sf.HigherOrderFM(k=3, order=2)]


def catalog_table(n, seed):
    rng = np.random.default_rng(seed)
    words = [rng.choice(list("abcde"), rng.integers(0, 4), replace=False).tolist() for _ in range(n)]
    return {
        "user": rng.choice(["a", "b", "c"], n).tolist(),
        "ad": [f"ad{i}" for i in rng.integers(0, 30, n)],
        "price": np.where(rng.random(n) < 0.2, 0.0, rng.random(n)).tolist(),
        "hour": rng.uniform(0, 24, n).tolist(),
        "tags": words,
        "words": words[::-1],
        "day": rng.random(n).tolist(),
        "age": [None if i % 7 == 0 else float(rng.normal()) for i in range(n)],
        "rank": rng.random(n).tolist(),
    }


def take(table, names, rows=slice(None)):
    return {name: table[name][rows] for name in names}


def catalog_model(model, schema=SCHEMA, table=None):
    return random_fitted(model, schema, catalog_table(200, seed=0) if table is None else table)


def all_scores(index, context):
    """Scores by id, ascending."""
    ids, scores = index.top_k(context, 10**6)
    return scores[np.argsort(ids)]


def dense(slots, n_rows):
    """Weights by feature of the whole model."""
    out = np.zeros((len(slots), n_rows))
    for w in range(slots.layout.n_windows):
        first, last = slots.layout.weight_ptr[w : w + 2]
        for j in range(first, last):
            np.add.at(out, (np.arange(len(slots)), slots.start[:, w] + j - first), slots.weight[:, j])
    return out


@pytest.fixture(scope="module")
def ffm():
    return catalog_model(sf.FFM(k=3))


@pytest.fixture(scope="module")
def items():
    return take(catalog_table(400, seed=2), ITEM)


@pytest.fixture(scope="module")
def contexts():
    return take(catalog_table(19, seed=3), CONTEXT)


@pytest.fixture
def index(ffm, items):
    return sf.ItemIndex(ffm, items, ids=np.arange(400), form="effects")


class TestBothForms:
    @pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
    def test_have_the_same_scores_and_vectors(self, model, items, contexts):
        fitted = catalog_model(model)
        vectors, effects = (sf.ItemIndex(fitted, items, ids=range(400), form=form) for form in ("vectors", "effects"))
        assert (vectors.form, effects.form) == ("vectors", "effects")
        for one, other in zip(vectors.matrix(), effects.matrix(), strict=True):
            np.testing.assert_array_equal(one, other)
        for i in range(6):
            context = {name: contexts[name][i] for name in CONTEXT}
            exact = fitted.scores({**items, **{name: [value] * 400 for name, value in context.items()}})
            np.testing.assert_allclose(all_scores(effects, context), exact, atol=1e-5)
            np.testing.assert_allclose(all_scores(effects, context), all_scores(vectors, context), atol=1e-5)

    @examples(30)
    @given(st.data())
    def test_rank_any_items_alike(self, ffm, data):
        text = st.sampled_from(["a", "b", "c", "d", "ad1", "ad2", "never", None])
        number = st.none() | st.sampled_from([0.0, 0.5, 1.0]) | st.floats(-2, 2)
        values = {"tags": st.lists(text, max_size=5), "words": st.lists(text, max_size=5), "ad": text, "user": text}
        n = data.draw(st.integers(1, 70))
        items = {name: data.draw(st.lists(values.get(name, number), min_size=n, max_size=n)) for name in ITEM}
        context = {name: data.draw(values.get(name, number)) for name in CONTEXT}
        index = sf.ItemIndex(ffm, items, ids=range(n), form="effects")
        ids, scores = index.top_k(context, n)
        slots = ffm.encoder.encode({**items, **{name: [value] * n for name, value in context.items()}})
        exact = formula_scores(ffm.model, ffm.params, slots)
        np.testing.assert_allclose(scores, exact[ids], atol=index.error.bound)
        assert sorted(ids.tolist()) == list(range(n))
        assert sorted(zip(-scores, ids, strict=True)) == list(zip(-scores, ids, strict=True))
        expected = sf.ItemIndex(ffm, items, ids=range(n), form="vectors").top_k(context, n)[1]
        np.testing.assert_allclose(scores, expected, atol=2e-5)

    @pytest.mark.parametrize("model", [*MODELS, sf.HigherOrderFM(k=3, order=3), sf.FwFM(k=3, third=2)], ids=str)
    @pytest.mark.parametrize("own", [(0,), (5,), (1, 2), (0, 3, 4, 6, 8), (1, 2, 3, 4, 5, 6, 7, 8), tuple(range(9))])
    def test_queries_of_table_rows_add_up_to_those_of_items(self, model, own):
        fitted = catalog_model(model)
        slots = fitted.encoder.encode(catalog_table(20, seed=5))
        split = Split(model, fitted.params, fitted.encoder.layout, own)
        assert split.is_linear == (model.order < 3 or len(own) == 1)
        if not split.is_linear:
            return
        query, part = split.context_side(split.part(slots, split.context)).vectors, split.part(slots, own)
        total = np.zeros((20, 20))
        for f, q in zip(own, split.feature_queries(query), strict=True):
            first, last = split.layout.feature_ptr[f : f + 2]
            weights = dense(part, split.layout.n_features)[:, first:last]
            total += q @ fitted.params["factors"][first:last, split.feature_columns(f)].T @ weights.T
        np.testing.assert_allclose(total, query @ split.item_side(part).vectors.T, atol=1e-5)


class TestOrder:
    @pytest.mark.parametrize("n_contexts", [1, 9])
    def test_equal_items_have_equal_scores_wherever_they_are(self, ffm, contexts, n_contexts):
        """Also where only the order inside a list differs."""
        one = take(catalog_table(1, seed=7), ITEM)
        orders = [["a", "b", "c"], ["b", "c", "a"], ["c", "b", "a"]]
        rng, n = np.random.default_rng(0), 9000
        items = {name: values * n for name, values in one.items()}
        items["tags"] = items["words"] = [orders[i] for i in rng.integers(0, 3, n)]
        index = sf.ItemIndex(ffm, items, ids=rng.permutation(n), form="effects")
        index.remove(range(100, 200))
        ids, scores = (np.atleast_2d(part) for part in index.top_k(take(contexts, CONTEXT, slice(n_contexts)), n))
        assert (scores == scores[:, :1]).all()
        assert (ids == np.delete(np.arange(n), np.arange(100, 200))).all()

    @pytest.mark.parametrize("n", [2, 4, 5, 8, 9, 19])
    def test_any_number_of_contexts_at_once(self, index, contexts, n):
        ids, scores = index.top_k(take(contexts, CONTEXT, slice(n)), 30)
        for i in range(n):
            one, one_scores = index.top_k({name: contexts[name][i] for name in CONTEXT}, 30)
            assert ids[i].tolist() == one.tolist()
            np.testing.assert_allclose(scores[i], one_scores, rtol=1e-5, atol=1e-5)


class TestError:
    def test_is_that_of_effects_where_there_is_nothing_else(self, items):
        schema = sf.Schema([sf.Categorical("user"), sf.Numerical("price", sf.MinMax(), sf.BSpline(4))])
        fitted = catalog_model(sf.FFM(k=3), schema)
        fitted.params["linear"][:] = fitted.params["bias"][:] = 0.0
        index = sf.ItemIndex(fitted, {"price": items["price"]}, ids=range(400), form="effects")
        slots = fitted.encoder.encode({"price": items["price"], "user": ["a"] * 400})
        gap = np.abs(all_scores(index, {"user": "a"}) - formula_scores(fitted.model, fitted.params, slots)).max()
        assert 0 < gap <= index.error.bound < 1e-5
        assert 0 < index.error.measured <= index.error.bound


class TestTables:
    def test_have_the_rows_in_use_only(self, ffm, index):
        """And one in front that stands for none; windows of several rows need all."""
        tables = dict(zip(ITEM, index._catalog.store.tables, strict=True))
        assert len(tables["ad"]) == 1 + 30
        assert len(tables["tags"]) == 1 + 5
        assert len(tables["price"]) == ffm.encoder.schema["price"].layout.n_features
        three = {**take(catalog_table(3, seed=1), ITEM), "ad": ["ad1", "ad2", "never"]}
        few = sf.ItemIndex(ffm, three, ids=range(3), form="effects")
        table = dict(zip(ITEM, few._catalog.store.tables, strict=True))["ad"]
        assert len(table) == 3
        few.add({**take(catalog_table(2, seed=1), ITEM), "ad": ["ad2", "ad7"]}, ids=[7, 8])
        assert len(table) == 4
        few.remove([0, 1, 2, 7, 8])
        assert len(few) == 0

    def test_grow_beyond_their_first_room(self):
        n = 9000
        table = {"user": ["a", "b", "c"] * (n // 3), "ad": [f"ad{i}" for i in range(n)]}
        schema = sf.Schema([sf.Categorical("user"), sf.Categorical("ad")])
        fitted = catalog_model(sf.FFM(k=3), schema, table)
        index = sf.ItemIndex(fitted, {"ad": table["ad"][:10]}, ids=range(10), form="effects")
        for first, last in ((10, 100), (100, 5000), (5000, n)):
            index.add({"ad": table["ad"][first:last]}, ids=range(first, last))
            exact = fitted.scores({"ad": table["ad"][:last], "user": ["b"] * last})
            np.testing.assert_allclose(all_scores(index, {"user": "b"}), exact, atol=1e-5)


def wide_split(model, n_fields, n_rows):
    """Half of the fields are the items'; each has a table of that size."""
    small, large = (
        SlotLayout(tuple(FieldLayout(f"c{i}", n, (1,), (0,)) for i in range(n_fields))) for n in (1, n_rows)
    )
    params = init_params(model, small, np.random.default_rng(0))
    return Split(model, params, large, tuple(range(n_fields // 2)))


class TestChoice:
    @pytest.mark.parametrize(
        ("model", "n_fields", "n_rows", "n_items", "expected"),
        [
            (sf.FFM(k=2), 12, 50, 10**6, True),
            (sf.FFM(k=2), 12, 50, None, True),  # taken for many
            (sf.FFM(k=2), 12, 50, 0, True),
            (sf.FM(k=2), 12, 50, 10**6, False),
            (sf.FwFM(k=4), 12, 50, 10**6, False),  # as many lookups as numbers, nearly
            (sf.FwFM(k=6), 12, 50, 10**6, True),
            (sf.FFM(k=1), 4, 50, 10**6, False),
            # As many rows as items: as many numbers as in all vectors, and lookups in addition.
            (sf.FFM(k=2), 6, 200_000, 200_000, False),
            (sf.FFM(k=2), 6, 200_000, 10**7, True),
            (sf.HigherOrderFM(k=40, order=3), 4, 50, 10**6, False),
        ],
    )
    def test_counts_what_a_request_reads(self, model, n_fields, n_rows, n_items, expected):
        assert prefer_effects(wide_split(model, n_fields, n_rows), n_items) == expected

    def test_is_made_where_nothing_else_is_said(self, ffm, items):
        assert sf.ItemIndex(ffm, items, ids=range(400)).form == "vectors"
        wide = catalog_model(sf.FFM(k=16))
        assert sf.ItemIndex(wide, items, ids=range(400)).form == "effects"
        assert sf.ItemIndex(wide, items, ids=range(400), form="vectors").form == "vectors"
        assert sf.ItemIndex(wide, items, ids=range(400), dtype="int8").form == "vectors"

    def test_products_of_table_rows_have_vectors_only(self, items):
        fitted = catalog_model(sf.HigherOrderFM(k=3, order=3))
        with pytest.raises(ValueError, match=r'HigherOrderFM\(k=3, order=3\) multiplies several .* form="vectors"'):
            sf.ItemIndex(fitted, items, ids=range(400), form="effects")


def forge(monkeypatch, what, values):
    """Files in which one part is another, sound in every byte."""
    real = ranking_file.write_container

    def write(file, number, version, description, tensors):
        description, tensors = dict(description), dict(tensors)
        target = tensors if what in tensors else description
        target[what] = values(target[what])
        real(file, number, version, description, tensors)

    monkeypatch.setattr(ranking_file, "write_container", write)


class TestFiles:
    @pytest.mark.parametrize(
        ("what", "values"),
        [
            ("starts", lambda starts: starts[:, 1:]),
            ("starts", lambda starts: starts[:, :, :-1]),
            ("starts", lambda starts: np.concatenate([starts] * 3)),
            ("starts", lambda starts: starts.view(np.float32)),
            ("weights", lambda weights: weights[:, 1:]),
            ("weights", lambda weights: weights[:, :, :64]),
            ("tables/0", lambda table: table[:, 1:]),
            ("tables/0", lambda table: table[:0]),
            ("tables/0", lambda table: table[:, :, :0]),
            ("table_rows/0", lambda rows: rows[1:]),
            ("table_rows/0", lambda rows: rows[:0]),
            ("table_rows/0", lambda rows: np.append(rows, 10**9)),
            ("table_rows/0", lambda rows: np.append(rows, -1)),
            ("table_rows/0", lambda rows: np.append(rows, rows[-1])),
            ("table_rows/0", lambda rows: np.arange(-1, 500)),
            ("form", lambda form: "vectors"),
            ("form", lambda form: "tables"),
            ("dtype", lambda dtype: "int8"),
            ("index_format", lambda number: 1),
        ],
    )
    def test_made_up_ones_are_refused(self, ffm, index, tmp_path, monkeypatch, what, values):
        forge(monkeypatch, what, values)
        index.save(tmp_path / "items.sfi")
        for mmap in (True, False):
            with pytest.raises(sf.ModelFileError):
                sf.ItemIndex.load(tmp_path / "items.sfi", ffm, mmap=mmap)

    @pytest.mark.parametrize("place", [-1, 2**31 - 1, -(2**31), 50])
    def test_indices_outside_of_tables_are_cut_off(self, ffm, index, contexts, tmp_path, monkeypatch, place):
        """Nothing verifies them: a kernel that followed them would read elsewhere."""
        shape = index._catalog.store.starts.values.shape
        forge(monkeypatch, "starts", lambda starts: np.full(shape, place, np.int32).view(np.uint8))
        index.save(tmp_path / "items.sfi")
        again = sf.ItemIndex.load(tmp_path / "items.sfi", ffm)
        last = [len(table) - 1 for table in again._catalog.store.tables]
        for n in (1, 9):
            _, scores = again.top_k(take(contexts, CONTEXT, slice(n)), 400)
            assert np.isfinite(scores).all()
            assert np.abs(scores).max() < 100
        assert max(last) < 50
        with pytest.raises(ValueError, match="the index is damaged: an item has a feature that its field does not"):
            again.matrix()
        with pytest.raises(sf.ModelFileError, match="an item has a feature that its field does not have"):
            sf.ItemIndex.load(tmp_path / "items.sfi", ffm, mmap=False)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_weights_that_are_not_finite_are_refused(self, ffm, index, tmp_path, monkeypatch, bad):
        shape = index._catalog.store.weights.values.shape
        forge(monkeypatch, "weights", lambda weights: np.full(shape, bad, np.float32))
        index.save(tmp_path / "items.sfi")
        with pytest.raises(sf.ModelFileError, match="its vectors contain NaN or infinity"):
            sf.ItemIndex.load(tmp_path / "items.sfi", ffm, mmap=False)

    def test_forms_stay_what_they_are(self, ffm, index, items, contexts, tmp_path):
        index.save(tmp_path / "items.sfi")
        again = sf.ItemIndex.load(tmp_path / "items.sfi", ffm)
        assert again.form == "effects"
        more = take(catalog_table(50, seed=9), ITEM)
        for one in (index, again):
            one.update(more, ids=range(50))
            one.add({**more, "ad": ["ad29"] * 50}, ids=range(1000, 1050))
        assert (again.top_k(contexts, 450)[1] == index.top_k(contexts, 450)[1]).all()
        assert again.error == index.error
