"""The models of the family on tensors, and the engine that trains them: an optional package, `splinefm[torch]`."""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "the torch engine needs PyTorch, which is not installed: pip install 'splinefm[torch]'", name=error.name
    ) from None

from splinefm.model.torch.engine import TorchEngine as TorchEngine
from splinefm.model.torch.losses import row_losses as row_losses
from splinefm.model.torch.model import TorchModel as TorchModel
from splinefm.model.torch.model import unit_scores as unit_scores
