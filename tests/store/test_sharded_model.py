"""Model files in pieces and sharded models: bytes and scores of the whole, little memory, and nothing half written."""

import json
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.store import sharded, sharded_model
from splinefm.store.sharded import Entry, begin_shards, finish_shards, write_model, write_shard
from splinefm.store.sharded_model import open_model, table_pieces, without_tables
from support import (
    CROSSES,
    averages,
    cross_schema,
    cross_table,
    examples,
    mixed_schema,
    mixed_table,
    one_of_each,
    random_classes,
    random_fitted,
)

TABLE = mixed_table(200)
NEW = mixed_table(300, seed=7)
MODELS = [*one_of_each(6), *averages()]


@pytest.fixture(scope="module")
def fitted():
    return random_fitted(sf.FwFM(k=3, third=2), mixed_schema(), TABLE)


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("sharded") / "model"
    sf.ShardedModel.write(fitted, path, parts=3)
    return path


def cut(fitted, bounds):
    """Return the pieces between some features."""
    factors, linear = fitted.params["factors"], fitted.params["linear"]
    return [(first, factors[..., first:stop, :], linear[..., first:stop]) for first, stop in pairwise(bounds)]


def copied(folder, tmp_path):
    path = tmp_path / "copy"
    path.mkdir()
    for file in folder.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    return path


# Model files in pieces


@examples(40)
@given(st.sampled_from(MODELS), st.booleans(), st.lists(st.integers(0, 49), max_size=6))
def test_a_file_in_pieces_has_the_bytes_of_a_saved_model(tmp_path_factory, model, classes, bounds):
    fitted = (random_classes if classes else random_fitted)(model, mixed_schema(), TABLE)
    folder = tmp_path_factory.mktemp("bytes")
    n = fitted.encoder.layout.n_features
    fitted.save(folder / "saved.sfm")
    write_model(folder / "pieces.sfm", without_tables(fitted), cut(fitted, sorted({0, *bounds, n})))
    assert (folder / "pieces.sfm").read_bytes() == (folder / "saved.sfm").read_bytes()


def test_a_trained_model_has_the_same_bytes(tmp_path):
    table = {**TABLE, "click": [0, 1] * 100}
    fitted = sf.fit_model(table, "click", schema=mixed_schema(), training=sf.Training(epochs=1, threads=1))
    fitted.save(tmp_path / "a.sfm")
    write_model(tmp_path / "b.sfm", without_tables(fitted), table_pieces(fitted, 0, fitted.encoder.layout.n_features))
    assert (tmp_path / "a.sfm").read_bytes() == (tmp_path / "b.sfm").read_bytes()


def pieces_with(fitted, change):
    pieces = cut(fitted, [0, 10, 30, fitted.encoder.layout.n_features])
    change(pieces)
    return pieces


def put(index, piece):
    def change(pieces):
        first, factors, linear = pieces[index]
        pieces[index] = piece(first, factors.copy(), linear.copy())

    return change


def not_finite(first, factors, linear):
    factors[3, 1] = np.nan
    return first, factors, linear


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pieces: pieces.pop(), "the pieces have 30 of 50 features"),
        (lambda pieces: pieces.pop(1), "a piece of features 10 to 29 is missing"),
        (lambda pieces: pieces.reverse(), "features 0 to 29 is missing"),
        (lambda pieces: pieces.insert(1, pieces[0]), "a piece from 0 is out of order"),
        (put(1, lambda f, v, w: (f, v[:, :2], w)), r"params/factors at feature 10 has shape \(20, 2\)"),
        (put(2, lambda f, v, w: (f, np.tile(v, (2, 1)), w)), r"has shape \(40, 5\); there are 50 features"),
        (put(1, lambda f, v, w: (f, v, w[:-1])), "at feature 10 has vectors and linear weights of 20 and 19 features"),
        (put(1, lambda f, v, w: (f, v[:-1], w)), "of 19 and 20 features"),
        (put(1, not_finite), "NaN or infinity, in params/factors"),
        (put(1, lambda f, v, w: (f, v, w + np.inf)), "NaN or infinity, in params/linear"),
    ],
    ids=["no end", "gap", "reversed", "twice", "narrow", "long", "unequal", "unequal vectors", "NaN", "infinity"],
)
def test_wrong_pieces_leave_the_old_file(fitted, tmp_path, change, message):
    path = tmp_path / "model.sfm"
    path.write_text("old")
    with pytest.raises(sf.ModelFileError, match=rf"cannot save to .*model\.sfm'.*{message}"):
        write_model(path, without_tables(fitted), pieces_with(fitted, change))
    assert path.read_text() == "old" and [file.name for file in tmp_path.iterdir()] == ["model.sfm"]


def test_wrong_heads(fitted, tmp_path):
    with pytest.raises(sf.ModelFileError, match="the head of a model has no factors and linear"):
        write_model(tmp_path / "m.sfm", fitted, [])
    with pytest.raises(sf.ModelFileError, match="lacks the parameters bias, field_weights"):
        write_model(tmp_path / "m.sfm", replace(fitted, params={}), [])
    with pytest.raises(FileNotFoundError, match="create it first"):
        write_model(tmp_path / "absent" / "m.sfm", without_tables(fitted), [])


def test_an_error_while_pieces_are_made_leaves_the_old_file(fitted, tmp_path):
    def pieces():
        yield cut(fitted, [0, 10])[0]
        raise OSError(28, "No space left on device")

    path = tmp_path / "model.sfm"
    path.write_text("old")
    with pytest.raises(OSError, match="No space left"):
        write_model(path, without_tables(fitted), pieces())
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


# Sharded models


def test_parts_of_interrupted_saves_do_not_pile_up(fitted, tmp_path):
    for there in (False, True):
        for _ in range(3):
            save = begin_shards(tmp_path / "model")
            (tmp_path / "model" / f"{save}-00000.part").write_bytes(b"half")
        left = {path.name for path in (tmp_path / "model").iterdir()}
        assert len(left) == 1 + 4 * there and f"{save}-00000.part" in left
        sf.ShardedModel.write(fitted, tmp_path / "model")
    (tmp_path / "model" / "manifest.json").write_text("damaged")
    begin_shards(tmp_path / "model")
    assert len(list((tmp_path / "model").iterdir())) == 4  # what a damaged manifest named can be of use


@pytest.mark.parametrize("fails", ["00001.part", ".head", "manifest.json"])
def test_a_full_disk_leaves_the_old_model_and_nothing_else(fitted, tmp_path, monkeypatch, fails):
    sf.ShardedModel.write(fitted, tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    replace_file = Path.replace

    def fail(source, target):
        if Path(target).name.endswith(fails):
            raise OSError(28, "No space left on device")
        return replace_file(source, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        sf.ShardedModel.write(fitted, tmp_path / "model")
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_scores_are_those_of_the_whole_model(tmp_path, model, classes):
    fitted = (random_classes if classes else random_fitted)(model, mixed_schema(), TABLE)
    model = sf.ShardedModel.write(fitted, tmp_path / "model", parts=3)
    np.testing.assert_array_equal(model.scores(NEW, watch=False), fitted.scores(NEW, watch=False))
    np.testing.assert_array_equal(model.predict(NEW, watch=False), fitted.predict(NEW, watch=False))
    slots = fitted.encoder.encode(NEW)
    np.testing.assert_array_equal(model.scores(slots), fitted.scores(slots))


def test_scores_of_crosses_and_of_small_chunks(tmp_path, monkeypatch):
    fitted = random_fitted(sf.FFM(k=2), cross_schema(*CROSSES), cross_table(300))
    model = sf.ShardedModel.write(fitted, tmp_path / "model", parts=7)
    table = cross_table(700, seed=3, strange=True)
    monkeypatch.setattr(sharded_model, "GATHERED_BYTES", 1)  # 256 rows at a time
    np.testing.assert_array_equal(model.scores(table, watch=False), fitted.scores(table, watch=False))


def test_no_rows(folder, fitted):
    empty = {name: values[:0] for name, values in NEW.items()}
    assert sf.ShardedModel.open(folder).scores(fitted.encoder.encode(NEW)[:0]).shape == (0,)
    assert sf.ShardedModel.open(folder).scores({**empty, "x": np.zeros(0), "z": np.zeros(0)}).shape == (0,)


@examples(40)
@given(st.integers(1, 50), st.booleans())
def test_there_and_back(tmp_path_factory, parts, classes):
    fitted = (random_classes if classes else random_fitted)(sf.FwFM(k=3), mixed_schema(), TABLE)
    path = tmp_path_factory.mktemp("back")
    fitted.save(path / "a.sfm")
    sf.ShardedModel.write(sf.load(path / "a.sfm", mmap=True), path / "model", parts=parts)
    sf.ShardedModel.open(path / "model").save(path / "b.sfm")
    assert (path / "a.sfm").read_bytes() == (path / "b.sfm").read_bytes()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_that_have_parts_of_every_field(fitted, tmp_path, ranks):
    """A rank has a range of every field, as with tables that are sharded by row; one rank has nothing."""
    ptr, head = fitted.encoder.layout.feature_ptr.tolist(), without_tables(fitted)
    save, entries = begin_shards(tmp_path / "model"), []
    for rank in range(ranks + 1):
        of_rank = [
            (first + (stop - first) * rank // ranks, first + (stop - first) * (rank + 1) // ranks)
            for first, stop in pairwise(ptr)
        ] * (rank < ranks)
        pieces = [piece for bounds in of_rank if bounds[0] < bounds[1] for piece in cut(fitted, bounds)]
        entry = write_shard(tmp_path / "model", save, rank, of_rank, head, pieces)
        entries.append(Entry.from_dict(json.loads(json.dumps(entry.to_dict()))))
    finish_shards(tmp_path / "model", save, head, entries[::-1])
    model = sf.ShardedModel.open(tmp_path / "model")
    np.testing.assert_array_equal(model.scores(NEW, watch=False), fitted.scores(NEW, watch=False))
    found = [np.concatenate(parts) for parts in list(zip(*model.pieces(), strict=True))[1:]]
    np.testing.assert_array_equal(found[0], fitted.params["factors"])
    np.testing.assert_array_equal(found[1], fitted.params["linear"])


@examples(40)
@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 20))
def test_pieces_of_some_features(folder, fitted, one, other, size):
    begin, end = sorted((one, other))
    model = sf.ShardedModel.open(folder, verify=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharded_model, "PIECE_BYTES", size * 24)
        at = begin
        for first, factors, linear in model.pieces(begin, end):
            assert first == at and 0 < len(linear) <= size
            np.testing.assert_array_equal(factors, fitted.params["factors"][first : first + len(linear)])
            np.testing.assert_array_equal(linear, fitted.params["linear"][first : first + len(linear)])
            at += len(linear)
        assert at == end
    with pytest.raises(ValueError, match="are not among the 50"):
        next(model.pieces(0, 51))


def test_no_step_has_the_whole_table_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(sharded_model, "PIECE_BYTES", 1 << 19)
    table = {"c": ["a", "b", "c"] * 10}
    encoder = sf.fit_encoder(sf.Schema([sf.Categorical("c", unseen="hash", buckets=100_000)]), table)
    n, k, rng = encoder.layout.n_features, 64, np.random.default_rng(0)
    head = sf.Fitted(encoder, sf.FM(k=k), {"bias": np.zeros(1, np.float32)}, sf.Loss())

    def pieces(begin, end):
        for at in range(begin, end, 1000):
            m = min(1000, end - at)
            yield at, rng.random((m, k), np.float32), rng.random(m, np.float32)

    tracemalloc.start()
    try:
        save = begin_shards(tmp_path / "model")
        bounds = [(0, n // 2), (n // 2, n)]
        entries = [write_shard(tmp_path / "model", save, i, [b], head, pieces(*b)) for i, b in enumerate(bounds)]
        finish_shards(tmp_path / "model", save, head, entries)
        model = sf.ShardedModel.open(tmp_path / "model")
        model.scores({"c": [str(i) for i in range(500)]}, watch=False)
        model.save(tmp_path / "model.sfm")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "model.sfm").stat().st_size > 4 * n * k
    # The counts of features take some memory, and checksums are computed of 16 MB at a time.
    assert peak < 4 * n * k * 0.9


def test_a_new_save_replaces_the_old_one_only_when_it_is_complete(fitted, tmp_path):
    path = tmp_path / "model"
    sf.ShardedModel.write(fitted, path)
    old = {file.name for file in path.iterdir()}
    other = replace(fitted, params={**fitted.params, "linear": fitted.params["linear"] + 1})
    save, n = begin_shards(path), fitted.encoder.layout.n_features
    entry = write_shard(path, save, 0, [(0, n)], without_tables(other), table_pieces(other, 0, n))
    np.testing.assert_array_equal(sf.ShardedModel.open(path).scores(NEW), fitted.scores(NEW))
    with pytest.raises(sf.ModelFileError, match="features 0 to 49 are in two parts"):
        finish_shards(path, save, without_tables(other), [entry, entry])
    np.testing.assert_array_equal(sf.ShardedModel.open(path).scores(NEW), fitted.scores(NEW))
    finish_shards(path, save, without_tables(other), [entry])
    np.testing.assert_array_equal(sf.ShardedModel.open(path).scores(NEW), other.scores(NEW))
    assert not old - {"manifest.json"} & {file.name for file in path.iterdir()}


# Mistakes and faults


@examples(120)
@given(st.data())
def test_damaged_files(folder, tmp_path_factory, data):
    path = copied(folder, tmp_path_factory.mktemp("damaged"))
    file = data.draw(st.sampled_from(sorted(path.iterdir())))
    content = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        file.write_bytes(content)
    else:
        file.write_bytes(content[:at])
    # The last byte of the manifest is the end of its line.
    if not (file.name == "manifest.json" and at == len(content) - 1):
        with pytest.raises(sf.ModelFileError, match="cannot load the sharded model"):
            sf.ShardedModel.open(path)


@pytest.mark.parametrize("suffix", [".head", "0.part", ".json"])
def test_missing_files(folder, tmp_path, suffix):
    path = copied(folder, tmp_path)
    next(path.glob(f"*{suffix}")).unlink()
    with pytest.raises(sf.ModelFileError, match=r"is missing; copy the folder again|has no manifest\.json"):
        sf.ShardedModel.open(path)
    with pytest.raises(sf.ModelFileError, match=r"is missing|has no manifest\.json"):
        open_model(path)


def rewritten(path, **changes):
    """Write a manifest with other content and a correct checksum."""
    content = json.loads((path / "manifest.json").read_text())
    del content["sha256"]
    for name, value in changes.items():
        content[name] = value(content[name])
    content["sha256"] = sharded._digest(content)
    (path / "manifest.json").write_text(json.dumps(content))


def first_part(**changes):
    return lambda parts: [{**parts[0], **changes}, *parts[1:]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": lambda _: 2}, r"format 2 and was written by splinefm .* upgrade splinefm"),
        ({"format": lambda _: "1"}, "its format is '1'"),
        ({"kind": lambda _: "other"}, "does not describe a sharded model"),
        ({"features": lambda n: n + 1}, "the parts have 50 of 51 features"),
        ({"features": lambda n: -1}, "sizes are invalid"),
        ({"width": lambda n: n + 1}, r"factors has the shape \(50, 6\) instead of \(50, 5\)"),
        ({"outputs": lambda n: 2}, "2 dimensions instead of 1"),
        ({"parts": lambda parts: parts[1:]}, "features 0 to 15 are in no part"),
        ({"parts": lambda parts: [*parts, parts[0]]}, "in two parts"),
        ({"parts": lambda parts: []}, "0 of 50 features"),
        ({"parts": first_part(file="../x.part")}, r"a file is called '\.\./x\.part'"),
        ({"parts": first_part(file="")}, "a file is called"),
        ({"parts": first_part(ranges=[[0, 8], [8, 16]])}, "other features than the manifest says"),
        ({"parts": first_part(ranges=[[0, "16"]])}, "wrong ranges"),
        ({"parts": first_part(bytes=1)}, "instead of 1 bytes"),
        ({"parts": first_part(header="0" * 64)}, "damaged, or of another model"),
        ({"parts": lambda parts: 3}, "damaged"),
        ({"head": lambda head: {}}, "an entry is incomplete"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_manifests_that_are_wrong(folder, tmp_path, changes, message):
    path = copied(folder, tmp_path)
    rewritten(path, **changes)
    with pytest.raises(sf.ModelFileError, match=f"cannot load the sharded model .*({message})"):
        sf.ShardedModel.open(path)


def test_a_manifest_that_was_edited(folder, tmp_path):
    path = copied(folder, tmp_path)
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace(sf.__version__, "9.9"))
    with pytest.raises(sf.ModelFileError, match=r"its manifest\.json is damaged; copy the folder again"):
        sf.ShardedModel.open(path)
    (path / "manifest.json").write_text(text[:-40])
    with pytest.raises(sf.ModelFileError, match=r"its manifest\.json is damaged or truncated; copy the folder again"):
        sf.ShardedModel.open(path)


def test_a_part_of_another_model(fitted, folder, tmp_path):
    path = copied(folder, tmp_path)
    other = replace(fitted, params={**fitted.params, "linear": fitted.params["linear"] + 1})
    sf.ShardedModel.write(other, tmp_path / "other", parts=3)
    mine, theirs = (next(where.glob("*-00001.part")) for where in (path, tmp_path / "other"))
    assert mine.stat().st_size == theirs.stat().st_size
    mine.write_bytes(theirs.read_bytes())
    with pytest.raises(sf.ModelFileError, match=r"00001\.part' is damaged, or of another model"):
        sf.ShardedModel.open(path, verify=False)


def test_numbers_are_verified_unless_told(folder, tmp_path):
    path = copied(folder, tmp_path)
    part = next(path.glob("*-00002.part"))
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    with pytest.raises(sf.ModelFileError, match=r"00002\.part': the array 'linear' is damaged; copy the folder again"):
        sf.ShardedModel.open(path)
    model = sf.ShardedModel.open(path, verify=False)
    model.verify(1, 2)  # of two processes, the first has the first and the third part
    with pytest.raises(sf.ModelFileError, match=r"00002\.part': the array 'linear' is damaged"):
        model.verify(0, 2)


def test_folders_that_cannot_be_written(fitted, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="is a file; a sharded model is a folder"):
        sf.ShardedModel.write(fitted, tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="create it first"):
        sf.ShardedModel.write(fitted, tmp_path / "absent" / "model")
    with pytest.raises(FileExistsError, match="has other files, such as 'file'; choose a new folder"):
        sf.ShardedModel.write(fitted, tmp_path)
    for parts in (0, 51):
        with pytest.raises(ValueError, match="parts must be from 1 to the number of features, 50"):
            sf.ShardedModel.write(fitted, tmp_path / "model", parts=parts)


def test_parts_that_do_not_fit(fitted, tmp_path):
    path, head = tmp_path / "model", without_tables(fitted)
    save = begin_shards(path)
    with pytest.raises(sf.ModelFileError, match="features 12 to 19, but the next ones of the part are 10 to 19"):
        write_shard(path, save, 0, [(10, 20)], head, cut(fitted, [12, 20]))
    with pytest.raises(sf.ModelFileError, match="features 10 to 24, but the next ones of the part are 10 to 19"):
        write_shard(path, save, 0, [(10, 20), (20, 30)], head, cut(fitted, [10, 25]))
    with pytest.raises(sf.ModelFileError, match="the pieces have 10 of 20 features"):
        write_shard(path, save, 0, [(10, 20), (30, 40)], head, cut(fitted, [10, 20]))
    entry = write_shard(path, save, 0, [(0, 20)], head, cut(fitted, [0, 20]))
    with pytest.raises(sf.ModelFileError, match="the parts have 20 of 50 features"):
        finish_shards(path, save, head, [entry])
    rest = write_shard(path, save, 1, [(20, 50)], head, cut(fitted, [20, 50]))
    (path / rest.file).unlink()
    with pytest.raises(sf.ModelFileError, match=r"00001\.part' is missing"):
        finish_shards(path, save, head, [entry, rest])
    with pytest.raises(sf.ModelFileError, match=r"has no manifest\.json"):
        open_model(path)


def test_load_tells_what_a_folder_is(folder):
    with pytest.raises(IsADirectoryError, match=r"is a sharded model; use sf\.ShardedModel\.open"):
        sf.load(folder)
    with pytest.raises(FileNotFoundError, match="no folder"):
        sf.ShardedModel.open(Path("absent"))
