"""GET /openapi.json: the endpoints, with examples of the columns that are served."""

from __future__ import annotations

import json
import sys
from typing import Any

from splinefm.serve.bodies import (
    BODIES,
    ExplainBody,
    FeedbackBody,
    InferBody,
    ItemsBody,
    RankBody,
    ReloadBody,
    ScoreBody,
    WeightsBody,
    schema_of,
)
from splinefm.serve.endpoints.inference import SPLIT, datatype_of
from splinefm.serve.messages import Request, Response, json_response
from splinefm.serve.models import LoadedModel, example_row
from splinefm.serve.service import ScoringService
from splinefm.serve.serving import Serving

_ANY = {"type": "object"}
_NUMBERS = {"type": "array", "items": {"type": ["number", "array"]}}
_STRINGS = {"type": "array", "items": {"type": "string"}}
_SCORED = {
    "type": "object",
    "required": ["id", "versions", "scores", "predictions"],
    "properties": {
        "id": {"type": "string", "description": "Names the request in /v1/feedback and in the logs."},
        "versions": {"type": "object", "description": "The version of each arm that took part."},
        "arms": _STRINGS | {"description": "The arm of each row, if there are several."},
        "classes": _STRINGS | {"description": "Of a model with more than two."},
        "scores": _NUMBERS,
        "predictions": _NUMBERS,
    },
}
_FAULT = {"row": {"type": ["integer", "null"]}, "column": {"type": ["string", "null"]}, "detail": {"type": "string"}}
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        **{name: {"type": "string"} for name in ("type", "title", "id")},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, and what to do."},
        "errors": {"type": "array", "items": {"type": "object", "properties": _FAULT}},
    },
}
_STATUSES = {
    "400": "The request cannot be read.",
    "401": "The token is missing or unknown.",
    "413": "The body or the number of rows is too large.",
    "415": "The type of the body is not known.",
    "422": "Rows or parameters cannot be used; `errors` names row and column.",
    "503": "The server is busy; Retry-After says when to come back.",
}
_PROBLEMS = {
    number: {"description": text, "content": {"application/problem+json": {"schema": _PROBLEM}}}
    for number, text in _STATUSES.items()
}
_CLASS = {
    "type": "string",
    "description": "The class whose score is asked for: needed if the model has more than two, otherwise left out.",
}


def describe(service: ScoringService, request: Request) -> Response:
    """The description of all endpoints."""
    return json_response(description(service))


def description(service: ScoringService) -> dict[str, Any]:
    """OpenAPI 3.1 of what this server serves."""
    serving = service.serving
    model, row, arm = serving.shown[0], _example(serving), _parameter("arm")
    class_name = {} if model.n_outputs == 1 else {"class": str((model.fitted.classes or ())[0])}
    columns = {"columns": {name: [value] for name, value in row.items()}}
    outcome = {"id": "a1b2c3-1", "row": 0, "outcome": 1.0}
    gets = {
        "/v1/models": "Arms, versions, checksums, columns",
        "/v1/arms": "Weights of the arms",
        "/healthz": "The process answers",
        "/readyz": "Whether to send traffic",
        "/v2": "The server, in the Open Inference Protocol",
        "/v2/health/live": "The process answers",
        "/v2/health/ready": "Whether to send traffic",
        f"/v2/models/{SPLIT}": "Inputs and outputs; also for the name of an arm",
        f"/v2/models/{SPLIT}/ready": "Whether the model is loaded",
    }
    paths: dict[str, Any] = {path: {"get": _operation(text)} for path, text in gets.items()}
    paths["/metrics"] = {"get": _operation("Metrics for Prometheus", answer=None)}
    paths["/v1/segment"] = {"get": _operation("The score along a column", parameters=_segment(model, class_name))}

    def post(path: str, summary: str, body: type, *examples: Any, **options: Any) -> None:
        paths.setdefault(path, {})["post"] = _operation(summary, body, examples, **options)

    post("/v1/score", "Score rows", ScoreBody, {"rows": [row]}, columns, answer=_SCORED, parameters=[arm])
    post("/v1/explain", "Shapley values of rows", ExplainBody, {"rows": [row], **class_name})
    post("/v1/arms", "Change weights of arms", WeightsBody, {"weights": serving.split.weights})
    post("/v1/reload", "Load model files again", ReloadBody, {})
    post("/v1/feedback", "Report outcomes of rows", FeedbackBody, {"outcomes": [outcome]}, status="202")
    tensors = _tensors(model, row)
    post(f"/v2/models/{SPLIT}/infer", "Score tensors; also for the name of an arm", InferBody, tensors)
    if service.settings.explore:
        text = "The page that explores a model"
        paths["/explore"] = {"get": _operation(text, answer=None, parameters=[arm])}
    if model.index is not None:
        context = {name: row.get(name) for name in model.index.context_columns}
        post("/v1/rank", "The best items for a context", RankBody, {"context": context, "k": 10}, parameters=[arm])
        post("/v1/items", "Add, replace and remove items", ItemsBody, _new_item(model.index, row))
    schemas = schema_of(BODIES)
    rows = {"type": "array", "items": _row_schema(serving), "minItems": 1, "maxItems": service.settings.limits.rows}
    for body in ("ScoreBody", "ExplainBody"):
        schemas[body]["properties"]["rows"] = rows
    return {
        "openapi": "3.1.0",
        "info": {"title": "splinefm", "version": sys.modules["splinefm"].__version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}] if service.settings.tokens is not None else [],
    }


def _operation(
    summary: str,
    body: type | None = None,
    examples: tuple[Any, ...] = (),
    *,
    answer: dict[str, Any] | None = _ANY,
    parameters: list[dict[str, Any]] | None = None,
    status: str = "200",
) -> dict[str, Any]:
    content = {"application/json": {"schema": answer}} if answer else {"text/plain": {"schema": {"type": "string"}}}
    found: dict[str, Any] = {"summary": summary, "parameters": parameters or []}
    found["responses"] = {status: {"description": "Done.", "content": content}} | _PROBLEMS
    if body is not None:
        shown = {name: {"value": value} for name, value in zip(("example", "columns"), examples, strict=False)}
        schema = {"$ref": f"#/components/schemas/{body.__name__}"}
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema, "examples": shown}},
        }
    return found


def _parameter(name: str, example: Any = None, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    found = {"name": name, "in": "query", "required": name == "along", "schema": schema or {"type": "string"}}
    return found if example is None else found | {"example": example}


def _segment(model: LoadedModel, class_name: dict[str, str]) -> list[dict[str, Any]]:
    along = next(iter(model.fitted.encoder.schema.sources.fields))  # a column of dates has several fields
    return [
        _parameter("along", along),
        _parameter("values", "{}"),
        _parameter("points", 101, {"type": "integer"}),
        _parameter("rest", "mean", {"enum": ["error", "mean"]}),
        _parameter("class", class_name.get("class"), _CLASS),
        _parameter("arm"),
    ]


# Examples


def _example(serving: Serving) -> dict[str, Any]:
    """A row that all arms take."""
    row: dict[str, Any] = dict.fromkeys(serving.names.needed)
    for model in serving.shown:
        row |= example_row(model.fitted)
    if serving.key is not None and row.get(serving.key) is None:
        row[serving.key] = "user-7"
    return row


def _row_schema(serving: Serving) -> dict[str, Any]:
    needed = list(serving.names.needed)
    return {"type": "object", "required": needed, "properties": {name: {} for name in needed}}


def _new_item(index: Any, row: dict[str, Any]) -> dict[str, Any]:
    new = "item-7" if index.ids.dtype.kind not in "iu" else int(index.ids.max(initial=0)) + 1
    item = {"id": new, "values": {name: row.get(name) for name in row if name in index.item_columns}}
    return {"add": [item | ({"group": index.groups[0]} if index.groups else {})], "update": [], "remove": []}


def _tensors(model: LoadedModel, row: dict[str, Any]) -> dict[str, Any]:
    """A row as tensors; lists are JSON in text."""
    inputs = [
        {
            "name": name,
            "shape": [1],
            "datatype": datatype_of(model, name),
            "data": [json.dumps(value) if isinstance(value, list) else value],
        }
        for name, value in row.items()
    ]
    return {"inputs": inputs}
