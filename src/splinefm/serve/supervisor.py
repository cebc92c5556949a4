"""The supervisor: one process that starts workers, replaces those that die, and has them load new files.

It listens, but never accepts: all workers share its socket. It verifies new files, and tells one worker after the other
to load them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from splinefm._files import hold, release, remove_abandoned
from splinefm.serve.arms.loaded import Published
from splinefm.serve.arms.split import ArmSplit
from splinefm.serve.catalog import make_catalog
from splinefm.serve.control import Channel, Message, WorkerHandle
from splinefm.serve.logs import log_event
from splinefm.serve.metrics import Metrics, create_file
from splinefm.serve.settings import ArmSetting, ServerSettings
from splinefm.serve.snapshots import Snapshots, check_arms_agree
from splinefm.serve.watching import Watcher

_BACKLOG = 2048
_FOLDER = "splinefm-serve-"
# Seconds for a worker to load a model, and to answer at all: it loads in another thread, and answers meanwhile.
_PATIENCE, _ANSWER_SECONDS = 120.0, 5.0
_SHORT_LIFE, _LONGEST_PAUSE = 5.0, 30.0  # seconds: a worker that dies sooner is replaced after a pause
_MAX_FAILURES = 3  # workers that die before the first one was ever ready
_LAST_WORDS = 5.0  # seconds beyond the drain before workers are killed
# Workers are processes already: their libraries need no threads.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# The paths are those of this process: the folder that it was started in must not hide modules.
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from splinefm.serve.worker import main; main({}, {})"


class Supervisor:
    """Starts and looks after the workers of a server.

    Parameters
    ----------
    settings : ServerSettings
        What to serve, and where.
    ready : callable, optional
        Called with the address once all workers accept requests.
    """

    def __init__(self, settings: ServerSettings, ready: Callable[[str], None] | None = None) -> None:
        self.settings, self._ready = settings, ready
        self._folder, self._held = _own_folder()
        self._snapshots = Snapshots(self._folder, settings.background)
        self._arms = {arm.name: arm for arm in settings.arms}
        self._weights = {arm.name: arm.weight for arm in settings.arms if not arm.shadow}
        self._refused: dict[str, str] = {}
        self._workers: dict[int, WorkerHandle] = {}
        self._failures = 0
        self._was_ready = self._is_stopping = False
        self._reloading = asyncio.Lock()
        self._stopped: asyncio.Future[int] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listener: socket.socket | None = None
        self._metrics: Metrics | None = None
        self.url = ""

    async def run(self) -> int:
        """Serve until a signal; returns the exit code."""
        loop = asyncio.get_running_loop()
        self._stopped = loop.create_future()
        try:
            for arm in self.settings.arms:
                published = self._snapshots.publish(arm)
                assert published is not None  # nothing was served before
                self._snapshots.accept(published)
            shown = {name: self._snapshots.contracts[name] for name in self._weights}
            check_arms_agree(shown)
            self._listener = open_listener(self.settings.host, self.settings.port)
            self._make_metrics()
            self.url = url_of(self._listener)
            for sign in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(sign, self._stop)
            loop.add_signal_handler(signal.SIGHUP, lambda: self._begin(self._reload_all()))
            for number in range(self.settings.workers):
                await self._spawn(number)
            if self.settings.watch:
                self._begin(self._watch())
            return await self._stopped
        finally:
            await self._end()

    def _make_metrics(self) -> None:
        catalog = make_catalog(self.settings.arms, self._fields())
        path = self._folder / "metrics"
        create_file(path, catalog, self.settings.workers + 1)
        self._metrics = Metrics(catalog, path, self.settings.workers, self.settings.workers + 1)
        self._show_weights()

    def _fields(self) -> dict[str, list[str]]:
        return {name: self._snapshots.contracts[name]["fields"] for name in self._arms}

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Workers

    async def _spawn(self, number: int) -> None:
        assert self._listener is not None
        ours, theirs = socket.socketpair()
        descriptors = (theirs.fileno(), self._listener.fileno())
        command = [sys.executable, "-P", "-c", _START.format(*descriptors)]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                json.dumps(sys.path),
                pass_fds=descriptors,
                stdin=asyncio.subprocess.DEVNULL,
                env={**_ONE_THREAD, **os.environ},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        worker = WorkerHandle(number, process)
        self._workers[number] = worker
        loop = asyncio.get_running_loop()
        worker.channel = Channel(ours, loop, lambda message: self._received(worker, message), lambda: None)
        worker.generations = {name: entry.generation for name, entry in self._snapshots.current.items()}
        worker.tell(
            {
                "settings": self.settings.to_dict(),
                "worker": number,
                "workers": self.settings.workers,
                "fields": self._fields(),
                "metrics": str(self._folder / "metrics"),
                "published": [asdict(entry) for entry in self._snapshots.current.values()],
                "weights": self._weights,
                "refused": self._refused,
            }
        )
        self._begin(self._attend(worker))

    async def _attend(self, worker: WorkerHandle) -> None:
        """Wait for the end of a worker, and replace it."""
        code = await worker.process.wait()
        if worker.channel is not None:
            worker.channel.close()
        if worker.waiting is not None and not worker.waiting.done():
            worker.waiting.set_result({"failed": "", "error": "the worker died"})
        if self._is_stopping:
            return
        log_event("worker died", "error", worker=worker.number, code=code)
        assert self._metrics is not None
        self._metrics.add("splinefm_worker_restarts_total")
        self._metrics.forget_gauges(worker.number)
        self._failures = self._failures + 1 if monotonic() - worker.began < _SHORT_LIFE or not worker.is_ready else 0
        if not self._was_ready and self._failures >= _MAX_FAILURES:
            log_event("stopped", "error", reason="workers die before they are ready; see the lines above")
            self._stop(1)
            return
        if self._failures > 1:
            await self._pause()
        await self._replace(worker.number)

    async def _replace(self, number: int) -> None:
        """Start a worker; again and again while the system has no process or file descriptor left."""
        while not self._is_stopping:
            try:
                await self._spawn(number)
                return
            except OSError as error:
                log_event("worker not started", "error", worker=number, error=str(error))
            self._failures += 1
            await self._pause()

    async def _pause(self) -> None:
        """Wait, the longer the more often it failed."""
        await asyncio.sleep(min(_LONGEST_PAUSE, 0.1 * 2.0 ** min(self._failures, 20)))

    def _received(self, worker: WorkerHandle, message: Message) -> None:
        if "pong" in message:
            worker.answered.set()
        elif "ready" in message:
            worker.is_ready = True
            if not self._was_ready and all(each.is_ready for each in self._workers.values()):
                self._was_ready = True
                log_event("listening", url=self.url, workers=len(self._workers), versions=message["ready"])
                if self._ready is not None:
                    self._ready(self.url)
        elif "loaded" in message or "failed" in message:
            if worker.waiting is not None and not worker.waiting.done():
                worker.waiting.set_result(message)
        elif message.get("ask") == "reload":
            self._begin(self._answer_reload(worker, message))
        elif message.get("ask") == "weights":
            try:
                self._change_weights(message["weights"])
                content: Message = {"weights": self._weights}
            except ValueError as error:
                content = {"error": str(error)}
            worker.tell({"reply": message["number"], "content": content})

    # Weights

    def _change_weights(self, weights: dict[str, float]) -> None:
        changed = self._weights | weights
        ArmSplit(changed)  # raises where no arm is left
        self._weights = changed
        self._show_weights()
        log_event("weights", weights=self._weights)
        for worker in self._workers.values():
            worker.tell({"weights": self._weights})

    def _show_weights(self) -> None:
        assert self._metrics is not None
        for name, weight in self._weights.items():
            self._metrics.set("splinefm_arm_weight", name, value=weight)

    # Reload

    async def _answer_reload(self, worker: WorkerHandle, message: Message) -> None:
        names = list(self._arms) if message["arm"] is None else [message["arm"]]
        results = {name: await self._reload(self._arms[name]) for name in names}
        refused = {name: self._refused[name] for name, result in results.items() if result == "refused"}
        content: Message = {
            "arms": results,
            "versions": {name: self._snapshots.current[name].version for name in names},
        }
        if refused:
            content = {"error": "; ".join(f"{name}: {text}" for name, text in refused.items())}
        worker.tell({"reply": message["number"], "content": content})

    async def _reload_all(self) -> None:
        for arm in self._arms.values():
            await self._reload(arm)

    async def _reload(self, arm: ArmSetting) -> str:
        """Publish the files of an arm to all workers: "loaded", "unchanged" or "refused"."""
        async with self._reloading:
            try:
                published = await asyncio.to_thread(self._snapshots.publish, arm)
                if published is not None:
                    await self._hand_out(published)
            except Exception as error:  # whatever is wrong with a file, the old one stays
                self._refuse(arm.name, str(error) or type(error).__name__)
                return "refused"
            self._refuse(arm.name, None)
            if published is None:
                return "unchanged"
            log_event("loaded", arm=arm.name, version=published.version, generation=published.generation)
            assert self._metrics is not None
            self._metrics.add("splinefm_reloads_total", arm.name, "loaded")
            return "loaded"

    async def _hand_out(self, published: Published) -> None:
        """Have one worker after the other load a snapshot; if one cannot, all go back to the one before."""
        before = self._snapshots.current[published.arm]
        for worker in list(self._workers.values()):
            error = await self._load(worker, published)
            if error is not None:
                for other in self._workers.values():
                    if other.generations.get(published.arm) == published.generation:
                        await self._load(other, before)
                self._snapshots.discard(published)
                raise ValueError(f"worker {worker.number} could not load it: {error}")
        self._snapshots.accept(published)
        for worker in list(self._workers.values()):  # those that were started meanwhile, with the one before
            if worker.generations.get(published.arm) != published.generation:
                await self._load(worker, published)

    async def _load(self, worker: WorkerHandle, published: Published) -> str | None:
        """Have a worker load a snapshot; returns what went wrong."""
        if worker.process.returncode is not None or not await self._answers(worker):
            return None  # its successor starts with what is current
        worker.waiting = asyncio.get_running_loop().create_future()
        worker.tell({"load": asdict(published)})
        try:
            reply = await asyncio.wait_for(worker.waiting, _PATIENCE)
        except TimeoutError:
            await worker.kill()
            return "it took too long"
        if "failed" in reply:
            return None if worker.process.returncode is not None else str(reply["error"])
        worker.generations[published.arm] = published.generation
        return None

    async def _answers(self, worker: WorkerHandle) -> bool:
        """Whether a worker answers; one that does not, such as one that was stopped, is killed and replaced."""
        worker.answered.clear()
        worker.tell({"ping": True})
        try:
            await asyncio.wait_for(worker.answered.wait(), _ANSWER_SECONDS)
        except TimeoutError:
            log_event("killed", "warning", worker=worker.number, reason=f"no answer for {_ANSWER_SECONDS:g} seconds")
            await worker.kill()
            return False
        return True

    def _refuse(self, arm: str, reason: str | None) -> None:
        """Remember why a file was refused, or that it was not, and tell all workers."""
        assert self._metrics is not None
        self._metrics.set("splinefm_reload_refused", arm, value=float(reason is not None))
        if reason is not None:
            self._refused[arm] = reason
            self._metrics.add("splinefm_reloads_total", arm, "refused")
            log_event("refused", "warning", arm=arm, reason=reason)
        elif self._refused.pop(arm, None) is None:
            return
        for worker in self._workers.values():
            worker.tell({"refused": self._refused})

    async def _watch(self) -> None:
        watcher = Watcher({arm.name: [arm.model, arm.index] for arm in self.settings.arms})
        while True:
            await asyncio.sleep(watcher.PAUSE)
            for name in watcher.changed():
                await self._reload(self._arms[name])

    # The end

    def _stop(self, code: int = 0) -> None:
        assert self._stopped is not None
        if self._is_stopping:  # a second signal: at once
            for worker in self._workers.values():
                if worker.process.returncode is None:
                    worker.process.kill()
            return
        self._is_stopping = True
        if not self._stopped.done():
            self._stopped.set_result(code)

    async def _end(self) -> None:
        self._is_stopping = True
        if self._listener is not None:
            self._listener.close()
        alive = [worker for worker in self._workers.values() if worker.process.returncode is None]
        for worker in alive:
            worker.tell({"drain": True})
        if alive:
            patience = self.settings.limits.drain + _LAST_WORDS
            ends = [asyncio.ensure_future(worker.process.wait()) for worker in alive]
            _, late = await asyncio.wait(ends, timeout=patience)
            for worker in alive:
                if late and worker.process.returncode is None:
                    log_event("killed", "warning", worker=worker.number, reason="it did not drain in time")
                    worker.process.kill()
            await asyncio.gather(*ends)
        shutil.rmtree(self._folder, ignore_errors=True)
        release(self._held)
        if self._was_ready:
            log_event("stopped")


def _own_folder() -> tuple[Path, int | None]:
    """A new folder for this server, and what holds it; those of servers that were killed are removed."""
    remove_abandoned(Path(tempfile.gettempdir()), re.compile(re.escape(_FOLDER) + r"[a-z0-9_]{8}"))
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        held = hold(folder)
        if held is None:
            sleep(0.1)  # either the disk has no locks, or another server takes the folder for abandoned
        if folder.is_dir():
            return folder, held


def open_listener(host: str, port: int) -> socket.socket:
    """Listen on an address; port 0 takes a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        text = f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --host or --port"
        raise OSError(text) from error


def url_of(listener: socket.socket) -> str:
    """The address of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(settings: ServerSettings, ready: Callable[[str], None] | None = None) -> int:
    """Run a server until SIGTERM or SIGINT; returns the exit code."""

    async def run() -> int:
        return await Supervisor(settings, ready).run()

    return asyncio.run(run())
