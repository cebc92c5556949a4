"""SplineFMClassifier and SplineFMRegressor: the models as scikit-learn estimators."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from numbers import Real
from types import UnionType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_array, check_is_fitted, column_or_1d

from splinefm.encode.inference import infer_schema
from splinefm.encode.schema import Schema
from splinefm.encode.slots import Slots
from splinefm.encode.table import Table, open_table, quoted
from splinefm.learn.fitted import Fitted
from splinefm.learn.fitting import fit_model
from splinefm.learn.incremental import Learner
from splinefm.learn.labels import Label
from splinefm.learn.losses import LossName
from splinefm.learn.resolutions import with_bases
from splinefm.learn.training import Epoch, Penalty, Training
from splinefm.model.family import AnyModel

FloatArray = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]
_Source = Table | Slots | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
_VALIDATION: float = (fit_model.__kwdefaults__ or {})["validation"]


class _Rows(NamedTuple):
    """A table to learn from, with the names of its target and weights."""

    table: object
    target: str
    sample_weight: str | None


class Task(NamedTuple):
    """What an estimator is to learn, with the fields and the validation part found."""

    rows: _Rows
    schema: Schema
    loss: LossName
    validation: object
    training: Training


class _SplineFM(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What the two estimators share: parameters, tables in, scores out."""

    fitted_: Fitted
    schema_: Schema
    history_: list[Epoch]
    n_features_in_: int
    feature_names_in_: npt.NDArray[np.object_]
    _learner: Learner | None

    def __init__(
        self,
        model: AnyModel | None = None,
        *,
        schema: Schema | None = None,
        epochs: int = Training.epochs,
        batch_size: int | None = Training.batch_size,
        learning_rate: float = Training.learning_rate,
        l2: Penalty = Training.l2,
        smoothness: Penalty = Training.smoothness,
        smoothness_order: int = Training.smoothness_order,
        optimizer: str = Training.optimizer,
        average: bool = Training.average,
        patience: int | None = Training.patience,
        refit_on_all: bool = Training.refit_on_all,
        select_resolutions: bool = Training.select_resolutions,
        validation: object = _VALIDATION,
        threads: int | None = Training.threads,
        seed: int = Training.seed,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.schema = schema
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.l2 = l2
        self.smoothness = smoothness
        self.smoothness_order = smoothness_order
        self.optimizer = optimizer
        self.average = average
        self.patience = patience
        self.refit_on_all = refit_on_all
        self.select_resolutions = select_resolutions
        self.validation = validation
        self.threads = threads
        self.seed = seed
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        # A learner has threads and scratch memory; the next `partial_fit` makes another one of `fitted_`.
        return {name: value for name, value in super().__getstate__().items() if name != "_learner"}

    def _loss(self) -> LossName:
        raise NotImplementedError

    def _numbers(self, y: object, classes: Labels | None) -> FloatArray:
        """A target in memory as the numbers to learn."""
        raise NotImplementedError

    def _column(self, numbers: FloatArray) -> pa.Array:
        """Numbers as `fitted_` expects its target."""
        return pa.array(numbers)

    def _fit(
        self, X: object, y: object, sample_weight: object, target: str | None, classes: Labels | None = None
    ) -> None:
        task = self._task(X, y, sample_weight, target, classes)
        self.fitted_ = fit_model(
            task.rows.table,
            task.rows.target,
            schema=task.schema,
            model=self.model,
            loss=task.loss,
            sample_weight=task.rows.sample_weight,
            validation=task.validation,
            training=task.training,
            verbose=bool(self.verbose),
        )
        self.schema_ = with_bases(task.schema, self.fitted_.encoder)
        self.history_, self._learner = list(self.fitted_.history), None

    def _task(
        self, X: object, y: object, sample_weight: object, target: str | None, classes: Labels | None = None
    ) -> Task:
        """Check the settings, open the tables and remember their columns."""
        training, loss = self._training(), self._loss()
        _check_kind("model", self.model, AnyModel, "sf.FFM(k=8)")
        _check_kind("schema", self.schema, Schema, "sf.Schema.infer(table)")
        table, named = _open(X)
        if isinstance(table, Table) and table.n_rows == 1:
            raise ValueError("X has 1 sample; a model is fitted to two or more")
        if target is None:
            rows = self._attach(table, pa.array(self._numbers(y, classes)), sample_weight)
        else:
            rows = _check_rows(table, target, sample_weight)
        self._remember_columns(table, named, rows if target else None)
        schema = self.schema or _infer(rows)
        return Task(rows, schema, loss, self._open_validation(rows, target, classes), training)

    def _update(self, X: object, y: object, sample_weight: object, target: str | None) -> None:
        """One pass over new rows."""
        table = self._by_name(X)
        if target is None:
            column = self._column(self._numbers(y, getattr(self, "classes_", None)))
            rows = self._attach(table, column, sample_weight)
        else:
            rows = _check_rows(table, target, sample_weight)
        learner = getattr(self, "_learner", None) or Learner(self.fitted_)
        self._learner = None  # an update that fails leaves a learner halfway, `fitted_` stays whole
        before, began = learner.encoder.n_rows, time.perf_counter()
        loss = learner.update(rows.table, rows.target, sample_weight=rows.sample_weight)
        seconds = time.perf_counter() - began
        n_rows, rate = learner.encoder.n_rows - before, learner.engine.optimizer.learning_rate
        total = self.history_[-1].seconds + seconds
        epoch = Epoch(len(self.history_) + 1, loss, math.nan, rate, n_rows / seconds, total)
        self.history_ = [*self.history_, epoch]
        self.fitted_ = replace(learner.fitted(), history=tuple(self.history_))
        self._learner = learner

    def _scores(self, X: object) -> npt.NDArray[np.float32]:
        check_is_fitted(self, "fitted_")
        return self.fitted_.scores(self._by_name(X), threads=self.threads)

    def _predict(self, X: object) -> FloatArray:
        check_is_fitted(self, "fitted_")
        return self.fitted_.predict(self._by_name(X), threads=self.threads)

    def _training(self) -> Training:
        given = self.get_params(deep=False)
        return Training(**{item.name: given[item.name] for item in fields(Training) if item.name in given})

    def _attach(self, table: _Source, y: pa.Array, sample_weight: object) -> _Rows:
        """A table in memory with y and the weights as columns, under names that are free."""
        if not isinstance(table, Table) or table.n_rows is None:
            raise ValueError('y goes with a table in memory; for files and datasets name the column: target="..."')
        taken = {*table.names, *(self.schema.names if self.schema else ())}
        rows = _Rows(table, _free("y", taken), None if sample_weight is None else _free("sample_weight", taken))
        return rows._replace(table=_with_columns(table, rows, y, sample_weight))

    def _open_validation(self, rows: _Rows, target: str | None, classes: Labels | None) -> object:
        given: Any = self.validation
        if isinstance(given, Real):
            return float(given)
        if target is not None:
            return given
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise ValueError(
                "for fit(X, y) validation is a share of the rows, (X, y) or (X, y, sample_weight), "
                f"got {type(given).__name__}; a table that has its target goes with fit(table, target=...)"
            )
        if len(given) == 3 and rows.sample_weight is None:
            raise ValueError("validation has sample weights but fit has none; pass sample_weight to fit as well")
        table = self._by_name(given[0])
        if not isinstance(table, Table) or table.n_rows is None:
            raise ValueError("validation=(X, y) takes a table in memory as X")
        weight = given[2] if len(given) == 3 else np.ones(table.n_rows)
        return _with_columns(table, rows, pa.array(self._numbers(given[1], classes)), weight)

    def _remember_columns(self, table: _Source, named: bool, rows: _Rows | None) -> None:
        """Set n_features_in_, and feature_names_in_ where the columns have names; those of `rows` are no features."""
        others = () if rows is None else (rows.target, rows.sample_weight)
        names = [name for name in open_table(table).names if name not in others]
        self.n_features_in_ = len(names)
        if named or rows is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _by_name(self, X: object) -> _Source:
        """X, opened, with the column names of the fit; columns that have no names are taken by their position."""
        table, named = _open(X, min_rows=0)
        known = getattr(self, "feature_names_in_", None)
        if not isinstance(table, Table) or (named and known is not None):
            return table
        names = _positions(self.n_features_in_) if known is None else known.tolist()
        if named and set(names) <= set(table.names):
            return table
        name = type(self).__name__
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
        return open_table(_whole(table).rename_columns(names))


class SplineFMClassifier(ClassifierMixin, _SplineFM):  # type: ignore[misc]  # as above
    """Classifier of two classes: a factorization machine with splines for numerical columns.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM, optional
        FwFM(k=16) by default.
    schema : Schema, optional
        The fields; inferred from the table by default.
    epochs : int
        Passes over the data, at most.
    batch_size : int, optional
        Rows per step; chosen by the size of the table by default.
    learning_rate : float
        Its highest value.
    l2, smoothness : float or mapping of str to float, optional
        Penalties on the size of all weights and on the roughness of curves; a number for all fields, or numbers by
        field.
    smoothness_order : {2, 1, 3}
        Much smoothness makes a curve a constant (1), a straight line (2) or a parabola (3).
    optimizer : {"adamw", "adagrad"}
        How a step is made.
    average : bool
        Use a moving average of the weights.
    patience : int, optional
        Stop after so many epochs without a better validation loss.
    refit_on_all : bool
        Train again on all rows, for as many epochs as were best on the validation rows.
    select_resolutions : bool
        Train a second time with resolutions by column, where the schema is inferred, and take what is better on the
        validation rows.
    validation : float, tuple or table
        What chooses the best epoch: a share of the rows (0: none); for `fit(X, y)` also `(X, y)` or
        `(X, y, sample_weight)`; for `fit(table, target=...)` also a table, path or dataset.
    threads : int, optional
        All cores by default; the result does not depend on it.
    seed : int
        For start values, validation rows and the order of the rows.
    verbose : bool
        Tell the progress on the standard error stream.

    Attributes
    ----------
    fitted_ : Fitted
        The model itself, which can be saved, explained and served without scikit-learn.
    classes_ : array of shape (2,)
        The labels, sorted; the second is what probabilities and scores are for.
    schema_ : Schema
        The fields as given or inferred; `print` tells why each one is as it is.
    history_ : list of Epoch
        Losses of every epoch, and of every `partial_fit`.
    n_features_in_ : int
        Columns of X in `fit`.
    feature_names_in_ : array of str
        Their names, where they have names.

    See Also
    --------
    Training : The same settings, in more words.

    Examples
    --------
    >>> import splinefm as sf
    >>> X = {"recency": [0.5, 1.0, 20.0, 40.0] * 50, "country": ["US", "FR"] * 100}
    >>> y = ["yes", "yes", "no", "no"] * 50
    >>> model = sf.SplineFMClassifier(sf.FM(k=2), epochs=5, threads=1).fit(X, y)
    >>> model.predict({"recency": [0.7, 35.0], "country": ["US", "FR"]})
    array(['yes', 'no'], dtype='<U3')
    """

    classes_: Labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: object, y: object = None, sample_weight: object = None, *, target: str | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table, path or dataset
            pandas and polars DataFrames, Arrow tables, dicts of arrays and 2-D arrays; with `target` also the path of
            Parquet or CSV files, a folder, a glob or a pyarrow dataset, which are read in chunks.
        y : array of shape (n_rows,)
            Labels of two values of any type.
        sample_weight : array of shape (n_rows,), or str
            A weight for each row; with `target` the name of a column.
        target : str, optional
            The column of X to predict, instead of y: two labels, or shares between 0 and 1.
        """
        _check_one_target(self, y, target)
        if target is not None:
            self._fit(X, None, sample_weight, target)
            self.classes_ = np.array(self.fitted_.classes or (0, 1))
        else:
            labels = _read_labels(y)
            self._fit_labels(X, labels, _two_classes(labels), sample_weight)
        return self

    def partial_fit(
        self,
        X: object,
        y: object = None,
        classes: object = None,
        sample_weight: object = None,
        *,
        target: str | None = None,
    ) -> Self:
        """Go on learning: one pass over new rows, with a tenth of the learning rate.

        New categories get rows of their own; transforms and bases stay as they are. The first call of an estimator
        that is not fitted is the same as `fit`. The optimizer's state is kept from call to call, but not by pickle.

        Parameters
        ----------
        X, y, sample_weight, target
            As in `fit`.
        classes : array of shape (2,), optional
            The labels, for a first call whose rows are all of one class.
        """
        _check_one_target(self, y, target)
        if classes is not None:
            self._check_classes(np.asarray(classes))
        if hasattr(self, "fitted_"):
            self._update(X, y, sample_weight, target)
            return self
        if classes is None or target is not None:
            return self.fit(X, y, sample_weight, target=target)
        self._fit_labels(X, _read_labels(y), _two_classes(np.asarray(classes)), sample_weight)
        return self

    def decision_function(self, X: object) -> npt.NDArray[np.float32]:
        """Scores of all rows, in their order: the logarithm of the odds of `classes_[1]`."""
        return self._scores(X)

    def predict_proba(self, X: object) -> FloatArray:
        """Probabilities of both classes for all rows, in their order."""
        second = self._predict(X)
        return np.column_stack([1.0 - second, second])

    def predict(self, X: object) -> Labels:
        """The more probable label of each row."""
        scores = self._scores(X)
        return self.classes_[(scores > 0.0).astype(np.intp)]

    def _fit_labels(self, X: object, labels: Labels, classes: Labels, sample_weight: object) -> None:
        self._fit(X, labels, sample_weight, None, classes)
        self.fitted_ = replace(self.fitted_, loss=replace(self.fitted_.loss, classes=_plain(classes)))
        self.classes_ = classes

    def _check_classes(self, classes: Labels) -> None:
        known = getattr(self, "classes_", None)
        if known is not None and not np.array_equal(_two_classes(classes), known):
            raise ValueError(
                f"classes {quoted(classes.tolist())} differ from those of the fit, {quoted(known.tolist())}"
            )

    def _loss(self) -> LossName:
        return "logistic"

    def _numbers(self, y: object, classes: Labels | None) -> FloatArray:
        labels = _read_labels(y)
        assert classes is not None
        unknown = labels[~np.isin(labels, classes)]
        if len(unknown):
            raise ValueError(f"y has the label {unknown.tolist()[0]!r}; the classes are {quoted(classes.tolist())}")
        return np.asarray(labels == classes[1], np.float64)

    def _column(self, numbers: FloatArray) -> pa.Array:
        if self.fitted_.classes is None:
            return pa.array(numbers)
        return pa.array(self.fitted_.classes).take(pa.array(numbers.astype(np.int8)))


class SplineFMRegressor(RegressorMixin, _SplineFM):  # type: ignore[misc]  # as above
    """Regressor for numbers or counts: a factorization machine with splines for numerical columns.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM, optional
        FwFM(k=16) by default.
    loss : {"squared", "poisson"}
        Squared errors, or the Poisson loss for counts and rates, whose predictions are positive.
    schema : Schema, optional
        The fields; inferred from the table by default.
    epochs : int
        Passes over the data, at most.
    batch_size : int, optional
        Rows per step; chosen by the size of the table by default.
    learning_rate : float
        Its highest value.
    l2, smoothness : float or mapping of str to float, optional
        Penalties on the size of all weights and on the roughness of curves; a number for all fields, or numbers by
        field.
    smoothness_order : {2, 1, 3}
        Much smoothness makes a curve a constant (1), a straight line (2) or a parabola (3).
    optimizer : {"adamw", "adagrad"}
        How a step is made.
    average : bool
        Use a moving average of the weights.
    patience : int, optional
        Stop after so many epochs without a better validation loss.
    refit_on_all : bool
        Train again on all rows, for as many epochs as were best on the validation rows.
    select_resolutions : bool
        Train a second time with resolutions by column, where the schema is inferred, and take what is better on the
        validation rows.
    validation : float, tuple or table
        What chooses the best epoch: a share of the rows (0: none); for `fit(X, y)` also `(X, y)` or
        `(X, y, sample_weight)`; for `fit(table, target=...)` also a table, path or dataset.
    threads : int, optional
        All cores by default; the result does not depend on it.
    seed : int
        For start values, validation rows and the order of the rows.
    verbose : bool
        Tell the progress on the standard error stream.

    Attributes
    ----------
    fitted_ : Fitted
        The model itself, which can be saved, explained and served without scikit-learn.
    schema_ : Schema
        The fields as given or inferred; `print` tells why each one is as it is.
    history_ : list of Epoch
        Losses of every epoch, and of every `partial_fit`.
    n_features_in_ : int
        Columns of X in `fit`.
    feature_names_in_ : array of str
        Their names, where they have names.

    See Also
    --------
    Training : The same settings, in more words.

    Examples
    --------
    >>> import splinefm as sf
    >>> X = {"hour": [0.0, 6.0, 12.0, 18.0] * 50, "day": ["Mon", "Sun"] * 100}
    >>> y = [10.0, 40.0, 90.0, 60.0] * 50
    >>> model = sf.SplineFMRegressor(sf.FM(k=2), epochs=5, threads=1).fit(X, y)
    >>> model.predict({"hour": [12.0], "day": ["Mon"]}).shape
    (1,)
    """

    def __init__(
        self,
        model: AnyModel | None = None,
        *,
        loss: str = "squared",
        schema: Schema | None = None,
        epochs: int = Training.epochs,
        batch_size: int | None = Training.batch_size,
        learning_rate: float = Training.learning_rate,
        l2: Penalty = Training.l2,
        smoothness: Penalty = Training.smoothness,
        smoothness_order: int = Training.smoothness_order,
        optimizer: str = Training.optimizer,
        average: bool = Training.average,
        patience: int | None = Training.patience,
        refit_on_all: bool = Training.refit_on_all,
        select_resolutions: bool = Training.select_resolutions,
        validation: object = _VALIDATION,
        threads: int | None = Training.threads,
        seed: int = Training.seed,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            model,
            schema=schema,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            l2=l2,
            smoothness=smoothness,
            smoothness_order=smoothness_order,
            optimizer=optimizer,
            average=average,
            patience=patience,
            refit_on_all=refit_on_all,
            select_resolutions=select_resolutions,
            validation=validation,
            threads=threads,
            seed=seed,
            verbose=verbose,
        )
        self.loss = loss

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        return tags

    def fit(self, X: object, y: object = None, sample_weight: object = None, *, target: str | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table, path or dataset
            pandas and polars DataFrames, Arrow tables, dicts of arrays and 2-D arrays; with `target` also the path of
            Parquet or CSV files, a folder, a glob or a pyarrow dataset, which are read in chunks.
        y : array of shape (n_rows,)
            Numbers; with the Poisson loss at least 0.
        sample_weight : array of shape (n_rows,), or str
            A weight for each row; with `target` the name of a column.
        target : str, optional
            The column of X to predict, instead of y.
        """
        _check_one_target(self, y, target)
        self._fit(X, y, sample_weight, target)
        return self

    def partial_fit(
        self, X: object, y: object = None, sample_weight: object = None, *, target: str | None = None
    ) -> Self:
        """Go on learning: one pass over new rows, with a tenth of the learning rate.

        New categories get rows of their own; transforms and bases stay as they are. The first call of an estimator
        that is not fitted is the same as `fit`. The optimizer's state is kept from call to call, but not by pickle.

        Parameters
        ----------
        X, y, sample_weight, target
            As in `fit`.
        """
        _check_one_target(self, y, target)
        if not hasattr(self, "fitted_"):
            return self.fit(X, y, sample_weight, target=target)
        self._update(X, y, sample_weight, target)
        return self

    def predict(self, X: object) -> FloatArray:
        """The expected target of each row."""
        return self._predict(X)

    def _loss(self) -> LossName:
        if self.loss == "squared":
            return "squared"
        if self.loss == "poisson":
            return "poisson"
        raise ValueError(f'loss must be "squared" or "poisson", got {self.loss!r}; for labels use SplineFMClassifier')

    def _numbers(self, y: object, classes: Labels | None) -> FloatArray:
        numbers = np.asarray(column_or_1d(y, warn=True))
        if numbers.dtype.kind in "USO" and any(isinstance(value, str) for value in numbers.tolist()):
            raise ValueError(f"y holds text, such as {numbers.tolist()[0]!r}; for labels use SplineFMClassifier")
        return np.asarray(check_array(numbers, ensure_2d=False, dtype=np.float64, input_name="y"))


def open_task(
    estimator: SplineFMClassifier | SplineFMRegressor, X: object, y: object, sample_weight: object, target: str | None
) -> Task:
    """What `estimator.fit` with these arguments would learn; the estimator remembers the columns."""
    _check_one_target(estimator, y, target)
    labeled = y is not None and isinstance(estimator, SplineFMClassifier)
    classes = _two_classes(_read_labels(y)) if labeled else None
    return estimator._task(X, y, sample_weight, target, classes)


def _open(X: object, min_rows: int = 1) -> tuple[_Source, bool]:
    """X as a table, and whether its columns have names of their own; files stay paths, slots stay slots."""
    if isinstance(X, Slots) or _is_path(X):
        return X, True  # type: ignore[return-value]  # _is_path has looked
    if _is_array(X):
        # As a plain array, a list of rows with numbers and text would become text.
        array = np.array(X, dtype=object) if isinstance(X, list | tuple) else X
        return open_table(check_array(array, dtype=None, ensure_all_finite=False, ensure_min_samples=min_rows)), False
    table = open_table(X)
    if type(X).__module__.startswith("pandas") and not any(isinstance(name, str) for name in X.columns):  # type: ignore[attr-defined]
        return open_table(_whole(table).rename_columns(_positions(len(table.names)))), False
    return table, True


def _positions(n: int) -> list[str]:
    """Names of columns that have none."""
    return [f"x{i}" for i in range(n)]


def _is_path(X: object) -> bool:
    paths = X if isinstance(X, list | tuple) else [X]
    return bool(paths) and all(isinstance(path, str | os.PathLike) for path in paths)


def _is_array(X: object) -> bool:
    arrow = hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")
    return issparse(X) or isinstance(X, np.ndarray | list | tuple) or (hasattr(X, "__array__") and not arrow)


def _whole(table: Table) -> pa.Table:
    """All rows of a table."""
    return pa.Table.from_batches(list(table.chunks()), table.schema)


def _with_columns(table: Table, rows: _Rows, y: pa.Array, sample_weight: object) -> pa.Table:
    """All rows of a table with the target and the weights."""
    if len(y) != table.n_rows:
        raise ValueError(f"X has {table.n_rows} rows, but y has {len(y)}")
    whole = _whole(table).append_column(rows.target, y)
    if rows.sample_weight is None:
        return whole
    if isinstance(sample_weight, str):
        raise ValueError(
            f"sample_weight={sample_weight!r} names a column, which goes with target=...; with y pass numbers"
        )
    weight = np.full(len(y), sample_weight) if isinstance(sample_weight, Real) else sample_weight
    weight = check_array(weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weight.shape != (len(y),):
        raise ValueError(f"sample_weight must have one number per row, shape ({len(y)},); got shape {weight.shape}")
    if not weight.any():
        raise ValueError("all sample weights are zero; there is nothing to learn from")
    return whole.append_column(rows.sample_weight, pa.array(weight))


def _check_rows(table: _Source, target: str, sample_weight: object) -> _Rows:
    if sample_weight is not None and not isinstance(sample_weight, str):
        raise ValueError("with target=... the weights are a column as well: pass its name as sample_weight")
    return _Rows(table, target, sample_weight)


def _check_one_target(estimator: _SplineFM, y: object, target: str | None) -> None:
    if y is None and target is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None; "
            'or name a column of the table: target="..."'
        )
    if y is not None and target is not None:
        raise ValueError(f"y and target={target!r} are both given; pass one of them")


def _check_kind(name: str, value: object, kind: type | UnionType, example: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be None or an object such as {example}, got {value!r}")


def _infer(rows: _Rows) -> Schema:
    """The schema of a table without its target and weights."""
    schema = infer_schema(rows.table, target=rows.target)
    fields = tuple(item for item in schema if item.name != rows.sample_weight)
    return Schema(fields, {name: why for name, why in schema.reasons.items() if name != rows.sample_weight})


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _read_labels(y: object) -> Labels:
    """Labels in one dimension; scikit-learn says what is wrong with numbers that are no labels."""
    if type(y).__module__.startswith("pandas") and getattr(y, "ndim", 1) == 1:
        y = y.to_numpy()  # type: ignore[attr-defined]  # otherwise nullable truth values would become numbers
    labels = np.asarray(column_or_1d(y, warn=True))
    try:
        missing = pa.array(labels, from_pandas=True).null_count
    except (pa.ArrowException, TypeError):
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise ValueError(f"the labels in y must be of one type, got {', '.join(kinds)}") from None
    if missing:
        raise ValueError(f"Input y contains NaN: {missing} of {len(labels)} labels are missing; drop those rows")
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    return labels


def _two_classes(labels: Labels) -> Labels:
    """The two distinct labels, sorted."""
    classes = np.unique(labels)
    if len(classes) < 2:
        found = f"one class only, {classes.tolist()[0]!r}" if len(classes) else "no classes"
        raise ValueError(f"y has {found}; a classifier learns from rows of two classes")
    if len(classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass: "
            f"{quoted(classes.tolist(), 5)}. For several classes fit one model per class: "
            "sklearn.multiclass.OneVsRestClassifier(SplineFMClassifier()); for numbers use SplineFMRegressor"
        )
    return classes


def _plain(classes: Labels) -> tuple[Label, Label] | None:
    """Labels as a `Fitted` keeps them: none for 0 and 1, which are numbers to learn as they are."""
    first, second = classes.tolist()
    known = isinstance(first, Label) and not (isinstance(second, int | float) and (first, second) == (0, 1))
    return (first, second) if known or isinstance(first, bool) else None
