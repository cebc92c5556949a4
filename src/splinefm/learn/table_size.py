"""Defaults of training that follow from the number of rows of a table."""

from __future__ import annotations

import math

# Below so many rows, the default penalties grow as the rows get fewer, up to so many times: see docs/decisions.md.
SMALL_TABLE, MOST_STRENGTH = 3_000, 6.0
# A default epoch has this many steps, and a batch at most so many rows.
STEPS, MOST_IN_BATCH = 250, 4096
# A default batch has at least 32 rows, or 4 if an epoch of a small table would otherwise have fewer than 32 steps.
FEWEST_IN_BATCH, FEWEST_IN_SMALL_BATCH, FEWEST_STEPS = 32, 4, 32
# Epochs by default, at most. Tables over LARGE_TABLE rows have fewer, and a smaller L2: see docs/decisions.md.
EPOCHS, LARGE_TABLE, FEWEST_EPOCHS = 30, 1_000_000, 2


def default_epochs(n_rows: int) -> int:
    """Return the default of the maximum number of epochs for a table: beyond 1,000,000 rows, about as many steps.

    Examples
    --------
    >>> [default_epochs(n_rows) for n_rows in (1_000_000, 2_000_000, 5_000_000, 10_000_000)]
    [30, 15, 6, 3]
    """
    return max(FEWEST_EPOCHS, min(EPOCHS, round(EPOCHS * LARGE_TABLE / max(1, n_rows))))


def penalty_strength(n_rows: int) -> float:
    """Return how many times as large as usual the default penalties of a table are.

    A penalty stands beside the mean loss of the rows. As prior knowledge, it counts as much as a number of rows: the
    fewer there are, the more it weighs.

    Examples
    --------
    >>> [penalty_strength(n_rows) for n_rows in (100, 1_000, 3_000, 1_000_000)]
    [6.0, 3.0, 1.0, 1.0]
    """
    return min(MOST_STRENGTH, max(1.0, SMALL_TABLE / max(1, n_rows)))


def l2_strength(n_rows: int) -> float:
    """Return how many times as large as usual the default L2 penalty of a table is.

    A feature has it beside the mean loss of every batch in which it is active. The batches of a large table do not grow
    with it, so the rows of a rare category would count the less against its penalty the more there are.
    """
    return penalty_strength(n_rows) * min(1.0, LARGE_TABLE / max(1, n_rows))


def default_batch(n_rows: int) -> int:
    """Return the default batch size of tables that are not small: the power of two closest to 1/250 of their rows.

    Examples
    --------
    >>> [default_batch(n_rows) for n_rows in (1_000, 30_000, 10_000_000)]
    [32, 128, 4096]
    """
    return int(min(MOST_IN_BATCH, max(FEWEST_IN_BATCH, 2 ** round(math.log2(max(1, n_rows) / STEPS)))))


def small_batch(n_rows: int) -> int | None:
    """Return the default batch size of a small table, or None for tables whose batches have the usual size.

    Examples
    --------
    >>> [small_batch(n_rows) for n_rows in (10, 150, 250, 500, 1_000)]
    [4, 4, 8, 16, None]
    """
    size = max(FEWEST_IN_SMALL_BATCH, 2 ** round(math.log2(max(1, n_rows) / FEWEST_STEPS)))
    return int(size) if size < FEWEST_IN_BATCH else None
