"""Fixtures of tests that run commands: small tables, one model for them, and ways to run a command.

The `conftest.py` of a folder imports the fixtures that its tests need. Commands run inside the test process unless a
test needs a shell.
"""

import asyncio
import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner

import splinefm as sf
from splinefm.cli.main import app


def _make_table(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    price, city = rng.lognormal(size=rows), rng.choice(["Rome", "Oslo"], rows)
    score = price - 1.5 * (city == "Rome")
    return pa.table(
        {
            "id": [f"{i:05}" for i in range(rows)],
            "price": price,
            "city": city,
            "views": rng.integers(1, 4, rows),
            "click": np.where(rng.logistic(size=rows) < score, "yes", "no"),
            "amount": 3.0 * score + rng.normal(size=rows),
        }
    )


def _write(table, path):
    (pyarrow.csv.write_csv if path.suffix == ".csv" else pq.write_table)(table, path)
    return path


@pytest.fixture(scope="session", autouse=True)
def commands_made_once():
    """Making all commands from their signatures takes typer longer than most tests, and would be done for each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session")
def table():
    return _make_table()


@pytest.fixture
def make_table():
    return _make_table


@pytest.fixture
def write():
    """Write a table to a file of the kind that its name says; the path."""
    return _write


@pytest.fixture(scope="session")
def fitted(table):
    schema = sf.Schema([sf.Numerical("price", basis=sf.BSpline(segments=4)), sf.Categorical("city")])
    return sf.fit_model(table, "click", schema=schema, model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))


@pytest.fixture
def model(fitted, tmp_path):
    path = tmp_path / "model.sfm"
    fitted.save(path)
    return path


@pytest.fixture(params=["csv", pytest.param("parquet", marks=pytest.mark.thorough)])  # tests of tables read all formats
def data(request, table, tmp_path):
    return _write(table, tmp_path / f"data.{request.param}")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty folder; its result, once the exit code is as expected."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments, code=0, stdin=None):
        # The browser of other tests leaves its event loop running, and a process has one at a time.
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        finally:
            asyncio._set_running_loop(running)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke


def with_positive_amounts(table):
    """The table with amounts above 0."""
    at = table.column_names.index("amount")
    return table.set_column(at, "amount", pa.array(np.exp(table["amount"].to_numpy() / 5.0)))


@pytest.fixture
def shell(tmp_path):
    """Run a line of bash in an empty folder, with splinefm on the path; it must not leave a traceback."""

    def invoke(line, code=0):
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        command = ["bash", "-o", "pipefail", "-c", line]
        env = {"PATH": path, "HOME": str(tmp_path)}
        if isa := os.environ.get("SPLINEFM_ISA"):  # scores have the same bits on one instruction set alone
            env["SPLINEFM_ISA"] = isa
        done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=env)
        error = done.stderr.decode()
        assert done.returncode == code, error
        assert "Traceback" not in error and "Exception ignored" not in error
        return done.stdout, error

    return invoke
