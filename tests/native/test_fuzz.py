"""Changed scorer files in a program with sanitizers; `make fuzz` runs it for longer."""

import os
import subprocess
from pathlib import Path

import pytest

import splinefm as sf
from support import (
    CROSSES,
    cross_schema,
    cross_table,
    mixed_schema,
    mixed_table,
    random_classes,
    random_fitted,
    small_indices,
)

SECONDS = os.environ.get("SPLINEFM_FUZZ_SECONDS")
FOLDER = "fuzz" if SECONDS else os.environ.get("SPLINEFM_SANITIZED", "address")
DRIVER = Path(__file__).parents[2] / "build" / FOLDER / "fuzz_scorer_file"


@pytest.mark.skipif(
    not SECONDS and os.environ.get("SPLINEFM_SANITIZED") != "address", reason="run by `make sanitize` and `make fuzz`"
)
def test_hostile_files_do_no_harm(tmp_path):
    models = [sf.FwFM(k=4), sf.FFM(k=3), sf.FmFM(k=4), sf.HigherOrderFM(k=3, order=3), sf.FwFM(k=3, third=2)]
    for i, model in enumerate(models):
        random_fitted(model, mixed_schema(), mixed_table(60)).export_scorer(tmp_path / f"{i}.sfs")
    crossed = random_classes(sf.FM(k=4), cross_schema(*CROSSES), cross_table(200))
    crossed.export_scorer(tmp_path / "crosses.sfs")
    for i, index in enumerate(small_indices()):
        index.fitted.export_scorer(tmp_path / f"index{i}.sfs", index=index)
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    run = subprocess.run(
        [DRIVER, SECONDS or "15", "1", *sorted(tmp_path.glob("*.sfs"))], capture_output=True, text=True, env=environment
    )
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
