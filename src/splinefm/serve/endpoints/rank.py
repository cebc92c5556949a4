"""POST /v1/rank: the best items of the index for a context, or for each of several."""

from __future__ import annotations

from typing import Any

from splinefm.serve.bodies import MAX_ITEMS, RankBody, Row, from_json
from splinefm.serve.messages import Answer, Later, Problem, Request, Response, json_response
from splinefm.serve.rows import FaultyRows
from splinefm.serve.service import ScoringService
from splinefm.serve.serving import Serving

_MAX_CONTEXTS = 1000
_LONG_CONTEXTS = 10  # more than these take so long that short requests should not wait for them


def rank(service: ScoringService, request: Request) -> Answer:
    """Find the best items, with the filters of `ItemIndex.top_k`."""
    serving = service.serving
    arm = serving.known_arm(request.arm())
    request.need_json()
    body: RankBody = from_json(request.body, RankBody)
    if (body.context is None) == (body.contexts is None):
        raise Problem(422, 'the body must have either "context", an object, or "contexts", a list of objects')
    if body.context is not None:
        return json_response(_rank(service, serving, request, body.context, body, arm, request.id))
    contexts = body.contexts or []
    if len(contexts) > _MAX_CONTEXTS or len(contexts) * body.k > 10 * MAX_ITEMS:
        text = f"a request has at most {_MAX_CONTEXTS:,} contexts, and asks for at most {10 * MAX_ITEMS:,} items"
        raise Problem(413, f"{text}; got {len(contexts):,} contexts with k = {body.k}")

    def compute() -> Response:
        found = [_rank_one(service, serving, request, i, contexts[i], body, arm) for i in range(len(contexts))]
        return json_response({"id": request.id, "rankings": found})

    return Later(compute) if len(contexts) > _LONG_CONTEXTS else compute()


def _rank_one(
    service: ScoringService,
    serving: Serving,
    request: Request,
    i: int,
    context: Row,
    body: RankBody,
    arm: str | None,
) -> dict[str, Any]:
    """The ranking of one of several contexts, whose id has its number; errors name it as a row."""
    try:
        return _rank(service, serving, request, context, body, arm, f"{request.id[:58]}.{i}")
    except FaultyRows as error:
        raise FaultyRows([fault._replace(row=i) for fault in error.faults]) from None


def _rank(
    service: ScoringService,
    serving: Serving,
    request: Request,
    context: Row,
    body: RankBody,
    arm: str | None,
    request_id: str,
) -> dict[str, Any]:
    found = service.rank(
        context,
        body.k,
        arm=arm,
        request_id=request_id,
        allowed=body.allowed,
        excluded=body.excluded,
        group=body.group,
        serving=serving,
    )
    request.n_rows += len(found.ids)
    return {
        "id": request_id,
        "arm": found.arm,
        "version": found.version,
        "ids": found.ids.tolist(),
        "scores": found.scores.tolist(),
        "predictions": found.predictions.tolist(),
    }
