"""The classes that a model file can name, and their settings with types."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

from splinefm.encode.bases.basis import BASES
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.transforms.transform import TRANSFORMS
from splinefm.learn.losses import Loss
from splinefm.learn.remarks.evidence import Evidence
from splinefm.learn.search.entries import SearchEntry
from splinefm.learn.training import Training
from splinefm.learn.tuning.study import StudySummary, TrialSummary
from splinefm.model.family import FFM, FM, FmFM, FwFM, HigherOrderFM, LowRankFwFM

MODELS = (FM, FwFM, LowRankFwFM, FmFM, FFM, HigherOrderFM)
KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Numerical, Categorical, MultiValued, Cross, *TRANSFORMS, *BASES),
        *MODELS,
        *(Loss, Training, StudySummary, TrialSummary, Evidence, SearchEntry),
    )
}
RUN_NAMES = ("first", "by column", "all rows", "update", "half", "crosses", "search")
"""The history has their indices, so new runs come last. "by column", "half" and "crosses" are runs of version 0.1."""


@cache
def setting_types(name: str) -> dict[str, Any]:
    """Return the settings of a class with their types; those of a machine are left out."""
    hints = get_type_hints(KINDS[name])
    return {item.name: hints[item.name] for item in fields(KINDS[name]) if item.metadata.get("saved", True)}
