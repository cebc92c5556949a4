"""DeepFM: a factorization machine on splines, and a perceptron on its vectors, trained together.

Run it with `python examples/deepfm.py`; it needs `pip install 'splinefm[torch]'` and takes seconds. The data come with
scikit-learn: measurements of tumors, all of them numbers.
"""

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import splinefm as sf


class DeepFM(nn.Module):
    """The score of a spline model, plus that of a perceptron which sees the vectors of all fields."""

    def __init__(self, fitted: sf.Fitted, hidden: int = 32) -> None:
        super().__init__()
        self.splines = sf.to_torch(fitted)
        units, width = fitted.encoder.layout.n_units, fitted.params["factors"].shape[-1]
        self.deep = nn.Sequential(
            nn.Flatten(), nn.Linear(units * width, hidden), nn.ReLU(), nn.Dropout(0.3), nn.Linear(hidden, 1)
        )
        nn.init.zeros_(self.deep[-1].weight)  # begin with the scores of the spline model
        nn.init.zeros_(self.deep[-1].bias)

    def forward(self, start: Tensor, weight: Tensor) -> Tensor:
        """Return scores of encoded rows."""
        return self.splines(start, weight) + self.deep(self.splines.units(start, weight))[:, 0]


def encoded(fitted: sf.Fitted, table: object) -> tuple[Tensor, Tensor]:
    """Return the slots of a table as tensors."""
    slots = fitted.encoder.encode(table)
    return torch.tensor(slots.start), torch.tensor(slots.weight)


def main(epochs: int = 5) -> dict[str, float]:
    """Fit the spline model, train both parts together, and return the log loss on test rows."""
    torch.manual_seed(0)
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
    fitted = sf.SplineFMClassifier(sf.FwFM(k=4), epochs=3, effort="fast").fit(train, y_train).fitted_

    network, loss = DeepFM(fitted), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-2)
    rows, target = encoded(fitted, train), torch.tensor(y_train.to_numpy(), dtype=torch.float32)
    for _ in range(epochs):
        for batch in torch.randperm(len(target)).split(32):
            optimizer.zero_grad()
            loss(network(rows[0][batch], rows[1][batch]), target[batch]).backward()
            optimizer.step()

    network.eval()
    with torch.no_grad():
        deep = torch.sigmoid(network(*encoded(fitted, test))).numpy()
    part = sf.from_torch(network.splines, fitted)  # its spline part alone: curves, explanations, exports
    curve = part.segment(test.iloc[0].drop("mean area").to_dict(), along="mean area")
    print("scores of a row with a mean area of 300, 600 and 900:", curve([300.0, 600.0, 900.0]).round(2))
    return {"splines": sf.metrics.logloss(y_test, fitted.predict(test)), "DeepFM": sf.metrics.logloss(y_test, deep)}


if __name__ == "__main__":
    for name, value in main().items():
        print(f"log loss of {name}: {value:.4f}")
