"""Approximate search by faiss, where it is installed."""

import sys

import numpy as np
import pytest

import splinefm as sf
from support import random_fitted

pytest.importorskip("faiss", reason="faiss is not installed: pip install 'splinefm[faiss]'")

N = 3000


@pytest.fixture(scope="module")
def index():
    rng = np.random.default_rng(0)
    table = {
        "user": rng.choice(list("abcdefgh"), N),
        "ad": [f"ad{i}" for i in rng.integers(0, 200, N)],
        "price": rng.random(N),
    }
    schema = sf.Schema([sf.Categorical("user"), sf.Categorical("ad"), sf.Numerical("price", sf.MinMax())])
    fitted = random_fitted(sf.FwFM(k=4), schema, table, scale=1.0)
    return sf.ItemIndex(fitted, {"ad": table["ad"], "price": table["price"]}, ids=rng.permutation(N))


CONTEXTS = {"user": list("abcdefgh")}


class TestApproximate:
    def test_looking_through_all_clusters_is_exact(self, index):
        near = index.approximate(method="clusters", clusters=20, probes=20)
        ids, scores = near.top_k(CONTEXTS, 25)
        expected, expected_scores = index.top_k(CONTEXTS, 25)
        assert (ids == expected).all()
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)
        assert near.recall(CONTEXTS, 25) == 1.0
        assert len(near) == N

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("options", "least"), [({}, 0.95), ({"probes": 8}, 0.8), ({"method": "graph"}, 0.95)], ids=str
    )
    def test_most_are_found(self, index, options, least):
        near = index.approximate(**options)
        assert least < near.recall(CONTEXTS, 20) <= 1.0
        ids, scores = near.top_k({"user": "c"}, 20)
        assert ids.shape == scores.shape == (20,)
        assert (np.diff(scores) <= 0).all()

    def test_recall_is_the_share_that_is_found(self, index):
        near = index.approximate(clusters=100, probes=1)
        ids, _ = near.top_k(CONTEXTS, 40)
        expected, _ = index.top_k(CONTEXTS, 40)
        share = np.mean([np.isin(one, other).mean() for one, other in zip(expected, ids, strict=True)])
        assert near.recall(CONTEXTS, 40) == pytest.approx(share)
        assert share < 0.9

    def test_an_index_of_effects_makes_vectors_for_it(self, index):
        rng = np.random.default_rng(1)
        items = {"ad": [f"ad{i}" for i in rng.integers(0, 200, 500)], "price": rng.random(500)}
        effects = sf.ItemIndex(index.fitted, items, ids=range(500), form="effects")
        near = effects.approximate(method="clusters", clusters=20, probes=20)
        ids, scores = near.top_k(CONTEXTS, 25)
        expected, expected_scores = effects.top_k(CONTEXTS, 25)
        assert (ids == expected).all()
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)

    def test_a_context_that_sees_few_items_gets_few(self, index):
        near = index.approximate(clusters=1000, probes=1)
        ids, scores = near.top_k({"user": "a"}, N)
        assert 0 < len(ids) < N
        assert np.isfinite(scores).all()

    def test_it_is_a_picture_of_the_index(self, index):
        near = index.approximate()
        removed = index.ids[:5].tolist()
        table = {"ad": ["ad1"] * 5, "price": [0.1] * 5}
        index.remove(removed)
        assert len(near) == N
        index.add(table, ids=removed)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"method": "magic"}, "method must be one of"),
            ({"clusters": 0}, "clusters must be an integer"),
            ({"probes": 0}, "probes must be an integer"),
            ({"effort": -1}, "effort must be an integer"),
            ({"neighbors": 1.5}, "neighbors must be an integer"),
        ],
    )
    def test_bad_options(self, index, options, message):
        with pytest.raises(ValueError, match=message):
            index.approximate(**options)

    def test_bad_searches(self, index):
        near = index.approximate()
        with pytest.raises(ValueError, match="k must be an integer"):
            near.top_k({"user": "a"}, 0)
        with pytest.raises(ValueError, match="the context has no 'user'"):
            near.top_k({}, 5)
        with pytest.raises(ValueError, match="contexts has no rows"):
            near.recall({"user": []}, 5)

    def test_no_items(self, index):
        empty = sf.ItemIndex(index.fitted, {"ad": [], "price": []}, ids=[])
        with pytest.raises(ValueError, match="the index has no items"):
            empty.approximate()


def test_without_faiss_a_message_says_what_to_install(index, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"pip install 'splinefm\[faiss\]'"):
        index.approximate()
