"""A fitted numerical field without its objects: rules for tokens, pieces of polynomials in raw units, features.

The row encoder, the exports and the views read this instead of working it out from transform and basis again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.encode.bases.basis import step_cuts
from splinefm.encode.bases.polynomials import PolynomialWindow, polynomial_windows, step_window
from splinefm.encode.fields.numerical import Comparison, Numerical
from splinefm.encode.transforms.pieces import Pieces, raw_edges, transform_pieces
from splinefm.encode.transforms.transform import TRANSFORMS


@dataclass(frozen=True, eq=False)
class NumericalDescription:
    """What it takes to encode a number.

    The first rule that matches a value names its only feature, a token. Other values have the weights of the windows.

    Parameters
    ----------
    rules : tuple of Comparison
        Rule i belongs to feature i of the field.
    missing : int or None
        The feature of missing values; None where they are errors.
    n_tokens : int
        Features before the functions of the basis.
    windows : tuple of PolynomialWindow
        The functions of the basis; their numbers count from `n_tokens` on.
    pieces : pair of arrays, optional
        The transform, see `transform_pieces`. Without it the windows take raw values: they are steps.
    """

    rules: tuple[Comparison, ...]
    missing: int | None
    n_tokens: int
    windows: tuple[PolynomialWindow, ...]
    pieces: Pieces | None = None


def describe_numerical(item: Numerical) -> NumericalDescription | None:
    """The description of a fitted field; None where its transform or basis is not one of the package.

    Bins are looked up by the raw value, so that a value on an edge falls into the same bin as in the encoder.

    Examples
    --------
    >>> from splinefm import Bins, MinMax
    >>> found = describe_numerical(Numerical("x", MinMax(low=0.0, high=10.0), Bins(2), special=["negative"]))
    >>> found.rules, found.missing, found.windows[0].edges
    ((Comparison(sign='<', number=0.0),), 1, array([-inf,   5.,  inf]))
    """
    if type(item.transform) not in TRANSFORMS:
        return None
    windows, pieces = None, None
    if step_cuts(item.basis) is not None:
        windows = [step_window(np.concatenate([[-np.inf], bin_edges(item), [np.inf]]))]
    else:
        windows, pieces = polynomial_windows(item.basis), transform_pieces(item.fitted_transform)
        if pieces is None:
            return None
    if windows is None:
        return None
    return NumericalDescription(item.rules, item.missing_token, item.n_tokens, tuple(windows), pieces)


def bin_edges(item: Numerical) -> FloatArray:
    """The inner edges of the bins of a field, in raw units: bin i holds `edges[i - 1] <= z < edges[i]`.

    Examples
    --------
    >>> from splinefm import Bins, MinMax
    >>> bin_edges(Numerical("x", MinMax(low=0.0, high=10.0), Bins(4)))
    array([2.5, 5. , 7.5])
    """
    cuts = step_cuts(item.basis)
    if cuts is None:
        raise ValueError(f"field {item.name!r} has a {type(item.basis).__name__} basis, which has no bins")
    return raw_edges(item.fitted_transform, cuts)
