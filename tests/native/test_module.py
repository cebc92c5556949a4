"""How the compiled module is built: instruction sets, types, symbols; and the parts that no class shows."""

import os
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from splinefm import _core
from support import examples

ROOT = Path(__file__).parents[2]
OBJECTS = ROOT / "build" / "native" / "CMakeFiles"


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif("SPLINEFM_SANITIZED" not in os.environ, reason="not run by `make sanitize`")
def test_sanitizers_look_at_the_module_that_was_built_for_them():
    assert Path(_core.__file__).is_relative_to(ROOT / "build" / os.environ["SPLINEFM_SANITIZED"])


class TestInstructionSets:
    def test_the_fastest_of_the_machine_is_used(self):
        asked = os.environ.get("SPLINEFM_ISA")
        assert asked or _core.isa == _core.isas[-1]
        assert set(_core.isas) <= {"baseline", "avx2", "avx512", "neon"}

    @pytest.mark.parametrize("isa", _core.isas)
    def test_any_of_the_machine_can_be_forced(self, isa):
        found = run("from splinefm import _core; print(_core.isa)", SPLINEFM_ISA=isa)
        assert found.stdout.strip() == isa, found.stderr

    def test_baseline_is_the_slowest_everywhere(self):
        found = run("from splinefm import _core; print(_core.isa)", SPLINEFM_ISA="baseline")
        assert found.stdout.strip() == _core.isas[0], found.stderr

    def test_an_unknown_one_is_an_error_that_names_those_of_the_machine(self):
        found = run("from splinefm import _core", SPLINEFM_ISA="mmx")
        assert found.returncode == 1
        assert "ImportError: SPLINEFM_ISA must be one of" in found.stderr
        assert ", ".join(_core.isas) in found.stderr and "'mmx'" in found.stderr

    @pytest.mark.skipif(platform.machine() != "x86_64", reason="instruction sets of x86-64")
    def test_one_that_the_machine_lacks_is_an_error(self):
        lacking = {"baseline", "avx2", "avx512"} - set(_core.isas)
        for isa in [*lacking, "neon"]:
            assert "ImportError" in run("from splinefm import _core", SPLINEFM_ISA=isa).stderr


USE_EVERYTHING = """
import numpy as np
import splinefm as sf
table = {"x": np.arange(200.0), "c": ["a", "b"] * 100, "y": [0, 1] * 100}
schema = sf.Schema([sf.Numerical("x", sf.Quantile()), sf.Categorical("c")])
fitted = sf.fit_model(table, "y", schema=schema, model=sf.FM(k=4), training=sf.Training(epochs=1, threads=1))
scorer, index = fitted.scorer(), sf.ItemIndex(fitted, {"c": ["a", "b"]}, ids=["A", "B"])
assert scorer.predict({"x": 3.0, "c": "a"}) == scorer.predict({"x": 3.0, "c": "a"})
assert len(index.top_k({"x": 3.0}, k=1)[0]) == 1
assert sf.shapley_values(fitted, table, background=table).values.shape == (200, 2)
class Cycle: pass
cycle = Cycle()
cycle.itself, cycle.holds = cycle, (fitted, scorer, index)
"""


@pytest.mark.thorough
def test_objects_end_with_the_interpreter():
    found = run(USE_EVERYTHING, SPLINEFM_LEAKS="1")
    assert found.returncode == 0 and "nanobind" not in found.stderr, found.stderr


@pytest.mark.parametrize("tells", [True, False])
def test_an_object_that_stays_is_told_where_it_is_asked_for(tells):
    code = "import ctypes\nfrom splinefm import _core\nctypes.pythonapi.Py_IncRef(ctypes.py_object(_core.IdTable()))"
    found = run(code, **({"SPLINEFM_LEAKS": "1"} if tells else {}))
    assert found.returncode == 0 and ("leaked 1 instances" in found.stderr) == tells, found.stderr


@pytest.mark.skipif(not (ROOT / "cpp").is_dir(), reason="needs the source")
def test_the_stub_is_that_of_the_module(tmp_path):
    stubgen = pytest.importorskip("nanobind.stubgen")
    found = tmp_path / "_core.pyi"
    patterns = ROOT / "cpp" / "bindings" / "stub.patterns"
    command = ["--quiet", "--module", "splinefm._core", "--pattern-file", str(patterns), "--output-file", str(found)]
    subprocess.run([sys.executable, "-m", stubgen.__name__, *command], check=True)
    assert found.read_text() == (ROOT / "src" / "splinefm" / "_core.pyi").read_text(), "run `make stub`"


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_an_instruction_set_leaks_no_code_that_the_linker_may_share(isa):
    """A weak symbol is kept once: outside of the namespace it could be run by a processor that cannot."""
    objects = list(OBJECTS.glob(f"kernels_{isa}.dir/**/*.o"))
    if not objects:
        pytest.skip("no objects: `make native` was not run here")
    listed = subprocess.run(["nm", "--demangle", *map(str, objects)], capture_output=True, text=True, check=True).stdout
    symbols = [line[17:].split(" ", 1) for line in listed.splitlines() if line[16:17] + line[18:19] == "  "]
    symbols = [symbol for symbol in symbols if symbol[0] in "WVu"]
    leaks = [name for kind, name in symbols if f"splinefm::{isa}::" not in name.split("(")[0]]
    assert not leaks, leaks


@pytest.mark.skipif(not (ROOT / "cpp").is_dir(), reason="needs the source")
def test_what_only_prefetches_is_always_inlined():
    """GCC deletes calls of functions without effect, and prefetches are none."""
    headers = [path.read_text() for path in (ROOT / "cpp" / "kernels").glob("*.hpp")]
    functions = [line for text in headers for line in re.findall(r"^.*\bvoid fetch\w*\(.*", text, re.MULTILINE)]
    assert len(functions) > 5
    assert [line for line in functions if "[[gnu::always_inline]]" not in line] == []


def numbers(k):
    return arrays(np.float32, k, elements=st.floats(-1e6, 1e6, width=32))


def by_halves(a):
    return by_halves(a[: len(a) // 2] + a[len(a) // 2 :]) if len(a) > 1 else a[0]


@given(st.data(), st.sampled_from([4, 8, 16, 32]))
def test_vectors_are_those_of_numpy_to_the_bit(data, k):
    a, b = data.draw(numbers(k)), data.draw(numbers(k))
    with np.errstate(all="ignore"):
        expected = [a + b, a - b, a * b, a / b, b[0] * a, np.sqrt(a), np.abs(a), np.where(a > b, a, b)]
    np.testing.assert_array_equal(_core.probe_vec(a, b), [*np.concatenate(expected), by_halves(a)])


@pytest.mark.parametrize("isa", _core.isas)
def test_sums_are_the_same_on_every_instruction_set(isa):
    code = """
import numpy as np
from splinefm import _core
a = np.random.default_rng(0).normal(size=32).astype(np.float32)
print(_core.probe_vec(a, a).tobytes().hex())
"""
    a = np.random.default_rng(0).normal(size=32).astype(np.float32)
    assert run(code, SPLINEFM_ISA=isa).stdout.strip() == _core.probe_vec(a, a).tobytes().hex()


def totals(team, jobs):
    team.run(jobs)
    return team.found()


@examples(30)
@given(st.integers(1, 6), st.integers(0, 40), st.integers(0, 200))
def test_a_team_does_each_part_of_each_job_once(threads, parts, jobs):
    assert totals(_core.ProbeTeam(threads, parts), jobs) == [jobs * i for i in range(parts)]


def test_callers_of_one_team_take_turns():
    team = _core.ProbeTeam(3, 7)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: team.run(500), range(8)))
    assert team.found() == [4000 * i for i in range(7)]


def test_teams_of_several_callers_at_once():
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: totals(_core.ProbeTeam(3, 7), 500), range(8)))
    assert found == [[500 * i for i in range(7)]] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_team_works_in_a_child_of_its_process():
    """Its threads do not: a fork copies the one that calls it alone."""
    code = """
import os
from splinefm import _core
team = _core.ProbeTeam(3, 5)
team.run(100)
child = os.fork()
if child == 0:
    team.run(100)
    os._exit(team.found() != [200 * i for i in range(5)])
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
team.run(50)
assert team.found() == [150 * i for i in range(5)]
"""
    found = run(code)
    assert found.returncode == 0, found.stderr


def test_a_team_needs_a_thread():
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        _core.ProbeTeam(0, 1)


def test_denormal_numbers_are_zero_inside_and_themselves_outside():
    assert _core.probe_product(1e-30, 1e-10) == 0.0
    assert np.float32(1e-30) * np.float32(1e-10) > 0.0
