"""Install a wheel where nothing else is, and try it: `make wheel-try` and `make wheel-test`.

1. The wheel has what it should have: the module, libsplinefm with its header and CMake package, pages, types, licenses;
   and nothing else that is compiled.
2. In a new environment, with no program on the path and so no compiler, `splinefm demo` fits, draws and saves.
3. The C library of the wheel opens a scorer file of that model, without the package.
4. With `--tests`: the tests that need no source run against it, from a copy outside of the repository.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULE = re.compile(r"splinefm/_core\.(abi3|cpython-3\d+-[\w-]+)\.so")
NEEDED = (
    "splinefm/_core.pyi",
    "splinefm/py.typed",
    "splinefm/lib/libsplinefm.so",
    "splinefm/lib/cmake/splinefm/splinefm-config.cmake",
    "splinefm/lib/cmake/splinefm/splinefm-config-version.cmake",
    "splinefm/include/splinefm.h",
)
# What the package reads at run time: every file of src/ that git knows.
SOURCES = ROOT / "src"
LIBRARY = """
import ctypes, pathlib, sys, sysconfig
path = pathlib.Path(sysconfig.get_path("platlib")) / "splinefm" / "lib" / "libsplinefm.so"
library, scorer, error = ctypes.CDLL(str(path)), ctypes.c_void_p(), ctypes.create_string_buffer(512)
if library.sfm_open(sys.argv[1].encode(), ctypes.byref(scorer), error):
    sys.exit(error.raw[4:].partition(bytes(1))[0].decode())
library.sfm_instruction_set.restype = ctypes.c_char_p
assert library.sfm_n_columns(scorer) > 0 and "splinefm" not in sys.modules
print(f"libsplinefm: ABI {library.sfm_abi_version()}, {library.sfm_instruction_set().decode()}")
"""
EXTRAS = "plots,onnx,faiss,tune,serve,explore,test"
# Tests of packages that cannot be imported are skipped: old versions may not go together.
MODULES = "faiss, hypothesis, lightgbm, matplotlib, mpld3, msgspec, onnx, onnxruntime, optuna, pandas, polars, shap"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=sys.executable, help="the Python to install it for")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "wheel-try", help="is removed and made anew")
    parser.add_argument("--constraints", type=Path, default=ROOT / "constraints.txt")
    parser.add_argument("--extras", default=EXTRAS, help="what --tests installs; other tests are skipped")
    parser.add_argument(
        "--tests", nargs="*", metavar="TEST", help="run tests, all or those given, such as tests/native"
    )
    arguments = parser.parse_args()
    check_contents(arguments.wheel)
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)
    trial = Trial(arguments.wheel.resolve(), arguments.folder.resolve(), arguments.constraints.resolve())
    trial.make_environment(arguments.python)
    trial.install("plots")
    trial.run_demo()
    trial.run_library()
    if arguments.tests is not None:
        trial.install(arguments.extras)
        if arguments.extras == EXTRAS:
            trial.run("-c", f"import {MODULES}")
        trial.run_tests(arguments.tests)


def check_contents(wheel: Path) -> None:
    """Raise unless the wheel has what is needed, and only that."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    modules = [name for name in names if MODULE.fullmatch(name)]
    compiled = [name for name in names if name.endswith((".so", ".a", ".pyc", ".o")) or ".so." in name]
    sources = [path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*") if path.is_file()]
    sources = [name for name in sources if "__pycache__" not in name and not name.endswith((".so", ".pyc"))]
    missing = sorted({*NEEDED, *sources} - set(names))
    licenses = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    missing += sorted({"LICENSE", *(path.name for path in (ROOT / "licenses").iterdir())} - licenses)
    strange = sorted(set(compiled) - {"splinefm/lib/libsplinefm.so", *modules})
    strange += sorted(name for name in names if not name.startswith(("splinefm/", "splinefm-")))
    if missing or strange or len(modules) != 1:
        sys.exit(f"{wheel.name}: missing: {missing}; should not be there: {strange}; modules: {modules}")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(names)} files, {modules[0]}", flush=True)


class Trial:
    """An environment with the wheel."""

    def __init__(self, wheel: Path, folder: Path, constraints: Path) -> None:
        self.wheel, self.folder, self.constraints = wheel, folder, constraints
        self.python = folder / "environment" / "bin" / "python"
        (folder / "empty").mkdir()

    def make_environment(self, python: str) -> None:
        """Make an environment without pip, which would be one more package; this script's pip installs into it."""
        subprocess.run([python, "-m", "venv", "--without-pip", str(self.folder / "environment")], check=True)

    def install(self, extras: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check"]
        command += ["install", "--quiet", "--only-binary=:all:", "--constraint", str(self.constraints)]
        subprocess.run([*command, f"splinefm[{extras}] @ {self.wheel.as_uri()}"], check=True)

    def run(self, *command: str, program: str = "python") -> str:
        """Run a program of the environment, with no other on its path, in an empty folder; what it has printed."""
        environment = {"PATH": str(self.folder / "empty"), "HOME": str(self.folder), "LANG": "C.UTF-8"}
        full = [str(self.python.parent / program), *command]
        done = subprocess.run(full, cwd=self.folder / "empty", env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(full[:3])} failed:\n{done.stdout}{done.stderr}")
        if program == "python":
            print(done.stdout, end="", flush=True)
        return done.stdout

    def run_demo(self) -> None:
        begin = time.perf_counter()
        out = self.folder / "demo"
        result = json.loads(self.run("demo", "--out", str(out), "--json", program="splinefm"))
        pictures, models = list(out.glob("*.png")), list(out.glob("*.sfm"))
        if not pictures or not models:
            sys.exit(f"splinefm demo has left no picture or no model: {sorted(out.iterdir())}")
        version = self.run("--version", program="splinefm").strip()
        print(f"{version} demo: {time.perf_counter() - begin:.1f} s, {', '.join(sorted(result))}", flush=True)

    def run_library(self) -> None:
        """Open a scorer file in a process that does not import the package."""
        scorer = self.folder / "demo.sfs"
        model = next((self.folder / "demo").glob("*.sfm"))
        self.run("export", str(model), "--to", "scorer", "--out", str(scorer), program="splinefm")
        self.run("-c", LIBRARY, str(scorer))

    def run_tests(self, chosen: list[str]) -> None:
        """Copy what the tests need, but no source, and run them."""
        outside = self.folder / "outside"
        for name in ("tests", "examples"):
            shutil.copytree(ROOT / name, outside / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
        shutil.copy(ROOT / "pyproject.toml", outside)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [str(self.python), "-m", "pytest", "-q", "--numprocesses", "2", "--dist", "worksteal"]
        command += chosen or ["tests", "--pyargs", "splinefm"]
        done = subprocess.run(command, cwd=outside, env=environment)
        if done.returncode:
            sys.exit(done.returncode)


if __name__ == "__main__":
    main()
