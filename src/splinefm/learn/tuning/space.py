"""What `sf.tune` searches over: the default space of each model, and what a point of it means."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, cast, get_args

from splinefm.encode.bases.basis import Basis
from splinefm.encode.bases.splines import BSpline, MultiResolution
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Field, Schema
from splinefm.encode.tables.names import quoted
from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.encode.transforms.choice import ATOM_SHARE
from splinefm.encode.transforms.quantile import Quantile
from splinefm.encode.transforms.scaling import ArcsinhSquare, Log, MinMax
from splinefm.encode.transforms.transform import Transform
from splinefm.learn.resolutions import Resolutions, free_columns, with_resolutions
from splinefm.learn.training import L2, SMOOTHNESS, Training
from splinefm.learn.tuning.study import Value
from splinefm.model.family import AnyModel


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, by their logarithm."""

    low: float
    high: float


Entry = Range | tuple[Value, ...]
Params = Mapping[str, Any]

AS_IS = "schema"
"""The value of `segments` that leaves every basis as the schema has it."""
BY_COLUMN = "by column"
"""The value of `segments` that stands for what `select_resolutions` finds."""
TRANSFORMS: dict[str, Transform] = {
    "quantile": Quantile(atom_share=ATOM_SHARE),
    "minmax": MinMax(),
    "best-fit": BestFitCDF(),
    "arcsinh-square": ArcsinhSquare(),
    "log": Log(),
}
MODELS: dict[str, type[AnyModel]] = {kind.__name__: kind for kind in get_args(AnyModel)}
# Few values of k, because kernels are compiled for each of them.
LENGTHS, FFM_LENGTHS, FMFM_LENGTHS = (4, 8, 16, 32), (2, 4, 8, 16), (4, 8, 16)
SEGMENTS = (AS_IS, "8", "20", "50", "8+32", "16+64+256")
DEGREES = (1, 2, 3)
# Not far from the defaults, which were found on several data sets: see docs/tuning.md.
LEARNING_RATES, L2S, SMOOTHNESSES = Range(1e-3, 3e-2), Range(3e-6, 1e-3), Range(1e-4, 1.0)
SMALLEST_BATCH, LARGEST_BATCH = 16, 16_384

OF_FIELDS = ("segments", "degree", "transform")
_OF_TRAINING = tuple(
    item.name
    for item in fields(Training)
    if item.name not in ("warmup", "refit_on_all", "select_resolutions", "seed", "threads")
)


@dataclass(frozen=True)
class Settings:
    """All that can be searched, as one point of the space says it."""

    model: AnyModel
    schema: Schema
    training: Training


@dataclass(frozen=True)
class Base:
    """The settings that a search begins at, and what it may change.

    Parameters
    ----------
    settings : Settings
        Those of the estimator, its model and schema filled in.
    n_rows : int
        Rows to train on.
    resolutions : callable
        Tells the resolutions by column that `select_resolutions` finds.

    Examples
    --------
    >>> from splinefm.model.family import FM
    >>> base = Base(Settings(FM(k=8), Schema([Numerical("x")]), Training()), n_rows=10_000)
    >>> base.start["k"], base.start["batch_size"], base.start["segments"]
    (8, 32, 'schema')
    >>> base.at({"segments": "8+32", "degree": 1}).schema["x"].basis
    MultiResolution(segments=(8, 32), degree=1)
    """

    settings: Settings
    n_rows: int
    resolutions: Callable[[], Resolutions] = dict
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        of_model = tuple(item.name for item in fields(self.settings.model))
        object.__setattr__(self, "names", ("model", *of_model, *_OF_TRAINING, *OF_FIELDS))

    @cached_property
    def start(self) -> dict[str, Any]:
        """The point of the space that stands for the settings as they are."""
        model, training = self.settings.model, self.settings.training
        own = {"model": type(model).__name__} | {item.name: getattr(model, item.name) for item in fields(model)}
        own |= {name: getattr(training, name) for name in _OF_TRAINING}
        own["batch_size"] = training.rows_per_step(self.n_rows)
        own["l2"] = L2 if training.l2 is None else training.l2
        own["smoothness"] = SMOOTHNESS if training.smoothness is None else training.smoothness
        segments = BY_COLUMN if self._may_select else AS_IS
        return own | {"segments": segments, "degree": BSpline.degree, "transform": "auto"}

    @property
    def _may_select(self) -> bool:
        return self.settings.training.select_resolutions and bool(free_columns(self.settings.schema))

    def space(self) -> dict[str, Entry]:
        """The default search space; what is a mapping by field or zero stays as it is."""
        items = [item for item in self.settings.schema if isinstance(item, Numerical)]
        space: dict[str, Entry] = {}
        if isinstance(self.start["k"], int):
            space["k"] = _with(_lengths(self.settings.model), self.start["k"])
        space["batch_size"] = self._batches()
        ranges = {"learning_rate": LEARNING_RATES, "l2": L2S}
        if any(hasattr(item.basis, "smoothing") for item in items):
            ranges["smoothness"] = SMOOTHNESSES
        for name, entry in ranges.items():
            own = self.start[name]
            if isinstance(own, float) and own > 0.0:
                space[name] = Range(min(entry.low, own), max(entry.high, own))
        if any(_has_free_basis(item) for item in items):
            by_column = (BY_COLUMN,) if self._may_select else ()
            space |= {"segments": (*by_column, *SEGMENTS), "degree": DEGREES}
        if any(_has_free_transform(item) for item in items):
            space["transform"] = ("auto", "quantile", "minmax")
        return space

    def at(self, params: Params) -> Settings:
        """The settings at a point; what it does not name stays as it is."""
        model: Any = _model(self.settings.model, params)
        of_model = {name: params[name] for name in params if name in {item.name for item in fields(model)}}
        of_training = {name: params[name] for name in params if name in _OF_TRAINING}
        schema = self.settings.schema
        if params.get("segments", self.start["segments"]) == BY_COLUMN:
            schema, params = with_resolutions(schema, self.resolutions()), {**params, "segments": AS_IS}
        items = tuple(_changed(item, params, self.settings.schema) for item in schema)
        return Settings(
            cast(AnyModel, replace(model, **of_model)),
            Schema(items, schema.reasons),
            replace(self.settings.training, **of_training),
        )

    def check(self, name: str, values: Sequence[Any]) -> None:
        """Raise where something cannot be searched, or not at one of these values."""
        if name not in self.names:
            nearest = difflib.get_close_matches(name, self.names, n=2)
            hint = f"; nearest: {quoted(nearest)}" if nearest else ""
            raise ValueError(f"space names {name!r}, which cannot be tuned{hint}. To tune: {quoted(self.names, 99)}")
        for value in values:
            try:
                replace(self, resolutions=dict).at({name: value})  # without looking for resolutions
            except (TypeError, ValueError) as error:
                raise ValueError(f"space[{name!r}] has the value {value!r}: {error}") from error

    def _batches(self) -> tuple[int, ...]:
        own = int(self.start["batch_size"])
        wanted = (own // 4, own // 2, own, 2 * own, 4 * own)
        most = max(own, min(LARGEST_BATCH, self.n_rows // 4))
        return tuple(size for size in wanted if size == own or SMALLEST_BATCH <= size <= most)


def merge_spaces(default: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The default space with the entries that the user gave; None takes one out, a list is made a choice.

    Examples
    --------
    >>> merge_spaces({"k": (4, 8), "l2": Range(1e-6, 1e-2)}, {"k": [2, 4], "l2": None})
    {'k': (2, 4)}
    """
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f'space must be a mapping such as {{"k": [4, 8]}}, got {given!r}')
    merged = {**default, **(given or {})}
    for name, entry in merged.items():
        if isinstance(entry, list | tuple) and not entry:
            raise ValueError(f"space[{name!r}] is empty; give values, or None to leave {name} as it is")
    merged = {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in merged.items()}
    merged = {name: entry for name, entry in merged.items() if entry is not None}
    if not merged:
        raise ValueError("there is nothing to tune: the space is empty; leave space out for the default one")
    return merged


def _model(own: AnyModel, params: Params) -> AnyModel:
    """The model of a point: the own one, or one of another kind as it comes."""
    name = params.get("model", type(own).__name__)
    if name not in MODELS:
        raise ValueError(f"model is one of {quoted(list(MODELS), 9)}")
    return own if isinstance(own, MODELS[name]) else MODELS[name]()


def _lengths(model: AnyModel) -> tuple[int, ...]:
    return {"ffm": FFM_LENGTHS, "fmfm": FMFM_LENGTHS}.get(model.kind, LENGTHS)


def _with(values: tuple[int, ...], own: int) -> tuple[int, ...]:
    return tuple(sorted({*values, own}))


def _has_free_basis(item: Numerical) -> bool:
    """Whether a basis is one of those that are chosen where the user chooses none."""
    return item.basis in (BSpline(), MultiResolution())


def _has_free_transform(item: Numerical) -> bool:
    """Whether a transform was left to the library; edges of bins are in the unit of the column and need none."""
    return item.transform == "auto" and getattr(item.basis, "edges", None) is None


def _changed(item: Field, params: Params, schema: Schema) -> Field:
    if not isinstance(item, Numerical):
        return item
    given = schema[item.name]
    if isinstance(given, Numerical) and _has_free_basis(given):
        basis = _basis(item.basis, params.get("segments", AS_IS), params.get("degree"))
        item = replace(item, basis=basis)
    transform = params.get("transform", "auto")
    if transform == "auto" or not _has_free_transform(item):
        return item
    if transform not in TRANSFORMS:
        raise ValueError(f"transform is one of {quoted(['auto', *TRANSFORMS], 9)}")
    return replace(item, transform=TRANSFORMS[transform])


def _basis(basis: Any, segments: Any, degree: int | None) -> Basis:
    degree = basis.degree if degree is None else degree
    if segments == AS_IS:
        return cast(Basis, replace(basis, degree=degree))
    try:
        sizes = tuple(int(part) for part in str(segments).split("+"))
    except ValueError:
        raise ValueError(f'segments is "{AS_IS}", a number, or resolutions such as "8+32+128"') from None
    return BSpline(sizes[0], degree) if len(sizes) == 1 else MultiResolution(sizes, degree)
