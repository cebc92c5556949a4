"""The experiments are scripts beside the package: their folder goes on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "paper"))
