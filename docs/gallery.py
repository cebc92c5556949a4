"""Make the pictures of docs/plots.md again: run its code in docs/images.

python docs/gallery.py
"""

import os
import re
import time
from pathlib import Path

import matplotlib

DOCS = Path(__file__).parent


def main() -> None:
    begin = time.perf_counter()
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "plots.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    os.chdir(DOCS / "images")
    names: dict[str, object] = {}
    with matplotlib.rc_context({"savefig.dpi": 90}):
        for block in blocks:
            exec(compile(block, "docs/plots.md", "exec"), names)
    for path in sorted(Path().glob("plots-*.png")):
        print(f"{path}: {path.stat().st_size / 1024:.0f} KB")
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
