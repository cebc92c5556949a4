"""The scores of the page in a real browser equal Python's."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from engine_rows import assert_equal, page_rows

import splinefm as sf
from splinefm.encode.fields.vocabulary import hash_bucket
from splinefm.encode.tables.arrow import from_strings
from splinefm.encode.tables.dates import PARTS, parse_times, take_part, to_seconds
from splinefm.encode.tables.spelling import canonical, float_names
from splinefm.explore.payload import make_payload
from support import (
    CROSSES,
    THOROUGH,
    all_models,
    averages,
    cross_schema,
    cross_table,
    mixed_schema,
    mixed_table,
    random_classes,
    random_fitted,
    shop_schema,
    shop_table,
    visits_schema,
    visits_table,
)

TRANSFORMS = [sf.MinMax(), sf.Quantile(), sf.BestFitCDF(), sf.ArcsinhSquare(), sf.Log()]
BASES = [
    sf.BSpline(7, 3),
    sf.BSpline(5, 1),
    sf.BSpline(4, 0),
    sf.BSpline(knots=(0.0, 0.1, 0.5, 1.0), degree=2),
    sf.BSpline(6, 3, periodic=True),
    sf.MultiResolution((2, 8), 2),
    sf.Bins(6),
    sf.Polynomial(4),
    sf.Fourier(3),
]


def check_scores(engine, fitted, table, rows):
    """Scores, one by one and in columns, and predictions equal Python's."""
    payload = make_payload(fitted, table, explain=False)
    engine.load(payload)
    given = page_rows(payload, rows)
    n = len(given)
    expected = np.asarray(fitted.scores(rows), np.float64).reshape(n, -1)
    assert_equal(np.reshape(engine.call("scores", given), expected.shape), expected)
    assert_equal(engine.calls("score", [[row] for row in given[:50]]), expected[:50])
    predicted = np.reshape(engine.call("predictions", given[:200]), expected[:200].shape)
    assert_equal(predicted, fitted.predict(rows).reshape(n, -1)[:200], 1e-4 if fitted.loss.link == "log" else 1e-5)
    own = np.asarray(fitted.scores(table), np.float64).ravel()
    assert_equal(engine.call("scores"), own)


@pytest.mark.parametrize("model", [*all_models(6), *averages()], ids=str)
def test_every_model_scores_lists_tokens_and_both_reductions(engine, model):
    fitted = random_fitted(model, mixed_schema(), mixed_table(300))
    check_scores(engine, fitted, mixed_table(300), mixed_table(2000, 5))


@pytest.mark.parametrize("reduction", ["sum", "identity"])
@pytest.mark.parametrize("model", all_models(5), ids=str)
def test_every_model_scores_unseen_categories_and_periodic_splines(engine, model, reduction):
    fitted = random_fitted(model, shop_schema(reduction), shop_table(300, 0))
    check_scores(engine, fitted, shop_table(300, 0), shop_table(500, 1))


@pytest.mark.parametrize("model", [*all_models(7 + len(CROSSES)), *averages()], ids=str)
def test_every_model_scores_crosses(engine, model):
    fitted = random_fitted(model, cross_schema(*CROSSES), cross_table(300))
    check_scores(engine, fitted, cross_table(300), cross_table(500, 5, strange=True))


@pytest.mark.parametrize(
    ("transform", "basis"),
    [
        pytest.param(transform, basis, id=f"{type(transform).__name__}-{basis}")
        for i, transform in enumerate(TRANSFORMS)
        for j, basis in enumerate(BASES)
        if THOROUGH or i == 1 or j % len(TRANSFORMS) == i
    ],
)
def test_every_transform_and_basis_with_values_that_training_did_not_meet(engine, transform, basis):
    rng = np.random.default_rng(0)
    table = visits_table(rng)
    fitted = random_fitted(sf.FwFM(k=4), visits_schema(basis, transform), table)
    check_scores(engine, fitted, table, visits_table(rng, 1000, hostile=True))


@pytest.mark.parametrize("model", [sf.FwFM(k=4), sf.FFM(k=2), sf.FwFM(k=3, third=2)], ids=str)
def test_several_classes(engine, model):
    fitted = random_classes(model, mixed_schema(), mixed_table(300))
    check_scores(engine, fitted, mixed_table(300), mixed_table(500, 5))


def test_probabilities_of_very_large_scores(engine):
    fitted = random_classes(sf.FM(k=2), mixed_schema(), mixed_table(50))
    far = np.array([[1000.0], [-1000.0], [800.0]], np.float32)
    fitted = dataclasses.replace(fitted, params=fitted.params | {"bias": far})
    check_scores(engine, fitted, mixed_table(50), mixed_table(50, 5))


def test_combinations_that_a_cross_does_not_keep(engine):
    """A combination beyond those that are kept must not be taken for another one."""
    table = {"a": ["u", "u", "v", "v", "w", "x"] * 10, "b": ["1", "1", None, None, "2", "3"] * 10}
    schema = sf.Schema([sf.Categorical("a"), sf.Categorical("b"), sf.Cross("a", "b", min_count=15)])
    fitted = random_fitted(sf.FwFM(k=3), schema, table)
    assert len(fitted.encoder.fields[2].cells) == 2
    rows = {"a": [a for a in "uvwxy" for _ in range(5)], "b": ["1", "2", "3", "4", None] * 5}
    check_scores(engine, fitted, table, rows)


@pytest.mark.parametrize("name", ["logistic", "squared", "poisson", "gamma", "tweedie", "quantile", "huber"])
def test_links_of_all_losses(engine, name):
    scaled = {} if name in ("logistic", "poisson") else {"scale": 2.5}
    loss = sf.Loss(name, center=0.0 if name in ("logistic", "poisson", "gamma", "tweedie") else -3.0, **scaled)
    fitted = random_fitted(sf.FwFM(k=4), mixed_schema(), mixed_table(300), loss=loss)
    check_scores(engine, fitted, mixed_table(300), mixed_table(300, 5))


def test_dates_are_read_by_their_parts(engine):
    rng = np.random.default_rng(0)
    seconds = rng.integers(1_600_000_000, 1_700_000_000, 400)
    table = {"seen_at": pa.array(seconds, pa.timestamp("s")), "c": rng.choice(["a", "b"], 400).tolist()}
    schema = sf.Schema([sf.Timestamp("seen_at"), sf.Categorical("c"), sf.Cross("seen_at.hour", "c", min_count=1)])
    fitted = random_fitted(sf.FwFM(k=4), schema, pa.table(table))
    payload = make_payload(fitted, pa.table(table), explain=False)
    engine.load(payload)
    assert [column["name"] for column in payload.data["columns"]][:2] == ["seen_at.trend", "seen_at.hour"]
    assert_equal(engine.call("scores"), fitted.scores(pa.table(table)))


def test_parts_of_dates(engine):
    rng = np.random.default_rng(0)
    seconds = rng.uniform(-4e9, 4e9, 300).round(3)
    for part in PARTS:
        got = engine.run("([s, part]) => s.map(one => engine.datePart(one, part))", seconds.tolist(), part)
        assert_equal(got, take_part(seconds, part), 1e-12)
    text = ["2024-05-28", "2024-05-28T13:30", " 2024-05-28 13:30:00.25 ", "2024-02-29T23:59Z", "2023-01-01 02:00+02:00"]
    text += ["1969-12-31 23:00:00 -05", "0099-03-01"]
    expected = to_seconds(parse_times(from_strings(text))[0])
    assert_equal(engine.run("([text]) => text.map(engine.secondsOf)", text), expected, 1e-12)
    for wrong in ("soon", "2024-13-01", "28.05.2024"):
        with pytest.raises(Exception, match="is not a date"):
            engine.run("([text]) => engine.secondsOf(text)", wrong)


def test_rows_of_the_table_become_rows_of_the_model(engine):
    columns = [
        {"name": "seen.hour", "column": "seen", "part": "hour"},
        {"name": "seen.weekday", "column": "seen", "part": "weekday"},
        {"name": "x", "column": "x"},
        {"name": "level", "column": "x"},
    ]
    given = {"seen": "2024-05-28T13:30", "x": 3, "level": "own", "other": 1}
    found = engine.run("([columns, given]) => engine.rowOfTable(columns, given)", columns, given)
    assert found == {"row": {"seen.hour": 13.5, "seen.weekday": 1, "x": 3, "level": "own"}, "unknown": ["other"]}
    found = engine.run("([columns, given]) => engine.rowOfTable(columns, given)", columns, {"seen": None, "x": 1})
    assert found["row"] == {"seen.hour": None, "seen.weekday": None, "x": 1, "level": 1}


def test_two_fields_of_one_column_and_of_different_kinds(engine):
    rng = np.random.default_rng(0)
    table = {"x": rng.integers(0, 6, 300).astype(float).tolist(), "c": rng.choice(["a", "b"], 300).tolist()}
    schema = sf.Schema(
        [
            sf.Numerical("x"),
            sf.Categorical("level", column="x"),
            sf.Categorical("c"),
            sf.Cross("c", sf.Categorical("floor", column="x"), min_count=1),
        ]
    )
    fitted = random_fitted(sf.FwFM(k=4), schema, table)
    payload = make_payload(fitted, table, explain=False)
    engine.load(payload)
    expected = fitted.scores(table)
    assert_equal(engine.call("scores"), expected)
    assert_equal(engine.call("scores", page_rows(payload, table)), expected)


DATES = ["2024-01-01T00:00", "2024-01-01 12:30:00.500000", "2024-01-01", " 2024-05-28T13:30Z", "2023-12-31 22:00-05:00"]
SPELLED = [
    "2.0",
    "+2",
    " 2.50 ",
    "1e3",
    "x",
    "TRUE",
    "False ",
    "-0",
    "007",
    ".5",
    "1e-7",
    "12345678901.5",
    "1.",
    "-3.0",
]


@pytest.mark.parametrize("spelling", ["text", "numbers", "booleans", "dates"])
def test_names_in_any_spelling(engine, spelling):
    names = [*SPELLED, *DATES, "2024-01-01 00:00:00.100", "2024-01-01 10:20:00", "soon"]
    names = [name for name in names if not name.endswith(".500000")] if spelling == "dates" else names
    got = engine.run("([names, spelling]) => names.map(name => engine.canonicalName(name, spelling))", names, spelling)
    assert got == canonical(from_strings(names), spelling).to_pylist()


def test_numbers_as_names(engine):
    rng = np.random.default_rng(0)
    x = np.concatenate([10.0 ** rng.uniform(-12, 20, 300) * rng.choice([-1, 1], 300), np.arange(-5.0, 5.0, 0.25)])
    got = engine.run("([numbers]) => numbers.map(engine.numberName)", x.tolist())
    assert got == float_names(pa.array(x)).to_pylist()


def test_buckets_of_names(engine):
    names = ["", "a", "straße", "名前", "x" * 127, "x" * 128, "x" * 129, "é" * 200]
    for buckets in (3, 64, 1_000_003):
        got = engine.run("([names, n]) => names.map(name => engine.hashBucket(name, n))", names, buckets)
        assert got == [hash_bucket(name, buckets) for name in names]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (sf.Numerical("x", sf.MinMax(), missing="error"), None, "x: missing values"),
        (sf.Numerical("x", sf.MinMax()), "many", 'x: "many" is not a number'),
        (sf.Categorical("x", unseen="error"), "new", 'x: "new" is not a category'),
        (sf.Categorical("x", missing="error"), None, "x: missing values"),
        (sf.Numerical("x", outside="error"), 3.5, "x: 3.5 is beyond the range in training, 1 to 3"),
    ],
)
def test_values_that_a_field_refuses_name_the_column(engine, field, value, message):
    table = {"x": [1.0, 2.0, 3.0] if isinstance(field, sf.Numerical) else ["a", "b", "a"], "c": ["u", "v", "u"]}
    fitted = random_fitted(sf.FM(k=2), sf.Schema([field, sf.Categorical("c")]), table)
    engine.load(make_payload(fitted, table, explain=False))
    with pytest.raises(Exception, match=message):
        engine.call("score", {"x": value, "c": "u"})


def test_values_out_of_range_are_missing(engine):
    table = {"x": [1.0, 2.0, 3.0, None], "c": ["u", "v", "u", "v"]}
    schema = sf.Schema([sf.Numerical("x", outside="missing", special=[9.0]), sf.Categorical("c"), sf.Cross("x", "c")])
    fitted = random_fitted(sf.FM(k=2), schema, table)
    check_scores(engine, fitted, table, {"x": [0.5, 1.0, 3.0, 3.5, 9.0, None], "c": ["u"] * 6})


def test_large_integers_of_json_name_their_own_category(engine):
    """A number of JavaScript does not hold their digits."""
    names = [2**53 + 1, 2**53 + 2, 2**62 + 1, 7]
    table = pa.table({"user": names * 20, "x": np.linspace(0.0, 1.0, 80)})
    schema = sf.Schema([sf.Categorical("user"), sf.Numerical("x")])
    fitted = random_fitted(sf.FM(k=4), schema, table)
    engine.load(make_payload(fitted, table, explain=False))
    text = '{"user": %d, "x": 0.1234567890123456789, "note": "a \\" 9007199254740993"}'
    function = """async ([texts]) => {
        const { parseExact } = await import("/engine/encode/json.js");
        const { readRow } = await import("/base/paste.js");
        const columns = [{ name: "user", column: "user", kind: "categorical" },
                         { name: "x", column: "x", kind: "numerical" }];
        return texts.map((text) => [parseExact(text).note, model.score(readRow(text, columns).row)[0]]);
    }"""
    found = engine.run(function, [text % name for name in names])
    expected = fitted.scores({"user": names, "x": [0.1234567890123456789] * 4})
    assert [note for note, _ in found] == ['a " 9007199254740993'] * 4
    assert_equal([score for _, score in found], expected)
    assert len(set(expected.tolist())) == 4


def test_the_most_frequent_categories_are_shown_in_natural_order(engine):
    amounts = [0] * 50 + [15_024] * 9 + [7_688] * 8 + [3_103] * 7 + list(range(100, 140))
    table = pa.table({"gain": [str(value) for value in amounts], "name": [f"n{value}" for value in amounts]})
    fitted = random_fitted(sf.FM(k=4), sf.Schema([sf.Categorical("gain"), sf.Categorical("name")]), table)
    columns = make_payload(fitted, table, explain=False).data["columns"]
    assert [column["ordered"] for column in columns] == [True, False]
    function = """async ([columns]) => {
        window.d3 = { range: (n) => Array.from({ length: n }, (_, i) => i) };
        const { complete, shownCategories } = await import("/base/columns.js");
        return columns.map((column) => [shownCategories(complete(column), 4),
                                        shownCategories(complete(column), 4, column.categories.at(-1))]);
    }"""
    (gain, also), (name, _) = engine.run(function, columns)
    assert gain == ["0", "3103", "7688", "15024"]
    assert len(also) == 4 and also == sorted(also, key=int) and set(also) >= {"0", "7688", "15024"}
    assert name == ["n0", "n15024", "n7688", "n3103"]
