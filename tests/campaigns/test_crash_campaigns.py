"""The campaigns of crashes, failing writes, threads, odd tables and soaks, in short.

They are slow because processes are killed and started again, and servers run for seconds.
"""

import mmap
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from _campaign import short_run
from _odd_tables import follow, make_case
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from soak import own_kib, sum_of_mappings

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


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux alone tells of every mapping")
def test_the_memory_of_a_soak_is_that_of_the_process_and_not_of_its_libraries(tmp_path):
    """The pages of libraries count less as more other processes have them, which says nothing of this one."""

    size = 24 << 20
    (tmp_path / "file").write_bytes(bytes(range(256)) * (size >> 8))
    before = own_kib(os.getpid())
    mine = np.full(size, 1, np.uint8)
    grown = own_kib(os.getpid())
    assert 0.75 < (grown - before) * 1024 / size < 1.3  # the process frees and takes a little besides
    with (tmp_path / "file").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[::4096]) == 0 and mine.all()  # every page is used
        assert 0.75 < (own_kib(os.getpid()) - grown) * 1024 / size < 1.3
    assert own_kib(2**22 + 1) == 0.0  # beyond the largest process id


def test_the_pages_of_a_library_are_not_counted_but_what_was_changed_in_them(tmp_path):
    mappings = [
        ("r--p", f"{tmp_path}/libarrow.so.2500", 900, 0),
        ("r-xp", f"{tmp_path}/libarrow.so.2500", 4000, 0),
        ("rw-p", f"{tmp_path}/libarrow.so.2500", 70, 50),
        ("r--s", f"{tmp_path}/with space/model.sfm", 300, 0),
        ("rw-p", "[heap]", 20, 20),
        ("rw-p", "", 7, 7),
        ("r-xp", "[vdso]", 0, 0),
    ]
    text = "".join(
        f"7f00-7f01 {permissions} 00000000 08:01 42 {' ' * 10}{path}\nSize: 9000 kB\nRss: 5000 kB\nPss: {pss} kB\n"
        f"Pss_Dirty: 1 kB\nAnonymous: {anonymous} kB\nVmFlags: rd mr\n"
        for permissions, path, pss, anonymous in mappings
    )
    assert sum_of_mappings(text) == 50 + 300 + 20 + 7


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
