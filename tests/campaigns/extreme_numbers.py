"""Numbers: extremes through fit, predict, evaluate, views, explanations, scorer, ONNX, bins and ranking.

Whatever goes in, what comes out is finite and right, or it is refused with a clear error. "Right" is checked: by the
formula in NumPy, by another path through the package, or by a rule that the answer must follow.

    python tests/campaigns/extreme_numbers.py --long
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _campaign import Campaign, Wrong, check_clear, main
from _extremes import check_column, check_everything, close, columns, dates, fields, require, require_finite

# Fits


def fit(table: dict[str, Any], loss: Any = "logistic", **options: Any) -> Any:
    """Fit a small model."""
    import splinefm as sf

    schema = sf.Schema([sf.Numerical("x", basis=sf.BSpline(6)), sf.Categorical("c")])
    training = sf.Training(epochs=3, threads=1, batch_size=64, effort="fast")
    return sf.fit_model(table, "y", loss=loss, schema=schema, model=sf.FM(k=3), training=training, **options)


def small_table(rng: np.random.Generator, n: int = 600) -> dict[str, Any]:
    """Return two columns and a target between 0 and 1."""
    x, c = rng.random(n), rng.choice(["a", "b"], n)
    return {"x": x, "c": c, "y": (rng.random(n) < 0.2 + 0.6 * x).astype(float)}


def check_weights(title: str, weight: Any, rng: np.random.Generator) -> None:
    """A fit with weights is finite, and does not depend on their unit."""
    import splinefm as sf
    from splinefm.fit.evaluation import measure

    table = small_table(rng)
    fitted = fit({**table, "w": weight}, sample_weight="w")
    scores = fitted.scores(table, watch=False, threads=1).astype(np.float64)
    require_finite("scores", scores)
    if len(np.unique(table["y"][np.asarray(weight) > 0])) == 2:  # otherwise some metrics are not determined
        for metric in measure(sf.Loss(), table["y"], scores, np.asarray(weight, np.float64)):
            require_finite(metric.name, metric.value)
    if len(np.unique(weight)) == 1:
        plain = fit({**table, "w": np.ones(len(scores))}, sample_weight="w").scores(table, watch=False, threads=1)
        close("scores with other units of weight", scores, plain, rtol=1e-2, atol=1e-2)


TARGETS: dict[str, tuple[float, float]] = {
    "ones": (0.5, 2.0),
    "thousands": (1e3, 1e4),
    "1e15": (1e15, 2e15),
    "1e30": (1e30, 3e30),
    "1e100": (1e100, 3e100),
    "1e150 to 1e160": (1e150, 1e160),
    "1e300": (1e300, 3e300),
    "largest": (1e307, 1.7e308),
    "tiny": (1e-30, 3e-30),
    "1e-300": (1e-300, 3e-300),
    "subnormal": (1e-320, 3e-320),
    "of all sizes": (1e-12, 1e12),
}
LOSSES = ("squared", "huber", "quantile", "poisson", "gamma", "tweedie")


def check_target(loss: str, low: float, high: float, rng: np.random.Generator) -> None:
    """A fit to targets of a size predicts this size, or refuses them."""
    table = small_table(rng)
    table["y"] = np.exp(rng.uniform(np.log(low), np.log(high), len(table["x"])))
    fitted = fit(table, loss)
    p = fitted.predict(table, watch=False, threads=1)
    require_finite("predictions", p)
    if loss == "poisson" and high < 1e-6:  # targets are counts: below one in a million, 0 is right
        require(p.max() < 1e-4, f"no events are predicted as {p.max()}")
        return
    p = np.asarray(p) / high  # in units that sums of squares survive
    if high / low < 100:
        require(
            p.mean() > 0.1 * low / high and p.mean() < 3.0,
            f"targets from {low} to {high} are predicted as {p.mean()} of it",
        )
    rows = [{"x": x, "c": c} for x, c in zip(table["x"][:5].tolist(), table["c"][:5].tolist(), strict=True)]
    close("predictions of the scorer", fitted.scorer().many(rows, link=True) / high, p[:5], rtol=1e-6, atol=0)


def check_scores(loss_name: str, size: float, folder: Path) -> None:
    """A model whose scores are ± size: predictions, losses and slopes equal stable formulas."""
    import splinefm as sf
    from splinefm.fit.evaluation import measure
    from support import fit_encoder, random_params

    table = {"x": np.linspace(0, 1, 30), "c": ["a", "b", "c"] * 10}
    encoder = fit_encoder(sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(4)), sf.Categorical("c")]), table)
    params = random_params(sf.FM(k=2), encoder.layout, scale=0.1, spread=0.1)
    first = encoder.layout.feature_ptr[1]
    for feature, value in zip(range(first, first + 3), (-size, 0.0, size), strict=True):
        params["linear"][feature] = value
    loss = sf.Loss(loss_name) if loss_name != "softmax" else sf.Loss("softmax", classes=("p", "q", "r"))
    if loss_name == "softmax":
        params = {name: np.stack([values, -values, 0 * values]) for name, values in params.items()}
    fitted = sf.Fitted(encoder, sf.FM(k=2), params, loss)
    scores = fitted.scores(table, watch=False, threads=1).astype(np.float64)
    require(np.abs(scores).max() > 0.9 * size, "the scores are too small to try anything")
    p = fitted.predict(table, watch=False, threads=1)
    require_finite("predictions", p)
    close("predictions", p, _exact_predictions(loss.link, scores), rtol=1e-6, atol=1e-300)
    rows = [{"x": x, "c": c} for x, c in zip(table["x"].tolist(), table["c"], strict=True)]
    close("predictions of the scorer", fitted.scorer().many(rows, link=True), p, rtol=1e-12, atol=1e-300)
    y = np.tile([0.0, 1.0, 1.0], 10) if loss_name != "gamma" else np.full(30, 1.5)
    require_finite("losses", loss.value(y, scores))
    require_finite("slopes", loss.slope(y, scores))
    for metric in measure(loss, y, scores, np.ones(30)):
        # R² is 1 minus a square of what can be 1e304.
        require(not np.isinf(metric.value) or metric.name == "R2", f"{metric.name} is {metric.value}")
    if loss_name != "softmax":
        check_everything(fitted, table, folder) if size <= 1e4 else None
    learner = sf.Learner(fitted, sf.Training(threads=1, batch_size=8))
    labels = loss.classes or tuple(np.unique(y).tolist())
    target = [labels[int(v) % len(labels)] for v in y] if loss_name == "softmax" else y
    learner.update({**table, "y": target}, "y", guard=None)
    require_finite("scores after an update", learner.fitted().scores(table, watch=False, threads=1))


def _exact_predictions(link: str, scores: Any) -> Any:
    from scipy.special import expit, softmax

    if link == "softmax":
        return softmax(scores, axis=1)
    if link == "log":
        return np.exp(np.minimum(scores, 700.0))  # what docs/estimators.md says of rates beyond 1e304
    return expit(scores) if link == "logistic" else scores


def check_one_category(n: int) -> None:
    """Many rows of one category: the prediction is their mean."""
    y = np.zeros(n)
    y[::4] = 1.0
    table = {"x": np.zeros(n), "c": ["only"] * n, "y": y}
    p = fit(table).predict({"x": [0.0], "c": ["only"]}, watch=False)
    close("the mean", p, 0.25, atol=0.02, rtol=0)


# Parts


def cases(campaign: Campaign, folder: Path) -> Iterator[tuple[str, str, Callable[[], None]]]:
    """Yield part, title and check of every case."""
    import splinefm as sf

    n = 120
    for name, column in columns(campaign.rng("columns"), n).items():
        for title, field in fields("z"):
            yield (
                "columns",
                f"{name}, {title}",
                lambda c=column, f=field: check_column(f, c, folder),
            )
    for name, column in dates(campaign.rng("dates"), n).items():
        for title, field in (("Timestamp", sf.Timestamp("z")), ("Categorical", sf.Categorical("z"))):
            yield (
                "dates",
                f"{name}, {title}",
                lambda c=column, f=field: check_column(f, c, folder),
            )
    rng = campaign.rng("weights")
    for size in (1e-300, 1e-30, 1e-5, 1e5, 1e30, 1e300):
        yield "weights", f"all {size:g}", lambda w=size: check_weights("", np.full(600, w), campaign.rng("table"))
    mixed = {"1e-30 and 1e30": rng.choice([1e-30, 1e30], 600), "0 and 1e30": rng.choice([0.0, 1e30], 600)}
    mixed["one row"] = np.append(np.zeros(599), 1e-30)
    mixed["all sizes"] = 10.0 ** rng.uniform(-30, 30, 600)
    for name, weight in mixed.items():
        yield "weights", name, lambda w=weight: check_weights("", w, campaign.rng("table"))
    for loss in LOSSES:
        for name, (low, high) in TARGETS.items():
            yield (
                "targets",
                f"{loss}, {name}",
                lambda a=loss, b=low, c=high: check_target(a, b, c, campaign.rng("table")),
            )
    for loss in (*LOSSES, "logistic", "softmax"):
        for size in (100.0, 1e4, 1e30):
            yield "scores", f"{loss}, {size:g}", lambda a=loss, b=size: check_scores(a, b, folder)
    rows = 1_000_000 if campaign.depth == "long" else 100_000
    yield "categories", f"{rows} rows of one", lambda: check_one_category(rows)


def run(campaign: Campaign) -> None:
    """Try all cases; of a short run, every third of the many columns."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for number, (part, title, check) in enumerate(cases(campaign, Path(folder))):
            if not campaign.wants(part) or campaign.is_over:
                continue
            if campaign.depth == "short" and part in ("columns", "targets") and (number + campaign.seed) % 4:
                continue
            begin = time.perf_counter()
            campaign.saw(part, _outcome(campaign, f"{part}: {title}", check))
            if time.perf_counter() - begin > 60:
                campaign.find(f"{part}: {title}: it took {time.perf_counter() - begin:.0f} s")


def _outcome(campaign: Campaign, title: str, check: Callable[[], None]) -> str:
    import splinefm as sf

    try:
        check()
    except Wrong as wrong:
        campaign.find(f"{title}: {wrong}")
        return "wrong"
    except (ValueError, sf.Diverged) as error:
        reasons = campaign.figures.setdefault("refusals", {})
        reason = re.sub(r"(-?[0-9][0-9.,e+-]*)+", "#", str(error))[:120]
        reasons[reason] = reasons.get(reason, 0) + 1
        try:
            check_clear(error, (ValueError, sf.Diverged))
        except Wrong as wrong:
            campaign.find(f"{title}: {wrong}")
        return "refused"
    except Exception as error:
        campaign.find(title, error)
        return "crashed"
    return "right"


if __name__ == "__main__":
    sys.exit(main("numbers", run, short=1, long=1))
