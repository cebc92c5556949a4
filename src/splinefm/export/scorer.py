"""The scorer file: a flat image of a model that the C library maps into memory and uses where it is.

It has the layout of `splinefm.store.scorer_image`. The section `meta` describes the model in words of eight bytes,
texts, and references to arrays; `cpp/c/plan.cpp` reads it in the order in which it is written here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from splinefm._arrays import Array
from splinefm._checks import check_fitted
from splinefm._core import StringTable, cell_places
from splinefm._files import check_destination, replacing
from splinefm.encode.fields.cross import MULTIPLIERS, PRIME
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.plans import (
    CrossPlan,
    ListPlan,
    NamesPlan,
    NumberPlan,
    Plan,
    SlowPlan,
    plan_field,
    window_coefficients,
)
from splinefm.encode.tables.dates import PARTS
from splinefm.encode.tables.names import quoted
from splinefm.encode.tables.spelling import VALUES
from splinefm.model.scores import row_between, row_tables
from splinefm.store.scorer_image import VERSION, WITH_LIMITS, WITH_OFFSET, ImageWriter, image_blocks
from splinefm.train.fitted import Fitted

_UNSEEN = ("rare", "neutral", "error", "hash")
_KINDS = {NumberPlan: 0, NamesPlan: 1, ListPlan: 2, CrossPlan: 3}


class Indexed(Protocol):
    """A catalog of items, `sf.ItemIndex`."""

    fitted: Fitted

    def image(self) -> dict[str, Array]:
        """Return the sections of a scorer file that hold the items."""


def export_scorer(fitted: Fitted, path: str | os.PathLike[str], *, index: Indexed | None = None) -> None:
    """Write a model as a scorer file, for the C library (`splinefm.h`).

    The file holds everything that it takes to score rows of raw values: vocabularies as hash tables, transforms and
    bases as pieces of polynomials, and the parameters. The library maps it into memory, so that opening takes
    milliseconds and processes share one copy. Scores equal `Fitted.scorer`, to the bit. An existing file is
    replaced in one step, or not at all.

    Parameters
    ----------
    fitted : Fitted
        The model.
    path : path
        The file, usually with the suffix ".sfs".
    index : ItemIndex, optional
        A catalog of items of this model, to be part of the file: the library finds the items that `ItemIndex.top_k`
        finds.

    Raises
    ------
    ValueError
        If the model has a field that only Python can encode, such as one with a custom transform or basis, or if the
        index was built with another model.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import splinefm as sf
    >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sf.export_scorer(fitted, f"{folder}/model.sfs")
    ...     Path(f"{folder}/model.sfs").read_bytes()[1:4]
    b'SFS'
    """
    check_fitted(fitted)
    target = check_destination(Path(path))
    if index is not None and index.fitted is not fitted:
        raise ValueError("index belongs to another model; export the one it was built with, index.fitted")
    sections = _sections(fitted)
    if index is not None:
        sections |= index.image()
    with replacing(target) as file:
        for block in image_blocks(sections, _version(fitted)):
            file.write(block)


def _version(fitted: Fitted) -> int:
    """The first version with what the model has."""
    if _has_limits(fitted):
        return WITH_LIMITS
    return VERSION if fitted.offset is None else WITH_OFFSET


def _has_limits(fitted: Fitted) -> bool:
    """Whether a field does not clip what is beyond its range."""
    readers = fitted.encoder.schema.column_readers
    return any(item.outside != "clip" for item in readers if isinstance(item, Numerical))


def _sections(fitted: Fitted) -> dict[str, Array]:
    fields, model, loss = fitted.encoder.fields, fitted.model, fitted.loss
    plans = [plan_field(*each) for each in zip(fields, fitted.encoder.layout.feature_ptr[:-1].tolist(), strict=True)]
    _refuse_slow(plans)
    writer, has_limits = ImageWriter(), _has_limits(fitted)
    writer.text(str(sys.modules["splinefm"].__version__))  # not imported: modules must not import the package itself
    writer.text(model.kind)
    writer.text(loss.link)
    columns = fitted.columns
    writer.texts(columns)
    writer.texts([] if fitted.classes is None else list(map(str, fitted.classes)))
    writer.integers(len(plans))
    for plan in plans:
        writer.text(plan.item.name)
        writer.integers(_KINDS[type(plan)])
        _write_plan(writer, plan, columns, has_limits)
    tables = row_tables(model, fitted.params, len(fields))
    n_features = len(tables.linear) // fitted.n_outputs
    writer.integers(fitted.n_outputs, tables.k, tables.factors.shape[1], model.members, model.order, n_features)
    writer.numbers(loss.center, loss.scale)
    if has_limits:
        writer.integers(fitted.offset is not None)
    if fitted.offset is not None:
        writer.integers(columns.index(fitted.offset.column), 2 if fitted.offset.kind == "exposure" else 1)
        writer.numbers(loss.score_unit, fitted.offset.largest(loss))
    meta, arrays = writer.sections()
    return {
        "meta": meta,
        "tables": arrays,
        "factors": tables.factors,
        "linear": tables.linear,
        "between": row_between(model, fitted.params, len(fields)),
        "bias": np.ascontiguousarray(fitted.params["bias"], np.float32),
    }


def _refuse_slow(plans: Sequence[Plan]) -> None:
    slow = [plan.item.name for plan in plans if isinstance(plan, SlowPlan)]
    if slow:
        raise ValueError(
            f"a scorer file cannot hold the fields {quoted(slow)}: their transform or basis runs in Python; use "
            "transforms and bases of the package, such as sf.Quantile() and sf.BSpline(), or sf.discretize the model"
        )


def _write_plan(writer: ImageWriter, plan: Plan, columns: list[str], has_limits: bool) -> None:
    if isinstance(plan, NumberPlan):
        _write_number(writer, plan, columns, has_limits)
    elif isinstance(plan, NamesPlan):
        _write_names(writer, plan, columns)
    elif isinstance(plan, ListPlan):
        _write_names(writer, plan.elements, columns)
        separator = plan.item.separator
        writer.integers(plan.length, plan.item.reduction == "mean", plan.item.reduction == "identity")
        writer.integers(separator is not None)
        writer.text(separator or "")
    elif isinstance(plan, CrossPlan):
        _write_cross(writer, plan, columns, has_limits)


def _write_number(writer: ImageWriter, plan: NumberPlan, columns: list[str], has_limits: bool) -> None:
    part = plan.item.part
    writer.integers(columns.index(plan.item.column), 0 if part is None else 1 + PARTS.index(part), plan.first)
    writer.integers(plan.description.missing is not None, plan.item.reduction == "identity", len(plan.rules))
    for sign, number in plan.rules.tolist():
        writer.integers(int(sign))
        writer.numbers(number)
    writer.array(plan.knots, np.float64)
    writer.array(plan.values, np.float64)
    writer.integers(plan.powers)
    if has_limits:
        writer.numbers(*plan.limits)
        writer.integers(plan.beyond_missing)
    writer.integers(len(plan.windows))
    for window in plan.windows:
        _, functions, powers = window.coefficients.shape
        writer.integers(window.segments)
        writer.array(np.zeros(0) if window.edges is None else window.edges, np.float64)
        writer.array(window_coefficients(window), np.float64)
        writer.integers(functions, powers - 1, window.start, window.moves, window.around)


def _write_names(writer: ImageWriter, plan: NamesPlan, columns: list[str]) -> None:
    item = plan.item
    writer.integers(columns.index(item.column), VALUES.index(item.spelling), _UNSEEN.index(plan.unseen))
    writer.integers(plan.first + item.first_unseen, item.buckets, plan.first_name)
    writer.integers(-2 if plan.missing is None else plan.missing)
    offsets, text = plan.names
    begin, end = int(offsets[0]), int(offsets[-1])
    offsets, text = offsets - begin, text[begin:end]
    text.flags.writeable = False
    writer.array(offsets, np.int64)
    writer.array(text, np.uint8)
    writer.array(StringTable(offsets, text).slots(), np.int32)


def _write_cross(writer: ImageWriter, plan: CrossPlan, columns: list[str], has_limits: bool) -> None:
    writer.integers(plan.first, len(plan.parts))
    for part in plan.parts:
        writer.integers(_KINDS[type(part)])
        _write_plan(writer, part, columns, has_limits)
    writer.integers(len(plan.sizes))
    writer.array(plan.sizes, np.int64)
    writer.integers(plan.item.buckets or 0)
    writer.array(np.array(MULTIPLIERS[: len(plan.item.categories)]), np.int64)
    writer.integers(PRIME)
    writer.array(plan.cells, np.int32)
    writer.array(cell_places(plan.cells), np.int32)
