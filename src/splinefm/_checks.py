"""Checks of arguments that all folders share; each raises an error that names the argument, the rule and the value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import UnionType
from typing import Any, TypeVar

import numpy as np

from splinefm._wording import for_reader, setting

Fitted = TypeVar("Fitted")

# Features are numbered in int32, so that no count of them is larger.
MAX_SIZE = int(np.iinfo(np.int32).max)
# Longer values are cut in messages.
_MAX_SHOWN = 80


def is_integer(value: object) -> bool:
    """Whether a value is an integer; booleans are not.

    Examples
    --------
    >>> is_integer(3), is_integer(np.int32(3)), is_integer(True), is_integer(3.0)
    (True, True, False, False)
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_choice(what: str, value: object, allowed: tuple[str, ...] | None) -> None:
    """Raise unless value is one of the allowed strings, or any non-empty string if `allowed` is None.

    Examples
    --------
    >>> check_choice("missing", "drop", ("token", "error"))
    Traceback (most recent call last):
        ...
    ValueError: missing must be one of 'token', 'error', got 'drop'
    """
    if allowed is None:
        if not isinstance(value, str) or not value:
            raise ValueError(f"the {what} must be a non-empty string, got {value!r}")
    elif value not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def check_count(name: str, value: object, low: int, high: int | None = MAX_SIZE) -> None:
    """Raise unless value is an integer from `low` to `high`; None is no limit.

    Examples
    --------
    >>> check_count("degree", 9, 0, 5)
    Traceback (most recent call last):
        ...
    ValueError: degree must be from 0 to 5, got 9
    """
    if not isinstance(value, int | np.integer) or not is_integer(value):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if value < low or (high is not None and value > high):
        allowed = f"at least {low}" if high is None or (value < low and high == MAX_SIZE) else f"from {low} to {high:,}"
        raise ValueError(f"{name} must be {allowed}, got {value:,}")


def check_size(name: str, value: object, least: int = 1, most: int | None = None) -> None:
    """Raise unless a setting is an integer of at least `least`, and of at most `most`.

    Examples
    --------
    >>> check_size("epochs", 0)
    Traceback (most recent call last):
        ...
    ValueError: epochs must be an integer of at least 1, got 0
    """
    if not isinstance(value, int | np.integer) or not is_integer(value) or value < least:
        raise ValueError(f"{setting(name)} must be an integer of at least {least}, got {value!r}")
    if most is not None and value > most:
        raise ValueError(f"{setting(name)} must be at most {most:,}, got {value:,}")


def check_positive(name: str, value: object) -> float:
    """A setting as a float; raise unless it is a positive, finite number.

    Examples
    --------
    >>> check_positive("max_error", 1)
    1.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < math.inf:
        raise ValueError(f"{setting(name)} must be a positive number, got {value!r}")
    return float(value)


def check_increasing(name: str, values: Sequence[float]) -> tuple[float, ...]:
    """The values as floats; raise unless they increase.

    Examples
    --------
    >>> check_increasing("edges", [0, 1, 5])
    (0.0, 1.0, 5.0)
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or len(array) < 2 or not np.isfinite(array).all() or (np.diff(array) <= 0).any():
        raise ValueError(f"{name} must be at least two increasing finite numbers, got {tuple(values)}")
    return tuple(array.tolist())


def check_kind(name: str, value: object, kind: type | UnionType, example: str) -> None:
    """Raise unless an argument is None or of its type.

    Examples
    --------
    >>> check_kind("training", {"epochs": 2}, str, "sf.Training(epochs=2)")
    Traceback (most recent call last):
        ...
    TypeError: training must be None or an object such as sf.Training(epochs=2), got {'epochs': 2}
    """
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be None or an object such as {example}, got {brief(value)}")


def brief(value: object) -> str:
    """A short description of an argument: tables and arrays are named by their type.

    Examples
    --------
    >>> brief("FM"), brief(int), brief(list(range(100)))
    ("'FM'", 'the class int', 'a value of type list')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    shown = repr(value) if isinstance(value, str | int | float | list | tuple | dict) else ""
    if hasattr(value, "get_params"):  # estimators of scikit-learn are as short as they are called
        shown = " ".join(repr(value).split())
    return shown if 0 < len(shown) <= _MAX_SHOWN else f"a value of type {type(value).__name__}"


def check_column_name(what: str, value: object) -> None:
    """Raise unless an argument that names a column is None or text.

    Examples
    --------
    >>> check_column_name("target", [0, 1])
    Traceback (most recent call last):
        ...
    TypeError: target must be the name of a column, got [0, 1]; add the values to the table as a column
    """
    if value is None or isinstance(value, str):
        return
    is_label = isinstance(value, int | float)
    advice = f"write {str(value)!r}" if is_label else "add the values to the table as a column"
    raise TypeError(f"{what} must be the name of a column, got {brief(value)}; {advice}")


def check_fitted(fitted: Fitted, name: str = "fitted") -> Fitted:
    """The argument; raise unless it is a `sf.Fitted`, by its attributes: this module cannot import the class.

    Examples
    --------
    >>> check_fitted("model.sfm")
    Traceback (most recent call last):
        ...
    TypeError: fitted must be a sf.Fitted, got str; an estimator has one in fitted_
    """
    if isinstance(fitted, type) or not all(hasattr(fitted, part) for part in ("encoder", "model", "params", "loss")):
        raise TypeError(f"{name} must be a sf.Fitted, got {type(fitted).__name__}; an estimator has one in fitted_")
    return fitted


def check_one_score(fitted: Fitted, name: str = "fitted", what: str = "this") -> Fitted:
    """The argument; raise unless it is a `sf.Fitted` with one score per row, which `what` needs.

    Commands with an option for the class choose it before (`one_class`), so that only others see this error.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0] * 50, "color": ["red", "green", "blue"] * 50}
    >>> fitted = sf.fit_model(table, "color", loss="softmax", training=sf.Training(epochs=2, threads=1))
    >>> check_one_score(fitted)
    Traceback (most recent call last):
        ...
    ValueError: fitted has a score for each of 3 classes, but this needs one: pass fitted.for_class('blue'), for example
    """
    checked: Any = check_fitted(fitted, name)
    loss = checked.loss
    if loss.n_outputs > 1:
        raise ValueError(
            f"{for_reader(name, 'the model')} has a score for each of {loss.n_outputs} classes, but {what} needs one: "
            + for_reader(
                f"pass {name}.for_class({loss.classes[0]!r}), for example",
                "write the model of one class to a file of its own and use that, in Python: "
                f"sf.load(FILE).for_class({loss.classes[0]!r}).save('one.sfm')",
            )
        )
    return fitted
