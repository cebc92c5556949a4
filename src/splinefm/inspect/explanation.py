"""What a model does on a table, as facts: importance, average curves and surfaces, calibration, example rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm.encode.fields.contract import TokenKind
from splinefm.encode.schema import Single
from splinefm.encode.slots import Slots
from splinefm.encode.tables.columns import one_array
from splinefm.fit.evaluation import Measured, measure
from splinefm.inspect.curves import Curve
from splinefm.inspect.dependence import partial_dependence
from splinefm.inspect.importance import Importance, importance
from splinefm.inspect.rows import field_columns, spaced_rows
from splinefm.inspect.segment import segment, segments
from splinefm.inspect.shapley import Background, shapley_values
from splinefm.inspect.survey import (
    MIN_ROWS,
    NOTHING,
    Calibration,
    FieldTally,
    Survey,
    ValueGroup,
    calibration_bins,
    largest,
    survey,
)
from splinefm.inspect.terms import has_closed_form
from splinefm.inspect.values import (
    View,
    bar_values,
    both_scales,
    category_counts,
    curve_values,
    effect_unit,
    field_column,
    number_or_none,
    numbers,
    numerical_values,
    side_grid,
    source_field,
    surface_values,
    value_grid,
    value_text,
)
from splinefm.store.description import describe_fields, describe_fit, describe_validation, one_class
from splinefm.store.model_file import load
from splinefm.train.fitted import Fitted
from splinefm.train.progress import SILENT, Progress
from splinefm.train.targets import as_targets

MAX_CURVES, MAX_SURFACES, MAX_PAIRS = 12, 6, 20
CALIBRATION_BINS, MAX_GROUPS, MAX_BY_COLUMN = 10, 15, 100
"""Number of prediction bins, and maximum number of deviating groups and of groups per column."""
_GRID, _SIDE, _CATEGORIES, _SIDE_CATEGORIES = 101, 21, 50, 20
_EFFECTS = 1 << 24  # maximum number of effects, over all rows and pairs
_FEW_ROWS, _FEWER_ROWS = 500, 100  # if every value of a grid takes a prediction of all rows
_CROSS_ROWS = 1000  # if the effects of a row take the time of all rows of the background


@dataclass(frozen=True, eq=False)
class Effect:
    """The model along one or two fields, averaged over the others."""

    names: list[str]
    view: View | None  # the closed form; None if there is none
    values: dict[str, Any]  # on a grid, as plain lists


@dataclass(frozen=True)
class Example:
    """A row, and the contributions of its fields to the score."""

    title: str  # why this row was chosen
    row: int  # its number in the data, from 0
    prediction: float
    target: float | None  # the true value
    values: dict[str, str]  # as text
    shapley: dict[str, float]  # empty if not available


@dataclass(frozen=True, eq=False)
class Effects:
    """The effects of all fields."""

    unit: str  # of importance and Shapley values
    importance: Importance | None  # in that unit
    importance_rows: int  # that it was measured on
    base: float | None  # of the Shapley values: the mean score, or mean prediction in the unit of the target
    curves: list[Effect]
    surfaces: list[Effect]
    examples: list[Example]
    reason: str  # why something is not available; empty if everything is

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
    with_offset, fitted = fitted, fitted.without_offset()
    slots = fitted.encoder.encode(sample, threads=threads)
    unit, scale, zero = effect_unit(fitted.loss)
    if not has_closed_form(fitted):
        curves = _ranked_by_spread(fitted, sample, progress)
        reason = (
            f"This model is {fitted.model}: its score has products of more than three fields, so importance, pairs and "
            "Shapley values have no closed form and are not available. Models of order 2 and 3 have them."
        )
        examples = _examples(with_offset, found, slots, target, None, scale)
        return Effects(unit, None, 0, None, curves, [], examples, reason)
    progress.begin("importance of fields and pairs")
    n_fields = len(fitted.encoder.fields)
    most = _CROSS_ROWS if fitted.encoder.schema.crosses else max(50, _EFFECTS // (n_fields * (n_fields + 1) // 2))
    rows = spaced_rows(len(slots), most)
    background = Background.of(fitted, sample, threads=threads)
    ranked = importance(fitted, sample.take(pa.array(rows)), background, threads=threads)
    known = fitted.encoder.schema.sources.fields
    names = [field for name, _ in ranked.ranked_fields() for field in _fields_of_player(name, known)][:MAX_CURVES]
    strong = [(one, other) for one, other, value in ranked.ranked_pairs() if value > 0.0]
    pairs = [pair for pair in strong if known.keys() >= {*pair}][:MAX_SURFACES]
    curves = list(_with_progress(names, "curves", lambda name: _curve(fitted, name, sample, background), progress))
    surfaces = list(_with_progress(pairs, "surfaces", lambda pair: _surface(fitted, pair, sample), progress))
    examples = _examples(with_offset, found, slots, target, background, scale)
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


def _fields_of_player(name: str, known: dict[str, Single]) -> list[str]:
    """The fields to draw for a name in a ranking: with crosses, that is a column, which may have several fields."""
    return [name] if name in known else [field for field, item in known.items() if item.column == name]


def _with_progress(items: Sequence[Any], what: str, make: Callable[[Any], Any], progress: Progress) -> Iterator[Any]:
    for i, item in enumerate(items):
        progress.begin(f"{what}, {i + 1} of {len(items)}")
        yield make(item)


# Curves and surfaces


def _curve(fitted: Fitted, name: str, sample: pa.Table, background: Background | None) -> Effect:
    """The partial dependence on a field: the mean score of the sample with the field set to a value."""
    crossed = bool(fitted.encoder.schema.sources.readers(name))
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
        grid = value_grid(view.field, _GRID, numerical_values(fitted, sample, name), view.known_values)
        return Effect([name], view, curve_values(view, grid))
    return Effect([name], view, bar_values(fitted, view, _CATEGORIES))


def _mean_view(fitted: Fitted, names: Sequence[str], sample: pa.Table, most: int) -> Any:
    """The mean of the views of some rows.

    Along a column of a cross this is not the view of mean vectors: the cross and its other columns vary together. So do
    the two other fields of a product of three.
    """
    rows = sample.take(pa.array(spaced_rows(sample.num_rows, most)))
    return segments(fitted, rows, names).mean()


def _values_on_grid(fitted: Fitted, name: str, sample: pa.Table, background: Background | None) -> dict[str, Any]:
    item = source_field(fitted, name)
    rows = sample.take(pa.array(spaced_rows(sample.num_rows, _FEW_ROWS)))
    along: dict[str, Any] = {}
    if item.is_numerical:
        along["x"] = points = side_grid(fitted, name, _GRID, _CATEGORIES, numerical_values(fitted, sample, name))
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
    rows = sample.take(pa.array(spaced_rows(sample.num_rows, 4 * _FEW_ROWS)))
    names = list(fitted.encoder.schema.sources.fields)
    curves = list(_with_progress(names, "curves", lambda name: _curve(fitted, name, rows, None), progress))

    def spread(effect: Effect) -> float:
        view: Any = effect.view
        scores = effect.values["scores"] if view is None else view(field_column(fitted, rows, effect.names[0]))
        return float(np.std(scores))

    return sorted(curves, key=spread, reverse=True)[:MAX_CURVES]


def _surface(fitted: Fitted, pair: tuple[str, str], sample: pa.Table) -> Effect | None:
    """The mean score of the sample with two fields set to values; None without a closed form."""
    pair, sources = _sides(fitted, pair), fitted.encoder.schema.sources
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
    x, y = (side_grid(fitted, name, _SIDE, _SIDE_CATEGORIES, numerical_values(fitted, sample, name)) for name in pair)
    return Effect(list(pair), surface, surface_values(surface, x, y))


def _shifted(fitted: Fitted, surface: Any, pair: tuple[str, str], sample: pa.Table) -> Any:
    """The surface whose value at the first row is the mean score of the sample with both fields set to its values."""
    slots = fitted.encoder.encode(sample)
    for f in map(slots.layout.names.index, pair):  # the values of the first row in all rows
        windows, weights = field_columns(slots, f)
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
    p = fitted.predict(slots if fitted.offset is None else found.sample)
    y = None if target is None else as_targets(one_array(found.sample[target]), target, fitted.classes)
    chosen = _chosen(p, y)
    rows = np.array(list(chosen), np.intp)
    schema, known = fitted.encoder.schema, fitted.encoder.schema.sources.fields
    values = found.sample.select(schema.columns).take(pa.array(rows)).to_pylist()
    taken = found.sample.take(pa.array(rows))
    shapley = None if background is None else shapley_values(background.fitted, taken, background)
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
        return value_text([str(part) for part in value]) or "(empty)"
    return value_text(value) if value is None or isinstance(value, float) else str(value)


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


# Everything about a model on a table


@dataclass(frozen=True, eq=False)
class Explanation:
    """A model on a table, as the command `splinefm explain` and its page show it."""

    model: str
    data: str
    target: str | None
    weight: str | None
    fitted: Fitted
    survey: Survey
    effects: Effects
    metrics: list[Measured]  # empty without a target
    deviating: list[ValueGroup]  # where mean prediction and mean target differ most, in standard errors
    n_groups: int  # compared groups

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain lists, dicts, strings and numbers."""
        fitted, found = self.fitted, self.survey
        return {
            "model": {"file": self.model, "kind": type(fitted.model).__name__, **asdict(fitted.model)}
            | describe_fit(fitted),
            "data": {
                "file": self.data,
                "rows": found.n_rows,
                "sample_rows": found.sample.num_rows,
                "target": self.target,
                "weight": self.weight,
                "other_columns": found.other_columns,
            },
            "metrics": {metric.name.lower().replace(" ", "_"): number_or_none(metric.value) for metric in self.metrics},
            "validation": describe_validation(fitted),
            "history": [epoch._asdict() for epoch in fitted.history],
            "fields": self._fields(),
            **self.effects.to_dict(),
            "calibration": self._calibration(),
        }

    def bins(self) -> Calibration | None:
        """Bins of predictions with what was measured in them: mean targets, or coverage for a quantile."""
        y, loss = self.survey.y, self.survey.loss
        if y is None:
            return None
        p = loss.predict(self.survey.scores_to_compare)
        return calibration_bins(loss.compared(y, p)[1], p, self.survey.weight, CALIBRATION_BINS)

    def _calibration(self) -> dict[str, Any] | None:
        """Mean predictions and targets by prediction bin, and deviating groups; None without a target."""
        bins = self.bins()
        if bins is None:
            return None
        groups = {tally.item.name: largest(tally.groups(), MAX_BY_COLUMN) for tally in self.survey.tallies}
        return {
            "bins": {name: numbers(values) for name, values in bins._asdict().items()},
            "deviating": [group.to_dict() for group in self.deviating],
            "groups_compared": self.n_groups,
            "by_column": [{"column": name, "groups": [group.to_dict() for group in groups[name]]} for name in groups],
        }

    def _fields(self) -> list[dict[str, Any]]:
        starved: dict[str, int] = {}
        for share in self.fitted.encoder.starvation().functions:
            starved[share.field] = starved.get(share.field, 0) + share.starved
        tallies = {tally.item.name: tally for tally in self.survey.tallies}
        return [
            {
                **described,
                **self._value_shares(f, tallies.get(described["name"])),
                "starved": starved.get(described["name"], 0),
            }
            for f, described in enumerate(describe_fields(self.fitted))
        ]

    def _value_shares(self, f: int, tally: FieldTally | None) -> dict[str, Any]:
        """Shares of missing and other values; zero for a cross, whose columns have them."""
        encoder, n = self.fitted.encoder, self.survey.n_rows
        rows, tokens, special = {}, [], []
        if tally is not None:
            rows, tokens, special = tally.token_rows(), tally.tokens, tally.item.token_names(TokenKind.SPECIAL)
        trained = dict(zip(tokens, encoder.feature_counts[f].tolist(), strict=False))
        return {
            "missing": rows.get("missing", 0) / n,
            "missing_in_training": trained.get("missing", 0.0) / encoder.n_rows,
            "special_values": {name: rows[name] / n for name in special},
            "rare_or_unseen": rows.get("rare", 0) / n,
            "without_category": rows.get(NOTHING, 0) / n,
        }


def explain_table(
    model: Path,
    data: str,
    *,
    target: str | None = None,
    weight: str | None = None,
    sample: int = 10_000,
    class_name: str | None = None,
    sep: str | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> Explanation:
    """Explain a model file on a table.

    Parameters
    ----------
    model, data
        The model file and the table.
    target, weight : str, optional
        Columns of the table.
    sample : int
        Maximum number of rows to explain.
    class_name : str, optional
        One of more than two classes, as text.
    sep : str, optional
        Column separator of CSV files.
    threads : int, optional
        All cores by default.
    progress : Progress
        Told what is being done.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow.csv
    >>> import splinefm as sf
    >>> table = pa.table({"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sf.fit_model(table, "click", training=sf.Training(epochs=1, threads=1)).save(f"{folder}/m.sfm")
    ...     pa.csv.write_csv(table, f"{folder}/clicks.csv")
    ...     found = explain_table(Path(f"{folder}/m.sfm"), f"{folder}/clicks.csv", target="click")
    >>> found.survey.n_rows, [effect.names for effect in found.effects.curves]
    (200, [['x']])
    """
    progress.begin("reading the model")
    whole = load(model)
    fitted = one_class(whole, class_name, "explain")
    output = None if fitted.loss.of_class is None else (whole.classes or ()).index(fitted.loss.of_class)
    found = survey(whole, data, target, weight, sample, threads, progress, sep, output)
    metrics, deviating, n_groups = [], [], 0
    if found.y is not None:
        metrics = list(measure(found.loss, found.y, found.scores_to_compare, found.weight))
        groups = [group for tally in found.tallies for group in tally.groups() if group.rows >= MIN_ROWS]
        deviating = sorted(groups, key=lambda group: -abs(group.deviation))[:MAX_GROUPS]
        n_groups = len(groups)
    effects = find_effects(fitted, found, target, threads, progress)
    return Explanation(str(model), data, target, weight, fitted, found, effects, metrics, deviating, n_groups)
