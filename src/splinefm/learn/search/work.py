"""The work of a fit: an estimate in seconds of one core, the same on every machine.

What a search tries depends on it, so it must not depend on a clock: two machines would find two models.
"""

from __future__ import annotations

from splinefm.encode.slots import SlotLayout
from splinefm.learn.training import Training
from splinefm.model.family import FM, AnyModel, FwFM, HigherOrderFM

# Seconds per number that a step touches, measured on two busy cores of a Zen 3 processor: weights of a row times length
# of a vector, products of pairs, products of higher order, and features that a step smooths times length of a vector.
PER_WEIGHT, PER_PAIR, PER_PRODUCT, PER_SMOOTHED, PER_ROW = 0.3e-9, 0.12e-9, 0.6e-9, 1.8e-9, 40e-9
# A field with more features than this does not stay in the nearest caches, and a weight takes this many times as long.
MAX_CACHED, SLOWER = 1_000, 4
SHARE_OF_EPOCHS = 0.7  # early stopping leaves about this share of the epochs


def seconds_of_epoch(model: AnyModel, layout: SlotLayout, n_outputs: int, n_rows: int, batch_size: int) -> float:
    """Estimate the seconds of one epoch."""
    n_fields = len(layout.fields)
    width = model.width(n_fields)
    n_weights = sum(sum(each.widths) * (1 if each.n_features <= MAX_CACHED else SLOWER) for each in layout.fields)
    per_row = PER_ROW + PER_WEIGHT * n_weights * width + _products(model, n_fields)
    # Splines are smoothed as a whole in every step; categories and the large tables of crosses are not.
    smoothed = sum(
        field.n_features for field in layout.fields if max(field.widths) > 1 and field.n_features <= MAX_CACHED
    )
    per_step = PER_SMOOTHED * smoothed * width
    return n_outputs * (n_rows * per_row + n_rows / batch_size * per_step)


def seconds_of_fit(model: AnyModel, layout: SlotLayout, n_outputs: int, n_rows: int, training: Training) -> float:
    """Estimate the seconds of a fit that stops early."""
    epochs = max(1.0, SHARE_OF_EPOCHS * training.most_epochs(n_rows))
    return epochs * seconds_of_epoch(model, layout, n_outputs, n_rows, training.rows_per_step(n_rows))


def _products(model: AnyModel, n_fields: int) -> float:
    """Return the seconds of the products of one row."""
    if isinstance(model, HigherOrderFM):
        return PER_PRODUCT * n_fields * model.order * model.k
    pairs = n_fields * n_fields / 2
    if isinstance(model, FM):
        return PER_PAIR * n_fields * model.k
    if isinstance(model, FwFM):
        return PER_PAIR * pairs * model.k + PER_PRODUCT * 3 * n_fields * model.third
    return PER_PAIR * pairs * model.width(n_fields)
