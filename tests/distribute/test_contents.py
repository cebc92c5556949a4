"""Files of the same name with other contents: what processes compare, and what they say."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from splinefm.distribute import rows as rows_module
from splinefm.distribute.rows import open_rows, refuse_other_files

ROWS = 4000


def write(folder, flipped=False, part=0):
    """Write a file whose footer does not depend on the labels: no statistics, no compression, no dictionary."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    x, click = rng.normal(size=ROWS), rng.integers(0, 2, ROWS)
    click[ROWS // 2 :] ^= int(flipped)  # the first row groups are the same
    table = pa.table({"x": x, "click": click, "z": x})
    options = {"compression": "none", "write_statistics": False, "use_dictionary": False}
    pq.write_table(table, folder / f"{part}.parquet", row_group_size=ROWS // 8, **options)
    return folder


@pytest.mark.parametrize("whole", [0, 1 << 30], ids=["samples", "whole"])
def test_other_labels_in_files_of_the_same_size_are_other_files(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(rows_module, "WHOLE_BYTES", whole)
    folders = [write(tmp_path / "a"), write(tmp_path / "b"), write(tmp_path / "c", flipped=True)]
    assert len({(folder / "0.parquet").stat().st_size for folder in folders}) == 1
    first, same, flipped = (open_rows(str(folder)).fingerprint for folder in folders)
    assert first == same != flipped


def test_samples_are_small_parts_of_a_file(tmp_path, monkeypatch):
    """Every column of three row groups is sampled, wherever they are."""
    monkeypatch.setattr(rows_module, "SAMPLE_BYTES", 8)
    ranges = rows_module._samples(write(tmp_path) / "0.parquet")
    assert all(end - begin <= 16 for begin, end in ranges)
    assert len(ranges) == 3 * (3 + 1)  # columns follow each other


def test_names_begin_at_the_folder_that_all_files_have_in_common(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name)
    write(tmp_path / "a", part=1)
    names = [name for name, _ in open_rows(str(tmp_path / "*" / "*.parquet")).files]
    assert names == ["a/0.parquet", "a/1.parquet", "b/0.parquet"]
    assert [name for name, _ in open_rows(str(tmp_path / "b")).files] == ["0.parquet"]


def test_the_error_names_the_file_and_all_processes_that_differ():
    same, other = {"0.parquet": "x", "1.parquet": "y"}, {"0.parquet": "x", "1.parquet": "z"}
    refuse_other_files(["p", "p"], [same, same])
    text = (
        r"the data differ: '1\.parquet' has other contents on processes 1, 2 and 4 than on process 0; .*copy them again"
    )
    with pytest.raises(ValueError, match=text):
        refuse_other_files(["p", "q", "q", "p", "q"], [same, other, other, same, other])


def test_the_error_names_the_file_that_is_missing():
    some, all_of_them = {"0.parquet": "x"}, {"0.parquet": "x", "1.parquet": "y"}
    with pytest.raises(ValueError, match=r"'1\.parquet' is on process 1, but not on processes 0 and 2"):
        refuse_other_files(["p", "q", "p"], [some, all_of_them, some])


def test_the_same_files_in_another_order_are_told():
    files = {"0.parquet": "x", "1.parquet": "x"}
    with pytest.raises(ValueError, match="process 1 has the files of process 0 in another order, or other columns"):
        refuse_other_files(["p", "q"], [files, files])
