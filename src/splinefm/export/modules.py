"""Models as modules of torch, to be part of larger networks: `pip install 'splinefm[torch]'`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from splinefm._checks import check_fitted
from splinefm.model.family.separation import keep_apart
from splinefm.train.fitted import Fitted

if TYPE_CHECKING:
    from splinefm.model.torch.model import TorchModel


def to_torch(fitted: Fitted) -> TorchModel:
    """Return a model as a `torch.nn.Module` on encoded rows.

    Its input are the arrays of `Slots` as tensors, its output the scores of `fitted.scores`: logits for a logistic loss
    or softmax. Scores are differentiable by the parameters, which have the names of `fitted.params`, and by the
    weights of the slots. `units(start, weight)` has the vectors of fields, for other layers to use. An offset is not a
    part of the module: the output is that of `fitted.without_offset()`.

    Parameters
    ----------
    fitted : Fitted
        The model, which is copied.

    Returns
    -------
    TorchModel
        The module, on the CPU.

    Examples
    --------
    >>> import splinefm as sf
    >>> import torch  # doctest: +SKIP
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> slots = fitted.encoder.encode(table)
    >>> module = sf.to_torch(fitted)  # doctest: +SKIP
    >>> module(torch.tensor(slots.start), torch.tensor(slots.weight)).shape  # doctest: +SKIP
    torch.Size([200])
    """
    check_fitted(fitted)
    from splinefm.model.torch.model import TorchModel

    return TorchModel(fitted.model, fitted.encoder.layout, fitted.params, fitted.n_outputs)


def from_torch(module: TorchModel, fitted: Fitted) -> Fitted:
    """Return a copy of a fitted model with the parameters of a module.

    Parameters
    ----------
    module : TorchModel
        A module from `to_torch`, trained further or with another `state_dict`. If it is part of a larger network, its
        scores come from this part alone.
    fitted : Fitted
        The model that the module was made from: encoder, loss and history are taken from it.

    Returns
    -------
    Fitted
        A copy of `fitted` with other parameters.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> again = sf.from_torch(sf.to_torch(fitted), fitted)  # doctest: +SKIP
    >>> bool((again.scores(table) == fitted.scores(table)).all())  # doctest: +SKIP
    True
    """
    from splinefm.model.torch.model import TorchModel

    if not isinstance(module, TorchModel):
        raise TypeError(f"module must come from sf.to_torch, got a {type(module).__name__}")
    if (module.model, module.n_outputs) != (fitted.model, fitted.n_outputs):
        raise ValueError(
            f"the module is {module.model} with {module.n_outputs} score(s) per row, but fitted is {fitted.model} with "
            f"{fitted.n_outputs}; pass the model that the module was made from"
        )
    if module.layout != fitted.encoder.layout:
        raise ValueError(
            "the module has other fields or features than fitted; pass the model that the module was made from"
        )
    params = module.params()
    for name, values in params.items():
        if not np.isfinite(values).all():
            raise ValueError(f"{name} of the module has numbers that are not finite: its training diverged")
    keep_apart(fitted.model, params, fitted.encoder.layout)  # the formula of the module ignores what is between them
    return replace(fitted, params=params)
