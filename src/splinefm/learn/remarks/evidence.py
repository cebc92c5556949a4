"""Evidence: what the held-out rows tell of the best epoch, besides its loss."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """What was measured at the best epoch; all losses are means per row.

    Parameters
    ----------
    rows : int
        Number of held-out rows.
    training_loss : float
        Loss of the training rows, each measured before the model learned from it.
    loss, error : float
        Loss of the held-out rows, and its standard error.
    constant, gain_error : float
        Their loss with the best constant score, and the standard error of what the model gains on it.
    floor : float
        Their loss with perfect predictions.
    column, column_share : str and float
        The column that explains most by itself, and its share of what the constant leaves. It is looked for only if
        the model explains nearly everything; otherwise the name is empty.
    """

    rows: int
    training_loss: float
    loss: float
    error: float
    constant: float
    gain_error: float
    floor: float = 0.0
    column: str = ""
    column_share: float = 0.0

    @property
    def gain(self) -> float:
        """How much lower the loss of the held-out rows is than with the best constant score."""
        return self.constant - self.loss

    @property
    def share(self) -> float:
        """The share of what the constant leaves that the model explains in the held-out rows."""
        return self._share(self.loss)

    @property
    def training_share(self) -> float:
        """The same for the loss of the training rows."""
        return self._share(self.training_loss)

    def _share(self, loss: float) -> float:
        left = self.constant - self.floor
        return (self.constant - loss) / left if left > 0.0 else 0.0
