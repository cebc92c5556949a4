"""The page of `splinefm explore` as one HTML text, which loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from typing import Any

from splinefm.explore.bundle import d3_script, page_script, read_asset, worker_script
from splinefm.explore.payload.make import Payload

_IMPOSSIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def render(payload: Payload, about: dict[str, Any], *, connects: bool = False) -> str:
    """Render the page.

    Parameters
    ----------
    payload : Payload
        The model and its rows.
    about : dict
        What `describe_page` returned.
    connects : bool
        Whether the page may ask the server that it came from. A file may not.
    """
    style, scripts = read_asset("page.css"), (d3_script(), page_script())
    parts = {
        "policy": policy(style, scripts, connects=connects),
        "title": html.escape(_IMPOSSIBLE.sub("\ufffd", f"{about['title']}: explorer")),
        "style": style,
        "about": _data(about),
        "payload": payload.to_json(),
        "worker": worker_script(),
        "d3": scripts[0],
        "script": scripts[1],
    }
    # In one pass, so that inserted text is not expanded again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], read_asset("page.html"))


def policy(style: str, scripts: tuple[str, ...], *, connects: bool) -> str:
    """The content security policy: this style, these scripts, a worker of the page's own, and nothing else."""
    hashes = " ".join(_hash(script) for script in scripts)
    origin = "'self'" if connects else "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; worker-src blob:; style-src {_hash(style)}; img-src data: blob:; "
        f"connect-src {origin}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(value: object) -> str:
    """JSON that is safe inside of an element: it has no `<`."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
