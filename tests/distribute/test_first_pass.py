"""What the first pass of a run leaves for restarts: whole and of the same run, or an error that names the file."""

import errno
import os
from datetime import timedelta
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import splinefm as sf

if find_spec("torchrec") is None:  # importing it would take seconds
    pytest.skip("needs TorchRec: make test DISTRIBUTED=1 sets it up", allow_module_level=True)

VALIDATION, STATISTICS, MANIFEST = "validation-00000.arrow", "statistics.bin", "prepared.json"


@pytest.fixture
def prepare(tmp_path):
    """Prepare a run of one process in a folder "run", as a first run or again."""
    import torch

    from splinefm.distribute.first_pass import run_first_pass
    from splinefm.distribute.processes import Processes
    from splinefm.distribute.rows import open_rows
    from splinefm.distribute.statistics import Scan
    from splinefm.train.losses import as_loss

    rng = np.random.default_rng(0)
    pq.write_table(pa.table({"x": rng.normal(size=400), "y": rng.normal(size=400)}), tmp_path / "rows.parquet")
    (tmp_path / "run").mkdir()
    processes = Processes(0, 1, 1, torch.device("cpu"), None, timedelta(seconds=60))
    schema = sf.Schema([sf.Numerical("x")])

    def run(again, seed=0):
        scan = Scan(schema, as_loss("squared"), "y", validation=0.25, seed=seed)
        return run_first_pass(open_rows(tmp_path / "rows.parquet"), scan, processes, tmp_path / "run", 1, again)

    return run


def rows_of(first_pass):
    return pa.Table.from_batches([batch for _, batch in first_pass.sample.parts])


def test_a_restart_has_the_validation_rows_and_statistics_of_the_first_run(prepare):
    first, again = prepare(False), prepare(True)
    assert again.sample.n_rows == first.sample.n_rows > 50
    assert rows_of(again).equals(rows_of(first))
    assert again.n_rows == first.n_rows


@pytest.mark.parametrize("name", [VALIDATION, STATISTICS, MANIFEST])
def test_a_changed_file_is_refused_by_name(prepare, tmp_path, name):
    prepare(False)
    path = tmp_path / "run" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name}' is damaged; remove .*{MANIFEST}' to read all rows again"):
        prepare(True)


@pytest.mark.parametrize("name", [VALIDATION, STATISTICS])
@pytest.mark.parametrize("size", [0, 100, None])
def test_an_empty_a_truncated_and_a_missing_file_are_refused_by_name(prepare, tmp_path, name, size):
    prepare(False)
    path = tmp_path / "run" / name
    data = path.read_bytes()
    path.unlink()
    if size is not None:
        path.write_bytes(data[:size])
    with pytest.raises(ValueError, match=f"{name}' is {'missing' if size is None else 'damaged'}"):
        prepare(True)


def test_without_the_manifest_all_rows_are_read_again(prepare, tmp_path):
    first = prepare(False)
    (tmp_path / "run" / VALIDATION).write_bytes(b"")
    (tmp_path / "run" / MANIFEST).unlink()
    assert rows_of(prepare(True)).equals(rows_of(first))
    assert (tmp_path / "run" / MANIFEST).is_file()


def test_another_seed_is_another_run(prepare):
    prepare(False)
    with pytest.raises(
        ValueError, match=rf"{STATISTICS}' is of another run: seed is 1 .* use the settings of that run"
    ):
        prepare(True, seed=1)


def test_a_full_disk_names_the_file(prepare, monkeypatch):
    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=rf"{VALIDATION}.*make room|make room.*{VALIDATION}"):
        prepare(False)


def test_a_checkpoint_that_is_due_is_wanted_by_one_step(monkeypatch):
    """A step asks before the checkpoint of the step before it is written."""
    from splinefm.distribute import training

    now = [0.0]
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    model = SimpleNamespace(processes=SimpleNamespace(first=True))
    checkpoints = SimpleNamespace(has_failed=False)
    job = training.Job(model, None, None, None, 0, None, checkpoints, 1.0, None)
    job._saved_at, job._has_asked = 0.0, False
    wanted = []
    for now[0] in (30.0, 61.0, 62.0):
        wanted.append(job._request().checkpoint)
    job._saved_at, job._has_asked = now[0], False  # it is written
    for now[0] in (100.0, 122.5, 123.0):
        wanted.append(job._request().checkpoint)
    assert wanted == [False, True, False, False, True, False]
