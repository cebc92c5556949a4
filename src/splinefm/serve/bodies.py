"""JSON by msgspec: the bodies that endpoints take, checked while they are decoded, and lines of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from splinefm._core import JsonColumns

Row = dict[str, Any]
MAX_ITEMS = 10_000
"""Items of a ranking."""


class ScoreBody(msgspec.Struct, forbid_unknown_fields=True):
    """Rows as a list of objects, or as columns."""

    rows: list[Row] | None = None
    columns: dict[str, list[Any]] | None = None


class ExplainBody(msgspec.Struct, forbid_unknown_fields=True):
    """Rows to explain, by which arm, and the score of which class."""

    rows: list[Row]
    arm: str | None = None
    class_name: str | None = msgspec.field(default=None, name="class")


class RankBody(msgspec.Struct, forbid_unknown_fields=True):
    """A context, or several, and which items may be found."""

    context: Row | None = None
    contexts: Annotated[list[Row], Meta(min_length=1)] | None = None
    k: Annotated[int, Meta(ge=1, le=MAX_ITEMS)] = 10
    allowed: list[int | str] | None = None
    excluded: list[int | str] | None = None
    group: str | list[str] | None = None


class FeedbackItem(msgspec.Struct, forbid_unknown_fields=True):
    """What came of a row of an answer."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    outcome: float
    row: Annotated[int, Meta(ge=0)] = 0


class FeedbackBody(msgspec.Struct, forbid_unknown_fields=True):
    """What came of the rows of answers."""

    outcomes: Annotated[list[FeedbackItem], Meta(min_length=1, max_length=10_000)]


class ReloadBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which arm to load again; all by default."""

    arm: str | None = None


class WeightsBody(msgspec.Struct, forbid_unknown_fields=True):
    """New weights of arms."""

    weights: dict[str, float]


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """An item of an index: its id, a value for each of its columns, and its group if the index has groups."""

    id: int | str
    values: Row
    group: str | None = None


class ItemsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Items to remove, to replace and to add."""

    add: list[Item] = []  # msgspec copies it
    update: list[Item] = []  # msgspec copies it
    remove: list[int | str] = []  # msgspec copies it
    arm: str | None = None


class Tensor(msgspec.Struct):
    """An input of the Open Inference Protocol."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any] | None = None
    parameters: dict[str, Any] = {}  # msgspec copies it


class WantedOutput(msgspec.Struct):
    """An output that a client asks for."""

    name: str
    parameters: dict[str, Any] = {}  # msgspec copies it


class InferBody(msgspec.Struct):
    """A request of the Open Inference Protocol."""

    inputs: list[Tensor]
    id: str | None = None
    outputs: list[WantedOutput] | None = None
    parameters: dict[str, Any] = {}  # msgspec copies it


BODIES: tuple[type[msgspec.Struct], ...] = (
    ScoreBody,
    ExplainBody,
    RankBody,
    FeedbackBody,
    ReloadBody,
    WeightsBody,
    ItemsBody,
    InferBody,
)
_DECODERS: dict[type, Any] = {kind: msgspec.json.Decoder(kind) for kind in BODIES}
_ANY = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()
# What decoding can raise for text that is not JSON or not UTF-8, JSON of another shape, and brackets that are too deep.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def schema_of(bodies: Sequence[type]) -> dict[str, Any]:
    """JSON schemas of bodies by name, as OpenAPI refers to them."""
    return msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")[1]


class UnreadableBody(ValueError):
    """A body that is not JSON at all."""


def from_json(body: bytes, kind: type | None = None) -> Any:
    """The content of a body.

    Raises
    ------
    UnreadableBody
        If it is not JSON.
    ValueError
        If it is not what the endpoint takes; the message says where.
    """
    try:
        return (_ANY if kind is None else _DECODERS[kind]).decode(body)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except DECODE_ERRORS as error:
        hint = ""
        if any(word in body for word in (b"NaN", b"Infinity")):
            hint = " (JSON has no NaN or Infinity; a missing value is null)"
        raise UnreadableBody(f"the body is not valid JSON: {str(error) or type(error).__name__}{hint}") from None


class LogHead(msgspec.Struct):
    """What decides whether a line of the log is needed; decoding no more of it takes a fraction of the time."""

    at: float
    id: str
    row: int = 0
    outcome: float | None = None
    shadow: bool = False
    rows: msgspec.Raw | None = None
    context: msgspec.Raw | None = None


_HEAD = msgspec.json.Decoder(LogHead)


def read_head(text: bytes) -> LogHead | None:
    """The head of a line; None if it is not JSON or has NaN."""
    try:
        return _HEAD.decode(text)
    except DECODE_ERRORS:
        return None


def json_columns(names: Sequence[str]) -> JsonColumns:
    """What reads bodies of rows that have exactly these columns without making an object per value."""
    return JsonColumns(list(names), _ANY.decode)


def to_json(value: object) -> bytes:
    """Compact JSON."""
    return _ENCODER.encode(value)
