"""The short forms of campaigns, which CI runs; docs/reliability.md says what they are and what the long ones found."""

import pytest
from _campaign import short_run
from fuzz import CORPUS, PYTHON

# They are made of many cases, and faster tests cover each subject.
pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("part", ["sfm", "sfi", "sfs", "schema", "state", "sharded"])
def test_files(part):
    counts = short_run("files", "--count", "100", "--only", part)["counts"]
    assert counts["all files"] == 200 or any("skipped" in name for name in counts)


def test_checkpoints():
    pytest.importorskip("torch")
    pytest.importorskip("torchrec")
    assert short_run("files", "--count", "100", "--only", "checkpoint")["counts"]["all files"] == 40


@pytest.mark.parametrize("part", ["columns", "dates", "weights", "targets", "scores", "categories"])
def test_numbers(part):
    assert sum(short_run("extreme_numbers", "--only", part)["counts"].values())


def test_differential():
    counts = short_run("differential", "--count", "100")["counts"]
    assert sum(number for name, number in counts.items() if name.startswith("cases")) == 100
    for path in ("lists", "rows", "Parquet", "CSV", "HTTP rows", "HTTP Arrow"):
        assert counts[f"{path}: agree"] > 50


def test_determinism():
    counts = short_run("determinism")["counts"]
    assert sum(number for name, number in counts.items() if name.startswith("golden")) > 30


def test_fuzz():
    """A few seconds of each target whose fuzzer is installed."""
    counts = short_run("fuzz", "--seconds", "3")["counts"]
    assert all(number for name, number in counts.items())
    assert all(any((CORPUS / target).iterdir()) for target in PYTHON)


@pytest.mark.parametrize("part", ["spoiled", "reloads", "ends"])
def test_hostile_http(part):
    counts = short_run("hostile_http", "--only", part)["counts"]
    assert any("skipped" in name for name in counts) or any(name.startswith(f"{part}: ") for name in counts)
