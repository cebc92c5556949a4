"""A model with an offset gives one score to a row, whichever door it takes."""

import json
import math
from ctypes import byref, c_int32
from functools import cache

import numpy as np
import onnxruntime as ort
import pyarrow as pa
import pytest

import splinefm as sf
from c_library import ERROR_ARGUMENT, ERROR_FILE, ERROR_VALUE, CallError, CItems, CScorer
from live import make_service
from splinefm.export.scorer import _sections
from splinefm.serve import FaultyRows
from splinefm.serve.models import example_row
from splinefm.store.scorer_image import WITH_OFFSET, image_blocks
from splinefm.train.offsets import Offset
from support import mixed_schema, mixed_table, random_fitted, take_rows

N = 200
LOSSES = {
    "exposure": sf.Loss("gamma", scale=3.0),
    "offset": sf.Loss("squared", center=1.0, scale=7.0),
    "log-odds": sf.Loss("logistic"),
}


@cache
def models():
    table, rng = mixed_table(N), np.random.default_rng(4)
    table = {**table, "e": rng.uniform(0.01, 30.0, N)}
    found = {}
    for name, loss in LOSSES.items():
        fitted = random_fitted(sf.FwFM(k=4, third=2), mixed_schema(), table, loss=loss)
        found[name] = sf.Fitted(
            fitted.encoder,
            fitted.model,
            fitted.params,
            loss,
            offset=Offset("e", "exposure" if name == "exposure" else "offset"),
        )
    return found, table


def rows_of(table):
    return [dict(zip(table, values, strict=True)) for values in zip(*map(list, table.values()), strict=True)]


def plain(value):
    return value.tolist() if isinstance(value, np.ndarray) else value.item() if isinstance(value, np.generic) else value


def plain_rows(table):
    return [{name: plain(value) for name, value in row.items()} for row in rows_of(table)]


@pytest.fixture(params=LOSSES)
def problem(request):
    found, table = models()
    return found[request.param], table


def test_scores_are_the_formula(problem):
    fitted, table = problem
    added = table["e"] if fitted.offset.kind == "offset" else np.log(table["e"])
    bare = fitted.without_offset().scores(table)
    scores = fitted.scores(table)
    np.testing.assert_allclose(scores, bare + added / fitted.loss.score_unit, rtol=1e-5, atol=1e-5)
    assert np.abs(scores - bare).max() > 1.0


def test_the_row_scorer_has_the_same_bits(problem):
    fitted, table = problem
    scorer, rows = fitted.scorer(), rows_of(table)
    np.testing.assert_array_equal(scorer.many(rows), fitted.scores(table))
    np.testing.assert_allclose(scorer.many(rows, link=True), fitted.predict(table), rtol=1e-14)
    assert scorer({**rows[0], "e": np.float32(0.5)}) == scorer({**rows[0], "e": 0.5})
    assert scorer({**rows[0], "e": 1}) == scorer({**rows[0], "e": 1.0}) == scorer({**rows[0], "e": "1"})


def test_the_c_library_has_the_same_bits(problem, tmp_path):
    fitted, table = problem
    fitted.export_scorer(tmp_path / "model.sfs")
    assert (tmp_path / "model.sfs").read_bytes()[8] == WITH_OFFSET
    rows = plain_rows(table)
    with CScorer(tmp_path / "model.sfs") as scorer:
        assert scorer.columns == fitted.columns
        np.testing.assert_array_equal(scorer.score(rows), fitted.scores(table))
        np.testing.assert_allclose(scorer.score(rows, link=True), fitted.predict(table), rtol=1e-15)
        is_exposure = c_int32(-1)
        assert scorer.lib.sfm_offset_column(scorer.handle, byref(is_exposure)) == scorer.columns.index("e")
        assert is_exposure.value == (fitted.offset.kind == "exposure")


def test_a_scorer_file_without_an_offset_is_as_before(tmp_path):
    fitted = models()[0]["exposure"].without_offset()
    fitted.export_scorer(tmp_path / "model.sfs")
    assert (tmp_path / "model.sfs").read_bytes()[8] == 1
    with CScorer(tmp_path / "model.sfs") as scorer:
        assert scorer.lib.sfm_offset_column(scorer.handle, None) == -1 and "e" not in scorer.columns


def test_items_of_the_c_library_have_it(problem, tmp_path):
    fitted, table = problem
    fitted.export_scorer(tmp_path / "model.sfs")
    rows = plain_rows(take_rows(table, range(5)))
    with CScorer(tmp_path / "model.sfs") as scorer:
        for name in (scorer.columns[0], "e"):
            items = [{name: row[name]} for row in rows]
            expected = fitted.scorer().many([rows[0] | item for item in items])
            np.testing.assert_array_equal(scorer.score_items(rows[0], items), expected)
        with pytest.raises(CallError, match="a catalog cannot have an offset; use sfm_score_items") as refused:
            CItems(scorer, [{scorer.columns[0]: row[scorer.columns[0]]} for row in rows], [scorer.columns[0]])
        assert refused.value.code == ERROR_ARGUMENT


def with_offset(change, version=WITH_OFFSET):
    """A scorer file whose last four words, those of the offset, are changed: column, kind, unit, largest."""
    sections = _sections(models()[0]["exposure"])
    words = sections["meta"].view(np.int64).copy()
    change(words[-4:-2], words[-2:].view(np.float64))
    return b"".join(map(bytes, image_blocks(sections | {"meta": words}, version)))


@pytest.mark.parametrize("index, word", [(0, -1), (0, 99), (1, 0), (1, 3)])
def test_an_offset_that_leads_nowhere_is_a_damaged_file(index, word):
    def change(words, _):
        words[index] = word

    with pytest.raises(CallError) as refused:
        CScorer(with_offset(change))
    assert refused.value.code == ERROR_FILE


@pytest.mark.parametrize("number", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("index", [0, 1])
def test_an_offset_without_a_unit_is_a_damaged_file(index, number):
    def change(_, numbers):
        numbers[index] = number

    with pytest.raises(CallError) as refused:
        CScorer(with_offset(change))
    assert refused.value.code == ERROR_FILE


@pytest.mark.parametrize("version", [0, 1, 3, 4])
def test_a_file_of_another_version_is_refused(version):
    with CScorer(with_offset(lambda *_: None)) as scorer:
        assert scorer.columns
    with pytest.raises(CallError) as refused:
        CScorer(with_offset(lambda *_: None, version))
    assert refused.value.code == ERROR_FILE


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -1.0, 0.0, 1e300])
def test_what_is_none_is_refused_by_every_door(bad, tmp_path):
    fitted, table = models()[0]["exposure"], models()[1]
    row = plain_rows(take_rows(table, range(1)))[0] | {"e": bad}
    with pytest.raises(ValueError, match="the exposure 'e'"):
        fitted.scores({name: [value] for name, value in row.items()})
    scorer = fitted.scorer()
    with pytest.raises(ValueError, match="the exposure 'e'"):
        scorer(row)
    with pytest.raises(ValueError, match="row 1: the exposure 'e'"):
        scorer.many([row | {"e": 1.0}, row])
    fitted.export_scorer(tmp_path / "model.sfs")
    with (
        CScorer(tmp_path / "model.sfs") as opened,
        pytest.raises(CallError, match="column 'e' is an exposure, which must be a finite number above 0") as refused,
    ):
        opened.score([row])
    assert refused.value.code == ERROR_VALUE


def test_a_row_without_the_column_is_an_error():
    fitted, table = models()[0]["offset"], models()[1]
    row = {name: value for name, value in rows_of(table)[0].items() if name != "e"}
    with pytest.raises(ValueError, match=r"no column 'e' in the row.*fitted with the offset 'e'"):
        fitted.scorer()(row)


def small_model():
    table = {"x": np.arange(60.0), "e": np.ones(60), "y": np.arange(60.0)}
    training = sf.Training(epochs=1, threads=1, effort="fast")
    return sf.fit_model(table, "y", loss=sf.Loss("squared"), offset="e", model=sf.FM(k=2), training=training)


def test_one_column_can_be_a_field_and_an_exposure(tmp_path):
    rng = np.random.default_rng(0)
    table = {"e": rng.uniform(0.1, 2.0, N), "y": rng.poisson(1.0, N).astype(float)}
    fitted = sf.fit_model(
        table,
        "y",
        loss="poisson",
        exposure="e",
        schema=sf.Schema([sf.Numerical("e")]),
        training=sf.Training(epochs=2, threads=1, effort="fast"),
    )
    rows = [{"e": float(e)} for e in table["e"]]
    fitted.export_scorer(tmp_path / "model.sfs")
    assert fitted.columns == ["e"]
    with CScorer(tmp_path / "model.sfs") as scorer:
        np.testing.assert_array_equal(scorer.score(rows), fitted.scores(table))
    np.testing.assert_array_equal(fitted.scorer().many(rows), fitted.scores(table))
    np.testing.assert_allclose(onnx_scores(fitted, table, tmp_path), fitted.scores(table), atol=1e-5)


def onnx_scores(fitted, table, folder):
    fitted.export_onnx(folder / "model.onnx")
    session = ort.InferenceSession(str(folder / "model.onnx"))
    return session.run(["score"], sf.onnx_inputs(fitted, table))[0]


def test_onnx_has_an_input_for_it(problem, tmp_path):
    fitted, table = problem
    np.testing.assert_allclose(onnx_scores(fitted, table, tmp_path), fitted.scores(table), rtol=1e-4, atol=1e-4)
    session = ort.InferenceSession(str(tmp_path / "model.onnx"))
    assert {"e": "tensor(double)"}.items() <= {one.name: one.type for one in session.get_inputs()}.items()
    known = session.get_modelmeta().custom_metadata_map
    assert known[f"splinefm.{fitted.offset.kind}"] == "e"
    inputs = sf.onnx_inputs(fitted, table)
    predictions = session.run(["prediction"], inputs)[0]
    np.testing.assert_allclose(predictions, fitted.predict(table), rtol=1e-3, atol=1e-3)
    if fitted.offset.kind == "exposure":
        assert not np.isfinite(session.run(["score"], {**inputs, "e": np.full(N, -1.0)})[0]).any()


def test_plain_tables_describe_it(tmp_path):
    fitted = sf.discretize(small_model(), 64)
    folder = fitted.export_tables(tmp_path / "tables")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["version"] == 4
    assert manifest["offset"] == {"column": "e", "kind": "offset", "divide_by": fitted.loss.scale}


class TestServer:
    def test_a_row_has_a_column_for_it(self, problem, tmp_path):
        fitted, table = problem
        fitted.save(tmp_path / "model.sfm")
        service = make_service(only=tmp_path / "model.sfm")
        rows = plain_rows(table)
        np.testing.assert_array_equal(service.score(rows).scores, fitted.scores(table))
        named = {name: [row[name] for row in rows] for name in fitted.columns}
        arrow = pa.table({name: pa.array(values) for name, values in named.items()})
        np.testing.assert_array_equal(service.score(arrow).scores, fitted.scores(table))

    def test_faults_name_row_and_column(self, tmp_path):
        fitted, table = models()[0]["exposure"], models()[1]
        fitted.save(tmp_path / "model.sfm")
        service = make_service(only=tmp_path / "model.sfm")
        rows = plain_rows(take_rows(table, range(6)))
        rows[4]["e"] = -1.0
        with pytest.raises(FaultyRows, match="row 4: the exposure 'e' must be above 0, got -1") as refused:
            service.score(rows)
        assert [(fault.row, fault.column) for fault in refused.value.faults] == [(4, "e")]
        arrow = pa.table({name: pa.array([row[name] for row in rows]) for name in fitted.columns})
        with pytest.raises(FaultyRows) as refused:
            service.score(arrow)
        assert [(fault.row, fault.column) for fault in refused.value.faults] == [(4, "e")]
        del rows[4]["e"]
        with pytest.raises(FaultyRows, match="'e'"):
            service.score(rows)

    def test_the_example_row_has_it(self):
        for fitted in models()[0].values():
            assert math.isfinite(fitted.scorer()(example_row(fitted)))
