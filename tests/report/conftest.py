"""Fixtures of commands, for `splinefm explain`."""

from commands import commands_made_once, data, fitted, model, run, shell, table, write

__all__ = ["commands_made_once", "data", "fitted", "model", "run", "shell", "table", "write"]
