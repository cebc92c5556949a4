"""The encoder as a whole: chunks, merging, order of fields, starvation, bad tables."""

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode import encoder as encoder_module
from splinefm.encode.slots import SlotLayout
from support import examples

SCHEMA = sf.Schema(
    [
        sf.Numerical("price", special=[0.0]),
        sf.Numerical("age", sf.Quantile(), sf.MultiResolution((3, 9)), reduction="identity"),
        sf.Numerical("days", sf.BestFitCDF(), sf.Bins(5, "quantile")),
        sf.Categorical("country", min_count=2),
        sf.MultiValued("tags", reduction="mean"),
    ]
)


def shop_table(rows, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "price": np.where(rng.random(rows) < 0.3, 0.0, rng.lognormal(size=rows).round(2)),
            "age": rng.integers(18, 90, rows),
            "days": pa.array(rng.exponential(30, rows), mask=rng.random(rows) < 0.1),
            "country": rng.choice(["US", "FR", "DE", "IL", "JP"], rows, p=[0.5, 0.2, 0.2, 0.05, 0.05]),
            "tags": [[str(tag) for tag in rng.integers(0, 9, rng.integers(0, 4))] for _ in range(rows)],
            "ignored": rng.random(rows),
        }
    )


def assert_same_slots(first, second):
    np.testing.assert_array_equal(first.start, second.start)
    np.testing.assert_array_equal(first.weight, second.weight)
    assert first.layout == second.layout


@examples(15)
@given(cuts=st.lists(st.integers(1, 299), max_size=6), seed=st.integers(0, 99))
def test_chunks_do_not_matter(cuts, seed):
    table = shop_table(300, seed)
    parts = np.split(np.arange(300), sorted(set(cuts)))
    batches = [table.take(part).to_batches()[0] for part in parts]
    reader = lambda: pa.RecordBatchReader.from_batches(table.schema, iter(batches))  # noqa: E731
    whole = sf.fit_encoder(SCHEMA, table)
    assert sf.fit_encoder(SCHEMA, reader()) == whole
    assert_same_slots(whole.encode(reader()), whole.encode(table))
    pieces = [whole.encode(batch) for batch in batches]
    np.testing.assert_array_equal(np.concatenate([piece.weight for piece in pieces]), whole.encode(table).weight)


@examples(15)
@given(cut=st.integers(1, 299), seed=st.integers(0, 99))
def test_merged_halves_are_the_whole(cut, seed):
    table = shop_table(300, seed)
    first, second = sf.EncoderStatistics(SCHEMA), sf.EncoderStatistics(SCHEMA)
    first.update(table.slice(0, cut))
    second.update(table.slice(cut))
    first.merge(pickle.loads(pickle.dumps(second)))  # as if it came from another process
    assert first.encoder() == sf.fit_encoder(SCHEMA, table)


def test_halves_of_a_large_table_differ_within_the_error_of_the_sketch():
    x = np.random.default_rng(0).normal(size=300_000)
    schema = sf.Schema([sf.Numerical("x", sf.Quantile())])
    first, second = sf.EncoderStatistics(schema), sf.EncoderStatistics(schema)
    first.update({"x": x[:100_000]})
    second.update({"x": x[100_000:]})
    first.merge(second)
    merged, whole = first.encoder().fields[0].transform, sf.fit_encoder(schema, {"x": x}).fields[0].transform
    bound = 2 * first.fields[0].sketch.rank_error() + 1 / 1000  # the transform has 1000 knots
    assert 0 < np.abs(merged(x) - whole(x)).max() <= bound


def test_permuting_fields_permutes_the_encoding():
    table = shop_table(200)
    slots = sf.fit_encoder(SCHEMA, table).encode(table)
    order = [3, 0, 4, 2, 1]
    permuted = sf.fit_encoder(sf.Schema([SCHEMA.fields[f] for f in order]), table).encode(table)
    for position, f in enumerate(order):
        ours, theirs = slots.layout, permuted.layout
        windows = slice(ours.window_ptr[f], ours.window_ptr[f + 1])
        moved = slice(theirs.window_ptr[position], theirs.window_ptr[position + 1])
        np.testing.assert_array_equal(
            slots.start[:, windows] - ours.feature_ptr[f], permuted.start[:, moved] - theirs.feature_ptr[position]
        )
        weights = slice(ours.weight_ptr[windows.start], ours.weight_ptr[windows.stop])
        moved = slice(theirs.weight_ptr[moved.start], theirs.weight_ptr[moved.stop])
        np.testing.assert_array_equal(slots.weight[:, weights], permuted.weight[:, moved])


def test_two_equal_columns_get_equal_codes():
    x = np.random.default_rng(0).normal(size=500)
    slots = sf.fit_encoder(sf.Schema([sf.Numerical("a"), sf.Numerical("b")]), {"a": x, "b": x}).encode({"a": x, "b": x})
    np.testing.assert_array_equal(slots.weight[:, :4], slots.weight[:, 4:])


def test_threads_do_not_matter():
    table = shop_table(30_000)
    one = sf.fit_encoder(SCHEMA, table, threads=1)
    slots = one.encode(table, threads=1)
    for threads in (1, 2, 5):
        assert sf.fit_encoder(SCHEMA, table, threads=threads) == one
        assert_same_slots(one.encode(table, threads=threads), slots)


def test_files_and_frames_give_the_same_slots(tmp_path):
    table = shop_table(500)
    flat = table.drop_columns(["tags"])
    schema = sf.Schema([field for field in SCHEMA if field.name != "tags"])
    encoder = sf.fit_encoder(schema, flat)
    pq.write_table(flat, tmp_path / "a.parquet")
    pa.csv = __import__("pyarrow.csv").csv
    pa.csv.write_csv(flat, tmp_path / "a.csv")
    for path in ("a.parquet", "a.csv"):
        assert_same_slots(encoder.encode(tmp_path / path), encoder.encode(flat))
        assert sf.fit_encoder(schema, tmp_path / path) == encoder


def test_chunks_of_slots_are_the_rows_in_order():
    table = shop_table(1000)
    encoder = sf.fit_encoder(SCHEMA, table)
    chunks = list(encoder.encode_chunks(table, rows=300))
    assert [len(chunk) for chunk in chunks] == [300, 300, 300, 100]
    whole = encoder.encode(table)
    np.testing.assert_array_equal(np.concatenate([chunk.start for chunk in chunks]), whole.start)
    assert_same_slots(whole[300:600], chunks[1])


def test_no_rows_encode_to_no_slots():
    encoder = sf.fit_encoder(SCHEMA, shop_table(50))
    for table in (shop_table(50).slice(0, 0), pa.RecordBatchReader.from_batches(shop_table(1).schema, [])):
        slots = encoder.encode(table)
        assert len(slots) == 0 and slots.start.shape == (0, encoder.layout.n_windows)


def test_rows_of_slots_are_inside_their_fields():
    table = shop_table(1000)
    slots = sf.fit_encoder(SCHEMA, table).encode(table)
    layout = slots.layout
    width = np.diff(layout.weight_ptr)
    field = layout.unit_field[layout.window_unit]
    assert (slots.start >= layout.feature_ptr[field]).all()
    assert (slots.start + width <= layout.feature_ptr[field + 1]).all()


def test_row_counts_are_those_of_the_encoding():
    table = shop_table(2000)
    encoder = sf.fit_encoder(SCHEMA, table)
    touched = np.asarray((encoder.encode(table).matrix() != 0).sum(axis=0)).ravel()
    expected = np.concatenate(encoder.feature_counts)
    numerical = slice(0, encoder.layout.feature_ptr[4])  # lists count elements, a repeated one twice
    # A value on a knot has a weight that is zero up to rounding: such rows may or may not count.
    np.testing.assert_allclose(touched[numerical], expected[numerical], atol=0.02 * 2000)
    assert np.median(np.abs(touched - expected)[numerical]) < 1.0


def mean_weights(encoder, table):
    """Of every feature, from the encoding itself."""
    slots = encoder.encode(table)
    return np.asarray(slots.matrix().astype(np.float64).sum(axis=0)).ravel() / len(slots)


BASES = [
    sf.BSpline(6),
    sf.BSpline(degree=1, knots=(0.0, 0.1, 0.7, 1.0)),
    sf.BSpline(5, periodic=True),
    sf.MultiResolution((2, 7)),
    sf.Bins(5, "quantile"),
    sf.Polynomial(4, "legendre"),
    sf.Fourier(2),
    sf.Powers(),
]


class TestMeanWeights:
    @pytest.mark.parametrize("reduction", ["sum", "identity"])
    @pytest.mark.parametrize("basis", BASES, ids=lambda basis: type(basis).__name__)
    def test_of_numbers_are_exact_as_long_as_all_distinct_values_are_kept(self, basis, reduction):
        rng = np.random.default_rng(0)
        x = np.where(rng.random(9000) < 0.1, np.nan, rng.choice([0.0, -1.0, 800.0, *rng.lognormal(0, 1, 4000)], 9000))
        schema = sf.Schema(
            [sf.Numerical("x", sf.MinMax(), basis, special=[0.0, "negative", ">= 700"], reduction=reduction)]
        )
        encoder = sf.fit_encoder(schema, {"x": x})
        np.testing.assert_allclose(encoder.feature_means[0], mean_weights(encoder, {"x": x}), atol=1e-7)

    def test_of_more_values_are_within_the_error_of_the_sketch(self):
        x = np.random.default_rng(0).lognormal(0, 2, 400_000)
        schema = sf.Schema([sf.Numerical("x", sf.Quantile(), sf.MultiResolution((4, 32)), special=[">= 50"])])
        statistics = sf.EncoderStatistics(schema)
        statistics.update({"x": x})
        encoder = statistics.encoder()
        error = np.abs(encoder.feature_means[0] - mean_weights(encoder, {"x": x})).max()
        bound = (
            2 * statistics.fields[0].sketch.rank_error()
        )  # a function of a spline rises and falls once, by 1 at most
        assert 1e-7 < error < bound < 0.01
        assert error < 2e-5  # the bound is far from what happens

    @pytest.mark.parametrize("unseen", ["rare", "neutral", "hash"])
    def test_of_categories_are_exact(self, unseen):
        rng = np.random.default_rng(0)
        names = [None if name == "9" else name for name in rng.integers(0, 60, 3000).astype(str)]
        schema = sf.Schema([sf.Categorical("c", min_count=50, unseen=unseen, buckets=7)])
        encoder = sf.fit_encoder(schema, {"c": names})
        np.testing.assert_allclose(encoder.feature_means[0], mean_weights(encoder, {"c": names}), atol=1e-12)
        assert encoder.feature_weights[0] is encoder.feature_counts[0]

    @pytest.mark.parametrize("unseen", ["rare", "neutral", "hash"])
    @pytest.mark.parametrize("max_length", [None, 3])
    @pytest.mark.parametrize("reduction", ["sum", "mean", "identity"])
    def test_of_lists_are_exact_also_where_they_are_cut(self, reduction, max_length, unseen):
        rng = np.random.default_rng(0)
        lists = [list(rng.integers(0, 30, rng.integers(0, 80 if i % 100 == 0 else 6)).astype(str)) for i in range(900)]
        lists[5:9] = [None] * 4
        schema = sf.Schema([sf.MultiValued("t", None, reduction, max_length, min_count=100, unseen=unseen, buckets=7)])
        encoder = sf.fit_encoder(schema, {"t": lists})
        assert max(len(item or ()) for item in lists) > encoder.fields[0].max_length
        np.testing.assert_allclose(encoder.feature_means[0], mean_weights(encoder, {"t": lists}), atol=1e-7)
        if unseen != "neutral":  # counts are of all elements, whatever becomes of them
            assert encoder.feature_counts[0].sum() == 4 + sum(len(item or ()) for item in lists)
        halves = sf.EncoderStatistics(schema), sf.EncoderStatistics(schema)
        halves[0].update({"t": lists[:300]})
        halves[1].update({"t": lists[300:]})
        halves[0].merge(halves[1])
        assert halves[0].encoder() == encoder

    def test_are_those_of_all_rows_after_an_extension(self):
        old, new = shop_table(500), shop_table(700, seed=1)
        encoder = sf.fit_encoder(SCHEMA, old)
        extended = encoder.extend(new)
        expected = (500 * mean_weights(encoder, old) + 700 * mean_weights(extended, new)) / 1200
        np.testing.assert_allclose(np.concatenate(extended.feature_means), expected, atol=1e-7)

    def test_of_new_categories_begin_with_the_extension(self):
        schema = sf.Schema([sf.Categorical("c"), sf.MultiValued("t", reduction="mean")])
        encoder = sf.fit_encoder(schema, {"c": ["a", "b"], "t": [["u"], ["u", "v"]]})
        extended = encoder.extend({"c": ["new", "a"], "t": [["w", "u"], []]})
        assert extended.feature_means[0].tolist() == [0, 0, 0.5, 0.25, 0.25]  # missing, rare, a, b, new
        assert extended.feature_means[1].tolist() == [0, 0, 0.5, 0.125, 0.125]  # missing, rare, u, v, w
        assert encoder.feature_means[0].tolist() == [0, 0, 0.5, 0.5]

    def test_of_an_extension_without_rows_stay(self):
        encoder = sf.fit_encoder(SCHEMA, shop_table(50))
        assert encoder.extend(shop_table(50).slice(0, 0)) == encoder

    def test_not_known_are_nan_also_after_an_extension(self):
        table = shop_table(50)
        encoder = sf.fit_encoder(SCHEMA, table)
        less = sf.Encoder(encoder.fields, encoder.n_rows, encoder.provenance, encoder.feature_counts)
        assert [bool(np.isnan(rows).all()) for rows in less.feature_means] == [True, True, True, False, True]
        assert [bool(np.isnan(rows).any()) for rows in less.extend(table).feature_means] == [
            True,
            True,
            True,
            False,
            True,
        ]
        assert less != encoder and less == sf.Encoder(less.fields, less.n_rows, less.provenance, less.feature_counts)

    def test_of_another_number_of_rows_are_refused(self):
        encoder = sf.fit_encoder(SCHEMA, shop_table(50))
        for name in ("feature_counts", "feature_weights"):
            rows = getattr(encoder, name)
            for wrong in ((*rows[:1], rows[1][1:], *rows[2:]), rows[1:]):
                with pytest.raises(ValueError, match=f"{name} must have an array per field"):
                    replace(encoder, **{name: wrong})


def test_starvation_shows_what_a_transform_does():
    x = np.random.default_rng(0).lognormal(0, 2, 10_000)
    plain = sf.fit_encoder(sf.Schema([sf.Numerical("x", sf.MinMax())]), {"x": x}).starvation()
    spread = sf.fit_encoder(sf.Schema([sf.Numerical("x", sf.Quantile())]), {"x": x}).starvation()
    assert sum(function.starved for function in plain.functions) > 10
    assert not any(function.starved for function in spread.functions)
    table = spread.to_arrow()
    assert table.num_rows == 23 and table.column_names[:2] == ["field", "function"]
    assert min(table["share"].to_pylist()) > 0.04
    assert "starved: B" in str(plain) and "and " in str(plain) and "starved" not in str(spread)
    # Supports are in raw units and cover the data.
    assert table["low"][0].as_py() == pytest.approx(x.min()) and table["high"][22].as_py() == pytest.approx(x.max())


def test_starvation_has_a_line_per_resolution_that_fits_on_a_screen():
    x = np.random.default_rng(0).random(5000)
    schema = sf.Schema([sf.Numerical("x", sf.MinMax(0, 1), sf.MultiResolution((4, 128)))])
    header, coarse, fine = str(sf.fit_encoder(schema, {"x": x}).starvation()).splitlines()
    assert coarse.startswith("x ") and fine.startswith("  ") and "131" in fine
    assert len(fine) < 100 and "spread" in header


def test_starvation_shares_match_the_data():
    x = np.random.default_rng(0).random(5000)
    schema = sf.Schema([sf.Numerical("x", sf.MinMax(0, 1), sf.BSpline(10, 3))])
    report = sf.fit_encoder(schema, {"x": x}).starvation()
    for function in report.functions:
        share = ((x > function.low) & (x < function.high)).mean()
        assert function.share == pytest.approx(share, abs=0.005)


def test_starvation_without_numerical_fields():
    report = sf.fit_encoder(sf.Schema([sf.Categorical("c")]), {"c": ["a"]}).starvation()
    assert str(report) == "no numerical fields" and report.to_arrow().num_rows == 0


def test_notes_say_how_each_field_came_out():
    notes = sf.fit_encoder(SCHEMA, shop_table(500)).notes
    assert "4 categories with at least 2 rows" in notes["country"] or "5 categories" in notes["country"]
    assert notes["days"].startswith("BestFitCDF, as given; ")
    assert "lists of up to 3" in notes["tags"]


def test_reading_does_not_run_ahead_of_the_work(monkeypatch):
    """A table larger than memory is read as it is used."""
    monkeypatch.setattr(encoder_module, "CHUNK", 10)
    monkeypatch.setattr(encoder_module, "BLOCK", 10)
    taken = []

    def batches():
        for i in range(100):
            taken.append(i)
            yield pa.record_batch({"x": np.arange(10.0)})

    schema = sf.Schema([sf.Numerical("x", sf.MinMax(0, 9))])
    encoder = sf.fit_encoder(schema, {"x": np.arange(10.0)})
    source = pa.RecordBatchReader.from_batches(pa.schema({"x": pa.float64()}), batches())
    chunks = encoder.encode_chunks(source, rows=10, threads=2)
    next(chunks)
    assert len(taken) < 10
    chunks.close()


class TestBadTables:
    def test_a_missing_column_is_named_with_its_neighbors(self):
        with pytest.raises(ValueError, match="no column 'country' in the table; nearest: 'countri'"):
            sf.fit_encoder(sf.Schema([sf.Categorical("country")]), {"countri": ["US"]})
        encoder = sf.fit_encoder(sf.Schema([sf.Categorical("country")]), {"country": ["US"]})
        with pytest.raises(ValueError, match="no column 'country'"):
            encoder.encode({"x": [1]})

    def test_an_empty_table(self):
        with pytest.raises(ValueError, match="the table has no rows"):
            sf.fit_encoder(sf.Schema([sf.Categorical("c")]), {"c": pa.array([], pa.string())})

    def test_the_target_inside_the_schema(self):
        with pytest.raises(ValueError, match="target 'click' is a field of the schema"):
            sf.fit_encoder(sf.Schema([sf.Categorical("click")]), {"click": ["a"]}, target="click")

    def test_something_that_is_no_schema(self):
        with pytest.raises(TypeError, match=r"schema must be a sf.Schema, got a value of type list; write sf.Schema"):
            sf.fit_encoder([sf.Categorical("c")], {"c": ["a"]})

    @pytest.mark.parametrize("threads", [0, -1])
    def test_threads_must_be_positive(self, threads):
        with pytest.raises(ValueError, match="threads must be at least 1"):
            sf.fit_encoder(sf.Schema([sf.Categorical("c")]), {"c": ["a"]}, threads=threads)

    def test_statistics_of_another_schema(self):
        with pytest.raises(ValueError, match="same schema"):
            sf.EncoderStatistics(SCHEMA).merge(sf.EncoderStatistics(sf.Schema([sf.Categorical("c")])))

    @pytest.mark.parametrize("threads", [1, 2])
    def test_an_error_in_a_later_block_reaches_the_caller(self, threads):
        x = np.arange(50_000.0)
        encoder = sf.fit_encoder(sf.Schema([sf.Numerical("x")]), {"x": x})
        x[40_000] = np.inf
        with pytest.raises(ValueError, match="column 'x' holds inf"):
            encoder.encode({"x": x}, threads=threads)
        with pytest.raises(ValueError, match="column 'x' holds inf"):
            sf.fit_encoder(sf.Schema([sf.Numerical("x")]), {"x": x}, threads=threads)

    def test_more_rows_than_int32_can_number(self):
        from splinefm.encode.slots import FieldLayout

        with pytest.raises(ValueError, match=r"'id' alone needs 2,147,483,647: give it fewer .*or raise its min_count"):
            SlotLayout((FieldLayout("id", 2**31 - 1, (1,), (0,)), FieldLayout("x", 9, (1,), (0,))))


def test_a_family_with_given_parameters_is_taken_as_it_is():
    field = sf.Numerical("x", sf.BestFitCDF(family="normal", params=(1.0, 2.0)))
    encoder = sf.fit_encoder(sf.Schema([field]), {"x": [0.0, 1.0, 5.0]})
    assert encoder.fields[0].transform == field.transform
    assert "given" in encoder.notes["x"]
