"""Serving: one row in microseconds, an ASGI application, and the log of predictions and outcomes.

All names below but `training_rows` need `pip install 'splinefm[serve]'`; importing this package does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splinefm.serve.app import App as App
    from splinefm.serve.app import create_app as create_app
    from splinefm.serve.feedback import training_rows as training_rows
    from splinefm.serve.publishing import ChangeRefused as ChangeRefused
    from splinefm.serve.rows import FaultyRows as FaultyRows
    from splinefm.serve.rows import NotServed as NotServed
    from splinefm.serve.service import Ranked as Ranked
    from splinefm.serve.service import ScoringService as ScoringService
    from splinefm.serve.serving import Scored as Scored
    from splinefm.serve.settings import Arm as Arm
    from splinefm.serve.settings import Limits as Limits
    from splinefm.serve.settings import ServiceSettings as ServiceSettings

_HOME = {
    "app": "App create_app",
    "feedback": "training_rows",
    "publishing": "ChangeRefused",
    "rows": "FaultyRows NotServed",
    "service": "Ranked ScoringService",
    "serving": "Scored",
    "settings": "Arm Limits ServiceSettings",
}
_MODULE = {name: f"splinefm.serve.{module}" for module, names in _HOME.items() for name in names.split()}
__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'splinefm.serve' has no attribute {name!r}")
    return getattr(import_module(_MODULE[name]), name)


def __dir__() -> list[str]:
    return __all__
