"""Columns at the limits of their types, and a check of everything that a model does with a few rows."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _campaign import Wrong

TINY, HUGE = 5e-324, 1.7976931348623157e308


def require(condition: Any, message: str) -> None:
    """Raise a finding unless the condition holds."""
    if not condition:
        raise Wrong(message)


def require_finite(what: str, values: Any) -> None:
    """Raise a finding if a number is NaN or infinite."""
    array = np.asarray(values, np.float64)
    require(np.isfinite(array).all(), f"{what} has {array[~np.isfinite(array)][:3]}")


def close(what: str, actual: Any, expected: Any, rtol: float = 1e-4, atol: float = 1e-4) -> None:
    """Raise a finding unless numbers are close."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    require(
        np.allclose(actual, expected, rtol, atol), f"{what}: {actual.ravel()[:4]} instead of {expected.ravel()[:4]}"
    )


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


def check_column(field: Any, column: Any, folder: Path) -> None:
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
    from splinefm.model.family.formula import formula_scores

    few = {name: take(column, np.arange(9)) for name, column in table.items()}
    slots = fitted.encoder.encode(few, threads=1)
    require_finite("weights", slots.weight)
    scores = fitted.scores(few, watch=False, threads=1)
    close("scores", scores, formula_scores(fitted.model, fitted.params, slots))
    require_finite("predictions", fitted.predict(few, watch=False, threads=1))
    found = sf.shapley_values(fitted, few, background=few, threads=1)
    close("Shapley values", found.scores, scores)
    rows = _rows(few)
    try:
        ranked = fitted.scorer().many(rows)
    except (TypeError, ValueError) as error:  # dates of pyarrow that Python has no object for
        require("date" in str(error) or "time" in str(error), f"the scorer refuses a row: {error}")
    else:
        require(np.array_equal(ranked, scores), "the scorer has other scores")
    _check_views(fitted, few, rows, scores)
    if any(hasattr(item, "basis") for item in fitted.encoder.fields):
        binned = sf.discretize(fitted, 12)
        require_finite("scores of bins", binned.scores(few, watch=False, threads=1))
    _check_items(fitted, few, scores)
    _check_graph(fitted, few, scores, folder)
    fitted.save(folder / "m.sfm")
    require(np.array_equal(sf.load(folder / "m.sfm").scores(few, watch=False, threads=1), scores), "saved as another")


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
    import splinefm as sf

    names = fitted.encoder.schema.names
    if names != ("z", "c") or isinstance(few["z"], list) or not isinstance(fitted.encoder.fields[0], sf.Numerical):
        return
    from splinefm.inspect.curves import Curve

    z = np.array([np.nan if row["z"] is None else float(row["z"]) for row in rows])
    for i, row in enumerate(rows[:3]):
        curve = fitted.segment({"c": row["c"]}, along="z", watch=False)
        require(isinstance(curve, Curve), f"a view is {curve!r}")
        if np.isfinite(z[i]):
            close("a curve", curve(z[i]), scores[i])
        require_finite("a curve", curve(z[np.isfinite(z)]))


def _check_items(fitted: Any, few: dict[str, Any], scores: Any) -> None:
    import splinefm as sf

    for dtype in ("float32", "int8"):
        index = sf.ItemIndex(fitted, {"c": ["a", "b", "c"]}, ids=["a", "b", "c"], dtype=dtype, threads=1)
        for i in range(3):
            context = {name: take(column, np.arange(i, i + 1)) for name, column in few.items() if name != "c"}
            ids, best = index.top_k(context, k=3)
            require_finite("scores of items", best)
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
    require_finite("predictions of ONNX", prediction)
    if not _is_narrow(few["z"] if "z" in few else few["x"]):
        close("scores of ONNX", score, scores, rtol=1e-3, atol=1e-3)


def _is_narrow(column: Any) -> bool:
    """Whether values differ by less than what a graph can tell apart, as docs/exports.md says."""
    if isinstance(column, list) or (isinstance(column, pa.Array) and pa.types.is_temporal(column.type)):
        return False
    values = np.asarray(column, np.float64)
    values = values[np.isfinite(values)] / 4.0
    return not len(values) or bool(np.ptp(values) < max(1e-9 * np.abs(values).max(initial=0.0), 1e-290))
