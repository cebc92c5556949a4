"""New models for all processes of a service: one process verifies files and publishes a manifest, the others follow it.

The processes share a folder:

    manifest.json      versions and copies of all models, and the weights; replaced in one step
    publisher.lock     held by the process that verifies and publishes
    load.lock          held by the process that loads: one after the other
    changes/           requests for reloads, weights and items, which the publisher answers in the manifest
    workers/           a lock and the number of the last manifest of each process that follows
    models/            the copies

A file is copied before it is verified, so that it cannot change under the processes that have mapped it, all of them
load the same bytes, and checksums are verified once for all (decision 68).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event, RLock, Thread
from time import monotonic, sleep
from typing import Any

from splinefm._files import hold, release, remove_abandoned
from splinefm.encode.tables.names import quoted
from splinefm.rank.index import ItemIndex
from splinefm.serve.logs import log_event
from splinefm.serve.metrics import Metrics
from splinefm.serve.models import Published, check_compatible, contract, verify
from splinefm.serve.settings import Arm, ServiceSettings
from splinefm.serve.split import ArmSplit
from splinefm.store.model_file import load
from splinefm.train.fitted import Fitted
from splinefm.update.compare import check_comparable, compare, excess

PAUSE = 0.05
"""Seconds between two looks at the folder."""
_BLOCK = 1 << 20
_FOLDER = "splinefm-serve-"
_LOAD_SECONDS = 120.0  # for the processes to load a model
_MAX_ANSWERS = 100  # of the last changes, which a manifest has


class ChangeRefused(ValueError):
    """A file or weights that are not taken; what was served before still is."""


class PublisherGone(RuntimeError):
    """The process that verifies and publishes has ended."""


@dataclass(frozen=True)
class Manifest:
    """What is served.

    Parameters
    ----------
    number : int
        Counts manifests.
    arms : dict of str to Published
        The files of each arm.
    weights : dict of str to float
        The weights of the arms that are shown.
    refused : dict of str to str
        Why the newest file of an arm was refused.
    draining : bool
        Whether the service is about to end.
    answers : dict of str to dict
        Answers to the last requests for changes.
    """

    number: int
    arms: dict[str, Published]
    weights: dict[str, float]
    refused: dict[str, str] = field(default_factory=dict)
    draining: bool = False
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path) -> Manifest | None:
        """The manifest of a folder, if there is one."""
        try:
            content = json.loads((folder / "manifest.json").read_bytes())
        except FileNotFoundError:
            return None
        arms = {name: Published(**values) for name, values in content["arms"].items()}
        return Manifest(**{**content, "arms": arms})

    def write(self, folder: Path) -> None:
        """Replace the manifest of a folder."""
        _replace(folder / "manifest.json", asdict(self))


def _replace(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON to a file in one step; nothing has to survive a crash of the machine."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    new.write_text(json.dumps(content), encoding="utf-8")
    new.replace(path)


def make_folder() -> tuple[Path, int | None]:
    """A new temporary folder, and what holds it; folders of services that were killed are removed."""
    remove_abandoned(Path(tempfile.gettempdir()), re.compile(re.escape(_FOLDER) + r"[a-z0-9_]{8}"))
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        held = hold(folder)
        if held is None:
            sleep(0.1)  # either the disk has no locks, or another service takes the folder for abandoned
        if folder.is_dir():
            return folder, held


def prepare_folder(folder: Path) -> Path:
    """Make the parts of a shared folder."""
    for name in ("changes", "workers", "models"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("publisher.lock", "load.lock"):
        (folder / name).touch()
    return folder


class Follower:
    """A process that serves what the manifest says: it tells the publisher how far it is.

    Parameters
    ----------
    folder : path
        The shared folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "workers" / f"{os.getpid()}-{secrets.token_hex(4)}"
        self._stamp: Stamp = None
        self._path.touch()
        self._held = hold(self._path)

    def new_manifest(self) -> Manifest | None:
        """The manifest, if it changed since the last call."""
        stamp = stamp_of(self._folder / "manifest.json")
        if stamp == self._stamp:
            return None
        found = Manifest.read(self._folder)
        self._stamp = stamp
        return found

    def report(self, number: int, failed: Mapping[str, str]) -> None:
        """Tell which manifest is served, and which arms could not be loaded."""
        _replace(self._path.with_suffix(".json"), {"number": number, "failed": dict(failed)})

    def lock_loading(self) -> int | None:
        """Wait until no other process loads a model; `release` what is returned."""
        end = monotonic() + _LOAD_SECONDS
        while (held := hold(self._folder / "load.lock")) is None and monotonic() < end:
            sleep(PAUSE / 5)
        return held

    def has_publisher(self) -> bool:
        """Whether a process verifies and publishes."""
        held = hold(self._folder / "publisher.lock")
        release(held)
        return held is None

    def request_change(self, change: Mapping[str, Any]) -> str:
        """Ask the publisher for a change; returns the name of its answer in a later manifest."""
        name = secrets.token_hex(8)
        _replace(self._folder / "changes" / name, change)
        return name

    def close(self) -> None:
        """Stop following."""
        for path in (self._path.with_suffix(".json"), self._path):
            path.unlink(missing_ok=True)
        release(self._held)


class Publisher:
    """Verifies the files of all arms and publishes manifests; one process of a service has it.

    Parameters
    ----------
    settings : ServiceSettings
        The arms.
    folder : path
        The shared folder.

    Attributes
    ----------
    manifest : Manifest
        What is served.
    """

    def __init__(self, settings: ServiceSettings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._metrics: Metrics | None = None
        self._arms = {arm.name: arm for arm in settings.arms}
        self._snapshots = Snapshots(folder / "models", settings.background, settings.max_change)
        self._watcher = Watcher({arm.name: [arm.model, arm.index] for arm in settings.arms})
        self._changing = RLock()
        self._stopped = Event()
        self._thread: Thread | None = None
        weights = {arm.name: arm.weight for arm in settings.arms if not arm.shadow}
        before = Manifest.read(folder)
        self.manifest = before or Manifest(0, {}, weights)
        if before is None:
            for arm in settings.arms:
                published = self._snapshots.publish(arm)
                assert published is not None  # nothing was served before
                self._snapshots.accept(published)
            check_arms_agree({name: self._snapshots.contracts[name] for name in weights})
        else:  # of a publisher that has ended
            for published in before.arms.values():
                self._snapshots.adopt(published)
        self._publish(arms=dict(self._snapshots.current))

    def start(self, metrics: Metrics) -> None:
        """Answer requests for changes, and watch the files if that is wanted, on a thread."""
        self._metrics = metrics
        self._show()
        self._thread = Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the thread end."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def reload(self, name: str | None = None) -> dict[str, Any]:
        """Publish the files of an arm again, or of all; returns when all processes have switched."""
        names = list(self._arms) if name is None else [name]
        results = {name: self._reload(self._arms[name]) for name in names}
        self._wait()  # all processes tell of files that were refused
        refused = {name: self.manifest.refused[name] for name, result in results.items() if result == "refused"}
        if refused:
            raise ChangeRefused("; ".join(f"{name}: {text}" for name, text in refused.items()))
        return {"arms": results, "versions": {name: self.manifest.arms[name].version for name in names}}

    def set_weights(self, weights: Mapping[str, float]) -> dict[str, Any]:
        """Change weights of arms; returns when all processes have switched."""
        with self._changing:
            changed = {**self.manifest.weights, **weights}
            try:
                ArmSplit(changed)
            except ValueError as error:
                raise ChangeRefused(str(error)) from None
            self._publish(weights=changed)
            self._show()
            log_event("weights", weights=changed)
            self._wait()
            return {"weights": changed}

    def change_items(self, arm: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Remove, replace and add items of an index, all or none; returns when all processes have switched."""
        with self._changing:
            try:
                published, n_items = self._snapshots.change_items(arm, changes)
                self._hand_out(published)
            except Exception as error:  # whatever is wrong with an item, the old index stays
                raise ChangeRefused(f"the items stay as they were: {error or type(error).__name__}") from None
            added, updated, removed = (len(changes[name]) for name in ("add", "update", "remove"))
            counts = {"added": added, "updated": updated, "removed": removed, "items": n_items}
            log_event("items", arm=arm, version=published.version, counts=counts)
            return {"arm": arm, "version": published.version, "items": n_items}

    def request_reload(self) -> None:
        """Have the thread publish the files of all arms again."""
        _replace(self._folder / "changes" / secrets.token_hex(8), {"reload": None})

    def drain(self) -> None:
        """Tell all processes that the service is about to end."""
        with self._changing:
            self._publish(draining=True)

    def _run(self) -> None:
        looks = round(Watcher.PAUSE / PAUSE)
        number = 0
        while not self._stopped.wait(PAUSE):
            number += 1
            try:
                for path in sorted((self._folder / "changes").glob("[!.]*")):
                    self._answer(path)
                if self._settings.watch and number % looks == 0:
                    for name in self._watcher.changed():
                        self._reload(self._arms[name])
            except Exception as error:  # the thread has to go on
                log_event("publisher failed", "error", error=f"{type(error).__name__}: {error}")
                if self._metrics is not None:
                    self._metrics.internal_errors.labels("publisher").inc()

    def _answer(self, path: Path) -> None:
        change = json.loads(path.read_bytes())
        path.unlink()
        try:
            answer = self.make(change)
        except ChangeRefused as error:
            answer = {"error": str(error)}
        with self._changing:
            answers = {**self.manifest.answers, path.name: answer}
            self._publish(answers=dict(list(answers.items())[-_MAX_ANSWERS:]))

    def make(self, change: Mapping[str, Any]) -> dict[str, Any]:
        """Make a change of weights, items or files; returns when all processes have switched."""
        if "weights" in change:
            return self.set_weights(change["weights"])
        if "items" in change:
            return self.change_items(change["arm"], change["items"])
        return self.reload(change["reload"])

    def _publish(self, **changes: Any) -> None:
        with self._changing:
            self.manifest = replace(self.manifest, number=self.manifest.number + 1, **changes)
            self.manifest.write(self._folder)

    def _show(self, counted: tuple[str, str] | None = None) -> None:
        if self._metrics is None:
            return
        if counted is not None:
            self._metrics.reloads.labels(*counted).inc()
        for name, weight in self.manifest.weights.items():
            self._metrics.arm_weight.labels(name).set(weight)
        for name in self._arms:
            self._metrics.reload_refused.labels(name).set(float(name in self.manifest.refused))

    def _reload(self, arm: Arm) -> str:
        """Publish the files of an arm again: "loaded", "unchanged" or "refused"."""
        with self._changing:
            try:
                published = self._snapshots.publish(arm)
                if published is not None:
                    self._hand_out(published)
            except Exception as error:  # whatever is wrong with a file, the old one stays
                reason = str(error) or type(error).__name__
                self._publish(refused=self.manifest.refused | {arm.name: reason})
                self._show((arm.name, "refused"))
                log_event("refused", "warning", arm=arm.name, reason=reason)
                return "refused"
            if arm.name in self.manifest.refused:
                self._publish(refused={name: text for name, text in self.manifest.refused.items() if name != arm.name})
                self._show()
            if published is None:
                return "unchanged"
            log_event("loaded", arm=arm.name, version=published.version, generation=published.generation)
            self._show((arm.name, "loaded"))
            return "loaded"

    def _hand_out(self, published: Published) -> None:
        """Have all processes load a snapshot; if one cannot, all go back to the one before."""
        before = self.manifest.arms
        self._publish(arms=before | {published.arm: published})
        failed = self._wait()
        if failed:
            self._publish(arms=before)
            self._wait()
            self._snapshots.discard(published)
            raise ValueError(f"a worker could not load it: {failed}")
        self._snapshots.accept(published)

    def _wait(self) -> str | None:
        """Wait until all processes that serve have switched to the manifest; returns what went wrong."""
        number, end = self.manifest.number, monotonic() + _LOAD_SECONDS
        waiting = [path for path in (self._folder / "workers").iterdir() if not path.suffix]
        while waiting and not self._stopped.is_set():
            if monotonic() > end:
                return "it took too long"
            for path in tuple(waiting):
                known = _read_json(path.with_suffix(".json"))
                if known.get("failed") and known["number"] >= number:
                    return "; ".join(known["failed"].values())
                # One that has not reported yet is starting, and will read the newest manifest.
                if not known or known["number"] >= number or _is_abandoned(path):
                    waiting.remove(path)
            if waiting:
                sleep(PAUSE / 5)
        return None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found
    except FileNotFoundError:
        return {}


def _is_abandoned(path: Path) -> bool:
    """Whether the process that held a file has ended; then its files are removed."""
    held = hold(path)
    if held is None and path.exists():
        return False
    for each in (path.with_suffix(".json"), path):
        each.unlink(missing_ok=True)
    release(held)
    return True


Stamp = tuple[int, int, int] | None


class Snapshots:
    """The verified copies of all files.

    Parameters
    ----------
    folder : path
        A folder that belongs to the server.
    background : str, optional
        Path of the rows that explanations compare with; every model must take them.
    max_change : float, optional
        How far a new model may move the score of any segment from the one before.
    """

    def __init__(self, folder: Path, background: str | None = None, max_change: float | None = None) -> None:
        self._folder, self._background, self._max_change = folder, background, max_change
        self.current: dict[str, Published] = {}
        self.contracts: dict[str, dict[str, Any]] = {}

    def publish(self, arm: Arm) -> Published | None:
        """Copy and verify the files of an arm; None if they are those that are served already.

        The snapshot becomes `current` by `accept`, once the workers have it.

        Raises
        ------
        ValueError, OSError
            If a file is missing, damaged, or does not fit to clients of the one before.
        """
        before = self.current.get(arm.name)
        generation = 1 if before is None else before.generation + 1
        copies: list[Path] = []
        try:
            model, sha256 = self._copy(arm.model, f"{arm.name}.{generation}.model", copies)
            index, index_sha256 = None, None
            if arm.index is not None:
                index, index_sha256 = self._copy(arm.index, f"{arm.name}.{generation}.index", copies)
            if before is not None and (before.sha256, before.index_file_sha256) == (sha256, index_sha256):
                _remove(copies)
                return None
            try:
                fitted = verify(model, index, self._background)
                promised = contract(fitted)
            except ValueError as error:  # which names our copies
                files = " and ".join(repr(path) for path in (arm.model, arm.index) if path is not None)
                raise ValueError(f"cannot serve {files}, of which copies were read: {error}") from error
            if before is not None:
                _check_fits(self.contracts[arm.name], promised, arm.model)
            if self._max_change is not None:
                self._check_change(before, fitted, sha256, arm.model)
            self.contracts.setdefault(arm.name, promised)
        except BaseException:
            _remove(copies)
            raise
        copied = None if index is None else str(index)
        return Published(
            arm.name, str(model), copied, sha256, index_sha256, arm.model, generation, index_file_sha256=index_sha256
        )

    def _check_change(self, before: Published | None, fitted: Fitted, sha256: str, source: str) -> None:
        """Raise where a model may move a score further than `max_change`, or cannot be compared at all."""
        if self._max_change is None or (before is not None and before.sha256 == sha256):
            return
        try:
            if before is None:
                check_comparable(fitted, fitted)
                return
            reason = excess(compare(load(before.model), fitted), self._max_change)
        except ValueError as error:
            reason = f"how far scores move is not known: {error}"
        if reason is not None:
            raise ValueError(f"{source!r} is not served: {reason}")

    def change_items(self, arm: str, changes: Mapping[str, Any]) -> tuple[Published, int]:
        """Write a copy of an index with other items; returns the snapshot, with the same model, and how many items."""
        before = self.current[arm]
        if before.index is None:
            raise ValueError(f"arm {arm!r} has no index; start the server with --index")
        index = ItemIndex.load(before.index, load(before.model, mmap=True), mmap=False)
        if changes["remove"]:
            index.remove(changes["remove"])
        for name, change in (("update", index.update), ("add", index.add)):
            if changes[name]:
                change(*_as_table(changes[name], index.item_columns), groups=_groups(changes[name], index), threads=1)
        generation = before.generation + 1
        path = self._folder / f"{arm}.{generation}.index{Path(before.index).suffix}"
        index.save(path)
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return replace(before, index=str(path), index_sha256=sha256, generation=generation), len(index)

    def accept(self, published: Published) -> None:
        """Serve a snapshot; the one before is removed; processes that have it mapped keep it."""
        before = self.current.get(published.arm)
        self.current[published.arm] = published
        if before is not None:
            self.discard(before)

    def adopt(self, published: Published) -> None:
        """Go on with a snapshot of another process, which has verified it."""
        index = None if published.index is None else Path(published.index)
        self.contracts[published.arm] = contract(verify(Path(published.model), index, self._background))
        self.current[published.arm] = published

    def discard(self, published: Published) -> None:
        """Remove the files of a snapshot that no current one has: a change of items keeps the model."""
        used = {path for other in self.current.values() for path in (other.model, other.index)}
        _remove([Path(path) for path in (published.model, published.index) if path is not None and path not in used])

    def _copy(self, source: str, name: str, copies: list[Path]) -> tuple[Path, str]:
        """Copy a file, and return where to and the checksum of what was copied."""
        path = Path(source)
        if not path.is_file():
            raise FileNotFoundError(
                f"no file {source!r}; Fitted.save, ItemIndex.save and splinefm fit write such files"
            )
        target = self._folder / f"{name}{path.suffix}"
        copies.append(target)
        digest = hashlib.sha256()
        with path.open("rb") as file, target.open("wb") as out:
            while block := file.read(_BLOCK):
                digest.update(block)
                out.write(block)
        return target, digest.hexdigest()


def _as_table(items: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[dict[str, list[Any]], list[int | str]]:
    """The columns of items, and their ids; raise unless each item has exactly these columns."""
    for item in items:
        if {*names} != {*item["values"]}:
            given = quoted(sorted(item["values"])) or "none"
            raise ValueError(
                f"item {item['id']!r:.80} must have values of {quoted(names)}, but has {given:.200}; "
                "a missing value is null"
            )
    return {name: [item["values"][name] for item in items] for name in names}, [item["id"] for item in items]


def _groups(items: Sequence[Mapping[str, Any]], index: ItemIndex) -> list[str | None] | None:
    groups = [item["group"] for item in items]
    return groups if index.groups or any(group is not None for group in groups) else None


def check_arms_agree(contracts: dict[str, dict[str, Any]]) -> None:
    """Raise where the answers of arms that are shown would not have the same form."""
    first, *others = contracts.items()
    for name, other in others:
        for what in ("classes", "scores per row"):
            if other[what] != first[1][what]:
                raise ValueError(
                    f"arms {first[0]!r} and {name!r} differ in their {what} ({first[1][what]} and {other[what]}); "
                    "arms of one split answer the same question"
                )


def _check_fits(old: dict[str, Any], new: dict[str, Any], source: str) -> None:
    try:
        check_compatible(old, new)
    except ValueError as error:
        raise ValueError(f"{source!r} is not served: {error}") from None


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


class Watcher:
    """Looks at files; a change counts once the file has stayed the same for a whole pause.

    So a file that is being written is left alone. Replacing a file in one step, as `Fitted.save` does, is better still.

    Parameters
    ----------
    files : mapping of str to sequence of path
        The files of each arm; None for one that it does not have.
    """

    PAUSE = 0.5
    """Seconds between two looks."""

    def __init__(self, files: Mapping[str, Sequence[str | None]]) -> None:
        self._files = {name: [Path(path) for path in paths if path is not None] for name, paths in files.items()}
        self._known = {name: self._stamps(name) for name in self._files}
        self._last = dict(self._known)

    def changed(self) -> list[str]:
        """Arms whose files differ from those that were known, and from nothing since the last look."""
        found = []
        for name in self._files:
            now = self._stamps(name)
            if now != self._known[name] and now == self._last[name] and None not in now:
                self._known[name] = now
                found.append(name)
            self._last[name] = now
        return found

    def _stamps(self, name: str) -> list[Stamp]:
        return [stamp_of(path) for path in self._files[name]]


def stamp_of(path: Path) -> Stamp:
    """What changes when a file does; None if there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
