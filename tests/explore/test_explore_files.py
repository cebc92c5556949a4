"""How the page is put together, and the command that makes it."""

import json
import os
import re
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from explorers import BREAKOUT, fit_flats, flats_table, hostile_explorer
from typer.testing import CliRunner

from splinefm.cli.main import app
from splinefm.explore import page as bundles
from splinefm.explore.page import bundle, d3_script, page_script, policy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("explore")
    table = flats_table(300)
    fit_flats(table).save(path / "m.sfm")
    pq.write_table(table, path / "flats.parquet")
    pq.write_table(table.select(["district"]).slice(0, 5), path / "items.parquet")
    return path


def run(folder, *arguments):
    return CliRunner().invoke(
        app, ["explore", str(folder / "m.sfm"), str(folder / "flats.parquet"), *map(str, arguments)]
    )


class TestBundle:
    def test_modules_come_after_those_they_import(self):
        modules = {
            "js/a.js": 'import { b } from "./x/b.js";\nimport { c } from "./c.js";\nb(c);',
            "js/x/b.js": 'import { c } from "../c.js";\nexport function b(x) { return x + c; }',
            "js/c.js": "export const c = 1;\nconst b = 2;",
        }
        text = bundle("js/a.js", modules.__getitem__)
        assert text.index("const c = 1") < text.index("function b") < text.index("b(c)") and text.count("c = 1") == 1

    @pytest.mark.parametrize(
        ("modules", "message"),
        [
            ({"a.js": 'import { b } from "./b.js";', "b.js": 'import { a } from "./a.js";'}, "import each other"),
            ({"a.js": 'import * as b from "./b.js";'}, "cannot be joined|is not an import"),
            ({"a.js": "export default 1;"}, "is not an import"),
            ({"a.js": 'const x = "</script>";'}, "would end its element"),
            ({"a.js": 'const x = "<!--";'}, "would end its element"),
        ],
        ids=["circle", "star", "default", "script", "comment"],
    )
    def test_what_cannot_be_joined_is_refused(self, modules, message):
        with pytest.raises(ValueError, match=message):
            bundle("a.js", modules.__getitem__)

    def test_scripts_have_no_imports_left_and_evaluate_no_text(self):
        for text in map(page_script, ("js/main.js", "js/report.js", "js/worker.js")):
            assert not re.search(r"^(import|export) ", text, re.MULTILINE)
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\(", text
            )

    def test_a_missing_package_is_named(self, monkeypatch):
        monkeypatch.setattr(bundles, "D3_PACKAGE", "no-such-package-here")
        d3_script.cache_clear()
        try:
            with pytest.raises(ModuleNotFoundError, match=r"pip install 'splinefm\[explore\]'"):
                d3_script()
        finally:
            d3_script.cache_clear()


class TestPage:
    def test_the_policy_allows_these_scripts_alone(self):
        text = policy("a{}", ("one()", "two()"), connects=False)
        assert "default-src 'none'" in text and "connect-src 'none'" in text and "unsafe" not in text
        assert text.count("'sha256-") == 3
        assert "connect-src 'self'" in policy("", (), connects=True)

    def test_data_cannot_end_their_element(self):
        page = hostile_explorer(100).page()
        assert page.count("</script>") == 5 and page.count("<script") == 5
        assert BREAKOUT not in page and "<title>\ufffdgnp.exe\ufffd: explorer</title>" in page
        blocks = re.findall(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', page, re.DOTALL)
        assert [name for name, _ in blocks] == ["about-data", "payload-data"]
        assert all(json.loads(text) for _, text in blocks)


class TestCommand:
    def test_a_file_is_written(self, folder):
        out = folder / "explorer.html"
        done = run(folder, "--out", out, "--sample", 100, "--items", folder / "items.parquet", "--json", "-q")
        assert done.exit_code == 0, done.output
        facts = json.loads(done.stdout)
        assert facts["page"] == str(out) and facts["rows"] == 100
        text = out.read_text()
        assert facts["page_bytes"] == len(text.encode()) and "connect-src 'none'" in text
        assert "300 rows of flats.parquet, 100 of them in this page" in text

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--out", "nowhere/x.html"], "nowhere"),
            (["--out", "x.html", "--target", "size"], "field of the model"),
            (["--out", "x.html", "--target", "rnet"], "rnet"),
            (["--out", "x.html", "--items", "items.parquet", "--ids", "name"], "--ids: no column 'name'"),
            (["--out", "x.html", "--ids", "name"], "--items TABLE"),
            (["--out", "x.html", "--index", "a", "--items", "b"], "not both"),
            (["--out", "m.sfm"], "would replace the input"),
            (["--sample", "0"], "--sample"),
        ],
        ids=lambda value: value if isinstance(value, str) else value[-1],
    )
    def test_mistakes_are_explained(self, folder, monkeypatch, arguments, message):
        monkeypatch.chdir(folder)
        done = run(folder, *arguments, "-q")
        assert done.exit_code in (1, 2) and message in re.sub(r"[│\s]+", " ", done.output), done.output

    def test_the_server_prints_its_address_and_ends(self, folder):
        command = [sys.executable, "-m", "splinefm", "explore", "m.sfm", "flats.parquet", "--no-open", "--json", "-q"]
        buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # as where nothing is set: the address must not wait
        with subprocess.Popen(command, cwd=folder, env=buffered, stdout=subprocess.PIPE, text=True) as process:
            try:
                url = json.loads(process.stdout.readline())["url"]
            finally:
                process.terminate()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", url)
