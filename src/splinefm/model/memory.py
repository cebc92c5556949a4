"""Bundles of arrays for the kernels: one list of addresses instead of dozens of arrays.

For Numba an array is seven numbers: a call of a kernel looks at all of them, and functions that pass them on take long
to compile. A *bundle* is a NamedTuple whose annotations say what each member is: an array, a number, or another bundle.
`addresses` writes a bundle down as a list of int64 numbers, once; `vectors.reader` reads it back inside a kernel, as a
bundle of pointers.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

Float32: TypeAlias = npt.NDArray[np.float32]
Float64: TypeAlias = npt.NDArray[np.float64]
Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]


@functools.cache
def members(kind: Any) -> tuple[Any, ...]:
    """What a bundle consists of: `int`, classes of bundles, and the dtypes of arrays."""
    return tuple(hint if isinstance(hint, type) else _dtype(hint) for hint in get_type_hints(kind).values())


def _dtype(array: Any) -> Any:
    """float32 of NDArray[float32]."""
    _, dtype = get_args(array)
    return np.dtype(get_args(dtype)[0])


def addresses(bundle: Any) -> Any:
    """A bundle as kernels take it; its arrays must live as long as a kernel may read them.

    Without compilation kernels take the bundle itself.
    """
    from numba import config

    if config.DISABLE_JIT:  # type: ignore[attr-defined]  # set at run time
        return bundle
    numbers: list[int] = []
    _write(bundle, numbers)
    return np.array(numbers, np.int64)


def _write(bundle: Any, numbers: list[int]) -> None:
    kind: Any = type(bundle)
    for member, value in zip(members(kind), bundle, strict=True):
        if member is int:
            numbers.append(int(value))
        elif isinstance(member, type):
            _write(value, numbers)
        else:
            if value.dtype != member or not value.flags.c_contiguous:  # a kernel would read garbage
                raise TypeError(f"{type(bundle).__name__}: kernels read plain {member} arrays, got {value.dtype}")
            numbers.append(value.__array_interface__["data"][0])
