"""Segmentized views: the score along one or two columns for fixed values of the others, in closed form.

A field with sum reduction is one vector p_f = Σ_i weight_i v_i, and the score of every model is affine in it:

    score = β + Σ_i α_i weight_i,    α_i = w_i + g' v_i,    g = ∂ score / ∂ p_f

where β and g depend on the other fields only. With the basis functions as weights that is a spline in u = T(z) (the
paper's spanning lemma). Along two fields the pairs of features add Σ_ij C_ij weight_i weight_j (pairwise lemma), and
C = L diag(s) R' has rank k at most. All of it is computed in float64 from the active features of a segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._checks import check_one_score
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Field, Schema
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.encode.tables.open import open_table
from splinefm.learn.fitted import Fitted
from splinefm.view.algebra import (
    Rest,
    feature_effects,
    mean_vectors,
    n_units,
    other_units,
    pair_factors,
    pair_scale,
    read_columns,
)
from splinefm.view.curves import Bars, Curve, Extremum
from splinefm.view.surfaces import Surface

__all__ = ["Bars", "Curve", "Extremum", "Surface", "segment", "segments"]

FloatArray = npt.NDArray[np.float64]
Along = str | Sequence[str]

_BATCH_SIZE = 1 << 22  # coordinates of unit vectors that are computed at a time


def segment(
    fitted: Fitted, values: Mapping[str, object], along: Along, *, rest: Rest = "error", background: object = None
) -> Curve | Bars | Surface:
    """The score along one or two fields, with the other fields fixed; `fitted.segment` is the same.

    Parameters
    ----------
    fitted : Fitted
        The model.
    values : mapping of str to value
        The segment: the value of every other field (None is a missing value, a list belongs to a multi-valued field).
        A date sets all parts of its column, unless the parts are named themselves: {"seen_at": "2024-05-28"},
        {"seen_at.hour": 13.5}.
    along : str or pair of str
        The field, or the two fields, that vary.
    rest : {"error", "mean"}
        What to do with fields that `values` does not name: raise an error, or average the score over their values. The
        average is exact for independent fields: it is the score of the mean of each field's vectors.
    background : table, optional
        The rows to average over. By default the rows that the encoder was fitted to, whose mean weights it keeps (see
        `Encoder.feature_means`).

    Returns
    -------
    Curve, Bars or Surface
        A curve along a numerical field, bars along a categorical or multi-valued one, a surface along two fields.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> curve = sf.segment(fitted, {"c": "a"}, along="x")
    >>> bool(np.allclose(curve([0.5, 2.5]), fitted.scores({"x": [0.5, 2.5], "c": ["a", "a"]}), atol=1e-5))
    True
    """
    schema, names = fitted.encoder.schema, _along_names(along)
    _check_along(fitted, names)
    if not isinstance(values, Mapping):
        raise TypeError(f"a segment is a dict of values, got {type(values).__name__}; for a table use sf.segments")
    for name in values:
        if name not in schema.names and name not in schema.columns:
            raise ValueError(f"the segment: {missing_column_message(str(name), schema.names)}")
        if name in names:
            raise ValueError(f"{name!r} is in the segment and varies (along): take it out of one of the two")
    items = {name: schema[name] if name in schema.names else schema.on_column(name)[0] for name in values}
    given = {name: pa.array([_one_value(items[name], value)], from_pandas=True) for name, value in values.items()}
    columns = _by_field(schema, given, names)
    means = mean_vectors(fitted, [*columns, *names], rest, background)
    return _view(fitted, names, iter([(1, columns)]), means)[0]


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
        As in `segment`.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> curves = sf.segments(fitted, {"c": ["a", "b"]}, along="x")
    >>> curves([0.0, 1.0, 2.0]).shape, curves[1](1.0).shape
    ((2, 3), ())
    """
    schema, names = fitted.encoder.schema, _along_names(along)
    _check_along(fitted, names)
    source = open_table(table, types=schema.column_types())
    if rest == "mean":
        for name in source.names:
            if name not in schema.names and name not in schema.columns:
                raise ValueError(f'with rest="mean" all columns must be fields; {_unknown_field(name, schema)}')
    present = [item for item in schema if item.name not in names and {item.name, item.column} & set(source.names)]
    means = mean_vectors(fitted, [*(item.name for item in present), *names], rest, background)
    columns = [name for name in source.names if any(name in (item.name, item.column) for item in present)]
    units = fitted.encoder.layout.n_units * fitted.params["factors"].shape[1]
    chunks = read_columns(source, columns, max(1, _BATCH_SIZE // units))
    return _view(fitted, names, ((n, _by_field(schema, part, names)) for n, part in chunks), means)


def _by_field(schema: Schema, given: Mapping[str, pa.Array], along: tuple[str, ...]) -> dict[str, pa.Array]:
    """Values along the axes of the fields that do not vary, given by names of fields or of columns."""
    values = {}
    for item in schema:
        if item.name in along:
            continue
        if item.name in given:
            values[item.name] = given[item.name]
        elif item.column in given:
            column = given[item.column]
            is_part = isinstance(item, Numerical) and item.part is not None
            values[item.name] = to_arrow(item.read(column)) if is_part else column  # type: ignore[arg-type]  # numbers
    return values


def _along_names(along: Along) -> tuple[str, ...]:
    names = (along,) if isinstance(along, str) else tuple(along)
    if len(names) not in (1, 2) or len(set(names)) < len(names):
        raise ValueError(f"along must be the name of a field or two different ones, got {along!r}")
    return names


def _check_along(fitted: Fitted, names: tuple[str, ...]) -> None:
    check_one_score(fitted)
    schema, layout = fitted.encoder.schema, fitted.encoder.layout
    for name in names:
        if name not in schema.names:
            raise ValueError(f"along: {_unknown_field(name, schema)}")
        if n_units(fitted, schema.names.index(name)) > 1:
            n = max(layout.fields[schema.names.index(name)].units) + 1
            raise ValueError(
                f'{name!r} has reduction="identity": its {n} vectors interact with each other, so that the score '
                'is not in the span of its basis; views need reduction="sum"'
            )


def _unknown_field(name: str, schema: Schema) -> str:
    if name in schema.columns:
        parts = quoted([item.name for item in schema.on_column(name)])
        return f"{name!r} is a column of several fields; take one of {parts}"
    return missing_column_message(name, schema.names, where="the model")


def _one_value(item: Field, value: object) -> object:
    """A value of a segment, in a form that Arrow takes."""
    several = isinstance(value, list | tuple | Set | np.ndarray) or hasattr(value, "to_numpy")
    if not several:
        return value
    if not isinstance(item, MultiValued):
        raise ValueError(
            f"a segment has one value per field, {item.name!r} has {type(value).__name__} {value!r}; "
            "for several segments use sf.segments"
        )
    return list(value)  # type: ignore[call-overload]  # a collection, as checked above


def _view(
    fitted: Fitted,
    names: tuple[str, ...],
    chunks: Iterator[tuple[int, dict[str, pa.Array]]],
    means: dict[int, tuple[FloatArray, float]],
) -> Curve | Bars | Surface:
    """The view of all segments."""
    schema, layout, model, params = fitted.encoder.schema, fitted.encoder.layout, fitted.model, fitted.params
    along = [schema.names.index(name) for name in names]
    levels, slopes, scales = [], [], []
    for n, columns in chunks:
        P, linear, unit_field = other_units(fitted, along, n, columns, means)
        interaction = model.interaction(P, params, unit_field) if len(unit_field) else 0.0
        levels.append(params["bias"].astype(np.float64) + linear + interaction)
        slopes.append([model.slope(P, params, unit_field, f) for f in along])
        scales.append(pair_scale(model, params, P, along, len(layout.fields)) if len(along) == 2 else None)
    if not levels:
        raise ValueError("the table of segments has no rows; give at least one")
    intercept = np.concatenate(levels)
    effects = [
        feature_effects(fitted, f, np.concatenate(parts))
        for f, parts in zip(along, zip(*slopes, strict=True), strict=True)
    ]
    if len(along) == 2:
        first, second = (fitted.encoder.fields[f] for f in along)
        scale = np.concatenate([part for part in scales if part is not None])
        factors = pair_factors(fitted, along[0], along[1])
        counts = fitted.encoder.feature_counts[along[0]], fitted.encoder.feature_counts[along[1]]
        return Surface((first, second), (effects[0], effects[1]), factors, scale, intercept, fitted.loss, counts)
    item, seen = fitted.encoder.fields[along[0]], fitted.encoder.feature_counts[along[0]]
    return (Curve if isinstance(item, Numerical) else Bars)(item, effects[0], intercept, fitted.loss, seen)
