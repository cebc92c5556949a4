"""The page of `splinefm explain` in a browser."""

import json
import re
import shutil
import subprocess

import pytest

from pages import Reader

pytestmark = pytest.mark.thorough  # a browser for each page; test_page.py reads the same page
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium here: on Debian, apt-get install chromium")

    def visit(path, *options):
        """The document after its scripts have run, the console, and the addresses that the page asked for."""
        home = tmp_path_factory.mktemp("browser")
        quiet = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
        quiet += " disable-component-update disable-sync disable-dev-shm-usage enable-logging=stderr v=0 dump-dom"
        log = home / "net.json"
        command = [CHROMIUM, *(f"--{option}" for option in quiet.split()), f"--user-data-dir={home / 'user'}"]
        # Names are not resolved: the browser itself would ask for this and that.
        command += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--log-net-log={log}", "--virtual-time-budget=3000"]
        done = subprocess.run([*command, *options, path.as_uri()], capture_output=True, timeout=180, cwd=home)
        assert done.returncode == 0, done.stderr.decode()
        console = [line for line in done.stderr.decode().splitlines() if "CONSOLE" in line]
        return done.stdout.decode(), console, _asked(json.loads(log.read_text()))

    return visit


def _asked(log):
    """Addresses beyond the page itself that a page, not the browser, began to load."""
    began = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    found = [event.get("params", {}) for event in log["events"] if event["type"] == began]
    return [request["url"] for request in found if request.get("initiator") not in (None, "not an origin")]


def test_a_browser_shows_the_page_without_errors_and_without_a_network(browse, made):
    document, console, asked = browse(made[0] / "report" / "index.html")
    assert console == [] and asked == []
    assert document.count("<svg") == 3 + len(made[1]["curves"]) + len(made[1]["surfaces"])
    elements = Reader(document).elements
    assert [name for name, _ in elements].count("script") == 1
    assert any("aria-current" in attributes for _, attributes in elements)  # the script of the page has run


def test_the_browser_tells_of_faults(browse, tmp_path):
    bad = '<!doctype html><body><img src="http://127.0.0.1:9/x.png"><script>nothing();</script>'
    (tmp_path / "bad.html").write_text(bad)
    _, console, asked = browse(tmp_path / "bad.html")
    assert "nothing is not defined" in console[0] and asked == ["http://127.0.0.1:9/x.png"]


def test_tables_are_sorted_and_a_narrow_window_is_not_too_wide(browse, made):
    (made[0] / "frame.html").write_text(
        """<!doctype html><body><iframe src="report/index.html" style="width: 360px; height: 700px"></iframe>
<pre></pre><script>
document.querySelector("iframe").addEventListener("load", (event) => {
  const page = event.target.contentDocument;
  const table = page.querySelector("#importance table.sortable");
  const [field, , shapley] = table.querySelectorAll("th button");
  const order = () => [...table.tBodies[0].rows].map((row) => row.cells[2].dataset.value);
  const orders = [order()];
  for (const head of [field, shapley, shapley]) { head.click(); orders.push(order()); }
  const [outer, inner] = [page.documentElement.clientWidth, page.documentElement.scrollWidth];
  document.querySelector("pre").textContent = JSON.stringify({orders, outer, inner});
});
</script>"""
    )
    document, console, _ = browse(made[0] / "frame.html", "--allow-file-access-from-files")
    found = json.loads(re.search("<pre>(.*)</pre>", document)[1])
    given, by_name, falling, rising = [[float(value) for value in order] for order in found["orders"]]
    assert console == [] and given == falling == sorted(given, reverse=True) and rising == sorted(given)
    assert sorted(by_name) == rising and found["inner"] <= found["outer"] <= 360
