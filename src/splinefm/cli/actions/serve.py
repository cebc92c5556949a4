"""Check what a server needs, and run it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import typer

from splinefm.cli.output import say
from splinefm.explore.page import d3_script
from splinefm.serve.http.tokens import Tokens
from splinefm.serve.settings import DEFAULT_ARM, ArmSetting, ServerSettings, parse_arm

_PACKAGES = ("msgspec", "httptools", "uvloop")


def make_arms(model: str | None, arms: Sequence[str], shadows: Sequence[str]) -> tuple[ArmSetting, ...]:
    """The arms of a command: one model, or those of a split, and shadows.

    Examples
    --------
    >>> [arm.name for arm in make_arms("m.sfm", [], ["new=n.sfm"])]
    ['default', 'new']
    """
    if (model is None) == (not arms):
        raise ValueError("name one model file, or the arms of a split with --arm; not both")
    shown = [ArmSetting(DEFAULT_ARM, model)] if model is not None else [parse_arm(text) for text in arms]
    return (*shown, *(parse_arm(text, shadow=True) for text in shadows))


def run_server(settings: ServerSettings) -> None:
    """Run until SIGTERM or SIGINT."""
    if sys.platform == "win32":
        raise OSError("splinefm serve runs on Linux and macOS; on Windows use WSL, or a container")
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"splinefm serve needs {', '.join(missing)}: pip install 'splinefm[serve]'", name=missing[0]
        )
    if settings.explore:
        d3_script()  # raises where its package is missing
    from splinefm.serve.supervisor import serve

    if settings.tokens is not None:
        Tokens(settings.tokens)  # raises where the file is missing or wrong
    if settings.background is not None and not Path(settings.background).exists():
        raise FileNotFoundError(f"--background: no file {settings.background!r}")
    if settings.tokens is None and settings.host not in ("127.0.0.1", "::1", "localhost"):
        say(f"splinefm: warning: everybody who can reach {settings.host} can ask this server; use --tokens FILE")
    code = serve(settings)
    if code:
        raise typer.Exit(code)
