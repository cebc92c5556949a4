"""Shares of processes: every row once, in an order of seed and epoch, resumed by any number of processes."""

import datetime
import decimal
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splinefm.distribute import rows as rows_module
from splinefm.distribute.rows import Position, Slice, open_rows, plan_shares
from support import examples

# Sizes of row groups by file; a file can be empty.
FILES = st.lists(st.lists(st.integers(1, 30), max_size=5), min_size=1, max_size=4).filter(lambda f: any(map(sum, f)))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a function that writes files with given row groups; the column `i` counts all rows."""

    def write(files):
        folder, at = tmp_path_factory.mktemp("files"), 0
        for number, sizes in enumerate(files):
            schema = pa.schema([("i", pa.int64()), ("name", pa.string())])
            with pq.ParquetWriter(folder / f"{number}.parquet", schema) as writer:
                for size in sizes:
                    values = np.arange(at, at + size)
                    writer.write_table(pa.table({"i": values, "name": [f"row {i}" for i in values]}), size)
                    at += size
        return folder

    return write


@pytest.fixture(scope="module")
def rows(folders):
    return open_rows(folders([[20, 30, 7], [50], [1, 1, 40]]))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 16)


def numbers_of(share, rows=16):
    return [number for buffer in share.buffers(["i"], rows) for number in buffer.numbers.tolist()]


@examples(60)
@given(FILES, st.integers(1, 9), st.integers(1, 40), st.integers(0, 3))
def test_every_row_is_read_once(folders, files, processes, size, epoch):
    rows = open_rows(folders(files))
    shares = plan_shares(rows, processes, seed=1, epoch=epoch)
    read = []
    for share in shares:
        buffers = list(share.buffers(["name", "i"], size))
        assert [len(buffer.numbers) for buffer in buffers[:-1]] == [size] * max(0, len(buffers) - 1)
        for buffer in buffers:
            assert buffer.batch.column("i").to_pylist() == buffer.numbers.tolist()
            assert buffer.batch.column("name").to_pylist() == [f"row {i}" for i in buffer.numbers]
            read += buffer.numbers.tolist()
    assert sorted(read) == list(range(rows.n_rows))
    sizes = [share.n_rows for share in shares]
    assert max(sizes) - min(sizes) <= 1 and sum(sizes) == rows.n_rows


def test_the_order_depends_on_seed_and_epoch_only(rows, folders):
    def order(rows, processes, **options):
        return [r for share in plan_shares(rows, processes, **options) for r in share.position.ranges]

    def joined(ranges):
        """Return row numbers: the same blocks, wherever they are cut."""
        return [i for first, stop in ranges for i in range(first, stop)]

    first = joined(order(rows, 1, seed=3, epoch=0))
    for processes in (2, 3, 7):
        assert joined(order(rows, processes, seed=3, epoch=0)) == first
    assert first != joined(order(rows, 1, seed=3, epoch=1)) and first != joined(order(rows, 1, seed=4, epoch=0))
    again = open_rows(folders([[20, 30, 7], [50], [1, 1, 40]]))  # other folders do not matter
    for process in range(3):
        one, other = (plan_shares(data, 3, seed=3, epoch=2)[process] for data in (rows, again))
        assert numbers_of(one) == numbers_of(other)


def test_a_buffer_mixes_blocks_and_is_shuffled(rows):
    (share,) = plan_shares(rows, 1, seed=0, epoch=0)
    buffer = next(share.buffers(["i"], 64))
    blocks = np.searchsorted([first for first, _ in rows.blocks], buffer.numbers, "right")
    assert len(np.unique(blocks)) > 2
    assert (np.diff(buffer.numbers) != 1).mean() > 0.8


@examples(60)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 60), st.data())
def test_the_rest_of_an_epoch_is_read_exactly_on_any_number_of_processes(rows, before, after, size, data):
    read, positions = [], []
    for share in plan_shares(rows, before, seed=2, epoch=5):
        buffers = list(share.buffers(["i"], size))
        stop = data.draw(st.integers(0, share.n_rows))
        position = share.position
        for buffer in buffers:
            taken = min(stop, len(buffer.numbers))
            read += buffer.numbers[:taken].tolist()
            position, stop = buffer.position(taken), stop - taken
            if not stop:
                break
        positions.append(position)
    saved = json.loads(json.dumps(Position.merge(positions).to_dict()))
    position = Position.from_dict(saved)
    assert position.n_rows == rows.n_rows - len(read)
    for share in plan_shares(rows, after, seed=2, epoch=5, position=position):
        read += numbers_of(share, size + 3)
    assert sorted(read) == list(range(rows.n_rows))


def test_a_run_can_be_interrupted_many_times(rows):
    rng = np.random.default_rng(0)
    position, read = None, []
    for processes in (2, 4, 1, 3, 5, 2, 1):
        positions = []
        for share in plan_shares(rows, processes, seed=0, epoch=0, position=position):
            buffer = next(share.buffers(["i"], 12), None)
            taken = 0 if buffer is None else int(rng.integers(len(buffer.numbers)))
            read += [] if buffer is None else buffer.numbers[:taken].tolist()
            positions.append(share.position if buffer is None else buffer.position(taken))
        position = Position.merge(positions)
    for share in plan_shares(rows, 3, seed=0, epoch=0, position=position):
        read += numbers_of(share)
    assert sorted(read) == list(range(rows.n_rows))


def test_a_resumed_process_reads_the_rest_of_its_buffer_in_the_same_order(rows):
    (share,) = plan_shares(rows, 1, seed=0, epoch=0)
    buffer = next(share.buffers(["i"], 50))
    (again,) = plan_shares(rows, 1, seed=0, epoch=0, position=buffer.position(20))
    assert next(again.buffers(["i"], 50)).numbers.tolist() == buffer.numbers[20:].tolist()


def test_small_row_groups_are_one_block(folders, monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 10)
    rows = open_rows(folders([[3, 3, 3, 3, 3], [4], [12, 2]]))
    assert rows.blocks == ((0, 12), (12, 15), (15, 19), (19, 31), (31, 33))


def test_files_with_different_types_are_read_with_one(tmp_path):
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [0.5, None]}), tmp_path / "b.parquet")
    rows = open_rows([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    values = [
        v for s in plan_shares(rows, 2, seed=0, epoch=0) for b in s.buffers(["x"]) for v in b.batch[0].to_pylist()
    ]
    assert sorted(values, key=lambda v: v or 0.0) == [None, 0.5, 1.0, 2.0]


def test_columns_of_all_types_are_read(tmp_path):
    def part(k, n=30):
        start = datetime.datetime(2024, 1, 1)
        return pa.table(
            {
                "dictionary": pa.array([f"v{(i * 7 + k) % 11}" for i in range(n)]).dictionary_encode(),
                "when": [start + datetime.timedelta(hours=i) for i in range(n)],
                "lists": [[str(i)] * (i % 3) if i % 5 else None for i in range(n)],
                "exact": [decimal.Decimal(i) / 4 for i in range(n)],
                "truth": [None if i % 4 == 0 else bool(i % 2) for i in range(n)],
                "view": pa.array([f"s{i}" for i in range(n)], pa.string_view()),
            }
        )

    tables = [part(k) for k in range(3)]
    for k, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{k}.parquet", row_group_size=7)
    expected = [row for table in tables for row in table.to_pylist()]
    rows = open_rows(tmp_path)
    for share in plan_shares(rows, 2, seed=0, epoch=0):
        for buffer in share.buffers(rows.schema.names, 16):
            assert buffer.batch.to_pylist() == [expected[i] for i in buffer.numbers]


# Mistakes and faults


def test_more_processes_than_rows(folders):
    rows = open_rows(folders([[2]]))
    shares = plan_shares(rows, 3, seed=0, epoch=0)
    assert sorted(share.n_rows for share in shares) == [0, 1, 1]
    assert [numbers_of(share) for share in shares if not share.n_rows] == [[]]
    many = plan_shares(rows, 7, seed=0, epoch=0)
    assert sorted(number for share in many for number in numbers_of(share)) == [0, 1]
    with pytest.raises(ValueError, match=r"2 rows cannot be divided among 3 processes.*start fewer processes"):
        rows.check_processes(3)
    rows.check_processes(2)


def test_files_without_rows(folders):
    rows = open_rows(folders([[], []]))
    assert rows.n_rows == 0 and rows.blocks == ()
    assert [share.n_rows for share in plan_shares(rows, 2, seed=0, epoch=0)] == [0, 0]


def test_missing_and_wrong_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file or folder 'absent"):
        open_rows("absent.parquet")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        open_rows(tmp_path / "*.parquet")
    (tmp_path / "a.csv").write_text("x\n1\n")
    with pytest.raises(ValueError, match=r"not Parquet: .*a\.csv"):
        open_rows(tmp_path / "a.csv")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(ValueError, match=r"cannot read .*b\.parquet"):
        open_rows(tmp_path / "b.parquet")


def test_a_column_that_a_file_lacks(tmp_path):
    pq.write_table(pa.table({"x": [1], "y": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"same columns; .*a\.parquet.*b\.parquet.* differ in 'y'"):
        open_rows(tmp_path)
    pq.write_table(pa.table({"x": [1], "y": [["list"]]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="files disagree on a column"):
        open_rows(tmp_path)


def test_a_column_that_all_files_lack(rows):
    (share,) = plan_shares(rows, 1, seed=0, epoch=0)
    with pytest.raises(ValueError, match="'absent'"):
        next(share.buffers(["absent"]))


def test_files_that_change_meanwhile(folders):
    folder = folders([[10, 10], [10]])
    rows = open_rows(folder)
    (share,) = plan_shares(rows, 1, seed=0, epoch=0)
    pq.write_table(pa.table({"i": np.arange(15), "name": ["x"] * 15}), folder / "0.parquet", row_group_size=8)
    with pytest.raises(ValueError, match=r"0\.parquet' has changed since it was opened"):
        list(share.buffers(["i"]))
    pq.write_table(pa.table({"i": np.arange(20), "name": ["longer"] * 20}), folder / "0.parquet", row_group_size=10)
    with pytest.raises(ValueError, match=r"0\.parquet' has changed since it was opened"):
        list(share.buffers(["i"]))
    (folder / "1.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"1\.parquet"):
        list(rows.table(20, 30).chunks(["i"]))
    pq.write_table(pa.table({"i": np.arange(10)}), folder / "1.parquet")  # fewer columns
    with pytest.raises(ValueError, match=r"1\.parquet' has changed"):
        list(rows.table(20, 30).chunks(["name"]))


def test_positions_of_other_files_and_epochs(rows, folders):
    position = next(plan_shares(rows, 1, seed=0, epoch=1)[0].buffers(["i"], 8)).position(3)
    for given_to, message in (
        ({"seed": 1, "epoch": 1}, "seed 0 and epoch 1, not of seed 1 and epoch 1"),
        ({"seed": 0, "epoch": 2}, "not of seed 0 and epoch 2"),
    ):
        with pytest.raises(ValueError, match=message):
            plan_shares(rows, 2, **given_to, position=position)
    with pytest.raises(ValueError, match="the files differ from the files of the checkpoint"):
        plan_shares(open_rows(folders([[20, 30, 8]])), 2, seed=0, epoch=1, position=position)
    with pytest.raises(ValueError, match="the same on all processes"):
        Position.merge([position, replace(position, epoch=3)])
    with pytest.raises(ValueError, match="no positions"):
        Position.merge([])


@pytest.mark.parametrize(
    "damage",
    [
        {"ranges": [[0, 10**9]]},
        {"ranges": [[5, 5]]},
        {"ranges": [[0, 20], [10, 30]]},
        {"ranges": [[0]]},
        {"ranges": None},
        {"slices": [[[[0, 4]], 2, 9]]},
        {"slices": [[[[0, 4]], 3, 2]]},
        {"slices": [[[], 0, 1]]},
        {"seed": "x"},
        {"fingerprint": None},
    ],
    ids=lambda damage: f"{damage}",
)
def test_damaged_positions(rows, damage):
    good = plan_shares(rows, 1, seed=0, epoch=0)[0].position.to_dict()
    with pytest.raises(ValueError, match=r"damaged|files differ from the files"):
        plan_shares(rows, 2, seed=0, epoch=0, position=Position.from_dict({**good, **damage}))
    short = {name: value for name, value in good.items() if name not in damage}
    with pytest.raises(ValueError, match="the position in the data is damaged"):
        Position.from_dict(short)


def test_slices_must_have_parts(rows):
    position = Position(rows.fingerprint, 0, 0, (Slice((), 0, 0),))
    with pytest.raises(ValueError, match="damaged"):
        plan_shares(rows, 1, seed=0, epoch=0, position=position)


def test_arguments(rows):
    with pytest.raises(ValueError, match="processes must be at least 1, got 0"):
        plan_shares(rows, 0, seed=0, epoch=0)
    (share,) = plan_shares(rows, 1, seed=0, epoch=0)
    with pytest.raises(ValueError, match="rows must be at least 1"):
        next(share.buffers(["i"], 0))
    buffer = next(share.buffers(["i"], 8))
    with pytest.raises(ValueError, match="n_rows must be from 0 to 8, got 9"):
        buffer.position(9)
    with pytest.raises(ValueError, match="are not among"):
        rows.table(0, rows.n_rows + 1)
