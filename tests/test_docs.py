"""The documentation: its code runs, its links lead somewhere, its prose is wrapped, and no public name is missing."""

import ast
import importlib
import importlib.util
import inspect
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import splinefm as sf
from support import THOROUGH

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
# Those that have no code to run are checked for links and width alone.
OTHERS = [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```$", flags=re.MULTILINE | re.DOTALL)


def name_of(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.usefixtures("empty_plots")  # docs/gallery.py draws them
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.name == "torch.md":
        pytest.importorskip("torch", reason="needs PyTorch: pip install 'splinefm[torch]'")
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)


def anchors_of(page):
    """Anchors of the headings of a page, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES + OTHERS, ids=name_of)
def test_links_inside_the_project_lead_somewhere(page):
    for _, target, anchor in LINK.findall(page.read_text()):
        path = page.parent / target
        if target.startswith("reference/"):
            continue  # pages that docs/hooks.py makes
        assert path.exists(), f"{page.name} links to {target}"
        if anchor and path.suffix == ".md":
            assert anchor[1:] in anchors_of(path), f"{page.name} links to {target}{anchor}"


@pytest.mark.parametrize("page", PAGES + OTHERS, ids=name_of)
def test_prose_is_wrapped_at_100_characters(page):
    prose = FENCE.sub("", page.read_text()).splitlines()
    long = [line for line in prose if len(line) > 100 and not line.startswith(("|", "!["))]
    assert long == []


def test_the_changelog_has_an_entry_for_what_is_coming():
    version = re.split(r"\.dev|rc", sf.__version__)[0]
    unreleased = (ROOT / "CHANGELOG.md").read_text().split(f"\n## {version} (")[1].split("\n## ")[0]
    assert re.search(r"^- \S", unreleased, flags=re.MULTILINE)


# Decisions

AREAS = [page for page in sorted((DOCS / "decisions").glob("*.md")) if page.name != "index.md"]
CODE = [ROOT / folder for folder in ("src", "cpp", "tests", "benchmarks", "paper", "examples", "release", "docs")]
SUFFIXES = {".py", ".pyi", ".hpp", ".cpp", ".h", ".c", ".js", ".md", ".toml"}
CITATION = re.compile(r"\b(?:[Dd]ecision|[Rr]ecord)s?\s+(\d+(?:(?:,|,? and| or| to)\s+\d+)*)")


def records():
    """The number, title, area, and lines of every decision."""
    for page in AREAS:
        for part in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
            title, *lines = [line for line in part.splitlines() if line.strip()]
            number, title = title.split(". ", 1)
            yield int(number), title, page.stem, lines


def test_decisions_are_numbered_records_of_at_most_twelve_lines():
    found = sorted(records())
    assert [number for number, *_ in found] == list(range(1, len(found) + 1))
    for number, _, _, lines in found:
        starts = [i for i, line in enumerate(lines) if line.startswith("- **")]
        names = [re.match(r"- \*\*(\w+)\.\*\* ", lines[i])[1] for i in starts]
        assert names in [
            [*status, "Context", "Decision", *rest] for status in ([], ["Status"]) for rest in ([], ["Measured"])
        ], number
        assert len(lines) - starts[names.index("Context")] <= 12, number


def test_the_index_of_decisions_has_each_with_its_title_and_status():
    rows = re.findall(
        r"^\| (\d+) \| \[(.+)\]\((\w+)\.md#(\S+)\) \| (\w+) \| (.+) \|$",
        (DOCS / "decisions/index.md").read_text(),
        re.MULTILINE,
    )
    stated = {}
    for number, title, area, lines in records():
        text = " ".join(lines).split("- **Context.**")[0].removeprefix("- **Status.** ")
        status = re.match(r"(In force|(?:Partly r|R)eplaced by \[(\d+)\])", text)
        assert (status is None) == (text == ""), title
        by = status and status[2]
        state = "in force" if by is None else f"{'partly ' if text.startswith('Partly') else ''}replaced by {by}"
        stated[number] = (title, area, area, state)
    assert {int(number): (title, page, area, state) for number, title, page, _, area, state in rows} == stated
    assert [int(row[0]) for row in rows] == sorted(stated)


def test_every_cited_decision_exists():
    known = {number for number, *_ in records()}
    paths = [path for folder in CODE for path in folder.rglob("*") if path.suffix in SUFFIXES]
    cited = {}
    for path in [*paths, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        text = path.read_text()
        assert "decisions" + ".md" not in text, f"{path} names a page of decisions that there is not"
        cited |= {int(n): path for found in CITATION.findall(text) for n in re.findall(r"\d+", found)}
    assert len(cited) > 20 and not {number: path for number, path in cited.items() if number not in known}


# The reference


@pytest.fixture(scope="module")
def site():
    pytest.importorskip("mkdocs")
    pytest.importorskip("griffe")
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.reference_pages = cache(module.reference_pages)
    return module


def test_the_reference_has_every_public_name_once_with_a_line(site):
    names = [name for group in site.REFERENCE.values() for name in group.split()]
    results = [name for group in site.RESULTS.values() for name in group.split()]
    spaces = [
        f"{space}.{name}"
        for space in ("metrics", "plots")
        for name in importlib.import_module(f"splinefm.{space}").__all__
    ]
    assert sorted(names) == sorted([*sf.__all__, *spaces]) and set(names).isdisjoint(results)
    table = site.reference_pages()["reference/index.md"]
    for title in [*(f"sf.{name}" for name in names), *results]:
        line = rf"^\| \[`{re.escape(title)}`\]\(\S+\) \| \S.* \| \[source\]\(\S+\) \|$"
        assert re.search(line, table, flags=re.MULTILINE), title


def test_the_reference_has_the_parameters_that_the_estimators_share(site):
    """Griffe does not run the decorator that completes their docstrings."""
    extensions = site.griffe.load_extensions(DOCS / "shared_parameters.py")
    package = site.griffe.load("splinefm", search_paths=[str(ROOT / "src")], extensions=extensions)
    for name in ("SplineFMClassifier", "SplineFMRegressor"):
        estimator = package[f"fit.estimators.{name}"]
        at_run_time = getattr(sf, estimator.name)
        assert estimator.docstring.value == inspect.getdoc(at_run_time)
        expected = inspect.signature(at_run_time).parameters
        defaults = {
            item.name: ast.literal_eval(str(item.default)) for item in estimator.parameters if item.name != "self"
        }
        assert defaults == {name: item.default for name, item in expected.items()}


def test_the_navigation_has_every_page(site):
    yaml = pytest.importorskip("yaml")
    sections = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    found = []
    for section in sections:
        for entry in section.values():
            found += [entry] if isinstance(entry, str) else [page for item in entry for page in item.values()]
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert sorted(found) == sorted([*pages, *site.OUTSIDE, *site.reference_pages()])


def test_docstrings_of_public_names_are_valid(site):
    validate = pytest.importorskip("numpydoc.validate").validate
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["numpydoc_validation"]
    left_out = set(settings["checks"]) - {"all"}
    public = [getattr(sf, name) for name in sf.__all__] + [getattr(sf.metrics, name) for name in sf.metrics.__all__]
    names = [f"{value.__module__}.{value.__qualname__}" for value in public]
    package = site.griffe.load("splinefm", search_paths=[str(ROOT / "src")])
    results = [name for group in site.RESULTS.values() for name in group.split()]
    names += [f"splinefm.{site.path_of_result(package, name)}" for name in results]
    errors = [(name, *error) for name in names[:: 1 if THOROUGH else 3] for error in validate(name)["errors"]]
    assert [error for error in errors if error[1] not in left_out] == []


# The walk through the package

ARCHITECTURE = DOCS / "architecture.md"
DEFINED = r"^\s*(def|class|struct|void|bool|using)\s+{}\b"


def test_names_of_the_walk_are_defined_where_it_says():
    found = [(name, target) for name, target, _ in LINK.findall(ARCHITECTURE.read_text()) if "/src/" in f"/{target}"]
    found += [(name, target) for name, target, _ in LINK.findall(ARCHITECTURE.read_text()) if "/cpp/" in target]
    assert len(found) > 20
    for name, target in found:
        last = name.strip("`").split(".")[-1]
        code = (ARCHITECTURE.parent / target).read_text()
        assert re.search(DEFINED.format(re.escape(last)), code, flags=re.MULTILINE), f"{name} is not in {target}"


def test_the_tree_has_every_folder():
    tree = ARCHITECTURE.read_text().split("```text\n")[1].split("```")[0]
    package = tree.split("src/splinefm/\n")[1].split("\ntests/")[0]
    named = set(re.findall(r"^  (\w+)/ ", package, flags=re.MULTILINE))
    assert named == {path.parent.name for path in (ROOT / "src/splinefm").glob("*/__init__.py")}
    native = re.findall(r"\b(\w+)/", tree.split("src/splinefm/")[0].removeprefix("cpp/"))
    assert set(native) == {path.name for path in (ROOT / "cpp").iterdir() if path.is_dir()}


def test_files_to_add_things_to_exist():
    rows = ARCHITECTURE.read_text().split("## Where to add things")[1].split("|---")[-1].splitlines()[1:]
    found = {path for row in rows for path in re.findall(r"`([\w/.]+/[\w.]*|\w+\.py)`", row)} - {"cli/NAME.py"}
    assert len(found) > 20
    for path in found:
        assert (ROOT / "src/splinefm" / path).exists() or (ROOT / path).exists(), path


def test_the_hops_of_a_walk_are_numbered_and_few():
    most = {"`fit`": 11, "`predict`": 7, "`top_k`": 7}
    for section in re.split(r"^## ", ARCHITECTURE.read_text(), flags=re.MULTILINE)[1:]:
        numbers = [int(number) for number in re.findall(r"^(\d+)\. ", section, flags=re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1))
        title = section.splitlines()[0]
        assert len(numbers) <= most.pop(title, 9), title
    assert not most
