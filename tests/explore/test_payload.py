"""What a page gets: JSON that HTML can hold, arrays that it names, and large models without their rarest categories."""

import json

import numpy as np
import pyarrow as pa
import pytest

import splinefm as sf
from splinefm.explore import payload as payload_explain
from splinefm.explore.arrays import Buffers
from splinefm.explore.payload import Items, make_payload
from support import (
    CROSSES,
    cross_schema,
    cross_table,
    mixed_schema,
    mixed_table,
    random_fitted,
    visits_schema,
    visits_table,
)


def strings(value):
    """All texts of a JSON value."""
    if isinstance(value, dict):
        return [text for part in value.values() for text in strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Measure importances on few rows."""
    monkeypatch.setattr(payload_explain, "_n_measured", lambda fitted, crossed: 5)
    monkeypatch.setattr(payload_explain, "BACKGROUND_ROWS", 10)


def test_every_array_has_a_name_in_the_json_and_all_numbers_are_finite():
    table = cross_table(100)
    fitted = random_fitted(sf.FwFM(k=3, third=2), cross_schema(*list(CROSSES)[:4]), table)
    payload = make_payload(fitted, table)
    text = payload.to_json()
    named = set(strings(payload.data))
    assert set(payload.buffers) <= named
    assert json.loads(text)["payload"] == json.loads(json.dumps(payload.data, allow_nan=False))
    assert {str(values.dtype) for values in payload.buffers.values()} <= {"float32", "float64", "int32"}
    assert all(values.ndim == 1 for values in payload.buffers.values())


def test_names_cannot_end_a_script():
    hostile = "</script><script>alert(1)</script>"
    table = {hostile: [hostile, "<!--", "\u2028", "é"] * 10, "x": list(range(40))}
    schema = sf.Schema([sf.Categorical(hostile), sf.Numerical("x", sf.MinMax())])
    text = make_payload(random_fitted(sf.FM(k=2), schema, table), table).to_json()
    assert "<" not in text
    assert "\u2028" not in text
    assert hostile in json.loads(text)["payload"]["columns"][0]["categories"]


def test_infinite_special_values_and_edges_are_kept():
    table = {"x": [0.0, 1.0, np.inf, 2.0] * 10, "c": ["a", "b"] * 20}
    schema = sf.Schema([sf.Numerical("x", sf.MinMax(), sf.Bins(3), special=[np.inf]), sf.Categorical("c")])
    payload = make_payload(random_fitted(sf.FM(k=2), schema, table), table)
    assert payload.data["fields"][0]["rules"] == [["==", "Infinity"]]
    assert np.isinf(payload.buffers["field 0: window 0: edges"]).sum() == 2


def test_columns_say_how_the_data_are_spread():
    rng = np.random.default_rng(0)
    table = visits_table(rng)
    table["recency"][:7] = np.nan
    fitted = random_fitted(sf.FwFM(k=4), visits_schema(sf.BSpline(5)), table)
    payload = make_payload(fitted, table)
    recency, _, country, tags, _ = payload.data["columns"]
    assert sum(recency["token_rows"]) == 7
    assert recency["low"] == pytest.approx(np.nanmin(table["recency"]))
    assert recency["high"] == pytest.approx(np.nanmax(table["recency"]))
    assert len(recency["knots"]) == 6
    assert len(recency["starvation"]) == recency["basis"]["functions"] == 8
    assert sum(country["counts"]) == 300
    assert country["categories"] == ["US", "FR", "DE"]
    assert (tags["kind"], tags["length"]) == ("multivalued", 2)


def test_targets_are_numbers_of_classes():
    table = mixed_table(50) | {"color": ["red", "blue"] * 25, "weight": [1.0, 2.0] * 25}
    fitted = random_fitted(sf.FwFM(k=4), mixed_schema(), table, loss=sf.Loss("logistic", classes=("blue", "red")))
    payload = make_payload(fitted, table, target="color", weight="weight")
    assert payload.buffers["rows: target"].tolist() == [1.0, 0.0] * 25
    assert payload.buffers["rows: weight"].tolist() == [1.0, 2.0] * 25
    assert payload.data["loss"]["classes"] == ["blue", "red"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "nothing"}, "no column 'nothing'"),
        ({"target": "x"}, "the target 'x' is a field"),
        ({"max_parameters": 0}, "max_parameters"),
        ({"items": Items(pa.table({"other": [1]}), ["a"])}, "the items have no columns"),
        ({"items": Items(pa.table({"user": ["1"]}), [])}, "0 ids for 1 items"),
        ({"items": Items(pa.table({"user": pa.array([], pa.string())}), [])}, "1 to 20,000 items"),
    ],
)
def test_bad_arguments(options, message):
    table = mixed_table(50)
    with pytest.raises(ValueError, match=message):
        make_payload(random_fitted(sf.FwFM(k=4), mixed_schema(), table), table, **options)


def test_a_table_without_rows_or_columns_is_refused():
    table = mixed_table(50)
    fitted = random_fitted(sf.FwFM(k=4), mixed_schema(), table)
    with pytest.raises(ValueError, match="no rows"):
        make_payload(fitted, pa.table(table).slice(0, 0))
    with pytest.raises(ValueError, match="'user'"):
        make_payload(fitted, {name: values for name, values in table.items() if name != "user"})


def test_transforms_that_only_python_has_are_refused():
    table = {"x": [0.0, 1.0, 2.0], "c": ["a", "b", "a"]}
    custom = sf.CustomTransform(lambda x: x / 2, lambda u: 2 * u)
    fitted = random_fitted(sf.FM(k=2), sf.Schema([sf.Numerical("x", custom), sf.Categorical("c")]), table)
    with pytest.raises(ValueError, match=r"'x'.*sf\.discretize"):
        make_payload(fitted, table)


def large_table(n=2000):
    rng = np.random.default_rng(0)
    return {
        "user": [f"u{i}" for i in rng.geometric(0.01, n)],
        "item": [f"i{i}" for i in rng.geometric(0.02, n)],
        "tags": [[f"t{i}" for i in rng.geometric(0.05, 2)] for _ in range(n)],
        "x": rng.random(n).tolist(),
    }


LARGE = sf.Schema(
    [
        sf.Categorical("user"),
        sf.Categorical("item", unseen="hash", buckets=4),
        sf.MultiValued("tags"),
        sf.Numerical("x", sf.MinMax()),
        sf.Cross("user", "item", min_count=2),
        sf.Cross("item", "x", min_count=1),
    ]
)


def test_a_large_model_keeps_what_its_rows_have_and_the_frequent_rest():
    table = large_table()
    fitted = random_fitted(sf.FwFM(k=4), LARGE, table)
    rows = {name: values[:20] for name, values in table.items()}
    payload = make_payload(fitted, rows, max_parameters=4000, explain=False)
    features = payload.data["model"]["features"]
    assert features <= 900 < fitted.encoder.layout.n_features
    assert len(payload.buffers["factors"]) == 4 * features
    kept, total = payload.data["cut"]["user"]
    assert kept < total == len(fitted.encoder.fields[0].vocabulary)
    user = payload.data["columns"][0]
    assert set(rows["user"]) <= set(user["categories"])
    assert min(user["counts"]) >= 1
    counts = dict(zip(user["categories"], user["counts"], strict=True))
    others = [count for name, count in counts.items() if name not in rows["user"]]
    left_out = set(fitted.encoder.fields[0].vocabulary.names.to_pylist()) - set(counts)
    every = dict(zip(fitted.encoder.fields[0].feature_names(), fitted.encoder.feature_counts[0], strict=True))
    assert min(others) >= max(every[f"= {name}"] for name in left_out)


def test_the_page_scores_rows_of_a_cut_model_as_python_does(engine):
    table = large_table()
    fitted = random_fitted(sf.FwFM(k=4), LARGE, table)
    rows = {name: values[:200] for name, values in table.items()}
    payload = make_payload(fitted, rows, max_parameters=6000, explain=False)
    assert payload.data["cut"]
    engine.load(payload)
    np.testing.assert_allclose(engine.call("scores"), fitted.scores(rows), rtol=1e-5, atol=1e-5)
    known = engine.call("row", 0)
    assert engine.call("unknown", known) == []
    assert engine.call("unknown", known | {"user": "nobody"}) == ["user"]


def test_a_small_model_is_not_cut():
    payload = make_payload(random_fitted(sf.FwFM(k=4), mixed_schema(), mixed_table(50)), mixed_table(50))
    assert payload.data["cut"] == {}


def test_products_of_three_of_very_many_fields_are_not_explained(monkeypatch):
    monkeypatch.setattr(payload_explain, "_MAX_MOMENTS", 6**2 * 2 - 1)
    fitted = random_fitted(sf.FwFM(k=3, third=2), mixed_schema(), mixed_table(50))
    assert "6 fields" in make_payload(fitted, mixed_table(50)).data["explain"]["reason"]


def test_two_arrays_of_one_name_are_an_error():
    buffers = Buffers()
    buffers.add("knots", [0.0], np.float64)
    with pytest.raises(ValueError, match="'knots'"):
        buffers.add("knots", [0.0], np.float64)
