"""Schema: the fields of a model, from code or from a TOML or JSON file, and where each comes from."""

from __future__ import annotations

import json
import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from splinefm._cached import cached_property
from splinefm._checks import brief, check_choice, check_column_name
from splinefm._files import check_destination, read_text, replacing
from splinefm._wording import for_reader
from splinefm.encode.bases import BASES, Basis, BSpline, MultiResolution
from splinefm.encode.fields.categorical import Categorical, MultiValued
from splinefm.encode.fields.cross import Cells, Cross, Part
from splinefm.encode.fields.numerical import Numerical, Timestamp
from splinefm.encode.fields.vocabulary import Vocabulary
from splinefm.encode.interactions import InteractionCst, Interactions
from splinefm.encode.tables.names import missing_column_message, nearest_hint
from splinefm.encode.transforms.transform import TRANSFORMS

Single = Numerical | Categorical | MultiValued
"""Fields of one column."""
AnyField = Single | Cross
_FIELD_KINDS: tuple[type, ...] = (Numerical, Categorical, MultiValued, Timestamp, Cross)
_KINDS: dict[str, type] = {kind.__name__: kind for kind in (*_FIELD_KINDS, *TRANSFORMS, *BASES)}


Source = Literal["given", "inferred", "searched", "left out"]


@dataclass(frozen=True)
class Provenance:
    """Where a field comes from, and why it is as it is (decision 112).

    Parameters
    ----------
    source : {"given", "inferred", "searched", "left out"}
        Who chose the field: the user, `infer_schema`, or the search of a fit, which adds crosses and changes inferred
        fields. A column that is "left out" has no field.
    reason : str
        Why, or how the field was fitted; for people.
    gain : float, optional
        The share of the squared residuals that the choice of a search explains.
    question : bool
        Whether the reason asks the user something, or reports a choice that they may want to change. Files do not keep
        it: who saved a schema has read its reasons.

    Examples
    --------
    >>> print(Provenance("searched", gain=0.08))
    found: explains 8.0% of what the model without it leaves unexplained, and lowers the loss of held-out rows
    >>> print(Provenance("left out", "it has no values"))
    left out: it has no values
    """

    source: Source
    reason: str = ""
    gain: float | None = None
    question: bool = False

    def __post_init__(self) -> None:
        check_choice("source", self.source, get_args(Source))

    def __str__(self) -> str:
        return "; ".join(text for text in (self._why(), self.finding) if text)

    def _why(self) -> str:
        return f"left out: {self.reason}" if self.source == "left out" else self.reason

    @property
    def finding(self) -> str:
        """What the search of a fit has found, in words; empty if it has not changed the field."""
        if self.gain is None:
            return ""
        explained = f"explains {self.gain:.1%} of what the model without it leaves unexplained"
        return f"found: {explained}, and lowers the loss of held-out rows"

    def to_dict(self) -> dict[str, Any]:
        """The settings of a schema file; without a source, a field with a reason is an inferred one."""
        source = None if self.source == "inferred" else self.source
        settings = {"reason": self.reason or None, "source": source, "gain": self.gain}
        return {name: value for name, value in settings.items() if value is not None}

    @staticmethod
    def from_dict(settings: Mapping[str, Any]) -> Provenance:
        """The provenance that `to_dict` described."""
        gain = settings.get("gain")
        reason = str(settings.get("reason", ""))
        return Provenance(settings.get("source", "inferred"), reason, None if gain is None else float(gain))


@dataclass(frozen=True, init=False)
class Schema:
    """The fields of a model, in order.

    Parameters
    ----------
    fields : sequence of Numerical, Categorical, MultiValued, Timestamp and Cross
        The fields; their names must differ. A timestamp becomes a numerical field for each of its parts. A cross names
        other fields of the schema, in any order.
    provenance : mapping of str to Provenance
        Where the fields come from, by name; also of columns that were left out. A field that is not named here was
        given by the user. Not part of equality.
    interaction_cst : {"pairwise", "no_interactions"} or list of sets of str, optional
        Which columns may interact, all by default; see `with_interactions`.

    Examples
    --------
    >>> schema = Schema([Numerical("recency", special=[0.0]), Categorical("country", min_count=10)])
    >>> schema.names
    ('recency', 'country')
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    fields: tuple[AnyField, ...]
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)
    interactions: Interactions | None = None

    def __init__(
        self,
        fields: Iterable[AnyField | Timestamp],
        provenance: Mapping[str, Provenance] | None = None,
        interaction_cst: InteractionCst | Interactions = None,
    ) -> None:
        items: list[AnyField] = []
        item: Any
        for item in fields:
            if not isinstance(item, AnyField | Timestamp):
                kinds = ", ".join(f"sf.{kind.__name__}" for kind in _FIELD_KINDS)
                raise ValueError(f"a schema takes {kinds}; got {item!r}")
            items += item.fields if isinstance(item, Timestamp) else [item]
        if not items:
            raise ValueError("a schema needs at least one field")
        object.__setattr__(self, "fields", tuple(items))
        object.__setattr__(self, "provenance", provenance or {})
        object.__setattr__(self, "interactions", None if interaction_cst is None else Interactions.of(interaction_cst))
        twice = sorted(name for name, count in Counter(self.names).items() if count > 1)
        if twice:
            raise ValueError(
                f"the schema names a field twice: {', '.join(map(repr, twice))}; "
                'to read a column twice, give the second field another name and set column="..."'
            )
        _ = self.resolved  # which checks the parts of crosses

    @cached_property  # tables may have thousands of columns, and their names are read often
    def names(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(item.name for item in self.fields)

    @property
    def reasons(self) -> dict[str, str]:
        """For each field of an inferred or fitted schema, and each column left out, why; in words."""
        return {name: str(each) for name, each in self.provenance.items()}

    def is_chosen(self, name: str) -> bool:
        """Whether a field was inferred or found by a search, so that a search may change it."""
        return name in self.provenance and self.provenance[name].source in ("inferred", "searched")

    @cached_property
    def resolved(self) -> tuple[AnyField, ...]:
        """The fields, with the parts of crosses as fields instead of names."""
        return tuple(item.resolve(self._by_name) for item in self.fields)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that the fields read, each once."""
        return tuple(dict.fromkeys(name for item in self.resolved for name in item.columns))

    @cached_property
    def column_indices(self) -> tuple[tuple[int, ...], ...]:
        """For each field the indices of its columns in `columns`: one, or one for each part of a cross."""
        index = {name: i for i, name in enumerate(self.columns)}
        return tuple(tuple(index[name] for name in item.columns) for item in self.resolved)

    @cached_property
    def crosses(self) -> tuple[Cross, ...]:
        """The crosses, with their parts as fields."""
        return tuple(item for item in self.resolved if isinstance(item, Cross))

    @cached_property
    def sources(self) -> Sources:
        """The fields of one column that a row of values is made of, and which of them each part of a cross reads."""
        return Sources(self)

    @cached_property
    def singles(self) -> tuple[Single, ...]:
        """The fields of one column: all but crosses."""
        return tuple(item for item in self.fields if not isinstance(item, Cross))

    @cached_property
    def column_readers(self) -> tuple[Single, ...]:
        """Everything that reads a column: the fields of one column, and the parts of crosses."""
        return tuple(single for item in self.resolved for single in item.singles)

    @cached_property
    def numerical(self) -> tuple[Numerical, ...]:
        """The numerical fields."""
        return tuple(item for item in self.fields if isinstance(item, Numerical))

    @cached_property
    def positions_by_column(self) -> dict[str, list[int]]:
        """For each column, the positions of the fields of this column only."""
        index = {name: f for f, name in enumerate(self.names)}
        positions: dict[str, list[int]] = {}
        for item in self.singles:
            positions.setdefault(item.column, []).append(index[item.name])
        return positions

    def on_column(self, column: str) -> tuple[Single, ...]:
        """The fields of this column only; crosses are not among them."""
        return tuple(item for item in self.singles if item.column == column)

    @cached_property
    def _by_name(self) -> dict[str, AnyField]:
        return {item.name: item for item in self.fields}

    def __iter__(self) -> Iterator[AnyField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, name: str) -> AnyField:
        """The field of a name."""
        if name not in self._by_name:
            raise ValueError(missing_column_message(name, self.names))
        return self._by_name[name]

    def __str__(self) -> str:
        reasons = self.reasons
        lines = [_brief(item) + (f"  # {reasons[item.name]}" if item.name in reasons else "") for item in self.fields]
        left_out = [f"# {name}: {why}" for name, why in reasons.items() if name not in self._by_name]
        constraint = [] if self.interactions is None else [f"# interactions: {self.interactions}"]
        return "\n".join(lines + left_out + constraint)

    def without(self, *names: str | None) -> Schema:
        """The schema without some fields, or without all fields of some columns; None stands for no name."""
        fields = [item for item in self.resolved if item.name not in names and not {*item.columns} & {*names}]
        kept = {item.name for item in fields}
        fields = [item for item in self.fields if item.name in kept and not _has_absent_part(item, kept)]
        gone = {item.name for item in self.fields} - {item.name for item in fields}
        return self.having(
            fields, {name: why for name, why in self.provenance.items() if name not in names and name not in gone}
        )

    def having(
        self, fields: Iterable[AnyField | Timestamp], provenance: Mapping[str, Provenance] | None = None
    ) -> Schema:
        """The schema with other fields; their provenance is that of this one by default."""
        return Schema(fields, self.provenance if provenance is None else provenance, self.interactions)

    def with_bases(self, bases: Mapping[str, Basis]) -> Schema:
        """The schema with other bases for some numerical fields, by name."""
        changed = {item.name: replace(item, basis=bases[item.name]) for item in self.numerical if item.name in bases}
        return self.having(changed.get(item.name, item) for item in self.fields)

    def may_cross(self, *names: str) -> bool:
        """Whether the columns of some fields may interact, all of them together."""
        return self.interactions is None or self.interactions.allows(
            column for name in names for column in self[name].columns
        )

    def with_interactions(self, interaction_cst: InteractionCst | Interactions) -> Schema:
        """The schema with constraints on which columns may interact, instead of those it has.

        A term of the score may depend on one column only ("no_interactions"), on two at most ("pairwise"), or on the
        columns of one of several sets; columns that are in no set form another one. None allows everything.

        Examples
        --------
        >>> schema = Schema([Numerical("age"), Numerical("income"), Categorical("city")])
        >>> schema.with_interactions([{"age", "income"}]).interactions.allows(["age", "city"])
        False
        """
        if interaction_cst is None:
            return Schema(self.fields, self.provenance)
        given = Interactions.of(interaction_cst)
        given.check_columns(self.columns, self.provenance)
        return Schema(self.fields, self.provenance, given)

    def with_shapes(
        self, shapes: Mapping[str, Any], slopes: Mapping[str, tuple[float | None, float | None]] | None = None
    ) -> Schema:
        """The schema with shapes of numerical fields and ordered categories, and limits of slopes, by name.

        An inferred field that is not a spline, such as categories of a few numbers, becomes one.

        Examples
        --------
        >>> shapes = {"price": "decreasing", "age": ("increasing", "concave")}
        >>> schema = Schema([Numerical("price"), Numerical("age")]).with_shapes(shapes, {"price": (-2, None)})
        >>> schema["price"].shape, schema["price"].slope, schema["age"].shape
        ('decreasing', (-2.0, inf), ('increasing', 'concave'))
        """
        given: dict[str, dict[str, Any]] = {}
        for setting, values in (("shape", shapes), ("slope", slopes or {})):
            for name, value in values.items():
                if name not in self.names:
                    raise ValueError(missing_column_message(name, list(self.names), "field", "the schema"))
                if value is not None:
                    given.setdefault(name, {})[setting] = value
        fields = (self._with_shape(item, given[item.name]) if item.name in given else item for item in self.fields)
        return self.having(fields)

    def _with_shape(self, item: AnyField, settings: dict[str, Any]) -> AnyField:
        spline = isinstance(item, Numerical) and isinstance(item.basis, BSpline | MultiResolution)
        if not spline and self.is_chosen(item.name) and not isinstance(item, Cross):
            return Numerical(item.name, column=item.columns[0], **settings)
        if isinstance(item, Categorical) and item.order is not None and settings.keys() == {"shape"}:
            return replace(item, **settings)
        if not isinstance(item, Numerical):
            asked = " and ".join(f"{name}={value!r}" for name, value in settings.items())
            ordered = "; give the order of its categories" if isinstance(item, Categorical) else ""
            raise ValueError(f"field {item.name!r} is not numerical, so that it cannot have {asked}{ordered}")
        return replace(item, **settings)

    def column_types(self) -> dict[str, pa.DataType]:
        """The types in which text files should be read: text, also for numbers.

        Any row can have a number that is written in another way, such as `1,234`; and Arrow is not faster at parsing.
        """
        return dict.fromkeys(self.columns, pa.large_string())

    def check_columns(self, names: Sequence[str], target: str | None = None) -> None:
        """Raise where a column is missing from the table or the target is a field."""
        check_column_name("target", target)
        if target is not None and target in self.columns:
            raise ValueError(
                f"the target {target!r} is a field of the schema: the model would be given the answer; "
                "remove that field"
            )
        present = set(names)
        for name in self.columns:
            if name not in present:
                raise ValueError(missing_column_message(name, names))

    @staticmethod
    def infer(table: object, *, target: str | None = None) -> Schema:
        """Infer a schema from a table; `reasons` explains each field. See `infer_schema`."""
        from splinefm.encode.inference import infer_schema

        return infer_schema(table, target=target)

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain lists, dicts, strings and numbers."""
        described = [_to_dict(item) for item in self.fields]
        for entry in described:
            if entry["name"] in self.provenance:
                entry |= self.provenance[entry["name"]].to_dict()
        constraint = {} if self.interactions is None else {"interactions": self.interactions.to_value()}
        return {"field": described, **constraint}

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> Schema:
        """The schema that `to_dict` described."""
        entries = description.get("field") if isinstance(description, Mapping) else None
        if not isinstance(entries, list) or set(description) - {"interactions"} != {"field"}:
            raise ValueError('a schema file has one list "field" with an entry per column, and maybe "interactions"')
        provenance = {}
        items: list[AnyField | Timestamp] = []
        for entry in entries:
            if not isinstance(entry, Mapping):
                raise ValueError(f'field {len(items)} must be a table with "kind" and "name", got {entry!r:.60}')
            entry = dict(entry)
            settings = {name: entry.pop(name) for name in ("reason", "source", "gain") if name in entry}
            where = f"field {entry.get('name', len(items))!r}"
            items.append(_from_dict(entry, where))
            if settings:
                provenance[entry["name"]] = _provenance_from_dict(settings, where)
        return Schema(tuple(items), provenance).with_interactions(description.get("interactions"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .toml or .json file; an existing file is replaced in one step."""
        path = schema_path(path)
        text = _toml(self.to_dict()) if path.suffix == ".toml" else json.dumps(self.to_dict(), indent=2) + "\n"
        with replacing(check_destination(path)) as file:
            file.write(text.encode())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Schema:
        """Read a .toml or .json file."""
        path = schema_path(path)
        if not path.exists():
            way = for_reader(
                "sf.infer_schema(table).save(path) writes one", "splinefm schema DATA --out FILE writes one"
            )
            raise FileNotFoundError(f"no schema file {str(path)!r}; {way}")
        try:
            text = read_text(path, "a schema file")
            description = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        except (ValueError, RecursionError) as error:  # also what is nested too deeply
            raise ValueError(f"{path} is not a valid {path.suffix[1:].upper()} file: {error}") from error
        try:
            return Schema.from_dict(description)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def check_schema(schema: object) -> None:
    """Raise unless an argument is a schema.

    Examples
    --------
    >>> check_schema("schema.toml")
    Traceback (most recent call last):
        ...
    TypeError: schema must be a sf.Schema, got 'schema.toml'; to read a file, use sf.Schema.load('schema.toml')
    """
    if isinstance(schema, Schema):
        return
    way_out = "use sf.Schema.infer(table) to make one"
    if isinstance(schema, str | os.PathLike):
        way_out = f"to read a file, use sf.Schema.load({os.fspath(schema)!r})"
    elif isinstance(schema, list | tuple):
        way_out = "write sf.Schema([...]) around the fields"
    elif isinstance(schema, Mapping):
        way_out = "use sf.Schema.from_dict(...)"
    raise TypeError(f"schema must be a sf.Schema, got {brief(schema)}; {way_out}")


def check_crosses(schema: Schema) -> None:
    """Raise where a setting of a cross has no effect, before a fit; older files with such settings still load.

    Examples
    --------
    >>> check_crosses(Schema([Cross(Categorical("a"), Categorical("b"), segments=5)]))
    Traceback (most recent call last):
        ...
    ValueError: cross 'a × b': segments=(5,) is for splines of numbers, and the cross has none; leave it out
    """
    for cross in schema.crosses:
        if cross.segments is not None and not cross.numbers:
            unused = f"segments={cross.segments} is for splines of numbers"
        elif cross.buckets is not None and not cross.categories:
            unused = f"buckets={cross.buckets} is for combinations of categories"
        else:
            continue
        raise ValueError(f"cross {cross.name!r}: {unused}, and the cross has none; leave it out")


def check_shapes(schema: Schema) -> None:
    """Raise where another field moves with a column that has a shape: the promise could not be kept.

    Examples
    --------
    >>> check_shapes(Schema([Numerical("x", shape="increasing"), Categorical("c"), Cross("x", "c")]))
    Traceback (most recent call last):
        ...
    ValueError: field 'x' has shape='increasing', and 'x × c' reads its column too; leave out one of the two
    """
    for item in schema.singles:
        others = [other for other in schema.resolved if other.name != item.name and item.column in other.columns]
        if item.required_shape is not None and others:
            raise ValueError(
                f"field {item.name!r} has {_asked(item)}, and {others[0].name!r} reads its column too; "
                "leave out one of the two"
            )


def _asked(item: Single) -> str:
    """The settings of a field that ask for a shape."""
    settings = ((name, getattr(item, name, None)) for name in ("shape", "slope"))
    return " and ".join(f"{name}={value!r}" for name, value in settings if value is not None)


def check_interactions(schema: Schema) -> None:
    """Raise where a constraint names a column that is not there, or a cross joins columns that may not interact.

    Examples
    --------
    >>> check_interactions(Schema([Cross(Categorical("a"), Categorical("b"))], interaction_cst="no_interactions"))
    Traceback (most recent call last):
        ...
    ValueError: cross 'a × b' joins columns that may not interact (no_interactions); leave it out
    """
    given = schema.interactions
    if given is None:
        return
    given.check_columns(schema.columns, schema.provenance)
    for cross in schema.crosses:
        if not given.allows(cross.columns):
            raise ValueError(f"cross {cross.name!r} joins columns that may not interact ({given}); leave it out")


_MAX_SHOWN = 12
"""Longer sequences are described by their number of values and their ends."""


def _brief(item: AnyField) -> str:
    """A field with the settings that differ from the defaults."""
    settings = [
        f"{part.name}={_brief_value(getattr(item, part.name))}"
        for part in fields(item)[1:]
        if part.name != "parts" and not _is_default(item, part)
    ]
    if isinstance(item, Cross):
        parts = [repr(part) if isinstance(part, str) else _brief(part) for part in item.parts]
        named = [] if Cross(*item.parts).name == item.name else [f"name={item.name!r}"]
        return f"Cross({', '.join([*parts, *named, *settings])})"
    return f"{type(item).__name__}({', '.join([repr(item.name), *settings])})"


def _has_absent_part(item: AnyField, names: set[str]) -> bool:
    """Whether a cross names a field that is not there."""
    return not names.issuperset(item.part_names)


def _brief_value(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > _MAX_SHOWN:  # the knots of a fitted transform
        return f"<{len(value):,} values from {value[0]!r} to {value[-1]!r}>"
    if type(value).__name__ not in _KINDS:
        return repr(value)
    settings = [
        f"{part.name}={_brief_value(getattr(value, part.name))}"
        for part in fields(value)
        if not _is_default(value, part)
    ]
    return f"{type(value).__name__}({', '.join(settings)})"


def schema_path(path: str | os.PathLike[str]) -> Path:
    """The path of a schema file, whose name shows its format."""
    path = Path(path)
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"a schema file ends in .toml or .json, got {str(path)!r}")
    return path


def _to_dict(value: Any) -> Any:
    """Settings that differ from the defaults, with the class name under "kind"."""
    if isinstance(value, tuple | list):
        return [_to_dict(item) for item in value]
    if isinstance(value, Vocabulary):
        return value.names.to_pylist()
    if isinstance(value, Cells):
        return value.features.tolist()
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f"== {value}"  # only special values may be infinite, and JSON has no number for them
    if type(value).__name__ in _KINDS:
        settings = {
            item.name: _to_dict(getattr(value, item.name))
            for item in fields(value)
            if getattr(value, item.name) is not None and not _is_default(value, item)
        }
        return {"kind": type(value).__name__, **settings}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"{value!r} cannot be written to a file; use one of {', '.join(_KINDS)}")


def _is_default(value: Any, item: Any) -> bool:
    if item.name == "name":
        return False
    default = item.default if item.default_factory is MISSING else item.default_factory()
    if getattr(value, item.name) == default:
        return True
    if not (default is None or default == ""):
        return False
    try:  # what the object fills in by itself, such as the column of a field, is left out
        return bool(replace(value, **{item.name: default}) == value)
    except ValueError:
        return False


def _from_dict(description: Any, where: str) -> Any:
    if isinstance(description, list):
        return tuple(_from_dict(item, where) for item in description)
    if isinstance(description, str):
        return _checked_text(description, where)
    if not isinstance(description, Mapping):
        return description
    settings = dict(description)
    name = settings.pop("kind", None)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        hint = nearest_hint(name, list(_KINDS)) if isinstance(name, str) else ""
        raise ValueError(f'{where}: "kind" must be one of {", ".join(_KINDS)}, got {name!r}{hint}')
    known = [item.name for item in fields(kind)]
    for key in settings:
        if key not in known:
            raise ValueError(f"{where}: {name} has no setting {key!r}; it has {', '.join(known)}")
    try:
        return kind(**{key: _from_dict(value, where) for key, value in settings.items()})
    except (TypeError, OverflowError) as error:  # also a number that no float holds
        raise ValueError(f"{where}: {name}: {error}") from error


def _provenance_from_dict(settings: Mapping[str, Any], where: str) -> Provenance:
    try:
        _checked_text(str(settings.get("reason", "")), f"the reason of {where}")
        return Provenance.from_dict(settings)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from error


def _checked_text(text: str, where: str) -> str:
    """The text, or an error if it has half of a surrogate pair, which JSON can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where} holds text that is not valid Unicode: {text!r}") from error
    return text


def _toml(description: dict[str, Any]) -> str:
    # A key of the file as a whole comes before the first table.
    parts = [f"{key} = {_toml_value(value)}\n" for key, value in description.items() if key != "field"]
    for entry in description["field"]:
        lines = [f"{key} = {_toml_value(value)}" for key, value in entry.items()]
        parts.append("[[field]]\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, str):
        # A JSON string is a TOML basic string, once DEL is escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


# The fields whose values the parts of crosses take: fields of the schema that read the same column.


class Sources:
    """The fields of single columns that a row of values is made of, and which of them each part of a cross reads.

    A part follows the field of its name, else a field that reads the same column (and the same part of a date), if
    possible one of its kind. A part whose column no field reads is a source itself.

    Parameters
    ----------
    schema : Schema
        The fields of a model; crosses have fields as parts.

    Examples
    --------
    >>> schema = Schema([Numerical("x"), Cross("x", Categorical("day", column="date"))])
    >>> sources = schema.sources
    >>> list(sources.fields), sources.of["x × day"]
    (['x', 'day'], ('x', 'day'))
    """

    def __init__(self, schema: Schema) -> None:
        self.fields: dict[str, Single] = {item.name: item for item in schema.singles}
        self.of: dict[str, tuple[str, ...]] = {}
        """For each cross, the source of every part."""
        self.parts: dict[str, list[Part]] = {}
        """For each source in crosses, their parts that take its values."""
        for cross in schema.crosses:
            self.of[cross.name] = tuple(self._find(part, cross.name) for part in cross.fields)
            for name, part in zip(self.of[cross.name], cross.fields, strict=True):
                self.parts.setdefault(name, []).append(part)

    def of_field(self, name: str) -> tuple[str, ...]:
        """The sources of a field: itself, or the source of every part of a cross."""
        return self.of.get(name, (name,))

    def readers(self, name: str) -> list[str]:
        """The crosses that contain a source."""
        return [cross for cross, names in self.of.items() if name in names]

    def _find(self, part: Part, cross: str) -> str:
        namesake = self.fields.get(part.name)
        if namesake is not None and _read_alike(part, namesake):
            return part.name
        alike = [name for name, item in self.fields.items() if _read_alike(part, item)]
        same_kind = [name for name in alike if type(self.fields[name]) is type(part)]
        if alike:
            return (same_kind or alike)[0]
        name = part.name if namesake is None else f"{cross}.{part.name}"
        self.fields[name] = part
        return name


def _read_alike(part: Part, item: Single) -> bool:
    """Whether two fields get the same values."""
    return not item.holds_lists and (part.column, part.part) == (item.column, item.part)
