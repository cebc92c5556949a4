"""POST /v1/rank: the best items of the index for a context."""

from __future__ import annotations

from splinefm.serve.api.state import State, need_json
from splinefm.serve.arms.faults import ROW_ERRORS, Fault, FaultyRows, Names
from splinefm.serve.http.codec import RankBody, from_json
from splinefm.serve.http.messages import Problem, Request, Response, json_response

_MAX_ITEMS = 10_000


def rank(state: State, request: Request) -> Response:
    """Find the best items, with the filters of `ItemIndex.top_k`."""
    serving = state.serving
    arm = state.asked_arm(request)
    need_json(request)
    body: RankBody = from_json(request.body, RankBody)
    if not 1 <= body.k <= _MAX_ITEMS:
        raise Problem(422, f"k must be between 1 and {_MAX_ITEMS:,}, got {body.k}")
    context = body.context
    key = request.id
    if serving.key is not None and serving.key in context:
        key = context[serving.key]
        if key is None or isinstance(key, list | dict):
            raise FaultyRows([Fault(None, serving.key, f"the key {serving.key!r} must be text or a number")])
    name = arm or serving.split.arm_of(key)
    model = serving.loaded[name]
    if model.index is None:
        raise Problem(404, f"arm {name!r} has no index; start the server with --index")
    index = model.index
    columns = index.context_columns
    known = [] if serving.key is None else [serving.key]
    faults = Names(columns, known, allow_extra=state.settings.allow_extra).faults(context, None)
    if faults:
        raise FaultyRows(faults)
    values = {column: context[column] for column in columns}
    try:
        index.check_context(values)
        ids, scores = index.top_k(
            values,
            body.k,
            allowed=body.allowed,
            excluded=body.excluded,
            group=body.group,
        )
    except ROW_ERRORS as error:
        raise FaultyRows([Fault(None, None, str(error))]) from None
    request.n_rows = len(ids)
    predictions = model.predict(scores)
    if state.log is not None:
        keys = None if serving.key is None else [key] * len(ids)
        state.log.scored(request.id, [name], predictions, keys, None)
    return json_response(
        {
            "id": request.id,
            "arm": name,
            "version": model.published.version,
            "ids": ids.tolist(),
            "scores": scores.tolist(),
            "predictions": predictions.tolist(),
        }
    )
