"""Our application for another server than uvicorn; started by `benchmarks/serve.py`."""

from __future__ import annotations

import os
from pathlib import Path

from splinefm.serve import Arm, Limits, ServiceSettings, create_app

FOLDER = Path(os.environ["SERVED"])
ARM = Arm("default", str(FOLDER / "model.sfm"), index=str(FOLDER / "items.sfi"))
app = create_app(ServiceSettings((ARM,), limits=Limits(wait=30.0)), folder=os.environ["SHARED"])
