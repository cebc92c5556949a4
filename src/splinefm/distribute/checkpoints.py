"""Checkpoints: tables, optimizer and position of a run, written by all ranks, complete or not there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from splinefm._memory import free_memory
from splinefm._writing import new_file, put_in_place, sync_folder
from splinefm.distribute.ranks import PeerFailed, Ranks
from splinefm.distribute.sharded.verified import (
    DamagedCheckpoint,
    VerifiedReader,
    VerifiedWriter,
    check_files,
    damaged,
    open_seal,
    seal,
    small_files,
)

if TYPE_CHECKING:
    from splinefm.distribute.sharded.model import ParallelModel

# How many are kept, and how much memory must be free for copies to write from, relative to their size.
KEPT, ROOM = 2, 1.5
STATE = "state.json"
_NAME = re.compile(r"(step|best)-(\d+)")


class Checkpoints:
    """The checkpoints of a run in a folder that all ranks see.

    A checkpoint is written under another name and renamed when it is complete. The last two are kept. If there is
    memory for a copy of what this process has, training goes on while the copy is written.

    Parameters
    ----------
    folder : Path
        The folder; it is created.
    ranks : Ranks
        The processes.
    """

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        self.folder, self.ranks = folder, ranks
        self._group = dist.new_group(backend="gloo", timeout=ranks.timeout) if ranks.size > 1 else ranks.group
        self._pending: Future[None] | None = None
        self._published: Future[None] | None = None
        with ranks.together():
            if ranks.first:
                folder.mkdir(parents=True, exist_ok=True)
                for path in folder.glob(".part-*"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        with ranks.together():
            if not folder.is_dir():
                raise ValueError(
                    f"rank {ranks.rank} does not see the folder {str(folder)!r} that rank 0 made; "
                    "checkpoints need a folder that all machines share"
                )

    def last(self, kind: str = "step") -> int | None:
        """The number of the last complete checkpoint of a kind, or None."""
        found = []
        if self.folder.is_dir():
            matches = (_NAME.fullmatch(path.name) for path in self.folder.iterdir() if (path / STATE).is_file())
            found = [int(match[2]) for match in matches if match and match[1] == kind]
        numbers = self.ranks.largest([-1.0 if not found else max(found)])
        return None if numbers[0] < 0 else int(numbers[0])

    def save(self, kind: str, number: int, tensors: dict[str, Any], state: dict[str, Any]) -> None:
        """Write a checkpoint, in the background if there is memory for it; all ranks call it."""
        self.settle()
        part, path = self.folder / f".part-{kind}-{number:08}", self._path(kind, number)
        with self.ranks.together():
            if self.ranks.first:
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
        writer = VerifiedWriter(part)
        scarce = free_memory() < ROOM * self.ranks.local_size * _local_bytes(tensors.values())
        if self.ranks.largest([float(scarce)])[0]:
            self._pending = Future()
            try:
                self._pending.set_result(dcp.save(tensors, storage_writer=writer, process_group=self._group))
            except (dcp.CheckpointException, OSError) as error:
                self._pending.set_exception(error)
        else:
            self._pending = dcp.async_save(tensors, storage_writer=writer, process_group=self._group)
        self._published = Future()
        if self.ranks.first:  # its part ends last: it waits for those of all ranks
            published = self._published
            self._pending.add_done_callback(lambda done: self._publish(done, published, part, path, state))
        else:
            self._published.set_result(None)
        if kind == "best":
            self.settle()

    @property
    def has_failed(self) -> bool:
        """Whether what is written in the background has failed; `settle` says why."""
        done = [item for item in (self._pending, self._published) if item is not None and item.done()]
        return any(item.exception() is not None for item in done)

    def settle(self) -> None:
        """Wait for what is written in the background; all ranks call it."""
        pending, published, self._pending, self._published = self._pending, self._published, None, None
        if pending is None or published is None:
            return
        with self.ranks.together():
            try:
                pending.result()
                published.result()
            except dcp.CheckpointException as error:
                own = error.failures.get(self.ranks.rank)
                if own is None:  # those that failed know as well, and say it
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
                    file.write(seal(state, small_files(part)).encode())
                sync_folder(part)
                put_in_place(part, path, part.with_name(f"{part.name}.old"))
                sync_folder(self.folder)
                self._forget()
            published.set_result(None)
        except Exception as error:
            published.set_exception(error)

    def _forget(self) -> None:
        """Remove old checkpoints, and the parameters of best epochs that no checkpoint needs any more."""
        matches = [match for match in map(_match, self.folder.iterdir()) if match]
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
        return self._seal(kind, number)[0]

    def _seal(self, kind: str, number: int) -> tuple[dict[str, Any], dict[str, str]]:
        """The state of a checkpoint, and the checksums of its small files."""
        path = self._path(kind, number) / STATE
        try:
            return open_seal(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError, FileNotFoundError) as error:
            raise ValueError(f"{damaged(path)}; {self._way_out(kind)}") from error

    def check(self, kind: str, number: int) -> None:
        """Raise if a checkpoint is missing, or one of its files but those with tensors is damaged."""
        try:
            check_files(self._path(kind, number), self._seal(kind, number)[1])
        except DamagedCheckpoint as error:
            raise ValueError(f"{error}; {self._way_out(kind)}") from error

    def load(self, kind: str, number: int, tensors: dict[str, Any]) -> None:
        """Read tensors in place, whatever number of ranks wrote them."""
        with self.ranks.together():
            self.check(kind, number)
        reader = VerifiedReader(self._path(kind, number))
        try:
            dcp.load(tensors, storage_reader=reader, process_group=self.ranks.group)
        except dcp.CheckpointException as error:
            rank, (cause, _) = next(iter(sorted(error.failures.items())))
            if isinstance(cause, ValueError | OSError):
                raise ValueError(f"rank {rank}: {cause}; {self._way_out(kind)}") from error
            raise

    def _way_out(self, kind: str) -> str:
        """What to do about a damaged checkpoint."""
        if kind == "step":
            return "remove its folder to use the checkpoint before it"
        return f"the best epoch so far is kept nowhere else: remove {str(self.folder)!r} and train again"

    def remove(self) -> None:
        """Remove the folder, after the run is complete."""
        self.settle()
        self.ranks.barrier()
        if self.ranks.first:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number:08}"


def _match(path: Path) -> re.Match[str] | None:
    return _NAME.fullmatch(path.name)


def _remove(path: Path) -> None:
    """Remove a checkpoint, its state first: half of one must not be taken for a whole one."""
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
    parts = (
        item
        for values in tensors
        for item in ([s.tensor for s in values.local_shards()] if _is_sharded(values) else [values])
    )
    return sum(part.nbytes for part in parts)


def _is_sharded(values: Any) -> bool:
    return hasattr(values, "local_shards")


def tables_of(model: ParallelModel) -> dict[str, Any]:
    """The parameters of a model, as tensors that checkpoints read in place."""
    return {f"model.{name}": values for name, values in model.parallel.state_dict().items()}


def everything_of(model: ParallelModel) -> dict[str, Any]:
    """Parameters and optimizer of a model."""
    state = model.parallel.fused_optimizer.state_dict()["state"]
    fused = {f"fused.{name}": values for own in state.values() for name, values in own.items()}
    return tables_of(model) | fused | {f"dense.{name}": values for name, values in model.dense.state.items()}
