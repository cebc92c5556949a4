"""The inputs of estimators: tables of any kind, targets and weights as arrays, labels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from splinefm._arrays import FloatArray
from splinefm.encode.schema import Schema
from splinefm.encode.slots import Slots
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.train.offsets import Offset, OffsetKind
from splinefm.train.rows import LabeledTable
from splinefm.train.targets import MAX_CLASSES, SHOWN, Classes, Label, refuse_infinite

Labels = npt.NDArray[Any]
# An open table, encoded rows, or paths of files.
TableInput = Table | Slots | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def read_table(X: object, min_rows: int = 1) -> tuple[TableInput, bool]:
    """Return X as a table, and whether its columns have names; paths and slots are returned as they are."""
    if isinstance(X, Slots) or _is_path(X):
        return X, True  # type: ignore[return-value]  # _is_path has looked
    if _is_array(X):
        # As a plain array, a list of rows with numbers and text would become text.
        array = np.array(X, dtype=object) if isinstance(X, list | tuple) else X
        return open_table(check_array(array, dtype=None, ensure_all_finite=False, ensure_min_samples=min_rows)), False
    table = open_table(X)
    if column_labels(X) is not None:
        return rename_columns(table, positional_names(len(table.names))), False
    return table, True


def column_labels(X: object) -> list[object] | None:
    """Return the labels of a pandas table whose columns have no text as names; None for other tables."""
    if not type(X).__module__.startswith("pandas") or not hasattr(X, "columns"):
        return None
    labels = list(X.columns)
    return None if any(isinstance(label, str) for label in labels) else labels


def match_labels(names: list[str], known: list[object] | None, X: object) -> list[str]:
    """Return the names of the columns of X in its order, by the labels that the columns had in the fit.

    `names` are those that the fit has given to columns without text as names; without labels, positions count.
    """
    given = column_labels(X)
    if known is None or given is None or given == known:
        return names
    if set(given) == set(known):
        return [names[known.index(label)] for label in given]
    if known == list(range(len(known))):  # what pandas calls columns that have no names
        return names
    shown = ", ".join(map(repr, given[:SHOWN])), ", ".join(map(repr, known[:SHOWN]))
    raise ValueError(
        f"the columns of X are labeled {shown[0]}, but in the fit {shown[1]}; select these columns, or pass "
        "X.to_numpy() to match by position"
    )


def positional_names(n: int) -> list[str]:
    """Return the names of n columns that have none."""
    return [f"x{i}" for i in range(n)]


def rename_columns(table: Table, names: list[str]) -> Table:
    """Return a table in memory with other column names."""
    return open_table(_all_rows(table).rename_columns(names))


def _is_path(X: object) -> bool:
    paths = X if isinstance(X, list | tuple) else [X]
    return bool(paths) and all(isinstance(path, str | os.PathLike) for path in paths)


def _is_array(X: object) -> bool:
    # A Series is not a table, which opening it says; without this, a Series of pandas before 3.0 looks like an array.
    arrow = hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__") or type(X).__name__ == "Series"
    return issparse(X) or isinstance(X, np.ndarray | list | tuple) or (hasattr(X, "__array__") and not arrow)


def _all_rows(table: Table) -> pa.Table:
    return pa.Table.from_batches(list(table.chunks()), table.schema)


class GivenOffset(NamedTuple):
    """What a user gave as `offset` or `exposure`: an array, or the name of a column of X."""

    kind: OffsetKind
    values: object

    @staticmethod
    def of(offset: object, exposure: object) -> GivenOffset | None:
        """Return what is given; at most one of the two can be."""
        if offset is not None and exposure is not None:
            raise ValueError(
                "offset and exposure are both given; add the logarithm of the exposure to the offset, and pass the sum"
            )
        if exposure is not None:
            return GivenOffset("exposure", exposure)
        return None if offset is None else GivenOffset("offset", offset)

    def attach(self, table: TableInput, column: str | None = None) -> tuple[TableInput, Offset]:
        """Return the table with the values as a column, by default under an unused name, and the offset."""
        if isinstance(self.values, str) and column in (None, self.values):
            return table, Offset(self.values, self.kind)
        if not isinstance(table, Table) or table.n_rows is None:
            raise ValueError(
                f'{self.kind} as an array requires a table in memory; for files, name the column: {self.kind}="..."'
            )
        if isinstance(self.values, str):
            if self.values not in table.names:
                raise ValueError(missing_column_message(self.values, table.names))
            values = _all_rows(table)[self.values]
        else:
            values = pa.array(self._numbers(table.n_rows))
        name = column or _unused_name(self.kind, set(table.names))
        whole = _all_rows(table)
        kept = whole.drop_columns([name]) if name in whole.column_names else whole
        return open_table(kept.append_column(name, values)), Offset(name, self.kind)

    def _numbers(self, n_rows: int) -> FloatArray:
        given = np.full(n_rows, self.values) if isinstance(self.values, Real) else self.values
        values = check_array(
            given,
            ensure_2d=False,
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=0,
            input_name=self.kind,
        )
        if values.shape != (n_rows,):
            raise ValueError(
                f"{self.kind} must be the name of a column of X or have one number per row, shape ({n_rows},); got "
                f"shape {values.shape}"
            )
        return np.asarray(values)


def attach_target(
    table: TableInput, y: pa.Array, sample_weight: object, schema: Schema | None, offset: Offset | None = None
) -> LabeledTable:
    """Return a table in memory with y and the weights as columns, under unused names.

    The columns of the schema are checked first, so that a message lists only the columns of the user.
    """
    if not isinstance(table, Table) or table.n_rows is None:
        raise ValueError('y requires a table in memory; for files and datasets, name the target column: target="..."')
    if schema is not None:
        schema.check_columns(table.names)
    taken = set(table.names)
    weight_name = None if sample_weight is None else _unused_name("sample_weight", taken)
    name = _unused_name("y", taken)
    attached = attach_columns(table, name, weight_name, y, sample_weight)
    return replace(LabeledTable.of(attached, name, weight_name, schema, offset), has_read_classes=True)


def warn_of_answer(table: TableInput, y: object) -> None:
    """Warn if y is a column of the table: the model is given the answer."""
    name = getattr(y, "name", None)
    if not (isinstance(table, Table) and isinstance(name, str) and name in table.names):
        return
    if np.array_equal(_all_rows(table)[name].to_numpy(), np.asarray(y)):
        warnings.warn(
            f"y is the column {name!r} of X: the model is given the answer; leave it out of X, or pass "
            f"target={name!r} instead of y",
            stacklevel=5,
        )


def attach_columns(table: Table, target: str, weight_name: str | None, y: pa.Array, sample_weight: object) -> Table:
    """Return a table in memory with a target column, and a weight column if it has a name."""
    if len(y) != table.n_rows:
        raise ValueError(f"X has {table.n_rows} rows, but y has {len(y)}")
    whole = _all_rows(table).append_column(target, y)
    if weight_name is None:
        return open_table(whole)
    return open_table(whole.append_column(weight_name, pa.array(_check_weights(sample_weight, len(y)))))


def _check_weights(sample_weight: object, n_rows: int) -> FloatArray:
    if isinstance(sample_weight, str):
        raise ValueError(
            f"sample_weight={sample_weight!r} names a column, which requires target=...; with y, pass an array"
        )
    weight = np.full(n_rows, sample_weight) if isinstance(sample_weight, Real) else sample_weight
    weight = check_array(weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weight.shape != (n_rows,):
        raise ValueError(f"sample_weight must have one number per row, shape ({n_rows},); got shape {weight.shape}")
    if not weight.any():
        raise ValueError("all sample weights are zero; at least one row must have a positive weight")
    return np.asarray(weight)


def name_target(
    table: TableInput, target: str, sample_weight: object, schema: Schema | None, offset: Offset | None = None
) -> LabeledTable:
    """Return a table, opened, that contains its target and weights."""
    if sample_weight is not None and not isinstance(sample_weight, str):
        raise ValueError("with target=..., the weights are a column of the table: pass its name as sample_weight")
    return LabeledTable.of(open_table(table), target, sample_weight, schema, offset)


def _unused_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def read_labels(y: object) -> Labels:
    """Return labels in one dimension; scikit-learn reports numbers that are not labels."""
    if type(y).__module__.startswith("pandas") and getattr(y, "ndim", 1) == 1:
        y = y.to_numpy()  # type: ignore[attr-defined]  # otherwise nullable booleans would become numbers
    labels = np.asarray(column_or_1d(y, warn=True))
    try:
        missing = pa.array(labels, from_pandas=True).null_count
    except (pa.ArrowException, TypeError):
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise ValueError(f"the labels in y must have one type, got {', '.join(kinds)}") from None
    refuse_missing(missing, len(labels), "labels")
    if labels.dtype.kind in ("f", "O"):
        refuse_infinite((labels[np.isinf(labels)] if labels.dtype.kind == "f" else labels).tolist(), "y")
    check_classification_targets(labels)
    return labels


def refuse_missing(missing: int, n: int, what: str) -> None:
    """Raise an error if some targets are missing."""
    if missing:
        raise ValueError(f"Input y contains NaN: {missing:,} of {n:,} {what} are missing; drop those rows")


def distinct_classes(labels: Labels) -> Labels:
    """Return the distinct labels, sorted; there must be at least two."""
    return check_classes(np.unique(labels))


def check_classes(classes: Labels) -> Labels:
    """Return distinct labels; raise unless they are at least two and not too many."""
    refuse_infinite(classes.tolist(), "y")
    if len(classes) < 2:
        found = f"only one class, {classes.tolist()[0]!r}" if len(classes) else "no classes"
        raise ValueError(f"y has {found}; a classifier needs rows of two classes")
    if len(classes) > MAX_CLASSES:
        raise ValueError(
            f"y has {len(classes):,} classes, such as {quoted(classes.tolist(), 5)}; a classifier takes at most "
            f"{MAX_CLASSES:,}; for numbers, use SplineFMRegressor"
        )
    return classes


def fitted_labels(classes: Labels) -> Classes | None:
    """Return the classes as a `Fitted` keeps them: None for 0 and 1, which are numbers to learn as they are."""
    labels = tuple(classes.tolist())
    known = isinstance(labels[0], Label) and not (isinstance(labels[1], int | float) and labels == (0, 1))
    return labels if known or isinstance(labels[0], bool) else None


def check_one_target(estimator: object, y: object, target: str | None) -> None:
    """Raise an error unless exactly one of y and target is given."""
    if y is None and target is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None; "
            'or name a column of the table: target="..."'
        )
    if y is not None and target is not None:
        raise ValueError(f"y and target={target!r} are both given; pass one of them")
    if isinstance(y, str):
        raise ValueError(f"y={y!r} is text and no array; to name a column of the table, write target={y!r}")
