"""A worker process: loads the models, accepts connections, and answers.

It is started by the supervisor, which passes two sockets: one to listen on, shared by all workers, and one to talk to
the supervisor. If the supervisor is gone, the worker finishes what it has begun and ends.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import uvloop

from splinefm.serve.api.app import App
from splinefm.serve.api.state import State
from splinefm.serve.arms.drift import DriftSample, show_expected
from splinefm.serve.arms.loaded import Loaded, Published, load_published
from splinefm.serve.arms.serving import Serving
from splinefm.serve.catalog import make_catalog
from splinefm.serve.control import Channel, Message
from splinefm.serve.feedback import FeedbackLog
from splinefm.serve.http.protocol import Connection
from splinefm.serve.http.tokens import Tokens
from splinefm.serve.logs import log_event
from splinefm.serve.metrics import Metrics
from splinefm.serve.settings import ServerSettings

_TICK = 0.2


class Worker:
    """One worker; `run` returns when it has drained.

    Parameters
    ----------
    control, listener : socket
        To the supervisor, and for clients.
    """

    def __init__(self, control: socket.socket, listener: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._done = asyncio.Event()
        self._started: asyncio.Future[Message] = self._loop.create_future()
        self._loads = ThreadPoolExecutor(1, "load")
        self._questions: dict[int, Callable[[Message], None]] = {}
        self._numbers = count()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._early: list[Message] = []
        self._is_listening = False
        self.channel = Channel(control, self._loop, self._received, self._lost)
        self.app: App | None = None
        self.state: State | None = None

    async def run(self) -> None:
        """Serve until told to stop."""
        self._loop.add_signal_handler(signal.SIGTERM, self._drain)
        message = await self._started
        await self._loop.run_in_executor(self._loads, self._prepare, message)
        assert self.state is not None
        self.app = App(self.state, self._loop)
        gc.collect()
        gc.freeze()  # what lives as long as the process need not be looked at again
        gc.set_threshold(10_000, 20, 50)
        self.app.is_ready = True
        self._listen(True)
        self._tasks.add(self._loop.create_task(self._ticks()))
        self.channel.send({"ready": self.state.serving.versions})
        for early in self._early:
            self._received(early)
        await self._done.wait()
        await self._finish()

    def _prepare(self, message: Message) -> None:
        """Load everything that the supervisor named."""
        settings = ServerSettings.from_dict(message["settings"])
        number, workers = message["worker"], message["workers"]
        catalog = make_catalog(settings.arms, message["fields"])
        metrics = Metrics(catalog, Path(message["metrics"]), number, workers + 1)
        metrics.forget_gauges()
        loaded = {entry["arm"]: self._load(Published(**entry), settings, metrics) for entry in message["published"]}
        self.state = State(
            settings,
            Serving(settings, loaded, message["weights"], metrics),
            metrics,
            self._ask,
            number,
            None if settings.log is None else FeedbackLog(settings.log, number),
            None if settings.tokens is None else Tokens(settings.tokens),
            DriftSample(metrics, settings.drift_rows) if settings.drift_rows else None,
            dict(message["refused"]),
        )

    def _load(self, published: Published, settings: ServerSettings, metrics: Metrics) -> Loaded:
        model = load_published(published, settings.background)
        model.warm()
        show_expected(model, metrics)
        metrics.set("splinefm_model_generation", published.arm, value=float(published.generation))
        return model

    # The supervisor

    def _received(self, message: Message) -> None:
        if "settings" in message:
            self._started.set_result(message)
        elif "ping" in message:
            self.channel.send({"pong": True})
        elif self.app is None and "drain" not in message:
            self._early.append(message)  # until there is something to change
        elif "load" in message:
            task = self._loop.create_task(self._reload(Published(**message["load"])))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif "weights" in message and self.state is not None:
            serving = self.state.serving
            self.state.serving = Serving(serving.settings, serving.loaded, message["weights"], serving.metrics)
            self.channel.send({"weighted": message["weights"]})
        elif "refused" in message and self.state is not None:
            self.state.refused = dict(message["refused"])
        elif "reply" in message:
            answer = self._questions.pop(message["reply"], None)
            if answer is not None:
                answer(message["content"])
        elif "drain" in message:
            self._drain()

    def _ask(self, question: Message, answer: Callable[[Message], None]) -> None:
        number = next(self._numbers)
        self._questions[number] = answer
        self.channel.send({**question, "number": number})
        if not self.channel.is_open:
            self._lost()

    def _lost(self) -> None:
        """End without the supervisor; who waits for an answer of it gets ours instead of none."""
        self._drain()
        questions, self._questions = self._questions, {}
        for answer in questions.values():
            answer({"gone": "the server was killed before it had answered; ask again once it is back"})

    async def _reload(self, published: Published) -> None:
        """Load and warm a model beside the one that is served, then switch to it in one step."""
        state = self.state
        assert state is not None
        try:
            model = await self._loop.run_in_executor(self._loads, self._load, published, state.settings, state.metrics)
        except Exception as error:  # the old model stays
            self.channel.send({"failed": published.arm, "generation": published.generation, "error": str(error)})
            return
        serving = state.serving
        loaded = {**serving.loaded, published.arm: model}
        state.serving = Serving(serving.settings, loaded, serving.split.weights, serving.metrics)
        self.channel.send({"loaded": published.arm, "generation": published.generation})

    # Connections

    def _listen(self, wanted: bool) -> None:
        if wanted and not self._is_listening:
            self._loop.add_reader(self._listener.fileno(), self._accept)
        elif self._is_listening and not wanted:
            self._loop.remove_reader(self._listener.fileno())
        self._is_listening = wanted

    def _accept(self) -> bool:
        """Accept one connection: those that follow are for whichever worker has time."""
        assert self.app is not None
        if len(self.app.connections) >= self.app.limits.connections:
            self._listen(False)  # until the next tick: they wait, or go to another worker
            return False
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:  # no more file descriptors
            log_event("accept", "error", error=str(error))
            self._listen(False)
            return False
        client.setblocking(False)
        if client.family != socket.AF_UNIX:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        app, loop = self.app, self._loop
        task = loop.create_task(_connect(loop, app, client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _ticks(self) -> None:
        assert self.app is not None
        number = 0
        while True:
            await asyncio.sleep(_TICK)
            number += 1
            self.app.tick()
            if not self.app.is_draining:
                self._listen(len(self.app.connections) < self.app.limits.connections)
            if number % round(1.0 / _TICK) == 0:
                self.app.second()

    def _drain(self) -> None:
        """Accept no more connections, and end when all is answered."""
        if self.app is None or self.state is None:
            self._done.set()
            if not self._started.done():
                self._started.cancel()
            return
        if self.app.is_draining:
            return
        while self._is_listening and self._accept():
            pass  # clients that the system has connected already
        self._listen(False)
        self._listener.close()  # once all processes have, the system refuses new connections
        self.app.is_draining = True
        for connection in tuple(self.app.connections):
            connection.drain()
        self._done.set()

    async def _finish(self) -> None:
        """Wait for the last answers."""
        if self.app is None or self.state is None:
            return
        end = perf_counter() + self.app.limits.drain
        await asyncio.sleep(0.02)  # connections that were accepted a moment ago
        while not self.app.is_idle and perf_counter() < end:
            await asyncio.sleep(0.02)
            for connection in tuple(self.app.connections):
                connection.drain()
        self.app.tick()
        self.app.queue.close()
        self.state.metrics.forget_gauges()
        if self.state.log is not None:
            self.state.log.close()


async def _connect(loop: Any, app: App, client: socket.socket) -> None:
    try:
        await loop.connect_accepted_socket(lambda: Connection(app, loop), client)
    except OSError:
        client.close()


async def _main(control: int, listener: int) -> None:
    with socket.socket(fileno=listener) as shared:
        shared.setblocking(False)
        worker = Worker(socket.socket(fileno=control), shared)
        try:
            await worker.run()
        except asyncio.CancelledError:
            pass  # told to stop before it had begun
        except Exception as error:
            log_event("worker failed", "error", error=f"{type(error).__name__}: {error}")
            raise SystemExit(1) from None


def main(control: int, listener: int) -> None:
    """Run a worker with the file descriptors of its sockets."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that of a terminal goes to the supervisor, too
    uvloop.run(_main(control, listener))
    sys.stderr.flush()
