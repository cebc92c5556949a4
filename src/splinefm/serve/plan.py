"""The compiled scorer of a fitted model."""

from __future__ import annotations

from splinefm._core import RowScorer
from splinefm.encode.rows.fields import RowFields
from splinefm.learn.fitted import Fitted
from splinefm.model.rows import row_params


def make_scorer(fitted: Fitted, fields: RowFields) -> RowScorer:
    """The compiled scorer; it shares the parameters with the model if vectors need no padding."""
    model = fitted.model
    params = row_params(model, fitted.params, len(fitted.encoder.fields))
    return RowScorer(
        encoder=fields.encoder,
        model=model.kind,
        members=model.members,
        order=model.order,
        **params._asdict(),
        link=fitted.loss.link,
        center=fitted.loss.center,
        scale=fitted.loss.scale,
    )
