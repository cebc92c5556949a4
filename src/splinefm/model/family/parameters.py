"""Parameters: shapes, initial values, several outputs, and means over models and features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._memory import check_memory
from splinefm._wording import setting
from splinefm.encode.slots import SlotLayout
from splinefm.model.family.contract import Model, Params
from splinefm.model.family.separation import keep_apart

if TYPE_CHECKING:
    from splinefm.model.family import AnyModel

# The most arrays of the size of the parameters that training holds at a time: initial values, trained values, two
# moments, an average, gradients, and the parameters of this epoch and of the best one.
COPIES = 8
_BLOCK_SIZE = 1 << 21  # coordinates of vectors that are converted to float64 at a time


def param_shapes(model: Model, layout: SlotLayout, n_outputs: int = 1) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model's parameters; with several outputs, the first axis counts them.

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
    """Number of scores per row."""
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
    # fields start far from zero; and the vectors of an FwFM from N(0, 0.01²).
    factors = rng.standard_normal((layout.n_features, width), np.float32)
    factors[:, : width - third] *= np.float32(scale * np.sqrt(pace / model.part_size(n_fields)))
    factors[:, width - third :] *= np.float32(scale * np.cbrt(pace) / np.sqrt(max(1, third)))
    for f, size in enumerate(model.vector_sizes(n_fields)):
        factors[layout.feature_ptr[f] : layout.feature_ptr[f + 1], size:] = 0.0
    params = {
        "bias": np.zeros(1, np.float32),
        "linear": np.zeros(layout.n_features, np.float32),
        "factors": factors,
        **model.init_fields(n_fields, rng),
    }
    keep_apart(model, params, layout)
    return params


# The mean of several models of one kind as a single model of the family.


def mean_model(model: AnyModel, members: Sequence[Params], layout: SlotLayout) -> tuple[AnyModel, Params]:
    """Return the model whose score is the mean of the scores of a model with several parameters, and its parameters.

    It has the vectors of the members side by side.

    Examples
    --------
    >>> from splinefm.encode.slots import FieldLayout
    >>> from splinefm.model.family import FwFM, init_params
    >>> layout = SlotLayout((FieldLayout("c", 3, (1,), (0,)), FieldLayout("d", 2, (1,), (0,))))
    >>> members = [init_params(FwFM(k=2), layout, np.random.default_rng(seed)) for seed in range(3)]
    >>> model, params = mean_model(FwFM(k=2), members, layout)
    >>> model, params["factors"].shape, params["field_weights"].shape
    (FwFM(k=6, members=3), (5, 6), (3, 2, 2))
    """
    if len(members) == 1:
        return model, members[0]
    if members[0]["bias"].ndim == 2:  # several outputs, each the mean of its own
        means = [mean_model(model, own, layout) for own in zip(*map(each_output, members), strict=True)]
        return means[0][0], {name: np.stack([params[name] for _, params in means]) for name in means[0][1]}
    whole, params = model.mean(members, layout)
    for name in ("bias", "linear"):
        params[name] = np.asarray(np.mean([own[name] for own in members], axis=0, dtype=np.float64), np.float32)
    return whole, params


def member_model(model: AnyModel, n: int) -> AnyModel:
    """Return the model of a single member, given the mean of n members.

    Examples
    --------
    >>> from splinefm.model.family import FmFM, FwFM
    >>> member_model(FwFM(k=6, third=3, members=3), 3), member_model(FmFM(k=(4, 2)), 2)
    (FwFM(k=2, third=1), FmFM(k=(2, 1)))
    """
    k, settings = model.k, model.get_params()
    parts: dict[str, Any] = {"k": tuple(size // n for size in k) if isinstance(k, tuple) else k // n}
    parts |= {"third": model.third // n, "members": 1}
    return model.set_params(**{name: value for name, value in parts.items() if name in settings})


def check_trainable(model: Model) -> None:
    """Raise if a fit is to train a mean of several models from the start: only a fit of its members makes one.

    Updates train it further, as one model.
    """
    if model.members > 1:
        raise ValueError(
            f"{model} is the mean of {model.members} models and cannot be trained; "
            f"fit a model without members, with Training(members={model.members})"
        )


def mean_vector(params: Params, first: int, share: FloatArray) -> tuple[FloatArray, float]:
    """Mean vector and mean linear weight of a field, from the mean weights of its features.

    Only features with a weight are read.
    """
    used = np.flatnonzero(share)
    vector = np.zeros(params["factors"].shape[1])
    most = max(1, _BLOCK_SIZE // len(vector))
    for at in range(0, len(used), most):
        block = used[at : at + most]
        vector += share[block] @ params["factors"][first + block].astype(np.float64)
    return vector, float(share[used] @ params["linear"][first + used].astype(np.float64))
