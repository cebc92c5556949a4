"""The models as scikit-learn estimators: SplineFMClassifier and SplineFMRegressor."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from splinefm._arrays import Float32Array, FloatArray
from splinefm.encode.schema import Schema
from splinefm.encode.slots import Slots
from splinefm.encode.tables.names import quoted
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.fit.fitting import FitResult, Task, check_callbacks, fit_task, open_validation
from splinefm.fit.inputs import (
    GivenOffset,
    Labels,
    TableInput,
    attach_columns,
    attach_target,
    check_classes,
    check_one_target,
    column_labels,
    distinct_classes,
    fitted_labels,
    match_labels,
    name_target,
    positional_names,
    read_labels,
    read_table,
    refuse_missing,
    rename_columns,
    warn_of_answer,
)
from splinefm.fit.parameters import (
    EstimatorSettings,
    SplineFMParameters,
    interactions_of,
    settings_of,
    shapes_of,
    shared_parameters,
)
from splinefm.model.family import AnyModel
from splinefm.model.family.parameters import member_model
from splinefm.store.model_file import load
from splinefm.train.fitted import Fitted
from splinefm.train.losses import LOSSES, Loss, as_loss, log_softmax
from splinefm.train.offsets import Offset
from splinefm.train.progress import make_progress
from splinefm.train.results import Epoch, StopReason
from splinefm.train.rows import LabeledTable
from splinefm.train.settings import check_model, check_optional_schema
from splinefm.train.targets import MAX_CLASSES, ClassWeight, class_weights, is_missing, warn_of_spellings
from splinefm.update.learner import Learner

# Importances of columns from the encoded rows that an estimator keeps.


def columns_of(fitted: Fitted) -> list[str]:
    """Return the columns that each field reads, one after the other; several fields can read the same column."""
    return [column for item in fitted.encoder.fields for column in item.columns]


def column_importances(fitted: Fitted, rows: Slots | pa.Table, names: Sequence[str], threads: int | None) -> FloatArray:
    """Return how much each column moves the scores: mean absolute Shapley values, divided by their sum."""
    # An import against the order of the folders: see `Fitted.segment`.
    from splinefm.inspect.shapley import shapley_values
    from splinefm.inspect.terms import has_closed_form

    if not has_closed_form(fitted):
        raise AttributeError(
            f"feature_importances_ is not available for {fitted.model}; use sf.partial_dependence, or a model of "
            "order 2 or 3"
        )
    if isinstance(rows, Slots):
        rows = rows.grown(fitted.encoder.layout)
    each = [fitted] if fitted.n_outputs == 1 else [fitted.for_class(label) for label in fitted.classes or ()]
    found = [np.abs(shapley_values(one, rows, rows, threads=threads).values).mean(axis=0) for one in each]
    values = np.sum(found, axis=0)
    shares = dict.fromkeys(names, 0.0)
    crosses = fitted.encoder.schema.crosses
    for column, value in zip(fitted.encoder.schema.columns if crosses else columns_of(fitted), values, strict=True):
        shares[column] += value
    total = sum(shares.values())
    return np.array(list(shares.values())) / (total if total > 0.0 else 1.0)


# What both estimators share: parameters, fitting, files and importances.

MAX_ROWS = 1000
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
    _attached: Offset | None
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
        offset: object = None,
        exposure: object = None,
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
            `target`, a table, path or dataset that contains the target and weight columns. If the offset or exposure
            is an array, that of these rows comes last: `(X, y, sample_weight, exposure)`, where the weights may be
            None.
        callbacks : list of callable, optional
            Functions that are called with an `sf.Epoch` after every epoch of a run on all rows. If one returns True,
            the fit stops: the best epoch so far becomes the model, and no further run begins.
        offset : array of shape (n_rows,), or str
            What is added to the score of every row, or the column of X that has it; see `sf.fit_model`. Predictions
            need it, too: as an argument if it is an array, otherwise as a column.
        exposure : array of shape (n_rows,), or str
            For the Poisson, gamma and Tweedie losses, instead of an offset: positive numbers whose logarithms are
            added to the score.

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
        given = GivenOffset.of(offset, exposure)
        return self._fit(X, y, sample_weight, target, eval_set, callbacks, offset=given)

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

    def _read_target(self, y: object, classes: Labels | None) -> tuple[FloatArray, Labels | None]:
        """Return a target in memory as the numbers to learn, and the classes, which are found if they are not given."""
        raise NotImplementedError

    def _column(self, numbers: FloatArray) -> pa.Array:
        """Return numbers in the form that `fitted_` expects of its target."""
        return pa.array(numbers)

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
        offset: GivenOffset | None = None,
    ) -> Self:
        check_one_target(self, y, target)
        called = check_callbacks(callbacks)
        task, classes = self._task(X, y, sample_weight, target, eval_set, classes, offset)
        with make_progress(bool(self.verbose)) as progress:
            result = fit_task(task, self.model, called, progress)
        self._set_result(result, classes)
        if result.stop is StopReason.INTERRUPT:  # only now: who stops a loop of fits can still use the model
            raise KeyboardInterrupt(f"{result.kept}: the estimator is fitted")
        return self

    def _set_result(self, result: FitResult, classes: Labels | None) -> None:
        """Become the estimator of a fit."""
        self.fitted_, chunks = result.fitted, result.chunks
        self._rows = chunks.sample(MAX_ROWS)
        bases = {item.name: item.basis for item in self.fitted_.encoder.schema.numerical}
        self.schema_ = chunks.source.schema.with_bases(bases)
        self.history_, self._learner = list(self.fitted_.history), None
        self._set_classes(classes)

    def _task(
        self,
        X: object,
        y: object,
        sample_weight: object,
        target: str | None,
        eval_set: object,
        classes: Labels | None = None,
        given: GivenOffset | None = None,
    ) -> tuple[Task, Labels | None]:
        """Check the settings, open the tables and remember their columns; return the classes of y as well."""
        training, loss = self._training(), self._loss()
        check_model(self.model)
        check_optional_schema(self.schema)
        numbers, known = (np.empty(0), None) if target is not None else self._read_target(y, classes)
        table, named = read_table(X)
        if isinstance(table, Table) and table.n_rows == 1:
            raise ValueError("X has 1 sample; fitting a model requires at least 2")
        table, offset = (table, None) if given is None else given.attach(table)
        if target is None:
            if self.schema is None:
                warn_of_answer(table, y)
            rows = attach_target(table, pa.array(numbers), sample_weight, self.schema, offset)
        else:
            rows = name_target(table, target, sample_weight, self.schema, offset)
        self._attached = None if given is None or isinstance(given.values, str) else rows.offset
        if self.monotonic_cst is not None:
            columns = [name for name in open_table(rows.table).names if name not in self._not_in_X(rows)]
            rows = replace(rows, schema=rows.schema.with_shapes(shapes_of(self.monotonic_cst, columns)))
        if self.interaction_cst is not None:
            columns = [name for name in open_table(rows.table).names if name not in (rows.target, rows.sample_weight)]
            rows = rows.with_interactions(interactions_of(self.interaction_cst, columns))
        self._set_columns(rows, named or target is not None)
        self._labels = column_labels(X)
        validation = self._open_validation(rows, target, eval_set, known)
        task = Task(rows, loss, validation, training, self._class_weight(known))
        classes = known if target is None else classes
        task = self._with_classes(task, classes, target is not None)
        if offset is not None:
            offset.check_loss(task.loss)
        return task, classes

    def _update(
        self, X: object, y: object, sample_weight: object, target: str | None, given: GivenOffset | None = None
    ) -> Self:
        """Train for one pass over new rows."""
        table = self._with_offset(self._read_as_fitted(X), given)
        if target is None:
            numbers, _ = self._read_target(y, getattr(self, "classes_", None))
            column = self._column(numbers)
            rows = attach_target(table, column, sample_weight, self.fitted_.encoder.schema)
        else:
            rows = name_target(table, target, sample_weight, self.fitted_.encoder.schema)
        training = replace(self.fitted_.training, engine=self.engine, device=self.device)
        learner = getattr(self, "_learner", None) or Learner(self.fitted_, training)
        self._learner = None  # a failed update leaves the learner in an undefined state, but not `fitted_`
        learner.update(rows.table, rows.target, sample_weight=rows.sample_weight)
        self.history_ = list(learner.history)
        self.fitted_, self._learner = learner.fitted(), learner
        return self

    def _open_validation(
        self, rows: LabeledTable, target: str | None, eval_set: object, classes: Labels | None
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
        attached = self._attached
        if not isinstance(given, tuple) or len(given) not in ((4,) if attached else (2, 3)):
            forms = f"(X, y, sample_weight, {attached.kind})" if attached else "(X, y) or (X, y, sample_weight)"
            raise ValueError(
                f"with fit(X, y), eval_set must be {forms}, got {type(given).__name__}; "
                "a table that contains its target requires fit(table, target=...)"
            )
        has_weights = len(given) > 2 and given[2] is not None
        if has_weights and rows.sample_weight is None:
            raise ValueError("eval_set has sample weights but fit has none; pass sample_weight to fit as well")
        table = self._read_as_fitted(given[0])
        if not isinstance(table, Table) or table.n_rows is None:
            raise ValueError("eval_set=(X, y) requires a table in memory as X")
        rows.schema.check_columns(table.names)
        weight = given[2] if has_weights else np.ones(table.n_rows)
        numbers, _ = self._read_target(given[1], classes)
        if attached is not None:
            found, _ = GivenOffset(attached.kind, given[3]).attach(table, attached.column)
            table = open_table(found)
        return attach_columns(table, rows.target, rows.sample_weight, pa.array(numbers), weight)

    # Columns

    def _set_columns(self, rows: LabeledTable, named: bool) -> None:
        """Set n_features_in_, and feature_names_in_ if the columns have names."""
        table: Any = rows.table
        names = [name for name in table.names if name not in self._not_in_X(rows)]
        self.n_features_in_ = len(names)
        if named:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _not_in_X(self, rows: LabeledTable) -> tuple[str | None, ...]:
        """Return the columns that were attached to X, or are not for prediction."""
        return rows.target, rows.sample_weight, None if self._attached is None else self._attached.column

    def _with_offset(self, table: TableInput, given: GivenOffset | None) -> TableInput:
        """Return a table with the column of the model's offset, if it is given."""
        offset = self.fitted_.offset
        if given is None:
            if offset is not None and isinstance(table, Table) and offset.column not in table.names:
                raise ValueError(
                    f"the model was fitted with the {offset.kind} of every row, and X has no column "
                    f"{offset.column!r}: pass {offset.kind}=..., an array with a number per row"
                )
            return table
        if offset is None or offset.kind != given.kind:
            fitted = "without an offset" if offset is None else f"with the {offset}"
            raise ValueError(f"{given.kind} is given, and the model was fitted {fitted}; leave it out")
        return given.attach(table, offset.column)[0]

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
                "make sure that they are the columns of the fit, in the same order",
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

    def _scores(self, X: object, offset: object, exposure: object) -> Float32Array:
        check_is_fitted(self, "fitted_")
        table = self._with_offset(self._read_as_fitted(X), GivenOffset.of(offset, exposure))
        return self.fitted_.scores(table, threads=self._threads())

    def _predict(self, X: object, offset: object, exposure: object) -> FloatArray:
        check_is_fitted(self, "fitted_")
        table = self._with_offset(self._read_as_fitted(X), GivenOffset.of(offset, exposure))
        return self.fitted_.predict(table, threads=self._threads())

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


# SplineFMClassifier: the models as a classifier.


@shared_parameters
class SplineFMClassifier(ClassifierMixin, SplineFMBase):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier of two or more classes: a factorization machine with splines for numerical columns.

    Two classes have one score per row, the log-odds of the second one. With more classes, each has a score with
    parameters of its own, and the probabilities are their softmax.

    Parameters
    ----------
    {model}
    class_weight : "balanced" or dict of labels to numbers, optional
        Weights of the classes in training and validation, multiplied by the sample weights; 1 for a class that is
        not named. "balanced" gives all classes the same total weight, which shifts probabilities toward rare ones.
    {settings}

    Attributes
    ----------
    {attributes}
    classes_ : array of shape (n_classes,)
        The labels, sorted. A model with two classes scores the second one.

    See Also
    --------
    Training : The same settings in more detail.

    Examples
    --------
    >>> import splinefm as sf
    >>> X = {"recency": [0.5, 1.0, 20.0, 40.0] * 50, "country": ["US", "FR"] * 100}
    >>> y = ["yes", "yes", "no", "no"] * 50
    >>> model = sf.SplineFMClassifier(sf.FM(k=2), epochs=5, n_jobs=1).fit(X, y)
    >>> model.predict({"recency": [0.7, 35.0], "country": ["US", "FR"]})
    array(['yes', 'no'], dtype='<U3')
    """

    classes_: Labels
    _sibling = "SplineFMRegressor"

    def __init__(
        self, model: AnyModel | None = None, *, class_weight: ClassWeight = None, **settings: Unpack[EstimatorSettings]
    ) -> None:
        super().__init__(model, **settings)
        self.class_weight = class_weight

    def partial_fit(
        self,
        X: object,
        y: object = None,
        classes: object = None,
        sample_weight: object = None,
        *,
        target: str | None = None,
        offset: object = None,
    ) -> Self:
        """Continue training: one pass over new rows, with a tenth of the learning rate.

        New categories get features; transforms and bases do not change. The first call of an unfitted estimator is the
        same as `fit`. The optimizer keeps its state between calls, but pickle does not.

        Parameters
        ----------
        X, y, sample_weight, target, offset
            As in `fit`.
        classes : array of shape (n_classes,), optional
            All labels, for a first call whose rows do not have all of them. Later calls cannot add classes.

        Returns
        -------
        self
            The fitted estimator.
        """
        if hasattr(self, "fitted_"):
            if classes is not None:
                self._check_classes(np.asarray(classes))
            check_one_target(self, y, target)
            return self._update(X, y, sample_weight, target, GivenOffset.of(offset, None))
        known = None if classes is None else distinct_classes(np.asarray(classes))
        return self._fit(X, y, sample_weight, target, classes=known, offset=GivenOffset.of(offset, None))

    def decision_function(self, X: object, *, offset: object = None) -> Float32Array:
        """Return the score of every row, in order: the log-odds of `classes_[1]`.

        For more than two classes, the scores of all of them: shape (n, classes). If the model was fitted with an array
        as its offset, `offset` is that of these rows.
        """
        return self._scores(X, offset, None)

    def predict_proba(self, X: object, *, offset: object = None) -> FloatArray:
        """Return the probabilities of all classes for every row, in order: shape (n, classes)."""
        second = self._predict(X, offset, None)
        if second.ndim == 2:
            return second
        return np.column_stack([1.0 - second, second])

    def predict_log_proba(self, X: object, *, offset: object = None) -> FloatArray:
        """Return the logarithms of the probabilities of all classes, finite even if a probability rounds to 0."""
        scores = self._scores(X, offset, None).astype(np.float64)
        if scores.ndim == 2:
            return log_softmax(scores)
        return -np.column_stack([np.logaddexp(0.0, scores), np.logaddexp(0.0, -scores)])

    def predict(self, X: object, *, offset: object = None) -> Labels:
        """Return the most probable label of every row."""
        scores = self._scores(X, offset, None)
        if scores.ndim == 2:
            return np.asarray(self.classes_[scores.argmax(axis=1)])
        return self.classes_[(scores > 0.0).astype(np.intp)]

    @staticmethod
    def _predicts(loss: Loss) -> bool:
        return loss.max_classes > 0

    @staticmethod
    def _settings_of_loss(loss: Loss) -> dict[str, Any]:
        weights = loss.class_weights
        return {"class_weight": None if weights is None else dict(zip(loss.classes or (0, 1), weights, strict=True))}

    def _loss(self) -> Loss:
        return Loss("logistic")

    def _with_classes(self, task: Task, classes: Labels | None, in_column: bool) -> Task:
        rows = task.rows
        if not in_column:
            assert classes is not None
            positions = tuple(range(len(classes))) if len(classes) > 2 else None  # y is in the table as these numbers
            task = replace(task, rows=replace(rows, classes=positions), labels=fitted_labels(classes))
        elif classes is not None:
            task = replace(task, rows=replace(rows, classes=fitted_labels(classes)))
        else:
            task = replace(task, rows=rows.with_classes(MAX_CLASSES))
        known = task.rows.classes
        return task if known is None or len(known) == 2 else replace(task, loss=Loss("softmax"))

    def _set_classes(self, classes: Labels | None) -> None:
        self.classes_ = np.array(self.fitted_.classes or (0, 1)) if classes is None else classes

    def _check_classes(self, classes: Labels) -> None:
        if not np.array_equal(distinct_classes(classes), distinct_classes(self.classes_)):
            raise ValueError(
                f"classes {quoted(classes.tolist())} differ from the fit, which had {quoted(self.classes_.tolist())}"
            )

    def _class_weight(self, classes: Labels | None) -> ClassWeight:
        if classes is None or not isinstance(self.class_weight, Mapping):
            return self.class_weight
        return dict(enumerate(class_weights(self.class_weight, tuple(classes.tolist()))))

    def _read_target(self, y: object, classes: Labels | None) -> tuple[FloatArray, Labels | None]:
        found, code = np.unique(read_labels(y), return_inverse=True)
        if classes is None:
            warn_of_spellings(check_classes(found).tolist(), "y")
            return code.astype(np.float64), found
        position = {label: float(i) for i, label in enumerate(classes.tolist())}  # a loaded model has any order
        unknown = [label for label in found.tolist() if label not in position]  # to NumPy, "1" equals 1
        if unknown:
            raise ValueError(f"y has the label {unknown[0]!r}; the classes are {quoted(classes.tolist())}")
        return np.array([position[label] for label in found.tolist()], np.float64)[code], classes

    def _column(self, numbers: FloatArray) -> pa.Array:
        if self.fitted_.classes is None:
            return pa.array(numbers)
        return pa.array(self.fitted_.classes).take(pa.array(numbers.astype(np.int32)))


# SplineFMRegressor: the models as a regressor for numbers, counts, amounts and quantiles.


@shared_parameters
class SplineFMRegressor(RegressorMixin, SplineFMBase):  # type: ignore[misc]  # scikit-learn has no types
    """A regressor for numbers or counts: a factorization machine with splines for numerical columns.

    Parameters
    ----------
    {model}
    loss : {"squared", "poisson", "gamma", "tweedie", "quantile", "huber"} or Loss
        The loss to minimize. "squared" predicts the mean, and so do three losses with positive predictions: "poisson"
        for counts and rates, "gamma" for positive and skewed amounts, "tweedie" for amounts that can be 0. "quantile"
        predicts a quantile, and "huber" a mean that outliers barely change.
    quantile : float, optional
        The quantile that `loss="quantile"` predicts, between 0 and 1; 0.5, the median, by default.
    power : float, optional
        The power of `loss="tweedie"`, between 1 and 2; 1.5 by default. The variance of a target with mean m is
        proportional to m to this power.
    delta : float, optional
        The distance from the target, in its unit, from which `loss="huber"` is linear. By default 1.345 times the
        spread of the training targets (1.4826 times their median distance from the median).
    {settings}

    Attributes
    ----------
    {attributes}

    See Also
    --------
    Training : The same settings in more detail.

    Examples
    --------
    >>> import splinefm as sf
    >>> X = {"hour": [0.0, 6.0, 12.0, 18.0] * 50, "day": ["Mon", "Sun"] * 100}
    >>> y = [10.0, 40.0, 90.0, 60.0] * 50
    >>> model = sf.SplineFMRegressor(sf.FM(k=2), epochs=5, n_jobs=1).fit(X, y)
    >>> model.predict({"hour": [12.0], "day": ["Mon"]}).shape
    (1,)
    """

    _sibling = "SplineFMClassifier"

    def __init__(
        self,
        model: AnyModel | None = None,
        *,
        loss: str | Loss = "squared",
        quantile: float | None = None,
        power: float | None = None,
        delta: float | None = None,
        **settings: Unpack[EstimatorSettings],
    ) -> None:
        super().__init__(model, **settings)
        self.loss = loss
        self.quantile = quantile
        self.power = power
        self.delta = delta

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = getattr(self.loss, "name", self.loss) in ("poisson", "gamma", "tweedie")
        return tags

    def partial_fit(
        self,
        X: object,
        y: object = None,
        sample_weight: object = None,
        *,
        target: str | None = None,
        offset: object = None,
        exposure: object = None,
    ) -> Self:
        """Continue training: one pass over new rows, with a tenth of the learning rate.

        New categories get features; transforms and bases do not change. The first call of an unfitted estimator is the
        same as `fit`. The optimizer keeps its state between calls, but pickle does not.

        Parameters
        ----------
        X, y, sample_weight, target, offset, exposure
            As in `fit`.

        Returns
        -------
        self
            The fitted estimator.
        """
        check_one_target(self, y, target)
        given = GivenOffset.of(offset, exposure)
        if not hasattr(self, "fitted_"):
            return self._fit(X, y, sample_weight, target, offset=given)
        return self._update(X, y, sample_weight, target, given)

    def predict(self, X: object, *, offset: object = None, exposure: object = None) -> FloatArray:
        """Return the expected target of every row, or the quantile of the quantile loss.

        If the model was fitted with an array as its offset or exposure, that of these rows is an argument.
        """
        return self._predict(X, offset, exposure)

    @staticmethod
    def _predicts(loss: Loss) -> bool:
        return loss.max_classes == 0

    @staticmethod
    def _settings_of_loss(loss: Loss) -> dict[str, Any]:
        return {"loss": loss.name, **loss.parameters}

    def _loss(self) -> Loss:
        known = [name for name in LOSSES if not Loss(name).max_classes]
        if getattr(self.loss, "name", self.loss) not in known:
            raise ValueError(
                f"loss must be one of {', '.join(known)}, got {self.loss!r}; for labels, use SplineFMClassifier"
            )
        return as_loss(self.loss, quantile=self.quantile, power=self.power, delta=self.delta)

    def _read_target(self, y: object, classes: Labels | None) -> tuple[FloatArray, Labels | None]:
        numbers = np.asarray(column_or_1d(y, warn=True))
        if numbers.dtype.kind in "USO" and any(isinstance(value, str) for value in numbers.tolist()):
            raise ValueError(f"y holds text, such as {numbers.tolist()[0]!r}; for labels, use SplineFMClassifier")
        missing = np.isnan(numbers) if numbers.dtype.kind == "f" else [is_missing(value) for value in numbers.tolist()]
        refuse_missing(int(np.sum(missing)), len(numbers), "targets")
        return np.asarray(check_array(numbers, ensure_2d=False, dtype=np.float64, input_name="y")), None
