"""Plots as files, and as inline SVG of a page."""

from __future__ import annotations

import io
import re
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

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


def plot_bytes(ax: Any, path: Path) -> bytes:
    """The figure of an `Axes` as the content of a file, in the format that the file name says."""
    return _save(ax.figure, FORMATS[path.suffix.lower()], transparent=False)


def inline_svg(ax: Any, title: str, prefix: str) -> str:
    """The figure of an `Axes` as an SVG element for a page.

    It is as wide as the page allows, up to the width of the figure. All ids inside begin with `prefix`, so that plots
    of one page do not share ids.

    Parameters
    ----------
    ax : Axes
        One of the axes of the figure.
    title : str
        A text alternative for the plot, already escaped.
    prefix : str
        Prefix of all ids inside.
    """
    text = _save(ax.figure, "svg", transparent=True).decode()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    head, body = text.split(">", 1)
    box = re.search(r'viewBox="([\d. ]+)"', head)
    assert box is not None  # matplotlib writes one
    width = 96 * ax.figure.get_size_inches()[0]  # there are 96 pixels of a page to the inch
    attributes = f'viewBox="{box[1]}" role="img" aria-label="{title}" style="max-width: {width:.0f}px"'
    return f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {attributes}>{_renamed(body, prefix)}'


def _save(figure: Any, kind: str, transparent: bool) -> bytes:
    # No date and no version: the same model gives the same file.
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    metadata["pdf"] = {"CreationDate": None, "Creator": None, "Producer": None}
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Letters that the font lacks are drawn as boxes; a warning for each letter does not help.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata[kind], transparent=transparent)
    return buffer.getvalue()


def _renamed(svg: str, prefix: str) -> str:
    """Number all ids inside, and the references to them, in order of appearance."""
    ids = {name: f"{prefix}{i}" for i, name in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]*)"', svg)))}

    def renamed(found: re.Match[str]) -> str:
        return found[1] + ids.get(found[2], found[2]) + found[3]

    return re.sub(r'(\bid="|href="#|url\(#)([^")]*)(["\)])', renamed, svg)
