"""A row has the same score, whatever source it is read from."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import splinefm as sf

onnxruntime = pytest.importorskip("onnxruntime")
N = 400


def make_frame(seed: int = 0) -> pd.DataFrame:
    """Columns that other sources write in another way: codes with gaps, booleans, times, days, and a number."""
    rng = np.random.default_rng(seed)
    hours = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 24 * 800, N), unit="h")
    frame = pd.DataFrame(
        {
            "code": np.where(rng.random(N) < 0.1, np.nan, rng.integers(0, 4, N)),
            "flag": rng.random(N) < 0.5,
            "day": np.array(["2024-05-28", "2024-05-29", "2024-06-01"], "datetime64[ns]")[rng.integers(0, 3, N)],
            "seen_at": hours,
            "x": rng.normal(size=N),
        }
    )
    effect = np.where(frame["code"] > 1, 1.5, -1.5) + np.where(frame["flag"], 1.0, -1.0)
    frame["y"] = (rng.random(N) < 1 / (1 + np.exp(-effect))).astype(int)
    return frame


SCHEMA = sf.Schema(
    [
        sf.Categorical("code"),
        sf.Categorical("flag"),
        sf.Categorical("day"),
        sf.Timestamp("seen_at"),
        sf.Numerical("x"),
    ]
)
# How a table reaches the model; each gives the same rows.
SOURCES = {
    "pandas": lambda frame, folder: frame,
    "csv": lambda frame, folder: frame.to_csv(folder / "t.csv", index=False) or folder / "t.csv",
    "read back from csv": lambda frame, folder: (
        frame.to_csv(folder / "t.csv", index=False) or pd.read_csv(folder / "t.csv")
    ),
    "parquet": lambda frame, folder: frame.to_parquet(folder / "t.parquet") or folder / "t.parquet",
    "polars": lambda frame, folder: pl.from_pandas(frame),
    "polars csv": lambda frame, folder: pl.from_pandas(frame).write_csv(folder / "t.csv") or folder / "t.csv",
    "dict of objects": lambda frame, folder: {
        name: [None if value is pd.NaT or value != value else value for value in column.astype(object)]
        for name, column in frame.items()
    },
    "all text": lambda frame, folder: (
        frame.astype(object).where(frame.notna(), None).map(lambda value: None if value is None else str(value))
    ),
    "numbers for booleans": lambda frame, folder: frame.assign(
        flag=frame["flag"].astype(int), code=frame["code"].astype("Int64")
    ),
}


@pytest.fixture(scope="module", params=["pandas", "csv", "all text"])
def fitted(request, tmp_path_factory):
    """A model that was fitted to one of the sources."""
    source = SOURCES[request.param](make_frame(), tmp_path_factory.mktemp("fit"))
    training = sf.Training(epochs=3, threads=1)
    return sf.fit_model(source, "y", schema=SCHEMA, model=sf.FwFM(k=4), training=training)


@pytest.fixture(scope="module")
def expected(fitted):
    return fitted.scores(make_frame())


@pytest.mark.parametrize("source", SOURCES)
def test_scores(fitted, expected, source, tmp_path):
    scores = fitted.scores(SOURCES[source](make_frame(), tmp_path))
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_the_model_knows_what_its_names_spell(fitted):
    kinds = [item.values for item in fitted.encoder.fields if isinstance(item, sf.Categorical)]
    assert kinds == ["numbers", "booleans", "dates"]
    assert fitted.encoder.fields[0].vocabulary.names.to_pylist()[0] in "0123"


ROWS = {
    "typed": lambda row: row,
    "text": lambda row: {name: None if value is None else str(value) for name, value in row.items()},
    "integers": lambda row: {
        **row,
        "flag": int(row["flag"]),
        "code": None if row["code"] is None else int(row["code"]),
    },
    "iso": lambda row: {**row, "seen_at": row["seen_at"].isoformat(), "day": row["day"].date()},
    "datetime": lambda row: {**row, "seen_at": row["seen_at"].to_pydatetime(), "day": row["day"].to_pydatetime()},
    "seconds": lambda row: {**row, "seen_at": row["seen_at"].timestamp()},
}


@pytest.mark.parametrize("form", ROWS)
def test_single_rows(fitted, expected, form):
    frame = make_frame()[:40]
    rows = [
        {name: None if value != value else value for name, value in row.items()} for row in frame.to_dict("records")
    ]
    scores = fitted.scorer().many([ROWS[form](row) for row in rows])
    np.testing.assert_allclose(scores, expected[:40], atol=1e-5)


def test_onnx(fitted, expected, tmp_path):
    sf.export_onnx(fitted, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert [entry.name for entry in session.get_inputs()] == list(fitted.encoder.schema.columns)
    inputs = sf.onnx_inputs(fitted, make_frame())
    np.testing.assert_allclose(session.run(["score"], inputs)[0], expected, atol=1e-5)
    frame = make_frame()
    as_spelled = {
        name: frame[name].map(lambda v: "" if v != v else str(v)).to_numpy(object) for name in ("code", "flag", "day")
    }
    np.testing.assert_allclose(session.run(["score"], {**inputs, **as_spelled})[0], expected, atol=1e-5)


def test_items_and_contexts(fitted, tmp_path):
    items = make_frame()[["code", "flag", "day"]].drop_duplicates().reset_index(drop=True)
    items["id"] = np.arange(len(items))
    items.to_csv(tmp_path / "items.csv", index=False)
    contexts = [
        {"seen_at": "2021-07-04T13:00", "x": 0.5},
        {"seen_at": dt.datetime(2021, 7, 4, 13), "x": "0.5"},
        {"seen_at": np.datetime64("2021-07-04T13:00:00"), "x": 0.5},
    ]
    found = [
        sf.ItemIndex(fitted, source, ids="id").top_k(context, k=5)
        for source in (items, tmp_path / "items.csv")
        for context in contexts
    ]
    for ids, scores in found[1:]:
        assert ids.tolist() == found[0][0].tolist()
        np.testing.assert_allclose(scores, found[0][1], atol=1e-6)


def test_views_take_dates_and_parts(fitted):
    rest = {"code": 2, "flag": True, "day": "2024-05-28", "x": 0.0}
    frame = pd.DataFrame({**rest, "seen_at": pd.to_datetime(["2021-07-04 00:00", "2021-07-04 13:30"])})
    expected = fitted.scores(frame)
    curve = fitted.segment({**rest, "seen_at": "2021-07-04"}, along="seen_at.hour")
    np.testing.assert_allclose(curve([0.0]), expected[:1], atol=1e-5)
    np.testing.assert_allclose(curve([13.5, 24.0]), curve(["1999-01-01T13:30", "2021-07-04"]), atol=1e-9)
    later = fitted.segment({**rest, "seen_at": "2021-07-04T13:30"}, along="seen_at.hour")
    np.testing.assert_allclose(later([13.5]), expected[1:], atol=1e-5)
    parts = {"seen_at.weekday": 6, "seen_at.yearday": 186, "seen_at.trend": dt.datetime(2021, 7, 4)}
    again = fitted.segment({**rest, **parts}, along="seen_at.hour")
    np.testing.assert_allclose(again([0.0]), expected[:1], atol=1e-5)
    many = sf.segments(
        fitted,
        pa.table({**{name: [value] * 2 for name, value in rest.items()}, "seen_at": frame["seen_at"]}),
        along="seen_at.hour",
    )
    np.testing.assert_allclose(np.diag(many([0.0, 13.5])), expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"'seen_at' is a column of several fields; take one of 'seen_at.trend', "):
        fitted.segment(rest, along="seen_at")


def test_files_of_a_folder_may_spell_differently(tmp_path):
    frame = make_frame()[["code", "x", "y"]].dropna()
    frame.assign(code=frame["code"].astype(int))[:200].to_csv(tmp_path / "a.csv", index=False)
    frame[200:].to_csv(tmp_path / "b.csv", index=False)
    fitted = sf.fit_model(tmp_path, "y", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
    assert sorted(fitted.encoder.fields[0].vocabulary.names.to_pylist()) == ["0", "1", "2", "3"]
    np.testing.assert_allclose(fitted.scores(tmp_path), fitted.scores(frame), atol=1e-6)


def test_the_example_of_codes_with_gaps(tmp_path):
    rng = np.random.default_rng(0)
    n = 2000
    c = np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 4, n))
    y = (rng.random(n) < np.where(np.nan_to_num(c) > 1, 0.9, 0.1)).astype(int)
    pd.DataFrame({"c": c, "x": rng.random(n), "y": y}).to_csv(tmp_path / "codes.csv", index=False)
    model = sf.SplineFMClassifier(sf.FM(k=4), epochs=3).fit(tmp_path / "codes.csv", target="y")
    found = [
        (model.predict(source) == y).mean() for source in (tmp_path / "codes.csv", pd.read_csv(tmp_path / "codes.csv"))
    ]
    assert found[0] == found[1] > 0.85
