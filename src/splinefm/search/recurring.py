"""Values that recur and tell rows apart, such as the income of a family or a person: candidates for crosses.

A spline of a number takes neighbors alike, and a column with many categories takes the rare ones as one. Where single
values, or combinations of values, have effects of their own, rows that share one have correlated residuals. The
products of the residuals of such rows measure the variance between the groups, without bias and without a fit: see
`compare_groups`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray, Int64Array
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import SEPARATOR, VALUES, Cross
from splinefm.encode.fields.numerical import Numerical
from splinefm.search.screening import max_paired_columns
from splinefm.train.settings import LINEAR_L2

# Groups are candidates if they explain this share of the squared residuals, with this many standard errors: there are
# hundreds of pairs, and products of residuals have heavy tails.
MIN_GAIN, MIN_ERRORS = 0.008, 5.0
# A column whose values hardly ever recur has no groups: rows per value. Names of persons recur less than numbers that
# only look like names.
MIN_ROWS_PER_VALUE, MIN_ROWS_PER_NAME = 1.5, 1.1
# Pairs of columns are compared in this many groups by a hash, which merges few of them; the best pairs exactly.
HASHED, CONTENDERS = 1 << 17, 8
MIN_COUNT = 2  # rows of a value that gets a feature
# The share of the best penalty for linear weights that recurring values get: vectors, whose penalty is ten times that
# of linear weights, should not vanish where they help. See decision 95.
RECURRING_SHARE = 0.2


class Grouping(NamedTuple):
    """What groups of rows explain.

    Parameters
    ----------
    gain : float
        The share of the squared residuals that shrunken means of the groups explain.
    errors : float
        The sum of products in standard errors of its distribution if there were no effects.
    shrinkage : float
        σ² / σ_b²: as many rows without an effect shrink the mean of a group best.
    """

    gain: float
    errors: float
    shrinkage: float


class Recurring(NamedTuple):
    """A cross of values that recur, or a column whose rare names get features, and what it explains: see `Grouping`."""

    field: Cross | Categorical
    gain: float
    shrinkage: float
    rows_per_value: float
    """Mean number of rows of a value that recurs."""

    @property
    def has_one_column(self) -> bool:
        """Whether these are the values of one column, not pairs of values."""
        return not isinstance(self.field, Cross) or len(self.field.parts) == 1


class _Groups(NamedTuple):
    """One or two fields, the number of each row's value, or of its pair of values, and how many there are."""

    fields: tuple[Numerical | Categorical, ...]
    code: Int64Array
    n: int


def compare_groups(code: Int64Array, residual: FloatArray) -> Grouping:
    """Return what the groups of rows with equal codes explain of residuals with mean zero.

    With n_g rows in group g, Σ_{i≠j} r_i r_j over pairs of one group has the expectation σ_b² Σ n_g (n_g - 1).

    Examples
    --------
    >>> compare_groups(np.array([0, 0, 1, 1]), np.array([1.0, 1.0, -1.0, -1.0])).gain > 0.5
    True
    >>> compare_groups(np.array([0, 0, 1, 1]), np.array([1.0, -1.0, 1.0, -1.0])).gain
    0.0
    """
    square = np.square(residual)
    n, total, squares = np.bincount(code), np.bincount(code, residual), np.bincount(code, square)
    products, pairs = float(np.sum(total**2 - squares)), float(np.sum(n * (n - 1.0)))
    expected = 2.0 * float(np.sum(squares**2) - np.sum(square**2))
    if products <= 0.0 or pairs == 0.0 or expected <= 0.0:
        return Grouping(0.0, 0.0, np.inf)
    shrinkage = float(square.mean()) * pairs / products
    gain = float(np.sum(n / shrinkage * (n / (n + shrinkage)))) / len(code)
    return Grouping(gain, products / expected**0.5, shrinkage)


def find_recurring(
    encoder: Encoder,
    values: Mapping[str, npt.NDArray[np.generic]],
    residual: FloatArray,
    names: Mapping[str, Int64Array] | None = None,
) -> list[Recurring]:
    """Return crosses of values or of pairs of values, and columns of names, that explain residuals, the best first.

    Parameters
    ----------
    encoder : Encoder
        The fitted fields.
    values : mapping of str to array
        Numbers or category features of some rows, by field.
    residual : array
        What a model leaves unexplained in these rows, which it was not trained on.
    names : mapping of str to array, optional
        The number of each row's name, for categories whose rare names share a feature.
    """
    centered = residual - residual.mean()
    columns = _coded(encoder, values, MIN_ROWS_PER_VALUE)
    known = {item.columns for item in encoder.schema.crosses if not item.numbers}
    singles = [column for column in columns if column.fields[0].is_numerical]
    singles += _coded(encoder, names or {}, MIN_ROWS_PER_NAME)
    pairs = [
        (a, b)
        for a, b in combinations(_strongest(columns, centered), 2)
        if encoder.schema.may_cross(a.fields[0].name, b.fields[0].name)
    ]
    # Pairs of categories are crosses that `screen` finds.
    pairs = [pair for pair in pairs if any(column.fields[0].is_numerical for column in pair)]

    def gain_of(pair: tuple[_Groups, _Groups]) -> float:
        return compare_groups(_hashed(*pair), centered).gain

    ranked = sorted(pairs, key=gain_of, reverse=True)
    found = []
    for groups in (*singles, *(_joined(*pair) for pair in ranked[:CONTENDERS])):
        grouping = compare_groups(groups.code, centered)
        is_new = tuple(item.column for item in groups.fields) not in known
        if grouping.gain >= MIN_GAIN and grouping.errors >= MIN_ERRORS and is_new:
            field = _make_field(groups.fields)
            found.append(Recurring(field, grouping.gain, grouping.shrinkage, _rows_per_value(groups.code)))
    return sorted(found, key=lambda each: (-each.gain, each.field.name))


def _coded(encoder: Encoder, values: Mapping[str, npt.NDArray[np.generic]], rows_per_value: float) -> list[_Groups]:
    """Return the values of columns by number, except of those whose values do not recur, and of parts of dates."""
    found = []
    for name, array in values.items():
        item: Any = encoder.schema[name]
        distinct, code = np.unique(array, return_inverse=True)
        recurs = len(distinct) >= 2 and len(array) >= rows_per_value * len(distinct)
        if recurs and item.part is None:
            found.append(_Groups((item,), code.astype(np.int64), len(distinct)))
    return found


def _strongest(columns: list[_Groups], residual: FloatArray) -> list[_Groups]:
    """Return all columns, or those whose values explain the most alone if there are many."""
    most = max_paired_columns(len(residual))
    if len(columns) <= most:
        return columns
    gains = np.array([compare_groups(column.code, residual).gain for column in columns])
    return [columns[i] for i in np.sort(np.argsort(-gains, kind="stable")[:most])]


def _hashed(a: _Groups, b: _Groups) -> Int64Array:
    """Return the pairs of values of two columns as numbers below HASHED."""
    code = a.code * b.n + b.code
    return code if a.n * b.n <= HASHED else (code * 0x9E3779B1 >> 7) % HASHED


def _joined(a: _Groups, b: _Groups) -> _Groups:
    distinct, code = np.unique(a.code * b.n + b.code, return_inverse=True)
    return _Groups(a.fields + b.fields, code.astype(np.int64), len(distinct))


def _rows_per_value(code: Int64Array) -> float:
    n = np.bincount(code)
    return float(n[n >= MIN_COUNT].mean()) if (n >= MIN_COUNT).any() else 1.0


def _make_field(fields: tuple[Numerical | Categorical, ...]) -> Cross | Categorical:
    """Return the cross of values, where numbers are taken as names; or a column that has features for more names."""
    if len(fields) == 1 and isinstance(fields[0], Categorical):
        return replace(fields[0], min_count=MIN_COUNT)
    parts = [Categorical(item.name, column=item.column) if item.is_numerical else item.name for item in fields]
    return Cross(*parts, name=f"{SEPARATOR.join(item.name for item in fields)}{VALUES}", min_count=MIN_COUNT)


def recurring_l2(found: Recurring, n_rows: int, residual: FloatArray, dispersion: float, batch_size: int) -> float:
    """Return the L2 penalty of a cross of recurring values.

    A value whose effect has the variance σ_b² is best estimated with the penalty ½ h w² σ² / σ_b² beside the sum of all
    losses, where σ² is the variance of the residuals and h = σ² / φ the mean curvature of the loss. Steps take the mean
    loss of a batch, add a penalty per active value, and multiply it by φ.
    """
    variance = float(np.square(residual).mean())
    per_value = found.rows_per_value * n_rows / len(residual)
    best = variance / dispersion * found.shrinkage / (dispersion * batch_size * per_value)
    return RECURRING_SHARE * best / LINEAR_L2
