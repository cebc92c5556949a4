"""The kinds of files of the campaign that are folders, and all kinds by name."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from _hostile import craft_container, craft_json, damage
from _kinds import Indices, Kind, Models, Refused, Rng, Schemas, Scorers, States
from _uses import a_table, require

import splinefm as sf
from splinefm.store.container import header_digest
from support import mixed_schema, mixed_table, random_fitted


class Sharded(Kind):
    """Sharded models: a manifest, a head and two parts, of which one is changed."""

    suffix = ""

    def samples(self) -> list[bytes]:
        self.names: list[str] = []
        self.whole = random_fitted(sf.FwFM(k=3), mixed_schema(), mixed_table(60))
        self.fill()
        self.names = sorted(path.name for path in self.path.iterdir())
        return [(self.path / name).read_bytes() for name in self.names]

    def fill(self) -> None:
        """Write the good folder."""
        if self.names:
            for name, data in zip(self.names, self.good, strict=True):
                (self.path / name).write_bytes(data)
        else:
            sf.ShardedModel.write(self.whole, self.path, parts=2)

    def load(self, how: str, rng: Rng) -> tuple[Any, Any]:
        self.fill()
        number = int(rng.integers(len(self.good)))
        name, data = self.names[number], self.good[number]
        if how == "damaged":
            (self.path / name).write_bytes(damage(data, rng, self.good))
        elif name == "manifest.json":
            self._write_manifest(craft_json(json.loads(data), rng))
        else:
            (self.path / name).write_bytes(craft_container(data, rng))
            manifest = json.loads((self.path / "manifest.json").read_text())
            for entry in (manifest["head"], *manifest["parts"]):
                if entry["file"] == name:
                    with (self.path / name).open("rb") as file:
                        entry |= {"bytes": (self.path / name).stat().st_size, "header": header_digest(file)}
            self._write_manifest(manifest)
        try:
            return sf.ShardedModel.open(self.path), None
        except Exception as error:
            raise Refused(error, str(self.path)) from error

    def _write_manifest(self, content: Any) -> None:
        if isinstance(content, dict):
            content.pop("sha256", None)
            compact = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
            content["sha256"] = sha256(compact.encode("utf-8", "surrogatepass")).hexdigest()
        (self.path / "manifest.json").write_text(json.dumps(content))

    def use(self, loaded: Any, rng: Rng) -> None:
        loaded.scores(a_table(loaded.head), watch=None, threads=1)
        loaded.save(self.folder / "again.sfm")


class Checkpoints(Kind):
    """Checkpoints of training on several processes, of which a file is changed; their metadata are a pickle.

    What is crafted is the state alone, with right checksums: an attacker who can craft a pickle can run code, as
    docs/machines.md says.
    """

    suffix = ""
    refusals = (ValueError, OSError)

    def samples(self) -> list[bytes]:
        from datetime import timedelta

        import torch

        from splinefm.distribute import checkpoints
        from splinefm.distribute.processes import Processes

        self.torch, self.module = torch, checkpoints
        self.tensors = {
            "model.factors": torch.arange(600, dtype=torch.float32).reshape(100, 6),
            "fused.m": torch.linspace(0.0, 1.0, 100),
            "dense.b": torch.tensor([0.5]),
        }
        state = {"epoch": 1, "seen": 20, "step": 3, "best": None, "seconds": 0.5, "facts": {"seed": "0"}}
        self.made = checkpoints.Checkpoints(
            self.path, Processes(0, 1, 1, torch.device("cpu"), None, timedelta(seconds=60))
        )
        self.made.save("step", 3, self.tensors, state)
        self.made.wait()
        self.names = sorted(path.name for path in (self.path / "step-00000003").iterdir())
        return [(self.path / "step-00000003" / name).read_bytes() for name in self.names]

    def load(self, how: str, rng: Rng) -> tuple[Any, Any]:
        folder = self.path / "step-00000003"
        for name, data in zip(self.names, self.good, strict=True):
            (folder / name).write_bytes(data)
        number = int(rng.integers(len(self.names)))
        if how == "damaged":
            (folder / self.names[number]).write_bytes(damage(self.good[number], rng, self.good))
        else:
            content = json.loads((folder / "state.json").read_text())
            crafted = craft_json({name: content[name] for name in ("state", "files")}, rng)
            sealed = {"sha256": sha256(json.dumps(crafted).encode()).hexdigest()}
            (folder / "state.json").write_text(
                json.dumps({**crafted, **sealed} if isinstance(crafted, dict) else crafted)
            )
        into = {name: self.torch.zeros_like(values) for name, values in self.tensors.items()}
        try:
            state = self.made.state("step", 3)
            self.made.load("step", 3, into)
        except Exception as error:
            raise Refused(error, "case") from error
        return (state, into), None

    def check_same(self, loaded: Any, exact: Any) -> None:
        """Changes of a file that torch does not read, such as its padding, do no harm."""
        for name, values in self.tensors.items():
            require(bool((loaded[1][name] == values).all()), f"damaged {name} was loaded")

    def use(self, loaded: Any, rng: Rng) -> None:
        self.check_same(loaded, None)


KINDS: dict[str, type[Kind]] = {
    "sfm": Models,
    "sfi": Indices,
    "sfs": Scorers,
    "schema": Schemas,
    "state": States,
    "sharded": Sharded,
    "checkpoint": Checkpoints,
}
