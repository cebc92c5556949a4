"""Which loss a target asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from splinefm._arrays import FloatArray
from splinefm._wording import number
from splinefm.encode.inference import LOOK_AT
from splinefm.encode.tables.columns import is_text
from splinefm.encode.tables.open import require_columns
from splinefm.encode.tables.table import Table
from splinefm.train.losses import Loss
from splinefm.train.targets import SHOWN

MAX_LABELS = 100
"""Text with more values is not taken for classes unless the user says so."""
# From this skewness on, and from this standard deviation over the mean, a mean that is linear in the score tends to
# become negative. Counts are skewed by nature, the less the larger they are.
_SKEWED, _VARIABLE, _SKEWED_COUNTS = 1.0, 0.5, 0.5
_LARGEST_COUNT = 10_000  # larger integers are rather amounts


class Choice(NamedTuple):
    """A loss, the reason for it, and the name of one that may fit better."""

    loss: Loss
    reason: str
    suggestion: str | None = None


def choose_loss(
    table: Table, target: str, given: Loss | None = None, say: Callable[[str], None] = lambda text: None
) -> Choice:
    """Choose a loss by the target unless one is given, and say which, and which one may fit better.

    It is logistic for two values, softmax for other text, and squared for other numbers.
    """
    choice = _choose(table, target, given)
    say(f"loss: {choice.loss} ({choice.reason})")
    better = suggest_loss(table, target) if choice.loss.name == "squared" else None
    if better is None:
        return choice
    say(f"suggestion: {better.reason}; --loss {better.loss.name} may fit better, and never predicts a negative number")
    return choice._replace(suggestion=better.loss.name)


def _choose(table: Table, target: str, given: Loss | None) -> Choice:
    values, kind, is_complete = _distinct_values(table, target)
    if not values:
        raise ValueError(f"the target {target!r} has no values")
    shown = ", ".join(sorted(map(repr, values))[:SHOWN])
    if len(values) == 1 and is_complete:
        raise ValueError(f"the target {target!r} is {shown} in all rows; there is nothing to learn")
    if given is not None:
        return Choice(given, "as given")
    if len(values) <= 2:
        return Choice(Loss("logistic"), f"the target {target!r} has two values: {shown}")
    if is_text(kind):
        if len(values) > MAX_LABELS:
            raise ValueError(
                f"the target {target!r} is text with more than {MAX_LABELS} values ({shown}, ...), which looks like "
                "names; if they are classes, add --loss softmax"
            )
        more = ", ..." if len(values) > SHOWN or not is_complete else ""
        return Choice(Loss("softmax"), f"the target {target!r} is text with more than two values: {shown}{more}")
    return Choice(
        Loss("squared"),
        f"the target {target!r} has more than two values; for shares use logistic, for counts poisson, for classes "
        "softmax",
    )


def _distinct_values(table: Table, target: str) -> tuple[set[object], pa.DataType, bool]:
    """Distinct values of a column (not all if there are very many), its type, and whether all rows were read."""
    require_columns(table, [target])
    values: set[object] = set()
    rows, kind = 0, table.schema.field(target).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    most = MAX_LABELS if is_text(kind) else 2
    for batch in table.chunks([target]):
        column = batch.column(0)
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        values.update(value for value in pc.unique(column).to_pylist() if value is not None and value == value)
        rows += batch.num_rows
        if len(values) > most or rows >= LOOK_AT:
            break
    return values, kind, rows < LOOK_AT


def suggest_loss(table: Table, target: str) -> Choice | None:
    """Suggest a loss with positive predictions for counts and for skewed amounts, by the first rows of a table."""
    kind = table.schema.field(target).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    parts, rows = [], 0
    for batch in table.chunks([target]):
        parts.append(batch.column(0).cast(pa.float64()).to_numpy(zero_copy_only=False))
        rows += batch.num_rows
        if rows >= LOOK_AT:
            break
    y = np.concatenate(parts)
    return suggest_for(target, y[np.isfinite(y)])


def suggest_for(target: str, y: FloatArray) -> Choice | None:
    """Suggest a loss for numbers, or None if the squared loss is fine.

    Examples
    --------
    >>> suggest_for("paid", np.array([0.0, 0, 0, 0, 0, 0, 2.5, 30, 200])).loss.name
    'tweedie'
    """
    if len(y) < 3 or y.min() < 0.0 or y.max() == y.min():
        return None
    mean, spread = float(y.mean()), float(y.std())
    skewness = float(np.mean(((y - mean) / spread) ** 3))
    brief = f"mean {number(mean, '.4g')}, median {number(float(np.median(y)), '.4g')}"
    if y.max() <= _LARGEST_COUNT and (y == np.floor(y)).all():
        is_count = skewness > _SKEWED_COUNTS and spread > _VARIABLE * mean
        return Choice(Loss("poisson"), f"{target!r} looks like a count ({brief})") if is_count else None
    if skewness <= _SKEWED or spread <= _VARIABLE * mean:
        return None
    zeros = float(np.mean(y == 0.0))
    if zeros > 0.0:
        return Choice(Loss("tweedie"), f"{target!r} is skewed, with {zeros:.1%} zeros and no negative values ({brief})")
    return Choice(Loss("gamma"), f"{target!r} is positive and skewed ({brief})")
