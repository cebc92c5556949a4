"""Short vectors of k numbers that live in registers: what Numba lacks for fast loops over embeddings.

A loop `for c in range(k): y[c] += a * x[c]` is compiled with checks whether x and y overlap, which cost more than the
sixteen additions. Here a vector is loaded as a whole, kept in a register across a loop, and stored as a whole. `kt` is
a tuple of k numbers: its length is part of its type and so known when the code is compiled.

Vectors are read from one-dimensional arrays or from `pointers`, of which only the address is known.

With NUMBA_DISABLE_JIT=1 the same names work on NumPy arrays.
"""

# mypy: disable-error-code="no-untyped-call,untyped-decorator"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import register_model

from splinefm.model.pointers import data_of, pair

_FAST = ("nsz", "arcp", "contract", "afn", "reassoc")
_FLOAT = ir.FloatType()
_F32 = np.float32


class Vector(types.Type):
    """k float32 numbers in registers."""

    def __init__(self, k: int) -> None:
        self.k = k
        super().__init__(name=f"Vector({k})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, ir.VectorType(_FLOAT, kind.k))


def _place(context: Any, builder: Any, kind: Any, x: Any, at: Any, k: int) -> Any:
    place = builder.gep(data_of(context, builder, kind, x), [at])
    return builder.bitcast(place, ir.VectorType(_FLOAT, k).as_pointer())


def _declare(builder: Any, name: str, kind: Any) -> Any:
    return builder.module.globals.get(name) or ir.Function(builder.module, kind, name)


def _broadcast(builder: Any, number: Any, k: int) -> Any:
    kind = ir.VectorType(_FLOAT, k)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), k), [0] * k)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), mask)


def _load(typing: Any, x: Any, at: Any, kt: Any) -> Any:
    """x[at : at + k] of float32 numbers."""
    k = len(kt)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_place(context, builder, signature.args[0], arguments[0], arguments[1], k), align=4)

    return Vector(k)(x, types.int64, kt), generate


def _store(typing: Any, x: Any, at: Any, a: Any) -> Any:
    """x[at : at + k] = a."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature.args[0], arguments[0], arguments[1], a.k)
        builder.store(arguments[2], place, align=4)
        return context.get_dummy_value()

    return types.none(x, types.int64, a), generate


def _number(typing: Any, x: Any, at: Any) -> Any:
    """x[at], without the test for a negative index."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = data_of(context, builder, signature.args[0], arguments[0])
        return builder.load(builder.gep(data, [arguments[1]]))

    return x.dtype(x, types.int64), generate


def _put(typing: Any, x: Any, at: Any, value: Any) -> Any:
    """x[at] = value, without the test for a negative index."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = data_of(context, builder, signature.args[0], arguments[0])
        builder.store(arguments[2], builder.gep(data, [arguments[1]]))
        return context.get_dummy_value()

    return types.none(x, types.int64, x.dtype), generate


def _column(typing: Any, i: Any, w: Any, n: Any) -> Any:
    """Where the number of row i in column w is, of n columns: sixteen rows of a column are neighbors."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, column, columns = arguments
        four, last = ir.Constant(row.type, 4), ir.Constant(row.type, 15)
        block = builder.add(builder.mul(builder.ashr(row, four), columns), column)
        return builder.add(builder.shl(block, four), builder.and_(row, last))

    return types.int64(types.int64, types.int64, types.int64), generate


def _fill(typing: Any, number: Any, kt: Any) -> Any:
    """k times the same number."""
    k = len(kt)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _broadcast(builder, arguments[0], k)

    return Vector(k)(types.float32, kt), generate


def _add_to(typing: Any, x: Any, at: Any, number: Any, a: Any) -> Any:
    """x[at : at + k] += number a."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature.args[0], arguments[0], arguments[1], a.k)
        _add_at(builder, place, arguments[2], arguments[3])
        return context.get_dummy_value()

    return types.none(x, types.int64, types.float32, a), generate


def _add_at(builder: Any, place: Any, number: Any, vector: Any) -> None:
    product = builder.fmul(_broadcast(builder, number, vector.type.count), vector, flags=_FAST)
    builder.store(builder.fadd(product, builder.load(place, align=4), flags=_FAST), place, align=4)


def _increase(typing: Any, x: Any, at: Any, value: Any) -> Any:
    """x[at] += value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(data_of(context, builder, signature.args[0], arguments[0]), [arguments[1]])
        builder.store(builder.fadd(builder.load(place), arguments[2], flags=_FAST), place)
        return context.get_dummy_value()

    return types.none(x, types.int64, x.dtype), generate


def _four(typing: Any, x: Any, at: Any) -> Any:
    """The numbers of a row in four neighboring columns, the first of which is x[at]: see `column`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.Constant(ir.VectorType(_FLOAT, 4), ir.Undefined)
        for m in range(4):
            at = builder.add(arguments[1], ir.Constant(ir.IntType(64), 16 * m))
            value = builder.load(builder.gep(data_of(context, builder, signature.args[0], arguments[0]), [at]))
            vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), m))
        return vector

    return Vector(4)(x, types.int64), generate


def _rows(context: Any, builder: Any, kind: Any, T: Any, at: Any, k: int, weights: Any) -> Any:
    """Places and weights of four vectors of k numbers, the first of which is at T[at]."""
    for m in range(4):
        first = builder.add(at, ir.Constant(ir.IntType(64), m * k))
        weight = builder.extract_element(weights, ir.Constant(ir.IntType(32), m))
        yield _place(context, builder, kind, T, first, k), weight


def _sum_four(typing: Any, weights: Any, T: Any, at: Any, kt: Any) -> Any:
    """The sum of four vectors of k numbers times their weights; the first is T[at : at + k]."""
    k = len(kt)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, T, at, _ = arguments
        total = None
        for place, weight in _rows(context, builder, signature.args[1], T, at, k, x):
            product = builder.fmul(_broadcast(builder, weight, k), builder.load(place, align=4), flags=_FAST)
            total = product if total is None else builder.fadd(total, product, flags=_FAST)
        return total

    return Vector(k)(weights, T, types.int64, kt), generate


def _add_to_four(typing: Any, T: Any, at: Any, weights: Any, a: Any) -> Any:
    """Add a, times their weights, to four vectors of k numbers; the first is T[at : at + k]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        T, at, x, vector = arguments
        for place, weight in _rows(context, builder, signature.args[0], T, at, a.k, x):
            _add_at(builder, place, weight, vector)
        return context.get_dummy_value()

    return types.none(T, types.int64, weights, a), generate


def _join(typing: Any, a: Any, b: Any) -> Any:
    """The numbers of a, then those of b."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 2 * a.k), list(range(2 * a.k)))
        return builder.shuffle_vector(*arguments, mask)

    return Vector(2 * a.k)(a, b), generate


def _operator(name: str) -> Callable[..., Any]:
    def two(typing: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, name)(*arguments, flags=_FAST)

        return a(a, b), generate

    return two


def _scale(typing: Any, number: Any, a: Any) -> Any:
    """number a."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(_broadcast(builder, arguments[0], a.k), arguments[1], flags=_FAST)

    return a(types.float32, a), generate


def _axpy(typing: Any, number: Any, a: Any, b: Any) -> Any:
    """number a + b."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.fmul(_broadcast(builder, arguments[0], a.k), arguments[1], flags=_FAST)
        return builder.fadd(product, arguments[2], flags=_FAST)

    return a(types.float32, a, b), generate


def _fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c, number by number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.fmul(arguments[0], arguments[1], flags=_FAST)
        return builder.fadd(product, arguments[2], flags=_FAST)

    return a(a, b, c), generate


def _sqrt(typing: Any, a: Any) -> Any:
    """√a."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.VectorType(_FLOAT, a.k)
        return builder.call(_declare(builder, f"llvm.sqrt.v{a.k}f32", ir.FunctionType(kind, [kind])), arguments)

    return a(a), generate


def _absolute(typing: Any, a: Any) -> Any:
    """|a|, number by number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.VectorType(_FLOAT, a.k)
        return builder.call(_declare(builder, f"llvm.fabs.v{a.k}f32", ir.FunctionType(kind, [kind])), arguments)

    return a(a), generate


def _total(typing: Any, a: Any) -> Any:
    """The sum of the k numbers, by halves: a fixed order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, k = arguments[0], a.k
        rest = []
        while k > 1:
            if k % 2:
                k -= 1
                rest.append(builder.extract_element(vector, ir.Constant(ir.IntType(32), k)))
            half = k // 2
            index = ir.VectorType(ir.IntType(32), half)
            low, high = (
                builder.shuffle_vector(vector, vector, ir.Constant(index, list(range(first, first + half))))
                for first in (0, half)
            )
            vector, k = builder.fadd(low, high), half
        total = builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))
        for number in rest:
            total = builder.fadd(total, number)
        return total

    return types.float32(a), generate


def _fetch(typing: Any, x: Any, at: Any) -> Any:
    """Ask for x[at] ahead of its use."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = data_of(context, builder, signature.args[0], arguments[0])
        byte = ir.IntType(8).as_pointer()
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        numbers = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, numbers, numbers, numbers])
        hints = [ir.Constant(numbers, value) for value in (0, 3, 1)]  # to read, keep in all caches, data
        builder.call(_declare(builder, "llvm.prefetch.p0", kind), [place, *hints])
        return context.get_dummy_value()

    return types.none(x, types.int64), generate


def _store_in_python(x: Any, at: int, a: Any) -> None:
    x[at : at + len(a)] = a


def _add_to_in_python(x: Any, at: int, number: float, a: Any) -> None:
    x[at : at + len(a)] += _F32(number) * a


def _add_to_four_in_python(T: Any, at: int, weights: Any, a: Any) -> None:
    T[at : at + 4 * len(a)] += np.outer(weights, a).reshape(-1)


def _increase_in_python(x: Any, at: int, value: float) -> None:
    x[at] += value


def _put_in_python(x: Any, at: int, value: Any) -> None:
    x[at] = value


load = pair(lambda x, at, kt: x[at : at + len(kt)].copy(), _load)
number = pair(lambda x, at: x[at], _number)
store = pair(_store_in_python, _store)
column = pair(lambda i, w, n: ((i >> 4) * n + w) * 16 + (i & 15), _column)
put = pair(_put_in_python, _put)
fill = pair(lambda number, kt: np.full(len(kt), number, _F32), _fill)
four = pair(lambda x, at: x[at : at + 49 : 16].copy(), _four)
sum_four = pair(lambda x, T, at, kt: x @ T[at : at + 4 * len(kt)].reshape(4, -1), _sum_four)
add_to = pair(_add_to_in_python, _add_to)
add_to_four = pair(_add_to_four_in_python, _add_to_four)
increase = pair(_increase_in_python, _increase)
join = pair(lambda a, b: np.concatenate([a, b]), _join)
scale = pair(lambda number, a: _F32(number) * a, _scale)
axpy = pair(lambda number, a, b: _F32(number) * a + b, _axpy)
fma = pair(lambda a, b, c: a * b + c, _fma)
add = pair(lambda a, b: a + b, _operator("fadd"))
subtract = pair(lambda a, b: a - b, _operator("fsub"))
multiply = pair(lambda a, b: a * b, _operator("fmul"))
divide = pair(lambda a, b: a / b, _operator("fdiv"))
sqrt = pair(np.sqrt, _sqrt)
absolute = pair(np.abs, _absolute)
total = pair(lambda a: a.sum(dtype=_F32), _total)
fetch = pair(lambda x, at: None, _fetch)
