"""Remarks on a fit: each appears where it should, and only there, and survives the model file."""

import json
from dataclasses import replace

import numpy as np
import pytest

import splinefm as sf
from splinefm.train.results import MIN_HELD_OUT, Evidence, Remark, RemarkKind, find_remarks

NO_GAIN, LEAK, OVERFIT = RemarkKind


def columns(n, seed=0):
    x = np.random.default_rng(seed).random((n, 4))
    return {f"x{i}": x[:, i] for i in range(4)}


def effect(table):
    return np.sin(6 * table["x0"]) + 2 * table["x1"] * table["x2"]


def fit(table, y, loss="squared", **settings):
    training = sf.Training(**{"threads": 1, "epochs": 20, "effort": "fast", **settings})
    return sf.fit_model({**table, "y": y}, "y", loss=loss, model=sf.FwFM(k=4), training=training)


def kinds(fitted):
    return [remark.kind for remark in fitted.remarks]


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(1).normal(size=1500)


@pytest.fixture(scope="module")
def leaked(noise):
    table = columns(1500)
    y = effect(table) + 0.3 * noise
    return fit({**table, "paid": 2 * y + 1}, y)


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson", "quantile"])
def test_a_target_that_nothing_explains(loss, noise):
    rng = np.random.default_rng(2)
    y = {"logistic": rng.integers(0, 2, 1500), "poisson": rng.poisson(1.5, 1500)}.get(loss, noise)
    assert NO_GAIN in kinds(fit(columns(1500), y, loss))


def test_classes_that_nothing_explains():
    y = np.random.default_rng(2).choice(["red", "green", "blue"], 1500)
    assert NO_GAIN in kinds(fit(columns(1500), y, "softmax"))


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson", "quantile"])
def test_no_remark_on_a_usual_fit(loss, noise):
    table = columns(1500)
    s = effect(table)
    rng = np.random.default_rng(3)
    y = {"logistic": (s > 0.8 + 0.5 * noise).astype(int), "poisson": rng.poisson(np.exp(s))}.get(loss, s + 0.3 * noise)
    assert not fit(table, y, loss).remarks


def test_little_gain_on_many_rows_is_no_remark():
    """Most clicks are chance: a gain of half a percent may be all there is, and far beyond noise."""
    evidence = Evidence(100_000, 0.099, 0.0995, 1e-3, 0.1, 1e-4)
    assert not find_remarks(evidence, sf.Training())
    assert [remark.kind for remark in find_remarks(replace(evidence, gain_error=3e-4), sf.Training())] == [NO_GAIN]


def test_a_column_that_knows_the_target_is_named(leaked):
    (remark,) = leaked.remarks
    assert (remark.kind, remark.columns) == (LEAK, ("paid",)) and remark.share > 0.95
    assert "'paid' alone explains 97." in str(remark) and "leave the column out" in str(remark)


def test_a_class_that_a_column_knows(noise):
    table = columns(1500)
    y = (effect(table) > 0.8 + 0.5 * noise).astype(int)
    (remark,) = fit({**table, "refund": np.where(y == 1, 1.0 + table["x3"], 0.0)}, y, "logistic").remarks
    assert (remark.kind, remark.columns) == (LEAK, ("refund",))


@pytest.mark.parametrize("target", [effect, lambda table: sum(table.values())], ids=["two columns", "all columns"])
def test_a_target_without_noise_is_no_leak_if_it_takes_several_columns(target):
    table = columns(1500)
    fitted = fit(table, target(table))
    assert fitted.evidence.share > 0.99 and fitted.evidence.column
    assert LEAK not in kinds(fitted)


def test_the_only_column_is_no_leak():
    x = np.linspace(0, 1, 800)
    assert not fit({"x": x}, np.sin(6 * x)).remarks


def names_and_noise(n, per_name, seed=0):
    rng = np.random.default_rng(seed)
    of_name, name = rng.normal(size=n // per_name), rng.integers(0, n // per_name, n)
    return {"name": name.astype(str), "other": rng.integers(0, n // per_name, n).astype(str)}, (
        of_name[name] + 0.5 * rng.normal(size=n)
    )


def test_rows_that_are_learned_by_heart():
    fitted = fit(*names_and_noise(1000, 4))
    remark = fitted.remarks[-1]
    assert remark.kind is OVERFIT and remark.training_share > remark.share
    assert "larger l2 (such as l2=0.003)" in str(remark)  # ten times the penalty of 1000 rows
    assert fitted.training.l2 == pytest.approx(3e-4)


def test_names_with_many_rows_are_not_learned_by_heart():
    assert OVERFIT not in kinds(fit(*names_and_noise(4000, 100)))


def test_a_gap_within_noise_is_no_overfitting():
    evidence = Evidence(200, 0.1, 0.3, 0.05, 0.5, 0.05)
    assert [remark.kind for remark in find_remarks(evidence, sf.Training())] == [OVERFIT]
    assert not find_remarks(replace(evidence, error=0.1), sf.Training())


def test_few_held_out_rows_say_nothing():
    evidence = Evidence(MIN_HELD_OUT, 0.1, 0.5, 0.01, 0.5, 0.01)
    assert find_remarks(evidence, sf.Training()) and not find_remarks(
        replace(evidence, rows=MIN_HELD_OUT - 1), sf.Training()
    )


def test_a_fit_without_held_out_rows_has_no_remarks(noise):
    training = sf.Training(threads=1, epochs=2)
    fitted = sf.fit_model({**columns(1500), "y": noise}, "y", loss="squared", validation=0, training=training)
    assert fitted.evidence is None and not fitted.remarks


def test_remarks_survive_the_file_and_an_update(leaked, tmp_path):
    leaked.save(tmp_path / "m.sfm")
    again = sf.load(tmp_path / "m.sfm")
    assert again.evidence == leaked.evidence and again.remarks == leaked.remarks
    assert sf.Learner(again).fitted().remarks == leaked.remarks


def test_the_evidence_is_that_of_the_best_epoch(leaked):
    best = min(leaked.history, key=lambda epoch: epoch.validation_loss)
    assert leaked.evidence.loss == best.validation_loss and leaked.evidence.training_loss == best.train_loss


def test_the_number_of_threads_does_not_matter(leaked, noise):
    table = columns(1500)
    y = effect(table) + 0.3 * noise
    assert fit({**table, "paid": 2 * y + 1}, y, threads=2).evidence == leaked.evidence


@pytest.mark.parametrize("kind", RemarkKind)
def test_every_kind_has_words(kind):
    assert len(str(Remark(kind, ("a",)))) > 40


def provenance(name, values):
    return sf.infer_schema({name: values, "y": np.zeros(len(values))}, target="y").provenance[name]


CODES = np.random.default_rng(0).integers(0, 5000, 20_000)
LARGE = 1_000_000 + 37 * CODES


@pytest.mark.parametrize("values", [CODES, LARGE], ids=["dense", "large"])
@pytest.mark.parametrize("name", ["user", "customer_no", "ItemNr", "session_key", "uid", "device_number", "user_id"])
def test_integers_that_may_be_names_are_asked_about(name, values):
    values = values if name != "user_id" else np.random.default_rng(0).integers(0, 10_000, 20_000) * 7 + 10_000
    known = provenance(name, values)
    assert known.question
    assert str(known).endswith(f"if these are names rather than a quantity, use sf.Categorical({name!r})")
    assert isinstance(sf.infer_schema({name: values})[name], sf.Numerical)


@pytest.mark.parametrize("name", ["year", "age", "item_count", "n_user", "price", "amount", "items", "user_age", "x"])
def test_quantities_are_not_asked_about(name):
    assert not provenance(name, CODES).question


@pytest.mark.parametrize(
    "values",
    [CODES + 0.5, CODES - 9, CODES[:3000] % 100, np.unique(CODES)[:900] * 11],
    ids=["halves", "below 0", "few", "once"],
)
def test_values_that_are_no_names_are_not_asked_about(values):
    assert not provenance("user", values).question


def test_a_question_stays_one_in_what_is_made_of_a_schema():
    schema = sf.infer_schema({"user": CODES, "x": CODES / 7, "y": CODES}, target="y").without("x")
    assert schema.provenance["user"].question
    assert json.loads(json.dumps(schema.to_dict()))["field"][0]["reason"] == schema.reasons["user"]
