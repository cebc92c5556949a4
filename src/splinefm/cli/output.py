"""Printing: tables for people, one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from splinefm._wording import as_json, number, visible


def print_json(value: object) -> None:
    """Print one JSON object; NaN and infinity become null."""
    print(json.dumps(as_json(value), allow_nan=False), flush=True)  # a program may wait for it, while a server goes on


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table; columns whose name begins with ">" are right-aligned.

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
    # Decided here: some environment variables make rich assume a terminal, and in a pipe it wraps at 80 characters.
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
    """Print names and values, one pair per line."""
    facts = list(facts)
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print(f"{name:{width}}  {visible(value)}")


def print_lines(text: str) -> None:
    """Print lines to standard output."""
    print(visible(text, lines=True))


def print_remarks(remarks: Sequence[Mapping[str, Any]]) -> None:
    """Print the remarks on a fit below an empty line, if there are any."""
    if remarks:
        print_lines("\n" + "\n".join(f"remark: {remark['text']}" for remark in remarks))


def say(text: str) -> None:
    """Print a line to standard error, for what is not part of the result."""
    print(visible(text, lines=True), file=sys.stderr, flush=True)


def study_line(about: dict[str, Any]) -> str:
    """Summarize a study in one line.

    Examples
    --------
    >>> about = {"trials": 3, "metric": "RMSE", "value": 0.5, "start_value": 0.6, "best_trial": 2}
    >>> study_line({**about, "params": {"k": 4}})
    'trial 2 of 3 with RMSE 0.5 (0.6 before): k=4'
    """
    improved = about["best_trial"] > 0 and about["start_value"] is not None
    before = f" ({number(about['start_value'])} before)" if improved else ""
    settings = ", ".join(f"{name}={_short(value)}" for name, value in about["params"].items())
    measured = f"{about['metric']} {number(about['value'])}"
    return f"trial {about['best_trial']} of {about['trials']} with {measured}{before}: {settings}"


def print_search(entries: Sequence[Mapping[str, Any]], n_shown: int) -> None:
    """Print the best of the settings that a fit has tried below an empty line, if there are any."""
    if not entries:
        return
    rows = [
        [
            entry["text"],
            number(entry["value"]),
            f"± {number(entry['value_error'], '.2g')}",
            str(entry["folds"]),
            number(entry["seconds"], ".1f"),
            "chosen" if entry["is_chosen"] else "",
        ]
        for entry in entries[:n_shown]
    ]
    which = f"the best {len(rows)} of {len(entries):,} settings" if len(entries) > len(rows) else "all settings"
    heads = ["setting", f">{entries[0]['metric']}", ">error", ">parts", ">seconds", ""]
    print()
    print_table(heads, rows, f"what the fit tried, judged by parts of the rows that were held out: {which}")


def loss_text(about: dict[str, Any]) -> str:
    """A loss with its parameter.

    Examples
    --------
    >>> loss_text({"loss": "quantile", "loss_parameters": {"quantile": 0.9}})
    'quantile loss, quantile=0.9'
    """
    settings = [f"{name}={number(value)}" for name, value in about["loss_parameters"].items()]
    return ", ".join([f"{about['loss']} loss", *settings])


def penalty_text(value: Any) -> str:
    """A penalty of training: a number, one for each field, or none.

    Examples
    --------
    >>> penalty_text(0.001), penalty_text({"price": 1.0}), penalty_text(None)
    ('0.001', 'by field', 'none')
    """
    return "by field" if isinstance(value, dict) else "none" if value is None else f"{value:g}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
