"""The score of one row in compiled code. Importing this module loads Numba.

For a single row, handing over an array costs more than using it: kernels are called with addresses. A *plan* is what is
the same for all rows, a *room* what is written by one caller at a time; both are arrays of int64 with addresses and
sizes at the places named here. Nothing is allocated.

A row becomes *terms*, table rows with weights, and *units*, runs of terms whose vectors are summed. Fields are records
of `FIELD` numbers, followed by records of `LEVEL` numbers for the windows of their bases; knots and coefficients are in
one array of float64. Every transform is piecewise cubic here and every basis piecewise polynomial: `scorer_plan` makes
them so, and there is little to compile.
"""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from splinefm.model.compiled import compiled
from splinefm.model.vectors import add, axpy, fetch, fill, fma, load, multiply, number, scale, store, subtract, total
from splinefm.use.scorer_lookup import find

# Places of a plan
FACTORS, LINEAR, BETWEEN, FIELDS, NUMBERS, N_FIELDS, N_NAMES, WIDTH, ORDER, LINK = range(10)
STRIDE, INTS, FLOATS, PLAN = range(10, 14)
# Places of a room
INPUTS, TEXTS, ROWS, WEIGHTS, ENDS, OWNERS, VECTORS, OUT, ROOM = range(9)
# Places of a field: of all, of numbers, and of names
KIND, PLACE, COUNT, FLOAT_PLACE, FIRST, APART = range(6)
N_RULES, RULES, TOKEN, N_PIECES, PIECES, N_POWERS, N_LEVELS, LEVELS = range(6, 14)
OFFSETS, KNOWN, INDEX, INDEX_SIZE, UNSEEN, FIELD = range(14, 20)
NAME, LIST, NUMBER, GIVEN = range(4)
NO_ROW, REFUSED = -1, -2  # instead of a table row
SEPARATOR, ROW_MARK = 0x00, 0xFE  # between names, and before a table row in place of a name: a byte that no text has
TEXT_INTS = 2  # of the inputs of a row: where its names begin and end
# Places of a window of a basis
SEGMENTS, EDGES, DEGREE, N_WEIGHTS, COEFFICIENTS, PER_SEGMENT, START, MOVES, AROUND, LEVEL = range(10)
# The first of a plan's numbers
BIAS, CENTER, SCALE = range(3)
RULE_SIGNS = ("==", "<", "<=", ">", ">=")
MODELS = ("fm", "fwfm", "fmfm", "ffm", "higher")
LINKS = ("score", "logistic", "squared", "poisson")

# No reference counts: nothing is allocated.
_OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy", "no_cfunc_wrapper": True}
_INSIDE: dict[str, Any] = {**_OPTIONS, "forceinline": True, "no_cpython_wrapper": True}
_compiled = compiled("use/scorer_kernels model/pointers model/vectors use/scorer_lookup", **_OPTIONS)
_ALL = 1 << 40  # numbers of an array whose size nobody asks for
_LINE = 16  # float32 numbers in a line of the cache
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


def _inlined(function: Callable[..., Any]) -> Any:
    """A function that becomes part of those that call it."""
    return njit(**_INSIDE)(function)


def _array_of(typing: Any, address: Any, dtype: Any, size: Any) -> Any:
    """So many numbers from an address on."""
    kind = types.Array(dtype.dtype, 1, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(kind)(context, builder)
        item = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
        data = builder.inttoptr(arguments[0], context.get_data_type(kind.dtype).as_pointer())
        place: Any = {"data": data, "shape": (arguments[2],), "strides": (item,), "itemsize": item, "meminfo": None}
        populate_array(array, **place)  # type: ignore[no-untyped-call]
        return array._getvalue()

    return kind(types.int64, dtype, types.int64), generate


_array: Any = intrinsic(_array_of)


# From values to terms


@_inlined
def _above(x: float, numbers: Any, at: int, n: int) -> int:
    """How many of n increasing numbers are at most x."""
    low, high = at, at + n
    while low < high:
        middle = (low + high) >> 1
        if number(numbers, middle) <= x:
            low = middle + 1
        else:
            high = middle
    return low - at


@_inlined
def _transformed(x: float, numbers: Any, at: int, n: int, n_powers: int) -> Any:
    """u = T(x), linear or a cubic in each of n pieces; constant beyond the ends.

    Behind the knots are the values at the knots (one power), or the coefficients of the cubics (four).
    """
    if x <= number(numbers, at):
        x = number(numbers, at)
    if x >= number(numbers, at + n):
        x = number(numbers, at + n)
    piece = _above(x, numbers, at + 1, n - 1)
    left = number(numbers, at + piece)
    t = (x - left) / (number(numbers, at + piece + 1) - left)
    c = at + n + 1 + n_powers * piece
    if n_powers == 1:
        return number(numbers, c) + t * (number(numbers, c + 1) - number(numbers, c))
    u = number(numbers, c + 2) + t * number(numbers, c + 3)
    return number(numbers, c) + t * (number(numbers, c + 1) + t * u)


@_inlined
def _put_weights(u: float, level: int, fields: Any, numbers: Any, first: int, rows: Any, weights: Any, t: int) -> int:
    """Terms of one window of a basis: polynomials of the place inside the segment of u, from -1 to 1."""
    n, edges, degree = fields[level + SEGMENTS], fields[level + EDGES], fields[level + DEGREE]
    inside = 0.0
    if edges < 0:
        segment = np.int64(u * n)
        if segment >= n:
            segment = n - 1
        inside = 2.0 * (u * n - segment) - 1.0
    else:
        segment = _above(u, numbers, edges + 1, n - 1)
        if degree:
            left, right = number(numbers, edges + segment), number(numbers, edges + segment + 1)
            inside = 2.0 * (u - left) / (right - left) - 1.0
    c = fields[level + COEFFICIENTS] + segment * fields[level + PER_SEGMENT]
    row = fields[level + START] + segment * fields[level + MOVES]
    for _ in range(fields[level + N_WEIGHTS]):
        weight = number(numbers, c)
        for d in range(c + 1, c + degree + 1):
            weight = weight * inside + number(numbers, d)
        c += degree + 1
        if row >= fields[level + AROUND]:
            row -= fields[level + AROUND]
        rows[t], weights[t] = first + row, weight
        row += 1
        t += 1
    return t


@_inlined
def _special(x: float, at: int, fields: Any, numbers: Any) -> int:
    """The token of a number; -1 for an ordinary number, -2 for one that the field does not take."""
    rule = fields[at + RULES]
    for token in range(fields[at + N_RULES]):
        sign, other = number(numbers, rule), number(numbers, rule + 1)
        if (
            (x == other and (sign == 0.0 or sign == 2.0 or sign == 4.0))
            or (x < other and (sign == 1.0 or sign == 2.0))
            or (x > other and sign >= 3.0)
        ):
            return token
        rule += 2
    if x != x:
        return fields[at + N_RULES] if fields[at + TOKEN] else -2
    return -1 if abs(x) < math.inf else -2


@_compiled
def find_names(plan: int, room: int, i: int) -> int:
    """Write the table rows of the names of row i among its inputs, and ask for them; 0 if Python must read them."""
    fixed, own = _array(plan, np.int64, _ALL), _array(room, np.int64, _ALL)
    codes = _array(own[INPUTS] + i * fixed[STRIDE] + fixed[INTS], np.int32, _ALL)
    fields, text = _array(fixed[FIELDS], np.int64, _ALL), _array(own[TEXTS], np.uint8, _ALL)
    factors, linear = _array(fixed[FACTORS], np.float32, _ALL), _array(fixed[LINEAR], np.float32, _ALL)
    width = fixed[WIDTH]
    begin, stop, left = np.int64(codes[0]), np.int64(codes[1]), fixed[N_NAMES]
    for f in range(fixed[N_FIELDS]):
        at = f * FIELD
        if fields[at + KIND] != NAME:
            continue
        end = begin
        while end < stop and text[end] != SEPARATOR:
            end += 1
        left -= 1
        if (end == stop) != (left == 0):  # names that contain the separator
            return 0
        row = NO_ROW
        if end > begin and text[begin] == ROW_MARK:
            for digit in range(begin + 1, end):
                row = 10 * max(row, 0) + text[digit] - 48
        else:
            found = find(
                text,
                begin,
                end,
                _array(fields[at + OFFSETS], np.int64, _ALL),
                _array(fields[at + KNOWN], np.uint8, _ALL),
                _array(fields[at + INDEX], np.int32, fields[at + INDEX_SIZE]),
            )
            row = found + fields[at + FIRST] if found >= 0 else fields[at + UNSEEN]
            if row == REFUSED:
                return 0
        codes[fields[at + PLACE]] = row
        if row >= 0:
            fetch(linear, row)
            for number_at in range(row * width, (row + 1) * width, _LINE):
                fetch(factors, number_at)
        begin = end + 1
    return 1


@_compiled
def encode_row(plan: int, room: int, i: int) -> int:
    """Write the terms and units of row i; the number of units, or -1 if a field does not take its number.

    Term t is table row `rows[t]` with `weights[t]`; unit u has the terms from `ends[u]` to `ends[u + 1] - 1` and
    belongs to field `owners[u]`. Units without terms are left out.
    """
    fixed, own = _array(plan, np.int64, _ALL), _array(room, np.int64, _ALL)
    inputs = own[INPUTS] + i * fixed[STRIDE]
    values, codes = _array(inputs, np.float64, _ALL), _array(inputs + fixed[INTS], np.int32, _ALL)
    shares = _array(inputs + fixed[FLOATS], np.float32, _ALL)
    fields, numbers = _array(fixed[FIELDS], np.int64, _ALL), _array(fixed[NUMBERS], np.float64, _ALL)
    rows, weights = _array(own[ROWS], np.int32, _ALL), _array(own[WEIGHTS], np.float32, _ALL)
    ends, owners = _array(own[ENDS], np.int32, _ALL), _array(own[OWNERS], np.int32, _ALL)
    t, n_units = 0, 0
    ends[0] = 0
    for f in range(fixed[N_FIELDS]):
        at, before = f * FIELD, t
        place, kind = fields[at + PLACE], fields[at + KIND]
        if kind == NUMBER:
            x, first = values[place], fields[at + FIRST]
            token = _special(x, at, fields, numbers)
            if token < -1:
                return -1
            if token >= 0:
                rows[t], weights[t] = first + token, 1.0
                t += 1
            else:
                if fields[at + N_PIECES]:
                    n, n_powers = fields[at + N_PIECES], fields[at + N_POWERS]
                    x = _transformed(x, numbers, fields[at + PIECES], n, n_powers)
                first += fields[at + N_RULES] + fields[at + TOKEN]
                for level in range(fields[at + N_LEVELS]):
                    place = fields[at + LEVELS] + level * LEVEL
                    t = _put_weights(x, place, fields, numbers, first, rows, weights, t)
        else:
            share = fields[at + FLOAT_PLACE]
            for j in range(fields[at + COUNT]):
                if codes[place + j] >= 0:
                    rows[t], weights[t] = codes[place + j], 1.0 if kind == NAME else shares[share]
                    t += 1
                if kind == GIVEN:
                    share += 1
        while before < t:
            before = before + 1 if fields[at + APART] else t
            owners[n_units] = f
            n_units += 1
            ends[n_units] = before
    return n_units


# From terms to scores


class _Row(NamedTuple):
    """Parameters, and the terms and units of a row."""

    factors: Any
    between: Any
    rows: Any
    weights: Any
    ends: Any
    owners: Any
    vectors: Any
    n_units: Any
    n_fields: Any
    width: Any


@_inlined
def _part(kt: Any, row: Any, u: int, c: int) -> Any:
    """Numbers c .. c + k - 1 of the vector of unit u."""
    t = np.int64(row.ends[u])
    p = scale(row.weights[t], load(row.factors, np.int64(row.rows[t]) * row.width + c, kt))
    for other in range(t + 1, np.int64(row.ends[u + 1])):
        p = axpy(row.weights[other], load(row.factors, np.int64(row.rows[other]) * row.width + c, kt), p)
    return p


@_inlined
def _whole(kt: Any, row: Any, u: int, out: Any, at: int) -> None:
    """The vector of unit u, which is long in an FFM, from place `at` on: a pass per four terms."""
    T, width, t, end = row.factors, row.width, np.int64(row.ends[u]), np.int64(row.ends[u + 1])
    for c in range(0, width, len(kt)):
        store(out, at + c, fill(_ZERO, kt))
    while t < end:
        x0, r0 = row.weights[t], np.int64(row.rows[t]) * width
        if t + 4 <= end:
            x1, x2, x3 = row.weights[t + 1], row.weights[t + 2], row.weights[t + 3]
            r1, r2 = np.int64(row.rows[t + 1]) * width, np.int64(row.rows[t + 2]) * width
            r3 = np.int64(row.rows[t + 3]) * width
            for c in range(0, width, len(kt)):
                p = axpy(x1, load(T, r1 + c, kt), axpy(x0, load(T, r0 + c, kt), load(out, at + c, kt)))
                store(out, at + c, axpy(x3, load(T, r3 + c, kt), axpy(x2, load(T, r2 + c, kt), p)))
            t += 4
        else:
            for c in range(0, width, len(kt)):
                store(out, at + c, axpy(x0, load(T, r0 + c, kt), load(out, at + c, kt)))
            t += 1


@_inlined
def _fm(kt: Any, row: Any) -> Any:
    """½ (|Σ p|² - Σ |p|²)."""
    both, squares = fill(_ZERO, kt), fill(_ZERO, kt)
    for u in range(row.n_units):
        p = _part(kt, row, u, 0)
        both, squares = add(both, p), fma(p, p, squares)
    return np.float32(0.5) * total(subtract(multiply(both, both), squares))


@_inlined
def _fwfm(kt: Any, row: Any) -> Any:
    """Σ_u p_u' Σ_{v<u} R_{f(u) f(v)} p_v, in four sums, which do not wait for each other."""
    k, P, R, owners = len(kt), row.vectors, row.between, row.owners
    score = fill(_ZERO, kt)
    for u in range(row.n_units):
        r = np.int64(owners[u]) * row.n_fields
        q0, q1, q2, q3 = fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt)
        v = 0
        while v + 4 <= u:
            q0 = axpy(number(R, r + owners[v]), load(P, v * k, kt), q0)
            q1 = axpy(number(R, r + owners[v + 1]), load(P, (v + 1) * k, kt), q1)
            q2 = axpy(number(R, r + owners[v + 2]), load(P, (v + 2) * k, kt), q2)
            q3 = axpy(number(R, r + owners[v + 3]), load(P, (v + 3) * k, kt), q3)
            v += 4
        while v < u:
            q0 = axpy(number(R, r + owners[v]), load(P, v * k, kt), q0)
            v += 1
        p = _part(kt, row, u, 0)
        store(P, u * k, p)
        score = fma(p, add(add(q0, q1), add(q2, q3)), score)
    return total(score)


@_inlined
def _fmfm(kt: Any, row: Any) -> Any:
    """Σ_v (Σ_{u<v} p_u' M_{f(u) f(v)}) p_v, in four sums; M is stored by its second field."""
    k, P, M, owners = len(kt), row.vectors, row.between, row.owners
    score, block = fill(_ZERO, kt), k * k
    for v in range(row.n_units):
        first = np.int64(owners[v]) * row.n_fields
        q0, q1, q2, q3 = fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt)
        u = 0
        while u + 4 <= v:
            m0, m1 = (first + owners[u]) * block, (first + owners[u + 1]) * block
            m2, m3 = (first + owners[u + 2]) * block, (first + owners[u + 3]) * block
            for c in range(k):
                p = u * k + c
                q0 = axpy(number(P, p), load(M, m0 + c * k, kt), q0)
                q1 = axpy(number(P, p + k), load(M, m1 + c * k, kt), q1)
                q2 = axpy(number(P, p + 2 * k), load(M, m2 + c * k, kt), q2)
                q3 = axpy(number(P, p + 3 * k), load(M, m3 + c * k, kt), q3)
            u += 4
        while u < v:
            m0 = (first + owners[u]) * block
            for c in range(k):
                q0 = axpy(number(P, u * k + c), load(M, m0 + c * k, kt), q0)
            u += 1
        p_v = _part(kt, row, v, 0)
        store(P, v * k, p_v)
        score = fma(add(add(q0, q1), add(q2, q3)), p_v, score)
    return total(score)


@_inlined
def _ffm(kt: Any, row: Any) -> Any:
    """Σ_{v<u} p_u[f(v)]' p_v[f(u)]; D[e, v] = p_v[e] is kept for the fields e that are still to come."""
    k, D, owners = len(kt), row.vectors, row.owners
    even, odd, room = fill(_ZERO, kt), fill(_ZERO, kt), row.n_fields * row.n_units * k
    for u in range(row.n_units):
        field, t = np.int64(owners[u]), np.int64(row.ends[u])
        source, p = row.factors, np.int64(row.rows[t]) * row.width  # a category's vector stays where it is
        if row.ends[u + 1] > t + 1 or row.weights[t] != _ONE:
            source, p = D, room
            _whole(kt, row, u, D, room)
        theirs, v = field * row.n_units * k, 0
        while v + 2 <= u:
            even = fma(load(source, p + owners[v] * k, kt), load(D, theirs + v * k, kt), even)
            odd = fma(load(source, p + owners[v + 1] * k, kt), load(D, theirs + (v + 1) * k, kt), odd)
            v += 2
        if v < u:
            even = fma(load(source, p + owners[v] * k, kt), load(D, theirs + v * k, kt), even)
        for e in range(field, row.n_fields):
            store(D, (e * row.n_units + u) * k, load(source, p + e * k, kt))
    return total(add(even, odd))


@_inlined
def _higher(kt: Any, row: Any, order: int) -> Any:
    """Σ_t A_t for t ≥ 2, where every unit adds p A_{t-1} to A_t; A_0 = 1."""
    k, A = len(kt), row.vectors
    store(A, 0, fill(_ONE, kt))
    for t in range(1, order + 1):
        store(A, t * k, fill(_ZERO, kt))
    for u in range(row.n_units):
        p = _part(kt, row, u, 0)
        for t in range(order, 0, -1):
            store(A, t * k, fma(p, load(A, (t - 1) * k, kt), load(A, t * k, kt)))
    score = fill(_ZERO, kt)
    for t in range(2, order + 1):
        score = add(score, load(A, t * k, kt))
    return total(score)


@_inlined
def _linked(link: int, score: float, numbers: Any) -> Any:
    """The score, or the prediction that it stands for; see `Loss.predict`."""
    if link == 0:
        return score
    if link == 1:
        small = math.exp(-abs(score))
        score = (1.0 if score >= 0.0 else small) / (1.0 + small)
    elif link == 3:
        score = math.exp(score if score < 700.0 else 700.0)
    return numbers[CENTER] + numbers[SCALE] * score


@functools.lru_cache(maxsize=64)
def make_kernel(model: str, k: int) -> Any:
    """The kernel of a model with vectors of k numbers (FFM: for each field): (plan, room, rows) -> the last score.

    It leaves the scores or predictions of all rows in the room; NaN may mean that a number is not allowed. Model and k
    are constants for the compiler, which leaves out the other models.
    """
    kt, chosen = (0,) * k, MODELS.index(model)

    @_compiled
    def score_rows(plan: int, room: int, n: int) -> float:
        fixed, own = _array(plan, np.int64, _ALL), _array(room, np.int64, _ALL)
        factors, linear = _array(fixed[FACTORS], np.float32, _ALL), _array(fixed[LINEAR], np.float32, _ALL)
        numbers, out = _array(fixed[NUMBERS], np.float64, _ALL), _array(own[OUT], np.float64, _ALL)
        rows, weights = _array(own[ROWS], np.int32, _ALL), _array(own[WEIGHTS], np.float32, _ALL)
        ends, owners = _array(own[ENDS], np.int32, _ALL), _array(own[OWNERS], np.int32, _ALL)
        between, vectors = _array(fixed[BETWEEN], np.float32, _ALL), _array(own[VECTORS], np.float32, _ALL)
        score, next_found = math.nan, find_names(plan, room, 0)
        for i in range(n):
            n_units = encode_row(plan, room, i) if next_found else np.int64(-1)
            if i + 1 < n:  # memory has some time to answer
                next_found = find_names(plan, room, i + 1)
            score = math.nan
            if n_units >= 0:
                score = numbers[BIAS]
                for t in range(ends[n_units]):
                    score += weights[t] * number(linear, np.int64(rows[t]))
                row = _Row(
                    *(factors, between, rows, weights, ends, owners, vectors, n_units, fixed[N_FIELDS], fixed[WIDTH])
                )
                if chosen == 0:
                    score += _fm(kt, row)
                elif chosen == 1:
                    score += _fwfm(kt, row)
                elif chosen == 2:
                    score += _fmfm(kt, row)
                elif chosen == 3:
                    score += _ffm(kt, row)
                else:
                    score += _higher(kt, row, fixed[ORDER])
                score = _linked(fixed[LINK], score, numbers)
            out[i] = score
        return score

    score_rows.compile((types.int64, types.int64, types.int64))
    return score_rows


for _kernel in (find_names, encode_row):
    _kernel.compile((types.int64, types.int64, types.int64))
