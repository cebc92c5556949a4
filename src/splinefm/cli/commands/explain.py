"""`splinefm explain`: what a model does on a table, as facts and as one page."""

from __future__ import annotations

from typing import Any

from splinefm._wording import in_bytes
from splinefm.cli.output import print_facts


def print_explanation(facts: dict[str, Any]) -> None:
    """The most important facts, and where the page is."""
    model, data, importance = facts["model"], facts["data"], facts["importance"]
    lines = [
        ("model", f"{model['kind']}, {model['prediction']}"),
        ("data", f"{data['rows']:,} rows, {data['sample_rows']:,} of them explained"),
    ]
    if facts["metrics"]:
        shown = [f"{name} {value:.5g}" for name, value in facts["metrics"].items() if value is not None]
        lines.append(("metrics", ", ".join(shown[:4])))
    if importance is not None:
        lines.append(("fields", ", ".join(field["name"] for field in importance["fields"][:5])))
        pairs = [" × ".join(pair["fields"]) for pair in importance["pairs"][:3]]
        lines += [("pairs", ", ".join(pairs))] if pairs else []
    lines.append(("page", f"{facts['page']}, {in_bytes(facts['page_bytes'])}; open it in a browser"))
    lines.append(("time", f"{facts['seconds']:.1f} seconds"))
    print_facts(lines)
