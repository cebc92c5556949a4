"""Every source gives the same batches, and every fault is named."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.tables import delimited
from splinefm.encode.tables import files as files_module
from splinefm.encode.tables import open as open_module
from splinefm.encode.tables import table as table_module
from splinefm.encode.tables.names import missing_column_message

N = 1000


def example() -> pa.Table:
    rng = np.random.default_rng(0)
    recency = pa.array(rng.normal(size=N), mask=rng.random(N) < 0.1)
    country = pa.array(rng.choice(["US", "FR", "Côte d'Ivoire"], N), mask=rng.random(N) < 0.1)
    return pa.table({"recency": recency, "count": rng.integers(0, 9, N), "country": country})


def halves(data: pa.Table, folder: Path, write) -> list[Path]:
    paths = [folder / "part-0", folder / "part-1"]
    return [write(part, path) for part, path in zip((data[:300], data[300:]), paths, strict=True)]


def to_parquet(data: pa.Table, path: Path) -> Path:
    pq.write_table(data, path.with_suffix(".parquet"), row_group_size=170)
    return path.with_suffix(".parquet")


def to_csv(data: pa.Table, path: Path) -> Path:
    pa.csv.write_csv(data, path.with_suffix(".csv"))
    return path.with_suffix(".csv")


def to_tsv(data: pa.Table, path: Path) -> Path:
    options = pa.csv.WriteOptions(delimiter="\t")
    pa.csv.write_csv(data, path.with_suffix(".tsv"), options)
    return path.with_suffix(".tsv")


def to_csv_gz(data: pa.Table, path: Path) -> Path:
    target = path.with_suffix(".csv.gz")
    target.write_bytes(gzip.compress(to_csv(data, path).read_bytes()))
    return target


def to_csv_zst(data: pa.Table, path: Path) -> Path:
    target = path.with_suffix(".csv.zst")
    with pa.CompressedOutputStream(str(target), "zstd") as out:
        out.write(to_csv(data, path).read_bytes())
    return target


def to_pandas(data: pa.Table, _: Path) -> object:
    pytest.importorskip("pandas")
    return data.to_pandas()


def to_polars(data: pa.Table, _: Path) -> object:
    return pytest.importorskip("polars").from_arrow(data)


def parquet_folder(data: pa.Table, folder: Path) -> Path:
    halves(data, folder, to_parquet)
    (folder / "_SUCCESS").write_text("")
    (folder / "notes.txt").write_text("not data")
    return folder


def parquet_glob(data: pa.Table, folder: Path) -> str:
    halves(data, folder, to_parquet)
    return str(folder / "part-[01].par*")


def nested_glob(data: pa.Table, folder: Path) -> str:
    for name, part in (("a", data[:400]), ("b", data[400:])):
        (folder / name / "deep").mkdir(parents=True)
        to_parquet(part, folder / name / "deep" / "x")
    return str(folder / "**")


class OneShotStream:
    """What DuckDB or nanoarrow hand out: a stream without a length."""

    def __init__(self, data: pa.Table) -> None:
        self.__arrow_c_stream__ = data.__arrow_c_stream__


class ForeignBatch:
    def __init__(self, data: pa.Table) -> None:
        self.__arrow_c_array__ = data.combine_chunks().to_batches()[0].__arrow_c_array__


SOURCES = {
    "arrow": lambda data, _: data,
    "batch": lambda data, _: data.combine_chunks().to_batches()[0],
    "reader": lambda data, _: data.to_reader(max_chunksize=77),
    "stream": lambda data, _: OneShotStream(data),
    "foreign batch": lambda data, _: ForeignBatch(data),
    "dict of arrow": lambda data, _: {name: data[name] for name in data.column_names},
    "dict of lists": lambda data, _: data.to_pydict(),
    "pandas": to_pandas,
    "polars": to_polars,
    "parquet": lambda data, folder: str(to_parquet(data, folder / "x")),
    "parquet pathlib": lambda data, folder: to_parquet(data, folder / "x"),
    "parquet folder": parquet_folder,
    "parquet glob": parquet_glob,
    "nested glob": nested_glob,
    "parquet list": lambda data, folder: halves(data, folder, to_parquet),
    "csv": lambda data, folder: str(to_csv(data, folder / "x")),
    "csv list": lambda data, folder: tuple(halves(data, folder, to_csv)),
    "csv folder": lambda data, folder: halves(data, folder, to_csv)[0].parent,
    "tsv": lambda data, folder: to_tsv(data, folder / "x"),
    "csv.gz": lambda data, folder: to_csv_gz(data, folder / "x"),
    "csv.zst": lambda data, folder: to_csv_zst(data, folder / "x"),
    "dataset": lambda data, folder: pa.dataset.dataset(halves(data, folder, to_parquet)),
    "csv dataset": lambda data, folder: pa.dataset.dataset(to_csv(data, folder / "x"), format="csv"),
}


def content(source: object, columns: list[str] | None = None, rows: int = 65_536, **options) -> dict[str, list]:
    table = sf.open_table(source, **options)
    batches = list(table.chunks(columns, rows))
    schema = pa.schema([table.schema.field(name) for name in columns or table.names])
    return pa.Table.from_batches(batches, schema).to_pydict()


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_same_content(kind, tmp_path):
    data = example()
    table = sf.open_table(SOURCES[kind](data, tmp_path))
    assert table.names == ("recency", "count", "country")
    batches = list(table.chunks(rows=128))
    assert [batch.num_rows for batch in batches] == [128] * 7 + [104]
    expected = data.to_pydict()
    if kind == "csv dataset":  # Its own options rule: Arrow reads an empty text as a text.
        expected["country"] = [value or "" for value in expected["country"]]
    assert pa.Table.from_batches(batches).to_pydict() == expected
    assert all(batch.schema == table.schema for batch in batches)


@pytest.mark.parametrize("kind", SOURCES)
def test_n_rows_is_the_number_of_rows_where_known(kind, tmp_path):
    unknown = "csv" in kind or kind in ("reader", "stream", "tsv", "dataset")
    assert sf.open_table(SOURCES[kind](example(), tmp_path)).n_rows == (None if unknown else N)


@pytest.mark.parametrize("kind", SOURCES)
def test_projection_keeps_the_asked_columns_in_the_asked_order(kind, tmp_path):
    data = example()
    batches = list(sf.open_table(SOURCES[kind](data, tmp_path)).chunks(["count", "recency"]))
    assert all(batch.schema.names == ["count", "recency"] for batch in batches)
    assert batches[0].column("count").to_pylist() == data["count"].to_pylist()


@pytest.mark.parametrize("write", [to_parquet, to_csv], ids=["parquet", "csv"])
def test_projection_is_pushed_into_the_reading(write, tmp_path):
    table = sf.open_table(write(example(), tmp_path / "x"))
    assert {tuple(batch.schema.names) for batch in table._read(["count"])} == {("count",)}


@given(
    splits=st.lists(st.integers(0, 40), max_size=6),
    rows=st.integers(1, 50),
    one_shot=st.booleans(),
)
def test_batches_do_not_depend_on_the_chunks_of_the_source(splits, rows, one_shot):
    n = sum(splits)
    columns = {
        "a": pa.array(range(n), pa.int64()),
        "b": pa.array([str(i % 7) for i in range(n)], pa.string()),
    }
    whole = pa.table(columns)
    starts = np.cumsum([0, *splits])
    parts = [whole.slice(start, size) for start, size in zip(starts, splits, strict=False)]
    # Each chunk has a dictionary of its own.
    parts = [p.append_column("c", p["b"].combine_chunks().dictionary_encode()) for p in parts]
    data = pa.concat_tables(parts) if parts else whole.append_column("c", whole["b"].dictionary_encode())
    batches = list(sf.open_table(data.to_reader() if one_shot else data).chunks(rows=rows))
    full, rest = divmod(n, rows)
    assert [batch.num_rows for batch in batches] == [rows] * full + [rest] * (rest > 0)
    got = pa.Table.from_batches(batches, data.schema)
    assert got.to_pydict() == {"a": columns["a"].to_pylist()} | dict.fromkeys("bc", columns["b"].to_pylist())


def test_one_contiguous_batch_is_not_copied():
    values = np.arange(100.0)
    batches = sf.open_table({"a": pa.array(values)}).chunks(rows=30)
    addresses = [batch.column(0).buffers()[1].address for batch in batches]
    assert set(addresses) == {values.ctypes.data}


@pytest.mark.parametrize("as_dataset", [False, True], ids=["path", "dataset"])
def test_memory_stays_bounded(as_dataset, tmp_path):
    n = 8_000_000
    path = tmp_path / "big.parquet"
    data = pa.table({"a": np.random.default_rng(0).normal(size=n)})
    pq.write_table(data, path, row_group_size=100_000, compression="none", use_dictionary=False)
    del data
    before, peak, seen = pa.total_allocated_bytes(), 0, 0
    for batch in sf.open_table(pa.dataset.dataset(path) if as_dataset else path).chunks():
        seen += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert seen == n
    assert peak < 8 * n / 4


# Shuffled reading


def drawn(table, rows, seed=0, columns=None):
    return list(table.shuffled(columns, rows, rng=np.random.default_rng(seed)))


@pytest.mark.parametrize("kind", [kind for kind in SOURCES if kind not in ("reader", "stream")])
def test_shuffled_batches_hold_every_row_once_under_its_number(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(open_module, "SMALL_PIECE", 64)
    monkeypatch.setattr(files_module, "_PIECE_ROWS", 100)
    table = sf.open_table(SOURCES[kind](example(), tmp_path))
    in_order = pa.Table.from_batches(table.chunks(["recency", "country"]))
    for seed in range(2):
        batches = drawn(table, 128, seed, ["recency", "country"])
        numbers = np.concatenate([numbers for numbers, _ in batches])
        np.testing.assert_array_equal(np.sort(numbers), np.arange(N))
        assert pa.Table.from_batches([batch for _, batch in batches]).equals(in_order.take(numbers))
        assert all(len(numbers) == batch.num_rows <= 128 for numbers, batch in batches)
        assert len(batches) <= 12


def parquet_days(folder: Path, days: int = 16, rows: int = 1000) -> Path:
    for day in range(days):
        data = pa.table({"day": np.full(rows, day), "x": np.arange(rows) + day * rows})
        pq.write_table(data, folder / f"{day:02}.parquet", row_group_size=250)
    return folder


def test_every_shuffled_batch_mixes_places(tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "_PIECE_ROWS", 500)
    table = sf.open_table(parquet_days(tmp_path))
    batches = drawn(table, 1600)
    days = [len(set(batch["day"].to_pylist())) for _, batch in batches]
    assert min(days[:-1]) >= 5 and np.mean(days) > 6
    # A table in memory has any row at hand: more places in every batch.
    whole = sf.open_table(pa.Table.from_batches(table.chunks()))
    monkeypatch.setattr(open_module, "SMALL_PIECE", 64)
    assert min(len(set(batch["day"].to_pylist())) for _, batch in drawn(whole, 1600)) >= 10


def test_the_generator_rules_the_order(tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "_PIECE_ROWS", 500)
    table = sf.open_table(parquet_days(tmp_path))
    first, again, other = ([n.tolist() for n, _ in drawn(table, 1600, seed)] for seed in (0, 0, 1))
    assert first == again != other


def test_a_shuffled_table_that_fits_in_a_batch_is_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "_PIECE_ROWS", 500)
    ((numbers, batch),) = drawn(sf.open_table(parquet_days(tmp_path)), 16_000)
    np.testing.assert_array_equal(numbers, np.arange(16_000))
    assert batch["x"].to_numpy().tolist() == numbers.tolist()


def test_wide_tables_are_read_at_fewer_places_at_once(tmp_path, monkeypatch):
    opened = []
    real = files_module._open_parquet
    monkeypatch.setattr(files_module, "_PIECE_ROWS", 500)
    monkeypatch.setattr(table_module, "OPEN_COLUMNS", 6)
    table = sf.open_table(parquet_days(tmp_path))
    monkeypatch.setattr(files_module, "_open_parquet", lambda *a: opened.append(a) or real(*a))
    next(table.shuffled(rows=300, rng=np.random.default_rng(0)))
    assert len(opened) == 3  # two columns, at most six of them open


def test_text_of_few_values_is_read_as_codes(tmp_path):
    n = 5000
    few, many = [f"{i % 7}" for i in range(n)], [f"user {i}" for i in range(n)]
    lists = [["a", "b"]] * n
    pq.write_table(pa.table({"few": few, "many": many, "lists": lists, "x": range(n)}), tmp_path / "t.parquet")
    assert files_module._coded_columns(pq.read_metadata(tmp_path / "t.parquet")) == ["few"]
    batch = next(sf.open_table(tmp_path / "t.parquet").chunks(["few"]))
    assert batch["few"].type == pa.string()  # as the schema says
    assert batch["few"].to_pylist() == few
    schema = sf.Schema([sf.Categorical("few"), sf.Categorical("many"), sf.MultiValued("lists")])
    encoder = sf.fit_encoder(schema, tmp_path / "t.parquet")
    in_memory = {"few": few, "many": many, "lists": lists}
    assert encoder == sf.fit_encoder(schema, in_memory)
    assert np.array_equal(encoder.encode(tmp_path / "t.parquet").start, encoder.encode(in_memory).start)


def test_a_filtered_dataset_is_shuffled_filtered(tmp_path):
    dataset = pa.dataset.dataset(parquet_days(tmp_path)).filter(pa.dataset.field("x") >= 15_000)
    ((numbers, batch),) = drawn(sf.open_table(dataset), 2000)
    assert batch["x"].to_numpy().tolist() == (numbers + 15_000).tolist()


def test_a_partitioned_dataset_keeps_its_partition_column(tmp_path):
    for day in range(3):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"x": np.arange(10) + 10 * day}), tmp_path / f"day={day}" / "x.parquet")
    table = sf.open_table(pa.dataset.dataset(tmp_path, partitioning="hive"))
    for numbers, batch in drawn(table, 8, columns=["day", "x"]):
        assert batch["x"].to_numpy().tolist() == numbers.tolist()
        assert batch["day"].to_numpy().tolist() == (numbers // 10).tolist()


def test_a_reader_is_shuffled_in_its_own_order():
    data = pa.table({"a": range(100)})
    table = sf.open_table(data.to_reader(max_chunksize=7))
    assert np.concatenate([numbers for numbers, _ in drawn(table, 30)]).tolist() == list(range(100))
    with pytest.raises(ValueError, match="read once"):
        drawn(table, 30)


def test_shuffled_memory_stays_bounded(tmp_path):
    n = 8_000_000
    path = tmp_path / "big.parquet"
    data = pa.table({"a": np.random.default_rng(0).normal(size=n)})
    pq.write_table(data, path, row_group_size=100_000, compression="none", use_dictionary=False)
    del data
    before, peak, seen = pa.total_allocated_bytes(), 0, 0
    for _, batch in sf.open_table(path).shuffled(rng=np.random.default_rng(0)):
        seen += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert seen == n
    assert peak < 8 * n / 4


def test_an_empty_table_has_no_shuffled_batches(tmp_path):
    assert drawn(sf.open_table({"a": pa.array([], pa.int64())}), 10) == []
    assert drawn(sf.open_table(to_parquet(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "x")), 10) == []


def test_shuffled_names_what_is_wrong(tmp_path):
    table = sf.open_table({"a": [1]})
    with pytest.raises(ValueError, match="no column 'b'"):
        table.shuffled(["b"], rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        table.shuffled(rows=0, rng=np.random.default_rng(0))
    path = to_parquet(example(), tmp_path / "x")
    table = sf.open_table(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"cannot read .*x\.parquet"):
        drawn(table, 100)


def test_an_open_table_is_a_table():
    table = sf.open_table({"a": [1]})
    assert sf.open_table(table) is table


# Faults of a call


def test_an_unknown_column_is_reported_with_the_nearest():
    table = sf.open_table({"recency": [1.0], "country": ["US"]})
    with pytest.raises(ValueError, match=r"no column 'recencyy'.*nearest: 'recency'\. Columns: 'recency', 'cou"):
        table.chunks(["country", "recencyy"])


def test_the_message_lists_twenty_names():
    message = missing_column_message("zzz", [f"x{i}" for i in range(53)])
    assert message.endswith("'x19', ... and 33 more") and "nearest" not in message


def test_rows_must_be_positive():
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        sf.open_table({"a": [1]}).chunks(rows=0)


@pytest.mark.parametrize("columns", ["ab", []])
def test_columns_must_be_a_list_of_names(columns):
    with pytest.raises(ValueError, match="columns must be a list of one or more column names"):
        sf.open_table({"a": [1], "b": [1]}).chunks(columns)


def test_a_column_asked_for_twice_is_read_once():
    assert content({"a": [1], "b": [2]}, ["b"]) == {"b": [2]}
    assert next(sf.open_table({"a": [1], "b": [2]}).chunks(["b", "b"])).schema.names == ["b"]


@pytest.mark.parametrize("kind", ["reader", "stream"])
def test_a_reader_can_be_read_once(kind, tmp_path):
    table = sf.open_table(SOURCES[kind](example(), tmp_path))
    list(table.chunks())
    with pytest.raises(ValueError, match="read once; pass a table, a path or a dataset"):
        table.chunks()


# Faults of data in memory


def test_duplicate_columns_are_named(tmp_path):
    data = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "a"])
    (tmp_path / "x.csv").write_text("a,b,a\n1,2,3\n")
    sources = [
        data,
        data.to_reader(),
        data.to_batches()[0],
        to_parquet(data, tmp_path / "x"),
        tmp_path / "x.csv",
    ]
    for source in [*sources, {1: [1], "1": [2], "a": [1], 2: [1], "2": [1]}]:
        with pytest.raises(ValueError, match=r"duplicate column names: '(a|1', '2)'"):
            sf.open_table(source)


def test_pandas_column_names_become_strings():
    pd = pytest.importorskip("pandas")
    assert content(pd.DataFrame([[1, 2]])) == {"0": [1], "1": [2]}
    assert content(pd.DataFrame([[1, 2]], columns=["a", 1])) == {"a": [1], "1": [2]}
    with pytest.raises(ValueError, match="duplicate column names: '0'"):
        sf.open_table(pd.DataFrame([[1, 2]], columns=[0, "0"]))
    with pytest.raises(ValueError, match="duplicate column names: 'a'"):
        sf.open_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_the_pandas_index_is_not_a_column(tmp_path):
    pd = pytest.importorskip("pandas")
    named = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["u", "v"], name="user"))
    unnamed = pd.DataFrame({"a": [1, 2]}, index=["u", "v"])
    assert sf.open_table(named).names == sf.open_table(unnamed).names == ("a",)
    unnamed.to_parquet(tmp_path / "unnamed.parquet")
    assert sf.open_table(tmp_path / "unnamed.parquet").names == ("a",)
    named.to_parquet(tmp_path / "named.parquet")
    assert sf.open_table(tmp_path / "named.parquet").names == ("a", "user")


@pytest.mark.parametrize("values", [[1, "x"], ["x", 1]])
def test_mixed_types_in_pandas_name_the_column(values):
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"column 'odd' holds values of several types, .*give it one type"):
        sf.open_table(pd.DataFrame({"fine": [1, 2], "odd": pd.Series(values, dtype=object)}))


def test_text_of_polars_is_plain_text():
    pl = pytest.importorskip("polars")
    kinds = {"text": ["a"], "code": pl.Series(["a"], dtype=pl.Categorical), "many": [["a", "b"]]}
    table = sf.open_table(pl.DataFrame(kinds))
    text = pa.large_string()
    assert table.schema.types == [text, pa.dictionary(pa.uint32(), text), pa.large_list(text)]
    assert next(table.chunks()).to_pydict() == {"text": ["a"], "code": ["a"], "many": [["a", "b"]]}


def test_dict_takes_series_and_arrays():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    source = {"p": pd.Series([1, 2], index=[7, 8]), "q": pl.Series(["a", None]), "r": np.array([1.5, np.nan])}
    assert content(source) == {"p": [1, 2], "q": ["a", None], "r": [1.5, None]}


def test_unequal_lengths_are_named():
    with pytest.raises(ValueError, match="same length, got 'a': 2, 'b': 3"):
        sf.open_table({"a": [1, 2], "b": np.zeros(3)})


@pytest.mark.parametrize("value", [3, "text", b"text", None, np.float64(2), np.array(2), {"k": 1}, {1}])
def test_a_scalar_is_not_a_column(value):
    with pytest.raises(ValueError, match=r"column 'b' must be a list or an array, got \w+ .*in a list"):
        sf.open_table({"a": [1], "b": value})


def test_a_matrix_is_not_a_column():
    with pytest.raises(ValueError, match=r"column 'b' must have one dimension, got shape \(1, 2\)"):
        sf.open_table({"a": [1], "b": np.zeros((1, 2))})


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint64, np.bool_, "U3", object])
def test_numpy_columns_are_numbered(dtype):
    array = np.array([[0, 1], [1, 1], [0, 0]]).astype(dtype)
    assert content(array) == {"x0": array[:, 0].tolist(), "x1": array[:, 1].tolist()}


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2), ()])
def test_numpy_must_have_two_dimensions(shape):
    with pytest.raises(ValueError, match=r"got shape \(.*\); reshape it"):
        sf.open_table(np.zeros(shape))


def test_mixed_types_in_numpy_name_the_column():
    with pytest.raises(ValueError, match=r"column 'x1' holds values of several types, .*give it one type"):
        sf.open_table(np.array([[1, 1], [2, "x"]], dtype=object))


@pytest.mark.parametrize("source", [{}, np.zeros((3, 0)), pa.table({})])
def test_a_table_has_columns(source):
    with pytest.raises(ValueError, match="no columns"):
        sf.open_table(source)


def test_a_table_without_rows_has_no_batches(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n")
    sources = [pa.table({"a": pa.array([], pa.int64())}), to_parquet(example()[:0], tmp_path / "x")]
    for source in [*sources, tmp_path / "x.csv", np.zeros((0, 2))]:
        assert list(sf.open_table(source).chunks()) == []


@pytest.mark.parametrize("source", [3, None, object(), b"x.csv", [], iter("ab")])
def test_other_types_are_refused_with_those_accepted(source):
    with pytest.raises(TypeError, match=f"{type(source).__name__}.*DataFrame.*dict.*NumPy.*Parquet"):
        sf.open_table(source)


@pytest.mark.parametrize("source", [[1, 2], (1.0,), [{"a": 1}], pa.array([1]), pa.chunked_array([[1]])])
def test_a_sequence_is_not_a_table(source):
    with pytest.raises(TypeError, match=r"is not a table; pass a table, such as \{'name': values\}"):
        sf.open_table(source)


def test_series_and_lazy_frames_are_refused_with_the_way_out():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for series in (pd.Series([1]), pl.Series([1])):
        with pytest.raises(TypeError, match="a Series is not a table; pass a table"):
            sf.open_table(series)
    with pytest.raises(TypeError, match=r"pass frame\.collect\(\)"):
        sf.open_table(pl.LazyFrame({"a": [1]}))


# Faults of files


def test_missing_files_and_patterns_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"'~/no such/file\.csv'"):
        sf.open_table("~/no such/file.csv")
    with pytest.raises(FileNotFoundError, match=r"no file matches the pattern '.*/\*\.parquet'"):
        sf.open_table(tmp_path / "*.parquet")
    with pytest.raises(FileNotFoundError, match=r"gone\.csv"):
        sf.open_table([to_csv(example(), tmp_path / "x"), tmp_path / "gone.csv"])


def test_home_and_relative_globs_are_expanded(tmp_path, monkeypatch):
    to_csv(example(), tmp_path / "x")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert content("~/x.csv") == content("*.csv") == content("~/?.csv") == example().to_pydict()


def test_a_file_whose_name_looks_like_a_glob_is_a_file(tmp_path):
    to_csv(example(), tmp_path / "x[1]")
    assert content(tmp_path / "x[1].csv") == example().to_pydict()


def test_files_of_a_folder_are_read_in_sorted_order(tmp_path):
    for name in "cab":
        (tmp_path / f"{name}.csv").write_text(f"v\n{name}\n")
    assert content(tmp_path)["v"] == content(str(tmp_path / "*.csv"))["v"] == ["a", "b", "c"]


def test_a_folder_without_data_is_refused(tmp_path):
    (tmp_path / "_hidden.csv").write_text("a\n1\n")
    with pytest.raises(ValueError, match=rf"no data files \(\.parquet.*{tmp_path.name}.*glob"):
        sf.open_table(tmp_path)


@pytest.mark.parametrize("name", ["x.xlsx", "x", "x.parquet.gz", "x.gz"])
def test_an_unknown_suffix_is_refused_with_those_supported(name, tmp_path):
    (tmp_path / name).write_text("a")
    with pytest.raises(ValueError, match=rf"unknown file format: .*{name}'; .*\.parquet, \.pq, \.csv, \.tsv.*\.gz"):
        sf.open_table(tmp_path / name)


def test_formats_must_not_be_mixed(tmp_path):
    to_csv(example(), tmp_path / "x"), to_parquet(example(), tmp_path / "y")
    with pytest.raises(ValueError, match=r"must not be mixed, got .*x\.csv.*y\.parquet"):
        sf.open_table(tmp_path)


UNREADABLE = {
    "bad.parquet": (b"PAR1 not really PAR1", "[Pp]arquet"),
    "empty.parquet": (b"", "0 bytes"),
    "empty.csv": (b"", "it is empty"),
    "blank.csv": (b"\n", "it is empty"),
    "ragged.csv": (b"a,b\n1,2\n1,2,3\n", "line 3 has 3 columns instead of 2, .* ',': '1,2,3'"),
    "latin.csv": ("a,b\n1,Zürich\n".encode("latin-1"), "column 'b' is not UTF-8; convert"),
    "header.csv": ("a,ü\n1,2\n".encode("latin-1"), "convert the file to UTF-8"),
    "not.csv.gz": (b"a,b\n1,2\n", "zlib"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_file_is_named_with_the_problem(name, tmp_path):
    data, problem = UNREADABLE[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"cannot read '.*{name}'.*{problem}") as caught:
        sf.open_table(tmp_path / name)
    assert caught.value.__cause__ is not None or "latin" in name


def test_a_file_damaged_further_down_is_named(tmp_path):
    path = to_parquet(example(), tmp_path / "x")
    damaged = bytearray(path.read_bytes())
    damaged[4:600] = bytes(596)
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"cannot read '.*x\.parquet'"):
        list(sf.open_table(path).chunks())


def test_files_must_have_the_same_columns(tmp_path):
    paths = halves(example(), tmp_path, to_parquet)
    pq.write_table(example().drop_columns(["count"]), paths[1])
    with pytest.raises(ValueError, match=r"same columns; .*part-0.*part-1.* differ in 'count'"):
        sf.open_table(tmp_path)


@pytest.mark.parametrize("write", [to_parquet, to_csv], ids=["parquet", "csv"])
def test_types_of_files_are_widened(write, tmp_path):
    write(pa.table({"a": [1, 2], "b": pa.nulls(2)}), tmp_path / "x")
    write(pa.table({"b": ["u", "v"], "a": [0.5, 1.5]}), tmp_path / "y")
    assert content(tmp_path) == {"a": [1.0, 2.0, 0.5, 1.5], "b": [None, None, "u", "v"]}


def test_parquet_files_that_disagree_are_refused(tmp_path):
    to_parquet(pa.table({"a": [1]}), tmp_path / "x"), to_parquet(pa.table({"a": ["text"]}), tmp_path / "y")
    with pytest.raises(ValueError, match=r"disagree on a column: .*Field a .*one type"):
        sf.open_table(tmp_path)


# CSV


def test_missing_values_are_spelled_as_in_pandas(tmp_path):
    pd = pytest.importorskip("pandas")
    spellings = [
        "",
        "#N/A",
        "#N/A N/A",
        "-1.#IND",
        "<NA>",
        "NA",
        "NULL",
        "NaN",
        "None",
        "n/a",
        "nan",
        "null",
        '"NA"',
    ]
    path = tmp_path / "x.csv"
    path.write_text("i,number,text\n" + "".join(f"0,{s},{s}\n" for s in spellings) + "0,1.5,nil\n")
    got = content(path)
    assert got["number"] == [None] * len(spellings) + [1.5]
    assert got["text"] == [None] * len(spellings) + ["nil"]
    assert pd.read_csv(path)["text"].isna().tolist() == [value is None for value in got["text"]]


def test_types_rule_over_inference(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("zip,n\n00123,1\nNA,2\n")
    types = {"zip": pa.large_string(), "n": pa.float64(), "absent": pa.int8()}
    assert content(path) == {"zip": [123, None], "n": [1, 2]}
    table = sf.open_table(path, types=types)
    assert table.schema.types == [pa.large_string(), pa.float64()]
    assert content(path, types=types) == {"zip": ["00123", None], "n": [1.0, 2.0]}


def test_quoted_line_breaks_belong_to_the_value(tmp_path):
    (tmp_path / "x.csv").write_text('a,b\n"one\ntwo",1\n')
    assert content(tmp_path / "x.csv") == {"a": ["one\ntwo"], "b": [1]}


def test_line_breaks_in_values_survive_block_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 64)
    (tmp_path / "x.csv").write_text("a,b\n" + '"one\n\ntwo",1\n' * 50)
    assert content(tmp_path / "x.csv") == {"a": ["one\n\ntwo"] * 50, "b": [1] * 50}


def test_fractions_after_a_megabyte_of_integers_are_read(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,n\n" + "7,1000000\n" * 200_000 + "7,3.5\n")
    table = sf.open_table(path)
    assert table.schema.field("n").type == pa.float64()
    assert list(table.chunks())[-1].column("n")[-1].as_py() == 3.5


@pytest.mark.parametrize("value", ["3.5", "text", "Zürich"])
def test_a_value_that_does_not_fit_is_named_with_its_line_and_the_way_out(value, tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 1 << 10)
    path = tmp_path / "x.csv"
    path.write_text("id,n\n" + "7,1\n" * 1000 + '\n"a ""b"",\nc",1\n' + f"7,{value}\n")
    with pytest.raises(
        ValueError, match=rf"x\.csv': column 'n' .*int64 .*'{value}' in line 1005; .*types={{'n': pyarrow"
    ):
        list(sf.open_table(path, types={"id": pa.string()}).chunks(["n"]))
    assert content(path, types={"id": pa.string(), "n": pa.large_string()})["n"][-1] == value


def test_a_value_that_does_not_fit_the_given_type_is_named(tmp_path):
    (tmp_path / "x.csv").write_text("id,n\n1,2\n1,x\n")
    with pytest.raises(ValueError, match=r"x\.csv': column 'n' is read as int8 but has 'x' in line 3"):
        sf.open_table(tmp_path / "x.csv", types={"n": pa.int8()})


NOT_NUMBERS = {
    "stray": ["1.5", "x"],
    "comma": ['"1,234"', "2"],
    "percent": ["5%", "6%"],
    "date": ["2024-01-01", "2024-01-02"],
    "time": ["10:00:00", "11:00:00"],
    "stamp": ["2024-01-01 10:00:00", "2024-01-01T11:00:00"],
    "truth": ["true", "false"],
}


@pytest.mark.parametrize("cells", NOT_NUMBERS.values(), ids=NOT_NUMBERS)
def test_numbers_are_a_wish_that_text_does_not_fulfill(cells, tmp_path):
    (tmp_path / "x.csv").write_text("n,m,none\n" + "".join(f"{cell},3,\n" for cell in cells))
    wish = dict.fromkeys(["n", "m", "none"], pa.float64())
    table = sf.open_table(tmp_path / "x.csv", types=wish)
    assert table.schema.types == [pa.large_string(), pa.float64(), pa.float64()]
    assert content(table)["n"] == [cell.strip('"') for cell in cells]
    text = sf.open_table(tmp_path / "x.csv", types=dict.fromkeys(wish, pa.large_string()))
    assert text.schema.types == [pa.large_string()] * 3


def test_dates_and_times_are_recognized(tmp_path):
    (tmp_path / "x.csv").write_text("d,t,z\n2024-01-01,2024-01-01 10:00:00,2024-01-01T10:00:00Z\n")
    assert sf.open_table(tmp_path / "x.csv").schema.types == [pa.date32(), pa.timestamp("s"), pa.timestamp("s", "UTC")]


MIXTURES = {
    "numbers": (["1"], ["0.5"], pa.float64()),
    "numbers and text": (["1"], ["x"], pa.large_string()),
    "truth values and numbers": (["true"], ["1"], pa.large_string()),
    "truth values and text": (["true"], ["yes"], pa.large_string()),
    "nothing and truth values": (["NA"], ["true"], pa.bool_()),
    "nothing": (["NA"], ["NA"], pa.large_string()),
    "days and times": (["2024-01-01"], ["2024-01-01 10:00:00"], pa.timestamp("s")),
    "fractions of seconds": (["2024-01-01 10:00:00"], ["2024-01-01 10:00:00.5"], pa.timestamp("ns")),
    "times with a zone and days": (["2024-01-01T10:00:00Z"], ["2024-01-01"], pa.large_string()),
    "times with and without a zone": (["2024-01-01T10:00:00Z"], ["2024-01-01 10:00:00"], pa.large_string()),
    "days and numbers": (["2024-01-01"], ["20240101"], pa.large_string()),
    "times of the day and days": (["10:00:00"], ["2024-01-01"], pa.large_string()),
}


@pytest.mark.parametrize("kind", MIXTURES)
def test_text_files_that_disagree_have_a_common_type(kind, tmp_path):
    *parts, expected = MIXTURES[kind]
    for name, part in zip(["x.csv", "y.csv"], parts, strict=True):
        (tmp_path / name).write_text("n,a\n" + "".join(f"1,{cell}\n" for cell in part))
    for paths in (["x.csv", "y.csv"], ["y.csv", "x.csv"]):
        table = sf.open_table([tmp_path / path for path in paths])
        assert table.schema.field("a").type == expected
        values = content(table)["a"]
        assert len(values) == 2
        if expected == pa.large_string() and kind != "nothing":
            assert sorted(values) == sorted(parts[0] + parts[1])


# Datasets


def test_a_filtered_dataset_is_read_filtered(tmp_path):
    dataset = pa.dataset.dataset(to_parquet(example(), tmp_path / "x"))
    counts = content(dataset.filter(pa.dataset.field("count") > 5), ["count"])["count"]
    assert counts == [value for value in example()["count"].to_pylist() if value > 5]
