"""Ranking, explanations, segments, the OpenAPI description, feedback, and the Open Inference Protocol."""

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from live import Answer, make_service, spoil, visits_rows
from splinefm.serve import Arm, NotServed, ServiceSettings
from splinefm.serve.app import ENDPOINTS, find
from splinefm.serve.endpoints import openapi
from splinefm.serve.endpoints.admin import _refuse_impossible, explore
from splinefm.serve.endpoints.explain import explain, segment
from splinefm.serve.messages import Problem, Request
from splinefm.serve.models import verify
from support import examples, random_classes, random_fitted

ROW = {"recency": 3.5, "price": 2.0, "country": "US", "tags": ["t1"], "device": "phone"}
CONTEXT = {"recency": 3.5, "price": None, "tags": ["t1", "t2"]}


class TestRank:
    @pytest.mark.parametrize(
        "filters",
        [{}, {"allowed": [10, 30, 99]}, {"excluded": [40]}, {"group": "a"}, {"group": ["a", "b"], "excluded": [10]}],
    )
    def test_ranks_as_top_k_does(self, server, index, filters):
        answer = server.ask("POST", "/v1/rank", {"context": CONTEXT, "k": 3, **filters})
        ids, scores = index.top_k(CONTEXT, 3, **filters)
        assert answer.status == 200, answer.body
        assert (answer.json["ids"], answer.json["scores"]) == (ids.tolist(), scores.tolist())

    @pytest.mark.parametrize("n", [1, 30])
    def test_several_contexts_are_ranked_one_by_one(self, server, index, n):
        contexts = [CONTEXT | {"recency": float(i)} for i in range(n)]
        answer = server.ask("POST", "/v1/rank", {"contexts": contexts, "k": 2, "excluded": [40]})
        assert answer.status == 200, answer.body
        for i, found in enumerate(answer.json["rankings"]):
            ids, scores = index.top_k(contexts[i], 2, excluded=[40])
            assert (found["ids"], found["scores"]) == (ids.tolist(), scores.tolist())
            assert found["id"] == f"{answer.json['id']}.{i}"
        bad = [*contexts, {"recency": 1.0}]
        assert server.ask("POST", "/v1/rank", {"contexts": bad}).json["errors"][0]["row"] == n
        for body, status in (({"contexts": []}, 422), ({}, 422), ({"contexts": contexts * 1001}, 413)):
            assert server.ask("POST", "/v1/rank", body).status == status

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ({"context": {"recency": 1.0}}, "'price'"),
            ({"context": CONTEXT | {"country": "US"}}, "unknown column 'country'"),
            ({"context": CONTEXT, "k": 0}, ">= 1 - at `$.k`"),
            ({"context": CONTEXT | {"recency": "soon"}}, "'soon'"),
            ({"context": CONTEXT | {"recency": 10**400}}, "'recency' holds integers of more than 64 bits"),
            ({"context": CONTEXT, "allowed": ["x"]}, "allowed"),
            ({"context": CONTEXT, "allowed": [2**63]}, "allowed: ids must be integers below 2^63, or text"),
            ({"context": CONTEXT, "group": "z"}, "its groups: 'a', 'b'"),
            ({"context": 3}, "$.context"),
            ({"context": {"recency": [1.0] * 9, "price": [2.0] * 9, "tags": [[]] * 9}}, "one context at a time"),
            ({"context": CONTEXT | {"price": [1.0] * 9}}, "got several of 'price'; ask for one context at a time"),
            ({"context": CONTEXT | {"tags": [["t1"], ["t2"]]}}, "'tags'"),
        ],
        ids=range(12),
    )
    def test_contexts_that_cannot_be_used(self, server, body, words):
        answer = server.ask("POST", "/v1/rank", body)
        assert answer.status == 422 and words in answer.json["detail"], answer.body
        assert "C long" not in answer.json["detail"] and "; a context has" not in answer.json["detail"]


class TestExplain:
    def test_shapley_values_add_up_to_the_score(self, server, visits):
        rows = visits_rows(20, hostile=False)
        answer = server.ask("POST", "/v1/explain", {"rows": rows})
        assert answer.status == 200, answer.body
        table = {name: [row[name] for row in rows] for name in rows[0]}
        expected = sf.shapley_values(visits, table, str(server.folder / "background.parquet"), threads=1)
        assert answer.json["columns"] == list(expected.fields)
        np.testing.assert_allclose(answer.json["values"], expected.values, rtol=1e-9, atol=1e-9)
        scores = server.score({"rows": rows}).json["scores"]
        np.testing.assert_allclose(answer.json["base"] + np.sum(answer.json["values"], axis=1), scores, atol=1e-4)

    def test_bad_rows_are_named(self, server):
        answer = server.ask("POST", "/v1/explain", {"rows": [ROW, {**ROW, "recency": "soon"}]})
        assert (answer.status, answer.json["errors"][0]["row"]) == (422, 1)

    def test_a_segment_is_the_score_along_a_column(self, server):
        values = {name: value for name, value in ROW.items() if name != "recency"}
        answer = server.ask("GET", f"/v1/segment?along=recency&points=7&values={quote(values)}")
        assert answer.status == 200, answer.body
        rows = [{**ROW, "recency": x} for x in answer.json["x"]]
        np.testing.assert_allclose(answer.json["scores"], server.score({"rows": rows}).json["scores"], atol=1e-4)
        bars = server.ask("GET", "/v1/segment?along=country&rest=mean").json
        assert len(bars["names"]) == len(bars["scores"]) == len(bars["predictions"])

    @pytest.mark.parametrize(
        ("fields", "n_points"),
        [
            ([sf.Numerical("x"), sf.Cross(sf.Categorical("xv", column="x"), "a")], 4),  # the values
            ([sf.Numerical("x", basis=sf.Fourier(2)), sf.Cross("x", "a")], 101),
        ],
        ids=["a cross of values", "a basis without pieces"],
    )
    def test_a_curve_that_is_not_a_spline_has_no_coefficients(self, tmp_path, fields, n_points):
        table = {"x": [0.0, 1.0, 2.0, 3.0] * 20, "a": ["u", "v"] * 40}
        schema = sf.Schema([*fields, sf.Categorical("a")])
        random_fitted(sf.FM(k=2), schema, table).save(tmp_path / "model.sfm")
        service = make_service(default=tmp_path / "model.sfm")
        found = segment(service, Request("GET", "/v1/segment", 'along=x&values={"a":"u"}', {}, 0.0)).compute()
        assert json.loads(found.body)["coefficients"] is None
        assert len(json.loads(found.body)["x"]) == len(json.loads(found.body)["scores"]) == n_points

    @pytest.mark.parametrize(
        "query",
        [
            "",
            "?values={}",
            "?along=x",
            "?along=recency",
            "?along=recency&values=3",
            "?along=recency&points=1",
            "?along=recency&rest=no",
            "?along=recency&more=1",
            "?along=recency&values={",
            "?along=recency&rest=mean&values={%22recency%22:1}",
        ],
    )
    def test_segments_that_cannot_be_drawn(self, server, query):
        assert server.ask("GET", f"/v1/segment{query}").status in (400, 422)


def quote(values):
    from urllib.parse import quote

    return quote(json.dumps(values))


class TestExplore:
    def test_the_page_of_a_model_has_rows_of_the_background(self, server):
        answer = server.ask("GET", "/explore")
        assert answer.status == 200, answer.body[:300]
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert b"50 rows of background.parquet" in answer.body and b"/v1/rank?arm=default" in answer.body
        assert answer.headers["X-Content-Type-Options"] == "nosniff" and b"connect-src 'self'" in answer.body
        assert server.ask("GET", "/explore?arm=nothing").status == 404
        assert server.ask("POST", "/explore", {}).status == 405

    def test_it_needs_rows_and_permission(self):
        arms = (Arm("a", "a.sfm"),)
        with pytest.raises(ValueError, match="--background TABLE"):
            ServiceSettings(arms, explore=True)
        with pytest.raises(NotServed, match="--explore"):
            explore(SimpleNamespace(settings=ServiceSettings(arms)), None)


class TestFeedback:
    def test_outcomes_are_logged_with_predictions(self, server):
        from splinefm.serve.feedback import read_log

        shown = server.score({"rows": [ROW, ROW]}).json
        answer = server.ask("POST", "/v1/feedback", {"outcomes": [{"id": shown["id"], "row": 1, "outcome": 1.0}]})
        assert (answer.status, answer.json["accepted"], answer.json["unknown"]) == (202, 1, 0)
        own = []

        def is_logged():
            own[:] = [line for line in read_log(server.folder / "log") if line["id"] == shown["id"]]
            return len(own) == 2

        server.eventually(is_logged)
        scored, outcome = sorted(own, key=lambda line: "outcome" in line)
        assert scored["predictions"] == shown["predictions"] and scored["arms"] == ["default"]
        assert (outcome["row"], outcome["outcome"]) == (1, 1.0) and outcome["at"] >= scored["at"]

    def test_outcomes_with_unknown_ids_are_counted(self, server):
        shown = server.score({"rows": [ROW]}).json["id"]
        before = server.metric("splinefm_feedback_unknown_total")
        items = [{"id": name, "outcome": 1.0} for name in (shown, "nobody-1", "nobody-1", "nobody-2")]
        answer = server.ask("POST", "/v1/feedback", {"outcomes": items})
        assert (answer.status, answer.json["accepted"], answer.json["unknown"]) == (202, 4, 3)
        server.eventually(lambda: server.metric("splinefm_feedback_unknown_total") == before + 3)

    @pytest.mark.parametrize(
        "item",
        [
            {},
            {"id": "a"},
            {"id": "", "outcome": 1},
            {"id": "a" * 65, "outcome": 1},
            {"id": "a", "outcome": 1, "row": -1},
        ],
    )
    def test_outcomes_that_cannot_be_logged(self, server, item):
        assert server.ask("POST", "/v1/feedback", {"outcomes": [item]}).status == 422
        assert server.ask("POST", "/v1/feedback", {"outcomes": []}).status == 422

    def test_outcomes_that_no_arm_can_have_are_refused(self, server):
        items = [{"id": "a", "row": 0, "outcome": 1}, {"id": "a", "row": 1, "outcome": 5}]
        answer = server.ask("POST", "/v1/feedback", {"outcomes": items})
        assert answer.status == 422 and answer.json["errors"][0]["row"] == 1
        assert "outcome 1: a logistic target must lie between 0 and 1, got 5" in answer.json["detail"]

    def test_an_outcome_is_taken_if_it_is_a_target_of_one_arm(self):
        _refuse_impossible([1.0, 5.0], [sf.Loss("logistic"), sf.Loss("poisson")])
        with pytest.raises(Problem, match="outcome 1: a logistic target"):
            _refuse_impossible([5.0, -1.0], [sf.Loss("logistic"), sf.Loss("poisson")])


# The description


def described(server):
    return server.ask("GET", "/openapi.json").json


def test_the_examples_of_the_description_are_answered(server):
    description = described(server)
    assert description["openapi"].startswith("3.1")
    asked = set()
    for path, operations in description["paths"].items():
        if path == "/v1/items":  # other tests rank the items of this server; TestItems sends the example
            continue
        for method, operation in operations.items():
            if "requestBody" in operation:
                examples = operation["requestBody"]["content"]["application/json"]["examples"]
                answers = [server.ask(method.upper(), path, example["value"]) for example in examples.values()]
            else:
                query = example_query(operation.get("parameters", []))
                answers = [server.ask(method.upper(), f"{path}?{query}" if query else path)]
            for answer in answers:
                assert str(answer.status) in operation["responses"] and answer.status < 300, (path, answer.body)
            asked.add((method, path))
    assert len(asked) >= 17


def test_every_endpoint_is_described(server):
    found = {(method.upper(), path) for path, known in described(server)["paths"].items() for method in known}
    assert {*ENDPOINTS} - found == {("GET", "/openapi.json")}
    models = {(method, path) for method, path in found if path.startswith("/v2/models/")}
    assert found - {*ENDPOINTS} == models and len(models) == 3
    assert all(find(method, path) for method, path in models)


DAYS = [datetime(2023, 1, 1, 6) + timedelta(days=9 * i, hours=i) for i in range(60)]
WRITTEN = {
    "ISO": None,
    "American": "%m/%d/%Y",
    "German": "%d.%m.%Y",
    "short, with a clock": "%d.%m.%y %I:%M %p",
    "names of months": "%d-%b-%Y",
    "with a zone": "%Y-%m-%d %H:%M:%S %z",
}


def texts(format):
    return [day.isoformat() if format is None else day.replace(tzinfo=UTC).strftime(format) for day in DAYS]


def date_models():
    """Schemas that read dates in all ways, and the values of their column."""
    for name, format in WRITTEN.items():
        yield pytest.param([sf.Timestamp("day", format=format)], texts(format), id=name)
    american = {"format": "%m/%d/%Y"}
    hour = sf.Numerical("hour", sf.MinMax(0.0, 24.0), part="hour", column="day", zone="Europe/Paris")
    part = sf.Numerical("w", sf.MinMax(-0.5, 6.5), sf.Bins(7), part="weekday", column="day", **american)
    known = sf.Categorical("known", column="day", unseen="error")
    yield pytest.param([sf.Timestamp("day")], DAYS, id="timestamps")
    yield pytest.param([hour], [day.replace(tzinfo=UTC) for day in DAYS], id="timestamps with a zone")
    yield pytest.param([sf.Timestamp("day", zone="Europe/Paris", missing="error")], texts(None), id="another zone")
    yield pytest.param([part], texts("%m/%d/%Y"), id="one part")
    yield pytest.param([sf.Cross(part, "a")], texts("%m/%d/%Y"), id="only a cross")
    yield pytest.param([sf.Timestamp("day", **american), sf.Cross(known, "a")], texts("%m/%d/%Y"), id="dates as names")
    rare = sf.Categorical("rare", column="day", min_count=99)
    yield pytest.param([rare, sf.Timestamp("day", **american)], texts("%m/%d/%Y"), id="without a known name")


def serve_dates(folder, fields, days):
    """A service of a random model of dates."""
    table = {"day": days, "a": ["u", "v"] * 30}
    random_fitted(sf.FM(k=2), sf.Schema([*fields, sf.Categorical("a")]), table).save(folder / "model.sfm")
    return make_service(default=folder / "model.sfm")


@pytest.mark.parametrize(("fields", "days"), [*date_models()])
def test_examples_have_dates_as_their_column_writes_them(tmp_path, fields, days):
    service = serve_dates(tmp_path, fields, days)
    model = service.serving.loaded["default"]
    verify(tmp_path / "model.sfm", None)
    model.warm()
    operation = openapi.description(service)["paths"]["/v1/score"]["post"]
    examples = operation["requestBody"]["content"]["application/json"]["examples"]
    row = json.loads(json.dumps(examples["example"]["value"]))["rows"][0]
    table = {name: [value] for name, value in row.items()}
    assert model.scores([row])[0] == pytest.approx(model.fitted.scores(table)[0], abs=1e-5)
    assert row["day"] is not None


def test_the_example_of_a_segment_varies_a_part_of_a_date(tmp_path):
    service = serve_dates(tmp_path, [sf.Timestamp("day")], DAYS)
    parameters = openapi.description(service)["paths"]["/v1/segment"]["get"]["parameters"]
    assert ask_segment(service, example_query(parameters))["scores"]


def example_query(parameters):
    return "&".join(f"{part['name']}={part['example']}" for part in parameters if "example" in part)


@pytest.fixture
def classes(tmp_path):
    """A service of a model of three classes, its table, and the model."""
    table = {"x": np.linspace(0, 1, 40), "a": ["u", "v"] * 20}
    fitted = random_classes(sf.FM(k=2), sf.Schema([sf.Numerical("x"), sf.Categorical("a")]), table, ("r", "g", "b c"))
    fitted.save(tmp_path / "model.sfm")
    pq.write_table(pa.table(table), tmp_path / "table.parquet")
    service = make_service(default=tmp_path / "model.sfm", background=str(tmp_path / "table.parquet"))
    return service, table, fitted


def ask_segment(service, query):
    return json.loads(segment(service, Request("GET", "/v1/segment", query, {}, 0.0)).compute().body)


def ask_explain(service, **body):
    request = Request("POST", "/v1/explain", "", {b"content-type": b"application/json"}, 0.0)
    request.body = json.dumps(body).encode()
    return json.loads(explain(service, request).compute().body)


@pytest.mark.parametrize("label", ["g", "b c"])
def test_requests_name_one_of_several_classes(classes, label):
    service, table, fitted = classes
    one = fitted.for_class(label)
    found = ask_segment(service, f'along=x&values={{"a":"u"}}&points=5&class={label.replace(" ", "+")}')
    np.testing.assert_allclose(found["scores"], one.segment({"a": "u"}, "x")(np.array(found["x"])), rtol=1e-6)
    bars = ask_segment(service, f'along=a&values={{"x":0.5}}&class={label.replace(" ", "%20")}')
    assert bars["names"] and "predictions" not in found | bars
    rows = [{"x": 0.25, "a": "v"}]
    expected = sf.shapley_values(one, {"x": [0.25], "a": ["v"]}, table)
    np.testing.assert_allclose(
        ask_explain(service, rows=rows, **{"class": label})["values"], expected.values, atol=1e-9
    )


def test_clients_are_told_of_classes_in_their_own_words(classes, tmp_path):
    service, *_ = classes
    asks = (
        lambda **more: ask_explain(service, rows=[{"x": 0.0, "a": "u"}], **more),
        lambda **more: ask_segment(service, "&".join(["along=x", "rest=mean", *map("=".join, more.items())])),
    )
    for ask in asks:
        with pytest.raises(Problem, match="a score for each of 3 classes; name one as class, such as 'r'"):
            ask()
        with pytest.raises(Problem, match="the classes of the model, 'r', 'g' or 'b c'; got 'pink'"):
            ask(**{"class": "pink"})
    one = serve_dates(tmp_path, [sf.Timestamp("day")], DAYS)
    with pytest.raises(Problem, match="this one has one score: leave it out"):
        ask_segment(one, "along=a&class=r")


def test_examples_name_a_class(classes):
    service, *_ = classes
    paths = openapi.description(service)["paths"]
    parameters = paths["/v1/segment"]["get"]["parameters"]
    assert ask_segment(service, example_query(parameters))["scores"]
    examples = paths["/v1/explain"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    assert ask_explain(service, **examples["example"]["value"])["values"]


# Other tests use the same server. TestItems spoils changes of items on a server of its own.
CHANGES_THE_SERVER = ("/v1/reload", "/v1/arms", "/v1/items")


@examples(400)
@given(st.data())
def test_requests_that_differ_from_the_description_never_make_a_server_error(server, data):
    if not hasattr(server, "description"):
        server.description = described(server)
    posts = [
        (path, operations["post"]["requestBody"]["content"]["application/json"]["examples"]["example"]["value"])
        for path, operations in server.description["paths"].items()
        if "post" in operations and path not in CHANGES_THE_SERVER
    ]
    asked = [
        (path, spoil(data.draw, example)) for path, example in data.draw(st.lists(st.sampled_from(posts), max_size=10))
    ]
    with closing(server.connect()) as connection:
        for path, content in asked:
            connection.request("POST", path, json.dumps(content).encode(), {"Content-Type": "application/json"})
            answer = Answer(connection.getresponse())
            assert answer.status < 500, (path, content, answer.body)
            assert answer.status < 400 or answer.json.get("detail") or answer.json["error"], (path, content)


# The Open Inference Protocol


@pytest.fixture(scope="module")
def triton(server):
    client = pytest.importorskip("tritonclient.http")
    found = client.InferenceServerClient(f"127.0.0.1:{server.port}")
    yield client, found
    found.close()


class TestInference:
    def test_a_client_of_the_protocol_sees_a_model(self, triton, server):
        _, client = triton
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("default")
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
        metadata = client.get_model_metadata("default")
        assert {entry["name"]: entry["datatype"] for entry in metadata["inputs"]} == {
            "recency": "FP64",
            "price": "FP64",
            "country": "BYTES",
            "tags": "BYTES",
            "device": "BYTES",
        }
        version = server.ask("GET", "/v1/models").json["models"][0]["version"]
        assert metadata["versions"] == [version] and client.is_model_ready("default", version)
        assert not client.is_model_ready("other") and not client.is_model_ready("default", "7")

    @pytest.mark.parametrize("as_bytes", [False, True])
    @pytest.mark.parametrize("two_dimensions", [False, True])
    def test_a_client_of_the_protocol_gets_the_scores(self, triton, server, as_bytes, two_dimensions):
        module, client = triton
        rows = [row for row in visits_rows(30) if row["country"] and row["device"] and row["tags"] is not None]
        values = {
            "recency": np.array([np.nan if row["recency"] is None else row["recency"] for row in rows]),
            "price": np.array([np.nan if row["price"] is None else row["price"] for row in rows]),
            "country": np.array([row["country"] for row in rows], np.object_),
            "tags": np.array([json.dumps(row["tags"]) for row in rows], np.object_),
            "device": np.array([row["device"] for row in rows], np.object_),
        }
        shape = [len(rows), 1] if two_dimensions else [len(rows)]
        inputs = []
        for name, array in values.items():
            if not as_bytes and array.dtype != object:
                continue
            kind = "BYTES" if array.dtype == object else "FP64"
            inputs.append(module.InferInput(name, shape, kind))
            inputs[-1].set_data_from_numpy(array.reshape(shape), binary_data=as_bytes)
        if not as_bytes:  # JSON has no NaN: the client could not send them
            for name in ("recency", "price"):
                inputs.append(module.InferInput(name, shape, "FP64"))
                inputs[-1].set_data_from_numpy(np.nan_to_num(values[name]).reshape(shape), binary_data=False)
                rows = [{**row, name: row[name] or 0.0} for row in rows]
        outputs = [module.InferRequestedOutput(name, binary_data=as_bytes) for name in ("score", "prediction")]
        found = client.infer("default", inputs, outputs=outputs, request_id="r7")
        expected = server.score({"rows": rows}).json
        assert found.as_numpy("score").tolist() == expected["scores"]
        assert found.as_numpy("prediction").tolist() == expected["predictions"]
        assert found.get_response()["id"] == "r7"
        every = client.infer("default", inputs)  # all outputs, as bytes
        assert every.as_numpy("score").tolist() == expected["scores"]

    @pytest.mark.parametrize(
        ("inputs", "words"),
        [
            ([], "no rows"),
            ([{"name": "recency", "shape": [1], "datatype": "FP64", "data": [1]}], "'price'"),
            ([{"name": "recency", "shape": [2], "datatype": "FP64", "data": [1]}], "its shape says 2"),
            ([{"name": "recency", "shape": [1, 2], "datatype": "FP64", "data": [1, 2]}], "shape"),
            ([{"name": "recency", "shape": [1], "datatype": "FP8", "data": [1]}], "FP8"),
            ([{"name": "recency", "shape": [1], "datatype": "FP64", "data": ["a"]}], "FP64"),
            ([{"name": "recency", "shape": [1], "datatype": "FP64"}], "either data"),
            ([{"name": "recency", "shape": [1], "datatype": "FP64", "parameters": {"binary_data_size": 8}}], "bytes"),
        ],
        ids=range(8),
    )
    def test_errors_have_the_form_of_the_protocol(self, server, inputs, words):
        answer = server.ask("POST", "/v2/models/default/infer", {"inputs": inputs})
        assert answer.status == 400 and words in answer.json["error"], answer.body

    @examples(200)
    @given(st.data())
    def test_spoiled_tensors_never_make_a_server_error(self, server, data):
        tensor = {"name": "recency", "shape": [2], "datatype": "FP64", "parameters": {"binary_data_size": 16}}
        text = {"name": "country", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": 12}}
        content = spoil(data.draw, {"inputs": [tensor, text], "outputs": [{"name": "score"}]})
        head = json.dumps(content).encode()
        tail = data.draw(st.binary(max_size=40) | st.just(bytes(16) + b"\x02\0\0\0US" * 2))
        length = data.draw(st.sampled_from([len(head), len(head), len(head) - 1, 0, 99_999, -1]))
        headers = {"Inference-Header-Content-Length": str(length)}
        assert server.ask("POST", "/v2/models/default/infer", head + tail, headers).status < 500
