"""Fixtures of commands and of a page, for `splinefm explain`."""

from commands import commands_made_once, data, fitted, model, run, shell, table, write
from pages import hostile, hostile_table, made, page

__all__ = [
    "commands_made_once",
    "data",
    "fitted",
    "hostile",
    "hostile_table",
    "made",
    "model",
    "page",
    "run",
    "shell",
    "table",
    "write",
]
