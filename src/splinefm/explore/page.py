"""The pages of `splinefm explore` and `splinefm explain` as one HTML text each, with scripts and nothing to load."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import posixpath
import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from splinefm.explore.payload import Payload

# The scripts of the page as one text each: modules without a bundler, and d3 from the package that ships it.

D3_PACKAGE, _D3_FILE = "mpld3", "d3.v5.min.js"
# Modules import names on one line, and export functions, classes and constants where they are declared.
_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]*)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let) (\w+))", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


def read_asset(path: str) -> str:
    """Read a file of this folder."""
    return resources("splinefm.explore").joinpath(path).read_text(encoding="utf-8")


def bundle(entry: str, read: Callable[[str], str] = read_asset) -> str:
    """Join a module and all that it imports, each in a scope of its own.

    Parameters
    ----------
    entry : str
        Path of the module in this folder.
    read : callable
        Reads a module.

    Examples
    --------
    >>> modules = {"js/a.js": 'import { b } from "./b.js";\\nb();', "js/b.js": "export function b() {}"}
    >>> print(bundle("js/a.js", modules.__getitem__))
    "use strict";
    (() => {
    const module1 = (() => {
    function b() {}
    return { b };
    })();
    const module2 = (() => {
    const { b } = module1;
    b();
    return {  };
    })();
    })();
    """
    names: dict[str, str] = {}
    parts: list[str] = []
    _add(entry, read, names, parts, ())
    return _safe("\n".join(['"use strict";', "(() => {", *parts, "})();"]), entry)


def _add(path: str, read: Callable[[str], str], names: dict[str, str], parts: list[str], above: tuple[str, ...]) -> str:
    """Add a module after those that it imports; returns the name of its scope."""
    if path in above:
        raise ValueError(f"modules import each other: {' -> '.join([*above, path])}")
    if path in names:
        return names[path]

    def imported(found: re.Match[str]) -> str:
        other = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[2]))
        return f"const {{{found[1]}}} = {_add(other, read, names, parts, (*above, path))};"

    text = _IMPORT.sub(imported, read(path))
    exported = _EXPORT.findall(text)
    text = _EXPORT.sub("", text)
    if left := _OTHER.search(text):
        raise ValueError(f"{path}: {left[0]!r} is not an import or export that can be joined")
    names[path] = f"module{len(names) + 1}"
    parts.append(f"const {names[path]} = (() => {{\n{text.strip()}\nreturn {{ {', '.join(exported)} }};\n}})();")
    return names[path]


@cache
def page_script(entry: str) -> str:
    """The script of a page, or of the worker that holds its model, with everything that it imports."""
    return bundle(entry)


@cache
def d3_script() -> str:
    """The library that scales, shapes and contours come from; it is not imported, only read."""
    try:
        listed = files(D3_PACKAGE) or []
    except PackageNotFoundError:
        message = f"the page draws with d3, which comes with {D3_PACKAGE}: pip install 'splinefm[explore]'"
        raise ModuleNotFoundError(message, name=D3_PACKAGE) from None
    found = [Path(str(file.locate())) for file in listed if file.name == _D3_FILE]
    if not found:
        raise FileNotFoundError(f"{D3_PACKAGE} has no {_D3_FILE}; pip install --upgrade 'splinefm[explore]'")
    return _safe(found[0].read_text(encoding="utf-8"), _D3_FILE)


def _safe(text: str, path: str) -> str:
    """A script that cannot end its element early."""
    if re.search("<!--|</?script", text, re.IGNORECASE):
        raise ValueError(f"{path} contains '<!--' or '<script', which would end its element in the page")
    return text


# One HTML text, which loads nothing.

_IMPOSSIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def render_explorer(payload: Payload, about: dict[str, Any], *, connects: bool = False) -> str:
    """Render the page of `splinefm explore`.

    Parameters
    ----------
    payload : Payload
        The model and its rows.
    about : dict
        What `describe_page` returned.
    connects : bool
        Whether the page may ask the server that it came from. A file may not.
    """
    data = {"about-data": _safe_json(about), "payload-data": payload.to_json()}
    return _render(
        f"{about['title']}: explorer", "js/main.js", data, worker=page_script("js/worker.js"), connects=connects
    )


def render_report(payload: Payload, title: str) -> str:
    """Render the page of `splinefm explain`, which has facts instead of a model."""
    return _render(title, "js/report.js", {"payload-data": payload.to_json()})


def _render(title: str, entry: str, data: dict[str, str], *, worker: str = "", connects: bool = False) -> str:
    """The page with a script, the JSON texts that it reads, and the script of its worker."""
    style, scripts = read_asset("page.css"), (d3_script(), page_script(entry))
    elements = [f'<script type="application/json" id="{name}">{text}</script>' for name, text in data.items()]
    parts = {
        "policy": policy(style, scripts, connects=connects),
        "title": html.escape(_IMPOSSIBLE.sub("\ufffd", title)),
        "style": style,
        "data": "\n".join([*elements, f'<script type="text/plain" id="worker-source">{worker}</script>']),
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


def _safe_json(value: object) -> str:
    """JSON that is safe inside of an element: it has no `<`."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
