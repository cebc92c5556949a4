"""The search space of `sf.tune`: the default space of each model, and the settings at a point of it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast, get_args

from splinefm._cached import cached_property
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
from splinefm.learn.refine.resolutions import Resolutions, free_columns, with_resolutions
from splinefm.learn.training import L2, SMOOTHNESS, Training
from splinefm.learn.tuning.study import Value
from splinefm.model.family import AnyModel


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high` on a logarithmic scale."""

    low: float
    high: float

    def times(self, factor: float) -> Range:
        """Return the range multiplied by a factor."""
        return Range(factor * self.low, factor * self.high)


Entry = Range | tuple[Value, ...]
Point = Mapping[str, Any]

AS_IS = "schema"
"""The value of `segments` that keeps the bases of the schema."""
BY_COLUMN = "by column"
"""The value of `segments` that uses the result of `select_resolutions`."""
TRANSFORMS: dict[str, Transform] = {
    "quantile": Quantile(atom_share=ATOM_SHARE),
    "minmax": MinMax(),
    "best-fit": BestFitCDF(),
    "arcsinh-square": ArcsinhSquare(),
    "log": Log(),
}
MODELS: dict[str, type[AnyModel]] = {kind.__name__: kind for kind in get_args(AnyModel)}
# A few powers of two cover the useful lengths.
LENGTHS, FFM_LENGTHS, FMFM_LENGTHS, THIRDS = (4, 8, 16, 32), (2, 4, 8, 16), (4, 8, 16), (0, 4, 8, 16)
SEGMENTS = (AS_IS, "8", "20", "50", "8+32", "16+64+256")
DEGREES = (1, 2, 3)
# Close to the defaults, which were found on several data sets: see docs/tuning.md.
LEARNING_RATES, L2S, SMOOTHNESSES = Range(1e-3, 3e-2), Range(3e-6, 1e-3), Range(1e-4, 1.0)
SMALLEST_BATCH, LARGEST_BATCH = 16, 16_384

OF_FIELDS = ("segments", "degree", "transform")
_OF_TRAINING = tuple(
    item.name
    for item in fields(Training)
    if item.name
    not in ("warmup", "refit_on_all", "select_resolutions", "crosses", "members", "seed", "threads", "engine", "device")
)


@dataclass(frozen=True)
class TrialSettings:
    """The settings at one point of the search space."""

    model: AnyModel
    schema: Schema
    training: Training


@dataclass(frozen=True)
class Base:
    """The settings that a search starts from, and what it can change.

    Parameters
    ----------
    settings : TrialSettings
        The settings of the estimator, with its model and schema.
    n_rows : int
        Number of training rows.
    resolutions : callable
        Returns the resolutions by column that `select_resolutions` finds.
    strength, l2_strength : float
        How many times as large as usual the default penalties of the table are; their ranges are shifted by it.

    Examples
    --------
    >>> from splinefm.model.family import FM
    >>> base = Base(TrialSettings(FM(k=8), Schema([Numerical("x")]), Training()), n_rows=10_000)
    >>> base.start["k"], base.start["batch_size"], base.start["segments"]
    (8, 32, 'schema')
    >>> base.at({"segments": "8+32", "degree": 1}).schema["x"].basis
    MultiResolution(segments=(8, 32), degree=1)
    """

    settings: TrialSettings
    n_rows: int
    resolutions: Callable[[], Resolutions] = dict
    strength: float = 1.0
    l2_strength: float = 1.0
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        of_model = tuple(item.name for item in fields(self.settings.model))
        object.__setattr__(self, "names", ("model", *of_model, *_OF_TRAINING, *OF_FIELDS))

    @cached_property
    def start(self) -> dict[str, Any]:
        """The point of the search space with the initial settings."""
        model, training = self.settings.model, self.settings.training
        start = {"model": type(model).__name__} | {item.name: getattr(model, item.name) for item in fields(model)}
        start |= {name: getattr(training, name) for name in _OF_TRAINING}
        start["batch_size"] = training.rows_per_step(self.n_rows)
        start["l2"] = self.l2_strength * L2 if training.l2 is None else training.l2
        start["smoothness"] = self.strength * SMOOTHNESS if training.smoothness is None else training.smoothness
        segments = BY_COLUMN if self._may_select else AS_IS
        return start | {"segments": segments, "degree": BSpline.degree, "transform": "auto"}

    @property
    def _may_select(self) -> bool:
        return self.settings.training.select_resolutions and bool(free_columns(self.settings.schema))

    def space(self) -> dict[str, Entry]:
        """Return the default search space.

        Penalties that are zero or given by field are not searched, nor is `third` if the model has none.
        """
        items = [item for item in self.settings.schema if isinstance(item, Numerical)]
        space: dict[str, Entry] = {}
        if isinstance(self.start["k"], int):
            space["k"] = _with(_lengths(self.settings.model), self.start["k"])
        if self.start.get("third"):
            space["third"] = _with(THIRDS, self.start["third"])
        space["batch_size"] = self._batches()
        ranges = {"learning_rate": LEARNING_RATES, "l2": L2S.times(self.l2_strength)}
        if any(hasattr(item.basis, "smoothing") for item in items):
            ranges["smoothness"] = SMOOTHNESSES.times(self.strength)
        for name, entry in ranges.items():
            value = self.start[name]
            if isinstance(value, float) and value > 0.0:
                space[name] = Range(min(entry.low, value), max(entry.high, value))
        if any(_has_free_basis(item) for item in items):
            by_column = (BY_COLUMN,) if self._may_select else ()
            space |= {"segments": (*by_column, *SEGMENTS), "degree": DEGREES}
        if any(_has_free_transform(item) for item in items):
            space["transform"] = ("auto", "quantile", "minmax")
        return space

    def at(self, params: Point) -> TrialSettings:
        """Return the settings at a point; settings that it does not name do not change."""
        model: Any = _model(self.settings.model, params)
        of_model = {name: params[name] for name in params if name in {item.name for item in fields(model)}}
        of_training = {name: params[name] for name in params if name in _OF_TRAINING}
        schema = self.settings.schema
        if params.get("segments", self.start["segments"]) == BY_COLUMN:
            schema, params = with_resolutions(schema, self.resolutions()), {**params, "segments": AS_IS}
        items = tuple(_changed(item, params, self.settings.schema) for item in schema)
        return TrialSettings(
            cast(AnyModel, replace(model, **of_model)),
            Schema(items, schema.reasons),
            replace(self.settings.training, **of_training),
        )

    def check(self, name: str, values: Sequence[Any]) -> None:
        """Raise an error if a setting cannot be searched, or not at one of these values."""
        if name not in self.names:
            nearest = difflib.get_close_matches(name, self.names, n=2)
            hint = f"; nearest: {quoted(nearest)}" if nearest else ""
            raise ValueError(f"space names {name!r}, which cannot be tuned{hint}. To tune: {quoted(self.names, 99)}")
        for value in values:
            try:
                replace(self, resolutions=dict).at({name: value})  # without a search for resolutions
            except (TypeError, ValueError) as error:
                raise ValueError(f"space[{name!r}] has the value {value!r}: {error}") from error

    def _batches(self) -> tuple[int, ...]:
        start = int(self.start["batch_size"])
        wanted = (start // 4, start // 2, start, 2 * start, 4 * start)
        most = max(start, min(LARGEST_BATCH, self.n_rows // 4))
        least = max(1, min(SMALLEST_BATCH, start // 2))  # the batches of small tables are small
        return tuple(size for size in wanted if size == start or least <= size <= most)


def merge_spaces(default: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge the default space with the entries of the user; None removes an entry, and a list is a choice.

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
            raise ValueError(f"space[{name!r}] is empty; pass values, or None to leave {name} unchanged")
    merged = {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in merged.items()}
    merged = {name: entry for name, entry in merged.items() if entry is not None}
    if not merged:
        raise ValueError("there is nothing to tune: the space is empty; omit space to use the default")
    return merged


def _model(start: AnyModel, params: Point) -> AnyModel:
    """Return the model at a point: the initial one, or another type with its defaults."""
    name = params.get("model", type(start).__name__)
    if name not in MODELS:
        raise ValueError(f"model must be one of {quoted(list(MODELS), 9)}")
    return start if isinstance(start, MODELS[name]) else MODELS[name]()


def _lengths(model: AnyModel) -> tuple[int, ...]:
    return {"ffm": FFM_LENGTHS, "fmfm": FMFM_LENGTHS}.get(model.kind, LENGTHS)


def _with(values: tuple[int, ...], value: int) -> tuple[int, ...]:
    return tuple(sorted({*values, value}))


def _has_free_basis(item: Numerical) -> bool:
    """Return whether a basis is one of the defaults."""
    return item.basis in (BSpline(), MultiResolution())


def _has_free_transform(item: Numerical) -> bool:
    """Return whether the library chooses the transform; edges of bins are in the unit of the column and need none."""
    return item.transform == "auto" and getattr(item.basis, "edges", None) is None


def _changed(item: Field, params: Point, schema: Schema) -> Field:
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
        raise ValueError(f"transform must be one of {quoted(['auto', *TRANSFORMS], 9)}")
    return replace(item, transform=TRANSFORMS[transform])


def _basis(basis: Any, segments: Any, degree: int | None) -> Basis:
    degree = basis.degree if degree is None else degree
    if segments == AS_IS:
        return cast(Basis, replace(basis, degree=degree))
    try:
        sizes = tuple(int(part) for part in str(segments).split("+"))
    except ValueError:
        raise ValueError(f'segments must be "{AS_IS}", a number, or resolutions such as "8+32+128"') from None
    return BSpline(sizes[0], degree) if len(sizes) == 1 else MultiResolution(sizes, degree)
