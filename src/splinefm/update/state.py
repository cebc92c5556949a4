"""The state of a learner, next to its model file: what the next update depends on, and which model it belongs to.

The file is a container like a model file: a JSON description and arrays, with checksums and without code. It names the
model by the checksum of its header. Two files cannot be replaced in one step, so a new state is first written under
another name, then the model is replaced, and then the state. A crash in between leaves a model and two states, of which
one belongs to the model. If that is the new one, the next save first gives it its name: a second crash must not find
the only state of the model overwritten.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from splinefm._arrays import Array, Float32Array
from splinefm._files import open_regular, replacing, sync_folder
from splinefm.model.family.parameters import param_shapes
from splinefm.model.optimizers import OptimizerState, make_penalty
from splinefm.store.container import (
    Damaged,
    ModelFileError,
    header_digest,
    opened,
    read_container,
    require,
    take_array,
    write_container,
)
from splinefm.train.fitted import Fitted
from splinefm.train.penalties import make_groups

FORMAT = 1
PENALTIES = ("l2", "l2_third", "l2_linear", "smoothness")
"""The penalties that adapt to what was learned."""
_MOMENTS = {"adamw": ("m", "v"), "adagrad": ("v",)}
_NONE = np.zeros(1, np.float32)


@dataclass(frozen=True, eq=False)
class LearnerState:
    """What the next update of a `Learner` depends on, in addition to the model.

    Parameters
    ----------
    optimizer : {"adamw", "adagrad"}
        Name of the optimizer.
    n_steps : int
        Steps so far.
    moments : mapping of str to OptimizerState
        Moments of the gradients of each parameter, flat.
    penalty : mapping of str to array
        The adapted penalties, for each group of features.
    rng : mapping
        The generator of the order of rows, as `numpy.random.PCG64.state` has it.
    """

    optimizer: str
    n_steps: int
    moments: Mapping[str, OptimizerState]
    penalty: Mapping[str, Float32Array]
    rng: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"LearnerState({self.optimizer}, {self.n_steps:,} steps)"


def state_path(model: Path) -> Path:
    """Return the path of the state of a model file.

    Examples
    --------
    >>> state_path(Path("model.sfm")).name
    'model.sfm.state'
    """
    return model.with_name(model.name + ".state")


def _pending_path(model: Path) -> Path:
    return model.with_name(model.name + ".state.new")


@contextmanager
def saving_state(model: Path) -> Iterator[Callable[[LearnerState, str], None]]:
    """Yield a function that writes the state of a model that is about to be replaced; the end replaces the old state.

    Call it with the state and the identity of the new model before the model is replaced.
    """
    coming, written = _pending_path(model), ""

    def write(state: LearnerState, identity: str) -> None:
        nonlocal written
        _finish_pending(model)
        written = identity
        with replacing(coming) as file:
            version = sys.modules["splinefm"].__version__  # not imported: the package imports this module
            write_container(file, FORMAT, version, *_describe(state, identity))

    try:
        yield write
    except BaseException:
        with suppress(OSError):
            if written and _identity(model) != written:  # the model that it belongs to has not come
                coming.unlink(missing_ok=True)
            elif written:  # it has come, but may not be on disk
                coming.replace(state_path(model))
        raise
    with suppress(OSError):  # it is found under both names
        coming.replace(state_path(model))
    sync_folder(model.parent)


def _identity(model: Path) -> str | None:
    try:
        with open_regular(model) as file:
            return header_digest(file)
    except (OSError, ModelFileError):
        return None


def _finish_pending(model: Path) -> None:
    """Rename a state that a crash left under a temporary name, if it belongs to the model."""
    coming, identity = _pending_path(model), _identity(model)
    if identity is None or not coming.is_file():
        return
    with suppress(ModelFileError, KeyError, TypeError), coming.open("rb") as file:
        if read_container(file, FORMAT)[0]["learner"]["model"] == identity:
            coming.replace(state_path(model))


def find_state(model: Path, identity: str, fitted: Fitted) -> tuple[LearnerState | None, Path | None]:
    """Return the state that belongs to a model file, or else the path of a state that belongs to another model.

    The state of an interrupted update is ignored.
    """
    model = model.resolve()
    for path in (state_path(model), _pending_path(model)):
        if not path.is_file():
            continue
        state = _read(path, identity, fitted)
        if state is not None:
            return state, None
    return None, state_path(model) if state_path(model).is_file() else None


def _describe(state: LearnerState, identity: str) -> tuple[dict[str, Any], dict[str, Array]]:
    tensors: dict[str, Array] = {}
    for name, moments in state.moments.items():
        for part in _MOMENTS[state.optimizer]:
            tensors[f"{part}/{name}"] = np.ascontiguousarray(getattr(moments, part), "<f4")
    for name, values in state.penalty.items():
        tensors[f"penalty/{name}"] = np.ascontiguousarray(values, "<f4")
    inner = state.rng["state"]
    rng = {
        "state": f"{inner['state']:032x}",
        "inc": f"{inner['inc']:032x}",
        "has_uint32": int(state.rng["has_uint32"]),
        "uinteger": int(state.rng["uinteger"]),
    }
    description = {
        "learner": {"model": identity, "optimizer": state.optimizer, "number": int(state.n_steps), "rng": rng}
    }
    return description, tensors


def _read(path: Path, identity: str, fitted: Fitted) -> LearnerState | None:
    """Return the state of a file, or None if it belongs to another model."""
    advice = "remove it to update the model as after a fit, without what the optimizer has learned"
    with opened(path, advice) as file:
        try:
            description, tensors = read_container(file, FORMAT)
        except Damaged:
            raise
        except ModelFileError as error:
            raise ModelFileError(f"{error}, or {advice}") from error
        require(isinstance(description.get("learner"), dict), "it is not the state of a learner")
        about: dict[str, Any] = description["learner"]
        return _restore(about, tensors, fitted) if about["model"] == identity else None


def _restore(about: Mapping[str, Any], tensors: dict[str, Array], fitted: Fitted) -> LearnerState:
    optimizer, number = about["optimizer"], about["number"]
    require(optimizer in _MOMENTS, f"its optimizer is {str(optimizer)[:20]!r}")
    require(type(number) is int and 0 <= number < 2**62, f"it has {number!r} steps")
    layout = fitted.encoder.layout
    moments = {}
    for name, shape in param_shapes(fitted.model, layout, fitted.n_outputs).items():
        found = {part: _take(tensors, f"{part}/{name}", int(np.prod(shape))) for part in _MOMENTS[optimizer]}
        require(not (found["v"] < 0.0).any(), f"v/{name} is negative")
        moments[name] = OptimizerState(found.get("m", _NONE), found["v"], _NONE, np.zeros(1, np.int64))
    n_groups = len(make_penalty(layout, make_groups(fitted.encoder, fitted.training)).l2)
    penalty = {name: _take(tensors, f"penalty/{name}", n_groups) for name in PENALTIES}
    require(all(not (values < 0.0).any() for values in penalty.values()), "a penalty is negative")
    require(not tensors, f"nothing refers to the array {next(iter(tensors), None)!r}")
    return LearnerState(optimizer, number, moments, penalty, _restore_rng(about["rng"]))


def _take(tensors: dict[str, Array], name: str, size: int) -> Float32Array:
    values = take_array(tensors, name, "F32", 1)
    require(len(values) == size, f"{name} has {len(values):,} numbers instead of {size:,}")
    require(bool(np.isfinite(values).all()), f"{name} holds NaN or infinity")
    return values


def _restore_rng(given: Mapping[str, Any]) -> dict[str, Any]:
    inner = {name: int(given[name], 16) for name in ("state", "inc")}
    require(all(0 <= value < 2**128 for value in inner.values()), "its random generator is invalid")
    half, flag = given["uinteger"], given["has_uint32"]
    require(type(half) is int and 0 <= half < 2**32 and flag in (0, 1), "its random generator is invalid")
    return {"bit_generator": "PCG64", "state": inner, "has_uint32": flag, "uinteger": half}
