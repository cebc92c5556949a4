"""The installed library, its CMake package, and the programs in examples/ that use it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import splinefm as sf
from c_library import BUILD, INSTALLED, LIBRARY, PREFIX
from support import random_fitted

EXAMPLES = Path(__file__).parents[2] / "examples"
CMAKE = shutil.which("cmake", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
ROW = {"recency": 3.5, "country": "US", "device": None}

pytestmark = pytest.mark.skipif("SPLINEFM_SANITIZED" in os.environ, reason="programs without sanitizers")


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built; `make native` does")
    if CMAKE is None:
        pytest.skip("cmake is not installed")
    if INSTALLED:
        return PREFIX
    folder = tmp_path_factory.mktemp("installed")
    run(CMAKE, "--install", BUILD, "--component", "library", "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    schema = sf.Schema([sf.Numerical("recency", sf.MinMax()), sf.Categorical("country"), sf.Categorical("device")])
    table = {"recency": [0.0, 10.0], "country": ["US", "FR"], "device": ["phone", None]}
    fitted = random_fitted(sf.FwFM(k=4), schema, table)
    path = tmp_path_factory.mktemp("model") / "model.sfs"
    fitted.export_scorer(path)
    return fitted, path


def check(output, fitted):
    score, prediction = map(float, output.split())
    assert score == fitted.scorer()(ROW)
    assert prediction == fitted.scorer().predict(ROW)


def check_ranking(program, fitted, path, *options):
    for ids in ([30, 10, 20], ["näher", "b", "a b"]):
        index = sf.ItemIndex(fitted, {"country": ["US", "FR", "US"]}, ids=ids)
        fitted.export_scorer(path, index=index)
        output = run(program, path, *options, "recency=3.5", "device=")
        found = [line.split("\t") for line in output.splitlines()]
        best, scores = index.top_k({"recency": 3.5, "device": None}, 9)
        assert [name for name, _ in found] == [str(name) for name in best.tolist()]
        assert [np.float32(score) for _, score in found] == scores.tolist()


def arguments(row):
    return [f"{name}={'' if value is None else value}" for name, value in row.items()]


def test_the_library_is_installed(prefix):
    assert (prefix / "include" / "splinefm.h").exists()
    assert list(prefix.glob("lib*/**/libsplinefm.so"))
    assert list(prefix.glob("lib*/cmake/splinefm/splinefm-config.cmake"))
    assert INSTALLED or not list(prefix.glob("**/_core*"))


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="no C compiler")
def test_the_c_program(prefix, model, tmp_path):
    fitted, path = model
    ninja = ["-G", "Ninja"] if shutil.which("ninja") else []
    run(
        CMAKE,
        *ninja,
        "-S",
        EXAMPLES / "c",
        "-B",
        tmp_path,
        f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_C_FLAGS=-Wall -Werror",
    )
    run(CMAKE, "--build", tmp_path)
    check(run(tmp_path / "score", path, *arguments(ROW)), fitted)
    wrong = subprocess.run([tmp_path / "score", path, "recency=1"], capture_output=True, text=True)
    assert wrong.returncode == 1
    assert "column 'country' has no value" in wrong.stderr
    check_ranking(tmp_path / "rank", fitted, tmp_path / "ranked.sfs", "9")
    refused = [tmp_path / "rank", tmp_path / "ranked.sfs", "9", "country=US"]
    assert "no column 'country'" in subprocess.run(refused, capture_output=True, text=True).stderr


@pytest.mark.thorough  # the compiler of Go takes seconds; the C program uses the same library
@pytest.mark.skipif(not shutil.which("go"), reason="go is not installed")
def test_the_go_program(prefix, model, tmp_path):
    fitted, path = model
    (lib,) = {found.parent for found in prefix.glob("lib*/libsplinefm.so")}
    flags = {"CGO_CFLAGS": f"-I{prefix}/include", "CGO_LDFLAGS": f"-L{lib} -Wl,-rpath,{lib}", "CGO_ENABLED": "1"}
    command = ["go", "build", "-o", tmp_path / "score", "."]
    run(*command, cwd=EXAMPLES / "go", env={**os.environ, **flags, "GOFLAGS": "-mod=mod"})
    check(run(tmp_path / "score", path, *arguments(ROW)), fitted)
    check_ranking(tmp_path / "score", fitted, tmp_path / "ranked.sfs")
