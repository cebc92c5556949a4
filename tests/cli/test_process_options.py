"""Options for several processes: what reaches the processes, and what is refused."""

import os
import sys

import pytest
from typer.testing import CliRunner

from splinefm.cli import processes, worker
from splinefm.cli.main import app


@pytest.fixture
def started(monkeypatch):
    """Collect what would be started."""
    calls = []

    def start(ctx, options):
        calls.append((processes.given_arguments(ctx), options.processes, options.max_restarts))

    for command in ("fit", "update"):
        monkeypatch.setattr(f"splinefm.cli.{command}.start_processes", start)
    return calls


def run(*arguments):
    return CliRunner().invoke(app, ["fit", "logs/*.parquet", "--target", "click", "--out", "m.sfm", *arguments])


def test_the_processes_get_what_the_user_typed(started):
    options = ["--ignore", "id", "--ignore", "-x", "--model", "ffm", "--effort", "fast", "--sharded-out"]
    result = run("--processes", "3", "--max-restarts", "2", *options, "--learning-rate", "1e-3")
    assert result.exit_code == 0, result.output
    ((arguments, n_processes, restarts),) = started
    assert (n_processes, restarts) == (3, 2)
    assert arguments[0] == "fit"
    assert sorted(arguments[1:]) == sorted(
        [
            "logs/*.parquet",
            "--target=click",
            "--out=m.sfm",
            "--ignore=id",
            "--ignore=-x",
            "--model=ffm",
            "--effort=fast",
            "--sharded-out",
            "--learning-rate=0.001",
        ]
    )


@pytest.mark.parametrize("option", ["--resume", "--sharded-out", "--max-restarts=1", "--checkpoints=here"])
def test_options_for_several_processes_need_processes(started, option):
    result = run(option)
    assert result.exit_code == 2
    assert "add --processes" in result.output
    assert not started


def test_an_update_starts_processes_with_the_options_of_its_guard(started):
    """`update` has the options of one process, and the options of several."""
    words = [
        "update",
        "m.sfm",
        "a.parquet",
        "b.parquet",
        "--validation=0.2",
        "--max-loss-increase=0.1",
        "--processes=2",
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    ((arguments, n_processes, _),) = started
    assert n_processes == 2
    assert arguments == [*words[:4], "--validation=0.2", "--max-loss-increase=0.1"]


def test_an_update_on_one_process_refuses_the_options_of_several(started):
    result = CliRunner().invoke(app, ["update", "m.sfm", "a.parquet", "--sharded-out"])
    assert result.exit_code == 2
    assert "add --processes" in result.output


def test_threads_of_a_process_wait_without_spinning(monkeypatch):
    """OpenMP reads this when torch is loaded, so it must be there before a command runs."""
    seen = []
    monkeypatch.setattr(worker, "app", lambda **_: seen.append(dict(os.environ)))
    monkeypatch.setattr(sys, "argv", ["splinefm.distribute", "fit"])
    monkeypatch.setattr(os, "environ", {"OMP_NUM_THREADS": "3"})
    worker.main()
    monkeypatch.setattr(os, "environ", {"OMP_WAIT_POLICY": "ACTIVE"})
    worker.main()
    assert [(found["OMP_WAIT_POLICY"], found["OMP_NUM_THREADS"]) for found in seen] == [
        ("PASSIVE", "3"),
        ("ACTIVE", "1"),
    ]


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(processes, "find_spec", lambda name: None if name == "torchrec" else True)
    result = run("--processes", "2")
    assert result.exit_code == 1
    assert "needs torchrec, which is not installed" in result.output and "splinefm[distributed]" in result.output
