"""Text of plots: names that fit, numbers, and labels of axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count

from splinefm.inspect.values import score_text
from splinefm.train.losses import Loss

LONGEST, _LEGEND = 24, 32


def caption(name: object, longest: int = LONGEST) -> str:
    """A name on one line, shortened in the middle; a dollar sign does not start a formula.

    Examples
    --------
    >>> caption("a name that is much too long for an axis")
    'a name that …for an axis'
    >>> caption("US$")
    'US\\\\$'
    """
    return _escaped(_cut(_one_line(name), longest, longest // 2))


def captions(names: Iterable[object], longest: int = LONGEST) -> list[str]:
    """Names that are shown next to each other, each on one line, shortened so that they still differ.

    If shortening in the middle makes some of them equal, they are a little longer, cut elsewhere, or numbered.

    Examples
    --------
    >>> captions(["Married-civ-spouse", "Married-AF-spouse", "Married-spouse-absent"], 16)
    ['Married-civ-spouse', 'Married-AF-spouse', 'Married-…-absent']
    >>> captions(["Married-civ-spouse", "Married-AF-spouse"], 12)
    ['Married-c…se', 'Married-A…se']
    """
    listed = [str(name) for name in names]
    different = list(dict.fromkeys(listed))
    lines = [_one_line(name) for name in different]
    texts = [_cut(line, longest, longest // 2) for line in lines]
    for equal in _equal_groups(texts):
        others = set(texts) - {texts[i] for i in equal}
        found = _distinct([lines[i] for i in equal], longest, others)
        for i, text in zip(equal, found, strict=True):
            texts[i] = text
    shown = dict(zip(different, map(_escaped, texts), strict=True))
    return [shown[name] for name in listed]


def _one_line(name: object) -> str:
    return " ".join(str(name).split()) or "(empty)"


def _cut(line: str, longest: int, head: int) -> str:
    """A line without its middle if it is too long: the beginning, and as much of the end as fits."""
    if len(line) <= longest:
        return line
    return f"{line[:head]}…{line[len(line) - (longest - 1 - head) :]}"


def _equal_groups(texts: list[str]) -> list[list[int]]:
    """Indices of the texts that occur more than once, group by group."""
    return [[i for i, other in enumerate(texts) if other == text] for text, n in Counter(texts).items() if n > 1]


def _distinct(lines: list[str], longest: int, others: set[str]) -> list[str]:
    """Lines that would be equal, shortened in another way."""
    longer = longest + longest // 4
    cuts = [(length, head) for length in (longest, longer) for head in range(length)]
    cuts.sort(key=lambda cut: (cut[0], abs(cut[1] - cut[0] // 2), -cut[1]))  # as close to the middle as possible
    for length, head in [(longer, longer // 2), *cuts]:
        texts = [_cut(line, length, head) for line in lines]
        if len(set(texts)) == len(lines) and not others.intersection(texts):
            return texts
    return _numbered(lines, longest, others)


def _numbered(lines: list[str], longest: int, others: set[str]) -> list[str]:
    numbers, texts = count(1), []
    for line in lines:
        ends = (f" ({number})" for number in numbers)
        cut = (_cut(line, longest - len(end), longest // 2) + end for end in ends)
        texts.append(next(text for text in cut if text not in others))
    return texts


def _escaped(text: str) -> str:
    """Escape matplotlib's formulas."""
    return text.replace("$", r"\$")


def percent(value: float, digits: int = 2) -> str:
    """A share in percent, with at most `digits` decimals.

    Examples
    --------
    >>> percent(0.0), percent(0.25), percent(0.00314), percent(0.00002)
    ('0 %', '25 %', '0.31 %', '0 %')
    """
    text = f"{100.0 * value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def row_share(share: float) -> str:
    """A share of rows, in a few characters.

    Examples
    --------
    >>> row_share(0.0607), row_share(0.0002)
    ('6.1 %', '<0.1 %')
    """
    return "<0.1 %" if share < 0.001 else percent(share, 1 if share < 0.0995 else 0)


def value_label(loss: Loss, link: bool) -> str:
    """The label of an axis of scores or predictions.

    Examples
    --------
    >>> value_label(Loss("logistic"), link=True), value_label(Loss("poisson"), link=False)
    ('probability', 'score (log of the rate)')
    """
    if loss.of_class is not None:
        return f"score of {caption(loss.of_class)}"
    if not link:
        return score_text(loss)
    if loss.name == "logistic":
        return "probability" if loss.classes is None else f"probability of {caption(loss.classes[1])}"
    if loss.quantile is not None:
        return f"prediction (quantile {loss.quantile:g})"
    return "rate" if loss.name == "poisson" else "prediction"


def legend_name(name: object) -> str:
    """A name in a legend. Matplotlib would leave out one that starts with an underscore.

    Examples
    --------
    >>> legend_name("_hidden")
    ' _hidden'
    """
    return _visible(caption(name, _LEGEND))


def _visible(text: str) -> str:
    return f" {text}" if text.startswith("_") else text


def legend_names(names: Sequence[object] | None, n: int, what: str) -> list[str] | None:
    """Names for a legend; raise unless there is one for each line."""
    if names is None:
        return None
    if isinstance(names, str) or not hasattr(names, "__len__") or len(names) != n:
        raise ValueError(f"names must have one name for each of the {n} {what}, got {names!r}")
    return [_visible(text) for text in captions(names, _LEGEND)]
