"""POST /v1/explain and GET /v1/segment: why a score is what it is, and how it changes along a column."""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.encode.fields.numerical import Numerical
from splinefm.inspect.axes import spread_values
from splinefm.inspect.curves import Bars, Curve
from splinefm.inspect.segment import segment as make_segment
from splinefm.inspect.values import both_scales
from splinefm.serve.bodies import ExplainBody, from_json
from splinefm.serve.endpoints.score import check_count
from splinefm.serve.messages import Later, Problem, Request, Response, json_response
from splinefm.serve.models import LoadedModel
from splinefm.serve.rows import ROW_ERRORS, NotServed, check_names
from splinefm.serve.service import ScoringService
from splinefm.train.fitted import Fitted
from splinefm.train.targets import Label, listed

_MAX_ROWS = 1000
_MAX_POINTS = 2000


def explain(service: ScoringService, request: Request) -> Later:
    """Shapley values of rows."""
    request.need_json()
    body: ExplainBody = from_json(request.body, ExplainBody)
    check_count(len(body.rows), min(_MAX_ROWS, service.settings.limits.rows))
    request.n_rows = len(body.rows)
    serving = service.serving
    model = serving.model_of(body.arm)
    if model.background_path is None:
        raise NotServed("Shapley values compare with other rows; start the server with --background TABLE")
    check_names(serving.names, body.rows)
    label = _find_class(model, body.class_name)

    def compute() -> Response:
        found = service.explain(body.rows, arm=body.arm, label=label, serving=serving)
        return json_response(
            {
                "id": request.id,
                "version": model.published.version,
                "base": found.base,
                "columns": list(found.fields),
                "values": found.values.tolist(),
                "scores": found.scores.tolist(),
            }
        )

    return Later(compute)


def _find_class(model: LoadedModel, named: str | None) -> Label | None:
    """The label of the class that a request names; None for a model with one score, which has none to name."""
    classes = model.fitted.classes or ()
    if model.n_outputs == 1:
        if named is None:
            return None
        raise Problem(422, "class is for models of more than two classes, and this one has one score: leave it out")
    if named is None:
        raise Problem(
            422,
            f"the model has a score for each of {len(classes)} classes; name one as class, such as {str(classes[0])!r}",
        )
    found = [label for label in classes if str(label) == named]
    if not found:
        raise Problem(422, f"class must be one of the classes of the model, {listed(classes)}; got {named[:40]!r}")
    return found[0]


def segment(service: ScoringService, request: Request) -> Later:
    """The score along a column, with the others fixed: `along`, `values` (a JSON object), `points`, `class`."""
    query = request.query()
    unknown = sorted(set(query) - {"along", "values", "points", "rest", "class", "arm"})
    if unknown or "along" not in query:
        known = "along, values, points, rest, class and arm"
        raise Problem(422, f"the query has {known}; along is needed; got {sorted(query)}")
    try:
        values = from_json(query.get("values", "{}").encode("utf-8", "surrogatepass"))
        points = int(query.get("points", "101"))
    except ValueError as error:
        raise Problem(422, f"values must be a JSON object and points an integer: {error}") from None
    if not isinstance(values, dict) or not 2 <= points <= _MAX_POINTS:
        raise Problem(422, f"values must be a JSON object, and points between 2 and {_MAX_POINTS:,}")
    rest = query.get("rest", "error")
    if rest not in ("error", "mean"):
        raise Problem(422, f"rest must be error or mean, got {rest[:40]!r}")
    model = service.serving.model_of(query.get("arm"))
    label = _find_class(model, query.get("class"))
    fitted = model.fitted if label is None else model.fitted.for_class(label)
    content = {"id": request.id, "version": model.published.version, "along": query["along"]}
    return Later(lambda: json_response(content | _segment(fitted, values, query["along"], points, rest)))


def _segment(fitted: Fitted, values: dict[str, Any], along: str, points: int, rest: Any) -> dict[str, Any]:
    try:
        view = make_segment(fitted, values, along, rest=rest, watch=False)
    except ROW_ERRORS as error:
        raise Problem(422, str(error)) from None
    if isinstance(view, Curve):
        return _curve(view, points)
    assert isinstance(view, Bars)  # there is one column along
    names = view.names[:points]
    return {"names": names, **both_scales(view.loss, np.asarray(view.scores)[: len(names)])}


def _curve(view: Curve, points: int) -> dict[str, Any]:
    x = _grid(view.field, points) if view.known_values is None else spread_values(view.known_values, points)
    return {
        "x": x.tolist(),
        **both_scales(view.loss, np.asarray(view(x))),
        "coefficients": _coefficients(view),
        "intercept": float(view.intercept),
        "tokens": {name: float(score) for name, score in view.met_tokens.items()},
    }


def _grid(item: Numerical, points: int) -> FloatArray:
    x = np.unique(item.raw(np.linspace(0.0, 1.0, points)))
    return np.asarray(x[np.isfinite(x)])


def _coefficients(view: Curve) -> list[float] | None:
    """The coefficients; None for a curve that is not a spline, such as one with a cross of the column's values."""
    try:
        found: list[float] = view.coefficients.tolist()
    except AttributeError:
        return None
    return found
