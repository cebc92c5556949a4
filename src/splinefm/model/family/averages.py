"""The mean of several models of one kind as a single model of the family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from splinefm.encode.slots import SlotLayout
from splinefm.model.family.contract import Model, Params

if TYPE_CHECKING:
    from splinefm.model.family import AnyModel


def mean_model(model: AnyModel, members: Sequence[Params], layout: SlotLayout) -> tuple[AnyModel, Params]:
    """Return the model whose score is the mean of the scores of a model with several parameters, and its parameters.

    Its vectors are those of the members, side by side.

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
        n_outputs = len(members[0]["bias"])
        own = [[{name: values[c] for name, values in params.items()} for params in members] for c in range(n_outputs)]
        means = [mean_model(model, params, layout) for params in own]
        return means[0][0], {name: np.stack([params[name] for _, params in means]) for name in means[0][1]}
    whole, params = model.mean(members, layout)
    for name in ("bias", "linear"):
        params[name] = np.asarray(np.mean([own[name] for own in members], axis=0, dtype=np.float64), np.float32)
    return whole, params


def member_model(model: AnyModel, n: int) -> AnyModel:
    """Return the model of one of n members whose mean a model is.

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
