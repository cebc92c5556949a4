"""`splinefm serve`: the application on uvicorn, with worker processes and one process that verifies new models."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from logging.config import dictConfig
from pathlib import Path
from shutil import rmtree
from time import monotonic, perf_counter
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from splinefm._files import hold, release
from splinefm.serve import metrics as metrics_module
from splinefm.serve.app import App, create_app
from splinefm.serve.logs import LOG_CONFIG, log_event
from splinefm.serve.messages import Response, problem
from splinefm.serve.metrics import forget_process, process_metrics
from splinefm.serve.publishing import Publisher, make_folder, prepare_folder
from splinefm.serve.settings import Limits, ServiceSettings

_BACKLOG = 2048
_SHORT_LIFE, _LONGEST_PAUSE = 5.0, 30.0  # seconds: a worker that dies sooner is replaced after a pause
_MAX_FAILURES = 3  # workers that die before the first one was ever ready
_ANSWER_SECONDS = 5  # for a worker to answer its supervisor
_LOOK = 0.1  # seconds between two looks at the workers
_SWITCH_SECONDS = 0.0005  # of threads: while a model is loaded, requests wait ten times less than by default
# Workers are processes already: their libraries need no threads.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class ServerOptions:
    """How a server listens.

    Parameters
    ----------
    host, port
        The address; port 0 takes a free one.
    socket : str, optional
        Path of a Unix socket, instead of an address.
    workers : int
        Worker processes.
    certificate, private_key : str, optional
        Files of TLS.
    trusted_proxies : str, optional
        Addresses of proxies whose X-Forwarded headers are believed, separated by commas.
    root_path : str
        The path under which a proxy offers the server.
    drain_delay : float
        Seconds between SIGTERM, when readiness fails, and the end of accepting: load balancers look meanwhile.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    socket: str | None = None
    workers: int = 1
    certificate: str | None = None
    private_key: str | None = None
    trusted_proxies: str | None = None
    root_path: str = ""
    drain_delay: float = 0.5


class StrictProtocol(HttpToolsProtocol):
    """The protocol of uvicorn, with limits on headers and time; what it refuses is a problem as JSON.

    uvicorn bounds neither the size of headers nor the time that a client takes for them, and lets trailers of a body
    replace headers that were checked.
    """

    limits = Limits()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._n_events = self._head_size = 0
        self._has_headers = self._is_cut = False
        self._idle_since = perf_counter()
        self._unsent = 0
        self._write_by: float | None = None
        self._read_by: float | None = self._idle_since + self.limits.read

    # What the event loop calls

    def connection_made(self, transport: Any) -> None:
        """Keep a connection, to look after its time."""
        super().connection_made(transport)
        if len(self.connections) == 1:
            self.loop.call_later(_LOOK, _look_after, self.loop, self.connections)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived."""
        if self._is_cut:
            return
        events = self._n_events
        super().data_received(data)
        if events == self._n_events and self.parser is not None:
            self._count_head(len(data))  # a header, a trailer or the size of a chunk without an end

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that has ended its side, if its request is complete."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return False
        self.cycle.keep_alive = False
        return True

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        super().pause_writing()
        self._write_by = perf_counter() + self.limits.write
        self._unsent = self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._write_by = None

    def check_time(self, now: float) -> None:
        """Cut off a client that is too slow; called every now and then."""
        if self._write_by is not None:
            unsent = self.transport.get_write_buffer_size()
            if unsent < self._unsent:  # it takes its time, but it takes the answer
                self._write_by, self._unsent = now + self.limits.write, unsent
            elif now > self._write_by:
                process_metrics().slow_clients.inc()
                self.transport.abort()
        elif self._read_by is not None and now > self._read_by:
            process_metrics().slow_clients.inc()
            self._refuse(408, f"the request took longer than {self.limits.read:g} s to arrive; send it faster")

    # What the parser calls

    def on_message_begin(self) -> None:
        """A request begins."""
        self._n_events += 1
        self._head_size, self._has_headers = 0, False
        self._read_by = perf_counter() + self.limits.read
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        self._n_events += 1
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which must not replace a header that was checked."""
        self._n_events += 1
        self._count_head(len(name) + len(value) + 4)
        if not self._has_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The application takes over, and bounds the time of the body."""
        self._n_events += 1
        self._has_headers, self._read_by = True, None
        if not self._is_cut:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        self._n_events += 1
        if not self._is_cut:
            super().on_body(body)

    def on_chunk_header(self) -> None:
        """The size of a chunk."""
        self._n_events += 1

    def on_chunk_complete(self) -> None:
        """The end of a chunk."""
        self._n_events += 1

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._n_events += 1
        if not self._is_cut:
            super().on_message_complete()

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self.limits.header:
            self._refuse(431, f"the request line and headers have more than {self.limits.header:,} bytes")

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(400, "the request is not valid HTTP/1.1")

    def _refuse(self, status: int, detail: str) -> None:
        """Answer a request that is not complete, after those before it, and close the connection."""
        self._read_by = None
        if self._is_cut:
            return
        self._is_cut = True
        if self.cycle is not None and not self.cycle.response_complete:
            if self._has_headers and not self.pipeline:  # its own headers or trailers: the application must not answer
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            else:
                self._refused = problem(status, detail)
                return
        self._write_refusal(problem(status, detail))

    _refused: Response | None = None

    def on_response_complete(self) -> None:
        """Send a refusal that had to wait for the answers before it."""
        super().on_response_complete()
        if self._refused is not None and not self.pipeline and self.cycle.response_complete:
            self._write_refusal(self._refused)

    def _write_refusal(self, refusal: Response) -> None:
        process_metrics().requests.labels("other", str(refusal.status)).inc()
        if self.transport.is_closing():
            return
        names = [*self.server_state.default_headers, (b"content-type", refusal.content_type), (b"connection", b"close")]
        names.append((b"content-length", b"%d" % len(refusal.body)))
        head = b"".join(b"%b: %b\r\n" % name for name in names)
        self.transport.write(b"HTTP/1.1 %d \r\n%b\r\n%b" % (refusal.status, head, refusal.body))
        self.transport.close()


def _look_after(loop: Any, connections: set[Any]) -> None:
    now = perf_counter()
    for connection in tuple(connections):
        connection.check_time(now)
    if connections:
        loop.call_later(_LOOK, _look_after, loop, connections)


# Workers


def make_worker_app(settings: ServiceSettings, folder: str) -> App:
    """The application of a worker process, which ends with its supervisor."""
    supervisor = os.getppid()
    app = create_app(settings, folder=folder, may_publish=False)
    service = app.service

    def end_with_supervisor() -> None:
        if os.getppid() != supervisor:
            service.has_publisher = False
        if not service.has_publisher:
            os.kill(os.getpid(), signal.SIGTERM)

    service.every_look.append(end_with_supervisor)
    StrictProtocol.limits = settings.limits
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # what lives as long as the process need not be looked at again
    gc.set_threshold(10_000, 20, 50)
    return app


def make_config(settings: ServiceSettings, options: ServerOptions, folder: str) -> uvicorn.Config:
    """How uvicorn runs a worker."""
    limits = settings.limits
    return uvicorn.Config(
        partial(make_worker_app, settings, folder),
        factory=True,
        http=StrictProtocol,
        loop="uvloop",
        ws="none",
        lifespan="on",
        interface="asgi3",
        workers=options.workers,
        log_config=LOG_CONFIG,
        access_log=False,
        server_header=False,
        proxy_headers=options.trusted_proxies is not None,
        forwarded_allow_ips=options.trusted_proxies,
        root_path=options.root_path,
        limit_concurrency=limits.connections,
        backlog=_BACKLOG,
        timeout_keep_alive=int(limits.idle),
        timeout_graceful_shutdown=int(limits.drain) or 1,
        timeout_worker_healthcheck=_ANSWER_SECONDS,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.private_key,
    )


class Supervisor(Multiprocess):
    """Starts workers and replaces those that die; it verifies new models, and accepts no requests.

    Parameters
    ----------
    config : uvicorn.Config
        How a worker runs.
    listener : socket
        What the workers share.
    publisher : Publisher
        Verifies and publishes models.
    options : ServerOptions
        The delay at the end.
    ready : callable
        Called once all workers accept requests.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        publisher: Publisher,
        options: ServerOptions,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(config, [listener])
        self._publisher, self._options, self._ready = publisher, options, ready
        self._began: dict[int, float] = {}
        self._failures = 0
        self._was_ready = False
        self._next_start = 0.0
        self._end_at: float | None = None
        self.code = 0

    def run(self) -> None:
        """Run until a signal."""
        self.init_processes()
        while not self.should_exit.wait(_LOOK):
            self.handle_signals()
            if self._end_at is not None and monotonic() >= self._end_at:
                break
            self.keep_subprocess_alive()
            if not self._was_ready and all(process.is_ready(_ANSWER_SECONDS) for process in self.processes):
                self._was_ready = True
                self._ready()
        for listener in self.sockets:
            listener.close()  # once all processes have, the system refuses new connections
        for process in self.processes:
            if process.process.is_alive():
                process.terminate()
        self._await_end()

    def _await_end(self) -> None:
        """Wait for the workers to finish their requests; kill those that do not, or all at a second signal."""
        self.signal_queue.clear()
        end = monotonic() + (self.config.timeout_graceful_shutdown or 0) + _ANSWER_SECONDS
        for process in self.processes:
            while process.process.is_alive() and monotonic() < end and not self.signal_queue:
                process.process.join(_LOOK)
            if process.process.is_alive():
                log_event("killed", "warning", worker=process.pid, reason="it did not drain in time")
                process.process.kill()
                process.process.join()

    def init_processes(self) -> None:
        """Start all workers."""
        for number in range(self.processes_num):
            process = Process(self.config, self.sockets)
            self.processes.append(process)
            self._start(number, process)

    def _start(self, number: int, process: Process) -> None:
        process.start()
        self.processes[number] = process
        self._began[number] = monotonic()

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died or do not answer."""
        for number, process in enumerate(self.processes):
            if process.process.is_alive():
                if self._was_ready and not process.ping(_ANSWER_SECONDS) and process.process.is_alive():
                    reason = f"no answer for {_ANSWER_SECONDS:g} seconds"
                    log_event("killed", "warning", worker=process.pid, reason=reason)
                    process.process.kill()
                    process.process.join()
                else:
                    continue
            if number in self._began:
                self._bury(number, process)
            if self.should_exit.is_set():
                return
            if monotonic() >= self._next_start:
                try:
                    self._start(number, Process(self.config, self.sockets))
                except OSError as error:  # no more processes
                    log_event("worker not started", "error", worker=number, error=str(error))
                    self._fail()

    def _bury(self, number: int, process: Process) -> None:
        """Count a worker that died."""
        lived = monotonic() - self._began.pop(number)
        log_event("worker died", "error", worker=process.pid, code=process.exitcode)
        process_metrics().worker_restarts.inc()
        if process.pid is not None:
            forget_process(process.pid)
        with suppress(OSError):
            process.parent_conn.close()
            process.child_conn.close()
        if lived < _SHORT_LIFE or not self._was_ready:
            self._fail()
        else:
            self._failures = 0

    def _fail(self) -> None:
        """Wait, the longer the more often it failed."""
        self._failures += 1
        if self._failures > 1:
            self._next_start = monotonic() + min(_LONGEST_PAUSE, 0.1 * 2.0 ** min(self._failures, 20))
        if not self._was_ready and self._failures >= _MAX_FAILURES:
            log_event("stopped", "error", reason="workers die before they are ready; see the lines above")
            self.code = 1
            self.should_exit.set()

    def handle_term(self) -> None:
        """Fail the readiness, and end after a delay; a second signal ends at once."""
        if self._end_at is not None:
            self.should_exit.set()
            return
        self._publisher.drain()
        self._end_at = monotonic() + self._options.drain_delay

    def handle_int(self) -> None:
        """End at once."""
        self.should_exit.set()

    def handle_hup(self) -> None:
        """Load all files again."""
        self._publisher.request_reload()


# The server


def open_listener(options: ServerOptions) -> socket.socket:
    """Listen on an address or a Unix socket; port 0 takes a free one."""
    host, port = options.host, options.port
    try:
        if options.socket is not None:
            path = Path(options.socket)
            if path.is_socket():
                path.unlink()
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen(_BACKLOG)
            return listener
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        where, advice = (options.socket, "--socket") if options.socket else (f"{host}:{port}", "--host or --port")
        raise OSError(f"cannot listen on {where}: {error.strerror or error}; choose another {advice}") from error


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """The address of a listening socket."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def serve(settings: ServiceSettings, options: ServerOptions) -> int:
    """Run a server until SIGTERM or SIGINT; returns the exit code."""
    dictConfig(LOG_CONFIG)
    logging.captureWarnings(True)  # of new items that the model does not know
    folder, held = make_folder()
    publisher, listener = None, None
    try:
        prepare_folder(folder)
        if options.certificate is not None:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                options.certificate, options.private_key
            )
        publishing = hold(folder / "publisher.lock")  # until this process ends
        publisher = Publisher(settings, folder)
        listener = open_listener(options)
        (folder / "metrics").mkdir()
        os.environ[metrics_module.FOLDER] = str(folder / "metrics")
        for name, value in _ONE_THREAD.items():
            os.environ.setdefault(name, value)
        url = url_of(listener, "http" if options.certificate is None else "https")
        config = make_config(settings, options, str(folder))
        versions = {name: published.version for name, published in publisher.manifest.arms.items()}

        def ready() -> None:
            log_event("listening", url=url, workers=options.workers, versions=versions)

        supervisor = Supervisor(config, listener, publisher, options, ready)
        publisher.start(process_metrics())
        supervisor.run()
        if supervisor.code == 0:
            log_event("stopped")
        release(publishing)
        return supervisor.code
    finally:
        if listener is not None:
            listener.close()
            if options.socket is not None:
                Path(options.socket).unlink(missing_ok=True)
        if publisher is not None:
            publisher.close()
        rmtree(folder, ignore_errors=True)
        release(held)
