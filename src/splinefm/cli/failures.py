"""How commands report errors and warnings, and what they do if a result cannot be written."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from splinefm.cli.output import say

if TYPE_CHECKING:
    from splinefm.train.fitted import Fitted

DONE, USER_ERROR, BUG, REFUSED = 0, 1, 3, 4
"""Exit codes: success; an error that the user can fix; a bug; an update that its guard refused. (2 is wrong usage.)"""


def user_message(error: BaseException) -> str | None:
    """The message of an error that the user can fix; None for a bug.

    Examples
    --------
    >>> user_message(ValueError("no column 'x'"))
    "no column 'x'"
    >>> user_message(MemoryError())
    'not enough memory; use fewer rows, columns or categories, or a smaller model'
    >>> user_message(AttributeError("oops")) is None
    True
    """
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, MemoryError):
        detail = f" ({text})" if text else ""
        return f"not enough memory{detail}; use fewer rows, columns or categories, or a smaller model"
    if isinstance(error, ModuleNotFoundError):
        return None if (error.name or "splinefm").split(".")[0] == "splinefm" else text
    if isinstance(error, ValueError | OSError) or _is_arrow_error(error):
        return text or type(error).__name__
    return None


def report(error: Exception) -> int:
    """Print an error to standard error and return the exit code."""
    message = user_message(error)
    if message is not None:
        say(f"splinefm: {message}")
        return USER_ERROR
    say("".join(traceback.format_exception(error)))
    version = sys.modules["splinefm"].__version__  # not imported: that is for users of the library
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    say(
        f"splinefm: this is a bug in splinefm {version} ({system}), not your mistake; "
        "please report it with the lines above and the command that you ran"
    )
    return BUG


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print each warning once, as one line; respect `python -W` and PYTHONWARNINGS."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        text = str(message)
        if text not in shown:
            shown.add(text)
            say(f"splinefm: warning: {text}")

    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def _is_arrow_error(error: BaseException) -> bool:
    """Whether Arrow raised the error; does not import Arrow, which the help would have to wait for."""
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(error, arrow.ArrowException)


def save_model(fitted: Fitted, out: Path) -> None:
    """Save a model. If that fails, as on a full disk, save it to the temporary folder and raise.

    A failed write must not lose an hour of training.
    """
    from splinefm.store.model_file import save

    try:
        save(fitted, out)
    except OSError as error:
        raise OSError(f"cannot write {str(out)!r} ({_reason(error)}); {_save_elsewhere(fitted, out.name)}") from error


def _save_elsewhere(fitted: Fitted, name: str) -> str:
    from splinefm.store.model_file import save

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
