"""Sizes are checked against the memory at hand before anything is made."""

import re
import sys

import numpy as np
import pytest

import splinefm as sf
from splinefm import _memory as room
from splinefm._checks import check_count
from splinefm._memory import check_memory, free_memory
from splinefm.encode.slots import FieldLayout, SlotLayout
from splinefm.model.cpu import CpuEngine
from splinefm.model.family.parameters import check_model_memory, init_params


@pytest.fixture
def small_machine(monkeypatch):
    """A machine with 10 MB left, where every size is looked at."""
    monkeypatch.setattr(room, "SMALL", 0)
    monkeypatch.setattr(room, "free_memory", lambda: 10_000_000)


def test_the_message_says_what_is_needed_and_what_is_there(small_machine):
    message = "a big thing takes about 12.0 MB of memory, 10.0 MB are free; make it smaller"
    with pytest.raises(ValueError, match=re.escape(message)):
        check_memory(12e6, "a big thing", "make it smaller")
    check_memory(9e6, "a small thing", "")


def test_the_machine_is_not_asked_about_small_things(monkeypatch):
    monkeypatch.setattr(room, "free_memory", lambda: pytest.fail("asked"))
    check_memory(1000, "a small thing", "")


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


MACHINE = "MemTotal:       9000 kB\nMemAvailable:   4000 kB\nSwapFree:       1000 kB\n"


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({"proc/meminfo": MACHINE}, 5000 << 10),
        (
            # Version 2: a group inside of another that has less to give; the cache counts as free.
            {
                "proc/meminfo": MACHINE,
                "proc/self/cgroup": "0::/outer/inner\n",
                "group/outer/inner/memory.max": "max\n",
                "group/outer/inner/memory.current": "500\n",
                "group/outer/memory.max": "3000000\n",
                "group/outer/memory.current": "1000000\n",
                "group/outer/memory.stat": "anon 5\ninactive_file 400000\n",
            },
            2_400_000,
        ),
        (
            # In a container: its group is at the root, whatever its name on the host.
            {
                "proc/meminfo": MACHINE,
                "proc/self/cgroup": "0::/known/to/the/host\n",
                "group/memory.max": "1000000\n",
                "group/memory.current": "900000\n",
            },
            100_000,
        ),
        (
            # Version 1.
            {
                "proc/meminfo": MACHINE,
                "proc/self/cgroup": "9:cpu:/a\n4:memory:/a\n0::/\n",
                "group/memory/a/memory.limit_in_bytes": "2000000\n",
                "group/memory/a/memory.usage_in_bytes": "1500000\n",
            },
            500_000,
        ),
        (
            # More is in use than is allowed.
            {
                "proc/meminfo": MACHINE,
                "proc/self/cgroup": "0::/\n",
                "group/memory.max": "100\n",
                "group/memory.current": "200\n",
            },
            0,
        ),
    ],
)
def test_free_memory_on_linux(tmp_path, monkeypatch, files, free):
    monkeypatch.setattr(room, "_process_limits", lambda process: iter(()))
    write(tmp_path, files)
    assert free_memory(tmp_path / "proc", tmp_path / "group") == free


def test_a_limit_of_the_process_counts(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    page = resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (100 * page, 100 * page))
    write(tmp_path, {"meminfo": "MemAvailable: 99999999 kB", "self/statm": "40 9 9 9\n"})
    assert free_memory(tmp_path, tmp_path) == 60 * page


def test_a_system_that_tells_nothing_sets_no_limit(tmp_path, monkeypatch):
    def refuse(name):
        raise ValueError(name)

    monkeypatch.setattr(room.os, "sysconf", refuse)
    monkeypatch.setattr(room, "_process_limits", lambda process: iter(()))
    assert free_memory(tmp_path, tmp_path) == sys.maxsize


def test_counts_of_bases_have_limits():
    check_count("segments", 2**31 - 1, 1)
    for make in (
        lambda n: sf.BSpline(n),
        lambda n: sf.MultiResolution((8, n)),
        lambda n: sf.Bins(n),
        lambda n: sf.Polynomial(n),
        lambda n: sf.Fourier(n),
    ):
        for n in (10**12, 10**400):
            with pytest.raises(ValueError, match=r"must be from [01] to [\d,]+, got 10?,000,000,"):
                make(n)


TABLE = {"x": np.linspace(0.0, 1.0, 200), "c": ["a", "b"] * 100, "y": [0, 1] * 100}
TRAINING = sf.Training(epochs=1, threads=1)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (sf.Categorical("c", unseen="hash", buckets=10**11), "at most 2,147,483,647 are possible; 'c' alone needs 100"),
        (
            sf.Categorical("c", unseen="hash", buckets=10**6),
            "field 'c' with 1,000,003 features, of which a value uses 1",
        ),
        (sf.Numerical("x", basis=sf.BSpline(10**6)), "field 'x' with 1,000,004 features, of which a value uses 4"),
        (sf.Numerical("x", basis=sf.Fourier(1000)), "field 'x' with 2,002 features, of which a value uses 2,001"),
    ],
)
def test_fields_that_are_too_large_are_refused(small_machine, field, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        sf.fit_model(TABLE, "y", schema=sf.Schema([field]), model=sf.FM(k=2), training=TRAINING)


def test_bins_that_are_too_many_are_refused(small_machine):
    with pytest.raises(ValueError, match=r"a basis of 1,000,000 bins takes about 48.0 MB of memory"):
        sf.Bins(10**6)


def test_encoded_rows_that_are_too_many_are_refused(small_machine):
    encoder = sf.fit_encoder(sf.Schema([sf.Numerical("x", basis=sf.BSpline(4))]), TABLE)
    with pytest.raises(ValueError, match=r"a table of 1,000,000 encoded rows takes about 20.0 MB"):
        encoder.encode({"x": np.linspace(0.0, 1.0, 1_000_000)}, threads=1)


# With k = 2: little time, should one of these be trained after all.
@pytest.mark.parametrize(
    "model",
    [sf.FM(2), sf.FwFM(2), sf.LowRankFwFM(2, 10**6), sf.FmFM(2), sf.FFM(2), sf.HigherOrderFM(2), sf.FwFM(1, 1)],
    ids=lambda model: type(model).__name__,
)
def test_models_that_are_too_large_are_refused(small_machine, model):
    schema = sf.Schema([sf.Numerical("x", basis=sf.BSpline(150_000)), sf.Categorical("c")])
    with pytest.raises(ValueError, match=r"training \w+\(.*\) with its [\d,]+ parameters .* lower k"):
        sf.fit_model(TABLE, "y", schema=schema, model=model, training=TRAINING)


def test_vectors_that_are_too_long_are_refused():
    layout = sf.fit_encoder(sf.Schema([sf.Categorical("c"), sf.Numerical("x")]), TABLE).layout
    for kind in (sf.FM, sf.FwFM, sf.LowRankFwFM, sf.FmFM, sf.FFM, sf.HigherOrderFM):
        check_model_memory(kind(k=16), layout)
        with pytest.raises(ValueError, match=r"training \w+\(.*\) with its [\d,]+ parameters .* lower k"):
            check_model_memory(kind(k=100_000_000), layout)


@pytest.mark.parametrize(
    "model", [sf.FwFM(600), sf.LowRankFwFM(600), sf.FmFM(40)], ids=lambda model: type(model).__name__
)
def test_gradients_between_units_that_are_too_large_are_refused(small_machine, model):
    """Few parameters, and many products of two units: a unit for every element of a list."""
    layout = SlotLayout((FieldLayout("list", 2, (1,) * 80, tuple(range(80))),))
    params = init_params(model, layout, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"training \w+\(.*\) with 80 units .* of memory, 10.0 MB are free; lower k"):
        CpuEngine(model, layout, params)


def test_orders_that_no_file_holds_are_refused():
    with pytest.raises(ValueError, match="order must be at most 64, got 100"):
        sf.HigherOrderFM(order=100)


def test_a_batch_is_never_larger_than_the_table():
    table = {"c": ["a", "b"] * 50, "y": [0, 1] * 50}
    options = {"schema": sf.Schema([sf.Categorical("c")]), "model": sf.FM(k=2), "validation": 0}
    fits = [
        sf.fit_model(table, "y", training=sf.Training(epochs=2, threads=1, batch_size=size), **options)
        for size in (100, 10**12)
    ]
    assert all(np.array_equal(fits[0].params[name], fits[1].params[name]) for name in fits[0].params)
    learner = sf.Learner(fits[1])
    assert np.isfinite(learner.update(table, "y"))
