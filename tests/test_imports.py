"""The import rule of the package, and how light it is."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "splinefm"
# What each folder may import beside itself. The path of the data comes first; the folders that a fitted model is good
# for do not know each other; the doors come last.
PATH = ["encode", "model", "learn"]
GOOD_FOR = ["view", "explain", "rank", "export"]
DOORS_LAST = ["plots", "serve", "report", "cli"]
ALLOWED = {folder: PATH[:place] for place, folder in enumerate(PATH)}
ALLOWED |= dict.fromkeys(GOOD_FOR, PATH)
ALLOWED |= {folder: PATH + GOOD_FOR + DOORS_LAST[:place] for place, folder in enumerate(DOORS_LAST)}
SHARED = {"_checks", "_core", "_memory", "_parallel", "_wording"}
MOST_MODULES, MOST_LINES = 15, 400
OPTIONAL = [
    "torch",
    "optuna",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "fastapi",
    "starlette",
    "uvicorn",
    "faiss",
    "shap",
]
# The imports against the order of the folders, `Fitted.segment`, `Fitted.scorer` and the `feature_importances_` of
# estimators: doors for users, who look for such things on the model that they hold. They are taken when called, so that
# modules need each other in one direction only.
DOORS = [
    ("learn/fitted.py", "splinefm.view.curves"),
    ("learn/fitted.py", "splinefm.view.segment"),
    ("learn/fitted.py", "splinefm.view.surfaces"),
    ("learn/fitted.py", "splinefm.serve.scorer"),
    ("learn/fitted.py", "splinefm.export.libffm"),
    ("learn/fitted.py", "splinefm.export.onnx.model"),
    ("learn/fitted.py", "splinefm.export.scorer"),
    ("learn/fitted.py", "splinefm.export.tables"),
    ("learn/estimators/importances.py", "splinefm.explain.inputs"),
    ("learn/estimators/importances.py", "splinefm.explain.shapley"),
]


@cache
def imported_modules(path: Path) -> list[str]:
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            modules.append(node.module or "")
    return modules


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_imports_only_what_comes_before_it(folder):
    allowed = {folder, *ALLOWED[folder], *SHARED}
    for path in (SOURCE / folder).rglob("*.py"):
        where = path.relative_to(SOURCE).as_posix()
        for name in imported_modules(path):
            if name.split(".")[0] != "splinefm" or (where, name) in DOORS:
                continue
            assert name != "splinefm", f"{where} imports the package itself, which imports everything"
            assert name.split(".")[1] in allowed, f"{where} imports {name}"


def test_every_folder_has_a_rule():
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(ALLOWED)
    shared = {path.stem for path in SOURCE.glob("_*.py")} - {"__init__", "__main__"}
    assert shared == SHARED - {"_core"}


def test_no_folder_is_too_large_to_overlook():
    for folder in {path.parent for path in SOURCE.rglob("*.py")}:
        modules = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= MOST_MODULES, f"{folder.name} has {len(modules)} modules; make two folders of it"


def test_long_modules_say_why():
    """A module over 400 lines has a line in its docstring that starts with "Long because"."""
    long = {path: path.read_text().count("\n") for path in SOURCE.rglob("*.py")}
    long = {path: n_lines for path, n_lines in long.items() if n_lines > MOST_LINES}
    told = [path for path in long if "\nLong because" in (ast.get_docstring(ast.parse(path.read_text())) or "")]
    assert not {path.relative_to(SOURCE).as_posix(): n_lines for path, n_lines in long.items() if path not in told}


def private_names_of_others(tree: ast.Module) -> list[str]:
    """Names with one leading underscore that a module takes from other modules of the package."""
    found, aliases = [], {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "splinefm":
            # Modules such as splinefm._core are private to the package, not to each other.
            names = [alias.name for alias in node.names if alias.name.startswith("_") and node.module != "splinefm"]
            found += [f"{node.module}.{name}" for name in names]
            aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            dotted = [alias for alias in node.names if alias.name.split(".")[0] == "splinefm"]
            aliases |= {alias.asname: alias.name for alias in dotted if alias.asname is not None}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            module = aliases[node.value.id]
            is_module = (SOURCE.parent / module.replace(".", "/")).with_suffix(".py").exists()
            if is_module and node.attr.startswith("_") and not node.attr.startswith("__"):
                found.append(f"{module}.{node.attr}")
    return found


def test_private_names_do_not_cross_modules():
    taken = {path: private_names_of_others(ast.parse(path.read_text())) for path in SOURCE.rglob("*.py")}
    assert not {path.relative_to(SOURCE).as_posix(): names for path, names in taken.items() if names}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from splinefm.learn.fitted import _check", ["splinefm.learn.fitted._check"]),
        ("from splinefm.learn import fitted\nfitted._check()", ["splinefm.learn.fitted._check"]),
        ("import splinefm.learn.fitted as module\nmodule._check()", ["splinefm.learn.fitted._check"]),
        ("from splinefm._core import Engine\nfrom splinefm.learn.fitted import Fitted\nFitted._x", []),
        ("from splinefm.learn import fitted\nfitted.__doc__", []),
    ],
)
def test_private_names_are_found(code, names):
    assert private_names_of_others(ast.parse(code)) == names


def test_the_door_to_the_views_is_not_taken_by_an_import():
    code = """
import sys
import splinefm.learn.estimators.classifier, splinefm.learn.estimators.regressor
doors = ("splinefm.view", "splinefm.serve", "splinefm.explain", "splinefm.export")
loaded = [name for name in sys.modules if name.startswith(doors)]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_optional_package_is_imported_in_one_module():
    users: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for name in imported_modules(path):
            if name.split(".")[0] in OPTIONAL:
                users.setdefault(name.split(".")[0], set()).add(path.name)
    assert all(len(paths) == 1 for paths in users.values()), users


def test_importing_the_package_loads_no_other():
    """Names are looked up when they are used; `benchmarks/startup.py` has the time."""
    code = """
import sys
before = set(sys.modules)
import splinefm
loaded = {name.split(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names
assert loaded == {"splinefm"}, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_encoding_numbers_loads_no_optional_package():
    code = f"""
import sys
import splinefm as sf
table = {{"x": [float(i) for i in range(99)], "c": ["a", "b", "c"] * 33}}
sf.fit_encoder(sf.infer_schema(table), table).encode(table)
loaded = [name for name in {[*OPTIONAL, "polars", "sklearn", "scipy.stats"]} if name in sys.modules]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_first_fit_loads_nothing_in_vain():
    """Modules that take as long to load as the fit takes."""
    code = """
import sys
import numpy as np
import splinefm as sf

rng = np.random.default_rng(0)
x = rng.normal(size=(300, 3))
x[::7, 2] = np.nan
table = {
    "bell": np.ascontiguousarray(x[:, 0]),
    "strided": x[:, 1],
    "gaps": x[:, 2],
    "tail": np.exp(3.0 * x[:, 1]) - 1.0,
    "share": rng.random(300) ** 3,
    "whole": rng.integers(0, 5, 300),
    "flag": x[:, 0] > 0.0,
    "text": rng.choice(["a", "\u00e9", "\u65e5"], 300),
}
training = sf.Training(epochs=1, threads=1)
for y in (x[:, 1] > 0.0, np.where(x[:, 1] > 0.0, "yes", "no"), np.where(x[:, 1] > 0.0, 1, -1)):
    fitted = sf.fit_model(table | {"y": y}, "y", model=sf.FM(k=2), training=training)
fitted.scores(table)
loaded = [name for name in ("pandas", "scipy.optimize", "scipy.stats", "sklearn") if name in sys.modules]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_exists_and_unknown_ones_do_not():
    import splinefm

    for name in splinefm.__all__:
        assert getattr(splinefm, name).__doc__, name
    assert set(splinefm.__all__) <= set(dir(splinefm))
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = splinefm.Nonsense
