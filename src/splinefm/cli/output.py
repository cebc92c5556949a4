"""What the commands print: tables for people, one JSON object for machines."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from splinefm._wording import visible


def print_json(value: object) -> None:
    """One JSON object on the standard output; numbers that JSON does not have become null."""
    print(json.dumps(_plain(value), allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """A table on the standard output; columns whose name begins with ">" are aligned to the right.

    Examples
    --------
    >>> print_table(["metric", ">value"], [["AUC", "0.75"]])
    metric   value
    ──────────────
    AUC       0.75
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    # Decided here: rich takes some environment variables for a terminal, and cuts lines at 80 characters in a pipe.
    console = Console(force_terminal=terminal, width=None if terminal else 1000)
    heading = None if title is None else Text(visible(title))
    table = Table(box=box.SIMPLE, title=heading, title_justify="left", show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(Text(visible(name.removeprefix(">"))), justify="right" if name.startswith(">") else "left")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair per line, on the standard output."""
    facts = list(facts)
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print(f"{name:{width}}  {visible(value)}")


def print_lines(text: str) -> None:
    """Lines on the standard output."""
    print(visible(text, lines=True))


def say(text: str) -> None:
    """A line for the reader on the standard error stream, which is not part of the result."""
    print(visible(text, lines=True), file=sys.stderr, flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
