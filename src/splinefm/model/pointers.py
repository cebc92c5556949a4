"""Addresses that kernels read like arrays, and bundles of them: see `memory`.

With NUMBA_DISABLE_JIT=1 bundles are what they are in Python, and pointers are arrays.
"""

# mypy: disable-error-code="no-untyped-call,untyped-decorator"

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import config, from_dtype, types
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import intrinsic, lower_builtin, lower_getattr_generic, register_model

from splinefm.model.memory import members

_JIT_OFF: bool = config.DISABLE_JIT  # type: ignore[attr-defined]  # set at run time
# Numba asks what is for the CPU alone before the two dozen meanings that an operator has on any device.
_FIRST = {"target": "cpu"}


class Pointer(types.Type):
    """The address of numbers of one kind, which reads and writes like an array: `x[at]`, from 0 on.

    Whole numbers come as int64, whatever they are in memory, since they are places in other arrays.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Pointer({dtype})")


@register_model(Pointer)
class _PointerModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Pointer) -> None:
        super().__init__(manager, kind, manager[kind.dtype].get_data_type().as_pointer())


class Bundle(types.Type):
    """A bundle, as the place of its list of addresses: its members are read when they are asked for.

    As a tuple of dozens of pointers it would be copied with every use of a member, and LLVM would have to find out that
    nearly all of that is for nothing.
    """

    def __init__(self, kind: Any) -> None:
        self.parts: dict[str, tuple[int, Any]] = {}  # the place in the list, and the type
        at = 0
        for name, part in zip(kind._fields, members(kind), strict=True):
            is_bundle = part is not int and isinstance(part, type)
            self.parts[name] = at, _part(part)
            at += self.parts[name][1].size if is_bundle else 1
        self.size = at
        super().__init__(name=f"Bundle({kind.__module__}.{kind.__qualname__})")


def _part(member: Any) -> Any:
    """The type of a member of a bundle."""
    if member is int:
        return types.int64
    return Bundle(member) if isinstance(member, type) else Pointer(from_dtype(member))


@register_model(Bundle)
class _BundleModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Bundle) -> None:
        super().__init__(manager, kind, ir.IntType(64).as_pointer())


@infer_getattr
class _Members(AttributeTemplate):
    key = Bundle

    def generic_resolve(self, value: Bundle, attr: str) -> Any:  # type: ignore[override]  # there it is a value
        return value.parts[attr][1] if attr in value.parts else None


@lower_getattr_generic(Bundle)
def _get_member(context: Any, builder: Any, kind: Bundle, value: Any, name: str) -> Any:
    at, part = kind.parts[name]
    place = builder.gep(value, [ir.Constant(ir.IntType(64), at)])
    if isinstance(part, Bundle):
        return place
    number = builder.load(place)
    number.set_metadata("invariant.load", builder.module.add_metadata([]))  # no kernel writes to the list
    return builder.inttoptr(number, context.get_value_type(part)) if isinstance(part, Pointer) else number


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):
    metadata = _FIRST

    def generic(self, args: Any, kws: Any) -> Any:
        x, at = args
        if not _is_place(x, at):
            return None
        return signature(types.int64 if isinstance(x.dtype, types.Integer) else x.dtype, x, types.int64)


@infer_global(operator.setitem)
class _SetItem(AbstractTemplate):
    metadata = _FIRST

    def generic(self, args: Any, kws: Any) -> Any:
        x, at, _ = args
        return signature(types.none, x, types.int64, x.dtype) if _is_place(x, at) else None


def _is_place(x: Any, at: Any) -> bool:
    return isinstance(x, Pointer) and isinstance(at, types.Integer)


@lower_builtin(operator.getitem, Pointer, types.int64)
def _get(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    value = builder.load(builder.gep(arguments[0], [arguments[1]]))
    return builder.sext(value, ir.IntType(64)) if isinstance(sig.return_type, types.Integer) else value


@lower_builtin(operator.setitem, Pointer, types.int64, types.Any)
def _set(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    builder.store(arguments[2], builder.gep(arguments[0], [arguments[1]]))
    return context.get_dummy_value()


def data_of(context: Any, builder: Any, kind: Any, x: Any) -> Any:
    """Where the numbers of an array or a pointer are."""
    return x if isinstance(kind, Pointer) else context.make_array(kind)(context, builder, x).data


def pair(python: Callable[..., Any], llvm: Callable[..., Any]) -> Any:
    """The function for compiled code, or its meaning in Python where Numba is switched off."""
    return python if _JIT_OFF else intrinsic(llvm)


def reader(bundle: type) -> Any:
    """The function that turns `memory.addresses` of such a bundle into the bundle."""

    def read(typing: Any, places: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return data_of(context, builder, signature.args[0], arguments[0])

        return Bundle(bundle)(places), generate

    return pair(lambda places: places, read)


def _behind(typing: Any, x: Any, at: Any) -> Any:
    """The pointer to x[at]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return x(x, types.int64), generate


behind = pair(lambda x, at: x[at:], _behind)
