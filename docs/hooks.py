"""Hooks of MkDocs: pages that live elsewhere in the repository, and the reference.

The README, the changelog and the pages of benchmarks/ and paper/ become pages of the site. Links are
written for readers of the repository; here they are turned into links of the site. A link to a source
file leads to a page with its code; if the text or the fragment of the link is the name of a function or class, to its
line.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe
from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = {  # page of the site: file of the repository
    "index.md": "README.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
    "benchmarks/README.md": "benchmarks/README.md",
    "paper/README.md": "paper/README.md",
}
LANGUAGES = {".py": "python", ".cpp": "cpp", ".hpp": "cpp", ".toml": "toml", ".json": "json", ".md": "markdown"}
LINK = re.compile(r"(\[(?P<text>[^\]\[]*)\])\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")

# One page of the reference per group: names of `import splinefm as sf`. A test compares them with the package.
REFERENCE = {
    "Estimators": "SplineFMClassifier SplineFMRegressor fit_model Fitted load ModelFileError ShardedModel",
    "Fields": "Schema infer_schema Numerical Categorical MultiValued Timestamp Cross open_table fit_encoder Encoder"
    " EncoderStatistics DriftWarning",
    "Transforms and bases": "MinMax Quantile BestFitCDF ArcsinhSquare Log CustomTransform"
    " BSpline MultiResolution Bins Polynomial Fourier Powers CustomBasis",
    "Models": "FM FwFM LowRankFwFM FmFM FFM HigherOrderFM Loss",
    "Training": "Training Epoch Diverged tune",
    "Updates": "update_model Guard UpdateRefused Learner compare",
    "Views": "segments",
    "Explanations": "shapley_values Background importance partial_dependence ice_curves decompose",
    "Ranking and serving": "ItemIndex",
    "Exports": "discretize discretization_error export_tables export_onnx onnx_inputs"
    " export_scorer export_libffm export_libffm_rows to_torch from_torch",
    "Metrics": "metrics.auc metrics.logloss metrics.normalized_entropy metrics.class_logloss metrics.class_auc"
    " metrics.accuracy metrics.calibration_error metrics.calibration_by metrics.GroupCalibration metrics.rmse"
    " metrics.mae metrics.r2 metrics.gamma_deviance metrics.tweedie_deviance metrics.pinball_loss metrics.coverage"
    " metrics.huber_loss",
    "Plots": "plots.curve plots.steps plots.bars plots.surface plots.importance plots.pairs plots.history"
    " plots.study plots.calibration plots.basis plots.transformed plots.lines",
}
# Results of these functions, and what they call: documented on the same pages, found in the modules by name.
RESULTS = {
    "Fields": "Slots SlotLayout",
    "Transforms and bases": "choose_transform BasisStarvation",
    "Training": "Tuned StudySummary TrialSummary",
    "Updates": "UpdateReport Verdict Judgment LearnerState Comparison LargestChange RowChanges",
    "Views": "Curve Bars Surface",
    "Explanations": "ShapleyValues Importance Decomposition",
    "Ranking and serving": "Scorer ApproximateIndex ScoreError",
    "Exports": "DiscretizationReport",
}
INTRODUCTION = (
    "Names of `import splinefm as sf`, by task. Names without `sf.` are types of results and what a name above them"
    " uses; import them from the module that `source` shows, for annotations and tests."
)
# File names of groups whose title is long.
SHORT = {"Ranking and serving": "ranking"}


def page_of(group: str) -> str:
    return SHORT.get(group, group.lower().replace(" ", "-")) + ".md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for uri, path in OUTSIDE.items():
        add(files, config, uri, (ROOT / path).read_text(encoding="utf-8"))
    for uri, text in reference_pages().items():
        add(files, config, uri, text)
    for page in list(files.documentation_pages()):
        for match in LINK.finditer(page.content_string):
            path = repository_path(page.src_uri, match["target"])
            uri = site_uri(path)
            if uri and files.get_file_from_path(uri) is None and (ROOT / path).is_file():
                add_copy(files, config, uri, ROOT / path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the repository into links of the site; let search find the guide before the reference."""
    here = page.file.src_uri
    page.meta.setdefault("search", {"boost": 0.5 if here.startswith("reference/") else 2})

    def turn(match: re.Match[str]) -> str:
        path = repository_path(here, match["target"])
        uri, anchor = site_uri(path), match["anchor"] or ""
        if uri is None or files.get_file_from_path(uri) is None:
            return match["text"]  # a folder, or a file that the site does not have
        if uri.startswith("source/"):
            anchor = line_anchor(ROOT / path, anchor.removeprefix("#") or match["text"].strip("`"))
        return f"{match[1]}({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{anchor})"

    return LINK.sub(turn, markdown)


def repository_path(uri: str, target: str) -> str:
    """Path in the repository that a link on a page leads to."""
    page = OUTSIDE.get(uri, f"docs/{uri}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def site_uri(path: str) -> str | None:
    """Page or file of the site for a path of the repository."""
    pages = {file: uri for uri, file in OUTSIDE.items()}
    if path in pages:
        return pages[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith((".png", ".svg")):
        return path
    return f"source/{path}.md" if Path(path).suffix in LANGUAGES else None


def add(files: Files, config: MkDocsConfig, uri: str, text: str) -> None:
    files.append(File.generated(config, uri, content=text))


def add_copy(files: Files, config: MkDocsConfig, uri: str, path: Path) -> None:
    """A picture as it is, a source file as a page."""
    if not uri.startswith("source/"):
        files.append(File.generated(config, uri, abs_src_path=str(path)))
        return
    name = path.relative_to(ROOT).as_posix()
    front = f"---\ntitle: {name}\nhide: [toc]\nsearch: {{exclude: true}}\n---\n\n"
    code = path.read_text(encoding="utf-8")
    add(files, config, uri, f'{front}# {name}\n\n````{LANGUAGES[path.suffix]} linenums="1"\n{code}````\n')


def line_anchor(path: Path, name: str) -> str:
    """Anchor of the line that defines a name, or none."""
    last = re.escape(name.split(".")[-1])
    pattern = re.compile(rf"^\s*(async def|def|class|struct|void|using)\s+{last}\b")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if pattern.match(line):
            return f"#__codelineno-0-{number}"
    return ""


def reference_pages() -> dict[str, str]:
    """The table of all public names, and a page of docstrings per group."""
    package = griffe.load("splinefm", search_paths=[str(ROOT / "src")])
    table = ["# All public names", "", INTRODUCTION, ""]
    pages = {}
    for group, names in REFERENCE.items():
        page = page_of(group)
        table += [f"## [{group}]({page})", "", "| name | | |", "|---|---|---|"]
        blocks = [f"# {group}", ""]
        entries = [(f"sf.{name}", name) for name in names.split()]
        entries += [(name, path_of_result(package, name)) for name in RESULTS.get(group, "").split()]
        for title, path in entries:
            link = f"[`{title}`]({page}#splinefm.{path})"
            table.append(f"| {link} | {summary(package, path)} | {source_link(package, path)} |")
            blocks += [f"::: splinefm.{path}", ""]
        table.append("")
        pages[f"reference/{page}"] = "\n".join(blocks)
    return {"reference/index.md": "\n".join(table), **pages}


def path_of_result(package: Any, name: str) -> str:
    """Where a class or function is defined that is no name of the package itself."""
    found = [f"{module.path}.{name}" for module in modules_of(package) if defines(module, name)]
    if len(found) != 1:
        raise ValueError(f"{name} must be defined in one module, found {found}")
    return str(found[0]).removeprefix("splinefm.")


def modules_of(package: Any) -> list[Any]:
    return [package, *(found for module in package.modules.values() for found in modules_of(module))]


def defines(module: Any, name: str) -> bool:
    return name in module.members and not module.members[name].is_alias


def summary(package: Any, name: str) -> str:
    docstring = package[name].docstring
    first = docstring.value.strip().split("\n\n")[0] if docstring else ""
    return " ".join(first.split()).replace("|", "\\|")


def source_link(package: Any, name: str) -> str:
    """Where a name is defined, as a link of the repository."""
    home = package[name].final_target if package[name].is_alias else package[name]
    return f"[source](../../{Path(home.filepath).relative_to(ROOT).as_posix()}#{home.name})"
