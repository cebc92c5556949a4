"""The background of explanations: statistics of the rows that a row is compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._cached import cached_property
from splinefm._checks import check_count
from splinefm.encode.slots import Slots
from splinefm.inspect.cross_terms import CrossTerms
from splinefm.inspect.cubic import TripleMoments
from splinefm.inspect.rows import read_rows
from splinefm.inspect.terms import Players, check_closed_form, field_terms, inner_parts, pair_part, size, toward
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
        """Whom the score is attributed to."""
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
        slots = given.without(players.shared)
        pairs = pair_part(fitted)
        means = _field_means(pairs, slots)
        # The kernels compute in float32, so everything must be derived from the rounded means.
        center = means.astype(np.float32).astype(np.float64)
        slope = np.stack([toward(pairs, center[None], f)[0] for f in range(len(center))])
        inner = inner_parts(pairs, slots, threads).mean(axis=0)
        terms = field_terms(pairs, slots, center, slope, np.zeros(len(center)), threads).mean(axis=0)
        base = float(fitted.params["bias"][0]) + 0.5 * float((center * slope).sum()) + float(terms.sum())
        triples = TripleMoments.of(fitted, slots, players, threads) if fitted.model.order > 2 else None
        crosses = CrossTerms(fitted, players, given) if given.positions else None
        base += 0.0 if triples is None else triples.base
        base += 0.0 if crosses is None else crosses.base()
        return Background(fitted, len(slots), center, slope, inner, terms, base, triples, crosses)


def known_background(fitted: Fitted, background: object, threads: int | None) -> Background:
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
