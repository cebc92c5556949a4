"""`splinefm fit --engine torch --device ...`."""

import numpy as np
import pytest

import splinefm as sf

SMALL = (
    "--model",
    "fm",
    "--k",
    "2",
    "--epochs",
    "2",
    "--threads",
    "1",
    "--quiet",
    "--ignore",
    "id",
    "--target",
    "click",
)


def test_the_torch_engine_fits_the_same_model(run, write, table, tmp_path):
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'splinefm[torch]'")
    data = write(table, tmp_path / "data.parquet")
    run("fit", data, "--out", "cpu.sfm", *SMALL)
    run("fit", data, "--out", "torch.sfm", *SMALL, "--engine", "torch", "--device", "cpu")
    fits = [sf.load(f"{name}.sfm") for name in ("cpu", "torch")]
    np.testing.assert_allclose(fits[1].scores(table), fits[0].scores(table), atol=5e-3)
    assert fits[1].training.engine == "cpu"
    result = run("fit", data, "--out", "x.sfm", *SMALL, "--engine", "torch", "--device", "cuda:99", code=1)
    assert "--device 'cuda:99' cannot be used here" in result.stderr


def test_a_device_of_no_engine_is_refused(run, write, table, tmp_path):
    data = write(table, tmp_path / "data.parquet")
    result = run("fit", data, "--out", "x.sfm", *SMALL, "--device", "cuda", code=1)
    assert "--device is for the torch engine, got 'cuda' with the cpu engine; set --engine to torch" in result.stderr
    run("fit", data, "--out", "x.sfm", *SMALL, "--engine", "gpu", code=2)
