"""The compiled scorer of a fitted model."""

from __future__ import annotations

import numpy as np

from splinefm._core import RowScorer
from splinefm.encode.plans import RowFields
from splinefm.model.scores import row_between, row_tables
from splinefm.train.fitted import Fitted


def make_scorer(fitted: Fitted, fields: RowFields) -> RowScorer:
    """The compiled scorer; it shares the parameters with the model if vectors need no padding."""
    model = fitted.model
    n_fields = len(fitted.encoder.fields)
    return RowScorer(
        encoder=fields.encoder,
        model=model.kind,
        members=model.members,
        order=model.order,
        **row_tables(model, fitted.params, n_fields)._asdict(),
        between=row_between(model, fitted.params, n_fields),
        bias=np.ascontiguousarray(fitted.params["bias"], np.float32).reshape(-1),
        link=fitted.loss.link,
        center=fitted.loss.center,
        scale=fitted.loss.scale,
    )
