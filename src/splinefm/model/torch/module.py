"""A model of the family as a module of torch, on encoded slots."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from splinefm._arrays import Float32Array
from splinefm.encode.slots import SlotLayout
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.parameters import param_shapes
from splinefm.model.torch.interactions import Windows, unit_scores


class TorchModel(torch.nn.Module):
    """A model whose parameters are those of a module: differentiable, on any device, in any network.

    Its parameters have the names and shapes of `Fitted.params`. Scores are differentiable by them and by the weights
    of the slots.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.
    layout : SlotLayout
        Layout of the slots.
    params : dict of arrays
        The parameters to start from; they are copied.
    n_outputs : int
        Scores per row.
    """

    def __init__(
        self, model: AnyModel, layout: SlotLayout, params: Mapping[str, Float32Array], n_outputs: int = 1
    ) -> None:
        super().__init__()
        self.model, self.layout, self.n_outputs = model, layout, n_outputs
        self.windows = Windows(layout)
        for name, shape in param_shapes(model, layout, n_outputs).items():
            values = torch.tensor(np.asarray(params[name], np.float32)).reshape(shape)
            self.register_parameter(name, torch.nn.Parameter(values))

    def units(self, start: Tensor, weight: Tensor) -> Tensor:
        """Return the unit vectors, shape (n, units, width), or (n, outputs, units, width) if there are several.

        Parameters
        ----------
        start : tensor of integers, shape (n, windows)
            `Slots.start`.
        weight : tensor of shape (n, weights)
            `Slots.weight`.
        """
        sums = self._sums(self.get_parameter("factors"), start, weight)
        return sums if self.n_outputs > 1 else sums[:, 0]

    def forward(self, start: Tensor, weight: Tensor) -> Tensor:
        """Return scores, shape (n,), or (n, outputs) if there are several.

        Parameters
        ----------
        start : tensor of integers, shape (n, windows)
            `Slots.start`.
        weight : tensor of shape (n, weights)
            `Slots.weight`.
        """
        params = {name: values.reshape(self.n_outputs, *self._shape(name)) for name, values in self.named_parameters()}
        units = self._sums(params["factors"], start, weight)
        linear = self._sums(params["linear"][..., None], start, weight).sum((2, 3)) + params["bias"][:, 0]
        scores = [
            unit_scores(
                self.model, units[:, i], linear[:, i], {name: own[i] for name, own in params.items()}, self.layout
            )
            for i in range(self.n_outputs)
        ]
        return scores[0] if self.n_outputs == 1 else torch.stack(scores, 1)

    def params(self) -> Params:
        """Return copies of the parameters as arrays."""
        return {
            name: np.array(values.detach().to("cpu", torch.float32).numpy()) for name, values in self.named_parameters()
        }

    def extra_repr(self) -> str:
        """Return the model, and how many features it has."""
        return f"{self.model}, {self.layout.n_features:,} features"

    def _shape(self, name: str) -> tuple[int, ...]:
        return param_shapes(self.model, self.layout)[name]

    def _sums(self, table: Tensor, start: Tensor, weight: Tensor) -> Tensor:
        """Return sums of the rows of a table for each output, shape (n, outputs, units, columns)."""
        by_output = table.reshape(self.n_outputs, self.layout.n_features, -1)
        flat = by_output[0] if self.n_outputs == 1 else by_output.transpose(0, 1).flatten(1)
        sums = self.windows.sums(flat, start, weight.to(table.dtype))
        return sums.unflatten(2, (self.n_outputs, -1)).transpose(1, 2)
