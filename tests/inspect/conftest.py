"""Fixtures of commands, for tests of what `splinefm explain` says."""

from commands import commands_made_once, data, fitted, model, run, table

__all__ = ["commands_made_once", "data", "fitted", "model", "run", "table"]
