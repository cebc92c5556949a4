"""Copies of rows: they are found, and held out together."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.search.race import make_folds
from splinefm.train import rows as copies
from splinefm.train.chunks import prepare_chunks
from splinefm.train.rows import LabeledTable, chance_of_equal_rows, find_copies, row_keys
from support import examples

SCHEMA = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
TRAINING = sf.Training(threads=1, epochs=6, seed=1, effort="fast")


def rows(n, seed=0):
    """Rows whose values explain half of the variance of the target."""
    rng = np.random.default_rng(seed)
    x, c = rng.normal(size=n), rng.choice(["a", "b", "c"], n)
    return pa.table({"x": x, "c": c, "y": np.sin(2.0 * x) + rng.normal(0.0, 0.7, n)})


def bootstrap(table, seed=1):
    return table.take(np.random.default_rng(seed).integers(0, len(table), len(table)))


def never():
    """A table with a fine column, where rows are not equal by chance."""
    return 0.0


@examples(50)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 3000), n_distinct=st.integers(1, 2000))
def test_copies_have_the_number_of_the_first_of_them(seed, n, n_distinct):
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 2**63, n_distinct, dtype=np.uint64)[rng.integers(0, n_distinct, n)]
    y = (keys % np.uint64(100_003)).astype(float)  # no two rows with other targets
    found = find_copies(keys, y, never)
    _, first, row, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    copied = (count[row] > 1) & (count[row] <= copies.MAX_COPIES)
    if found is None:
        assert copied.mean() < 0.05 or len(first) < copies.MIN_DISTINCT
    else:
        assert (found == np.where(copied, first[row], np.arange(n))).all()


@examples(20)
@given(seed=st.integers(0, 2**32), rate=st.floats(0.01, 0.99), n_cells=st.integers(1, 50))
def test_rows_of_a_table_with_few_values_are_no_copies(seed, rate, n_cells):
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, n_cells, 2000).astype(np.uint64)
    assert find_copies(keys, (rng.random(2000) < rate).astype(float), never) is None
    twice = np.concatenate([np.arange(2000), np.arange(2000)]).astype(np.uint64)
    labels = (rng.random(2000) < rate).astype(float)
    if labels.any() and not labels.all():
        assert (find_copies(twice, np.tile(labels, 2), never) == twice % np.uint64(2000)).all()


def looked_up(n_rows, *n_levels, seed=0):
    """A target without noise that depends on columns of some levels."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, n, n_rows) for n in n_levels]
    y = rng.random(n_levels)[tuple(codes)]
    return pa.table({**{f"c{i}": pa.array([f"v{c}" for c in code]) for i, code in enumerate(codes)}, "y": y})


@pytest.mark.parametrize("n_levels", [(12,), (26, 8), (200,), (20, 20, 3)])
def test_what_depends_on_few_values_is_learned(n_levels):
    table = looked_up(2000, *n_levels)
    schema = sf.Schema([sf.Categorical(name, min_count=1) for name in table.column_names[:-1]])
    chunks = prepare_chunks(LabeledTable(schema, "y", None, table), sf.Loss("squared"), 0.1, TRAINING)
    assert chunks.held_out.copies is None
    parts = (chunks.kept.slots, chunks.validation.slots)
    by_chance = np.prod([1.0 / n for n in n_levels])
    assert chance_of_equal_rows(parts, [[f] for f in range(len(n_levels))]) == pytest.approx(by_chance, rel=0.2)


def test_rows_that_occur_often_are_split_by_row_number():
    table = pa.concat_tables([rows(1500)] * 2 + [rows(1)] * 1000)
    chunks = prepare_chunks(LabeledTable(SCHEMA, "y", None, table), sf.Loss("squared"), 0.1, TRAINING)
    assert (chunks.held_out.copies[3000:] == np.arange(3000, 4000)).all()
    assert (chunks.held_out.copies[1501:3000] == np.arange(1, 1500)).all()


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_constant_target_has_no_copies(loss):
    keys = np.tile(np.arange(1000, dtype=np.uint64), 3)
    assert find_copies(keys, np.ones(3000), never) is None
    table = {"c": ["a"] * 1000, "y": [1.0] * 1000}
    for seed in range(5):  # one group would be held out as a whole, or not at all
        fitted = sf.fit_model(table, "y", loss=loss, model=sf.FM(k=2), training=sf.Training(epochs=1, seed=seed))
        assert fitted.history[0].validation_loss >= 0.0


def test_keys_of_wide_rows_take_blocks(monkeypatch):
    table = rows(500)
    slots = sf.fit_encoder(SCHEMA, table).encode(table)
    keys = row_keys(slots)
    monkeypatch.setattr(copies, "BLOCK", 37)
    np.testing.assert_array_equal(row_keys(slots), keys)


def test_keys_tell_rows_apart():
    table = rows(3000)
    slots = sf.fit_encoder(SCHEMA, table).encode(table)
    keys = row_keys(slots)
    assert len(np.unique(keys)) == 3000
    np.testing.assert_array_equal(row_keys(slots[np.arange(0, 3000, 7)]), keys[::7])


@pytest.mark.parametrize("make", [bootstrap, lambda table: pa.concat_tables([table] * 3)], ids=["bootstrap", "thrice"])
def test_copies_are_on_one_side_of_every_split(make):
    chunks = prepare_chunks(LabeledTable(SCHEMA, "y", None, make(rows(2000))), sf.Loss("squared"), 0.1, TRAINING)
    y = np.concatenate([chunks.kept.y, chunks.validation.y])
    folds = make_folds(chunks, 4, seed=1)
    for learned, judged in folds:
        assert not set(y[learned].tolist()) & set(y[judged].tolist())
        assert np.array_equal(np.sort(np.concatenate([learned, judged])), np.arange(len(y)))
    assert len(np.unique(np.concatenate([fold.judged for fold in folds]))) == sum(len(fold.judged) for fold in folds)
    held_out = len(chunks.validation.y) / chunks.encoder.n_rows
    assert 0.05 < held_out < 0.2 and len(chunks.kept.y) + len(chunks.validation.y) == chunks.encoder.n_rows
    again = chunks.encode_again(chunks.source, TRAINING)
    np.testing.assert_array_equal(again.validation.y, chunks.validation.y)


def test_tables_without_copies_are_split_by_row_number():
    chunks = prepare_chunks(LabeledTable(SCHEMA, "y", None, rows(2000)), sf.Loss("squared"), 0.1, TRAINING)
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
