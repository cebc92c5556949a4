"""Fields as a page reads them: titles and units, columns, and the plans of compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray, IndexArray, Int32Array
from splinefm._wording import number
from splinefm.encode.bases import PolynomialWindow, step_cuts
from splinefm.encode.fields.cross import MULTIPLIERS, PRIME
from splinefm.encode.fields.numerical import ORDINARY, SIGNS, Numerical
from splinefm.encode.plans import CrossPlan, ListPlan, NamesPlan, NumberPlan, Plan, SlowPlan, plan_field
from splinefm.encode.schema import Sources
from splinefm.encode.slots import expand_windows
from splinefm.encode.starvation import BasisStarvation
from splinefm.encode.tables.columns import one_array
from splinefm.encode.tables.names import quoted
from splinefm.encode.transforms.transform import transform_pieces
from splinefm.explore.arrays import Buffers, KeptFeatures, json_number
from splinefm.inspect.axes import axis_format
from splinefm.inspect.certificates import marks
from splinefm.inspect.values import effect_unit, score_text
from splinefm.store.description import describe_search, predicted_thing
from splinefm.train.fitted import Fitted
from splinefm.train.losses import Loss

# What the page says about a model: titles, units, and the shapes of transforms and bases.

_POINTS, _MAX_FUNCTIONS, _MAX_SETTINGS = 257, 64, 20


class Origin(NamedTuple):
    """Where the rows of a page come from.

    Parameters
    ----------
    model, data : str
        Names of the model file and of the table, as the page shows them.
    n_rows, n_sampled : int
        Rows of the table, and of the page.
    target : str, optional
        The column that is predicted.
    """

    model: str
    data: str
    n_rows: int
    n_sampled: int
    target: str | None = None


def describe_page(fitted: Fitted, origin: Origin, ranking: dict[str, Any] | None = None) -> dict[str, Any]:
    """Titles and units for a page.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=1, threads=1))
    >>> about = describe_page(fitted, Origin("m.sfm", "clicks.csv", 200, 200, "click"))
    >>> about["title"], about["prediction_text"], about["score_unit"]
    ('click', 'probability of 1', 'log-odds')
    """
    loss = fitted.loss
    unit, scale, zero = effect_unit(loss)
    sampled = f", {origin.n_sampled:,} of them in this page" if origin.n_sampled < origin.n_rows else ""
    rows = f"{origin.n_rows:,} rows of {origin.data}{sampled}"
    return {
        "title": origin.target or predicted_thing(fitted),
        "subtitle": f"{fitted.model} predicts the {predicted_thing(fitted)}. {rows}.",
        "model": origin.model,
        "prediction_short": _short(loss),
        "prediction_text": _text(fitted, origin.target),
        "score_short": "score",
        "score_text": score_text(loss),
        "score_unit": unit,
        "unit_scale": scale,
        "unit_zero": zero,
        "ranking": ranking,
        "search": _search(fitted),
        "columns": {name: describe_shapes(item) for name, item in fitted.encoder.schema.sources.fields.items()},
    }


def _search(fitted: Fitted) -> dict[str, Any] | None:
    """The settings that the fit has tried as a table of text, the best first; None if there are none."""
    entries = describe_search(fitted)
    if not entries:
        return None
    heads = ["setting", f"{entries[0]['metric']} on held-out rows", "standard error", "parts of the rows", "seconds"]
    rows = [
        [
            entry["text"],
            number(entry["value"]),
            number(entry["value_error"], ".2g"),
            str(entry["folds"]),
            number(entry["seconds"], ".1f"),
        ]
        for entry in entries[:_MAX_SETTINGS]
    ]
    chosen = [i for i, entry in enumerate(entries[:_MAX_SETTINGS]) if entry["is_chosen"]]
    some = f", the best {len(rows)} of {len(entries):,} settings" if len(entries) > len(rows) else ""
    return {"title": f"What the fit tried{some}", "columns": heads, "rows": rows, "chosen": chosen}


def _short(loss: Loss) -> str:
    return {"logistic": "probability", "softmax": "probability"}.get(loss.link, "prediction")


def _text(fitted: Fitted, target: str | None) -> str:
    loss = fitted.loss
    if loss.link == "softmax":
        return "probability of the class"
    if loss.link == "logistic" or target is None:
        return predicted_thing(fitted)
    return f"quantile {loss.quantile:g} of {target}" if loss.quantile is not None else f"predicted {target}"


def describe_shapes(item: object) -> dict[str, Any] | None:
    """The transform as a table of values, and the basis functions over u; None without a transform."""
    if not isinstance(item, Numerical):
        return None
    u = np.linspace(0.0, 1.0, _POINTS)
    x = np.asarray(item.fitted_transform.inverse(u), np.float64)
    known = np.isfinite(x)
    n_functions = sum(item.basis.sizes)
    whole = [int(n) for n in np.cumsum(item.basis.sizes) if n <= _MAX_FUNCTIONS]
    n_shown = whole[-1] if whole else _MAX_FUNCTIONS
    start, weight = item.basis(u)
    values = np.zeros((n_functions, len(u)))
    np.add.at(values, (expand_windows(start, item.basis.widths), np.arange(len(u))[:, None]), weight)
    return {
        "x": x[known].tolist(),
        "u": u[known].tolist(),
        "functions": np.round(values[:n_shown, ::2], 5).tolist(),
        "at": u[::2].tolist(),
        "integers": axis_format(item).integers,
        "special": [float(value) for value in item.special if not isinstance(value, str)],
    }


# Columns as a page shows them: ranges, knots, density, transform, basis, starvation, categories.

_STEPS = 512  # of a transform that has no pieces


def describe_columns(
    fitted: Fitted, sources: Sources, kept: list[KeptFeatures], table: pa.Table, buffers: Buffers
) -> list[dict[str, Any]]:
    """The sources of a model's values, in order: what has a slider or a menu."""
    encoder = fitted.encoder
    names, shares = encoder.schema.names, encoder.starvation()
    proven = marks(fitted, names)
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
            "mark": proven.get(name),
        }
        if isinstance(item, Numerical):
            x = item.read(one_array(table.column(item.column)))
            own = describe_numerical(fitted, item, x, shares, buffers, i)
        else:
            counts = encoder.feature_counts[field] if field is not None else None
            own = _categorical(item, kept[field] if field is not None else None, counts)
        found.append(common | own)
    return found


def describe_numerical(
    fitted: Fitted, item: Numerical, x: FloatArray, shares: BasisStarvation, buffers: Buffers, source: int
) -> dict[str, Any]:
    """A numerical source of values: its range, transform, knots and basis, and where some values `x` are."""
    names = fitted.encoder.schema.names
    limits = fitted.encoder.ranges[names.index(item.name)] if item.name in names else np.full(2, np.nan)
    transform, first_last = item.fitted_transform, item.unit_range(None, None)
    ends = item.raw(np.array(first_last))
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
            "knots": buffers.add(f"source {source}: knots of T", pieces[0], np.float64),
            "values": buffers.add(f"source {source}: values of T", pieces[1], np.float64),
            "powers": pieces[1].shape[1],
        },
        "basis": {"name": type(item.basis).__name__, "text": repr(item.basis), "functions": sum(item.basis.sizes)},
        "knots": [json_number(value) for value in (item.bin_edges() if steps else _knots(item))],
        "token_rows": _token_rows(item, x),
        "is_integer": bool(len(x)) and bool(np.all(np.isnan(x) | (x == np.round(x)))),
        "starvation": _starvation(shares, item.name),
    }


def _sampled(item: Numerical) -> tuple[FloatArray, FloatArray]:
    """A transform that is not followed by cubics, linear between points: for axes only."""
    u = np.linspace(0.0, 1.0, _STEPS + 1)
    x, first = np.unique(np.asarray(item.fitted_transform.inverse(u), np.float64), return_index=True)
    return (x, u[first][:, None]) if len(x) > 1 else (np.array([x[0], x[0] + 1.0]), np.array([[0.0], [1.0]]))


def _knots(item: Numerical) -> FloatArray:
    """Borders between the polynomials of a field, in raw units; none where its basis has none."""
    breaks = getattr(item.basis, "breaks", None)
    return np.zeros(0) if breaks is None else np.unique(item.raw(breaks))


def _token_rows(item: Numerical, x: FloatArray) -> list[int]:
    """Rows with each special value, and with missing ones."""
    token = item.find_tokens(x)
    return (
        [0] * item.n_tokens
        if token is None
        else np.bincount(token[token != ORDINARY], minlength=item.n_tokens).tolist()
    )


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


def _categorical(item: Any, kept: KeptFeatures | None, counts: FloatArray | None) -> dict[str, Any]:
    members = np.arange(len(item.vocabulary or ())) if kept is None else kept.members
    names = [] if item.vocabulary is None else item.vocabulary.names.take(pa.array(members)).to_pylist()
    first = item.n_tokens
    position = np.argsort(members, kind="stable")
    shown = np.searchsorted(members, item.display_order(members)) if len(members) else position
    return {
        "kind": "multivalued" if item.holds_lists else "categorical",
        "categories": names,
        "order": shown.tolist(),
        "ordered": item.vocabulary is not None and item.vocabulary.has_natural_order,
        "counts": None if counts is None else counts[first + members].tolist(),
        "token_counts": None if counts is None else counts[:first].tolist(),
        "unseen": item.unseen,
        "spelling": item.spelling,
        "separator": getattr(item, "separator", None),
        "length": len(item.layout.widths),
    }


# Fields as a page reads them: the plans of compiled code, as JSON with arrays beside it.


def plan_fields(fitted: Fitted) -> list[Plan]:
    """How each field reads rows; raise where only Python can."""
    firsts = fitted.encoder.layout.feature_ptr[:-1].tolist()
    plans = [plan_field(item, first) for item, first in zip(fitted.encoder.fields, firsts, strict=True)]
    slow = [plan.item.name for plan in plans if isinstance(plan, SlowPlan)]
    if slow:
        raise ValueError(
            f"a browser cannot compute the fields {quoted(slow)}: their transform or basis runs in Python; use "
            "transforms and bases of the package, such as sf.Quantile() and sf.BSpline(), or sf.discretize the model"
        )
    return plans


def describe_plan(
    plan: Plan, kept: KeptFeatures, first: int, sources: list[int], buffers: Buffers, name: str
) -> dict[str, Any]:
    """A field, or a part of a cross, whose first feature in the page is `first`.

    Parameters
    ----------
    plan : Plan
        How the field reads rows.
    kept : KeptFeatures
        What is left of it.
    first : int
        Its first feature in the page.
    sources : list of int
        The source of its value; for a cross, the source of each part.
    buffers : Buffers
        Takes its arrays.
    name : str
        Prefix of the names of its arrays.
    """
    if isinstance(plan, NumberPlan):
        return {"source": sources[0], "first": first, **_number(plan, buffers, name)}
    if isinstance(plan, NamesPlan):
        return {"source": sources[0], "first": first, **_names(plan, kept.members)}
    if isinstance(plan, ListPlan):
        item = plan.item
        return {
            "source": sources[0],
            "first": first,
            **_names(plan.elements, kept.members),
            "kind": "lists",
            "length": plan.length,
            "averages": item.reduction == "mean",
            "apart": item.reduction == "identity",
            "separator": item.separator,
        }
    assert isinstance(plan, CrossPlan)  # what is slow was refused
    return {"first": first, **_cross(plan, kept, sources, buffers, name)}


def _number(plan: NumberPlan, buffers: Buffers, name: str) -> dict[str, Any]:
    found = plan.description
    return {
        "kind": "number",
        "rules": [[SIGNS[int(sign)], json_number(number)] for sign, number in plan.rules.tolist()],
        "missing": found.missing,
        "tokens": found.n_tokens,
        "apart": plan.item.reduction == "identity",
        **({} if plan.item.outside == "clip" else {"outside": plan.item.outside, "limits": list(plan.limits)}),
        "knots": None if found.pieces is None else buffers.add(f"{name}: knots", plan.knots, np.float64),
        "values": None if found.pieces is None else buffers.add(f"{name}: values", plan.values, np.float64),
        "powers": plan.powers,
        "windows": [_window(window, buffers, f"{name}: window {w}") for w, window in enumerate(plan.windows)],
    }


def _window(window: PolynomialWindow, buffers: Buffers, name: str) -> dict[str, Any]:
    alike, functions, powers = window.coefficients.shape
    return {
        "segments": window.segments,
        "edges": None if window.edges is None else buffers.add(f"{name}: edges", window.edges, np.float64),
        "coefficients": buffers.add(f"{name}: coefficients", window.coefficients, np.float64),
        "alike": alike == 1,
        "functions": functions,
        "degree": powers - 1,
        "start": window.start,
        "moves": window.moves,
        "around": window.around,
    }


def _names(plan: NamesPlan, members: IndexArray) -> dict[str, Any]:
    """Features are counted from the first feature of the field."""
    item = plan.item
    names = [] if item.vocabulary is None else item.vocabulary.names.take(members).to_pylist()
    return {
        "kind": "names",
        "unseen": plan.unseen,
        "first_unseen": item.first_unseen,
        "buckets": item.buckets,
        "tokens": item.n_tokens,
        "missing": item.missing_token,
        "spelling": item.spelling,
        "names": names,
    }


def _cross(plan: CrossPlan, kept: KeptFeatures, sources: list[int], buffers: Buffers, name: str) -> dict[str, Any]:
    item = plan.item
    cells = plan.cells[kept.members] if item.cells is not None else plan.cells
    parts: list[dict[str, Any]] = []
    for i, part in enumerate(plan.parts):
        members = np.zeros(0, np.intp)
        if isinstance(part, NamesPlan):
            column = item.categories.index(i)
            members = np.arange(len(part.item.vocabulary or ()))
            if kept.is_cut:  # names of combinations that are left
                cells, members = _with_fewer_names(cells, column, part.item.n_tokens)
        own = KeptFeatures(members, len(members), members)
        parts.append(describe_plan(part, own, 0, [sources[i]], buffers, f"{name}: part {i}"))
    return {
        "kind": "cross",
        "parts": parts,
        "sizes": plan.sizes.tolist(),
        "buckets": item.buckets or 0,
        "multipliers": list(MULTIPLIERS[: len(item.categories)]),
        "prime": PRIME,
        "cells": buffers.add(f"{name}: cells", cells, np.int32),
        "block": item.block,
    }


def _with_fewer_names(cells: Int32Array, column: int, n_tokens: int) -> tuple[Int32Array, IndexArray]:
    """Combinations whose features of one part are counted without names that none of them has, and the other names."""
    positions = cells[:, column] - n_tokens
    members = np.unique(positions[positions >= 0])
    renamed = cells.copy()
    renamed[:, column] = np.where(positions >= 0, n_tokens + np.searchsorted(members, positions), cells[:, column])
    return renamed, members.astype(np.intp)
