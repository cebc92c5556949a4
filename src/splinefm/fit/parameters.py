"""The parameters that both estimators share: their names and types, and their documentation."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Integral
from typing import Any, Self, TypedDict, TypeVar, cast

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from splinefm._checks import check_size, is_integer
from splinefm.encode.interactions import InteractionCst
from splinefm.encode.schema import Schema
from splinefm.encode.tables.names import nearest_hint
from splinefm.fit.fitting import DEFAULT_MODEL, fit_model
from splinefm.model.engine import EngineName
from splinefm.model.family import AnyModel
from splinefm.train.fitted import Fitted
from splinefm.train.settings import MODEL_ARGUMENTS, Crosses, Effort, Patience, Penalty, Training, check_model

MonotonicCst = Mapping[str, int] | Sequence[int] | None
EstimatorInteractionCst = InteractionCst | Sequence[Collection[int]]
RandomState = int | np.random.RandomState | np.random.Generator | None
_Class = TypeVar("_Class", bound=type)
_MAX_SEEDS = 2**31 - 1
_MODEL_PREFIX = "model__"
_OF_MODEL_HINT = "; it belongs to the model: "
# Names of arguments of the library, and what scikit-learn calls them.
_BELOW = {"seed": "random_state", "threads": "n_jobs"}
_VALIDATION: float = inspect.signature(fit_model).parameters["validation"].default


class EstimatorSettings(TypedDict, total=False):
    """The keyword parameters of both estimators; `SplineFMParameters.__init__` has their defaults."""

    schema: Schema | None
    monotonic_cst: MonotonicCst
    interaction_cst: EstimatorInteractionCst
    epochs: int | None
    batch_size: int | None
    learning_rate: float
    schedule: str
    l2: Penalty
    smoothness: Penalty
    smoothness_order: int
    optimizer: str
    average: bool
    patience: Patience
    refit_on_all: bool
    effort: Effort
    time_limit: float | None
    crosses: Crosses
    members: int | None
    validation: float
    engine: EngineName
    device: str | None
    n_jobs: int | None
    random_state: RandomState
    verbose: bool


class SplineFMParameters(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The parameters that both estimators share."""

    def __init__(
        self,
        model: AnyModel | None = None,
        *,
        schema: Schema | None = None,
        monotonic_cst: MonotonicCst = None,
        interaction_cst: EstimatorInteractionCst = None,
        epochs: int | None = Training.epochs,
        batch_size: int | None = Training.batch_size,
        learning_rate: float = Training.learning_rate,
        schedule: str = Training.schedule,
        l2: Penalty = Training.l2,
        smoothness: Penalty = Training.smoothness,
        smoothness_order: int = Training.smoothness_order,
        optimizer: str = Training.optimizer,
        average: bool = Training.average,
        patience: Patience = Training.patience,
        refit_on_all: bool = Training.refit_on_all,
        effort: Effort = Training.effort,
        time_limit: float | None = Training.time_limit,
        crosses: Crosses = Training.crosses,
        members: int | None = Training.members,
        validation: float = _VALIDATION,
        engine: EngineName = Training.engine,
        device: str | None = Training.device,
        n_jobs: int | None = -1,
        random_state: RandomState = Training.seed,
        verbose: bool = False,
        **unknown: object,  # not in the signatures of the estimators: see `shared_parameters`
    ) -> None:
        for name, value in unknown.items():
            known = [*inspect.signature(type(self).__init__).parameters][1:]
            raise TypeError(f"{type(self).__name__} has no parameter {name!r}{_way_out(name, value, known)}")
        self.model = model
        self.schema = schema
        self.monotonic_cst = monotonic_cst
        self.interaction_cst = interaction_cst
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
        self.effort = effort
        self.time_limit = time_limit
        self.crosses = crosses
        self.members = members
        self.validation = validation
        self.engine = engine
        self.device = device
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
        """Set parameters by name; `model__k=8` replaces the model by a copy with this k.

        A `model` of None stands for the default model, which `model__k` then changes.

        Parameters
        ----------
        **params
            Names and values.
        """
        direct = {name: value for name, value in params.items() if not name.startswith(_MODEL_PREFIX)}
        nested = {name.removeprefix(_MODEL_PREFIX): params[name] for name in params if name not in direct}
        self._check_names(direct)
        super().set_params(**direct)
        if nested:
            check_model(self.model)
            self.model = (self.model or DEFAULT_MODEL).set_params(**nested)
        return self

    def _check_names(self, params: Mapping[str, object]) -> None:
        """Raise an error that says where a name belongs; scikit-learn would list all parameters."""
        known = self._get_param_names()
        for name, value in params.items():
            if name not in known and "__" not in name:
                hint = (
                    f"{_OF_MODEL_HINT}{_MODEL_PREFIX}{name}"
                    if name in MODEL_ARGUMENTS
                    else _way_out(name, value, known)
                )
                raise ValueError(f"Invalid parameter {name!r} for {type(self).__name__}{hint}")

    def _training(self) -> Training:
        given = self.get_params(deep=False)
        named = {item.name: given[item.name] for item in fields(Training) if item.name in given}
        return Training(**named, seed=draw_seed(self.random_state), threads=self._threads())

    def _threads(self) -> int | None:
        """Return the number of threads; None means all cores of whatever machine this is."""
        given: Any = self.n_jobs
        if given is not None and (isinstance(given, bool) or not isinstance(given, Integral) or given == 0):
            raise ValueError(f"n_jobs must be None, -1 for all cores, or a number of threads, got {given!r}")
        return None if given == -1 else int(effective_n_jobs(given))


def _way_out(name: str, value: object, known: Sequence[str]) -> str:
    """Return the part of a message that says where something belongs that is not a parameter."""
    if name in MODEL_ARGUMENTS:
        return f"{_OF_MODEL_HINT}{MODEL_ARGUMENTS[name].format(repr(value))}"
    if name in _BELOW:
        return f"; estimators say {_BELOW[name]}={value!r}"
    if name in ("target", "callbacks", "eval_set", "sample_weight"):
        return "; it is an argument of fit"
    return nearest_hint(name, known) or f". Parameters: {', '.join(known)}"


def shapes_of(monotonic_cst: MonotonicCst, columns: Sequence[str]) -> dict[str, str]:
    """Return the shapes that `monotonic_cst` asks for, by column.

    Examples
    --------
    >>> shapes_of({"price": -1, "age": 0}, ["age", "price"]), shapes_of([1, 0], ["age", "price"])
    ({'price': 'decreasing'}, {'age': 'increasing'})
    """
    if monotonic_cst is None:
        return {}
    given: Any = monotonic_cst
    if not isinstance(given, Mapping):
        signs = np.asarray(given)
        if signs.shape != (len(columns),):
            raise ValueError(f"monotonic_cst has shape {signs.shape} but X has {len(columns)} features")
        given = dict(zip(columns, signs.tolist(), strict=True))
    wrong = {name: sign for name, sign in given.items() if sign not in (-1, 0, 1)}
    if wrong:
        raise ValueError(f"monotonic_cst must be -1, 0 or 1 for each column, got {wrong}")
    return {name: "increasing" if sign > 0 else "decreasing" for name, sign in given.items() if sign}


def interactions_of(given: EstimatorInteractionCst, columns: Sequence[str]) -> InteractionCst:
    """Return constraints on interactions with names in place of the positions of columns.

    Examples
    --------
    >>> interactions_of([{0, "city"}], ["age", "price", "city"])
    [['age', 'city']]
    """
    sets: Any = given
    if sets is None or isinstance(sets, str) or not isinstance(sets, Iterable):
        return cast(InteractionCst, sets)
    named = []
    for names in sets:
        if isinstance(names, str) or not isinstance(names, Iterable):
            return cast(InteractionCst, sets)  # of which `Interactions` complains
        named.append(sorted(_name_at(name, columns) for name in names))
    return named


def _name_at(given: Any, columns: Sequence[str]) -> str:
    if isinstance(given, str):
        return given
    if not is_integer(given) or not 0 <= int(given) < len(columns):
        raise ValueError(f"interaction_cst has {given!r}, but X has {len(columns)} columns, counted from 0")
    return columns[int(given)]


def draw_seed(random_state: RandomState) -> int:
    """Return an integer as it is, and a seed drawn from anything else, as scikit-learn does."""
    given: Any = random_state
    if isinstance(given, np.random.Generator):
        return int(given.integers(_MAX_SEEDS))
    if given is None or isinstance(given, np.random.RandomState):
        return int(check_random_state(given).randint(_MAX_SEEDS))
    check_size("random_state", given, 0)
    return int(given)


def settings_of(fitted: Fitted) -> dict[str, Any]:
    """Return the parameters of an estimator that would train like a model was trained."""
    known, training = inspect.signature(SplineFMParameters).parameters, fitted.training
    named = {item.name: getattr(training, item.name) for item in fields(Training) if item.name in known}
    named = {name: dict(value) if isinstance(value, tuple) else value for name, value in named.items()}
    return {**named, "random_state": training.seed, "n_jobs": -1 if training.threads is None else training.threads}


_MODEL = """\
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM, optional
        By default, FwFM(k=16, third=16), or FM(k=16) for more than 256 fields.
"""
_SETTINGS = """\
    schema : Schema, optional
        The fields; inferred from the table by default.
    monotonic_cst : mapping of str to {1, 0, -1}, or array of them, optional
        Columns along which the score never falls (1) or never rises (-1), whatever the other columns are; see `shape`
        of `Numerical`. By name, or one number for each column of X.
    interaction_cst : {"pairwise", "no_interactions"} or list of sets of str or int, optional
        Columns that may interact: pairs only, none, or the columns of the same set, by name or by position. Columns
        that are in no set form another one. The model and its updates keep it exactly.
    epochs : int, optional
        Maximum number of passes over the data. By default 20, and fewer for tables over 1,000,000 rows.
    batch_size : int, optional
        Rows per step; by default, chosen by the size of the table: about 250 steps per epoch of 32 to 4096 rows, and
        of 4 to 16 rows for tables below about 720 rows.
    learning_rate : float
        Peak learning rate.
    schedule : {"cosine", "constant"}
        Learning rate schedule: a warmup and then a cosine decay, or the same rate in all steps.
    l2, smoothness : float or mapping of str to float, optional
        Penalties on the size of all weights and on the roughness of curves: a number for all columns, or numbers by
        field; a cross of two numbers is smoothed only if it is named. By default 1e-4 and 1e-2, up to six times as much
        for tables below 3,000 rows, and a smaller L2 penalty for tables over 1,000,000 rows. What you give is used as
        it is; `fitted_.training` has what was used.
    smoothness_order : {2, 1, 3}
        Strong smoothness turns a curve into a constant (1), a straight line (2) or a parabola (3).
    optimizer : {"adamw", "adagrad"}
        The optimizer.
    average : bool
        Use a moving average of the weights.
    patience : "auto", int or None
        Stop after this many epochs without a better validation loss, by default a fifth of `epochs` but at least 4;
        never with None.
    refit_on_all : bool
        Train again on all rows, for the number of epochs that was best on the validation rows.
    effort : {"default", "fast", "best"}
        How much `fit` searches by itself for what is left open: bases and penalties of inferred columns, the model, the
        number of epochs, crosses. "fast" searches nothing; "best" tries more, and fits up to 8 members. What was tried
        is in `fitted_.search`. Tables below 1,000 or over 1,000,000 rows are not searched.
    time_limit : float, optional
        Seconds after which `fit` ends with the best model so far.
    crosses : "auto", int or None
        Look for pairs of columns that act together, and for values that recur and have effects of their own, and add an
        `sf.Cross` for those that lower the loss of held-out rows: up to three and two if the schema is inferred
        ("auto"), up to this number of each for any fields, or none.
    members : int, optional
        Train several models and average their scores: one model with longer vectors. By default, a search that chooses
        the model fits up to four; there is one if the model is given.
    validation : float
        The share of rows that chooses the best epoch (0 for none), unless `fit` gets an `eval_set`.
    engine : {"cpu", "torch"}
        What computes the steps of `fit` and `partial_fit`: the compiled loops, or PyTorch.
    device : str, optional
        The device of the torch engine, such as "cuda"; by default CUDA if there is one, else the CPU.
    n_jobs : int, optional
        Number of threads: -1 for all cores, -2 for all but one. None means 1 unless a `joblib.parallel_config` says
        otherwise. The result does not depend on it.
    random_state : int, RandomState, Generator or None
        Seed for the initial values, the validation rows and the order of the rows; the same integer gives the same
        model. With None or a NumPy generator, every fit draws a new seed; `fitted_.training.seed` has it.
    verbose : bool
        Report progress on standard error.
"""
_ATTRIBUTES = """\
    fitted_ : Fitted
        The model itself, which can be saved, explained, exported and served without scikit-learn.
    schema_ : Schema
        The fields, as given or inferred; `print` shows the reason for each of them.
    history_ : list of Epoch
        The losses of every epoch and of every `partial_fit`.
    feature_importances_ : array of shape (n_features_in_,)
        How much each column moves the score: mean absolute Shapley values of up to 1,000 rows of the fit, divided by
        their sum. Exact, and computed on first access. Not available for orders above 3, nor after `load`, because
        a model file contains no rows: use `sf.importance` there.
    n_features_in_ : int
        Number of columns of X in `fit`.
    feature_names_in_ : array of str
        Names of these columns, if they have names.
"""


def shared_parameters(cls: _Class) -> _Class:
    """Complete the docstring and the signature of an estimator by the parameters that both share.

    The docstring has the lines `{model}`, `{settings}` and `{attributes}` where the shared text belongs. scikit-learn
    reads the names of parameters from the signature of `__init__`, so `**settings` is replaced by its parameters.
    """
    text = cls.__doc__ or ""
    for mark, part in (("{model}", _MODEL), ("{settings}", _SETTINGS), ("{attributes}", _ATTRIBUTES)):
        # Python removes the indentation of docstrings from 3.13 on.
        text = text.replace(f"    {mark}\n", part).replace(f"{mark}\n", textwrap.dedent(part))
    cls.__doc__ = text
    init: Callable[..., None] = cls.__init__  # type: ignore[misc]  # of the class itself
    init.__signature__ = _merged_signature(init, cls.__mro__)  # type: ignore[attr-defined]
    return cls


def _merged_signature(init: Callable[..., None], bases: tuple[type, ...]) -> inspect.Signature:
    """Return the signature of an `__init__` with `**settings` replaced by the keyword parameters of the base class."""
    shared: dict[str, Any] = next(
        dict(inspect.signature(base.__init__).parameters)  # type: ignore[misc]
        for base in bases
        if "__init__" in vars(base) and vars(base)["__init__"] is not init
    )
    signature = inspect.signature(init)
    every = {**signature.parameters, **shared, **signature.parameters}  # its own parameters come first, and count
    return signature.replace(parameters=[item for item in every.values() if item.kind is not item.VAR_KEYWORD])
