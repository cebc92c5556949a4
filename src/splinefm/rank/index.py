"""ItemIndex: precompute the item side of a model once, and find the best items for a context in one pass.

With the fields of a context fixed, the score of every model of the family is (see `splinefm.model.split`)

    score(context, item) = constant(context) + offset(item) + query(context) · vector(item)

so a catalog is one matrix with a vector per item, and a request is one product with it. If that is faster, an item is
stored as its features instead (see `splinefm.rank.effects`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from splinefm._arrays import Array, Float32Array
from splinefm._checks import check_choice, check_one_score, check_size
from splinefm._wording import for_reader
from splinefm.encode.slots import Slots
from splinefm.encode.tables.names import quoted
from splinefm.encode.tables.open import open_table
from splinefm.model.split import Split
from splinefm.rank.catalog import Catalog
from splinefm.rank.effects import EffectStore, choose_form
from splinefm.rank.error import ScoreError
from splinefm.rank.file import index_sections
from splinefm.rank.ids import as_ids, sort_keys, written_types
from splinefm.rank.sides import FieldSubset, fields_of_items
from splinefm.rank.store import PANEL_TYPES, Dtype, Filter, Form, Positions
from splinefm.train.fitted import Fitted

if TYPE_CHECKING:
    from splinefm.rank.approximate import ApproximateIndex


class ItemIndex:
    """A catalog of items, to find the best ones for a context.

    The fields of the model that are columns of `items` belong to the items, all others to the context. A cross belongs
    to the side that has all its columns; a model with a cross of both sides cannot be indexed. Several
    threads can search while others change the index: a search sees all of a change, or nothing of it.

    Parameters
    ----------
    fitted : Fitted
        The model.
    items : table, path or dataset
        The catalog, anything that `open_table` accepts: one row per item.
    ids : str or array
        Name of the column of ids, or the ids: unique integers or text. In a text file, ids are text, as written.
    groups : str or array, optional
        Name of a column of groups, or the groups, to restrict searches to some of them. They need not be fields.
    dtype : {"float32", "float16", "int8"}
        Storage type of vectors. Fewer bytes make an index smaller and faster, and scores less exact; see `error`.
    form : {"auto", "vectors", "effects"}
        What is stored of an item: its vector, or its features, whose effects on scores are computed once per context
        and then looked up. Scores are the same up to float32 rounding. By default the faster form is chosen, and
        vectors if `dtype` is not float32. Effects need float32, and a model whose score has no products of several
        features of an item, unlike `HigherOrderFM`.
    threads : int, optional
        Number of threads for building. All cores by default.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"user": ["a", "b"] * 50, "ad": ["x", "y", "y", "z"] * 25, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
    >>> index = sf.ItemIndex(fitted, {"ad": ["x", "y", "z"], "ad_id": [10, 20, 30]}, ids="ad_id")
    >>> ids, scores = index.top_k({"user": "a"}, k=2)
    >>> ids.shape, bool(scores[0] >= scores[1])
    ((2,), True)
    """

    def __init__(
        self,
        fitted: Fitted,
        items: object,
        ids: str | object,
        *,
        groups: str | object | None = None,
        dtype: Dtype = "float32",
        form: Literal["auto", "vectors", "effects"] = "auto",
        threads: int | None = None,
    ) -> None:
        check_choice("dtype", dtype, tuple(PANEL_TYPES))
        check_choice("form", form, ("auto", "vectors", "effects"))
        types = check_one_score(fitted, what="an item index").encoder.schema.column_types()
        _refuse_offset(fitted)
        source = open_table(items, types=written_types(ids, groups) | types)
        item_fields = fields_of_items(fitted, source.names)
        columns = [name if isinstance(name, str) else None for name in (ids, groups)]
        split = Split(fitted.model, fitted.params, fitted.encoder.layout, item_fields)
        chosen = choose_form(form, dtype, split, source.n_rows)
        self._set(fitted, Catalog(fitted, item_fields, chosen, dtype, columns[0], columns[1], groups is not None))
        if source.n_rows is not None:
            self._catalog.store.ensure_capacity(source.n_rows)
        self._catalog.commit(self._catalog.stage(source, ids, groups, threads), replace=False)

    def _set(self, fitted: Fitted, catalog: Catalog) -> None:
        _refuse_offset(fitted)
        self.fitted, self._catalog, self._split = fitted, catalog, catalog.split
        self._context = FieldSubset(fitted, self._split.context)

    # Properties

    def __len__(self) -> int:
        """Number of items."""
        return self._catalog.store.n_positions - len(self._catalog.store.free)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        store = self._catalog.store
        what = f"vectors of {self.length} {self.dtype} numbers"
        if isinstance(store, EffectStore):
            what = f"effects by {store.numbers_per_item} numbers"
        return f"ItemIndex({len(self):,} items, {what}, context: {quoted(self.context_fields)})"

    @property
    def form(self) -> Form:
        """What is stored of an item: its vector, or its features."""
        return self._catalog.store.form

    @property
    def dtype(self) -> Dtype:
        """Storage type of the numbers."""
        return self._catalog.store.dtype

    @property
    def length(self) -> int:
        """Length of the vector of an item."""
        return self._split.length

    @property
    def item_fields(self) -> tuple[str, ...]:
        """Fields of an item."""
        return self._catalog.item_subset.names

    @property
    def item_columns(self) -> tuple[str, ...]:
        """Columns that the fields of an item read, each once."""
        return self._catalog.item_subset.columns

    @property
    def context_fields(self) -> tuple[str, ...]:
        """Fields of a context."""
        return self._context.names

    @property
    def context_columns(self) -> tuple[str, ...]:
        """Columns that the fields of a context read, each once."""
        return self._context.columns

    @property
    def ids(self) -> Array:
        """All ids, ascending."""
        with self._catalog.lock.reading():
            ids = self._catalog.ids
            words = ids.words[self._catalog.store.published()]
        return as_ids(words[np.argsort(sort_keys(words, ids.kind))], ids.kind)

    @property
    def groups(self) -> tuple[str, ...]:
        """All groups that an item ever had."""
        return self._catalog.groups.names

    @property
    def error(self) -> ScoreError:
        """Bound and measurement of the error of scores."""
        return self._catalog.meter.error

    def matrix(self) -> tuple[Array, Float32Array, Float32Array]:
        """Ids, vectors of shape (n, length) and offsets of all items, by ascending id, for other search engines."""
        store, ids = self._catalog.store, self._catalog.ids
        with self._catalog.lock.reading():
            positions = store.published()
            positions = positions[np.argsort(ids.order(positions))]
            return ids.as_given(positions), store.vectors(positions), store.offsets[positions]

    # Search

    def top_k(
        self,
        context: object,
        k: int = 10,
        *,
        allowed: object = None,
        excluded: object = None,
        group: str | Sequence[str] | None = None,
        threads: int = 1,
    ) -> tuple[Array, Float32Array]:
        """Find the best items for a context, best first; equal scores are ordered by ascending id.

        Parameters
        ----------
        context : dict of values, or table
            One value for each field of the context (None for a missing value, a list for a multi-valued field), and no
            other; or a table with a row per context, whose other columns are ignored.
        k : int
            Number of items, or fewer if there are not enough.
        allowed : sequence of ids, optional
            Search these items only. Ids that the index does not have are ignored, here and in `excluded`.
        excluded : sequence of ids, optional
            Do not return these items.
        group : str or sequence of str, optional
            Search items of these groups only.
        threads : int
            Number of threads. Does not change the result.

        Returns
        -------
        ids, scores : arrays
            Shape (k,) for a dict or a table with one row, (contexts, k) for a table with several.

        Examples
        --------
        >>> import splinefm as sf
        >>> table = {"user": ["a", "b"] * 50, "ad": ["x", "y", "y", "z"] * 25, "click": [0, 1] * 50}
        >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
        >>> index = sf.ItemIndex(fitted, {"ad": ["x", "y", "z"]}, ids=["X", "Y", "Z"])
        >>> ids, scores = index.top_k({"user": ["a", "b", None]}, k=2, excluded=["Y"])
        >>> sorted(ids[0].tolist()), scores.shape
        (['X', 'Z'], (3, 2))
        """
        check_size("k", k)
        check_size("threads", threads)
        queries, constants = self.queries(self.encode_context(context))
        with self._catalog.lock.reading():
            filter, panels = self._filter(allowed, excluded, group)
            k = min(int(k), len(self))
            candidates = self._catalog.store.search(queries, constants, k, filter, panels, int(threads))
            ids, scores = self._ranked(candidates, k)
        return (ids[0], scores[0]) if len(queries) == 1 else (ids, scores)

    def check_context(self, context: Mapping[str, object]) -> None:
        """Raise unless a dict is one context; a server asks, since a table in a request could have any number of rows.

        Parameters
        ----------
        context : dict
            A value for every column of `context_columns`.
        """
        self._context.check_row(context)

    def encode_context(self, context: object) -> Slots:
        """Encode the fields of contexts, given a dict of values or a table."""
        return self._context.encode_any(context)

    def queries(self, slots: Slots) -> tuple[Float32Array, Float32Array]:
        """Vectors of encoded contexts, and the constants that they add to all scores."""
        return self._catalog.queries(slots)

    def _filter(self, allowed: object, excluded: object, group: object) -> tuple[Filter, Positions | None]:
        """Which positions may be found, and their panels (None: all)."""
        catalog = self._catalog
        keep, wanted, panels = np.zeros(0, np.uint8), np.zeros(0, np.uint8), None
        n = catalog.store.capacity
        if allowed is not None:
            positions = catalog.known_positions(allowed, "allowed")
            keep = np.zeros(n, np.uint8)
            keep[positions] = 1
            panels = np.unique(positions // catalog.store.size)
        if excluded is not None:
            keep = np.ones(n, np.uint8) if allowed is None else keep
            keep[catalog.known_positions(excluded, "excluded")] = 0
        if group is not None:
            if not catalog.has_groups:
                way = for_reader("groups, such as groups='category'", "--groups COLUMN")
                raise ValueError(f"the index has no groups; build it with {way}")
            wanted = catalog.groups.wanted(group)
        return Filter(keep, catalog.groups.codes, wanted), panels

    def _ranked(self, candidates: list[tuple[Float32Array, Positions]], k: int) -> tuple[Array, Float32Array]:
        """Ids and scores of the best candidates, in order."""
        ids = self._catalog.ids
        best = [np.lexsort((ids.order(positions), -scores))[:k] for scores, positions in candidates]
        n = len(best[0]) if best else k
        if any(len(part) != n for part in best):
            raise ValueError("scores are not finite: the model's parameters contain NaN or infinity; refit it")
        pairs = list(zip(candidates, best, strict=True))
        scores = np.concatenate([np.zeros(0, np.float32), *(scores[part] for (scores, _), part in pairs)])
        positions = np.concatenate([np.zeros(0, np.int64), *(positions[part] for (_, positions), part in pairs)])
        return ids.as_given(positions).reshape(len(candidates), n), scores.reshape(len(candidates), n)

    # Changes

    def add(self, items: object, ids: object = None, *, groups: object = None, threads: int | None = None) -> None:
        """Add items; all of them, or none if one is already in the index.

        Parameters
        ----------
        items, ids, groups
            As for the index. Column names default to those given to the index.
        threads : int, optional
            Number of threads. All cores by default.
        """
        catalog = self._catalog
        catalog.commit(catalog.stage(catalog.open(items, ids, groups), ids, groups, threads), replace=False)

    def update(self, items: object, ids: object = None, *, groups: object = None, threads: int | None = None) -> None:
        """Replace items of the index; all of them, or none if one is not in the index.

        Parameters
        ----------
        items, ids, groups
            As for the index. Column names default to those given to the index.
        threads : int, optional
            Number of threads. All cores by default.
        """
        catalog = self._catalog
        catalog.commit(catalog.stage(catalog.open(items, ids, groups), ids, groups, threads), replace=True)

    def remove(self, ids: object) -> None:
        """Remove items; all of them, or none if one is not in the index.

        Parameters
        ----------
        ids : sequence of ids
            The items.
        """
        self._catalog.remove(ids)

    # Files, and approximate search

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index, without the model, to one file. An existing file is replaced atomically.

        Parameters
        ----------
        path : path
            The file to write; the usual ending is ".sfi".
        """
        from splinefm.rank.file import save

        with self._catalog.lock.reading():
            save(self._catalog, self.fitted, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], fitted: Fitted, *, mmap: bool = True) -> Self:
        """Read an index from a file.

        Parameters
        ----------
        path : path
            A file written by `save`.
        fitted : Fitted
            The model that the index was built with.
        mmap : bool
            Map the vectors instead of reading them: they are read on first use, processes share them, and their
            checksums are not verified. Changes to the index stay in memory.

        Raises
        ------
        ModelFileError
            If the file is damaged, of another kind, or belongs to another model.
        """
        from splinefm.rank.file import load

        index = cls.__new__(cls)
        index._set(check_one_score(fitted, what="an item index"), load(path, fitted, mmap))
        return index

    def image(self) -> dict[str, Array]:
        """Return the items as sections of a scorer file; `fitted.export_scorer(path, index=index)` writes them."""
        with self._catalog.lock.reading():
            return index_sections(self._catalog)

    def approximate(self, **options: Any) -> ApproximateIndex:
        """Make a faster index that may miss some of the best items; options as for `splinefm.ApproximateIndex`."""
        from splinefm.rank.approximate import ApproximateIndex

        return ApproximateIndex(self, **options)


def _refuse_offset(fitted: Fitted) -> None:
    if fitted.offset is not None:
        raise ValueError(
            f"an item index has no offsets, and the model has the {fitted.offset}: one for all items of a request does "
            "not change their order; use fitted.without_offset()"
        )
