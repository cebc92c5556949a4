"""Plots of views, explanations, fields and training: `sf.plots.curve(curve)`.

The functions load matplotlib when one of them is first used: `pip install 'splinefm[plots]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splinefm.plots.figures import bars as bars
    from splinefm.plots.figures import basis as basis
    from splinefm.plots.figures import calibration as calibration
    from splinefm.plots.figures import curve as curve
    from splinefm.plots.figures import history as history
    from splinefm.plots.figures import importance as importance
    from splinefm.plots.figures import lines as lines
    from splinefm.plots.figures import pairs as pairs
    from splinefm.plots.figures import steps as steps
    from splinefm.plots.figures import study as study
    from splinefm.plots.figures import surface as surface
    from splinefm.plots.figures import transformed as transformed

__all__ = [
    "bars",
    "basis",
    "calibration",
    "curve",
    "history",
    "importance",
    "lines",
    "pairs",
    "steps",
    "study",
    "surface",
    "transformed",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'splinefm.plots' has no attribute {name!r}")
    value = getattr(import_module("splinefm.plots.figures"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
