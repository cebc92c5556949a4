"""The state of the optimizers of an update on several processes, beside its model: `update.state` for processes.

Every process writes what it has to a file of its own in the folder `path + ".rank-state"`: no machine may hold all of
it. An index names these files and the model, by its identity. It is written just before the model is replaced, and the
files of older states are removed just after: a crash leaves the old model with its old state, or the new model with its
new one.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from splinefm._arrays import Array
from splinefm._files import replacing, sync_folder
from splinefm.distribute.model import ParallelModel, set_penalties
from splinefm.distribute.results import write_result
from splinefm.store.container import ModelFileError, opened, read_container, require, write_container
from splinefm.store.sharded import Entry, make_entry, open_entry, version
from splinefm.train.fitted import Fitted

FORMAT = 1
_INDEX, _PART = ".index", ".moments"
_ADVICE = "remove its folder to update the model as after a fit, without what the optimizer has learned"


class _Moments(NamedTuple):
    """Neighboring rows of a moment that are in this process: the first row, and the values, which can be written to."""

    first: int
    values: torch.Tensor


@dataclass(frozen=True)
class OptimizerState:
    """Where an earlier update on processes stopped; made by `find_optimizer_state`."""

    folder: Path
    optimizer: str  # the optimizer of large tables
    n_steps: int
    penalties: Array  # the adapted penalties of all groups
    entries: tuple[Entry, ...]  # the files of all processes

    def restore(self, model: ParallelModel) -> None:
        """Set the moments of this process, for any number of processes; moments of new features stay zero."""
        own = dict(_moments(model, on_every_process=True))
        with model.processes.fail_together():
            for entry in self.entries:  # one at a time: each is as large as what a process has
                for name, first, values in _read_part(self.folder, entry):
                    for mine in own.get(name, ()):
                        _copy(mine, first, values)
            require(
                self.penalties.shape == model.penalties.shape, f"the state in {str(self.folder)!r} has other groups"
            )
        model.dense.n_steps = self.n_steps
        set_penalties(model, self.penalties)


def optimizer_state_path(model: Path) -> Path:
    """Return the folder of the state of a model.

    Examples
    --------
    >>> optimizer_state_path(Path("model.sfm")).name
    'model.sfm.rank-state'
    """
    return model.with_name(model.name + ".rank-state")


def find_optimizer_state(model: Path, identity: str, optimizer: str, *, warn: bool) -> OptimizerState | None:
    """Return the state that belongs to a model; another one beside it is ignored, with a warning on one process."""
    folder = optimizer_state_path(model.resolve())
    found = sorted(folder.glob(f"*{_INDEX}"))
    for path in found:
        with opened(path, _ADVICE) as file:
            about = read_container(file, FORMAT)[0]["learner"]
            if about["model"] == identity:
                return _restored(folder, about, optimizer)
    if found and warn:
        warnings.warn(
            f"{str(folder)!r} belongs to another model than {str(model)!r} and is ignored: the optimizer starts again, "
            "as after a fit",
            stacklevel=2,
        )
    return None


def _restored(folder: Path, about: Mapping[str, Any], optimizer: str) -> OptimizerState:
    n_steps = about["number"]
    require(type(n_steps) is int and 0 <= n_steps < 2**62, f"it has {n_steps!r} steps")
    penalties = np.array(about["penalties"], np.float64)
    require(penalties.ndim == 2 and bool((penalties >= 0.0).all()), "a penalty is negative or not a number")
    entries = tuple(map(Entry.from_dict, about["files"]))
    if about["optimizer"] != optimizer:
        raise ModelFileError(
            f"the state belongs to {str(about['optimizer'])[:20]}, and the optimizer of large tables is {optimizer}; "
            f"continue with --table-optimizer {str(about['optimizer'])[:20]}, or remove the folder"
        )
    return OptimizerState(folder, optimizer, n_steps, penalties, entries)


def write_with_state(out: Path, sharded: bool, head: Fitted, model: ParallelModel, optimizer: str) -> None:
    """Write the model of all processes as `write_result` does, and the state of its optimizers beside it."""
    processes, folder = model.processes, optimizer_state_path(out.resolve())
    with processes.fail_together():
        if processes.first:
            folder.mkdir(exist_ok=True)
    save = processes.broadcast(secrets.token_hex(8).encode()).decode()
    with processes.fail_together():
        entry = _write_part(folder / f"{save}-{processes.index:05}{_PART}", model).to_dict()
    entries = processes.gather_json(entry)

    def before(identity: str) -> None:
        about = {"model": identity, "optimizer": optimizer, "number": model.dense.n_steps, "files": entries}
        with replacing(folder / f"{save}{_INDEX}") as file:
            write_container(file, FORMAT, version(), {"learner": about | {"penalties": model.penalties.tolist()}}, {})
        sync_folder(folder)

    try:
        write_result(out, sharded, head, model, before)
    except BaseException:
        if processes.first and not (folder / f"{save}{_INDEX}").exists():  # else the model may have been replaced
            _remove(folder, lambda name: name.startswith(save))
        raise
    if processes.first:
        _remove(folder, lambda name: not name.startswith(save))


def _remove(folder: Path, chosen: Callable[[str], bool]) -> None:
    for path in folder.iterdir():
        if path.name.endswith((_INDEX, _PART)) and chosen(path.name):
            with suppress(OSError):  # it is only in the way
                path.unlink()


def _write_part(path: Path, model: ParallelModel) -> Entry:
    """Write what this process has, with the first row of each array."""
    arrays: dict[str, Array] = {}
    places: list[list[str | int]] = []
    for name, parts in _moments(model, on_every_process=False):
        for first, values in parts:
            key = f"{len(places):05}"
            arrays[key] = np.ascontiguousarray(values.detach().cpu().numpy(), "<f4")
            places.append([key, name, first])
    with replacing(path) as file:
        write_container(file, FORMAT, version(), {"moments": places}, arrays)
    return make_entry(path)


def _read_part(folder: Path, entry: Entry) -> Iterator[tuple[str, int, torch.Tensor]]:
    """Yield name, first row and values of the arrays of a file."""
    with opened(open_entry(folder, entry), _ADVICE) as file:
        description, arrays = read_container(file, FORMAT)
        for key, name, first in description["moments"]:
            values = arrays.pop(key)
            require(bool(np.isfinite(values).all()), f"{name} holds NaN or infinity")
            yield name, int(first), torch.from_numpy(values)


def _copy(mine: _Moments, first: int, values: torch.Tensor) -> None:
    """Copy the rows that two parts of a moment have in common."""
    if mine.values.ndim == 0 or values.shape[1:] != mine.values.shape[1:]:
        return
    begin, end = max(first, mine.first), min(first + len(values), mine.first + len(mine.values))
    if begin < end:
        rows = values[begin - first : end - first]
        mine.values[begin - mine.first : end - mine.first] = rows.to(mine.values)


def _moments(model: ParallelModel, *, on_every_process: bool) -> Iterator[tuple[str, list[_Moments]]]:
    """Yield the moments in this process by name; for small tables on process 0 only, unless `on_every_process`."""
    state = model.parallel.fused_optimizer.state_dict()["state"]
    for own in state.values():
        for name, values in own.items():
            if hasattr(values, "local_shards"):
                yield (
                    f"large/{name}",
                    [_Moments(s.metadata.shard_offsets[0], s.tensor) for s in values.local_shards() if len(s.tensor)],
                )
    if not (on_every_process or model.processes.first):
        return
    dense = model.dense
    for part in "mv":
        tables = dense.state[f"{part}_tables"].split(dense.rows)
        for name, rows in zip(model.small, tables, strict=True):
            yield f"small/{name}/{part}", [_Moments(0, rows)]
        for i in range(len(dense.flat)):
            yield f"between/{i}/{part}", [_Moments(0, dense.state[f"{part}_{i}"])]
