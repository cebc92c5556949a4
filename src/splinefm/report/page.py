"""The page of `splinefm explain`: one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from splinefm.learn.description import predicted_thing
from splinefm.report.markup import Html, escaped, joined, tag
from splinefm.report.model import (
    curves_section,
    fields_section,
    importance_section,
    overview_section,
    surfaces_section,
)
from splinefm.report.parts import Section, short
from splinefm.report.plots import PagePlots
from splinefm.report.rows import calibration_section, rows_section

if TYPE_CHECKING:
    from splinefm.learn.progress import Progress
    from splinefm.report.explanation import Explanation

_SECTIONS = (
    overview_section,
    fields_section,
    importance_section,
    curves_section,
    surfaces_section,
    calibration_section,
    rows_section,
)


def render(explanation: Explanation, progress: Progress) -> str:
    """Render the page."""
    plots = PagePlots(explanation, progress)
    sections = [make(explanation, plots) for make in _SECTIONS]
    progress.begin("assembling the page")
    template = (files("splinefm.report") / "page.html").read_text(encoding="utf-8")
    parts = {
        "policy": _policy(template),
        "title": escaped(f"{_kind(explanation)}: {predicted_thing(explanation.fitted)}"),
        "header": _header(explanation),
        "navigation": _navigation(sections),
        "content": joined(_section(section) for section in sections),
        "footer": tag("footer", "Made by splinefm. This file is self-contained and loads nothing from the network."),
    }
    # In one pass, so that inserted text is not expanded again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _policy(template: str) -> str:
    """The content security policy: inline style, this script, inline images, and nothing else."""
    script = template.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"


def _header(explanation: Explanation) -> Html:
    found, target = explanation.survey, explanation.request.target
    sampled = f"; a random sample of {found.sample.num_rows:,} is explained" if _sampled(explanation) else ""
    about = f"{_kind(explanation)} predicts the {predicted_thing(explanation.fitted)}."
    data = f"This report uses {found.n_rows:,} rows of {short(explanation.request.data)}{sampled}."
    title = "Model report" if target is None else f"Model report: {short(target)}"
    return tag("header", tag("h1", title), tag("p", f"{about} {data}"))


def _navigation(sections: Sequence[Section]) -> Html:
    links = [tag("li", tag("a", section.title, href=f"#{section.anchor}")) for section in sections]
    return tag("nav", tag("ol", *links), aria_label="Contents")


def _section(section: Section) -> Html:
    return tag("section", tag("h2", section.title), section.content, id=section.anchor)


def _kind(explanation: Explanation) -> str:
    return str(explanation.fitted.model)


def _sampled(explanation: Explanation) -> bool:
    return bool(explanation.survey.sample.num_rows < explanation.survey.n_rows)
