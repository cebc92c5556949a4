"""Exact Shapley values of the score, and the background of rows that they compare with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from splinefm._arrays import FloatArray, IndexArray
from splinefm._cached import cached_property
from splinefm._checks import check_count
from splinefm.encode.slots import Slots
from splinefm.encode.tables.names import counted
from splinefm.inspect.cross_terms import CrossTerms, Term
from splinefm.inspect.rows import EncodedRows, read_rows, without_fields
from splinefm.inspect.terms import (
    Players,
    Sums,
    TripleMoments,
    check_closed_form,
    effect_matrix,
    field_effects,
    field_terms,
    inner_parts,
    map_blocks,
    pair_part,
    pair_slope,
    shapley_matrix,
    size,
)
from splinefm.model.family.parameters import mean_vector
from splinefm.train.fitted import Fitted

# Rows that represent the background of a model with crosses, whose states take time for each of them.
MAX_ROWS = 500


@dataclass(frozen=True, eq=False)
class Background:
    """Statistics of a background table; create it with `Background.of` to use it several times.

    Parameters
    ----------
    fitted : Fitted
        The model.
    n_rows : int
        Rows of the table, or of the sample of it that a model with crosses is given.
    center : array, shape (fields, width)
        Mean m_f of the vectors of each field.
    slope : array, shape (fields, width)
        h_f = Σ_{e≠f} M_fe m_e, the derivative of the mean score by the vector of a field.
    inner, terms : arrays, shape (fields,)
        Means of a_f, and of a_f + z_f' h_f + ½ Σ_e z_f' M_fe z_e with z_f = s_f - m_f.
    base : float
        Mean score.
    triples : TripleMoments, optional
        Means of products of units, for a model with products of three; None for others.
    crosses : CrossTerms, optional
        The terms with crosses, which need the rows themselves; None for models without.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> background = sf.Background.of(fitted, table)
    >>> sf.shapley_values(fitted, {"x": [1.5], "c": ["b"]}, background).values.shape
    (1, 2)
    """

    fitted: Fitted
    n_rows: int
    center: FloatArray
    slope: FloatArray
    inner: FloatArray
    terms: FloatArray
    base: float
    triples: TripleMoments | None = None
    crosses: CrossTerms | None = None

    def __repr__(self) -> str:
        return f"Background({self.n_rows:,} rows, mean score {self.base:.5g}, {self.fitted})"

    @cached_property
    def pairs(self) -> Fitted:
        """The model without products of three units."""
        return pair_part(self.fitted)

    @cached_property
    def players(self) -> Players:
        """The players that the score is attributed to."""
        return Players.of(self.fitted)

    @staticmethod
    def of(fitted: Fitted, table: object, *, rows: int = MAX_ROWS, threads: int | None = None) -> Background:
        """Compute the background of a table.

        Parameters
        ----------
        fitted : Fitted
            A model of order 2 or 3.
        table : table, path, dataset or Slots
            At least one row.
        rows : int
            For a model with crosses, the most rows of the table to use, evenly spaced. All explanations are exact for
            these rows, and the time of each explained row is proportional to their number. Other models use all rows.
        threads : int, optional
            All cores by default.
        """
        check_closed_form(fitted, "a background")
        check_count("rows", rows, 1, None)
        players = Players.of(fitted)
        given = read_rows(fitted, table, threads, rows)
        if not len(given):
            raise ValueError("the background has no rows; it needs at least one to compare with")
        slots = without_fields(given.slots, players.shared)
        pairs = pair_part(fitted)
        means = _field_means(pairs, slots)
        # The kernels compute in float32, so everything must be derived from the rounded means.
        center = means.astype(np.float32).astype(np.float64)
        slope = np.stack([pair_slope(pairs, center[None], f)[0] for f in range(len(center))])
        inner = inner_parts(pairs, slots, threads).mean(axis=0)
        terms = field_terms(pairs, slots, center, slope, np.zeros(len(center)), threads).mean(axis=0)
        base = float(fitted.params["bias"][0]) + 0.5 * float((center * slope).sum()) + float(terms.sum())
        triples = TripleMoments.of(fitted, slots, players, threads) if fitted.model.order > 2 else None
        crosses = CrossTerms(fitted, players, given) if given.positions else None
        base += 0.0 if triples is None else triples.base
        base += 0.0 if crosses is None else crosses.base()
        return Background(fitted, len(slots), center, slope, inner, terms, base, triples, crosses)


def as_background(fitted: Fitted, background: object, threads: int | None) -> Background:
    """The given background, or the background of the given table."""
    if not isinstance(background, Background):
        return Background.of(fitted, background, threads=threads)
    if background.fitted is not fitted:
        raise ValueError("the background belongs to another model; create it with sf.Background.of(fitted, table)")
    return background


def _field_means(fitted: Fitted, slots: Slots) -> FloatArray:
    """m_f, from the mean weights of the features, so that every vector is read once."""
    layout, means = slots.layout, np.zeros(size(fitted))
    for f in range(len(means)):
        weights = np.zeros(layout.fields[f].n_features)
        for w in range(layout.window_ptr[f], layout.window_ptr[f + 1]):
            for j in range(layout.weight_ptr[w + 1] - layout.weight_ptr[w]):
                weight = slots.weight[:, layout.weight_ptr[w] + j]
                used = np.flatnonzero(weight)
                feature = slots.start[used, w] + j - layout.feature_ptr[f]
                weights += np.bincount(feature, weight[used], len(weights))
        means[f] = mean_vector(fitted.params, int(fitted.encoder.layout.feature_ptr[f]), weights / len(slots))[0]
    return means


# What players add to the score of a row, one by one and together: the effects of a decomposition, and Shapley values.

Triple = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class PlayerEffects:
    """The effects of players on the score of some rows."""

    main: FloatArray  # (n, players)
    pairs: FloatArray  # (n, pairs), in the order of `itertools.combinations`
    triples: dict[Triple, FloatArray]  # (n,) each, only where there are some
    beyond: FloatArray  # (n,), of four and more players in sum


def player_shares(known: Background, rows: EncodedRows, threads: int | None) -> FloatArray:
    """Shapley values, shape (n, players)."""
    slots, players = without_fields(rows.slots, known.players.shared), known.players
    values = field_terms(known.pairs, slots, known.center, known.slope, known.terms, threads)
    if not players.are_fields:
        values = _by_player(players, values)
    if known.triples is not None:
        for block, shares in map_blocks(known.triples.shares, known.fitted, slots, players, threads):
            values[block] += shares
    if known.crosses is not None:
        for block, shares in known.crosses.map(partial(_cross_shares, players.n), rows, threads):
            values[block] += shares
    return values


def player_effects(
    known: Background, rows: EncodedRows, threads: int | None, among: IndexArray | None = None
) -> PlayerEffects:
    """Effects of all players, and of the triples among some of them; all by default."""
    slots, players = without_fields(rows.slots, known.players.shared), known.players
    n_fields, n = len(known.center), players.n
    both = field_effects(known.pairs, slots, known.center, known.slope, known.inner, threads)
    main, pairs = both[:, :n_fields], both[:, n_fields:]
    if not players.are_fields:
        main, pairs = _pairs_by_player(players, main, pairs)
    effects = PlayerEffects(main, pairs, {}, np.zeros(len(rows)))
    chosen = np.arange(n) if among is None else among
    if known.triples is not None:
        for triple in combinations(chosen.tolist(), 3):
            effects.triples[triple] = np.zeros(len(rows))

        moments = known.triples

        def of_block(sums: Sums) -> tuple[FloatArray, FloatArray, FloatArray]:
            return *moments.effects(sums), moments.triple_effects(sums, chosen)

        for block, (more, more_pairs, triples) in map_blocks(of_block, known.fitted, slots, players, threads):
            effects.main[block] += more
            effects.pairs[block] += more_pairs
            for i, values in enumerate(effects.triples.values()):
                values[block] = triples[:, i]
    if known.crosses is not None:
        allowed = frozenset(chosen.tolist())
        for block, part in known.crosses.map(partial(_cross_effects, n), rows, threads):
            effects.main[block] += part.main
            effects.pairs[block] += part.pairs
            effects.beyond[block] += part.beyond
            for triple, values in part.triples.items():
                if allowed.issuperset(triple):
                    effects.triples.setdefault(triple, np.zeros(len(rows)))[block] += values
    return effects


def _cross_shares(n_players: int, n: int, terms: Iterable[Term]) -> FloatArray:
    """Shapley values of the terms of a block."""
    values = np.zeros((n, n_players))
    for players, worth in terms:
        values[:, players] += (shapley_matrix(len(players)) @ worth).T
    return values


def _cross_effects(n_players: int, n: int, terms: Iterable[Term]) -> PlayerEffects:
    """Effects of the terms of a block, without the empty coalition's."""
    n_pairs = n_players * (n_players - 1) // 2
    effects = PlayerEffects(np.zeros((n, n_players)), np.zeros((n, n_pairs)), {}, np.zeros(n))
    for players, worth in terms:
        found = effect_matrix(len(players)) @ worth
        for together, values in zip(_coalitions(players), found, strict=True):
            if len(together) == 1:
                effects.main[:, together[0]] += values
            elif len(together) == 2:
                effects.pairs[:, _pair_number(n_players, together[0], together[1])] += values
            elif len(together) == 3:
                three = (together[0], together[1], together[2])
                effects.triples[three] = effects.triples.get(three, 0.0) + values
            elif together:
                effects.beyond[:] += values
    return effects


def _coalitions(players: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All coalitions of some players, in the order of their numbers."""
    for coalition in range(1 << len(players)):
        yield tuple(player for i, player in enumerate(players) if coalition >> i & 1)


def _by_player(players: Players, values: FloatArray) -> FloatArray:
    """Sums over the fields of each player; fields of several players have none."""
    merged = np.zeros((len(values), players.n))
    for f, of_field in enumerate(players.of_field):
        if len(of_field) == 1:
            merged[:, of_field[0]] += values[:, f]
    return merged


def _pairs_by_player(players: Players, main: FloatArray, pairs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Effects of players from effects of fields: pairs of fields of one player are part of its main effect."""
    n = players.n
    merged, merged_pairs = _by_player(players, main), np.zeros((len(main), n * (n - 1) // 2))
    for i, (one, other) in enumerate(combinations(players.of_field, 2)):
        if len(one) > 1 or len(other) > 1:
            continue
        if one == other:
            merged[:, one[0]] += pairs[:, i]
        else:
            merged_pairs[:, _pair_number(n, *sorted((one[0], other[0])))] += pairs[:, i]
    return merged, merged_pairs


def _pair_number(n: int, one: int, other: int) -> int:
    """The position of a pair of n players in the order of `itertools.combinations`."""
    return one * (2 * n - one - 1) // 2 + other - one - 1


# Exact Shapley values of the score, with the fields as players, or the columns if there are crosses.


@dataclass(frozen=True, eq=False)
class ShapleyValues:
    """The contribution of each field to the score of each row, compared with the background.

    Parameters
    ----------
    values : array, shape (n, fields)
        Shapley values, in units of the score.
    base : float
        Mean score of the background; `base` plus the values of a row is its score.
    fields : tuple of str
        Names of the fields; of the columns if the model has crosses.
    """

    values: FloatArray
    base: float
    fields: tuple[str, ...]

    def __repr__(self) -> str:
        return f"ShapleyValues({len(self.values):,} rows, base {self.base:.5g}, {counted('field', self.fields)})"

    @property
    def scores(self) -> FloatArray:
        """The scores that were explained."""
        return np.asarray(self.base + self.values.sum(axis=1))


def shapley_values(fitted: Fitted, table: object, background: object, *, threads: int | None = None) -> ShapleyValues:
    """Exact interventional Shapley values of the score, with the fields as players.

    A coalition's worth is the mean score over the rows of the background, with the coalition's fields set to the values
    of the explained row. In closed form, each field of a pair gets half of what the pair changes. The average over the
    background needs only means, so a row costs one to two times as much as its prediction. Products of three fields
    need second moments of the background, and several times the time of a prediction.

    If the model has crosses, the players are columns. What crosses take part in needs the rows of the background: at
    most 500 of them, evenly spaced, unless `Background.of` is told otherwise.

    Parameters
    ----------
    fitted : Fitted
        A model of order 2 or 3.
    table : table, path, dataset or Slots
        The rows to explain; no Slots if the model has crosses.
    background : table, path, dataset, Slots or Background
        The rows to compare with.
    threads : int, optional
        All cores by default. The result does not depend on it.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> shapley = sf.shapley_values(fitted, table, background=table)
    >>> shapley.fields, shapley.values.shape
    (('x', 'c'), (200, 2))
    >>> bool(np.allclose(shapley.scores, fitted.scores(table), atol=1e-5))
    True
    """
    check_closed_form(fitted, "shapley_values")
    known = as_background(fitted, background, threads)
    rows = read_rows(fitted, table, threads)
    return ShapleyValues(player_shares(known, rows, threads), known.base, known.players.names)
