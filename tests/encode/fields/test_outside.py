"""What a value beyond the range of training is: the same for tables, rows, the C library, ONNX and the server."""

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import onnxruntime as ort
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv
from typer.testing import CliRunner

import splinefm as sf
from c_library import ERROR_FILE, ERROR_VALUE, CallError, CScorer
from live import make_service
from splinefm.cli.main import app
from splinefm.encode.drift import Watch
from splinefm.encode.encoder import BLOCK, EncoderStatistics
from splinefm.encode.fields.numerical import OutOfRange
from splinefm.explore.payload import make_payload
from splinefm.export.libffm import _describe
from splinefm.export.scorer import _sections
from splinefm.inspect.axes import RawAxis
from splinefm.inspect.values import value_grid
from splinefm.serve import FaultyRows
from splinefm.serve.endpoints.explain import _grid
from splinefm.store.scorer_image import VERSION, WITH_LIMITS, image_blocks
from splinefm.train.offsets import Offset
from support import all_models, random_fitted, random_params

N = 120
RNG = np.random.default_rng(0)
TABLE = {
    "x": [None, *RNG.uniform(-3.0, 7.0, N - 1).tolist()],
    "y": RNG.lognormal(0.0, 1.0, N).tolist(),
    "c": RNG.choice(["a", "b"], N).tolist(),
    "e": RNG.uniform(0.1, 3.0, N).tolist(),
}
LOW, HIGH = (end(value for value in TABLE["x"] if value is not None) for end in (min, max))
TRANSFORMS = [sf.MinMax(), sf.Quantile(), sf.BestFitCDF(), sf.ArcsinhSquare(), sf.Log(), sf.ArcsinhSquare(clip=0.9)]
BASES = [sf.BSpline(5), sf.MultiResolution((2, 4)), sf.Bins(4), sf.Polynomial(3), sf.BSpline(5, periodic=True)]


def schema(outside, reduction="sum", crossed=True):
    x = sf.Numerical("x", sf.MinMax(), special=[99.0], outside=outside, reduction=reduction)
    crosses = [sf.Cross("x", "c")] if crossed else []
    return sf.Schema([x, sf.Numerical("y", sf.Quantile(), sf.Bins(5)), sf.Categorical("c"), *crosses])


def make(outside, model=None, **options):
    return random_fitted(model or sf.FwFM(k=3), schema(outside, **options), TABLE, scale=1.0)


def rows_of(table):
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def far_rows(*values):
    return [{"x": value, "y": 1.0, "c": "a", "e": 1.0} for value in values]


def columns(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


BEYOND = [math.nextafter(LOW, -math.inf), math.nextafter(HIGH, math.inf), -1e300, 1e300, 1e4]


class TestTheRange:
    @pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
    def test_it_has_all_values_of_training_and_of_the_transform(self, transform):
        table = {"x": TABLE["y"]}
        item = sf.fit_encoder(sf.Schema([sf.Numerical("x", transform, outside="error")]), table).fields[0]
        low, high = item.limits
        ends = np.asarray(item.fitted_transform.inverse([0.0, 1.0])).tolist()
        seen = min(table["x"]), max(table["x"])
        far = isinstance(transform, sf.BestFitCDF)
        assert (low, high) == (seen if far else (min(seen[0], ends[0]), max(seen[1], ends[1])))
        assert not item.is_beyond(item.raw(np.linspace(0.0, 1.0, 999))).any()

    def test_given_ends_of_a_transform_count(self):
        item = sf.Numerical("x", sf.MinMax(low=-100, high=100), outside="error")
        fitted = sf.fit_encoder(sf.Schema([item]), TABLE).fields[0]
        assert fitted.limits == (-100.0, 100.0)

    def test_a_given_range_holds_for_training_rows(self):
        given = sf.Schema([sf.Numerical("x", outside="error", limits=(LOW, 6.0)), sf.Categorical("c")])
        first = next(i for i, value in enumerate(TABLE["x"]) if value is not None and value > 6.0)
        with pytest.raises(ValueError, match=rf"row {first} \(counted from 0\): column 'x' holds .*, -.* to 6\.0"):
            sf.fit_encoder(given, TABLE)
        missing = sf.Schema([sf.Numerical("x", outside="missing", limits=(LOW, 6.0)), sf.Categorical("c")])
        encoder = sf.fit_encoder(missing, TABLE)
        expected = sum(value is None or value > 6.0 for value in TABLE["x"])
        assert encoder.feature_counts[0][0] == expected > 1 and encoder.fields[0].limits == (LOW, 6.0)

    def test_without_the_setting_nothing_is_kept(self):
        assert make("clip").encoder.fields[0].limits is None

    def test_updates_do_not_move_it(self):
        encoder = make("missing").encoder
        extended = encoder.extend(columns(far_rows(1.0, *BEYOND)))
        assert extended.fields[0].limits == encoder.fields[0].limits == (LOW, HIGH)
        token = encoder.fields[0].missing_token
        added = extended.feature_counts[0][token] - encoder.feature_counts[0][token]
        assert added == len(BEYOND)


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"outside": "extrapolate"}, "outside must be one of"),
            ({"outside": "missing", "missing": "error"}, 'use missing="token", or outside="error"'),
            ({"limits": (0, 1)}, 'outside="clip" takes all'),
            ({"outside": "error", "limits": (1, 0)}, "limits must be finite"),
            ({"outside": "error", "limits": (0, math.inf)}, "limits must be finite"),
            ({"outside": "error", "limits": (0, math.nan)}, "limits must be finite"),
            ({"outside": "error", "limits": 3}, "limits takes two numbers"),
            ({"outside": "error", "limits": (1, 2, 3)}, "limits takes two numbers"),
        ],
    )
    def test_what_is_refused(self, settings, message):
        with pytest.raises(ValueError, match=message):
            sf.Numerical("x", **settings)

    @pytest.mark.parametrize("suffix", ["toml", "json"])
    def test_schema_files(self, suffix, tmp_path):
        for item in (*schema("missing").fields, sf.Numerical("z", outside="error", limits=(0, 4))):
            given = sf.Schema([item] if not isinstance(item, sf.Cross) else schema("error").fields)
            given.save(tmp_path / f"schema.{suffix}")
            assert sf.Schema.load(tmp_path / f"schema.{suffix}") == given
        fitted = make("missing").encoder.schema
        fitted.save(tmp_path / f"fitted.{suffix}")
        assert sf.Schema.load(tmp_path / f"fitted.{suffix}").fields[0].limits == (LOW, HIGH)

    @pytest.mark.parametrize("outside", ["clip", "missing", "error"])
    def test_model_files(self, outside, tmp_path):
        fitted = make(outside)
        fitted.save(tmp_path / "model.sfm")
        loaded = sf.load(tmp_path / "model.sfm")
        assert loaded.encoder == fitted.encoder and loaded.encoder.fields[0].outside == outside
        assert ("outside" in loaded.encoder.fields[0].describe()) == (outside != "clip")

    def test_every_part_of_a_date_has_it(self):
        seen = {"t": [f"2024-05-{day:02}T0{day % 7 + 1}:00" for day in range(1, 29)]}
        encoder = sf.fit_encoder(sf.Schema([sf.Timestamp("t", outside="error")]), seen)
        encoder.encode({"t": ["2024-05-14T06:30"]})
        with pytest.raises(ValueError, match=r"row 0 .*'t' holds .*, beyond its range"):
            encoder.encode({"t": ["2024-06-01T23:30"]})
        hours = sf.Schema([sf.Timestamp("t", parts=["hour", "weekday", "yearday"], outside="error")])
        sf.fit_encoder(hours, seen).encode({"t": ["2031-12-31T23:59", "2024-01-01T00:00"]})


class TestMissing:
    @pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
    @pytest.mark.parametrize("basis", BASES, ids=repr)
    def test_weights_are_those_of_a_missing_value(self, transform, basis):
        table = {"x": TABLE["y"]}
        item = sf.Numerical("x", transform, basis, outside="missing")
        if isinstance(basis, sf.BSpline) and basis.periodic:
            item = sf.Numerical("x", sf.MinMax(low=0, high=5), basis, outside="missing")
        encoder = sf.fit_encoder(sf.Schema([item]), table)
        low, high = encoder.fields[0].limits
        far = [math.nextafter(low, -math.inf), math.nextafter(high, math.inf), -1e300, 1e300]
        slots, none = encoder.encode({"x": far}), encoder.encode({"x": [None] * len(far)})
        np.testing.assert_array_equal(slots.start, none.start)
        np.testing.assert_array_equal(slots.weight, none.weight)
        clipped = sf.fit_encoder(sf.Schema([sf.Numerical("x", item.transform, basis)]), table)
        inside = {"x": [low, (low + high) / 2, high, *table["x"]]}
        np.testing.assert_array_equal(encoder.encode(inside).weight, clipped.encode(inside).weight)
        start, weight = encoder.fields[0].encode_values(np.array([*far, *inside["x"]]))
        both = encoder.encode({"x": [*far, *inside["x"]]})
        np.testing.assert_array_equal(start, both.start)
        np.testing.assert_allclose(weight, both.weight, atol=1e-6)

    @pytest.mark.parametrize("model", all_models(4), ids=repr)
    def test_every_door_scores_a_missing_value(self, model, tmp_path):
        for reduction in ("sum", "identity"):
            fitted = make("missing", model, reduction=reduction)
            rows, none = far_rows(*BEYOND, 99.0), far_rows(*[None] * len(BEYOND), 99.0)
            expected = fitted.scores(columns(none))
            np.testing.assert_array_equal(fitted.scores(columns(rows)), expected)
            np.testing.assert_array_equal(fitted.scorer().many(rows), expected)
            fitted.export_scorer(tmp_path / "model.sfs")
            with CScorer(tmp_path / "model.sfs") as scorer:
                np.testing.assert_array_equal(scorer.score(rows), expected)
                np.testing.assert_array_equal(scorer.score(rows_of(TABLE)), fitted.scores(TABLE))

    @given(st.floats(-1e6, 1e6))
    def test_any_value_is_itself_or_missing(self, x):
        fitted = MISSING
        scorer = fitted.scorer()
        inside = LOW <= x <= HIGH or x == 99.0
        expected = CLIPPED.scorer()(far_rows(x)[0]) if inside else scorer(far_rows(None)[0])
        assert scorer(far_rows(x)[0]) == expected

    def test_onnx(self, tmp_path):
        fitted = make("missing")
        sf.export_onnx(fitted, tmp_path / "model.onnx")
        session = ort.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
        table = columns(far_rows(*BEYOND, None, 99.0, LOW, HIGH, 2.0))
        (score,) = session.run(["score"], sf.onnx_inputs(fitted, table))
        np.testing.assert_allclose(score, fitted.scores(table), atol=1e-5)

    def test_drift_counts_them_as_out_of_range(self):
        encoder = make("missing").encoder
        watch = Watch(encoder)
        encoder.encode(columns(far_rows(*[1e4] * 50)), watch=watch)
        assert any("'x': 100% of the values are out" in line for line in watch.report()), watch.report()


MISSING, CLIPPED = make("missing"), make("clip")


class TestErrors:
    def message(self, row):
        return (
            rf"row {row} \(counted from 0\): column 'x' holds 10000\.0, beyond its range in training, -2\.\d+ to 6\.\d+"
        )

    def test_tables_name_row_column_value_and_range(self):
        fitted = make("error")
        rows = [*far_rows(*[1.0] * (BLOCK + 5)), *far_rows(1e4)]
        for threads in (1, 2):
            with pytest.raises(ValueError, match=self.message(f"{BLOCK + 5:,}")):
                fitted.encoder.encode(columns(rows), threads=threads)
        with pytest.raises(ValueError, match=self.message(7)):
            list(fitted.encoder.encode_chunks(columns(rows[-8:]), rows=3))
        with pytest.raises(ValueError, match=self.message(3)):
            fitted.predict(columns(rows[-4:]))
        stream = pa.RecordBatchReader.from_batches(
            (table := pa.table(columns(rows[-6:]))).schema, table.to_batches(max_chunksize=2)
        )
        with pytest.raises(ValueError, match=self.message(5)):
            fitted.encoder.encode(stream)

    def test_a_model_with_an_offset(self):
        bare = make("error")
        fitted = sf.Fitted(bare.encoder, bare.model, bare.params, sf.Loss("squared"), offset=Offset("e", "offset"))
        with pytest.raises(ValueError, match=self.message(1)):
            fitted.scores(columns(far_rows(1.0, 1e4)))

    def test_updates(self, tmp_path):
        statistics = EncoderStatistics(make("error").encoder.schema)
        statistics.update(columns(far_rows(1.0, 2.0)))
        with pytest.raises(ValueError, match=self.message(3)):
            statistics.update(columns(far_rows(1.0, 1e4)))
        table = {**TABLE, "t": ([0, 1] * N)[:N]}
        fitted = sf.fit_model(
            table, "t", schema=schema("error"), model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1)
        )
        fitted.save(tmp_path / "model.sfm")
        more = columns([{**row, "t": i % 2} for i, row in enumerate(far_rows(*[1.0] * 30, 1e4))])
        with pytest.raises(ValueError, match=self.message(30)):
            sf.update_model(tmp_path / "model.sfm", more, "t")

    def test_rows(self):
        scorer = make("error").scorer()
        with pytest.raises(ValueError, match=r"^column 'x' holds 10000\.0, beyond its range"):
            scorer(far_rows(1e4)[0])
        with pytest.raises(ValueError, match=r"^row 1: column 'x' holds 10000\.0, beyond its range"):
            scorer.many(far_rows(1.0, 1e4))
        assert np.isfinite(scorer.many(far_rows(LOW, HIGH, 99.0, None))).all()

    def test_the_c_library(self, tmp_path):
        make("error").export_scorer(tmp_path / "model.sfs")
        with CScorer(tmp_path / "model.sfs") as scorer:
            with pytest.raises(CallError, match=r"column 'x' has the number 10000\.0+, beyond its range") as refused:
                scorer.score(far_rows(1e4))
            assert refused.value.code == ERROR_VALUE
            assert np.isfinite(scorer.score(far_rows(LOW, HIGH, 99.0, None))).all()

    @pytest.mark.parametrize("read_by", ["field", "cross", "both"])
    def test_onnx(self, read_by, tmp_path):
        fields = {"field": schema("error", crossed=False), "both": schema("error")}
        alone = sf.Cross(sf.Numerical("x", sf.MinMax(), special=[99.0], outside="error"), sf.Categorical("c"))
        fields["cross"] = sf.Schema([alone, sf.Numerical("y", sf.Quantile(), sf.Bins(5)), sf.Categorical("c")])
        fitted = random_fitted(sf.FwFM(k=3), fields[read_by], TABLE, scale=1.0)
        sf.export_onnx(fitted, tmp_path / "model.onnx")
        options = ort.SessionOptions()
        options.log_severity_level = 4
        session = ort.InferenceSession(tmp_path / "model.onnx", options, providers=["CPUExecutionProvider"])
        table = columns(far_rows(None, 99.0, LOW, HIGH, 2.0))
        inputs = sf.onnx_inputs(fitted, table)
        np.testing.assert_allclose(session.run(["score"], inputs)[0], fitted.scores(table), atol=1e-5)
        for value in BEYOND:
            one = {name: column[:1].copy() for name, column in inputs.items()}
            one["x"][0] = value
            with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="out of data bounds"):
                session.run(["score"], one)

    def test_the_server(self, tmp_path):
        make("error").save(tmp_path / "model.sfm")
        service = make_service(only=tmp_path / "model.sfm")
        rows = [{name: row[name] for name in "xyc"} for row in far_rows(1.0, 1e4)]
        for body in (rows, pa.table(columns(rows))):
            with pytest.raises(FaultyRows, match=r"row 1: .*beyond its range") as refused:
                service.score(body)
            assert [(fault.row, fault.column) for fault in refused.value.faults] == [(1, "x")]

    def test_it_survives_a_process(self):
        error = pickle.loads(pickle.dumps(OutOfRange("why", 3)))
        assert (error.message, error.row, str(error)) == ("why", 3, "why")


class TestFiles:
    def test_versions(self, tmp_path):
        for outside, version in (("clip", VERSION), ("missing", WITH_LIMITS), ("error", WITH_LIMITS)):
            make(outside).export_scorer(tmp_path / "model.sfs")
            assert (tmp_path / "model.sfs").read_bytes()[8] == version

    def test_limits_and_an_offset(self, tmp_path):
        bare = make("missing")
        fitted = sf.Fitted(bare.encoder, bare.model, bare.params, sf.Loss("squared"), offset=Offset("e", "offset"))
        fitted.export_scorer(tmp_path / "model.sfs")
        rows = far_rows(*BEYOND, 1.0, None)
        with CScorer(tmp_path / "model.sfs") as scorer:
            np.testing.assert_array_equal(scorer.score(rows), fitted.scores(columns(rows)))

    @pytest.mark.parametrize("low", [math.nan, HIGH + 1.0])
    def test_limits_out_of_order_are_a_damaged_file(self, low):
        sections = _sections(make("error"))
        meta = sections["meta"].view(np.float64).copy()
        meta[meta == LOW] = low
        assert not np.array_equal(meta, sections["meta"].view(np.float64))
        with pytest.raises(CallError) as refused:
            CScorer(b"".join(map(bytes, image_blocks(sections | {"meta": meta.view(np.int64)}, WITH_LIMITS))))
        assert refused.value.code == ERROR_FILE

    @pytest.mark.parametrize("version", [VERSION, 2])
    def test_an_old_version_does_not_read_limits(self, version):
        with pytest.raises(CallError) as refused:
            CScorer(b"".join(map(bytes, image_blocks(_sections(make("error")), version))))
        assert refused.value.code == ERROR_FILE

    def test_plain_tables_are_refused(self, tmp_path):
        with pytest.raises(ValueError, match="the first and the last bin of a table have no end, and field 'x'"):
            sf.discretize(make("missing", crossed=False), 4).export_tables(tmp_path / "tables")

    def test_bins_keep_it(self):
        binned = sf.discretize(make("missing", crossed=False), 4)
        rows, none = far_rows(*BEYOND), far_rows(*[None] * len(BEYOND))
        np.testing.assert_array_equal(binned.scores(columns(rows)), binned.scores(columns(none)))
        np.testing.assert_array_equal(binned.scorer().many(rows), binned.scores(columns(none)))

    def test_libffm_says_so(self, tmp_path):
        fitted = make("missing", crossed=False)
        described = _describe(fitted.encoder.fields[0])
        assert json.loads(json.dumps(described))["limits"] == [LOW, HIGH] and described["outside"] == "missing"


VIEWED = [
    *(sf.Numerical("x", transform, special=[100.0]) for transform in TRANSFORMS),
    sf.Numerical("x", sf.MinMax(high=100), sf.Bins(4), special=[100.0]),
]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("item", VIEWED, ids=lambda item: repr(item.transform))
def test_views_stay_inside(item, constant):
    table = {**TABLE, "x": [2.0] * N if constant else TABLE["y"]}
    fields = [replace(item, outside="error"), sf.Categorical("c")]
    fitted = random_fitted(sf.FM(k=2), sf.Schema(fields), table)
    low, high = fitted.encoder.fields[0].limits
    segment = fitted.segment({"c": "a"}, along="x")
    clipped = random_fitted(sf.FM(k=2), sf.Schema([item, fields[1]]), table).segment({"c": "a"}, along="x")
    x = np.linspace(low, high, 50)
    np.testing.assert_array_equal(segment(x), clipped(x))
    with pytest.raises(ValueError, match="beyond its range"):
        segment(np.array([1e4]))
    for found in (segment.maximum(), segment.minimum()):
        assert low <= found.at <= high
    axis = RawAxis.of([fitted.encoder.fields[0]])
    shown = fitted.encoder.fields[0]
    for inside in (value_grid(shown, 9), axis.grid([shown])):
        assert len(inside) and not shown.is_beyond(inside).any()
    assert not shown.is_beyond(axis.middles(shown, 5)).any()
    fitted.certify("x")
    largest = sf.compare(fitted, replace(fitted, params=random_params(fitted.model, fitted.encoder.layout, 5)), table)
    assert largest.bound >= abs(largest.change) > 0.0
    make_payload(fitted, table, explain=False)
    assert len(_grid(shown, 5)) and not shown.is_beyond(_grid(shown, 5)).any()


def test_the_command_line(tmp_path):
    csv.write_csv(pa.table({**TABLE, "t": ([0, 1] * N)[:N]}), tmp_path / "rows.csv")
    given = ["fit", str(tmp_path / "rows.csv"), "--target", "t", "--out", str(tmp_path / "m.sfm"), "--effort", "fast"]
    options = ["--epochs", "1", "--threads", "1", "--outside", "y=missing", "--outside", "e=error"]
    assert CliRunner().invoke(app, [*given, *options]).exit_code == 0
    schema = sf.load(tmp_path / "m.sfm").encoder.schema
    assert [schema[name].outside for name in "xye"] == ["clip", "missing", "error"]
    assert schema.provenance["y"].source == "given"
    for text, message in [
        ("y=far", "outside must be one of"),
        ("error", "--outside error: write NAME="),
        ("c=error", "with a numerical field"),
        ("w=error", "with a numerical field"),
    ]:
        failed = CliRunner().invoke(app, [*given, "--outside", text])
        assert failed.exit_code != 0
        assert message in failed.output
