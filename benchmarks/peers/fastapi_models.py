"""What many teams run today: FastAPI in front of a model; started by `benchmarks/serve.py`.

The environment names the model as PEER: "lightgbm" for `Booster.predict`, "lleaves" for the same trees as machine code,
"onnxruntime" for our FwFM as a graph. /v1/score makes a DataFrame of the rows, with categories as they were in
training, which is how LightGBM is used from pandas. /v1/arrays looks categories up in dicts and fills an array, which
takes more care and less time; the graph takes an array per column. /v1/rank scores all items for a context.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fastapi import FastAPI
from pydantic import BaseModel

FOLDER, PEER = Path(os.environ["SERVED"]), os.environ["PEER"]
CATEGORIES: dict[str, list[str]] = json.loads((FOLDER / "categories.json").read_text())
CODES = {name: {value: float(i) for i, value in enumerate(values)} for name, values in CATEGORIES.items()}
TYPES = {name: pd.CategoricalDtype(values) for name, values in CATEGORIES.items()}
NAMES = [*(f"I{i + 1}" for i in range(13)), *CATEGORIES]
ITEMS = np.load(FOLDER / "items.npy") if (FOLDER / "items.npy").exists() else None

app = FastAPI()


class Rows(BaseModel):
    """Rows to score."""

    rows: list[dict[str, Any]]


class Context(BaseModel):
    """A context, and how many items to return."""

    context: dict[str, Any]
    k: int


def as_row(values: dict[str, Any], names: list[str]) -> list[float]:
    """Numbers, and the codes of categories."""
    return [CODES[name].get(values[name], np.nan) if name in CODES else values[name] for name in names]


def load_model() -> Callable[[Any], Any]:
    """A function that predicts an array, or the columns of a graph."""
    if PEER == "lightgbm":
        import lightgbm

        booster = lightgbm.Booster(model_file=FOLDER / "lightgbm.txt", params={"num_threads": 1})
        return lambda values: booster.predict(values, num_threads=1)
    if PEER == "lleaves":
        import lleaves

        model = lleaves.Model(model_file=FOLDER / "lightgbm.txt")
        model.compile(cache=FOLDER / "lleaves.o")  # which the benchmark has made
        return lambda values: model.predict(values, n_jobs=1)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(FOLDER / "model.onnx", options, providers=["CPUExecutionProvider"])
    return lambda columns: session.run(["prediction"], columns)[0]


predict = load_model()


@app.post("/v1/score")
def score(body: Rows) -> dict[str, list[float]]:
    """Score a DataFrame."""
    table = pd.DataFrame(body.rows, columns=NAMES).astype(TYPES)
    for name in CATEGORIES:  # the model was trained on codes
        table[name] = table[name].cat.codes
    return {"predictions": predict(table.to_numpy(np.float64)).tolist()}


@app.post("/v1/arrays")
def arrays(body: Rows) -> dict[str, list[float]]:
    """Score an array."""
    if PEER == "onnxruntime":
        columns = {
            name: np.array([row[name] for row in body.rows], object if name in CODES else None) for name in NAMES
        }
        return {"predictions": predict(columns).tolist()}
    values = np.array([as_row(row, NAMES) for row in body.rows])
    return {"predictions": predict(values).tolist()}


@app.post("/v1/rank")
def rank(body: Context) -> dict[str, list[Any]]:
    """Score all items, and return the best."""
    assert ITEMS is not None
    n = len(NAMES) - ITEMS.shape[1]
    context = np.array(as_row(body.context, NAMES[:n]))
    scores = predict(np.hstack([np.tile(context, (len(ITEMS), 1)), ITEMS]))
    best = np.argpartition(-scores, body.k)[: body.k]
    best = best[np.argsort(-scores[best])]
    return {"ids": best.tolist(), "scores": scores[best].tolist()}
