"""Every instruction set of the machine gives the same numbers, to 1e-5. One is chosen at import: a process for each."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import splinefm as sf
from splinefm import _core
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots
from splinefm.model.cpu import CpuEngine
from splinefm.model.family.formula import formula_scores
from splinefm.model.family.parameters import init_params
from splinefm.model.optimizers import Optimizer
from splinefm.model.scores import predict_scores
from support import SANITIZED, THOROUGH

# Sanitizers see the code that runs, whatever is compared.
EVERYTHING = THOROUGH or bool(SANITIZED)

# Lengths that the kernels know, one that is padded, and one that they take eight by eight.
SIZES = (3, 4, 8, 16, 32, 40)
KINDS = {
    "FM": sf.FM,
    "FwFM": sf.FwFM,
    "LowRankFwFM": lambda k: sf.LowRankFwFM(k, 2),
    "FmFM": sf.FmFM,
    "FFM": sf.FFM,
    "HigherOrderFM": lambda k: sf.HigherOrderFM(k, 3),
    "third": lambda k: sf.FwFM(k, 40 - k),
    "as many": lambda k: sf.FwFM(k, k),
}
# A spline, a list of single units, two windows of one unit, a category, windows of other widths.
LAYOUT = SlotLayout(
    (
        FieldLayout("spline", 12, (4,), (0,)),
        FieldLayout("list", 5, (1, 1, 1), (0, 1, 2)),
        FieldLayout("levels", 9, (4, 4), (0, 0)),
        FieldLayout("category", 50, (1,), (0,)),
        FieldLayout("wide", 7, (3, 2), (0, 1)),
    )
)
SCHEMA = sf.Schema(
    [
        sf.Numerical("x", sf.MinMax(), sf.BSpline(5), special=[0.0]),
        sf.Categorical("user"),
        sf.Numerical("z", sf.MinMax(), sf.MultiResolution((2, 4)), reduction="identity"),
        sf.MultiValued("words"),
    ]
)


def make_slots(n=300):
    rng = np.random.default_rng(0)
    field = LAYOUT.unit_field[LAYOUT.window_unit]
    last = LAYOUT.feature_ptr[field + 1] - np.diff(LAYOUT.weight_ptr)
    start = rng.integers(LAYOUT.feature_ptr[field], last + 1, (n, LAYOUT.n_windows)).astype(np.int32)
    return Slots(start, rng.random((n, LAYOUT.n_weights), np.float32), LAYOUT)


def some_params(model, layout):
    """Scores of a few units: vectors are the shorter, the more numbers and fields there are."""
    rng = np.random.default_rng(1)
    params = init_params(model, layout, rng, scale=0.5)
    params["linear"] = rng.normal(0.0, 0.3, layout.n_features).astype(np.float32)
    return params


def small_table(n=60):
    rng = np.random.default_rng(2)
    words = [rng.choice(list("abcd"), rng.integers(0, 4), replace=False).tolist() for _ in range(n)]
    users = rng.choice(list("uvw"), n).tolist()
    return {"x": rng.random(n).round(2).tolist(), "user": users, "z": rng.normal(size=n).tolist(), "words": words}


def engine_scores(kind):
    """Scores, and scores after four steps of training."""
    slots, found = make_slots(), {}
    y = np.random.default_rng(3).integers(0, 2, len(slots)).astype(float)
    for k in SIZES:
        model = KINDS[kind](k)
        params = some_params(model, LAYOUT)
        found[f"scores {k}"] = predict_scores(model, params, slots)
        # AdamW turns rounding of a gradient near zero into a step of full length; an eps keeps it in proportion.
        engine = CpuEngine(model, LAYOUT, params, optimizer=Optimizer(learning_rate=0.01, eps=1e-2), threads=2)
        rows = np.arange(len(slots))
        engine.steps(slots, y, np.ones(len(y)), rows, np.full(2, 0.01))
        engine.steps(slots, y, np.ones(len(y)), rows, np.full(2, 0.01))
        found[f"trained {k}"] = engine.scores(slots)
    return found


def use_scores(kind):
    """What a model is good for: a table, single rows, the best items of a catalog, explanations."""
    table = small_table()
    encoder = sf.fit_encoder(SCHEMA, table)
    model = KINDS[kind](8)
    fitted = sf.Fitted(encoder, model, some_params(model, encoder.layout), sf.Loss())
    rows = [{name: values[i] for name, values in table.items()} for i in range(20)]
    score = fitted.scorer()
    items = {name: table[name] for name in ("z", "words")}
    index = sf.ItemIndex(fitted, {"id": list(range(60)), **items}, ids="id")
    best = index.top_k({name: table[name][:5] for name in ("x", "user")}, 60)
    order = np.argsort(best[0], axis=1)
    found = {
        "table": fitted.scores(table),
        "rows": np.array([score(row) for row in rows]),
        "items": np.take_along_axis(best[1], order, axis=1),
    }
    if fitted.model.pairwise:
        found["shapley"] = sf.shapley_values(fitted, table, table).values
    return found


def all_scores():
    functions = (engine_scores, use_scores)
    return {
        f"{kind} {name}": values for kind in KINDS for function in functions for name, values in function(kind).items()
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """All terms of the slowest and the fastest instruction set; for the thorough test, scores, and of all sets."""
    found, folder = {}, tmp_path_factory.mktemp("isas")
    code = """
import sys, numpy as np, test_explain_terms, test_isas
scores = test_isas.all_scores() if test_isas.EVERYTHING else {}
np.savez(sys.argv[1], isa=test_isas._core.isa, **scores, **test_explain_terms.terms_by_model())
"""
    for isa in _core.isas if EVERYTHING else (_core.isas[0], _core.isas[-1]):
        file = folder / f"{isa}.npz"
        subprocess.run(
            [sys.executable, "-c", code, str(file)],
            env=os.environ | {"SPLINEFM_ISA": isa, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parent,
            check=True,
        )
        with np.load(file) as arrays:
            found[isa] = dict(arrays)
        assert found[isa].pop("isa") == isa
    return found


@pytest.mark.thorough
@pytest.mark.skipif(len(_core.isas) < 2, reason="the machine has one instruction set")
def test_scores_agree(found):
    first, *others = found.values()
    scores = {name: values for name, values in first.items() if " of " not in name}
    assert len(scores) == len(KINDS) * (2 * len(SIZES) + 4) - 3
    for name, values in scores.items():
        assert np.isfinite(values).all() and np.ptp(values) > 0.1, name
        for other in others:
            np.testing.assert_allclose(other[name], values, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.skipif(len(_core.isas) < 2, reason="the machine has one instruction set")
def test_terms_of_explanations_agree(found):
    first, *others = found.values()
    terms = {name: values for name, values in first.items() if " of " in name}
    assert len(terms) == 32
    for name, values in terms.items():
        for other in others:
            np.testing.assert_allclose(other[name], values, rtol=1e-5, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_formula(kind):
    """Of the one instruction set of this process: that those to compare are the right ones."""
    slots, found = make_slots(), engine_scores(kind)
    for k in SIZES:
        model = KINDS[kind](k)
        expected = formula_scores(model, some_params(model, LAYOUT), slots)
        np.testing.assert_allclose(found[f"scores {k}"], expected, rtol=1e-5, atol=1e-5)
