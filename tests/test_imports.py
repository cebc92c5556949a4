"""The import rule of the package, and how light it is."""

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "splinefm"
# What each folder may import beside itself: the path of the data comes first, then what people do with a fitted model
# (these folders do not know each other), then the entry points.
PATH = ["encode", "model", "bounds", "train", "metrics", "search", "store", "update", "fit", "tuning"]
USES = ["inspect", "rank", "export", "distribute"]
ENTRY_POINTS = ["plots", "explore", "serve", "cli"]
ALLOWED = {folder: PATH[:i] for i, folder in enumerate(PATH)}
ALLOWED |= dict.fromkeys(USES, PATH)
ALLOWED |= {folder: PATH + USES + ENTRY_POINTS[:i] for i, folder in enumerate(ENTRY_POINTS)}
SHARED = {"_arrays", "_cached", "_checks", "_core", "_files", "_memory", "_parallel", "_wording"}
OPTIONAL = [
    "torch",
    "torchrec",
    "optuna",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "fastapi",
    "starlette",
    "uvicorn",
    "faiss",
    "shap",
    "msgspec",
    "httptools",
    "uvloop",
    "prometheus_client",
    "opentelemetry",
    "mpld3",
    "playwright",
]
FOLDERS_OF = {"torch": ("model/torch/", "distribute/"), "torchrec": ("distribute/",)}
# The imports against the order of the folders: methods that users look for on the model that they hold, such as
# `Fitted.segment`, and `feature_importances_` of estimators. They import when they are called.
LATE_IMPORTS = [
    ("train/fitted.py", "splinefm.export.libffm"),
    ("train/fitted.py", "splinefm.export.onnx.model"),
    ("train/fitted.py", "splinefm.export.scorer"),
    ("train/fitted.py", "splinefm.export.tables"),
    ("train/fitted.py", "splinefm.inspect.certificates"),
    ("train/fitted.py", "splinefm.inspect.curves"),
    ("train/fitted.py", "splinefm.inspect.segment"),
    ("train/fitted.py", "splinefm.serve.scorer"),
    ("train/fitted.py", "splinefm.store.model_file"),
    ("fit/estimators.py", "splinefm.inspect.shapley"),
    ("fit/estimators.py", "splinefm.inspect.terms"),
    ("distribute/__main__.py", "splinefm.cli.worker"),
]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def is_of_interest(node: ast.AST) -> bool:
    """Return whether a node is an import, or takes a private name from something that has a name."""
    if isinstance(node, ast.Attribute):
        return node.attr.startswith("_") and isinstance(node.value, ast.Name)
    return isinstance(node, ast.Import | ast.ImportFrom)


def nodes_of_interest(tree: ast.Module) -> list[ast.AST]:
    return [node for node in ast.walk(tree) if is_of_interest(node)]


@cache
def nodes_of_file(path: Path) -> list[ast.AST]:
    """`nodes_of_interest` of a module: walking through all of them takes a second."""
    return nodes_of_interest(parsed(path))


@cache
def imported_modules(path: Path) -> list[str]:
    modules = []
    for node in nodes_of_file(path):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            inside = node.module == "splinefm"  # of which modules are imported, and no names
            modules += [f"splinefm.{alias.name}" for alias in node.names] if inside else [node.module or ""]
    return modules


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_imports_only_what_comes_before_it(folder):
    allowed = {folder, *ALLOWED[folder], *SHARED}
    for path in [SOURCE / f"{folder}.py"] if folder == "metrics" else (SOURCE / folder).rglob("*.py"):
        where = path.relative_to(SOURCE).as_posix()
        for name in imported_modules(path):
            if name.split(".")[0] != "splinefm" or (where, name) in LATE_IMPORTS:
                continue
            assert name != "splinefm", f"{where} imports the package itself, which imports everything"
            assert name.split(".")[1] in allowed, f"{where} imports {name}"


def test_every_folder_has_a_rule():
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("_")}
    assert folders | modules == set(ALLOWED)
    shared = {path.stem for path in SOURCE.glob("_*.py")} - {"__init__", "__main__"}
    assert shared == SHARED - {"_core"}


def private_names_of_others(nodes: list[ast.AST]) -> list[str]:
    """Names with one leading underscore that a module takes from other modules of the package."""
    found, aliases = [], {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "splinefm":
            # Modules such as splinefm._core are private to the package, not to each other.
            names = [alias.name for alias in node.names if alias.name.startswith("_") and node.module != "splinefm"]
            found += [f"{node.module}.{name}" for name in names]
            aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            dotted = [alias for alias in node.names if alias.name.split(".")[0] == "splinefm"]
            aliases |= {alias.asname: alias.name for alias in dotted if alias.asname is not None}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.value.id in aliases and not node.attr.startswith("__"):
            module = aliases[node.value.id]
            if (SOURCE.parent / module.replace(".", "/")).with_suffix(".py").exists():
                found.append(f"{module}.{node.attr}")
    return found


def test_private_names_do_not_cross_modules():
    taken = {path: private_names_of_others(nodes_of_file(path)) for path in SOURCE.rglob("*.py")}
    assert not {path.relative_to(SOURCE).as_posix(): names for path, names in taken.items() if names}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from splinefm.train.fitted import _check", ["splinefm.train.fitted._check"]),
        ("from splinefm.train import fitted\nfitted._check()", ["splinefm.train.fitted._check"]),
        ("import splinefm.train.fitted as module\nmodule._check()", ["splinefm.train.fitted._check"]),
        ("from splinefm._core import Engine\nfrom splinefm.train.fitted import Fitted\nFitted._x", []),
        ("from splinefm.train import fitted\nfitted.__doc__", []),
    ],
)
def test_private_names_are_found(code, names):
    assert private_names_of_others(nodes_of_interest(ast.parse(code))) == names


def test_an_optional_package_is_imported_in_one_module():
    """Or in the modules of a folder that is for it."""
    users: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for name in imported_modules(path):
            package, where = name.split(".")[0], path.relative_to(SOURCE).as_posix()
            if package in OPTIONAL and not where.startswith(FOLDERS_OF.get(package, ())):
                users.setdefault(package, set()).add(where)
    assert "torch" not in users and all(len(paths) == 1 for paths in users.values()), users


def test_every_public_name_exists_and_unknown_ones_do_not():
    import splinefm

    for name in splinefm.__all__:
        assert getattr(splinefm, name).__doc__, name
    for name in splinefm.metrics.__all__:
        assert getattr(splinefm.metrics, name).__doc__, name
    assert set(splinefm.__all__) <= set(dir(splinefm))
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = splinefm.Nonsense


# What a process has loaded

STEPS = {
    "nothing": "",
    "the package": "import splinefm as sf",
    # Values from a Python list would make pyarrow itself import pandas.
    "an Arrow table": """
import pyarrow as pa
from splinefm.encode.tables.open import open_table
list(open_table(pa.table({"a": pa.nulls(3)})).chunks())
""",
    "a first fit": """
import numpy as np
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
""",
    # Lists make pyarrow import pandas: after the fit.
    "encoded numbers": """
table = {"x": [float(i) for i in range(99)], "c": ["a", "b", "c"] * 33}
sf.fit_encoder(sf.infer_schema(table), table).encode(table)
""",
    "ItemIndex": "sf.ItemIndex",
    "estimators": "import splinefm.fit.estimators",
    "tune": "sf.tune",
    "view": """
import contextlib, io
from splinefm.cli.main import main
fitted.save("model.sfm")
sys.argv = ["splinefm", "view", "model.sfm", "--along", "bell"]
with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
    main()
assert "bell" in out.getvalue()
""",
    "names of plots": 'assert {"metrics", "plots"} <= {*dir(sf)} and "plots" not in sf.__all__',
    "a plot": 'sf.plots.calibration([0, 1], [0.2, 0.7]).figure.savefig("/dev/null", format="png")',
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The modules that a process has loaded after each step; a process for each would take most of the time."""
    code = "import json, sys\nfound = {}\n"
    for name, step in STEPS.items():
        code += f"{step}\nfound[{name!r}] = list(sys.modules)\n"
    folder = tmp_path_factory.mktemp("loaded")
    command = [sys.executable, "-W", "error", "-c", code + "print(json.dumps(found))"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {name: set(modules) for name, modules in json.loads(done.stdout).items()}


def test_importing_the_package_loads_no_other(loaded):
    """Names are looked up when they are used; `benchmarks/startup.py` has the time."""
    new = {name.split(".")[0] for name in loaded["the package"] - loaded["nothing"]} - sys.stdlib_module_names
    assert new == {"splinefm"}


@pytest.mark.parametrize(
    ("step", "not_needed"),
    [
        ("an Arrow table", ["pandas", "polars", "pyarrow.dataset", "pyarrow.csv", "pyarrow.parquet"]),
        # Modules that take as long to load as the fit takes.
        ("a first fit", ["pandas", "scipy.optimize", "scipy.stats", "sklearn"]),
        ("encoded numbers", [*OPTIONAL, "polars", "sklearn", "scipy.stats"]),
        ("ItemIndex", ["faiss"]),
        ("tune", ["optuna"]),
        ("view", ["matplotlib"]),
        ("names of plots", ["matplotlib"]),
        ("a plot", ["matplotlib.pyplot", "tkinter"]),
    ],
)
def test_nothing_is_loaded_in_vain(loaded, step, not_needed):
    assert loaded[step].isdisjoint(not_needed)


def test_late_imports_are_late(loaded):
    late = ("splinefm.inspect", "splinefm.serve", "splinefm.export")
    assert not [name for name in loaded["estimators"] if name.startswith(late)]
