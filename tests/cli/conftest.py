"""Fixtures of commands."""

from commands import commands_made_once, data, fitted, make_table, model, run, shell, table, write

__all__ = ["commands_made_once", "data", "fitted", "make_table", "model", "run", "shell", "table", "write"]
