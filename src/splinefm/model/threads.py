"""How the threads of a step share its parts without asking Python: counters in memory.

A phase of a step has parts. A thread takes the next part that nobody has, and says when it is done. The next phase
begins when all parts are done, whoever did them: a thread that comes late finds nothing left, and nobody waits for it.
"""

from __future__ import annotations

import os
from typing import Any

from llvmlite import ir
from numba import types

from splinefm.model.pointers import pair
from splinefm.model.units import inlined

_SPINS = 256  # looks at a counter before a thread offers its core to others


def _take(typing: Any, counters: Any, at: Any) -> Any:
    """counters[at] += 1 as one operation for all threads; returns the number before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", builder.gep(arguments[0], [arguments[1]]), one, "seq_cst")

    return types.int64(counters, types.int64), generate


def _read(typing: Any, counters: Any, at: Any) -> Any:
    """counters[at] as other threads see it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.gep(arguments[0], [arguments[1]]), "seq_cst", 8)

    return types.int64(counters, types.int64), generate


def _yield_core(typing: Any) -> Any:
    """Let other threads have the core, where the operating system has a word for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if os.name == "posix":
            kind = ir.FunctionType(ir.IntType(32), [])
            name = "sched_yield"
            builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.none(), generate


def _take_in_python(counters: Any, at: int) -> Any:
    counters[at] += 1
    return counters[at] - 1


take = pair(_take_in_python, _take)
read = pair(lambda counters, at: counters[at], _read)
yield_core = pair(lambda: None, _yield_core)


@inlined
def wait_for(counters: Any, at: int, n: int) -> None:
    """Until counters[at] is n."""
    looks = 0
    while read(counters, at) < n:
        looks += 1
        if looks > _SPINS:
            yield_core()
