"""The page of `splinefm explain` in a real browser: it shows the facts, whatever the columns are called."""

import json
import re
from dataclasses import replace

import pytest
from explorers import FAULTS, visiting
from reports import BREAKOUT, FORMULA, QUOTES, SCRIPT, shown

from splinefm.explore.report import explain_file
from splinefm.train.results import Evidence, SearchEntry

SECTIONS = ("Overview", "Fields", "Importance", "Curves", "Surfaces", "Calibration", "Example rows")


@pytest.fixture(scope="module")
def visit(browser, made):
    path = made[0] / "report" / "index.html"
    with visiting(browser, path.as_uri(), offline=True) as found:
        yield found
        assert found.complaints == [] and found.asked == [path.as_uri()]


def attributes(visit, selector, name):
    return visit.page.locator(selector).evaluate_all("(all, name) => all.map(one => one.getAttribute(name))", name)


def test_the_page_is_complete(visit, made):
    text, facts = shown(visit), made[1]
    for part in ("a random sample of 300 is explained", "logloss", "Strongest pairs", *SECTIONS):
        assert part in text
    anchors = [f"#{name}" for name in attributes(visit, "main section", "id")]
    assert attributes(visit, "nav a", "href") == anchors and len(anchors) == 7
    plots = visit.page.locator("main svg.plot")
    drawn = 3 + len(facts["curves"]) + len(facts["surfaces"])  # training, pairs, calibration
    assert plots.count() == drawn + len(facts["examples"])
    assert all(attributes(visit, "main svg.plot", "aria-labelledby"))
    described = [text for text in attributes(visit, "main svg.plot", "aria-description") if text]
    assert len(described) == drawn and all(len(text) > 20 for text in described)
    names = attributes(visit, "[id]", "id")
    assert len(names) == len(set(names))
    size = (made[0] / "report" / "index.html").stat().st_size
    assert size == facts["page_bytes"] < 3_000_000


def test_names_are_shown_as_they_are_and_do_nothing(visit):
    page = visit.page
    assert page.locator("main img, main script, main style, header img, header script").count() == 0
    handlers = "all => all.flatMap(one => one.getAttributeNames()).filter(name => name.startsWith('on'))"
    assert page.locator("body *").evaluate_all(handlers) == []
    cells = page.locator("td bdi").all_text_contents()
    for name in (SCRIPT, QUOTES, FORMULA, "tags"):
        assert name in cells
    text = shown(visit)
    assert BREAKOUT in text and "\x07" not in text and "\u202e" not in text and "gnp.exe\ufffd" in text
    assert "x" * 100 not in text


def test_the_page_asks_for_nothing(made):
    page = (made[0] / "report" / "index.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'") and "connect-src 'none'" in policy and "unsafe" not in policy
    head, data = page.split('<script type="application/json"', 1)
    links = re.findall(r'(?:href|src|srcset|action)="([^"]*)"', head)
    assert links and all(link.startswith(("#", "data:")) for link in links)
    assert "@import" not in page and "<" not in data.split(">", 1)[1].split("</script>")[0]


@pytest.mark.thorough
def test_the_same_input_gives_the_same_page(made):
    folder, _ = made
    given = (folder / "m.sfm", str(folder / "data.parquet"), folder / "again")
    explain_file(*given, target="<i>click", sample=300)
    assert (folder / "again" / "index.html").read_bytes() == (folder / "report" / "index.html").read_bytes()


def test_tables_are_sorted(visit):
    table = visit.page.locator("#importance table").first
    order = lambda: [float(text) for text in table.locator("tbody td:nth-child(3)").all_inner_texts()]  # noqa: E731
    given = order()
    assert given == sorted(given, reverse=True)
    for head, expected in (("Field", None), ("Mean |Shapley value|", given), ("Mean |Shapley value|", given[::-1])):
        table.get_by_role("button", name=head, exact=True).click()
        assert sorted(order()) == sorted(given) and (expected is None or order() == expected)
    assert attributes(visit, "#importance th[aria-sort]", "aria-sort") == ["ascending"]


def test_plots_show_the_facts(visit, made):
    facts = made[1]
    for curve in facts["curves"]:
        if "categories" not in curve:
            continue
        title = curve["along"][0]
        rows = visit.table(title, "#curves")[1]
        found = [float(row[1]) for row in rows if not row[0].startswith("(")]
        assert found == pytest.approx(curve["predictions"], rel=1e-5) and found
    _, rows = visit.table("By prediction", "#calibration")
    bins = facts["calibration"]["bins"]
    assert [float(row[1]) for row in rows] == pytest.approx(bins["measured"], rel=1e-5)
    example = facts["examples"][0]
    title = example["title"][:1].upper() + example["title"][1:]
    values = [float(row[1].replace("\u2212", "-")) for row in visit.table(title, "#rows")[1]]
    assert values[0] == pytest.approx(facts["base"], rel=1e-5)
    assert values[-1] == pytest.approx(facts["base"] + sum(example["shapley"].values()), rel=1e-5)


def test_a_curve_can_be_read(visit):
    figure = visit.page.locator("#curves figure:has(svg.draggable)").first
    plot = figure.locator("svg.draggable")
    box = plot.bounding_box()
    plot.click(position={"x": box["width"] / 2, "y": box["height"] / 3})  # waits until the plot stays where it is
    figure.locator(".reading", has_text="→").wait_for(timeout=10_000)


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "theme"), [(360, "light"), (1280, "dark")])
def test_nothing_is_cut_off(browser, made, width, theme):
    path = made[0] / "report" / "index.html"
    size = {"width": width, "height": 900}
    with visiting(browser, path.as_uri(), viewport=size, color_scheme=theme) as visit:
        assert visit.page.evaluate(FAULTS) == []


def test_the_page_prints(browser, made):
    """In the light theme, with all of its plots."""
    path = made[0] / "report" / "index.html"
    with visiting(browser, path.as_uri(), color_scheme="dark") as visit:
        assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert visit.page.pdf().startswith(b"%PDF")
        visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert visit.page.evaluate("document.documentElement.dataset.theme") == "light"
        drawn = "all => all.every(one => one.querySelectorAll('text').length > 2)"
        assert visit.page.locator("main svg.plot").evaluate_all(drawn)


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


def test_what_is_printed(run, model, table, write, tmp_path):
    data = write(table, tmp_path / "data.csv")
    result = run("explain", model, data, "--target", "click", "--out", "report")
    for part in ("probability of 'yes'", "300 rows", "logloss", "price", "price × city", "report/index.html"):
        assert part in result.stdout


def test_remarks_on_the_fit_are_shown(run, fitted, table, write, tmp_path, read_report):
    """The name of a column in them does nothing."""
    evidence = Evidence(100, 0.0, 0.0, 0.1, 0.7, 0.1, column="<b>paid", column_share=1.0)
    for name, found in (("leaked", evidence), ("usual", None)):
        replace(fitted, evidence=found).save(tmp_path / f"{name}.sfm")
        run("explain", f"{name}.sfm", write(table, tmp_path / "t.csv"), "--out", name)
    assert "Remark: '<b>paid' alone explains 100.0%" in read_report(tmp_path / "leaked")[0]
    assert "Remark:" not in read_report(tmp_path / "usual")[0]


def test_what_the_fit_tried_is_listed(run, fitted, table, write, tmp_path, read_report):
    chosen = SearchEntry("FM(k=2)", "8 segments", 1e-4, None, 2, ("<b>paid",), 30, 0.5, 0.01, 4, 1.5, is_chosen=True)
    others = (replace(chosen, crosses=(), loss=0.6 + i, is_chosen=False) for i in range(24))
    for name, search in (("searched", (chosen, *others)), ("plain", ())):
        replace(fitted, search=search).save(tmp_path / f"{name}.sfm")
        told = run("explain", f"{name}.sfm", write(table, tmp_path / "t.csv"), "--out", name, "--json").stdout
        assert len(json.loads(told)["model"]["search"]) == len(search)
    assert "What the fit tried" not in read_report(tmp_path / "plain")[0]
    text, _ = read_report(tmp_path / "searched")
    assert "What the fit tried" in text and "The best 20 of 25 settings." in text
    assert "30 epochs, crosses <b>paid" in text and "0.5 ± 0.01" in text and text.count("(chosen)") == 1
