"""Numbers: extremes through fit, predict, evaluate, views, explanations, scorer, ONNX, bins and ranking.

Whatever goes in, what comes out is finite and right, or it is refused with a clear error. "Right" is checked: by the
formula in NumPy, by another path through the package, or by a rule that the answer must follow.

    python tests/campaigns/extreme_numbers.py --long
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _shared import Campaign, Wrong, check_clear, main

TINY, HUGE = 5e-324, 1.7976931348623157e308


def demand(condition: Any, message: str) -> None:
    """Raise a finding unless the condition holds."""
    if not condition:
        raise Wrong(message)


def demand_finite(what: str, values: Any) -> None:
    """Raise a finding if a number is NaN or infinite."""
    array = np.asarray(values, np.float64)
    demand(np.isfinite(array).all(), f"{what} has {array[~np.isfinite(array)][:3]}")


def close(what: str, actual: Any, expected: Any, rtol: float = 1e-4, atol: float = 1e-4) -> None:
    """Raise a finding unless numbers are close."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    demand(np.allclose(actual, expected, rtol, atol), f"{what}: {actual.ravel()[:4]} instead of {expected.ravel()[:4]}")


# Columns


def columns(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Return numerical columns at the limits of their types."""
    two = np.where(rng.random(n) < 0.5, 1.0, np.nextafter(1.0, 2.0))
    whole = pa.array(rng.choice([-(2**63), -(2**63) + 1, -1, 0, 1, 2**53 + 1, 2**63 - 2, 2**63 - 1], n), pa.int64())
    return {
        "largest": rng.choice([-HUGE, -1e308, 0.0, 1e308, HUGE], n),
        "near the largest": rng.uniform(0.9, 1.0, n) * 1e308,
        "both ends": np.where(rng.random(n) < 0.5, -HUGE, HUGE),
        "subnormal": rng.integers(0, 1000, n) * TINY,
        "smallest": rng.choice([-TINY, 0.0, TINY], n),
        "all sizes": 10.0 ** rng.uniform(-300, 300, n),
        "all sizes and signs": 10.0 ** rng.uniform(-300, 300, n) * rng.choice([-1, 1], n),
        "one outlier": np.append(rng.normal(size=n - 1), 1e308),
        "neighbors": two,
        "constant": np.full(n, 3.5),
        "constant zero": np.zeros(n),
        "constant huge": np.full(n, 1e308),
        "constant tiny": np.full(n, TINY),
        "mostly one": np.where(rng.random(n) < 0.99, 7.0, rng.normal(size=n)),
        "missing but one": np.append(np.full(n - 1, np.nan), 2.0),
        "int64": whole,
        "uint64": pa.array(rng.choice([0, 1, 2**63, 2**64 - 1], n).astype(np.uint64)),
        "float32": pa.array(rng.choice([3.4e38, -3.4e38, 1e-45, 1.0], n).astype(np.float32)),
        "far from zero": 1e15 + rng.integers(0, 50, n) * 0.125,
        "decimals": pa.array(rng.integers(-(10**17), 10**17, n)).cast(pa.decimal128(38, 0)),
    }


def dates(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Return dates at the limits of their types."""
    found = {}
    for unit in ("s", "ms", "us", "ns"):
        steps = np.array([-(2**63) + 1, 2**63 - 1, 0, -1, 10**9])
        found[f"timestamp[{unit}]"] = pa.array(rng.choice(steps, n), pa.timestamp(unit))
    found["date32"] = pa.array(rng.choice([-(2**31), 2**31 - 1, 0, 19000], n).astype(np.int32), pa.date32())
    found["years 1 to 9999"] = rng.choice(["0001-01-01", "9999-12-31", "1970-01-01", "2024-02-29"], n).tolist()
    return found


def fields(name: str) -> Iterator[tuple[str, Any]]:
    """Yield fields of every transform and basis."""
    import splinefm as sf

    transforms = {
        "auto": "auto",
        "MinMax": sf.MinMax(),
        "Quantile": sf.Quantile(),
        "Log": sf.Log(),
        "ArcsinhSquare": sf.ArcsinhSquare(),
        "BestFitCDF": sf.BestFitCDF(),
    }
    bases = {"BSpline": sf.BSpline(6), "Bins": sf.Bins(5, "quantile"), "Levels": sf.MultiResolution((2, 5))}
    for i, (title, transform) in enumerate(transforms.items()):
        for j, (basis_title, basis) in enumerate(bases.items()):
            if i == 0 or j == 0 or (i + j) % 2:
                yield f"{title} {basis_title}", sf.Numerical(name, transform, basis)


def check_column(campaign: Campaign, title: str, field: Any, column: Any, folder: Path) -> None:
    """Try one column with one field, through everything."""
    import splinefm as sf
    from support import random_fitted

    n = len(column)
    table = {"z": column, "c": ["a", "b", "c"] * (n // 3) + ["a"] * (n % 3)}
    schema = sf.Schema([field, sf.Categorical("c")])
    fitted = random_fitted(sf.FwFM(k=3), schema, table)
    check_everything(fitted, table, folder)


def take(column: Any, rows: Any) -> Any:
    """Return some values of a column."""
    if isinstance(column, list):
        return [column[i] for i in rows]
    return column.take(pa.array(rows)) if isinstance(column, pa.Array) else column[rows]


def check_everything(fitted: Any, table: dict[str, Any], folder: Path) -> None:
    """Score, explain, view, export, bin and rank rows; all must agree."""
    import splinefm as sf
    from splinefm.model.family import formula_scores

    few = {name: take(column, np.arange(9)) for name, column in table.items()}
    slots = fitted.encoder.encode(few, threads=1)
    demand_finite("weights", slots.weight)
    scores = fitted.scores(few, watch=False, threads=1)
    close("scores", scores, formula_scores(fitted.model, fitted.params, slots))
    demand_finite("predictions", fitted.predict(few, watch=False, threads=1))
    found = sf.shapley_values(fitted, few, background=few, threads=1)
    close("Shapley values", found.scores, scores)
    rows = _rows(few)
    try:
        ranked = fitted.scorer().many(rows)
    except (TypeError, ValueError) as error:  # dates of pyarrow that Python has no object for
        demand("date" in str(error) or "time" in str(error), f"the scorer refuses a row: {error}")
    else:
        demand(np.array_equal(ranked, scores), "the scorer has other scores")
    _check_views(fitted, few, rows, scores)
    if any(hasattr(item, "basis") for item in fitted.encoder.fields):
        binned = sf.discretize(fitted, 12)
        demand_finite("scores of bins", binned.scores(few, watch=False, threads=1))
    _check_items(fitted, few, scores)
    _check_graph(fitted, few, scores, folder)
    fitted.save(folder / "m.sfm")
    demand(np.array_equal(sf.load(folder / "m.sfm").scores(few, watch=False, threads=1), scores), "saved as another")


def _rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    lists = {}
    for name, column in table.items():
        lists[name] = (
            column.to_pylist() if isinstance(column, pa.Array) and not pa.types.is_temporal(column.type) else column
        )
        if isinstance(column, pa.Array) and pa.types.is_temporal(column.type):
            lists[name] = [value.as_py() if _has_object(value) else value for value in column]
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _has_object(value: Any) -> bool:
    try:
        value.as_py()
    except (ValueError, OverflowError):
        return False
    return True


def _check_views(fitted: Any, few: dict[str, Any], rows: list[dict[str, Any]], scores: Any) -> None:
    names = fitted.encoder.schema.names
    if names != ("z", "c") or isinstance(few["z"], list) or not hasattr(fitted.encoder.fields[0], "basis"):
        return
    import splinefm as sf

    z = np.array([np.nan if row["z"] is None else float(row["z"]) for row in rows])
    for i, row in enumerate(rows[:3]):
        curve = fitted.segment({"c": row["c"]}, along="z")
        demand(isinstance(curve, sf.Curve), f"a view is {curve!r}")
        if np.isfinite(z[i]):
            close("a curve", curve(z[i]), scores[i])
        demand_finite("a curve", curve(z[np.isfinite(z)]))


def _check_items(fitted: Any, few: dict[str, Any], scores: Any) -> None:
    import splinefm as sf

    for dtype in ("float32", "int8"):
        index = sf.ItemIndex(fitted, {"c": ["a", "b", "c"]}, ids=["a", "b", "c"], dtype=dtype, threads=1)
        for i in range(3):
            context = {name: take(column, np.arange(i, i + 1)) for name, column in few.items() if name != "c"}
            ids, best = index.top_k(context, k=3)
            demand_finite("scores of items", best)
            if dtype == "float32":
                mine = dict(zip(ids.tolist(), best.tolist(), strict=True))[take(few["c"], [i])[0]]
                close("the score of an item", mine, scores[i])


def _check_graph(fitted: Any, few: dict[str, Any], scores: Any, folder: Path) -> None:
    if not (importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime")):
        return
    import onnxruntime as ort

    import splinefm as sf

    sf.export_onnx(fitted, folder / "m.onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(folder / "m.onnx", options, providers=["CPUExecutionProvider"])
    score, prediction = session.run(["score", "prediction"], sf.onnx_inputs(fitted, few))
    demand_finite("predictions of ONNX", prediction)
    if not _is_narrow(few["z"] if "z" in few else few["x"]):
        close("scores of ONNX", score, scores, rtol=1e-3, atol=1e-3)


def _is_narrow(column: Any) -> bool:
    """Whether values differ by less than what a graph can tell apart, as docs/exports.md says."""
    if isinstance(column, list) or (isinstance(column, pa.Array) and pa.types.is_temporal(column.type)):
        return False
    values = np.asarray(column, np.float64)
    values = values[np.isfinite(values)] / 4.0
    return not len(values) or bool(np.ptp(values) < max(1e-9 * np.abs(values).max(initial=0.0), 1e-290))


# Fits


def fit(table: dict[str, Any], loss: Any = "logistic", **options: Any) -> Any:
    """Fit a small model."""
    import splinefm as sf

    schema = sf.Schema([sf.Numerical("x", basis=sf.BSpline(6)), sf.Categorical("c")])
    training = sf.Training(epochs=3, threads=1, batch_size=64, select_resolutions=False)
    return sf.fit_model(table, "y", loss=loss, schema=schema, model=sf.FM(k=3), training=training, **options)


def small_table(rng: np.random.Generator, n: int = 600) -> dict[str, Any]:
    """Return two columns and a target between 0 and 1."""
    x, c = rng.random(n), rng.choice(["a", "b"], n)
    return {"x": x, "c": c, "y": (rng.random(n) < 0.2 + 0.6 * x).astype(float)}


def check_weights(title: str, weight: Any, rng: np.random.Generator) -> None:
    """A fit with weights is finite, and does not depend on their unit."""
    from splinefm.learn.evaluation import measure
    from splinefm.learn.losses import Loss

    table = small_table(rng)
    fitted = fit({**table, "w": weight}, sample_weight="w")
    scores = fitted.scores(table, watch=False, threads=1).astype(np.float64)
    demand_finite("scores", scores)
    if len(np.unique(table["y"][np.asarray(weight) > 0])) == 2:  # otherwise some metrics are not determined
        for metric in measure(Loss(), table["y"], scores, np.asarray(weight, np.float64)):
            demand_finite(metric.name, metric.value)
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
    demand_finite("predictions", p)
    if loss == "poisson" and high < 1e-6:  # targets are counts: below one in a million, 0 is right
        demand(p.max() < 1e-4, f"no events are predicted as {p.max()}")
        return
    p = np.asarray(p) / high  # in units that sums of squares survive
    if high / low < 100:
        demand(
            p.mean() > 0.1 * low / high and p.mean() < 3.0,
            f"targets from {low} to {high} are predicted as {p.mean()} of it",
        )
    rows = [{"x": x, "c": c} for x, c in zip(table["x"][:5].tolist(), table["c"][:5].tolist(), strict=True)]
    close("predictions of the scorer", fitted.scorer().many(rows, link=True) / high, p[:5], rtol=1e-6, atol=0)


def check_scores(loss_name: str, size: float, folder: Path) -> None:
    """A model whose scores are ± size: predictions, losses and slopes are those of stable formulas."""
    import splinefm as sf
    from splinefm.learn.evaluation import measure
    from splinefm.learn.losses import Loss
    from support import fit_encoder, random_params

    table = {"x": np.linspace(0, 1, 30), "c": ["a", "b", "c"] * 10}
    encoder = fit_encoder(sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(4)), sf.Categorical("c")]), table)
    params = random_params(sf.FM(k=2), encoder.layout, scale=0.1, spread=0.1)
    first = encoder.layout.feature_ptr[1]
    for feature, value in zip(range(first, first + 3), (-size, 0.0, size), strict=True):
        params["linear"][feature] = value
    loss = Loss(loss_name) if loss_name != "softmax" else Loss("softmax", classes=("p", "q", "r"))
    if loss_name == "softmax":
        params = {name: np.stack([values, -values, 0 * values]) for name, values in params.items()}
    fitted = sf.Fitted(encoder, sf.FM(k=2), params, loss)
    scores = fitted.scores(table, watch=False, threads=1).astype(np.float64)
    demand(np.abs(scores).max() > 0.9 * size, "the scores are too small to try anything")
    p = fitted.predict(table, watch=False, threads=1)
    demand_finite("predictions", p)
    close("predictions", p, _exact_predictions(loss.link, scores), rtol=1e-6, atol=1e-300)
    rows = [{"x": x, "c": c} for x, c in zip(table["x"].tolist(), table["c"], strict=True)]
    close("predictions of the scorer", fitted.scorer().many(rows, link=True), p, rtol=1e-12, atol=1e-300)
    y = np.tile([0.0, 1.0, 1.0], 10) if loss_name != "gamma" else np.full(30, 1.5)
    demand_finite("losses", loss.value(y, scores))
    demand_finite("slopes", loss.slope(y, scores))
    for metric in measure(loss, y, scores, np.ones(30)):
        # R² is 1 minus a square of what can be 1e304.
        demand(not np.isinf(metric.value) or metric.name == "R2", f"{metric.name} is {metric.value}")
    if loss_name != "softmax":
        check_everything(fitted, table, folder) if size <= 1e4 else None
    learner = sf.Learner(fitted, sf.Training(threads=1, batch_size=8))
    labels = loss.classes or tuple(np.unique(y).tolist())
    target = [labels[int(v) % len(labels)] for v in y] if loss_name == "softmax" else y
    learner.update({**table, "y": target}, "y", guard=None)
    demand_finite("scores after an update", learner.fitted().scores(table, watch=False, threads=1))


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
                lambda c=column, f=field, t=title: check_column(campaign, t, f, c, folder),
            )
    for name, column in dates(campaign.rng("dates"), n).items():
        for title, field in (("Timestamp", sf.Timestamp("z")), ("Categorical", sf.Categorical("z"))):
            yield (
                "dates",
                f"{name}, {title}",
                lambda c=column, f=field, t=title: check_column(campaign, t, f, c, folder),
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
