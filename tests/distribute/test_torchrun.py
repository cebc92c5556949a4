"""The commands as users type them: new processes, a process that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import splinefm as sf

if find_spec("torchrec") is None:
    pytest.skip("needs TorchRec: make test DISTRIBUTED=1 sets it up", allow_module_level=True)

pytestmark = pytest.mark.thorough  # test_processes.py has the same without new processes
ROWS = 20_000


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("rows"), np.random.default_rng(0)
    x, c = rng.normal(size=ROWS), rng.integers(0, 2000, ROWS)
    click = rng.random(ROWS) < 1.0 / (1.0 + np.exp(-np.sin(2.0 * x) * (c % 3 - 1)))
    table = pa.table({"x": x, "c": [f"c{value}" for value in c], "click": click.astype(np.int8)})
    for part in range(4):
        pq.write_table(table.slice(part * ROWS // 4, ROWS // 4), folder / f"{part}.parquet")
    return folder


def start(*arguments, module=("splinefm",), **options):
    environment = {**os.environ, "PYTHONPATH": str(Path(sf.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *module, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes, **options)


def fit_options(data, out):
    return ["fit", data, "--target", "click", "--out", out, "--model", "fwfm", "--k", 4, "--epochs", 3, "--threads", 1]


def process_of(process, launcher):
    """The id of a process of a job, among the children of its launcher."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for pid in map(int, children):
        if f"\0RANK={process}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
            return pid
    raise LookupError(f"no process {process} among {children}")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for the processes of a job in /proc")
def test_a_killed_process_starts_again(data, tmp_path):
    options = ["--processes", 2, "--max-restarts", 1, "--checkpoint-minutes", 0.001, "--batch-size", 64, "--json"]
    job = start(*fit_options(data, tmp_path / "m.sfm"), *options)
    folder = tmp_path / "m.sfm.checkpoints"
    wait_for_checkpoint(job, folder)
    os.kill(process_of(1, job.pid), signal.SIGKILL)
    out, said = job.communicate(timeout=600)
    assert job.returncode == 0, said
    assert json.loads(out)["rows"] == ROWS
    assert "continuing in epoch" in said
    assert sf.load(tmp_path / "m.sfm").encoder.n_rows == ROWS
    assert not folder.exists()


def wait_for_checkpoint(job, folder):
    end = time.monotonic() + 300.0
    while not list(folder.glob("step-*")) and time.monotonic() < end and job.poll() is None:
        time.sleep(0.05)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for the processes of a job in /proc")
def test_sigterm_leaves_a_checkpoint_to_continue_from(data, tmp_path):
    options = [*fit_options(data, tmp_path / "m.sfm"), "--processes", 2, "--batch-size", 64, "--json"]
    job = start(*options, "--checkpoint-minutes", 0.001)
    folder = tmp_path / "m.sfm.checkpoints"
    wait_for_checkpoint(job, folder)
    job.terminate()
    _, said = job.communicate(timeout=600)
    assert job.returncode == 128 + signal.SIGTERM, said
    assert said.count("stopped by SIGTERM") == 1 and "continue with --resume" in said
    assert "bug" not in said and "Traceback" not in said
    assert not (tmp_path / "m.sfm").exists() and list(folder.glob("step-*"))
    again = start(*options, "--resume")
    out, said = again.communicate(timeout=600)
    assert again.returncode == 0, said
    assert "continuing in epoch" in said
    assert json.loads(out)["rows"] == ROWS


def test_torchrun_ends_with_the_message_of_a_process(data, tmp_path):
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "splinefm.distribute")
    options = [*fit_options(data, tmp_path / "m.sfm"), "--target", "clik"]
    job = start(*options, module=torchrun)
    _, said = job.communicate(timeout=600)
    assert job.returncode != 0
    assert said.count("no column 'clik'") == 1
    assert not (tmp_path / "m.sfm").exists()
