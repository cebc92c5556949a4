"""The page of `splinefm explain` shows the facts, whatever the columns are called."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pages import BREAKOUT, FORMULA, QUOTES, SCRIPT, Reader
from splinefm.report import explanation as module
from splinefm.report.explanation import ExplainRequest, explain_file
from splinefm.report.html import Html, escaped, joined, table, tag
from splinefm.train.search_records import SearchEntry
from splinefm.train.settings import Evidence


def test_the_page_is_well_formed_and_complete(page, made):
    reader = Reader(page)
    text = " ".join(reader.texts)
    for part in ("Overview", "Fields", "Importance", "Curves", "Surfaces", "Calibration", "Example rows"):
        assert part in text
    assert "a random sample of 300 is explained" in text and "logloss" in text and "Strongest pairs" in text
    targets = {attributes["href"] for name, attributes in reader.elements if name == "a"}
    anchors = {f"#{attributes['id']}" for name, attributes in reader.elements if name == "section"}
    assert targets == anchors and len(anchors) == 7
    plots = [attributes for name, attributes in reader.elements if name == "svg"]
    facts = made[1]
    assert len(plots) == 3 + len(facts["curves"]) + len(facts["surfaces"])
    assert all(len(plot["aria-label"]) > 20 and plot["role"] == "img" for plot in plots)
    names = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(names) == len(set(names))
    assert len(page.encode()) == facts["page_bytes"] < 3_000_000


def test_names_are_shown_as_they_are_and_do_nothing(page):
    reader = Reader(page)
    names = [name for name, _ in reader.elements]
    assert names.count("script") == 1 and names.count("style") == 1 + names.count("svg") and "img" not in names
    assert not [key for _, attributes in reader.elements for key in attributes if key.startswith("on")]
    cells = [text.strip() for text in reader.texts]
    for name in (SCRIPT, QUOTES, FORMULA, BREAKOUT, "tags"):
        assert name in cells
    assert "\x07" not in page and "\u202e" not in page and any("gnp.exe\ufffd" in text for text in cells)
    assert "x" * 100 not in re.sub(r'title="[^"]*"|aria-label="[^"]*"', "", page)


def test_the_page_asks_for_nothing(page):
    reader = Reader(page)
    links = [
        value
        for _, attributes in reader.elements
        for key, value in attributes.items()
        if key in ("href", "src", "xlink:href", "srcset", "action", "data")
    ]
    assert links and all(link.startswith(("#", "data:")) for link in links)
    assert all(place.startswith("#") for place in re.findall(r"url\(([^)]*)\)", page)) and "@import" not in page
    policy = next(attributes["content"] for _, attributes in reader.elements if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'") and "script-src 'sha256-" in policy
    spaces = {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    assert set(re.findall(r"https?://[^\"' <]*", page)) <= spaces


@pytest.mark.thorough
def test_the_same_input_gives_the_same_page(made, page):
    folder, _ = made
    request = ExplainRequest(folder / "m.sfm", str(folder / "data.parquet"), folder / "again", "<i>click", sample=300)
    explain_file(request)
    assert (folder / "again" / "index.html").read_text() == page


@pytest.mark.usefixtures("empty_plots")
def test_a_page_is_never_half_written(run, model, table, write, tmp_path, monkeypatch):
    data = write(table, tmp_path / "data.csv")
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").write_text("old")

    def fail(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("splinefm.store.container.os.fsync", fail)
        assert "no space left" in run("explain", model, data, "--target", "click", "--out", "report", code=1).stderr
    assert (tmp_path / "report" / "index.html").read_text() == "old"
    run("explain", model, data, "--target", "click", "--out", "report", "--quiet")
    assert (tmp_path / "report" / "index.html").read_text().startswith("<!doctype html>")
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["index.html"]


@pytest.mark.usefixtures("empty_plots")
def test_what_is_printed(run, model, table, write, tmp_path):
    data = write(table, tmp_path / "data.csv")
    result = run("explain", model, data, "--target", "click", "--out", "report")
    for part in ("probability of 'yes'", "300 rows", "logloss", "price", "price × city", "report/index.html"):
        assert part in result.stdout


def test_html_is_escaped_unless_it_is_html():
    assert tag("a", "<", Html("<b>"), title='"', hidden=True, x=None) == '<a title="&quot;" hidden>&lt;<b></a>'
    assert escaped("\x00\ud800") == "\ufffd\ufffd" and joined(["&", Html("&amp;")]) == "&amp;&amp;"
    assert "<td>&lt;script&gt;</td>" in table(["a"], [["<script>"]])


def test_the_template_is_part_of_the_package():
    assert (Path(module.__file__).parent / "page.html").is_file()


def test_remarks_on_the_fit_are_shown(run, fitted, table, write, tmp_path):
    """The name of a column in them does nothing."""
    evidence = Evidence(100, 0.0, 0.0, 0.1, 0.7, 0.1, column="<b>paid", column_share=1.0)
    for name, found in (("leaked", evidence), ("usual", None)):
        replace(fitted, evidence=found).save(tmp_path / f"{name}.sfm")
        run("explain", f"{name}.sfm", write(table, tmp_path / "t.csv"), "--out", name)
    leaked, usual = ((tmp_path / name / "index.html").read_text() for name in ("leaked", "usual"))
    assert "Remark: &#x27;&lt;b&gt;paid&#x27; alone explains 100.0%" in leaked.replace("&#39;", "&#x27;")
    assert "Remark:" not in usual


def test_what_the_fit_tried_is_listed(run, fitted, table, write, tmp_path):
    chosen = SearchEntry("FM(k=2)", "8 segments", 1e-4, None, 2, ("<b>paid",), 30, 0.5, 0.01, 4, 1.5, is_chosen=True)
    others = (replace(chosen, crosses=(), loss=0.6 + i, is_chosen=False) for i in range(24))
    for name, search in (("searched", (chosen, *others)), ("plain", ())):
        replace(fitted, search=search).save(tmp_path / f"{name}.sfm")
        told = run("explain", f"{name}.sfm", write(table, tmp_path / "t.csv"), "--out", name, "--json").stdout
        assert len(json.loads(told)["model"]["search"]) == len(search)
    searched, plain = ((tmp_path / name / "index.html").read_text() for name in ("searched", "plain"))
    assert "What the fit tried" not in plain and "<b>paid" not in searched
    text = " ".join(Reader(searched).texts)
    assert "What the fit tried" in text and "The best 20 of 25 settings." in text
    assert "30 epochs, crosses <b>paid" in text and "0.5 ± 0.01" in text and text.count("(chosen)") == 1
