"""Settings of the server: what the command line says, and what a worker process is told."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
DEFAULT_ARM = "default"


@dataclass(frozen=True)
class ArmSetting:
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
        Path of an item index of this model, for `/v1/rank`.
    shadow : bool
        Scores what others answer, and is never shown.
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


def parse_arm(text: str, *, shadow: bool = False) -> ArmSetting:
    """Read an arm of the command line: NAME=MODEL:WEIGHT, a shadow arm without a weight.

    Examples
    --------
    >>> parse_arm("control=a.sfm:90")
    ArmSetting(name='control', model='a.sfm', weight=90.0, index=None, shadow=False)
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
    return ArmSetting(name, path, number, shadow=shadow)


def check_arms(arms: Sequence[ArmSetting]) -> None:
    """Raise where arms have the same name, or none of them is shown to anybody."""
    names = [arm.name for arm in arms]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two arms are called {twice[0]!r}; give each its own name")
    if not any(arm.weight > 0.0 for arm in arms if not arm.shadow):
        raise ValueError("no arm has a weight above 0; give at least one a share of the keys")


@dataclass(frozen=True)
class Limits:
    """What a client can ask for, and how long it can take.

    Parameters
    ----------
    body, bodies : int
        Bytes of a request's body, and of all that a worker holds at a time.
    rows, bulk_rows : int
        Rows of a JSON request, and of an Arrow stream.
    header : int
        Bytes of a request line and its headers.
    connections : int
        Open connections of a worker; more wait to be accepted.
    queue : int
        Requests that wait in a worker; more get a 503.
    wait : float
        Seconds of work that may wait in a worker, as far as it can tell from the last requests.
    deadline : float
        Seconds after which a request that waits is given up.
    read, idle, write : float
        Seconds to send a request, to be silent between requests, and to take an answer.
    drain : float
        Seconds that running requests have at shutdown.
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
class ServerSettings:
    """Everything that the server is told at its start."""

    arms: tuple[ArmSetting, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    watch: bool = False
    key: str | None = None
    allow_extra: bool = False
    background: str | None = None
    tokens: str | None = None
    log: str | None = None
    log_rows: bool = False
    log_requests: bool = False
    drift_rows: int = 500
    explore: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_arms(self.arms)
        if self.explore and self.background is None:
            raise ValueError("the page at /explore shows rows of a table; name it with --background TABLE")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a worker process."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> ServerSettings:
        """The settings that `to_dict` described.

        Examples
        --------
        >>> settings = ServerSettings((ArmSetting("a", "a.sfm"),), limits=Limits(rows=5))
        >>> ServerSettings.from_dict(settings.to_dict()) == settings
        True
        """
        arms = tuple(ArmSetting(**arm) for arm in values["arms"])
        return ServerSettings(**{**values, "arms": arms, "limits": Limits(**values["limits"])})

    def with_index(self, given: Sequence[str]) -> ServerSettings:
        """The settings with indices: PATH if there is one arm, otherwise NAME=PATH for each.

        Examples
        --------
        >>> ServerSettings((ArmSetting("a", "a.sfm"),)).with_index(["items.sfi"]).arms[0].index
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
