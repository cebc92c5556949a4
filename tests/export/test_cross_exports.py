"""Crosses in exports: ONNX Runtime, libffm, plain tables and bins give the scores of the model."""

import csv
import itertools
import json

import numpy as np
import onnx
import onnxruntime as ort
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.slots import expand_windows
from splinefm.export import tables as tables_module
from splinefm.model.family.formula import formula_scores
from support import CROSSES, cross_schema, cross_table, examples, one_of_each, random_fitted


def made(kinds, model=0, seed=1):
    # ONNX has no hash of unseen categories: the field of that name is left out, the part of a cross stays.
    whole = cross_schema(*kinds)
    parts = sf.Categorical("hashed", unseen="hash", buckets=3, column="user")
    fields = [
        sf.Cross(*(parts if part == "hashed" else part for part in item.parts), buckets=item.buckets)
        if isinstance(item, sf.Cross) and "hashed" in item.parts
        else item
        for item in whole
        if item.name != "hashed"
    ]
    schema = sf.Schema(fields)
    return random_fitted(one_of_each(len(schema))[model], schema, cross_table(200), seed=seed, scale=0.4)


def export(fitted, folder, **options):
    sf.export_onnx(fitted, folder / "model.onnx", **options)
    quiet = ort.SessionOptions()
    quiet.intra_op_num_threads, quiet.log_severity_level = 1, 4
    return ort.InferenceSession(folder / "model.onnx", quiet, providers=["CPUExecutionProvider"])


def exact(fitted, table):
    return formula_scores(fitted.model, fitted.params, fitted.encoder.encode(table))


class TestOnnx:
    @pytest.mark.parametrize("kind", CROSSES)
    def test_every_kind(self, kind, tmp_path):
        fitted = made([kind])
        session = export(fitted, tmp_path)
        for table in (cross_table(60, 3, strange=True), cross_table(1, 4)):
            (score,) = session.run(["score"], sf.onnx_inputs(fitted, table))
            np.testing.assert_allclose(score, exact(fitted, table), atol=1e-5)

    @examples(24)
    @given(kinds=st.lists(st.sampled_from(sorted(CROSSES)), unique=True, max_size=3), model=st.integers(0, 6))
    def test_any_model_with_any_crosses(self, kinds, model, tmp_path_factory):
        fitted = made(kinds, model)
        table = cross_table(30, 3, strange=True)
        session = export(fitted, tmp_path_factory.mktemp("onnx"))
        (score,) = session.run(["score"], sf.onnx_inputs(fitted, table))
        np.testing.assert_allclose(score, exact(fitted, table), atol=1e-5)

    def test_a_column_as_number_and_as_category(self, tmp_path):
        rng = np.random.default_rng(0)
        table = {"month": rng.integers(1, 13, 300).tolist(), "day": rng.choice([0.5, 1.0, 2.25], 300).tolist()}
        cross = sf.Cross(sf.Categorical("month"), sf.Categorical("d", column="day"), min_count=2)
        fitted = random_fitted(sf.FwFM(k=4), sf.Schema([sf.Numerical("month"), sf.Numerical("day"), cross]), table)
        session = export(fitted, tmp_path)
        more = {"month": [1, 2, 12, 13, None, 3], "day": [0.5, 1.0, 2.25, 1.0, 0.5, 0.7]}
        inputs = sf.onnx_inputs(fitted, more)
        assert inputs["month"].dtype == np.float64
        np.testing.assert_allclose(session.run(["score"], inputs)[0], exact(fitted, more), atol=1e-5)
        fields = json.loads(
            {p.key: p.value for p in onnx.load(tmp_path / "model.onnx").metadata_props}["splinefm.fields"]
        )
        assert [part["type"] for part in fields[-1]["parts"]] == ["double", "double"]

    def test_text_and_numbers_of_one_column(self, tmp_path):
        table = {"month": ["1", "2"] * 20, "day": [1.0, 2.0] * 20}
        cross = sf.Cross(sf.Categorical("month", values="text"), sf.Categorical("day"))
        fitted = random_fitted(sf.FM(k=4), sf.Schema([sf.Numerical("month"), cross]), table)
        with pytest.raises(ValueError, match="'month' is read by fields of different kinds"):
            sf.export_onnx(fitted, tmp_path / "model.onnx")

    def test_integers_are_integers_in_crosses_too(self, tmp_path):
        fitted = random_fitted(
            sf.FM(k=4), sf.Schema([sf.Categorical("code"), sf.Cross("code", sf.Categorical("kind"))]), cross_table(90)
        )
        session = export(fitted, tmp_path, integers=["code"])
        table = cross_table(30, 3)
        inputs = sf.onnx_inputs(fitted, table, integers=["code"])
        assert inputs["code"].dtype == np.int64
        np.testing.assert_allclose(session.run(["score"], inputs)[0], exact(fitted, table), atol=1e-5)

    @pytest.mark.parametrize("buckets", [None, 3])
    @pytest.mark.parametrize(
        ("part", "value"),
        [
            (sf.Numerical("z", missing="error"), np.nan),
            (sf.Categorical("z", unseen="error", values="text"), "never"),
            (sf.Categorical("z", missing="error", values="text"), ""),
        ],
        ids=str,
    )
    def test_what_a_part_refuses_is_an_error(self, part, value, buckets, tmp_path):
        table = {"z": [1.0, 2.0, 3.0] * 10, "kind": ["u", "v"] * 15}
        if isinstance(part, sf.Categorical):
            table["z"] = list(map(str, table["z"]))
        cross = sf.Cross(part, sf.Categorical("kind"), min_count=1, buckets=buckets)
        session = export(random_fitted(sf.FM(k=4), sf.Schema([cross]), table), tmp_path)
        dtype = np.float64 if isinstance(value, float) else object
        for kind in ("u", "never"):
            with pytest.raises(Exception, match=r"(?i)gather|out of|indices"):
                session.run(["score"], {"z": np.array([value], dtype), "kind": np.array([kind], object)})

    def test_no_combination_is_frequent(self, tmp_path):
        cross = sf.Cross(sf.Categorical("user"), sf.Categorical("kind"), min_count=1000)
        fitted = random_fitted(sf.FM(k=4), sf.Schema([cross]), cross_table(50))
        table = cross_table(5, 2)
        (score,) = export(fitted, tmp_path).run(["score"], sf.onnx_inputs(fitted, table))
        np.testing.assert_allclose(score, fitted.params["bias"][0], atol=1e-6)


NUMBERS = [kind for kind in CROSSES if kind not in ("category × category", "categories", "values", "hashed", "of bins")]


def largest_change(fitted, binned, table):
    return np.abs(exact(fitted, table) - exact(binned, table)).max()


class TestDiscretize:
    @pytest.mark.parametrize("kind", NUMBERS)
    def test_bins_are_read_at_their_middles(self, kind):
        fitted = made([kind])
        counts = {"x": 5, "z": 4, "hour": 6}
        binned = sf.discretize(fitted, counts)
        before, after = fitted.encoder.fields[-1], binned.encoder.fields[-1]
        table = cross_table(80, 3, strange=True)
        values = before.read([np_column(table[name]) for name in before.columns])
        for i in before.numbers:
            part, bins = before.fields[i], after.fields[i].basis
            assert isinstance(bins, sf.Bins) and bins.sizes == (counts[part.name],)
            x = values[i]
            token = part.find_tokens(x)
            ordinary = np.full(len(x), True) if token is None else token < 0
            u = part.fitted_transform(np.where(ordinary, x, 0.5))
            middle = bins.supports().mean(axis=1)[bins(u)[0][:, 0]]
            values[i] = np.where(ordinary, part.fitted_transform.inverse(middle), x)
        first, second = fitted.encoder.layout.feature_ptr[-2], binned.encoder.layout.feature_ptr[-2]
        start, weight = before.encode_values(values)
        features = expand_windows(start, before.layout.widths)
        expected = (weight[:, :, None] * fitted.params["factors"][first + features]).sum(axis=1)
        start, weight = after.encode([np_column(table[name]) for name in after.columns])
        assert start.shape == (80, 1)
        np.testing.assert_allclose(weight * binned.params["factors"][second + start[:, 0]], expected, atol=1e-6)

    @examples(60)
    @given(kind=st.sampled_from(NUMBERS), model=st.integers(0, 6), bins=st.integers(1, 17))
    def test_the_bound_holds(self, kind, model, bins):
        fitted = made([kind], model)
        table = cross_table(400, 3, strange=True)
        binned = sf.discretize(fitted, bins)
        report = sf.discretization_error(fitted, binned, table)
        assert report.certified
        assert report.fields[-1].name == fitted.encoder.fields[-1].name
        assert 0 < largest_change(fitted, binned, table) <= report.bound

    @pytest.mark.parametrize("kind", NUMBERS)
    def test_the_bound_of_the_cross_alone_is_close(self, kind):
        """With nothing else binned, rows that were searched for reach a good part of the bound."""
        fitted = made([kind])
        name = fitted.encoder.fields[-1].name
        binned = sf.discretize(fitted, {name: 6})
        table = cross_table(4000, 3)
        change = largest_change(fitted, binned, table)
        report = sf.discretization_error(fitted, binned)
        assert [field.name for field in report.fields] == [name]
        assert report.bound / 60 < change <= report.bound

    def test_the_bound_is_attained_by_planes(self):
        """With linear functions along both numbers, a corner of bins is as far from the middle as the bound says."""
        numbers = [sf.Numerical(name, sf.MinMax(0, 1), sf.BSpline(1, 1)) for name in ("x", "hour")]
        cross = sf.Cross(sf.Categorical("kind"), *numbers, min_count=1)
        fitted = random_fitted(sf.FM(k=4), sf.Schema([cross, sf.Categorical("user")]), cross_table(200))
        slopes = np.random.default_rng(0).normal(size=(cross_cells(fitted), 2))
        at = np.array([0.0, 1.0])
        for params, scale in (("linear", 1.0), ("factors", np.array([0.0, 1.0, 0.0, 0.0]))):
            planes = slopes[:, 0, None, None] * at[:, None] + slopes[:, 1, None, None] * at
            fitted.params["linear"][: planes.size] = 0.0
            fitted.params["factors"][: planes.size] = 0.0
            values = planes.ravel() if params == "linear" else planes.ravel()[:, None] * scale
            fitted.params[params][: planes.size] = values
            meets = 1.0 if params == "linear" else np.abs(fitted.params["factors"][planes.size :, 1]).max()
            report = sf.discretization_error(fitted, sf.discretize(fitted, {"x": 4, "hour": 10}))
            expected = (np.abs(slopes) @ [1 / 8, 1 / 20]).max() * meets
            most = (np.abs(slopes).max(axis=0) @ [1 / 8, 1 / 20]) * meets  # each number has the steepest combination
            assert expected * (1 - 1e-5) <= report.bound <= most * (1 + 1e-5)
            np.testing.assert_allclose(report.bound, most, rtol=1e-5)

    @examples(16)
    @given(kind=st.sampled_from(NUMBERS), model=st.integers(0, 6), seed=st.integers(0, 99))
    def test_max_error_is_kept(self, kind, model, seed):
        fitted = made([kind], model, seed)
        wanted = 0.5 if len(fitted.encoder.fields[-1].numbers) < 3 else 5.0
        binned = sf.discretize(fitted, max_error=wanted)
        assert sf.discretization_error(fitted, binned).bound <= wanted
        assert largest_change(fitted, binned, cross_table(200, seed, strange=True)) <= wanted

    def test_bases_that_are_known_by_their_values_only(self):
        waves = sf.Numerical("x", sf.MinMax(), sf.Fourier(2))
        own = sf.Numerical("z", sf.MinMax(), sf.CustomBasis((np.ones_like, np.sin)))
        table = cross_table(200)
        for parts in ((waves, sf.Categorical("kind")), (own, sf.Categorical("kind")), (own, waves)):
            fitted = random_fitted(sf.FM(k=4), sf.Schema([sf.Categorical("user"), sf.Cross(*parts)]), table)
            binned = sf.discretize(fitted, 20)
            report = sf.discretization_error(fitted, binned, table)
            assert not report.certified
            assert 0 < report.max_error <= report.bound

    def test_steps_of_several_resolutions_become_bins_without_an_error(self):
        part = sf.Numerical("x", sf.MinMax(), sf.MultiResolution((2, 3), 0))
        fitted = random_fitted(sf.FM(k=4), sf.Schema([sf.Cross(part, sf.Categorical("kind"))]), cross_table(200))
        binned = sf.discretize(fitted, 2)
        report = sf.discretization_error(fitted, binned, cross_table(100))
        assert report.bound < 1e-5 and report.max_error < 1e-5
        assert sum(binned.encoder.fields[0].fields[0].basis.sizes) == 4

    def test_one_number_of_two(self):
        for kind in ("number × number", "levels × one"):
            fitted = made([kind])
            table = cross_table(300, 3)
            binned = sf.discretize(fitted, {"x": 200})
            assert 0 < largest_change(fitted, binned, table) <= sf.discretization_error(fitted, binned).bound
            again = sf.discretize(binned, {"z": 50, "hour": 60})
            np.testing.assert_allclose(
                exact(again, table), exact(sf.discretize(fitted, {"x": 200, "z": 50, "hour": 60}), table), atol=1e-4
            )

    def test_quantiles_and_edges(self):
        fitted = made(["category × number"])
        by_field = sf.discretize(fitted, {"x": 7}, spacing="quantile").encoder
        assert by_field.fields[-1].fields[1].basis == by_field.fields[0].basis
        given_edges = sf.discretize(fitted, edges={"x": [0.0, 0.3, 1.0]}).encoder
        assert given_edges.fields[-1].fields[1].basis.sizes == (2,)
        alone = random_fitted(
            sf.FM(k=4), sf.Schema([sf.Cross(sf.Categorical("kind"), sf.Numerical("x"))]), cross_table(200)
        )
        assert sf.discretize(alone, {"x": 7}).encoder.fields[0].fields[1].basis.sizes == (7,)
        with pytest.raises(ValueError, match=r"'x' in the cross 'kind × x' is not kept"):
            sf.discretize(alone, {"x": 7}, spacing="quantile")

    def test_saved_and_loaded(self, tmp_path):
        fitted = made(["category × number", "number × number"])
        binned = sf.discretize(fitted, 9)
        binned.save(tmp_path / "binned.sfm")
        table = cross_table(50, 3)
        np.testing.assert_array_equal(sf.load(tmp_path / "binned.sfm").scores(table), binned.scores(table))
        np.testing.assert_allclose(binned.scorer().many(rows_of(table)), binned.scores(table), atol=1e-5)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"fields": {"kind × user": 9}}, "'kind × user' is a cross of categories"),
            ({"fields": {"x × z": 0}}, "from 1 to 1,000,000"),
            ({"fields": {"x × z": 5000}}, r"'x × z' would have 25,000,000 features: 5,000 × 5,000 bins.*Give it fewer"),
            ({"edges": {"x × z": [0.0, 1.0]}}, "'x × z' is a cross: give the edges of its numbers"),
            ({"fields": {"kind × z": 9}}, "no column 'kind × z' in the model"),
        ],
    )
    def test_bad_input(self, options, message):
        with pytest.raises(ValueError, match=message):
            sf.discretize(made(["number × number", "category × category"]), **options)

    def test_another_cross_is_no_discretization(self):
        fitted, other = made(["number × number"]), made(["number × number"], seed=2)
        with pytest.raises(ValueError, match="not a discretization"):
            sf.discretization_error(fitted, sf.discretize(other, 9))


def cross_cells(fitted):
    return len(fitted.encoder.fields[0].cells)


def np_column(values):
    return pa.array(values, from_pandas=True)


def rows_of(table):
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def libffm_scores(folder):
    """By the files alone and the formula of libffm, see test_libffm.py."""
    lines = (folder / "model.ffm").read_text().splitlines()
    n, m, k = (int(line.split()[1]) for line in lines[:3])
    w = np.array([list(map(float, line.split()[1:])) for line in lines[4:]]).reshape(n, m, k)
    for line in (folder / "rows.txt").read_text().splitlines():
        nodes = [(int(f), int(j), float(v)) for f, j, v in (node.split(":") for node in line.split()[1:])]
        pairs = itertools.combinations(nodes, 2)
        yield sum(v1 * v2 * float(w[j1, f2] @ w[j2, f1]) for (f1, j1, v1), (f2, j2, v2) in pairs)


class TestLibffm:
    @pytest.mark.parametrize("bins", [None, 4])
    @examples(16)
    @given(
        kinds=st.lists(st.sampled_from(sorted(CROSSES)), min_size=1, unique=True, max_size=2), model=st.integers(0, 4)
    )
    def test_the_formula_gives_the_scores_of_the_model(self, kinds, model, bins, tmp_path_factory):
        folder, fitted = tmp_path_factory.mktemp("ffm"), made(kinds, model)
        fitted = fitted if bins is None else sf.discretize(fitted, bins)
        table = cross_table(12, 3, strange=True)
        sf.export_libffm(fitted, folder / "model.ffm")
        sf.export_libffm_rows(fitted, table, folder / "rows.txt")
        np.testing.assert_allclose(list(libffm_scores(folder)), exact(fitted, table), atol=1e-4)

    def test_the_map_tells_what_the_features_of_a_cross_stand_for(self, tmp_path):
        fitted = made(["category × number", "hashed"])
        sf.export_libffm(fitted, tmp_path / "model.ffm")
        kept, hashed = json.loads((tmp_path / "model.ffm.json").read_text())["fields"][-2:]
        cross = fitted.encoder.fields[-2]
        assert (kept["kind"], kept["block"], kept["sizes"]) == ("cross", 6, [[6]])
        names = [*kept["parts"][0]["tokens"], *(f"= {name}" for name in kept["parts"][0]["categories"])]
        assert [names[feature] for (feature,) in kept["combinations"]] == cross.cell_names()
        assert kept["parts"][1]["functions"] == 6 and kept["parts"][1]["column"] == "x"
        assert hashed["buckets"] == 5 and len(hashed["multipliers"]) == 2 and "combinations" not in hashed


def table_rows(path):
    return pq.read_table(path).to_pylist()


def part_key(part, row, value):
    """Whether a row of a cross's table belongs to a value, by the manifest and the row only."""
    if part["kind"] == "numerical":
        z = float("nan") if value is None else float(value)
        special = any(COMPARE[rule["compare"]](z, float(rule["value"])) for rule in part["special"])
        low, high = (row[name] for name in part["columns"])
        return not special and not np.isnan(z) and low <= z < high
    kind, name = (row[column] for column in part["columns"])
    if value is None or kind != "category":
        return value is None and kind == "missing"
    return name == value if isinstance(value, str) else float(name) == value


COMPARE = {"==": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


def bucket_of(folder, field, values):
    """The bucket of the categories of a cross; None where one is unseen."""
    total = 0
    parts = [(part, value) for part, value in zip(field["parts"], values, strict=True) if part["kind"] == "categorical"]
    for (part, value), multiplier in zip(parts, field["multipliers"], strict=True):
        wanted = ("missing", None) if value is None else ("category", value)
        found = [row["feature"] for row in table_rows(folder / part["file"]) if (row["kind"], row["value"]) == wanted]
        if not found:
            return None
        total = (total + (found[0] + 1) * multiplier) % field["prime"]
    return total % field["buckets"]


class TestTables:
    @pytest.mark.parametrize("kind", CROSSES)
    def test_the_files_alone_give_the_vectors(self, kind, tmp_path):
        fitted = made([kind])
        binned = sf.discretize(fitted, 4)
        folder = sf.export_tables(binned, tmp_path / "tables")
        manifest = json.loads((folder / "manifest.json").read_text())
        field, cross = manifest["fields"][-1], binned.encoder.fields[-1]
        assert manifest["version"] == 2 and field["kind"] == "cross"
        assert [part["column"] for part in field["parts"]] == list(cross.columns)
        rows = table_rows(folder / field["file"])
        assert len(rows) == cross.layout.n_features
        table = cross_table(60, 3, strange=True)
        start, weight = cross.encode([np_column(table[name]) for name in cross.columns])
        first = binned.encoder.layout.feature_ptr[-2]
        expected = weight * binned.params["factors"][first + start[:, 0]]
        some = 0
        for i, values in enumerate(zip(*(table[name] for name in cross.columns), strict=True)):
            found = [
                row for row in rows
                if all(part_key(p, row, v) for p, v in zip(field["parts"], values, strict=True) if p["columns"])
            ]  # fmt: skip
            if "buckets" in field:
                bucket = bucket_of(folder, field, values)
                found = [row for row in found if row["bucket"] == bucket]
            assert len(found) <= 1
            vector = [found[0][f"v{d}"] for d in range(4)] if found else np.zeros(4)
            np.testing.assert_allclose(vector, expected[i], atol=1e-7)
            some += len(found)
        assert some > 15

    def test_csv_and_small_blocks(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tables_module, "_BLOCK", 7)
        binned = sf.discretize(made(["category × number"]), 4)
        sf.export_tables(binned, tmp_path / "a")
        sf.export_tables(binned, tmp_path / "b", format="csv")
        name = json.loads((tmp_path / "a" / "manifest.json").read_text())["fields"][-1]["file"]
        with (tmp_path / "b" / name.replace("parquet", "csv")).open(newline="") as file:
            lines = list(csv.reader(file))
        rows = table_rows(tmp_path / "a" / name)
        assert (
            lines[0] == list(rows[0]) and len(lines) == 1 + len(rows) == 1 + binned.encoder.fields[-1].layout.n_features
        )
        for line, row in zip(lines[1:], rows, strict=True):
            np.testing.assert_allclose(float(line[-1]), row["v3"], rtol=1e-6)

    def test_models_without_crosses_have_the_first_version(self, tmp_path):
        folder = sf.export_tables(sf.discretize(made([]), 4), tmp_path / "tables")
        assert json.loads((folder / "manifest.json").read_text())["version"] == 1

    def test_no_combination_is_frequent(self, tmp_path):
        cross = sf.Cross(sf.Categorical("user"), sf.Categorical("kind"), min_count=1000)
        fitted = random_fitted(sf.FM(k=4), sf.Schema([cross]), cross_table(50))
        folder = sf.export_tables(fitted, tmp_path / "tables")
        assert table_rows(folder / "field-0-user-kind.parquet") == []

    def test_splines_of_parts_are_told_to_be_discretized(self, tmp_path):
        fitted = random_fitted(
            sf.FM(k=4), sf.Schema([sf.Cross(sf.Categorical("kind"), sf.Numerical("z"))]), cross_table(50)
        )
        with pytest.raises(ValueError, match=r"tables hold bins, and 'z' has another basis; use sf.discretize"):
            sf.export_tables(fitted, tmp_path / "tables")
