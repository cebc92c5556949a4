"""The kinds of files of the campaign: good ones to start from, and how they are read and used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from _hostile import craft_container, craft_json, craft_scorer, damage
from _uses import ROWS, a_table, context_of, models, require, rows_of, same_bits, use_model

import splinefm as sf
from c_library import ERROR_FILE, CallError, CItems, CScorer
from splinefm.store.model_file import MAPPED
from support import cross_schema, cross_table, mixed_schema, mixed_table, random_fitted, small_indices

Rng = np.random.Generator


class Refused(Exception):
    """A file was refused; `needed` is what the message must have."""

    def __init__(self, error: BaseException, *needed: str) -> None:
        super().__init__(str(error))
        self.error, self.needed = error, needed


class Kind:
    """A kind of file."""

    suffix: str
    refusals: tuple[type, ...] = (sf.ModelFileError,)
    has_checksums = True
    unharmed = "loaded, the same"
    """What becomes of a damaged file that is not refused."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / f"case{self.suffix}"
        self.good = self.samples()

    def samples(self) -> list[bytes]:
        """Return good files."""
        raise NotImplementedError

    def craft(self, data: bytes, rng: Rng) -> bytes:
        """Return a hostile file with right checksums."""
        return craft_container(data, rng)

    def load(self, how: str, rng: Rng) -> tuple[Any, Any]:
        """Return what a changed file loads as, and what the check needs of the whole one; or raise `Refused`."""
        number = int(rng.integers(len(self.good)))
        data = self.good[number]
        changed = damage(data, rng, self.good) if how == "damaged" else self.craft(data, rng)
        self.path.write_bytes(changed)
        return self.read(number, changed, rng)

    def read(self, number: int, data: bytes, rng: Rng) -> tuple[Any, Any]:
        """Read a file that was made from sample `number`."""
        raise NotImplementedError

    def check_same(self, loaded: Any, exact: Any) -> None:
        """Raise unless a damaged file gives the results of the whole one."""
        raise AssertionError("a damaged file was loaded")

    def use(self, loaded: Any, rng: Rng) -> None:
        """Do with it what users do."""
        raise NotImplementedError


class Models(Kind):
    """Model files, read or mapped."""

    suffix = ".sfm"
    unharmed = "mapped, whose numbers are not verified"

    def samples(self) -> list[bytes]:
        self.fitted = models()
        return [self._saved(fitted) for fitted in self.fitted]

    def _saved(self, fitted: sf.Fitted) -> bytes:
        fitted.save(self.path)
        return self.path.read_bytes()

    def read(self, number: int, data: bytes, rng: Rng) -> tuple[Any, Any]:
        mapped = bool(rng.random() < 0.4)
        try:
            return sf.load(self.path, mmap=mapped), (self.fitted[number], mapped)
        except Exception as error:
            raise Refused(error, str(self.path), ";") from error

    def check_same(self, loaded: Any, exact: Any) -> None:
        """What is mapped is not verified, and nothing else may differ."""
        whole, mapped = exact
        require(mapped, "a damaged file was loaded")
        require(loaded.encoder == whole.encoder and loaded.loss == whole.loss, "a damaged file was mapped")
        for name, values in whole.params.items():
            if f"params/{name}" not in MAPPED:
                require(values.tobytes() == loaded.params[name].tobytes(), f"damaged {name} was mapped")
        loaded.scores(a_table(loaded), watch=False, threads=1)

    def use(self, loaded: Any, rng: Rng) -> None:
        use_model(loaded, rng, self.folder)


class Indices(Kind):
    """Files of item indices, read or mapped."""

    suffix = ".sfi"
    unharmed = "mapped, whose numbers are not verified"

    def samples(self) -> list[bytes]:
        self.fitted, data = [], []
        for index in small_indices():
            index.save(self.path)
            self.fitted.append(index.fitted)
            data.append(self.path.read_bytes())
        return data

    def read(self, number: int, data: bytes, rng: Rng) -> tuple[Any, Any]:
        mapped = bool(rng.random() < 0.6)
        try:
            return sf.ItemIndex.load(self.path, self.fitted[number], mmap=mapped), (number, mapped)
        except Exception as error:
            raise Refused(error, str(self.path), ";") from error

    def check_same(self, loaded: Any, exact: Any) -> None:
        number, mapped = exact
        require(mapped, "a damaged index was loaded")
        self.path.write_bytes(self.good[number])
        whole = sf.ItemIndex.load(self.path, self.fitted[number])
        require(loaded.groups == whole.groups and loaded.error == whole.error, "a damaged index was mapped")
        self.use(loaded, np.random.default_rng(0), strict=False)

    def use(self, loaded: Any, rng: Rng, strict: bool = True) -> None:
        context = rows_of(mixed_table(ROWS, 5))
        try:
            ids, scores = loaded.top_k(context_of(loaded, context[0]), k=int(rng.integers(1, 60)))
            require(len(ids) == len(scores) and bool((scores[1:] <= scores[:-1]).all()), "items are not in order")
            known = loaded.ids
            if len(known):
                loaded.top_k(context_of(loaded, context[1]), k=5, allowed=known[:20], excluded=known[5:8])
            if loaded.groups:
                loaded.top_k(mixed_table(ROWS, 5), k=3, group=loaded.groups[0])
            loaded.matrix()
            repr(loaded)
            new = {name: [context[0][name]] for name in ("user", "words", "x")}
            loaded.add(
                new, ids=["new"] if known.dtype.kind in "OU" else [10**6], groups=["g"] if loaded.groups else None
            )
            if len(known):
                loaded.remove(known[:1])
            loaded.save(self.folder / "again.sfi")
        except (ValueError, TypeError):
            if strict:
                raise


class Scorers(Kind):
    """Scorer files in the C library, from memory and from disk."""

    suffix = ".sfs"
    refusals = (CallError,)

    def samples(self) -> list[bytes]:
        self.tables, data = [], []
        for fitted in models():
            fitted.export_scorer(self.path)
            data.append(self.path.read_bytes())
            table = a_table(fitted)
            self.tables.append((rows_of(table), fitted.scores(table, watch=False, threads=1), None))
        for index in small_indices():
            index.fitted.export_scorer(self.path, index=index)
            data.append(self.path.read_bytes())
            table = a_table(index.fitted)
            scores = index.fitted.scores(table, watch=False, threads=1)
            self.tables.append((rows_of(table), scores, index.top_k(context_of(index, rows_of(table)[0]), 9)))
        return data

    def craft(self, data: bytes, rng: Rng) -> bytes:
        return craft_scorer(data, rng)

    def read(self, number: int, data: bytes, rng: Rng) -> tuple[Any, Any]:
        try:
            return CScorer(data if rng.random() < 0.5 else self.path), self.tables[number]
        except CallError as error:
            require(error.code == ERROR_FILE, f"code {error.code}: {error}")
            raise Refused(error) from error

    def check_same(self, loaded: Any, exact: Any) -> None:
        with loaded:
            rows, scores, best = exact
            require(same_bits(loaded.score(rows), scores), "a damaged scorer file has other scores")
            if best is not None:
                ids, found = loaded.top_k(rows[0], 9)
                require(ids == best[0].tolist() and same_bits(found, best[1]), "a damaged index finds other items")

    def use(self, loaded: Any, rng: Rng) -> None:
        with loaded:
            columns = loaded.columns
            for field in range(loaded.lib.sfm_n_fields(loaded.handle)):
                loaded.field(field)
            rows = [
                {name: row.get(name) for name in columns}
                for row in rows_of(mixed_table(4, 5)) + rows_of(cross_table(4))
            ]
            ids = loaded.ids
            require([loaded.find(name) for name in ids] == list(range(len(ids))), "ids are not found")
            try:
                if loaded.lib.sfm_has_index(loaded.handle):
                    found, scores = loaded.top_k(rows[0], int(rng.integers(1, 60)))
                    require(
                        set(found) <= set(ids) and bool((scores[1:] <= scores[:-1]).all()), "items are not in order"
                    )
                    loaded.top_k(rows[1], 5, allowed=ids[:20], excluded=ids[5:8], groups=loaded.groups[:1] or None)
                for row in rows:
                    loaded.score([row], link=True)
                some = [str(name) for name in rng.permutation(np.array(columns, object))[:2]]
                items = [{name: row[name] for name in some} for row in rows]
                loaded.score_items({name: v for name, v in rows[0].items() if name not in some}, items)
                with CItems(loaded, items, some) as made:
                    made.top_k({name: v for name, v in rows[0].items() if name not in some}, 3)
            except CallError as error:
                raise ValueError(str(error)) from error


class Schemas(Kind):
    """Schemas as JSON or TOML; they have no checksums."""

    suffix = ".json"
    refusals = (ValueError,)
    has_checksums = False

    def samples(self) -> list[bytes]:
        schemas = [mixed_schema(), cross_schema("category × number", "number × number", "hashed", "categories")]
        data = []
        for schema in schemas:
            for suffix in (".json", ".toml"):
                schema.save(self.folder / f"case{suffix}")
                data.append((self.folder / f"case{suffix}").read_bytes())
        self.schemas = schemas
        return data

    def load(self, how: str, rng: Rng) -> tuple[Any, Any]:
        number = int(rng.integers(len(self.good)))
        suffix = (".json", ".toml")[number % 2] if how == "damaged" else ".json"
        path = self.folder / f"case{suffix}"
        if how == "damaged":
            path.write_bytes(damage(self.good[number], rng, self.good))
        else:
            path.write_text(json.dumps(craft_json(self.schemas[number // 2].to_dict(), rng)))
        try:
            return sf.Schema.load(path), None
        except Exception as error:
            raise Refused(error, path.name) from error

    def use(self, loaded: Any, rng: Rng) -> None:
        loaded.save(self.folder / "again.toml")
        require(sf.Schema.load(self.folder / "again.toml") == loaded, "a schema is saved as another")
        table = {**cross_table(40), **mixed_table(40)}
        encoder = sf.fit_encoder(loaded, table)
        encoder.encode(table)


class States(Kind):
    """The state of a learner beside its model file."""

    suffix = ".sfm.state"

    def samples(self) -> list[bytes]:
        data, self.model_files = [], []
        for loss, optimizer in (("logistic", "adamw"), ("squared", "adagrad")):
            fitted = random_fitted(sf.FwFM(k=3), mixed_schema(), mixed_table(60), loss=loss)
            learner = sf.Learner(fitted, sf.Training(threads=1, batch_size=16, optimizer=optimizer))
            learner.update(self._rows(), "target")
            learner.save(self.folder / "case.sfm")
            data.append(self.path.read_bytes())
            self.model_files.append((self.folder / "case.sfm").read_bytes())
        return data

    @staticmethod
    def _rows() -> dict[str, list[Any]]:
        return {**mixed_table(30, 2), "target": [0, 1] * 15}

    def read(self, number: int, data: bytes, rng: Rng) -> tuple[Any, Any]:
        (self.folder / "case.sfm").write_bytes(self.model_files[number])
        training = sf.Training(threads=1, batch_size=16, optimizer=("adamw", "adagrad")[number])
        try:
            return sf.Learner.load(self.folder / "case.sfm", training), number
        except Exception as error:
            raise Refused(error, ";") from error

    def use(self, loaded: Any, rng: Rng) -> None:
        loss = loaded.update(self._rows(), "target")
        require(np.isfinite(loss), f"the loss of an update is {loss}")
        loaded.fitted().save(self.folder / "again.sfm")
