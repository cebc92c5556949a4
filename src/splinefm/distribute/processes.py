"""The processes of a job: how they start, what they tell each other, and how they end together."""

from __future__ import annotations

import json
import logging
import os
import platform
import signal
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from splinefm._arrays import FloatArray

# Termination: SIGTERM, upon which all processes write a checkpoint and end.

EXIT_CODE = 128 + signal.SIGTERM


class Terminated(Exception):
    """SIGTERM ended a run; the message says what is kept."""


class Termination:
    """Whether this process got SIGTERM.

    While steps are taken, the signal is noted, and the processes agree on the step after which they end. Before and
    after that, it raises `Terminated` at once.
    """

    def __init__(self) -> None:
        self.requested = False
        self._taking_steps = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signal in this context; threads other than the main one cannot."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    @contextmanager
    def while_taking_steps(self) -> Iterator[None]:
        """Note the signal instead of raising an error."""
        self._taking_steps = True
        try:
            yield
        finally:
            self._taking_steps = False

    def _handle(self, *_: object) -> None:
        if not self._taking_steps:
            raise Terminated("stopped by SIGTERM while no steps were taken; no checkpoint is written")
        self.requested = True


# Processes: the processes of a job, what they tell each other, and how they fail together.

# Packages whose versions must be the same on all processes: they compute the numbers, or write what others read.
PACKAGES = ("numpy", "pyarrow", "torch", "torchrec", "fbgemm-gpu-cpu", "fbgemm-gpu")
FAILED, REPORTED, MAX_BYTES = "splinefm/failed", "splinefm/reported", 1 << 28
# torchrun ends all processes as soon as one of them has, so that others wait for the message of the one that knows.
PATIENCE = timedelta(seconds=10)


class PeerFailed(Exception):
    """Another process failed, and has said why."""


class PeerLost(Exception):
    """Another process is gone or does not answer; no reason is known."""


@dataclass(frozen=True, eq=False)
class Processes:
    """One process of a job, of `count`."""

    index: int  # of this process, from 0
    count: int  # of all processes
    local_count: int  # the number of processes on this machine
    device: torch.device  # where the tables are
    group: Any  # for messages in host memory; tables on GPUs have a group of their own
    timeout: timedelta  # how long to wait for a message

    @property
    def first(self) -> bool:
        """Whether this is process 0."""
        return self.index == 0

    def sums(self, values: Sequence[float] | FloatArray) -> FloatArray:
        """Sums over processes."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def maxima(self, values: Sequence[float] | FloatArray) -> FloatArray:
        """Maxima over processes."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def _reduced(self, values: Sequence[float] | FloatArray, operation: Any) -> FloatArray:
        tensor = torch.tensor(np.asarray(values, np.float64))
        if self.count > 1:
            dist.all_reduce(tensor, operation, group=self.group)
        return np.asarray(tensor.numpy())

    def gather(self, data: bytes) -> list[bytes]:
        """The messages of all processes, on all of them."""
        sizes = np.zeros(self.count)
        sizes[self.index] = len(data)
        lengths = self.sums(sizes).astype(int).tolist()
        return [self.broadcast(data if at == self.index else None, at, length) for at, length in enumerate(lengths)]

    def gather_json(self, value: object) -> list[Any]:
        """The values of all processes, on all of them, as JSON has them."""
        return [json.loads(data) for data in self.gather(json.dumps(value).encode())]

    def part(self, n_rows: int) -> tuple[int, int]:
        """The first row of this process, and the row after its last, if rows are divided evenly."""
        return n_rows * self.index // self.count, n_rows * (self.index + 1) // self.count

    def broadcast(self, data: bytes | None, source: int = 0, length: int | None = None) -> bytes:
        """A message of one process, on all processes."""
        if self.count == 1:
            return data or b""
        if length is None:
            length = int(self.sums([len(data or b"") if self.index == source else 0])[0])
        buffer = torch.empty(length, dtype=torch.uint8)
        if self.index == source:
            buffer[:] = torch.frombuffer(bytearray(data or b""), dtype=torch.uint8) if length else buffer
        for at in range(0, length, MAX_BYTES):
            dist.broadcast(buffer[at : at + MAX_BYTES], source, group=self.group)
        return buffer.numpy().tobytes()

    def send(self, data: bytes, to: int) -> None:
        """Send a message, which `to` receives."""
        buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        dist.send(torch.tensor([len(data)]), to, group=self.group)
        for at in range(0, len(data), MAX_BYTES):
            dist.send(buffer[at : at + MAX_BYTES], to, group=self.group)

    def receive(self, source: int) -> bytes:
        """Return the next message that `source` sends here."""
        length = torch.zeros(1, dtype=torch.int64)
        dist.recv(length, source, group=self.group)
        buffer = torch.empty(int(length), dtype=torch.uint8)
        for at in range(0, len(buffer), MAX_BYTES):
            dist.recv(buffer[at : at + MAX_BYTES], source, group=self.group)
        return buffer.numpy().tobytes()

    def barrier(self) -> None:
        """Wait for all processes."""
        self.sums([0.0])

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Work without messages: a process on which it fails raises its error, all others raise `PeerFailed`."""
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        flags = np.zeros(self.count)
        flags[self.index] = failure is not None
        failed = np.flatnonzero(self.sums(flags))
        if failure is not None:
            raise failure
        if len(failed):
            raise PeerFailed(f"process {failed[0]} failed")

    def check_same(self, facts: Mapping[str, str], what: str) -> None:
        """Raise on process 0 if another process has other facts, and `PeerFailed` on the others."""
        everyone = self.gather_json(dict(facts))
        with self.fail_together():
            for process, theirs in enumerate(everyone):
                different = [name for name in facts if theirs.get(name) != facts[name]]
                if self.first and different:
                    name = different[0]
                    raise ValueError(
                        f"{what} differ: {name} is {theirs.get(name)} on process {process} and {facts[name]} on "
                        "process 0; all processes need the same"
                    )


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    found = {"Python": platform.python_version(), "splinefm": sys.modules["splinefm"].__version__}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@contextmanager
def join(timeout: float, device: str | None = None) -> Iterator[Processes]:
    """Join the job that torchrun started; without torchrun, be its only process.

    Parameters
    ----------
    timeout : float
        Seconds to wait for a message of another process.
    device : {"cpu", "cuda"}, optional
        Where the tables are; by default, on GPUs if there are any.
    """
    limit = timedelta(seconds=timeout)
    store, rank, size = _open_store(limit)
    try:
        where = _find_device(device)
    except ValueError as error:
        if store.add(FAILED, 1) == 1:
            raise
        raise PeerFailed(str(error)) from error
    on_gpu = where.type == "cuda"
    dist.init_process_group("nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=size, timeout=limit)
    try:
        group = dist.new_group(backend="gloo", timeout=limit) if on_gpu else dist.group.WORLD
        processes = Processes(rank, size, int(os.environ.get("LOCAL_WORLD_SIZE", 1)), where, group, limit)
        processes.check_same(versions(), "versions")
        yield processes
    finally:
        if sys.exc_info()[0] is None:  # otherwise, the others may not answer
            dist.destroy_process_group()


def _find_device(device: str | None) -> torch.device:
    """Return the device of this process."""
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda, got {chosen!r}")
    if chosen == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError("device is cuda, but torch finds no GPU; use cpu")
    where = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(where)
    return where


def _open_store(timeout: timedelta) -> tuple[Any, int, int]:
    """Return the store of torchrun, the number of this process and the number of all.

    When torchrun starts its processes again, it may keep the store, with the addresses of those that are gone. So every
    start has names of its own there.
    """
    if "RANK" not in os.environ:
        return dist.HashStore(), 0, 1
    store, rank, size = next(dist.rendezvous("env://", timeout=timeout))
    return dist.PrefixStore(f"splinefm/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store), rank, size


def run_together(job: Callable[[Processes], None], timeout: float, device: str | None = None) -> None:
    """Run a job on this process. What other processes have to say about a failure is left to them.

    Raises
    ------
    PeerFailed
        Another process failed and says why.
    PeerLost
        Another process is gone, or did not answer in time.
    Terminated
        SIGTERM ended the run.
    """
    try:
        with quiet(), join(timeout, device) as processes:
            job(processes)
    except (PeerFailed, PeerLost, Terminated):  # all processes get the signal
        raise
    except Exception as error:
        if not _is_lost(error):
            if _is_first_to_fail():
                raise
            raise PeerFailed(str(error)) from error  # all processes know it, and one is enough to say it
        if _is_failure_reported():
            raise PeerFailed(str(error)) from error
        raise PeerLost(_lost_message(error, timeout)) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out the remarks of torch and TorchRec on their own internals; errors stay."""
    loggers = [logging.getLogger(name) for name in ("torchrec", "torch.fx._symbolic_trace", "root")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(torch|torchrec|fbgemm_gpu)(\.|$)")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def _is_first_to_fail() -> bool:
    """Say in the store that this process reports its error; return whether it is the first one."""
    if not dist.is_initialized():
        return True
    try:
        return bool(_store().add(FAILED, 1) == 1)
    except Exception:  # the store may be what failed
        return True


def announce_reported() -> None:
    """Let the other processes end: this one has printed what is wrong."""
    _try_store(lambda store: store.add(REPORTED, 1))


def wait_until_reported() -> None:
    """Wait until another process has printed what is wrong, but not for long."""
    _try_store(lambda store: store.wait([REPORTED], PATIENCE))


def _try_store(use: Callable[[Any], object]) -> None:
    """Use the store if it is there: it may be what failed."""
    if dist.is_initialized():
        with suppress(Exception):
            use(_store())


def _is_failure_reported() -> bool:
    try:
        _store().wait([FAILED], timedelta(seconds=2))  # the other process may be about to say it
    except Exception:
        return False
    return True


# Words of the network's errors, which torch raises as plain RuntimeErrors. A process that was stopped and goes on too
# late finds its connections closed.
_NETWORK = (
    "gloo",
    "NCCL",
    "Timed out",
    "TCPStore",
    "pair closure",
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
)


def _is_lost(error: BaseException) -> bool:
    """Whether an error is of the network: another process closed its connection, or does not answer."""
    if isinstance(error, dcp.CheckpointException):
        return any(_is_lost(failure) for failure, _ in error.failures.values())
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in _NETWORK)
    )


def _lost_message(error: Exception, timeout: float) -> str:
    if "imed out" in str(error) or "imeout" in str(error):
        return (
            f"another process has not answered for {timeout:g} seconds (--timeout); it hangs, or its data take longer"
        )
    return "lost the connection to another process, which may have been killed; see its messages"


# Launch: start the processes of one machine under torchrun, and start them again if one dies.

# How long processes may write their last checkpoint after SIGTERM before they are killed.
SHUTDOWN_SECONDS = 300


def launch(arguments: Sequence[str], n_processes: int, max_restarts: int = 0) -> int:
    """Run `python -m splinefm.distribute` with some arguments on every process; return the exit code.

    It is what `torchrun --standalone --nproc-per-node RANKS --max-restarts N -m splinefm.distribute` does, without the
    report that torchrun adds to the message of a process that failed.
    """
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=n_processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=max_restarts,
        monitor_interval=0.2,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    command = [sys.executable, "-m", "splinefm.distribute", *arguments]
    try:
        elastic_launch(config, command[0])(*command[1:])
    except SignalException as stop:  # the processes got the signal too, and have said what they leave
        return 128 + int(stop.sigval)
    except ChildFailedError as error:
        return max((failure.exitcode for failure in error.failures.values()), default=1) if error.failures else 1
    return 0
