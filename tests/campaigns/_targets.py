"""Everything that writes files: how to make the old state, write the new one, and tell which of them is there."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

import splinefm as sf
from splinefm.cli.main import app
from splinefm.update.state import state_path
from support import random_fitted

TRAINING = sf.Training(epochs=1, threads=1)
SCHEMA = sf.Schema(
    [
        sf.Numerical("price", sf.MinMax(), sf.BSpline(4)),
        sf.Categorical("city"),
        sf.Categorical("item"),
    ]
)


def rows(n: int = 200, seed: int = 0) -> dict[str, Any]:
    """Return a table."""
    rng = np.random.default_rng(seed)
    price = rng.random(n)
    return {
        "price": price,
        "city": rng.choice(["Rome", "Oslo", f"new{seed}"], n).tolist(),
        "item": [f"i{i}" for i in rng.integers(0, 20, n)],
        "click": (rng.random(n) < price).astype(int),
    }


TABLE = rows()
OLD, NEW = (random_fitted(sf.FwFM(k=4), SCHEMA, {n: list(TABLE[n]) for n in SCHEMA.columns}, seed=s) for s in (1, 2))


class Target:
    """Something that writes files.

    Attributes
    ----------
    name : str
    most_litter : int
        How many temporary files a killed process may leave.
    may_stay : set of str, optional
        What may be there beside the new state, where the last step failed, until the next run; None for anything.
    """

    name = ""
    most_litter = 1
    may_stay: frozenset[str] | None = frozenset()

    def prepare(self, folder: Path) -> None:
        """Write the old state."""
        raise NotImplementedError

    def act(self, folder: Path) -> None:
        """Write the new state."""
        raise NotImplementedError

    def state(self, folder: Path) -> object:
        """Return what is there, by reading it as a user would; raise for what is neither old nor new."""
        raise NotImplementedError

    def may_become(self, before: object, new: object) -> list[object]:
        """Return the states that may be found after a process was killed."""
        return [before, new]

    def litter(self, folder: Path) -> set[str]:
        """Return the names of files that a killed process has left."""
        return {path.name for path in folder.iterdir()} - self.names(folder)

    def names(self, folder: Path) -> set[str]:
        """Return the names that belong into the folder."""
        return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


class Save(Target):
    name = "save"

    def prepare(self, folder: Path) -> None:
        OLD.save(folder / "m.sfm")

    def act(self, folder: Path) -> None:
        NEW.save(folder / "m.sfm")

    def state(self, folder: Path) -> object:
        return _scores(folder / "m.sfm"), _digest(folder / "m.sfm")


class Fit(Target):
    name = "fit"

    def prepare(self, folder: Path) -> None:
        OLD.save(folder / "m.sfm")
        pq.write_table(pa.table(TABLE), folder / "data.parquet")

    def act(self, folder: Path) -> None:
        command("fit", folder / "data.parquet", "--target", "click", "--out", folder / "m.sfm", *FIT)

    def state(self, folder: Path) -> object:
        return _scores(folder / "m.sfm")


FIT = ("--model", "fm", "--k", "2", "--epochs", "2", "--threads", "1", "--quiet")


class SaveSchema(Target):
    name = "schema"

    def prepare(self, folder: Path) -> None:
        SCHEMA.save(folder / "s.toml")

    def act(self, folder: Path) -> None:
        NEW.encoder.schema.save(folder / "s.toml")

    def state(self, folder: Path) -> object:
        return len(sf.Schema.load(folder / "s.toml")), _digest(folder / "s.toml")


class Index(Target):
    """An index that is loaded, changed in all ways, and saved."""

    name = "index"

    def prepare(self, folder: Path) -> None:
        OLD.save(folder / "m.sfm")
        sf.ItemIndex(OLD, {"item": [f"i{i}" for i in range(20)]}, ids=list(range(20))).save(folder / "i.sfi")

    def act(self, folder: Path) -> None:
        index = sf.ItemIndex.load(folder / "i.sfi", sf.load(folder / "m.sfm"))
        if len(index) == 20:  # not yet the new one
            index.add({"item": ["i1", "i2"]}, ids=[100, 101])
            index.update({"item": ["i3"]}, ids=[5])
            index.remove([7])
        index.save(folder / "i.sfi")

    def state(self, folder: Path) -> object:
        index = sf.ItemIndex.load(folder / "i.sfi", sf.load(folder / "m.sfm"))
        ids, scores = index.top_k({"price": 0.3, "city": "Rome"}, k=21)
        return np.asarray(ids).tolist(), np.asarray(scores).tolist()


class Export(Target):
    """One file of another format."""

    def __init__(self, name: str, write: Callable[..., Any], file: str, **options: object) -> None:
        self.name, self._write, self._file, self._options = name, write, file, options

    def prepare(self, folder: Path) -> None:
        self._write(OLD, folder / self._file, **self._options)

    def act(self, folder: Path) -> None:
        self._write(NEW, folder / self._file, **self._options)

    def state(self, folder: Path) -> object:
        return _digest(folder / self._file)


class Libffm(Target):
    """Two files; the description tells by a checksum whether the model is that which it describes."""

    name = "export libffm"
    most_litter = 2

    def prepare(self, folder: Path) -> None:
        sf.export_libffm(OLD, folder / "m.ffm")

    def act(self, folder: Path) -> None:
        sf.export_libffm(NEW, folder / "m.ffm")

    def state(self, folder: Path) -> object:
        digest = hashlib.sha256((folder / "m.ffm").read_bytes()).hexdigest()
        described = json.loads((folder / "m.ffm.json").read_text())["sha256"]
        return digest if described == digest else (digest, "told apart")

    def may_become(self, before: object, new: object) -> list[object]:
        return [before, new, (before, "told apart")]


class Tables(Target):
    name = "export tables"

    def prepare(self, folder: Path) -> None:
        sf.export_tables(sf.discretize(OLD, {"price": 5}), folder / "out")

    def act(self, folder: Path) -> None:
        sf.export_tables(sf.discretize(NEW, {"price": 5}), folder / "out")

    def state(self, folder: Path) -> object:
        manifest = json.loads((folder / "out" / "manifest.json").read_text())
        files = {path.name for path in (folder / "out").iterdir()}
        assert files == {"manifest.json", *manifest["files"]}, files
        for name, entry in manifest["files"].items():
            assert _digest(folder / "out" / name) == entry["sha256"], name
        return sorted((name, entry["sha256"]) for name, entry in manifest["files"].items())


class Predict(Target):
    name = "predict"

    def prepare(self, folder: Path) -> None:
        OLD.save(folder / "m.sfm")
        pq.write_table(pa.table(TABLE), folder / "data.parquet")
        (folder / "p.parquet").write_bytes(b"old")

    def act(self, folder: Path) -> None:
        command("predict", folder / "m.sfm", folder / "data.parquet", "--out", folder / "p.parquet")

    def state(self, folder: Path) -> object:
        path = folder / "p.parquet"
        return "old" if path.read_bytes() == b"old" else pq.read_table(path).column(0).to_pylist()


class Sharded(Target):
    """A folder whose manifest says which of its files belong to the model."""

    name = "sharded save"
    most_litter = 5
    may_stay = (
        None  # the old parts, as long as the folder is not flushed: a power failure may bring their manifest back
    )

    def prepare(self, folder: Path) -> None:
        sf.ShardedModel.write(OLD, folder / "m")

    def act(self, folder: Path) -> None:
        sf.ShardedModel.write(NEW, folder / "m")

    def state(self, folder: Path) -> object:
        model = sf.ShardedModel.open(folder / "m")
        model.verify()
        model.save(folder / ".whole.sfm")
        scores = _scores(folder / ".whole.sfm")
        (folder / ".whole.sfm").unlink()
        return scores

    def litter(self, folder: Path) -> set[str]:
        return {path.name for path in (folder / "m").iterdir()} - self.names(folder)

    def names(self, folder: Path) -> set[str]:
        """Return the files that the manifest names."""
        manifest = json.loads((folder / "m" / "manifest.json").read_text())
        return {"manifest.json", manifest["head"]["file"], *(part["file"] for part in manifest["parts"])}


class Update(Target):
    """A model and the state of its optimizer, in a series of updates that is never begun again.

    The state before and after each update equals a series without a crash. One crash after the other shows that a
    state which lacks its name is not lost.
    """

    name = "update"
    most_litter = 3  # of model and state, and a state whose model has not come, from a crash before
    may_stay = frozenset({"m.sfm.state.new"})
    length = 6

    def __init__(self) -> None:
        self._first = sf.fit_model(rows(seed=9), "click", schema=SCHEMA, model=sf.FM(k=2), training=TRAINING)
        learner = sf.Learner(self._first)
        self.series = [_learned(learner)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # new categories are what updates are for
            for hour in range(self.length):
                learner.update(rows(60, hour), "click")
                self.series.append(_learned(learner))

    def prepare(self, folder: Path) -> None:
        self._first.save(folder / "m.sfm")

    def act(self, folder: Path) -> None:
        hour = self.place(folder)
        if hour == self.length:
            self.prepare(folder)
            hour = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sf.update_model(folder / "m.sfm", rows(60, hour), "click", guard=None, threads=1)

    def state(self, folder: Path) -> object:
        return self.place(folder)

    def may_become(self, before: object, new: object) -> list[object]:
        # The end of the series is where it begins again, which is not done in one step.
        assert isinstance(before, int)
        return [before, before + 1 if before < self.length else 1, *([0] if before == self.length else [])]

    def place(self, folder: Path) -> int:
        """Return the number of updates that model and state have seen; raise if they do not belong together."""
        found = _learned(sf.Learner.load(folder / "m.sfm", threads=1))
        assert found in self.series, "model and state do not belong to any moment of the series"
        return self.series.index(found)

    def names(self, folder: Path) -> set[str]:
        return {"m.sfm", state_path(Path("m.sfm")).name} & {path.name for path in folder.iterdir()}


def _learned(learner: sf.Learner) -> tuple[object, ...]:
    state = learner.state()
    params = {name: values.tobytes() for name, values in learner.fitted().params.items()}
    moments = {name: (own.m.tobytes(), own.v.tobytes()) for name, own in state.moments.items()} if state.n_steps else {}
    penalty = {name: np.asarray(values).tobytes() for name, values in state.penalty.items()} if state.n_steps else {}
    return params, state.n_steps, moments, penalty


def targets() -> Iterator[Target]:
    """Yield everything that replaces files."""
    yield from (Save(), Fit(), SaveSchema(), Index(), Update(), Libffm(), Tables(), Predict(), Sharded())
    yield Export("export scorer", sf.export_scorer, "m.sfs")
    try:
        import onnx  # noqa: F401
    except ModuleNotFoundError:
        return
    yield Export("export onnx", sf.export_onnx, "m.onnx")


def fresh(folder: Path) -> Path:
    """Return an empty folder of this name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def command(*arguments: object) -> None:
    """Run a command of splinefm in this process; raise what it says."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exit_code:
        raise OSError(result.stderr)


def _scores(path: Path) -> list[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(sf.load(path).scores(TABLE)).tolist()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
