"""The terms of the score for every row, by the kernels: with threads, and no more memory than a block of rows needs.

The names are those of `splinefm.use.explain`: a_f is what a field adds on its own, z_f its vector less its mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.encoder import count_threads, in_order
from splinefm.encode.slots import Slots
from splinefm.learn.fitted import Fitted
from splinefm.model.family import FFM, FM, FmFM
from splinefm.use.quadratic import between_fields, size

FloatArray = npt.NDArray[np.float64]
# Memory for the fields' vectors of a block of rows.
BLOCK_BYTES = 1 << 24


def own_parts(fitted: Fitted, slots: Slots, threads: int | None) -> FloatArray:
    """a_f of all rows, shape (n, fields)."""
    from splinefm.use.kernels import own_parts

    none = np.zeros(size(fitted))
    out = np.empty((len(slots), len(none)))
    _run(own_parts, fitted, slots, _weights(fitted, none, none), np.zeros(len(none)), out, threads)
    return out


def field_terms(
    fitted: Fitted, slots: Slots, center: FloatArray, slope: FloatArray, offset: FloatArray, threads: int | None
) -> FloatArray:
    """a_f + z_f' h_f + ½ Σ_e z_f' M_fe z_e - offset_f of all rows, shape (n, fields)."""
    from splinefm.use import kernels

    special = {FM: kernels.terms_fm, FmFM: kernels.terms_fmfm, FFM: kernels.terms_ffm}
    kernel = special.get(type(fitted.model), kernels.terms_fwfm)
    out = np.empty((len(slots), len(center)))
    _run(kernel, fitted, slots, _weights(fitted, center, slope), offset, out, threads)
    return out


def field_effects(
    fitted: Fitted, slots: Slots, center: FloatArray, slope: FloatArray, offset: FloatArray, threads: int | None
) -> FloatArray:
    """a_f + z_f' h_f - offset_f of all fields, then z_f' M_fe z_e of all pairs: shape (n, fields + pairs)."""
    from splinefm.use.kernels import effects

    n_fields = len(center)
    out = np.empty((len(slots), n_fields * (n_fields + 1) // 2))
    _run(effects, fitted, slots, _weights(fitted, center, slope), offset, out, threads)
    return out


def field_vectors(
    fitted: Fitted, slots: Slots, center: FloatArray, threads: int | None
) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """The vectors of all fields less `center`, block by block: shape (rows, fields, width)."""
    from splinefm.use.kernels import center_rows

    kt, shape, weights = _kt(fitted), _shape(slots), _weights(fitted, center, center)
    most = max(1, BLOCK_BYTES // (8 * center.size))

    def vectors(first: int) -> tuple[slice, npt.NDArray[np.float32]]:
        last = min(first + most, len(slots))
        Z = np.empty((last - first, *center.shape), np.float32)
        center_rows(kt, shape, weights, slots.start, slots.weight, first, last, Z.reshape(-1))
        return slice(first, last), Z

    return in_order(vectors, range(0, len(slots), most), threads)


def _run(
    kernel: Any, fitted: Fitted, slots: Slots, weights: Any, offset: FloatArray, out: FloatArray, threads: int | None
) -> None:
    """Run a kernel on all rows; every thread has room of its own."""
    kt, shape, (n_fields, width) = _kt(fitted), _shape(slots), size(fitted)
    # An FmFM needs vectors and sums of four rows, the others the vectors of one and an FFM a sum per field.
    room = n_fields * (8 * width if isinstance(fitted.model, FmFM) else width + len(kt))

    def work(rows: slice) -> None:
        mine, Z = weights._replace(room=np.zeros(len(kt), np.float32)), np.zeros(room, np.float32)
        kernel(kt, shape, mine, slots.start[rows], slots.weight[rows], Z, offset, out[rows])

    _in_parts(work, len(slots), threads)


def _in_parts(work: Callable[[slice], None], n: int, threads: int | None) -> None:
    """Rows in as many parts as there are threads; few rows take no thread.

    An FmFM takes four rows at a time, which may be rounded differently: parts begin where fours do.
    """
    n_parts = max(1, min(count_threads(threads), n // 512))
    cuts = [n * part // n_parts // 4 * 4 for part in range(n_parts)]
    parts = [slice(a, b) for a, b in pairwise([*cuts, n])]
    if n_parts == 1:
        work(parts[0])
        return
    with ThreadPoolExecutor(n_parts) as pool:
        list(pool.map(work, parts))


def _weights(fitted: Fitted, center: FloatArray, slope: FloatArray) -> Any:
    """Parameters as the kernels read them; nothing large is copied."""
    from splinefm.use.kernels import FOUR, Weights

    n_fields, k = len(center), len(_kt(fitted))
    R: FloatArray = np.zeros(0)
    M = fitted.params.get("field_matrices", np.zeros(0, np.float32))
    inside = np.zeros((n_fields, k, k))
    if isinstance(fitted.model, FmFM):
        inside[:] = M[np.arange(n_fields), np.arange(n_fields)]
    elif isinstance(fitted.model, FFM):
        inside[:] = np.eye(k)
    else:
        weights = between_fields(fitted)
        inside[:] = np.eye(k) * np.diag(weights)[:, None, None]
        R = np.zeros((-(-n_fields // FOUR) * FOUR, n_fields))
        R[:n_fields] = weights * (1.0 - np.eye(n_fields))
        R = R.reshape(-1, FOUR, n_fields).transpose(0, 2, 1)
    return Weights(
        fitted.params["factors"].reshape(-1),
        fitted.params["linear"],
        R=_flat(R),
        M=_flat(M),
        inside=_flat(inside),
        center=_flat(center),
        slope=_flat(slope),
        room=np.zeros(k, np.float32),
    )


def _flat(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(values, np.float32).reshape(-1)


def _shape(slots: Slots) -> Any:
    from splinefm.use.kernels import Shape

    layout = slots.layout
    first_unit = np.searchsorted(layout.unit_field, np.arange(len(layout.fields) + 1)).astype(np.int32)
    unit_ptr = np.searchsorted(layout.window_unit, np.arange(layout.n_units + 1)).astype(np.int32)
    return Shape(first_unit, layout.window_ptr, unit_ptr, layout.weight_ptr)


def _kt(fitted: Fitted) -> tuple[int, ...]:
    """k as the kernels know it: the length of a tuple."""
    return (0,) * (fitted.model.k if isinstance(fitted.model, FFM) else size(fitted)[1])
