"""Which checkpoints a run continues from; checkpoints of other settings are refused."""

import json
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

if find_spec("torchrec") is None:  # importing it would take seconds
    pytest.skip("needs TorchRec: make test DISTRIBUTED=1 sets it up", allow_module_level=True)

FACTS = {"model": "FM(k=4)", "training": "Training()"}


def resume(facts, before, **kept):
    """Continue with some facts from a checkpoint that has others."""
    from splinefm.distribute.training import Job, RunState

    state = json.dumps({**RunState(step=7).to_dict(), "dense_number": 3, "facts": before, **kept})
    checkpoints = SimpleNamespace(
        folder="run", last=lambda: 7, state=lambda kind, number: json.loads(state), load=lambda *what: None
    )
    parallel = SimpleNamespace(
        state_dict=dict, fused_optimizer=SimpleNamespace(state_dict=lambda: {"state": {}}), module=None
    )
    dense = SimpleNamespace(number=0, state={})
    model = SimpleNamespace(processes=SimpleNamespace(fail_together=nullcontext), dense=dense, parallel=parallel)
    found = Job(model, None, None, None, 0, None, checkpoints, 0.0, None).resume(facts)
    return found.step, dense.n_steps


def test_the_same_settings_continue():
    assert resume(FACTS, FACTS, averaged=0) == (7, 3)


def test_a_checkpoint_from_before_there_were_averages_has_none():
    assert resume(FACTS, FACTS) == (7, 3)


@pytest.mark.parametrize("here", [False, True])
def test_a_fact_that_one_side_does_not_have_is_another_run(here):
    """Losses of other validation rows must not be compared with the epochs so far."""
    more = {**FACTS, "validation rows": "0123abcd"}
    with pytest.raises(ValueError, match="another run: validation rows is"):
        resume(*((more, FACTS) if here else (FACTS, more)), averaged=0)


@pytest.mark.parametrize(
    "text",
    [
        "Application timeout caused pair closure",
        "[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242",
        "Timed out waiting 2000ms for send operation to complete",
    ],
)
def test_errors_of_the_network_are_no_bugs(text):
    """A process that was stopped for too long and goes on finds its connections closed."""
    import torch.distributed.checkpoint as dcp

    from splinefm.distribute.processes import _is_lost

    assert _is_lost(RuntimeError(text))
    assert _is_lost(dcp.CheckpointException("failed", {1: (RuntimeError(text), None)}))
    assert not _is_lost(RuntimeError("epoch 1 had 5 of 10 rows"))
    assert not _is_lost(dcp.CheckpointException("failed", {0: (RuntimeError("a bug"), None)}))
