"""How deep the tests go (see support.py)."""

import gc
from pathlib import Path
from typing import IO
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from support import SANITIZED, THOROUGH

pytest.register_assert_rewrite("battery")

# They have no doctests, and as modules would all have one name.
collect_ignore_glob = ["conftest.py", "*/conftest.py"]

# `make wheel-test` runs a copy of the tests: these read the source, the guide, the benchmarks or the paper's scripts.
if not Path(__file__).parents[1].joinpath("src").is_dir():
    collect_ignore_glob += [
        "test_accuracy.py",
        "test_benchmarks.py",
        "test_docs.py",
        "test_imports.py",
        "test_release.py",
    ]
    collect_ignore_glob += ["cli/test_guide.py", "paper", "serve/test_hourly_loop.py"]

# Collecting creates many objects that all stay: looking for garbage among them takes a fifth of the time.
gc.disable()

# No deadline: other processes may delay an example by any time. A battery runs for several engines.
COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.differing_executors]}
settings.register_profile("quick", max_examples=5, **COMMON)
settings.register_profile("thorough", max_examples=100, **COMMON)
settings.load_profile("thorough" if THOROUGH else "quick")


# Functions with more cases than these, such as products of models and bases, run a third of them by default.
MANY_CASES = 6


@pytest.fixture
def empty_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save figures as empty files, for tests of the words and files around them: drawing takes most of the time."""

    def savefig(figure: object, file: IO[bytes] | str | Path, *, format: str = "", **options: object) -> None:
        content = b'<svg viewBox="0 0 1 1"><style></style></svg>' if format == "svg" else b"empty"
        Path(file).write_bytes(content) if isinstance(file, str | Path) else file.write(content)

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)
    monkeypatch.setattr("splinefm.plots.draw.surfaces._CELLS", 10)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # little of what a test makes is in cycles
    gc.enable()


def is_in_sample_of_battery(item: pytest.Item) -> bool:
    """Return whether a test of a battery runs in a quick run: see `EngineBattery.sampled`."""
    indices = getattr(getattr(item, "callspec", None), "indices", {})
    product = getattr(getattr(item, "cls", None), "sampled", False) and {"model", "loss"} <= indices.keys()
    return not product or sum(indices.values()) % 7 == 0


def a_third_of_many(items: list[pytest.Item]) -> list[pytest.Item]:
    """Keep one in three cases of the functions that have many, always the same ones, and the first."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        families.setdefault(item.nodeid.split("[")[0], []).append(item)
    kept = set()
    for cases in families.values():
        few = len(cases) <= MANY_CASES
        kept |= {case for case in cases if few or case is cases[0] or crc32(case.nodeid.encode()) % 3 == 0}
    return [item for item in items if item in kept]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if THOROUGH:
        return
    chosen = [item for item in items if is_in_sample_of_battery(item)]
    is_asked_for = config.option.keyword or any("::" in argument for argument in config.args)
    if not is_asked_for and not SANITIZED:  # sanitizers see the code that runs, and CI runs them once
        chosen = a_third_of_many(chosen)
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen
    skip = pytest.mark.skip(reason="runs with make test THOROUGH=1 (SPLINEFM_THOROUGH=1)")
    for item in items:
        if item.get_closest_marker("thorough"):
            item.add_marker(skip)
