"""The page of `splinefm explore` in a real browser: what it shows is what Python computes.

By default every view is opened once. Drawing all of them again, for each width, theme or key, takes the browser half a
minute: such tests are thorough.
"""

import json
from importlib.metadata import files

import numpy as np
import pyarrow as pa
import pytest
from explorers import FAULTS, fit_flats, flats_table, hostile_explorer, make_explorer_of, shown_text, visiting

import splinefm as sf
from splinefm.explore.payload import Items

VIEWS = ("segment", "surface", "row", "importance", "quality", "ranking", "transforms")
ROW = {"size": 60.0, "age": 30.0, "floor": 2, "district": "hills"}


@pytest.fixture(scope="module")
def flats():
    table = flats_table()
    return fit_flats(table), table


@pytest.fixture(scope="module")
def address(flats, tmp_path_factory):
    """The page of a model of rents as a file."""
    fitted, table = flats
    items = Items(table.select(["district"]).slice(0, 6), [f"flat {i}" for i in range(6)])
    path = tmp_path_factory.mktemp("page") / "explorer.html"
    path.write_text(make_explorer_of(fitted, table, "rent", items=items).page())
    return path.as_uri()


@pytest.fixture(scope="module")
def visit(browser, address):
    with visiting(browser, address, offline=True) as found:
        yield found
        assert found.complaints == []
        assert all(url == address or url.startswith(("blob:", "data:")) for url in found.asked), found.asked


def test_curves_are_those_of_the_segment_and_follow_a_slider(visit, flats):
    fitted, _ = flats
    visit.open("segment", row=ROW, scale="score")
    slider = visit.page.get_by_role("slider", name="size", exact=True)
    before = visit.page.locator("output").inner_text()
    slider.focus()
    for _ in range(5):
        slider.press("ArrowRight")
    visit.settle()
    moved = visit.state["row"]
    assert moved["size"] > 60.0 and visit.page.locator("output").inner_text() != before
    for along in ("size", "age", "floor"):
        heads, rows = visit.table(along)
        assert heads[:2] == [along, "now"]
        x, y = np.array([row[:2] for row in rows], float).T
        curve = fitted.segment({name: value for name, value in moved.items() if name != along}, along)
        assert len(x) > 100 and np.allclose(curve(x), y, atol=2e-5)
    shown = float(visit.page.locator("output").inner_text().replace(",", ""))
    expected = fitted.predict({name: [value] for name, value in moved.items()})[0]
    assert shown == pytest.approx(expected, rel=1e-3)


@pytest.mark.thorough
def test_a_curve_is_dragged_and_its_extrema_and_spread_are_shown(visit):
    visit.open("segment", row=ROW)
    figure = visit.page.locator("main figure").first
    box = figure.locator("svg").bounding_box()
    mouse = visit.page.mouse
    mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 80)
    mouse.down()
    mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 80, steps=5)
    mouse.up()
    visit.settle()
    name = figure.get_by_role("heading").inner_text()
    assert visit.state["row"][name] > ROW[name]
    assert figure.locator(".band").get_attribute("d")
    visit.page.keyboard.press("Control+z")  # the whole drag is one step
    assert visit.state["row"] == ROW
    visit.page.keyboard.press("Control+Shift+z")
    assert visit.state["row"][name] > ROW[name]


@pytest.mark.thorough
def test_the_middle_of_an_even_axis_is_the_middle_of_the_rows(visit, flats):
    fitted, table = flats
    visit.open("segment", row=ROW, axis="even", focus="size")
    figure = visit.page.locator("main figure").first
    box = figure.locator("svg").bounding_box()
    left, right = (figure.locator(".tick.grid line").first.get_attribute(name) for name in ("x1", "x2"))
    visit.page.mouse.click(box["x"] + (float(left) + float(right)) / 2, box["y"] + 80)
    visit.settle()
    transform = fitted.encoder.fields[0].fitted_transform
    ends = transform(np.array([min(table["size"].to_pylist()), max(table["size"].to_pylist())]))
    assert transform(np.array([visit.state["row"]["size"]]))[0] == pytest.approx(ends.mean(), abs=0.01)
    assert "even axis" in figure.inner_text()


@pytest.mark.thorough
def test_pinned_segments_are_compared(visit, flats):
    fitted, _ = flats
    visit.open("segment", row=ROW)
    visit.page.get_by_role("button", name="Pin", exact=True).click()
    menu = visit.page.get_by_role("combobox", name="district")
    menu.click()
    menu.fill("cent")
    menu.press("Enter")
    visit.settle()
    assert visit.state["row"]["district"] == "center" and visit.state["pins"][0]["row"] == ROW
    heads, rows = visit.table("size")
    assert heads[:3] == ["size", "now", "A"]
    x, now, pinned = np.array([row[:3] for row in rows], float).T
    for district, values in (("center", now), ("hills", pinned)):
        curve = fitted.segment({"age": 30.0, "floor": 2, "district": district}, "size")
        assert np.allclose(fitted.loss.predict(curve(x)), values, rtol=1e-4)
    visit.page.get_by_role("button", name="difference").click()
    visit.settle()
    heads, rows = visit.table("size")
    assert heads[1] == "now − A"
    assert np.allclose(np.array([row[1] for row in rows], float), now - pinned, atol=0.05)


@pytest.mark.thorough
def test_a_category_is_chosen_by_its_bar(visit, flats):
    fitted, _ = flats
    visit.open("segment", row=ROW)
    bar = visit.page.locator("main figure .rows").get_by_role("button", name="center")
    bar.press("Enter")
    visit.settle()
    assert visit.state["row"]["district"] == "center"
    _, rows = visit.table("district")
    names, values = [row[0] for row in rows], [float(row[1]) for row in rows]
    table = {**{name: [value] * len(names) for name, value in ROW.items()}, "district": names}
    assert len(names) == 4 and np.allclose(values, fitted.predict(table), rtol=1e-4)


def test_shapley_values_are_those_of_python(visit, flats):
    fitted, table = flats
    visit.open("row", picked=7, row=table.slice(7, 1).select(list(ROW)).to_pylist()[0])
    _, rows = visit.table("Why this prediction")
    found = {text.split(" = ")[0]: float(value) for text, value in rows}
    expected = sf.shapley_values(fitted, table.slice(7, 1), table, threads=1)
    scale, center = fitted.loss.scale, fitted.loss.center
    assert found.pop("average of the rows") == pytest.approx(center + scale * expected.base, rel=1e-4)
    assert found.pop("this row") == pytest.approx(fitted.predict(table.slice(7, 1))[0], rel=1e-4)
    for name, value in zip(expected.fields, expected.values[0], strict=True):
        assert found[name] == pytest.approx(scale * value, rel=1e-3, abs=0.02)


def test_a_counterfactual_reaches_the_wanted_prediction(visit, flats):
    fitted, _ = flats
    visit.open("row", row=ROW)
    wanted = 1.1 * fitted.predict({name: [value] for name, value in ROW.items()})[0]
    visit.page.get_by_role("spinbutton", name="Wanted prediction").fill(f"{wanted:.3f}")
    visit.page.get_by_role("button", name="Find").click()
    visit.page.get_by_role("button", name="apply").first.click()
    visit.settle()
    changed = visit.state["row"]
    assert changed != ROW
    reached = fitted.predict({name: [value] for name, value in changed.items()})[0]
    assert reached >= wanted * (1 - 1e-3)


def test_a_row_is_pasted_from_json_and_from_a_spreadsheet(visit):
    visit.open("row", row=ROW)
    visit.page.get_by_text("Paste a row").click()
    box = visit.page.get_by_role("textbox", name="A row as JSON")
    box.fill('{"size": 99.5, "district": "harbor", "other": 1}')
    visit.page.get_by_role("button", name="Read").click()
    assert visit.state["row"] == {**ROW, "size": 99.5, "district": "harbor"}
    box.fill('size\tage\tdistrict\n41\t\t"hills"')
    visit.page.get_by_role("button", name="Read").click()
    assert visit.state["row"] == {**ROW, "size": 41, "age": None}
    box.fill('{"size": "large"}')
    visit.page.get_by_role("button", name="Read").click()
    assert 'size: "large" is not a number' in visit.page.get_by_role("alert").last.inner_text()
    assert visit.state["row"]["size"] == 41


def test_a_surface_is_that_of_python_and_has_a_crosshair(visit, flats):
    fitted, _ = flats
    visit.open("surface", row=ROW, scale="score", surface={"a": "size", "b": "age", "kind": "heat"})
    _, rows = visit.table("size × age")
    x, y, z = np.array(rows, float).T
    surface = fitted.segment({"floor": 2, "district": "hills"}, along=("size", "age"))
    assert len(rows) == 300 and np.allclose(
        [surface(*at) for at in zip(x[:40], y[:40], strict=True)], z[:40], atol=2e-5
    )
    visit.page.get_by_role("slider", name="crosshair: arrow keys move it").press("ArrowUp")
    assert visit.state["row"]["age"] > 30.0 and visit.state["row"]["size"] == 60.0


def test_quality_is_measured_on_the_rows_that_filters_leave(visit, flats):
    fitted, table = flats
    visit.open("quality", quality={"by": "", "filters": [{"column": "district", "is": "hills"}]})
    tiles = dict(
        visit.page.locator(".tile").evaluate_all(
            "all => all.map(one => [one.lastChild.textContent, one.firstChild.textContent])"
        )
    )
    kept = table.filter(np.array(table["district"].to_pylist()) == "hills")
    error = fitted.predict(kept) - kept["rent"].to_numpy()
    assert int(tiles["rows"]) == len(kept)
    assert float(tiles["RMSE"]) == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-3)
    visit.page.get_by_role("button", name="Remove the filter district = hills").click()
    visit.settle()
    assert visit.page.locator(".tile b").first.inner_text() == f"{len(table)}"


def test_items_of_the_page_are_ranked(visit, flats):
    fitted, table = flats
    visit.open("ranking", row=ROW)
    _, rows = visit.table("Best items")
    districts = table["district"].to_pylist()[:6]
    predicted = fitted.predict({**{name: [value] * 6 for name, value in ROW.items()}, "district": districts})
    assert [row[1] for row in rows] == [f"flat {i}" for i in sorted(range(6), key=lambda i: (-predicted[i], i))]
    assert np.allclose([float(row[2]) for row in rows], sorted(predicted, reverse=True), rtol=1e-4)


@pytest.mark.parametrize("view", ["importance", "transforms"])
def test_other_views_have_plots(visit, view):
    visit.open(view, row=ROW)
    assert visit.state["view"] == view and visit.page.locator("main figure svg").count() > 0


def test_the_foot_lists_what_the_fit_tried(visit, flats):
    visit.open("segment")
    listed = visit.page.locator("#search")
    assert listed.locator("summary").inner_text() == "What the fit tried, the best 20 of 30 settings"
    listed.locator("summary").click()
    rows = [row.split("\t") for row in listed.locator("tbody tr").all_inner_texts()]
    assert len(rows) == 20 and [" (chosen)" in row[0] for row in rows] == [True] + [False] * 19
    fitted = flats[0]
    assert rows[0][0] == f"{fitted.search[0]} (chosen)" and rows[0][3:] == ["4", "1.5"]
    assert float(rows[0][1]) == pytest.approx(fitted.loss.metric(0.02), rel=1e-4)
    listed.locator("summary").click()


@pytest.mark.thorough
def test_classes_and_dates(browser, tmp_path):
    rng = np.random.default_rng(1)
    seen = np.datetime64("2020-01-01") + rng.integers(0, 2000, 400).astype("timedelta64[D]")
    table = pa.table(
        {"seen": seen, "place": rng.choice(["a", "b", "c"], 400), "kind": rng.choice(["x", "y", "z"], 400)}
    )
    schema = sf.Schema([sf.Timestamp("seen", parts=["weekday", "yearday", "trend"]), sf.Categorical("place")])
    training = sf.Training(epochs=2, threads=1, effort="fast")
    fitted = sf.fit_model(table, "kind", schema=schema, loss="softmax", model=sf.FM(k=2), training=training)
    items = Items(pa.table({"place": ["a", "b", "c"]}), ["A", "B", "C"])
    path = tmp_path / "classes.html"
    path.write_text(make_explorer_of(fitted, table, "kind", items=items).page())
    with visiting(browser, path.as_uri()) as visit:
        visit.open("row", cls=2)
        visit.page.get_by_text("Paste a row").click()
        visit.page.get_by_role("textbox", name="A row as JSON").fill('{"seen": "2021-07-04", "place": "b"}')
        visit.page.get_by_role("button", name="Read").click()
        visit.settle()
        expected = fitted.predict({"seen": ["2021-07-04"] * 3, "place": ["a", "b", "c"]})
        assert float(visit.page.locator("output").inner_text()) == pytest.approx(expected[1, 2], abs=2e-4)
        visit.page.keyboard.press("6")
        visit.settle()
        _, rows = visit.table("Best items")
        assert [row[1] for row in rows] == ["ABC"[i] for i in np.argsort(-expected[:, 2])]
        assert np.allclose([float(row[2]) for row in rows], sorted(expected[:, 2], reverse=True), atol=1e-5)
        visit.page.keyboard.press("1")
        visit.settle()
        assert visit.page.locator("main figure").count() == 4 and visit.complaints == []


@pytest.mark.thorough
def test_an_address_keeps_the_view(visit, browser):
    state = {
        "row": {**ROW, "district": "suburb"},
        "scale": "score",
        "surface": {"a": "age", "b": "district", "kind": "contour"},
    }
    visit.open("surface", **state)
    link = visit.page.evaluate("location.href")
    with visiting(browser, link) as other:
        other.settle()
        assert other.state == visit.state
        assert other.page.get_by_role("heading", name="age × district").is_visible()


def test_plots_are_downloaded(visit, tmp_path):
    visit.open("segment", row=ROW)
    for kind, begin in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("CSV", b"size,now")):
        with visit.page.expect_download() as waiting:
            visit.page.get_by_role("button", name=f"Download {kind} of size", exact=True).click()
        waiting.value.save_as(tmp_path / kind)
        content = (tmp_path / kind).read_bytes()
        assert content.startswith(begin) and len(content) > 2000


@pytest.mark.thorough
@pytest.mark.parametrize(("theme", "rules"), [("light", None), ("dark", ["color-contrast"])], ids=["light", "dark"])
def test_axe_has_nothing_serious_to_say(browser, address, theme, rules):
    axe = next(file for file in files("axe-playwright-python") or [] if file.name == "axe.min.js").read_text()
    with visiting(browser, address, color_scheme=theme) as visit:
        visit.page.evaluate(axe)
        for view in VIEWS if rules is None else VIEWS[:3]:
            visit.open(view, pins=[{"name": "A", "row": ROW}])
            options = {"resultTypes": ["violations"], **({} if rules is None else {"runOnly": rules})}
            found = visit.page.evaluate("options => axe.run(options)", options)["violations"]
            serious = [
                f"{view}: {one['id']}: {one['nodes'][0]['html'][:150]}"
                for one in found
                if one["impact"] in ("serious", "critical")
            ]
            assert not serious, serious
        assert visit.page.evaluate("document.documentElement.dataset.theme") == theme


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1280, 390])
def test_no_text_is_covered_or_cut_off(browser, address, width):
    with visiting(browser, address, viewport={"width": width, "height": 900}) as visit:
        for view in VIEWS:
            visit.open(view, row=ROW, pins=[{"name": "A", "row": {**ROW, "district": "center"}}], picked=3)
            assert visit.page.evaluate(FAULTS) == [], view


@pytest.mark.thorough
def test_a_tour_with_the_keyboard_alone(browser, address):
    with visiting(browser, address) as visit:
        page, seen = visit.page, []

        def focused():
            return page.evaluate(
                "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()"
            )

        for _ in range(60):
            page.keyboard.press("Tab")
            seen.append(focused())
            if seen[-1] == "size, drag along the curve":
                break
        assert seen[0] == "Skip to the plots" and "Segment" in seen and "district" in seen, seen
        before = visit.state["row"]["size"]
        page.keyboard.press("PageUp")
        visit.settle()
        assert visit.state["row"]["size"] > before
        page.keyboard.press("p")
        assert [pin["name"] for pin in visit.state["pins"]] == ["A"]
        page.keyboard.press("4")
        visit.settle()
        assert page.get_by_role("tab", name="Importance").get_attribute("aria-selected") == "true"
        page.get_by_role("tab", name="Importance").focus()
        for _ in range(10):
            page.keyboard.press("Tab")
            if focused().startswith("size: "):
                break
        page.keyboard.press("Enter")
        assert (visit.state["view"], visit.state["focus"]) == ("segment", "size")
        page.keyboard.press("?")
        assert page.get_by_role("dialog").is_visible()
        page.keyboard.press("Escape")
        assert not page.get_by_role("dialog").is_visible()


@pytest.mark.thorough
def test_hostile_names_are_only_shown(browser, tmp_path):
    explorer = hostile_explorer()
    path = tmp_path / "hostile.html"
    path.write_text(explorer.page())
    with visiting(browser, path.as_uri(), viewport={"width": 390, "height": 900}) as visit:
        for view in VIEWS:
            visit.open(view)
            assert visit.page.evaluate(FAULTS) == [], view
            texts = visit.page.locator("body").inner_text()
            assert "\u202e" not in texts
            assert visit.page.locator("main img, main script, aside img, aside script").count() == 0
        visit.open("importance")
        names = visit.table("Columns")[1]
        assert {row[0] for row in names} == {shown_text(column["name"]) for column in explorer.payload.data["columns"]}
        assert visit.complaints == []
        assert all(url == path.as_uri() or url.startswith(("blob:", "data:")) for url in visit.asked), visit.asked


@pytest.mark.thorough
def test_a_broken_address_opens_a_fresh_page(browser, address):
    bad = json.dumps({"__proto__": 1, "size": "x" * 10})
    with visiting(browser, f"{address}#/nothing?row={bad}&pins=7&scale=%zz&unknown=1") as visit:
        visit.settle()
        assert visit.state["view"] == "segment" and visit.state["pins"] == []
        assert isinstance(visit.state["row"]["size"], float) and visit.page.locator("main figure").count() == 4
