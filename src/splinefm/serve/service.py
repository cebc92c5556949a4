"""ScoringService: the models of all arms, for an application or for your own server."""

from __future__ import annotations

import os
import shutil
import socket
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, NamedTuple

import pyarrow as pa

from splinefm._arrays import Float32Array, FloatArray
from splinefm._files import hold, release
from splinefm.inspect.shapley import ShapleyValues, shapley_values
from splinefm.serve.drift import DriftSample, show_expected
from splinefm.serve.feedback import FeedbackLog
from splinefm.serve.logs import log_event
from splinefm.serve.metrics import CollectorRegistry, Metrics, process_metrics
from splinefm.serve.models import LoadedModel, load_model
from splinefm.serve.publishing import (
    PAUSE,
    ChangeRefused,
    Follower,
    Manifest,
    Publisher,
    PublisherGone,
    make_folder,
    prepare_folder,
)
from splinefm.serve.rows import (
    ROW_ERRORS,
    Fault,
    FaultyRows,
    ListedRows,
    Names,
    NotServed,
    RequestRows,
    check_names,
    faults_of,
)
from splinefm.serve.scorer import Row
from splinefm.serve.serving import Scored, Serving
from splinefm.serve.settings import ServiceSettings
from splinefm.train.targets import Label

_START_SECONDS = 120.0  # for another process to publish the first manifest
_LOOKS_PER_SECOND = round(1.0 / PAUSE)


class Ranked(NamedTuple):
    """The best items for a context, best first, and which model found them."""

    ids: Any
    scores: Float32Array
    predictions: FloatArray
    arm: str
    version: str


class ScoringService:
    """The models of all arms: scores, rankings and explanations, reloads, a log and metrics.

    Everything that `splinefm serve` answers with, without HTTP. A reload replaces models in one step, and each call is
    answered by the models that it began with. Several threads may use one service; close it at the end.

    Parameters
    ----------
    model : path or ServiceSettings
        A model file, or settings with several arms.
    folder : path, optional
        A folder that processes of one service share: one of them verifies new files, and all load them. By default
        the service has a temporary folder of its own.
    registry : prometheus_client.CollectorRegistry, optional
        Where metrics are registered; by default the registry that other libraries use, too.
    may_publish : bool
        Whether the process may verify and publish files, if no other one does.
    **options
        Settings for a single model file, such as `index="items.sfi"`; see `ServiceSettings`.

    Examples
    --------
    >>> import tempfile
    >>> import splinefm as sf
    >>> from splinefm.serve import ScoringService
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 0.0, 1.0] * 50}
    >>> fitted = sf.fit_model(table, "y", model=sf.FM(k=4), training=sf.Training(epochs=2, threads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fitted.save(f"{folder}/model.sfm")
    ...     with ScoringService(f"{folder}/model.sfm") as service:
    ...         scored = service.score([{"x": 1.5, "c": "a"}, {"x": None, "c": "b"}])
    ...         print(scored.scores.shape, scored.arms, service.reload()["arms"])
    (2,) ['default'] {'default': 'unchanged'}
    """

    def __init__(
        self,
        model: str | Path | ServiceSettings,
        *,
        folder: str | Path | None = None,
        registry: CollectorRegistry | None = None,
        may_publish: bool = True,
        **options: Any,
    ) -> None:
        self.settings = ServiceSettings.of(model, **options)
        self.metrics = process_metrics() if registry is None else Metrics(registry)
        self.drift = DriftSample(self.metrics, self.settings.drift_rows) if self.settings.drift_rows else None
        self.background = BackgroundQueue()
        self.has_own_thread = True
        """Whether shadow arms are scored by the thread of the service; an application does it when it has time."""
        self.has_publisher = True
        """Whether a process publishes; if none does, and this one may not, it should end."""
        self.every_look: list[Callable[[], None]] = [self._follow_publisher, self._flush]
        self.every_second: list[Callable[[], None]] = [self._show_memory]
        """Tasks of the thread of the service; an application adds its own."""
        if self.drift is not None:
            self.every_second.append(self.drift.compare)
        self._may_publish = may_publish
        self._cleanup: Any = None
        if folder is None:
            path, held = make_folder()
            self._cleanup = weakref.finalize(self, _remove_folder, path, held, os.getpid())
        else:
            path, held = Path(folder), None
        self._folder = prepare_folder(path)
        self._publisher: Publisher | None = None
        self._publisher_lock: int | None = None
        self._failed: dict[str, str] = {}
        self._stopped = Event()
        try:
            if may_publish:
                self._try_to_publish()
            self.manifest = self._first_manifest()
            self.serving = self._load_first()
            self.log = self._open_log()
        except BaseException:
            self._close_publisher()
            if self._cleanup is not None:
                self._cleanup()
            raise
        self.metrics.workers.set(1.0)
        self._thread = Thread(target=self._run, name="service", daemon=True)
        self._thread.start()

    def __enter__(self) -> ScoringService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the log, and end the threads."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join()
        self.metrics.flush()
        self._close_publisher()
        self._follower.close()
        for gauge in (self.metrics.workers, self.metrics.resident_bytes, self.metrics.queue_length):
            gauge.set(0.0)
        if self.log is not None:
            self.log.close()
        if self._cleanup is not None:
            self._cleanup()

    # Answers

    def score(
        self,
        rows: Sequence[Row] | RequestRows | pa.Table,
        *,
        arm: str | None = None,
        request_id: str = "",
        serving: Serving | None = None,
    ) -> Scored:
        """Score all rows, or raise an error that names the row and the column.

        Parameters
        ----------
        rows : list of dicts or Arrow table
            The rows. Each has exactly the columns of the model, and the key if there is one.
        arm : str, optional
            The arm to ask; by default the arm of each row's key.
        request_id : str
            Names the rows in the log; it decides the arm if there is no key.
        serving : Serving, optional
            The models, by default the current ones.

        Raises
        ------
        FaultyRows
            If a row cannot be scored; then none is.
        """
        serving = serving or self.serving
        arm = serving.known_arm(arm)
        if isinstance(rows, pa.Table):
            found = serving.score_table(rows, request_id, arm)
            if self.log is not None:
                keys = rows.column(serving.key).to_pylist() if serving.key is not None else None
                self.log.scored(request_id, found.arms, found.predictions, keys, None, versions=found.versions)
            if self.drift is not None:
                self.drift.take(serving, found.arms, rows)
            return found
        rows = rows if isinstance(rows, RequestRows) else ListedRows(rows)
        found = serving.score(rows, request_id, arm)
        keys = None if serving.key is None or self.log is None else rows.column(serving.key)
        if self.log is not None:
            logged = rows.dicts if self.settings.log_rows else None
            self.log.scored(request_id, found.arms, found.predictions, keys, logged, versions=found.versions)
        if self.drift is not None and self.drift.has_room:
            self.drift.take(serving, found.arms, rows.dicts)
        for name in serving.shadows:
            work = partial(self._score_shadow, serving, request_id, rows, keys, name, found)
            if not self.background.add(len(rows), work):
                self.metrics.shadow_dropped.labels(name).inc(len(rows))
        return found

    def _score_shadow(
        self, serving: Serving, request_id: str, rows: RequestRows, keys: Any, name: str, found: Scored
    ) -> None:
        predictions = serving.shadow(name, rows, found.predictions)
        if self.log is not None and predictions is not None:
            versions = {name: serving.versions[name]}
            self.log.scored(request_id, [name], predictions, keys, None, shadow=True, versions=versions)

    def rank(
        self,
        context: Mapping[str, Any],
        k: int = 10,
        *,
        arm: str | None = None,
        request_id: str = "",
        allowed: Sequence[int | str] | None = None,
        excluded: Sequence[int | str] | None = None,
        group: str | Sequence[str] | None = None,
        serving: Serving | None = None,
    ) -> Ranked:
        """Find the best items of the index for a context, as `ItemIndex.top_k` does.

        Parameters
        ----------
        context : dict
            The columns of the context, and the key if there is one.
        k : int
            How many items.
        arm, request_id, serving
            As for `score`.
        allowed, excluded, group
            Which items may be found.

        Raises
        ------
        FaultyRows
            If the context or a filter cannot be used.
        """
        serving = serving or self.serving
        arm, key = serving.known_arm(arm), request_id
        if serving.key is not None and serving.key in context:
            key = context[serving.key]
            if key is None or isinstance(key, list | dict):
                raise FaultyRows([Fault(None, serving.key, f"the key {serving.key!r} must be text or a number")])
        name = arm or serving.split.arm_of(key)
        model = serving.loaded[name]
        index = model.index
        if index is None:
            raise NotServed(f"arm {name!r} has no index; start the server with --index")
        columns = index.context_columns
        known = [] if serving.key is None else [serving.key]
        faults = Names(columns, known, allow_extra=self.settings.allow_extra).faults(context, None)
        if faults:
            raise FaultyRows(faults)
        values = {column: context[column] for column in columns}
        try:
            index.check_context(values)
            ids, scores = index.top_k(values, k, allowed=allowed, excluded=excluded, group=group)
        except ROW_ERRORS as error:
            raise FaultyRows([Fault(None, None, str(error))]) from None
        predictions = model.predict(scores)
        if self.log is not None:
            keys = None if serving.key is None else [key] * len(ids)
            logged = dict(context) if self.settings.log_rows else None
            version = {name: model.published.version}
            self.log.scored(
                request_id, [name], predictions, keys, None,
                versions=version, items=ids.tolist(), scores=scores.tolist(), context=logged,
            )  # fmt: skip
        return Ranked(ids, scores, predictions, name, model.published.version)

    def explain(
        self,
        rows: Sequence[Row],
        *,
        arm: str | None = None,
        label: Label | None = None,
        serving: Serving | None = None,
    ) -> ShapleyValues:
        """Shapley values of rows, compared with the background.

        Parameters
        ----------
        rows : list of dicts
            The rows.
        arm : str, optional
            The arm to explain; by default the first.
        label : str or int, optional
            The class whose score to explain, if there are more than two.
        serving : Serving, optional
            The models, by default the current ones.
        """
        serving = serving or self.serving
        model = serving.model_of(arm)
        if model.background_path is None:
            raise NotServed("Shapley values compare with other rows; start the server with --background TABLE")
        check_names(serving.names, rows)
        faults = faults_of(model, serving.names, rows)
        if faults:
            raise FaultyRows(faults)
        table = {name: [row[name] for row in rows] for name in model.columns}
        background = model.background(label)
        assert background is not None  # since there is a table
        return shapley_values(background.fitted, table, background, threads=1)

    # Changes

    def reload(self, arm: str | None = None) -> dict[str, Any]:
        """Verify and load the files of an arm again, or of all; returns when all processes have switched.

        Parameters
        ----------
        arm : str, optional
            The arm; by default all of them.

        Returns
        -------
        dict
            For each arm "loaded" or "unchanged", and its version.

        Raises
        ------
        ChangeRefused
            If a file is damaged or has other columns, classes or another loss: the old model stays.
        """
        if arm is not None and arm not in self.manifest.arms:
            raise NotServed(f"no arm {arm!r:.80}; the arms are {', '.join(map(repr, self.manifest.arms))}")
        return self._ask({"reload": arm})

    def set_weights(self, weights: Mapping[str, float]) -> dict[str, Any]:
        """Change weights of arms in all processes.

        Parameters
        ----------
        weights : dict of str to float
            New weights; arms that are not named keep theirs.
        """
        return self._ask({"weights": dict(weights)})

    def change_items(
        self,
        *,
        add: Sequence[Mapping[str, Any]] = (),
        update: Sequence[Mapping[str, Any]] = (),
        remove: Sequence[int | str] = (),
        arm: str | None = None,
    ) -> dict[str, Any]:
        """Remove, replace and add items of an index in all processes, all of them or none.

        The changes last until the index file of the arm is replaced, or the service ends.

        Parameters
        ----------
        add, update : sequence of dict
            Items: `{"id": 7, "values": {"country": "FR"}}`, with a value for every column of an item, and with a
            "group" if the index has groups.
        remove : sequence of ids
            The items that go.
        arm : str, optional
            The arm whose index it is; not needed if one arm has an index.

        Returns
        -------
        dict
            The arm, its new version, and the number of items.

        Raises
        ------
        ChangeRefused
            If an item cannot be used, one to add is there already, or one to update or remove is not there.
        """
        arm = self.arm_of_items(arm)
        added, updated = ([{"group": None, **item} for item in items] for items in (add, update))
        return self._ask({"items": {"add": added, "update": updated, "remove": list(remove)}, "arm": arm})

    def arm_of_items(self, arm: str | None) -> str:
        """The arm whose items are changed: the given one, or the only one with an index."""
        indexed = [name for name, published in self.manifest.arms.items() if published.index is not None]
        if arm in indexed:
            return str(arm)
        if not indexed:
            raise NotServed("no arm has an index; start the server with --index")
        if arm is not None or len(indexed) > 1:
            names = ", ".join(map(repr, indexed))
            raise NotServed(f"name an arm with an index, which are {names}; got {arm!r:.80}")
        return indexed[0]

    def _ask(self, change: Mapping[str, Any]) -> dict[str, Any]:
        """Have the process that publishes make a change."""
        if self._publisher is not None:
            return self._publisher.make(change)
        name = self._follower.request_change(change)
        while name not in self.manifest.answers:
            if self._stopped.is_set() or not self.has_publisher:
                raise PublisherGone("the server was killed before it had answered; ask again once it is back")
            sleep(PAUSE / 5)
        answer = self.manifest.answers[name]
        if "error" in answer:
            raise ChangeRefused(answer["error"])
        return answer

    # Following the manifest

    def _try_to_publish(self) -> None:
        held = hold(self._folder / "publisher.lock")
        if held is None and self._cleanup is None:
            return  # another process publishes
        self._publisher_lock = held
        self._publisher = Publisher(self.settings, self._folder)
        self._publisher.start(self.metrics)

    def _close_publisher(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None
        release(self._publisher_lock)
        self._publisher_lock = None

    def _first_manifest(self) -> Manifest:
        self._follower = Follower(self._folder)
        end = monotonic() + _START_SECONDS
        while (found := self._follower.new_manifest()) is None:
            if monotonic() > end:
                raise TimeoutError(f"no process has published models in {str(self._folder)!r}")
            sleep(PAUSE)
        return found

    def _load_first(self) -> Serving:
        while True:
            try:
                loaded = {name: self._load(published) for name, published in self.manifest.arms.items()}
            except (OSError, ValueError):
                newer = self._follower.new_manifest()
                if newer is None:
                    raise
                self.manifest = newer  # the files were replaced meanwhile
                continue
            self._follower.report(self.manifest.number, {})
            return Serving(self.settings, loaded, self.manifest.weights, self.metrics)

    def _load(self, published: Any, before: LoadedModel | None = None) -> LoadedModel:
        held = self._follower.lock_loading()
        try:
            model = load_model(published, self.settings.background, before)
            model.warm()
        finally:
            release(held)
        show_expected(model, self.metrics)
        self.metrics.generation.labels(published.arm).set(published.generation)
        return model

    def _follow(self) -> None:
        """Switch to the newest manifest, if there is a new one."""
        manifest = self._follower.new_manifest()
        if manifest is None:
            return
        loaded, self._failed = dict(self.serving.loaded), {}
        for name, published in manifest.arms.items():
            if loaded[name].published != published:
                try:
                    loaded[name] = self._load(published, loaded[name])
                except Exception as error:  # the old model stays
                    self._failed[name] = str(error) or type(error).__name__
        if loaded != self.serving.loaded or manifest.weights != self.serving.split.weights:
            self.serving = Serving(self.settings, loaded, manifest.weights, self.metrics)
        self.manifest = manifest
        self._follower.report(manifest.number, self._failed)

    # Time

    def _run(self) -> None:
        """Look after the manifest, the log and the metrics; nothing that fails ends it."""
        number = 0
        while not self._stopped.wait(PAUSE):
            number += 1
            self.attempt("follow", self._follow)
            self.attempt("metrics", self.metrics.flush)
            if number % 4 == 0:
                for work in self.every_look:
                    self.attempt(work.__name__.strip("_"), work)
            if number % _LOOKS_PER_SECOND == 0:
                for work in self.every_second:
                    self.attempt(work.__name__.strip("_"), work)
            while self.has_own_thread and self.background:
                self.attempt("shadow", self.background.do_one)

    def attempt(self, task: str, work: Callable[[], None]) -> None:
        """Do what no answer depends on; an error is logged and counted."""
        try:
            work()
        except Exception as error:
            self.metrics.internal_errors.labels(task).inc()
            log_event("task failed", "error", task=task, error=f"{type(error).__name__}: {error}")

    def _follow_publisher(self) -> None:
        if self._publisher is None and not self._follower.has_publisher():
            if self._may_publish:
                self._try_to_publish()
            else:
                self.has_publisher = False

    def _show_memory(self) -> None:
        self.metrics.resident_bytes.set(_resident_bytes())
        self.metrics.workers.set(float(not self.manifest.draining))

    # The log

    def _open_log(self) -> FeedbackLog | None:
        if self.settings.log is None:
            return None
        return FeedbackLog(self.settings.log, f"{socket.gethostname()}-{os.getpid()}")

    @property
    def log_error(self) -> str | None:
        """Why the log cannot be written."""
        error = None if self.log is None else self.log.error
        return None if error is None else (error.strerror or str(error))

    def _flush(self) -> None:
        if self.log is None:
            return
        was_failing = self.log_error is not None
        try:
            self.log.flush()
        except OSError as error:
            self.metrics.log_errors.inc()
            if not self._log_failed:
                log_event("log not written", "error", error=str(error))
        self._log_failed = self.log_error is not None
        if was_failing and not self._log_failed:
            log_event("log written again", dropped=self.log.n_dropped)
        self.metrics.log_failing.set(float(self._log_failed))

    _log_failed = False


class BackgroundQueue:
    """Work on rows that no answer depends on; it is dropped if too much comes together."""

    MAX_ROWS = 20_000
    """Rows that may wait."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._rows = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, rows: int, work: Callable[[], None]) -> bool:
        """Add work on some rows; False if there is no room for it."""
        if self._rows + rows > self.MAX_ROWS:
            return False
        self._rows += rows
        self._waiting.append((rows, work))
        return True

    def do_one(self) -> None:
        """Do what has waited longest."""
        rows, work = self._waiting.popleft()
        self._rows -= rows
        work()


def _remove_folder(folder: Path, held: int | None, pid: int) -> None:
    if os.getpid() == pid:  # not in a process that was forked
        shutil.rmtree(folder, ignore_errors=True)
        release(held)


def _resident_bytes() -> int:
    """Memory of the process; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * 4096
    except OSError:
        return 0
