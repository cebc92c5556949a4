"""The targets of Atheris: what an input is turned into, and what must hold; see fuzz.py."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import struct
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

if importlib.util.find_spec("atheris"):  # the code must be read by way of Atheris, before anything else imports it
    import atheris

    with atheris.instrument_imports(include=["splinefm"], enable_loader_override=False):
        import splinefm as sf
        import splinefm.encode.encoder
        import splinefm.encode.inference
        import splinefm.encode.tables.delimited
        import splinefm.encode.tables.table
        import splinefm.rank.file
        import splinefm.rank.index
        import splinefm.serve.scorer
        import splinefm.store.model_file
else:
    import splinefm as sf

from _campaign import Wrong, check_clear
from _hostile import craft_container
from _uses import a_table, models, require, rows_of, same_bits

from support import mixed_schema, mixed_table, random_fitted

FOLDER = Path(os.environ.get("SPLINEFM_FUZZ_FOLDER") or tempfile.gettempdir())


def reseal(data: bytes) -> bytes:
    """Return a container with the checksums that its contents have now, as far as it can be taken apart."""
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        description = json.loads(header["__metadata__"]["splinefm"])
        payload = data[8 + length :]
        places = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
        sums = {name: hashlib.sha256(payload[a:b]).hexdigest() for name, (a, b) in places.items()}
        description = {**description, "sha256": "0" * 64, "checksums": sums}
        header["__metadata__"] = {"splinefm": json.dumps(description)}
        encoded = json.dumps(header, separators=(",", ":")).encode()
    except (ValueError, KeyError, TypeError, struct.error, AttributeError, RecursionError):
        return data
    encoded += b" " * (-len(encoded) % 8)
    raw = struct.pack("<Q", len(encoded)) + encoded
    return raw.replace(b"0" * 64, hashlib.sha256(raw).hexdigest().encode(), 1) + payload


def change_container(data: bytes, most: int, seed: int) -> bytes:
    """Change a container: by what the campaign of files does, or by what libFuzzer does, with right checksums."""
    rng = np.random.default_rng(seed)
    if rng.random() < 0.6:
        try:
            return craft_container(data, rng)[:most]
        except (ValueError, KeyError, TypeError, struct.error, AttributeError, IndexError, RecursionError):
            pass
    return reseal(atheris.Mutate(data, most))[:most]


class Sfm:
    """Model files."""

    mutator = staticmethod(change_container)

    def seeds(self) -> list[bytes]:
        found = []
        for fitted in models():
            fitted.save(FOLDER / "seed.sfm")
            found.append((FOLDER / "seed.sfm").read_bytes())
        return sorted(found, key=len)[:3]

    def __call__(self, data: bytes) -> None:
        path = FOLDER / "case.sfm"
        path.write_bytes(data)
        try:
            fitted = sf.load(path, mmap=len(data) % 2 == 0)
        except Exception as error:
            check_clear(error, (sf.ModelFileError,), str(path), ";")
            return
        table = a_table(fitted)
        scores = fitted.scores(table, watch=False, threads=1)
        require(same_bits(fitted.scorer().many(rows_of(table)), scores), "the scorer has other scores than the table")


class Sfi:
    """Index files."""

    mutator = staticmethod(change_container)

    def __init__(self) -> None:
        self.fitted = random_fitted(sf.FwFM(k=2), mixed_schema(("x", "kind", "user", "words")), mixed_table(60))

    def seeds(self) -> list[bytes]:
        table, found = mixed_table(20, 3), []
        for options in ({"form": "vectors"}, {"form": "effects", "groups": ["a", "b"] * 10}, {"dtype": "int8"}):
            items = {name: table[name] for name in ("user", "words")}
            sf.ItemIndex(self.fitted, items, [f"i{i}" for i in range(20)], **options).save(FOLDER / "seed.sfi")
            found.append((FOLDER / "seed.sfi").read_bytes())
        return found

    def __call__(self, data: bytes) -> None:
        path = FOLDER / "case.sfi"
        path.write_bytes(data)
        try:
            index = sf.ItemIndex.load(path, self.fitted, mmap=len(data) % 2 == 0)
        except Exception as error:
            check_clear(error, (sf.ModelFileError,), str(path), ";")
            return
        _, scores = index.top_k({"x": 0.5, "kind": "u"}, k=7)
        require(bool((scores[1:] <= scores[:-1]).all()), "items are not in order")
        index.matrix()


class Csv:
    """Delimited files of any bytes."""

    mutator = None

    def seeds(self) -> list[bytes]:
        return [
            b"a,b,c\n1,x,2024-01-01\n2.5,y,2024-01-02\n,z,\n3,x,2024-01-03 10:00:00\n",
            b'name;amount\n"a;b";1,5\n"say ""hi""";-2,25\n',
            b"\xef\xbb\xbfx\ty\r\n1e308\ttrue\r\n-0\tfalse\r\nnan\tTRUE\r\n",
            b"a|a|b\n1|2|3\n",
            "größe,tags\n1,a|b\n2,\n∞,c|a\n".encode(),
        ]

    def __call__(self, data: bytes) -> None:
        path = FOLDER / "case.csv"
        path.write_bytes(data)
        table = sf.open_table(path)
        schema = sf.infer_schema(table)
        encoder = sf.fit_encoder(schema, sf.open_table(path))
        whole = encoder.encode(sf.open_table(path))
        starts, weights = [], []
        for chunk in sf.open_table(path, types=schema.column_types()).chunks(schema.columns, 2):
            slots = encoder.encode(chunk)
            starts.append(slots.start)
            weights.append(slots.weight)
        require(same_bits(np.concatenate(starts), whole.start), "chunks have other features")
        require(same_bits(np.concatenate(weights), whole.weight), "chunks have other weights")


class Rows:
    """Rows of any values."""

    mutator = None

    def __init__(self) -> None:
        self.fitted = random_fitted(sf.FwFM(k=3), mixed_schema(), mixed_table(60))
        self.scorer = self.fitted.scorer()

    def seeds(self) -> list[bytes]:
        return [bytes(range(i, i + 40)) for i in (0, 50, 200)]

    def __call__(self, data: bytes) -> None:
        source = atheris.FuzzedDataProvider(data)
        row = {name: self._value(source) for name in self.fitted.encoder.schema.columns}
        alone = self._tried(lambda: self.scorer(row))
        table = self._tried(lambda: self.fitted.scores({k: [v] for k, v in row.items()}, watch=False, threads=1)[0])
        if alone is not None and table is not None:
            require(same_bits(alone, table), f"{row} scores {alone} alone and {table} in a table")

    def _tried(self, score: Callable[[], Any]) -> Any:
        try:
            return score()
        except (ValueError, TypeError) as error:
            check_clear(error, (ValueError, TypeError))
            return None

    def _value(self, source: Any, depth: int = 0) -> Any:
        kind = source.ConsumeIntInRange(0, 11)
        if kind == 0:
            return None
        if kind == 1:
            return source.ConsumeFloat()
        if kind == 2:
            return source.ConsumeInt(8)
        if kind == 3:
            return source.ConsumeBool()
        if kind in (4, 5):
            return source.ConsumeUnicodeNoSurrogates(12)
        if kind == 6 and not depth:
            return [self._value(source, 1) for _ in range(source.ConsumeIntInRange(0, 4))]
        if kind == 7:
            return np.float32(source.ConsumeRegularFloat())
        if kind == 8:
            return np.int64(source.ConsumeInt(8))
        few = (0.0, -0.0, math.nan, 1e308, 5e-324, 0.5, -1.0, "u", "v", "a", "b", "1", "1.0", "true", "", " ", b"u", 3)
        return few[source.ConsumeIntInRange(0, len(few) - 1)]


TARGETS: dict[str, type] = {"sfm": Sfm, "sfi": Sfi, "csv": Csv, "rows": Rows}


def seeds(target: str) -> list[bytes]:
    """Return good inputs."""
    return list(TARGETS[target]().seeds())


def fuzz(target: str, arguments: list[str]) -> None:
    """Run Atheris; it ends the process."""
    warnings.simplefilter("ignore")
    made = TARGETS[target]()

    def one(data: bytes) -> None:
        try:
            made(data)
        except Wrong:
            raise
        except (ValueError, TypeError) as error:
            check_clear(error, (ValueError, TypeError))

    if made.mutator is None:
        atheris.Setup(arguments, one)
    else:
        atheris.Setup(arguments, one, custom_mutator=made.mutator)
    atheris.Fuzz()
