"""Fitted fields as compiled code reads them, one row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._core import RowEncoder
from splinefm.encode.bases.basis import Basis
from splinefm.encode.bases.polynomials import PolynomialWindow
from splinefm.encode.fields.axis import features_on_axis
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cells import MULTIPLIERS, PRIME
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.description import NumericalDescription, describe_numerical
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.fields.special import SIGNS
from splinefm.encode.fields.vocabulary import Vocabulary
from splinefm.encode.rows.readers import (
    ASK,
    NO_FEATURE,
    Reader,
    category_reader,
    cross_reader,
    list_reader,
    number_reader,
    part_reader,
    slow_reader,
    unseen_feature,
)
from splinefm.encode.schema import Field, Single
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.columns import text_buffers
from splinefm.encode.transforms.sketch import FloatArray

_NO_NUMBERS = np.zeros(0)
_AGREES = 1e-6  # the most that weights of a compiled field may differ from those of the encoder
_PROBES = 128

Float32 = npt.NDArray[np.float32]


class RowFields:
    """Fields that encode single rows.

    Parameters
    ----------
    fields : sequence of fields
        Fitted fields, in the order of the model.
    first_features : sequence of int
        The first feature of each.

    Attributes
    ----------
    columns, readers : tuples
        For `RowEncoder`: the column of each field, of a cross that of each part, and what reads values that compiled
        code does not.
    slow : tuple of str
        Numerical fields and crosses that are not compiled.

    Examples
    --------
    >>> from splinefm.encode.transforms.scaling import MinMax
    >>> from splinefm.encode.bases.splines import BSpline
    >>> fields = RowFields([Numerical("x", MinMax(low=0.0, high=1.0), BSpline(1, degree=1))], [0])
    >>> features, weights, _, _ = fields.encoder.encode({"x": 0.25}, fields.columns, fields.readers)
    >>> features.tolist(), weights.tolist()
    ([1, 2], [0.75, 0.25])
    """

    def __init__(self, fields: Sequence[Field], first_features: Sequence[int]) -> None:
        self.encoder = RowEncoder()
        self.slow: tuple[str, ...] = ()
        self.columns = tuple(name for item in fields for name in item.columns)
        self.readers: tuple[Reader, ...] = ()
        for item, first in zip(fields, first_features, strict=True):
            self.readers += self._add_cross(item, first) if isinstance(item, Cross) else (self._add(item, first),)

    def _add(self, item: Single, first: int) -> Reader:
        if isinstance(item, Categorical):
            self.encoder.add_names(*_names(item, first, unseen_feature(item, first)))
            return category_reader(item, first)
        apart = item.reduction == "identity"
        if isinstance(item, MultiValued):
            length = len(item.layout.widths)
            if item.separator is None:
                averages = item.reduction == "mean"
                names = _names(item.elements, first, unseen_feature(item.elements, first))
                self.encoder.add_lists(*names, length=length, averages=averages, apart=apart)
            else:  # Python strips the white space around names
                self.encoder.add_given(length, apart)
            return list_reader(item, first)
        compiled = compile_number(item)
        if compiled is None:
            self.slow = (*self.slow, item.name)
            self.encoder.add_given(sum(item.layout.widths), apart)
            return slow_reader(item, first)
        _add_number(self.encoder, item, first, compiled, compiled.windows)
        return number_reader(item)

    def _add_cross(self, item: Cross, first: int) -> tuple[Reader, ...]:
        """Add a cross, whose parts are the fields of an encoder of their own; a reader for each."""
        parts = RowEncoder()
        readers: list[Reader] = []
        for i, part in enumerate(item.fields):
            if isinstance(part, Categorical):
                parts.add_names(*_names(part, 0, ASK if part.unseen == "error" else NO_FEATURE))
                readers.append(part_reader(part))
                continue
            number = item.numbers.index(i)
            levels = _compile_levels(part, [bases[number] for bases in item.levels])
            if levels is None:
                self.slow = (*self.slow, item.name)
                self.encoder.add_given(sum(item.layout.widths), False, len(item.fields))
                return (cross_reader(item, first),) * len(item.fields)
            _add_number(parts, part, 0, levels[0], [window for level in levels for window in level.windows])
            readers.append(number_reader(part))
        n_names = len(item.categories)
        self.encoder.add_cross(
            first=first,
            parts=parts,
            sizes=np.array(item.level_sizes, np.int64).reshape(len(item.levels), -1),
            cells=np.zeros((0, n_names), np.int32) if item.cells is None else np.ascontiguousarray(item.cells.features),
            buckets=item.buckets or 0,
            multipliers=np.array(MULTIPLIERS[:n_names], np.int64),
            prime=PRIME,
        )
        return tuple(readers)


def _compile_levels(part: Numerical, bases: Sequence[Basis]) -> list[NumericalDescription] | None:
    """Descriptions of a part of a cross with the basis of each resolution; None where one is not compiled."""
    found: list[NumericalDescription] = []
    for level, basis in enumerate(bases):
        if level and basis == bases[level - 1]:
            found.append(found[-1])
            continue
        compiled = compile_number(replace(part, basis=basis, reduction="sum"))
        if compiled is None or len(compiled.windows) != 1:
            return None
        found.append(compiled)
    return found


def _names(
    item: Categorical, first: int, unseen: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], int, int, int]:
    """Names of a field, the features of the first of them, of those that are unseen, and of missing values."""
    offsets, text = text_buffers((item.vocabulary or Vocabulary(pa.array([], pa.large_string()))).names)
    unseen = unseen if item.spelling == "text" else ASK  # it may be another spelling
    return offsets, text, first + item.n_tokens, unseen, ASK if item.missing_token is None else first


def _add_number(
    encoder: RowEncoder, item: Numerical, first: int, found: NumericalDescription, windows: Sequence[PolynomialWindow]
) -> None:
    rules = np.array([(SIGNS.index(sign), number) for sign, number in found.rules], np.float64).reshape(-1, 2)
    knots, values = (_NO_NUMBERS, _NO_NUMBERS) if found.pieces is None else found.pieces
    encoder.add_number(
        first=first,
        signs=np.ascontiguousarray(rules[:, 0]),
        bounds=np.ascontiguousarray(rules[:, 1]),
        missing=found.missing is not None,
        apart=item.reduction == "identity",
        plain=item.part is None,
        knots=np.ascontiguousarray(knots, np.float64),
        values=np.ascontiguousarray(values, np.float64).ravel(),
        powers=1 if found.pieces is None else values.shape[1],
    )
    for window in windows:
        encoder.add_window(
            segments=window.segments,
            edges=_NO_NUMBERS if window.edges is None else np.ascontiguousarray(window.edges, np.float64),
            coefficients=np.ascontiguousarray(window.coefficients, np.float64),
            start=window.start,
            moves=window.moves,
            around=window.around,
        )


def compile_number(item: Numerical) -> NumericalDescription | None:
    """The description of a field for compiled code, or None where it takes the field's Python objects."""
    found = describe_numerical(item)
    return found if found is not None and _agrees(item, found) else None


def _agrees(item: Numerical, found: NumericalDescription) -> bool:
    """Whether compiled code and encoder give the same features and weights all over the range of a field."""
    x = _probes(item)
    expected_features, expected = features_on_axis(item, to_arrow(x))
    encoder = RowEncoder()
    _add_number(encoder, replace(item, part=None), 0, found, found.windows)
    try:
        encoded = [encoder.encode([value], (0,), (None,))[:2] for value in x.tolist()]
    except ValueError:  # a number that it does not take
        return False
    difference = np.zeros((len(x), item.layout.n_features))
    np.add.at(difference, (np.arange(len(x))[:, None], expected_features), expected)
    probe = np.repeat(np.arange(len(x)), [len(features) for features, _ in encoded])  # a missing value has one feature
    features, weights = (np.concatenate(parts) for parts in zip(*encoded, strict=True))
    np.subtract.at(difference, (probe, features), weights)
    return bool(np.abs(difference).max() <= _AGREES)


def _probes(item: Numerical) -> FloatArray:
    """Values of all kinds: over the range, beyond it, special and missing."""
    u = np.sort(np.arange(_PROBES) * 0.6180339887498949 % 1.0)  # spread evenly, and not where people put borders
    x = np.asarray(item.fitted_transform.inverse(np.append(u, 1.0)), np.float64)
    special = [rule.number for rule in item.rules]
    far = [0.0, 1.0, -1.0, 1e300, -1e300, *([np.nan] if item.missing == "token" else [])]
    values: FloatArray = np.concatenate([x, special, far])
    return np.asarray(values[~np.isinf(values)])
