"""Plots of encoded fields: basis functions and transforms."""

from __future__ import annotations

from collections.abc import Sequence

from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.names import quoted
from splinefm.encode.transforms.transform import Transform
from splinefm.plots.draw.fields import draw_basis, draw_raw, draw_unit, find_columns, find_encoder, find_fields
from splinefm.plots.figures import Axes, make_column_panels, use_axes
from splinefm.train.fitted import Fitted


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
    encoder = find_encoder(encoder_or_field)
    if encoder is not None:
        item, *others = find_fields(encoder, name)
        if others:
            raise ValueError(
                f"name must be one of the numerical fields: {quoted([field.name for field in (item, *others)])}"
            )
    elif isinstance(encoder_or_field, Numerical):
        item = encoder_or_field
    else:
        raise TypeError(f"encoder_or_field must be an Encoder or a Numerical, got {type(encoder_or_field).__name__}")
    ax = use_axes(ax)
    draw_basis(ax, item, encoder, data)
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
        For each column the panel of raw values, followed by those of transformed values.

    Examples
    --------
    >>> import numpy as np
    >>> import splinefm as sf
    >>> values = np.random.default_rng(0).lognormal(size=500)
    >>> axes = transformed([sf.MinMax(), sf.Quantile()], {"price": values}, "price")
    >>> [ax.get_xlabel() for ax in axes]
    ['price', 'u = MinMax', 'u = Quantile']
    """
    columns = find_columns(source, data, name)
    n_panels = sum(1 + len(column.transforms) for column in columns)
    panels = (
        make_column_panels(n_panels, 1 + len(columns[0].transforms)) if axes is None else [use_axes(ax) for ax in axes]
    )
    if len(panels) != n_panels:
        raise ValueError(f"axes must have {n_panels} elements, one per panel, got {len(panels)}")
    remaining = iter(panels)
    for column in columns:
        draw_raw(next(remaining), column)
        for transform in column.transforms:
            draw_unit(next(remaining), column, transform)
    return panels
