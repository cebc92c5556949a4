"""Update a model file: the new model replaces the old one, with the state of its optimizer, or is kept aside."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from splinefm._files import check_writable
from splinefm._wording import setting
from splinefm.store.sharded import is_sharded
from splinefm.update.guard import Guard, UpdateRefused, Verdict
from splinefm.update.learner import Learner

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

DEFAULT_GUARD = Guard()
_LOCK_WAIT = 0.2  # seconds: a model that was just saved is still locked for a moment


@dataclass(frozen=True)
class UpdateReport:
    """What an update of a model file did.

    Parameters
    ----------
    file : str
        The model file that was written.
    rows : int
        New rows.
    loss : float
        Their mean loss, each measured before the model learned from it.
    new_features : int
        Features that were added for new categories.
    steps : int
        Steps of the optimizer so far.
    continued : bool
        Whether the state of the optimizer was found next to the model; if not, it started from zero.
    verdict : Verdict or None
        What the guard measured.
    seconds : float
        Time of the update.
    """

    file: str
    rows: int
    loss: float
    new_features: int
    steps: int
    continued: bool
    verdict: Verdict | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists, strings and numbers."""
        return {**asdict(self), "verdict": None if self.verdict is None else self.verdict.to_dict()}


def update_model(
    model: str | os.PathLike[str],
    table: object,
    target: str,
    *,
    out: str | os.PathLike[str] | None = None,
    sample_weight: str | None = None,
    guard: Guard | None = DEFAULT_GUARD,
    threads: int | None = None,
) -> UpdateReport:
    """Update a model file with new rows; `splinefm update` calls it.

    The optimizer state is kept next to the model, in path + ".state", so that a series of updates equals one long run.
    Model and state are replaced together: after a crash, both are old or both are new.

    Parameters
    ----------
    model : path
        A model file.
    table : table, path or dataset
        The new rows; see `open_table`.
    target : str
        The column to predict.
    out : path, optional
        The model file to write; by default `model` is replaced.
    sample_weight : str, optional
        A column of weights.
    guard : Guard, optional
        When to refuse the update; by default `Guard()`. None accepts everything.
    threads : int, optional
        Number of threads; all cores by default.

    Raises
    ------
    UpdateRefused
        If the guard refuses the update. `out` is not changed; the refused model and its state are kept in a file
        beside it, such as "model.rejected.sfm".

    Examples
    --------
    >>> import tempfile
    >>> import splinefm as sf
    >>> hour = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sf.fit_model(hour, "click", training=sf.Training(epochs=2, threads=1)).save(f"{folder}/model.sfm")
    ...     first = sf.update_model(f"{folder}/model.sfm", hour, "click")
    ...     second = sf.update_model(f"{folder}/model.sfm", hour, "click")
    >>> first.rows, first.continued, second.continued
    (100, False, True)
    """
    began = time.perf_counter()
    path = Path(model)
    target_path = Path(out) if out is not None else path
    refuse_sharded(path)
    check_writable(target_path)  # before the work, not after it
    with update_lock(target_path):
        learner = Learner.load(path, threads=threads)
        before, steps = learner.encoder, learner.engine.n_steps
        try:
            loss = learner.update(table, target, sample_weight=sample_weight, guard=guard)
        except UpdateRefused as refused:
            aside = rejected_path(target_path)
            learner.save(aside)
            raise UpdateRefused(refused.verdict, aside) from None
        learner.save(target_path)
    return UpdateReport(
        file=str(target_path),
        rows=learner.encoder.n_rows - before.n_rows,
        loss=loss,
        new_features=learner.encoder.layout.n_features - before.layout.n_features,
        steps=learner.engine.n_steps,
        continued=steps > 0,
        verdict=learner.verdict,
        seconds=time.perf_counter() - began,
    )


def refuse_sharded(model: Path) -> None:
    """Raise for the folder of a sharded model."""
    if is_sharded(model):
        raise IsADirectoryError(
            f"{str(model)!r} is a sharded model, which is updated by several processes: splinefm update MODEL DATA "
            "--target COLUMN --processes N"
        )


def rejected_path(model: Path) -> Path:
    """Return the path of a refused model.

    Examples
    --------
    >>> rejected_path(Path("models/model.sfm")).name
    'model.rejected.sfm'
    """
    return model.with_name(f"{model.stem}.rejected{model.suffix}")


@contextmanager
def update_lock(path: Path) -> Iterator[None]:
    """Hold a lock on a file or folder that is about to be replaced; raise if another update holds it.

    Two updates of one model at a time would lose the rows of one of them.
    """
    if fcntl is None or not (path.is_file() or path.is_dir()):
        yield
        return
    end = time.monotonic() + _LOCK_WAIT
    while True:
        with _opened(path) as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < end:
                    time.sleep(_LOCK_WAIT / 20)
                    continue
                other = f"wait for it, or choose another {setting('out')}"
                raise BlockingIOError(f"{str(path)!r} is being updated by another process; {other}") from None
            if os.path.samestat(os.fstat(descriptor), path.stat()):  # not replaced before it was locked
                yield
                return


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a file, or a folder, which `Path.open` does not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
