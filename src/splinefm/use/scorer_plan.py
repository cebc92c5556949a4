"""What a kernel needs to know of a model, laid out in memory: the plan of a scorer, and rooms to work in."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._core import StringTable
from splinefm.encode.categorical import Categorical
from splinefm.encode.columns import text_buffers
from splinefm.encode.numerical import Numerical
from splinefm.encode.vocabulary import Vocabulary
from splinefm.learn.fitted import Fitted
from splinefm.model.family import FFM, FM, FmFM, FwFM, HigherOrderFM, LowRankFwFM
from splinefm.use import scorer_kernels as kernels
from splinefm.use.algebra import field_weights, rows_on_axis
from splinefm.use.scorer_pieces import FloatArray, Window, transform_pieces, windows
from splinefm.use.scorer_values import unseen_row

ROWS_AT_ONCE = 64
_MODELS: dict[type, str] = {
    FM: "fm",
    FwFM: "fwfm",
    LowRankFwFM: "fwfm",
    FmFM: "fmfm",
    FFM: "ffm",
    HigherOrderFM: "higher",
}
_AGREES = 1e-6  # by so much the weights of a compiled field may differ from those of the encoder
_PROBES = 128

Record = dict[int, int]
Float32 = npt.NDArray[np.float32]


class Room:
    """Memory for the inputs of some rows and for what a kernel writes; for one caller at a time.

    Parameters
    ----------
    stride, n_terms, n_numbers : int
        Bytes of inputs, terms, and numbers of vectors that a row has.
    """

    def __init__(self, stride: int, n_terms: int, n_numbers: int) -> None:
        self.inputs, self.texts = bytearray(ROWS_AT_ONCE * stride + 8), bytearray(1024)
        self.rows, self.weights = np.empty(n_terms + 1, np.int32), np.empty(n_terms + 1, np.float32)
        self.ends, self.owners = np.empty(n_terms + 2, np.int32), np.empty(n_terms + 2, np.int32)
        self.vectors, self.out = np.empty(n_numbers + 1, np.float32), np.empty(ROWS_AT_ONCE)
        arrays: dict[int, npt.NDArray[Any]] = {
            kernels.INPUTS: np.frombuffer(self.inputs, np.uint8),
            kernels.TEXTS: np.frombuffer(self.texts, np.uint8),
            kernels.ROWS: self.rows,
            kernels.WEIGHTS: self.weights,
            kernels.ENDS: self.ends,
            kernels.OWNERS: self.owners,
            kernels.VECTORS: self.vectors,
            kernels.OUT: self.out,
        }
        self._kept = arrays
        self.places = np.array([arrays[place].ctypes.data for place in range(kernels.ROOM)], np.int64)
        self.address = self.places.ctypes.data

    def put_text(self, text: bytes | bytearray) -> None:
        """Write the names of all rows, end to end."""
        if len(text) > len(self.texts):
            self.texts = bytearray(2 * len(text))
            self._kept[kernels.TEXTS] = np.frombuffer(self.texts, np.uint8)
            self.places[kernels.TEXTS] = self._kept[kernels.TEXTS].ctypes.data
        self.texts[: len(text)] = text


class Plan:
    """Fields, their numbers and, if there is a model, its parameters; what `finish` returns is given to a kernel."""

    def __init__(self, n_names: int = 0) -> None:
        self.numbers: list[float] = [0.0, 0.0, 1.0]  # bias, center and scale
        self.records: list[Record] = []
        self.levels: list[Record] = []
        self.n_names, self.n_ints = 0, n_names  # the rows that a kernel finds by name come first
        self.n_values = self.n_floats = self.n_terms = 0
        self.kept: list[Any] = []

    def add_name(self, item: Categorical, first: int) -> None:
        """A field whose input is a name, which a kernel looks up like the encoder."""
        names = (item.vocabulary or Vocabulary(pa.array([], pa.large_string()))).names
        offsets, text = text_buffers(names)
        index = StringTable(offsets, text).slots
        self.kept += [offsets, text, index]
        record = {
            kernels.PLACE: kernels.TEXT_INTS + self.n_names,
            kernels.COUNT: 1,
            kernels.FIRST: first + item.n_tokens,
            kernels.OFFSETS: offsets.ctypes.data,
            kernels.KNOWN: text.ctypes.data,
            kernels.INDEX: index.ctypes.data,
            kernels.INDEX_SIZE: len(index),
            kernels.UNSEEN: unseen_row(item, first),
        }
        self._add(kernels.NAME, record, 1)
        self.n_names += 1

    def add_rows(self, kind: int, count: int, apart: bool) -> None:
        """A field whose inputs are table rows, with one weight for all (LIST) or for each (GIVEN)."""
        place = kernels.TEXT_INTS + self.n_ints
        record = {kernels.PLACE: place, kernels.COUNT: count, kernels.FLOAT_PLACE: self.n_floats}
        self._add(kind, {**record, kernels.APART: int(apart)}, count)
        self.n_ints += count
        self.n_floats += count if kind == kernels.GIVEN else 1

    def add_number(self, item: Numerical, first: int, compiled: Compiled) -> None:
        """A field whose input is a number."""
        found, pieces = compiled
        record = {
            kernels.PLACE: self.n_values,
            kernels.FIRST: first,
            kernels.APART: int(item.reduction == "identity"),
            kernels.N_RULES: len(item.special),
            kernels.RULES: self._put([_rule(rule) for rule in item.special]),
            kernels.TOKEN: int(item.missing == "token"),
            kernels.N_LEVELS: len(found),
            kernels.LEVELS: len(self.levels),
        }
        if pieces is not None:
            knots, values = pieces
            record |= {kernels.N_PIECES: len(knots) - 1, kernels.PIECES: self._put(knots)}
            record[kernels.N_POWERS] = values.shape[1]
            self._put(values)
        self.levels += map(self._level, found)
        self.n_values += 1
        self._add(kernels.NUMBER, record, sum(item.layout.widths))

    def _level(self, window: Window) -> Record:
        n_segments, n_weights, n_powers = window.coefficients.shape
        return {
            kernels.SEGMENTS: window.segments,
            kernels.EDGES: -1 if window.edges is None else self._put(window.edges),
            kernels.DEGREE: n_powers - 1,
            kernels.N_WEIGHTS: n_weights,
            kernels.COEFFICIENTS: self._put(window.coefficients),
            kernels.PER_SEGMENT: n_weights * n_powers if n_segments > 1 else 0,
            kernels.START: window.start,
            kernels.MOVES: window.moves,
            kernels.AROUND: window.around,
        }

    def _put(self, numbers: Any) -> int:
        """Keep numbers; where they are."""
        at = len(self.numbers)
        self.numbers += np.asarray(numbers, np.float64).ravel().tolist()
        return at

    def _add(self, kind: int, record: Record, n_terms: int) -> None:
        self.records.append({**record, kernels.KIND: kind})
        self.n_terms += n_terms

    @property
    def input_format(self) -> str:
        """Of the inputs of a row, for `struct`: numbers, where names begin and end, rows and weights."""
        rows = f"{4 * self.n_names}x{self.n_ints - self.n_names}i"
        return f"={self.n_values}d{kernels.TEXT_INTS}i{rows}{self.n_floats}f"

    @property
    def stride(self) -> int:
        """Bytes from one row of inputs to the next."""
        return (struct.calcsize(self.input_format) + 7) // 8 * 8

    def finish(self, **more: int) -> int:
        """The address of the plan, which must be kept as long as it is used."""
        n = len(self.records)
        fields = np.zeros(n * kernels.FIELD + len(self.levels) * kernels.LEVEL, np.int64)
        for i, record in enumerate(self.records):
            _write(fields[i * kernels.FIELD :], record)
            fields[i * kernels.FIELD + kernels.LEVELS] *= kernels.LEVEL
            fields[i * kernels.FIELD + kernels.LEVELS] += n * kernels.FIELD
        for i, record in enumerate(self.levels):
            _write(fields[n * kernels.FIELD + i * kernels.LEVEL :], record)
        numbers, places = np.array(self.numbers), np.zeros(kernels.PLAN, np.int64)
        record = {
            kernels.FIELDS: fields.ctypes.data,
            kernels.NUMBERS: numbers.ctypes.data,
            kernels.N_FIELDS: n,
            kernels.N_NAMES: self.n_names,
            kernels.STRIDE: self.stride,
            kernels.INTS: 8 * self.n_values,
            kernels.FLOATS: 8 * self.n_values + 4 * (kernels.TEXT_INTS + self.n_ints),
        }
        _write(places, record | {getattr(kernels, name.upper()): value for name, value in more.items()})
        self.kept += [fields, numbers, places]
        return places.ctypes.data


def _write(table: npt.NDArray[np.int64], record: Record) -> None:
    for place, value in record.items():
        table[place] = value


def _rule(rule: float | str) -> tuple[float, float]:
    """Number of the sign, and what is compared with."""
    if not isinstance(rule, str):
        return 0.0, rule
    if rule == "negative":
        return float(kernels.RULE_SIGNS.index("<")), 0.0
    sign = max((sign for sign in kernels.RULE_SIGNS if rule.startswith(sign)), key=len)
    return float(kernels.RULE_SIGNS.index(sign)), float(rule.removeprefix(sign))


Compiled = tuple[list[Window], tuple[FloatArray, FloatArray] | None]
"""Windows of a basis and pieces of a transform; without pieces the windows take raw values."""


def compile_number(item: Numerical) -> Compiled | None:
    """Transform and basis of a field for kernels, or None where only its own objects will do."""
    if isinstance(item.transform, str):
        return None
    found = windows(item.basis, item.transform)
    if found is None:
        return None
    basis, is_steps = found
    pieces = None if is_steps else transform_pieces(item.transform)
    if pieces is None and not is_steps:
        return None
    return (basis, pieces) if _agrees(item, (basis, pieces)) else None


def _agrees(item: Numerical, compiled: Compiled) -> bool:
    """Whether kernels and encoder give the same rows and weights all over the range of a field."""
    x = _probes(item)
    expected_rows, expected = rows_on_axis(item, pa.array(x))
    plan = Plan()
    plan.add_number(item, 0, compiled)
    address, room = plan.finish(), Room(plan.stride, plan.n_terms, 0)
    for i, value in enumerate(x):
        struct.pack_into("=d", room.inputs, 0, value)
        n_units = kernels.encode_row(address, room.address, 0)
        n_terms = room.ends[max(0, n_units)]
        difference = np.bincount(expected_rows[i], expected[i], minlength=item.layout.n_rows)
        np.subtract.at(difference, room.rows[:n_terms], room.weights[:n_terms])
        if n_units < 0 or np.abs(difference).max() > _AGREES:
            return False
    return True


def _probes(item: Numerical) -> FloatArray:
    """Values of all kinds: over the range, beyond it, special and missing."""
    transform: Any = item.transform
    u = np.sort(np.arange(_PROBES) * 0.6180339887498949 % 1.0)  # spread evenly, and not where people put borders
    x = np.asarray(transform.inverse(np.append(u, 1.0)), np.float64)
    special = [_rule(rule)[1] for rule in item.special]
    far = [0.0, 1.0, -1.0, 1e300, -1e300, *([np.nan] if item.missing == "token" else [])]
    values: FloatArray = np.concatenate([x, special, far])
    return np.asarray(values[~np.isinf(values)])


class ModelPlan:
    """A fitted model's parameters, the kernel that uses them, and how much room it needs."""

    def __init__(self, fitted: Fitted, plan: Plan) -> None:
        model, params = fitted.model, fitted.params
        n_fields = len(fitted.encoder.fields)
        k = model.k if isinstance(model, FFM) else model.width(n_fields)
        self.plan, self.kernel = plan, kernels.make_kernel(_MODELS[type(model)], k)
        plan.numbers[:3] = [float(params["bias"][0]), fitted.loss.center, fitted.loss.scale]
        factors, linear = (np.ascontiguousarray(params[name], np.float32) for name in ("factors", "linear"))
        between = _between_fields(fitted)
        plan.kept += [factors, linear, between]
        common = {
            "factors": factors.ctypes.data,
            "linear": linear.ctypes.data,
            "between": between.ctypes.data,
            "width": factors.shape[1],
            "order": getattr(model, "order", 2),
        }
        self.scores = plan.finish(**common, link=0)
        self.predictions = plan.finish(**common, link=kernels.LINKS.index(fitted.loss.name))
        vectors = plan.n_terms * n_fields + n_fields if isinstance(model, FFM) else plan.n_terms
        self.n_numbers = k * max(vectors, common["order"] + 1)

    def make_room(self) -> Room:
        """Memory for one caller."""
        return Room(self.plan.stride, self.plan.n_terms, self.n_numbers)


def _between_fields(fitted: Fitted) -> Float32:
    """Weights or matrices between fields, flat; matrices by their second field."""
    model, params = fitted.model, fitted.params
    if isinstance(model, FwFM | LowRankFwFM):
        return np.ascontiguousarray(field_weights(model, params), np.float32).ravel()
    if isinstance(model, FmFM):
        return np.ascontiguousarray(params["field_matrices"].transpose(1, 0, 2, 3), np.float32).ravel()
    return np.zeros(1, np.float32)
