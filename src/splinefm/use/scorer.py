"""Scorer: one row at a time, as a dict, in a few microseconds."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.categorical import Categorical
from splinefm.encode.numerical import Numerical
from splinefm.encode.schema import Field
from splinefm.encode.table import missing_column_message
from splinefm.learn.fitted import Fitted
from splinefm.use import scorer_kernels as kernels
from splinefm.use.scorer_plan import ROWS_AT_ONCE, ModelPlan, Plan, Room, compile_number
from splinefm.use.scorer_values import SEPARATOR, Codes, Names, read_number, reader

Row = Mapping[str, Any]
# Other types are read by way of Arrow, which knows what they mean.
_NUMBERS = frozenset({float, int, bool, np.bool_, *(np.dtype(code).type for code in "efdbhilqBHILQ")})
_NAN = float("nan")


class Scorer:
    """Scores single rows: everything that does not depend on the row is prepared once.

    The scores are those of `Fitted.scores`, up to the rounding of float32. Several threads may use one scorer. It is
    pickled as its model, and prepared anew when it is loaded.

    Parameters
    ----------
    fitted : Fitted
        The model.

    Attributes
    ----------
    slow_fields : tuple of str
        Numerical fields that are not compiled, such as those with a `CustomTransform` or a `CustomBasis`: they work,
        but take some tens of microseconds each.

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
        if not isinstance(fitted, Fitted):
            raise TypeError(f"a scorer is made from a sf.Fitted, got {type(fitted).__name__}")
        self.fitted = fitted
        fields, first = fitted.encoder.fields, fitted.encoder.layout.row_ptr.tolist()
        plan = Plan(sum(map(_is_named, fields)))
        self._numbers: list[Numerical] = []
        self._names: list[Names] = []
        self._others: list[tuple[str, Callable[[object], Codes]]] = []
        self.slow_fields: tuple[str, ...] = ()
        for item, row in zip(fields, first[:-1], strict=True):
            self._add(plan, item, row)
        self._pick_numbers = _picker([item.column for item in self._numbers])
        self._pick_names = _picker([names.field.column for names in self._names])
        self._are_plain = all(item.part is None for item in self._numbers)
        self._are_text = all(names.field.spelling == "text" for names in self._names)
        self._pack, self._stride = struct.Struct(plan.input_format).pack_into, plan.stride
        self._model = ModelPlan(fitted, plan)
        self._kernel, self._rooms = self._model.kernel, [self._model.make_room()]

    def _add(self, plan: Plan, item: Field, first: int) -> None:
        compiled = compile_number(item) if isinstance(item, Numerical) else None
        if compiled is not None and isinstance(item, Numerical):
            plan.add_number(item, first, compiled)
            self._numbers.append(item)
        elif isinstance(item, Categorical) and _is_named(item):
            plan.add_name(item, first)
            self._names.append(Names(item, first))
        else:
            kind = kernels.GIVEN if isinstance(item, Numerical) else kernels.LIST
            plan.add_rows(kind, sum(item.layout.widths), item.reduction == "identity")
            self._others.append((item.column, reader(item, first)))
            if isinstance(item, Numerical):
                self.slow_fields = (*self.slow_fields, item.name)

    def __repr__(self) -> str:
        slow = f", slow_fields={self.slow_fields}" if self.slow_fields else ""
        return f"Scorer({self.fitted.model}, {len(self.fitted.encoder.fields)} fields{slow})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Scorer, (self.fitted,)

    def __call__(self, row: Row, *, link: bool = False) -> float:
        """The raw score of a row, or with `link=True` the prediction.

        Parameters
        ----------
        row : mapping of str to value
            A value for every field; None and NaN are missing values, other keys are ignored.
        link : bool
            Return what the score stands for: a probability (logistic), mean (squared) or rate (Poisson).
        """
        room = self._take_room()
        room.put_text(self._fill(room.inputs, 0, row, 0))
        plan = self._model.predictions if link else self._model.scores
        score: float = self._kernel(plan, room.address, 1)
        self._rooms.append(room)
        return score if score == score else self._score_with_care(row, plan)

    def predict(self, row: Row) -> float:
        """The prediction for a row: probability (logistic), mean (squared) or rate (Poisson)."""
        return self(row, link=True)

    def many(self, rows: Iterable[Row], *, link: bool = False) -> npt.NDArray[np.float64]:
        """Scores, or with `link=True` predictions, of a list of rows.

        For columns, such as a DataFrame, `Fitted.scores` is faster.
        """
        if isinstance(rows, Mapping):
            raise TypeError("many takes a list of rows; for one row call the scorer, for columns fitted.scores")
        every = rows if isinstance(rows, list | tuple) else list(rows)
        plan = self._model.predictions if link else self._model.scores
        room, out = self._take_room(), np.empty(len(every))
        for at in range(0, len(every), ROWS_AT_ONCE):
            self._score_block(every[at : at + ROWS_AT_ONCE], at, plan, room, out)
        self._rooms.append(room)
        return out

    def _take_room(self) -> Room:
        """A room that nobody uses; who is done with it puts it back."""
        try:
            return self._rooms.pop()
        except IndexError:
            return self._model.make_room()

    def _score_block(self, block: Any, at: int, plan: int, room: Room, out: npt.NDArray[np.float64]) -> None:
        text, i = bytearray(), 0
        try:
            for i, row in enumerate(block):
                text += self._fill(room.inputs, i * self._stride, row, len(text))
            room.put_text(text)
            self._kernel(plan, room.address, len(block))
            out[at : at + len(block)] = room.out[: len(block)]
            for i in np.flatnonzero(np.isnan(room.out[: len(block)])).tolist():
                out[at + i] = self._score_with_care(block[i], plan)
        except TypeError as error:
            raise TypeError(f"row {at + i}: {error}") from error
        except ValueError as error:
            raise ValueError(f"row {at + i}: {error}") from error

    def _score_with_care(self, row: Row, plan: int) -> float:
        """Raise if a kernel refused a value, or score again a name that holds a separator; NaN if that is the score."""
        for item, value in zip(self._numbers, self._read_numbers(self._pick_numbers(row)), strict=True):
            item.tokens(np.array([value], np.float64))
        for names, value in zip(self._names, self._pick_names(row), strict=True):
            names.check(value)
        room = self._take_room()
        room.put_text(self._fill(room.inputs, 0, row, 0, careful=True))
        score: float = self._kernel(plan, room.address, 1)
        self._rooms.append(room)
        return score

    def _fill(self, inputs: bytearray, at: int, row: Row, text_at: int, careful: bool = False) -> bytes:
        """Write what a kernel reads of a row, but for the names: they are returned."""
        try:
            numbers: Iterable[Any] = self._pick_numbers(row)
            if not (self._are_plain and _NUMBERS.issuperset(map(type, numbers))):
                numbers = self._read_numbers(numbers)
            text = self._text(self._pick_names(row), careful)
            if self._others:
                rows, weights = self._read_others(row)
                self._pack(inputs, at, *numbers, text_at, text_at + len(text), *rows, *weights)
            else:
                self._pack(inputs, at, *numbers, text_at, text_at + len(text))
            return text
        except Exception as error:
            self._explain(row, error)
            raise

    def _text(self, values: tuple[Any, ...], careful: bool) -> bytes:
        """Names, end to end."""
        if not careful:
            try:
                if self._are_text:
                    return "\0".join(values).encode()
                return "\0".join(
                    [names.spelled[value] for names, value in zip(self._names, values, strict=True)]
                ).encode()
            except TypeError:
                pass  # not all are text
        return SEPARATOR.join([self._name(*pair, careful) for pair in zip(self._names, values, strict=True)])

    def _name(self, names: Names, value: Any, careful: bool) -> bytes:
        return names.spelled[value].encode() if type(value) is str and not careful else names.text(value)

    def _read_numbers(self, values: Iterable[Any]) -> list[Any]:
        return [
            _NAN
            if value is None
            else value
            if item.part is None and type(value) in _NUMBERS
            else read_number(item, value)
            for item, value in zip(self._numbers, values, strict=True)
        ]

    def _read_others(self, row: Row) -> Codes:
        rows: list[int] = []
        weights: list[float] = []
        for name, read in self._others:
            more, shares = read(row[name])
            rows += more
            weights += shares
        return rows, weights

    def _explain(self, row: Any, error: Exception) -> None:
        """Raise an error that says what is wrong with a row, if it is something that is known."""
        if not hasattr(row, "keys"):
            raise TypeError(
                f'a row is a dict of values by column, such as {{"x": 1.0}}, got {type(row).__name__}; '
                "for a list of rows use many, for columns fitted.scores"
            ) from error
        for name in self.fitted.encoder.schema.columns:
            if name not in row:
                message = missing_column_message(name, [str(key) for key in row.keys()])  # noqa: SIM118
                raise ValueError(f"{message.replace('in the table', 'in the row')}; a missing value is None") from error
        if isinstance(error, UnicodeEncodeError):
            self._text(self._pick_names(row), careful=True)
        if isinstance(error, struct.error):  # a whole number beyond all floats
            for item, value in zip(self._numbers, self._pick_numbers(row), strict=True):
                read_number(item, value)


def _is_named(item: Field) -> bool:
    """Whether kernels look up the categories of a field."""
    return isinstance(item, Categorical) and item.unseen != "hash"


def _picker(names: list[str]) -> Callable[[Row], tuple[Any, ...]]:
    """A function that takes the values of some columns from a row."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda row: tuple(row[name] for name in names)
