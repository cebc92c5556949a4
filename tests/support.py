"""Two depths of the tests: few examples while one works, many before a change is accepted."""

import os

from hypothesis import settings

# `make test THOROUGH=1` sets it.
THOROUGH = bool(os.environ.get("SPLINEFM_THOROUGH"))


def examples(number: int) -> settings:
    """So many examples where all are asked for, else a quarter of them, but five if there are as many."""
    return settings(max_examples=number if THOROUGH else min(number, max(5, number // 4)))
