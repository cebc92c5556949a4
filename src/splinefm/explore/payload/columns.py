"""Columns as a page shows them: ranges, knots, density, transform, basis, starvation, categories."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.bases.basis import step_cuts
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.curves import unit_range
from splinefm.encode.fields.description import bin_edges
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.fields.numerical import ORDINARY, Numerical
from splinefm.encode.fields.sources import Sources
from splinefm.encode.schema import Single
from splinefm.encode.starvation import BasisStarvation
from splinefm.encode.tables.columns import one_array
from splinefm.encode.transforms.pieces import transform_pieces
from splinefm.explore.payload.buffers import Buffers, json_number
from splinefm.explore.payload.cut import Kept
from splinefm.learn.fitted import Fitted

FloatArray = npt.NDArray[np.float64]
DENSITY_BINS = 60
_STEPS = 512  # of a transform that has no pieces


def describe_columns(
    fitted: Fitted, sources: Sources, kept: list[Kept], table: pa.Table, buffers: Buffers
) -> list[dict[str, Any]]:
    """The sources of a model's values, in order: what has a slider or a menu."""
    encoder = fitted.encoder
    names = encoder.schema.names
    shares = encoder.starvation()
    found = []
    for i, (name, item) in enumerate(sources.fields.items()):
        field = names.index(name) if name in names else None
        common: dict[str, Any] = {
            "name": name,
            "column": item.column,
            "field": field,
            "readers": [names.index(cross) for cross in sources.readers(name)],
            "missing": item.missing == "token",
            "note": encoder.notes.get(name),
        }
        if isinstance(item, Numerical):
            limits = encoder.ranges[field] if field is not None else np.full(2, np.nan)
            values = one_array(table.column(item.column))
            own = _numerical(item, limits, item.read(values), buffers, f"source {i}")
            own["starvation"] = _starvation(shares, name)
        else:
            counts = encoder.feature_counts[field] if field is not None else None
            own = _categorical(item, kept[field] if field is not None else None, counts)
        found.append(common | own)
    return found


def _numerical(item: Numerical, limits: FloatArray, x: FloatArray, buffers: Buffers, name: str) -> dict[str, Any]:
    transform, first_last = item.fitted_transform, unit_range(item, None, None)
    ends = np.asarray(transform.inverse(np.array(first_last)), np.float64)
    known = np.where(np.isnan(limits), ends, limits)
    pieces = transform_pieces(transform) or _sampled(item)
    steps = step_cuts(item.basis) is not None
    return {
        "kind": "numerical",
        "part": item.part,
        "format": item.format,
        "zone": item.zone,
        "low": json_number(known[0]),
        "high": json_number(known[1]),
        "range": list(first_last),
        "transform": {
            "name": type(transform).__name__,
            "text": repr(transform),
            "knots": buffers.add(f"{name}: knots of T", pieces[0], np.float64),
            "values": buffers.add(f"{name}: values of T", pieces[1], np.float64),
            "powers": pieces[1].shape[1],
        },
        "basis": {"name": type(item.basis).__name__, "text": repr(item.basis), "functions": sum(item.basis.sizes)},
        "steps": steps,
        "knots": [json_number(value) for value in (bin_edges(item) if steps else _knots(item))],
        "density": _density(item, x),
        "is_integer": bool(len(x)) and bool(np.all(np.isnan(x) | (x == np.round(x)))),
    }


def _sampled(item: Numerical) -> tuple[FloatArray, FloatArray]:
    """A transform that is not followed by cubics, linear between points: for axes only."""
    u = np.linspace(0.0, 1.0, _STEPS + 1)
    x, first = np.unique(np.asarray(item.fitted_transform.inverse(u), np.float64), return_index=True)
    return (x, u[first][:, None]) if len(x) > 1 else (np.array([x[0], x[0] + 1.0]), np.array([[0.0], [1.0]]))


def _knots(item: Numerical) -> FloatArray:
    """Borders between the polynomials of a field, in raw units; none where its basis has none."""
    breaks = getattr(item.basis, "breaks", None)
    return np.zeros(0) if breaks is None else np.unique(np.asarray(item.fitted_transform.inverse(breaks), np.float64))


def _density(item: Numerical, x: FloatArray) -> dict[str, Any]:
    """Rows in equal parts of u, and of each token; infinite numbers have tokens."""
    token = item.tokens(x)
    token = np.full(len(x), ORDINARY, np.int32) if token is None else token
    edges = np.linspace(0.0, 1.0, DENSITY_BINS + 1)
    counts, _ = np.histogram(item.fitted_transform(x[token == ORDINARY]), edges)
    tokens = np.bincount(token[token != ORDINARY], minlength=item.n_tokens)
    return {
        "u": edges.tolist(),
        "x": [json_number(value) for value in np.asarray(item.fitted_transform.inverse(edges))],
        "counts": counts.tolist(),
        "tokens": tokens.tolist(),
    }


def _starvation(shares: BasisStarvation, name: str) -> list[dict[str, Any]]:
    return [
        {
            "function": share.function,
            "low": json_number(share.low),
            "high": json_number(share.high),
            "share": share.share,
            "even": share.even_share,
            "starved": share.starved,
            "block": share.block,
        }
        for share in shares.functions
        if share.field == name
    ]


def _categorical(item: Single, kept: Kept | None, counts: FloatArray | None) -> dict[str, Any]:
    assert isinstance(item, Categorical | MultiValued)
    members = np.arange(len(item.vocabulary or ())) if kept is None else kept.members
    names = [] if item.vocabulary is None else item.vocabulary.names.take(pa.array(members)).to_pylist()
    first = item.elements.n_tokens
    position = np.argsort(members, kind="stable")
    shown = np.searchsorted(members, item.display_order(members)) if len(members) else position
    return {
        "kind": "multivalued" if isinstance(item, MultiValued) else "categorical",
        "categories": names,
        "order": shown.tolist(),
        "ordered": item.vocabulary is not None and item.vocabulary.has_natural_order,
        "counts": None if counts is None else counts[first + members].tolist(),
        "token_counts": None if counts is None else counts[:first].tolist(),
        "unseen": item.unseen,
        "spelling": item.elements.spelling,
        "separator": item.separator if isinstance(item, MultiValued) else None,
        "length": len(item.layout.widths) if isinstance(item, MultiValued) else 1,
    }
