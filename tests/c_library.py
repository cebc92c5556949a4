"""libsplinefm through ctypes, as any program would call it."""

import ctypes
import os
from ctypes import (
    POINTER,
    Structure,
    Union,
    byref,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

BUILD = Path(__file__).parents[1] / "build" / os.environ.get("SPLINEFM_SANITIZED", "native")
# A wheel has it inside of the package.
PREFIX = Path(find_spec("splinefm").origin).parent
INSTALLED = (PREFIX / "lib").is_dir()
LIBRARY = PREFIX / "lib" / "libsplinefm.so" if INSTALLED else BUILD / "libsplinefm.so"
OK, ERROR_FILE, ERROR_ARGUMENT, ERROR_VALUE = range(4)
ABSENT, MISSING, NUMBER, INTEGER, BOOLEAN, TEXT, LIST = range(7)


class CValue(Structure):
    pass


class _Of(Union):
    _fields_ = (("number", c_double), ("integer", c_int64), ("text", c_void_p), ("list", POINTER(CValue)))


CValue._fields_ = (("kind", c_int32), ("unused", c_int32), ("size", c_uint64), ("of", _Of))


class CError(Structure):
    _fields_ = (("code", c_int32), ("message", ctypes.c_char * 508))


class CField(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("columns", POINTER(c_int64)),
        ("n_columns", c_size_t),
        ("kind", c_int32),
        ("missing", c_int32),
        ("part", c_char_p),
    )


class CFilter(Structure):
    _fields_ = tuple(
        field
        for name in ("allowed", "excluded", "groups")
        for field in ((name, POINTER(CValue)), (f"n_{name}", c_size_t))
    )


@cache
def library():
    """The library with the types of its functions; the test is skipped where it is not built."""
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built; `make native` does")
    lib = ctypes.CDLL(str(LIBRARY))
    rows = [c_void_p, c_void_p, POINTER(CValue), c_size_t, POINTER(c_double), POINTER(CError)]
    types = {
        "sfm_open": (c_int32, [c_char_p, POINTER(c_void_p), POINTER(CError)]),
        "sfm_open_memory": (c_int32, [c_void_p, c_size_t, POINTER(c_void_p), POINTER(CError)]),
        "sfm_close": (None, [c_void_p]),
        "sfm_workspace_new": (c_int32, [c_void_p, POINTER(c_void_p), POINTER(CError)]),
        "sfm_workspace_free": (None, [c_void_p]),
        "sfm_n_columns": (c_size_t, [c_void_p]),
        "sfm_column_name": (c_char_p, [c_void_p, c_size_t]),
        "sfm_find_column": (c_int64, [c_void_p, c_char_p]),
        "sfm_offset_column": (c_int64, [c_void_p, POINTER(c_int32)]),
        "sfm_n_fields": (c_size_t, [c_void_p]),
        "sfm_describe_field": (c_int32, [c_void_p, c_size_t, POINTER(CField)]),
        "sfm_n_outputs": (c_size_t, [c_void_p]),
        "sfm_n_classes": (c_size_t, [c_void_p]),
        "sfm_class_name": (c_char_p, [c_void_p, c_size_t]),
        "sfm_link": (c_char_p, [c_void_p]),
        "sfm_model": (c_char_p, [c_void_p]),
        "sfm_written_by": (c_char_p, [c_void_p]),
        "sfm_instruction_set": (c_char_p, []),
        "sfm_abi_version": (c_int32, []),
        "sfm_score": (c_int32, rows),
        "sfm_predict": (c_int32, rows),
        "sfm_score_items": (
            c_int32,
            [c_void_p, c_void_p, POINTER(CValue), POINTER(c_int64), c_size_t, *rows[2:]],
        ),
    }
    types |= {
        "sfm_items_new": (
            c_int32,
            [c_void_p, POINTER(c_int64), c_size_t, POINTER(CValue), c_size_t, POINTER(c_void_p), POINTER(CError)],
        ),
        "sfm_items_free": (None, [c_void_p]),
        "sfm_n_items": (c_size_t, [c_void_p]),
        "sfm_items_score": (c_int32, [c_void_p, c_void_p, POINTER(CValue), POINTER(c_float), POINTER(CError)]),
        "sfm_items_top_k": (
            c_int32,
            [*rows[:4], POINTER(c_int64), POINTER(c_float), POINTER(c_size_t), POINTER(CError)],
        ),
    }
    types |= {
        "sfm_has_index": (c_int32, [c_void_p]),
        "sfm_index_size": (c_size_t, [c_void_p]),
        "sfm_index_has_column": (c_int32, [c_void_p, c_size_t]),
        "sfm_index_id": (c_int32, [c_void_p, c_size_t, POINTER(CValue)]),
        "sfm_index_find": (c_int64, [c_void_p, POINTER(CValue)]),
        "sfm_index_n_groups": (c_size_t, [c_void_p]),
        "sfm_index_group_name": (c_char_p, [c_void_p, c_size_t]),
        "sfm_index_top_k": (
            c_int32,
            [
                *rows[:4],
                POINTER(CFilter),
                POINTER(CValue),
                POINTER(c_float),
                POINTER(c_size_t),
                POINTER(CError),
            ],
        ),
    }
    for name, (result, arguments) in types.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class CallError(Exception):
    """What a function of the library reported."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def check(code, error):
    """Raise if a call failed; its error says the same as its result."""
    assert error.code == code
    if code != OK:
        raise CallError(code, error.message.decode())


class Values:
    """Python values as values of the library; what they point to is kept."""

    def __init__(self, values):
        self.kept = []
        self.array = self.convert(values)

    def convert(self, values):
        return (CValue * max(1, len(values)))(*map(self.one, values))

    def one(self, value):
        given = CValue()
        if value is None:
            given.kind = MISSING
        elif isinstance(value, bool):
            given.kind, given.of.integer = BOOLEAN, value
        elif isinstance(value, int):
            given.kind, given.of.integer = INTEGER, value
        elif isinstance(value, float):
            given.kind, given.of.number = NUMBER, value
        elif isinstance(value, str):
            data = value.encode()
            buffer = ctypes.create_string_buffer(data, max(1, len(data)))  # without a zero at the end
            self.kept.append(buffer)
            given.kind, given.size, given.of.text = TEXT, len(data), ctypes.addressof(buffer)
        elif isinstance(value, list | tuple):
            elements = self.convert(value)
            self.kept.append(elements)
            given.kind, given.size, given.of.list = LIST, len(value), elements
        else:
            raise TypeError(value)
        return given


class CScorer:
    """A scorer file, open in the library."""

    def __init__(self, source):
        self.lib, self.handle, error = library(), c_void_p(), CError()
        if isinstance(source, bytes):
            self.memory = np.zeros(len(source) + 64, np.uint8)
            begin = -self.memory.ctypes.data % 64
            self.memory[begin : begin + len(source)] = np.frombuffer(source, np.uint8)
            address = self.memory.ctypes.data + begin
            check(self.lib.sfm_open_memory(address, len(source), byref(self.handle), byref(error)), error)
        else:
            check(self.lib.sfm_open(os.fsencode(source), byref(self.handle), byref(error)), error)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lib.sfm_close(self.handle)
        self.handle = c_void_p()

    @property
    def columns(self):
        return [self.lib.sfm_column_name(self.handle, i).decode() for i in range(self.lib.sfm_n_columns(self.handle))]

    def field(self, f):
        found = CField()
        assert self.lib.sfm_describe_field(self.handle, f, byref(found)) == OK
        columns = [self.columns[found.columns[i]] for i in range(found.n_columns)]
        part = None if found.part is None else found.part.decode()
        return found.name.decode(), found.kind, columns, bool(found.missing), part

    def score(self, rows, *, link=False, workspace=None):
        """Scores, or predictions, of rows that are dicts."""
        values = Values([row[name] for row in rows for name in self.columns])
        out = np.full(max(1, len(rows)) * self.lib.sfm_n_outputs(self.handle), np.nan)
        error = CError()
        call = self.lib.sfm_predict if link else self.lib.sfm_score
        check(call(self.handle, workspace, values.array, len(rows), _pointer(out), byref(error)), error)
        return _shaped(out, len(rows))

    def score_items(self, context, items, *, workspace=None):
        """Scores of a context with items, both dicts."""
        names = list(items[0])
        columns = (c_int64 * max(1, len(names)))(*(self.columns.index(name) for name in names))
        given = self.context(context)
        values = Values([item[name] for item in items for name in names])
        out = np.full(len(items) * self.lib.sfm_n_outputs(self.handle), np.nan)
        error = CError()
        code = self.lib.sfm_score_items(
            self.handle,
            workspace,
            given.array,
            columns,
            len(names),
            values.array,
            len(items),
            _pointer(out),
            byref(error),
        )
        check(code, error)
        return _shaped(out, len(items))

    # The index

    def context(self, context):
        """A row with values for some columns."""
        values = Values([context.get(name) for name in self.columns])
        for i, name in enumerate(self.columns):
            if name not in context:
                values.array[i].kind = ABSENT
        return values

    @property
    def ids(self):
        found, ids = CValue(), []
        for i in range(self.lib.sfm_index_size(self.handle)):
            assert self.lib.sfm_index_id(self.handle, i, byref(found)) == OK
            ids.append(_id(found))
        return ids

    @property
    def groups(self):
        n = self.lib.sfm_index_n_groups(self.handle)
        return [self.lib.sfm_index_group_name(self.handle, i).decode() for i in range(n)]

    def find(self, item_id):
        return self.lib.sfm_index_find(self.handle, Values([item_id]).array)

    def top_k(self, context, k, *, allowed=None, excluded=None, groups=None, workspace=None):
        """Ids and scores of the best items of the index."""
        given, chosen, kept = self.context(context), CFilter(), []
        for name, values in (("allowed", allowed), ("excluded", excluded), ("groups", groups)):
            if values is not None:
                kept.append(Values(list(values)))
                setattr(chosen, name, kept[-1].array)
                setattr(chosen, f"n_{name}", len(values))
        ids, scores, n, error = (CValue * max(1, k))(), np.empty(max(1, k), np.float32), c_size_t(), CError()
        pointer = scores.ctypes.data_as(POINTER(c_float))
        arguments = (self.handle, workspace, given.array, k, byref(chosen), ids, pointer, byref(n), byref(error))
        check(self.lib.sfm_index_top_k(*arguments), error)
        return [_id(ids[i]) for i in range(n.value)], scores[: n.value].copy()


def _id(value):
    if value.kind == INTEGER:
        return value.of.integer
    assert value.kind == TEXT
    return ctypes.string_at(value.of.text, value.size).decode()


class CItems:
    """A catalog of items, which are dicts."""

    def __init__(self, scorer, items, names):
        self.scorer, self.lib, self.names, self.handle, error = scorer, scorer.lib, names, c_void_p(), CError()
        columns = (c_int64 * len(names))(*(scorer.columns.index(name) for name in names))
        values = Values([item[name] for item in items for name in names])
        arguments = (scorer.handle, columns, len(names), values.array, len(items), byref(self.handle), byref(error))
        check(self.lib.sfm_items_new(*arguments), error)
        self.n = self.lib.sfm_n_items(self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lib.sfm_items_free(self.handle)

    def score(self, context):
        out, error, given = np.empty(self.n, np.float32), CError(), self.scorer.context(context)
        pointer = out.ctypes.data_as(POINTER(c_float))
        check(self.lib.sfm_items_score(self.handle, None, given.array, pointer, byref(error)), error)
        return out

    def top_k(self, context, k):
        rows, scores, n, error = np.empty(k, np.int64), np.empty(k, np.float32), c_size_t(), CError()
        pointers = rows.ctypes.data_as(POINTER(c_int64)), scores.ctypes.data_as(POINTER(c_float))
        given = self.scorer.context(context)
        arguments = (self.handle, None, given.array, k, *pointers, byref(n), byref(error))
        check(self.lib.sfm_items_top_k(*arguments), error)
        return rows[: n.value], scores[: n.value]


def _pointer(out):
    return out.ctypes.data_as(POINTER(c_double))


def _shaped(out, n):
    return out[:0] if not n else out if len(out) == n else out.reshape(n, -1)
