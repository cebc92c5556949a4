"""Plots of views, explanations, fields and training: `sf.plots.curve(curve)`.

The functions load matplotlib when one of them is first used: `pip install 'splinefm[plots]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splinefm.plots.curves import bars as bars
    from splinefm.plots.curves import curve as curve
    from splinefm.plots.curves import lines as lines
    from splinefm.plots.curves import steps as steps
    from splinefm.plots.explanations import importance as importance
    from splinefm.plots.explanations import pairs as pairs
    from splinefm.plots.fields import basis as basis
    from splinefm.plots.fields import transformed as transformed
    from splinefm.plots.reliability import calibration as calibration
    from splinefm.plots.surfaces import surface as surface
    from splinefm.plots.training import history as history
    from splinefm.plots.training import study as study

_MODULES = {
    "curves": ("bars", "curve", "lines", "steps"),
    "explanations": ("importance", "pairs"),
    "fields": ("basis", "transformed"),
    "reliability": ("calibration",),
    "surfaces": ("surface",),
    "training": ("history", "study"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'splinefm.plots' has no attribute {name!r}")
    value = getattr(import_module(f"splinefm.plots.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
