"""Checkpoints: a damaged file is named, and nothing of it is used."""

import json
from datetime import timedelta
from importlib.util import find_spec

import pytest

if find_spec("torchrec") is None:
    pytest.skip("needs TorchRec: make test DISTRIBUTED=1 sets it up", allow_module_level=True)
pytestmark = pytest.mark.thorough  # importing TorchRec takes seconds; test_ranks.py resumes from checkpoints


@pytest.fixture
def saved(tmp_path):
    """A checkpoint of one process, and what is in it."""
    import torch

    from splinefm.distribute.checkpoints import Checkpoints
    from splinefm.distribute.ranks import Ranks

    tensors = {"a": torch.arange(50.0), "b": torch.ones(3, 4)}
    checkpoints = Checkpoints(tmp_path / "run", Ranks(0, 1, 1, torch.device("cpu"), None, timedelta(seconds=60)))
    checkpoints.save("step", 7, tensors, {"step": 7, "best": None})
    checkpoints.settle()
    return checkpoints, tensors, tmp_path / "run" / "step-00000007"


def load(checkpoints, tensors):
    import torch

    into = {name: torch.zeros_like(values) for name, values in tensors.items()}
    checkpoints.load("step", 7, into)
    return into


def test_what_is_whole_is_loaded(saved):
    checkpoints, tensors, _ = saved
    assert checkpoints.state("step", 7) == {"step": 7, "best": None}
    assert all((values == tensors[name]).all() for name, values in load(checkpoints, tensors).items())


def test_every_damaged_byte_is_found(saved):
    checkpoints, tensors, folder = saved
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 12)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
            with pytest.raises(ValueError, match="is damaged; remove its folder to use the checkpoint before it"):
                checkpoints.state("step", 7)
                load(checkpoints, tensors)
        path.write_bytes(whole[:-3])
        with pytest.raises(ValueError, match=path.name.replace(".", r"\.")):
            load(checkpoints, tensors)
        path.write_bytes(whole)


def test_a_state_without_a_seal_is_refused(saved):
    checkpoints, _, folder = saved
    (folder / "state.json").write_text(json.dumps({"step": 7}))
    with pytest.raises(ValueError, match=r"state\.json' is damaged"):
        checkpoints.state("step", 7)
