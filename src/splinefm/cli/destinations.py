"""Output files: checked before the work, and rescued if writing fails in the end."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from splinefm._files import check_writable
from splinefm.encode.schema import schema_path
from splinefm.store.model_file import save
from splinefm.train.fitted import Fitted


def check_schema_file(out: Path) -> None:
    """Raise if a schema cannot be written to this path."""
    check_writable(schema_path(out))


def save_model(fitted: Fitted, out: Path) -> None:
    """Save a model. If that fails, as on a full disk, save it to the temporary folder and raise.

    A failed write must not lose an hour of training.
    """
    try:
        save(fitted, out)
    except OSError as error:
        raise OSError(f"cannot write {str(out)!r} ({_reason(error)}); {_rescue(fitted, out.name)}") from error


def _rescue(fitted: Fitted, name: str) -> str:
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix="splinefm-"))
        save(fitted, path := folder / name)
    except OSError as error:
        if folder is not None:
            folder.rmdir()
        return f"the model is lost, since writing it to the temporary folder failed as well ({_reason(error)})"
    return f"saved the model to {str(path)!r} instead"


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
