"""GET /openapi.json: the endpoints, with examples of the columns that are served."""

from __future__ import annotations

import json
import sys
from typing import Any

from splinefm.serve.endpoints.inference import SPLIT, datatype_of
from splinefm.serve.messages import Request, Response, json_response
from splinefm.serve.models import LoadedModel, example_row
from splinefm.serve.service import ScoringService

_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, and what to do."},
        "id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "row": {"type": ["integer", "null"]},
                    "column": {"type": ["string", "null"]},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}
_NUMBERS = {"type": "array", "items": {"type": ["number", "array"]}}
_SCORED = {
    "type": "object",
    "required": ["id", "versions", "scores", "predictions"],
    "properties": {
        "id": {"type": "string", "description": "Names the request in /v1/feedback and in the logs."},
        "versions": {"type": "object", "description": "The version of each arm that took part."},
        "arms": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The arm of each row, if there are several.",
        },
        "classes": {"type": "array", "items": {"type": "string"}, "description": "Of a model with more than two."},
        "scores": _NUMBERS,
        "predictions": _NUMBERS,
    },
}
_ANY = {"type": "object"}
_OUTCOME = {
    "type": "object",
    "required": ["id", "outcome"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": 64},
        "row": {"type": "integer", "minimum": 0},
        "outcome": {"type": "number"},
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


def describe(service: ScoringService, request: Request) -> Response:
    """The description of all endpoints."""
    return json_response(description(service))


def description(service: ScoringService) -> dict[str, Any]:
    """OpenAPI 3.1 of what this server serves."""
    serving = service.serving
    row = dict.fromkeys(serving.names.needed)
    for model in serving.shown:
        row |= example_row(model.fitted)
    if serving.key is not None:
        row.setdefault(serving.key, "user-7")
        row[serving.key] = "user-7" if row[serving.key] is None else row[serving.key]
    row_schema = {
        "type": "object",
        "required": list(serving.names.needed),
        "properties": {name: {} for name in serving.names.needed},
    }
    rows = {"type": "array", "items": row_schema, "minItems": 1, "maxItems": service.settings.limits.rows}
    columns = {"type": "object", "additionalProperties": {"type": "array"}}
    arm = {"name": "arm", "in": "query", "required": False, "schema": {"type": "string"}}
    score_body = _object({"rows": rows, "columns": columns})
    tensors = _tensors(serving.shown[0], row)
    paths: dict[str, Any] = {
        "/v1/score": {
            "post": _operation(
                "Score rows",
                {"rows": [row]},
                score_body,
                _SCORED,
                parameters=[arm],
                examples={"columns": {"columns": {name: [value] for name, value in row.items()}}},
            )
        },
        "/v1/explain": {"post": _explain(serving.shown[0], row, rows)},
        "/v1/segment": {"get": _segment(serving.shown[0], arm)},
        "/v1/models": {"get": _operation("Arms, versions, checksums, columns", None, None, _ANY)},
        "/v1/arms": {
            "get": _operation("Weights of the arms", None, None, _ANY),
            "post": _operation(
                "Change weights of arms",
                {"weights": serving.split.weights},
                _object({"weights": {"type": "object", "additionalProperties": {"type": "number"}}}, ["weights"]),
                _ANY,
            ),
        },
        "/v1/reload": {
            "post": _operation("Load model files again", {}, _object({"arm": {"type": ["string", "null"]}}), _ANY)
        },
        "/v1/feedback": {
            "post": _operation(
                "Report outcomes of rows",
                {"outcomes": [{"id": "a1b2c3-1", "row": 0, "outcome": 1.0}]},
                _object({"outcomes": {"type": "array", "items": _OUTCOME}}, ["outcomes"]),
                _ANY,
                status="202",
            )
        },
        "/healthz": {"get": _operation("The process answers", None, None, _ANY)},
        "/readyz": {"get": _operation("Whether to send traffic", None, None, _ANY)},
        "/metrics": {"get": _operation("Metrics for Prometheus", None, None, None)},
        "/v2": {"get": _operation("The server, in the Open Inference Protocol", None, None, _ANY)},
        "/v2/health/live": {"get": _operation("The process answers", None, None, _ANY)},
        "/v2/health/ready": {"get": _operation("Whether to send traffic", None, None, _ANY)},
        f"/v2/models/{SPLIT}": {"get": _operation("Inputs and outputs; also for the name of an arm", None, None, _ANY)},
        f"/v2/models/{SPLIT}/ready": {"get": _operation("Whether the model is loaded", None, None, _ANY)},
        f"/v2/models/{SPLIT}/infer": {
            "post": _operation("Score tensors; also for the name of an arm", tensors, _INFER, _ANY)
        },
    }
    if service.settings.explore:
        paths["/explore"] = {"get": _operation("The page that explores a model", None, None, None, [arm])}
    index = serving.shown[0].index
    if index is not None:
        context = {name: row.get(name) for name in index.context_columns}
        paths["/v1/rank"] = {
            "post": _operation("The best items for a context", {"context": context, "k": 10}, _RANK, _ANY, [arm])
        }
        own = {name: row.get(name) for name in row if name in index.item_columns}
        known = index.ids
        new = "item-7" if known.dtype.kind not in "iu" else int(known.max(initial=0)) + 1
        item = {"id": new, "values": own} | ({"group": index.groups[0]} if index.groups else {})
        example = {"add": [item], "update": [], "remove": []}
        paths["/v1/items"] = {"post": _operation("Add, replace and remove items", example, _CHANGES, _ANY)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "splinefm", "version": sys.modules["splinefm"].__version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}] if service.settings.tokens is not None else [],
    }


_ID = {"type": ["integer", "string"]}
_ITEM = {
    "type": "object",
    "required": ["id", "values"],
    "additionalProperties": False,
    "properties": {"id": _ID, "values": {"type": "object"}, "group": {"type": ["string", "null"]}},
}
_CHANGES = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "add": {"type": "array", "items": _ITEM},
        "update": {"type": "array", "items": _ITEM},
        "remove": {"type": "array", "items": _ID},
        "arm": {"type": ["string", "null"]},
    },
}
_IDS = {"type": ["array", "null"], "items": {"type": ["integer", "string"]}}
_RANK = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "context": {"type": "object"},
        "contexts": {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 1000},
        "k": {"type": "integer", "minimum": 1, "maximum": 10_000},
        "allowed": _IDS,
        "excluded": _IDS,
        "group": {"type": ["string", "array", "null"], "items": {"type": "string"}},
    },
}


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    found = {"type": "object", "additionalProperties": False, "properties": properties}
    return found | ({"required": required} if required else {})


def _operation(
    summary: str,
    example: Any,
    body: dict[str, Any] | None,
    answer: dict[str, Any] | None,
    parameters: list[dict[str, Any]] | None = None,
    *,
    status: str = "200",
    examples: dict[str, Any] | None = None,
) -> dict[str, Any]:
    kind = "application/json" if answer is not None else "text/plain"
    content = {kind: {"schema": answer or {"type": "string"}}}
    problems = {
        number: {"description": text, "content": {"application/problem+json": {"schema": _PROBLEM}}}
        for number, text in _STATUSES.items()
    }
    found: dict[str, Any] = {"summary": summary, "responses": {status: {"description": "Done.", "content": content}}}
    found["responses"] |= problems
    if parameters:
        found["parameters"] = parameters
    if body is not None:
        shown = {"example": {"value": example}} | {name: {"value": value} for name, value in (examples or {}).items()}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body, "examples": shown}}}
    return found


_INFER = {
    "type": "object",
    "required": ["inputs"],
    "properties": {"inputs": {"type": "array", "items": {"type": "object", "required": ["name", "shape", "datatype"]}}},
}


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


_CLASS = {
    "type": "string",
    "description": "The class whose score is asked for: needed if the model has more than two, otherwise left out.",
}


def _example_class(model: LoadedModel, key: str) -> dict[str, str]:
    return {} if model.n_outputs == 1 else {key: str((model.fitted.classes or ())[0])}


def _explain(model: LoadedModel, row: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    body = _object({"rows": rows, "arm": {"type": ["string", "null"]}, "class": _CLASS}, ["rows"])
    return _operation("Shapley values of rows", {"rows": [row], **_example_class(model, "class")}, body, _ANY)


def _segment(model: LoadedModel, arm: dict[str, Any]) -> dict[str, Any]:
    along = next(iter(model.fitted.encoder.schema.sources.fields))  # a column of dates has several fields
    parameters = [
        {"name": "along", "in": "query", "required": True, "schema": {"type": "string"}, "example": along},
        {"name": "values", "in": "query", "required": False, "schema": {"type": "string"}, "example": "{}"},
        {"name": "points", "in": "query", "required": False, "schema": {"type": "integer"}, "example": 101},
        {"name": "rest", "in": "query", "required": False, "schema": {"enum": ["error", "mean"]}, "example": "mean"},
        {"name": "class", "in": "query", "required": False, "schema": _CLASS} | _example_class(model, "example"),
        arm,
    ]
    return _operation("The score along a column, the others fixed", None, None, _ANY, parameters)
