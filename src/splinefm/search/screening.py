"""What a model leaves unexplained, and which pairs of columns explain it: candidates for crosses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._arrays import Array, BoolArray, FloatArray, Int32Array, Int64Array
from splinefm._core import cell_gains
from splinefm._parallel import count_threads
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import Cross
from splinefm.encode.tables.arrow import to_arrow, to_numpy
from splinefm.encode.tables.spelling import canonical
from splinefm.model.scores import predict_scores
from splinefm.search.setting import Setting
from splinefm.train.chunks import Chunks, take_rows
from splinefm.train.loop import settings_for, train
from splinefm.train.progress import Progress
from splinefm.train.rows import row_randoms
from splinefm.train.settings import Training

# Which pairs of columns act together in a way that a model does not know of: candidates for crosses.

# Cells per column, coarse to fine: each level explains what the coarser ones left, shrunk as by SHRINKAGE rows without
# a residual, so that a fine effect is found if there is one and noise does not pile up.
LEVELS, SHRINKAGE = (4, 8, 16, 32, 64), 60.0
# Numbers with at most this many distinct values are cells of their own; categories beyond the most frequent share one.
FEW_VALUES, MAX_CATEGORIES = 64, 256
# A candidate explains at least this share of the squared residuals of other rows, beyond its two columns alone.
MIN_GAIN = 0.008
# All pairs are compared on two halves of the rows; the best of them on more folds, whose cells learn from more rows.
CONTENDERS, FOLDS = 8, 5
# Rows times pairs of columns: a second or two. Tables with more columns screen the ones that move the score the most.
MAX_WORK, MAX_COLUMNS, MAX_SCREENED = 20_000_000, 40, 100_000
WORK_AT_ONCE = 2_000_000


class Candidate(NamedTuple):
    """A pair of columns, and the share of the squared residuals that its cells explain on other rows."""

    cross: Cross
    gain: float


@dataclass(frozen=True)
class CodedColumn:
    """A column as cells of several sizes: `levels` has the cell of every row and the number of cells."""

    name: str
    is_number: bool
    few_values: bool
    levels: tuple[tuple[Int64Array, int], ...]


class Folds(NamedTuple):
    """Parts of the rows, given a random position of each in [0, 1): the cells of the others explain each of them."""

    position: FloatArray
    n: int

    @property
    def of_row(self) -> Int32Array:
        """The fold of every row."""
        return (self.n * self.position).astype(np.int32)


Pair = tuple[int, int]
"""Numbers of two columns."""
SINGLE_COLUMN = -1
"""In place of a second column."""


def screen(
    encoder: Encoder,
    values: Mapping[str, npt.NDArray[np.generic]],
    residual: FloatArray,
    score: FloatArray,
    seed: int,
    threads: int | None = None,
) -> list[Candidate]:
    """Return the pairs of columns whose cells explain residuals, the best first.

    Parameters
    ----------
    encoder : Encoder
        The fitted fields.
    values : mapping of str to array
        Numbers or category features of some rows, by field.
    residual, score : array
        What the model leaves unexplained in these rows, which it was not trained on, and its scores.
    seed : int
        Seed of the folds of rows.
    threads : int, optional
        Pairs to compare at the same time; all cores by default. The result does not depend on it.
    """
    columns = [column for name, array in values.items() if (column := code_column(encoder, name, array)) is not None]
    columns = _strongest(columns, score, len(residual))
    position = np.random.default_rng([0x637273, seed]).random(len(residual))
    if not residual.any() or len(columns) < 2:
        return []
    schema = encoder.schema
    every = [
        (a, b) for a, b in combinations(range(len(columns)), 2) if schema.may_cross(columns[a].name, columns[b].name)
    ]
    contenders = [pair for _, pair in _best_pairs(columns, every, residual, Folds(position, 2), threads)[:CONTENDERS]]
    judged = _best_pairs(columns, contenders, residual, Folds(position, FOLDS), threads)
    chosen = [(gain, columns[a], columns[b]) for gain, (a, b) in judged if gain >= MIN_GAIN]
    return [Candidate(_make_cross(encoder, first, second), gain) for gain, first, second in chosen]


def code_column(encoder: Encoder, name: str, values: npt.NDArray[np.generic]) -> CodedColumn | None:
    """Return the cells of a column; None for a column with a single value."""
    item = encoder.schema[name]
    if not item.is_numerical:
        feature = np.asarray(values, np.int64)
        count = np.bincount(feature, minlength=item.layout.n_features)
        order = np.argsort(-count, kind="stable")[: MAX_CATEGORIES - 1]
        cell = np.full(len(count), len(order), np.int64)
        cell[order] = np.arange(len(order))
        level = (cell[feature], len(order) + 1)
        return CodedColumn(name, False, False, (level,) * len(LEVELS)) if (count > 0).sum() > 1 else None
    x = np.asarray(values, np.float64)
    distinct, code = np.unique(x, return_inverse=True)
    if len(distinct) < 2:
        return None
    if len(distinct) <= FEW_VALUES:
        n = len(distinct)
        levels = tuple((code * min(size, n) // n, min(size, n)) for size in LEVELS)
        return CodedColumn(name, True, True, levels)
    rank = np.cumsum(np.bincount(code)) - 1  # the last row of each value, in order; missing ones come last
    share = rank[code] / len(x)
    return CodedColumn(name, True, False, tuple(((share * size).astype(np.int64), size) for size in LEVELS))


def max_paired_columns(n_rows: int) -> int:
    """Return how many columns are compared in pairs: fewer if there are many rows."""
    n_pairs = max(1.0, MAX_WORK / max(1, n_rows))
    return min(MAX_COLUMNS, max(2, int((2 * n_pairs) ** 0.5)))


def _strongest(columns: Sequence[CodedColumn], score: FloatArray, n_rows: int) -> list[CodedColumn]:
    """Return all columns, or, if there are many, those whose values say most about the score."""
    most = max_paired_columns(n_rows)
    if len(columns) <= most:
        return list(columns)
    centered = score - score.mean()

    def explained(column: CodedColumn) -> float:
        cell, n = column.levels[2]
        total, count = np.bincount(cell, centered, n), np.bincount(cell, minlength=n)
        return float((total**2 / np.maximum(count, 1)).sum())

    strength = np.array([explained(column) for column in columns])
    kept = np.sort(np.argsort(-strength, kind="stable")[:most])
    return [columns[i] for i in kept]


def _best_pairs(
    columns: Sequence[CodedColumn], pairs: Sequence[Pair], residual: FloatArray, folds: Folds, threads: int | None
) -> list[tuple[float, Pair]]:
    """Return the share of the squared residuals that each pair explains beyond its two columns, the best first."""
    n = len(columns)
    found = explained(columns, [*((i, SINGLE_COLUMN) for i in range(n)), *pairs], residual, folds, threads)
    alone, total = np.maximum(0.0, found[:n]), float(np.square(residual).sum())
    gains = [(gain - alone[a] - alone[b]) / total for (a, b), gain in zip(pairs, found[n:].tolist(), strict=True)]
    order = sorted(range(len(pairs)), key=lambda i: (-gains[i], i))
    return [(gains[i], pairs[i]) for i in order]


def explained(
    columns: Sequence[CodedColumn], pairs: Sequence[Pair], residual: FloatArray, folds: Folds, threads: int | None
) -> FloatArray:
    """Return how much smaller the squared residuals of each fold get by the cell means of the others.

    Pairs are numbers of columns; the second one may be SINGLE_COLUMN. Each level of cells explains what is left by
    coarser ones.
    """
    cells = np.array([[cell for cell, _ in column.levels] for column in columns], np.int32)
    sizes = np.array([[n for _, n in column.levels] for column in columns], np.int64)
    values, fold, every = np.ascontiguousarray(residual, np.float64), folds.of_row, count_threads(threads)
    at_once = max(every, WORK_AT_ONCE // max(1, len(values)))  # Ctrl-C is noticed in between
    found = [
        cell_gains(
            *(cells, sizes, np.array(some, np.int64), values, fold),
            n_folds=folds.n,
            shrinkage=SHRINKAGE,
            threads=every,
        )
        for some in (pairs[at : at + at_once] for at in range(0, len(pairs), at_once))
    ]
    return np.concatenate(found)


def _make_cross(encoder: Encoder, a: CodedColumn, b: CodedColumn) -> Cross:
    """Return the cross of two columns: of categories where both have few values, of splines otherwise."""
    if a.few_values and b.few_values:
        return Cross(*(_as_category(encoder, column) for column in (a, b)))
    return Cross(a.name, b.name)


def _as_category(encoder: Encoder, column: CodedColumn) -> str | Categorical:
    item: Any = encoder.schema[column.name]
    plain = item.is_numerical and item.part is None
    return Categorical(item.name, column=item.column) if plain else column.name


# Values of some training rows, as they are in the table.


def read_values(chunks: Chunks, names: Sequence[str], rows: Int64Array) -> dict[str, Array]:
    """Return numbers, or features of categories, of some training rows."""
    encoder: Encoder = chunks.encoder
    parts: dict[str, list[Array]] = {name: [] for name in names}
    for batch in _batches_of(chunks, rows):
        for name in names:
            item: Any = encoder.schema[name]
            column = batch.column(item.column)
            parts[name].append(item.read(column) if item.is_numerical else item.encode(column)[0][:, 0])
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def read_names(chunks: Chunks, names: Sequence[str], rows: Int64Array, rows_per_name: int) -> dict[str, Int64Array]:
    """Return a number for each name of some training rows, for columns in which names of `rows_per_name` are rare.

    Rare names of a column share a feature.
    """
    items = {name: item for name in names if isinstance(item := chunks.encoder.schema[name], Categorical)}
    items = {name: item for name, item in items.items() if item.min_count > rows_per_name}
    if not items:
        return {}
    parts: dict[str, list[pa.LargeStringArray]] = {name: [] for name in items}
    for batch in _batches_of(chunks, rows):
        for name, item in items.items():
            spelled, code = item.read(batch.column(item.column))
            spelled = canonical(spelled, item.spelling)
            parts[name].append(spelled if code is None else spelled.take(pa.array(code, mask=code < 0)))
    encoded = {name: pa.concat_arrays(arrays).dictionary_encode("encode") for name, arrays in parts.items()}
    return {name: np.asarray(to_numpy(array.indices), np.int64) for name, array in encoded.items()}


def _batches_of(chunks: Chunks, rows: Int64Array) -> Iterator[pa.RecordBatch]:
    """Yield some training rows, given their positions in order."""
    chosen = np.zeros(chunks.n_rows, bool)
    chosen[rows] = True
    first = at = 0
    for batch in chunks.source.batches(chunks.rows_per_chunk):
        taken = ~chunks.held_out.has(np.arange(first, first + batch.num_rows))
        first, before, at = first + batch.num_rows, at, at + int(taken.sum())
        taken[taken] = chosen[before:at]
        yield batch.filter(to_arrow(taken))


# What a model of one half of the rows leaves unexplained in the other one: where crosses are looked for.

# The most epochs of a run on half of the rows, and how many without a better validation loss end it: it only has to
# tell what is missing.
HALF_EPOCHS, HALF_PATIENCE = 10, 2
# Classes whose residuals are screened.
MAX_CLASSES = 3


class Unexplained(NamedTuple):
    """Rows that a model has not learned from, and what it leaves unexplained of each class."""

    values: dict[str, Array]
    residuals: list[FloatArray]
    scores: list[FloatArray]
    dispersion: float
    """The noise φ of the target."""
    rows: Int64Array
    """Positions of the rows among all training rows."""


def find_unexplained(
    setting: Setting, chunks: Chunks, training: Training, names: Sequence[str], max_learned: int, progress: Progress
) -> Unexplained | None:
    """Fit a setting to one half of the training rows, and return what it leaves unexplained in the other half.

    None if one of the halves has no weight.

    Parameters
    ----------
    setting : Setting
        The setting.
    chunks : Chunks
        The rows, encoded with its schema. Copies of a row are in the same half.
    training : Training
        Seed and threads.
    names : sequence of str
        The fields whose values are returned.
    max_learned : int
        The most rows to learn from.
    progress : Progress
        Where to report.
    """
    kept = chunks.kept
    assert kept is not None
    is_first = row_randoms(training.seed + 1, chunks.kept_numbers()) < 0.5
    has_weight = kept.sample_weight > 0
    learned, rows = evenly_spaced_rows(is_first, max_learned), evenly_spaced_rows(~is_first & has_weight, MAX_SCREENED)
    if not has_weight[learned].any() or not len(rows):
        return None
    half, judged = take_rows(kept, learned), take_rows(kept, rows)
    settings = replace(
        settings_for(setting.training, setting.schema, chunks.encoder.n_rows),
        epochs=HALF_EPOCHS,
        patience=HALF_PATIENCE,
        threads=training.threads,
        engine="cpu",
        device=None,
    )
    params = train(
        setting.model, chunks, settings, rows=half, validation=chunks.validation, progress=progress, run="search"
    ).params
    score = predict_scores(setting.model, params, judged.slots, training.threads).astype(np.float64)
    loss, weight = chunks.loss, judged.sample_weight
    slope = loss.slope(judged.y, score).reshape(len(rows), -1)
    # Steps divide by the weight of a batch: multiples of all weights give the same model, and the same residuals here.
    residuals = -slope * np.sqrt(weight / weight.mean())[:, None]
    # Of several classes, those that leave the most unexplained.
    strongest = np.argsort(-np.square(residuals).sum(axis=0), kind="stable")[:MAX_CLASSES].tolist()
    excess = float(np.sum(weight * loss.value(judged.y, score))) - loss.floor(judged.y, weight)
    by_class = score.reshape(len(rows), -1)
    return Unexplained(
        read_values(chunks, names, rows),
        [residuals[:, i] for i in strongest],
        [by_class[:, i] for i in strongest],
        loss.dispersion(excess / float(weight.sum())),
        rows,
    )


def evenly_spaced_rows(chosen: BoolArray, most: int) -> Int64Array:
    """Return the positions of at most `most` chosen rows, evenly spaced among them.

    Examples
    --------
    >>> evenly_spaced_rows(np.array([False, True, True, False, True]), 2).tolist()
    [1, 4]
    """
    rows = np.flatnonzero(chosen)
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
