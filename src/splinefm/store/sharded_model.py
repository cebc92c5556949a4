"""ShardedModel: scores tables with a model whose tables are in parts on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from splinefm._arrays import Float32Array, FloatArray, Int64Array
from splinefm._cached import cached_property
from splinefm._checks import check_fitted
from splinefm.encode.drift import Watch, watch_scores
from splinefm.encode.encoder import Encoder
from splinefm.encode.slots import Slots
from splinefm.model.family.contract import Params
from splinefm.model.scores import BatchScorer
from splinefm.store.container import Damaged
from splinefm.store.model_file import load
from splinefm.store.sharded import (
    TABLES,
    Manifest,
    Part,
    Piece,
    begin_shards,
    finish_shards,
    is_sharded,
    load_error,
    range_locations,
    read_head,
    removing_parts_on_error,
    write_model,
    write_shard,
)
from splinefm.train.fitted import Fitted, encode_rows

TableScorer: TypeAlias = Callable[[object], Float32Array]
# Rows that are scored at a time: their active features are in memory.
MAX_ROWS, GATHERED_BYTES = 65_536, 1 << 27
# Features that are read at a time to write or train the model.
PIECE_BYTES = 1 << 24


@dataclass(frozen=True, eq=False)
class ShardedModel:
    """A model in a folder of parts, for tables of parameters that no single machine holds.

    Scoring reads only the features that are active in some rows at a time, from files that are mapped into memory.
    `splinefm fit --sharded-out` and `ShardedModel.write` write such folders.

    Parameters
    ----------
    folder : Path
        The folder.
    head : Fitted
        The model without "factors" and "linear" in its parameters.
    parts : tuple of Part
        The vectors and linear weights.

    Examples
    --------
    >>> import tempfile
    >>> import splinefm as sf
    >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sharded = sf.ShardedModel.write(fitted, f"{folder}/model", parts=2)
    ...     bool((sharded.scores(table) == fitted.scores(table)).all())
    True
    """

    folder: Path
    head: Fitted
    parts: tuple[Part, ...] = field(repr=False)

    @staticmethod
    def open(folder: str | os.PathLike[str], *, verify: bool = True) -> ShardedModel:
        """Open a folder that `splinefm fit --sharded-out` or `write` wrote.

        Parameters
        ----------
        folder : path
            The folder.
        verify : bool
            Read all parts once to verify their checksums. Without it, missing and truncated files are found, but not
            damaged numbers.

        Raises
        ------
        ModelFileError
            If a part is missing, truncated or damaged, or from a newer version of splinefm.
        """
        path = Path(folder)
        if not path.is_dir():
            raise FileNotFoundError(f"no folder {str(path)!r}; splinefm fit --sharded-out writes sharded models")
        try:
            manifest = Manifest.read(path)
            head = read_head(path, manifest)
            parts = [Part.open(path, entry, manifest.width, manifest.n_outputs) for entry in manifest.parts]
        except (OSError, MemoryError):
            raise
        except Exception as error:  # an invalid description can raise anything
            raise load_error(path, error) from error
        model = ShardedModel(path, head, tuple(parts))
        if verify:
            model.verify()
        return model

    @staticmethod
    def write(fitted: Fitted, folder: str | os.PathLike[str], *, parts: int = 2) -> ShardedModel:
        """Write a fitted model as a folder of parts, each with the same number of features up to one.

        Parameters
        ----------
        fitted : Fitted
            The model, such as `sf.load(path, mmap=True)`.
        folder : path
            The folder to create, or one with a sharded model, which is replaced.
        parts : int
            Number of parts.
        """
        n = check_fitted(fitted).encoder.layout.n_features
        if not 1 <= parts <= n:
            raise ValueError(f"parts must be from 1 to the number of features, {n:,}; got {parts!r}")
        head, save = without_tables(fitted), begin_shards(folder)
        bounds = [n * part // parts for part in range(parts + 1)]
        entries = []
        with removing_parts_on_error(folder, save):
            for part in range(parts):
                begin, end = bounds[part], bounds[part + 1]
                pieces = table_pieces(fitted, begin, end)
                entries.append(write_shard(folder, save, part, [(begin, end)], head, pieces))
            finish_shards(folder, save, head, entries)
        return ShardedModel.open(folder, verify=False)

    def verify(self, process: int = 0, n_processes: int = 1) -> None:
        """Read parts to verify their checksums: all of them, or those that fall to one of several processes.

        Parameters
        ----------
        process, n_processes : int
            The index of this process, from 0, and the number of processes.
        """
        try:
            for part in self.parts[process::n_processes]:
                part.verify()
        except Damaged as error:
            raise load_error(self.folder, error) from error

    @property
    def encoder(self) -> Encoder:
        """Turns tables into slots."""
        return self.head.encoder

    @property
    def n_features(self) -> int:
        """Rows of the tables."""
        return self.head.encoder.layout.n_features

    def scores(self, table: object, *, threads: int | None = None, watch: bool | Watch = True) -> Float32Array:
        """Return the raw scores of all rows of a table, as `Fitted.scores` does.

        Parameters
        ----------
        table : table, path or dataset
            Anything that `open_table` takes, or slots.
        threads : int, optional
            Number of threads; all cores by default.
        watch : bool
            Warn (`DriftWarning`) if many more values are unseen, out of range or missing than in training.
        """
        if isinstance(table, Slots):
            self.head.check_slots(table)
            return self._score(table, threads)
        return watch_scores(lambda found: self.table_scorer(threads=threads, watch=found)(table), watch, self.encoder)

    def predict(self, table: object, *, threads: int | None = None, watch: bool | Watch = True) -> FloatArray:
        """Return predictions for all rows, as `Fitted.predict` does.

        Parameters
        ----------
        table, threads, watch
            As in `scores`.
        """
        return self.head.loss.predict(self.scores(table, threads=threads, watch=watch).astype(np.float64))

    def table_scorer(self, *, threads: int | None = None, watch: Watch | None = None) -> TableScorer:
        """Return a function that computes the scores of tables, as `Fitted.table_scorer` does.

        Parameters
        ----------
        threads : int, optional
            Number of threads; all cores by default.
        watch : Watch, optional
            Counts unusual values; call its `warn` at the end.
        """

        def scores(table: object) -> Float32Array:
            chunks = encode_rows(self.head, table, rows=self._rows_at_once, threads=threads, watch=watch)
            parts = [self._score(slots, threads) for slots in chunks]
            return np.concatenate(parts) if parts else self._empty_scores()

        return scores

    def pieces(self, begin: int = 0, end: int | None = None) -> Iterator[Piece]:
        """Yield first feature, vectors and linear weights of neighboring features, in order: copies of a few MB.

        Parameters
        ----------
        begin, end : int
            The first feature, and the one after the last; all by default.
        """
        stop = self.n_features if end is None else end
        if not 0 <= begin <= stop <= self.n_features:
            raise ValueError(f"features {begin:,} to {stop:,} are not among the {self.n_features:,} of the model")
        for first, last, part, at in self._ranges():
            low, high = max(first, begin), min(last, stop)
            for feature in range(low, high, self._features_at_once):
                until = min(feature + self._features_at_once, high)
                factors, linear = part.rows(feature - first, until - first, at)
                yield feature, *((factors[0], linear[0]) if self.head.n_outputs == 1 else (factors, linear))

    def gather(self, features: Int64Array) -> Params:
        """Return the parameters of a model that has only these features, which must be sorted.

        Parameters
        ----------
        features : array of int
            The features.
        """
        width, n_outputs = self.parts[0].factors.shape[2], self.head.n_outputs
        factors = np.empty((n_outputs, len(features), width), np.float32)
        linear = np.empty((n_outputs, len(features)), np.float32)
        cuts = np.searchsorted(features, np.append(self._locations[:, 0], self.n_features))
        for (first, number, at), low, high in zip(self._locations.tolist(), cuts[:-1], cuts[1:], strict=True):
            if low < high:
                rows = features[low:high] - first + at
                factors[:, low:high] = self.parts[number].factors[:, rows]
                linear[:, low:high] = self.parts[number].linear[:, rows]
        tables = {"linear": linear, "factors": factors}
        return {**self.head.params, **({n: v[0] for n, v in tables.items()} if n_outputs == 1 else tables)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file that `sf.load` reads; the tables are never in memory as a whole.

        Parameters
        ----------
        path : path
            The file, usually with the suffix ".sfm".
        """
        write_model(path, self.head, self.pieces())

    def _score(self, slots: Slots, threads: int | None) -> Float32Array:
        parts = [self._score_some(slots[at : at + self._rows_at_once], threads) for at in self._starts(slots)]
        return np.concatenate(parts) if parts else self._empty_scores()

    def _score_some(self, slots: Slots, threads: int | None) -> Float32Array:
        features, small = slots.compact()
        return BatchScorer(self.head.model, self.gather(features), small.layout, threads)(small)

    def _starts(self, slots: Slots) -> range:
        return range(0, len(slots), self._rows_at_once)

    def _empty_scores(self) -> Float32Array:
        return np.empty((0,) if self.head.n_outputs == 1 else (0, self.head.n_outputs), np.float32)

    @cached_property
    def _locations(self) -> Int64Array:
        return range_locations(self.parts)

    def _ranges(self) -> Iterator[tuple[int, int, Part, int]]:
        """Yield the ranges in the order of features: first, the one after the last, part, and row in it."""
        stops = [*self._locations[1:, 0].tolist(), self.n_features]
        for (first, number, at), stop in zip(self._locations.tolist(), stops, strict=True):
            yield first, stop, self.parts[number], at

    @property
    def _feature_bytes(self) -> int:
        return 4 * self.head.n_outputs * (int(self.parts[0].factors.shape[2]) + 1)

    @property
    def _rows_at_once(self) -> int:
        return max(256, min(MAX_ROWS, GATHERED_BYTES // (self._feature_bytes * self.encoder.layout.n_weights)))

    @property
    def _features_at_once(self) -> int:
        return max(1, PIECE_BYTES // self._feature_bytes)


def without_tables(fitted: Fitted) -> Fitted:
    """Return a model without its tables."""
    return replace(fitted, params={name: values for name, values in fitted.params.items() if name not in TABLES})


def table_pieces(fitted: Fitted, begin: int, end: int) -> Iterator[Piece]:
    """Yield pieces of the tables of a model: views, without copies."""
    factors, linear = fitted.params["factors"], fitted.params["linear"]
    step = max(1, PIECE_BYTES // (4 * fitted.n_outputs * (factors.shape[-1] + 1)))
    for at in range(begin, end, step):
        until = min(at + step, end)
        yield at, factors[..., at:until, :], linear[..., at:until]


def open_model(path: str | os.PathLike[str]) -> tuple[Fitted, Callable[..., TableScorer]]:
    """Return what scoring needs: a model, without its tables if it is sharded, and its `table_scorer`."""
    if is_sharded(path):
        sharded = ShardedModel.open(path)
        return sharded.head, sharded.table_scorer
    fitted = load(path)
    return fitted, fitted.table_scorer
