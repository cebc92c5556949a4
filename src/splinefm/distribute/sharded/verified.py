"""Checkpoint files with checksums: `torch.distributed.checkpoint` has none, and would go on with damaged numbers.

Every rank writes the checksums of its own tensors beside them, and verifies those that it reads, so that the time does
not grow with the number of ranks. `seal` holds those of the small files: the metadata, which are a pickle and must not
be opened if they are damaged, and the files with checksums themselves.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp

from splinefm._writing import new_file

_SUMS = "sums.json"
_METADATA = ".metadata"
_PIECE = 1 << 24


class VerifiedWriter(dcp.FileSystemWriter):
    """Writes tensors, and a file with their checksums."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Write what a plan says; see `FileSystemWriter`."""
        written = super().write_data(plan, planner)
        sums: dict[str, dict[str, int]] = {}
        for item in written.value():
            place = item.storage_data
            found = _checksum(Path(self.path) / place.relative_path, place.offset, place.length)
            sums.setdefault(place.relative_path, {})[str(place.offset)] = found
        with new_file(Path(self.path) / f"{plan.storage_data.prefix}{_SUMS}") as file:  # flushed, as the tensors are
            file.write(json.dumps(sums).encode())
        return written


class VerifiedReader(dcp.FileSystemReader):
    """Reads tensors after comparing them with their checksums."""

    def read_data(self, plan: Any, planner: Any) -> Any:
        """Read what a plan says; see `FileSystemReader`."""
        folder = Path(self.path)
        sums: dict[str, dict[str, int]] = {}
        for path in folder.glob(f"*{_SUMS}"):
            sums |= json.loads(path.read_text())
        for item in plan.items:
            place = self.storage_data[item.storage_index]
            expected = sums.get(place.relative_path, {}).get(str(place.offset))
            path = folder / place.relative_path
            if not path.is_file() or _checksum(path, place.offset, place.length) != expected:
                raise damaged(path)
        return super().read_data(plan, planner)


class DamagedCheckpoint(ValueError):
    """A file of a checkpoint is not as it was written; ranks tell each other by pickles, so it is made of its text."""


def damaged(path: Path) -> DamagedCheckpoint:
    """Return the error for a file."""
    return DamagedCheckpoint(f"{str(path)!r} is {'damaged' if path.is_file() else 'missing'}")


def seal(state: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """Return JSON with a state, the checksums of some files, and one of itself."""
    content = {"state": dict(state), "files": dict(files)}
    return json.dumps({**content, "sha256": _digest(json.dumps(content).encode())})


def open_seal(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the state and the checksums that `seal` wrote; raise ValueError if something in it has changed."""
    content = json.loads(text)
    if not isinstance(content, dict) or content.keys() != {"state", "files", "sha256"}:
        raise ValueError("it has no seal")
    found = {name: content[name] for name in ("state", "files")}
    if _digest(json.dumps(found).encode()) != content["sha256"]:
        raise ValueError("it does not match its checksum")
    if not all(isinstance(part, dict) for part in found.values()):
        raise ValueError("the state or the checksums are not a JSON object")
    return found["state"], found["files"]


def small_files(folder: Path) -> dict[str, str]:
    """Return the checksums of the small files of a checkpoint."""
    return {path.name: file_digest(path) for path in sorted(folder.iterdir()) if _is_small(path)}


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Raise if a file is missing or does not match its checksum."""
    for name, digest in files.items():
        path = folder / name
        if not path.is_file() or file_digest(path) != digest:
            raise damaged(path)


def file_digest(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_small(path: Path) -> bool:
    return path.name == _METADATA or path.name.endswith(_SUMS)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _checksum(path: Path, offset: int, length: int) -> int:
    """Return the CRC-32 of a part of a file; of what there is, if the file is too short."""
    found, left = 0, length
    with path.open("rb") as file:
        file.seek(offset)
        while left and (data := file.read(min(left, _PIECE))):
            found, left = zlib.crc32(data, found), left - len(data)
    return found if not left else -1
