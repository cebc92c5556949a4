"""What a notebook shows of an object: a line, without arrays and knots."""

import numpy as np
import pytest

import splinefm as sf
from splinefm.train.results import StudySummary, TrialSummary
from support import random_fitted

MOST = 250
TABLE = {name: np.random.default_rng(i).normal(size=400) for i, name in enumerate("abdef")} | {"c": ["x", "y"] * 200}
SCHEMA = sf.Schema([*(sf.Numerical(name, sf.Quantile()) for name in "abdef"), sf.Categorical("c")])


@pytest.fixture(scope="module")
def fitted():
    return random_fitted(sf.FM(k=2), SCHEMA, TABLE)


FIXED = {"b": 0.0, "c": "x", "d": 0.0, "e": 0.0, "f": 0.0}
OBJECTS = {
    "fitted": lambda fitted: fitted,
    "encoder": lambda fitted: fitted.encoder,
    "slots": lambda fitted: fitted.encoder.encode(TABLE),
    "starvation": lambda fitted: fitted.encoder.starvation(),
    "scorer": lambda fitted: fitted.scorer(),
    "learner": sf.Learner,
    "state": lambda fitted: sf.Learner(fitted).state(),
    "curve": lambda fitted: fitted.segment(FIXED, along="a"),
    "bars": lambda fitted: fitted.segment(dict.fromkeys("abdef", 0.0), along="c"),
    "surface": lambda fitted: fitted.segment({"c": "x", "d": 0.0, "e": 0.0, "f": 0.0}, along=("a", "b")),
    "curves": lambda fitted: sf.segments(fitted, TABLE, along="a"),
    "background": lambda fitted: sf.Background.of(fitted, TABLE),
    "shapley": lambda fitted: sf.shapley_values(fitted, TABLE, TABLE),
    "decomposition": lambda fitted: sf.decompose(fitted, TABLE, TABLE),
    "importance": lambda fitted: sf.importance(fitted, TABLE),
    "study": lambda fitted: StudySummary(
        "y", "RMSE", False, 0, tuple(TrialSummary(i, "complete", 1.0, 20, 0.5, (("k", 4),)) for i in range(50))
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_repr_is_a_short_line(fitted, name):
    item = OBJECTS[name](fitted)
    text = repr(item)
    assert text.startswith(f"{type(item).__name__}(") and len(text) < MOST and "\n" not in text and "array" not in text


def test_a_model_names_its_formula_loss_rows_and_first_fields(fitted):
    names = "6 fields: 'a', 'b', 'd', ... and 3 more"
    assert repr(fitted) == f"Fitted(FM(k=2), logistic loss, 400 rows, {names})"
    assert repr(fitted.encoder) == f"Encoder(400 rows, {names})"


def test_a_model_tells_its_validation_loss_if_it_was_measured(fitted):
    history = tuple(sf.Epoch(i, 0.7, loss, 0.1, 1.0, 1.0) for i, loss in enumerate((0.6, 0.5, np.nan)))
    measured = sf.Fitted(fitted.encoder, fitted.model, fitted.params, fitted.loss, history)
    assert ", validation logloss 0.5, " in repr(measured)


def test_a_fitted_schema_is_printed_without_knots(fitted):
    lines = str(fitted.encoder.schema).splitlines()
    assert len(lines) == 6 and all(len(line) < MOST for line in lines)
    knots = fitted.encoder.schema["a"].transform.x
    assert f"x=<400 values from {knots[0]!r} to {knots[-1]!r}>" in lines[0]
    few = sf.Schema([sf.Numerical("a", sf.Quantile(x=(0.0, 1.0, 3.0), u=(0.0, 0.5, 1.0)))])
    assert "x=(0.0, 1.0, 3.0), u=(0.0, 0.5, 1.0)" in str(few)
