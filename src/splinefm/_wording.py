"""Text for people and programs: sizes, text that is safe to print, advice by reader, and values for JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# C0 and C1 controls, line separators, and marks that change the direction of the text around them.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_LINES = re.compile(_CONTROLS.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))
# Numbers from here on have an exponent.
_EXPONENT = 1e7
# For the process, not the thread: worker threads write messages, too.
_readers: list[str] = []


def visible(text: str, *, lines: bool = False) -> str:
    r"""Text with its control characters escaped: a value of a table must not control the user's terminal.

    Parameters
    ----------
    text : str
        Any text.
    lines : bool
        Keep line breaks.

    Examples
    --------
    >>> visible("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    >>> visible("größe"), visible("two\nlines", lines=True)
    ('größe', 'two\nlines')
    """
    return (_NOT_LINES if lines else _CONTROLS).sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def in_bytes(size: float) -> str:
    """A size in bytes, kB, MB and so on.

    Examples
    --------
    >>> in_bytes(999), in_bytes(12_345), in_bytes(3_400_000)
    ('999 bytes', '12.3 kB', '3.4 MB')
    """
    size = min(size, 10**300)  # which a float holds
    if size < 1000:
        return f"{size:.0f} bytes"
    power = min(6, int(math.log10(size)) // 3)
    return f"{size / 1000**power:,.1f} {('kB', 'MB', 'GB', 'TB', 'PB', 'EB')[power - 1]}"


def number_of(count: int, one: str, many: str = "") -> str:
    """A count with the word for what is counted; `many` is for words whose plural does not end in "s" alone.

    Examples
    --------
    >>> number_of(1, "value"), number_of(1200, "category", "categories")
    ('1 value', '1,200 categories')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def for_reader(library: str, command: str) -> str:
    """Advice for library users, or for command-line users inside `on_command_line`.

    Parameters
    ----------
    library : str
        For callers of the library: names of functions and arguments.
    command : str
        For users of the command line: names of commands and options.

    Examples
    --------
    >>> for_reader("pass validation=0", "add --validation 0")
    'pass validation=0'
    >>> with on_command_line():
    ...     for_reader("pass validation=0", "add --validation 0")
    'add --validation 0'
    """
    return command if _readers else library


def setting(name: str) -> str:
    """The name of a setting as the user writes it.

    Examples
    --------
    >>> setting("learning_rate")
    'learning_rate'
    >>> with on_command_line():
    ...     setting("learning_rate")
    '--learning-rate'
    """
    return for_reader(name, "--" + name.replace("_", "-"))


def as_field(kind: str, name: str, settings: str = "") -> str:
    """How to make a column a field of some kind, with settings as they are written in code.

    Examples
    --------
    >>> as_field("Categorical", "city")
    "use sf.Categorical('city')"
    >>> with on_command_line():
    ...     print(as_field("Categorical", "city", 'unseen="rare"'))
    fit with a schema file that says kind = "Categorical", unseen="rare" for 'city' (see splinefm schema --out)
    """
    more = f", {settings}" if settings else ""
    return for_reader(
        f"use sf.{kind}({name!r}{more})",
        f'fit with a schema file that says kind = "{kind}"{more} for {name!r} (see splinefm schema --out)',
    )


def other_losses() -> str:
    """What to minimize where the target has no classes.

    Examples
    --------
    >>> other_losses()
    'for other numbers use loss="squared", for counts loss="poisson", for positive amounts loss="gamma"'
    """
    return for_reader(
        'for other numbers use loss="squared", for counts loss="poisson", for positive amounts loss="gamma"',
        "for other numbers use --loss squared, for counts --loss poisson, for positive amounts --loss gamma",
    )


def as_bins(name: str) -> str:
    """How to replace the curves of a field by bins.

    Examples
    --------
    >>> as_bins("price")
    "sf.discretize(fitted, {'price': 200}) or sf.discretize(fitted, max_error=1e-3)"
    >>> with on_command_line():
    ...     as_bins("price")
    "splinefm discretize MODEL --bins 'price=200' --out FILE, or with --max-error 1e-3"
    """
    return for_reader(
        f"sf.discretize(fitted, {{{name!r}: 200}}) or sf.discretize(fitted, max_error=1e-3)",
        f"splinefm discretize MODEL --bins {name + '=200'!r} --out FILE, or with --max-error 1e-3",
    )


@contextmanager
def on_command_line() -> Iterator[None]:
    """Context in which messages address command-line users."""
    _readers.append("command line")
    try:
        yield
    finally:
        _readers.pop()


def number(value: float | None, style: str = ".5g") -> str:
    """A number for people; a dash where there is none.

    Numbers below ten million have no exponent: amounts are easier to compare without one.

    Examples
    --------
    >>> number(0.123456789), number(float("nan")), number(None)
    ('0.12346', '-', '-')
    >>> number(26612.3, ".4g"), number(-123456.0, "+.3g"), number(2.5e8), number(0.00001)
    ('26610', '-123000', '2.5e+08', '1e-05')
    """
    if value is None or math.isnan(value):
        return "-"
    text = f"{value:{style}}"
    sign = "+" if style.startswith("+") else ""
    return f"{float(text):{sign}.0f}" if "e" in text and 1.0 <= abs(value) < _EXPONENT else text


def as_json(value: Any) -> Any:
    """Dicts, lists, text and numbers for JSON: None in place of NaN and infinities, text in place of other objects.

    Examples
    --------
    >>> as_json({"loss": float("nan"), "file": ("model.sfm", 3)})
    {'loss': None, 'file': ['model.sfm', 3]}
    """
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if hasattr(value, "item"):  # a number of NumPy
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
