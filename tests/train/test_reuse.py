"""Rows for another schema: what the schemas share is taken over, and the result equals a new start."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import splinefm as sf
from splinefm.train import chunks as module
from splinefm.train import chunks as reuse
from splinefm.train.chunks import prepare_chunks
from splinefm.train.rows import LabeledTable

RNG = np.random.default_rng(7)
N = 700
TABLE = pa.table(
    {
        "x": pa.array(RNG.normal(size=N), mask=RNG.random(N) < 0.1),
        "z": RNG.integers(0, 9, N),
        "c": RNG.choice(list("abcde"), N),
        "tags": [list(RNG.choice(list("pqr"), 2)) for _ in range(N)],
        "w": RNG.random(N),
        "y": RNG.random(N) < 0.4,
    }
)
X, Z, C, TAGS = sf.Numerical("x"), sf.Numerical("z"), sf.Categorical("c"), sf.MultiValued("tags")
FIRST = sf.Schema([X, Z, C, TAGS])
OTHERS = {
    "the same": FIRST,
    "a cross at the end": sf.Schema([X, Z, C, TAGS, sf.Cross("x", "c")]),
    "two crosses": sf.Schema([X, Z, C, TAGS, sf.Cross("x", "z"), sf.Cross("z", "c")]),
    "values of a number": sf.Schema([X, Z, C, TAGS, sf.Cross(sf.Categorical("z"))]),
    "another basis": sf.Schema([sf.Numerical("x", basis=sf.BSpline(5)), Z, C, TAGS]),
    "another vocabulary": sf.Schema([X, Z, sf.Categorical("c", min_count=140), TAGS]),
    "another order": sf.Schema([TAGS, C, Z, X]),
    "fewer fields": sf.Schema([Z, TAGS]),
    "nothing in common": sf.Schema([sf.Categorical("z"), sf.Numerical("x", basis=sf.Bins(4))]),
}
TRAINING = sf.Training(seed=2, threads=1)


def prepare(schema, table=TABLE, loss="logistic", **options):
    source = LabeledTable(schema, "y", "w", table)
    if loss == "logistic":
        source = source.with_classes()
    return prepare_chunks(source, sf.Loss(loss, classes=source.classes), 0.2, TRAINING, **options)


def assert_same(one, two):
    assert one.encoder == two.encoder and one.encoder.layout == two.encoder.layout
    assert (one.n_rows, one.start, one.loss) == (two.n_rows, two.start, two.loss)
    for mine, theirs in ((one.kept, two.kept), (one.validation, two.validation)):
        for name in ("start", "weight"):
            np.testing.assert_array_equal(getattr(mine.slots, name), getattr(theirs.slots, name))
        np.testing.assert_array_equal(mine.y, theirs.y)
        np.testing.assert_array_equal(mine.sample_weight, theirs.sample_weight)


@pytest.mark.parametrize("name", OTHERS)
def test_the_result_is_that_of_a_new_start(name, monkeypatch):
    first, expected = prepare(FIRST), prepare(OTHERS[name])
    monkeypatch.setattr(module, "_prepare", None)  # nothing is read from the start
    other = first.encode_again(LabeledTable(OTHERS[name], "y", "w", TABLE, first.source.classes), TRAINING)
    assert_same(other, expected)
    assert_same(other.encode_again(first.source, TRAINING), first)


def test_a_text_file_is_read_with_the_types_of_the_new_schema(tmp_path):
    path = tmp_path / "rows.csv"
    pa.csv.write_csv(TABLE.drop_columns(["tags"]), path)
    before, after = (sf.Schema([X, Z, C, *more]) for more in ((), (sf.Cross(sf.Categorical("z")), sf.Cross("x", "c"))))
    first = prepare(before, path)
    other = first.encode_again(LabeledTable(after, "y", "w", path, first.source.classes), TRAINING)
    assert_same(other, prepare(after, path))


def test_only_new_fields_are_fitted(monkeypatch):
    first, fitted, fit = prepare(FIRST), [], reuse._fit

    def spy(schema, *rest):
        fitted.append(schema.names)
        return fit(schema, *rest)

    monkeypatch.setattr(reuse, "_fit", spy)
    for name in ("the same", "a cross at the end", "another basis", "fewer fields"):
        first.encode_again(LabeledTable(OTHERS[name], "y", "w", TABLE, first.source.classes), TRAINING)
    assert fitted == [("x × c",), ("x",)]


@pytest.mark.parametrize("limit", ["MEMORY_BYTES", "VALIDATION_BYTES"])
def test_rows_that_would_take_too_much_memory_are_prepared_from_the_start(limit, monkeypatch):
    first, schema = prepare(FIRST), OTHERS["two crosses"]
    rows = first.n_rows if limit == "MEMORY_BYTES" else first.held_out.n_rows
    monkeypatch.setattr(module, limit, rows * module._bytes_per_row(first.encoder.layout))
    other = first.encode_again(LabeledTable(schema, "y", "w", TABLE, first.source.classes), TRAINING)
    if limit == "MEMORY_BYTES":
        assert other.kept is None
    else:
        assert 0 < other.held_out.n_rows < first.held_out.n_rows


def test_a_table_of_validation_rows_is_read_again():
    first = prepare_chunks(
        LabeledTable(FIRST, "y", "w", TABLE).with_classes(),
        sf.Loss("logistic", classes=(False, True)),
        TABLE[:50],
        TRAINING,
    )
    other = first.encode_again(
        LabeledTable(OTHERS["a cross at the end"], "y", "w", TABLE, first.source.classes), TRAINING
    )
    assert len(other.validation.y) == 50 and other.validation.slots.layout == other.encoder.layout
