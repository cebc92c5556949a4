"""Chunks: every row once per epoch, the same rows held out whatever the order, in bounded memory."""

import weakref

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import splinefm as sf
from splinefm.encode.tables import files as files_module
from splinefm.encode.tables import open as table_module
from splinefm.train import chunks as module
from splinefm.train import rows as held_out_module
from splinefm.train import rows as source_module
from splinefm.train.chunks import prepare_chunks, scan_table
from splinefm.train.rows import LabeledTable, ValidationSample, row_randoms

ROWS = 4000
SCHEMA = sf.Schema([sf.Numerical("x", sf.MinMax(0, 1), sf.BSpline(4)), sf.Categorical("c")])
TRAINING = sf.Training(seed=3, threads=1)


def sorted_by_target(rows=ROWS):
    """The target is the number of the row."""
    rng = np.random.default_rng(0)
    return pa.table({"x": rng.random(rows), "c": rng.choice(list("abc"), rows), "y": np.arange(rows, dtype=float)})


def held_out():
    return ValidationSample(0.1, TRAINING.seed, 200_000)


def parquet_folder(data, folder):
    for part in range(8):
        size = data.num_rows // 8
        pq.write_table(data.slice(part * size, size), folder / f"{part}.parquet", row_group_size=100)
    return folder


def csv_folder(data, folder):
    for part in range(4):
        size = data.num_rows // 4
        pa.csv.write_csv(data.slice(part * size, size), folder / f"{part}.csv")
    return folder


SOURCES = {
    "arrow": lambda data, _: data,
    "parquet": parquet_folder,
    "csv": csv_folder,
    "dataset": lambda data, folder: pa.dataset.dataset(parquet_folder(data, folder)),
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Tables of a few thousand rows become large ones."""
    monkeypatch.setattr(files_module, "_PIECE_ROWS", 100)
    monkeypatch.setattr(table_module, "SMALL_PIECE", 50)
    for where in (module, source_module):
        monkeypatch.setattr(where, "STREAM_ROWS", 800)
    monkeypatch.setattr(module, "CHUNK", 300)
    monkeypatch.setattr(held_out_module, "CHUNK", 300)
    monkeypatch.setattr(module, "MEMORY_BYTES", 0)


def make_chunks(table, share=0.1, training=TRAINING):
    return prepare_chunks(LabeledTable(SCHEMA, "y", None, table), sf.Loss("squared"), share, training)


def numbers_of(chunks, chunk):
    """The targets, which are row numbers."""
    return np.rint(chunks.loss.predict(chunk.y)).astype(int)


def targets(chunks, epoch):
    return [numbers_of(chunks, chunk) for chunk in chunks.epoch(epoch)]


@pytest.mark.parametrize("kind", SOURCES)
def test_every_epoch_has_all_training_rows_once_and_never_a_held_out_one(kind, tmp_path, monkeypatch):
    chunks = make_chunks(SOURCES[kind](sorted_by_target(), tmp_path))
    held_out = numbers_of(chunks, chunks.validation)
    training = np.setdiff1d(np.arange(ROWS), held_out)
    assert 0.08 * ROWS < len(held_out) < 0.12 * ROWS and len(training) == chunks.n_rows
    for epoch in range(3):
        np.testing.assert_array_equal(np.sort(np.concatenate(targets(chunks, epoch))), training)
    monkeypatch.setattr(module, "MEMORY_BYTES", 1 << 30)
    in_memory = make_chunks(sorted_by_target())  # holds the same rows out
    np.testing.assert_array_equal(numbers_of(in_memory, in_memory.kept), training)
    np.testing.assert_array_equal(numbers_of(in_memory, in_memory.validation), held_out)


def test_chunks_hold_the_rows_that_they_claim(tmp_path):
    data = sorted_by_target()
    chunks = make_chunks(parquet_folder(data, tmp_path))
    for rows, chunk in zip(targets(chunks, 1), chunks.epoch(1), strict=True):
        slots = chunks.encoder.encode(data.take(rows))
        np.testing.assert_array_equal(chunk.slots.start, slots.start)
        np.testing.assert_array_equal(chunk.slots.weight, slots.weight)


def test_chunks_of_a_sorted_table_resemble_each_other(tmp_path):
    chunks = make_chunks(parquet_folder(sorted_by_target(), tmp_path))
    means = [rows.mean() / ROWS for rows in targets(chunks, 0)]
    assert 5 <= len(means) <= 7 and min(means) > 0.25 and max(means) < 0.75
    spread = [rows.std() / ROWS for rows in targets(chunks, 0)]
    assert min(spread) > 0.15  # all rows together: 0.29; neighbors: 0.06


def test_the_order_changes_with_the_epoch_and_the_seed_only(tmp_path):
    folder = parquet_folder(sorted_by_target(), tmp_path)
    orders = [np.concatenate(targets(make_chunks(folder), epoch)).tolist() for epoch in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    other = make_chunks(folder, training=sf.Training(seed=4, threads=1))
    assert np.concatenate(targets(other, 0)).tolist() != orders[0]


def test_few_validation_rows_are_spread_and_the_others_are_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_VALIDATION_ROWS", 100)
    chunks = make_chunks(parquet_folder(sorted_by_target(), tmp_path), share=0.5)
    held_out = numbers_of(chunks, chunks.validation)
    assert 40 <= len(held_out) <= 100 and chunks.n_rows == ROWS - len(held_out)
    assert np.bincount(held_out * 4 // ROWS, minlength=4).min() >= 5  # every quarter of the table has some
    np.testing.assert_array_equal(np.sort(np.concatenate(targets(chunks, 0))), np.setdiff1d(np.arange(ROWS), held_out))


def test_a_large_validation_table_is_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(held_out_module, "MAX_VALIDATION_ROWS", 200)
    source = LabeledTable(SCHEMA, "y", None, parquet_folder(sorted_by_target(), tmp_path))
    sample = held_out_module.sample_validation(source, TRAINING)
    rows = np.concatenate([batch["y"].to_numpy() for _, batch in sample.parts])
    assert 80 <= len(rows) <= 200 and np.bincount((rows * 4 // ROWS).astype(int), minlength=4).min() >= 10


def test_wide_rows_come_in_smaller_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STREAM_ROWS", 4000)
    monkeypatch.setattr(module, "STREAM_BYTES", 100_000)
    monkeypatch.setattr(module, "VALIDATION_BYTES", 10_000)
    chunks = make_chunks(parquet_folder(sorted_by_target(), tmp_path), share=0.5)
    row = sum(values[:1].nbytes for values in (*vars(chunks.validation.slots).values(),) if hasattr(values, "nbytes"))
    bytes_per_row = row + 16
    assert max(len(rows) for rows in targets(chunks, 0)) <= 100_000 // bytes_per_row
    assert 0.4 * 10_000 < len(chunks.validation.y) * bytes_per_row <= 10_000
    held_out = numbers_of(chunks, chunks.validation)
    assert len(np.intersect1d(held_out, np.concatenate(targets(chunks, 0)))) == 0
    assert chunks.n_rows == ROWS - len(held_out)


def test_the_rows_of_the_table_are_let_go_of(tmp_path):
    assert make_chunks(parquet_folder(sorted_by_target(), tmp_path)).held_out.parts == []


def test_center_and_scale_are_those_of_the_whole_table(tmp_path):
    data = sorted_by_target()
    weight = np.random.default_rng(1).random(ROWS) + np.arange(ROWS) / ROWS
    weight[:1000] = 0.0
    folder = parquet_folder(data.append_column("w", pa.array(weight)), tmp_path)
    source = LabeledTable(SCHEMA, "y", "w", folder)
    _, targets = scan_table(source, sf.Loss("squared"), held_out(), TRAINING)
    loss, start = targets.fit_loss()
    y = data["y"].to_numpy()
    center = np.average(y, weights=weight)
    assert loss.center == pytest.approx(center, rel=1e-12)
    assert loss.scale == pytest.approx(np.sqrt(np.average((y - center) ** 2, weights=weight)), rel=1e-12)
    assert start == pytest.approx(0.0, abs=1e-12)


def test_the_start_is_the_rate_of_the_whole_table(tmp_path):
    data = sorted_by_target().set_column(2, "y", pa.array((np.arange(ROWS) >= 3000).astype(float)))
    source = LabeledTable(SCHEMA, "y", None, parquet_folder(data, tmp_path))
    _, targets = scan_table(source, sf.Loss("logistic"), held_out(), TRAINING)
    assert targets.fit_loss()[1] == pytest.approx(np.log(1 / 3))


def test_a_sorted_folder_is_learned(tmp_path, monkeypatch):
    """Sorted by label: read in its order, an epoch would end with rows of one kind only."""
    rng = np.random.default_rng(0)
    x = rng.random(ROWS)
    click = (rng.random(ROWS) < x).astype(float)
    order = np.argsort(click, kind="stable")
    data = pa.table({"x": x[order], "c": ["a"] * ROWS, "y": click[order]})
    monkeypatch.setattr(module, "MEMORY_BYTES", 0)
    training = sf.Training(epochs=4, batch_size=64, learning_rate=0.02, threads=1)
    fitted = sf.fit_model(parquet_folder(data, tmp_path), "y", schema=SCHEMA, model=sf.FM(k=2), training=training)
    grid = np.linspace(0.1, 0.9, 9)
    np.testing.assert_allclose(fitted.predict({"x": grid, "c": ["a"] * 9}), grid, atol=0.1)


def test_a_bad_target_at_the_end_is_an_error_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr("splinefm.train.loop.train", lambda *_: pytest.fail("training began"))
    data = sorted_by_target().set_column(2, "y", pa.array([0.5] * (ROWS - 1) + [7.0]))
    with pytest.raises(ValueError, match="the target 'y': a logistic target must lie between 0 and 1, got 7"):
        sf.fit_model(parquet_folder(data, tmp_path), "y", schema=SCHEMA, training=TRAINING)


def test_weights_of_zero_leave_nothing_to_learn():
    data = sorted_by_target(100).append_column("w", pa.array(np.zeros(100)))
    with pytest.raises(ValueError, match="all sample weights are 0"):
        sf.fit_model(data, "y", schema=SCHEMA, sample_weight="w", loss="squared", training=TRAINING)


def test_validation_rows_without_weight_choose_nothing():
    weight = (row_randoms(0, np.arange(100)) >= 0.1).astype(float)
    data = sorted_by_target(100).append_column("w", pa.array(weight))
    training = sf.Training(seed=0, threads=1, epochs=1)
    fitted = sf.fit_model(data, "y", schema=SCHEMA, sample_weight="w", loss="squared", training=training)
    assert np.isnan(fitted.history[0].validation_loss)


def test_a_table_may_be_too_small_to_hold_rows_out():
    row = next(number for number in range(1000) if row_randoms(number, np.array([0]))[0] < 0.5)
    training = sf.Training(seed=row, threads=1)
    with pytest.raises(ValueError, match="all 1 rows are held out for validation; pass validation=0"):
        sf.fit_model(sorted_by_target(1), "y", schema=SCHEMA, loss="squared", validation=0.5, training=training)


def test_lots_are_uniform_and_independent_of_the_seed():
    numbers = np.arange(100_000)
    first, other = row_randoms(0, numbers), row_randoms(1, numbers)
    assert first.min() >= 0 and first.max() < 1
    assert np.abs(np.bincount((first * 20).astype(int), minlength=20) / 5000 - 1).max() < 0.06
    for a, b in ((first[1:], first[:-1]), (first, other), (first, numbers)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.015
    np.testing.assert_array_equal(row_randoms(0, numbers[::-7]), first[::-7])


def test_rows_held_back_do_not_follow_from_the_generator_of_the_data():
    x = np.random.default_rng(0).random(2000)
    held_out = ValidationSample(0.1, 0, 1000)
    held_out.add(0, pa.RecordBatch.from_pydict({"x": x}))
    assert 0.4 < held_out.parts[0][1]["x"].to_numpy().mean() < 0.6


def test_a_sample_does_not_depend_on_how_the_table_is_cut():
    whole, parts = ValidationSample(0.9, 1, 300), ValidationSample(0.9, 1, 300)
    batch = pa.RecordBatch.from_pydict({"a": np.arange(3000)})
    whole.add(0, batch)
    for at in range(0, 3000, 70):
        parts.add(at, batch.slice(at, 70))
    rows = [np.concatenate([b["a"].to_numpy() for _, b in sample.parts]) for sample in (whole, parts)]
    np.testing.assert_array_equal(*rows)
    assert whole.share == parts.share and whole.n_rows == len(rows[0]) <= 300
    np.testing.assert_array_equal(np.flatnonzero(whole.has(np.arange(3000))), rows[0])


def test_a_sample_keeps_no_dictionaries():
    names = pa.array([f"name {i}" for i in range(10_000)])
    codes = pa.DictionaryArray.from_arrays(pa.array(np.arange(100, dtype=np.int32)), names)
    sample = ValidationSample(0.5, 0, 1000)
    sample.add(0, pa.RecordBatch.from_arrays([codes], names=["c"]))
    ((_, batch),) = sample.parts
    assert batch.nbytes < 5000
    assert batch["c"].to_pylist() == [f"name {i}" for i in np.flatnonzero(sample.has(np.arange(100)))]


def test_dictionaries_are_validated_like_text():
    data = sorted_by_target()
    coded = data.set_column(1, "c", data["c"].combine_chunks().dictionary_encode())
    results = [make_chunks(table).validation.slots for table in (data, coded)]
    np.testing.assert_array_equal(results[0].start, results[1].start)


def test_few_chunks_are_alive_at_a_time(tmp_path):
    chunks = make_chunks(parquet_folder(sorted_by_target(), tmp_path))
    alive, most = weakref.WeakSet(), 0
    encode = chunks._encode

    def watched(numbers, batch):
        nonlocal most
        chunk = encode(numbers, batch)
        alive.add(chunk.slots)
        most = max(most, len(alive))
        return chunk

    chunks._encode = watched
    for _ in chunks.epoch(0):
        pass
    assert 1 <= most <= 3
