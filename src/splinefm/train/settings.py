"""The settings of training, with their penalties and defaults, and checks of the arguments of a fit."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from splinefm._checks import check_column_name, check_kind, check_size, is_integer
from splinefm._wording import setting
from splinefm.encode.schema import check_schema
from splinefm.encode.tables.names import nearest_hint, quoted
from splinefm.model.engine import EngineName, check_engine
from splinefm.model.family import AnyModel
from splinefm.model.family.field_weighted import FwFM
from splinefm.model.family.parameters import pace_of

# Penalties as they are given: one number for all fields, or numbers by field.

_NUMBERS = int | float | np.integer | np.floating
# One number for all fields, numbers by field (kept as sorted pairs), or None for the default.
Penalty = float | Mapping[str, float] | tuple[tuple[str, float], ...] | None


def checked_penalty(name: str, value: Penalty) -> Penalty:
    """Return the penalty with a mapping turned into pairs, which can be compared, hashed and written as JSON."""
    if value is None or isinstance(value, _NUMBERS):
        return None if value is None else checked_number(name, value)
    try:
        given = dict(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or a mapping from field names to numbers, got {value!r}") from None
    return tuple(sorted((str(key), checked_number(f"{name} of {key!r}", number)) for key, number in given.items()))


def checked_number(name: str, value: object) -> float:
    if not isinstance(value, _NUMBERS) or not 0.0 <= value < math.inf:
        raise ValueError(f"{setting(name)} must be at least 0, got {value}")
    return float(value)


def penalties_by_field(penalty: Penalty) -> dict[str, float]:
    return {} if penalty is None or isinstance(penalty, float) else dict(penalty)


def fill_penalty(penalty: Penalty, names: Sequence[str], value: float) -> Penalty:
    if penalty is None or isinstance(penalty, float):
        return value if penalty is None else penalty
    return dict.fromkeys(names, value) | dict(penalty)


def penalty_by_field(penalty: Penalty, names: Sequence[str]) -> list[float]:
    """Return the penalty of each field of these names."""
    if isinstance(penalty, float):
        return [penalty] * len(names)
    found = penalties_by_field(penalty)  # once, since there can be thousands of fields
    return [found[name] for name in names]


def round_setting(value: float) -> float:
    """Return a number with three digits: users read it in `fitted.training`."""
    return float(f"{value:.3g}")


# Defaults of training that follow from the number of rows of a table.

# Below this number of rows, the default penalties grow as rows get fewer, up to this factor: decision 94.
SMALL_TABLE, MAX_STRENGTH = 3_000, 6.0
# Steps of a default epoch, and the most rows of its batches.
STEPS, MAX_IN_BATCH = 250, 4096
# A default batch has at least 32 rows, or 4 if an epoch of a small table would otherwise have fewer than 32 steps.
MIN_IN_BATCH, MIN_IN_SMALL_BATCH, MIN_STEPS = 32, 4, 32
# Epochs by default, at most. Tables over LARGE_TABLE rows have fewer, and a smaller L2: decision 99.
EPOCHS, LARGE_TABLE, MIN_EPOCHS = 30, 1_000_000, 2


def default_epochs(n_rows: int) -> int:
    """Return the default of the maximum number of epochs for a table: beyond 1,000,000 rows, about as many steps.

    Examples
    --------
    >>> [default_epochs(n_rows) for n_rows in (1_000_000, 2_000_000, 5_000_000, 10_000_000)]
    [30, 15, 6, 3]
    """
    return max(MIN_EPOCHS, min(EPOCHS, round(EPOCHS * LARGE_TABLE / max(1, n_rows))))


def penalty_strength(n_rows: int) -> float:
    """Return how many times as large as usual the default penalties of a table are.

    A penalty is added to the mean loss of the rows. As prior knowledge, it counts as much as a number of rows: the
    fewer there are, the larger its weight.

    Examples
    --------
    >>> [penalty_strength(n_rows) for n_rows in (100, 1_000, 3_000, 1_000_000)]
    [6.0, 3.0, 1.0, 1.0]
    """
    return min(MAX_STRENGTH, max(1.0, SMALL_TABLE / max(1, n_rows)))


def l2_strength(n_rows: int) -> float:
    """Return how many times as large as usual the default L2 penalty of a table is.

    It is added to the mean loss of every batch in which a feature is active. The batches of a large table do not grow
    with it, so without this factor the rows of a rare category would count less against its penalty in larger tables.
    """
    return penalty_strength(n_rows) * min(1.0, LARGE_TABLE / max(1, n_rows))


def default_batch(n_rows: int) -> int:
    """Return the default batch size of tables that are not small: the power of two closest to 1/250 of their rows.

    Examples
    --------
    >>> [default_batch(n_rows) for n_rows in (1_000, 30_000, 10_000_000)]
    [32, 128, 4096]
    """
    return int(min(MAX_IN_BATCH, max(MIN_IN_BATCH, 2 ** round(math.log2(max(1, n_rows) / STEPS)))))


def small_batch(n_rows: int) -> int | None:
    """Return the default batch size of a small table, or None for tables whose batches have the usual size.

    Examples
    --------
    >>> [small_batch(n_rows) for n_rows in (10, 150, 250, 500, 1_000)]
    [4, 4, 8, 16, None]
    """
    size = max(MIN_IN_SMALL_BATCH, 2 ** round(math.log2(max(1, n_rows) / MIN_STEPS)))
    return int(size) if size < MIN_IN_BATCH else None


# The arguments of the functions that fit: checks of their types, and where unknown ones belong.

_Callable = TypeVar("_Callable", bound=Callable[..., Any])


def argument_places(kind: type, of: str, renamed: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return for each setting of a dataclass, and for other names of them, how to write it.

    Examples
    --------
    >>> argument_places(FwFM, "model=sf.FwFM")["k"]
    'model=sf.FwFM(k={})'
    """
    names = {item.name: item.name for item in fields(kind)} | dict(renamed or {})
    return {name: f"{of}({other}={{}})" for name, other in names.items()}


MODEL_ARGUMENTS = argument_places(FwFM, "model=sf.FwFM")


def argument_hint(name: str, value: object, known: Sequence[str], elsewhere: Mapping[str, str]) -> str:
    """Return the part of a message that says where something belongs that is not a parameter.

    Examples
    --------
    >>> argument_hint("k", 8, ["model"], MODEL_ARGUMENTS), argument_hint("epoch", 8, ["epochs"], MODEL_ARGUMENTS)
    ('; write model=sf.FwFM(k=8)', "; nearest: 'epochs'")
    """
    if name in elsewhere:
        return f"; write {elsewhere[name].format(repr(value))}"
    return nearest_hint(name, known) or f". Parameters: {', '.join(known)}"


def explain_unknown(elsewhere: Mapping[str, str]) -> Callable[[_Callable], _Callable]:
    """Decorate a function, or a class, so that an unknown keyword raises an error that says where it belongs.

    The signature stays as it is.
    """

    def decorate(function: _Callable) -> _Callable:
        called: Any = vars(function)["__init__"] if isinstance(function, type) else function
        known = [name for name in inspect.signature(called).parameters if name != "self"]

        @wraps(called)
        def call(*args: Any, **named: Any) -> Any:
            for name in (name for name in named if name not in known):
                advice = argument_hint(name, named[name], known, elsewhere)
                raise TypeError(f"{function.__name__} has no parameter {name!r}{advice}")
            return called(*args, **named)

        if not isinstance(function, type):
            return call  # type: ignore[return-value]  # of the same signature
        function.__init__ = call  # type: ignore[misc]
        return function

    return decorate


def check_columns(target: object, sample_weight: object) -> None:
    """Raise unless the target and the weights are names of columns."""
    check_column_name("target", target)
    check_column_name("sample_weight", sample_weight)


def check_model(model: object) -> None:
    """Raise unless an argument is None or a model, which is neither its name nor its class."""
    check_kind("model", model, AnyModel, "sf.FM(k=8)")


def check_optional_schema(schema: object) -> None:
    """Raise unless an argument is None or a schema."""
    if schema is not None:
        check_schema(schema)


# The settings of training.

# A model file does not have settings of the machine, because it may be read on another one.
MACHINE_SETTING = {"saved": False}
# The default penalties: decision 26.
L2, SMOOTHNESS = 1e-4, 1e-2
# The penalty of linear weights, as a share of the penalty of vectors.
LINEAR_L2 = 0.1
# The default patience: at least this number of epochs, and one for every five epochs: decision 104.
MIN_PATIENCE, EPOCHS_PER_PATIENCE = 4, 5
# How many to look for, "auto" for the default, or none.
Crosses = Literal["auto"] | int | None
Effort = Literal["fast", "default", "best"]
EFFORTS: tuple[Effort, ...] = get_args(Effort)
Patience = Literal["auto"] | int | None


@explain_unknown({**MODEL_ARGUMENTS, "random_state": "seed={}", "n_jobs": "threads={}"})
@dataclass(frozen=True)
class Training:
    """The settings of training.

    Parameters
    ----------
    epochs : int, optional
        Maximum number of passes over the data. By default 30, and fewer for tables over 1,000,000 rows, down
        to 2 from 12,000,000 on: about as many steps.
    batch_size : int, optional
        Rows per step. By default, an epoch has about 250 steps of 32 to 4096 rows each. Tables below about 720
        rows get about 32 steps of 4, 8 or 16 rows: fewer steps would not learn enough.
    learning_rate : float
        Peak learning rate. With n > 50 fields, which all move the score of a row at once, it is multiplied by
        `pace_of(n)`: (50 / n)², and 25 / n from 100 fields on.
    schedule : {"cosine", "constant"}
        Learning rate schedule. "cosine" warms up over the first `warmup` of all steps and then decays along half a
        cosine.
    optimizer : {"adamw", "adagrad"}
        Both are lazy: a step updates only the features that are active in its batch.
    l2 : float or mapping of str to float, optional
        Penalty φ l2 (½ |v|² / r + w² / 20) on every feature that is active in a batch; by default 1e-4, and 100 / n for
        tables of n > 1,000,000 rows (`l2_strength`). r is the root mean square length of the vectors in the feature's
        group (a resolution of a spline, or the categories of a field) after the previous epoch, times the number of
        fields for an FFM; r = 1 in the first epoch. Groups that help little shrink toward zero, as with a group lasso.
        Vectors for products of three have an r of their own. φ is the noise of the target (`Loss.dispersion`): 1 for
        the logistic loss, the residual variance for the squared loss, the deviance per row for the Poisson loss.
    smoothness : float or mapping of str to float, optional
        Penalty φ smoothness ∫ |s''(t)|² dt on the splines s of a column's vectors and of its linear weights,
        with t = 20 u, computed as (m / 20)³ Σ |Δ²v|² for m segments; 1e-2 by default. It means the same for any number
        of segments; beyond 100 segments, its weight stays the same. Every resolution of a `MultiResolution` has the
        penalty of 20 segments. Only splines are smoothed; bins and other bases are not, nor is a cross of two numbers
        unless it is named, as in `smoothness={"a × b": 0.01}`. Both penalties can be given by field name; other fields
        get the default. Both defaults are 3000 / n times as large for tables of n < 3000 rows, but at most 6 times
        (`penalty_strength`). Penalties that you give are used as they are: a number that equals the default is the same
        fit. Only crosses of recurring values that a fit adds have an `l2` of their own. `fitted.training` has the
        penalties that were used.
    smoothness_order : {2, 1, 3}
        Order of the derivative. Strong smoothness turns a curve into a constant (1), a straight line (2) or a parabola
        (3) in the transformed column.
    warmup : float
        Share of all steps over which the learning rate rises; ignored by the constant schedule.
    average : bool
        Use a moving average of the weights, over about half an epoch.
    patience : "auto", int or None
        Stop after this many epochs without a better validation loss; never with None. By default a fifth of `epochs`,
        but at least 4: the learning rate of a long run stays high for longer.
    refit_on_all : bool
        Train again on all rows, including the validation rows, for the best number of epochs, or for more if a later
        one is as good within a quarter of a standard error. The bias is then set so that the slopes of the loss add up
        to zero. Skipped if the validation rows are a separate table, or if the encoded rows do not fit in memory.
    effort : {"default", "fast", "best"}
        How much a fit searches by itself for what is left open: bases and penalties of inferred columns, the model,
        the number of epochs, crosses. Settings that you give stay as they are. "fast" searches nothing; "best" tries
        more settings and fits up to 8 members. What was tried is in `fitted.search`. There is no search without
        validation rows, for tables below 1,000 or over 1,000,000 rows, and where the encoded rows take more than
        256 MiB.
    time_limit : float, optional
        Seconds after which a fit ends: the search takes at most 60 % of them, and the last run ends after the epoch
        in which the time is up. The result then depends on the speed of the machine.
    crosses : "auto", int or None
        Look for pairs of columns that act together, and for values that recur and have effects of their own, and add an
        `sf.Cross` for those that lower the loss of held-out rows: up to three and two for inferred fields ("auto"), up
        to this number of each for any fields, or none (None). A part of the search, which "fast" leaves out; skipped if
        the schema has crosses already.
    members : int, optional
        Train several models and average their scores. After a search, each of them has another part of the rows held
        out, which chooses its best epoch; without one they share the validation rows and differ in the seed. The result
        is one model, with the vectors of all members side by side. By default the search fits up to four, fewer
        for large tables; there is one if the model is given, or nothing is searched.
    seed : int
        Seed for the initial values and the order of the rows.
    threads : int, optional
        Number of threads; all cores by default. The result does not depend on it.
    engine : {"cpu", "torch"}
        What computes the steps: the compiled loops, or PyTorch, which takes the same steps on any device
        (`pip install 'splinefm[torch]'`). A fitted model does not keep it, because it may go to another machine.
    device : str, optional
        The device of the torch engine, such as "cuda", "cuda:1" or "cpu". By default CUDA if there is one, else the
        CPU.

    Examples
    --------
    >>> Training(epochs=3).rate_at(0, 100) < Training(epochs=3).rate_at(10, 100)
    True
    >>> Training(l2={"price": 1e-3, "country": 1e-5}).l2
    (('country', 1e-05), ('price', 0.001))
    """

    # DIFFERS: the paper trains without penalties, averaging and early stopping, and tunes the number of epochs.
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float = 0.01
    schedule: str = "cosine"
    optimizer: str = "adamw"
    l2: Penalty = None
    smoothness: Penalty = None
    smoothness_order: int = 2
    warmup: float = 0.05
    average: bool = True
    patience: Patience = "auto"
    refit_on_all: bool = True
    effort: Effort = "default"
    time_limit: float | None = None
    crosses: Crosses = "auto"
    members: int | None = None
    seed: int = 0
    threads: int | None = None
    engine: EngineName = field(default="cpu", metadata=MACHINE_SETTING)
    device: str | None = field(default=None, metadata=MACHINE_SETTING)

    def __post_init__(self) -> None:
        names = ("epochs", "batch_size", "members", "threads")
        for name in (*names, "patience") if self.patience != "auto" else names:
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        if self.effort not in EFFORTS:
            raise ValueError(f"{setting('effort')} must be one of {', '.join(EFFORTS)}, got {self.effort!r}")
        if self.time_limit is not None and not checked_number("time_limit", self.time_limit) > 0.0:
            raise ValueError(f"{setting('time_limit')} must be above 0 seconds, got {self.time_limit}")
        check_size("seed", self.seed, 0)
        check_engine(self.engine, self.device)
        _check_crosses(self.crosses)
        checked_number("learning_rate", self.learning_rate)
        for name in ("l2", "smoothness"):
            object.__setattr__(self, name, checked_penalty(name, getattr(self, name)))
        if self.schedule not in ("cosine", "constant"):
            raise ValueError(f'schedule must be "cosine" or "constant", got {self.schedule!r}')
        if self.smoothness_order not in (1, 2, 3):
            raise ValueError(f"smoothness_order must be 1, 2 or 3, got {self.smoothness_order}")
        if not 0.0 <= self.warmup <= 1.0:
            raise ValueError(f"warmup must be a share of all steps between 0 and 1, got {self.warmup}")

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise an error if a penalty names a field that does not exist."""
        known = set(names)
        for penalty in ("l2", "smoothness"):
            for name in penalties_by_field(getattr(self, penalty)):
                if name not in known:
                    hint = nearest_hint(name, names)
                    raise ValueError(
                        f"{penalty} is given for {name!r}, which is not a field{hint}. Fields: {quoted(names)}"
                    )

    def with_penalties(
        self,
        names: Sequence[str],
        l2: float = L2,
        smoothness: float = SMOOTHNESS,
        unsmoothed: Collection[str] = (),
    ) -> Training:
        """Return a copy with the default penalties filled in for the fields of these names.

        The smoothness of `unsmoothed` fields is 0 unless they are named.
        """
        self.check_fields(names)
        smooth = self.smoothness
        if unsmoothed:
            known = dict.fromkeys(names, smooth) if isinstance(smooth, float) else {}
            smooth = tuple({**known, **dict.fromkeys(unsmoothed, 0.0), **penalties_by_field(smooth)}.items())
        return replace(self, l2=fill_penalty(self.l2, names, l2), smoothness=fill_penalty(smooth, names, smoothness))

    def with_l2(self, name: str, l2: float, names: Sequence[str]) -> Training:
        """Return a copy with an L2 penalty for one of these fields; the others keep theirs."""
        given = dict.fromkeys(names, self.l2) if isinstance(self.l2, float) else penalties_by_field(self.l2)
        return replace(self, l2={**given, name: round_setting(l2)})

    def for_table(self, names: Sequence[str], n_rows: int, unsmoothed: Collection[str] = ()) -> Training:
        """Return a copy with the defaults of a table filled in, which a fitted model keeps.

        These are the penalties of its fields, the number of epochs and, if the table is small, the batch size. What is
        given stays as it is, so that settings of a fitted model do not change again.
        """
        strength, l2 = penalty_strength(n_rows), L2 * l2_strength(n_rows)
        filled = self.with_penalties(names, round_setting(l2), round_setting(SMOOTHNESS * strength), unsmoothed)
        filled = replace(filled, epochs=self.max_epochs(n_rows))
        return filled if self.batch_size is not None else replace(filled, batch_size=small_batch(n_rows))

    def for_fields(self, n_fields: int) -> Training:
        """Return a copy with the learning rate for this number of fields."""
        return replace(self, learning_rate=self.learning_rate * pace_of(n_fields))

    def on_any_machine(self) -> Training:
        """Return a copy with the default engine: what a model keeps, which may be updated on another machine."""
        return replace(self, engine=Training.engine, device=None)

    def max_epochs(self, n_rows: int) -> int:
        """Return the maximum number of epochs for a table: as given, or the default."""
        return default_epochs(n_rows) if self.epochs is None else self.epochs

    def max_epochs_without_gain(self, n_rows: int) -> int | None:
        """Return after how many epochs without a better validation loss a run on a table ends; None for never.

        Examples
        --------
        >>> [Training(epochs=epochs).max_epochs_without_gain(1000) for epochs in (None, 5, 60)]
        [6, 4, 12]
        """
        if self.patience == "auto":
            return max(MIN_PATIENCE, self.max_epochs(n_rows) // EPOCHS_PER_PATIENCE)
        return self.patience

    def rows_per_step(self, n_rows: int) -> int:
        """Return the batch size for a table: as given, or the power of two closest to 1/250 of its rows."""
        if self.batch_size is not None:
            return min(self.batch_size, max(1, n_rows))  # a batch cannot exceed the table
        return default_batch(n_rows)

    def rate_at(self, step: float, n_steps: float) -> float:
        """Return the learning rate of a step, counted from 0."""
        if self.schedule == "constant":
            return self.learning_rate
        n_warmup = self.warmup * n_steps
        if step < n_warmup:
            return self.learning_rate * (step + 1) / (n_warmup + 1)
        done = (step - n_warmup) / max(1.0, n_steps - n_warmup)
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))

    def rates(self, epoch: int, n_rows: int) -> Callable[[int], float]:
        """Return the learning rate within an epoch, counted from 0, as a function of the rows seen.

        It counts rows, not batches, because batches can have any size.
        """
        size, epochs = self.rows_per_step(n_rows), self.max_epochs(n_rows)
        return lambda seen: self.rate_at((epoch * n_rows + seen) / size, epochs * n_rows / size)


def check_training(training: object) -> None:
    """Raise unless an argument is None or settings of training."""
    check_kind("training", training, Training, "sf.Training(epochs=2)")


def seeded(*seeds: int) -> np.random.Generator:
    """Return a random generator that differs from `default_rng(seed)`.

    Synthetic data often come from `default_rng(0)`; the rows to hold out must not depend on the same random numbers.
    """
    return np.random.default_rng([0x73706C696E65, *seeds])


def _check_crosses(crosses: object) -> None:
    if crosses is None or crosses == "auto" or (is_integer(crosses) and int(str(crosses)) >= 0):
        return
    raise ValueError(f'crosses must be "auto", None or the number of crosses to look for, got {crosses!r}')
