"""Compare two models: the largest change of the score over all segments, proven, and over given rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._checks import check_one_score
from splinefm._wording import number
from splinefm.bounds.changes import Changes, CurvePair, NotComparable, Values
from splinefm.encode.encoder import CHUNK
from splinefm.encode.tables.open import open_table
from splinefm.model.family.formula import formula_scores
from splinefm.train.fitted import Fitted

# Values of a column that are tried where fields depend on each other, and how often all columns are.
_MAX_TRIED, _POSITIONS, _PASSES = 200, 33, 4


@dataclass(frozen=True)
class LargestChange:
    """The largest rise of the score, or the largest fall.

    Parameters
    ----------
    bound : float
        No segment's score changes by more in this direction; proven.
    change : float
        What `segment` changes: the new score minus the old one.
    segment : dict
        The values of a segment that comes close to the bound, by column; empty if fields read parts of dates, of which
        not all combinations exist.
    """

    bound: float
    change: float
    segment: dict[str, Any]


@dataclass(frozen=True)
class RowChanges:
    """Changes of the scores of given rows.

    Parameters
    ----------
    rows : int
        Number of rows.
    change : float
        The change that is farthest from zero.
    row : int
        The row that has it, counted from 0.
    values : dict
        Its values, by column.
    mean_absolute : float
        The mean of |change|.
    """

    rows: int
    change: float
    row: int
    values: dict[str, Any]
    mean_absolute: float


@dataclass(frozen=True)
class Comparison:
    """How far the scores of two models differ.

    Parameters
    ----------
    rise, fall : LargestChange
        The largest rise and the largest fall from the old model to the new one, over all segments.
    rows : RowChanges, optional
        The largest change of given rows.

    Examples
    --------
    >>> found = Comparison(LargestChange(0.2, 0.19, {"c": "a"}), LargestChange(0.1, -0.1, {"c": "b"}))
    >>> found.bound, found.change, found.segment
    (0.2, 0.19, {'c': 'a'})
    """

    rise: LargestChange
    fall: LargestChange
    rows: RowChanges | None = None

    @property
    def bound(self) -> float:
        """No segment's score changes by more, up or down; proven."""
        return max(self.rise.bound, self.fall.bound)

    @property
    def _closest(self) -> LargestChange:
        return max((self.rise, self.fall), key=lambda found: abs(found.change))

    @property
    def change(self) -> float:
        """The largest change of a segment that was found; between its size and `bound` is what is not known."""
        return self._closest.change

    @property
    def segment(self) -> dict[str, Any]:
        """The segment that has it."""
        return self._closest.segment

    def __str__(self) -> str:
        lines = [f"all segments: the score changes by at most {number(self.bound, '.4g')}"]
        if self.segment:
            lines.append(f"found: {self.change:+.4g} at {in_words(self.segment)}")
        if self.rows is not None and self.rows.rows:
            about = f"mean |change| {number(self.rows.mean_absolute, '.4g')}"
            lines.append(f"{self.rows.rows:,} rows: {self.rows.change:+.4g} in row {self.rows.row:,}, {about}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, strings and numbers."""
        return {"bound": self.bound, "change": self.change, "segment": self.segment, **asdict(self)}


def in_words(segment: dict[str, Any]) -> str:
    """A segment as text.

    Examples
    --------
    >>> in_words({"price": 1.5, "shop": None})
    'price = 1.5, shop = missing'
    """
    shown = {
        name: "missing" if value is None else number(value) if isinstance(value, float) else str(value)
        for name, value in segment.items()
    }
    return ", ".join(f"{name} = {value}" for name, value in shown.items())


def compare(old: Fitted, new: Fitted, table: object = None) -> Comparison:
    """Compare the scores of two models, such as before and after an update.

    For all segments, also ones that no row has, with missing and unseen values: a proven bound of the largest change,
    and the segment that comes closest, with its change. For the rows of a table, the largest change.

    Both models must encode a value alike: the same fields in the same order, numbers with the same transform and basis,
    as updates leave them. Vocabularies may differ: a category that one of the models does not know is compared with
    what that model gives to unseen ones. Bases must be splines, polynomials or bins, and the losses must have the same
    units of scores and the same offset. Anything else raises an error that says why. The bound is that of exact scores;
    scores of rows are float32, and differ from them by rounding.

    Parameters
    ----------
    old, new : Fitted
        The models; they have one score per row.
    table : table, path or dataset, optional
        Rows to compare as well.

    Returns
    -------
    Comparison
        `print` shows it.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
    >>> old = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> learner = sf.Learner(old)
    >>> _ = learner.update(table, "click")
    >>> found = sf.compare(old, learner.fitted(), table)
    >>> abs(found.change) <= found.bound, abs(found.rows.change) <= found.bound + 1e-6  # scores are float32
    (True, True)
    """
    check_comparable(old, new)
    old, new = old.without_offset(), new.without_offset()  # which does not change
    changes = Changes(old, new)
    rise, fall = (_largest(changes, old, new, sign) for sign in (1.0, -1.0))
    return Comparison(rise, fall, None if table is None else compare_rows(old, new, table))


def excess(found: Comparison, max_change: float) -> str | None:
    """Why a model moves the score of a segment too far; None if it does not. Written so that NaN is too far."""
    if found.bound <= max_change:
        return None
    at = f" ({in_words(found.segment)})" if found.segment else ""
    if abs(found.change) > max_change:
        return f"the score of a segment moves by {found.change:+.4g}{at}; allowed: {max_change:g}"
    return (
        f"the score of some segment may move by {found.bound:.4g}; the largest change that was found is "
        f"{found.change:+.4g}{at}; allowed: {max_change:g}"
    )


def check_comparable(old: Fitted, new: Fitted) -> None:
    """Raise where the scores of two models have no common meaning, or cannot be bounded."""
    check_one_score(old, "old")
    check_one_score(new, "new")
    about = [(fitted.loss.link, fitted.loss.center, fitted.loss.scale) for fitted in (old, new)]
    if about[0] != about[1]:
        raise NotComparable(
            f"the scores have other units: {old.loss.name} with center {old.loss.center:g} and scale "
            f"{old.loss.scale:g}, and {new.loss.name} with {new.loss.center:g} and {new.loss.scale:g}"
        )
    if old.offset != new.offset:
        raise NotComparable(f"the models do not add the same to their scores: {old.offset} and {new.offset}")
    if {*old.encoder.schema.columns} != {*new.encoder.schema.columns}:
        alone = sorted({*old.encoder.schema.columns} ^ {*new.encoder.schema.columns})
        raise NotComparable(f"column {alone[0]!r} is in one of the models only")
    Changes(old, new)


def compare_rows(old: Fitted, new: Fitted, table: object) -> RowChanges:
    """Compare the scores of the rows of a table, which does not have to fit in memory."""
    schema = new.encoder.schema
    source = open_table(table, types=schema.column_types())
    schema.check_columns(source.names)
    scores = [fitted.table_scorer() for fitted in (old, new)]
    n, total, largest, at, values = 0, 0.0, 0.0, 0, dict[str, Any]()
    for batch in source.chunks(schema.columns, CHUNK):
        before, after = (score(batch).astype(np.float64) for score in scores)
        change = after - before
        if len(change):
            i = int(np.argmax(np.abs(change)))
            if not values or not abs(change[i]) <= abs(largest):
                largest, at = float(change[i]), n + i
                values = {name: batch.column(name)[i].as_py() for name in schema.columns}
        n, total = n + len(change), total + float(np.abs(change).sum())
    return RowChanges(n, largest, at, values, total / max(1, n))


def _largest(changes: Changes, old: Fitted, new: Fitted, sign: float) -> LargestChange:
    found = changes.highest(sign)
    search = _RowSearch(changes, old, new)
    if not search.has_rows:
        if new.encoder.crosses:  # the states of crosses and of their columns are not free
            return LargestChange(found.bound, 0.0, {})
        return LargestChange(found.bound, sign * found.reached, {})
    row = search.row_of(found.states)
    if search.is_tied:
        row = search.improved(row, sign)
    change = float(search.changes_of({name: [value] for name, value in row.items()})[0])
    return LargestChange(max(found.bound, sign * change), change, row)


class _RowSearch:
    """Segments as rows of raw values, whose changes are those of the formula."""

    def __init__(self, changes: Changes, old: Fitted, new: Fitted) -> None:
        self.old, self.new = old, new
        singles = {item.name: f for f, item in enumerate(new.encoder.fields) if f not in new.encoder.crosses}
        places = dict(zip(changes.fields, range(len(changes.fields)), strict=True))
        fields: list[Any] = [new.encoder.fields[f] for f in singles.values()]
        self.of_column = {item.column: places[singles[item.name]] for item in reversed(fields)}
        self.domains = changes.domains
        covered = {*self.of_column} >= {*new.encoder.schema.columns}
        self.has_rows = covered and all(item.part is None for item in fields)
        self.is_tied = bool(new.encoder.crosses) or len(self.of_column) < len(fields)

    def row_of(self, states: tuple[Any, ...]) -> dict[str, Any]:
        """The raw values of some states, by column."""
        columns = self.new.encoder.schema.columns
        return {name: self.domains[self.of_column[name]].raw(states[self.of_column[name]]) for name in columns}

    def changes_of(self, rows: dict[str, list[Any]]) -> FloatArray:
        """The new score minus the old one, in float64."""
        scores = [
            formula_scores(fitted.model, fitted.params, fitted.encoder.encode(rows)) for fitted in (self.old, self.new)
        ]
        return np.asarray(scores[1] - scores[0])

    def improved(self, row: dict[str, Any], sign: float) -> dict[str, Any]:
        """Change one column after the other, for fields that depend on each other."""
        for _ in range(_PASSES):
            before = dict(row)
            for column, i in self.of_column.items():
                tried = [row[column], *_raw_values(self.domains[i])]
                rows = {name: [value] * len(tried) for name, value in row.items()}
                row = {**row, column: tried[int(np.argmax(sign * self.changes_of({**rows, column: tried})))]}
            if row == before:
                break
        return row


def _raw_values(domain: Any) -> list[Any]:
    """Some raw values of a field: positions on a curve, or the categories that change the most by themselves."""
    if isinstance(domain, CurvePair):
        states: list[Any] = np.linspace(0.0, 1.0, _POSITIONS).tolist()
        return [domain.raw(state) for state in states + [-1 - token for token in range(domain.n_tokens)]]
    assert isinstance(domain, Values)
    return [domain.raw(int(at)) for at in domain.most_changed(_MAX_TRIED)]
