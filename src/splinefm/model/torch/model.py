"""The models of the family on tensors: from slots to unit vectors to scores, and as a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from splinefm._arrays import Float32Array
from splinefm.encode.slots import SlotLayout
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.parameters import param_shapes
from splinefm.model.workspace import make_shape

# From slots to unit vectors on a device: weighted sums of the features of windows, unit by unit.


class ActiveFeatures(NamedTuple):
    """The weights of some rows that are not zero: their features, and where each unit begins."""

    features: Tensor
    weights: Tensor
    units: Tensor
    begin: Tensor


class Windows(torch.nn.Module):
    """A layout as tensors, which move to a device with the module that they are part of.

    Parameters
    ----------
    layout : SlotLayout
        The layout of the slots.
    """

    window: Tensor
    inside: Tensor
    unit: Tensor
    begin: Tensor

    def __init__(self, layout: SlotLayout) -> None:
        super().__init__()
        make_shape(layout)  # which checks it: units follow each other
        widths, pointers = np.diff(layout.weight_ptr), layout.weight_ptr[:-1]
        window = np.repeat(np.arange(layout.n_windows), widths)
        unit = layout.window_unit[window]
        arrays = {
            "window": window.astype(np.int64),
            "inside": (np.arange(layout.n_weights) - pointers[window]).astype(np.int32),
            "unit": unit.astype(np.int32),
            "begin": np.searchsorted(unit, np.arange(layout.n_units)).astype(np.int64),
        }
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(array), persistent=False)  # the layout has them already
        self.n_units = layout.n_units

    def features(self, start: Tensor) -> Tensor:
        """Return the feature of every weight, shape (n, weights), for starts of shape (n, windows)."""
        return start[:, self.window] + self.inside

    def sums(self, table: Tensor, start: Tensor, weight: Tensor) -> Tensor:
        """Return the sums of the rows of a table, shape (n, units, columns): the unit vectors.

        They are differentiable by the table and by the weights.
        """
        n, n_weights = len(start), len(self.window)
        features = self.features(start).reshape(-1)
        begin = (torch.arange(n, device=start.device)[:, None] * n_weights + self.begin).reshape(-1)
        sums = bag_sums(table, features, begin.to(features.dtype), weight.reshape(-1))
        return sums.reshape(n, self.n_units, table.shape[1])

    def active(self, start: Tensor, weight: Tensor) -> ActiveFeatures:
        """Return the nonzero weights of some rows; `begin` has an entry for every unit of every row."""
        is_used = weight != 0
        row = torch.arange(len(start), dtype=torch.int32, device=start.device)
        units = row[:, None] * self.n_units + self.unit
        before = torch.nn.functional.pad(is_used.reshape(-1).cumsum(0), (1, 0))
        first = torch.arange(len(start), device=start.device)[:, None] * weight.shape[1] + self.begin
        return ActiveFeatures(
            self.features(start)[is_used], weight[is_used], units[is_used], before[first.reshape(-1)].int()
        )


def bag_sums(table: Tensor, rows: Tensor, begin: Tensor, weights: Tensor) -> Tensor:
    """Return Σ weight table[row] for rows in bags, of which each begins at an index."""
    return embedding_bag(rows, table, begin, mode="sum", per_sample_weights=weights)


# Scores from unit vectors, for every model of the family: differentiable, on any device.

Between = Mapping[str, Tensor]


def unit_scores(model: AnyModel, units: Tensor, linear: Tensor, between: Between, layout: SlotLayout) -> Tensor:
    """Return the score of every row: `linear` plus the interactions of its unit vectors.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.
    units : tensor of shape (n, units, width)
        The unit vectors of each row.
    linear : tensor of shape (n,)
        Bias and linear weights, summed for each row.
    between : mapping of str to tensor
        The parameters between fields by name, as in `Params`; others are ignored.
    layout : SlotLayout
        Maps units to fields.

    Examples
    --------
    >>> from splinefm.encode.slots import FieldLayout
    >>> from splinefm.model.family import FM
    >>> layout = SlotLayout((FieldLayout("c", 3, (1,), (0,)), FieldLayout("d", 2, (1,), (0,))))
    >>> units = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> unit_scores(FM(k=2), units, torch.tensor([0.5]), {}, layout)
    tensor([11.5000])
    """
    fields = torch.as_tensor(layout.unit_field, dtype=torch.int64, device=units.device)
    return linear + _INTERACTIONS[model.kind](model, units, _kept_apart(model, between, layout), fields)


def _kept_apart(model: AnyModel, between: Between, layout: SlotLayout) -> Between:
    """Return parameters that are zero, as are their gradients, between fields that must not interact."""
    if not layout.apart:
        return between
    kept = dict(between)
    for name, index in model.pair_index(*layout.apart_indices).items():
        kept[name] = between[name].clone()
        kept[name][index] = 0.0
    return kept


def _fm(model: AnyModel, P: Tensor, between: Between, fields: Tensor) -> Tensor:
    """½ (|Σ p_u|² - Σ |p_u|²)."""
    return 0.5 * (P.sum(1).square() - P.square().sum(1)).sum(1)


def _fwfm(model: AnyModel, P: Tensor, between: Between, fields: Tensor) -> Tensor:
    """Σ_{u<v} r_uv p_u' p_v, with weights of their own for the part of each member, and products of three."""
    weights, end = between["field_weights"], P.shape[2] - model.third
    by_member = weights.reshape(model.members, *weights.shape[-2:])
    parts = P[..., :end].unflatten(2, (model.members, -1)).unbind(2)
    pairs = [_weighted(part, R, fields) for part, R in zip(parts, by_member.unbind(0), strict=True)]
    triples = [_products(P[..., end:], 3)[-1]] if model.third else []
    return torch.stack(pairs + triples).sum(0)


def _low_rank(model: AnyModel, P: Tensor, between: Between, fields: Tensor) -> Tensor:
    """Σ_{u<v} (U' diag(d) U)_uv p_u' p_v over units of different fields."""
    U = between["field_factors"]
    R = U.T @ (between["field_scales"][:, None] * U)
    return _weighted(P, R - torch.diag(torch.diagonal(R)), fields)


def _fmfm(model: AnyModel, P: Tensor, between: Between, fields: Tensor) -> Tensor:
    """Σ_{u<v} p_u' M_uv p_v: with all unit vectors end to end, one product of matrices."""
    matrices = between["field_matrices"][fields[:, None], fields] * _above(fields, P)[:, :, None, None]
    size = P.shape[1] * P.shape[2]
    flat, M = P.reshape(len(P), size), matrices.transpose(1, 2).reshape(size, size)
    return ((flat @ M) * flat).sum(1)


def _ffm(model: AnyModel, P: Tensor, between: Between, fields: Tensor) -> Tensor:
    """Σ_{u<v} p_u[f(v)]' p_v[f(u)]."""
    u, v = torch.triu_indices(len(fields), len(fields), 1, device=P.device)
    n_fields = P.shape[2] // model.part_size(1)
    parts = P.unflatten(2, (n_fields, -1)).flatten(1, 2)
    return (parts[:, u * n_fields + fields[v]] * parts[:, v * n_fields + fields[u]]).sum((1, 2))


def _higher(model: AnyModel, P: Tensor, between: Between, fields: Tensor) -> Tensor:
    """Products of two to `order` different units; of several members, their mean."""
    return torch.stack(_products(P, model.order)[1:]).sum(0) / model.members


_INTERACTIONS: dict[str, Callable[[AnyModel, Tensor, Between, Tensor], Tensor]] = {
    "fm": _fm,
    "fwfm": _fwfm,
    "low_rank": _low_rank,
    "fmfm": _fmfm,
    "ffm": _ffm,
    "higher": _higher,
}


def _weighted(P: Tensor, R: Tensor, fields: Tensor) -> Tensor:
    """Σ_{u<v} r_{f(u) f(v)} p_u' p_v."""
    weights = R[fields[:, None], fields] * _above(fields, P)
    return (torch.einsum("uv,nvd->nud", weights, P) * P).sum((1, 2))


def _above(fields: Tensor, like: Tensor) -> Tensor:
    """Ones for the pairs of units u < v, and zeros for the others."""
    return torch.ones(len(fields), len(fields), dtype=like.dtype, device=like.device).triu(1)


def _products(P: Tensor, order: int) -> list[Tensor]:
    """Σ_d Σ_{u1<..<ut} Π p_ui[d] for t = 1 .. order.

    The sum over the last unit of a product comes from the sums of shorter products over the units before it.
    """
    ending = P  # [:, u]: products whose last unit is u
    sums = [ending.sum((1, 2))]
    for _ in range(order - 1):
        before = torch.nn.functional.pad(ending.cumsum(1)[:, :-1], (0, 0, 1, 0))
        ending = before * P
        sums.append(ending.sum((1, 2)))
    return sums


class TorchModel(torch.nn.Module):
    """A model as a module: differentiable, on any device, in any network.

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
