"""Crosses in exports: ONNX Runtime, libffm, plain tables and bins give the scores of the model."""

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.model.family import formula_scores
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
    @given(kinds=st.lists(st.sampled_from(sorted(CROSSES)), unique=True, max_size=3), model=st.integers(0, 5))
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
