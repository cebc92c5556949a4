"""SplineFMClassifier and SplineFMRegressor: the models as scikit-learn estimators."""

from __future__ import annotations

import inspect
import math
import os
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from numbers import Integral, Real
from types import UnionType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from joblib import effective_n_jobs
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_array, check_is_fitted, column_or_1d

from splinefm.encode.inference import infer_schema
from splinefm.encode.schema import Schema
from splinefm.encode.slots import Slots
from splinefm.encode.tables.open import Table, open_table, quoted
from splinefm.learn.files.modelfile import load
from splinefm.learn.fitted import Fitted
from splinefm.learn.fitting import DEFAULT_MODEL, check_callbacks, fit_chunks, fit_model
from splinefm.learn.incremental import Learner
from splinefm.learn.labels import ClassWeight, Label, class_weights
from splinefm.learn.losses import Loss, LossName
from splinefm.learn.resolutions import with_bases
from splinefm.learn.training import Epoch, Penalty, Training
from splinefm.model.family import AnyModel, HigherOrderFM, check_size

FloatArray = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]
_Source = Table | Slots | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
RandomState = int | np.random.RandomState | np.random.Generator | None
_MOST_SEEDS = 2**31 - 1
MOST_ROWS = 1000
"""Encoded rows that an estimator keeps to tell what its columns matter."""
_OF_MODEL = "model__"
_NOT_KEPT = ("_learner", "_importances")  # by pickle
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
    class_weight: ClassWeight


class _SplineFM(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What the two estimators share: parameters, tables in, scores out."""

    fitted_: Fitted
    schema_: Schema
    history_: list[Epoch]
    n_features_in_: int
    feature_names_in_: npt.NDArray[np.object_]
    _learner: Learner | None
    _rows: Slots

    def __init__(
        self,
        model: AnyModel | None = None,
        *,
        schema: Schema | None = None,
        epochs: int = Training.epochs,
        batch_size: int | None = Training.batch_size,
        learning_rate: float = Training.learning_rate,
        schedule: str = Training.schedule,
        l2: Penalty = Training.l2,
        smoothness: Penalty = Training.smoothness,
        smoothness_order: int = Training.smoothness_order,
        optimizer: str = Training.optimizer,
        average: bool = Training.average,
        patience: int | None = Training.patience,
        refit_on_all: bool = Training.refit_on_all,
        select_resolutions: bool = Training.select_resolutions,
        validation: float = _VALIDATION,
        n_jobs: int | None = -1,
        random_state: RandomState = Training.seed,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.schema = schema
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.l2 = l2
        self.smoothness = smoothness
        self.smoothness_order = smoothness_order
        self.optimizer = optimizer
        self.average = average
        self.patience = patience
        self.refit_on_all = refit_on_all
        self.select_resolutions = select_resolutions
        self.validation = validation
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; `model__k=8` puts a copy of the model with this k in its place.

        A `model` of None stands for the default one, which `model__k` then changes.
        """
        own = {name: value for name, value in params.items() if not name.startswith(_OF_MODEL)}
        nested = {name.removeprefix(_OF_MODEL): params[name] for name in params if name not in own}
        super().set_params(**own)
        if nested:
            _check_kind("model", self.model, AnyModel, "sf.FFM(k=8)")
            self.model = (self.model or DEFAULT_MODEL).set_params(**nested)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file, without code; `load` and `sf.load` read it.

        Parameters
        ----------
        path : path
            Where to; the usual ending is ".sfm".
        """
        check_is_fitted(self, "fitted_")
        self.fitted_.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False) -> Self:
        """An estimator with the model of a file, ready to predict or for `partial_fit`.

        The file may come from `save`, `sf.Fitted.save` or the command line. Parameters are those that the model was
        trained with; its fields are in `schema_`, and a new `fit` would infer them anew.

        Parameters
        ----------
        path : path
            A model file.
        mmap : bool
            As in `sf.load`.

        Raises
        ------
        ValueError
            If the model is none of this kind: one of labels for a regressor, or of numbers for a classifier.
        """
        fitted = load(path, mmap=mmap)
        if not cls._predicts(fitted.loss):
            other = "SplineFMRegressor" if cls is SplineFMClassifier else "SplineFMClassifier"
            raise ValueError(
                f"{str(path)!r} holds a model of the {fitted.loss.name} loss, which is none for {cls.__name__}; "
                f"use sf.{other}.load"
            )
        estimator = cls(fitted.model, **_settings_of(fitted), **cls._own_settings(fitted.loss))
        estimator._take(fitted)
        return estimator

    @property
    def feature_importances_(self) -> FloatArray:
        """How much each column moves the score, as shares; see the attributes of the class."""
        check_is_fitted(self, "fitted_")
        known = getattr(self, "_importances", None)
        if known is None or known[0] is not self.fitted_:
            known = self._importances = (self.fitted_, self._find_importances())
        return known[1].copy()

    @staticmethod
    def _predicts(loss: Loss) -> bool:
        """Whether this is an estimator for models of a loss."""
        raise NotImplementedError

    @staticmethod
    def _own_settings(loss: Loss) -> dict[str, Any]:
        """The parameters of this estimator that a loss tells."""
        raise NotImplementedError

    def _take(self, fitted: Fitted) -> None:
        """Become the estimator of a model from a file, which knows the columns of its fields only."""
        self.fitted_, self.schema_ = fitted, fitted.encoder.schema
        self.history_, self._learner = list(fitted.history), None
        names = _columns_of(fitted)
        places = [int(name[1:]) for name in names if re.fullmatch(r"x(0|[1-9]\d*)", name)]
        if len(places) == len(names):  # of an array
            self.n_features_in_ = max(places) + 1
        else:
            self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)

    def _find_importances(self) -> FloatArray:
        # Against the order of the folders, when asked for: see `Fitted.segment`.
        from splinefm.explain.shapley import shapley_values

        fitted, rows = self.fitted_, getattr(self, "_rows", None)
        if rows is None or isinstance(fitted.model, HigherOrderFM):
            why = "rows of the training table, which a model file has not" if rows is None else "another model"
            raise AttributeError(f"feature_importances_ needs {why}; use sf.importance(estimator.fitted_, table)")
        rows = rows.grown(fitted.encoder.layout)
        values = np.abs(shapley_values(fitted, rows, rows, threads=self._threads()).values).mean(axis=0)
        names = getattr(self, "feature_names_in_", _positions(self.n_features_in_))
        shares = dict.fromkeys(names, 0.0)
        for column, value in zip(_columns_of(fitted, distinct=False), values, strict=True):
            shares[column] += value
        total = sum(shares.values())
        return np.array(list(shares.values())) / (total if total > 0.0 else 1.0)

    def __getstate__(self) -> dict[str, Any]:
        # A learner has threads and scratch memory; the next `partial_fit` makes another one of `fitted_`.
        return {name: value for name, value in super().__getstate__().items() if name not in _NOT_KEPT}

    def _loss(self) -> LossName:
        raise NotImplementedError

    def _numbers(self, y: object, classes: Labels | None) -> FloatArray:
        """A target in memory as the numbers to learn."""
        raise NotImplementedError

    def _column(self, numbers: FloatArray) -> pa.Array:
        """Numbers as `fitted_` expects its target."""
        return pa.array(numbers)

    def _class_weight(self, classes: Labels | None) -> ClassWeight:
        """What rows count by class, in terms of the target that is learned."""
        return None

    def _fit(
        self,
        X: object,
        y: object,
        sample_weight: object,
        target: str | None,
        eval_set: object = None,
        callbacks: object = None,
        classes: Labels | None = None,
    ) -> None:
        called = check_callbacks(callbacks)
        task = self._task(X, y, sample_weight, target, eval_set, classes)
        self.fitted_, chunks = fit_chunks(
            task.rows.table,
            task.rows.target,
            task.schema,
            self.model,
            task.loss,
            task.rows.sample_weight,
            task.validation,
            task.training,
            task.class_weight,
            called,
            bool(self.verbose),
        )
        self._rows = chunks.sample(MOST_ROWS)
        self.schema_ = with_bases(task.schema, self.fitted_.encoder)
        self.history_, self._learner = list(self.fitted_.history), None

    def _task(
        self,
        X: object,
        y: object,
        sample_weight: object,
        target: str | None,
        eval_set: object = None,
        classes: Labels | None = None,
    ) -> Task:
        """Check the settings, open the tables and remember their columns."""
        training, loss = self._training(), self._loss()
        _check_kind("model", self.model, AnyModel, "sf.FFM(k=8)")
        _check_kind("schema", self.schema, Schema, "sf.Schema.infer(table)")
        table, named = _open(X)
        if isinstance(table, Table) and table.n_rows == 1:
            raise ValueError("X has 1 sample; a model is fitted to two or more")
        if target is None:
            rows = _attach(table, pa.array(self._numbers(y, classes)), sample_weight, self.schema)
        else:
            rows = _check_rows(table, target, sample_weight)
        self._remember_columns(table, named, rows if target else None)
        schema = self.schema or _infer(rows)
        validation = self._open_validation(rows, schema, target, eval_set, classes)
        return Task(rows, schema, loss, validation, training, self._class_weight(classes))

    def _update(self, X: object, y: object, sample_weight: object, target: str | None) -> None:
        """One pass over new rows."""
        table = self._by_name(X)
        if target is None:
            column = self._column(self._numbers(y, getattr(self, "classes_", None)))
            rows = _attach(table, column, sample_weight, self.fitted_.encoder.schema)
        else:
            rows = _check_rows(table, target, sample_weight)
        learner = getattr(self, "_learner", None) or Learner(self.fitted_)
        self._learner = None  # an update that fails leaves a learner halfway, `fitted_` stays whole
        before, began = learner.encoder.n_rows, time.perf_counter()
        loss = learner.update(rows.table, rows.target, sample_weight=rows.sample_weight)
        seconds = time.perf_counter() - began
        n_rows, rate = learner.encoder.n_rows - before, learner.engine.optimizer.learning_rate
        total = self.history_[-1].seconds + seconds
        epoch = Epoch(len(self.history_) + 1, loss, math.nan, rate, n_rows / seconds, total, "update")
        self.history_ = [*self.history_, epoch]
        self.fitted_ = replace(learner.fitted(), history=tuple(self.history_))
        self._learner = learner

    def _scores(self, X: object) -> npt.NDArray[np.float32]:
        check_is_fitted(self, "fitted_")
        return self.fitted_.scores(self._by_name(X), threads=self._threads())

    def _predict(self, X: object) -> FloatArray:
        check_is_fitted(self, "fitted_")
        return self.fitted_.predict(self._by_name(X), threads=self._threads())

    def _training(self) -> Training:
        given = self.get_params(deep=False)
        named = {item.name: given[item.name] for item in fields(Training) if item.name in given}
        return Training(**named, seed=draw_seed(self.random_state), threads=self._threads())

    def _threads(self) -> int | None:
        """Threads to use; None is all cores, whatever machine it is."""
        given: Any = self.n_jobs
        if given is not None and (isinstance(given, bool) or not isinstance(given, Integral) or given == 0):
            raise ValueError(f"n_jobs must be None, -1 for all cores, or a number of threads, got {given!r}")
        return None if given == -1 else int(effective_n_jobs(given))

    def _open_validation(
        self, rows: _Rows, schema: Schema, target: str | None, eval_set: object, classes: Labels | None
    ) -> object:
        """A share of the rows, or the table that was given."""
        share: Any = self.validation
        if isinstance(share, bool) or not isinstance(share, Real):
            raise ValueError(
                f"validation is a share of the rows, such as 0.1, got {type(share).__name__}; "
                "a table goes to fit: fit(X, y, eval_set=(X_other, y_other))"
            )
        if eval_set is None or target is not None:
            return float(share) if eval_set is None else eval_set
        given: Any = eval_set
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise ValueError(
                f"for fit(X, y) eval_set is (X, y) or (X, y, sample_weight), got {type(given).__name__}; "
                "a table that has its target goes with fit(table, target=...)"
            )
        if len(given) == 3 and rows.sample_weight is None:
            raise ValueError("eval_set has sample weights but fit has none; pass sample_weight to fit as well")
        table = self._by_name(given[0])
        if not isinstance(table, Table) or table.n_rows is None:
            raise ValueError("eval_set=(X, y) takes a table in memory as X")
        schema.check_columns(table.names)
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
        FwFM(k=16) by default; FM(k=16) for more than 256 fields.
    schema : Schema, optional
        The fields; inferred from the table by default.
    epochs : int
        Passes over the data, at most.
    batch_size : int, optional
        Rows per step; chosen by the size of the table by default.
    learning_rate : float
        Its highest value.
    schedule : {"cosine", "constant"}
        The course of the learning rate: up for a while and then down along half a cosine; or the same in all steps.
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
    validation : float
        The share of the rows that chooses the best epoch (0: none), unless `fit` gets an `eval_set`.
    n_jobs : int, optional
        Threads: -1 for all cores, -2 for all but one; None is 1, unless a `joblib.parallel_config` says otherwise. The
        result does not depend on it.
    random_state : int, RandomState, Generator or None
        For start values, validation rows and the order of the rows: the same number gives the same model. With None, or
        a generator of NumPy, every fit draws another number, which `fitted_.training.seed` tells.
    verbose : bool
        Tell the progress on the standard error stream.
    class_weight : "balanced" or dict of labels to numbers, optional
        What the rows of a class count, in training and validation, on top of their weights; 1 for a class that is not
        named. "balanced" makes both classes count the same in all, which shifts probabilities towards the rare one.

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
    feature_importances_ : array of shape (n_features_in_,)
        How much each column moves the score: mean absolute Shapley values of up to 1,000 rows of the fit, divided by
        their sum. Exact, and worked out when it is first asked for. Not for a `HigherOrderFM`.
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
    >>> model = sf.SplineFMClassifier(sf.FM(k=2), epochs=5, n_jobs=1).fit(X, y)
    >>> model.predict({"recency": [0.7, 35.0], "country": ["US", "FR"]})
    array(['yes', 'no'], dtype='<U3')
    """

    classes_: Labels

    def __init__(
        self,
        model: AnyModel | None = None,
        *,
        schema: Schema | None = None,
        epochs: int = Training.epochs,
        batch_size: int | None = Training.batch_size,
        learning_rate: float = Training.learning_rate,
        schedule: str = Training.schedule,
        l2: Penalty = Training.l2,
        smoothness: Penalty = Training.smoothness,
        smoothness_order: int = Training.smoothness_order,
        optimizer: str = Training.optimizer,
        average: bool = Training.average,
        patience: int | None = Training.patience,
        refit_on_all: bool = Training.refit_on_all,
        select_resolutions: bool = Training.select_resolutions,
        validation: float = _VALIDATION,
        n_jobs: int | None = -1,
        random_state: RandomState = Training.seed,
        verbose: bool = False,
        class_weight: ClassWeight = None,
    ) -> None:
        super().__init__(
            model,
            schema=schema,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            schedule=schedule,
            l2=l2,
            smoothness=smoothness,
            smoothness_order=smoothness_order,
            optimizer=optimizer,
            average=average,
            patience=patience,
            refit_on_all=refit_on_all,
            select_resolutions=select_resolutions,
            validation=validation,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

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
            pandas and polars DataFrames, Arrow tables, dicts of arrays and 2-D arrays; with `target` also the path of
            Parquet or CSV files, a folder, a glob or a pyarrow dataset, which are read in chunks.
        y : array of shape (n_rows,)
            Labels of two values of any type.
        sample_weight : array of shape (n_rows,), or str
            A weight for each row; with `target` the name of a column.
        target : str, optional
            The column of X to predict, instead of y: two labels, or shares between 0 and 1.
        eval_set : tuple or table, optional
            Rows that choose the best epoch, instead of a share of X: `(X, y)` or `(X, y, sample_weight)`; with
            `target` a table, path or dataset that has this column, and that of the weights.
        callbacks : list of callable, optional
            Each is called with the `sf.Epoch` after every epoch, in all runs of the fit. One that returns True ends
            the fit: the best epoch so far is the model, and no other run begins.
        """
        _check_one_target(self, y, target)
        if target is not None:
            self._fit(X, None, sample_weight, target, eval_set, callbacks)
            self.classes_ = np.array(self.fitted_.classes or (0, 1))
        else:
            labels = _read_labels(y)
            self._fit_labels(X, labels, _two_classes(labels), sample_weight, eval_set, callbacks)
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

    def predict_log_proba(self, X: object) -> FloatArray:
        """Logarithms of the probabilities of both classes; finite where a probability is too close to 0 to be told."""
        scores = self._scores(X).astype(np.float64)
        return -np.column_stack([np.logaddexp(0.0, scores), np.logaddexp(0.0, -scores)])

    def predict(self, X: object) -> Labels:
        """The more probable label of each row."""
        scores = self._scores(X)
        return self.classes_[(scores > 0.0).astype(np.intp)]

    @staticmethod
    def _predicts(loss: Loss) -> bool:
        return loss.name == "logistic"

    @staticmethod
    def _own_settings(loss: Loss) -> dict[str, Any]:
        weights = loss.class_weights
        return {"class_weight": None if weights is None else dict(zip(loss.classes or (0, 1), weights, strict=True))}

    def _take(self, fitted: Fitted) -> None:
        super()._take(fitted)
        self.classes_ = np.array(fitted.classes or (0, 1))

    def _class_weight(self, classes: Labels | None) -> ClassWeight:
        if classes is None or not isinstance(self.class_weight, Mapping):
            return self.class_weight
        first, second = classes.tolist()
        return dict(enumerate(class_weights(self.class_weight, (first, second))))

    def _fit_labels(
        self,
        X: object,
        labels: Labels,
        classes: Labels,
        sample_weight: object,
        eval_set: object = None,
        callbacks: object = None,
    ) -> None:
        self._fit(X, labels, sample_weight, None, eval_set, callbacks, classes)
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
        known = classes.tolist()
        unknown = [label for label in np.unique(labels).tolist() if label not in known]  # NumPy takes "1" for 1
        if unknown:
            raise ValueError(f"y has the label {unknown[0]!r}; the classes are {quoted(known)}")
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
        FwFM(k=16) by default; FM(k=16) for more than 256 fields.
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
    schedule : {"cosine", "constant"}
        The course of the learning rate: up for a while and then down along half a cosine; or the same in all steps.
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
    validation : float
        The share of the rows that chooses the best epoch (0: none), unless `fit` gets an `eval_set`.
    n_jobs : int, optional
        Threads: -1 for all cores, -2 for all but one; None is 1, unless a `joblib.parallel_config` says otherwise. The
        result does not depend on it.
    random_state : int, RandomState, Generator or None
        For start values, validation rows and the order of the rows: the same number gives the same model. With None, or
        a generator of NumPy, every fit draws another number, which `fitted_.training.seed` tells.
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
    feature_importances_ : array of shape (n_features_in_,)
        How much each column moves the score: mean absolute Shapley values of up to 1,000 rows of the fit, divided by
        their sum. Exact, and worked out when it is first asked for. Not for a `HigherOrderFM`.
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
    >>> model = sf.SplineFMRegressor(sf.FM(k=2), epochs=5, n_jobs=1).fit(X, y)
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
        schedule: str = Training.schedule,
        l2: Penalty = Training.l2,
        smoothness: Penalty = Training.smoothness,
        smoothness_order: int = Training.smoothness_order,
        optimizer: str = Training.optimizer,
        average: bool = Training.average,
        patience: int | None = Training.patience,
        refit_on_all: bool = Training.refit_on_all,
        select_resolutions: bool = Training.select_resolutions,
        validation: float = _VALIDATION,
        n_jobs: int | None = -1,
        random_state: RandomState = Training.seed,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            model,
            schema=schema,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            schedule=schedule,
            l2=l2,
            smoothness=smoothness,
            smoothness_order=smoothness_order,
            optimizer=optimizer,
            average=average,
            patience=patience,
            refit_on_all=refit_on_all,
            select_resolutions=select_resolutions,
            validation=validation,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.loss = loss

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        return tags

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
            pandas and polars DataFrames, Arrow tables, dicts of arrays and 2-D arrays; with `target` also the path of
            Parquet or CSV files, a folder, a glob or a pyarrow dataset, which are read in chunks.
        y : array of shape (n_rows,)
            Numbers; with the Poisson loss at least 0.
        sample_weight : array of shape (n_rows,), or str
            A weight for each row; with `target` the name of a column.
        target : str, optional
            The column of X to predict, instead of y.
        eval_set : tuple or table, optional
            Rows that choose the best epoch, instead of a share of X: `(X, y)` or `(X, y, sample_weight)`; with
            `target` a table, path or dataset that has this column, and that of the weights.
        callbacks : list of callable, optional
            Each is called with the `sf.Epoch` after every epoch, in all runs of the fit. One that returns True ends
            the fit: the best epoch so far is the model, and no other run begins.
        """
        _check_one_target(self, y, target)
        self._fit(X, y, sample_weight, target, eval_set, callbacks)
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

    @staticmethod
    def _predicts(loss: Loss) -> bool:
        return loss.name != "logistic"

    @staticmethod
    def _own_settings(loss: Loss) -> dict[str, Any]:
        return {"loss": loss.name}

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
    estimator: SplineFMClassifier | SplineFMRegressor,
    X: object,
    y: object,
    sample_weight: object,
    target: str | None,
    eval_set: object,
) -> Task:
    """What `estimator.fit` with these arguments would learn; the estimator remembers the columns."""
    _check_one_target(estimator, y, target)
    labeled = y is not None and isinstance(estimator, SplineFMClassifier)
    classes = _two_classes(_read_labels(y)) if labeled else None
    return estimator._task(X, y, sample_weight, target, eval_set, classes)


def draw_seed(random_state: RandomState) -> int:
    """A random state as one number: itself if it is one, otherwise drawn, as scikit-learn does it."""
    given: Any = random_state
    if isinstance(given, np.random.Generator):
        return int(given.integers(_MOST_SEEDS))
    if given is None or isinstance(given, np.random.RandomState):
        return int(check_random_state(given).randint(_MOST_SEEDS))
    check_size("random_state", given, 0)
    return int(given)


def _settings_of(fitted: Fitted) -> dict[str, Any]:
    """The parameters of an estimator that would train as a model was trained."""
    known, training = inspect.signature(_SplineFM).parameters, fitted.training
    named = {item.name: getattr(training, item.name) for item in fields(Training) if item.name in known}
    named = {name: dict(value) if isinstance(value, tuple) else value for name, value in named.items()}
    return {**named, "random_state": training.seed, "n_jobs": -1 if training.threads is None else training.threads}


def _columns_of(fitted: Fitted, distinct: bool = True) -> list[str]:
    """The columns that the fields of a model read, several fields from one column perhaps."""
    names = [getattr(item, "column", item.name) for item in fitted.encoder.fields]
    return list(dict.fromkeys(names)) if distinct else names


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


def _attach(table: _Source, y: pa.Array, sample_weight: object, schema: Schema | None) -> _Rows:
    """A table in memory with y and the weights as columns, under names that are free.

    Columns that the schema needs are looked for before that: a message names those of the user.
    """
    if not isinstance(table, Table) or table.n_rows is None:
        raise ValueError('y goes with a table in memory; for files and datasets name the column: target="..."')
    if schema is not None:
        schema.check_columns(table.names)
    taken = set(table.names)
    rows = _Rows(table, _free("y", taken), None if sample_weight is None else _free("sample_weight", taken))
    return rows._replace(table=_with_columns(table, rows, y, sample_weight))


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
    return infer_schema(rows.table, target=rows.target).without(rows.sample_weight)


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
