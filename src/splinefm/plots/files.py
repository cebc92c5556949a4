"""Pictures of matplotlib as bytes of a file, and as SVG inside of a page."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import Any

FORMATS = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
"""Formats of picture files by the ending of their names."""


def import_plots() -> Any:
    """The module of plots; without matplotlib an error that says how to get it."""
    try:
        from splinefm.plots import figures
    except ImportError as error:
        if error.name is not None and not error.name.startswith("matplotlib"):
            raise
        raise ValueError("pictures need matplotlib; to get it: pip install 'splinefm[plots]'") from error
    return figures


def make_axes(inches: tuple[float, float]) -> Any:
    """The axes of a new figure of a size."""
    figure, (ax,) = import_plots().make_panels(1, 1)
    figure.set_size_inches(*inches)
    return ax


def picture_bytes(ax: Any, path: Path) -> bytes:
    """The figure of an `Axes` as a file whose kind the name tells."""
    return _save(ax.figure, FORMATS[path.suffix.lower()], transparent=False)


def inline_svg(ax: Any, title: str, prefix: str) -> str:
    """The figure of an `Axes` as an SVG element for a page.

    It is as wide as there is room, up to the width of the figure. Its parts have names that begin with `prefix`, so
    that pictures of one page do not take each other's.

    Parameters
    ----------
    ax : Axes
        One of the axes of the figure.
    title : str
        What the picture shows, for those who do not see it; escaped already.
    prefix : str
        Begins all names inside.
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
    # Neither the date nor the version: the same model gives the same file.
    nameless = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    nameless["pdf"] = {"CreationDate": None, "Creator": None, "Producer": None}
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A name in letters that the font lacks is drawn as boxes; a warning for each letter helps nobody.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format=kind, dpi=150, metadata=nameless[kind], transparent=transparent)
    return buffer.getvalue()


def _renamed(svg: str, prefix: str) -> str:
    """All names inside, and what refers to them, numbered in the order of their appearance."""
    names = {name: f"{prefix}{i}" for i, name in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]*)"', svg)))}

    def renamed(found: re.Match[str]) -> str:
        return found[1] + names.get(found[2], found[2]) + found[3]

    return re.sub(r'(\bid="|href="#|url\(#)([^")]*)(["\)])', renamed, svg)
