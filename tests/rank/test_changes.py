"""Items that come, change and go; files."""

import json
import os
import pickle
import re
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import splinefm as sf
from splinefm.rank import catalog as ranking_catalog
from support import random_fitted

SCHEMA = sf.Schema(
    [
        sf.Categorical("user"),
        sf.Categorical("ad", unseen="error"),
        sf.Numerical("price", sf.MinMax(), sf.BSpline(4)),
        sf.Numerical("hour", sf.MinMax(), sf.BSpline(3)),
    ]
)
CONTEXTS = {"user": ["a", "b", "c", None], "hour": [1.0, 5.0, None, 20.0]}


def catalog_model(model=None, seed=1):
    rng = np.random.default_rng(0)
    table = {
        "user": list("abcd") * 25,
        "ad": [f"ad{i % 20}" for i in range(100)],
        "price": rng.random(100),
        "hour": rng.uniform(0, 24, 100),
    }
    return random_fitted(model or sf.FFM(k=3), SCHEMA, table, seed=seed)


def make_items(ids, seed):
    rng = np.random.default_rng(seed)
    n = len(ids)
    ads, shelves = [f"ad{i}" for i in rng.integers(0, 20, n)], rng.choice(["s", "t", "u"], n).tolist()
    return {"id": list(ids), "ad": ads, "price": rng.random(n).tolist(), "shelf": shelves}


def table_of(catalog):
    """Items by id as a table."""
    rows = list(catalog.values())
    return {name: [row[name] for row in rows] for name in ("id", "ad", "price", "shelf")}


def rows_of(table):
    return {table["id"][i]: {name: table[name][i] for name in table} for i in range(len(table["id"]))}


def check_equal(index, other, k=1000):
    assert len(index) == len(other)
    assert index.ids.tolist() == other.ids.tolist()
    for group in (None, "s", ["t", "u"]):
        if group is not None and not set(group) <= set(other.groups):
            continue
        ids, scores = index.top_k(CONTEXTS, k, group=group)
        expected, expected_scores = other.top_k(CONTEXTS, k, group=group)
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-6, atol=1e-6)
        assert ids.tolist() == expected.tolist()


@pytest.fixture(scope="module")
def fitted():
    return catalog_model()


@pytest.fixture(scope="module", params=["vectors", "effects"])
def form(request):
    return request.param


@pytest.fixture
def index(fitted, form):
    return sf.ItemIndex(fitted, make_items(range(50), seed=0), ids="id", groups="shelf", form=form)


@pytest.fixture
def of_vectors(fitted):
    return sf.ItemIndex(fitted, make_items(range(50), seed=0), ids="id", groups="shelf", form="vectors")


STORED = [("float32", "vectors"), ("float16", "vectors"), ("int8", "vectors"), ("float32", "effects")]


class TestChanges:
    @pytest.mark.parametrize(("dtype", "form"), STORED)
    @pytest.mark.parametrize("kind", [int, "item {}".format], ids=["numbers", "text"])
    def test_any_changes_equal_a_rebuild(self, fitted, dtype, form, kind):
        rng = np.random.default_rng(5)
        table = make_items([kind(i) for i in range(60)], seed=0)
        catalog = rows_of(table)
        index = sf.ItemIndex(fitted, table, ids="id", groups="shelf", dtype=dtype, form=form)
        for step in range(25):
            known, number = list(catalog), 1000 * (step + 1)
            some = [known[i] for i in rng.permutation(len(known))[: int(rng.integers(1, 30))]]
            action = ("add", "update", "remove")[int(rng.integers(0, 3))]
            if action == "remove":
                index.remove(some)
                catalog = {i: row for i, row in catalog.items() if i not in some}
                continue
            ids = [kind(number + i) for i in range(int(rng.integers(1, 70)))] if action == "add" else some
            new = make_items(ids, seed=step)
            getattr(index, action)(new)
            catalog |= rows_of(new)
        rebuilt = sf.ItemIndex(fitted, table_of(catalog), ids="id", groups="shelf", dtype=dtype, form=form)
        assert len(catalog) > 100
        check_equal(index, rebuilt)
        assert index._catalog.store.n_positions < 1.5 * len(catalog)  # rows are used again

    def test_growing_far_beyond_the_first_room(self, fitted, form, index):
        table = make_items(range(50), seed=0)
        catalog = rows_of(table)
        for step, n in enumerate((10, 100, 4000, 1, 6000)):
            new = make_items(range(10_000 * (step + 1), 10_000 * (step + 1) + n), seed=step)
            index.add(new)
            catalog |= rows_of(new)
        rebuilt = sf.ItemIndex(fitted, table_of(catalog), ids="id", groups="shelf", form=form)
        check_equal(index, rebuilt)

    def test_from_empty_and_back(self, fitted, form):
        index = sf.ItemIndex(fitted, {"ad": [], "price": []}, ids=[], form=form)
        index.add({"ad": ["ad1", "ad2"], "price": [0.1, 0.2]}, ids=["x", "y"])
        assert index.top_k({"user": "a", "hour": 3.0})[0].tolist() in (["x", "y"], ["y", "x"])
        index.remove(["x", "y"])
        assert len(index) == 0
        assert index.top_k({"user": "a", "hour": 3.0})[0].tolist() == []
        index.add({"ad": ["ad1"], "price": [0.1]}, ids=["x"])
        assert index.top_k({"user": "a", "hour": 3.0})[0].tolist() == ["x"]

    def test_groups_change_too(self, index):
        one = make_items([7], seed=3)
        index.update({**one, "shelf": ["new shelf"]})
        assert index.top_k({"user": "a", "hour": 3.0}, group="new shelf")[0].tolist() == [7]
        index.update({**one, "shelf": [None]})
        assert index.top_k({"user": "a", "hour": 3.0}, group="new shelf")[0].tolist() == []

    def test_ids_and_groups_of_text_files_stay_as_they_are_written(self, fitted, tmp_path):
        (tmp_path / "items.csv").write_text("id,ad,price,shelf\n007,ad1,0.5,01\n7,ad2,0.5,1\n")
        (tmp_path / "more.csv").write_text("id,ad,price,shelf\n0007,ad3,0.5,01\n")
        index = sf.ItemIndex(fitted, tmp_path / "items.csv", ids="id", groups="shelf")
        index.add(tmp_path / "more.csv")
        context = {"user": "a", "hour": 3.0}
        assert index.ids.tolist() == ["0007", "007", "7"]
        assert sorted(index.top_k(context, group="01")[0].tolist()) == ["0007", "007"]
        assert index.top_k(context, allowed=["7"])[0].tolist() == ["7"]
        with pytest.raises(TypeError, match="allowed: the ids of the index are text, got 7; give text"):
            index.top_k(context, allowed=[7])

    def test_ids_of_a_text_file_are_integers_if_those_of_the_index_are(self, fitted, index, tmp_path):
        n = len(index)
        (tmp_path / "more.csv").write_text("id,ad,price,shelf\n99001,ad3,0.5,s\n")
        index.add(tmp_path / "more.csv")
        assert 99001 in index.ids.tolist() and len(index) == n + 1

    def test_ids_and_groups_as_arrays(self, fitted):
        items = make_items(range(10), seed=0)
        index = sf.ItemIndex(fitted, items, ids=items["id"], groups=items["shelf"])
        with pytest.raises(ValueError, match="ids must be the name of a column or an array, got None"):
            index.add(make_items([10], seed=1), groups=["s"])
        with pytest.raises(ValueError, match="the index has groups"):
            index.add(make_items([10], seed=1), ids="id")
        index.add(make_items([10], seed=1), ids=np.array([10]), groups="shelf")
        assert len(index) == 11


class TestFailedChanges:
    @pytest.mark.parametrize(
        ("action", "change", "message"),
        [
            ("add", {"id": [1, 99]}, "the index already has 1; use update to replace items"),
            ("update", {"id": [1, 99]}, "99 is not in the index; use add to add items"),
            ("update", {"id": [98, 99]}, "98 (and 1 more) is not in the index"),
            ("add", {"id": [99, 99]}, "99 occurs twice"),
            ("update", {"id": [1, 1]}, "1 occurs twice"),
            ("add", {"id": ["a", "b"]}, "the ids of the index are integers, got 'a'"),
            ("add", {"id": [98, None]}, "ids, column 'id': id number 1 is missing"),
            ("add", {"ad": ["ad1", "never"]}, "column 'ad' holds the unseen category 'never'"),
            ("add", {"price": ["1", "?"]}, "column 'price' should hold numbers"),
            ("add", {"price": None}, "items: no column 'price'"),
            ("add", {"shelf": None}, "groups: no column 'shelf'"),
            ("add", {"shelf": [["a"], ["b"]]}, "holds lists"),
        ],
    )
    def test_leave_the_index_as_it_was(self, fitted, form, index, action, change, message):
        before = sf.ItemIndex(fitted, make_items(range(50), seed=0), ids="id", groups="shelf", form=form)
        items = {"id": [98, 99], "ad": ["ad1", "ad2"], "price": [0.1, 0.2], "shelf": ["s", "t"], **change}
        with pytest.raises((ValueError, TypeError), match=re.escape(message)):
            getattr(index, action)({name: values for name, values in items.items() if values is not None})
        check_equal(index, before)
        index.add(make_items([1000], seed=1))
        assert len(index) == 51

    def test_a_fault_in_a_later_chunk(self, fitted, form, index, monkeypatch):
        monkeypatch.setattr(ranking_catalog, "_CHUNK", 8)
        before = sf.ItemIndex(fitted, make_items(range(50), seed=0), ids="id", groups="shelf", form=form)
        items = make_items(range(100, 200), seed=1)
        items["ad"][77] = "never"
        with pytest.raises(ValueError, match="never"):
            index.add(items)
        items["ad"][77], items["id"][78] = "ad1", 3
        with pytest.raises(ValueError, match="the index already has 3"):
            index.add(items)
        check_equal(index, before)
        assert index._catalog.store.n_positions - len(index._catalog.store.free) == 50

    @pytest.mark.parametrize("ids", [[3, 99], ["a"], [None], 5, [[1]]])
    def test_removing_what_is_not_there(self, fitted, index, ids):
        with pytest.raises((ValueError, TypeError), match="ids"):
            index.remove(ids)
        assert len(index) == 50

    def test_removing_twice_in_one_call_is_once(self, index):
        index.remove([3, 3, 4])
        assert len(index) == 48
        index.remove([])
        with pytest.raises(ValueError, match="3 is not in the index"):
            index.remove([3])

    def test_groups_for_an_index_without(self, fitted):
        index = sf.ItemIndex(fitted, make_items(range(5), seed=0), ids="id")
        with pytest.raises(ValueError, match="the index has no groups; rebuild it with groups="):
            index.add(make_items([7], seed=0), groups="shelf")


class TestFiles:
    @pytest.mark.parametrize("mmap", [True, False])
    @pytest.mark.parametrize(("dtype", "form"), STORED)
    def test_a_file_gives_the_same_index(self, fitted, tmp_path, dtype, form, mmap):
        items = make_items(range(50), seed=0)
        index = sf.ItemIndex(fitted, items, ids="id", groups="shelf", dtype=dtype, form=form)
        index.remove([4, 17])
        index.add(make_items([99], seed=4))
        index.save(tmp_path / "items.sfi")
        again = sf.ItemIndex.load(tmp_path / "items.sfi", fitted, mmap=mmap)
        ids, scores = again.top_k(CONTEXTS, 100)
        expected, expected_scores = index.top_k(CONTEXTS, 100)
        assert (ids == expected).all()
        assert (scores == expected_scores).all()
        assert again.error == index.error
        assert again.groups == index.groups
        assert repr(again) == repr(index)
        check_equal(again, index)

    @pytest.mark.parametrize("mmap", [True, False])
    def test_what_was_loaded_can_be_changed(self, fitted, index, tmp_path, mmap):
        index.save(tmp_path / "items.sfi")
        before = (tmp_path / "items.sfi").read_bytes()
        again = sf.ItemIndex.load(tmp_path / "items.sfi", fitted, mmap=mmap)
        for one in (index, again):
            one.remove([1, 2, 3])
            one.update(make_items([10, 11], seed=8))
            one.add(make_items(range(100, 900), seed=9))
        check_equal(again, index)
        assert (tmp_path / "items.sfi").read_bytes() == before
        again.save(tmp_path / "items.sfi")
        check_equal(sf.ItemIndex.load(tmp_path / "items.sfi", fitted), index)

    def test_text_ids_and_no_items(self, fitted, form, tmp_path):
        index = sf.ItemIndex(fitted, make_items(["é" * i for i in range(50)], seed=0), ids="id", form=form)
        index.save(tmp_path / "items.sfi")
        again = sf.ItemIndex.load(tmp_path / "items.sfi", fitted)
        assert (
            again.top_k(CONTEXTS, 9, excluded=["é"])[0].tolist() == index.top_k(CONTEXTS, 9, excluded=["é"])[0].tolist()
        )
        empty = sf.ItemIndex(fitted, {"ad": [], "price": []}, ids=[], form=form)
        empty.save(tmp_path / "empty.sfi")
        again = sf.ItemIndex.load(tmp_path / "empty.sfi", fitted)
        again.add({"ad": ["ad1"], "price": [0.5]}, ids=["x"])
        assert again.ids.tolist() == ["x"]

    @pytest.mark.thorough
    def test_two_processes_share_the_memory_of_one_file(self, fitted, tmp_path):
        n = 20_000
        items = {"ad": np.array([f"ad{i % 20}" for i in range(n)]), "price": np.linspace(0, 1, n)}
        paths = [tmp_path / "vectors.sfi", tmp_path / "effects.sfi"]
        for path in paths:
            sf.ItemIndex(fitted, items, ids=np.arange(n), form=path.stem).save(path)
        fitted.save(tmp_path / "model.sfm")
        code = """
import json, re, sys
import splinefm as sf
fitted = sf.load(sys.argv[1])
indices = [sf.ItemIndex.load(path, fitted) for path in sys.argv[2:]]
found = [index.top_k({"user": "a", "hour": 3.0}, 5, excluded=[3])[0].tolist() for index in indices]
print(json.dumps(found), flush=True)
sys.stdin.readline()  # the other process has the file mapped as well
sizes = {path: {"Rss": 0, "Pss": 0, "Private_Dirty": 0} for path in sys.argv[2:]}
if sys.platform == "linux":
    for line in open("/proc/self/smaps"):
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            mine = sizes.get(line.split()[-1], {})
        elif line.split(":")[0] in mine:
            mine[line.split(":")[0]] += int(line.split()[1])
print(json.dumps(sizes), flush=True)
sys.stdin.readline()
"""
        arguments = [sys.executable, "-c", code, str(tmp_path / "model.sfm"), *map(str, paths)]
        processes = [
            subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
        ]
        try:
            found = [json.loads(process.stdout.readline()) for process in processes]
            expected = [sf.ItemIndex.load(path, fitted, mmap=False) for path in paths]
            best = [index.top_k({"user": "a", "hour": 3.0}, 5, excluded=[3])[0].tolist() for index in expected]
            assert found[0] == found[1] == best
            sizes = []
            for process in processes:
                process.stdin.write("\n")
                process.stdin.flush()
                sizes.append(json.loads(process.stdout.readline()))
        finally:
            for process in processes:
                process.communicate("\n")
        if sys.platform == "linux":
            for path in paths:
                for part in (process[str(path)] for process in sizes):
                    assert part["Rss"] > 0.4 * path.stat().st_size / 1024
                    assert part["Private_Dirty"] == 0
                    assert part["Pss"] < 0.7 * part["Rss"]

    def test_only_for_its_model(self, fitted, index, tmp_path):
        path = tmp_path / "items.sfi"
        index.save(path)
        with pytest.raises(sf.ModelFileError, match="belongs to another model, with the same fields but other param"):
            sf.ItemIndex.load(path, catalog_model(seed=2))
        with pytest.raises(sf.ModelFileError, match="belongs to another model, with the same fields"):
            sf.ItemIndex.load(path, catalog_model(sf.FM(k=3)))
        encoder = sf.fit_encoder(sf.Schema([sf.Categorical("user")]), {"user": ["a", "b"]})
        other = replace(catalog_model(sf.FM(k=3)), encoder=encoder)
        with pytest.raises(
            sf.ModelFileError, match="another model, with the fields 'ad', 'price', 'user', 'hour'; this"
        ):
            sf.ItemIndex.load(path, other)
        with pytest.raises(TypeError, match=re.escape("must be a sf.Fitted, got str")):
            sf.ItemIndex.load(path, "model")
        same = replace(fitted, params={name: values.copy() for name, values in fitted.params.items()})
        assert len(sf.ItemIndex.load(path, same)) == 50

    def test_no_index_file(self, fitted, tmp_path):
        fitted.save(tmp_path / "model.sfm")
        with pytest.raises(sf.ModelFileError, match=r"it is a model, not an index; load it with sf\.load"):
            sf.ItemIndex.load(tmp_path / "model.sfm", fitted)
        (tmp_path / "text").write_text("not at all" * 99)
        with pytest.raises(
            sf.ModelFileError, match=r"not an index file of splinefm; ItemIndex\.save and splinefm index write"
        ):
            sf.ItemIndex.load(tmp_path / "text", fitted)
        (tmp_path / "empty").touch()
        with pytest.raises(sf.ModelFileError, match="it is empty"):
            sf.ItemIndex.load(tmp_path / "empty", fitted)
        with pytest.raises(FileNotFoundError, match=r"ItemIndex\.save writes index files"):
            sf.ItemIndex.load(tmp_path / "none", fitted)
        with pytest.raises(IsADirectoryError, match="is a folder"):
            sf.ItemIndex.load(tmp_path, fitted)
        if hasattr(os, "mkfifo"):
            os.mkfifo(tmp_path / "pipe")
            with pytest.raises(sf.ModelFileError, match="not a regular file"):
                sf.ItemIndex.load(tmp_path / "pipe", fitted)

    def test_an_index_is_no_model(self, index, tmp_path):
        index.save(tmp_path / "items.sfi")
        with pytest.raises(sf.ModelFileError):
            sf.load(tmp_path / "items.sfi")

    def test_damage_is_found(self, fitted, index, tmp_path):
        path = tmp_path / "items.sfi"
        index.save(path)
        whole = path.read_bytes()
        rng = np.random.default_rng(0)
        for at in rng.integers(0, len(whole), 60).tolist():
            damaged = bytearray(whole)
            damaged[at] ^= 1 << int(rng.integers(0, 8))
            path.write_bytes(damaged)
            with pytest.raises(sf.ModelFileError):
                sf.ItemIndex.load(path, fitted, mmap=False)
            with suppress(sf.ModelFileError):  # mapped arrays are not verified, but nothing outside of them is touched
                sf.ItemIndex.load(path, fitted).top_k(CONTEXTS, 5)
        for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            for mmap in (True, False):
                with pytest.raises(sf.ModelFileError):
                    sf.ItemIndex.load(path, fitted, mmap=mmap)

    @pytest.mark.parametrize(
        ("what", "values"),
        [
            ("codes", lambda codes: codes + 5),
            ("codes", lambda codes: codes - 2),
            ("codes", lambda codes: codes[:-1]),
            ("offsets", lambda offsets: offsets[:-64]),
            ("offsets", lambda offsets: np.zeros_like(offsets)),
            ("offsets", lambda offsets: np.where(offsets > -np.inf, np.float32(np.inf), offsets)),
            ("offsets", lambda offsets: np.where(offsets > -np.inf, np.float32(np.nan), offsets)),
            ("panels", lambda panels: panels[:, :-1]),
            ("panels", lambda panels: np.concatenate([panels] * 3)),
            ("panels", lambda panels: panels[:, :, :63]),
            ("panels", lambda panels: panels.astype(np.float64)),
            ("ids", lambda ids: ids[:3]),
            ("ids", lambda ids: ids[:, :0]),
            ("scales", lambda scales: np.zeros(64, np.float32)),
            ("text_ends", lambda ends: ends[::-1].copy()),
            ("text_ends", lambda ends: ends + 1),
            ("maxima/shift", lambda shift: shift[:-1]),
            ("maxima/measured", lambda measured: measured * np.nan),
            ("n_rows", lambda n: 10**12),
            ("n_rows", lambda n: -1),
            ("n_rows", lambda n: True),
            ("dtype", lambda name: "float64"),
            ("dtype", lambda name: "int8"),
            ("form", lambda name: "effects"),
            ("form", lambda name: 3),
            ("ids_kind", lambda kind: "pickle"),
            ("items", lambda names: names[:1]),
            ("items", lambda names: [*names, names[0]]),
            ("id_column", lambda name: 3),
            ("groups", lambda flag: "yes"),
            ("index_format", lambda number: "1"),
            ("written_by", lambda version: 3),
        ],
    )
    def test_made_up_files_are_refused(self, fitted, of_vectors, tmp_path, monkeypatch, what, values):
        """Files that are sound in every byte, by someone who wants the kernels to read elsewhere."""
        from splinefm.rank import file as ranking_file

        real = ranking_file.write_container

        def forged(file, number, version, description, tensors):
            description, tensors = dict(description), dict(tensors)
            target = tensors if what in tensors and what != "groups" else description
            if what == "ids_kind":
                description["ids"] = values(description["ids"])
            else:
                target[what] = values(target[what])
            real(file, number, version, description, tensors)

        monkeypatch.setattr(ranking_file, "write_container", forged)
        of_vectors.save(tmp_path / "items.sfi")
        for mmap in (True, False):
            with pytest.raises(sf.ModelFileError):
                sf.ItemIndex.load(tmp_path / "items.sfi", fitted, mmap=mmap)

    def test_ids_that_a_damaged_file_repeats(self, fitted, index, tmp_path, monkeypatch):
        from splinefm.rank import file as ranking_file

        real = ranking_file.write_container
        forged = lambda *head: real(*head[:-1], {**head[-1], "ids": np.zeros_like(head[-1]["ids"])})  # noqa: E731
        monkeypatch.setattr(ranking_file, "write_container", forged)
        index.save(tmp_path / "items.sfi")
        again = sf.ItemIndex.load(tmp_path / "items.sfi", fitted)
        assert again.top_k(CONTEXTS, 5, excluded=[0])[0].shape == (4, 5)
        again.remove([0])  # one of them, and without looking for the others for ever
        assert len(again) == 49

    def test_ids_that_are_not_utf8(self, fitted, tmp_path, monkeypatch):
        from splinefm.rank import file as ranking_file

        real = ranking_file.write_container
        forged = lambda *head: real(*head[:-1], {**head[-1], "ids": np.full_like(head[-1]["ids"], -1)})  # noqa: E731
        monkeypatch.setattr(ranking_file, "write_container", forged)
        sf.ItemIndex(fitted, make_items(range(3), seed=0), ids=["a", "b", "c"]).save(tmp_path / "items.sfi")
        again = sf.ItemIndex.load(tmp_path / "items.sfi", fitted)
        with pytest.raises(ValueError, match="the index is damaged: an id is not UTF-8"):
            again.top_k(CONTEXTS, 2)

    def test_a_newer_format(self, fitted, index, tmp_path, monkeypatch):
        from splinefm.rank import file as ranking_file

        monkeypatch.setattr(ranking_file, "FORMAT", 3)
        index.save(tmp_path / "items.sfi")
        monkeypatch.setattr(ranking_file, "FORMAT", 2)
        with pytest.raises(sf.ModelFileError, match="upgrade splinefm"):
            sf.ItemIndex.load(tmp_path / "items.sfi", fitted)

    def test_files_of_the_first_format(self, fitted, of_vectors, tmp_path, monkeypatch):
        from splinefm.rank import file as ranking_file

        real = ranking_file.write_container

        def write(file, number, version, description, tensors):
            del description["form"]
            real(file, number, version, description, tensors)

        monkeypatch.setattr(ranking_file, "write_container", write)
        monkeypatch.setattr(ranking_file, "FORMAT", 1)
        of_vectors.save(tmp_path / "items.sfi")
        monkeypatch.undo()
        check_equal(sf.ItemIndex.load(tmp_path / "items.sfi", fitted), of_vectors)

    def test_a_failed_save_leaves_the_old_file(self, fitted, index, tmp_path, monkeypatch):
        from splinefm.rank import file as ranking_file

        path = tmp_path / "items.sfi"
        index.save(path)
        before = path.read_bytes()

        def fail(file, *rest):
            file.write(b"half")
            raise OSError("the disk is full")

        monkeypatch.setattr(ranking_file, "write_container", fail)
        with pytest.raises(OSError, match="the disk is full"):
            index.save(path)
        assert path.read_bytes() == before
        assert [part.name for part in tmp_path.iterdir()] == ["items.sfi"]
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            index.save(tmp_path / "none" / "items.sfi")

    def test_ids_from_arrow(self, fitted):
        items = make_items(range(5), seed=0)
        coded = pa.array(["a", "b", "c", "d", "e"]).dictionary_encode()
        assert sf.ItemIndex(fitted, items, ids=coded).ids.tolist() == list("abcde")
        assert sf.ItemIndex(fitted, items, ids=pa.chunked_array([[1, 2], [3, 4, 5]])).ids.tolist() == [1, 2, 3, 4, 5]


def test_searches_see_all_of_a_change_or_nothing_of_it(monkeypatch):
    """A change that begins in the middle of a search waits for its end; the storage of its items is used again."""
    fitted = random_fitted(
        sf.FM(k=4), sf.Schema([sf.Categorical("u"), sf.Categorical("ad")]), {"u": ["a"], "ad": ["x"]}
    )
    index = sf.ItemIndex(fitted, {"ad": ["x", "y"]}, ids=[0, 1])
    store, expected = index._catalog.store, index.top_k({"u": "a"})
    search, workers = store.search, []

    def change():
        index.update({"ad": ["y"]}, ids=[0])
        index.add({"ad": ["x"]}, ids=[2])

    def search_slowly(*arguments):
        found = search(*arguments)
        workers.append(threading.Thread(target=change))
        workers[0].start()
        workers[0].join(0.2)
        return found

    monkeypatch.setattr(store, "search", search_slowly)
    ids, scores = index.top_k({"u": "a"})
    workers[0].join()
    assert ids.tolist() == expected[0].tolist() and scores.tolist() == expected[1].tolist()
    monkeypatch.undo()
    assert sorted(index.top_k({"u": "a"})[0].tolist()) == [0, 1, 2]
    assert pickle.loads(pickle.dumps(index)).ids.tolist() == index.ids.tolist()
