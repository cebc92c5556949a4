"""A service of BentoML that scores and ranks: MODEL=model.sfm bentoml serve bento_service:Splinefm

Rows and rankings have endpoints with types, of which BentoML makes a page and clients. All that `splinefm serve`
answers, such as Arrow streams and metrics of arms, is under /splinefm.
"""

from __future__ import annotations

import os
from typing import Any

import bentoml

from splinefm.serve import FaultyRows, create_app

# BentoML starts a process for each worker: FOLDER is one that they share, new for each start.
application = create_app(
    os.environ["MODEL"],
    index=os.environ.get("INDEX"),
    folder=os.environ.get("FOLDER"),
    watch=True,
    log=os.environ.get("LOG"),
)


@bentoml.service(traffic={"timeout": 10})
@bentoml.asgi_app(application, path="/splinefm")
class Splinefm:
    """Scores and rankings."""

    def __init__(self) -> None:
        self.service = application.service

    @bentoml.api
    def score(self, rows: list[dict[str, Any]], request_id: str = "") -> dict[str, Any]:
        """Scores and predictions of rows."""
        try:
            found = self.service.score(rows, request_id=request_id)
        except FaultyRows as error:
            raise bentoml.exceptions.InvalidArgument(str(error)) from None
        return {"scores": found.scores.tolist(), "predictions": found.predictions.tolist(), "versions": found.versions}

    @bentoml.api
    def rank(self, context: dict[str, Any], k: int = 10) -> dict[str, Any]:
        """The best items for a context."""
        found = self.service.rank(context, k)
        return {"ids": found.ids.tolist(), "scores": found.scores.tolist(), "version": found.version}
