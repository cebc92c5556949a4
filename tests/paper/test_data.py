"""The data sets of the tabular experiment: cut as in the paper, checked when they are downloaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import train_test_split

from paper.tabular import data

ADULT_TEST = b"""|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, ?, Own-child, Black, Male, 0, 0, 40, United-States, <=50K.
44, Private, 160323, Some-college, 10, Married, Sales, Husband, Black, Male, 7688, 0, 40, United-States, >50K.

"""


def housing(rows: int = 50) -> pa.Table:
    return pa.table({"MedInc": np.arange(rows, dtype=float), "MedHouseVal": np.arange(rows) / 10})


def test_the_cut_is_that_of_the_authors() -> None:
    train, test = data.cut("california", housing())
    expected, held_out = train_test_split(np.arange(50), test_size=0.2, random_state=42)
    np.testing.assert_array_equal(train["MedInc"], expected)
    np.testing.assert_array_equal(test["MedInc"], held_out)


def test_income_becomes_a_number_and_the_official_split_is_no_feature() -> None:
    table = pa.table({"age": [20, 30] * 10, "income": ["<=50K", ">50K"] * 10, "split": ["train"] * 20})
    train, test = data.cut("adult", table)
    assert train.column_names == ["age", "income"]
    both = pa.concat_tables([train, test])
    np.testing.assert_array_equal(both["income"], (both["age"].to_numpy() == 30).astype(float))


def test_higgs_is_tested_on_the_rows_that_are_marked() -> None:
    table = pa.table({"label": [0, 1, 0, 1], "m_jj": [1.0, 2.0, 3.0, 4.0], "origin": ["x", "hs_test", "y", "x"]})
    train, test = data.cut("higgs", table)
    assert test["m_jj"].to_pylist() == [2.0]
    assert train.column_names == ["label", "m_jj"] and train.num_rows == 3


def test_songs_of_the_official_test_part_are_left_out() -> None:
    table = pa.table({"year": np.arange(463_720)})
    train, test = data.cut("song", table)
    assert train.num_rows + test.num_rows == 463_715
    assert max(train["year"].to_numpy().max(), test["year"].to_numpy().max()) == 463_714


def test_a_file_without_its_target_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"higgs.parquet has no column 'label'; it has a\b"):
        data.cut("higgs", pa.table({"a": [1]}))


def test_quick_runs_take_the_first_rows_of_each_part(tmp_path: Path) -> None:
    pq.write_table(housing(), tmp_path / "california_housing.parquet")
    whole, some = data.load("california", tmp_path), data.load("california", tmp_path, rows=5)
    assert some.train.equals(whole.train.slice(0, 5)) and some.test.num_rows == 5


def test_a_set_that_is_not_available_says_how_to_get_it(tmp_path: Path) -> None:
    assert data.find("song", tmp_path) is None
    with pytest.raises(data.NotAvailable, match=r"no song_year.parquet.*paper\.tabular\.data song --out"):
        data.load("song", tmp_path)


def test_adult_is_read_as_published() -> None:
    table = data.read_adult(ADULT_TEST, "test")
    assert table["occupation"].to_pylist() == [None, "Sales"]
    assert table["income"].to_pylist() == ["<=50K", ">50K"]
    assert table["capital-gain"].to_pylist() == [0, 7688]
    assert table["split"].to_pylist() == ["test", "test"]


class TestDownload:
    """With a made-up source in place of the network."""

    def test_is_kept_for_the_next_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []

        def fetch(folder: Path) -> pa.Table:
            calls.append(folder)
            return housing(20_640)

        monkeypatch.setitem(data._DOWNLOADS, "california", fetch)
        monkeypatch.setattr(data, "CACHE", tmp_path / "cache")
        assert data.load("california", None).train.num_rows == 16_512
        assert data.load("california", None).test.num_rows == 4_128
        assert len(calls) == 1

    def test_with_too_few_rows_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(data._DOWNLOADS, "california", lambda folder: housing(10))
        with pytest.raises(ValueError, match="should have 20,640 rows, the download has 10"):
            data.download("california", tmp_path)
        assert not list(tmp_path.iterdir())

    def test_without_a_network_says_what_to_do(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(folder: Path) -> pa.Table:
            raise OSError("no route to host")

        monkeypatch.setitem(data._DOWNLOADS, "adult", fail)
        with pytest.raises(data.NotAvailable, match=r"no route to host.*--data DIR with adult.parquet"):
            data.download("adult", tmp_path)

    def test_of_an_unknown_set_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.argv", ["data.py", "titanic"])
        with pytest.raises(SystemExit):
            data.main()
        assert "no data set titanic; there are california, adult" in capsys.readouterr().err
