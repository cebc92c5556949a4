"""Building blocks of the page's sections: tiles, figures, names, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from splinefm._wording import number
from splinefm.learn.losses import Loss
from splinefm.report.markup import Html, escaped, tag

LONGEST = 80
"""Maximum number of characters of a name."""


class Section(NamedTuple):
    """A section of the page, with its anchor."""

    anchor: str
    title: str
    content: Html


def make_tiles(tiles: Sequence[tuple[str, object]]) -> Html:
    """Large numbers, each with a caption."""
    return tag(
        "div", *(tag("div", tag("b", value), tag("span", name), class_="tile") for value, name in tiles), class_="tiles"
    )


def make_figure(plot: Html, text: str, kind: str | None = None) -> Html:
    """A plot with a caption."""
    return tag("figure", plot, *([tag("figcaption", text)] if text else []), class_=kind)


def named(text: object) -> Html:
    """A name, shortened if it is too long."""
    full = str(text)
    return escaped(full) if len(full) <= LONGEST else tag("span", short(full), title=full[:1000])


def short(text: object) -> str:
    """A text, shortened in the middle if it is too long."""
    full = str(text)
    return full if len(full) <= LONGEST else f"{full[: LONGEST // 2]}…{full[-LONGEST // 2 + 1 :]}"


def percent_text(share: float) -> str:
    """A share in percent."""
    return f"{100.0 * share:.3g}\u00a0%"


def measured_text(value: float, loss: Loss) -> str:
    """A single target value, as its label if it has one."""
    if loss.classes is not None and value in range(len(loss.classes)):
        return short(loss.classes[int(value)])
    return number(value, ".4g")


def prediction_text(value: float, loss: Loss) -> str:
    """A prediction or a mean target, with its unit."""
    if value != value:
        return "-"
    return percent_text(value) if loss.name == "logistic" else number(value, ".4g")


def compared_text(value: float, loss: Loss) -> str:
    """What predictions of a group expect, or what was measured: a share for a quantile."""
    return percent_text(value) if loss.quantile is not None and value == value else prediction_text(value, loss)
