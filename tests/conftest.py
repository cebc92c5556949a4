"""How deep the tests go (see support.py)."""

import pytest
from hypothesis import settings

from support import THOROUGH

# They have no doctests, and as modules would all have one name.
collect_ignore_glob = ["conftest.py", "*/conftest.py"]

# No deadline: other processes may hold up an example for any time.
settings.register_profile("quick", max_examples=20, deadline=None)
settings.register_profile("thorough", max_examples=100, deadline=None)
settings.load_profile("thorough" if THOROUGH else "quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if THOROUGH:
        return
    skip = pytest.mark.skip(reason="runs with make test THOROUGH=1 (SPLINEFM_THOROUGH=1)")
    for item in items:
        if item.get_closest_marker("thorough"):
            item.add_marker(skip)
