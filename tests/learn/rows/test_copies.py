"""Copies of rows: they are found, and held out together."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.learn.losses import Loss
from splinefm.learn.refine.halves import split_halves
from splinefm.learn.rows.chunks import prepare_chunks
from splinefm.learn.rows.copies import find_copies, row_keys
from splinefm.learn.rows.source import Source
from support import examples

SCHEMA = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
TRAINING = sf.Training(threads=1, epochs=6, seed=1)


def rows(n, seed=0):
    """Rows whose values explain half of the variance of the target."""
    rng = np.random.default_rng(seed)
    x, c = rng.normal(size=n), rng.choice(["a", "b", "c"], n)
    return pa.table({"x": x, "c": c, "y": np.sin(2.0 * x) + rng.normal(0.0, 0.7, n)})


def bootstrap(table, seed=1):
    return table.take(np.random.default_rng(seed).integers(0, len(table), len(table)))


@examples(50)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 60), n_distinct=st.integers(1, 60))
def test_copies_have_the_number_of_the_first_of_them(seed, n, n_distinct):
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 2**63, n_distinct, dtype=np.uint64)[rng.integers(0, n_distinct, n)]
    y = (keys % np.uint64(1000)).astype(float)  # no two rows with other targets
    found = find_copies(keys, y)
    first = np.array([list(keys).index(key) for key in keys])
    if found is None:
        has_copy = (keys[:, None] == keys).sum(axis=0) > 1
        assert has_copy.mean() < 0.05 or len(set(y)) == 1
    else:
        assert found.tolist() == first.tolist()


@examples(20)
@given(seed=st.integers(0, 2**32), rate=st.floats(0.01, 0.99), n_cells=st.integers(1, 50))
def test_rows_of_a_table_with_few_values_are_no_copies(seed, rate, n_cells):
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, n_cells, 2000).astype(np.uint64)
    assert find_copies(keys, (rng.random(2000) < rate).astype(float)) is None
    twice = np.concatenate([np.arange(2000), np.arange(2000)]).astype(np.uint64)
    labels = (rng.random(2000) < rate).astype(float)
    if labels.any() and not labels.all():
        assert (find_copies(twice, np.tile(labels, 2)) == twice % np.uint64(2000)).all()


def test_keys_tell_rows_apart():
    table = rows(3000)
    slots = sf.fit_encoder(SCHEMA, table).encode(table)
    keys = row_keys(slots)
    assert len(np.unique(keys)) == 3000
    np.testing.assert_array_equal(row_keys(slots[np.arange(0, 3000, 7)]), keys[::7])


@pytest.mark.parametrize("make", [bootstrap, lambda table: pa.concat_tables([table] * 3)], ids=["bootstrap", "thrice"])
def test_copies_are_on_one_side_of_every_split(make):
    chunks = prepare_chunks(Source(SCHEMA, "y", None, make(rows(2000))), Loss("squared"), 0.1, TRAINING)
    halves = split_halves(chunks, seed=1)
    sides = [set(part.y.tolist()) for part in (halves.learned, halves.judged, chunks.validation)]
    assert all(not a & b for i, a in enumerate(sides) for b in sides[:i])
    held_out = len(chunks.validation.y) / chunks.encoder.n_rows
    assert 0.05 < held_out < 0.2 and len(chunks.kept.y) + len(chunks.validation.y) == chunks.encoder.n_rows
    again = chunks.again(chunks.source, TRAINING)
    np.testing.assert_array_equal(again.validation.y, chunks.validation.y)


def test_tables_without_copies_are_split_by_row_number():
    chunks = prepare_chunks(Source(SCHEMA, "y", None, rows(2000)), Loss("squared"), 0.1, TRAINING)
    assert chunks.held_out.copies is None and (chunks.kept_numbers() == np.arange(len(chunks.kept.y))).all()


def test_copies_do_not_make_a_model_worse():
    """With one copy in training and another in validation, a model of the same rows thrice was as bad as none."""
    table, new = rows(1500), rows(4000, seed=2)
    y = new["y"].to_numpy()

    def error(table):
        fitted = sf.fit_model(table, "y", loss="squared", training=TRAINING)
        return float(np.sqrt(np.mean((fitted.predict(new) - y) ** 2)))

    assert error(pa.concat_tables([table] * 3)) < 1.03 * error(table) < 0.8


def test_copies_are_reported(capsys):
    table = pa.concat_tables([rows(1200)] * 2)
    sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=TRAINING, verbose=True)
    assert "50% of the rows are copies of others; copies are held out together" in capsys.readouterr().err
