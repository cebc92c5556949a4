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
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm._checks import check_one_score
from splinefm.encode.drift import outside
from splinefm.encode.fields.cross import PartGroup, join_groups
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.fields.sources import Sources
from splinefm.encode.schema import Schema, Single
from splinefm.encode.tables.arrow import convert_column, to_arrow
from splinefm.encode.tables.dates import as_written
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.encode.tables.open import open_table
from splinefm.inspect.algebra import (
    Means,
    Rest,
    closed_groups,
    feature_effects,
    mean_vectors,
    n_units,
    other_units,
    pair_factors,
    pair_scale,
    read_columns,
)
from splinefm.inspect.crossed import Crossed
from splinefm.inspect.curves import Bars, Curve, Extremum, Surface
from splinefm.inspect.values import no_category
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
    sources = Sources(schema)
    _check_along(fitted, sources, names)
    if not isinstance(values, Mapping):
        raise TypeError(f"a segment is a dict of values, got {type(values).__name__}; for a table use sf.segments")
    for name in values:
        _check_not_cross(schema, name)
        if name not in sources.fields and name not in schema.columns:
            raise ValueError(f"the segment: {missing_column_message(str(name), list(sources.fields))}")
        if name in names:
            raise ValueError(f"{name!r} is in the segment and varies (along): take it out of one of the two")
    items = {name: _read_by(sources, name) for name in values}
    given = {name: convert_column(name, [_one_value(items[name], value)]) for name, value in values.items()}
    columns = _by_source(sources, given, names)
    if watch:
        _warn_of_unseen(sources, columns)
    means = mean_vectors(fitted, sources, [*columns, *names], rest, background)
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
    sources = Sources(schema)
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
    means = mean_vectors(fitted, sources, [*present, *names], rest, background)
    columns = [name for name in source.names if any(name in known for known in present.values())]
    units = fitted.encoder.layout.n_units * fitted.params["factors"].shape[1]
    chunks = read_columns(source, columns, max(1, _BATCH_SIZE // units))
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
        warnings.warn(f"{'; '.join(unseen)}; the view is that of rare and unseen ones", stacklevel=outside())


def _read_by(sources: Sources, name: str) -> Single:
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
    if isinstance(value, str) and isinstance(item, Numerical):
        return as_written(value, item.format, item.zone)
    if not several:
        return value
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
    parts = _Parts(fitted, sources, names, means)
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


class _Parts:
    """What the segments of a view leave of the model, chunk by chunk.

    Parameters
    ----------
    fitted, sources, means
        The model, whose values its crosses take, and means of what segments do not name.
    names : tuple of str
        The sources that vary.
    """

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
        P, linear, self.unit_field = other_units(self.fitted, self.sources, self.along, n, columns, self.means)
        linear = params["bias"].astype(np.float64) + linear
        interaction = model.interaction(P, params, self.unit_field) if len(self.unit_field) else 0.0
        self.levels.append(linear + interaction)
        self.slopes.append(np.stack([model.slope(P, params, self.unit_field, f) for f in self.along], axis=1))
        if not self.crosses and len(self.names) == 2:
            self.scales.append(pair_scale(model, params, P, self._numbers(), len(layout.fields)))
        for f in self.crosses:
            self.closed[f].append(closed_groups(self.fitted, self.sources, f, columns, self.means))
        if self.crosses and not model.pairwise:
            self.units.append((P, linear))

    def effects(self, name: str) -> tuple[FloatArray, FloatArray | None]:
        """The effects of the features of a field that varies, and their counts; zero if only crosses read it."""
        schema, n = self.fitted.encoder.schema, sum(map(len, self.levels))
        if name not in schema.names:
            return np.zeros((n, self.sources.fields[name].layout.n_features)), None
        f = schema.names.index(name)
        slopes = np.concatenate([part[:, self.along.index(f)] for part in self.slopes])
        return feature_effects(self.fitted, f, slopes), self.fitted.encoder.feature_counts[f]

    def pairs(self) -> tuple[tuple[FloatArray, FloatArray], FloatArray]:
        """Factors and scales of a surface; none with crosses, where it is not the sum of such pairs."""
        if self.crosses:
            nothing = [np.zeros((self.sources.fields[name].layout.n_features, 0)) for name in self.names]
            return (nothing[0], nothing[1]), np.zeros((sum(map(len, self.levels)), 0))
        first, second = self._numbers()
        return pair_factors(self.fitted, first, second), np.concatenate(self.scales)

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

    def _numbers(self) -> list[int]:
        return [self.fitted.encoder.schema.names.index(name) for name in self.names]
