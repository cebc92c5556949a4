"""Segmentized views: the score along one or two columns for fixed values of the others, in closed form.

A field with sum reduction is one vector p_f = Σ_i weight_i v_i, and the score of every model is affine in it:

    score = β + Σ_i α_i weight_i,    α_i = w_i + g' v_i,    g = ∂ score / ∂ p_f

where β and g depend on the other fields only. With the basis functions as weights that is a spline in u = T(z) (the
paper's spanning lemma). Along two fields the pairs of features add Σ_ij C_ij weight_i weight_j (pairwise lemma), and
C = L diag(s) R' has rank k at most. All of it is computed in float64 from the active features of a segment. Where
crosses contain a column, several fields vary along it: see `crossed.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm._checks import check_choice, check_one_score
from splinefm._wording import for_reader
from splinefm.encode.drift import outside
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.contract import active_features
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.cross_parts import GroupMeans, PartGroup, encode_part, join_groups, known_group, product
from splinefm.encode.schema import Schema, Single, Sources
from splinefm.encode.tables.arrow import convert_column, to_arrow
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.inspect.crossed import Crossed, n_units, unit_vectors
from splinefm.inspect.curves import Bars, Curve, Extremum, Surface
from splinefm.inspect.values import no_category
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params, through
from splinefm.model.family.parameters import mean_vector
from splinefm.model.towers import symmetric_sums
from splinefm.train.fitted import Fitted

__all__ = ["Bars", "Curve", "Extremum", "Surface", "segment", "segments"]

Along = str | Sequence[str]

_BATCH_SIZE = 1 << 22  # coordinates of unit vectors that are computed at a time


def segment(
    fitted: Fitted,
    values: Mapping[str, object],
    along: Along,
    *,
    rest: Rest = "error",
    background: object = None,
    watch: bool = True,
) -> Curve | Bars | Surface:
    """See `Fitted.segment`, which is the same."""
    schema, names = check_one_score(fitted).encoder.schema, _along_names(along)
    sources = schema.sources
    _check_along(fitted, sources, names)
    if not isinstance(values, Mapping):
        raise TypeError(f"a segment is a dict of values, got {type(values).__name__}; for a table use sf.segments")
    for name in values:
        _check_not_cross(schema, name)
        if name not in sources.fields and name not in schema.columns:
            raise ValueError(f"the segment: {missing_column_message(str(name), list(sources.fields))}")
        if name in names:
            raise ValueError(f"{name!r} is in the segment and varies (along): take it out of one of the two")
    items = {name: _field_of_value(sources, name) for name in values}
    given = {name: convert_column(name, [_one_value(items[name], value)]) for name, value in values.items()}
    columns = _by_source(sources, given, names)
    if watch:
        _warn_of_unseen(sources, columns)
    means = _mean_vectors(fitted, sources, [*columns, *names], rest, background)
    return _view(fitted, sources, names, iter([(1, columns)]), means)[0]


def segments(
    fitted: Fitted, table: object, along: Along, *, rest: Rest = "error", background: object = None
) -> Curve | Bars | Surface:
    """The views of many segments at once, one per row of a table.

    The result has an axis of segments in front: `curves.coefficients` has the shape (n, functions), `curves(z)` the
    shape (n, *z.shape), and `curves[i]` is the curve of row i.

    Parameters
    ----------
    fitted : Fitted
        The model.
    table : table, path or dataset
        A row per segment, a column per field. The fields of `along` are not read. Other columns are ignored,
        except with `rest="mean"`, where they raise an error: a misspelled field would go unnoticed.
    along, rest, background
        As in `Fitted.segment`.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> curves = sf.segments(fitted, {"c": ["a", "b"]}, along="x")
    >>> curves([0.0, 1.0, 2.0]).shape, curves[1](1.0).shape
    ((2, 3), ())
    """
    schema, names = check_one_score(fitted).encoder.schema, _along_names(along)
    sources = schema.sources
    _check_along(fitted, sources, names)
    source = open_table(table, types=schema.column_types())
    if rest == "mean":
        for name in source.names:
            _check_not_cross(schema, name)
            if name not in sources.fields and name not in schema.columns:
                raise ValueError(f'with rest="mean" all columns must be fields; {_unknown_field(name, sources)}')
    present = {
        name: {name, item.column}
        for name, item in sources.fields.items()
        if name not in names and {name, item.column} & set(source.names)
    }
    means = _mean_vectors(fitted, sources, [*present, *names], rest, background)
    columns = [name for name in source.names if any(name in known for known in present.values())]
    units = fitted.encoder.layout.n_units * fitted.params["factors"].shape[1]
    chunks = _read_columns(source, columns, max(1, _BATCH_SIZE // units))
    return _view(fitted, sources, names, ((n, _by_source(sources, part, names)) for n, part in chunks), means)


def _by_source(sources: Sources, given: Mapping[str, pa.Array], along: tuple[str, ...]) -> dict[str, pa.Array]:
    """Values along the axes of the sources that do not vary, given by names of fields or of columns."""
    values = {}
    for name, item in sources.fields.items():
        if name in along:
            continue
        if name in given:
            values[name] = given[name]
        elif item.column in given:
            column = given[item.column]
            values[name] = column if item.part is None else to_arrow(item.read(column))
    return values


def _warn_of_unseen(sources: Sources, columns: Mapping[str, pa.Array]) -> None:
    """Name the categories that a segment has and the model does not; those that share features by a hash are fine."""
    unseen = []
    for name, column in columns.items():
        item: Any = sources.fields[name]
        unseen += [no_category(item, category) for category in item.unseen_names(column)]
    if unseen:
        warnings.warn(f"{'; '.join(unseen)}; the view shows rare and unseen categories", stacklevel=outside())


def _field_of_value(sources: Sources, name: str) -> Single:
    """The field that a value of a segment belongs to, or the first one of its column."""
    if name in sources.fields:
        return sources.fields[name]
    return next(item for item in sources.fields.values() if item.column == name)


def _along_names(along: Along) -> tuple[str, ...]:
    names = (along,) if isinstance(along, str) else tuple(along)
    if len(names) not in (1, 2) or len(set(names)) < len(names):
        raise ValueError(f"along must be the name of a field or two different ones, got {along!r}")
    return names


def _check_along(fitted: Fitted, sources: Sources, names: tuple[str, ...]) -> None:
    schema, layout = fitted.encoder.schema, fitted.encoder.layout
    for name in names:
        _check_not_cross(schema, name, "along: ")
        if name not in sources.fields:
            raise ValueError(f"along: {_unknown_field(name, sources)}")
        if name in schema.names and n_units(fitted, schema.names.index(name)) > 1:
            n = max(layout.fields[schema.names.index(name)].units) + 1
            raise ValueError(
                f'{name!r} has reduction="identity": its {n} vectors interact with each other, so that the score '
                'is not in the span of its basis; views need reduction="sum"'
            )


def _check_not_cross(schema: Schema, name: object, where: str = "") -> None:
    for cross in schema.crosses:
        if cross.name == name:
            raise ValueError(
                f"{where}{name!r} is a cross, which has no values of its own; use its columns, {quoted(cross.columns)}"
            )


def _unknown_field(name: str, sources: Sources) -> str:
    parts = [known for known, item in sources.fields.items() if item.column == name]
    if parts:
        return f"{name!r} is a column of several fields; take one of {quoted(parts)}"
    return missing_column_message(name, list(sources.fields), where="the model")


def _one_value(item: Single, value: object) -> object:
    """A value of a segment, in a form that Arrow takes."""
    several = isinstance(value, list | tuple | Set) or np.ndim(value) > 0  # type: ignore[arg-type]  # takes any object
    if not several:
        return item.as_written(value) if isinstance(value, str) else value
    if not item.holds_lists:
        raise ValueError(
            f"a segment has one value per field, {item.name!r} has {type(value).__name__} {value!r}; "
            "for several segments use sf.segments"
        )
    return list(value)  # type: ignore[call-overload]  # a collection, as checked above


def _view(
    fitted: Fitted,
    sources: Sources,
    names: tuple[str, ...],
    chunks: Iterator[tuple[int, dict[str, pa.Array]]],
    means: Means,
) -> Curve | Bars | Surface:
    """The view of all segments."""
    parts = _SegmentParts(fitted, sources, names, means)
    for n, columns in chunks:
        parts.add(n, columns)
    if not parts.levels:
        raise ValueError("the table of segments has no rows; give at least one")
    items = [sources.fields[name] for name in names]
    effects, counts = zip(*(parts.effects(name) for name in names), strict=True)
    intercept, crossed = np.concatenate(parts.levels), parts.crossed()
    if len(names) == 2:
        factors, scales = parts.pairs()
        return Surface(
            (items[0], items[1]), (effects[0], effects[1]), factors, scales, intercept, fitted.loss, counts, crossed
        )
    kind = Curve if items[0].is_numerical else Bars
    view = kind(items[0], effects[0], intercept, fitted.loss, counts[0])
    return view if crossed is None else view.with_crosses(crossed)


class _SegmentParts:
    """The model with the values of segments inserted: a function of the fields that vary. Filled chunk by chunk."""

    def __init__(self, fitted: Fitted, sources: Sources, names: tuple[str, ...], means: Means) -> None:
        self.fitted, self.sources, self.names, self.means = fitted, sources, names, means
        fields = fitted.encoder.fields
        self.along = [f for f, item in enumerate(fields) if {*sources.of_field(item.name)} & {*names}]
        self.crosses = [f for f in self.along if f in fitted.encoder.crosses]
        self.levels: list[FloatArray] = []
        self.slopes: list[FloatArray] = []
        self.scales: list[FloatArray] = []
        self.closed: dict[int, list[list[PartGroup]]] = {f: [] for f in self.crosses}
        self.units: list[tuple[FloatArray, FloatArray]] = []

    def add(self, n: int, columns: dict[str, pa.Array]) -> None:
        """Add segments with the given values."""
        model, params, layout = self.fitted.model, self.fitted.params, self.fitted.encoder.layout
        P, linear = self._other_units(n, columns)
        linear = params["bias"].astype(np.float64) + linear
        interaction = model.interaction(P, params, self.unit_field) if len(self.unit_field) else 0.0
        self.levels.append(linear + interaction)
        self.slopes.append(np.stack([model.slope(P, params, self.unit_field, f) for f in self.along], axis=1))
        if not self.crosses and len(self.names) == 2:
            self.scales.append(_pair_scale(model, params, P, self._numbers(), len(layout.fields)))
        for f in self.crosses:
            self.closed[f].append(self._closed_groups(f, columns))
        if self.crosses and not model.pairwise:
            self.units.append((P, linear))

    def effects(self, name: str) -> tuple[FloatArray, FloatArray | None]:
        """The effects of the features of a field that varies, and their counts; zero if only crosses read it."""
        schema, n = self.fitted.encoder.schema, sum(map(len, self.levels))
        if name not in schema.names:
            return np.zeros((n, self.sources.fields[name].layout.n_features)), None
        f = schema.names.index(name)
        slopes = np.concatenate([part[:, self.along.index(f)] for part in self.slopes])
        return _feature_effects(self.fitted, f, slopes), self.fitted.encoder.feature_counts[f]

    def pairs(self) -> tuple[tuple[FloatArray, FloatArray], FloatArray]:
        """Factors and scales of a surface; none with crosses, where it is not the sum of such pairs."""
        if self.crosses:
            nothing = [np.zeros((self.sources.fields[name].layout.n_features, 0)) for name in self.names]
            return (nothing[0], nothing[1]), np.zeros((sum(map(len, self.levels)), 0))
        first, second = self._numbers()
        return _pair_factors(self.fitted, first, second), np.concatenate(self.scales)

    def crossed(self) -> Crossed | None:
        """The score of all that varies together, if crosses do."""
        if not self.crosses:
            return None
        units, linear = (
            (np.concatenate(arrays) for arrays in zip(*self.units, strict=True)) if self.units else (None,) * 2
        )
        closed = {f: [join_groups(groups) for groups in zip(*chunks, strict=True)] for f, chunks in self.closed.items()}
        return Crossed(
            self.fitted,
            self.sources,
            self.names,
            tuple(self.along),
            closed,
            np.concatenate(self.levels),
            np.concatenate(self.slopes),
            units,
            self.unit_field,
            linear,
        )

    def _other_units(self, n: int, columns: dict[str, pa.Array]) -> tuple[FloatArray, FloatArray]:
        """Vectors of all units that do not vary, shape (n, units, width), and their linear part."""
        fitted, width = self.fitted, self.fitted.params["factors"].shape[1]
        parts, linear, unit_field = [np.zeros((n, 0, width))], np.zeros(n), []
        for f, item in enumerate(fitted.encoder.fields):
            if f in self.along:
                continue
            if f in self.means.vectors:
                vector, mean_weight = self.means.vectors[f]
                parts.append(np.broadcast_to(vector, (n, 1, width)))
                linear += mean_weight
            else:
                if isinstance(item, Cross):
                    features, weight = product(item, self._closed_groups(f, columns))
                else:
                    features, weight = item.features_on_axis(columns[item.name])
                vectors, weights = unit_vectors(fitted, f, features, weight)
                parts.append(np.broadcast_to(vectors, (n, *vectors.shape[1:])))
                linear += weights
            unit_field += [f] * parts[-1].shape[1]
        self.unit_field = np.array(unit_field, np.int32)
        return np.concatenate(parts, axis=1), linear

    def _closed_groups(self, f: int, columns: dict[str, pa.Array]) -> list[PartGroup]:
        """The weights of the parts of a cross that do not vary: fixed and averaged ones."""
        cross = self.fitted.encoder.crosses[f]
        groups = [self.means.groups[f]] if f in self.means.groups else []
        for i, (part, source) in enumerate(zip(cross.fields, self.sources.of[cross.name], strict=True)):
            if source in columns:
                groups.append(encode_part(cross, i, part.read_axis(columns[source])))
        return groups

    def _numbers(self) -> list[int]:
        return [self.fitted.encoder.schema.names.index(name) for name in self.names]


# What a segment leaves of the model: the other fields, and their means.

Rest = Literal["error", "mean"]

_BLOCK_ROWS = 65_536  # rows of a background that are read at a time
_BLOCK_SIZE = 1 << 21  # coordinates of vectors that are converted to float64 at a time


def _read_columns(source: Table, names: list[str], rows: int) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    """Number of rows and the columns of the given names, chunk by chunk."""
    for chunk in source.chunks(names or source.names[:1], rows):
        yield chunk.num_rows, {name: chunk.column(name) for name in names}


# Fields that the segment does not name


@dataclass(frozen=True, eq=False)
class Means:
    """Means in place of the columns that a segment does not name."""

    # The mean vector and linear weight of each field all of whose columns are absent.
    vectors: dict[int, tuple[FloatArray, float]] = field(default_factory=dict)
    # For each cross with some of its columns absent, the mean weights of these parts.
    groups: dict[int, PartGroup] = field(default_factory=dict)


def _mean_vectors(fitted: Fitted, sources: Sources, named: list[str], rest: Rest, background: object) -> Means:
    """Means for the sources of values that are not named."""
    check_choice("rest", rest, ("error", "mean"))
    if background is not None and rest != "mean":
        raise ValueError('background is what fields are averaged over: use it with rest="mean"')
    absent = [name for name in sources.fields if name not in named]
    if not absent:
        return Means()
    if rest == "error":
        raise ValueError(f'the segment lacks {quoted(absent)}; give their values, or average over them: rest="mean"')
    fields = fitted.encoder.fields
    # Positions of the parts of each field that are absent; a field of one column is its own part.
    parts = [[i for i, name in enumerate(sources.of_field(item.name)) if name in absent] for item in fields]
    whole = [f for f, item in enumerate(fields) if len(parts[f]) == len(item.columns)]
    some = {f: parts[f] for f, item in enumerate(fields) if 0 < len(parts[f]) < len(item.columns)}
    split = [fields[f].name for f in whole if n_units(fitted, f) > 1]
    if split:
        raise ValueError(
            f'{quoted(split)}: reduction="identity" has no mean vector, because the vectors of the field interact with '
            "each other; give values in the segment"
        )
    if background is None:
        weights, groups = _trained_means(fitted, sources, whole, some)
    else:
        weights, groups = _table_means(fitted, whole, some, background)
    first = fitted.encoder.layout.feature_ptr
    vectors = {f: mean_vector(fitted.params, int(first[f]), share) for f, share in zip(whole, weights, strict=True)}
    return Means(vectors, groups)


def _trained_means(
    fitted: Fitted, sources: Sources, whole: list[int], some: dict[int, list[int]]
) -> tuple[list[FloatArray], dict[int, PartGroup]]:
    """Mean weights of fields, and of parts of crosses, over the training rows, from the encoder."""
    encoder = fitted.encoder
    means, names = encoder.feature_means, encoder.schema.names
    groups, unknown = {}, [names[f] for f in whole if np.isnan(means[f]).any()]
    for f, parts in some.items():
        cross = encoder.crosses[f]
        source = sources.of[cross.name][parts[0]]
        # A category's own field has the same features; of numbers, and of two columns together, nothing is kept.
        if len(parts) == 1 and source in names and encoder.schema[source] == cross.fields[parts[0]]:
            part = cross.fields[parts[0]]
            share = means[names.index(source)].copy()
            if isinstance(part, Categorical):
                share[part.first_unseen : part.n_tokens] = 0.0  # a cross has no features there
                groups[f] = known_group(parts[0], share, len(cross.levels))
                continue
        unknown.append(cross.name)
    if unknown:
        raise ValueError(
            f"the mean of {quoted(unknown)} is not kept with this model; "
            f"give the rows to average over, {for_reader('such as background=train', 'with --data TABLE')}"
        )
    return [means[f] for f in whole], groups


def _table_means(
    fitted: Fitted, whole: list[int], some: dict[int, list[int]], background: object
) -> tuple[list[FloatArray], dict[int, PartGroup]]:
    """The same over a table."""
    encoder = fitted.encoder
    fields: Any = encoder.fields
    source = open_table(background, types=encoder.schema.column_types())
    columns_of = {f: fields[f].columns for f in whole} | {
        f: tuple(fields[f].columns[i] for i in parts) for f, parts in some.items()
    }
    names = list(dict.fromkeys(name for columns in columns_of.values() for name in columns))
    for name in names:
        if name not in source.names:
            raise ValueError(f"background: {missing_column_message(name, source.names)}")
    totals = {f: np.zeros(encoder.layout.fields[f].n_features) for f in whole}
    means = {f: GroupMeans(fields[f], parts) for f, parts in some.items()}
    n_rows = 0
    for n, columns in _read_columns(source, names, _BLOCK_ROWS):
        n_rows += n
        for f, total in totals.items():
            values = [columns[name] for name in columns_of[f]]
            features, weight = active_features(fields[f], fields[f].as_input(values))
            total += np.bincount(features.ravel(), weight.ravel(), minlength=len(total))
        for f, mean in means.items():
            parts = [fields[f].fields[i] for i in mean.parts]
            mean.update([part.read(columns[part.column]) for part in parts])
    if not n_rows:
        raise ValueError("background has no rows; give at least one to average over")
    return [total / n_rows for total in totals.values()], {f: mean.result(n_rows) for f, mean in means.items()}


# Fields that vary


def _pair_scale(model: AnyModel, params: Params, P: FloatArray, along: list[int], n_fields: int) -> FloatArray:
    """s of C = L diag(s) R', shape (n, coordinates of L): for products it is the segment's."""
    between = model.between(params, *along)
    weight = between if between.ndim < 2 else np.float64(1.0)
    pairs = np.broadcast_to(weight, (len(P), model.part_size(n_fields)))
    products = symmetric_sums(P[:, :, model.product_columns], model.order - 2)[1:].sum(axis=0)
    return np.concatenate([pairs, model.product_weight * products], axis=1)


def _pair_factors(fitted: Fitted, f: int, e: int) -> tuple[FloatArray, FloatArray]:
    """L and R: the vectors of two fields, transformed so that their interaction is a sum over coordinates.

    Coordinates for pairs come first, then coordinates for products with units of other fields.
    """
    ptr, model, table = fitted.encoder.layout.feature_ptr, fitted.model, fitted.params["factors"]
    (left, more_left), (right, more_right) = (
        [
            table[ptr[g] : ptr[g + 1], columns].astype(np.float64)
            for columns in (model.columns(h), model.product_columns)
        ]
        for g, h in ((f, e), (e, f))
    )
    between = model.between(fitted.params, f, e)
    left = through(left, between) if between.ndim == 2 else left
    return np.concatenate([left, more_left], axis=1), np.concatenate([right, more_right], axis=1)


def _feature_effects(fitted: Fitted, f: int, slopes: FloatArray) -> FloatArray:
    """α: the effect w_i + g' v_i of every feature of a field, shape (n, features)."""
    first, last = fitted.encoder.layout.feature_ptr[f : f + 2].tolist()
    effects = np.empty((len(slopes), last - first))
    most = max(1, _BLOCK_SIZE // slopes.shape[1])
    for at in range(first, last, most):
        block = slice(at, min(at + most, last))
        vectors = fitted.params["factors"][block].astype(np.float64)
        effects[:, block.start - first : block.stop - first] = slopes @ vectors.T + fitted.params["linear"][block]
    return effects
