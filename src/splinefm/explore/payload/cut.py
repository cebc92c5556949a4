"""Which features of a large model a page gets: all that its rows have, and the most frequent of the others.

Categories and combinations of categories can be left out; tokens and basis functions cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.schema import Field
from splinefm.encode.slots import Slots, expand_windows
from splinefm.learn.fitted import Fitted

IndexArray = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Kept:
    """What is left of a field.

    Parameters
    ----------
    members : array
        Positions of the categories (or, of a cross, the combinations) that are kept, ascending.
    total : int
        How many the field has.
    features : array
        The features of the field that are kept, ascending.
    """

    members: IndexArray
    total: int
    features: IndexArray

    @property
    def is_cut(self) -> bool:
        """Whether something is left out."""
        return len(self.members) < self.total


def keep_features(fitted: Fitted, most: int, slots: Sequence[Slots]) -> list[Kept]:
    """What is kept of each field so that about `most` features are left, and all those that occur in `slots`."""
    fields, counts = fitted.encoder.fields, fitted.encoder.feature_counts
    sizes = [_members(item) for item in fields]
    if fitted.encoder.layout.n_features <= most:
        return [_kept(item, np.arange(total)) for item, total in zip(fields, sizes, strict=True)]
    used = _used(fitted, slots)
    costs = [_cost(item) for item in fields]
    fixed = sum(item.layout.n_features - total * cost for item, total, cost in zip(fields, sizes, costs, strict=True))
    # One line per category or combination of any field: needed ones first, then by rows per feature.
    field = np.repeat(np.arange(len(fields)), sizes)
    member = np.concatenate([np.arange(total) for total in sizes])
    rows = np.concatenate([_rows(*each) for each in zip(fields, counts, sizes, strict=True)])
    needed = np.concatenate([_needed(*each) for each in zip(fields, used, sizes, strict=True)])
    cost = np.array(costs)[field]
    order = np.lexsort((-rows / cost, ~needed))
    inside = needed[order] | (np.cumsum(cost[order]) <= most - fixed)
    chosen = np.zeros(len(order), bool)
    chosen[order[inside]] = True
    return [_kept(item, np.sort(member[chosen & (field == f)])) for f, item in enumerate(fields)]


def _members(item: Field) -> int:
    """Categories or combinations of a field that could be left out."""
    if isinstance(item, Cross):
        return len(item.cells) if item.cells is not None else 0
    return len(item.vocabulary or ()) if isinstance(item, Categorical | MultiValued) else 0


def _cost(item: Field) -> int:
    """Features of each of them."""
    return item.block if isinstance(item, Cross) else 1


def _first(item: Field) -> int:
    """Features before them."""
    return item.elements.n_tokens if isinstance(item, Categorical | MultiValued) else 0


def _rows(item: Field, counts: npt.NDArray[np.float64], total: int) -> npt.NDArray[np.float64]:
    """Training rows of each of them."""
    first, cost = _first(item), _cost(item)
    return counts[first : first + total * cost : cost]


def _needed(item: Field, used: npt.NDArray[np.bool_], total: int) -> npt.NDArray[np.bool_]:
    first, cost = _first(item), _cost(item)
    return np.asarray(used[first : first + total * cost].reshape(total, cost).any(axis=1))


def _kept(item: Field, members: IndexArray) -> Kept:
    total, first, cost = _members(item), _first(item), _cost(item)
    n_features = item.layout.n_features
    own = (first + members[:, None] * cost + np.arange(cost)).ravel()
    others: Any = np.concatenate([np.arange(first), np.arange(first + total * cost, n_features)])
    return Kept(members.astype(np.intp), total, np.sort(np.concatenate([others, own])).astype(np.intp))


def _used(fitted: Fitted, slots: Sequence[Slots]) -> list[npt.NDArray[np.bool_]]:
    """For each field, which of its features some rows have."""
    layout = fitted.encoder.layout
    used = np.zeros(layout.n_features, bool)
    for part in slots:
        features = expand_windows(part.start, np.diff(layout.weight_ptr).tolist())
        used[features[part.weight != 0.0]] = True
    return [used[first:last] for first, last in zip(layout.feature_ptr[:-1], layout.feature_ptr[1:], strict=True)]
