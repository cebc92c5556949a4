"""Fields as a page reads them: the plans of compiled code, as JSON with arrays beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.bases.polynomials import PolynomialWindow
from splinefm.encode.fields.cells import MULTIPLIERS, PRIME
from splinefm.encode.fields.special import SIGNS
from splinefm.encode.rows.plans import CrossPlan, ListPlan, NamesPlan, NumberPlan, Plan, SlowPlan, plan_field
from splinefm.encode.tables.names import quoted
from splinefm.explore.payload.buffers import Buffers, json_number
from splinefm.explore.payload.cut import Kept
from splinefm.learn.fitted import Fitted

IndexArray = npt.NDArray[np.intp]


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
    plan: Plan, kept: Kept, first: int, sources: list[int], buffers: Buffers, name: str
) -> dict[str, Any]:
    """A field, or a part of a cross, whose first feature in the page is `first`.

    Parameters
    ----------
    plan : Plan
        How the field reads rows.
    kept : Kept
        What is left of it.
    first : int
        Its first feature in the page.
    sources : list of int
        The source of its value; of a cross, that of each part.
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
    """Features are counted from that of the field."""
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


def _cross(plan: CrossPlan, kept: Kept, sources: list[int], buffers: Buffers, name: str) -> dict[str, Any]:
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
        own = Kept(members, len(members), members)
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


def _with_fewer_names(
    cells: npt.NDArray[np.int32], column: int, n_tokens: int
) -> tuple[npt.NDArray[np.int32], IndexArray]:
    """Combinations whose features of one part are counted without names that none of them has, and the other names."""
    positions = cells[:, column] - n_tokens
    members = np.unique(positions[positions >= 0])
    renamed = cells.copy()
    renamed[:, column] = np.where(positions >= 0, n_tokens + np.searchsorted(members, positions), cells[:, column])
    return renamed, members.astype(np.intp)
