"""Sections about the model: overview, fields, importance, curves, surfaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splinefm._wording import number, number_of
from splinefm.learn.description import cross_text, describe_search, describe_validation
from splinefm.report.markup import Html, joined, table, tag
from splinefm.report.parts import Section, make_figure, make_tiles, named, percent_text, prediction_text, short
from splinefm.report.plots import MOST_BARS, PagePlots
from splinefm.view.values import extremum_text, shown_numbers

if TYPE_CHECKING:
    from splinefm.report.effects import Effect
    from splinefm.report.explanation import Explanation

MOST_FIELDS, MOST_SETTINGS = 500, 20


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
        for entry in entries[:MOST_SETTINGS]
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
        for one in described[:MOST_FIELDS]
    ]
    heads = ["Field", "Kind", "Encoding", ">Missing here", ">Missing in training", "Worth knowing"]
    more = len(described) - MOST_FIELDS
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
        for one in facts["fields"][:MOST_FIELDS]
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
        drawn = sorted(range(len(p)), key=lambda i: -(counts[i] or 0.0))[:MOST_BARS]
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
