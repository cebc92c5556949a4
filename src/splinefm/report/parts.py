"""Parts that sections of the page are made of: tiles, figures, names, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from splinefm.learn.losses import Loss
from splinefm.report.markup import Html, escaped, tag

LONGEST = 80
"""Characters of a name that are shown."""


class Section(NamedTuple):
    """A part of the page, with the name by which links find it."""

    anchor: str
    title: str
    content: Html


def make_tiles(tiles: Sequence[tuple[str, object]]) -> Html:
    """Large figures with a word on each."""
    return tag(
        "div", *(tag("div", tag("b", value), tag("span", name), class_="tile") for value, name in tiles), class_="tiles"
    )


def make_figure(picture: Html, text: str, kind: str | None = None) -> Html:
    """A picture with the words below it."""
    return tag("figure", picture, *([tag("figcaption", text)] if text else []), class_=kind)


def named(text: object) -> Html:
    """A name as it is, shortened where it would not end."""
    whole = str(text)
    return escaped(whole) if len(whole) <= LONGEST else tag("span", short(whole), title=whole[:1000])


def short(text: object) -> str:
    """A text of bounded length."""
    whole = str(text)
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST // 2]}…{whole[-LONGEST // 2 + 1 :]}"


def percent_text(share: float) -> str:
    """A share, as per cent."""
    return f"{100.0 * share:.3g}\u00a0%"


def measured_text(value: float, loss: Loss) -> str:
    """A single target: its label where it has one."""
    if loss.classes is not None and value in (0.0, 1.0):
        return short(loss.classes[int(value)])
    return f"{value:.4g}"


def prediction_text(value: float, loss: Loss) -> str:
    """A prediction or a mean target, in its unit."""
    if value != value:
        return "-"
    return percent_text(value) if loss.name == "logistic" else f"{value:.4g}"
