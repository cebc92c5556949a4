"""How a prediction follows from a score, as a formula for the readers of exported files."""

LINKS = {
    "logistic": "1 / (1 + exp(-score))",
    "squared": "center + scale * score",
    "poisson": "exp(score)",
    "softmax": "exp(score) / sum of exp(scores of all classes)",
}
"""By the name of the loss; `center` and `scale` are those of the loss."""
