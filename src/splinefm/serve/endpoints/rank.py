"""POST /v1/rank: the best items of the index for a context."""

from __future__ import annotations

from splinefm.serve.bodies import RankBody, from_json
from splinefm.serve.messages import Problem, Request, Response, json_response
from splinefm.serve.service import ScoringService

_MAX_ITEMS = 10_000


def rank(service: ScoringService, request: Request) -> Response:
    """Find the best items, with the filters of `ItemIndex.top_k`."""
    arm = request.arm()
    request.need_json()
    body: RankBody = from_json(request.body, RankBody)
    if not 1 <= body.k <= _MAX_ITEMS:
        raise Problem(422, f"k must be between 1 and {_MAX_ITEMS:,}, got {body.k}")
    found = service.rank(
        body.context,
        body.k,
        arm=arm,
        request_id=request.id,
        allowed=body.allowed,
        excluded=body.excluded,
        group=body.group,
    )
    request.n_rows = len(found.ids)
    return json_response(
        {
            "id": request.id,
            "arm": found.arm,
            "version": found.version,
            "ids": found.ids.tolist(),
            "scores": found.scores.tolist(),
            "predictions": found.predictions.tolist(),
        }
    )
