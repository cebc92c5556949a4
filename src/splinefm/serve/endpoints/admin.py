"""Models, arms, feedback, reload, readiness, metrics and the explorer page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import numpy as np

from splinefm.serve.bodies import FeedbackBody, Item, ItemsBody, ReloadBody, WeightsBody, from_json
from splinefm.serve.feedback import FeedbackLog
from splinefm.serve.messages import Later, Pending, Problem, Request, Response, json_response, problem, retry_after
from splinefm.serve.metrics import TEXT
from splinefm.serve.publishing import ChangeRefused, PublisherGone
from splinefm.serve.rows import NotServed
from splinefm.serve.service import ScoringService
from splinefm.train.losses import Loss

_RESTART = 5.0  # seconds in which a server that was killed may be back


def models(service: ScoringService, request: Request) -> Response:
    """All arms: versions, checksums, schema."""
    serving = service.serving
    found = []
    for arm in service.settings.arms:
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
            "refused": service.manifest.refused.get(arm.name),
        }
        if model.index is not None:
            entry["index"] = {
                "items": len(model.index),
                "sha256": model.published.index_sha256,
                "context": list(model.index.context_columns),
            }
        found.append(entry)
    return json_response({"models": found})


def arms(service: ScoringService, request: Request) -> Response:
    """The weights of the arms."""
    return json_response({"weights": service.serving.split.weights, "key": service.serving.key})


def change_arms(service: ScoringService, request: Request) -> Pending:
    """Change the weights of arms in all workers."""
    request.need_json()
    weights = from_json(request.body, WeightsBody).weights
    known = service.serving.split.weights
    for name, weight in weights.items():
        service.serving.known_arm(name)
        if not (weight >= 0.0 and math.isfinite(weight)):
            raise Problem(422, f"the weight of {name!r} must be at least 0, got {weight}")
    if not any((known | weights).values()):
        raise Problem(422, "one arm must have a weight above 0")
    return _change(request, lambda: service.set_weights(weights))


def reload(service: ScoringService, request: Request) -> Pending:
    """Verify and load the files of an arm again, or of all; the answer comes when all workers have switched."""
    request.need_json()
    body = from_json(request.body, ReloadBody) if request.body else ReloadBody()
    if body.arm is not None and body.arm not in service.manifest.arms:
        raise NotServed(f"no arm {body.arm!r:.80}; the arms are {', '.join(map(repr, service.manifest.arms))}")
    return _change(request, lambda: service.reload(body.arm))


def change_items(service: ScoringService, request: Request) -> Pending:
    """Remove, replace and add items of an index in all workers."""
    request.need_json()
    body: ItemsBody = from_json(request.body, ItemsBody)
    arm, most = service.arm_of_items(body.arm), service.settings.limits.rows
    n = len(body.add) + len(body.update) + len(body.remove)
    if not 1 <= n <= most:
        raise Problem(413 if n else 422, f"a request adds, updates and removes 1 to {most:,} items, got {n:,}")
    add, update = ([_as_dict(item) for item in items] for items in (body.add, body.update))
    return _change(request, lambda: service.change_items(add=add, update=update, remove=body.remove, arm=arm))


def _as_dict(item: Item) -> dict[str, Any]:
    return {"id": item.id, "values": item.values, "group": item.group}


def _change(request: Request, change: Callable[[], dict[str, Any]]) -> Pending:
    """Answer once all workers have switched; a thread waits for that."""

    def start(respond: Callable[[Response], None]) -> None:
        def wait() -> None:
            try:
                respond(json_response({"id": request.id, **change()}))
            except ChangeRefused as error:
                respond(problem(409, str(error), request.id))
            except PublisherGone as error:
                respond(problem(503, str(error), request.id)._replace(headers=retry_after(_RESTART)))
            except Exception as error:
                respond(problem(500, f"the change failed: {type(error).__name__}", request.id))
                raise

        Thread(target=wait, name="change", daemon=True).start()

    return Pending(start)


def feedback(service: ScoringService, request: Request) -> Pending:
    """Log outcomes; the answer comes when they are on the disk."""
    request.need_json()
    log = service.log
    if log is None:
        raise NotServed("outcomes are not logged; start the server with --log FOLDER")
    outcomes = from_json(request.body, FeedbackBody).outcomes
    _refuse_impossible([item.outcome for item in outcomes], [model.fitted.loss for model in service.serving.shown])
    try:
        for item in outcomes:
            log.outcome(item.id, item.row, item.outcome)
    except OSError as error:
        raise Problem(503, _not_logged(error), retry_after(_RESTART)) from None
    return _commit(service, log, request, len(outcomes), log.n_unknown([item.id for item in outcomes]))


def _commit(service: ScoringService, log: FeedbackLog, request: Request, n: int, n_unknown: int | None) -> Pending:
    """Acknowledge outcomes once they are on the disk."""

    def start(respond: Callable[[Response], None]) -> None:
        def done(error: OSError | None) -> None:
            if error is not None:
                respond(problem(503, _not_logged(error), request.id)._replace(headers=retry_after(_RESTART)))
                return
            service.metrics.feedback.inc(n)
            content: dict[str, Any] = {"id": request.id, "accepted": n}
            if n_unknown is not None:
                service.metrics.feedback_unknown.inc(n_unknown)
                content["unknown"] = n_unknown
            respond(json_response(content, 202))

        log.commit(done)

    return Pending(start)


def _not_logged(error: OSError) -> str:
    return f"the outcomes are not in the log: {error.strerror or error}; send them again later"


def _refuse_impossible(outcomes: Sequence[float], losses: Sequence[Loss]) -> None:
    """Raise at the first outcome that is a target of no arm; an outcome does not name its arm."""
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


# What orchestrators and dashboards ask


def live(service: ScoringService, request: Request) -> Response:
    """The process answers."""
    return json_response({"status": "live"})


def ready(service: ScoringService, request: Request) -> Response:
    """Whether to send traffic. A refused file and a log that cannot be written are told, and are no reason to stop.

    Reasons have paths, and are for administrators: GET /v1/models and the log have them.
    """
    if service.manifest.draining:
        return json_response({"status": "draining"}, 503)
    content: dict[str, object] = {"status": "ready", "versions": service.serving.versions}
    if service.manifest.refused:
        content |= {"reload": "refused", "refused": sorted(service.manifest.refused)}
    if service.log_error is not None:
        content["log"] = "failing"
    return json_response(content)


def metrics(service: ScoringService, request: Request) -> Response:
    """The metrics of all workers."""
    return Response(200, service.metrics.text(), TEXT)


# GET /explore

_HTML = b"text/html; charset=utf-8"
# The page itself says which scripts may run.
_PAGE_HEADERS = (
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
)


def explore(service: ScoringService, request: Request) -> Later:
    """The page of an arm, by default of the first one; it has rows of the background."""
    if not service.settings.explore:
        raise NotServed("start the server with --explore to have this page")
    model = service.serving.model_of(request.arm())
    return Later(lambda: Response(200, model.explorer_page, _HTML, _PAGE_HEADERS))
