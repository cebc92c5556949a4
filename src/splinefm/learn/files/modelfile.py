"""Model files: save and load a `Fitted`; loading never runs code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from splinefm._writing import check_destination, replacing
from splinefm.learn.files.container import (
    Array,
    Damaged,
    ModelFileError,
    header_digest,
    opened,
    parse_json,
    read_container,
    to_json,
    write_container,
)
from splinefm.learn.files.describe import describe_fitted
from splinefm.learn.files.restore import MAPPED, restore_fitted
from splinefm.learn.fitted import Fitted

FORMAT = 3
"""Raised when older releases would misread a file; files of all lower numbers stay readable."""
MANIFEST = "manifest.json"
"""The file that makes a folder a sharded model."""


def save(fitted: Fitted, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file; an existing file is replaced in one step, or not at all.

    Parameters
    ----------
    fitted : Fitted
        The model. Custom transforms and bases cannot be saved, because the file contains no code.
    path : path
        The file, usually with the suffix ".sfm".

    Examples
    --------
    >>> import tempfile
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(fitted, f"{folder}/model.sfm")
    ...     again = load(f"{folder}/model.sfm")
    >>> bool((again.scores(table) == fitted.scores(table)).all())
    True
    """
    with saving(fitted, path):
        pass


@contextmanager
def saving(fitted: Fitted, path: str | os.PathLike[str]) -> Iterator[str]:
    """Write a model file as `save` does, and yield its identity before it replaces the target.

    What is written inside the block is there before the model is; an error there leaves the target as it was.
    """
    target = check_destination(Path(path))
    tensors: dict[str, Array] = {}
    try:
        description = describe_fitted(fitted, tensors)
        # A description that cannot be read must not replace a file that can.
        restore_fitted(parse_json(to_json(description)), dict(tensors))
        version = sys.modules["splinefm"].__version__  # not imported: the package imports this module
        with replacing(target) as file:
            write_container(file, FORMAT, version, description, tensors)
            yield header_digest(file)
    except (ValueError, TypeError) as error:
        advice = "; the model is invalid, refit it" if isinstance(error, Damaged) else ""
        raise ModelFileError(f"cannot save to {str(path)!r}: {error}{advice}") from error


def load(path: str | os.PathLike[str], *, mmap: bool = False) -> Fitted:
    """Read a model file; its scores are bitwise those of the saved model.

    Parameters
    ----------
    path : path
        A file that `Fitted.save` wrote.
    mmap : bool
        Map the vectors and linear weights into memory instead of reading them. They are read on first use and shared
        between processes, and their checksums are not verified.

    Raises
    ------
    ModelFileError
        If the file is truncated, damaged, not a model file, or from a newer version of splinefm.

    Examples
    --------
    >>> import tempfile
    >>> import splinefm as sf
    >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted.save(f"{folder}/model.sfm")
    ...     sf.load(f"{folder}/model.sfm").model
    FwFM(k=16, third=16)
    """
    return load_identified(path, mmap=mmap)[0]


def load_identified(path: str | os.PathLike[str], *, mmap: bool = False) -> tuple[Fitted, str]:
    """Read a model file as `load` does; return the model and the identity of the file, see `saving`."""
    path = Path(path)
    if (path / MANIFEST).is_file():
        raise IsADirectoryError(f"{str(path)!r} is a sharded model; use sf.ShardedModel.open, whose save writes a file")
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; pass a model file in it")
    if not path.exists():
        raise FileNotFoundError(f"no file {str(path)!r}; Fitted.save and splinefm fit write model files")
    if not path.is_file():  # opening a pipe would block
        raise ModelFileError(f"cannot load {str(path)!r}: it is not a regular file; copy the model to one")
    with opened(path, "copy it again, or save the model again") as file:
        fitted = restore_fitted(*read_container(file, FORMAT, MAPPED if mmap else ()), mapped=mmap)
        return fitted, header_digest(file)
