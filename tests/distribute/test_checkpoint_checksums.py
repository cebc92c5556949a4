"""Checkpoints of one process: what is kept, what is removed and when, and files that are damaged, missing or half."""

import errno
import json
import pickle
import shutil
from datetime import timedelta
from hashlib import sha256
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import examples

if find_spec("torch") is None:
    pytest.skip("needs torch: make test TORCH=1 sets it up", allow_module_level=True)

NAME = "step-00000007"


@pytest.fixture
def module():
    """The module, which takes a second to import."""
    from splinefm.distribute import checkpoints

    return checkpoints


@pytest.fixture
def begin(module, tmp_path):
    """Begin or continue a run of one process, whose checkpoints are in a folder "run"."""
    import torch

    from splinefm.distribute.processes import Processes

    processes = Processes(0, 1, 1, torch.device("cpu"), None, timedelta(seconds=60))
    return lambda: module.Checkpoints(tmp_path / "run", processes)


def tensors(value=0.0):
    import torch

    return {"a": torch.arange(50.0) + value, "b": torch.ones(3, 4)}


def write(checkpoints, kind, number, value=0.0, best=None):
    checkpoints.save(kind, number, tensors(value), {"step": number, "best": best})
    checkpoints.wait()


def read(checkpoints, kind, number):
    """The value that was written."""
    into = tensors(-1.0)
    checkpoints.load(kind, number, into)
    value = float(into["a"][0])
    assert (into["a"] == tensors(value)["a"]).all() and (into["b"] == 1.0).all()
    return value


def names(checkpoints):
    return sorted(path.name for path in checkpoints.folder.iterdir())


@pytest.fixture
def saved(begin, tmp_path):
    """A checkpoint, and its folder."""
    checkpoints = begin()
    write(checkpoints, "step", 7, 3.0)
    return checkpoints, tmp_path / "run" / NAME


@pytest.mark.parametrize("free", [0, 1 << 40])
def test_what_is_whole_is_loaded_however_it_was_written(module, begin, monkeypatch, free):
    """With memory for a copy, it is written in the background; without, training waits."""
    monkeypatch.setattr(module, "free_memory", lambda: free)
    checkpoints = begin()
    assert checkpoints.last() is None
    write(checkpoints, "step", 7, 3.0)
    assert checkpoints.last() == 7 and checkpoints.last("best") is None
    assert checkpoints.state("step", 7) == {"step": 7, "best": None}
    assert read(checkpoints, "step", 7) == 3.0
    checkpoints.remove()
    assert not checkpoints.folder.exists()


def test_every_damaged_byte_is_found_and_its_file_named(saved):
    checkpoints, folder = saved
    assert len(list(folder.iterdir())) == 4  # tensors, their checksums, metadata, state
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 12)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
            with pytest.raises(ValueError, match="is damaged; remove its folder to use the checkpoint before it"):
                read(checkpoints, "step", 7)
        for changed, what in ((whole[:-3], "damaged"), (b"", "damaged"), (None, "missing")):
            path.unlink() if changed is None else path.write_bytes(changed)
            with pytest.raises(ValueError, match=rf"{NAME}/{path.name.replace('.', '[.]')}' is {what}; remove"):
                read(checkpoints, "step", 7)
        path.write_bytes(whole)
    assert read(checkpoints, "step", 7) == 3.0


def test_a_state_without_a_seal_is_refused(saved):
    checkpoints, folder = saved
    (folder / "state.json").write_text(json.dumps({"step": 7}))
    with pytest.raises(ValueError, match=r"state\.json' is damaged"):
        checkpoints.state("step", 7)
    (folder / "state.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"state\.json' is damaged"):
        checkpoints.state("step", 7)


def test_processes_can_tell_each_other_what_is_damaged(tmp_path):
    from splinefm.distribute.checkpoints import DamagedCheckpoint, damaged

    error = pickle.loads(pickle.dumps(damaged(tmp_path / "x")))
    assert isinstance(error, DamagedCheckpoint) and "x' is missing" in str(error)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@examples(50)
@given(state=st.dictionaries(st.text(), VALUES, max_size=4), data=st.data())
def test_a_seal_gives_the_state_back_unless_it_was_changed(state, data, tmp_path_factory):
    from splinefm.distribute.checkpoints import decode_manifest, encode_manifest, small_files

    folder = tmp_path_factory.mktemp("sealed")
    (folder / ".metadata").write_bytes(b"m")
    (folder / "__0_sums.json").write_bytes(b"{}")
    (folder / "__0_0.distcp").write_bytes(b"large")
    text = encode_manifest(state, small_files(folder))
    found, files = decode_manifest(text)
    assert found == state and files.keys() == {".metadata", "__0_sums.json"}
    at = data.draw(st.integers(0, text.rindex('"sha256"') - 1))
    changed = text[:at] + data.draw(st.characters(codec="ascii")) + text[at + 1 :]
    try:
        again = decode_manifest(changed)
    except ValueError:
        return
    assert again == (state, files)  # white space, or another way to write the same


@pytest.mark.parametrize(
    "crafted", [{"state": {}, "files": 5}, {"state": {}, "files": ["a"]}, {"state": 1.5, "files": {}}]
)
def test_a_seal_of_another_shape_is_refused(crafted):
    from splinefm.distribute.checkpoints import decode_manifest

    checksum = sha256(json.dumps(crafted).encode()).hexdigest()
    with pytest.raises(ValueError, match="the state or the checksums are not a JSON object"):
        decode_manifest(json.dumps({**crafted, "sha256": checksum}))


def test_half_a_checkpoint_is_never_used(begin, tmp_path):
    """Whatever a killed run leaves: parts, half-removed folders, and files that are not ours."""
    first = begin()
    write(first, "step", 5, 5.0)
    shutil.copytree(tmp_path / "run" / "step-00000005", tmp_path / "run" / ".part-step-00000009")  # lacks its name
    (tmp_path / "run" / ".part-step-00000008.old").write_text("")
    shutil.copytree(tmp_path / "run" / "step-00000005", tmp_path / "run" / "step-00000004")
    (tmp_path / "run" / "step-00000004" / "state.json").unlink()  # was being removed
    (tmp_path / "run" / "step-00000012").mkdir()
    (tmp_path / "run" / "steps-notes.txt").write_text("mine")
    again = begin()
    assert again.last() == 5 and read(again, "step", 5) == 5.0
    assert not [name for name in names(again) if name.startswith(".part-")]
    write(again, "step", 6, 6.0)
    assert names(again) == ["step-00000005", "step-00000006", "steps-notes.txt"]


def test_the_last_two_are_kept_with_the_best_epochs_that_they_need(begin):
    checkpoints = begin()
    write(checkpoints, "best", 0, 100.0)
    for number in (1, 2):
        write(checkpoints, "step", number, best=0)
    write(checkpoints, "best", 3, 103.0)
    # No checkpoint refers to the new one yet: a run that is killed now goes on with the old one.
    assert names(checkpoints) == ["best-00000000", "best-00000003", "step-00000001", "step-00000002"]
    write(checkpoints, "step", 3, best=3)
    assert "best-00000000" in names(checkpoints)  # step 2 needs it
    write(checkpoints, "step", 4, best=3)
    assert names(checkpoints) == ["best-00000003", "step-00000003", "step-00000004"]
    assert read(checkpoints, "best", 3) == 103.0


def test_a_checkpoint_that_is_removed_loses_its_state_first(module, begin, monkeypatch):
    """A run that is killed in the middle of removing leaves nothing that looks whole."""
    checkpoints = begin()
    for number in (1, 2):
        write(checkpoints, "step", number)
    monkeypatch.setattr(module.shutil, "rmtree", lambda *_, **__: None)  # killed before it began
    write(checkpoints, "step", 3)
    left = checkpoints.folder / "step-00000001"
    assert left.is_dir() and not (left / "state.json").exists()
    monkeypatch.undo()
    shutil.rmtree(checkpoints.folder / "step-00000002")
    shutil.rmtree(checkpoints.folder / "step-00000003")
    assert begin().last() is None


def test_the_parameters_of_a_best_epoch_stay_until_new_ones_are_complete(module, begin, monkeypatch):
    """A run that was killed after it wrote them trains the epoch again, and writes them again."""
    first = begin()
    write(first, "best", 2, 1.0)
    again, seen = begin(), []

    def put(new, target, old):
        seen.append(
            (read(again, "best", 2), (new / "state.json").is_file(), sorted(path.name for path in new.iterdir()))
        )
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "put_in_place", put)
    with pytest.raises(OSError, match=r"cannot write a checkpoint to .*run': No space left on device; make room"):
        write(again, "best", 2, 9.0)
    files = sorted(path.name for path in (again.folder / "best-00000002").iterdir())
    assert seen == [(1.0, True, files)] and read(again, "best", 2) == 1.0
    monkeypatch.undo()
    third = begin()
    assert names(third) == ["best-00000002"]
    write(third, "best", 2, 9.0)
    assert read(third, "best", 2) == 9.0 and names(third) == ["best-00000002"]


@pytest.mark.parametrize("what", ["write_data", "finish"])
@pytest.mark.parametrize("free", [0, 1 << 40])
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(module, saved, monkeypatch, what, free):
    checkpoints, _ = saved
    monkeypatch.setattr(module, "free_memory", lambda: free)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.dcp.FileSystemWriter, what, full)
    checkpoints.save("step", 8, tensors(), {"step": 8, "best": None})
    with pytest.raises(OSError, match=r"cannot write a checkpoint to .*No space left on device; make room"):
        checkpoints.wait()
    monkeypatch.undo()
    assert checkpoints.last() == 7 and read(checkpoints, "step", 7) == 3.0
    write(checkpoints, "step", 8, 8.0)
    assert read(checkpoints, "step", 8) == 8.0 and names(checkpoints) == [NAME, "step-00000008"]


def test_a_failure_in_the_background_is_noticed_before_the_next_checkpoint(module, saved, monkeypatch):
    checkpoints, _ = saved
    assert not checkpoints.has_failed

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module, "encode_manifest", fail)
    checkpoints.save("step", 8, tensors(), {"step": 8, "best": None})
    checkpoints._pending.result()
    with pytest.raises(OSError, match="Input/output error"):
        checkpoints._published.result(60)
    assert checkpoints.has_failed
    with pytest.raises(OSError, match=r"cannot write a checkpoint to .*Input/output error"):
        checkpoints.save("step", 9, tensors(), {"step": 9, "best": None})
    assert checkpoints.last() == 7 and not checkpoints.has_failed


def test_a_damaged_checkpoint_before_the_last_does_not_end_the_run(saved):
    checkpoints, folder = saved
    write(checkpoints, "best", 1, 11.0)
    (folder / "state.json").write_text("{}")
    write(checkpoints, "step", 8, best=1)
    write(checkpoints, "step", 9, best=1)
    assert names(checkpoints) == ["best-00000001", "step-00000008", "step-00000009"]


def test_a_best_epoch_that_is_damaged_or_missing_has_advice_of_its_own(saved):
    """Without the folder of the best epoch, there is no checkpoint before it to use."""
    checkpoints, _ = saved
    write(checkpoints, "best", 1)
    (next((checkpoints.folder / "best-00000001").glob("*.distcp"))).write_bytes(b"")
    checkpoints.check("best", 1)  # a quick look
    with pytest.raises(ValueError, match=r"best-00000001/.*distcp' is damaged; .* kept nowhere else: remove .*run'"):
        read(checkpoints, "best", 1)
    (checkpoints.folder / "best-00000001" / ".metadata").unlink()
    with pytest.raises(ValueError, match=r"best-00000001/.metadata' is missing; .* kept nowhere else"):
        checkpoints.check("best", 1)
    shutil.rmtree(checkpoints.folder / "best-00000001")
    with pytest.raises(ValueError, match=r"best-00000001/state.json' is missing; .* kept nowhere else"):
        checkpoints.check("best", 1)


@pytest.mark.thorough  # importing TorchRec takes seconds
@pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec: make test DISTRIBUTED=1 sets it up")
def test_a_run_whose_best_epoch_is_missing_says_so_before_it_goes_on(begin):
    from splinefm.distribute.training import Job

    checkpoints = begin()
    checkpoints.save("step", 7, tensors(), {"step": 7, "best": 1, "facts": {}})
    checkpoints.wait()
    job = SimpleNamespace(checkpoints=checkpoints, processes=checkpoints.processes)
    with pytest.raises(ValueError, match=r"best-00000001/state.json' is missing"):
        Job.resume(job, {})


def test_all_files_are_flushed_before_a_checkpoint_gets_its_name(module, begin, monkeypatch):
    """After a power failure, what has its name is whole."""
    import os

    flushed, named = set(), []
    fsync, put = os.fsync, module.put_in_place

    def record(descriptor):
        flushed.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def check(new, target, old):
        named.append({path.name for path in [new, *new.iterdir()] if path.stat().st_ino not in flushed})
        put(new, target, old)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(module, "put_in_place", check)
    write(begin(), "step", 7)
    assert named == [set()]
