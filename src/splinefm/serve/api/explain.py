"""POST /v1/explain and GET /v1/segment: why a score is what it is, and how it changes along a column."""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.encode.fields.numerical import Numerical
from splinefm.inspect.axes import spread_values
from splinefm.inspect.curves import Bars, Curve
from splinefm.inspect.segment import segment as make_segment
from splinefm.inspect.shapley import shapley_values
from splinefm.inspect.values import both_scales
from splinefm.serve.api.score import check_count
from splinefm.serve.api.state import State, need_json
from splinefm.serve.arms.faults import ROW_ERRORS, FaultyRows, check_names, faults_of
from splinefm.serve.arms.loaded import Loaded
from splinefm.serve.arms.serving import Serving
from splinefm.serve.http.codec import ExplainBody, from_json
from splinefm.serve.http.messages import Later, Problem, Request, Response, json_response
from splinefm.train.fitted import Fitted
from splinefm.train.targets import Label, listed

_MAX_ROWS = 1000
_MAX_POINTS = 2000


def explain(state: State, request: Request) -> Later:
    """Shapley values of rows."""
    need_json(request)
    body: ExplainBody = from_json(request.body, ExplainBody)
    check_count(len(body.rows), min(_MAX_ROWS, state.limits.rows))
    request.n_rows = len(body.rows)
    serving = state.serving
    model = serving.loaded[state.known_arm(body.arm) or serving.split.names[0]]
    if model.background_path is None:
        raise Problem(404, "Shapley values compare with other rows; start the server with --background TABLE")
    check_names(serving.names, body.rows)
    label = _find_class(model, body.class_name)
    return Later(lambda: _explain(serving, model, request, body.rows, label))


def _find_class(model: Loaded, named: str | None) -> Label | None:
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


def _explain(
    serving: Serving, model: Loaded, request: Request, rows: list[dict[str, Any]], label: Label | None
) -> Response:
    faults = faults_of(model, serving.names, rows)
    if faults:
        raise FaultyRows(faults)
    table = {name: [row[name] for row in rows] for name in model.columns}
    background = model.background(label)
    assert background is not None  # since there is a table
    found = shapley_values(background.fitted, table, background, threads=1)
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


def segment(state: State, request: Request) -> Later:
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
    serving = state.serving
    model = serving.loaded[state.known_arm(query.get("arm")) or serving.split.names[0]]
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
    x = np.unique(np.asarray(item.fitted_transform.inverse(np.linspace(0.0, 1.0, points)), np.float64))
    return np.asarray(x[np.isfinite(x)])


def _coefficients(view: Curve) -> list[float] | None:
    """The coefficients; None for a curve that is not a spline, such as one with a cross of the column's values."""
    try:
        found: list[float] = view.coefficients.tolist()
    except AttributeError:
        return None
    return found
