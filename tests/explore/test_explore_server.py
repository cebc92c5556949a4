"""The server of `splinefm explore`: whom it answers, and what."""

import http.client
import json

import numpy as np
import pyarrow as pa
import pytest
from explorers import make_explorer_of, serving, visiting

import splinefm as sf


@pytest.fixture(scope="module")
def explorer():
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "user": rng.choice(["a", "b", "c"], 300),
            "ad": rng.choice(["x", "y", "z"], 300),
            "hour": rng.uniform(0, 24, 300),
        }
    )
    table = table.append_column("click", pa.array((rng.random(300) < 0.3).astype(int)))
    training = sf.Training(epochs=1, threads=1, effort="fast")
    fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=training)
    index = sf.ItemIndex(fitted, {"ad": ["x", "y", "z"]}, ids=["X", "Y", "Z"])
    return make_explorer_of(fitted, table, "click", index=index)


@pytest.fixture(scope="module")
def server(explorer):
    with serving(explorer) as found:
        yield found


def ask(server, path=None, method="GET", body=None, **headers):
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    place = f"/{server.token}/" if path is None else path
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.putrequest(method, place, skip_host="Host" in given)
        for name, value in given.items():
            connection.putheader(name, value)
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if content is not None and "Content-Length" not in given:
            connection.putheader("Content-Length", str(len(content)))
        connection.endheaders(content)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def test_the_page_is_at_an_address_with_a_token(server):
    status, headers, body = ask(server)
    assert status == 200 and body.startswith(b"<!doctype html>") and b"connect-src 'self'" in body
    assert headers["X-Frame-Options"] == "DENY" and headers["Cache-Control"] == "no-store"
    assert len(server.token) >= 32 and "Access-Control-Allow-Origin" not in headers
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, method="HEAD")[2] == b""


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (404, {"path": "/"}),
        (404, {"path": "/" + "A" * 32 + "/"}),
        (404, {"path": "/{token}/../etc/passwd"}),
        (404, {"path": "/{token}x/"}),
        (404, {"path": "//"}),
        (404, {"path": "x"}),
        (421, {"Host": "evil.example"}),
        (421, {"Host": "evil.example:{port}"}),
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": "https://127.0.0.1:{port}"}),
        (403, {"Sec_Fetch_Site": "cross-site"}),
        (403, {"Sec_Fetch_Site": "same-site"}),
        (501, {"method": "DELETE"}),
    ],
    ids=str,
)
def test_others_are_not_answered(server, status, request_):
    filled = {key: value.format(token=server.token, port=server.server_port) for key, value in request_.items()}
    found, headers, body = ask(server, **filled)
    assert found == status and b"<script" not in body and "Access-Control-Allow-Origin" not in headers


def rank(server, body, **headers):
    status, _, answer = ask(
        server, f"/{server.token}/rank", "POST", body, **{"Content_Type": "application/json", **headers}
    )
    return status, json.loads(answer)


def test_a_ranking_is_that_of_the_index(server, explorer):
    context = {"user": "a", "hour": 7.5}
    status, found = rank(server, {"context": {**context, "other": 1}, "k": 2})
    ids, scores = explorer.index.top_k(context, 2)
    assert status == 200 and found["ids"] == ids.tolist() and found["scores"] == scores.tolist()
    assert np.allclose(found["predictions"], 1 / (1 + np.exp(-scores)))


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b"{", {}),
        (400, b"[" * 100_000, {}),
        (413, b"{}", {"Content_Length": str(1 << 30)}),
        (413, b"{}", {"Content_Length": "-1"}),
        (415, {"context": {}}, {"Content_Type": "text/plain"}),
        (422, {"context": {"hour": "late"}}, {}),
        (422, {"context": {"user": ["a"] * 9, "hour": [1.0] * 9}}, {}),
        (422, {"context": {}, "k": 10**9}, {}),
        (422, {"context": {}, "k": True}, {}),
        (422, {"context": 7}, {}),
        (422, [], {}),
        (403, {"context": {}}, {"Origin": "http://evil.example"}),
    ],
    ids=["no JSON", "deep", "long", "minus", "text", "value", "table", "large k", "bool k", "number", "list", "origin"],
)
def test_bad_requests_are_refused(server, status, body, headers):
    found, answer = rank(server, body, **headers)
    assert found == status and answer["detail"]


def test_the_page_asks_its_server_for_a_ranking_and_nobody_else(browser, server):
    with visiting(browser, server.url) as visit:
        visit.open("ranking")
        visit.page.locator(".rows > g").first.wait_for()
        _, rows = visit.table("Best items")
        assert sorted(row[1] for row in rows) == ["X", "Y", "Z"]
        own = f"http://127.0.0.1:{server.server_port}/{server.token}/"
        assert all(url.startswith((own, "blob:", "data:")) for url in visit.asked), visit.asked
        assert visit.complaints == []


def test_a_page_of_strangers_gets_nothing(browser, server):
    context = browser.new_context()
    try:
        page = context.new_page()
        page.route(
            "http://evil.example/", lambda route: route.fulfill(body="<!doctype html>", content_type="text/html")
        )
        page.goto("http://evil.example/")
        tried = page.evaluate("url => fetch(url).then((answer) => answer.text()).catch(() => 'refused')", server.url)
        assert tried == "refused"
    finally:
        context.close()
