"""Training on real processes: gloo on this machine."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import splinefm as sf
from splinefm.model.family.separation import is_apart

if find_spec("torchrec") is None:  # importing it would take seconds
    pytest.skip("needs TorchRec: make test DISTRIBUTED=1 sets it up", allow_module_level=True)
FileLock = pytest.importorskip("filelock").FileLock  # torch needs it, too

HERE = Path(__file__).parent
ROWS = 4000


def draw_table(n, seed, names="c", clicks=True):
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
            "click": (clicks * (rng.random(n) < 1.0 / (1.0 + np.exp(-score)))).astype(np.int8),
        }
    )


def draw_weighted(n, seed):
    """Rows whose weights follow the target, so that a weighted mean of losses is none of the rows."""
    table, rng = draw_table(n, seed), np.random.default_rng(seed)
    return table.append_column("w", pa.array((1.0 + 9.0 * table["click"].to_numpy()) * rng.uniform(0.5, 1.5, n)))


def write_rows(folder, n, seed, files=1, **options):
    folder.mkdir()
    table = draw_table(n, seed, **options)
    for i in range(files):
        part = table.slice(i * n // files, n // files)
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=max(1, n // (3 * files)))


def run(folder):
    """Run the jobs of process_jobs.py; return what they said."""
    folder.mkdir()
    write_rows(folder / "rows", ROWS, 0, files=4)
    write_rows(folder / "other", ROWS // 2, 0)
    write_rows(folder / "flipped", ROWS, 3, files=4)
    write_rows(folder / "new", 600, 1, names="new")
    write_rows(folder / "zeros", 600, 2, clicks=False)
    for name, n, seed in (("weighted", 500, 2), ("weighted validation", 300, 3)):
        (folder / name).mkdir()
        pq.write_table(draw_weighted(n, seed), folder / name / "0.parquet", row_group_size=100)
    for name in ("few", "plain"):
        (folder / name).mkdir()
    two = pa.table({"x": [0.5, 1.0], "c": ["a", "b"], "click": [0, 1]})
    pq.write_table(two, folder / "few" / "0.parquet")
    pq.write_table(pa.table({"x": [0.5]}), folder / "plain" / "0.parquet")
    path = os.pathsep.join([str(Path(sf.__file__).parents[1]), str(HERE.parent)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "process_jobs.py"), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where all jobs have run, once: workers of pytest share the folder above their own."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "processes"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            said = run(folder)
            if "has not answered for 120 seconds" in said:
                # Rarely, a process that is forked beside threads of torch hangs before it joins the others.
                shutil.rmtree(folder)
                said = run(folder)
            (folder.parent / "processes.said").write_text(said)
    return folder


@pytest.fixture(scope="module")
def found(folder):
    """Everything that the jobs found, by name."""
    several = {}
    for name in ("two", "four", "one", "three", "again"):
        path = folder / f"{name}.json"
        assert path.exists(), (folder.parent / "processes.said").read_text()[-3000:]
        several |= json.loads(path.read_text())
    return several


@pytest.fixture(scope="module")
def codes(folder):
    """Exit codes of processes, by name."""
    return json.loads((folder / "codes.json").read_text())


def history(found, name):
    return [epoch["validation_loss"] for epoch in found[name]]


def test_scores_are_those_of_the_formula_and_of_the_cpu_engine(found):
    assert len(found["scores"]) == 8
    for name, differences in found["scores"].items():
        assert max(differences) < 1e-5, name


@pytest.mark.parametrize("kind", ["fwfm", "ffm"])
def test_columns_that_must_not_interact_do_not(found, folder, kind):
    fitted = sf.load(folder / f"apart {kind}.sfm")
    assert fitted.encoder.layout.apart == ((0, 1), (0, 3), (1, 2), (2, 3))
    assert is_apart(fitted.model, fitted.params, fitted.encoder.layout)
    others = replace(fitted.encoder.layout, apart=((0, 2),))
    assert not is_apart(fitted.model, fitted.params, others)


def test_the_plan_says_where_every_table_is(found):
    lines = found["plan"].splitlines()
    assert len(lines) == 6
    assert lines[1].startswith("spline") and lines[1].endswith("all processes")
    assert "1,300" in lines[2] and "process" in lines[2]


def test_steps_on_small_tables_are_those_of_the_cpu_engine(found):
    for name, (difference, moved) in found["small"].items():
        assert difference < 1e-5 and moved > 0.01, name


def test_a_step_on_large_tables_is_that_of_adagrad(found):
    for name, (difference, moved) in found["large"].items():
        assert difference < 1e-4 and moved > 0.09, name


def test_an_exposure_is_a_part_of_scores_and_losses(found, folder):
    fitted = sf.load(folder / "exposed.sfm")
    assert (fitted.offset.column, fitted.offset.kind) == ("w", "exposure") and "w" not in fitted.encoder.schema.names
    tables = draw_weighted(500, 2), draw_weighted(300, 3)
    expected = []
    for table in tables:
        scores = fitted.scores(table).astype(float)
        expected.append(float(np.mean(np.exp(scores) - table["click"].to_numpy() * scores)))
    np.testing.assert_allclose(found["exposed"], expected, rtol=1e-4)
    np.testing.assert_allclose(found["exposed update"], [*expected, expected[1]], rtol=1e-3)
    rate = tables[0]["click"].to_numpy().sum() / tables[0]["w"].to_numpy().sum()
    np.testing.assert_allclose(fitted.without_offset().predict(tables[0]), rate, rtol=0.1)
    assert sf.load(folder / "exposed again.sfm").offset == fitted.offset


def test_losses_are_divided_by_the_weights_of_all_processes(found, folder):
    totals, expected = found["totals"]
    assert len(totals) == 3
    np.testing.assert_allclose(totals, expected, rtol=1e-6)
    value, expected = found["validation loss"]
    assert value == pytest.approx(expected, rel=1e-5)
    fitted = sf.load(folder / "weighted.sfm")
    for value, table in zip(found["weighted"], (draw_weighted(500, 2), draw_weighted(300, 3)), strict=True):
        clicked, p = table["click"].to_numpy() > 0, fitted.predict(table)
        losses = -np.log(np.where(clicked, p, 1.0 - p))
        assert value == pytest.approx(np.average(losses, weights=table["w"].to_numpy()), rel=1e-4)


def test_averages_are_those_of_their_formula(found):
    for name, (difference, moved) in found["averages"].items():
        assert difference < 1e-6 and moved > 0.01, name
    assert found["back"]


def test_what_is_for_one_machine_is_refused(found):
    ways_out = ("fit with other seeds", "write them into the schema", "--table-optimizer")
    for message, way_out in zip(found["refused"], ways_out, strict=True):
        assert "one machine" in message and way_out in message


def test_the_encoder_does_not_depend_on_the_number_of_processes(found, folder):
    encoders = [sf.load(folder / "one.sfm").encoder, sf.load(folder / "two.sfm").encoder]
    encoders.append(sf.ShardedModel.open(folder / "three").encoder)
    assert encoders[0] == encoders[1] == encoders[2]
    assert encoders[0].n_rows == ROWS


def test_losses_agree_within_noise(found, folder):
    """One, two and three processes, and the CPU engine."""
    table = pa.concat_tables(pq.read_table(path) for path in sorted((folder / "rows").glob("*.parquet")))
    names = ("one.sfm", "two.sfm", "three")
    last = [history(found, name)[-1] for name in names]
    assert np.ptp(last) < 0.02
    training = sf.Training(
        epochs=3, batch_size=128, learning_rate=0.03, seed=3, refit_on_all=False, crosses=None, threads=1
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


@pytest.mark.thorough
def test_the_pipeline_takes_the_same_steps(found, folder):
    """TrainPipelineSparseDist is for GPUs, but works here as well."""
    plain, piped = (sf.load(folder / name).params for name in ("two.sfm", "piped.sfm"))
    for name, values in plain.items():
        assert (values == piped[name]).all(), name


def test_a_run_moves_from_two_processes_to_four_to_one(found, folder):
    assert found["stopped 2"] == ["Interrupted: step 20"] * 2
    assert found["stopped 4"] == ["Interrupted: step 30"] * 4
    assert len(found["moved.sfm"]) == 3
    assert abs(history(found, "moved.sfm")[-1] - history(found, "two.sfm")[-1]) < 0.02


def test_a_run_with_other_settings_does_not_continue(found):
    assert "training is" in found["other settings"][0] and "use the settings of that run" in found["other settings"][0]
    assert "add --resume" in found["not resumed"][0]


def test_torch_has_one_thread_on_a_process_unless_more_are_given(found):
    """Its threads would mostly wait for each other; all cores encode."""
    assert found["torch threads"] == [[8, 1], [2, 2]]


def test_a_killed_process_starts_again_from_the_last_checkpoint(found, folder, codes):
    assert codes["killed"] == 0
    killed = json.loads((folder / "killed.json").read_text())
    assert killed["restarts"] == 1
    losses = [epoch["validation_loss"] for epoch in killed["history"]]
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
    assert found["update"]["loss"] == pytest.approx(losses[0], rel=1e-5)  # of the old model, not a running mean
    assert found["update"]["verdict"]["new"]["rows"] == 600
    assert 30 < found["update"]["verdict"]["before"]["rows"] < 90
    assert after.history[-1].run == "update" and after.history[-1].epoch == 4


def test_an_update_on_processes_refuses_an_hour_without_clicks(found, folder):
    """As on one machine: the model stays, and the refused one is beside it."""
    assert len(found["zeros"]) == 3
    for message in found["zeros"]:
        assert "the update is refused: predicted / measured" in message and "updated.rejected.sfm" in message
    kept, refused = sf.load(folder / "updated.sfm"), sf.load(folder / "updated.rejected.sfm")
    assert kept.encoder.n_rows == ROWS + 600 and refused.encoder.n_rows == ROWS + 1200
    assert not (folder / "updated.sfm.checkpoints").exists()


def test_without_a_guard_every_update_on_processes_is_accepted(found, folder):
    assert found["no guard"]["verdict"] is None
    assert sf.load(folder / "learned.sfm").encoder.n_rows == ROWS + 1200


def test_updates_on_processes_keep_the_state_of_their_optimizers(found):
    """The state is that which other processes wrote, for tables on all processes and for tables that are divided."""
    first, second = found["update"], found["again"]
    assert not first["continued"] and second["continued"]
    assert 0 < first["steps"] < second["steps"]
    written, restored = found["moments of updated.sfm"], found["restored moments"]
    assert written.keys() == restored.keys()
    assert {name.split("/")[0] for name in written} == {"large", "small", "between"}
    for name, value in written.items():
        assert value > 0.0 and restored[name] == pytest.approx(value, rel=1e-6), name


def test_the_state_of_a_sharded_model_is_kept_too(found, folder):
    assert found["sharded"]["verdict"]["before"]["rows"] == ROWS  # the rows of another file
    assert not found["sharded"]["continued"] and found["sharded again"]["continued"]
    assert sf.ShardedModel.open(folder / "sharded").encoder.n_rows == 2 * ROWS + 600
    left = [path.suffix for path in (folder / "sharded.rank-state").iterdir()]
    assert sorted(left) == [".index", ".moments", ".moments"]


def test_two_updates_on_processes_at_a_time_are_refused(found):
    message, other = found["locked"]
    assert "again.sfm' is being updated by another process" in message and other == "silent"


def test_the_command_updates_on_processes_as_on_one_machine(folder, codes):
    """With the same options, messages and exit codes."""
    assert codes["bad hour"] == [4, 4] and codes["good hour"] == [0, 0]
    refused, accepted = (json.loads("\n".join(lines_of(folder, f"{name} hour", "out")[0])) for name in ("bad", "good"))
    assert not refused["accepted"] and refused["rejected"].endswith("hourly.rejected.sfm")
    assert accepted["accepted"] and accepted["rows"] == 600 and not accepted["continued"]
    said = ["\n".join(lines) for lines in lines_of(folder, "bad hour")]
    assert "splinefm: the update is refused" in said[0] and "--no-guard" in said[0]
    assert "refused" not in said[1] and lines_of(folder, "bad hour", "out")[1] == []
    assert sf.load(folder / "hourly.sfm").encoder.n_rows == ROWS + 600
    check_what_is_said(folder, "separator", None, "--sep is for CSV files")


def lines_of(folder, name, kind="err"):
    """What each process of a command printed."""
    return [path.read_text().splitlines() for path in sorted(folder.glob(f"{name}.?.{kind}"))]


def test_the_command_prints_one_summary(folder, codes):
    assert codes["fine"] == [0, 0]
    out = lines_of(folder, "fine", "out")
    told = json.loads("\n".join(out[0]))
    assert told["rows"] == ROWS
    assert out[1] == []
    assert told["validation_loss"] == pytest.approx(loss_of_balanced_rows(folder), rel=1e-5)


def loss_of_balanced_rows(folder):
    """The loss of the rows in "new", with the class weights of those in "rows"."""
    fitted = sf.load(folder / "fine.sfm")
    table = pa.concat_tables(pq.read_table(path) for path in sorted((folder / "rows").glob("*.parquet")))
    rate = table["click"].to_numpy().mean()
    assert fitted.loss.class_weights == pytest.approx((0.5 / (1.0 - rate), 0.5 / rate))
    new = pq.read_table(folder / "new" / "0.parquet")
    y = new["click"].to_numpy().astype(float)
    values = fitted.loss.value(y, fitted.scores(new, watch=False).astype(float))
    return np.average(values, weights=np.array(fitted.loss.class_weights)[y.astype(int)])


# By name: the process that knows (None if all of them do), and what it says.
FAULTS = {
    "versions": (0, "versions differ: torch is 2.0 on process 1 and 2.13"),
    "missing file": (1, "nowhere"),
    "other file": (0, "the data differ: '1.parquet' is on process 0, but not on process 1"),
    "other contents": (0, "the data differ: '0.parquet' has other contents on process 1 than on process 0"),
    "target": (None, "no column 'clik'"),
    "too few rows": (None, "2 rows cannot be divided among 3 processes"),
    "memory": (0, "the tables take"),
    "full disk": (1, "process 1: cannot write a checkpoint"),
    "hanging": (0, "another process has not answered for 5 seconds"),
    "device": (None, "device must be cpu or cuda, got 'gpu'"),
    "members": (None, "--members 2 is for one machine"),
    "effort": (None, "--effort and --time-limit are for one machine"),
    "time limit": (None, "--effort and --time-limit are for one machine"),
    "other validation": (None, "in the validation rows: no column"),
}


def test_the_process_that_knows_says_what_is_wrong(folder, codes):
    """One message, and no process ends well."""
    for fault, (who, message) in FAULTS.items():
        assert all(codes[fault]) and 1 in codes[fault], fault
        check_what_is_said(folder, fault, who, message)
        assert not (folder / f"{fault}.sfm").exists(), fault


def check_what_is_said(folder, fault, who, message):
    lines = [(process, line) for process, lines in enumerate(lines_of(folder, fault)) for line in lines]
    said = [(process, line) for process, line in lines if line.startswith("splinefm: ")]
    assert len(said) == 1, lines
    process, line = said[0]
    assert process == who or who is None
    assert line.startswith(f"splinefm: process {process}: ") and message in line
    assert not any("Traceback" in line for _, line in lines)


def test_a_checkpoint_that_was_not_completed_is_not_there(folder, codes):
    assert codes["full disk"] == [1, 1]
    left = (folder / "full disk.sfm.checkpoints").iterdir()
    assert not [path for path in left if path.name.startswith("step")]
