"""Damaged and crafted files: bytes that a disk or a network spoils, and contents with right checksums that lie."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Rng = np.random.Generator
Json = Any

# Damage


def damage(data: bytes, rng: Rng, others: Sequence[bytes] = ()) -> bytes:
    """Return other bytes: flipped bits, a cut, blocks that are swapped, repeated, zeroed or from another file, more."""
    while True:
        changed = bytearray(data)
        for _ in range(int(rng.choice([1, 1, 1, 2, 4]))):
            _DAMAGES[rng.integers(len(_DAMAGES))](changed, rng, others)
        if bytes(changed) not in (data, *others):  # a whole other file is a good one
            return bytes(changed)


def _block(data: bytearray, rng: Rng) -> slice:
    size = min(len(data), int(rng.choice([1, 4, 8, 64, 512, 4096])))
    first = int(rng.integers(0, len(data) - size + 1))
    return slice(first, first + size)


def _flip(data: bytearray, rng: Rng, others: Sequence[bytes]) -> None:
    for bit in rng.integers(0, 8 * max(1, len(data)), rng.integers(1, 9)).tolist():
        if data:
            data[bit // 8] ^= 1 << bit % 8


def _truncate(data: bytearray, rng: Rng, others: Sequence[bytes]) -> None:
    near_end = rng.random() < 0.3
    del data[int(rng.integers(max(0, len(data) - 70) if near_end else 0, len(data) + 1)) :]


def _swap(data: bytearray, rng: Rng, others: Sequence[bytes]) -> None:
    one, two = _block(data, rng), _block(data, rng)
    size = min(one.stop - one.start, two.stop - two.start)
    first, second = (slice(part.start, part.start + size) for part in (one, two))
    data[first], data[second] = data[second], data[first]


def _append(data: bytearray, rng: Rng, others: Sequence[bytes]) -> None:
    data += bytes(int(rng.integers(1, 65))) if rng.random() < 0.5 else rng.bytes(int(rng.integers(1, 65)))


def _zero(data: bytearray, rng: Rng, others: Sequence[bytes]) -> None:
    where = _block(data, rng)
    data[where] = bytes([int(rng.choice([0, 255]))]) * (where.stop - where.start)


def _insert(data: bytearray, rng: Rng, others: Sequence[bytes]) -> None:
    where = _block(data, rng)
    data[where.start : where.start] = data[where]


def _noise(data: bytearray, rng: Rng, others: Sequence[bytes]) -> None:
    where = _block(data, rng)
    data[where] = rng.bytes(where.stop - where.start)


def _splice(data: bytearray, rng: Rng, others: Sequence[bytes]) -> None:
    if others:
        other = others[rng.integers(len(others))]
        at = int(rng.integers(0, min(len(data), len(other)) + 1))
        data[at:] = other[at:]


_DAMAGES = (_flip, _flip, _truncate, _swap, _append, _zero, _insert, _noise, _splice)

# Crafted JSON

NASTY: tuple[Json, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 7, 255, 2**16, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63), 2**64),
    *(10**30, 0.0, -0.0, 0.5, 1.0, 1.5, -1.5, 1e308, -1e308, 5e-324, 1e-30, 1e19, math.nan, math.inf, -math.inf),
    *("", "x", "\0", "\ud800", "é" * 3000, "../../model.sfm", "nan", "inf", "1", "None", "a|b", "\x1b[31m", "== nan"),
    *([], [[]], [None], [0.5, 0.1], [0.0, 1.0], ["a", "a"], [[0, 0], [0, 0]], [math.nan], list(range(2000))),
    *(
        {},
        {"float": "inf"},
        {"float": []},
        {"tensor": "row_counts"},
        {"strings": "fields/1/vocabulary"},
        {"cells": "x"},
    ),
    *({"kind": "FM"}, {"kind": "FmFM", "k": [1]}, {"kind": "HigherOrderFM", "k": 2, "order": 60}, {"kind": []}),
    *({"kind": "Bins", "cuts": [0.5]}, {"kind": "BSpline", "segments": 2**40}, {"kind": "MinMax", "low": 1, "high": 1}),
    *({"kind": "BSpline", "degree": 40}, {"kind": "Fourier", "order": 999}, {"kind": "Polynomial", "degree": 300}),
    *({"kind": "MultiResolution", "segments": [2**31, 1]}, {"kind": "Quantile", "x": [0, 0], "u": [0, 1]}),
    *({"kind": "BestFitCDF", "family": "gamma", "params": [0, 0, 0]}, {"kind": "Categorical", "name": "x"}),
    *({"kind": "Log", "low": -5, "high": 2}, {"kind": "ArcsinhSquare", "clip": 1e308}),
    *({"kind": "Cross", "name": "x", "parts": ["x", "x"]}, {"kind": "Loss", "name": "tweedie", "power": 9}),
)


def places(value: Json, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every place in nested dicts and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*where, key)
        yield from places(inner, (*where, key))


def craft_json(value: Json, rng: Rng) -> Json:
    """Return a copy with one to three changes."""
    value = copy.deepcopy(value)
    for _ in range(int(rng.choice([1, 1, 1, 1, 2, 3]))):
        everywhere = list(places(value))
        if not everywhere:
            return NASTY[rng.integers(len(NASTY))]
        where = everywhere[rng.integers(len(everywhere))]
        holder = _at(value, where[:-1])
        change = _nudge if rng.random() < 0.5 else _change_entry
        change(value, holder, where[-1], everywhere, rng)
    return value


def _at(value: Json, where: tuple[Any, ...]) -> Json:
    for step in where:
        value = value[step]
    return value


def _nudge(value: Json, holder: Any, key: Any, everywhere: list[tuple[Any, ...]], rng: Rng) -> None:
    """Change an entry to a similar one, which may well be valid."""
    old = holder[key]
    if isinstance(old, bool):
        holder[key] = not old
    elif isinstance(old, int) and abs(old) < 2**60:
        holder[key] = [old + 1, old - 1, 2 * old, old // 2, float(old)][rng.integers(5)]
    elif isinstance(old, float) and math.isfinite(old):
        holder[key] = [old * 1.01, old / 2, old + 1e-9, -old, 0.0, np.nextafter(old, 9.0).item()][rng.integers(6)]
    else:  # what stands elsewhere and has the same type
        alike = [where for where in everywhere if type(_at(value, where)) is type(old)]
        holder[key] = copy.deepcopy(_at(value, alike[rng.integers(len(alike))]))


def _change_entry(value: Json, holder: Any, key: Any, everywhere: list[tuple[Any, ...]], rng: Rng) -> None:
    old = holder[key]
    match rng.integers(8):
        case 0:
            del holder[key]
        case 1:  # what stands elsewhere
            holder[key] = copy.deepcopy(_at(value, everywhere[rng.integers(len(everywhere))]))
        case 2 if isinstance(old, int | float) and not isinstance(old, bool) and math.isfinite(old):
            holder[key] = [old + 1, old - 1, -old, old * 2, old * 1000, old / 2, str(old)][rng.integers(7)]
        case 3 if isinstance(old, list) and old:
            old.insert(int(rng.integers(len(old) + 1)), copy.deepcopy(old[rng.integers(len(old))]))
        case 3 if isinstance(old, dict):
            old[str(rng.choice(["kind", "name", "more", "x", "low", "column"]))] = NASTY[rng.integers(len(NASTY))]
        case 4 if isinstance(old, list) and old:
            rng.shuffle(old)
        case 4 if isinstance(holder, dict):
            holder[f"{key}_"] = holder.pop(key)
        case 5:
            holder[key] = [old]
        case _:
            holder[key] = copy.deepcopy(NASTY[rng.integers(len(NASTY))])


# Crafted containers: model files, index files, states, parts of sharded models

_CODES = {"I64": "<i8", "F64": "<f8", "F32": "<f4", "U8": "u1"}
_NAMES = {np.dtype(code): name for name, code in _CODES.items()}
Arrays = dict[str, np.ndarray]


def unpack(data: bytes) -> tuple[Json, Arrays]:
    """Return the description and the arrays of a container."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    description = json.loads(header.pop("__metadata__")["splinefm"])
    arrays = {}
    for name, entry in header.items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        arrays[name] = np.frombuffer(data[begin:end], _CODES[entry["dtype"]]).reshape(entry["shape"]).copy()
    return description, arrays


def pack(description: Json, arrays: Arrays, lie: Callable[[dict[str, Any]], None] = lambda header: None) -> bytes:
    """Return a container whose checksums match its contents, whatever they say; `lie` changes the header."""
    if isinstance(description, dict):
        checksums = {name: hashlib.sha256(values.tobytes()).hexdigest() for name, values in arrays.items()}
        description = {"sha256": "0" * 64, **description}
        if "checksums" in description:
            description = {**description, "checksums": checksums, "sha256": "0" * 64}
    header: dict[str, Any] = {"__metadata__": {"splinefm": json.dumps(description)}}
    at, payload = 0, []
    for name, values in sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        entry = {"dtype": _NAMES[values.dtype], "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        header[name] = entry
        at += values.nbytes
        payload.append(values.tobytes())
    lie(header)
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    raw = struct.pack("<Q", len(encoded)) + encoded
    return raw.replace(b"0" * 64, hashlib.sha256(raw).hexdigest().encode(), 1) + b"".join(payload)


def craft_container(data: bytes, rng: Rng) -> bytes:
    """Return a container with right checksums and one to three changes of its description, arrays or header."""
    description, arrays = unpack(data)
    lies: list[Callable[[dict[str, Any]], None]] = []
    for _ in range(int(rng.choice([1, 1, 1, 1, 2, 3]))):
        kind = rng.random()
        if kind < 0.5:
            description = craft_json(description, rng)
        elif kind < 0.9 and arrays:
            _change_array(arrays, rng)
        else:
            lies.append(lambda header: _change_header(header, rng))

    def lie(header: dict[str, Any]) -> None:
        for each in lies:
            each(header)

    return pack(description, arrays, lie)


def _numbers_for(values: np.ndarray, rng: Rng) -> Any:
    if values.dtype.kind == "f":
        return rng.choice([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e38, -1e38, 1e30, 1e-45, 0.5, 0.25, 7.0, 2.0**31])
    if values.dtype == np.uint8:
        return rng.choice([0, 10, 0x7F, 0x80, 0xC3, 0xED, 0xFF])
    near = int(values.flat[rng.integers(values.size)]) if values.size else 0
    few = [-1, 0, 1, -2, 2**31 - 1, 2**31, 2**62, -(2**62), 2**63 - 1, -(2**63), near + 1, near - 1, values.size]
    return min(max(few[rng.integers(len(few))], -(2**63)), 2**63 - 1)


def _change_array(arrays: Arrays, rng: Rng) -> None:
    names = list(arrays)
    name = names[rng.integers(len(names))]
    values = arrays[name]
    match rng.integers(16):
        case 0 | 1 | 2 | 10 | 11 | 12 | 13 | 14 | 15 if values.size:
            for at in rng.integers(0, values.size, rng.integers(1, 4)).tolist():
                with np.errstate(all="ignore"):
                    values.flat[at] = _numbers_for(values, rng)
        case 3:
            n = len(values) if values.ndim else 0
            arrays[name] = values[: int(rng.integers(0, n + 1))].copy() if values.ndim else values.reshape(1)
        case 4 if values.ndim:
            arrays[name] = np.concatenate([values, values[: int(rng.integers(1, 5))]])
        case 5:
            shapes = [(-1,), (1, -1), (-1, 1), values.shape[::-1], (1, *values.shape)]
            arrays[name] = values.reshape(shapes[rng.integers(len(shapes))]) if values.size else values.reshape(0, 3)
        case 6:
            with np.errstate(all="ignore"):
                arrays[name] = values.astype(str(rng.choice(list(_CODES.values()))))
        case 7:
            del arrays[name]
        case 8:
            other = names[rng.integers(len(names))]
            arrays[name], arrays[other] = arrays[other], arrays[name]
        case _:
            if rng.random() < 0.5:
                values.flat = np.frombuffer(rng.bytes(values.nbytes), values.dtype)
            else:
                arrays[str(rng.choice(["more", "ranges", "row_weights", "params/bias", "x/\ud83d"]))] = values.copy()


def _change_header(header: dict[str, Any], rng: Rng) -> None:
    names = [name for name in header if name != "__metadata__"]
    if not names:
        return
    entry = header[names[rng.integers(len(names))]]
    if not isinstance(entry, dict) or not entry:
        return
    crafted = craft_json(entry, rng)
    entry.clear()
    entry.update(crafted if isinstance(crafted, dict) else {"dtype": crafted})


# Crafted scorer files


def seal_scorer(data: bytes) -> bytes:
    """Return a scorer file with the size and the checksums that its contents have now."""
    changed = bytearray(data)
    if len(changed) < 32:
        return bytes(changed)
    struct.pack_into("<Q", changed, 16, len(changed))
    (n,) = struct.unpack_from("<I", changed, 12)
    if n > 64 or len(changed) < 32 + 24 * n:
        return bytes(changed)
    for at in range(32, 32 + 24 * n, 24):
        offset, size = struct.unpack_from("<QQ", changed, at + 8)
        if offset + size <= len(changed):
            struct.pack_into("<I", changed, at + 4, zlib.crc32(changed[offset : offset + size]))
    struct.pack_into("<I", changed, 24, 0)
    struct.pack_into("<I", changed, 24, zlib.crc32(changed[: 32 + 24 * n]))
    return bytes(changed)


def craft_scorer(data: bytes, rng: Rng) -> bytes:
    """Return a scorer file with right checksums and some other words, most of them in its descriptions."""
    changed = bytearray(data)
    (n,) = struct.unpack_from("<I", data, 12)
    entries = [struct.unpack_from("<IIQQ", data, at) for at in range(32, 32 + 24 * n, 24)]
    meta = next(size for kind, _, _, size in entries if kind == 0)
    descriptions = [(8, min(len(changed), 256 + meta))]
    descriptions += [(offset, offset + size) for kind, _, offset, size in entries if kind in (6, 7) and size >= 8]
    for _ in range(int(rng.choice([1, 1, 2, 3, 4]))):
        near = rng.random() < 0.75
        begin, end = descriptions[rng.integers(len(descriptions))] if near else (8, len(changed))
        at = int(rng.integers(begin // 8, end // 8)) * 8
        match rng.integers(6):
            case 0:
                struct.pack_into("<d", changed, at, float(rng.choice([np.nan, np.inf, -1.0, 1e308, 5e-324, 0.5])))
            case 1:
                changed[at + int(rng.integers(8))] = int(rng.integers(256))
            case 2:
                other = int(rng.integers(1, len(changed) // 8)) * 8
                changed[at : at + 8] = changed[other : other + 8]
            case 3:
                (old,) = struct.unpack_from("<q", changed, at)
                struct.pack_into("<q", changed, at, min(max(old + int(rng.integers(-2, 3)), -(2**63)), 2**63 - 1))
            case _:
                few = [0, 1, 2, -1, -2, 8, 2**16, 2**20, 2**28, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63)]
                struct.pack_into("<q", changed, at, few[rng.integers(len(few))])
    return seal_scorer(bytes(changed))
