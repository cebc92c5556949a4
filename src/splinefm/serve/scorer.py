"""Scorer: one row at a time, as a dict, in a few microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from splinefm._arrays import FloatArray, Int64Array
from splinefm._checks import check_fitted
from splinefm._core import JsonRows, RowScorer
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.plans import RowFields, one_value, read_number
from splinefm.encode.tables.names import missing_column_message
from splinefm.model.scores import row_params
from splinefm.train.fitted import Fitted

Row = Mapping[str, Any]


class Scorer:
    """Scores single rows: everything that does not depend on the row is prepared once.

    The scores equal `Fitted.scores`, to the bit. Several threads may use one scorer. Pickling stores the model,
    and loading prepares the scorer again.

    Parameters
    ----------
    fitted : Fitted
        The model.

    Attributes
    ----------
    slow_fields : tuple of str
        Numerical fields and crosses of them that run in Python, such as those with a `CustomTransform` or a
        `CustomBasis`. Each takes some tens of microseconds, a cross more.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 0.0, 1.0] * 50}
    >>> fitted = sf.fit_model(table, "y", model=sf.FM(k=4), training=sf.Training(epochs=2, threads=1))
    >>> scorer = fitted.scorer()
    >>> score, probability = scorer({"x": 1.5, "c": "a"}), scorer.predict({"x": 1.5, "c": None})
    >>> scorer.many([{"x": 1.5, "c": "a"}, {"x": None, "c": "unseen"}]).shape
    (2,)
    """

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = check_fitted(fitted)
        fields = RowFields(fitted.encoder.fields, fitted.encoder.layout.feature_ptr[:-1].tolist())
        if (offset := fitted.offset) is not None:
            is_log, largest = offset.kind == "exposure", offset.largest(fitted.loss)
            fields.add_offset(offset.column, is_log, fitted.loss.score_unit, largest)
        self.slow_fields = fields.slow
        self._scorer, self._columns, self._readers = _compile(fitted, fields), fields.columns, fields.readers
        self._score: Any = self._scorer.score if fitted.n_outputs == 1 else self._scorer.scores

    def __repr__(self) -> str:
        slow = f", slow_fields={self.slow_fields}" if self.slow_fields else ""
        return f"Scorer({self.fitted.model}, {len(self.fitted.encoder.fields)} fields{slow})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Scorer, (self.fitted,)

    def __call__(self, row: Row, *, link: bool = False) -> Any:
        """The raw score of a row, or with `link=True` the prediction.

        It is a float, or for more than two classes an array with a number for each.

        Parameters
        ----------
        row : mapping of str to value
            A value for every field, and for the column of the offset if there is one; None and NaN are missing
            values, other keys are ignored.
        link : bool
            Whether to return the prediction: a probability, mean, rate or quantile; see `Loss`.
        """
        try:
            return self._score(row, self._columns, self._readers, link)
        except Exception as error:
            self._explain(row, error)
            raise

    def predict(self, row: Row) -> Any:
        """The prediction for a row: probability, mean, rate or quantile.

        For more than two classes, an array of the probabilities of all of them.
        """
        return self(row, link=True)

    def many(self, rows: Iterable[Row], *, link: bool = False) -> FloatArray:
        """Scores, or with `link=True` predictions, of a list of rows.

        The shape is (n,), or (n, classes) for more than two. For columns, such as a DataFrame, `Fitted.scores` is
        faster.
        """
        if isinstance(rows, Mapping):
            raise TypeError("many takes a list of rows; for one row call the scorer, for columns fitted.scores")
        every = rows if isinstance(rows, list) else list(rows)
        out = self._empty(len(every))
        try:
            self._scorer.many(every, self._columns, self._readers, link, out.reshape(-1))
        except (TypeError, ValueError, LookupError):
            return self._one_by_one(every, link)
        return out

    def many_json(self, rows: JsonRows, at: Int64Array) -> FloatArray:
        """Scores of some rows in a body of JSON, as the server reads it; errors do not name the row."""
        out = self._empty(len(at))
        self._scorer.many_json(rows, at, self._columns, self._readers, False, out.reshape(-1))
        return out

    def _empty(self, n: int) -> FloatArray:
        n_outputs = self.fitted.n_outputs
        return np.empty(n) if n_outputs == 1 else np.empty((n, n_outputs))

    def _one_by_one(self, rows: list[Row], link: bool) -> FloatArray:
        """Scores of rows, or an error that names the row."""
        out = self._empty(len(rows))
        for i, row in enumerate(rows):
            try:
                out[i] = self(row, link=link)
            except TypeError as error:
                raise TypeError(f"row {i}: {error}") from error
            except ValueError as error:
                raise ValueError(f"row {i}: {error}") from error
        return out

    def _explain(self, row: Any, error: Exception) -> None:
        """Raise an error that says what is wrong with a row, if the problem is a known one."""
        if not hasattr(row, "keys"):
            raise TypeError(
                f'a row is a dict of values by column, such as {{"x": 1.0}}, got {type(row).__name__}; '
                "for a list of rows use many, for columns fitted.scores"
            ) from error
        offset = self.fitted.offset
        if offset is not None and offset.column not in row:
            raise ValueError(offset.missing_message([str(key) for key in row.keys()], "the row")) from error  # noqa: SIM118
        for name in self.fitted.encoder.schema.columns:
            if name not in row:
                message = missing_column_message(name, [str(key) for key in row.keys()], "column", "the row")  # noqa: SIM118
                raise ValueError(f"{message}; a missing value is None") from error
        for item in self.fitted.encoder.schema.column_readers:
            if isinstance(item, Numerical):  # raises for numbers that the field refuses
                item.find_tokens(np.array([read_number(item, row[item.column])]))
        if offset is not None:
            offset.scores(one_value(offset.column, row[offset.column]), self.fitted.loss)


def _compile(fitted: Fitted, fields: RowFields) -> RowScorer:
    """The compiled scorer; it shares the parameters with the model if vectors need no padding."""
    return RowScorer(
        encoder=fields.encoder,
        params=row_params(fitted.model, fitted.params, len(fitted.encoder.fields)),
        link=fitted.loss.link,
        center=fitted.loss.center,
        scale=fitted.loss.scale,
    )
