"""Golden files, except models (tests/store/golden): indices, scorer files, schemas, states, sharded models.

    python tests/golden/make_golden_files.py

makes those that do not exist. A file that exists is never made again: when a format changes, raise its number in NAMES,
run this once, and leave the old files alone. `check_all` reads all of them; tests and the determinism campaign call it.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent
if str(FOLDER.parent) not in sys.path:
    sys.path.append(str(FOLDER.parent))

import splinefm as sf  # noqa: E402
from splinefm.store.container import read_container, write_container  # noqa: E402
from support import mixed_schema, mixed_table, random_fitted  # noqa: E402

ITEM_COLUMNS = ("user", "words", "x")
INDICES: dict[str, dict[str, Any]] = {
    "index-format2-vectors": {"form": "vectors"},
    "index-format2-effects": {"form": "effects"},
    "index-format2-float16": {"dtype": "float16"},
    "index-format2-int8": {"dtype": "int8"},
}


def model() -> sf.Fitted:
    """Return the golden model that the other files belong to."""
    return sf.load(FOLDER / "model.sfm")


def rows() -> dict[str, list[Any]]:
    """Return the golden rows."""
    return dict(json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))["rows"])


def answers() -> dict[str, Any]:
    """Return what the files must give to the rows."""
    return dict(json.loads((FOLDER / "answers.json").read_text(encoding="utf-8")))


def items() -> tuple[dict[str, list[Any]], list[str], list[str]]:
    """Return a catalog with ids and groups."""
    table = mixed_table(40, 3)
    return (
        {name: table[name] for name in ITEM_COLUMNS},
        [f"item {i} é" for i in range(40)],
        [f"group {i % 3}" for i in range(40)],
    )


def schema() -> sf.Schema:
    """Return a schema with most settings."""
    return sf.Schema(
        [
            sf.Numerical("x", sf.MinMax(0, 9), sf.BSpline(5, degree=2), special=[0.0, "negative", ">= 50"]),
            sf.Numerical("z", "auto", sf.MultiResolution((2, 4)), missing="error"),
            sf.Numerical("b", sf.Quantile(knots=30), sf.Bins(4, "quantile"), decimal=",", text="missing"),
            sf.Categorical('größe "☃"', min_count=3, unseen="hash", buckets=7),
            sf.MultiValued("words", separator="|", reduction="mean", max_length=4),
            sf.Timestamp("when", parts=["hour", "weekday"], zone="Europe/Paris"),
            sf.Cross("x", "z", segments=(2, 3)),
        ]
    )


# Making


def make_all() -> None:
    """Make the files that do not exist."""
    if not (FOLDER / "model.sfm").exists():
        random_fitted(sf.FwFM(k=3), mixed_schema(), mixed_table(60)).save(FOLDER / "model.sfm")
    fitted, table = model(), mixed_table(6, 9)
    found: dict[str, Any] = answers() if (FOLDER / "answers.json").exists() else {"rows": table, "scores": {}}
    found["scores"].setdefault("model", fitted.scores(table, watch=False).tolist())
    for name, options in INDICES.items():
        if not (FOLDER / f"{name}.sfi").exists():
            columns, ids, groups = items()
            index = sf.ItemIndex(fitted, columns, ids, groups=groups, threads=1, **options)
            index.remove(ids[5:7])
            index.save(FOLDER / f"{name}.sfi")
            found[name] = [part.tolist() for part in index.top_k(table, 5, group=["group 0", "group 2"])]
    if not (FOLDER / "index-format1.sfi").exists():
        with (FOLDER / "index-format2-vectors.sfi").open("rb") as file:
            description, tensors = read_container(file, 1)
        del description["form"]
        with (FOLDER / "index-format1.sfi").open("wb") as file:
            write_container(file, 1, "0.0.1", {**description, "index_format": 1}, tensors)
        found["index-format1"] = found["index-format2-vectors"]
    if not (FOLDER / "scorer-version1.sfs").exists():
        fitted.export_scorer(FOLDER / "scorer-version1.sfs")
    for suffix in (".json", ".toml"):
        if not (FOLDER / f"schema{suffix}").exists():
            schema().save(FOLDER / f"schema{suffix}")
    if not (FOLDER / "state-format1.sfm").exists():
        learner = sf.Learner(fitted, sf.Training(threads=1, batch_size=16, learning_rate=0.005))
        learner.update(_hour(), "target")
        learner.save(FOLDER / "state-format1.sfm")
        found["state-format1"] = _updated(FOLDER / "state-format1.sfm")
    if not (FOLDER / "sharded-format1").exists():
        sf.ShardedModel.write(fitted, FOLDER / "sharded-format1", parts=2)
    (FOLDER / "answers.json").write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")


def _hour() -> dict[str, list[Any]]:
    return {**mixed_table(40, 4), "target": [0, 1] * 20}


def _updated(path: Path) -> list[float]:
    """Return scores after another update, which goes on with the state of the optimizer."""
    with tempfile.TemporaryDirectory() as folder:
        for name in (path.name, f"{path.name}.state"):
            shutil.copy(path.with_name(name), folder)
        learner = sf.Learner.load(Path(folder) / path.name, sf.Training(threads=1, batch_size=16, learning_rate=0.005))
        learner.update(_hour(), "target")
        return [float(score) for score in learner.fitted().scores(mixed_table(6, 9), watch=False)]


# Checking


def check_index(name: str, mmap: bool) -> None:
    """An index finds the same items."""
    ids, scores = sf.ItemIndex.load(FOLDER / f"{name}.sfi", model(), mmap=mmap).top_k(
        rows(), 5, group=["group 0", "group 2"]
    )
    assert ids.tolist() == answers()[name][0]
    np.testing.assert_allclose(scores, answers()[name][1], rtol=1e-6, atol=1e-6)


def check_model(mmap: bool) -> None:
    """The model scores as then."""
    scores = sf.load(FOLDER / "model.sfm", mmap=mmap).scores(rows(), watch=False)
    np.testing.assert_allclose(scores, answers()["scores"]["model"], rtol=1e-6, atol=1e-6)


def check_sharded() -> None:
    """A sharded model scores as the whole one."""
    scores = sf.ShardedModel.open(FOLDER / "sharded-format1").scores(rows(), watch=None)
    np.testing.assert_allclose(scores, answers()["scores"]["model"], rtol=1e-6, atol=1e-6)


def check_scorer() -> None:
    """The C library scores as then."""
    from c_library import CScorer

    table = rows()
    with CScorer(FOLDER / "scorer-version1.sfs") as scorer:
        scores = scorer.score([dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)])
    np.testing.assert_allclose(scores, answers()["scores"]["model"], rtol=1e-6, atol=1e-6)


def check_schema(suffix: str) -> None:
    """A schema says the same."""
    assert sf.Schema.load(FOLDER / f"schema{suffix}") == schema()


def check_state() -> None:
    """An update goes on with the state of the optimizer."""
    np.testing.assert_allclose(_updated(FOLDER / "state-format1.sfm"), answers()["state-format1"], rtol=1e-4, atol=1e-4)


def checks() -> dict[str, Callable[[], None]]:
    """Return the check of every file, by name."""
    found: dict[str, Callable[[], None]] = {}
    for name in ("index-format1", *INDICES):
        for mmap in (False, True):
            found[f"{name}.sfi, {'mapped' if mmap else 'read'}"] = lambda name=name, mmap=mmap: check_index(name, mmap)
    for mmap in (False, True):
        found[f"model.sfm, {'mapped' if mmap else 'read'}"] = lambda mmap=mmap: check_model(mmap)
    for suffix in (".json", ".toml"):
        found[f"schema{suffix}"] = lambda suffix=suffix: check_schema(suffix)
    return found | {
        "sharded-format1": check_sharded,
        "state-format1.sfm.state": check_state,
        "scorer-version1.sfs": check_scorer,
        **{f"{path.name}": lambda path=path: _check_learned(path) for path in _learned()},
    }


def _learned() -> list[Path]:
    return sorted((FOLDER.parent / "store" / "golden").glob("*.sfm"))


def _check_learned(path: Path) -> None:
    number, name = path.stem.split("-")
    expected = json.loads((path.parent / f"{number}.json").read_text(encoding="utf-8"))
    np.testing.assert_allclose(
        sf.load(path).scores(expected["rows"], watch=False), expected["scores"][name], rtol=1e-6, atol=1e-6
    )


def check_all() -> Iterator[tuple[str, Exception | None]]:
    """Yield every file with the error of its check, or None."""
    import c_library

    for name, check in checks().items():
        if name.endswith(".sfs") and not c_library.LIBRARY.exists():
            continue
        try:
            check()
        except Exception as error:
            yield name, error
        else:
            yield name, None


if __name__ == "__main__":
    make_all()
