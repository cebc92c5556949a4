"""The fixtures of browser.py, and of commands and reports."""

from browser import browser, engine
from reports import hostile, hostile_table, made, read_report

from commands import commands_made_once, data, fitted, model, run, shell, table, write

__all__ = [
    "browser",
    "commands_made_once",
    "data",
    "engine",
    "fitted",
    "hostile",
    "hostile_table",
    "made",
    "model",
    "read_report",
    "run",
    "shell",
    "table",
    "write",
]
