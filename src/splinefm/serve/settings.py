"""Settings of a service: which models, for whom, and within which limits."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
DEFAULT_ARM = "default"


@dataclass(frozen=True)
class Arm:
    """One served model: its files, its share of the keys, and whether its answers are shown.

    Parameters
    ----------
    name : str
        Name in answers, metrics and logs.
    model : str
        Path of the model file.
    weight : float
        Share of the keys, relative to the other arms; a shadow arm has none.
    index : str, optional
        Path of an item index of this model, for rankings.
    shadow : bool
        Scores the rows of other arms, and its scores are never returned.

    Examples
    --------
    >>> Arm("control", "a.sfm", weight=90)
    Arm(name='control', model='a.sfm', weight=90, index=None, shadow=False)
    """

    name: str
    model: str
    weight: float = 1.0
    index: str | None = None
    shadow: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"an arm is named with letters, digits, '_', '.' and '-', got {self.name!r}")
        if not (self.weight >= 0.0 and math.isfinite(self.weight)):
            raise ValueError(f"the weight of arm {self.name!r} must be a number of at least 0, got {self.weight}")


def parse_arm(text: str, *, shadow: bool = False) -> Arm:
    """Read an arm of the command line: NAME=MODEL:WEIGHT, a shadow arm without a weight.

    Examples
    --------
    >>> parse_arm("control=a.sfm:90")
    Arm(name='control', model='a.sfm', weight=90.0, index=None, shadow=False)
    """
    name, equals, rest = text.partition("=")
    path, weight = (rest, "0") if shadow else rest.rpartition(":")[::2]
    try:
        number = float(weight)
    except ValueError:
        number = math.nan
    if not (equals and name and path) or math.isnan(number):
        form, example = ("NAME=MODEL", "new=b.sfm") if shadow else ("NAME=MODEL:WEIGHT", "control=a.sfm:90")
        raise ValueError(f"an arm is written {form}, such as {example}; got {text!r}")
    return Arm(name, path, number, shadow=shadow)


@dataclass(frozen=True)
class Limits:
    """What a client can ask for, and how long it can take.

    Parameters
    ----------
    body, bodies : int
        Bytes of a request's body, and of all bodies that a worker holds at a time.
    rows, bulk_rows : int
        Rows of a JSON request, and of an Arrow stream.
    header : int
        Bytes of a request line and its headers.
    connections : int
        Open connections of a worker; further requests get a 503.
    queue : int
        Requests that wait in a worker; further requests get a 503.
    wait : float
        Seconds of work that may wait in a worker, estimated from recent requests.
    deadline : float
        Seconds after which a waiting request is given up.
    read, idle, write : float
        Seconds to send a request, to be silent between requests, and to take an answer.
    drain : float
        Seconds that running requests have at shutdown.

    Examples
    --------
    >>> Limits(rows=500).rows
    500
    """

    body: int = 16 << 20
    bodies: int = 256 << 20
    rows: int = 10_000
    bulk_rows: int = 1_000_000
    header: int = 16 << 10
    connections: int = 1024
    queue: int = 1024
    wait: float = 0.25
    deadline: float = 5.0
    read: float = 10.0
    idle: float = 75.0
    write: float = 10.0
    drain: float = 30.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ValueError(f"the limit {name!r} must be above 0, got {value}")


@dataclass(frozen=True)
class ServiceSettings:
    """What a service answers with; how it listens is the server's business.

    Parameters
    ----------
    arms : sequence of Arm
        The models.
    key : str, optional
        Column that decides the arm of a row, such as a user id; by default the request id does.
    watch : bool
        Whether to load files again when they change.
    max_change : float, optional
        How far a new file may move the score of any segment; see `splinefm.compare`. A file that may move one further
        is refused.
    allow_extra : bool
        Whether to ignore columns that no model has, instead of refusing them.
    background : str, optional
        Path of the rows that explanations compare with.
    explore : bool
        Whether to offer the page of `splinefm explore`, with rows of the background.
    log : str, optional
        Folder of the log of predictions and outcomes.
    log_rows, log_requests : bool
        Whether to log the rows, too, and all requests instead of errors only.
    drift_rows : int
        Rows per second and worker that are compared with the training rows; 0 for none.
    tokens : str, optional
        File of bearer tokens.
    admin_from_loopback : bool
        Whether, without tokens, clients on the same machine may change models and weights.
    traces : bool
        Whether to make OpenTelemetry spans.
    limits : Limits
        What clients can ask for.

    Examples
    --------
    >>> settings = ServiceSettings((Arm("control", "a.sfm", 90), Arm("new", "b.sfm", 10)), key="user_id")
    >>> [arm.name for arm in settings.arms]
    ['control', 'new']
    """

    arms: tuple[Arm, ...]
    key: str | None = None
    watch: bool = False
    max_change: float | None = None
    allow_extra: bool = False
    background: str | None = None
    explore: bool = False
    log: str | None = None
    log_rows: bool = False
    log_requests: bool = False
    drift_rows: int = 500
    tokens: str | None = None
    admin_from_loopback: bool = False
    traces: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", tuple(self.arms))
        names = [arm.name for arm in self.arms]
        if self.max_change is not None and not self.max_change >= 0.0:
            raise ValueError(f"max_change must be at least 0, got {self.max_change!r}")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two arms are called {twice[0]!r}; give each its own name")
        if not any(arm.weight > 0.0 for arm in self.arms if not arm.shadow):
            raise ValueError("no arm has a weight above 0; give at least one a share of the keys")
        if self.explore and self.background is None:
            raise ValueError("the page at /explore shows rows of a table; name it with --background TABLE")

    @staticmethod
    def of(model: Any, **options: Any) -> ServiceSettings:
        """Settings as they are, or the settings of a single model file."""
        if not isinstance(model, ServiceSettings):
            return ServiceSettings((Arm(DEFAULT_ARM, str(model), index=options.pop("index", None)),), **options)
        return replace(model, **options) if options else model

    def with_index(self, given: Sequence[str]) -> ServiceSettings:
        """The settings with indices: PATH if there is one arm, otherwise NAME=PATH for each.

        Examples
        --------
        >>> ServiceSettings((Arm("a", "a.sfm"),)).with_index(["items.sfi"]).arms[0].index
        'items.sfi'
        """
        arms = {arm.name: arm for arm in self.arms}
        for text in given:
            name, equals, path = text.partition("=")
            if not equals and len(arms) == 1:
                name, path = next(iter(arms)), text
            if name not in arms or not path:
                known = ", ".join(arms)
                raise ValueError(f"an index of several arms is written NAME=PATH with one of {known}; got {text!r}")
            arms[name] = replace(arms[name], index=path)
        return replace(self, arms=tuple(arms.values()))
