"""Plots as files."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from splinefm._files import check_destination, replacing

FORMATS = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
"""Formats of plots by the ending of the file name."""


def import_plots() -> Any:
    """The package `splinefm.plots`; without matplotlib, an error that says how to install it."""
    _import_figures()
    return import_module("splinefm.plots")


def make_axes(inches: tuple[float, float]) -> Any:
    """The axes of a new figure of this size."""
    figure, (ax,) = _import_figures().make_panels(1, 1)
    figure.set_size_inches(*inches)
    return ax


def _import_figures() -> Any:
    try:
        return import_module("splinefm.plots.figures")
    except ImportError as error:
        if error.name is not None and not error.name.startswith("matplotlib"):
            raise
        raise ValueError("plots need matplotlib; to install it: pip install 'splinefm[plots]'") from error


def write_plot(ax: Any, path: Path) -> None:
    """Write the figure of an `Axes` to a file, in the format that the file name says."""
    kind = FORMATS[path.suffix.lower()]
    # No date and no version: the same model gives the same file.
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    metadata["pdf"] = {"CreationDate": None, "Creator": None, "Producer": None}
    with replacing(check_destination(path)) as file, warnings.catch_warnings():
        # Letters that the font lacks are drawn as boxes; a warning for each letter does not help.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        ax.figure.savefig(file, format=kind, dpi=150, metadata=metadata[kind])
