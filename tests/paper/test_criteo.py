"""The Criteo experiment: the text file, the encodings of its integers, and that reports say what the results say."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import splinefm as sf
from paper.criteo import report as criteo_report
from paper.criteo import run as criteo
from paper.criteo.arms import ARMS, defaults, logloss, make_schema, tune_and_test
from paper.criteo.data import (
    CATEGORIES,
    COLUMNS,
    INTEGERS,
    LABEL,
    Parts,
    convert,
    count_lines,
    find_whole,
    largest,
    parts_of,
    split_sample,
)
from paper.criteo.size import WIDE, Generator, fit_parts, write_file
from paper.harness import Results

SETTINGS: dict[str, Any] = {
    "columns": [name for name in INTEGERS if name not in ("I10", "I12")],
    "knots": 20,
    "min_count": 10,
    "sample": {
        "splits": 2,
        "ks": [8],
        "trials": 2,
        "batch_size": 128,
        "epochs": 2,
        "patience": 2,
        "learning_rate": [1e-3, 1e-2],
        "l2": [1e-6, 1e-3],
    },
    "whole": {"ks": [8, 16]},
    "size": {"rows": [100, 200], "one_offs": [0.0, 0.1], "k": 2},
}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Made-up rows with a number of their own in I5."""
    table = Generator(0.0).block(2800)
    return table.set_column(COLUMNS.index("I5"), "I5", pa.array(np.arange(2800)))


@pytest.fixture(scope="module")
def text(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("criteo") / "train.txt"
    lines = ["\t".join("" if cell is None else str(cell) for cell in row.values()) for row in rows.to_pylist()]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def parts(rows: pa.Table) -> Parts:
    return Parts(rows.slice(0, 2000), rows.slice(2000, 400), rows.slice(2400))


def integers(values: list[Any], name: str = "I1") -> pa.Table:
    """A table of one integer column, whose values occur twenty times."""
    return pa.table({LABEL: [0.0, 1.0] * (10 * len(values)), name: values * 20})


def groups(arm: str, values: list[Any], name: str = "I1") -> list[int]:
    """The feature of each value."""
    table = integers(values, name)
    schema = make_schema(arm, Parts(table, table, table), SETTINGS)
    start: list[int] = sf.fit_encoder(schema, table).encode(table).start[: len(values), 0].tolist()
    return start


class TestFile:
    def test_is_cut_by_time(self, text: Path, rows: pa.Table, tmp_path: Path) -> None:
        counts = convert(text, tmp_path)
        assert counts == {"rows": 2800, "train": 2000, "validation": 400, "test": 400}
        written = [pq.read_table(tmp_path / f"{name}.parquet") for name in ("train", "validation", "test")]
        assert pa.concat_tables(written).equals(rows.cast(written[0].schema))

    def test_may_be_compressed(self, text: Path, tmp_path: Path) -> None:
        packed = tmp_path / "train.txt.gz"
        packed.write_bytes(gzip.compress(text.read_bytes()))
        assert find_whole(tmp_path) == packed and find_whole(None) is None
        assert count_lines(packed) == count_lines(text) == 2800
        assert convert(packed, tmp_path / "parts")["test"] == 400

    def test_of_another_shape_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "train.txt"
        path.write_text("1\t2\t3\n" * 10)
        with pytest.raises(ValueError, match=r"train.txt is not the Criteo file.*13 integers and 26 categories"):
            convert(path, tmp_path)

    def test_with_hardly_a_row_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "train.txt"
        path.write_text("1\n")
        with pytest.raises(ValueError, match="has 1 rows; there is nothing to split"):
            convert(path, tmp_path)

    def test_knows_its_largest_values_without_being_read(self, rows: pa.Table, tmp_path: Path) -> None:
        path = tmp_path / "train.parquet"
        pq.write_table(rows, path, row_group_size=500)
        for name in ("I1", "I2", "I5"):
            assert largest(path, name) == largest(rows, name) == rows[name].drop_null().to_numpy().max()


def test_a_sample_is_cut_at_random_into_parts_without_a_common_row(rows: pa.Table, tmp_path: Path) -> None:
    pq.write_table(rows, tmp_path / "sample.parquet")
    cut, other = split_sample(tmp_path / "sample.parquet", 0), split_sample(tmp_path / "sample.parquet", 1)
    numbers = [part["I5"].to_pylist() for part in (cut.train, cut.validation, cut.test)]
    assert [len(part) for part in numbers] == [2000, 400, 400]
    assert sorted(number for part in numbers for number in part) == list(range(2800))
    assert numbers[0] != other.train["I5"].to_pylist()


class TestBins:
    def test_of_the_authors_are_the_squared_logarithm_with_0_to_2_together(self) -> None:
        values = list(range(300))
        expected = [math.floor(math.log(max(z, 1)) ** 2) for z in values]
        assert _same_groups(groups("merged", values), expected)

    def test_of_the_winners_keep_0_to_2_apart(self) -> None:
        values = list(range(300))
        expected = [z - 3 if z <= 2 else math.floor(math.log(z) ** 2) for z in values]
        assert _same_groups(groups("winner", values), expected)

    def test_steps_are_equal_bins_of_the_transformed_value(self) -> None:
        values = list(range(300))
        table = integers(values)
        transform = sf.ArcsinhSquare(clip=0.99, low=0.0).fit(table["I1"].to_numpy())
        expected = np.minimum(transform(np.array(values, float)) * 19, 18).astype(int).tolist()
        assert _same_groups(groups("steps", values), expected)

    @pytest.mark.parametrize("arm", list(ARMS))
    def test_missing_and_negative_values_have_rows_of_their_own(self, arm: str) -> None:
        own = groups(arm, [None, -1, -2, 0, 50])
        assert len(set(own)) == 5


def _same_groups(rows: list[int], expected: list[int]) -> bool:
    pairs = set(zip(rows, expected, strict=True))
    return len(pairs) == len(set(rows)) == len(set(expected))


def test_cubic_splines_are_for_the_columns_that_are_named() -> None:
    table = pa.table({LABEL: [0, 1] * 20, "I1": range(40), "I10": [0, 1] * 20, "C1": ["a", "b"] * 20})
    schema = make_schema("cubic", Parts(table, table, table), SETTINGS)
    assert schema.names == ("I1", "I10", "C1")
    assert schema["I1"].basis == sf.BSpline(19, 3)  # type: ignore[union-attr]
    assert schema["I10"] == sf.Categorical("I10", min_count=10)
    assert schema["C1"] == sf.Categorical("C1", min_count=10)


class TestTuning:
    def test_reports_the_test_loss_of_the_best_trial(self, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
        tried: list[tuple[float, float]] = []
        fit = sf.fit_model

        def spy(*arguments: Any, **options: Any) -> sf.Fitted:
            fitted = fit(*arguments, **options)
            value = min(epoch.validation_loss for epoch in fitted.history)
            tried.append((value, logloss(fitted, parts.test)))
            return fitted

        monkeypatch.setattr(sf, "fit_model", spy)
        how = SETTINGS["sample"] | {"trials": 3}
        found = tune_and_test("cubic", 2, 0, parts, SETTINGS, how)
        assert (found["validation"], found["test"]) == min(tried)
        assert len(tried) == 3 and 1e-3 <= found["params"]["learning_rate"] <= 1e-2

    def test_files_give_the_same_as_tables(self, text: Path, parts: Parts, tmp_path: Path) -> None:
        convert(text, tmp_path)
        how = SETTINGS["sample"] | {"trials": 1}
        of_files = tune_and_test("winner", 2, 0, parts_of(tmp_path), SETTINGS, how)
        assert of_files["test"] == pytest.approx(tune_and_test("winner", 2, 0, parts, SETTINGS, how)["test"], rel=1e-6)

    def test_defaults_need_nothing_but_the_parts(self, parts: Parts) -> None:
        assert 0.0 < defaults(2, 0, parts)["test"] < 1.0


def test_the_loss_of_a_file_is_the_mean_over_all_of_its_rows(parts: Parts) -> None:
    training = sf.Training(epochs=1, threads=1)
    fitted = sf.fit_model(parts.train, LABEL, schema=sf.Schema([sf.Numerical("I1")]), training=training)
    y, p = parts.test[LABEL].to_numpy(), fitted.predict(parts.test)
    assert logloss(fitted, parts.test) == pytest.approx(-np.mean(np.log(np.where(y == 1, p, 1 - p))), rel=1e-5)


class TestMadeUpFiles:
    def test_have_the_columns_of_the_real_one(self, tmp_path: Path) -> None:
        write_file(tmp_path / "train.txt", 1000, 0.0)
        assert convert(tmp_path / "train.txt", tmp_path)["rows"] == 1000
        table = pq.read_table(tmp_path / "train.parquet")
        assert table.column_names == COLUMNS
        assert 0.1 < table[LABEL].to_numpy().mean() < 0.9
        assert table["I2"].drop_null().to_numpy().min() < 0 and table["I1"].null_count > 50

    def test_are_the_same_every_time(self) -> None:
        assert Generator(0.1).block(50).equals(Generator(0.1).block(50))

    def test_have_values_that_never_recur_where_asked(self) -> None:
        plain, once = Generator(0.0).block(5000), Generator(0.5).block(5000)
        for name in CATEGORIES:
            more = len(once[name].unique()) - len(plain[name].unique())
            assert (more > 1000) == (name in WIDE)

    def test_can_be_learned_from(self, tmp_path: Path) -> None:
        write_file(tmp_path / "train.txt", 7000, 0.0)
        convert(tmp_path / "train.txt", tmp_path)
        figures = fit_parts(tmp_path, SETTINGS)
        share = pq.read_table(tmp_path / "test.parquet")[LABEL].to_numpy().mean()
        assert figures["logloss"] < -share * np.log(share) - (1 - share) * np.log(1 - share)
        assert figures["peak_mb"] > 10 and figures["epoch_rows_per_second"] > 0


def made_up_results() -> Results:
    units: dict[str, Any] = {"histograms": {"columns": {name: [1, 2, 3] for name in INTEGERS}}}
    for split in range(2):
        for place, arm in enumerate(criteo_report.TITLES):
            units[f"sample/split {split}/k 8/{arm}"] = {"test": 0.5 - 0.005 * place + 0.1 * split}
    fit = {"seconds": 10.0, "epoch_rows_per_second": 1e5, "score_seconds": 1.0, "table_rows": 7, "logloss": 0.5}
    for count, share, peak in ((1000, 0.0, 100.0), (2000, 0.0, 100.0), (1000, 0.1, 130.0)):
        units[f"size/{count} rows/{share} one-offs"] = {
            "rows": count,
            "one_offs": share,
            "text_mb": 1.0,
            "convert": {"seconds": 2.0, "peak_mb": 50.0, "train": 800_000, "test": 100},
            "fit": fit | {"peak_mb": peak},
        }
    units |= {f"whole/k 8/{arm}": {"test": 0.44321} for arm in ARMS}
    return Results(Path("unused"), SETTINGS, units)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def report(folder: Path) -> str:
    return criteo_report.report(made_up_results(), folder)


class TestReport:
    def test_has_paired_gains_beside_those_of_the_paper(self, report: str) -> None:
        gain = [100 * 0.015 / 0.5, 100 * 0.015 / 0.6]
        assert f"{np.mean(gain):.3f} ± {np.std(gain, ddof=1):.3f}" in report
        assert "| 8 | 0.164 | 0.165 |" in report

    def test_leaves_out_splits_that_are_not_complete(self, tmp_path: Path) -> None:
        results = made_up_results()
        del results.units["sample/split 0/k 8/winner"]
        text = criteo_report.report(results, tmp_path)
        assert "| 8 | 1 | 0.6000 | 0.5950 | 0.5900 | 0.5850 | 0.5800 |" in text
        assert f"| {100 * 0.015 / 0.6:.3f} |" in text

    def test_has_the_whole_file_where_it_was_available(self, report: str) -> None:
        assert "| 8 | 0.45244 | 0.45170 | 0.45169 | 0.44321 | 0.44321 | 0.44321 | 0.44321 |" in report

    def test_has_speed_and_memory(self, report: str) -> None:
        assert "| 2,000 | 1 | 1,000 | 100,000 | 100 | 10 | 7 | 50 | 100 |" in report
        assert f"{45_840_617 / 2000 * 12 / 60:.0f} minutes" in report
        assert "a calculation, not a run" in report

    def test_tells_what_a_file_of_the_real_size_took(self, tmp_path: Path) -> None:
        results = made_up_results()
        results.units["size/of the real file"] = {**results.units["size/1000 rows/0.1 one-offs"], "rows": 45_840_617}
        text = criteo_report.report(results, tmp_path)
        assert "as many rows as the real one took 0 minutes" in text and "a calculation" not in text
        assert "0.4 million of them" in text

    def test_has_small_pictures(self, report: str, folder: Path) -> None:
        assert {path.name for path in folder.iterdir()} == {"histograms.png", "gains.png"}
        assert all(path.stat().st_size < 200_000 and f"({path.name})" in report for path in folder.iterdir())

    def test_of_no_results_is_no_error(self, tmp_path: Path) -> None:
        assert "not available" in criteo_report.report(Results(Path("unused"), SETTINGS), tmp_path)


def test_without_the_sample_there_are_no_units_for_it(tmp_path: Path) -> None:
    assert criteo.sample_units(SETTINGS, None) == criteo.sample_units(SETTINGS, tmp_path) == {}
    (tmp_path / "criteo_45k.parquet").touch()
    assert len(criteo.sample_units(SETTINGS, tmp_path)) == 2 * 1 * 5
    assert len(criteo.whole_units(SETTINGS, tmp_path)) == 2 * 4
    assert len(criteo.size_units(SETTINGS)) == 2


def test_histograms_count_values_from_zero_on(parts: Parts) -> None:
    columns = criteo.histograms(parts)["columns"]
    x = parts.train["I2"].drop_null().to_numpy()
    assert sum(columns["I2"]) == (x >= 0).sum() < len(x)
    assert columns["I2"][0] >= (x == 0).sum()
