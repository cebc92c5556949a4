"""The scripts of the page as one text each: modules without a bundler, and d3 from the package that ships it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from importlib.resources import files as resources
from pathlib import Path

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
def page_script() -> str:
    """The script of the page."""
    return bundle("js/main.js")


@cache
def worker_script() -> str:
    """The script of the worker, which holds the model."""
    return bundle("js/worker.js")


@cache
def d3_script() -> str:
    """The library that scales, shapes and contours come from; it is not imported, only read."""
    try:
        listed = files(D3_PACKAGE) or []
    except PackageNotFoundError:
        message = f"the explorer draws with d3, which comes with {D3_PACKAGE}: pip install 'splinefm[explore]'"
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
