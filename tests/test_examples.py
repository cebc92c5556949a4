"""The examples run, and do what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_network_on_splines_learns(capsys):
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'splinefm[torch]'")
    losses = runpy.run_path(str(EXAMPLES / "deepfm.py"))["main"](epochs=2)
    assert "mean area" in capsys.readouterr().out
    assert set(losses) == {"splines", "DeepFM"}
    assert losses["DeepFM"] < losses["splines"] < 0.2
