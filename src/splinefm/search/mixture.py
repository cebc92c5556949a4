"""The mean of fits with different settings, as one model.

Settings that differ in bases, crosses or columns have models with one formula. Their mean is a model of the fields of
all of them: a spline on 8 segments and one on 20 become one field with both resolutions, where each member has vectors
of zero for the resolution that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from splinefm._arrays import Float32Array, Int64Array
from splinefm.encode.bases import BSpline, MultiResolution
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import AnyField, Provenance, Schema
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.field_weighted import FwFM
from splinefm.model.family.fm import FM
from splinefm.model.family.higher_order import HigherOrderFM

# Their parameters belong to features, or to pairs of fields: both can be put in other places.
MIXABLE = (FM, FwFM, HigherOrderFM)


def join_schemas(schemas: Sequence[Schema]) -> Schema | None:
    """Return a schema with the fields of all schemas, or None if they have no field in common for a column.

    Examples
    --------
    >>> import splinefm as sf
    >>> eight, twenty = (Schema([sf.Numerical("x", basis=sf.BSpline(n))]) for n in (8, 20))
    >>> join_schemas([eight, twenty])["x"].basis
    MultiResolution(segments=(8, 20), degree=3)
    """
    fields: dict[str, AnyField] = {}
    provenance: dict[str, Provenance] = {}
    for schema in schemas:
        for item in schema.fields:
            both = _join(fields[item.name], item) if item.name in fields else item
            if both is None:
                return None
            fields[item.name] = both
        provenance |= schema.provenance
    joined = schemas[0].having(fields.values(), provenance)
    # A cross may take its bases from its columns.
    same = all(_crosses(schema).items() <= _crosses(joined).items() for schema in schemas)
    return joined if same else None


def _crosses(schema: Schema) -> dict[str, AnyField]:
    return {item.name: item for item in schema.crosses}


def _join(a: AnyField, b: AnyField) -> AnyField | None:
    """Return the field that has the features of both, or None if there is none."""
    if a == b:
        return a
    if not (isinstance(a, Numerical) and isinstance(b, Numerical) and replace(a, basis=b.basis) == b):
        return None
    levels, others = _levels(a), _levels(b)
    if levels is None or others is None or levels[0] != others[0]:
        return None
    both = MultiResolution(tuple(sorted({*levels[1], *others[1]})), levels[0])
    if a.slope is not None and not both.is_nested:
        return None  # its limits are for the sum of all resolutions
    return replace(a, basis=both)


def _levels(item: Numerical) -> tuple[int, tuple[int, ...]] | None:
    """Return the degree and the segments of a spline, coarse to fine; None for other bases."""
    basis = item.basis
    if isinstance(basis, MultiResolution):
        return basis.degree, basis.segments
    return (basis.degree, (basis.segments,)) if isinstance(basis, BSpline) and _is_plain(basis) else None


def _is_plain(basis: BSpline) -> bool:
    return basis.is_uniform and not basis.periodic


def move_params(model: AnyModel, params: Params, old: Encoder, new: Encoder) -> Params:
    """Return the parameters of a model for an encoder with more features and fields; what is new is zero."""
    places = feature_places(old, new)
    moved = {"bias": params["bias"]}
    for name in ("linear", "factors"):
        axis = params[name].ndim - (2 if name == "factors" else 1)
        moved[name] = _spread(params[name], places, new.layout.n_features, axis)
    if isinstance(model, FwFM):
        names = new.layout.names
        fields = np.array([names.index(name) for name in old.layout.names])
        weights = params["field_weights"]
        below = np.triu(weights) + np.swapaxes(np.triu(weights, 1), -1, -2)
        found = np.zeros((*weights.shape[:-2], len(names), len(names)), weights.dtype)
        found[..., fields[:, None], fields] = below
        moved["field_weights"] = found
    return moved


def _spread(values: Float32Array, places: Int64Array, n: int, axis: int) -> Float32Array:
    shape = list(values.shape)
    shape[axis] = n
    found = np.zeros(shape, values.dtype)
    found[(slice(None),) * axis + (places,)] = values
    return found


def feature_places(old: Encoder, new: Encoder) -> Int64Array:
    """Return the place of every feature of an encoder in another one, which has them and more."""
    firsts = dict(zip(new.layout.names, new.layout.feature_ptr.tolist(), strict=False))
    fields = dict(zip(new.layout.names, new.fields, strict=True))
    places = []
    for item, layout in zip(old.fields, old.layout.fields, strict=True):
        within = np.arange(layout.n_features)
        other = fields[item.name]
        if isinstance(item, Numerical) and isinstance(other, Numerical) and item.basis != other.basis:
            within = _places_of_levels(item, other)
        places.append(firsts[item.name] + within)
    return np.concatenate(places)


def _places_of_levels(item: Numerical, other: Numerical) -> Int64Array:
    mine, theirs = _levels(item), _levels(other)
    assert mine is not None and theirs is not None
    ends = item.n_tokens + np.cumsum((0, *other.basis.sizes))
    parts = [np.arange(item.n_tokens)]
    for segments, size in zip(mine[1], item.basis.sizes, strict=True):
        parts.append(ends[theirs[1].index(segments)] + np.arange(size))
    return np.concatenate(parts)
