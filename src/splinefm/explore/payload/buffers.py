"""Numbers of a page as named arrays, beside the JSON that refers to them by name."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# Types that browsers have an array for.
_TYPES = {"float32": "Float32Array", "float64": "Float64Array", "int32": "Int32Array"}


class Buffers:
    """Named arrays of a payload.

    Examples
    --------
    >>> buffers = Buffers()
    >>> buffers.add("field 0: knots", [0, 1], np.float64)
    'field 0: knots'
    >>> buffers.arrays["field 0: knots"]
    array([0., 1.])
    """

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}

    def add(self, name: str, values: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        """Keep an array, flat; returns its name."""
        if name in self.arrays:
            raise ValueError(f"two arrays of a page have the name {name!r}")
        self.arrays[name] = np.ascontiguousarray(values, dtype).reshape(-1)
        return name


def encode_array(values: Array) -> dict[str, str]:
    """An array as JSON: its type in JavaScript, and its bytes, the lowest of each number first, in base64.

    Examples
    --------
    >>> encode_array(np.array([1, 2], np.int32))
    {'type': 'Int32Array', 'data': 'AQAAAAIAAAA='}
    """
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return {"type": _TYPES[values.dtype.name], "data": base64.b64encode(little.tobytes()).decode("ascii")}


def json_number(value: float) -> float | str | None:
    """A number as JSON, which has no infinities: `Number("Infinity")` reads them; None for NaN.

    Examples
    --------
    >>> json_number(0.5), json_number(float("-inf")), json_number(float("nan"))
    (0.5, '-Infinity', None)
    """
    number = float(value)
    if np.isnan(number):
        return None
    return number if np.isfinite(number) else "Infinity" if number > 0 else "-Infinity"
