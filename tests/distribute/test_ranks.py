"""Training on real processes: gloo on this machine."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import splinefm as sf

if find_spec("torchrec") is None:  # importing it would take seconds
    pytest.skip("needs TorchRec: make test DISTRIBUTED=1 sets it up", allow_module_level=True)
FileLock = pytest.importorskip("filelock").FileLock  # torch needs it, too

HERE = Path(__file__).parent
ROWS = 4000


def draw_table(n, seed, names="c"):
    rng = np.random.default_rng(seed)
    x, c, d = rng.normal(size=n), np.minimum(rng.zipf(1.5, n), 300), rng.integers(0, 4, n)
    score = 2.0 * np.sin(2.0 * x) * (d - 1.5) + 0.8 * (c % 3 - 1)
    tags = [[f"t{t}" for t in rng.integers(0, 60, size)] for size in rng.integers(0, 4, n)]
    return pa.table(
        {
            "x": x,
            "c": [f"{names}{value}" for value in c],
            "d": [f"d{value}" for value in d],
            "tags": tags,
            "click": (rng.random(n) < 1.0 / (1.0 + np.exp(-score))).astype(np.int8),
        }
    )


def write_rows(folder, n, seed, files=1, **options):
    folder.mkdir()
    table = draw_table(n, seed, **options)
    for i in range(files):
        part = table.slice(i * n // files, n // files)
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=max(1, n // (3 * files)))


def run(folder, *arguments, torchrun=()):
    """Run jobs of rank_jobs.py; return the finished process."""
    path = os.pathsep.join([str(Path(sf.__file__).parents[1]), str(HERE.parent)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *torchrun, str(HERE / "rank_jobs.py"), str(folder), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def results(folder, name, done):
    path = folder / f"{name}.json"
    assert path.exists(), done.stderr[-3000:]
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the jobs run, once: workers of pytest share the folder that is above those of each."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "ranks"


@pytest.fixture(scope="module")
def forked(folder):
    """What processes left behind: of jobs on several numbers of ranks, and of one under torchrun."""
    with FileLock(f"{folder}.lock"):
        done = folder / "done.json"
        if not done.exists():
            done.write_text(json.dumps(run_all(folder)))
        return [subprocess.CompletedProcess([], code, "", said) for code, said in json.loads(done.read_text())]


def run_all(folder):
    folder.mkdir()
    write_rows(folder / "rows", ROWS, 0, files=4)
    write_rows(folder / "other", ROWS // 2, 0)
    write_rows(folder / "one", 1, 0)
    write_rows(folder / "new", 600, 1, names="new")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    jobs = ["two", "2", "four", "4", "one", "1", "three", "3", "hanging", "2"]
    with ThreadPoolExecutor(2) as pool:
        killed = pool.submit(run, folder, "killed", torchrun=torchrun)
        return [(done.returncode, done.stderr) for done in (run(folder, *jobs), killed.result())]


@pytest.fixture(scope="module")
def found(folder, forked):
    """Everything that the jobs found, by name."""
    several = [results(folder, name, forked[0]) for name in ("two", "four", "one", "three")]
    killed = results(folder, "killed", forked[1])
    assert forked[1].returncode == 0
    return {name: value for one in several for name, value in one.items()} | {"killed": killed}


def history(found, name):
    return [epoch["validation_loss"] for epoch in found[name]]


def test_scores_are_those_of_the_formula_and_of_the_cpu_engine(found):
    assert len(found["scores"]) == 8
    for name, differences in found["scores"].items():
        assert max(differences) < 1e-5, name


def test_the_plan_says_where_every_table_is(found):
    lines = found["plan"].splitlines()
    assert len(lines) == 6
    assert lines[1].startswith("spline") and lines[1].endswith("all ranks")
    assert "1,300" in lines[2] and "rank" in lines[2]


def test_steps_on_small_tables_are_those_of_the_cpu_engine(found):
    for name, (difference, moved) in found["small"].items():
        assert difference < 1e-5 and moved > 0.01, name


def test_a_step_on_large_tables_is_that_of_adagrad(found):
    for name, (difference, moved) in found["large"].items():
        assert difference < 1e-4 and moved > 0.09, name


def test_the_encoder_does_not_depend_on_the_number_of_ranks(found, folder):
    encoders = [sf.load(folder / "one.sfm").encoder, sf.load(folder / "two.sfm").encoder]
    encoders.append(sf.ShardedModel.open(folder / "three").encoder)
    assert encoders[0] == encoders[1] == encoders[2]
    assert encoders[0].n_rows == ROWS


def test_losses_agree_within_noise(found, folder):
    """One, two and three ranks, and the CPU engine."""
    table = pa.concat_tables(pq.read_table(path) for path in sorted((folder / "rows").glob("*.parquet")))
    names = ("one.sfm", "two.sfm", "three")
    last = [history(found, name)[-1] for name in names]
    assert np.ptp(last) < 0.02
    training = sf.Training(
        epochs=3, batch_size=128, learning_rate=0.03, seed=3, average=False, refit_on_all=False, crosses=None, threads=1
    )
    one = sf.load(folder / "one.sfm")
    fitted = sf.fit_model(table, "click", schema=one.encoder.schema, model=one.model, training=training, validation=0.1)
    assert abs(fitted.history[-1].validation_loss - last[0]) < 0.02
    assert last[0] < 0.6  # from 0.69
    assert history(found, "row-wise.sfm")[-1] < 0.62


def test_the_file_is_an_ordinary_model(found, folder):
    fitted = sf.load(folder / "two.sfm")
    table = draw_table(500, 7)
    rate = np.mean((fitted.predict(table) > 0.5) == table["click"].to_numpy())
    assert rate > 0.6
    assert [epoch.validation_loss for epoch in fitted.history] == history(found, "two.sfm")


def test_the_pipeline_takes_the_same_steps(found, folder):
    """TrainPipelineSparseDist is for GPUs, but works here as well."""
    plain, piped = (sf.load(folder / name).params for name in ("two.sfm", "piped.sfm"))
    for name, values in plain.items():
        assert (values == piped[name]).all(), name


def test_a_run_moves_from_two_ranks_to_four_to_one(found, folder):
    assert found["stopped 2"] == ["Interrupted: step 20"] * 2
    assert found["stopped 4"] == ["Interrupted: step 30"] * 4
    assert len(found["moved.sfm"]) == 3
    assert abs(history(found, "moved.sfm")[-1] - history(found, "two.sfm")[-1]) < 0.02


def test_a_run_with_other_settings_does_not_continue(found):
    assert "training is" in found["other settings"][0] and "use the settings of that run" in found["other settings"][0]
    assert "add --resume" in found["not resumed"][0]


def test_a_killed_rank_starts_again_from_the_last_checkpoint(found, folder):
    assert found["killed"]["restarts"] == 1
    losses = [epoch["validation_loss"] for epoch in found["killed"]["history"]]
    assert len(losses) == 3  # every epoch checks its number of rows
    assert abs(losses[-1] - history(found, "two.sfm")[-1]) < 0.01
    assert sf.load(folder / "killed.sfm").encoder.n_rows == ROWS
    assert not (folder / "killed.sfm.checkpoints").exists()


def test_an_update_adds_new_categories_to_a_sharded_model(found, folder):
    before, after = sf.ShardedModel.open(folder / "three"), sf.load(folder / "updated.sfm")
    assert after.encoder.layout.n_features > before.n_features
    assert after.encoder.n_rows == ROWS + 600
    new = draw_table(600, 1, names="new")
    losses = [
        np.mean(after.loss.value(new["click"].to_numpy() * 1.0, m.scores(new, watch=False))) for m in (before, after)
    ]
    assert losses[1] < losses[0]
    assert abs(found["update"] - losses[0]) < 0.02  # measured before learning


@pytest.mark.parametrize(
    ("fault", "who", "message"),
    [
        ("versions", 0, "ValueError: versions differ: torch is 2.0 on rank 1 and 2.13 on rank 0"),
        ("missing file", 1, "FileNotFoundError: "),
        ("other file", 0, "ValueError: the data differ"),
        ("target", 0, "ValueError: no column 'clik'"),
        ("too few rows", 0, "ValueError: 1 rows cannot be divided among 2 ranks"),
        ("memory", 0, "ValueError: the tables take"),
        ("full disk", 1, "OSError: rank 1 cannot write a checkpoint"),
    ],
)
def test_the_rank_that_knows_says_what_is_wrong(found, fault, who, message):
    said = found["faults"][fault]
    assert said[who].startswith(message), said
    assert "done" not in said


def test_a_checkpoint_that_was_not_completed_is_not_there(found):
    assert found["faults"]["left"] == []


def test_a_rank_that_hangs_ends_the_job(folder, forked):
    codes = json.loads((folder / "hanging.codes").read_text())
    assert codes[0] and codes[1]
    assert "another rank has not answered for 5 seconds" in forked[0].stderr
