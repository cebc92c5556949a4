"""Safe HTML, and the building blocks of the page of `splinefm explain`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from splinefm._wording import number
from splinefm.train.losses import Loss

# Safe HTML: text is escaped unless it is known to be HTML.

# HTML does not allow control characters, UTF-8 does not allow lone surrogates, and marks that change the direction of
# text would affect the text after them.
_IMPOSSIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")

_TALL = 25  # a table with more rows scrolls separately


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


def escaped(text: object) -> Html:
    """Any text as HTML that shows it.

    Examples
    --------
    >>> escaped("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    return text if isinstance(text, Html) else Html(html.escape(_IMPOSSIBLE.sub("\ufffd", str(text))))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element; children and attribute values are escaped unless they are HTML.

    A trailing underscore of an attribute is dropped, others become hyphens. None omits the attribute, True writes its
    name only.

    Examples
    --------
    >>> tag("p", "a < b", tag("b", "!"), class_="note", data_value=3, hidden=None)
    '<p class="note" data-value="3">a &lt; b<b>!</b></p>'
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    parts = [key if value is True else f'{key}="{escaped(value)}"' for key, value in given.items()]
    return Html(f"<{' '.join([name, *parts])}>{joined(children)}</{name}>")


def joined(parts: Iterable[object]) -> Html:
    """Concatenate parts."""
    return Html("".join(map(escaped, parts)))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, sortable: bool = False) -> Html:
    """A table; columns whose name begins with ">" hold numbers.

    A cell may be a pair: the text to show and the number to sort by.

    Examples
    --------
    >>> 'data-value="0.05">5 %</td>' in table(["field", ">share"], [["x", ("5 %", 0.05)]])
    True
    """
    classes = ["number" if name.startswith(">") else None for name in columns]
    heads = [
        tag(
            "th",
            tag("button", name.lstrip(">"), type="button") if sortable else name.lstrip(">"),
            scope="col",
            class_=kind,
        )
        for name, kind in zip(columns, classes, strict=True)
    ]
    rows = list(rows)
    body = [tag("tr", *(_cell(cell, kind) for cell, kind in zip(row, classes, strict=True))) for row in rows]
    element = tag(
        "table", tag("thead", tag("tr", *heads)), tag("tbody", *body), class_="sortable" if sortable else None
    )
    return tag("div", element, class_="scroll tall" if len(rows) > _TALL else "scroll", tabindex="0")


def _cell(cell: object, kind: str | None) -> Html:
    if isinstance(cell, tuple):
        return tag("td", cell[0], class_=kind, data_value=cell[1])
    return tag("td", cell, class_=kind)


# Building blocks of the page's sections: tiles, figures, names, numbers.

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
