"""What both estimators share: parameters, fitting, files and importances."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.utils.validation import check_is_fitted

from splinefm.encode.inference import infer_schema
from splinefm.encode.schema import Schema
from splinefm.encode.slots import Slots
from splinefm.encode.tables.table import Table
from splinefm.learn.arguments import check_model, check_optional_schema
from splinefm.learn.estimators.importances import column_importances, columns_of
from splinefm.learn.estimators.inputs import (
    LabeledTable,
    Labels,
    TableInput,
    attach_columns,
    attach_target,
    check_one_target,
    column_labels,
    match_labels,
    name_target,
    positional_names,
    read_table,
    rename_columns,
    warn_of_answer,
)
from splinefm.learn.estimators.parameters import SplineFMParameters, settings_of
from splinefm.learn.files.modelfile import load
from splinefm.learn.fitted import Fitted
from splinefm.learn.fitting import FitResult, Task, check_callbacks, fit_task, open_validation
from splinefm.learn.losses import Loss
from splinefm.learn.progress import make_progress
from splinefm.learn.search.resolutions import with_bases
from splinefm.learn.targets.labels import ClassWeight
from splinefm.learn.training import Epoch
from splinefm.learn.updates.learner import Learner
from splinefm.model.family import member_model

FloatArray = npt.NDArray[np.float64]
MOST_ROWS = 1000
"""Rows that an estimator keeps for `feature_importances_`."""
_NOT_PICKLED = ("_learner", "_importances")


class SplineFMBase(SplineFMParameters):
    """The base class of both estimators."""

    fitted_: Fitted
    schema_: Schema
    history_: list[Epoch]
    n_features_in_: int
    feature_names_in_: npt.NDArray[np.object_]
    _learner: Learner | None
    _rows: Slots | pa.Table
    _sibling: str

    def fit(
        self,
        X: object,
        y: object = None,
        sample_weight: object = None,
        *,
        target: str | None = None,
        eval_set: object = None,
        callbacks: object = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table, path or dataset
            A pandas or polars DataFrame, an Arrow table, a dict of arrays or a 2-D array. With `target`, also the
            path of Parquet or CSV files, a folder, a glob or a pyarrow dataset, which are read in chunks.
        y : array of shape (n_rows,)
            For a classifier, labels of any type. For a regressor, numbers; with the Poisson and Tweedie losses, at
            least 0; with the gamma loss, above 0.
        sample_weight : array of shape (n_rows,), or str
            A weight for each row; with `target`, the name of a column.
        target : str, optional
            The column of X to predict, instead of y. For a classifier, it holds labels or shares between 0 and 1.
        eval_set : tuple or table, optional
            The rows that choose the best epoch, instead of a share of X: `(X, y)` or `(X, y, sample_weight)`. With
            `target`, a table, path or dataset that contains the target and weight columns.
        callbacks : list of callable, optional
            Functions that are called with an `sf.Epoch` after every epoch of a run on all rows. If one returns True,
            the fit stops: the best epoch so far becomes the model, and no further run begins.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C, so that cross-validation and other loops of fits stop. The estimator is fitted nevertheless:
            it has the best model so far, if there is a complete epoch, and the message says which one.
        """
        return self._fit(X, y, sample_weight, target, eval_set, callbacks)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that contains no code; `load` and `sf.load` read it.

        Parameters
        ----------
        path : path
            The file, usually with the suffix ".sfm".
        """
        check_is_fitted(self, "fitted_")
        self.fitted_.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False) -> Self:
        """Return an estimator with the model of a file, ready for `predict` and `partial_fit`.

        The file can come from `save`, `sf.Fitted.save` or the command line. The estimator gets the parameters that the
        model was trained with, except the schema: `schema_` has the fields, but another `fit` would infer them again.

        Parameters
        ----------
        path : path
            A model file.
        mmap : bool
            Map large arrays into memory instead of reading them; see `sf.load`.

        Raises
        ------
        ValueError
            If a regressor is asked to load a model of labels, or a classifier a model of numbers.
        """
        fitted = load(path, mmap=mmap)
        if not cls._predicts(fitted.loss):
            raise ValueError(
                f"{str(path)!r} holds a model with the {fitted.loss.name} loss, which {cls.__name__} cannot load; "
                f"use sf.{cls._sibling}.load"
            )
        model = member_model(fitted.model, fitted.training.members or 1)
        estimator = cls(model, **settings_of(fitted), **cls._settings_of_loss(fitted.loss))
        estimator._set_loaded(fitted)
        return estimator

    @property
    def feature_importances_(self) -> FloatArray:
        """How much each column moves the score, as shares; see the attributes of the class."""
        check_is_fitted(self, "fitted_")
        known = getattr(self, "_importances", None)
        if known is None or known[0] is not self.fitted_:
            known = self._importances = (self.fitted_, self._find_importances())
        return known[1].copy()

    def __getstate__(self) -> dict[str, Any]:
        # A learner has threads and a workspace; the next `partial_fit` creates another one from `fitted_`.
        return {name: value for name, value in super().__getstate__().items() if name not in _NOT_PICKLED}

    # What differs between a classifier and a regressor

    @staticmethod
    def _predicts(loss: Loss) -> bool:
        """Return whether this estimator is for models of a loss."""
        raise NotImplementedError

    @staticmethod
    def _settings_of_loss(loss: Loss) -> dict[str, Any]:
        """Return the parameters of this estimator that a loss determines."""
        raise NotImplementedError

    def _loss(self) -> Loss:
        """Return the loss to minimize."""
        raise NotImplementedError

    def _with_classes(self, task: Task, classes: Labels | None, in_column: bool) -> Task:
        """Return the task with the loss and the labels for the classes of y, or of the target column."""
        return task

    def _numbers(self, y: object, classes: Labels | None) -> FloatArray:
        """Return a target in memory as the numbers to learn."""
        raise NotImplementedError

    def _column(self, numbers: FloatArray) -> pa.Array:
        """Return numbers in the form that `fitted_` expects of its target."""
        return pa.array(numbers)

    def _find_classes(self, y: object) -> Labels | None:
        """Return the classes of a target in memory; None for numbers."""
        return None

    def _set_classes(self, classes: Labels | None) -> None:
        """Set `classes_`, given the classes of y or None if the target is a column."""

    def _class_weight(self, classes: Labels | None) -> ClassWeight:
        """Return the class weights by the labels of the target that is learned."""
        return None

    # Fitting

    def _fit(
        self,
        X: object,
        y: object,
        sample_weight: object,
        target: str | None,
        eval_set: object = None,
        callbacks: object = None,
        classes: Labels | None = None,
    ) -> Self:
        left = self._learn(X, y, sample_weight, target, eval_set, callbacks, classes)
        if left:  # only now: whoever stops a loop of fits can still use the model
            raise KeyboardInterrupt(left)
        return self

    def _learn(
        self,
        X: object,
        y: object,
        sample_weight: object,
        target: str | None,
        eval_set: object = None,
        callbacks: object = None,
        classes: Labels | None = None,
    ) -> str:
        """Fit the model; return what Ctrl-C has left, if the user stops."""
        check_one_target(self, y, target)
        called = check_callbacks(callbacks)
        if classes is None and target is None:
            classes = self._find_classes(y)
        task = self._task(X, y, sample_weight, target, eval_set, classes)
        with make_progress(bool(self.verbose)) as progress:
            return self._take(fit_task(task, self.model, called, progress), classes)

    def _take(self, result: FitResult, classes: Labels | None) -> str:
        """Become the estimator of a fit; return what Ctrl-C has left."""
        self.fitted_, chunks, left = result
        self._rows = chunks.sample(MOST_ROWS)
        self.schema_ = with_bases(chunks.source.schema, self.fitted_.encoder)
        self.history_, self._learner = list(self.fitted_.history), None
        self._set_classes(classes)
        return f"{left}: the estimator is fitted" if left else ""

    def _task(
        self,
        X: object,
        y: object,
        sample_weight: object,
        target: str | None,
        eval_set: object,
        classes: Labels | None,
    ) -> Task:
        """Check the settings, open the tables and remember their columns."""
        training, loss = self._training(), self._loss()
        check_model(self.model)
        check_optional_schema(self.schema)
        table, named = read_table(X)
        if isinstance(table, Table) and table.n_rows == 1:
            raise ValueError("X has 1 sample; fitting a model requires at least 2")
        if target is None:
            if self.schema is None:
                warn_of_answer(table, y)
            rows = attach_target(table, pa.array(self._numbers(y, classes)), sample_weight, self.schema)
        else:
            rows = name_target(table, target, sample_weight)
        self._set_columns(rows, named or target is not None)
        self._labels = column_labels(X)
        schema = self.schema or infer_schema(rows.table, target=rows.target).without(rows.sample_weight)
        validation = self._open_validation(rows, schema, target, eval_set, classes)
        task = Task(
            *rows, schema, loss, validation, training, self._class_weight(None if target is not None else classes)
        )
        return self._with_classes(task, classes, target is not None)

    def _update(self, X: object, y: object, sample_weight: object, target: str | None) -> Self:
        """Train for one pass over new rows."""
        table = self._read_as_fitted(X)
        if target is None:
            column = self._column(self._numbers(y, getattr(self, "classes_", None)))
            rows = attach_target(table, column, sample_weight, self.fitted_.encoder.schema)
        else:
            rows = name_target(table, target, sample_weight)
        training = replace(self.fitted_.training, engine=self.engine, device=self.device)
        learner = getattr(self, "_learner", None) or Learner(self.fitted_, training)
        self._learner = None  # a failed update leaves the learner in an undefined state, but not `fitted_`
        learner.update(rows.table, rows.target, sample_weight=rows.sample_weight)
        self.history_ = list(learner.history)
        self.fitted_, self._learner = learner.fitted(), learner
        return self

    def _open_validation(
        self, rows: LabeledTable, schema: Schema, target: str | None, eval_set: object, classes: Labels | None
    ) -> float | Table:
        """Return the share of rows, or the table of `eval_set`."""
        share: Any = self.validation
        if isinstance(share, bool) or not isinstance(share, Real):
            raise ValueError(
                f"validation must be a share of the rows, such as 0.1, got {type(share).__name__}; "
                "pass a table to fit: fit(X, y, eval_set=(X_other, y_other))"
            )
        if eval_set is None:
            return float(share)
        if target is not None:
            return open_validation(eval_set)
        given: Any = eval_set
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise ValueError(
                f"with fit(X, y), eval_set must be (X, y) or (X, y, sample_weight), got {type(given).__name__}; "
                "a table that contains its target requires fit(table, target=...)"
            )
        if len(given) == 3 and rows.sample_weight is None:
            raise ValueError("eval_set has sample weights but fit has none; pass sample_weight to fit as well")
        table = self._read_as_fitted(given[0])
        if not isinstance(table, Table) or table.n_rows is None:
            raise ValueError("eval_set=(X, y) requires a table in memory as X")
        schema.check_columns(table.names)
        weight = given[2] if len(given) == 3 else np.ones(table.n_rows)
        return attach_columns(table, rows, pa.array(self._numbers(given[1], classes)), weight)

    # Columns

    def _set_columns(self, rows: LabeledTable, named: bool) -> None:
        """Set n_features_in_, and feature_names_in_ if the columns have names."""
        names = [name for name in rows.table.names if name not in (rows.target, rows.sample_weight)]
        self.n_features_in_ = len(names)
        if named:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _read_as_fitted(self, X: object) -> TableInput:
        """Return X as a table with the column names of the fit; those without are matched by label or position."""
        table, named = read_table(X, min_rows=0)
        known = getattr(self, "feature_names_in_", None)
        if not isinstance(table, Table) or (named and known is not None):
            return table
        names = positional_names(self.n_features_in_) if known is None else known.tolist()
        if named and set(names) <= set(table.names):
            return table
        name = type(self).__name__
        if known is None and not named and len(table.names) > len(names) and not hasattr(self, "_rows"):
            # A file knows the columns up to the last one that a field reads: there may have been more of them.
            warnings.warn(
                f"X has {len(table.names)} columns, and the loaded {name} reads none after the first {len(names)}: "
                "make sure that they are those of the fit, in the same order",
                stacklevel=4,
            )
            return rename_columns(table, positional_names(len(table.names)))
        if len(table.names) != len(names):
            raise ValueError(
                f"X has {len(table.names)} features, but {name} is expecting {len(names)} features as input."
            )
        if named:
            warnings.warn(f"X has feature names, but {name} was fitted without feature names", stacklevel=4)
        elif known is not None:
            warnings.warn(
                f"X does not have valid feature names, but {name} was fitted with feature names", stacklevel=4
            )
        else:
            names = match_labels(names, getattr(self, "_labels", None), X)
        return rename_columns(table, names)

    def _scores(self, X: object) -> npt.NDArray[np.float32]:
        check_is_fitted(self, "fitted_")
        return self.fitted_.scores(self._read_as_fitted(X), threads=self._threads())

    def _predict(self, X: object) -> FloatArray:
        check_is_fitted(self, "fitted_")
        return self.fitted_.predict(self._read_as_fitted(X), threads=self._threads())

    # Files and importances

    def _set_loaded(self, fitted: Fitted) -> None:
        """Set the attributes of a model from a file, which knows only the columns of its fields."""
        self.fitted_, self.schema_ = fitted, fitted.encoder.schema
        self.history_, self._learner = list(fitted.history), None
        names = list(dict.fromkeys(columns_of(fitted)))
        positions = [int(name[1:]) for name in names if re.fullmatch(r"x(0|[1-9]\d*)", name)]
        if len(positions) == len(names):  # the columns of an array
            self.n_features_in_ = max(positions) + 1
        else:
            self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        self._set_classes(None)

    def _find_importances(self) -> FloatArray:
        rows = getattr(self, "_rows", None)
        if rows is None:
            raise AttributeError(
                "feature_importances_ needs rows of the training table, and a model file contains none; "
                "use sf.importance(estimator.fitted_, table)"
            )
        names = getattr(self, "feature_names_in_", positional_names(self.n_features_in_))
        return column_importances(self.fitted_, rows, list(names), self._threads())
