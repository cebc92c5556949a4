"""Schemas: from code, files and tables."""

import json
import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.schema import Provenance

names = st.text(min_size=1, max_size=8)
numbers = st.floats(allow_nan=False, width=32)
transforms = st.one_of(
    st.just("auto"),
    st.just(sf.MinMax()),
    st.builds(sf.MinMax, st.floats(-10, 0), st.floats(1, 10)),
    st.just(sf.Quantile(100)),
    st.just(sf.BestFitCDF(families=("normal", "gamma"))),
    st.just(sf.ArcsinhSquare(clip=0.99)),
    st.just(sf.Log(shift=1.0)),
)
bases = st.one_of(
    st.builds(sf.BSpline, st.integers(1, 50), st.integers(0, 5)),
    st.just(sf.BSpline(knots=(0.0, 0.3, 1.0))),
    st.just(sf.MultiResolution((4, 8), 2)),
    st.just(sf.Bins(7, "quantile")),
    st.just(sf.Bins(edges=(-1.5, 0.0, 1e9))),
    st.just(sf.Polynomial(3, "legendre")),
    st.just(sf.Fourier(2)),
    st.just(sf.Powers((1.0, 3.0))),
)
special = st.lists(st.one_of(numbers, st.sampled_from(["negative", ">= 999", "< -5.5"])), max_size=4, unique=True)
fields = st.one_of(
    st.builds(sf.Numerical, names, transforms, bases, special.map(tuple), st.sampled_from(["token", "error"])),
    st.builds(sf.Categorical, names, st.integers(1, 9), st.sampled_from(["rare", "neutral", "hash"])),
    st.builds(sf.Categorical, names, vocabulary=st.lists(st.text(max_size=5), unique=True)),
    st.builds(sf.MultiValued, names, st.none() | st.just("|"), st.sampled_from(["sum", "mean", "identity"])),
)
schemas = st.lists(fields, min_size=1, max_size=4, unique_by=lambda field: field.name).map(sf.Schema)


@given(schema=schemas, suffix=st.sampled_from([".toml", ".json"]))
def test_a_schema_round_trips_through_its_file(tmp_path_factory, schema, suffix):
    path = tmp_path_factory.mktemp("schema") / f"schema{suffix}"
    schema.save(path)
    again = sf.Schema.load(path)
    assert [type(field) for field in again] == [type(field) for field in schema]
    infinite = [
        field
        for field in schema
        if np.inf in np.abs([x for x in getattr(field, "special", ()) if not isinstance(x, str)] or [0])
    ]
    if not infinite:  # an infinite special value comes back as the rule "== inf"
        assert again == schema
    again.save(path)
    assert sf.Schema.load(path) == again


def test_a_fitted_schema_round_trips_and_encodes_the_same(tmp_path):
    rng = np.random.default_rng(0)
    table = {"x": rng.gamma(2.0, size=500), "y": rng.normal(size=500), "c": rng.choice(list("abc"), 500)}
    schema = sf.Schema([sf.Numerical("x", sf.BestFitCDF()), sf.Numerical("y"), sf.Categorical("c")])
    encoder = sf.fit_encoder(schema, table)
    encoder.schema.save(tmp_path / "fitted.toml")
    loaded = sf.Schema.load(tmp_path / "fitted.toml")
    assert loaded == encoder.schema
    assert loaded.reasons == encoder.notes
    again = sf.fit_encoder(loaded, table)  # what is given is kept
    np.testing.assert_array_equal(again.encode(table).weight, encoder.encode(table).weight)


def test_a_readable_file(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(
        """
        [[field]]
        kind = "Numerical"
        name = "recency"
        transform = {kind = "BestFitCDF"}
        basis = {kind = "BSpline", segments = 32}
        special = [0.0, "negative"]

        [[field]]
        kind = "Categorical"
        name = "country"
        min_count = 10
        """
    )
    assert sf.Schema.load(path) == sf.Schema(
        [
            sf.Numerical("recency", sf.BestFitCDF(), sf.BSpline(segments=32), special=[0.0, "negative"]),
            sf.Categorical("country", min_count=10),
        ]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("field = 3", 'one list "field"'),
        ("[other]", 'one list "field"'),
        ("not toml", "is not a valid TOML file"),
        ('[[field]]\nkind = "Number"\nname = "x"', "\"kind\" must be one of Numerical, .*got 'Number'"),
        ('[[field]]\nkind = "Multivalued"\nname = "x"', "got 'Multivalued'; nearest: 'MultiValued'"),
        ('[[field]]\nname = "x"', '"kind" must be one of'),
        ('[[field]]\nkind = "Numerical"\nname = "x"\nbase = 3', "field 'x': Numerical has no setting 'base'"),
        ('[[field]]\nkind = "Numerical"', "required positional argument: 'name'|missing"),
        (
            '[[field]]\nkind = "Numerical"\nname = "x"\nbasis = {kind = "BSpline", degree = 9}',
            "degree must be from 0 to 5",
        ),
        (
            '[[field]]\nkind = "Categorical"\nname = "x"\n[[field]]\nkind = "Categorical"\nname = "x"',
            "twice: 'x'",
        ),
    ],
)
def test_a_bad_file_is_explained_with_its_path(tmp_path, text, message):
    path = tmp_path / "schema.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        sf.Schema.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("place", ["name", "missing", "reason", "special"])
def test_halves_of_surrogate_pairs_are_no_text(tmp_path, place):
    entry = {"kind": "Numerical", "name": "x", place: ["\ud800"] if place == "special" else "a\ud800"}
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"field": [entry]}))
    with pytest.raises(ValueError, match=r"s\.json: .* holds text that is not valid Unicode: 'a?\\ud800'"):
        sf.Schema.load(path)


def test_a_file_of_another_kind(tmp_path):
    with pytest.raises(ValueError, match=r"ends in .toml or .json"):
        sf.Schema.load(tmp_path / "schema.yaml")
    with pytest.raises(FileNotFoundError):
        sf.Schema.load(tmp_path / "none.toml")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ValueError, match="not a valid JSON file"):
        sf.Schema.load(tmp_path / "bad.json")


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "schema.toml"
    sf.Schema([sf.Categorical("c")]).save(path)
    custom = sf.Schema([sf.Numerical("x", basis=sf.CustomBasis((np.sin,)))])
    with pytest.raises(ValueError, match="cannot be written to a file"):
        custom.save(path)
    assert sf.Schema.load(path).names == ("c",)
    assert [item.name for item in tmp_path.iterdir()] == ["schema.toml"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sf.Schema([]), "at least one field"),
        (lambda: sf.Schema(["x"]), "takes sf.Numerical"),
        (lambda: sf.Schema([sf.Numerical("x"), sf.Categorical("x")]), "names a field twice: 'x'"),
        (lambda: sf.Schema([sf.Numerical("price")])["prise"], "nearest: 'price'"),
    ],
)
def test_bad_schemas(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class TestInference:
    @pytest.mark.parametrize("name", ["user_id", "movieId", "ID", "id", "zip_code", "areaCode", "site.id"])
    def test_integers_that_are_called_identifiers_are_categories(self, name):
        rows = np.arange(5000)
        schema = sf.infer_schema({name: rows % 40 * 7, "y": rows % 2}, target="y")
        assert schema[name] == sf.Categorical(name)
        assert "identifiers by their name" in schema.reasons[name]
        many = sf.infer_schema({name: rows % 1200, "y": rows % 2}, target="y")
        assert many[name] == sf.Categorical(name, min_count=10)

    @pytest.mark.parametrize("name", ["paid", "humid", "grid", "valid", "width", "decode"])
    def test_names_that_end_alike_are_no_identifiers(self, name):
        rows = np.arange(5000)
        assert isinstance(sf.infer_schema({name: rows % 40 * 7, "y": rows % 2}, target="y")[name], sf.Numerical)

    def test_identifiers_that_hardly_recur_stay_numbers(self):
        rows = np.arange(3000)
        assert isinstance(sf.infer_schema({"order_id": rows // 2, "y": rows % 2}, target="y")["order_id"], sf.Numerical)
        assert isinstance(
            sf.infer_schema({"user_id": rows % 40 + 0.5, "y": rows % 2}, target="y")["user_id"], sf.Numerical
        )

    def schema(self, target=None, **columns):
        return sf.infer_schema(pa.table(columns), target=target)

    def test_every_kind_of_column(self):
        rng = np.random.default_rng(0)
        n = 2000
        schema = self.schema(
            price=rng.lognormal(size=n),
            clicks=np.where(rng.random(n) < 0.6, 0, rng.poisson(40, n)),
            weekday=rng.integers(0, 7, n),
            weekday_with_gaps=pa.array(rng.integers(0, 7, n).astype(float), mask=rng.random(n) < 0.1),
            hour=rng.integers(0, 24, n),
            country=rng.choice(["US", "FR"], n),
            user=[f"u{i}" for i in range(n)],
            flag=rng.random(n) < 0.5,
            tags=[["a", "b"]] * n,
            when=pa.array(rng.integers(0, 10**9, n), pa.timestamp("s")),
            empty=pa.nulls(n),
            label=rng.integers(0, 2, n),
            target="label",
        )
        assert dict(zip(schema.names, schema, strict=True)) == {
            "price": sf.Numerical("price", basis=sf.MultiResolution()),
            "clicks": sf.Numerical("clicks", special=[0.0]),
            "weekday": sf.Categorical("weekday"),
            "weekday_with_gaps": sf.Categorical("weekday_with_gaps"),
            "hour": sf.Numerical("hour"),
            "country": sf.Categorical("country"),
            "user": sf.Categorical("user", min_count=10),
            "flag": sf.Categorical("flag"),
            "tags": sf.MultiValued("tags"),
            **{item.name: item for item in sf.Timestamp("when", ["hour", "weekday", "yearday", "trend"]).fields},
        }
        assert set(schema.reasons) == set(schema.names) | {"empty"}
        assert "60% of the rows" in schema.reasons["clicks"] or "0 (" in schema.reasons["clicks"]
        assert "identifier" in schema.reasons["user"]
        assert schema.reasons["empty"] == "left out: it has no values"
        assert "# empty: left out" in str(schema)

    @pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 8)])
    def test_coordinates_are_no_categories(self, kind):
        vectors = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32).tolist()
        schema = self.schema(embedding=pa.array([*vectors[:-1], None], kind), x=[0.0, 1.0, 2.0] * 200)
        assert schema.names == ("x",)
        assert schema.reasons["embedding"].startswith("left out: lists of up to 8 numbers that hardly recur")
        assert "numerical column of each coordinate" in schema.reasons["embedding"]
        with pytest.raises(ValueError, match="no column is left to make a field of: 'e' is left out: lists of up to 8"):
            self.schema(e=pa.array(vectors, kind))

    @pytest.mark.parametrize("values", [[1, 2], [1.5, 2.5]])
    def test_lists_of_numbers_that_recur_are_lists_of_categories(self, values):
        assert self.schema(tags=[values, values[:1]] * 100)["tags"] == sf.MultiValued("tags")
        assert self.schema(ids=[[2 * i, 2 * i + 1] for i in range(100)])["ids"] == sf.MultiValued("ids")

    @pytest.mark.parametrize("first", [2**53, 2**60, -(2**60)])
    def test_integers_that_floats_cannot_tell_apart_are_counted_as_they_are(self, first, tmp_path):
        users = pa.table({"user": [first + i for i in range(200)] * 5})
        schema = sf.infer_schema(users)
        assert schema["user"] == sf.Categorical("user")
        assert schema.reasons["user"] == "integers too large for a quantity, with 200 distinct values"
        assert len(sf.fit_encoder(schema, users).fields[0].vocabulary) == 200
        (tmp_path / "users.csv").write_text("\n".join(["user", *map(str, users["user"].to_pylist())]))
        assert sf.infer_schema(tmp_path / "users.csv")["user"] == sf.Categorical("user")

    def test_times_in_nanoseconds_stay_numbers(self):
        times = np.random.default_rng(0).integers(1_700_000_000, 1_700_100_000, 2000) * 10**9
        assert isinstance(self.schema(t=times)["t"], sf.Numerical)

    def test_times_of_day_come_with_the_way_to_a_curve(self):
        reason = self.schema(at=pa.array(range(400), pa.time32("s"))).reasons["at"]
        assert reason.startswith("values of type time32[s] with 400 distinct values; for a curve over the day, convert")
        field = eval(reason.rpartition("use ")[2], {"sf": sf})
        assert field.layout.n_features == 25

    def test_text_of_several_values_is_cut_where_they_recur(self):
        rng = np.random.default_rng(0)
        genres = np.array(["Drama", "Comedy", "War", "Crime", "Children's", "Film-Noir", "1980s"])
        lists = ["|".join(rng.choice(genres, rng.integers(1, 4), replace=False)) for _ in range(500)]
        schema = self.schema(genres=[None, *lists])
        assert list(schema) == [sf.MultiValued("genres", "|")]
        assert "up to 3 of 7 values" in schema.reasons["genres"]
        names = np.array([f"tag {i}" for i in range(1500)])
        many = self.schema(tags=["|".join(rng.choice(names, rng.integers(1, 4))) for _ in range(6000)])
        assert list(many) == [sf.MultiValued("tags", "|", min_count=10)]

    @pytest.mark.parametrize(
        "texts",
        [
            [f"{country}|{device}" for country in "abcdef" for device in "uvwxyz"],  # one name in two parts
            ["a|b", "c", "d|e|f", "g"],  # parts do not recur
            [*(f"text {i}" for i in range(200)), "text 1|text 2"],  # one odd row
        ],
    )
    def test_other_text_with_bars_is_a_category(self, texts):
        assert isinstance(self.schema(text=texts * 10)["text"], sf.Categorical)

    @pytest.mark.parametrize("name", ["timestamp", "time", "ts", "created_at", "createdAt", "event.time", "startTime"])
    def test_integers_that_may_be_times_are_remarked(self, name):
        seconds = 1_260_759_144 + 720 * np.arange(2000)
        for values, words in ((seconds, "if these are seconds"), (seconds * 1000, "divide them by 1000")):
            schema = self.schema(**{name: values})
            assert isinstance(schema[name], sf.Numerical)
            assert words in schema.reasons[name] and "from 2009-12-14 to 2009-12-30" in schema.reasons[name]
            assert "an identifier?" not in schema.reasons[name]

    @pytest.mark.parametrize(("name", "start"), [("timestamp", 5), ("price", 1_260_759_144), ("flat", 1_260_759_144)])
    def test_other_integers_are_not_remarked(self, name, start):
        assert "since 1970" not in self.schema(**{name: start + 7 * np.arange(400)}).reasons[name]

    def test_leaves_out_the_nameless_index_of_a_text_file(self, tmp_path):
        pd = pytest.importorskip("pandas")
        pd.DataFrame({"x": np.arange(50.0), "y": [0, 1] * 25}).to_csv(tmp_path / "data.csv")
        schema = sf.infer_schema(tmp_path / "data.csv", target="y")
        assert schema.names == ("x",) and "no name" in schema.reasons[""] and "no name" in str(schema)

    @pytest.mark.parametrize("scale", [1e19, 1e300])
    def test_huge_numbers_are_not_whole_because_floats_have_no_fractions_there(self, scale):
        x = scale * np.random.default_rng(0).uniform(1.0, 9.0, 2000)
        assert "an identifier?" not in self.schema(x=x).reasons["x"]

    def test_integers_of_64_bits_are_identifiers(self):
        ids = 10**18 + 10**9 * np.arange(2000)
        assert "an identifier?" in self.schema(key=ids).reasons["key"]

    def test_heavy_values_of_a_coarse_grid_are_not_special(self):
        assert self.schema(grade=np.repeat(np.arange(16), 100)) == sf.Schema([sf.Numerical("grade")])

    def test_amounts_that_recur_are_categories(self):
        rng = np.random.default_rng(0)
        tariffs = np.unique(np.round(np.exp(rng.normal(7, 2, 60)), 2))
        amounts = np.concatenate([np.zeros(5000), rng.choice(tariffs, 20 * len(tariffs))])
        table = {
            "amount": amounts,
            "grid": rng.integers(0, 60, len(amounts)) * 0.5,
            "many": rng.random(len(amounts)),
        }
        schema = sf.infer_schema(table)
        assert schema["amount"] == sf.Categorical("amount")
        assert "recur" in schema.reasons["amount"]
        assert isinstance(schema["grid"], sf.Numerical) and isinstance(schema["many"], sf.Numerical)
        few = {"amount": np.concatenate([np.zeros(5000), np.repeat(tariffs, 3)])}  # each on three rows only
        assert isinstance(sf.infer_schema(few)["amount"], sf.Numerical)

    def test_an_inferred_schema_fits_its_table(self):
        table = pa.table({"x": np.r_[np.zeros(50), np.arange(50)], "c": ["a", None] * 50})
        schema = sf.Schema.infer(table)
        assert len(sf.fit_encoder(schema, table).encode(table)) == 100

    @pytest.mark.parametrize(
        ("columns", "target", "message"),
        [
            ({"y": [1]}, "z", "no column 'z'"),
            ({"y": [1]}, "y", "no column is left"),
            ({"x": pa.nulls(3)}, None, "no column is left"),
            ({"x": pa.array([], pa.int64())}, None, "the table has no rows"),
            ({"x": [{"a": 1}]}, None, "nested|should hold lists"),
        ],
    )
    def test_bad_tables(self, columns, target, message):
        with pytest.raises(ValueError, match=message):
            self.schema(target=target, **columns)


class CountedName(str):
    """A name that counts how often it is compared."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.comparisons += 1
        return str.__eq__(self, other)


def test_the_work_of_a_schema_grows_with_the_number_of_its_fields_and_not_with_its_square():
    n = 2_000
    names = [CountedName(f"x{i}") for i in range(n)]
    schema = sf.Schema([sf.Numerical(name) for name in names])
    schema.check_columns(names)
    assert [schema[CountedName(f"x{i}")].name for i in range(n)] == names
    str(schema)
    assert CountedName.comparisons < 20 * n
    assert schema.names is schema.names


def test_every_column_that_is_named_twice_is_reported():
    with pytest.raises(ValueError, match="names a field twice: 'a', 'b'"):
        sf.Schema([sf.Numerical(name) for name in "bacba"])


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_an_infinite_special_value_is_read_as_it_was_written(tmp_path, suffix):
    schema = sf.Schema([sf.Numerical("x", special=[0.0, np.inf, "negative", -np.inf])])
    schema.save(tmp_path / f"schema.{suffix}")
    assert sf.Schema.load(tmp_path / f"schema.{suffix}") == schema
    assert sf.Numerical("x", special="== 5").special == (5.0,)
    with pytest.raises(ValueError, match="special names a value twice"):
        sf.Numerical("x", special=["== inf", np.inf])


def test_one_value_is_not_told_as_several():
    table = {"c": ["a"] * 5, "n": [1] * 5, "x": [0.5] * 5, "l": [["a"]] * 5}
    reasons = sf.infer_schema(table).reasons
    assert reasons["c"].startswith("text with 1 distinct value") and "values" not in reasons["c"]
    assert "1 distinct value" in reasons["n"] and "1 distinct values" not in reasons["n"]
    assert "1 distinct values" not in reasons["x"]
    assert reasons["l"] == "lists of up to 1 value"


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder", "huge"])
def test_schema_files_that_are_no_files_are_refused(tmp_path, kind):
    """A pipe would block, and a device never ends."""
    path = tmp_path / "schema.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)  # without blocks on the disk
    says = {
        "pipe": "is a named pipe, not a regular file; copy its content",
        "zero": "is a device, not a regular file",
        "folder": "is a folder; pass the path of a file in it",
        "huge": "is larger than 268,435,456 bytes, the most that a schema file can have",
    }
    with pytest.raises((OSError, ValueError), match=f"schema.toml' {says[kind]}"):
        sf.Schema.load(path)


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_file_keeps_where_fields_come_from_but_no_questions(tmp_path, suffix):
    known = {
        "x": Provenance("inferred", "numbers", question=True),
        "c": Provenance("searched", "text", gain=0.25),
        "d": Provenance("given", "2 categories"),
    }
    schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c"), sf.Categorical("d"), sf.Categorical("e")], known)
    schema.save(tmp_path / f"schema{suffix}")
    again = sf.Schema.load(tmp_path / f"schema{suffix}")
    assert again.provenance == {**known, "x": Provenance("inferred", "numbers")}
    assert list(map(again.is_chosen, again.names)) == [True, True, False, False]
    assert again.reasons["c"].startswith("text; found: explains 25.0%")


@pytest.mark.parametrize("entry", ['source = "elsewhere"', 'gain = "much"', "gain = [1]"])
def test_a_source_that_is_none_is_refused(tmp_path, entry):
    path = tmp_path / "schema.toml"
    path.write_text(f'[[field]]\nkind = "Numerical"\nname = "x"\n{entry}\n')
    with pytest.raises(ValueError, match=r"schema\.toml"):
        sf.Schema.load(path)


@pytest.mark.parametrize("given", [False, True])
def test_an_encoder_knows_which_fields_were_given(given):
    table = {"x": list(range(40)), "c": ["a", "b"] * 20}
    inferred = sf.Schema.infer(table)
    schema = sf.fit_encoder(sf.Schema(inferred.fields) if given else inferred, table).schema
    assert [schema.is_chosen(name) for name in schema.names] == [not given] * 2
