"""The campaigns of crashes, failing writes, threads, odd tables and soaks, in short.

They are slow because processes are killed and started again, and servers run for seconds.
"""

import tempfile
from pathlib import Path

import pytest
from _campaign import short_run
from _odd_tables import follow, make_case
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from support import THOROUGH


@pytest.mark.thorough  # processes are killed
def test_a_killed_process_leaves_the_old_or_the_new_state():
    assert short_run("crashes")["kills"] >= 20


@pytest.mark.thorough  # every target runs in processes of its own
def test_a_write_that_fails_leaves_the_old_state_and_says_why():
    found = short_run("writes", "--count", "1")
    if "all: skipped: no C compiler, or not Linux" in found["counts"]:
        pytest.skip("no C compiler, or not Linux")
    assert sum(found["counts"].values()) > 20


@pytest.mark.thorough  # threads for seconds
def test_threads_get_the_answers_of_one():
    assert len(short_run("threads")["counts"]) >= 8


@pytest.mark.thorough  # a server for seconds
def test_a_server_and_a_fit_that_go_on_and_on():
    found = short_run("soak")
    assert found["training_memory"]["ratio"] and found["counts"]["training: epochs"]


@settings(max_examples=60 if THOROUGH else 6, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_everything_agrees_on_any_table(data):
    """Or there is one clear error; see `tables.py`."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            case = make_case(lambda choices: choices[data.draw(st.integers(0, len(choices) - 1))], Path(folder))
        except ImportError:
            assume(False)
        follow(case, Path(folder))
