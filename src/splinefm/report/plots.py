"""The plots of the page, drawn by `splinefm.plots`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splinefm._wording import number
from splinefm.encode.fields.numerical import Numerical
from splinefm.learn.description import predicted_thing
from splinefm.plots.captions import caption
from splinefm.plots.files import import_plots, inline_svg, make_axes
from splinefm.report.markup import Html, escaped
from splinefm.view.curves import Bars, Curve
from splinefm.view.values import column_values, shown_numbers, source_field

if TYPE_CHECKING:
    from splinefm.learn.progress import Progress
    from splinefm.report.effects import Effect
    from splinefm.report.explanation import Explanation

MOST_BARS, MOST_FIELDS_IN_MATRIX = 20, 12
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
        return self._inline(self.plots.pairs(found, make_axes((4.8, 3.9)), most=MOST_FIELDS_IN_MATRIX), words)

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
            assert not isinstance(item, Numerical)
            known = replace(item, vocabulary=effect.values["categories"])
            scores, counts = (np.array(effect.values[which]) for which in ("scores", "training_counts"))
            view = Bars(known, scores, 0.0, self.fitted.loss, counts)
        rows = min(len(view.names), MOST_BARS) + len(view.shown_tokens) + 1  # including the gap before tokens
        ax = make_axes((_SIZE[0], max(2.4, 0.8 + 0.23 * rows)))
        return self.plots.bars(view, ax, link=True, most=MOST_BARS)

    def _inline(self, ax: Any, words: str) -> Html:
        self._n += 1
        return Html(inline_svg(ax, escaped(words), f"p{self._n}-"))


def _range(values: list[Any]) -> tuple[str, str]:
    known = [value for value in values if value is not None]
    return (number(min(known)), number(max(known))) if known else ("-", "-")
