"""Results of benchmarks: what `--save` writes, and that the README shows it; clients in Python."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
# `scale` predicts; nothing is measured.
OTHERS = ("readme", "scale", "tables", "r_tables")
# Groups of tables of `accuracy.py`.
GROUPS = ("accuracy_more", "accuracy_r")
SCRIPTS = sorted(path.stem for path in FOLDER.glob("[a-z]*.py") if path.stem not in OTHERS)


@pytest.fixture
def benchmarks(monkeypatch):
    """The modules `readme` and `_shared`; the scripts find them beside themselves."""
    monkeypatch.syspath_prepend(FOLDER)
    for name in ("readme", "_shared"):  # other tests may have modules of these names
        monkeypatch.delitem(sys.modules, name, raising=False)
    import _shared
    import readme

    yield readme, _shared
    for name in ("readme", "_shared"):
        del sys.modules[name]


def test_the_readme_is_up_to_date(benchmarks):
    readme, _ = benchmarks
    text = (FOLDER / "README.md").read_text()
    assert readme.render(text) == text, "run python benchmarks/readme.py"
    assert sorted(readme.SECTION.findall(text)) == sorted([*SCRIPTS, *GROUPS])


def test_saved_results_are_shown_with_their_origin(benchmarks, tmp_path):
    readme, shared = benchmarks
    figures = {"splinefm": {"fit_s": 0.5}, "sklearn": {"fit_s": 5123.4}, "rows": 1_000_000}
    shared.save("encode", {"figures": figures, "ratios": {"fit_vs_sklearn": 12.345}}, True, tmp_path)
    saved = json.loads((tmp_path / "encode.json").read_text())
    assert saved["quick"] and saved["commit"] and saved["machine"]["cores"] >= 1 and "numpy" in saved["versions"]
    text = readme.render(
        "before\n<!-- encode -->\nold\n<!-- end encode -->\n<!-- rank -->\n<!-- end rank -->", tmp_path
    )
    assert "old" not in text and text.startswith("before\n")
    assert "| `fit_vs_sklearn` | 12.3 | 15 |" in text
    assert "| splinefm | 0.5 |" in text and "| sklearn | 5,123 |" in text and "| rows | 1,000,000 |" in text
    assert saved["commit"] in text and "results/rank.json" in text
    assert readme.render(text, tmp_path) == text


@pytest.mark.parametrize("path", sorted((FOLDER / "results").glob("*.json")), ids=lambda path: path.stem)
def test_results_say_what_they_were_measured_on(path):
    result = json.loads(path.read_text())
    assert result["benchmark"] == path.stem and path.stem in [*SCRIPTS, *GROUPS]
    assert {"date", "commit", "machine", "versions", "quick", "figures", "ratios"} <= result.keys()


def test_clients_in_python_count_answers_and_failures(tmp_path):
    pytest.importorskip("httptools")
    seen = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            seen.append((self.path, self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self.send_response(503 if "é" in seen[-1][1] else 200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    (tmp_path / "requests.json").write_text(json.dumps({"path": "/v1/score", "bodies": ['{"a": 1}', '{"a": "é"}']}))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [sys.executable, "-m", "peers.load", str(server.server_port), "0.5", "2"]
        command.append(str(tmp_path / "requests.json"))
        text = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True, timeout=60).stdout
        server.shutdown()
    found = json.loads(text)
    assert found["n"] == len(seen) > 1 and {path for path, _ in seen} == {"/v1/score"}
    assert found["failed"] == sum("é" in body for _, body in seen) > 0
    assert 0.0 < found["p50_ms"] <= found["p99_ms"] and found["elapsed"] >= 0.5
