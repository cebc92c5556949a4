"""The page of `splinefm explain`: one self-contained HTML file with its sections and plots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splinefm._wording import number
from splinefm.inspect.curves import Bars, Curve
from splinefm.inspect.values import column_values, shown_numbers, source_field
from splinefm.plots.captions import caption
from splinefm.plots.files import import_plots, inline_svg, make_axes
from splinefm.report.html import Html, escaped
from splinefm.store.description import predicted_thing

if TYPE_CHECKING:
    from splinefm.report.effects import Effect
    from splinefm.report.explanation import Explanation
    from splinefm.train.progress import Progress
from typing import TYPE_CHECKING

from splinefm._wording import number_of
from splinefm.inspect.values import extremum_text
from splinefm.report.html import (
    Section,
    joined,
    make_figure,
    make_tiles,
    named,
    percent_text,
    prediction_text,
    short,
    table,
    tag,
)
from splinefm.store.description import cross_text, describe_search, describe_validation

if TYPE_CHECKING:
    from splinefm.report.effects import Effect
    from splinefm.report.explanation import Explanation
from typing import TYPE_CHECKING

from splinefm.report.html import compared_text, measured_text
from splinefm.report.survey import MIN_ROWS, largest
from splinefm.train.losses import Loss

if TYPE_CHECKING:
    from splinefm.report.effects import Example
    from splinefm.report.explanation import Explanation
    from splinefm.report.survey import ValueGroup
import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from splinefm.report.explanation import Explanation
    from splinefm.train.progress import Progress

# The plots of the page, drawn by `splinefm.plots`.

MAX_BARS, MAX_FIELDS_IN_MATRIX = 20, 12
_SIZE = (4.8, 3.1)


class PagePlots:
    """Draws the plots one by one, each with a text alternative."""

    def __init__(self, explanation: Explanation, progress: Progress) -> None:
        self.explanation, self.progress = explanation, progress
        self.fitted, self.found, self.effects = explanation.fitted, explanation.survey, explanation.effects
        self.plots = import_plots()
        self._n = 0

    def history(self) -> Html | None:
        """Loss by epoch; None without a history."""
        if not self.fitted.history:
            return None
        first, last = self.fitted.history[0], self.fitted.history[-1]
        words = f"Training loss by epoch, from {number(first.train_loss)} to {number(last.train_loss)}"
        return self._inline(self.plots.history(self.fitted, make_axes((5.6, 2.6))), words)

    def pairs(self) -> Html:
        """The matrix of pairs."""
        found = self.effects.importance
        assert found is not None
        one, other, value = found.ranked_pairs()[0]
        words = f"Effects of pairs of fields; the strongest is {one} with {other}, {number(value, '.3g')}"
        return self._inline(self.plots.pairs(found, make_axes((4.8, 3.9)), most=MAX_FIELDS_IN_MATRIX), words)

    def curves(self) -> Iterator[Html]:
        """One plot per chosen field."""
        for i, effect in enumerate(self.effects.curves):
            self.progress.begin(f"drawing curves, {i + 1} of {len(self.effects.curves)}")
            ax = self._bars(effect) if "categories" in effect.values else self._curve(effect)
            low, high = _range(shown_numbers(effect.values))
            what = f"The {predicted_thing(self.fitted)} by {effect.names[0]}: from {low} to {high}"
            yield self._inline(ax, what)

    def surfaces(self) -> Iterator[Html]:
        """One plot per chosen pair."""
        for i, effect in enumerate(self.effects.surfaces):
            self.progress.begin(f"drawing surfaces, {i + 1} of {len(self.effects.surfaces)}")
            ax = self.plots.surface(effect.view, make_axes((5.6, 4.1)), link=True, data=self.found.sample)
            low, high = _range([value for row in shown_numbers(effect.values) for value in row])
            names = " and ".join(effect.names)
            yield self._inline(ax, f"The {predicted_thing(self.fitted)} by {names}: from {low} to {high}")

    def calibration(self) -> Html | None:
        """Mean target over mean prediction; None without a target."""
        y = self.found.y
        if y is None:
            return None
        self.progress.begin("drawing calibration")
        if self.fitted.loss.quantile is not None:
            return self._coverage(self.fitted.loss.quantile)
        p, weight = self.found.loss.predict(self.found.judged), self.found.weight
        ax = self.plots.calibration(y, p, make_axes((4.8, 3.9)), sample_weight=weight)
        words = f"Mean target over mean prediction in ten groups; overall {number(np.average(y, weights=weight))} and "
        return self._inline(ax, words + number(float(np.average(p, weights=weight))))

    def _coverage(self, quantile: float) -> Html:
        """The share of targets at or below the prediction, by prediction."""
        bins = self.explanation.bins()
        assert bins is not None
        shares = {"measured": bins.measured.tolist(), "expected": [quantile] * len(bins.measured)}
        names = {"x_name": caption(predicted_thing(self.fitted), 60), "y_name": "share of targets up to the prediction"}
        ax = self.plots.lines(bins.predicted.tolist(), shares, make_axes((4.8, 3.9)), **names)
        low, high = _range(shares["measured"])
        words = f"Share of targets at or below the prediction in ten groups by prediction: from {low} to {high}"
        return self._inline(ax, f"{words}, expected {quantile:g}")

    def _curve(self, effect: Effect) -> Any:
        name = effect.names[0]
        if isinstance(effect.view, Curve):
            data = column_values(self.fitted, self.found.sample, name)
            return self.plots.curve(effect.view, make_axes(_SIZE), data=data, link=True)
        names = {"x_name": caption(name, 60), "y_name": caption(predicted_thing(self.fitted), 60)}
        return self.plots.lines(effect.values["x"], {"": shown_numbers(effect.values)}, make_axes(_SIZE), **names)

    def _bars(self, effect: Effect) -> Any:
        view = effect.view
        if not isinstance(view, Bars):
            item: Any = source_field(self.fitted, effect.names[0])
            known = replace(item, vocabulary=effect.values["categories"])
            scores, counts = (np.array(effect.values[which]) for which in ("scores", "training_counts"))
            view = Bars(known, scores, 0.0, self.fitted.loss, counts)
        rows = min(len(view.names), MAX_BARS) + len(view.shown_tokens) + 1  # including the gap before tokens
        ax = make_axes((_SIZE[0], max(2.4, 0.8 + 0.23 * rows)))
        return self.plots.bars(view, ax, link=True, most=MAX_BARS)

    def _inline(self, ax: Any, words: str) -> Html:
        self._n += 1
        return Html(inline_svg(ax, escaped(words), f"p{self._n}-"))


def _range(values: list[Any]) -> tuple[str, str]:
    known = [value for value in values if value is not None]
    return (number(min(known)), number(max(known))) if known else ("-", "-")


# Sections about the model: overview, fields, importance, curves, surfaces.

MAX_FIELDS, MAX_SETTINGS = 500, 20


def overview_section(explanation: Explanation, plots: PagePlots) -> Section:
    """Sizes, metrics and training."""
    fitted, found = explanation.fitted, explanation.survey
    tiles = [(f"{found.n_rows:,}", "rows of data"), (f"{len(fitted.encoder.fields):,}", "fields")]
    tiles += [(f"{fitted.encoder.n_rows:,}", "rows the model was fitted to")]
    tiles += [(f"{sum(values.size for values in fitted.params.values()):,}", "parameters")]
    parts = [make_tiles(tiles), _metrics(explanation)]
    parts += [tag("p", f"Remark: {remark}.", class_="note") for remark in fitted.remarks]
    history = plots.history()
    if history is not None:
        best = describe_validation(fitted)
        text = f"Training: {best['epochs']} epoch{'s' if best['epochs'] > 1 else ''}" + (
            f"; epoch {best['best_epoch']} was best on held-out rows, with {best['metric']} {number(best['value'])}."
            if best["metric"] is not None
            else ", without held-out rows."
        )
        parts.append(tag("div", make_figure(history, text), class_="card"))
    if fitted.search:
        parts.append(_search(describe_search(fitted)))
    return Section("overview", "Overview", joined(parts))


def _search(entries: list[dict[str, Any]]) -> Html:
    """The settings that the fit has tried, the best first."""
    rows = [
        [
            tag("b", named(entry["text"]), " (chosen)") if entry["is_chosen"] else named(entry["text"]),
            (f"{number(entry['value'])} ± {number(entry['value_error'], '.2g')}", entry["value"]),
            (f"{entry['folds']}", entry["folds"]),
            (number(entry["seconds"], ".1f"), entry["seconds"]),
        ]
        for entry in entries[:MAX_SETTINGS]
    ]
    some = f"The best {len(rows)} of {len(entries):,} settings. " if len(entries) > len(rows) else ""
    text = (
        f"{some}Each was judged by rows that it had not learned from: one or several parts of the table. "
        "The numbers after ± are standard errors."
    )
    heads = ["Setting", f">{entries[0]['metric']} on held-out rows", ">Parts", ">Seconds"]
    listed = table(heads, rows, sortable=True)
    return tag("div", tag("h3", "What the fit tried"), listed, tag("p", text, class_="small"), class_="card")


def _metrics(explanation: Explanation) -> Html:
    if not explanation.metrics:
        others = explanation.survey.other_columns
        hint = f" Columns that are not fields: {', '.join(map(short, others[:8]))}." if others else ""
        return tag("p", f"No target was given. Add --target COLUMN to measure the model.{hint}", class_="note")
    tiles = [
        (number(metric.value, ".4g"), tag("span", metric.name, title=metric.meaning)) for metric in explanation.metrics
    ]
    lines = [f"{metric.name}: {metric.meaning}" for metric in explanation.metrics if metric.meaning]
    weighted = f", weighted by {short(explanation.request.weight)}" if explanation.request.weight else ""
    head = tag("h3", f"How well it predicts {short(explanation.request.target)}{weighted}")
    meanings = tag("details", tag("summary", "What these mean"), *(tag("p", line, class_="small") for line in lines))
    return joined([head, make_tiles(tiles), meanings])


def fields_section(explanation: Explanation, plots: PagePlots) -> Section:
    """One line per field."""
    described = explanation.fields()
    rows = [
        [
            named(one["name"]),
            one["kind"],
            _encoding(one),
            (percent_text(one["missing"]), one["missing"]),
            (percent_text(one["missing_in_training"]), one["missing_in_training"]),
            _remarks(one),
        ]
        for one in described[:MAX_FIELDS]
    ]
    heads = ["Field", "Kind", "Encoding", ">Missing here", ">Missing in training", "Worth knowing"]
    more = len(described) - MAX_FIELDS
    note = tag("p", f"{more:,} more fields are not listed; --json has them.", class_="small") if more > 0 else ""
    lead = tag(
        "p",
        "How each column enters the model. A basis function is starved if it saw less than a tenth of the training "
        "rows that an even spread would give it. Predictions there rely on few rows.",
        class_="lead",
    )
    return Section(
        "fields", "Fields", joined([lead, tag("div", table(heads, rows, sortable=True), note, class_="card")])
    )


def _encoding(one: dict[str, Any]) -> str:
    if one["kind"] == "Numerical":
        return f"{one['transform']}, {one['basis']} of {one['functions']:,} functions"
    if one["kind"] == "Cross":
        return cross_text(one)
    return f"{number_of(one['vocabulary'], 'category', 'categories')}, unseen ones: {one['unseen']}"


def _remarks(one: dict[str, Any]) -> str:
    parts = [f"{name} in {percent_text(share)}" for name, share in one["special_values"].items()]
    parts += [f"{one['starved']} of {one['functions']} functions starved"] if one["starved"] else []
    parts += [f"{percent_text(one['rare_or_unseen'])} rare or unseen"] if one["rare_or_unseen"] else []
    parts += [f"{percent_text(one['without_category'])} without a known category"] if one["without_category"] else []
    return "; ".join(parts)


def importance_section(explanation: Explanation, plots: PagePlots) -> Section:
    """Which fields and pairs matter."""
    effects = explanation.effects
    if effects.importance is None:
        return Section("importance", "Importance", tag("p", effects.reason, class_="note"))
    facts = effects.to_dict()["importance"]
    top = max(one["shapley"] for one in facts["fields"]) or 1.0
    rows = [
        [
            named(one["name"]),
            tag("span", tag("span", class_="bar", style=f"width: {100 * one['shapley'] / top:.1f}%"), class_="rail"),
            (number(one["shapley"], ".3g"), one["shapley"]),
            (number(one["main_effect"], ".3g"), one["main_effect"]),
        ]
        for one in facts["fields"][:MAX_FIELDS]
    ]
    lead = tag(
        "p",
        f"In {effects.unit}, on {facts['rows']:,} rows. The mean absolute Shapley value is how far a field moves the "
        "score of a row from the average, up or down. The main effect is the standard deviation of the field's effect "
        "alone. A field with a small main effect matters through its interactions.",
        class_="lead",
    )
    heads = ["Field", "", ">Mean |Shapley value|", ">Main effect"]
    parts = [lead, tag("div", table(heads, rows, sortable=True), class_="card")]
    if facts["pairs"]:
        parts.append(_pairs(facts["pairs"], plots))
    if facts["triples"]:
        parts.append(_triples(facts["triples"]))
    return Section("importance", "Importance", joined(parts))


def _pairs(pairs: list[dict[str, Any]], plots: PagePlots) -> Html:
    rows = [
        [named(pair["fields"][0]), named(pair["fields"][1]), (number(pair["effect"], ".3g"), pair["effect"])]
        for pair in pairs[:10]
    ]
    listed = tag("div", tag("h3", "Strongest pairs"), table(["Field", "and", ">Pair effect"], rows), class_="card")
    text = "Standard deviation of the joint effect of two fields, beyond the effect of each alone."
    matrix = tag("div", tag("h3", "Pairs of fields"), make_figure(plots.pairs(), text), class_="card")
    return tag("div", matrix, listed, class_="grid")


def _triples(triples: list[dict[str, Any]]) -> Html:
    rows = [
        [*(named(name) for name in triple["fields"]), (number(triple["effect"], ".3g"), triple["effect"])]
        for triple in triples[:10]
    ]
    heads = ["Field", "and", "and", ">Triple effect"]
    text = "Standard deviation of the joint effect of three fields, beyond those of each alone and of each pair."
    return tag("div", tag("h3", "Strongest triples"), table(heads, rows), tag("p", text, class_="small"), class_="card")


def curves_section(explanation: Explanation, plots: PagePlots) -> Section:
    """One plot per field, for the most important fields."""
    effects = explanation.effects
    loss = explanation.fitted.loss
    cards = [
        tag(
            "div",
            tag("h3", named(effect.names[0])),
            make_figure(plot, _curve_text(effect, explanation)),
            class_="card",
        )
        for effect, plot in zip(effects.curves, plots.curves(), strict=True)
    ]
    known = effects.importance
    n_fields = len(explanation.fitted.encoder.fields if known is None else known.fields)
    which = f"The {len(cards)} most important of {n_fields} fields. " if n_fields > len(cards) else ""
    how = (
        "Each plot sets one field to a value in all rows and averages the score over the rows"
        if effects.importance is not None
        else "Each plot averages the score over the other fields, assuming that they are independent"
    )
    link = {"logistic": ", then converts it to a probability", "log": ", then converts it to a prediction by exp"}.get(
        loss.link, ""
    )
    lead = (
        f"{which}{how}{link}. Gray bars below a curve show where the rows are, marks beside it special and missing "
        "values."
    )
    return Section("curves", "Curves", joined([tag("p", lead, class_="lead"), tag("div", *cards, class_="grid")]))


def _curve_text(effect: Effect, explanation: Explanation) -> str:
    values, fitted, loss = effect.values, explanation.fitted, explanation.fitted.loss
    ends = [
        f"{word} {prediction_text(shown_numbers(values[which]), loss)} at {extremum_text(fitted, values, which, 3)}"
        for word, which in (("highest", "maximum"), ("lowest", "minimum"))
        if values.get(which)
    ]
    if "x" not in values:
        counts, p = values["training_counts"], shown_numbers(values)
        drawn = sorted(range(len(p)), key=lambda i: -(counts[i] or 0.0))[:MAX_BARS]
        best = [(word, pick(drawn, key=p.__getitem__)) for word, pick in (("highest", max), ("lowest", min)) if drawn]
        ends = [f"{word} {prediction_text(p[i], loss)} for {short(values['categories'][i])}" for word, i in best]
    tokens = [
        f"{name}: {prediction_text(shown_numbers(token), loss)}"
        for name, token in values["tokens"].items()
        if not name.startswith("bucket ")
    ]
    text = "; ".join([", ".join(ends), ", ".join(tokens)]).strip("; ")
    return text[:1].upper() + text[1:] + "." if text else ""


def surfaces_section(explanation: Explanation, plots: PagePlots) -> Section:
    """One plot per pair, for the strongest pairs."""
    effects = explanation.effects
    if effects.importance is None:
        return Section("surfaces", "Surfaces", tag("p", effects.reason, class_="note"))
    cards = [
        tag(
            "div",
            tag("h3", named(effect.names[0]), " × ", named(effect.names[1])),
            make_figure(plot, "", "paper"),
            class_="card",
        )
        for effect, plot in zip(effects.surfaces, plots.surfaces(), strict=True)
    ]
    if not cards:
        return Section("surfaces", "Surfaces", tag("p", "There is no pair of fields to plot.", class_="lead"))
    lead = tag(
        "p",
        "The strongest pairs, averaged over the other fields. Dots are rows, if both fields are numerical.",
        class_="lead",
    )
    return Section("surfaces", "Surfaces", joined([lead, tag("div", *cards, class_="grid")]))


# Sections about rows of the data: calibration of groups, and example rows.

MAX_CONTRIBUTIONS, MAX_COLUMNS, MAX_BY_COLUMN, MAX_VALUES = 10, 50, 40, 30


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
    worst = sorted(groups, key=lambda name: -abs(_worst(groups[name])))[:MAX_COLUMNS]
    by_column = [_by_column(name, groups[name], loss) for name in groups if name in worst]
    more = f"The {len(by_column)} columns that deviate most, of {len(groups)}." if len(groups) > len(worst) else ""
    columns = tag(
        "div", tag("h3", "By column"), *by_column, tag("p", more, class_="small") if more else "", class_="card"
    )
    return Section("calibration", "Calibration", joined([overall, deviating, columns]))


def _by_column(name: str, groups: list[ValueGroup], loss: Loss) -> Html:
    kept = largest(groups, MAX_BY_COLUMN)
    heads = ["Values", ">Rows", ">Predicted", ">Measured", ">Error", ">Deviation"]
    more = f"The {len(kept)} largest of {len(groups):,} groups." if len(groups) > len(kept) else ""
    content = table(heads, [_group(group, loss) for group in kept], sortable=True)
    summary = tag("summary", named(name), tag("span", f" largest deviation {_worst(groups):+.1f}", class_="small"))
    return tag("details", summary, content, tag("p", more, class_="small") if more else "")


def _worst(groups: list[ValueGroup]) -> float:
    """The largest deviation of a group with enough rows."""
    return max((group.deviation for group in groups if group.rows >= MIN_ROWS), key=abs, default=0.0)


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
        rows = [[named(name), named(value)] for name, value in list(example.values.items())[:MAX_VALUES]]
        return tag("div", title, text, table(["Field", "Value"], rows), class_="card")
    ranked = sorted(example.shapley, key=lambda name: -abs(example.shapley[name]))
    shown, rest = ranked[:MAX_CONTRIBUTIONS], ranked[MAX_CONTRIBUTIONS:]
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


# The page of `splinefm explain`: one self-contained HTML file.

_SECTIONS = (
    overview_section,
    fields_section,
    importance_section,
    curves_section,
    surfaces_section,
    calibration_section,
    rows_section,
)


def render(explanation: Explanation, progress: Progress) -> str:
    """Render the page."""
    plots = PagePlots(explanation, progress)
    sections = [make(explanation, plots) for make in _SECTIONS]
    progress.begin("assembling the page")
    template = (files("splinefm.report") / "page.html").read_text(encoding="utf-8")
    parts = {
        "policy": _policy(template),
        "title": escaped(f"{_kind(explanation)}: {predicted_thing(explanation.fitted)}"),
        "header": _header(explanation),
        "navigation": _navigation(sections),
        "content": joined(_section(section) for section in sections),
        "footer": tag("footer", "Made by splinefm. This file is self-contained and loads nothing from the network."),
    }
    # In one pass, so that inserted text is not expanded again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _policy(template: str) -> str:
    """The content security policy: inline style, this script, inline images, and nothing else."""
    script = template.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"


def _header(explanation: Explanation) -> Html:
    found, target = explanation.survey, explanation.request.target
    sampled = f"; a random sample of {found.sample.num_rows:,} is explained" if _sampled(explanation) else ""
    about = f"{_kind(explanation)} predicts the {predicted_thing(explanation.fitted)}."
    data = f"This report uses {found.n_rows:,} rows of {short(explanation.request.data)}{sampled}."
    title = "Model report" if target is None else f"Model report: {short(target)}"
    return tag("header", tag("h1", title), tag("p", f"{about} {data}"))


def _navigation(sections: Sequence[Section]) -> Html:
    links = [tag("li", tag("a", section.title, href=f"#{section.anchor}")) for section in sections]
    return tag("nav", tag("ol", *links), aria_label="Contents")


def _section(section: Section) -> Html:
    return tag("section", tag("h2", section.title), section.content, id=section.anchor)


def _kind(explanation: Explanation) -> str:
    return str(explanation.fitted.model)


def _sampled(explanation: Explanation) -> bool:
    return bool(explanation.survey.sample.num_rows < explanation.survey.n_rows)
