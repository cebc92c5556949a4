"""The search space of `sf.tune`: the default space of each model, and the settings at a point of it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast, get_args

from splinefm._cached import cached_property
from splinefm.encode.bases import Basis, BSpline, MultiResolution
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import AnyField, Schema
from splinefm.encode.tables.names import quoted
from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.encode.transforms.scaling import ArcsinhSquare, Log, MinMax, Quantile
from splinefm.encode.transforms.transform import ATOM_SHARE, Transform
from splinefm.model.family import AnyModel
from splinefm.model.family.separation import check_model_keeps
from splinefm.search.setting import INFERRED, Setting, names_of_columns, smallest_penalty
from splinefm.train.results import Value
from splinefm.train.settings import Penalty, Training, penalties_by_field


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
"""The value of `segments` that keeps the bases of the schema, or those that the search of a fit has found."""
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
# Close to the defaults, which were found on several data sets: see docs/tuning.md. Penalties are multiples of the
# penalties that the base has.
LEARNING_RATES, PENALTIES = Range(1e-3, 3e-2), {"l2": Range(0.03, 10.0), "smoothness": Range(0.01, 100.0)}
SMALLEST_BATCH, LARGEST_BATCH = 16, 16_384

OF_FIELDS = ("segments", "degree", "transform", "crosses")
# The settings of the search of a fit, and others that all trials share.
_OF_SEARCH = ("effort", "time_limit", "crosses", "members")
_SHARED = (*_OF_SEARCH, "warmup", "refit_on_all", "seed", "threads", "engine", "device")
OF_TRAINING = tuple(item.name for item in fields(Training) if item.name not in _SHARED)


@dataclass(frozen=True)
class Space:
    """What a study can change, and where it starts.

    Parameters
    ----------
    base : Setting
        The setting of the first trial, with all defaults filled in.
    given : Setting
        The setting of the estimator, of which the base has what was given.
    n_rows : int
        Number of training rows.

    Examples
    --------
    >>> from splinefm.model.family import FM
    >>> setting = Setting(Schema([Numerical("x")]), FM(k=8), Training(l2=1e-4, smoothness=1e-2))
    >>> space = Space(setting, setting, n_rows=10_000)
    >>> space.start["k"], space.start["batch_size"], space.start["segments"]
    (8, 32, 'schema')
    >>> space.at({"segments": "8+32", "degree": 1}).schema["x"].basis
    MultiResolution(segments=(8, 32), degree=1)
    """

    base: Setting
    given: Setting
    n_rows: int
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        of_model = tuple(item.name for item in fields(self.base.model))
        object.__setattr__(self, "names", ("model", *of_model, *OF_TRAINING, *OF_FIELDS))

    @cached_property
    def start(self) -> dict[str, Any]:
        """The point of the space that is the base."""
        model, training = self.base.model, self.base.training
        start = {"model": type(model).__name__} | {item.name: getattr(model, item.name) for item in fields(model)}
        start |= {name: getattr(training, name) for name in OF_TRAINING}
        start["batch_size"] = training.rows_per_step(self.n_rows)
        start |= {name: self._start_of_penalty(name) for name in PENALTIES}
        degrees = [item.basis.degree for item in self._free_numbers]
        return start | {
            "segments": AS_IS,
            "degree": degrees[0] if degrees else BSpline.degree,
            "transform": "auto",
            "crosses": True,
        }

    @cached_property
    def found_crosses(self) -> tuple[str, ...]:
        """The crosses of the base that the user did not give."""
        return tuple(item.name for item in self.base.schema.crosses if item.name not in self.given.schema.names)

    @property
    def _free_numbers(self) -> list[Any]:
        """The fields whose basis is not a choice of the user."""
        given = {item.name: item for item in self.given.schema.fields}
        items = self.base.schema.numerical
        return [item for item in items if given[item.name].basis in INFERRED]

    def _start_of_penalty(self, name: str) -> Penalty:
        """Return the penalty of the columns: crosses that were found can have others; or what was given by field."""
        penalty: Penalty = getattr(self.base.training, name)
        if penalties_by_field(getattr(self.given.training, name)):
            return penalty
        return smallest_penalty(penalty, names_of_columns(self.base.schema))

    def entries(self) -> dict[str, Entry]:
        """Return the default search space.

        Penalties that are zero or given by field are not searched, nor is `third` if the model has none.
        """
        items = self.base.schema.numerical
        entries: dict[str, Entry] = {}
        if isinstance(self.start["k"], int):
            entries["k"] = _with(_lengths(self.base.model), self.start["k"])
        if self.start.get("third"):
            entries["third"] = _with(THIRDS, self.start["third"])
        entries["batch_size"] = self._batches()
        rate = self.start["learning_rate"]
        if rate > 0.0:
            entries["learning_rate"] = Range(min(LEARNING_RATES.low, rate), max(LEARNING_RATES.high, rate))
        for name, multiples in PENALTIES.items():
            is_used = name == "l2" or any(hasattr(item.basis, "smoothing") for item in items)
            value = self.start[name]
            if is_used and isinstance(value, float) and value > 0.0:
                entries[name] = multiples.times(value)
        if self._free_numbers:
            entries |= {"segments": SEGMENTS, "degree": DEGREES}
        if any(_has_free_transform(item) for item in items):
            entries["transform"] = ("auto", "quantile", "minmax")
        if self.found_crosses:
            entries["crosses"] = (True, False)
        return entries

    def at(self, params: Point) -> Setting:
        """Return the setting at a point; settings that it does not name do not change. The start is the base."""
        model: Any = _model(self.base.model, params)
        of_model = {name: params[name] for name in params if name in {item.name for item in fields(model)}}
        changed = {name: params[name] for name in OF_TRAINING if name in params and params[name] != self.start[name]}
        changed |= {name: self._penalty(name, changed[name]) for name in PENALTIES if name in changed}
        training, schema = replace(self.base.training, **changed), self.base.schema
        if params.get("crosses", True) not in (True, False):
            raise ValueError("crosses must be True or False")
        if not params.get("crosses", True) and self.found_crosses:
            schema = _without(schema, self.found_crosses)
            training = replace(training, l2=_kept(training.l2, schema), smoothness=_kept(training.smoothness, schema))
        free = {item.name for item in self._free_numbers}
        items = tuple(self._changed(item, params, item.name in free) for item in schema)
        schema = schema.having(items)
        changed_model = cast(AnyModel, replace(model, **of_model))
        check_model_keeps(changed_model, schema)
        return Setting(schema, changed_model, training)

    def _penalty(self, name: str, value: Penalty) -> Penalty:
        """Return a penalty whose value for the columns is this; larger ones of found crosses stay as much larger."""
        start, own = self.start[name], penalties_by_field(getattr(self.base.training, name))
        if not (own and isinstance(value, float) and isinstance(start, float) and start):
            return value
        return {name: value if number == start else number * (value / start) for name, number in own.items()}

    def _changed(self, item: AnyField, params: Point, has_free_basis: bool) -> AnyField:
        if not isinstance(item, Numerical):
            return item
        segments, degree = (params.get(name, self.start[name]) for name in ("segments", "degree"))
        if has_free_basis and (segments, degree) != (AS_IS, self.start["degree"]):
            item = replace(item, basis=_basis(item.basis, segments, degree))
        transform = params.get("transform", "auto")
        if transform == "auto" or not _has_free_transform(item):
            return item
        if transform not in TRANSFORMS:
            raise ValueError(f"transform must be one of {quoted(['auto', *TRANSFORMS], 9)}")
        return replace(item, transform=TRANSFORMS[transform])

    def check(self, name: str, values: Sequence[Any]) -> None:
        """Raise an error if a setting cannot be searched, or not at one of these values."""
        if name not in self.names:
            nearest = difflib.get_close_matches(name, self.names, n=2)
            hint = f"; nearest: {quoted(nearest)}" if nearest else ""
            raise ValueError(f"space names {name!r}, which cannot be tuned{hint}. To tune: {quoted(self.names, 99)}")
        for value in values:
            try:
                self.at({name: value})
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


def _has_free_transform(item: Numerical) -> bool:
    """Return whether the library chooses the transform; edges of bins are in the unit of the column and need none."""
    return item.transform == "auto" and getattr(item.basis, "edges", None) is None


def _without(schema: Schema, names: Sequence[str]) -> Schema:
    kept = {name: why for name, why in schema.provenance.items() if name not in names}
    return schema.having((item for item in schema.fields if item.name not in names), kept)


def _kept(penalty: Penalty, schema: Schema) -> Penalty:
    """Return a penalty without fields that a schema does not have."""
    own = penalties_by_field(penalty)
    return {name: value for name, value in own.items() if name in schema.names} if own else penalty


def _basis(basis: Any, segments: Any, degree: int) -> Basis:
    if segments == AS_IS:
        return cast(Basis, replace(basis, degree=degree))
    try:
        sizes = tuple(int(part) for part in str(segments).split("+"))
    except ValueError:
        raise ValueError(f'segments must be "{AS_IS}", a number, or resolutions such as "8+32+128"') from None
    return BSpline(sizes[0], degree) if len(sizes) == 1 else MultiResolution(sizes, degree)
