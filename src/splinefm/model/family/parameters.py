"""Initial parameters, and the memory that training them takes."""

from __future__ import annotations

import math

import numpy as np

from splinefm._memory import check_memory
from splinefm._wording import setting
from splinefm.encode.slots import SlotLayout
from splinefm.model.family.contract import Model, Params

# The most arrays of the size of the parameters that training holds at a time: initial values, trained values, two
# moments, an average, gradients, and the parameters of this epoch and of the best one.
COPIES = 8


def param_shapes(model: Model, layout: SlotLayout, n_outputs: int = 1) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model's parameters; those of several outputs have a first axis for them.

    Examples
    --------
    >>> from splinefm.encode.slots import FieldLayout
    >>> from splinefm.model.family import FM
    >>> param_shapes(FM(k=2), SlotLayout((FieldLayout("c", 3, (1,), (0,)),)))
    {'bias': (1,), 'linear': (3,), 'factors': (3, 2)}
    >>> param_shapes(FM(k=2), SlotLayout((FieldLayout("c", 3, (1,), (0,)),)), n_outputs=5)
    {'bias': (5, 1), 'linear': (5, 3), 'factors': (5, 3, 2)}
    """
    n_features, n_fields = layout.n_features, len(layout.fields)
    shapes = {
        "bias": (1,),
        "linear": (n_features,),
        "factors": (n_features, model.width(n_fields)),
        **model.field_shapes(n_fields),
    }
    return shapes if n_outputs == 1 else {name: (n_outputs, *shape) for name, shape in shapes.items()}


def count_outputs(params: Params) -> int:
    """How many scores a row gets from some parameters."""
    return len(params["bias"]) if params["bias"].ndim == 2 else 1


def by_output(params: Params) -> Params:
    """The parameters with a first axis for outputs, whether there are several or not; nothing is copied."""
    return params if params["bias"].ndim == 2 else {name: values[None] for name, values in params.items()}


def params_of(params: Params, output: int) -> Params:
    """The parameters of one of several outputs; nothing is copied."""
    return {name: values[output] for name, values in params.items()}


def each_output(params: Params) -> list[Params]:
    """The parameters of every output; nothing is copied."""
    n_outputs = count_outputs(params)
    return [params] if n_outputs == 1 else [params_of(params, output) for output in range(n_outputs)]


def pace_of(n_fields: int) -> float:
    """Step size for a number of fields: 1 up to 50 fields, then (50 / n)², and 25 / n from 100 on.

    All fields of a row move its score at once: decision 35 has what was measured.

    Examples
    --------
    >>> pace_of(50), pace_of(100), pace_of(1000)
    (1.0, 0.25, 0.025)
    """
    return min(1.0, max((50 / n_fields) ** 2, 25 / n_fields))


def check_model_memory(model: Model, layout: SlotLayout, n_outputs: int = 1) -> None:
    """Raise if training a model would take more memory than there is."""
    numbers = sum(math.prod(shape) for shape in param_shapes(model, layout, n_outputs).values())
    features = f"{layout.n_features:,} features" + (f" for each of {n_outputs:,} classes" if n_outputs > 1 else "")
    check_memory(
        COPIES * 4 * numbers,
        f"training {model} with its {numbers:,} parameters ({features})",
        f"lower {setting('k')}, or use fewer categories or basis functions",
    )


def init_params(
    model: Model, layout: SlotLayout, rng: np.random.Generator, scale: float = 0.1, n_outputs: int = 1
) -> Params:
    """Initial parameters: small vectors with mean zero, everything else neutral.

    The vectors are normal with standard deviation `scale` / √k, so that products of two start small for any k, and
    √`pace_of(n)` times that for n fields, so that the sum over all pairs of many fields starts small too. Coordinates
    for products of three have `scale` / √third, times the cube root of the pace: decision 39.
    """
    check_model_memory(model, layout, n_outputs)
    if n_outputs > 1:
        parts = [init_params(model, layout, rng, scale) for _ in range(n_outputs)]
        return {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    n_fields = len(layout.fields)
    pace, width, third = pace_of(n_fields), model.width(n_fields), model.third
    # DIFFERS: the authors' code draws the vectors of an FM from U(0, 1 / √k), all positive, so that scores of many
    # fields start far from zero; and those of an FwFM from N(0, 0.01²).
    factors = rng.standard_normal((layout.n_features, width), np.float32)
    factors[:, : width - third] *= np.float32(scale * np.sqrt(pace / model.part_size(n_fields)))
    factors[:, width - third :] *= np.float32(scale * np.cbrt(pace) / np.sqrt(max(1, third)))
    for f, size in enumerate(model.vector_sizes(n_fields)):
        factors[layout.feature_ptr[f] : layout.feature_ptr[f + 1], size:] = 0.0
    return {
        "bias": np.zeros(1, np.float32),
        "linear": np.zeros(layout.n_features, np.float32),
        "factors": factors,
        **model.init_fields(n_fields, rng),
    }
