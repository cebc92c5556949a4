"""Statistics of shares: the same encoder and loss to the bit for any number of processes, also through bytes."""

import datetime
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.distribute import wire
from splinefm.distribute.rows import open_rows
from splinefm.distribute.statistics import (
    MergeTree,
    Scan,
    ShareStatistics,
    collect_labels,
    collect_statistics,
    collect_totals,
    merge_labels,
    merge_statistics,
    statistics_blocks,
)
from splinefm.encode.transforms.sketch import QuantileSketch
from splinefm.train import target_summary as targets
from splinefm.train.rows import LabeledTable, ValidationSample
from splinefm.train.target_summary import Moments, TargetSample, TargetSummary
from support import CROSSES, cross_schema, cross_table, examples, mixed_schema, mixed_table

N = 500
LOSSES = [
    sf.Loss("squared"),
    sf.Loss("logistic", class_weights=(1.0, 3.0)),
    sf.Loss("quantile", quantile=0.3),
    sf.Loss("softmax", classes=(0, 1, 2)),
]


def table_of(kind):
    rng = np.random.default_rng(5)
    if kind == "crosses":
        columns, schema = cross_table(N), cross_schema(*CROSSES)
    else:
        # A column of many different numbers, which a sketch of small capacity approximates, and one of dates.
        start = datetime.datetime(2024, 1, 1)
        columns = {
            **mixed_table(N),
            "wide": rng.lognormal(size=N).tolist(),
            "when": [start + datetime.timedelta(hours=int(i)) for i in range(N)],
            "text": [["1", "x", None, "2.5"][i % 4] for i in range(N)],
        }
        more = [sf.Numerical("wide", sf.Quantile(), sf.BSpline(8)), sf.Numerical("when")]
        schema = sf.Schema([*mixed_schema().fields, *more, sf.Numerical("text", text="missing")])
    return pa.table({**columns, "y": rng.integers(0, 2, N), "z3": np.arange(N) % 3, "w": rng.random(N)}), schema


@pytest.fixture(scope="module", params=["mixed", "crosses"])
def data(request, tmp_path_factory):
    table, schema = table_of(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    pq.write_table(table.slice(0, 260), folder / "a.parquet", row_group_size=70)
    pq.write_table(table.slice(260), folder / "b.parquet", row_group_size=1000)
    return open_rows(folder), schema, table


@pytest.fixture(autouse=True)
def small_sketches(monkeypatch):
    """Compress sketches of a few values: their merging is rounded, and any other order would give other numbers."""
    monkeypatch.setattr(QuantileSketch.__init__, "__defaults__", (32, *QuantileSketch.__init__.__defaults__[1:]))


def scan_of(schema, loss=LOSSES[0], block=48):
    target = "z3" if loss.name == "softmax" else "y"
    return Scan(schema, loss, target, "w", validation=0.3, seed=4, block=block)


def merged(rows, scan, processes, transport=lambda statistics, scan: statistics):
    parts = [transport(collect_statistics(rows, scan, process, processes), scan) for process in range(processes)]
    return merge_statistics(parts, rows.n_rows)


def fitted_loss(statistics):
    loss, start = statistics.targets().fit_loss()
    return loss, np.asarray(start).tolist()


def by_bytes(statistics, scan):
    return wire.from_bytes(wire.to_bytes(statistics), scan)


def test_the_encoder_is_the_same_to_the_bit_for_any_number_of_processes(data):
    rows, schema, _ = data
    scan = scan_of(schema)
    encoder = merged(rows, scan, 1).encoder()
    for processes, transport in ((2, by_bytes), (3, lambda s, scan: s), (9, by_bytes)):
        assert merged(rows, scan, processes, transport).encoder() == encoder


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_loss_is_the_same_to_the_bit_for_any_number_of_processes(data, loss):
    rows = data[0]
    scan = scan_of(sf.Schema([sf.Categorical("kind")]), loss, block=16)
    one = merged(rows, scan, 1)
    for processes, transport in ((2, lambda s, scan: s), (3, by_bytes), (40, by_bytes)):
        other = merged(rows, scan, processes, transport)
        assert fitted_loss(other) == fitted_loss(one) and other.validation_share(50) == one.validation_share(50)


def test_small_sketches_depend_on_the_order_of_merging(data):
    """The test above could fail: statistics that are merged process by process give another encoder."""
    rows, schema, table = data
    names = list(schema.columns)

    def by_processes(processes):
        whole = sf.EncoderStatistics(schema)
        for process in range(processes):
            begin, end = statistics_blocks(rows.n_rows, process, processes, 48)
            part = sf.EncoderStatistics(schema)
            for at in range(begin * 48, min(end * 48, N), 48):
                part.update(table.select(names).slice(at, 48))
            whole.merge(part)
        return whole.encoder()

    if "wide" in names:
        assert by_processes(1) != by_processes(3)


def test_it_is_that_of_one_process(data):
    rows, schema, table = data
    statistics = merged(rows, scan_of(schema, block=1 << 17), 1)
    assert statistics.encoder() == sf.fit_encoder(schema, table.select(list(schema.columns)))
    summary = TargetSummary(sf.Loss("squared"))
    summary.add(np.array(table["y"], float), np.array(table["w"]))
    assert fitted_loss(statistics) == summary.fit_loss()
    sample = ValidationSample(0.3, 4, 50)
    sample.add(0, table.to_batches()[0])
    assert statistics.validation_share(50) == sample.share


@pytest.mark.parametrize("name", ["squared", "quantile"])
def test_losses_are_those_of_all_rows(data, name, monkeypatch):
    rows, schema, table = data
    monkeypatch.setattr(targets, "_MAX_TARGETS", 100)
    summary = TargetSummary(sf.Loss(name))
    summary.add(np.array(table["y"], float), np.array(table["w"]))
    loss, _ = merged(rows, replace(scan_of(schema), loss=sf.Loss(name)), 3).targets().fit_loss()
    assert loss.center == pytest.approx(summary.fit_loss()[0].center, rel=1e-12)
    assert loss.scale == pytest.approx(summary.fit_loss()[0].scale, rel=1e-12)


@pytest.mark.parametrize("most", [10, 50, 1000])
def test_the_validation_rows_of_processes_are_those_of_one_process(data, most):
    rows, schema, table = data
    scan = scan_of(schema)
    one = ValidationSample(0.3, 4, most)
    one.add(0, table.select(scan.columns).combine_chunks().to_batches()[0])
    kept, parts = [], []
    for process in range(3):
        kept.append(ValidationSample(0.3, 4, most))
        parts.append(collect_statistics(rows, scan, process, 3, keep=kept[-1]))
    whole = merge_statistics(parts)
    for sample in kept:
        sample.lower(whole.validation_share(most))
    found = [row for sample in kept for _, batch in sample.parts for row in batch.to_pylist()]
    assert found == [row for _, batch in one.parts for row in batch.to_pylist()]
    assert len(found) == one.n_rows == whole.validation_rows(most) <= most


def test_statistics_extend_an_encoder(data):
    rows, schema, table = data
    old = sf.fit_encoder(schema, table.select(list(schema.columns)).slice(0, 60))
    scan = Scan(old.schema, block=32)
    extended = [old.extended(merged(rows, scan, processes, by_bytes).whole()) for processes in (1, 3)]
    assert extended[0] == extended[1]
    alone = old.extend(table.select(list(schema.columns)))
    assert extended[0].layout == alone.layout and extended[0].n_rows == alone.n_rows
    for mine, theirs in zip(extended[0].feature_counts, alone.feature_counts, strict=True):
        assert mine.sum() == pytest.approx(theirs.sum(), rel=0.01)  # sketches are small here


# The tree


@examples(60)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 99), st.randoms())
def test_a_tree_does_not_depend_on_who_has_which_blocks(sizes, salt, random):
    def join(a, b):
        return hash((a, b, salt))

    whole, parts, at = MergeTree(join), [], 0
    for size in sizes:
        parts.append(MergeTree(join))
        for block in range(at, at + size):
            whole.add(block, block)
            parts[-1].add(block, block)
        at += size
    random.shuffle(parts)
    merged_tree = MergeTree(join)
    for part in parts:
        merged_tree.merge(part)
    assert merged_tree.values() == whole.values() and len(whole.values()) == bin(at).count("1")


def test_a_block_that_comes_twice():
    tree = MergeTree(max)
    tree.add(4, 1.0)
    with pytest.raises(ValueError, match="block 4 was added twice"):
        tree.add(4, 1.0)


@examples(40)
@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(0, 9)), min_size=1, max_size=20), st.integers(0, 20))
def test_moments(rows, cut):
    y, weight = np.array(rows).T
    merged_moments = Moments.of(y[:cut], weight[:cut]).merge(Moments.of(y[cut:], weight[cut:]))
    assert merged_moments.weight == pytest.approx(weight.sum())
    if weight.sum() > 1e-6:
        mean = np.average(y, weights=weight)
        assert merged_moments.mean == pytest.approx(mean, abs=1e-9, rel=1e-9)
        assert merged_moments.squares == pytest.approx((weight * (y - mean) ** 2).sum(), abs=1e-6, rel=1e-9)


@examples(40)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=4))
@example([30, 300])
def test_samples_of_targets(sizes):
    rng = np.random.default_rng(1)
    y, weight = rng.random(sum(sizes)), np.floor(3 * rng.random(sum(sizes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(targets, "_MAX_TARGETS", 50)
        whole, merged_sample, at = TargetSample(), TargetSample(), 0
        whole.add(0, y, weight)
        for size in sizes:
            part = TargetSample()
            part.add(at, y[at : at + size], weight[at : at + size])
            merged_sample.merge(part)
            at += size
    assert merged_sample.share == whole.share and whole.rows.shape[1] <= 50
    np.testing.assert_array_equal(merged_sample.rows, whole.rows)


# Labels


@pytest.fixture
def write(tmp_path):
    def written(values):
        pq.write_table(pa.table({"y": values, "x": np.arange(float(len(values)))}), tmp_path / "y.parquet")
        return open_rows(tmp_path)

    return written


@pytest.mark.parametrize(
    ("values", "most", "expected"),
    [
        (["no"] * 30 + ["yes", None], 2, ("no", "yes")),
        ([1, 2] * 16, 2, (1, 2)),
        ([0.0, 0.25, 1.0, 0.0] * 8, 2, None),
        ([0.5] * 16 + [7.0] * 16, 2, None),  # the first block decides, as in one process
        (["c"] * 16 + ["a", "b"] * 8, 1000, ("a", "b", "c")),
        ([True, False] * 16, 2, (False, True)),
    ],
    ids=["text", "numbers", "shares", "shares first", "many", "booleans"],
)
def test_labels(write, values, most, expected):
    rows = write(values)
    for processes in (1, 2, 5):
        found = [
            collect_labels(rows, "y", process, processes, most=most, shares=most == 2, block=8)
            for process in range(processes)
        ]
        assert merge_labels(found, "y", most) == expected


@pytest.mark.parametrize(("column", "classes"), [("y", (0, 1)), ("z3", (0, 1, 2))])
@pytest.mark.parametrize("weight", [None, "w"])
def test_totals_of_classes_are_those_of_the_table(tmp_path, column, classes, weight):
    table, schema = table_of("crosses")
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=70)
    rows, source = open_rows(tmp_path / "t.parquet"), LabeledTable(schema, column, weight, None, classes)
    weights = np.ones(N) if weight is None else table["w"].to_numpy()
    expected = [weights[table[column].to_numpy() == value].sum() for value in classes]
    for processes in (1, 2, 5):
        found = sum(collect_totals(rows, source, process, processes, block=64) for process in range(processes))
        np.testing.assert_allclose(found, expected)
    with pytest.raises(ValueError, match="'absent'"):
        collect_totals(rows, replace(source, sample_weight="absent"))


def test_wrong_labels(write):
    rows = write(["a"] * 20 + ["b", "c"])
    with pytest.raises(ValueError, match="more than two classes"):
        merge_labels([collect_labels(rows, "y", process, 3, block=8) for process in range(3)], "y")
    rows = write(["a"] * 20)
    with pytest.raises(ValueError, match="only one class"):
        merge_labels([collect_labels(rows, "y", process, 3, block=8) for process in range(3)], "y")
    with pytest.raises(ValueError, match="'absent'"):
        collect_labels(rows, "absent")


# Mistakes and faults


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    table, schema = table_of("mixed")
    pq.write_table(table, tmp_path_factory.mktemp("parts") / "a.parquet", row_group_size=100)
    rows = open_rows(tmp_path_factory.getbasetemp() / "parts0" / "a.parquet")
    scan = scan_of(schema)
    return [wire.to_bytes(collect_statistics(rows, scan, process, 3)) for process in range(3)], scan, rows


def restored(parts):
    return [wire.from_bytes(part, parts[1]) for part in parts[0]]


def test_shares_that_are_missing_or_twice(parts):
    first, second, third = restored(parts)
    with pytest.raises(ValueError, match=r"cannot be followed by.*merge all processes, in their order, each once"):
        merge_statistics([first, third])
    with pytest.raises(ValueError, match="cannot be followed by"):
        merge_statistics([*restored(parts), second])
    with pytest.raises(ValueError, match=r"blocks 0 to \d+ are missing; merge the statistics of all processes"):
        second.encoder()
    with pytest.raises(ValueError, match="but the table has 500"):
        merge_statistics(restored(parts)[:2], 500)
    with pytest.raises(ValueError, match="no statistics"):
        merge_statistics([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": sf.Loss("poisson")}, "loss is .*poisson"),
        ({"seed": 5}, "seed is 5 in this process and 4 in another"),
        ({"block": 64}, "block is 64"),
        ({"schema": mixed_schema()}, "different schemas: 6 and 9 fields"),
        ({"schema": sf.Schema([sf.Categorical("x"), *mixed_schema().fields[1:]])}, r"schemas: Categorical\(name='x'"),
    ],
    ids=["loss", "seed", "block", "fewer fields", "another kind"],
)
def test_processes_that_do_not_collect_the_same(parts, change, message):
    with pytest.raises(ValueError, match=message):
        wire.from_bytes(parts[0][0], replace(parts[1], **change))
    other = ShareStatistics(replace(parts[1], **change))
    with pytest.raises(ValueError, match="only if all processes collect the same"):
        other.merge(restored(parts)[0])


def test_other_versions_on_processes(parts, monkeypatch):
    monkeypatch.setattr(sf, "__version__", "9.9")
    with pytest.raises(ValueError, match=r"a process runs splinefm 0.* this one 9\.9; install one version"):
        wire.from_bytes(parts[0][0], parts[1])


@examples(80)
@given(st.data())
def test_damaged_bytes(parts, data):
    good = parts[0][1]
    at = data.draw(st.integers(0, len(good) - 1))
    flipped = bytearray(good)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(sf.ModelFileError, match="cannot read statistics of another process"):
        wire.from_bytes(bytes(flipped), parts[1])
    with pytest.raises(sf.ModelFileError, match="cannot read statistics of another process"):
        wire.from_bytes(good[:at], parts[1])


def test_columns_and_targets_that_are_wrong(data, tmp_path):
    rows, schema, _ = data
    with pytest.raises(ValueError, match="'absent'"):
        collect_statistics(rows, replace(scan_of(schema), target="absent"))
    with pytest.raises(ValueError, match="'nothing'"):
        collect_statistics(rows, Scan(sf.Schema([sf.Numerical("nothing")])))
    pq.write_table(pa.table({"x": [1.0, 2.0], "y": [1.0, None]}), tmp_path / "a.parquet")
    scan = Scan(sf.Schema([sf.Numerical("x")]), sf.Loss(), "y", block=1)
    with pytest.raises(ValueError, match="the target has missing"):
        collect_statistics(open_rows(tmp_path), scan, 1, 2)
    with pytest.raises(ValueError, match="process must be from 0 to 1, got 2"):
        collect_statistics(rows, scan_of(schema), 2, 2)


def test_a_process_without_blocks_and_a_table_without_rows(tmp_path):
    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "a.parquet")
    rows, scan = open_rows(tmp_path), Scan(sf.Schema([sf.Numerical("x")]))
    parts = [collect_statistics(rows, scan, process, 3) for process in range(3)]
    assert [part.n_rows for part in parts] == [0, 0, 2]
    assert merge_statistics([by_bytes(part, scan) for part in parts], 2).encoder().n_rows == 2
    pq.write_table(pa.table({"x": pa.array([], pa.float64())}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="the table has no rows"):
        collect_statistics(open_rows(tmp_path), scan).encoder()


def test_scans():
    schema = sf.Schema([sf.Numerical("x")])
    with pytest.raises(ValueError, match="both a loss and a target"):
        Scan(schema, sf.Loss())
    with pytest.raises(ValueError, match="validation must be a share"):
        Scan(schema, validation=1.0)
    with pytest.raises(ValueError, match="from 1 to 4 rows, got 5"):
        ShareStatistics(Scan(schema, block=4)).add(pa.record_batch({"x": np.zeros(5)}))
    with pytest.raises(ValueError, match="no targets"):
        ShareStatistics(Scan(schema)).targets()
