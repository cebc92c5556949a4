"""How long does one row take, as a dict from a web request, compared with LightGBM, lleaves and ONNX Runtime?

There are 26 categorical columns (100,000 categories in all, Zipf, as text) and 13 numerical ones (cubic splines on 20
segments). Every row is parsed from JSON right before its call, so no contender has seen it; parsing is not timed,
looking up categories is. Parameters of our models are random, which makes no difference to the time. LightGBM has 300
trees of 63 leaves on the same columns and gets an array with integer codes for categories, with one thread: by
`Booster.predict`, and by the C function for single rows (`LGBM_BoosterPredictForMatSingleRowFast`), called from Python.
lleaves compiles the same trees to machine code, and ONNX Runtime runs them as a graph of onnxmltools; it also runs our
FwFM as a graph, and gets an array per column. Those of the two that are not installed are left out. The run checks that
scores are those of a table, to the bit. Contenders alternate in blocks of rows.

The C library scores an FwFM: one row per call from Python, like LightGBM's C function, all rows in one call, and a
catalog of items (13 columns) for contexts (26 columns) on two threads. `c_vs_lightgbm` is the median of LightGBM's C
function / the median of `sfm_score`; the goals are 3 µs per row inside the library, and 10 million items per second.

`p50_vs_lightgbm` is the median of LightGBM's faster way / the median of the slowest of our rated models, and so is
`p50_vs_lleaves`; `p50_vs_onnxruntime` compares the FwFM with its own graph. The goals are 1, and at most 25 µs for each
of our rated models. `first` is the time to the first score in a new process.

    python benchmarks/single_row.py [--quick] [--json] [--save]
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _library import Library, Values
from _shared import (
    DISTINCT,
    N_CATEGORICAL,
    N_NUMERICAL,
    SEGMENTS,
    finish,
    hex_names,
    make_parser,
    random_model,
    say,
    zipf_codes,
)

import splinefm as sf
from splinefm.model.family import AnyModel

N_FIT, BLOCK = 10_000, 250
RATED: dict[str, AnyModel] = {"fm_k16": sf.FM(16), "fwfm_k16": sf.FwFM(16), "ffm_k8": sf.FFM(8)}
FURTHER: dict[str, AnyModel] = {
    "low_rank_fwfm_k16": sf.LowRankFwFM(16, 3),
    "fmfm_k8": sf.FmFM(8),
    "higher_order_fm_k16": sf.HigherOrderFM(16, 3),
}
FIRST = """
import time; begin = time.perf_counter()
import numpy as np
import splinefm as sf
from splinefm.train.losses import Loss
from splinefm.model.family.parameters import init_params
schema = sf.Schema([sf.Numerical("x", sf.MinMax()), sf.Categorical("c")])
encoder = sf.fit_encoder(schema, {"x": [0.0, 1.0], "c": ["a", "b"]})
params = init_params(sf.FwFM(16), encoder.layout, np.random.default_rng(0))
fitted = sf.Fitted(encoder, sf.FwFM(16), params, Loss())
begin = time.perf_counter()
fitted.scorer()({"x": 0.5, "c": "a"})
print("=", time.perf_counter() - begin)
"""
Table = dict[str, Any]
# Of a row's text and number: the call to be timed, and its argument.
Contender = Callable[[str, int], tuple[Callable[[Any], float], Any]]


def make_table(rows: int, rng: np.random.Generator) -> tuple[Table, np.ndarray, sf.Schema]:
    """Columns, the same with categories as codes, and a schema that knows all categories."""
    table: Table = {f"I{i + 1}": rng.lognormal(0.0, 1.5, rows) for i in range(N_NUMERICAL)}
    fields: list[Any] = [sf.Numerical(name, sf.Quantile(), sf.BSpline(SEGMENTS, 3)) for name in table]
    each, codes = DISTINCT // N_CATEGORICAL, list(table.values())
    for i in range(N_CATEGORICAL):
        names = hex_names(rng, each)
        codes.append(zipf_codes(rng, rows, each))
        table[f"C{i + 1}"] = np.array(names)[codes[-1]]
        fields.append(sf.Categorical(f"C{i + 1}", vocabulary=names))  # type: ignore[arg-type]  # any list of names
    return table, np.column_stack(codes).astype(np.float64), sf.Schema(tuple(fields))


def train_lightgbm(codes: np.ndarray, rng: np.random.Generator) -> Any:
    """300 trees of 63 leaves."""
    import lightgbm

    score = np.log(codes[:, 0]) * (codes[:, 13] % 3 - 1) + np.sin(codes[:, 1]) + 0.3 * (codes[:, 14] % 5)
    y = (rng.random(len(codes)) < 1 / (1 + np.exp(-score))).astype(float)
    options = {"objective": "binary", "num_leaves": 63, "learning_rate": 0.05, "verbosity": -1, "seed": 0}
    data = lightgbm.Dataset(codes, y, categorical_feature=list(range(N_NUMERICAL, codes.shape[1])))
    booster = lightgbm.train({**options, "min_data_in_leaf": 5}, data, num_boost_round=300)
    leaves = booster.trees_to_dataframe().query("left_child.isnull()").groupby("tree_index").size()
    if len(leaves) < 300 or leaves.median() < 63:
        raise RuntimeError(f"LightGBM grew {len(leaves)} trees of {leaves.median()} leaves")
    return booster


def fast_lightgbm(booster: Any, n_columns: int) -> Callable[[np.ndarray], float]:
    """LightGBM's C function for single rows, with everything prepared; a row is copied to where it reads."""
    from lightgbm import basic  # its Python interface has no way to call this function

    library: Any = vars(basic)["_LIB"]
    config = ctypes.c_void_p()
    basic._safe_call(
        library.LGBM_BoosterPredictForMatSingleRowFastInit(
            *(booster._handle, ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(-1), ctypes.c_int(1)),
            *(ctypes.c_int32(n_columns), ctypes.c_char_p(b"num_threads=1"), ctypes.byref(config)),
        )
    )
    row, length, result = np.empty(n_columns), ctypes.c_int64(), ctypes.c_double()
    arguments = (config, ctypes.c_void_p(row.ctypes.data), ctypes.byref(length), ctypes.byref(result))
    call = library.LGBM_BoosterPredictForMatSingleRowFast

    def predict(values: np.ndarray) -> float:
        row[:] = values
        if call(*arguments):
            raise RuntimeError("LightGBM's predict failed")
        return result.value

    return predict


def lleaves_model(folder: Path) -> Any:
    """The trees as machine code; None without lleaves."""
    if find_spec("lleaves") is None:
        return None
    import lleaves

    say("lleaves compiles, which takes minutes")
    model = lleaves.Model(model_file=folder / "lightgbm.txt")
    model.compile()
    return model


def onnx_session(path: Path) -> Any:
    """A graph in ONNX Runtime, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # onnxmltools writes a wrong shape of the labels
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def onnx_trees(booster: Any, folder: Path, n_columns: int) -> Any:
    """The trees as a graph; None without what converts and runs it."""
    if find_spec("onnxruntime") is None or find_spec("onnxmltools") is None:
        return None
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    graph = convert_lightgbm(booster, initial_types=[("x", FloatTensorType([None, n_columns]))], zipmap=False)
    (folder / "trees.onnx").write_bytes(graph.SerializeToString())
    return onnx_session(folder / "trees.onnx")


def make_peers(fitted: sf.Fitted, booster: Any, codes: np.ndarray, table: Table) -> dict[str, Contender]:
    """lleaves and ONNX Runtime, as far as they are installed; each is compared with what it stands for."""
    found: dict[str, Contender] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        booster.save_model(folder / "lightgbm.txt")
        compiled, trees = lleaves_model(folder), onnx_trees(booster, folder, codes.shape[1])
        graph = None
        if trees is not None:
            fitted.export_onnx(folder / "model.onnx")
            graph = onnx_session(folder / "model.onnx")
    expected = booster.predict(codes[:100])
    if compiled is not None:
        np.testing.assert_allclose(compiled.predict(codes[:100], n_jobs=1), expected, rtol=1e-6)
        found["lleaves"] = lambda text, i: (lambda x: compiled.predict(x, n_jobs=1)[0], codes[i : i + 1].copy())
    if graph is not None:
        narrow, is_text = codes.astype(np.float32), {name: table[name].dtype.kind == "U" for name in table}
        np.testing.assert_allclose(trees.run(["probabilities"], {"x": narrow[:100]})[0][:, 1], expected, rtol=1e-4)
        found["onnxruntime_lightgbm"] = lambda text, i: (
            lambda x: trees.run(["probabilities"], {"x": x})[0][0, 1],
            narrow[i : i + 1].copy(),
        )

        def columns(row: dict[str, Any]) -> dict[str, np.ndarray]:
            return {name: np.array([value], object if is_text[name] else None) for name, value in row.items()}

        first = {name: table[name][0].item() for name in table}
        ours = fitted.scores({name: [value] for name, value in first.items()})
        np.testing.assert_allclose(graph.run(["score"], columns(first))[0], ours, rtol=1e-4, atol=1e-5)
        found["onnxruntime_fwfm_k16"] = lambda text, i: (
            lambda row: graph.run(["score"], row)[0][0],
            columns(json.loads(text)),
        )
    return found


def make_contenders(scorers: dict[str, Any], booster: Any, codes: np.ndarray) -> dict[str, Contender]:
    """Our models, and the two ways of LightGBM."""
    fast = fast_lightgbm(booster, codes.shape[1])
    np.testing.assert_allclose(fast(codes[0]), booster.predict(codes[:1])[0], rtol=1e-6)

    def slow(x: np.ndarray) -> float:
        return float(booster.predict(x, num_threads=1, validate_features=False)[0])

    def ours(scorer: Any) -> Contender:
        return lambda text, i: (scorer, json.loads(text))

    return {
        **{name: ours(scorer) for name, scorer in scorers.items()},
        "lightgbm_booster": lambda text, i: (slow, codes[i : i + 1].copy()),
        "lightgbm_fast": lambda text, i: (fast, codes[i].copy()),
    }


def measure_calls(contenders: dict[str, Contender], texts: list[str]) -> dict[str, dict[str, float]]:
    """Percentiles of the time of one call, in µs; contenders alternate in blocks of rows."""
    clock = time.perf_counter_ns
    times: dict[str, list[int]] = {name: [] for name in contenders}
    for first in range(0, len(texts), BLOCK):
        for name, prepare in contenders.items():
            for i in range(first, min(first + BLOCK, len(texts))):
                call, row = prepare(texts[i], i)
                begin = clock()
                call(row)
                times[name].append(clock() - begin)
    return {
        name: {f"p{q}_us": float(np.percentile(values, q)) / 1e3 for q in (50, 99)} | {"calls": float(len(values))}
        for name, values in times.items()
    }


def measure_many(scorer: Any, texts: list[str]) -> dict[str, float]:
    """Median µs per row of a list of rows, by `many` and by a loop of calls, in alternating blocks."""
    blocks: dict[str, list[float]] = {"many": [], "loop": []}
    for i, first in enumerate(range(0, len(texts), BLOCK)):
        for name in sorted(blocks, reverse=i % 2 == 1):  # who comes second finds the categories in the cache
            rows = [json.loads(text) for text in texts[first : first + BLOCK]]
            begin = time.perf_counter()
            _ = scorer.many(rows) if name == "many" else [scorer(row) for row in rows]
            blocks[name].append((time.perf_counter() - begin) / len(rows))
    return {f"{name}_us_per_row": float(np.median(values)) * 1e6 for name, values in blocks.items()}


def open_library(fitted: sf.Fitted) -> Library:
    """The model in the C library."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sfs"
        fitted.export_scorer(path)
        return Library(path)  # which stays mapped


def score_all(score: Callable[[Values, np.ndarray], None], contexts: list[Values], out: np.ndarray) -> None:
    """Score all items for each context."""
    for context in contexts:
        score(context, out)


def measure_library(library: Library, rows: Table, n_items: int) -> dict[str, float]:
    """µs per row inside the library, and scores of items and contexts per second on two threads."""
    values = list(zip(*(rows[name].tolist() for name in library.columns), strict=True))
    every, best = Values(values), np.inf
    for _ in range(5):
        begin = time.perf_counter()
        library.scores(every, len(values))
        best = min(best, (time.perf_counter() - begin) / len(values))
    names, n = library.columns[::3], min(n_items, len(values))
    items = Values([[row[c] for c in range(0, len(library.columns), 3)] for row in values[:n]])
    score, contexts = library.catalog(names, items, n), [Values([row]) for row in values[:40]]
    rate = 0.0
    for _ in range(5):
        outs = [np.empty(n, np.float32) for _ in range(2)]
        threads = [threading.Thread(target=score_all, args=(score, contexts, out)) for out in outs]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rate = max(rate, 2 * len(contexts) * n / (time.perf_counter() - begin))
    return {"c_us_per_row": best * 1e6, "items_per_s": rate}


def measure_first() -> dict[str, float]:
    """Seconds from a model to its first score, in a new process."""
    run = subprocess.run([sys.executable, "-c", FIRST], check=True, capture_output=True, text=True)
    return {"first_s": float(run.stdout.rsplit("=", 1)[1])}


def measure(calls: int, models: dict[str, AnyModel]) -> dict[str, Any]:
    """All contenders, and the ratios."""
    rng = np.random.default_rng(0)
    say("data, encoder and LightGBM")
    table, codes, schema = make_table(N_FIT + calls, rng)
    encoder, booster = sf.fit_encoder(schema, table), train_lightgbm(codes[:N_FIT], rng)
    rows = {name: values[N_FIT:] for name, values in table.items()}
    texts = [
        json.dumps(dict(zip(rows, row, strict=True))) for row in zip(*(v.tolist() for v in rows.values()), strict=True)
    ]
    scorers, prepared = {}, {}
    for name, model in models.items():
        say(name)
        fitted = random_model(encoder, model)
        begin = time.perf_counter()
        scorers[name] = fitted.scorer()
        prepared[name] = time.perf_counter() - begin
        got = scorers[name].many([json.loads(text) for text in texts[:500]])
        np.testing.assert_array_equal(got, fitted.scores({n: v[:500] for n, v in rows.items()}))
    say("calls")
    library = open_library(random_model(encoder, sf.FwFM(16)))
    one = library.row_call()
    contenders = make_contenders(scorers, booster, codes[N_FIT:])
    contenders |= make_peers(random_model(encoder, sf.FwFM(16)), booster, codes[N_FIT:], rows)
    contenders["c_fwfm_k16"] = lambda text, i: (one, Values([[json.loads(text)[name] for name in library.columns]]))
    figures = measure_calls(contenders, texts)
    figures["c_fwfm_k16"] |= measure_library(library, rows, calls)
    for name, scorer in scorers.items():
        figures[name] |= measure_many(scorer, texts) | {"prepare_s": prepared[name]}
    say("first use")
    figures["first"] = measure_first()
    lightgbm = {way: figures[f"lightgbm_{way}"]["p50_us"] for way in ("booster", "fast")}
    ratios = {
        f"{name}_p50_vs_lightgbm_{way}": other / figures[name]["p50_us"]
        for name in models
        for way, other in lightgbm.items()
    }
    slowest = max(figures[name]["p50_us"] for name in RATED)
    peers = {}
    if "lleaves" in figures:
        peers["p50_vs_lleaves"] = figures["lleaves"]["p50_us"] / slowest
    if "onnxruntime_fwfm_k16" in figures:
        peers["p50_vs_onnxruntime"] = figures["onnxruntime_fwfm_k16"]["p50_us"] / figures["fwfm_k16"]["p50_us"]
        peers["p50_vs_onnxruntime_lightgbm"] = figures["onnxruntime_lightgbm"]["p50_us"] / slowest
    return {
        "figures": figures,
        "ratios": {
            "p50_vs_lightgbm": min(lightgbm.values()) / slowest,
            **peers,
            "goal_25us_vs_p50": 25.0 / slowest,
            "c_vs_lightgbm": lightgbm["fast"] / figures["c_fwfm_k16"]["p50_us"],
            "goal_3us_vs_c": 3.0 / figures["c_fwfm_k16"]["c_us_per_row"],
            "items_vs_goal_10m": figures["c_fwfm_k16"]["items_per_s"] / 1e7,
            "loop_vs_many": min(figures[name]["loop_us_per_row"] / figures[name]["many_us_per_row"] for name in models),
            **ratios,
        },
    }


def main() -> None:
    """Measure, print and save."""
    options = make_parser(__doc__, "the three rated models, 5,000 calls").parse_args()
    result = measure(5_000 if options.quick else 10_000, RATED if options.quick else RATED | FURTHER)
    finish(__file__, result, options)


if __name__ == "__main__":
    main()
