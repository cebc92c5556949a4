"""Checkpoints: tables, optimizer and position of a run, written by all processes, complete or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from splinefm._files import new_file, put_in_place, sync_folder
from splinefm._memory import free_memory
from splinefm.distribute.processes import PeerFailed, Processes

if TYPE_CHECKING:
    from splinefm.distribute.model import ParallelModel

# Checkpoint files with checksums: `torch.distributed.checkpoint` has none, and would go on with damaged numbers.
#
# Every process writes the checksums of its own tensors beside them, and verifies those that it reads, so that the time
# does not grow with the number of processes. A manifest has the checksums of the small files: the metadata, which are a
# pickle and must not be opened if they are damaged, and the files with checksums themselves.

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
    """A file of a checkpoint is not as it was written. Made of its text, since processes send it as a pickle."""


def damaged(path: Path) -> DamagedCheckpoint:
    """Return the error for a file."""
    return DamagedCheckpoint(f"{str(path)!r} is {'damaged' if path.is_file() else 'missing'}")


def encode_manifest(state: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """Return JSON with a state, the checksums of some files, and one of itself."""
    content = {"state": dict(state), "files": dict(files)}
    return json.dumps({**content, "sha256": _digest(json.dumps(content).encode())})


def decode_manifest(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the state and the checksums of a manifest; raise ValueError if it has changed."""
    content = json.loads(text)
    if not isinstance(content, dict) or content.keys() != {"state", "files", "sha256"}:
        raise ValueError("it is not a manifest")
    found = {name: content[name] for name in ("state", "files")}
    if _digest(json.dumps(found).encode()) != content["sha256"]:
        raise ValueError("it does not match its checksum")
    if not all(isinstance(part, dict) for part in found.values()):
        raise ValueError("the state or the checksums are not a JSON object")
    return found["state"], found["files"]


def small_files(folder: Path) -> dict[str, str]:
    """Return the checksums of the small files of a checkpoint."""
    small = (path for path in sorted(folder.iterdir()) if path.name == _METADATA or path.name.endswith(_SUMS))
    return {path.name: file_digest(path) for path in small}


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


# Checkpoints: tables, optimizer and position of a run, written by all processes, complete or not there.

# How many are kept, and how much memory must be free for copies to write from, relative to their size.
KEPT, ROOM = 2, 1.5
STATE = "state.json"
_NAME = re.compile(r"(step|best)-(\d+)")


class Checkpoints:
    """The checkpoints of a run in a folder that all processes see.

    A checkpoint is written under another name and renamed when it is complete. The last two are kept. If there is
    memory for a copy of what this process has, training goes on while the copy is written.
    """

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder, self.processes = folder, processes
        self._group = (
            dist.new_group(backend="gloo", timeout=processes.timeout) if processes.count > 1 else processes.group
        )
        self._pending: Future[None] | None = None
        self._published: Future[None] | None = None
        with processes.fail_together():
            if processes.first:
                folder.mkdir(parents=True, exist_ok=True)
                for path in folder.glob(".part-*"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        with processes.fail_together():
            if not folder.is_dir():
                raise ValueError(
                    f"process {processes.index} does not see the folder {str(folder)!r} that process 0 made; "
                    "checkpoints need a folder that all machines share"
                )

    def last(self, kind: str = "step") -> int | None:
        """The number of the last complete checkpoint of a kind, or None."""
        found = []
        if self.folder.is_dir():
            matches = (_NAME.fullmatch(path.name) for path in self.folder.iterdir() if (path / STATE).is_file())
            found = [int(match[2]) for match in matches if match and match[1] == kind]
        numbers = self.processes.maxima([-1.0 if not found else max(found)])
        return None if numbers[0] < 0 else int(numbers[0])

    def save(self, kind: str, number: int, tensors: dict[str, Any], state: dict[str, Any]) -> None:
        """Write a checkpoint, in the background if there is memory for it; all processes call it."""
        self.wait()
        part, path = self.folder / f".part-{kind}-{number:08}", self._path(kind, number)
        with self.processes.fail_together():
            if self.processes.first:
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
        writer = VerifiedWriter(part)
        scarce = free_memory() < ROOM * self.processes.local_count * _local_bytes(tensors.values())
        if self.processes.maxima([float(scarce)])[0]:
            self._pending = Future()
            try:
                self._pending.set_result(dcp.save(tensors, storage_writer=writer, process_group=self._group))
            except (dcp.CheckpointException, OSError) as error:
                self._pending.set_exception(error)
        else:
            self._pending = dcp.async_save(tensors, storage_writer=writer, process_group=self._group)
        self._published = Future()
        if self.processes.first:  # its part ends last: it waits for the parts of all processes
            published = self._published
            self._pending.add_done_callback(lambda done: self._publish(done, published, part, path, state))
        else:
            self._published.set_result(None)
        if kind == "best":
            self.wait()

    @property
    def has_failed(self) -> bool:
        """Whether writing in the background has failed; `wait` raises the error."""
        done = [item for item in (self._pending, self._published) if item is not None and item.done()]
        return any(item.exception() is not None for item in done)

    def wait(self) -> None:
        """Wait for what is written in the background; all processes call it."""
        pending, published, self._pending, self._published = self._pending, self._published, None, None
        if pending is None or published is None:
            return
        with self.processes.fail_together():
            try:
                pending.result()
                published.result()
            except dcp.CheckpointException as error:
                own = error.failures.get(self.processes.index)
                if own is None:  # the processes that failed report it themselves
                    raise PeerFailed(str(error)) from error
                raise OSError(_cannot_write(self.folder, own[0])) from error
            except OSError as error:
                raise OSError(_cannot_write(self.folder, error)) from error

    def _publish(
        self, done: Future[None], published: Future[None], part: Path, path: Path, state: dict[str, Any]
    ) -> None:
        """Give a complete checkpoint its name."""
        try:
            if done.exception() is None:
                with new_file(part / STATE) as file:
                    file.write(encode_manifest(state, small_files(part)).encode())
                sync_folder(part)
                put_in_place(part, path, part.with_name(f"{part.name}.old"))
                sync_folder(self.folder)
                self._remove_old()
            published.set_result(None)
        except Exception as error:
            published.set_exception(error)

    def _remove_old(self) -> None:
        """Remove old checkpoints, and the parameters of best epochs that no checkpoint needs any more."""
        matches = [match for path in self.folder.iterdir() if (match := _NAME.fullmatch(path.name))]
        for match in matches:
            if not (self.folder / match[0] / STATE).is_file():  # a run was killed while it removed this one
                shutil.rmtree(self.folder / match[0], ignore_errors=True)
        found = [(match[1], int(match[2])) for match in matches if (self.folder / match[0]).is_dir()]
        steps = sorted(number for kind, number in found if kind == "step")
        best = sorted(number for kind, number in found if kind == "best")
        needed = {self._best_of(number) for number in steps[-KEPT:]} | set(best[-1:])
        for number in steps[:-KEPT]:
            _remove(self._path("step", number))
        for number in set(best) - needed:
            _remove(self._path("best", number))

    def _best_of(self, number: int) -> int | None:
        """The best epoch that a checkpoint refers to; a damaged one needs none, since no run can continue from it."""
        try:
            return self.state("step", number).get("best")
        except ValueError:
            return None

    def state(self, kind: str, number: int) -> dict[str, Any]:
        """The state of a checkpoint."""
        return self._manifest(kind, number)[0]

    def _manifest(self, kind: str, number: int) -> tuple[dict[str, Any], dict[str, str]]:
        """The state of a checkpoint, and the checksums of its small files."""
        path = self._path(kind, number) / STATE
        try:
            return decode_manifest(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError, FileNotFoundError) as error:
            raise ValueError(f"{damaged(path)}; {self._advice(kind)}") from error

    def check(self, kind: str, number: int) -> None:
        """Raise if a checkpoint is missing, or one of its files without tensors is damaged."""
        try:
            check_files(self._path(kind, number), self._manifest(kind, number)[1])
        except DamagedCheckpoint as error:
            raise ValueError(f"{error}; {self._advice(kind)}") from error

    def load(self, kind: str, number: int, tensors: dict[str, Any]) -> None:
        """Read tensors in place, whatever number of processes wrote them."""
        with self.processes.fail_together():
            self.check(kind, number)
        reader = VerifiedReader(self._path(kind, number))
        try:
            dcp.load(tensors, storage_reader=reader, process_group=self.processes.group)
        except dcp.CheckpointException as error:
            process, (cause, _) = next(iter(sorted(error.failures.items())))
            if isinstance(cause, ValueError | OSError):
                raise ValueError(f"process {process}: {cause}; {self._advice(kind)}") from error
            raise

    def _advice(self, kind: str) -> str:
        """What to do about a damaged checkpoint."""
        if kind == "step":
            return "remove its folder to use the checkpoint before it"
        return f"the best epoch so far is kept nowhere else: remove {str(self.folder)!r} and train again"

    def remove(self) -> None:
        """Remove the folder, after the run is complete."""
        self.wait()
        self.processes.barrier()
        if self.processes.first:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number:08}"


def _remove(path: Path) -> None:
    """Remove a checkpoint, its state first: a partly removed checkpoint must not look complete."""
    (path / STATE).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _cannot_write(folder: Path, error: BaseException) -> str:
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return (
        f"cannot write a checkpoint to {str(folder)!r}: {reason}; make room or choose another folder, "
        "and continue from the checkpoint before it with --resume"
    )


def _local_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the parts of tensors that are in this process."""
    parts = ([shard.tensor for shard in t.local_shards()] if hasattr(t, "local_shards") else [t] for t in tensors)
    return sum(part.nbytes for some in parts for part in some)


def table_tensors(model: ParallelModel) -> dict[str, Any]:
    """The parameters of a model, as tensors that checkpoints read in place."""
    return {f"model.{name}": values for name, values in model.parallel.state_dict().items()}


def checkpoint_tensors(model: ParallelModel) -> dict[str, Any]:
    """Parameters and optimizer of a model."""
    state = model.parallel.fused_optimizer.state_dict()["state"]
    fused = {f"fused.{name}": values for own in state.values() for name, values in own.items()}
    return table_tensors(model) | fused | {f"dense.{name}": values for name, values in model.dense.state.items()}
