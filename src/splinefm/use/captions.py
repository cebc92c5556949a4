"""Words on pictures: names that fit and are shown as they are, numbers, and what an axis shows."""

from __future__ import annotations

from collections.abc import Sequence

from splinefm.learn.losses import Loss

LONGEST = 24
_SCORES = {
    "logistic": "score (log-odds)",
    "squared": "score (standardized target)",
    "poisson": "score (log of the rate)",
}


def caption(name: object, longest: int = LONGEST) -> str:
    """A name on one line, shortened in the middle; a dollar sign is no formula.

    Examples
    --------
    >>> caption("a name that is much too long for an axis")
    'a name that …for an axis'
    >>> caption("US$")
    'US\\\\$'
    """
    text = " ".join(str(name).split()) or "(empty)"
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[len(text) - (longest - 1) // 2 :]}"
    return text.replace("$", r"\$")


def number(value: float) -> str:
    """A tick of an axis, in a few characters.

    Examples
    --------
    >>> [number(value) for value in (0.05, 200, 20_000, 3e6, -1e10)]
    ['0.05', '200', '20k', '3M', '−1e10']
    """
    size = abs(value)
    thousands, unit = (
        (value, "") if size < 1e4 or size >= 1e9 else (value / 1e3, "k") if size < 1e6 else (value / 1e6, "M")
    )
    text = f"{thousands:g}{unit}".replace("e+", "e").replace("e-0", "e-")
    return text.replace("-", "−")  # as on matplotlib's own axes


def percent(value: float, digits: int = 2) -> str:
    """A share as per cent, with at most so many digits after the point.

    Examples
    --------
    >>> percent(0.0), percent(0.25), percent(0.00314), percent(0.00002)
    ('0 %', '25 %', '0.31 %', '0 %')
    """
    text = f"{100.0 * value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def row_share(share: float) -> str:
    """The share of rows that some value has, in a few characters.

    Examples
    --------
    >>> row_share(0.0607), row_share(0.0002)
    ('6.1 %', '<0.1 %')
    """
    return "<0.1 %" if share < 0.001 else percent(share, 1 if share < 0.0995 else 0)


def shown(loss: Loss, link: bool) -> str:
    """What an axis of scores or predictions shows.

    Examples
    --------
    >>> shown(Loss("logistic"), link=True), shown(Loss("poisson"), link=False)
    ('probability', 'score (log of the rate)')
    """
    if not link:
        return _SCORES[loss.name]
    if loss.name == "logistic":
        return "probability" if loss.classes is None else f"probability of {caption(loss.classes[1])}"
    return "rate" if loss.name == "poisson" else "prediction"


def legend_name(name: object) -> str:
    """A name in a legend, which leaves out what starts with an underscore.

    Examples
    --------
    >>> legend_name("_hidden")
    ' _hidden'
    """
    text = caption(name, 32)
    return f" {text}" if text.startswith("_") else text


def legend_names(names: Sequence[object] | None, n: int, what: str) -> list[str] | None:
    """Names for a legend; raise unless there is one for each."""
    if names is None:
        return None
    if isinstance(names, str) or not hasattr(names, "__len__") or len(names) != n:
        raise ValueError(f"names must have one name for each of the {n} {what}, got {names!r}")
    return [legend_name(name) for name in names]
