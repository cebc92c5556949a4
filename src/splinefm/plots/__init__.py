"""Plots of views, explanations, fields and training: `sf.plots.curve(curve)`.

The functions load matplotlib when one of them is first used: `pip install 'splinefm[plots]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splinefm.plots.fields import basis as basis
    from splinefm.plots.fields import transformed as transformed
    from splinefm.plots.reports import calibration as calibration
    from splinefm.plots.reports import history as history
    from splinefm.plots.reports import importance as importance
    from splinefm.plots.reports import pairs as pairs
    from splinefm.plots.reports import study as study
    from splinefm.plots.views import bars as bars
    from splinefm.plots.views import curve as curve
    from splinefm.plots.views import lines as lines
    from splinefm.plots.views import steps as steps
    from splinefm.plots.views import surface as surface

_MODULES = {
    "views": ("bars", "curve", "lines", "steps", "surface"),
    "reports": ("calibration", "history", "importance", "pairs", "study"),
    "fields": ("basis", "transformed"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

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
    if name not in _HOMES:
        raise AttributeError(f"module 'splinefm.plots' has no attribute {name!r}")
    value = getattr(import_module(f"splinefm.plots.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
