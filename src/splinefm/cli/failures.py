"""What a command tells when something goes wrong, and how warnings are shown."""

from __future__ import annotations

import platform
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from splinefm.cli.output import say

DONE, MENDABLE, BUG = 0, 1, 3
"""Exit codes: all is well; the user can mend it; the user cannot. (2 is wrong usage.)"""


def mendable(error: BaseException) -> str | None:
    """What to tell of an error that the user can mend; None for one that is a bug.

    Examples
    --------
    >>> mendable(ValueError("no column 'x'"))
    "no column 'x'"
    >>> mendable(MemoryError())
    'there is not enough memory for this; use fewer rows, columns or categories, or a smaller model'
    >>> mendable(AttributeError("oops")) is None
    True
    """
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, MemoryError):
        detail = f" ({text})" if text else ""
        return f"there is not enough memory for this{detail}; use fewer rows, columns or categories, or a smaller model"
    if isinstance(error, ModuleNotFoundError):
        return None if (error.name or "splinefm").split(".")[0] == "splinefm" else text
    if isinstance(error, ValueError | OSError) or _is_of_arrow(error):
        return text or type(error).__name__
    return None


def tell(error: Exception) -> int:
    """Tell an error on the standard error stream; the exit code."""
    message = mendable(error)
    if message is not None:
        say(f"splinefm: {message}")
        return MENDABLE
    say("".join(traceback.format_exception(error)))
    version = sys.modules["splinefm"].__version__  # not imported: that is for users of the library
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    say(
        f"splinefm: this is a bug in splinefm {version} ({system}), not a mistake of yours; "
        "please report it with the lines above and the command that you ran"
    )
    return BUG


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings as lines for people, each once; what `python -W` and PYTHONWARNINGS say is obeyed."""
    told: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        text = str(message)
        if text not in told:
            told.add(text)
            say(f"splinefm: warning: {text}")

    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def _is_of_arrow(error: BaseException) -> bool:
    """Whether an error says that Arrow cannot do something with the data; help loads no Arrow."""
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(error, arrow.ArrowException)
