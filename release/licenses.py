"""Write docs/licenses.md: the licenses of all that the package holds and needs. `make licenses` calls it.

The names come from pyproject.toml, what they need in turn and the licenses from the installed packages.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import deque
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
# What a user of the package can install; extras for work on the package are not among them.
EXTRAS = ("plots", "explore", "onnx", "faiss", "tune", "serve", "torch", "distributed")
# Installed without what they ask for: see the extra in pyproject.toml.
BY_HAND = {"distributed": ["torchrec", "fbgemm-gpu-cpu"]}
NOTES = {"torch": "On Linux, `pip` also installs libraries of NVIDIA under their own, proprietary licenses."}
# For packages whose metadata say nothing, or say it in a text of many lines: read in their files.
KNOWN = {"mpld3": "BSD-3-Clause"}
# Names that packages use for licenses of https://spdx.org/licenses.
SPDX = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "bsd-3": "BSD-3-Clause",
    "isc license": "ISC",
    "mit license": "MIT",
    "mit or apache-2.0": "MIT OR Apache-2.0",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "psf": "PSF-2.0",
    "the mit license": "MIT",
}
HEADER = """# Licenses

splinefm itself is under the [Apache License 2.0](../LICENSE). This page is written by `make
licenses` from the metadata of the pinned versions; where a package bundles others, its own files
tell more.

## Inside the wheel

The texts are in `licenses/`, and in the wheel beside its metadata.

| part | what for | license |
|---|---|---|
| [nanobind](https://github.com/wjakob/nanobind) | compiled into the module: the border to Python | BSD-3-Clause |
| [robin-map](https://github.com/Tessil/robin-map) | part of nanobind | MIT |
| libc++, libc++abi, libunwind | the C++ library of LLVM, linked statically | Apache-2.0 WITH LLVM-exception |
| compiler-rt of [Zig](https://ziglang.org) | small functions that the compiler calls, linked statically | MIT |

The page of `splinefm explore` has D3 (BSD-3-Clause) inside, taken from the installed `mpld3`; a
page that is saved carries it along, with its notice.
"""


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    parts = {"": project["dependencies"]} | {extra: optional[extra] for extra in EXTRAS if extra in optional}
    print(HEADER, end="")
    listed: set[str] = set()
    for extra, requirements in parts.items():
        direct = [*(canonicalize_name(Requirement(item).name) for item in requirements), *BY_HAND.get(extra, [])]
        new = {*closure(requirements), *direct} - listed
        listed |= new
        print(f"\n## {f'The extra `{extra}`' if extra else 'Needed by every installation'}\n")
        print("| package | version | license |\n|---|---|---|")
        for name in sorted(new, key=lambda name: (name not in direct, name)):
            found = find(name)
            if found is None:
                sys.exit(f"{name} is not installed; `make licenses` installs it")
            version = found.version.partition("+")[0]
            print(f"| {f'**{name}**' if name in direct else name} | {version} | {license_of(found)} |")
        if extra in NOTES:
            print(f"\n{NOTES[extra]}")


def closure(requirements: list[str]) -> Iterator[str]:
    """Names of packages that requirements need, and what those need in turn, on this machine."""
    waiting = deque(Requirement(item) for item in requirements)
    seen: set[tuple[str, str]] = set()
    names: set[str] = set()
    while waiting:
        item = waiting.popleft()
        name = canonicalize_name(item.name)
        for extra in ("", *sorted(item.extras)):
            if (name, extra) in seen or not (item.marker is None or item.marker.evaluate({"extra": ""})):
                continue
            seen.add((name, extra))
            if name not in names:
                names.add(name)
                yield name
            found = find(name)
            for text in (found.requires or []) if found else []:
                inner = Requirement(text)
                if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                    inner.marker = None
                    waiting.append(inner)


def find(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def license_of(found: Distribution) -> str:
    """The license as SPDX names it, by the expression, the short field, or the classifiers of the metadata."""
    name = canonicalize_name(found.metadata["Name"])
    if name in KNOWN:
        return KNOWN[name]
    expression = found.metadata.get("License-Expression")
    if expression:
        return str(expression)
    field = (found.metadata.get("License") or "").strip()
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in found.metadata.get_all("Classifier") or []
        if line.startswith("License :: ") and not line.endswith("OSI Approved")
    ]
    for text in ([field] if "\n" not in field and len(field) < 60 else []) + classifiers:
        if text and text.upper() != "UNKNOWN":
            return SPDX.get(text.lower(), re.sub(r"\s+", " ", text))
    sys.exit(f"{name} does not tell its license; read its files, and add it to KNOWN in {Path(__file__).name}")


if __name__ == "__main__":
    main()
