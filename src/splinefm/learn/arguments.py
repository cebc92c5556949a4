"""The arguments of the functions that fit: checks of their types, and where unknown ones belong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

from splinefm._checks import check_column_name, check_kind
from splinefm.encode.schema import check_schema
from splinefm.encode.tables.names import nearest_hint
from splinefm.model.family import AnyModel, FwFM

_Callable = TypeVar("_Callable", bound=Callable[..., Any])


def homes(kind: type, of: str, renamed: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return for each setting of a dataclass, and for other names of them, how to write it.

    Examples
    --------
    >>> homes(FwFM, "model=sf.FwFM")["k"]
    'model=sf.FwFM(k={})'
    """
    names = {item.name: item.name for item in fields(kind)} | dict(renamed or {})
    return {name: f"{of}({other}={{}})" for name, other in names.items()}


OF_MODEL = homes(FwFM, "model=sf.FwFM")


def way_out(name: str, value: object, known: Sequence[str], elsewhere: Mapping[str, str]) -> str:
    """Return the part of a message that says where something belongs that is not a parameter.

    Examples
    --------
    >>> way_out("k", 8, ["model"], OF_MODEL), way_out("epoch", 8, ["epochs"], OF_MODEL)
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
                advice = way_out(name, named[name], known, elsewhere)
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
