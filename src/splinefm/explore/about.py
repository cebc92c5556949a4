"""What the page says about a model: titles, units, and the shapes of transforms and bases."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from splinefm._wording import number
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.fields.sources import Sources
from splinefm.encode.slots import expand_windows
from splinefm.learn.description import describe_search, predicted_thing
from splinefm.learn.fitted import Fitted
from splinefm.learn.losses import Loss
from splinefm.view.formats import axis_format

_POINTS, _MOST_FUNCTIONS, _MOST_SETTINGS = 257, 64, 20
_SCORES = {
    "logistic": "score (log-odds)",
    "identity": "score (standardized target)",
    "log": "score (log of the mean, relative to the mean target)",
    "softmax": "score of the class",
}


class Origin(NamedTuple):
    """Where the rows of a page come from.

    Parameters
    ----------
    model, data : str
        Names of the model file and of the table, as the page shows them.
    n_rows, n_sampled : int
        Rows of the table, and of the page.
    target : str, optional
        The column that is predicted.
    """

    model: str
    data: str
    n_rows: int
    n_sampled: int
    target: str | None = None


def describe_page(fitted: Fitted, origin: Origin, ranking: dict[str, Any] | None = None) -> dict[str, Any]:
    """Titles and units for a page.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=1, threads=1))
    >>> about = describe_page(fitted, Origin("m.sfm", "clicks.csv", 200, 200, "click"))
    >>> about["title"], about["prediction_text"], about["score_unit"]
    ('click', 'probability of 1', 'log-odds')
    """
    loss = fitted.loss
    unit, scale, zero = _unit(loss)
    sampled = f", {origin.n_sampled:,} of them in this page" if origin.n_sampled < origin.n_rows else ""
    rows = f"{origin.n_rows:,} rows of {origin.data}{sampled}"
    return {
        "title": origin.target or predicted_thing(fitted),
        "subtitle": f"{fitted.model} predicts the {predicted_thing(fitted)}. {rows}.",
        "model": origin.model,
        "prediction_short": _short(loss),
        "prediction_text": _text(fitted, origin.target),
        "score_short": "score",
        "score_text": _SCORES.get(loss.link, "score"),
        "score_unit": unit,
        "unit_scale": scale,
        "unit_zero": zero,
        "ranking": ranking,
        "search": _search(fitted),
        "columns": {name: _shapes(item) for name, item in Sources(fitted.encoder.schema).fields.items()},
    }


def _search(fitted: Fitted) -> dict[str, Any] | None:
    """The settings that the fit has tried as a table of text, the best first; None if there are none."""
    entries = describe_search(fitted)
    if not entries:
        return None
    heads = ["setting", f"{entries[0]['metric']} on held-out rows", "standard error", "parts of the rows", "seconds"]
    rows = [
        [
            entry["text"],
            number(entry["value"]),
            number(entry["value_error"], ".2g"),
            str(entry["folds"]),
            number(entry["seconds"], ".1f"),
        ]
        for entry in entries[:_MOST_SETTINGS]
    ]
    chosen = [i for i, entry in enumerate(entries[:_MOST_SETTINGS]) if entry["is_chosen"]]
    some = f", the best {len(rows)} of {len(entries):,} settings" if len(entries) > len(rows) else ""
    return {"title": f"What the fit tried{some}", "columns": heads, "rows": rows, "chosen": chosen}


def _short(loss: Loss) -> str:
    return {"logistic": "probability", "softmax": "probability"}.get(loss.link, "prediction")


def _text(fitted: Fitted, target: str | None) -> str:
    loss = fitted.loss
    if loss.link == "softmax":
        return "probability of the class"
    if loss.link == "logistic" or target is None:
        return predicted_thing(fitted)
    return f"quantile {loss.quantile:g} of {target}" if loss.quantile is not None else f"predicted {target}"


def _unit(loss: Loss) -> tuple[str, float, float]:
    """The unit of effects, the size of one unit of the score in it, and the value of the score 0."""
    if loss.link == "identity" and loss.of_class is None:
        return "units of the target", loss.scale, loss.center
    if loss.link == "logistic":
        return "log-odds", 1.0, 0.0
    if loss.link == "log":
        return "log of the rate" if loss.name == "poisson" else "log of the prediction", 1.0, math.log(loss.scale)
    return "units of the score", 1.0, 0.0


def _shapes(item: object) -> dict[str, Any] | None:
    """The transform as a table of values, and the basis functions over u; None without a transform."""
    if not isinstance(item, Numerical):
        return None
    u = np.linspace(0.0, 1.0, _POINTS)
    x = np.asarray(item.fitted_transform.inverse(u), np.float64)
    known = np.isfinite(x)
    n_functions = sum(item.basis.sizes)
    whole = [int(n) for n in np.cumsum(item.basis.sizes) if n <= _MOST_FUNCTIONS]
    n_shown = whole[-1] if whole else _MOST_FUNCTIONS
    start, weight = item.basis(u)
    values = np.zeros((n_functions, len(u)))
    np.add.at(values, (expand_windows(start, item.basis.widths), np.arange(len(u))[:, None]), weight)
    return {
        "x": x[known].tolist(),
        "u": u[known].tolist(),
        "functions": np.round(values[:n_shown, ::2], 5).tolist(),
        "at": u[::2].tolist(),
        "integers": axis_format(item).integers,
        "special": [float(value) for value in item.special if not isinstance(value, str)],
    }
