"""What transforms share as specifications: plain values in their fields, and values that `fit` fills in."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def fitted_value(owner: object, value: T | None) -> T:
    if value is None:
        raise ValueError(f"{type(owner).__name__} is not fitted; call fit first")
    return value


def check_share(name: str, share: float) -> None:
    if not 0 < share <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {share}")


def make_plain(spec: Any) -> None:
    """Convert arrays, lists and NumPy numbers in the fields to tuples and Python numbers."""
    for field in fields(spec):
        object.__setattr__(spec, field.name, _plain(getattr(spec, field.name)))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if type(value) is tuple and set(map(type, value)) == {float}:  # such as thousands of knots
        return value
    return tuple(map(_plain, value)) if isinstance(value, tuple | list) else value
