"""Tables with hundreds of columns: the default model, its steps, and that it learns."""

from itertools import pairwise

import numpy as np
import pytest

import splinefm as sf
from splinefm.encode import inference
from splinefm.encode.inference import MANY_COLUMNS
from splinefm.fit import fitting
from splinefm.fit.fitting import MAX_FIELDS_IN_PAIRS, default_model
from splinefm.model.family.parameters import init_params, pace_of
from splinefm.tuning.trials import Experiment
from splinefm.tuning.tune import open_task


def wide_table(n_rows=600, n_columns=MAX_FIELDS_IN_PAIRS + 4):
    """Noise, and a target that follows the first two columns."""
    rng = np.random.default_rng(0)
    table = {f"x{i}": rng.normal(size=n_rows) for i in range(n_columns)}
    table["c"] = rng.choice(list("abc"), n_rows)
    table["y"] = (table["x0"] + table["x1"] + (table["c"] == "a") > 0.3).astype(int)
    return table


@pytest.fixture(scope="module")
def fitted():
    return sf.fit_model(wide_table(), "y", training=sf.Training(threads=1))


@pytest.fixture
def small_table(monkeypatch):
    """A table that is wide because few columns are many already."""
    monkeypatch.setattr(fitting, "MAX_FIELDS_IN_PAIRS", 20)
    return wide_table(40, 24)


@pytest.mark.thorough
def test_the_default_model_has_no_weights_for_pairs_of_very_many_fields(fitted):
    fields = [sf.Numerical(f"x{i}") for i in range(MAX_FIELDS_IN_PAIRS + 1)]
    assert default_model(sf.Schema(fields[1:])) == sf.FwFM(k=16, third=16)
    assert default_model(sf.Schema(fields)) == sf.FM(k=16)
    assert fitted.model == sf.FM(k=16)
    assert not any(values.size >= len(fitted.encoder.fields) ** 2 for values in fitted.params.values())


def test_a_model_that_is_given_is_taken(small_table):
    training = sf.Training(epochs=1, threads=1, refit_on_all=False)
    assert sf.fit_model(small_table, "y", model=sf.FwFM(k=16), training=training).model == sf.FwFM(k=16)


def test_the_progress_says_which_model_was_chosen_and_why(small_table, capsys):
    training = sf.Training(epochs=1, threads=1, refit_on_all=False)
    sf.fit_model(small_table, "y", training=training, verbose=True)
    assert "model: FM(k=16) instead of FwFM(k=16, third=16), which has a weight for each" in capsys.readouterr().err


def test_the_default_model_of_an_experiment_is_that_of_a_fit(small_table):
    schema = sf.infer_schema(small_table, target="y")
    estimator = sf.SplineFMClassifier(schema=schema, epochs=1, n_jobs=1)
    task, model = open_task(estimator, small_table, None, None, "y", None)
    assert model is None and Experiment(task, model, "loss").space.base.model == sf.FM(k=16)


@pytest.mark.thorough  # a fit of hundreds of columns
def test_the_defaults_learn_from_a_wide_table(fitted):
    """With steps of the usual size the first epoch ends at 0.74, beyond the 0.69 of a constant, and it gets worse."""
    losses = [epoch.validation_loss for epoch in fitted.history]
    assert min(losses) < 0.66 and losses[0] < 0.7


def test_steps_and_start_values_shrink_with_the_number_of_fields_beyond_fifty():
    assert pace_of(1) == pace_of(50) == 1.0
    paces = [pace_of(n) for n in range(50, 5000)]
    assert all(1.0 < earlier / later < 1.05 for earlier, later in pairwise(paces))
    assert sf.Training(learning_rate=0.01).for_fields(1000).learning_rate == pytest.approx(0.01 * pace_of(1000))

    def deviation(n_fields):
        table = {f"x{i}": np.arange(40.0) for i in range(n_fields)}
        encoder = sf.fit_encoder(sf.Schema([sf.Numerical(name) for name in table]), table)
        return init_params(sf.FM(k=4), encoder.layout, np.random.default_rng(0))["factors"].std()

    assert deviation(20) == pytest.approx(0.05, rel=0.05)
    assert deviation(200) == pytest.approx(0.05 * np.sqrt(pace_of(200)), rel=0.05)


def test_numbers_of_a_wide_table_have_one_resolution():
    def bases(n_rows, n_columns):
        schema = sf.infer_schema(wide_table(n_rows, n_columns - 1), target="y")
        return {item.basis for item in schema if isinstance(item, sf.Numerical)}

    assert bases(300, MANY_COLUMNS) == {sf.MultiResolution()}
    assert bases(300, MANY_COLUMNS + 1) == {sf.BSpline(segments=8)}
    assert bases(1500, MANY_COLUMNS + 1) == {sf.BSpline(segments=15)}
    assert bases(4000, MANY_COLUMNS + 1) == {sf.BSpline()}


def test_a_table_in_memory_is_converted_once():
    class Frame(dict):
        """A table in memory that counts how often it is opened."""

        opened = 0

        def values(self):
            Frame.opened += 1
            return super().values()

    training = sf.Training(epochs=1, threads=1)
    sf.fit_model(Frame(wide_table(40, 2)), "y", model=sf.FM(k=16), training=training)
    assert Frame.opened == 1


def test_text_without_digits_is_not_parsed_as_numbers_and_dates(monkeypatch):
    """Which takes more time than all the rest of a column; a table may have thousands of them."""
    monkeypatch.setattr(inference, "parse_numbers", None)
    monkeypatch.setattr(inference, "parse_times", None)
    schema = sf.infer_schema({"c": ["a", "b", None] * 20, "d": ["True", "False", "True"] * 20})
    assert schema.reasons == {"c": "text with 2 distinct values", "d": "booleans with 2 distinct values"}
