"""Plots of encoded fields: basis functions and transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splinefm._arrays import BoolArray, FloatArray
from splinefm.encode.bases import supports
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.slots import expand_windows
from splinefm.encode.starvation import STARVED
from splinefm.encode.tables.names import quoted
from splinefm.encode.transforms.transform import Transform
from splinefm.inspect.axes import BARS, RawAxis, Scale, axis_format, column_values, split_tokens
from splinefm.plots.captions import caption
from splinefm.plots.decorations import GRAY, LIGHT, PALETTE, RED, axis_name, set_raw_axis, set_ticks, use_percent
from splinefm.plots.figures import Axes, make_column_panels, use_axes
from splinefm.train.fitted import Fitted

_MANY_FUNCTIONS = 40


def basis(
    encoder_or_field: Encoder | Fitted | Numerical,
    name: str | None = None,
    ax: Axes | None = None,
    *,
    data: object = None,
) -> Axes:
    """Plot the basis functions of a numerical field, in the unit of its column, over a histogram of the data.

    Starved functions, which see less than a tenth of the rows that an even spread would give them, are red and counted
    in the title. An encoder knows them from its training data; for a field alone, they are counted in `data`.

    Parameters
    ----------
    encoder_or_field : Encoder, Fitted or Numerical
        An encoder and the name of a field, or a fitted field.
    name : str, optional
        Name of the field. Optional if there is only one numerical field.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.
    data : table or array, optional
        A table with the column, or its values.

    Examples
    --------
    >>> import splinefm as sf
    >>> schema = sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(segments=4, degree=1))])
    >>> encoder = sf.fit_encoder(schema, {"x": [0.0, 1.0, 2.0, 2.5, 100.0]})
    >>> basis(encoder, "x").get_title()
    '5 functions of MinMax(x), 2 starved'
    """
    encoder = _find_encoder(encoder_or_field)
    if encoder is not None:
        item, *others = _find_fields(encoder, name)
        if others:
            raise ValueError(
                f"name must be one of the numerical fields: {quoted([field.name for field in (item, *others)])}"
            )
    elif isinstance(encoder_or_field, Numerical):
        item = encoder_or_field
    else:
        raise TypeError(f"encoder_or_field must be an Encoder or a Numerical, got {type(encoder_or_field).__name__}")
    ax = use_axes(ax)
    values = None if data is None else column_values(data, item)
    ordinary = None if values is None else split_tokens(item, values)[0]
    starved = _starved(item, encoder, values, ordinary)
    axis = RawAxis.of([item], ordinary)
    x = axis.grid([item])
    functions = basis_values(item, x)
    sizes = item.basis.sizes
    top, bottom = float(functions.max()), float(min(functions.min(), 0.0))
    height = 1.15 * (top - bottom)
    offset = height * (len(sizes) - 1.0 - np.repeat(np.arange(len(sizes), dtype=np.float64), sizes))
    if ordinary is not None and len(ordinary):
        share, edges = axis.histogram(ordinary)
        full = height * (len(sizes) - 1) + top - bottom
        ax.stairs(bottom + share / share.max() * full, edges, baseline=bottom, fill=True, color=LIGHT, alpha=0.6)
    _draw_functions(ax, x, functions, offset, np.zeros(len(functions), bool) if starved is None else starved)
    set_raw_axis(ax, "x", axis, item.name)
    if len(sizes) > 1:
        ax.set_yticks(
            [height * (len(sizes) - 1 - i) for i in range(len(sizes))], [f"{size} functions" for size in sizes]
        )
    else:
        ax.set_ylabel("value of each function")
    title = f"{len(functions)} functions of {type(item.transform).__name__}({caption(item.name)})"
    ax.set_title(title + ("" if starved is None else f", {starved.sum() or 'none'} starved"), fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def transformed(
    source: Encoder | Fitted | Numerical | Transform | Sequence[Transform],
    data: object,
    name: str | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Plot histograms of columns before and after their transform: are the data spread over [0, 1]?

    Parameters
    ----------
    source : Encoder, Fitted, Numerical, Transform, or sequence of Transform
        Fitted fields, with two panels each; or candidate transforms of one column, which are fitted to the data: one
        panel for the column and one for each candidate.
    data : table or array
        A table with the columns; or the values, for a single column.
    name : str, optional
        A field of the encoder (by default all numerical ones), or the column of the candidates.
    axes : sequence of Axes, optional
        Axes to draw on, one per panel. By default a new figure is created, `axes[0].figure`.

    Returns
    -------
    list of Axes
        For each column the panel of raw values, followed by the panels of transformed values.

    Examples
    --------
    >>> import numpy as np
    >>> import splinefm as sf
    >>> values = np.random.default_rng(0).lognormal(size=500)
    >>> axes = transformed([sf.MinMax(), sf.Quantile()], {"price": values}, "price")
    >>> [ax.get_xlabel() for ax in axes]
    ['price', 'u = MinMax', 'u = Quantile']
    """
    columns = _find_columns(source, data, name)
    n_panels = sum(1 + len(column.transforms) for column in columns)
    panels = (
        make_column_panels(n_panels, 1 + len(columns[0].transforms)) if axes is None else [use_axes(ax) for ax in axes]
    )
    if len(panels) != n_panels:
        raise ValueError(f"axes must have {n_panels} elements, one per panel, got {len(panels)}")
    remaining = iter(panels)
    for column in columns:
        _draw_raw(next(remaining), column)
        for transform in column.transforms:
            _draw_unit(next(remaining), column, transform)
    return panels


class _Column(NamedTuple):
    """A field, its ordinary values, and transforms fitted to them."""

    item: Numerical
    values: FloatArray
    transforms: list[Transform]


def _find_encoder(source: object) -> Encoder | None:
    """The encoder itself, or the encoder of a Fitted or an estimator; None for anything else."""
    found = getattr(source, "fitted_", source)
    return found.encoder if isinstance(found, Fitted) else found if isinstance(found, Encoder) else None


def _find_fields(encoder: Encoder, name: str | None) -> list[Numerical]:
    """The numerical field of this name, or all numerical fields."""
    fields = encoder.schema.numerical
    if not fields:
        raise ValueError("the encoder has no numerical fields to plot")
    found = [item for item in fields if name in (None, item.name)]
    if not found:
        raise ValueError(f"no numerical field {name!r}. Numerical fields: {quoted([item.name for item in fields])}")
    return found


def _find_columns(source: object, data: object, name: str | None) -> list[_Column]:
    """The columns of fields, or the column of candidate transforms, which are fitted here."""
    encoder = _find_encoder(source)
    if encoder is not None:
        return [_column(item, data, [item.fitted_transform]) for item in _find_fields(encoder, name)]
    if isinstance(source, Numerical):
        return [_column(source, data, [source.fitted_transform])]
    candidates: Any = [source] if isinstance(source, Transform) else source
    if not isinstance(candidates, Sequence) or not candidates or not all(isinstance(t, Transform) for t in candidates):
        raise TypeError(
            f"source must be an Encoder, a Fitted, a field, or transforms such as [sf.MinMax()]; got {source!r}"
        )
    column = _column(Numerical(name or "value"), data, [])
    return [column._replace(transforms=[transform.fit(column.values) for transform in candidates])]


def _column(item: Numerical, data: object, transforms: list[Transform]) -> _Column:
    values, _ = split_tokens(item, column_values(data, item))
    if not len(values):
        raise ValueError(f"all values of {item.name!r} are special or missing; there is nothing to plot")
    return _Column(item, values, transforms)


def _draw_raw(ax: Any, column: _Column) -> None:
    """Draw a histogram of the values of a column."""
    low, high = float(column.values.min()), float(column.values.max())
    axis = RawAxis(low, high if high > low else low + 1.0, Scale(), axis_format(column.item))
    _draw_shares(ax, axis, column.values)
    ax.set_xlabel(axis_name(ax, "x", column.item.name))
    ax.set_ylabel("rows")


def _draw_unit(ax: Any, column: _Column, transform: Transform) -> None:
    """Draw a histogram of transformed values, and the height that it would have for an even spread."""
    _draw_shares(ax, RawAxis(0.0, 1.0, Scale()), transform(column.values))
    ax.axhline(1.0 / BARS, color=GRAY, linewidth=1, linestyle="--")
    family = getattr(transform, "family", None)
    ax.set_xlabel(f"u = {type(transform).__name__}" + (f" ({family})" if family else ""))


def _draw_shares(ax: Any, axis: RawAxis, values: FloatArray) -> None:
    share, edges = axis.histogram(values)
    ax.stairs(share, edges, fill=True, color=PALETTE[0])
    ax.set_xlim(min(axis.low, edges[0]), max(axis.high, edges[-1]))
    ax.set_ylim(bottom=0.0)
    set_ticks(ax, "x", axis)
    ax.locator_params(axis="y", nbins=4)
    use_percent(ax.yaxis)
    ax.spines[["top", "right"]].set_visible(False)


def _draw_functions(ax: Any, x: FloatArray, functions: FloatArray, offset: FloatArray, starved: BoolArray) -> None:
    width = 1.4 if len(functions) <= _MANY_FUNCTIONS else 0.7
    for i, row in enumerate(functions):
        drawn = row != 0.0
        drawn |= np.append(drawn[1:], False) | np.append(False, drawn[:-1])
        style = {"color": RED, "zorder": 3} if starved[i] else {"color": PALETTE[0], "zorder": 2}
        ax.plot(x[drawn], row[drawn] + offset[i], linewidth=width, **style)


def basis_values(item: Numerical, x: FloatArray) -> FloatArray:
    """All basis functions at raw values, shape (functions, n)."""
    start, weight = item.basis(item.fitted_transform(x))
    values = np.zeros((sum(item.basis.sizes), len(x)))
    np.add.at(values, (expand_windows(start, item.basis.widths), np.arange(len(x))[:, None]), weight)
    return values


def _starved(
    item: Numerical, encoder: Encoder | None, values: FloatArray | None, ordinary: FloatArray | None
) -> BoolArray | None:
    """Which functions are starved: as the encoder knows, or counted in data; None if neither is given."""
    if encoder is not None:
        return np.array([part.starved for part in encoder.starvation().functions if part.field == item.name])
    if values is None or ordinary is None:
        return None
    start, weight = item.basis(item.fitted_transform(ordinary))
    active = expand_windows(start, item.basis.widths)[weight != 0.0]
    share = np.bincount(active, minlength=sum(item.basis.sizes)) / len(values)
    even = np.diff(supports(item.basis), axis=1)[:, 0] * len(ordinary) / len(values)
    return np.asarray(share < STARVED * even)
