"""Targets and weights: the labels of a classifier become 0, 1, ..., in sorted order."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from splinefm._arrays import Array, FloatArray
from splinefm._wording import for_reader, other_losses
from splinefm.encode.tables.arrow import from_strings, to_arrow
from splinefm.encode.tables.columns import as_numbers, as_text, is_text, parse_numbers

# Weighted sums over rows, without BLAS.


def weighted_sum(weight: FloatArray, values: FloatArray) -> float:
    """Return Σ weight · value.

    A product of long vectors would start the threads of BLAS. They keep their cores busy for some time when they have
    nothing to do, while a fit could use them.

    Examples
    --------
    >>> weighted_sum(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    return float(np.sum(weight * values))


def mean_and_error(values: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Return the weighted mean of some rows' values, and its standard error; the weights must have a sum above 0.

    Examples
    --------
    >>> mean_and_error(np.array([1.0, 3.0, 1.0, 3.0]), np.ones(4))
    (2.0, 0.5)
    """
    if not math.isfinite(total := float(values.sum())):  # of losses: the fit diverged
        return total, math.inf
    mean = float(np.average(values, weights=weight))
    return mean, math.sqrt(float(np.sum((weight * (values - mean)) ** 2))) / float(weight.sum())


Label = str | bool | int | float
Classes = tuple[Label, ...]
# Weights by label, "balanced" for the same total weight, or none.
ClassWeight = str | Mapping[Label, float] | None
Labels = Sequence[object] | Array
BALANCED = "balanced"
SHOWN = 5
SMALLEST_TOTAL = 1e-290
"""The least sum of sample weights: times the loss of a row, it has all the digits of a double, down to 2e-308."""
MAX_CLASSES = 1000
"""Every class has parameters of its own; more classes are rather a column of names or numbers taken for labels."""


def find_classes(columns: Iterable[pa.Array], name: str, max_classes: int = 2, shares: bool = True) -> Classes | None:
    """Return the labels of a target column that comes in parts, or None for numbers between 0 and 1 if `shares`.

    There must be from two to `max_classes` labels. A number such as 0.5 settles that the target is a share, such as
    clicks out of impressions. Tables may be sorted by label: rows with 0 and 1 alone settle nothing.
    """
    found: set[Label] = set()
    for column in columns:
        if pa.types.is_nested(column.type):
            raise ValueError(f"a target has one value per row, but {name!r} holds {column.type}; choose another column")
        labels = distinct_labels(column, name)
        shares = shares and holds_shares(column, name)
        if shares and not labels <= {0, 1}:
            return None
        found |= labels
        if len(found) > max_classes:
            break
    return None if shares and found else as_classes(found, name, max_classes)


def distinct_labels(column: pa.Array, name: str) -> set[Label]:
    """Return the labels of a part of a target column; missing values are none, and infinite ones raise an error."""
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    labels = {value for value in pc.unique(column).to_pylist() if value is not None and value == value}
    refuse_infinite(labels, f"the target {name!r}")
    return labels


def refuse_infinite(labels: Iterable[object], where: str) -> None:
    """Raise an error if a label is infinite: it is the result of a computation that failed, and not a class.

    Examples
    --------
    >>> refuse_infinite([0.0, -math.inf], "y")
    Traceback (most recent call last):
    ValueError: y has an infinite value, -inf, which is not a class label; drop such rows
    """
    found = next((label for label in labels if isinstance(label, float) and math.isinf(label)), None)
    if found is not None:
        raise ValueError(f"{where} has an infinite value, {found}, which is not a class label; drop such rows")


def as_classes(found: set[Label], name: str, max_classes: int = 2) -> Classes:
    """Return labels in sorted order; too few, too many, or several that are not integers raise an error."""
    labels = tuple(sorted(found, key=lambda label: (str(type(label)), label)))
    warn_of_spellings(labels, f"the target {name!r}")
    if not 2 <= len(labels) <= max_classes:
        raise ValueError(_wrong_number(labels, name, max_classes))
    if len(labels) > 2 and any(isinstance(label, float) and label != math.floor(label) for label in labels):
        shown = next(label for label in labels if isinstance(label, float) and label != math.floor(label))
        raise ValueError(f"labels must be integers, text or booleans, but {name!r} has {shown!r}; {other_losses()}")
    return labels


def warn_of_spellings(labels: Sequence[object], where: str) -> None:
    """Warn if labels differ only in case or white space: they are rather one class in several spellings."""
    alike: dict[str, list[str]] = {}
    for label in labels:
        if isinstance(label, str):
            alike.setdefault(" ".join(label.split()).casefold(), []).append(label)
    several = [" and ".join(map(repr, spellings)) for spellings in alike.values() if len(spellings) > 1]
    if several:
        more = f" and {len(several) - SHOWN} others" if len(several) > SHOWN else ""
        warnings.warn(
            f"{where} has labels that differ only in case or white space and count as different classes: "
            f"{', '.join(several[:SHOWN])}{more}; write them alike if they mean the same",
            stacklevel=2,
        )


def holds_shares(column: pa.Array, name: str) -> bool:
    """Return whether a part of a target column holds numbers between 0 and 1."""
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if is_text(column.type) or pa.types.is_boolean(column.type):
        return False
    y = as_numbers(column, name)
    return bool(np.all((y >= 0.0) & (y <= 1.0) | np.isnan(y)))


def _wrong_number(labels: Sequence[Label], name: str, max_classes: int) -> str:
    """Say what to do about a target that has too few or too many labels."""
    shown = ", ".join(map(repr, labels[:SHOWN]))
    if len(labels) < 2:
        return f"the target {name!r} has only one class ({shown or 'no values'}); a classifier needs two"
    if max_classes > 2:
        return f"the target {name!r} has more than {max_classes:,} classes ({shown}, ...); {other_losses()}"
    use = for_reader('loss="softmax"', "--loss softmax")
    if not isinstance(labels[0], str):
        return (
            f"a logistic target must lie between 0 and 1 or have two values, but {name!r} has more ({shown}, ...); "
            f"{other_losses()}; for more than two classes, use {use}"
        )
    return f"the target {name!r} has more than two classes ({shown}, ...); use {use}"


def as_targets(column: pa.Array, name: str, classes: Classes | None) -> FloatArray:
    """Return targets as numbers: labels as their positions in `classes`.

    A missing label is NaN, and an unknown label raises an error.
    """
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if classes is None or not isinstance(classes[0], str):
        column = _parse_booleans(column)
    if classes is None:
        return _numbers(column, name)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if isinstance(classes[0], str) != is_text(column.type):
        raise ValueError(f"the target {name!r} was {listed(classes)} before, now it is {column.type}")
    if len(classes) > 2:
        return _positions(column, name, classes)
    first, second = (_equals(column, label, name) for label in classes)
    known = pc.or_kleene(second, first)
    if not pc.all(known, min_count=0).as_py():
        other = pc.filter(column, pc.invert(pc.fill_null(known, True)))[0].as_py()
        if other == other:  # NaN is a missing label
            raise ValueError(f"the target {name!r} is {classes[0]!r} or {classes[1]!r}, got {other!r}")
    return as_numbers(pc.if_else(known, second.cast(pa.float64()), pa.nulls(1, pa.float64())[0]), name)


def listed(classes: Classes) -> str:
    """Return the first labels as text.

    Examples
    --------
    >>> listed(("no", "yes")), listed(tuple(range(100)))
    ("'no' or 'yes'", '0, 1, 2, 3, 4 or 95 others')
    """
    if len(classes) == 2:
        return f"{classes[0]!r} or {classes[1]!r}"
    more = len(classes) - SHOWN
    if more > 1:
        return f"{', '.join(map(repr, classes[:SHOWN]))} or {more} others"
    return f"{', '.join(map(repr, classes[:-1]))} or {classes[-1]!r}"


def _positions(column: pa.Array, name: str, classes: Classes) -> FloatArray:
    """Return the position of every label among many; each distinct value is compared once."""
    encoded = column.dictionary_encode()
    values = encoded.dictionary
    found = np.full(len(values) + 1, np.nan)  # the last one is for missing labels
    for position, label in enumerate(classes):
        equal = pc.fill_null(_equals(values, label, name), False).to_numpy(zero_copy_only=False)
        found[:-1][equal] = position
    for value in values.filter(to_arrow(np.isnan(found[:-1]))).to_pylist():
        if value == value:  # NaN is a missing label
            raise ValueError(f"the target {name!r} is {listed(classes)}, got {value!r}")
    codes = pc.fill_null(encoded.indices, len(values)).to_numpy(zero_copy_only=False)
    return np.asarray(found[codes])


def is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, NaT or the NA of pandas.

    Examples
    --------
    >>> [is_missing(value) for value in (None, float("nan"), 0.0, "")]
    [True, True, False, False]
    """
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA is not even equal to itself or different from itself
        return True


def _parse_booleans(column: pa.Array) -> pa.Array:
    """Return text that is true or false throughout, in any case, as booleans: CSV files hold them as text."""
    if not is_text(column.type):
        return column
    lower = pc.utf8_lower(column)
    true, false = (pc.equal(lower, from_strings([word]).cast(lower.type)[0]) for word in ("true", "false"))
    return true if pc.all(pc.or_(true, false), min_count=0).as_py() else column


def _numbers(column: pa.Array, name: str) -> FloatArray:
    try:
        return as_numbers(column, name)
    except ValueError as error:
        if not is_text(column.type):
            raise
        example = column.drop_null()[0].as_py()
        raise ValueError(
            f"the target {name!r} must hold numbers or booleans, but is text such as {example!r}; pass "
            "numbers, or fit a classifier to labels"
        ) from error


def _equals(column: pa.Array, label: Label, name: str) -> pa.BooleanArray:
    """Return where a column equals a label by value: True is 1 and 1.0, and 1.5 is not an integer.

    Scalars are created without pandas; see `splinefm.encode.tables.arrow`.
    """
    kind = column.type
    if isinstance(label, str):
        return pc.equal(column, from_strings([label]).cast(kind)[0])
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.int8()), pa.int8()
    if pa.types.is_decimal(kind):
        column, kind = column.cast(pa.float64()), pa.float64()
    if pa.types.is_floating(kind):
        return pc.equal(column, to_arrow(np.array([label], kind.to_pandas_dtype()))[0])
    if not pa.types.is_integer(kind):
        raise ValueError(f"the target {name!r} was a number or a boolean before, now it is {kind}")
    dtype = np.dtype(kind.to_pandas_dtype())
    if label != math.floor(label) or not np.iinfo(dtype).min <= label <= np.iinfo(dtype).max:
        return pc.not_equal(column, column)  # nowhere, and missing where the column is
    return pc.equal(column, to_arrow(np.array([int(label)], dtype))[0])


def as_weights(column: pa.Array, name: str) -> FloatArray:
    """Return a column of sample weights as numbers; a negative or missing weight raises an error."""
    try:
        weight = as_numbers(column, name)
    except ValueError as error:
        found = _example_of_no_number(column)
        message = (
            f"the weights in column {name!r} must be numbers, but the column has {found}; name a column of numbers"
        )
        raise ValueError(message) from error
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError(f"the weights in column {name!r} must be finite and at least 0")
    with np.errstate(over="ignore"):
        total = float(weight.sum())
    if total == math.inf:
        raise ValueError(f"the weights in column {name!r} sum to infinity; divide all of them by the same constant")
    return weight


def check_total_weight(total: float) -> None:
    """Raise an error if the weights of a table are so small that weighted losses lose their digits, or are 0.

    Examples
    --------
    >>> check_total_weight(1e-300)
    Traceback (most recent call last):
    ValueError: the sample weights are so small that they sum to 1e-300; divide all of them by the largest one, ...
    """
    if 0.0 < total < SMALLEST_TOTAL:
        raise ValueError(
            f"the sample weights are so small that they sum to {total:g}; divide all of them by the largest one, "
            "which does not change the fit"
        )


def _example_of_no_number(column: pa.Array) -> str:
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if not is_text(column.type):
        return f"type {column.type}"
    _, stray = parse_numbers(as_text(column))
    return repr(column[0 if stray is None else int(stray.argmax())].as_py())


def class_weights(given: ClassWeight, classes: Classes) -> tuple[float, ...]:
    """Return the weights of all classes by their labels; 1 for a label that is not named.

    Examples
    --------
    >>> class_weights({"yes": 5.0}, ("no", "yes"))
    (1.0, 5.0)
    """
    shown = f"{classes[0]!r} and {classes[1]!r}" if len(classes) == 2 else listed(classes)
    if not isinstance(given, Mapping):
        raise ValueError(f'class_weight must be None, "{BALANCED}" or a mapping from labels to numbers, got {given!r}')
    for label, weight in given.items():
        if label not in classes:
            raise ValueError(f"class_weight has the label {label!r}; the classes are {shown}")
        if isinstance(weight, bool) or not isinstance(weight, int | float | np.number) or not 0.0 <= weight < math.inf:
            raise ValueError(f"class_weight of {label!r} must be a number of at least 0, got {weight!r}")
    weights = tuple(float(given.get(label, 1.0)) for label in classes)
    if not any(weights):
        which = "both" if len(classes) == 2 else "all"
        raise ValueError(f"class_weight is 0 for {which} classes; at least one must be positive")
    return weights


def balanced_weights(*totals: float) -> tuple[float, ...]:
    """Return the class weights that give all classes the same total weight and keep the overall weight.

    Examples
    --------
    >>> balanced_weights(30.0, 10.0)
    (0.6666666666666666, 2.0)
    """
    if not all(total > 0.0 for total in totals):
        which = "both" if len(totals) == 2 else "all"
        raise ValueError(f'class_weight="{BALANCED}" needs rows of {which} classes; pass a number for each instead')
    return tuple(sum(totals) / (len(totals) * total) for total in totals)


def class_totals(y: FloatArray, weight: FloatArray, n_classes: int) -> FloatArray:
    """Return the total weight of every class; with two classes, y can be a share."""
    if n_classes == 2:
        return np.array([weighted_sum(weight, 1.0 - y), weighted_sum(weight, y)])
    return np.bincount(y.astype(np.intp), weight, n_classes).astype(np.float64)


def weights_of_rows(y: FloatArray, weights: Sequence[float]) -> FloatArray:
    """Return the class weight of every row; 0 for a missing label, which raises an error later."""
    return np.append(weights, 0.0)[np.where(np.isfinite(y), y, -1.0).astype(np.intp)]
