"""Sections about rows of the data: calibration of groups, and example rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splinefm._wording import number
from splinefm.learn.losses import Loss
from splinefm.report.markup import Html, escaped, joined, table, tag
from splinefm.report.parts import Section, compared_text, make_figure, measured_text, named, prediction_text
from splinefm.report.plots import PagePlots
from splinefm.report.survey import FEWEST_ROWS, largest

if TYPE_CHECKING:
    from splinefm.report.effects import Example
    from splinefm.report.explanation import Explanation
    from splinefm.report.survey import ValueGroup

MOST_CONTRIBUTIONS, MOST_COLUMNS, MOST_BY_COLUMN, MOST_VALUES = 10, 50, 40, 30


def calibration_section(explanation: Explanation, plots: PagePlots) -> Section:
    """Compare predictions with targets, overall and for groups of rows."""
    plot = plots.calibration()
    if plot is None:
        text = "Calibration compares predictions with a target. Add --target COLUMN to see it."
        return Section("calibration", "Calibration", tag("p", text, class_="note"))
    loss = explanation.survey.loss
    is_quantile = loss.quantile is not None
    text = (
        "Rows in ten groups by prediction: share of targets at or below the prediction."
        if is_quantile
        else "Rows in ten groups by prediction: mean target over mean prediction, with 90 % intervals."
    )
    compared = "the quantile minus the share of targets at or below the prediction"
    by_chance = 0.05 * explanation.n_groups
    lead = (
        f"Groups of rows with similar values of one column, {explanation.n_groups:,} in total. The deviation is "
        f"{compared if is_quantile else 'the mean prediction minus the mean target'}, in standard errors. By chance "
        f"alone, about {by_chance:.0f} groups would be beyond 2."
    )
    heads = ["Column", "Values", ">Rows", ">Predicted", ">Measured", ">Error", ">Deviation"]
    rows = [[named(group.column), *_group(group, loss)] for group in explanation.deviating]
    deviating = tag(
        "div",
        tag("h3", "Groups that deviate most"),
        tag("p", lead, class_="small"),
        table(heads, rows, sortable=True),
        class_="card",
    )
    overall = tag("div", tag("h3", "By prediction"), make_figure(plot, text), class_="card")
    groups = {tally.item.name: tally.groups() for tally in explanation.survey.tallies}
    worst = sorted(groups, key=lambda name: -abs(_worst(groups[name])))[:MOST_COLUMNS]
    by_column = [_by_column(name, groups[name], loss) for name in groups if name in worst]
    more = f"The {len(by_column)} columns that deviate most, of {len(groups)}." if len(groups) > len(worst) else ""
    columns = tag(
        "div", tag("h3", "By column"), *by_column, tag("p", more, class_="small") if more else "", class_="card"
    )
    return Section("calibration", "Calibration", joined([overall, deviating, columns]))


def _by_column(name: str, groups: list[ValueGroup], loss: Loss) -> Html:
    kept = largest(groups, MOST_BY_COLUMN)
    heads = ["Values", ">Rows", ">Predicted", ">Measured", ">Error", ">Deviation"]
    more = f"The {len(kept)} largest of {len(groups):,} groups." if len(groups) > len(kept) else ""
    content = table(heads, [_group(group, loss) for group in kept], sortable=True)
    summary = tag("summary", named(name), tag("span", f" largest deviation {_worst(groups):+.1f}", class_="small"))
    return tag("details", summary, content, tag("p", more, class_="small") if more else "")


def _worst(groups: list[ValueGroup]) -> float:
    """The largest deviation of a group with enough rows."""
    return max((group.deviation for group in groups if group.rows >= FEWEST_ROWS), key=abs, default=0.0)


def _group(group: ValueGroup, loss: Loss) -> list[object]:
    return [
        named(group.name),
        (f"{group.rows:,}", group.rows),
        (compared_text(group.predicted, loss), group.predicted),
        (compared_text(group.measured, loss), group.measured),
        (number(group.error, "+.1%"), group.error),
        (f"{group.deviation:+.1f}", group.deviation),
    ]


def rows_section(explanation: Explanation, plots: PagePlots) -> Section:
    """Some rows, and why they get their predictions."""
    effects = explanation.effects
    cards = [_example(example, explanation) for example in effects.examples]
    lead, kind = effects.reason, "note"
    if effects.importance is not None:
        kind = "lead"
        lead = (
            f"Exact Shapley values in {effects.unit}: the contribution of each field to the difference between the "
            f"score of the row and the average, {number(effects.base, '.4g')}."
        )
    return Section("rows", "Example rows", joined([tag("p", lead, class_=kind), tag("div", *cards, class_="grid")]))


def _example(example: Example, explanation: Explanation) -> Html:
    loss = explanation.fitted.loss
    measured = "" if example.target is None else f", measured {measured_text(example.target, loss)}"
    title = tag("h3", example.title[:1].upper() + example.title[1:])
    text = tag(
        "p", f"Row {example.row + 1:,}: predicted {prediction_text(example.prediction, loss)}{measured}", class_="small"
    )
    if not example.shapley:
        rows = [[named(name), named(value)] for name, value in list(example.values.items())[:MOST_VALUES]]
        return tag("div", title, text, table(["Field", "Value"], rows), class_="card")
    ranked = sorted(example.shapley, key=lambda name: -abs(example.shapley[name]))
    shown, rest = ranked[:MOST_CONTRIBUTIONS], ranked[MOST_CONTRIBUTIONS:]
    others = sum(example.shapley[name] for name in rest)
    top = max(abs(others), *map(abs, example.shapley.values())) or 1.0
    lines = [_contribution(named(name), example.values.get(name, ""), example.shapley[name], top) for name in shown]
    lines += [_contribution(escaped(f"{len(rest)} others"), "", others, top)] if rest else []
    base, total = explanation.effects.base or 0.0, sum(example.shapley.values())
    average, more, score = number(base, ".4g"), number(total, "+.4g"), number(base + total, ".4g")
    end = tag("p", f"Average {average}, contributions {more}, score {score}", class_="small total")
    return tag("div", title, text, tag("div", *lines, class_="shapley"), end, class_="card")


def _contribution(name: Html, value: str, amount: float, top: float) -> Html:
    side = "less" if amount < 0 else "more"
    bar = tag("span", class_=f"bar {side}", style=f"width: {100 * abs(amount) / top:.1f}%")
    label = tag("div", name, *([" ", tag("span", named(value), class_="value")] if value else []))
    return joined([label, tag("div", bar, class_="track"), tag("div", number(amount, "+.3g"), class_="number")])
