"""Exported tables: NumPy and the files alone give the scores of the model."""

import csv
import errno
import json
import os
import re
import sqlite3
from functools import cache
from hashlib import blake2b, sha256
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

import splinefm as sf
from splinefm import _files as _writing
from splinefm.encode.transforms.transform import raw_edges
from splinefm.export import tables as module
from support import all_models, averages, examples, random_fitted

MODELS = [*all_models(7), *averages()]
FORMATS = ["parquet", "csv"]
N = 400


# A reader of the files that knows nothing of splinefm.


def read_rows(path):
    """Columns of a table as lists; empty cells of CSV files are None, numbers are floats."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    columns = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    for name in columns:
        if name not in ("kind", "value"):
            columns[name] = [None if cell == "" else float(cell) for cell in columns[name]]
    return columns


COMPARE = {"==": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


def numerical_row(field, table, value):
    z = float("nan") if value is None else float(value)
    for position, rule in enumerate(field["special"]):
        if COMPARE[rule["compare"]](z, float(rule["value"])):
            return [position]
    if np.isnan(z):
        return [table["kind"].index("missing")]
    first = table["kind"].index("bin")
    return [first + int(np.searchsorted(table["low"][first:], z, side="right")) - 1]


def category_row(field, table, places, value):
    text = str(value)
    if text in places:
        return [places[text]]
    if field["unseen"] == "rare":
        return [table["kind"].index("rare")]
    if field["unseen"] == "hash":
        bucket = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") % field["buckets"]
        return [table["kind"].index("bucket") + bucket]
    assert field["unseen"] == "neutral"
    return []


def field_features(field, table, places, value):
    """Table rows of a value with their weights; a list of units, each of which is a list of (row, weight)."""
    if field["kind"] == "numerical":
        return [[(row, 1.0) for row in numerical_row(field, table, value)]]
    if value is None:
        return [[(table["kind"].index("missing"), 1.0)]]
    if field["kind"] == "categorical":
        return [[(row, 1.0) for row in category_row(field, table, places, value)]]
    if isinstance(value, str):
        value = [part.strip() for part in value.split(field["separator"])]
    elements = [element for element in value if element not in (None, "")]
    length = min(len(elements), field["max_length"])
    weight = 1.0 / max(length, 1) if field["reduction"] == "mean" else 1.0
    units = [[(row, weight) for row in category_row(field, table, places, one)] for one in elements[:length]]
    return units if field["reduction"] == "identity" else [[pair for unit in units for pair in unit]]


def interact(manifest, between, vectors, owner):
    kind, k = manifest["model"]["kind"], manifest["model"]["k"]
    first, last = manifest["model"].get("product_columns", (0, 0))
    products = np.zeros((manifest["model"].get("order", 2) + 1, last - first))
    products[0] = 1.0
    for vector in vectors:
        for t in range(len(products) - 1, 0, -1):
            products[t] += vector[first:last] * products[t - 1]
    total = manifest["model"].get("product_weight", 1.0) * products[3:].sum()
    for a in range(len(vectors)):
        for b in range(a + 1, len(vectors)):
            f, e, p, q = owner[a], owner[b], vectors[a], vectors[b]
            if kind == "FFM":
                total += p[e * k : (e + 1) * k] @ q[f * k : (f + 1) * k]
            elif (f, e) in between and np.ndim(between[f, e]) == 2:
                total += p[:k] @ between[f, e] @ q[:k]
            else:
                total += between.get((f, e), 1.0) * (p[:k] @ q[:k])
    return total


def read_between(folder, manifest):
    if manifest["interactions"] is None:
        return {}
    table = read_rows(folder / manifest["interactions"])
    k = manifest["model"]["k"]
    between = {}
    for at, weight in enumerate(table["weight"]):
        pair = int(table["first"][at]), int(table["second"][at])
        if "i" in table:
            between.setdefault(pair, np.zeros((k, k)))[int(table["i"][at]), int(table["j"][at])] = weight
        else:
            between[pair] = weight
    return between


def score_tables(folder, columns):
    """Scores of all rows by the files of an export; nothing but NumPy."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    fields = manifest["fields"]
    tables = [read_rows(folder / field["file"]) for field in fields]
    length = manifest["vector_length"]
    params = [np.array([table["linear"], *(table[f"v{d}"] for d in range(length))]).T for table in tables]
    places = [
        {value: at for at, (kind, value) in enumerate(zip(t["kind"], t["value"], strict=True)) if kind == "category"}
        if "value" in t
        else {}
        for t in tables
    ]
    between = read_between(folder, manifest)
    scores = []
    for row in zip(*(columns[field["name"]] for field in fields), strict=True):
        score, vectors, owner = manifest["bias"], [], []
        for f, value in enumerate(row):
            for unit in field_features(fields[f], tables[f], places[f], value):
                sums = sum((weight * params[f][at] for at, weight in unit), np.zeros(1 + length))
                score += sums[0]
                vectors.append(sums[1:])
                owner.append(f)
        scores.append(score + interact(manifest, between, vectors, owner))
    return np.array(scores)


# Models and rows


def words_table(rng, n=N):
    words = ["a", "b, c", 'say "d"', "ü\nnew line", "", "rare", "never seen", "None"]
    return {
        "re/cency": [None if x < 0.5 else float(x) for x in rng.gamma(2.0, 5.0, n)],
        "price": np.where(rng.random(n) < 0.1, 0.0, rng.normal(3.0, 2.0, n)).tolist(),
        "country": rng.choice(["US", "FR", "DE"], n, p=[0.6, 0.3, 0.1]).tolist(),
        "word": rng.choice(words[:5], n).tolist(),
        "tags": [rng.choice(["t1", "t2", "t3"], rng.integers(0, 4)).tolist() for _ in range(n)],
        "interests": ["|".join(rng.choice(["x", "y", "z"], rng.integers(0, 3))) for _ in range(n)],
        "device": rng.choice(["phone", "desk"], n).tolist(),
    }


def hostile_rows():
    """Missing, special, unseen, beyond the range, lists that are too long or empty."""
    n = 12
    return {
        "re/cency": [None, 0.0, -1e300, 1e300, 5.0, 999.0, 1e9, -0.0, 5e-324, 7.5, 3.0, 1.0],
        "price": [float("nan"), -5.0, 0.0, -1e-9, 3.0, 1e6, -1e6, 2.0, 2.5, None, 0.5, 4.0],
        "country": [None, "US", "XX", "", "FR", "DE", "us", "US", None, "FR", "elsewhere", "US"],
        "word": [None, "", "b, c", 'say "d"', "ü\nnew line", "new", "a", "missing", "rare", "None", "a", "b, c"],
        "tags": [None, [], ["t1"] * 9, ["new"], ["t1", "new", "t2"], [None, "t3"], [""], ["t2", "t2"], [], [], [], []],
        "interests": [None, "", "x", "x|y|z|x|y", " y | z ", "new", "x||y", "|", "z", "z|new", "x", "y"],
        "device": ["phone", "watch", None, "desk", "", "phone", "desk", "tv", "phone", "desk", "phone", "desk"][:n],
    }


def make_schema(first=None, reduction="sum"):
    return sf.Schema(
        [
            first or sf.Numerical("re/cency", sf.Log(), sf.BSpline(5), special=[0.0, ">= 999", "negative"]),
            sf.Numerical("price", sf.MinMax(), sf.MultiResolution((2, 5)), special=["<-4"]),
            sf.Categorical("country", min_count=60),
            sf.Categorical("word", unseen="hash", buckets=3),
            sf.MultiValued("tags", reduction="mean", unseen="neutral"),
            sf.MultiValued("interests", separator="|", reduction=reduction),
            sf.Categorical("device", unseen="neutral"),
        ]
    )


def fitted_to(schema, model=MODELS[0], loss=None, table=None):
    table = table or words_table(np.random.default_rng(1))
    return random_fitted(model, schema, table, loss=loss, seed=0, scale=1.0, spread=0.5)


@cache
def binned_of(model=MODELS[0], reduction="sum"):
    fitted = fitted_to(make_schema(reduction=reduction), model)
    return sf.discretize(fitted, {"re/cency": 12}, edges={"price": [-1.0, 0.0, 1.5, 2.0, 2.5, 100.0]})


def with_edges(folder, rows):
    """The rows, and rows with every number beside and on an edge of the numerical fields."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    extra = {name: [] for name in rows}
    for field in manifest["fields"]:
        if field["kind"] == "numerical":
            table = read_rows(folder / field["file"])
            low = np.array([x for x in table["low"] if x is not None])
            low = low[np.isfinite(low)]
            # Not the next number above: special functions are not monotone to the last bit.
            beside = np.concatenate([low, np.nextafter(low, -np.inf), low + 1e-12 * np.abs(low)])
            for at, z in enumerate(beside.tolist()):
                for name in rows:
                    extra[name].append(z if name == field["name"] else rows[name][at % len(rows[name])])
    return {name: list(values) + extra[name] for name, values in rows.items()}


def assert_same_scores(fitted, folder, rows):
    np.testing.assert_allclose(score_tables(folder, rows), fitted.scores(rows), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("reduction", ["sum", "identity"])
class TestEveryModel:
    def test_the_files_alone_give_the_scores(self, model, reduction, tmp_path):
        format = FORMATS[(MODELS.index(model) + (reduction == "sum")) % len(FORMATS)]  # every model has every format
        fitted = binned_of(model, reduction)
        folder = sf.export_tables(fitted, tmp_path / "out", format=format)
        rows = words_table(np.random.default_rng(7), 40)
        hostile = hostile_rows()
        rows = {name: list(values) + hostile[name] for name, values in rows.items()}
        assert_same_scores(fitted, folder, with_edges(folder, rows))

    def test_readers_that_do_not_know_the_weight_of_products_are_told_by_the_version(self, model, reduction, tmp_path):
        folder = sf.export_tables(binned_of(model, reduction), tmp_path / "out")
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["version"] == (1 if model.product_weight == 1 else 3)
        assert manifest["model"].get("product_weight", 1) == model.product_weight


@pytest.mark.parametrize(
    "transform",
    [
        sf.MinMax(),
        sf.MinMax(low=2.0, high=9.0),
        sf.Quantile(knots=9),
        sf.Log(),
        sf.ArcsinhSquare(clip=0.9),
        sf.BestFitCDF(families=("gamma", "lognormal")),
        sf.BestFitCDF(families=("cauchy",)),
        sf.CustomTransform(expit, logit),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_every_kind_of_steps_under_every_transform(transform, tmp_path):
    steps = [
        sf.Bins(7),
        sf.Bins(7, spacing="quantile"),
        sf.Bins(edges=(-5.0, -1.0, 0.0, 2.0, 9.0, 1e6, 1e7)),
        sf.BSpline(6, degree=0),
        sf.BSpline(6, degree=0, periodic=True),
        sf.BSpline(knots=(0.0, 0.1, 0.3, 1.0), degree=0),
        sf.Polynomial(0),
    ]
    values = words_table(np.random.default_rng(1))["re/cency"]
    schema = sf.Schema([sf.Numerical(f"x{i}", transform, basis) for i, basis in enumerate(steps)])
    fitted = fitted_to(schema, table=dict.fromkeys(schema.names, values))
    folder = sf.export_tables(fitted, tmp_path / "out")
    rows = {name: hostile_rows()["re/cency"] for name in schema.names}
    assert_same_scores(fitted, folder, with_edges(folder, rows))


@examples(60)
@given(
    cuts=st.lists(st.floats(-0.5, 2.0), min_size=1, max_size=6),
    low=st.floats(-1e6, 1e6),
    span=st.floats(1e-6, 1e6),
    kind=st.sampled_from([sf.MinMax, sf.ArcsinhSquare]),
)
def test_an_edge_is_the_smallest_number_at_or_beyond_the_cut(cuts, low, span, kind):
    transform = kind(low=low, high=low + span)
    cuts = np.array(cuts)
    edges = raw_edges(transform, cuts)
    finite = np.isfinite(edges)
    assert (transform(edges[finite]) >= cuts[finite]).all()
    assert (transform(np.nextafter(edges[finite], -np.inf)) < cuts[finite]).all()
    assert (cuts[edges == -np.inf] <= 0).all()
    assert (cuts[edges == np.inf] > 1).all()


class TestContents:
    @pytest.mark.parametrize("format", FORMATS)
    def test_the_manifest_names_every_file_and_what_is_in_it(self, format, tmp_path):
        folder = sf.export_tables(binned_of(sf.FwFM(k=4)), tmp_path / "out", format=format)
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        assert {path.name for path in folder.iterdir()} == {"manifest.json", *manifest["files"]}
        for name, entry in manifest["files"].items():
            rows = read_rows(folder / name)
            assert (list(rows), len(rows["weight" if "weight" in rows else "kind"])) == (
                entry["columns"],
                entry["rows"],
            )
            assert sha256((folder / name).read_bytes()).hexdigest() == entry["sha256"]
        assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", name) for name in manifest["files"])
        assert [field["name"] for field in manifest["fields"]] == list(make_schema().names)
        assert manifest["model"] == {"kind": "FwFM", "k": 4}

    def test_two_exports_of_a_model_are_the_same_files(self, tmp_path):
        first, second = (sf.export_tables(binned_of(), tmp_path / name) for name in ("a", "b"))
        assert all((second / path.name).read_bytes() == path.read_bytes() for path in first.iterdir())

    def test_a_prediction_needs_the_loss(self, tmp_path):
        labels = sf.Loss("logistic", classes=("no", "yes"))
        losses = [labels, sf.Loss("squared", center=2.0, scale=3.0), sf.Loss("poisson"), sf.Loss("gamma", scale=9.0)]
        losses.append(sf.Loss("quantile", center=2.0, scale=3.0, quantile=0.9))
        losses.append(sf.Loss("softmax", classes=("a", "b", "c"), of_class="b"))  # which predicts its score
        for loss in losses:
            fitted = fitted_to(sf.Schema([sf.Categorical("device")]), loss=loss)
            folder = sf.export_tables(fitted, tmp_path / loss.name)
            told = json.loads((folder / "manifest.json").read_text())["loss"]
            rows = {"device": ["phone", "watch", None]}
            names = {"score": score_tables(folder, rows), "exp": np.exp, **told}
            np.testing.assert_allclose(eval(told["prediction"], names), fitted.predict(rows), rtol=1e-5)
            assert {name: told[name] for name in loss.parameters} == loss.parameters
            assert told["classes"] == (None if loss.classes is None else list(loss.classes))
            assert told.get("of_class") == loss.of_class

    def test_intervals_cover_all_numbers_once(self, tmp_path):
        folder = sf.export_tables(binned_of(), tmp_path / "out")
        table = read_rows(folder / "field-1-price.parquet")
        assert table["kind"][:2] == ["special", "missing"]
        low, high = (np.array(table[name][2:]) for name in ("low", "high"))
        assert low[0] == -np.inf and high[-1] == np.inf
        np.testing.assert_array_equal(low[1:], high[:-1])
        assert (low < high).all()

    def test_intervals_without_numbers_are_left_out(self, tmp_path):
        item = sf.Numerical("re/cency", sf.MinMax(0.0, 10.0), sf.Bins(edges=(-9.0, -5.0, 5.0, 50.0, 60.0)))
        fitted = sf.discretize(fitted_to(make_schema(item)), {"price": 3})
        table = read_rows(sf.export_tables(fitted, tmp_path / "out") / "field-0-re-cency.parquet")
        assert (table["low"][1:], table["high"][1:]) == ([-np.inf, 5.0], [5.0, np.inf])

    def test_infinite_and_negative_special_values(self, tmp_path):
        item = sf.Numerical("x", sf.MinMax(), sf.Bins(3), special=[np.inf, -np.inf, "negative", "<= 0.5"])
        rows = {"x": [0.0, -0.0, 1.0, 2.0, np.inf, -np.inf, None, -1.0, 0.5, np.nextafter(0.5, 1.0)]}
        fitted = fitted_to(sf.Schema([item]), table=rows)
        folder = sf.export_tables(fitted, tmp_path / "out")
        assert len(set(fitted.scores(rows).tolist())) == 7
        assert_same_scores(fitted, folder, rows)

    def test_fields_without_tokens_or_categories(self, tmp_path):
        rows = {"c": ["a", "b"], "d": [["a"], []], "e": ["x", "y"]}
        plain = {"unseen": "neutral", "missing": "error"}
        schema = sf.Schema(
            [sf.Categorical("c", **plain), sf.MultiValued("d", **plain), sf.Categorical("e", min_count=9, **plain)]
        )
        fitted = fitted_to(schema, table=rows)
        for format in FORMATS:
            folder = sf.export_tables(fitted, tmp_path / format, format=format)
            assert_same_scores(fitted, folder, {"c": ["a", "b", "z"], "d": [["a", "q"], [], ["a"]], "e": ["x"] * 3})

    def test_large_vocabularies_are_written_in_blocks(self, tmp_path, monkeypatch):
        monkeypatch.setattr(module, "_BLOCK", 10)
        rows = {"c": [f"name {i}" for i in range(35)]}
        fitted = fitted_to(sf.Schema([sf.Categorical("c")]), table=rows)
        for format in FORMATS:
            folder = sf.export_tables(fitted, tmp_path / format, format=format)
            assert_same_scores(fitted, folder, {"c": [*rows["c"], "other", None]})

    def test_sql_can_score(self, tmp_path):
        """An FM as in docs/production.md, by SQLite."""
        fitted = fitted_to(
            sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(4)), sf.Categorical("c")]),
            sf.FM(k=2),
            table={"x": np.linspace(0.0, 9.0, 50), "c": ["a", "b"] * 25},
        )
        fitted = sf.discretize(fitted, {"x": 30})
        folder = sf.export_tables(fitted, tmp_path / "out", format="csv")
        base = sqlite3.connect(":memory:")
        for name in ("field-0-x", "field-1-c"):
            table = read_rows(folder / f"{name}.csv")
            base.execute(f'create table "{name}" ({", ".join(table)})')
            marks = ", ".join("?" * len(table))
            base.executemany(f'insert into "{name}" values ({marks})', zip(*table.values(), strict=True))
        query = """
            select a.linear + b.linear + a.v0 * b.v0 + a.v1 * b.v1 from "field-0-x" a, "field-1-c" b
            where a.kind = 'bin' and a.low <= :x and :x < a.high and b.kind = 'category' and b.value = :c
        """
        bias = json.loads((folder / "manifest.json").read_text())["bias"]
        rows = {"x": [-1.0, 0.0, 4.4, 9.0, 99.0], "c": ["a", "b", "a", "b", "a"]}
        pairs = zip(rows["x"], rows["c"], strict=True)
        found = [bias + base.execute(query, {"x": x, "c": c}).fetchone()[0] for x, c in pairs]
        base.close()
        np.testing.assert_allclose(found, fitted.scores(rows), atol=1e-5)


class TestFolder:
    def test_an_earlier_export_is_replaced_as_a_whole(self, tmp_path):
        sf.export_tables(binned_of(sf.FwFM(k=4)), tmp_path / "out", format="csv")
        folder = sf.export_tables(binned_of(), tmp_path / "out")
        manifest = json.loads((folder / "manifest.json").read_text())
        assert {path.name for path in folder.iterdir()} == {"manifest.json", *manifest["files"]}
        assert manifest["model"]["kind"] == "FM"
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_an_empty_folder_and_a_link_are_fine(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        assert sf.export_tables(binned_of(), tmp_path / "link") == (tmp_path / "real").resolve()
        assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "manifest.json").exists()

    @pytest.mark.parametrize("content", ["notes.txt", "manifest.json", "both"])
    def test_other_folders_are_left_alone(self, content, tmp_path):
        folder = tmp_path / "mine"
        folder.mkdir()
        if content == "both":
            sf.export_tables(binned_of(), folder)
        (folder / ("notes.txt" if content == "both" else content)).write_text("{}")
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(FileExistsError, match="something other than exported tables"):
            sf.export_tables(binned_of(), folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    @pytest.mark.parametrize("there", [False, True])
    @pytest.mark.parametrize("fails", ["_write", "_write_text", "_interactions"])
    def test_a_failure_leaves_what_was_there(self, fails, there, tmp_path, monkeypatch):
        if there:
            sf.export_tables(binned_of(sf.FFM(k=3)), tmp_path / "out")
        before = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

        def fail(*arguments):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(module, fails, fail)
        with pytest.raises(OSError, match="No space"):
            sf.export_tables(binned_of(), tmp_path / "out")
        assert {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        assert [path.name for path in tmp_path.iterdir()] == ["out"] * there

    def test_a_failing_rename_brings_the_old_folder_back(self, tmp_path, monkeypatch):
        folder = sf.export_tables(binned_of(sf.FFM(k=3)), tmp_path / "out")
        before = (folder / "manifest.json").read_bytes()
        monkeypatch.setattr(_writing, "_exchange", lambda one, other: False)  # as on systems that cannot do this
        rename = Path.rename

        def fail_for_new(self, target):
            if self.name.endswith(".part"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", fail_for_new)
        with pytest.raises(OSError):
            sf.export_tables(binned_of(), tmp_path / "out")
        assert (folder / "manifest.json").read_bytes() == before
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


class TestBadInput:
    def test_splines_are_told_to_be_discretized(self, tmp_path):
        with pytest.raises(ValueError, match=r"'re/cency', 'price' have another basis; use sf.discretize"):
            sf.export_tables(fitted_to(make_schema()), tmp_path / "out")
        one = sf.discretize(fitted_to(make_schema()), {"re/cency": 5})
        with pytest.raises(ValueError, match="'price' has another basis"):
            sf.export_tables(one, tmp_path / "out")
        powers = fitted_to(sf.Schema([sf.Numerical("x", sf.MinMax(), sf.Powers((1.0,)))]), table={"x": [1.0, 2.0]})
        with pytest.raises(ValueError, match="'x' has another basis"):
            sf.export_tables(powers, tmp_path / "out")
        assert not list(tmp_path.iterdir())

    def test_places_that_cannot_be(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(FileNotFoundError, match="make it first"):
            sf.export_tables(binned_of(), tmp_path / "no" / "out")
        with pytest.raises(FileExistsError, match="is a file"):
            sf.export_tables(binned_of(), tmp_path / "file")
        with pytest.raises(ValueError, match="format must be"):
            sf.export_tables(binned_of(), tmp_path / "out", format="xlsx")
        with pytest.raises(TypeError, match="fitted_"):
            sf.export_tables(sf.SplineFMClassifier(), tmp_path / "out")
