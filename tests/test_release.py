"""What a release promises about versions, files and licenses is what the project's files say."""

import re
import tomllib
from pathlib import Path

import pytest

import splinefm as sf

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPTIONAL = PROJECT["project"]["optional-dependencies"]
FOR_USERS = ("plots", "explore", "onnx", "faiss", "tune", "serve")
LOWER_BOUND = re.compile(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)(?:;.*)?")


def lower_bounds(*extras):
    requirements = [*PROJECT["project"]["dependencies"]]
    requirements += [item for extra in extras for item in OPTIONAL.get(extra, [])]
    matches = [LOWER_BOUND.fullmatch(item) for item in requirements]
    assert all(matches), f"each has a lower bound and no other: {requirements}"
    return {match[1]: match[2] for match in matches}


def pins(name):
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_the_oldest_versions_are_the_lower_bounds():
    oldest = pins("constraints-oldest.txt")
    expected = lower_bounds(*FOR_USERS, "test")
    assert {name: oldest.get(name) for name in expected} == expected


def test_all_dependencies_are_pinned():
    pinned = {re.sub(r"[-_.]+", "-", name).lower() for name in pins("constraints.txt")}
    expected = {re.sub(r"[-_.]+", "-", name).lower() for name in lower_bounds(*FOR_USERS, "test", "build", "release")}
    assert expected <= pinned


def test_the_list_of_licenses_has_the_pinned_version_of_every_dependency():
    listed = dict(
        re.findall(r"^\| \*\*([\w.-]+)\*\* \| (\S+) \| \S", (ROOT / "docs" / "licenses.md").read_text(), re.M)
    )
    pinned = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins("constraints.txt").items()}
    expected = {re.sub(r"[-_.]+", "-", name).lower() for name in lower_bounds(*FOR_USERS)}
    assert {name: listed.get(name) for name in expected} == {name: pinned[name] for name in expected}, "make licenses"


def test_licenses_of_what_is_compiled_in_go_with_it():
    assert PROJECT["project"]["license-files"] == ["LICENSE", "licenses/*"]
    names = {path.stem for path in (ROOT / "licenses").iterdir()}
    assert names == {"nanobind", "robin-map", "llvm", "zig"}


def test_supported_pythons_are_the_same_everywhere():
    classifiers = PROJECT["project"]["classifiers"]
    versions = [item.rpartition(" :: ")[2] for item in classifiers if re.search(r":: 3\.\d+$", item)]
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"
    assert f"Python | {versions[0]} to {versions[-1]};" in (ROOT / "docs" / "upgrading.md").read_text()
    workflow = ROOT / ".github" / "workflows" / "ci.yml"
    if workflow.exists():  # not in a source distribution
        assert f"python: {versions}".replace("'", '"') in workflow.read_text()


def test_the_version_is_one_that_installers_understand():
    version = pytest.importorskip("packaging.version").Version(sf.__version__)
    assert str(version) == sf.__version__
    heading = re.search(r"^## (\S+) \(", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert heading[1] == version.base_version
