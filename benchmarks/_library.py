"""libsplinefm through ctypes, for benchmarks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LIBRARY = Path(__file__).parents[1] / "build" / "native" / "libsplinefm.so"
NUMBER, TEXT = 2, 5


class Value(ctypes.Structure):
    """`sfm_value`; a number goes by its bits."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("size", ctypes.c_uint64),
        ("of", ctypes.c_uint64),
    )


class Values:
    """Rows of values as the library takes them; texts are kept."""

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        flat = [value for row in rows for value in row]
        self.array = (Value * len(flat))()
        self._kept = []
        for given, value in zip(self.array, flat, strict=True):
            if isinstance(value, str):
                data = value.encode()
                self._kept.append(ctypes.create_string_buffer(data, len(data)))
                given.kind, given.size, given.of = TEXT, len(data), ctypes.addressof(self._kept[-1])
            else:
                given.kind, given.of = NUMBER, int(np.float64(value).view(np.uint64))


class Library:
    """A scorer file, open in the library.

    Parameters
    ----------
    path : path
        The file.
    """

    def __init__(self, path: Path) -> None:
        if not LIBRARY.exists():
            raise FileNotFoundError(f"{LIBRARY} is not built; `make native` does")
        self.library, self.scorer = ctypes.CDLL(str(LIBRARY)), ctypes.c_void_p()
        self._check(self.library.sfm_open(str(path).encode(), ctypes.byref(self.scorer), None))
        self.library.sfm_column_name.restype = ctypes.c_char_p
        self.library.sfm_n_columns.restype = ctypes.c_size_t
        n = self.library.sfm_n_columns(self.scorer)
        self.columns = [self.library.sfm_column_name(self.scorer, ctypes.c_size_t(i)).decode() for i in range(n)]

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise RuntimeError(f"libsplinefm returned {code}")

    def row_call(self) -> Callable[[Values], float]:
        """A function that scores one row, with everything but the row prepared."""
        workspace, out = ctypes.c_void_p(), ctypes.c_double()
        self._check(self.library.sfm_workspace_new(self.scorer, ctypes.byref(workspace), None))
        call, one, nothing = self.library.sfm_score, ctypes.c_size_t(1), ctypes.c_void_p()
        address, scorer = ctypes.byref(out), self.scorer

        def score(row: Values) -> float:
            if call(scorer, workspace, row.array, one, address, nothing):
                raise RuntimeError("sfm_score failed")
            return out.value

        return score

    def scores(self, values: Values, n: int) -> np.ndarray:
        """Scores of n rows, in one call."""
        out = np.empty(n)
        address = ctypes.c_void_p(out.ctypes.data)
        self._check(self.library.sfm_score(self.scorer, None, values.array, ctypes.c_size_t(n), address, None))
        return out

    def catalog(self, names: Sequence[str], items: Values, n: int) -> Callable[[Values, np.ndarray], None]:
        """A function that writes the scores of a context with n items."""
        columns = (ctypes.c_int64 * len(names))(*map(self.columns.index, names))
        handle = ctypes.c_void_p()
        arguments = (self.scorer, columns, ctypes.c_size_t(len(names)), items.array, ctypes.c_size_t(n))
        self._check(self.library.sfm_items_new(*arguments, ctypes.byref(handle), None))

        def score(context: Values, out: np.ndarray) -> None:
            address = ctypes.c_void_p(out.ctypes.data)
            self._check(self.library.sfm_items_score(handle, None, context.array, address, None))

        return score
