"""`examples/encode_on_processes.py`: real processes give what one process gives."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import splinefm as sf

SCRIPT = Path(__file__).parents[2] / "examples" / "encode_on_processes.py"


@pytest.mark.thorough  # three processes; test_share_statistics.py merges statistics of processes in one
def test_rows_are_encoded_as_in_one_process(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"price": rng.lognormal(size=900), "city": rng.choice(["Rome", "Oslo", "Nice"], 900)})
    (tmp_path / "logs").mkdir()
    pq.write_table(table.slice(0, 500), tmp_path / "logs" / "a.parquet", row_group_size=90)
    pq.write_table(table.slice(500), tmp_path / "logs" / "b.parquet")
    command = [sys.executable, SCRIPT, tmp_path / "logs", "--processes", "2", "--out", tmp_path / "slots"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    encoder = sf.fit_encoder(sf.infer_schema(table), table)
    assert done.stdout.splitlines() == [
        f"900 rows, {encoder.layout.n_features} features",
        "encoded rows by process: 450, 450",
    ]
    slots = encoder.encode(table)
    seen = []
    for path in (tmp_path / "slots").iterdir():
        with np.load(path) as part:
            seen += part["row"].tolist()
            np.testing.assert_array_equal(part["start"], slots.start[part["row"]])
            np.testing.assert_array_equal(part["weight"], slots.weight[part["row"]])
    assert sorted(seen) == list(range(900))


def test_a_missing_file_is_told(tmp_path):
    command = [sys.executable, SCRIPT, tmp_path / "absent.parquet", "--out", tmp_path / "slots"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "no file or folder" in done.stderr
