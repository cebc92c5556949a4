"""Approximate search of a catalog with faiss, an optional package: faster than reading all items, but not exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from splinefm._arrays import Array, Float32Array
from splinefm._checks import check_choice, check_size

if TYPE_CHECKING:
    from splinefm.rank.index import ItemIndex


class ApproximateIndex:
    """An approximate search, which reads only a part of the catalog; made by `ItemIndex.approximate`.

    It finds the largest inner products of the query, extended by 1 and 0, and the vectors, extended by their offset and
    by a number that gives all of them the same norm. Neighbors then have similar scores, which both methods rely on.
    It is a snapshot of the index: later changes to the index have no effect on it.

    Parameters
    ----------
    index : ItemIndex
        The exact index.
    method : {"clusters", "graph"}
        Search the clusters of items that are nearest to the query (an inverted file), or traverse a graph of neighbors
        (HNSW), which takes longer to build.
    clusters : int, optional
        Number of clusters. By default four times the square root of the number of items.
    probes : int
        Number of clusters to search. More probes find more and take longer.
    neighbors : int
        Number of neighbors of an item in the graph.
    effort : int
        Number of candidates that a traversal keeps. More candidates find more and take longer.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"user": ["a", "b"] * 50, "ad": ["x", "y", "y", "z"] * 25, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
    >>> index = sf.ItemIndex(fitted, {"ad": ["x", "y", "z"]}, ids=[1, 2, 3])
    >>> approximate = index.approximate(method="graph")  # doctest: +SKIP
    >>> approximate.recall({"user": ["a", "b"]}, k=2)  # doctest: +SKIP
    1.0
    """

    def __init__(
        self,
        index: ItemIndex,
        *,
        method: Literal["clusters", "graph"] = "clusters",
        clusters: int | None = None,
        probes: int = 64,
        neighbors: int = 32,
        effort: int = 128,
    ) -> None:
        check_choice("method", method, ("clusters", "graph"))
        for name, value in (("probes", probes), ("neighbors", neighbors), ("effort", effort)):
            check_size(name, value)
        if clusters is not None:
            check_size("clusters", clusters)
        faiss = _faiss()
        self.exact, self.method = index, method
        self._ids, vectors, offsets = index.matrix()
        if not len(self._ids):
            raise ValueError("the index has no items; add some first")
        points = _with_equal_norms(np.hstack([vectors, offsets[:, None]]))
        if method == "graph":
            self._search = faiss.IndexHNSWFlat(points.shape[1], int(neighbors), faiss.METRIC_INNER_PRODUCT)
            self._search.hnsw.efSearch = int(effort)
        else:
            self._search = _inverted_file(faiss, points, clusters, probes)
        self._search.add(points)

    def __repr__(self) -> str:
        return f"ApproximateIndex({len(self):,} items, {self.method})"

    def __len__(self) -> int:
        """Number of items."""
        return len(self._ids)

    def top_k(self, context: object, k: int = 10) -> tuple[Array, Float32Array]:
        """Find good items for a context, best first; fewer than k if no more were seen.

        Parameters
        ----------
        context : dict of values, or table
            As for `ItemIndex.top_k`.
        k : int
            Number of items. For a table with several rows, missing results have the score -inf and an arbitrary id.
        """
        check_size("k", k)
        queries, constants = self.exact.queries(self.exact.encode_context(context))
        ends = np.broadcast_to(np.array([1.0, 0.0], np.float32), (len(queries), 2))
        scores, found = self._search.search(np.hstack([queries, ends]), min(int(k), len(self)))
        scores = np.where(found >= 0, scores + constants[:, None], -np.inf).astype(np.float32)
        order = np.lexsort((found, -scores), axis=1)  # items are ordered by id
        found, scores = np.take_along_axis(found, order, axis=1), np.take_along_axis(scores, order, axis=1)
        if len(queries) == 1:
            seen = scores[0] > -np.inf
            return self._ids[found[0, seen]], scores[0, seen]
        return self._ids[found], scores

    def recall(self, contexts: object, k: int = 10) -> float:
        """The share of the exact k best items that is found, over the contexts of a table.

        An item with the same score as the k-th best counts as found.

        Parameters
        ----------
        contexts : table
            One row per context.
        k : int
            Number of items.
        """
        ids, scores = (np.atleast_2d(part) for part in self.exact.top_k(contexts, k))
        found, found_scores = (np.atleast_2d(part) for part in self.top_k(contexts, k))
        if not ids.size:
            raise ValueError("contexts has no rows; give at least one")
        right = 0
        for best, last, seen, seen_scores in zip(ids, scores[:, -1], found, found_scores, strict=True):
            right += int((np.isin(seen, best) & (seen_scores > -np.inf)).sum())
            right += int((~np.isin(seen, best) & (seen_scores >= last)).sum())
        return right / ids.size


def _with_equal_norms(points: Float32Array) -> Float32Array:
    squares = np.einsum("nd,nd->n", points, points, dtype=np.float64)
    return np.hstack([points, np.sqrt(squares.max() - squares)[:, None].astype(np.float32)])


def _inverted_file(faiss: Any, points: Float32Array, clusters: int | None, probes: int) -> Any:
    n, length = points.shape
    n_clusters = min(n, int(4 * np.sqrt(n)) if clusters is None else clusters)
    coarse = faiss.IndexFlatIP(length)
    search = faiss.IndexIVFFlat(coarse, length, n_clusters, faiss.METRIC_INNER_PRODUCT)
    search.cp.min_points_per_centroid = 1  # do not warn about small catalogs
    search.train(points)
    search.nprobe = min(int(probes), n_clusters)
    return search


def _faiss() -> Any:
    try:
        import faiss  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError(
            "approximate search needs faiss: pip install 'splinefm[faiss]'; the exact search of ItemIndex does not"
        ) from error
    return faiss
