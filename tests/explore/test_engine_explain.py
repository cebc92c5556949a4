"""Shapley values, counterfactuals and rankings of the page in a real browser, and its worker."""

import json

import numpy as np
import pyarrow as pa
import pytest
from engine_rows import assert_equal, page_rows

import splinefm as sf
from splinefm.explore import payload as payload_explain
from splinefm.explore.payload import Items, make_payload
from support import (
    all_models,
    averages,
    cross_schema,
    cross_table,
    mixed_schema,
    mixed_table,
    one_of_each,
    random_classes,
    random_fitted,
    take_rows,
)

KINDS = ("category × category", "category × numbers", "number × number", "values")


@pytest.fixture
def few_rows(monkeypatch):
    """Measure importances on few rows: they are Python's own."""
    monkeypatch.setattr(payload_explain, "_n_measured", lambda fitted, crossed: 5)


def check_shapley(engine, fitted, table, rows, cls=0, one=None):
    payload = make_payload(fitted, table)
    engine.load(payload)
    found = engine.calls("shapley", [[row, cls] for row in page_rows(payload, rows)])
    numbers = payload.buffers.get("explain: background", np.arange(len(next(iter(table.values())))))
    expected = sf.shapley_values(one or fitted, rows, take_rows(table, numbers.tolist()))
    assert list(found[0]["values"]) == list(expected.fields)
    assert_equal([list(one["values"].values()) for one in found], expected.values, 1e-5)
    assert_equal([one["base"] for one in found], np.full(len(found), expected.base))


@pytest.mark.parametrize("model", [model for model in [*all_models(6), *averages()] if model.order < 4], ids=str)
def test_shapley_values_of_every_model(engine, few_rows, model):
    fitted = random_fitted(model, mixed_schema(), mixed_table(100))
    check_shapley(engine, fitted, mixed_table(100), mixed_table(50, 5))


@pytest.mark.parametrize("model", [model for model in [*one_of_each(11), *averages()] if model.order < 4], ids=str)
def test_shapley_values_with_crosses(engine, few_rows, monkeypatch, model):
    monkeypatch.setattr(payload_explain, "BACKGROUND_ROWS", 20)
    fitted = random_fitted(model, cross_schema(*KINDS), cross_table(100))
    check_shapley(engine, fitted, cross_table(100), cross_table(10, 5, strange=True))


def test_shapley_values_of_each_class(engine, few_rows):
    fitted = random_classes(sf.FwFM(k=4), mixed_schema(), mixed_table(100))
    for cls, label in enumerate(fitted.classes):
        check_shapley(engine, fitted, mixed_table(100), mixed_table(20, 5), cls, fitted.for_class(label))


def test_products_of_four_fields_have_no_shapley_values(engine):
    fitted = random_fitted(sf.HigherOrderFM(k=3, order=4), mixed_schema(), mixed_table(100))
    payload = make_payload(fitted, mixed_table(100))
    engine.load(payload)
    assert engine.call("importance") is None
    with pytest.raises(Exception, match="products of more than three fields"):
        engine.call("shapley", page_rows(payload, mixed_table(1))[0])


def test_importances_are_those_of_python(engine):
    table = cross_table(100)
    fitted = random_fitted(sf.FwFM(k=4), cross_schema(KINDS[0]), table)
    engine.load(make_payload(fitted, table))
    found = engine.call("importance")
    expected = sf.importance(fitted, table, table)
    assert_equal([one["shapley"] for one in found["fields"]], expected.shapley)
    assert [tuple(one["names"]) for one in found["pairs"]] == [pair[:2] for pair in expected.ranked_pairs()]
    assert found["crosses"][0]["value"] == pytest.approx(expected.pairs[1, 3])


# Counterfactuals


def smallest_change(fitted, row, name, wanted):
    """The smallest move in u of a numerical column that reaches a prediction, on a fine grid."""
    field = fitted.encoder.fields[fitted.encoder.schema.names.index(name)]
    curve = fitted.segment({other: value for other, value in row.items() if other != name}, along=name, watch=False)
    u = np.linspace(0.0, 1.0, 20_001)
    predicted = curve(field.transform.inverse(u), link=True)
    current = float(fitted.predict({other: [value] for other, value in row.items()})[0])
    reached = u[(predicted - wanted) * np.sign(wanted - current) >= 0.0]
    return np.abs(reached - field.transform(np.array([row[name]]))).min() if len(reached) else None


@pytest.mark.parametrize("kinds", [(), ("number × number",)], ids=["fields", "crosses"])
def test_counterfactuals_of_one_column_are_the_smallest(engine, kinds):
    table = cross_table(200)
    fitted = random_fitted(sf.FwFM(k=4), cross_schema(*kinds), table)
    payload = make_payload(fitted, table, explain=False)
    engine.load(payload)
    n_found = 0
    for row in [row for row in page_rows(payload, table) if row["z"] is not None][:6]:
        current = fitted.predict({name: [value] for name, value in row.items()})[0]
        wanted = 0.95 * current if current > 0.5 else 1.1 * current
        found = engine.call("counterfactual", row, wanted, ["z", "hour"])
        single = {name: one for one in found for name in one["changes"] if len(one["changes"]) == 1}
        for name in ("z", "hour"):
            expected = smallest_change(fitted, row, name, wanted)
            assert (name in single) == (expected is not None)
            if expected is not None:
                assert single[name]["cost"] == pytest.approx(expected, abs=1e-4)
                n_found += 1
        for one in found:
            check_reached(fitted, row, one, wanted, current)
    assert n_found > 3


def check_reached(fitted, row, found, wanted, current):
    changed = {name: [found["changes"].get(name, value)] for name, value in row.items()}
    predicted = fitted.predict(changed)[0]
    assert predicted == pytest.approx(found["prediction"], rel=1e-4)
    assert (predicted - wanted) * np.sign(wanted - current) >= -1e-4


def test_counterfactuals_of_two_columns_and_of_categories(engine):
    table = cross_table(200)
    fitted = random_fitted(sf.FwFM(k=4), cross_schema(), table)
    payload = make_payload(fitted, table, explain=False)
    engine.load(payload)
    sizes = set()
    for row in page_rows(payload, take_rows(table, range(10))):
        current = fitted.predict({name: [value] for name, value in row.items()})[0]
        for wanted in (0.05, 0.3, 0.7, 0.95):
            for found in engine.call("counterfactual", row, wanted, ["x", "z", "hour", "kind"]):
                check_reached(fitted, row, found, wanted, current)
                sizes.add((len(found["changes"]), "kind" in found["changes"]))
    assert {(1, False), (1, True), (2, False)} <= sizes


def test_counterfactuals_of_a_class(engine):
    table = mixed_table(200, names=("x", "kind", "user"))
    fitted = random_classes(sf.FwFM(k=4), mixed_schema(("x", "kind", "user")), table)
    payload = make_payload(fitted, table, explain=False)
    engine.load(payload)
    row = next(row for row in page_rows(payload, table) if row["x"] is not None and row["x"] > 0)
    current = fitted.predict({name: [value] for name, value in row.items()})[0, 1]
    wanted = current + 0.02
    found = engine.call("counterfactual", row, wanted, None, 1)
    assert found
    for one in found:
        changed = {name: [one["changes"].get(name, value)] for name, value in row.items()}
        assert fitted.predict(changed)[0, 1] >= wanted - 1e-4
    assert engine.call("counterfactual", row, current, None, 1) == []


# Rankings


@pytest.mark.parametrize("kinds", [(), ("category × category", "number × number")], ids=["fields", "crosses"])
@pytest.mark.parametrize("model", [sf.FwFM(k=4), sf.FwFM(k=3, third=2), sf.FFM(k=2)], ids=str)
def test_rankings(engine, model, kinds):
    table = cross_table(100)
    fitted = random_fitted(model, cross_schema(*kinds), table)
    items = pa.table({name: cross_table(40, 9, strange=True)[name] for name in ("user", "z")})
    ids = [f"item {i}" for i in range(40)]
    payload = make_payload(fitted, table, items=Items(items, ids), explain=False)
    engine.load(payload)
    for i, row in enumerate(page_rows(payload, take_rows(table, range(3)))):
        found = engine.call("rank", row, 40)
        context = take_rows(table, [i] * 40)
        scores = fitted.scores(context | {name: items.column(name).to_pylist() for name in ("user", "z")})
        assert_equal([one["score"] for one in found], np.sort(scores)[::-1])
        assert_equal([scores[ids.index(one["id"])] for one in found], [one["score"] for one in found])


# The worker


def test_the_worker_answers_in_the_order_of_requests(engine):
    table = mixed_table(100)
    fitted = random_fitted(sf.FwFM(k=4), mixed_schema(), table)
    payload = make_payload(fitted, table, explain=False)
    rows = page_rows(payload, take_rows(table, range(3)))
    answers = engine.run(
        """([text, rows]) => new Promise((resolve, reject) => {
            const worker = new Worker("worker.js", { type: "module" });
            const answers = [];
            worker.onerror = reject;
            worker.onmessage = ({ data }) => {
                answers.push(data);
                if (data.id === rows.length + 3) { worker.terminate(); resolve(JSON.stringify(answers, plain)); }
            };
            worker.postMessage({ id: 0, method: "score", args: [rows[0]] });
            worker.postMessage({ id: 1, method: "load", args: [text] });
            rows.forEach((row, i) => worker.postMessage({ id: i + 2, method: "score", args: [row] }));
            worker.postMessage({ id: rows.length + 2, method: "constructor", args: [] });
            worker.postMessage({ id: rows.length + 3, method: "curves", args: [rows[0], 20] });
        })""",
        payload.to_json(),
        rows,
    )
    answers = json.loads(answers)
    assert [answer["id"] for answer in answers] == [0, 1, 2, 3, 4, 5, 6]
    assert "not loaded" in answers[0]["error"]
    assert "no method" in answers[5]["error"]
    assert_equal([answer["result"][0] for answer in answers[2:5]], fitted.scores(take_rows(table, range(3))))
    assert set(answers[6]["result"]) == {"x", "z"}
