"""Models, arms, feedback and reload."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from splinefm.serve.api.state import State, need_json
from splinefm.serve.feedback import FeedbackLog
from splinefm.serve.http.codec import FeedbackBody, ReloadBody, WeightsBody, from_json
from splinefm.serve.http.messages import Pending, Problem, Request, Response, json_response, problem, retry_after
from splinefm.train.losses import Loss

_MAX_OUTCOMES = 10_000
_RESTART = 5.0  # seconds in which a server that was killed may be back


def models(state: State, request: Request) -> Response:
    """All arms: versions, checksums, schema."""
    serving = state.serving
    found = []
    for arm in state.settings.arms:
        model = serving.loaded[arm.name]
        fitted = model.fitted
        entry: dict[str, Any] = {
            "arm": arm.name,
            "shown": not arm.shadow,
            "weight": serving.split.weights.get(arm.name),
            "version": model.published.version,
            "sha256": model.published.sha256,
            "file": model.published.source.rpartition("/")[2],
            "generation": model.published.generation,
            "loaded_at": model.loaded_at,
            "model": str(fitted.model),
            "loss": str(fitted.loss),
            "classes": None if fitted.classes is None else [str(label) for label in fitted.classes],
            "columns": list(model.columns),
            "fields": [
                {"name": item.name, "kind": type(item).__name__, "columns": list(item.columns)}
                for item in fitted.encoder.schema.resolved
            ],
            "crosses": len(fitted.encoder.crosses),
            "index": None,
            "refused": state.refused.get(arm.name),
        }
        if model.index is not None:
            entry["index"] = {
                "items": len(model.index),
                "sha256": model.published.index_sha256,
                "context": list(model.index.context_columns),
            }
        found.append(entry)
    return json_response({"models": found})


def arms(state: State, request: Request) -> Response:
    """The weights of the arms."""
    return json_response({"weights": state.serving.split.weights, "key": state.serving.key})


def change_arms(state: State, request: Request) -> Pending:
    """Change the weights of arms in all workers."""
    need_json(request)
    weights = from_json(request.body, WeightsBody).weights
    known = state.serving.split.weights
    for name, weight in weights.items():
        state.known_arm(name)
        if not (weight >= 0.0 and math.isfinite(weight)):
            raise Problem(422, f"the weight of {name!r} must be at least 0, got {weight}")
    if not any((known | weights).values()):
        raise Problem(422, "one arm must have a weight above 0")
    return _asked(state, request, {"ask": "weights", "weights": weights})


def reload(state: State, request: Request) -> Pending:
    """Verify and load the files of an arm again, or of all; the answer comes when all workers have switched."""
    need_json(request)
    body = from_json(request.body, ReloadBody) if request.body else ReloadBody()
    known = [arm.name for arm in state.settings.arms]
    if body.arm is not None and body.arm not in known:
        raise Problem(404, f"no arm {body.arm!r}; the arms are {', '.join(map(repr, known))}")
    return _asked(state, request, {"ask": "reload", "arm": body.arm})


def _asked(state: State, request: Request, question: dict[str, Any]) -> Pending:
    """Ask the supervisor; the answer comes when it has one."""

    def start(respond: Callable[[Response], None]) -> None:
        def replied(reply: dict[str, Any]) -> None:
            if "error" in reply:
                respond(problem(409, str(reply["error"]), request.id))
            elif "gone" in reply:
                respond(problem(503, str(reply["gone"]), request.id)._replace(headers=retry_after(_RESTART)))
            else:
                respond(json_response({"id": request.id, **reply}))

        state.ask(question, replied)

    return Pending(start)


def feedback(state: State, request: Request) -> Pending:
    """Log what came of answers; the answer comes when it is on the disk."""
    need_json(request)
    if state.log is None:
        raise Problem(404, "outcomes are not logged; start the server with --log FOLDER")
    outcomes = from_json(request.body, FeedbackBody).outcomes
    if not 1 <= len(outcomes) <= _MAX_OUTCOMES:
        raise Problem(422, f"outcomes must be a list of 1 to {_MAX_OUTCOMES:,}, got {len(outcomes):,}")
    for i, item in enumerate(outcomes):
        if not (item.row >= 0 and math.isfinite(item.outcome) and 0 < len(item.id) <= 64):
            text = "an outcome has the id of an answer, a row counted from 0, and a finite number"
            raise _faulty_outcome(i, text)
    _refuse_impossible([item.outcome for item in outcomes], [model.fitted.loss for model in state.serving.shown])
    try:
        for item in outcomes:
            state.log.outcome(item.id, item.row, item.outcome)
    except OSError as error:
        raise Problem(503, _not_logged(error), retry_after(_RESTART)) from None
    return _committed(state, state.log, request, len(outcomes))


def _committed(state: State, log: FeedbackLog, request: Request, n: int) -> Pending:
    """Acknowledge outcomes once they are on the disk."""

    def start(respond: Callable[[Response], None]) -> None:
        loop = asyncio.get_running_loop()

        def on_disk(error: OSError | None) -> None:
            if error is not None:
                found = problem(503, _not_logged(error), request.id)
                respond(found._replace(headers=retry_after(_RESTART)))
                return
            state.metrics.add("splinefm_feedback_total", amount=float(n))
            respond(json_response({"id": request.id, "accepted": n}, 202))

        def done(error: OSError | None) -> None:
            loop.call_soon_threadsafe(on_disk, error)

        log.commit(done)

    return Pending(start)


def _not_logged(error: OSError) -> str:
    return f"the outcomes are not in the log: {error.strerror or error}; send them again later"


def _refuse_impossible(outcomes: Sequence[float], losses: Sequence[Loss]) -> None:
    """Raise at the first outcome that is no target of any arm; an outcome does not say which arm it is of."""
    checks = [loss.check for loss in losses if loss.of_class is None]  # the score of one class has no target
    if not checks or any(_refusal(check, outcomes) is None for check in checks):
        return
    for i, outcome in enumerate(outcomes):
        refusals = [_refusal(check, [outcome]) for check in checks]
        if all(refusals):
            raise _faulty_outcome(i, str(refusals[0]))


def _refusal(check: Callable[[Any], None], outcomes: Sequence[float]) -> str | None:
    try:
        check(np.array(outcomes, np.float64))
    except ValueError as error:
        return str(error)
    return None


def _faulty_outcome(i: int, text: str) -> Problem:
    return Problem(422, f"outcome {i}: {text}", errors=[{"row": i, "column": None, "detail": text}])
