"""The four tabular data sets: read from a folder of Parquet files, or downloaded once into such a folder.

    python -m paper.tabular.data [--out DIR] [NAME ...]

downloads California housing (StatLib), Adult and Song year (UCI) and Higgs (OpenML) and writes a Parquet file for each.
"""

from __future__ import annotations

import argparse
import io
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv
from sklearn.model_selection import train_test_split

from paper.harness import CACHE

UCI = "https://archive.ics.uci.edu/static/public"
ADULT_COLUMNS = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"]
ADULT_COLUMNS += ["relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"]
ADULT_COLUMNS += ["income"]
HIGGS_COLUMNS = ["label", "lepton_pT", "lepton_eta", "lepton_phi", "missing_energy_magnitude", "missing_energy_phi"]
HIGGS_COLUMNS += [f"jet_{jet}_{what}" for jet in (1, 2, 3, 4) for what in ("pt", "eta", "phi", "btag")]
HIGGS_COLUMNS += ["m_jj", "m_jjj", "m_lv", "m_jlv", "m_bb", "m_wbb", "m_wwbb"]
SONG_COLUMNS = ["year", *(f"timbre_{i}" for i in range(90))]


class NotAvailable(FileNotFoundError):
    """A data set that is neither in the folder nor can be downloaded."""


@dataclass(frozen=True)
class About:
    """Facts about a data set.

    Parameters
    ----------
    title, file : str
        Its name for readers, and that of its Parquet file.
    target : str
        The column to predict.
    task : {"regression", "classification"}
        What is reported: standardized RMSE, or cross-entropy.
    rows : int
        Rows of the whole set.
    train_rows : int
        Training rows of the paper.
    zeros : tuple of str
        Columns in which 0 means "none": every arm that does not see that by itself gets a parameter for it.
    """

    title: str
    file: str
    target: str
    task: Literal["regression", "classification"]
    rows: int
    train_rows: int
    zeros: tuple[str, ...] = ()


SETS = {
    "california": About(
        "California housing", "california_housing.parquet", "MedHouseVal", "regression", 20_640, 16_512
    ),
    "adult": About(
        "Adult", "adult.parquet", "income", "classification", 48_842, 39_073, ("capital-gain", "capital-loss")
    ),
    "higgs": About("Higgs", "higgs.parquet", "label", "classification", 98_049, 78_439),
    "song": About("Song year", "song_year.parquet", "year", "regression", 515_345, 370_972),
}


@dataclass(frozen=True)
class DataSet:
    """A data set, split as in the paper, with a numerical target (0 or 1 for labels)."""

    name: str
    train: pa.Table
    test: pa.Table

    @property
    def about(self) -> About:
        """Facts about it."""
        return SETS[self.name]


def find(name: str, folder: Path | None) -> Path | None:
    """Return the file of a data set, None if the folder lacks it; without a folder, download it first."""
    path = (folder or CACHE) / SETS[name].file
    if path.exists():
        return path
    return None if folder is not None else download(name, CACHE)


def load(name: str, folder: Path | None, rows: int = 0) -> DataSet:
    """Read a data set and split it as the authors did; `rows` above 0 limits each part."""
    path = find(name, folder)
    if path is None:
        raise NotAvailable(
            f"{folder} has no {SETS[name].file} ({SETS[name].title}); where there is a network, "
            f"`python -m paper.tabular.data {name} --out {folder}` gets it"
        )
    train, test = cut(name, pq.read_table(path))
    if rows:
        train, test = train.slice(0, rows), test.slice(0, rows)
    return DataSet(name, train, test)


def cut(name: str, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return training and test part: a random fifth, as in the authors' code, unless the file has a split."""
    about = SETS[name]
    if about.target not in table.column_names:
        raise ValueError(
            f"{about.file} has no column {about.target!r}; it has {', '.join(table.column_names)}. "
            f"`python -m paper.tabular.data {name} --out DIR` writes a file as it should be"
        )
    if name == "adult":
        table = _as_numbers(table.drop_columns(["split"]) if "split" in table.column_names else table)
    if name == "song":
        table = table.slice(0, 463_715)  # the authors use the official training part only
    if "origin" in table.column_names:  # Higgs, part of it: the rows of the authors' test part are known
        tested = pc.equal(table["origin"], "hs_test")
        table = table.drop_columns(["origin"])
        return table.filter(pc.invert(tested)), table.filter(tested)
    train, test = train_test_split(np.arange(table.num_rows), test_size=0.2, random_state=42)
    return table.take(train), table.take(test)


def _as_numbers(adult: pa.Table) -> pa.Table:
    rich = pc.starts_with(adult["income"], pattern=">50K").cast(pa.float64())
    return adult.set_column(adult.column_names.index("income"), "income", rich)


def download(name: str, folder: Path) -> Path:
    """Download a data set from its publisher and write its Parquet file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SETS[name].file
    try:
        table = _DOWNLOADS[name](folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise NotAvailable(
            f"cannot download {SETS[name].title} ({error}); pass --data DIR with {SETS[name].file} in it, "
            f"written by `python -m paper.tabular.data {name} --out DIR` on a machine with a network"
        ) from error
    if table.num_rows != SETS[name].rows:
        raise ValueError(
            f"{SETS[name].title} should have {SETS[name].rows:,} rows, the download has {table.num_rows:,}; "
            "the source has changed, or the download was cut off"
        )
    partial = path.with_suffix(".partial")
    pq.write_table(table, partial)
    partial.replace(path)
    return path


def _california(folder: Path) -> pa.Table:
    from sklearn.datasets import fetch_california_housing

    # scikit-learn checks the digest of what it gets.
    return pa.Table.from_pandas(fetch_california_housing(data_home=folder, as_frame=True).frame, preserve_index=False)


def _adult(folder: Path) -> pa.Table:
    archive = _get(f"{UCI}/2/adult.zip")
    return pa.concat_tables([read_adult(archive.read(f"adult.{part}"), part) for part in ("data", "test")])


def read_adult(text: bytes, part: str) -> pa.Table:
    """Read one of the two files of Adult; the second starts with a line of text and has dots after labels."""
    lines = [line.strip().rstrip(b".") for line in text.splitlines() if line.count(b",") == len(ADULT_COLUMNS) - 1]
    table = csv.read_csv(
        io.BytesIO(b"\n".join(lines).replace(b", ", b",")),
        csv.ReadOptions(column_names=ADULT_COLUMNS),
        convert_options=csv.ConvertOptions(null_values=["?"], strings_can_be_null=True),
    )
    kind = pa.array(["train" if part == "data" else "test"] * table.num_rows)
    return table.append_column("split", kind)


def _higgs(folder: Path) -> pa.Table:
    from sklearn.datasets import fetch_openml

    frame = fetch_openml(data_id=23_512, data_home=folder, as_frame=True, parser="auto").frame.dropna()
    return pa.table({name: frame.iloc[:, i].astype(float).to_numpy() for i, name in enumerate(HIGGS_COLUMNS)})


def _song(folder: Path) -> pa.Table:
    text = _get(f"{UCI}/203/yearpredictionmsd.zip").read("YearPredictionMSD.txt")
    return csv.read_csv(io.BytesIO(text), csv.ReadOptions(column_names=SONG_COLUMNS))


def _get(address: str) -> zipfile.ZipFile:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return zipfile.ZipFile(io.BytesIO(answer.read()))


_DOWNLOADS: dict[str, Callable[[Path], pa.Table]] = {
    "california": _california,
    "adult": _adult,
    "higgs": _higgs,
    "song": _song,
}


def main() -> None:
    """Download some of the sets, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SETS)} (default: all)")
    parser.add_argument("--out", type=Path, default=CACHE, help="folder for the Parquet files")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SETS]
    if unknown:
        parser.error(f"there is no data set {', '.join(unknown)}; there are {', '.join(SETS)}")
    for name in options.names or SETS:
        print(download(name, options.out))


if __name__ == "__main__":
    main()
