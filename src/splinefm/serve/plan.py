"""The compiled scorer of a fitted model."""

from __future__ import annotations

from splinefm._core import RowScorer
from splinefm.encode.plans import RowFields
from splinefm.model.scores import row_params
from splinefm.train.fitted import Fitted


def make_scorer(fitted: Fitted, fields: RowFields) -> RowScorer:
    """The compiled scorer; it shares the parameters with the model if vectors need no padding."""
    return RowScorer(
        encoder=fields.encoder,
        params=row_params(fitted.model, fitted.params, len(fitted.encoder.fields)),
        link=fitted.loss.link,
        center=fitted.loss.center,
        scale=fitted.loss.scale,
    )
