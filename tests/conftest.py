"""How deep the tests go (see support.py)."""

import gc
from collections.abc import Generator
from pathlib import Path
from typing import IO
from zlib import crc32

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from support import SANITIZED, THOROUGH

pytest.register_assert_rewrite("battery")

collect_ignore_glob: list[str] = []

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


# Functions with more cases than these, such as products of models and bases, run an eighth of them by default.
FEW_CASES = 2
ONE_IN = 8


@pytest.fixture
def empty_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save figures as empty files, for tests of the words and files around them: drawing takes most of the time."""

    def savefig(figure: object, file: IO[bytes] | str | Path, *, format: str = "", **options: object) -> None:
        content = b'<svg viewBox="0 0 1 1"><style></style></svg>' if format == "svg" else b"empty"
        Path(file).write_bytes(content) if isinstance(file, str | Path) else file.write(content)

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)
    monkeypatch.setattr("splinefm.plots.surfaces._CELLS", 10)


class OnlyModulesWithDoctests:
    """Without it all modules would be imported and searched for doctests, the tests' modules twice."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        found = yield
        has_some = file_path.suffix != ".py" or ">>>" in file_path.read_text(encoding="utf-8")
        return [item for item in found if has_some or not isinstance(item, DoctestModule)]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(OnlyModulesWithDoctests())  # of src/, too, unlike the hooks of this module


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


def an_eighth_of_many(items: list[pytest.Item]) -> list[pytest.Item]:
    """Keep one in eight cases of every function, always the same ones, and at least two."""
    families: dict[str, list[pytest.Item]] = {}
    kept = {item for item in items if item.get_closest_marker("thorough")}  # which are skipped
    for item in items:
        if item not in kept:
            families.setdefault(item.nodeid.split("[")[0], []).append(item)
    for cases in families.values():
        # Each function has other ones, so that together they see all models and bases.
        cases.sort(key=lambda case: crc32(case.nodeid.encode()))
        kept.update(cases[: max(FEW_CASES, len(cases) // ONE_IN)])
    return [item for item in items if item in kept]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if THOROUGH:
        return
    chosen = [item for item in items if is_in_sample_of_battery(item)]
    is_asked_for = config.option.keyword or any("::" in argument for argument in config.args)
    if not is_asked_for and not SANITIZED:  # sanitizers see the code that runs, and CI runs them once
        chosen = an_eighth_of_many(chosen)
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen
    skip = pytest.mark.skip(reason="runs with make test THOROUGH=1 (SPLINEFM_THOROUGH=1)")
    for item in items:
        if item.get_closest_marker("thorough"):
            item.add_marker(skip)
