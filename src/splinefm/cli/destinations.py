"""Where results go: looked at before the work, and saved elsewhere if the place fails in the end."""

from __future__ import annotations

import tempfile
from pathlib import Path

from splinefm.encode.schema import schema_path
from splinefm.learn.files.container import check_writable
from splinefm.learn.files.modelfile import save
from splinefm.learn.fitted import Fitted


def check_schema_file(out: Path) -> None:
    """Raise where a schema cannot be written."""
    check_writable(schema_path(out))


def save_model(fitted: Fitted, out: Path) -> None:
    """Save a model; where that fails, such as on a full disk, in the temporary folder, and raise.

    An hour of training must not be lost because of the place that was chosen for its result.
    """
    try:
        save(fitted, out)
    except OSError as error:
        raise OSError(f"cannot write {str(out)!r} ({_reason(error)}); {_rescue(fitted, out.name)}") from error


def _rescue(fitted: Fitted, name: str) -> str:
    try:
        path = Path(tempfile.mkdtemp(prefix="splinefm-")) / name
        save(fitted, path)
    except OSError as error:
        return f"and the temporary folder does not take the model either ({_reason(error)}): it is lost"
    return f"the model is saved to {str(path)!r} instead"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
