"""Redraw the plots of the documentation: run the code of its pages in docs/images.

python docs/gallery.py
"""

import os
import re
import time
from pathlib import Path

import matplotlib

DOCS = Path(__file__).parent
PAGES = ["plots.md", "shapes.md", "concepts/why-splines.md", "concepts/crosses.md"]


def main() -> None:
    begin = time.perf_counter()
    os.chdir(DOCS / "images")
    with matplotlib.rc_context({"savefig.dpi": 90}):
        for page in PAGES:
            blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), flags=re.MULTILINE | re.DOTALL)
            names: dict[str, object] = {}
            for block in blocks:
                exec(compile(block, f"docs/{page}", "exec"), names)
    for path in sorted([*Path().glob("plots-*.png"), *Path().glob("shapes-*.png"), *Path().glob("concepts-*.png")]):
        print(f"{path}: {path.stat().st_size / 1024:.0f} KB")
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
