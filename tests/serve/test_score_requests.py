"""POST /v1/score: the same bits as the library, and problems that name row and column."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from live import ARROW, as_columns, make_service, visits_model, visits_rows
from splinefm.serve import FaultyRows
from splinefm.serve.rows import check_finite
from splinefm.serve.serving import _score_table
from support import examples, random_classes, visits_schema, visits_table

ROW = {"recency": 3.5, "price": 2.0, "country": "US", "tags": ["t1"], "device": "phone"}


def expected(model, rows):
    scores = np.asarray(model.scorer().many(rows), np.float32)
    return scores, model.loss.predict(scores.astype(np.float64))


def stream(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def arrow_table(rows):
    return pa.table({name: pa.array(values) for name, values in as_columns(rows).items()})


class TestBits:
    @pytest.mark.parametrize("n", [1, 7, 1500])
    def test_rows_and_columns_give_the_scores_of_the_scorer(self, server, visits, n):
        rows = visits_rows(n)
        scores, predictions = expected(visits, rows)
        for body in ({"rows": rows}, {"columns": as_columns(rows)}):
            answer = server.score(body)
            assert answer.status == 200, answer.body
            assert answer.json["scores"] == scores.tolist()
            assert answer.json["predictions"] == predictions.tolist()

    @pytest.mark.parametrize("n", [1, 3000])
    def test_a_stream_gives_the_scores_of_the_table(self, server, visits, n):
        table = arrow_table(visits_rows(n))
        answer = server.ask("POST", "/v1/score", stream(table), {"Content-Type": ARROW})
        assert answer.status == 200, answer.body
        found = pa.ipc.open_stream(answer.body).read_all()
        scores = visits.scores(table)
        assert (found["score"].to_numpy() == scores).all()
        assert (found["prediction"].to_numpy() == visits.loss.predict(scores.astype(np.float64))).all()

    def test_rows_and_streams_have_the_same_scores(self, server):
        rows = visits_rows(200)
        found = server.ask(
            "POST", "/v1/score", stream(arrow_table(rows)), {"Content-Type": ARROW, "Accept": "application/json"}
        )
        assert found.json["scores"] == server.score({"rows": rows}).json["scores"]

    @examples(40)
    @given(st.integers(0, 2**32 - 1), st.integers(1, 40))
    def test_rows_of_all_kinds(self, server, visits, seed, n):
        rows = visits_rows(n, seed)
        assert server.score({"rows": rows}).json["scores"] == expected(visits, rows)[0].tolist()

    def test_a_row_does_not_depend_on_the_others(self, server):
        rows = visits_rows(30)
        together = server.score({"rows": rows}).json["scores"]
        assert together == [server.score({"rows": [row]}).json["scores"][0] for row in rows]


BAD_ROWS = {
    "unknown column": ({**ROW, "extra": 1}, "extra", "leave it out"),
    "missing column": ({name: ROW[name] for name in ROW if name != "price"}, "price", "a missing value is null"),
    "misspelled column": (
        {("Price" if name == "price" else name): ROW[name] for name in ROW},
        "price",
        "nearest: 'Price'",
    ),
    "text": ({**ROW, "recency": "soon"}, "recency", "'soon'"),
    "list": ({**ROW, "recency": [1.0]}, "recency", "recency"),
    "object": ({**ROW, "country": {"a": 1}}, "country", "country"),
    "list of objects": ({**ROW, "tags": [{"a": 1}]}, "tags", "tags"),
    "list for a category": ({**ROW, "country": ["US"]}, "country", "country"),
    "huge integer": ({**ROW, "recency": 10**400}, "recency", ""),
}


class TestProblems:
    @pytest.mark.parametrize("name", BAD_ROWS)
    def test_a_bad_row_is_named_and_nothing_is_scored(self, server, name):
        row, column, words = BAD_ROWS[name]
        answer = server.score({"rows": [ROW, ROW, row, ROW]})
        problem = answer.json
        assert answer.status in (400, 422), problem
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert "scores" not in problem and problem["status"] == answer.status and problem["title"]
        if answer.status == 422:
            first = problem["errors"][0]
            assert (first["row"], first["column"]) == (2, column)
            assert words in first["detail"]

    def test_all_bad_rows_are_listed_up_to_ten(self, server):
        bad = {**ROW, "recency": "soon"}
        problem = server.score({"rows": [ROW, bad, ROW, bad]}).json
        assert [error["row"] for error in problem["errors"]] == [1, 3]
        assert len(server.score({"rows": [bad] * 30}).json["errors"]) == 10

    @pytest.mark.parametrize(
        ("body", "status", "words"),
        [
            (b'{"rows": [{"recency": NaN}]}', 400, "a missing value is null"),
            (b'{"rows": [', 400, "not valid JSON"),
            (b"", 400, "not valid JSON"),
            (b"[]", 422, "Expected `object`"),
            (b'{"rows": 3}', 422, "$.rows"),
            (b'{"rows": [3]}', 422, "$.rows[0]"),
            (b'{"rows": []}', 422, "no rows"),
            (b"{}", 422, 'either "rows"'),
            (b'{"rows": [], "columns": {}}', 422, 'either "rows"'),
            (b'{"row": []}', 422, "unknown field"),
            (b'{"columns": {"a": [1], "b": []}}', 422, "give all as many"),
            (b'{"columns": {"a": 1}}', 422, "$.columns"),
            (b'{"rows": [{"tags": ' + b"[" * 100_000, 400, "not valid JSON"),
            (b'{"rows": [{"country": "\xff"}]}', 400, "not valid JSON"),
        ],
        ids=range(14),
    )
    def test_bodies_that_cannot_be_read(self, server, body, status, words):
        answer = server.ask("POST", "/v1/score", body, {"Content-Type": "application/json"})
        assert answer.status == status and words in answer.json["detail"], answer.body

    def test_too_many_rows_and_bytes(self, server):
        answer = server.score({"rows": [ROW] * 2001})
        assert (answer.status, answer.json["most"]) == (413, 2000) and "split it" in answer.json["detail"]
        answer = server.ask("POST", "/v1/score", b" " * (2 << 20), {"Content-Type": "application/json"})
        assert answer.status == 413 and "fewer rows" in answer.json["detail"]
        answer = server.ask("POST", "/v1/score", stream(arrow_table([ROW] * 6000)), {"Content-Type": ARROW})
        assert answer.status == 413, answer.body

    @pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
    def test_other_types_are_refused(self, server, kind):
        answer = server.ask("POST", "/v1/score", json.dumps({"rows": [ROW]}).encode(), {"Content-Type": kind})
        assert answer.status == 415 and "application/json" in answer.json["detail"]

    def test_streams_with_faults(self, server):
        def ask(table):
            return server.ask("POST", "/v1/score", stream(table), {"Content-Type": ARROW})

        good = arrow_table([ROW] * 9)
        nan = good.set_column(0, "recency", pa.array([1.0] * 6 + [float("nan")] + [1.0] * 2))
        answer = ask(nan)
        assert answer.status == 422 and answer.json["errors"][0]["row"] == 6, answer.body
        assert answer.json["errors"][0]["column"] == "recency" and "null" in answer.json["detail"]
        text = good.set_column(0, "recency", pa.array(["1"] * 7 + ["soon"] + ["1"]))
        assert [ask(text).json["errors"][0][part] for part in ("row", "column")] == [7, "recency"]
        assert "'price'" in ask(good.drop_columns(["price"])).json["detail"]
        assert ask(good.append_column("more", pa.array([1] * 9))).status == 422
        assert ask(good.append_column("price", pa.array([1] * 9))).status == 422
        assert ask(good.slice(0, 0)).status == 422

    @pytest.mark.parametrize("codec", ["lz4", "zstd"])
    def test_compressed_streams_are_refused(self, server, codec):
        """A few bytes could become more than there is memory for."""
        table = pa.table({"recency": np.zeros(1_000_000)})
        names = pa.table({"recency": pa.array(["a"] * 1000).dictionary_encode()})
        for each in (table, names):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, each.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
                writer.write_table(each)
            answer = server.ask("POST", "/v1/score", sink.getvalue().to_pybytes(), {"Content-Type": ARROW})
            assert answer.status == 400 and "without compression" in answer.json["detail"], answer.body

    def test_values_that_rows_share_are_bounded_before_they_are_written_out(self, server):
        """The value of a dictionary counts once for every row."""
        n_rows = 150
        text, zeros = "t|" * 100_000, pa.array(np.zeros(n_rows, np.int32))
        good = arrow_table([ROW] * n_rows)
        tags = good.schema.names.index("tags")
        bombs = {
            "tags": pa.DictionaryArray.from_arrays(zeros, pa.array([text])),
            "lists": pa.DictionaryArray.from_arrays(zeros, pa.array([["t"] * 100_000])),
            "nested": pa.ListArray.from_arrays(
                pa.array(np.arange(n_rows + 1, dtype=np.int32)), pa.DictionaryArray.from_arrays(zeros, pa.array([text]))
            ),
        }
        tables = [good.set_column(tags, "tags", bomb) for bomb in bombs.values()]
        tables.append(good.set_column(0, "recency", bombs["tags"]))
        for table in tables:
            body = stream(table)
            assert len(body) < 1_000_000
            answer = server.ask("POST", "/v1/score", body, {"Content-Type": ARROW})
            assert answer.status == 413 and "fewer rows, or shorter values" in answer.json["detail"], answer.body

    def test_runs_have_the_scores_of_their_rows(self, server, visits):
        table = arrow_table([ROW] * 5 + [{**ROW, "recency": 1.0, "country": "FR"}] * 4)
        runs = table.set_column(0, "recency", pc.run_end_encode(table["recency"]))
        at = table.schema.names.index("country")
        runs = runs.set_column(at, "country", pc.run_end_encode(table["country"]))
        answer = server.ask("POST", "/v1/score", stream(runs), {"Content-Type": ARROW, "Accept": "application/json"})
        assert answer.status == 200, answer.body
        assert answer.json["scores"] == visits.scores(table).tolist()

    @examples(80)
    @given(st.data())
    def test_damaged_streams_never_break_the_server(self, server, data):
        whole = bytearray(stream(arrow_table(visits_rows(20))))
        for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=5)):
            whole[at] = data.draw(st.integers(0, 255))
        end = data.draw(st.sampled_from([len(whole), len(whole) // 2, 9]))
        answer = server.ask("POST", "/v1/score", bytes(whole[:end]), {"Content-Type": ARROW})
        assert answer.status in (200, 400, 413, 422), answer.body


def test_infinite_predictions_are_a_problem_and_not_null():
    """An answer never holds a number that JSON cannot say; checked where answers are made."""
    check_finite(np.ones((3, 2)), "score")
    with pytest.raises(FaultyRows, match="row 1: its score is too large"):
        check_finite(np.array([0.0, np.inf, np.nan]), "score")


def test_models_lists_checksums_and_columns(server, visits):
    entry = server.ask("GET", "/v1/models").json["models"][0]
    assert entry["sha256"] == hashlib.sha256((server.folder / "model.sfm").read_bytes()).hexdigest()
    assert entry["columns"] == list(visits.encoder.schema.columns) and entry["index"]["items"] == 4
    assert entry["version"].startswith(entry["sha256"][:12]) and entry["loss"] == "logistic"


def test_several_classes_have_a_score_each(tmp_path):
    table = visits_table(np.random.default_rng(0), 100)
    fitted = random_classes(sf.FwFM(k=4), visits_schema(sf.BSpline(3)), table)
    fitted.save(tmp_path / "m.sfm")
    service = make_service(a=tmp_path / "m.sfm")
    rows = visits_rows(20)
    found = service.score(rows)
    assert (found.scores == fitted.scorer().many(rows).astype(np.float32)).all()
    assert service.serving.classes == ["a", "b", "c"] and found.predictions.shape == (20, 3)
    assert (found.predictions == fitted.loss.predict(found.scores.astype(np.float64))).all()


def test_arms_of_a_batch_are_put_together_in_order(tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        visits_model(seed).save(tmp_path / f"{name}.sfm")
    service = make_service(key="user", a=tmp_path / "a.sfm", b=tmp_path / "b.sfm")
    rows = [{**row, "user": i} for i, row in enumerate(visits_rows(60))]
    serving = service.serving
    found = service.score(rows)
    assert {*found.arms} == {"a", "b"} and found.arms == serving.split.arms_of(range(60))
    for i, row in enumerate(rows):
        assert found.scores[i] == serving.loaded[found.arms[i]].scores([row])[0]
    table = pa.table({**arrow_table(visits_rows(60)).to_pydict(), "user": list(range(60))})
    by_table = service.score(table)
    assert by_table.arms == found.arms
    np.testing.assert_allclose(by_table.scores, found.scores, rtol=1e-5, atol=1e-5)
    bad = [*rows[:40], {**rows[40], "recency": "soon"}, *rows[41:]]
    with pytest.raises(FaultyRows) as error:
        service.score(bad)
    assert (error.value.faults[0].row, error.value.faults[0].column) == (40, "recency")
    with pytest.raises(FaultyRows, match="row 3: the key 'user' must be"):
        service.score([*rows[:3], {**rows[3], "user": None}])


def test_a_table_is_searched_for_its_first_bad_row(tmp_path):
    """Also among the rows of one arm, and where no row is bad by itself."""
    rows = [ROW | {"price": 1.0 + i} for i in range(9)]
    table = pa.Table.from_pylist(rows)
    visits_model(1).save(tmp_path / "model.sfm")
    with make_service(default=tmp_path / "model.sfm") as service:
        model = service.serving.loaded["default"]
        own, plain = table.select(list(model.columns)), model._table_scores
        for bad in ({3}, {8}, {2, 5}, {0}, set()):
            prices = {1.0 + i for i in bad}

            def scores(part, prices=prices):
                if len(part) == 9 or prices & set(part["price"].to_pylist()):
                    raise ValueError("no")
                return plain(part)

            model._table_scores = scores
            with pytest.raises(FaultyRows, match="no") as found:
                service.serving.score_table(own, "r")
            assert found.value.faults[0].row == (min(bad) if bad else None)
        at = np.array([8, 5, 2])
        model._table_scores = lambda part: scores(part, {3.0})
        with pytest.raises(FaultyRows) as found:
            _score_table(model, own, at)
        assert found.value.faults[0].row == 2
