"""Crosses: products of the encodings of their parts, and nothing for what they do not know."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.fields.cross import CellCounts, Cells, hash_cells, listed_cells
from splinefm.encode.tables.columns import Categories
from splinefm.store import container
from splinefm.store import model_file as modelfile
from support import examples, random_fitted

BASES = st.one_of(
    st.builds(sf.BSpline, st.integers(1, 5), st.integers(0, 3)),
    st.just(sf.BSpline(knots=(0.0, 0.2, 1.0))),
    st.just(sf.BSpline(4, periodic=True)),
    st.just(sf.Bins(3)),
    st.just(sf.Polynomial(2)),
    st.just(sf.Fourier(1)),
)


def part_of(kind, name, basis):
    if kind == "number":
        return sf.Numerical(name, sf.MinMax(0.0, 1.0), basis, missing="error")
    return sf.Categorical(name, unseen="neutral", missing="error")


def column_of(kind, rng, n):
    return rng.random(n) if kind == "number" else rng.choice(list("abc"), n)


def dense(encoder, table, name):
    """The weights of the features of one field."""
    slots, f = encoder.encode(table), encoder.schema.names.index(name)
    first, last = encoder.layout.feature_ptr[f : f + 2]
    return slots.matrix().toarray()[:, first:last]


@given(
    kinds=st.lists(st.sampled_from(["number", "category"]), min_size=2, max_size=3),
    bases=st.lists(BASES, min_size=3, max_size=3),
    seed=st.integers(0, 99),
)
@examples(120)
def test_a_cross_is_the_outer_product_of_its_parts(kinds, bases, seed):
    rng = np.random.default_rng(seed)
    names = [f"c{i}" for i in range(len(kinds))]
    parts = [part_of(*given) for given in zip(kinds, names, bases, strict=False)]
    table = {name: column_of(kind, rng, 60) for name, kind in zip(names, kinds, strict=True)}
    encoder = sf.fit_encoder(sf.Schema([*parts, sf.Cross(*parts, name="cross", min_count=1)]), table)
    cross = encoder.schema["cross"]
    each = {i: dense(encoder, table, name) for i, name in enumerate(names)}
    found = dense(encoder, table, "cross").reshape(60, cross.n_cells, -1)
    functions = np.ones((60, 1))
    for i in cross.numbers:
        functions = np.einsum("ni,nj->nij", functions, each[i]).reshape(60, -1)
    cells = np.ones((60, cross.n_cells))
    if cross.categories:
        for position, i in enumerate(cross.categories):
            cells = cells * each[i][:, cross.cells.features[:, position]]
        assert (cells.sum(axis=1) == 1.0).all()
        assert {tuple(cell) for cell in cross.cells.features} == set(
            zip(*(each[i].argmax(axis=1) for i in cross.categories), strict=True)
        )
    np.testing.assert_allclose(found, np.einsum("nc,nf->ncf", cells, functions), atol=1e-6)


@given(
    segments=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    degrees=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    seed=st.integers(0, 99),
)
@examples(60)
def test_a_tensor_product_reproduces_any_product_of_splines(segments, degrees, seed):
    rng = np.random.default_rng(seed)
    x, y = (
        sf.Numerical(name, sf.MinMax(0.0, 1.0), sf.BSpline(*shape))
        for name, shape in zip("xy", zip(segments, degrees, strict=True), strict=True)
    )
    table = {"x": rng.random(50), "y": rng.random(50)}
    encoder = sf.fit_encoder(sf.Schema([x, y, sf.Cross(x, y, name="xy")]), table)
    f, g = (rng.normal(size=sum(item.basis.sizes)) for item in (x, y))
    expected = (dense(encoder, table, "x")[:, 1:] @ f) * (dense(encoder, table, "y")[:, 1:] @ g)
    np.testing.assert_allclose(dense(encoder, table, "xy") @ np.outer(f, g).ravel(), expected, atol=1e-5)


def test_several_resolutions_are_several_tensor_products():
    rng = np.random.default_rng(0)
    x, y = (sf.Numerical(name, sf.MinMax(0.0, 1.0)) for name in "xy")
    table = {"x": rng.random(40), "y": rng.random(40)}
    schema = sf.Schema(
        [x, y, sf.Cross("x", "y", segments=(2, 5), degree=2), sf.Cross("x", "y", name="fine", segments=5, degree=2)]
    )
    encoder = sf.fit_encoder(schema, table)
    both = encoder.schema["x × y"]
    assert both.level_sizes == ((4, 4), (7, 7)) and both.layout.n_features == 16 + 49
    assert both.layout.widths == (3,) * 6 and both.layout.units == (0,) * 6
    np.testing.assert_array_equal(dense(encoder, table, "x × y")[:, 16:], dense(encoder, table, "fine"))
    np.testing.assert_allclose(dense(encoder, table, "x × y").sum(axis=1), 2.0, atol=1e-6)


def people():
    return {
        "sex": ["f"] * 8 + ["m"] * 6 + [None] * 4,
        "job": ["a"] * 5 + ["b"] * 3 + ["a"] * 5 + ["c"] + ["a"] * 4,
        "age": [20.0, 30, 40, 50, 60, 70, 80, 90, 20, 30, 40, 50, 60, 70, 0, 20, 30, 40],
    }


def people_schema(**options):
    return sf.Schema(
        [
            sf.Categorical("sex"),
            sf.Categorical("job"),
            sf.Numerical("age", sf.MinMax(), special=[0.0]),
            sf.Cross("sex", "job", **options),
            sf.Cross("sex", "age", segments=2, **options),
        ]
    )


def weights_of(encoder, row, name):
    return dense(encoder, {key: [value] for key, value in row.items()}, name)[0]


class TestWhatItDoesNotKnow:
    encoder = sf.fit_encoder(people_schema(min_count=3), people())

    def test_frequent_combinations_come_first(self):
        cross = self.encoder.schema["sex × job"]
        assert cross.cell_names() == ["= f × = a", "= m × = a", "missing × = a", "= f × = b"]
        assert self.encoder.feature_counts[3].tolist() == [5, 5, 4, 3]
        assert (
            self.encoder.notes["sex × job"]
            == "4 combinations of categories with at least 3 rows; 1 rows have a rarer one"
        )

    @pytest.mark.parametrize(
        ("row", "name"),
        [
            ({"sex": "m", "job": "c"}, "sex × job"),  # rare
            ({"sex": "m", "job": "b"}, "sex × job"),  # never together
            ({"sex": "x", "job": "a"}, "sex × job"),  # unseen
            ({"sex": "f", "job": None}, "sex × job"),  # missing, which never occurred
            ({"sex": "f", "age": 0.0}, "sex × age"),  # special
            ({"sex": "f", "age": None}, "sex × age"),  # missing
            ({"sex": "x", "age": 30.0}, "sex × age"),
        ],
    )
    def test_has_no_weight(self, row, name):
        row = {"sex": "f", "job": "a", "age": 30.0} | row
        assert (weights_of(self.encoder, row, name) == 0.0).all()

    def test_a_frequent_missing_value_is_a_category(self):
        row = {"sex": None, "job": "a", "age": 30.0}
        assert weights_of(self.encoder, row, "sex × job").tolist() == [0, 0, 1, 0]
        assert weights_of(self.encoder, row, "sex × age").sum() == pytest.approx(1.0)

    def test_nothing_at_all_is_a_field_that_never_has_a_weight(self):
        encoder = sf.fit_encoder(people_schema(min_count=100), people())
        assert encoder.schema["sex × job"].layout.n_features == 1
        assert (dense(encoder, people(), "sex × job") == 0.0).all()
        assert encoder.schema["sex × job"].feature_names() == ["no combination"]

    def test_buckets_take_every_combination_of_known_categories(self):
        encoder = sf.fit_encoder(people_schema(buckets=5), people())
        cross = encoder.schema["sex × job"]
        assert cross.layout.n_features == 5 and cross.cells is None
        found = dense(encoder, people(), "sex × job")
        assert (found.sum(axis=1) == 1.0).all()
        pairs = np.array([[s, j] for s in range(9) for j in range(9)], np.int32)
        np.testing.assert_array_equal(hash_cells(pairs, 5), hash_cells(pairs, 5))
        assert len(set(hash_cells(pairs, 1000).tolist())) > 70
        row = {"sex": "x", "job": "a", "age": 1.0}
        assert (weights_of(encoder, row, "sex × job") == 0.0).all()


tables = st.integers(0, 999).map(
    lambda seed: pa.table(
        {
            "sex": np.random.default_rng(seed).choice(np.array(["f", "m", None, "x"], object), 40),
            "job": np.random.default_rng(seed + 1).choice(list("abcd"), 40),
            "age": np.random.default_rng(seed + 2).choice([0.0, np.nan, 20.0, 33.0, 90.0], 40),
        }
    )
)


@given(tables, st.integers(1, 39), st.sampled_from([{"min_count": 3}, {"buckets": 4}]))
@examples(80)
def test_statistics_of_parts_merge_to_those_of_the_whole(table, cut, options):
    schema = people_schema(**options)
    whole, first, second = (sf.EncoderStatistics(schema, threads=1) for _ in range(3))
    whole.update(table)
    first.update(table[:cut])
    second.update(table[cut:])
    merged, swapped = sf.EncoderStatistics(schema, threads=1), sf.EncoderStatistics(schema, threads=1)
    for statistics, parts in ((merged, (first, second)), (swapped, (second, first))):
        for part in parts:
            statistics.merge(part)
    assert merged.encoder() == whole.encoder()
    assert swapped.encoder() == whole.encoder()


def test_chunks_encode_like_the_whole(monkeypatch):
    rng = np.random.default_rng(0)
    table = pa.table(
        {"sex": rng.choice(list("fmx"), 500), "job": rng.choice(list("abcd"), 500), "age": rng.random(500)}
    )
    encoder = sf.fit_encoder(people_schema(min_count=2), table)
    whole = encoder.encode(table)
    monkeypatch.setattr("splinefm.encode.encoder.BLOCK", 37)
    parts = list(encoder.encode_chunks(table, rows=101, threads=2))
    assert len(parts) == 5
    np.testing.assert_array_equal(np.concatenate([part.start for part in parts]), whole.start)
    np.testing.assert_array_equal(np.concatenate([part.weight for part in parts]), whole.weight)


@given(tables, tables)
@examples(60)
def test_extending_adds_combinations_at_the_end(old, new):
    encoder = sf.fit_encoder(people_schema(min_count=2), old)
    extended = encoder.extend(new)
    for name in ("sex × job", "sex × age"):
        before, after = (each.schema[name] for each in (encoder, extended))
        n = before.n_cells
        np.testing.assert_array_equal(after.cells.features[:n], before.cells.features)
        assert len(np.unique(after.cells.features, axis=0)) == after.n_cells
        features = dense(encoder, old, name)
        np.testing.assert_array_equal(dense(extended, old, name)[:, : features.shape[1]] * (features != 0), features)
    counted = extended.feature_counts[3]
    assert counted[: encoder.schema["sex × job"].n_cells].sum() >= encoder.feature_counts[3].sum() - 1


class TestCells:
    @given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), min_size=1, unique=True), st.integers(0, 99))
    @examples(60)
    def test_find_what_is_there_and_nothing_else(self, pairs, seed):
        kept = np.array(pairs, np.int32)
        cells = Cells(kept)
        np.testing.assert_array_equal(cells.find(kept), np.arange(len(kept)))
        others = np.random.default_rng(seed).integers(0, 500, (50, 2)).astype(np.int32)
        expected = [pairs.index(tuple(pair)) if tuple(pair) in pairs else -1 for pair in others.tolist()]
        np.testing.assert_array_equal(cells.find(others), expected)

    def test_a_large_table_of_keys_is_searched(self):
        kept = np.array([[0, 0], [100_000, 99_999], [5, 70_000]], np.int32)
        assert Cells(kept).find(np.array([[5, 70_000], [5, 70_001], [100_000, 99_999]], np.int32)).tolist() == [
            2,
            -1,
            1,
        ]

    def test_keys_that_64_bits_do_not_tell_apart_are_refused(self):
        kept = np.array([[0, 0, 0], [2**31 - 1] * 3], np.int32)
        with pytest.raises(ValueError, match="cannot be told apart by 64 bits; give the cross buckets"):
            Cells(kept).find(kept)

    def test_keys_of_long_dictionaries_are_those_of_the_names_that_occur(self):
        names = pa.array(np.arange(3_000_000)).cast(pa.large_string())
        codes = np.array([2_999_999, -1, 5, 2_999_999], np.int32)
        counts = CellCounts(3)
        counts.update([Categories(names, codes)] * 3)
        found, n = counts.every()
        counted = dict(zip(found[2].to_pylist(), n.tolist(), strict=True))
        assert counted == {"2999999": 2, None: 1, "5": 1}
        assert found[0].equals(found[2])

    def test_the_first_combinations_of_three_are_added(self):
        fields = [sf.Categorical(name) for name in "abc"]
        schema = sf.Schema([*fields, sf.Cross("a", "b", "c", min_count=2)])
        encoder = sf.fit_encoder(schema, {name: ["u", "v"] for name in "abc"})
        cross = replace(encoder.fields[3], cells=listed_cells([], "empty"))
        encoder = replace(encoder, fields=(*encoder.fields[:3], cross))
        extended = encoder.extend({name: ["u", "u", "v"] for name in "abc"})
        assert extended.fields[3].cell_names() == ["= u × = u × = u"]

    def test_none_are_kept(self):
        assert Cells(np.zeros((0, 2), np.int32)).find(np.zeros((3, 2), np.int32)).tolist() == [-1] * 3

    @given(
        st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["u", "v", None])), max_size=30),
        st.integers(0, 30),
    )
    @examples(60)
    def test_counts_are_those_of_all_rows(self, rows, cut):
        counts, other = CellCounts(2), CellCounts(2)
        for part, target in ((rows[:cut], counts), (rows[cut:], other)):
            if part:
                columns = [pa.array(column, pa.large_string()) for column in zip(*part, strict=True)]
                coded = columns[0].dictionary_encode()
                codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
                target.update([Categories(coded.dictionary, codes), Categories(columns[1], None)])
        counts.merge(other)
        names, n = counts.every()
        found = dict(zip(zip(*(each.to_pylist() for each in names), strict=True), n.tolist(), strict=True))
        assert found == {pair: rows.count(pair) for pair in set(rows)}


class TestBadInput:
    x, c, m = sf.Numerical("x"), sf.Categorical("c"), sf.MultiValued("m")

    @pytest.mark.parametrize(
        ("parts", "options", "match"),
        [
            (("x",), {}, "two or three different fields, or one sf.Categorical; got \\['x'\\]"),
            (("x", "x"), {}, "two or three different fields"),
            (("x", "c", "d", "e"), {}, "two or three different fields"),
            (("x", sf.MultiValued("m")), {}, "takes names of fields, sf.Numerical and sf.Categorical; got MultiValued"),
            (("x", sf.Cross("a", "b")), {}, "takes names of fields.*got Cross"),
            (("x", 3), {}, "takes names of fields.*got 3"),
            (("x", "c"), {"parts": ("x", "d")}, "the parts of a cross are given twice"),
            (("x", "c"), {"segments": 0}, "segments must be .*got 0"),
            (("x", "c"), {"segments": ()}, "segments must name at least one resolution"),
            (("x", "c"), {"degree": 6}, "degree must be .*got 6"),
            (("x", "c"), {"min_count": 0}, "min_count must be .*got 0"),
            (("x", "c"), {"buckets": 0}, "buckets must be .*got 0"),
        ],
    )
    def test_of_a_cross(self, parts, options, match):
        with pytest.raises(ValueError, match=match):
            sf.Cross(*parts, **options)

    @pytest.mark.parametrize(
        ("fields", "match"),
        [
            ([sf.Cross("x", "color")], "cross 'x × color': no field 'color' in the schema"),
            ([sf.Cross("x", "m")], "cross 'x × m': 'm' is a MultiValued; a cross takes numerical and categorical"),
            ([sf.Cross("x", "c"), sf.Cross("x", "c")], "names a field twice: 'x × c'"),
            ([sf.Cross("x", "c"), sf.Cross("x × c", "c")], "'x × c' is a Cross"),
        ],
    )
    def test_of_a_schema(self, fields, match):
        with pytest.raises(ValueError, match=match):
            sf.Schema([self.x, self.c, self.m, *fields])

    def test_of_resolutions_that_do_not_match(self):
        x = sf.Numerical("x", sf.MinMax(), sf.MultiResolution((2, 4)))
        y = sf.Numerical("y", sf.MinMax(), sf.MultiResolution((2, 4, 8)))
        with pytest.raises(ValueError, match=r"cross 'x × y': its numbers must have the same number of resolutions"):
            sf.fit_encoder(sf.Schema([sf.Cross(x, y)]), {"x": [0.0, 1.0], "y": [0.0, 1.0]})

    def test_before_it_is_fitted(self):
        for use in (lambda cross: cross.columns, lambda cross: cross.layout):
            with pytest.raises(ValueError, match=r"'x × c' is not fitted; use sf\.fit_encoder"):
                use(sf.Cross("x", "c"))


FILE_SCHEMA = sf.Schema(
    [
        sf.Numerical("age", sf.MinMax(), special=[0.0]),
        sf.Categorical("sex"),
        sf.Categorical("job"),
        sf.Cross("sex", "job", min_count=2),
        sf.Cross("age", "sex", name="by sex", segments=(2, 4), degree=2, buckets=9),
        sf.Cross("age", sf.Numerical("age2", sf.MinMax(), sf.BSpline(3), column="age"), "job", segments=3),
    ]
)


class TestSchemaFiles:
    @pytest.mark.parametrize("suffix", [".toml", ".json"])
    def test_a_schema_round_trips(self, tmp_path, suffix):
        path = tmp_path / f"schema{suffix}"
        for schema in (FILE_SCHEMA, sf.fit_encoder(FILE_SCHEMA, people()).schema):
            schema.save(path)
            again = sf.Schema.load(path)
            assert again == schema and again.crosses == schema.crosses
        encoder, table = sf.fit_encoder(FILE_SCHEMA, people()), people()
        np.testing.assert_array_equal(sf.fit_encoder(again, table).encode(table).weight, encoder.encode(table).weight)

    def test_it_is_short(self, tmp_path):
        FILE_SCHEMA.save(tmp_path / "schema.toml")
        text = (tmp_path / "schema.toml").read_text()
        assert '[[field]]\nkind = "Cross"\nname = "sex × job"\nparts = ["sex", "job"]\nmin_count = 2\n' in text
        assert str(FILE_SCHEMA).splitlines()[3:5] == [
            "Cross('sex', 'job', min_count=2)",
            "Cross('age', 'sex', name='by sex', segments=(2, 4), degree=2, buckets=9)",
        ]

    @pytest.mark.parametrize(
        ("entry", "match"),
        [
            ('parts = ["age", "color"]', "cross 'it': no field 'color' in the schema"),
            ('parts = ["age"]', "two or three different fields"),
            ('parts = ["age", "age"]', "two or three different fields"),
            ("", "two or three different fields"),
            ('parts = ["age", "tags"]', "'tags' is a MultiValued"),
            ('parts = ["age", {kind = "MultiValued", name = "tags"}]', "got MultiValued"),
            ('parts = ["age", {kind = "Cross", name = "b", parts = ["age", "sex"]}]', "got Cross"),
            ('parts = ["age", {kind = "MinMax"}]', "got MinMax"),
            ('parts = ["age", 3]', "got 3"),
            ('parts = "age"', "two or three different fields, got 'age'"),
            ('parts = ["age", "sex"]\nsegments = 0', "segments must be"),
            ('parts = ["age", "sex"]\nsegments = "many"', "segments"),
            ('parts = ["age", "sex"]\nmin_count = "many"', "min_count must be"),
            ('parts = ["age", "sex"]\ntransform = "auto"', "Cross has no setting 'transform'"),
            ('parts = ["age", "sex"]\ncells = [[-1, 2]]', "cells of cross 'it' must be different lists of features"),
            ('parts = ["age", "sex"]\ncells = [[1, 2], [1, 2]]', "cells of cross 'it' must be different lists"),
            ('parts = ["age", "sex"]\ncells = [[1, 2], [1]]', "cells of cross 'it' must be different lists"),
            ('parts = ["age", "sex"]\ncells = [[1.5]]', "cells of cross 'it' must be different lists"),
            ('parts = ["age", "sex"]\ncells = "none"', "cells of cross 'it' must be different lists"),
        ],
    )
    def test_bad_entries(self, tmp_path, entry, match):
        path = tmp_path / "schema.toml"
        known = '[[field]]\nkind = "{}"\nname = "{}"\n'
        fields = [
            known.format("Numerical", "age"),
            known.format("Categorical", "sex"),
            known.format("MultiValued", "tags"),
        ]
        path.write_text("".join([*fields, known.format("Cross", "it"), entry]))
        with pytest.raises(ValueError, match=match):
            sf.Schema.load(path)


class TestSettingsWithoutEffect:
    NUMBERS = sf.Schema([sf.Numerical("age"), sf.Numerical("x"), sf.Cross("age", "x", buckets=5, segments=2)])
    CATEGORIES = sf.Schema([sf.Categorical("sex"), sf.Categorical("job"), sf.Cross("sex", "job", segments=5)])
    MESSAGES = (
        (
            NUMBERS,
            r"cross 'age × x': buckets=5 is for combinations of categories, and the cross has none; leave",
        ),
        (CATEGORIES, r"cross 'sex × job': segments=\(5,\) is for splines of numbers, and the cross has none"),
    )

    @pytest.mark.parametrize(("schema", "message"), MESSAGES)
    def test_a_fit_refuses_them(self, schema, message):
        table = {"age": [1.0, 2.0], "x": [0.0, 1.0], "sex": ["f", "m"], "job": ["a", "b"], "y": [0, 1]}
        with pytest.raises(ValueError, match=message):
            sf.fit_encoder(schema, table)
        with pytest.raises(ValueError, match=message):
            sf.fit_model(table, "y", schema=schema)

    @pytest.mark.parametrize("schema", [NUMBERS, CATEGORIES])
    def test_files_that_have_them_load_and_update(self, schema, tmp_path, monkeypatch):
        schema.save(tmp_path / "schema.toml")
        assert sf.Schema.load(tmp_path / "schema.toml") == schema
        monkeypatch.setattr("splinefm.encode.encoder.check_crosses", lambda schema: None)
        table = {**people(), "x": np.linspace(0.0, 1.0, len(people()["age"]))}
        fitted = random_fitted(sf.FM(k=2), schema, table)
        monkeypatch.undo()
        fitted.save(tmp_path / "m.sfm")
        again = sf.load(tmp_path / "m.sfm")
        np.testing.assert_array_equal(again.scores(table), fitted.scores(table))
        sf.Learner(again, sf.Training(threads=1)).update({**table, "y": np.arange(len(table["x"])) % 2}, "y")


def test_a_cross_needs_the_fields_that_it_names():
    with pytest.raises(ValueError, match=r"no field 'a' in the schema\. Fields: none; add the fields of the cross"):
        sf.Schema([sf.Cross("a", "b")])


def test_notes_tell_resolutions_as_a_sum_and_one_combination_as_one():
    schema = sf.Schema([sf.Numerical("x"), sf.Numerical("y"), sf.Categorical("c"), sf.Cross("x", "y", segments=(2, 4))])
    schema = sf.Schema([*schema, sf.Cross("c", "x", min_count=1, segments=(2, 4))])
    encoder = sf.fit_encoder(schema, {"x": [0.0, 1.0], "y": [1.0, 2.0], "c": ["a", "a"]})
    assert encoder.notes["x × y"] == "tensor product of 5 by 5 + 7 by 7 splines"
    assert encoder.notes["c × x"] == "1 combination of categories, a spline of 5 + 7 for each"
    assert encoder.notes["c"] == "1 category"


def cross_model():
    return random_fitted(sf.FwFM(k=2), FILE_SCHEMA, people())


class TestModelFiles:
    def test_scores_are_the_same_after_loading(self, tmp_path):
        fitted = cross_model()
        fitted.save(tmp_path / "m.sfm")
        again = sf.load(tmp_path / "m.sfm")
        assert again.encoder == fitted.encoder and again.encoder.schema.crosses == fitted.encoder.schema.crosses
        np.testing.assert_array_equal(again.scores(people()), fitted.scores(people()))

    @pytest.mark.parametrize(
        ("cells", "match"),
        [
            ([[2, 3], [3, 9]], "combines features that its parts do not have"),
            ([[2, 3], [3, -1]], "its combinations are invalid"),
            ([[2, 3], [2, 3]], "has a combination twice"),
            ([[2, 3], [3, 2**40]], "its combinations are invalid"),
            ([[2, 3, 2], [3, 2, 2]], "do not fit its parts"),
            ([[2], [3]], "do not fit its parts"),
            ([2, 3], "damaged|shape|dimension"),
            ([[2, 3]] + [[3, i] for i in range(4)], "its fields need|features|too many"),
        ],
    )
    def test_hostile_combinations_are_refused(self, tmp_path, cells, match):
        path = tmp_path / "m.sfm"
        cross_model().save(path)
        raw = path.read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        description = json.loads(header["__metadata__"]["splinefm"])
        arrays = dict(safetensors.numpy.load_file(path))
        name = next(name for name in arrays if name.endswith("cells"))
        assert arrays[name].shape == (4, 2)
        arrays[name] = np.array(cells, np.int64)
        parts = {key: description[key] for key in ("encoder", "model", "loss", "training", "history")}
        with path.open("wb") as file:
            container.write_container(file, modelfile.FORMAT, "x", parts, arrays)
        with pytest.raises(sf.ModelFileError, match=match):
            sf.load(path)

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            ({"parts": ["sex", "job"]}, "'sex × job' is not fitted|field"),
            ({"parts": []}, "two or three different fields"),
            ({"buckets": 10**9}, "too many combinations|features"),
            ({"segments": [10**9]}, "."),
        ],
    )
    def test_hostile_descriptions_are_refused(self, tmp_path, change, match):
        path = tmp_path / "m.sfm"
        cross_model().save(path)
        raw = path.read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        description = json.loads(header["__metadata__"]["splinefm"])
        described = next(item for item in description["encoder"]["fields"] if item["name"] == "sex × job")
        described.update(change)
        arrays = dict(safetensors.numpy.load_file(path))
        parts = {key: description[key] for key in ("encoder", "model", "loss", "training", "history")}
        with path.open("wb") as file:
            container.write_container(file, modelfile.FORMAT, "x", parts, arrays)
        if change == {"segments": [10**9]}:  # of splines by name, of which a fitted cross has none
            assert sf.load(path).encoder.schema["sex × job"].layout.n_features == 4
            return
        with pytest.raises(sf.ModelFileError, match=match):
            sf.load(path)
