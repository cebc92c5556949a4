"""Effects of the fields on a sample: importance, average curves and surfaces, and explanations of example rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray, IndexArray
from splinefm.encode.fields.sources import Sources
from splinefm.encode.schema import Single
from splinefm.encode.slots import Slots
from splinefm.encode.tables.columns import one_array
from splinefm.inspect.background import Background
from splinefm.inspect.curves import Curve
from splinefm.inspect.dependence import partial_dependence
from splinefm.inspect.importance import Importance, importance
from splinefm.inspect.segment import segment, segments
from splinefm.inspect.shapley import shapley_values
from splinefm.inspect.terms import has_closed_form
from splinefm.inspect.values import (
    View,
    bar_values,
    both_scales,
    category_counts,
    column_values,
    curve_values,
    field_column,
    side_grid,
    source_field,
    surface_values,
    text_of,
    value_grid,
)
from splinefm.report.survey import Survey
from splinefm.train.fitted import Fitted
from splinefm.train.losses import Loss
from splinefm.train.progress import Progress
from splinefm.train.targets import as_targets

MAX_CURVES, MAX_SURFACES, MAX_PAIRS = 12, 6, 20
_GRID, _SIDE, _CATEGORIES, _SIDE_CATEGORIES = 101, 21, 50, 20
_EFFECTS = 1 << 24  # maximum number of effects, over all rows and pairs
_FEW_ROWS, _FEWER_ROWS = 500, 100  # if every value of a grid takes a prediction of all rows
_CROSS_ROWS = 1000  # if the effects of a row take the time of all rows of the background


@dataclass(frozen=True, eq=False)
class Effect:
    """The model along one or two fields, averaged over the others.

    Parameters
    ----------
    names : list of str
        The fields.
    view : Curve, Bars or Surface, optional
        The closed form; None if there is none.
    values : dict
        Values on a grid, as plain lists.
    """

    names: list[str]
    view: View | None
    values: dict[str, Any]


@dataclass(frozen=True)
class Example:
    """A row, and the contributions of its fields to the score.

    Parameters
    ----------
    title : str
        Why this row was chosen.
    row : int
        Its number in the data, from 0.
    prediction : float
        The prediction.
    target : float, optional
        The true value.
    values : dict of str to str
        Its values as text.
    shapley : dict of str to float
        Shapley values; empty if not available.
    """

    title: str
    row: int
    prediction: float
    target: float | None
    values: dict[str, str]
    shapley: dict[str, float]


@dataclass(frozen=True, eq=False)
class Effects:
    """The effects of all fields.

    Parameters
    ----------
    unit : str
        The unit of importance and Shapley values.
    importance : Importance, optional
        In that unit; None if not available, see `reason`.
    importance_rows : int
        Number of rows that it was measured on.
    base : float, optional
        The base value of the Shapley values: the mean score, or the mean prediction if the unit is that of the target.
    curves, surfaces : list of Effect
        Effects of the most important fields and pairs.
    examples : list of Example
        Some rows.
    reason : str
        Why something is not available; empty if everything is.
    """

    unit: str
    importance: Importance | None
    importance_rows: int
    base: float | None
    curves: list[Effect]
    surfaces: list[Effect]
    examples: list[Example]
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain lists, dicts, strings and numbers."""
        return {
            "unit": self.unit,
            "importance": None if self.importance is None else _importance_dict(self.importance, self.importance_rows),
            "not_available": self.reason or None,
            "curves": [effect.values for effect in self.curves],
            "surfaces": [effect.values for effect in self.surfaces],
            "base": self.base,
            "examples": [vars(example) for example in self.examples],
        }


def find_effects(fitted: Fitted, found: Survey, target: str | None, threads: int | None, progress: Progress) -> Effects:
    """Explain a sample, with the sample itself as the background."""
    sample = found.sample
    progress.begin("encoding the sample")
    slots = fitted.encoder.encode(sample, threads=threads)
    unit, scale, zero = _unit(fitted.loss)
    if not has_closed_form(fitted):
        curves = _ranked_by_spread(fitted, sample, progress)
        reason = (
            f"This model is {fitted.model}: its score has products of more than three fields, so importance, pairs and "
            "Shapley values have no closed form and are not available. Models of order 2 and 3 have them."
        )
        examples = _examples(fitted, found, slots, target, None, scale)
        return Effects(unit, None, 0, None, curves, [], examples, reason)
    progress.begin("importance of fields and pairs")
    n_fields = len(fitted.encoder.fields)
    most = _CROSS_ROWS if fitted.encoder.schema.crosses else max(50, _EFFECTS // (n_fields * (n_fields + 1) // 2))
    rows = _spread_out(len(slots), most)
    background = Background.of(fitted, sample, threads=threads)
    ranked = importance(fitted, sample.take(pa.array(rows)), background, threads=threads)
    known = Sources(fitted.encoder.schema).fields
    names = [field for name, _ in ranked.ranked_fields() for field in _of_player(name, known)][:MAX_CURVES]
    strong = [(one, other) for one, other, value in ranked.ranked_pairs() if value > 0.0]
    pairs = [pair for pair in strong if known.keys() >= {*pair}][:MAX_SURFACES]
    curves = list(_each(names, "curves", lambda name: _curve(fitted, name, sample, background), progress))
    surfaces = list(_each(pairs, "surfaces", lambda pair: _surface(fitted, pair, sample), progress))
    examples = _examples(fitted, found, slots, target, background, scale)
    scaled = replace(
        ranked,
        shapley=ranked.shapley * scale,
        main=ranked.main * scale,
        pairs=ranked.pairs * scale,
        triples={names: value * scale for names, value in ranked.triples.items()},
    )
    return Effects(
        unit,
        scaled,
        len(rows),
        zero + background.base * scale,
        curves,
        [effect for effect in surfaces if effect is not None],
        examples,
        "",
    )


def _of_player(name: str, known: dict[str, Single]) -> list[str]:
    """The fields to draw for a name in a ranking: with crosses, that is a column, which may have several fields."""
    return [name] if name in known else [field for field, item in known.items() if item.column == name]


def _unit(loss: Loss) -> tuple[str, float, float]:
    """The unit of the effects, the size of one unit of the score in it, and the value of the score 0."""
    if loss.of_class is not None:
        return "units of the score", 1.0, 0.0
    if loss.link == "identity":
        return "units of the target", loss.scale, loss.center
    if loss.link == "logistic":
        return "log-odds", 1.0, 0.0
    return "log of the rate" if loss.name == "poisson" else "log of the prediction", 1.0, math.log(loss.scale)


def _spread_out(n: int, most: int) -> IndexArray:
    """At most `most` of n rows, evenly spaced, since data may be sorted."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.intp))


def _each(items: Sequence[Any], what: str, make: Callable[[Any], Any], progress: Progress) -> Iterator[Any]:
    for i, item in enumerate(items):
        progress.begin(f"{what}, {i + 1} of {len(items)}")
        yield make(item)


# Curves and surfaces


def _curve(fitted: Fitted, name: str, sample: pa.Table, background: Background | None) -> Effect:
    """The partial dependence on a field: the mean score of the sample with the field set to a value."""
    crossed = bool(Sources(fitted.encoder.schema).readers(name))
    together = crossed or (background is not None and fitted.model.order > 2)
    try:
        if together:
            view: Any = _mean_view(fitted, [name], sample, _FEW_ROWS)
        else:
            view = segment(fitted, {}, name, rest="mean", background=sample)
    except ValueError:  # reduction="identity" somewhere: no closed form
        return Effect([name], None, _values_on_grid(fitted, name, sample, background))
    if background is not None and not together:
        # A view treats fields as independent of each other, which only shifts the curve of a quadratic model.
        one = field_column(fitted, sample, name).slice(0, 1)
        level = partial_dependence(fitted, name, one, background)[0] - view(one)[0]
        view = replace(view, intercept=view.intercept + level)
    if isinstance(view, Curve):
        grid = value_grid(view.field, _GRID, column_values(fitted, sample, name), view.known_values)
        return Effect([name], view, curve_values(view, grid))
    return Effect([name], view, bar_values(fitted, view, _CATEGORIES))


def _mean_view(fitted: Fitted, names: Sequence[str], sample: pa.Table, most: int) -> Any:
    """The mean of the views of some rows.

    Along a column of a cross this is not the view of mean vectors: the cross and its other columns vary together. So do
    the two other fields of a product of three.
    """
    rows = sample.take(pa.array(_spread_out(sample.num_rows, most)))
    return segments(fitted, rows, names).mean()


def _values_on_grid(fitted: Fitted, name: str, sample: pa.Table, background: Background | None) -> dict[str, Any]:
    item = source_field(fitted, name)
    rows = sample.take(pa.array(_spread_out(sample.num_rows, _FEW_ROWS)))
    along: dict[str, Any] = {}
    if item.is_numerical:
        along["x"] = points = side_grid(fitted, name, _GRID, _CATEGORIES, column_values(fitted, sample, name))
    else:
        points, counts = category_counts(fitted, name, _CATEGORIES)
        along |= {"categories": points, "training_counts": counts}
    grid = list(map(item.holding, points))
    scores = partial_dependence(fitted, name, grid, rows if background is None else background)
    return {
        "along": [name],
        **along,
        **both_scales(fitted.loss, scores),
        "tokens": {},
    }


def _ranked_by_spread(fitted: Fitted, sample: pa.Table, progress: Progress) -> list[Effect]:
    """The curves of the fields whose average curve varies most on the sample."""
    rows = sample.take(pa.array(_spread_out(sample.num_rows, 4 * _FEW_ROWS)))
    names = list(Sources(fitted.encoder.schema).fields)
    curves = list(_each(names, "curves", lambda name: _curve(fitted, name, rows, None), progress))

    def spread(effect: Effect) -> float:
        view: Any = effect.view
        scores = effect.values["scores"] if view is None else view(field_column(fitted, rows, effect.names[0]))
        return float(np.std(scores))

    return sorted(curves, key=spread, reverse=True)[:MAX_CURVES]


def _surface(fitted: Fitted, pair: tuple[str, str], sample: pa.Table) -> Effect | None:
    """The mean score of the sample with two fields set to values; None without a closed form."""
    pair, sources = _sides(fitted, pair), Sources(fitted.encoder.schema)
    together = fitted.model.order > 2 or any(sources.readers(name) for name in pair)
    try:
        if together:
            surface: Any = _mean_view(fitted, pair, sample, _FEWER_ROWS)
        else:
            surface = segment(fitted, {}, pair, rest="mean", background=sample)
    except ValueError:
        return None
    if not together:
        surface = _shifted(fitted, surface, pair, sample)
    x, y = (side_grid(fitted, name, _SIDE, _SIDE_CATEGORIES, column_values(fitted, sample, name)) for name in pair)
    return Effect(list(pair), surface, surface_values(surface, x, y))


def _shifted(fitted: Fitted, surface: Any, pair: tuple[str, str], sample: pa.Table) -> Any:
    """The surface whose value at the first row is the mean score of the sample with both fields set to its values."""
    slots, layout = fitted.encoder.encode(sample), fitted.encoder.layout
    for f in map(layout.names.index, pair):  # the values of the first row in all rows
        windows = slice(layout.window_ptr[f], layout.window_ptr[f + 1])
        weights = slice(layout.weight_ptr[windows.start], layout.weight_ptr[windows.stop])
        slots.start[:, windows], slots.weight[:, weights] = slots.start[0, windows], slots.weight[0, weights]
    first = [field_column(fitted, sample, name).slice(0, 1) for name in pair]
    level = float(fitted.scores(slots).mean(dtype=np.float64)) - surface(*first)[0]
    return replace(surface, intercept=surface.intercept + level)


def _sides(fitted: Fitted, pair: tuple[str, str]) -> tuple[str, str]:
    """Order a pair so that the field with longer names is on the y axis, where they fit better."""

    def length(name: str) -> int:
        item = source_field(fitted, name)
        names = [] if item.is_numerical else category_counts(fitted, name, _SIDE_CATEGORIES)[0]
        return sum(min(len(category), _SIDE_CATEGORIES) for category in names)

    one, other = sorted(pair, key=length)
    return one, other


# Rows


def _examples(
    fitted: Fitted, found: Survey, slots: Slots, target: str | None, background: Background | None, scale: float
) -> list[Example]:
    """Some diverse rows, with their Shapley values."""
    p = fitted.predict(slots)
    y = None if target is None else as_targets(one_array(found.sample[target]), target, fitted.classes)
    chosen = _chosen(p, y)
    rows = np.array(list(chosen), np.intp)
    schema, known = fitted.encoder.schema, Sources(fitted.encoder.schema).fields
    values = found.sample.select(schema.columns).take(pa.array(rows)).to_pylist()
    shapley = None if background is None else shapley_values(fitted, found.sample.take(pa.array(rows)), background)
    columns = {name: item.column for name, item in known.items()}
    if shapley is not None:  # of fields, or of columns if there are crosses
        columns = {name: columns.get(name, name) for name in shapley.fields}
    return [
        Example(
            title,
            int(found.numbers[row]),
            float(p[row]),
            None if y is None else float(y[row]),
            {name: _text(values[i][column]) for name, column in columns.items() if column in values[i]},
            {} if shapley is None else dict(zip(shapley.fields, (shapley.values[i] * scale).tolist(), strict=True)),
        )
        for i, (row, title) in enumerate(chosen.items())
    ]


def _chosen(p: FloatArray, y: FloatArray | None) -> dict[int, str]:
    """Rows and the reasons for choosing them."""
    order = np.argsort(p, kind="stable")
    wanted = [(order[0], "the lowest prediction"), (order[len(order) // 2], "the median prediction")]
    wanted.append((order[-1], "the highest prediction"))
    if y is not None:
        wanted.append((np.argmin(p - y), "the largest underestimate"))
        wanted.append((np.argmax(p - y), "the largest overestimate"))
    chosen: dict[int, str] = {}
    for row, title in wanted:
        chosen[int(row)] = f"{chosen[int(row)]}, and {title}" if int(row) in chosen else title
    return chosen


def _text(value: object) -> str:
    if isinstance(value, list):
        return text_of([str(part) for part in value]) or "(empty)"
    return text_of(value) if value is None or isinstance(value, float) else str(value)


def _importance_dict(found: Importance, rows: int) -> dict[str, Any]:
    main = dict(zip(found.fields, found.main.tolist(), strict=True))
    return {
        "rows": rows,
        "fields": [
            {"name": name, "shapley": value, "main_effect": main[name]} for name, value in found.ranked_fields()
        ],
        "pairs": [{"fields": [one, other], "effect": value} for one, other, value in found.ranked_pairs()[:MAX_PAIRS]],
        "triples": [{"fields": names, "effect": value} for *names, value in found.ranked_triples()[:MAX_PAIRS]],
    }
