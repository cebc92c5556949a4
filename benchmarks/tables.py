"""Tables with targets, losses and splits: one definition for every comparison of accuracy.

There are two groups in files: `familiar`, the twelve tables on which the first defaults were chosen, and `more`, which
had no part in that. `load(name, folder, seed, part)` returns a training table, a table to score, the target and the
loss. The part "test" is fixed for each table: the split of its source if it has one, else a fifth of the rows, drawn
with seed 42 (stratified by class in `more`). The part "holdout" is a fifth of the training part, drawn with `seed`;
settings are chosen there, never on a test part.

Columns that give the target away, number the rows or only spell out other columns are dropped. Prices, wages, births
and expenses are predicted on the log scale. Squared losses are reported as RMSE, the others as mean log-loss and mean
Poisson deviance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.model_selection import train_test_split

from splinefm.metrics import logloss, rmse

Part = Literal["holdout", "test"]
LossName = Literal["squared", "logistic", "poisson", "softmax"]
Numbers = npt.NDArray[np.float64]
PARTS: tuple[Part, ...] = ("holdout", "test")
SHARE, SEED = 0.2, 42  # of the test parts and holdouts; the paper's authors split in this way
BIRTHS = 60_000  # rows of a larger table


class Data(NamedTuple):
    """What a fit needs, and the rows that judge it."""

    train: pa.Table
    test: pa.Table
    target: str
    loss: LossName


@dataclass(frozen=True)
class Source:
    """A file and what is predicted from it.

    `value` makes numbers of the target; a text is the label that counts as 1. `drop` has columns that are left out,
    `names` columns whose integers are names and become text, `lists` columns of text with several values, separated by
    |, that become lists. `test` is a column and its value in the test part. `rows` are drawn from a larger table.
    """

    file: str
    target: str
    loss: LossName
    value: Callable[[Numbers], Numbers] | str | None = None
    drop: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    test: tuple[str, str] | None = None
    rows: int | None = None
    standardize: bool = False
    more: bool = False


FAMILIAR: dict[str, Source] = {
    "births": Source("birthdays", "births", "squared", np.log, rows=BIRTHS),
    # The date is left out to make position and persons count. What officers did afterwards stays, as in the source.
    "stops": Source("mpls_stops", "problem", "logistic", "traffic", drop=("date",), names=("policePrecinct",)),
    # Rows are hours in order: their number and date would lead to their neighbors in the training part.
    "bike": Source("bike_hour", "cnt", "poisson", drop=("instant", "dteday")),
    "diamonds": Source("diamonds", "price", "squared", np.log),
    "wages": Source("gss_wages", "realrinc", "squared", np.log),
    "medical": Source("rand_hie", "meddol", "squared", np.log1p, names=("plan", "site")),
    "movies": Source("movielens_small", "rating", "squared", names=("userId", "movieId"), lists=("genres",)),
    "california": Source("california_housing", "MedHouseVal", "squared", standardize=True),
    "adult": Source("adult", "income", "logistic", ">50K", drop=("split",)),
    "higgs": Source("higgs", "label", "logistic", test=("origin", "hs_test")),
    "criteo_45k": Source("criteo_45k", "Label", "logistic"),
    "criteo_8k": Source("criteo_head8k", "Label", "logistic", test=("split", "test")),
}

MORE_ROWS = 50_000


def _more(loss: LossName, *files: str) -> dict[str, Source]:
    """Return tables of the folder `more`, whose column `target` needs no work."""
    drop = {"amazon_access": ("split",), "blog_feedback": ("split",)}
    return {
        file: Source(
            f"more/{file}",
            "target",
            loss,
            drop=drop.get(file, ()),
            rows=MORE_ROWS,
            standardize=loss == "squared",
            more=True,
        )
        for file in files
    }


MORE: dict[str, Source] = {
    **_more("logistic", "amazon_access", "bank_marketing", "bio_kdd04", "compas", "electrical_grid", "electricity"),
    **_more("logistic", "heloc", "online_shoppers", "phoneme"),
    **_more("squared", "bank8FM", "blog_feedback", "cpu_act", "house_8L", "keggdirected", "kin8nm", "metro_traffic"),
    **_more("squared", "motor_pg15", "mv", "naval_propulsion", "parkinsons", "puma8NH", "seoul_bike", "wine_quality"),
    **_more("softmax", "letter", "pendigits"),
}
TABLES: dict[str, Source] = {**FAMILIAR, **MORE}


def load(name: str, folder: str | Path, seed: int = 0, part: Part = "holdout") -> Data:
    """Return a table of `TABLES`; `seed` draws the holdout and has no effect on the test part."""
    if name not in TABLES:
        raise ValueError(f"unknown table {name!r}; tables: {', '.join(TABLES)}")
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}")
    source = TABLES[name]
    table = sample_rows(source, pq.read_table(Path(folder) / f"{source.file}.parquet"))
    train, test = _split(source, table.num_rows, table)
    if part == "holdout":
        train, test = train_test_split(
            train, test_size=SHARE, random_state=seed, stratify=_classes(source, table, train)
        )
    table = choose_columns(source, table, train)
    return Data(table.take(train), table.take(test), source.target, source.loss)


def sample_rows(source: Source, table: pa.Table) -> pa.Table:
    """Return the table, or the same rows of it for every seed if it is larger than asked for."""
    if source.rows is None or source.rows >= table.num_rows:
        return table
    if source.more:
        rows = np.random.RandomState(1).choice(table.num_rows, source.rows, replace=False)  # as pandas draws a sample
    else:
        rows = np.random.default_rng(0).choice(table.num_rows, source.rows, replace=False)
    return table.take(np.sort(rows))


def _split(source: Source, rows: int, table: pa.Table) -> tuple[Any, Any]:
    if source.test is None:
        every = np.arange(rows)
        classes = _classes(source, table, every)
        first, second = train_test_split(every, test_size=SHARE, random_state=SEED, stratify=classes)
        return first, second
    column, value = source.test
    held_out = np.array(table[column].to_pylist()) == value
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _classes(source: Source, table: pa.Table, rows: Any) -> Any:
    """Return the classes of rows to stratify by, or None."""
    is_class = source.more and source.loss in ("logistic", "softmax")
    return np.array(table[source.target].to_pylist())[rows] if is_class else None


def choose_columns(source: Source, table: pa.Table, train: Any) -> pa.Table:
    """Return the columns that are learned from, and the target as a number; `train` has the training rows."""
    drop = [*source.drop, *([source.test[0]] if source.test else [])]
    table = table.drop_columns(drop)
    if source.loss != "softmax":
        y = _target(source, table[source.target])
        if source.standardize:
            y = (y - y[train].mean()) / y[train].std()
        table = _replace(table, source.target, pa.array(y))
    for name in source.names:
        table = _replace(table, name, table[name].cast(pa.string()))
    for name in source.lists:
        table = _replace(table, name, pa.array([text.split("|") for text in table[name].to_pylist()]))
    return table


def _target(source: Source, column: Any) -> Numbers:
    if isinstance(source.value, str):
        return np.array([float(str(label).strip().startswith(source.value)) for label in column.to_pylist()])
    y = column.to_numpy().astype(float)
    return y if source.value is None else source.value(y)


def _replace(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


# Scores


def poisson_deviance(y: npt.ArrayLike, rate: npt.ArrayLike) -> float:
    """Return the mean of 2 (y log(y / rate) - y + rate)."""
    target, mean = np.asarray(y, dtype=float), np.maximum(np.asarray(rate, dtype=float), 1e-9)
    ratio = np.where(target > 0, target, mean) / mean
    return float(2.0 * np.mean(target * np.log(ratio) - target + mean))


def class_logloss(y: npt.ArrayLike, probability: npt.ArrayLike) -> float:
    """Return the mean of -log p of the right class; columns are the classes in sorted order."""
    p, classes = np.asarray(probability, dtype=float), np.asarray(y, dtype=str)
    found = p[np.arange(len(p)), np.searchsorted(np.unique(classes), classes)]
    return float(-np.mean(np.log(np.clip(found, 1e-15, None))))


METRICS: dict[LossName, Callable[[Any, Any], float]] = {
    "squared": rmse,
    "logistic": logloss,
    "poisson": poisson_deviance,
    "softmax": class_logloss,
}
METRIC_NAMES: dict[LossName, str] = {
    "squared": "RMSE",
    "logistic": "log-loss",
    "poisson": "Poisson deviance",
    "softmax": "log-loss",
}
