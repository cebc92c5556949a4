"""A model of KServe for its own server: python kserve_model.py --model_name ads --model model.sfm

The container of `splinefm serve` needs none of this, since it speaks the Open Inference Protocol itself: see
kserve.yaml. This file is for pre- and postprocessing in Python, and for transformers and explainers of KServe.
"""

from __future__ import annotations

import argparse
from typing import Any
from uuid import uuid4

import kserve

from splinefm.serve import FaultyRows, ScoringService


class SplinefmModel(kserve.Model):
    """Answers both protocols of KServe: instances as rows, and tensors, one for each column."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name)
        self.path = path

    def load(self) -> bool:
        """Load the model; the service notices new files."""
        self.service = ScoringService(self.path, watch=True)
        self.ready = True
        return self.ready

    def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        """Score the rows of a request."""
        if isinstance(payload, dict):
            return {"predictions": self._score(payload["instances"]).predictions.tolist()}
        columns = {tensor.name: tensor.as_numpy().ravel().tolist() for tensor in payload.inputs}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        found = self._score([{name: _plain(value) for name, value in row.items()} for row in rows])
        outputs = []
        for name, kind, values in (("score", "FP32", found.scores), ("prediction", "FP64", found.predictions)):
            output = kserve.InferOutput(name, list(values.shape), kind)
            output.set_data_from_numpy(values, binary_data=False)
            outputs.append(output)
        return kserve.InferResponse(payload.id or uuid4().hex, self.name, outputs)

    def _score(self, rows: list[dict[str, Any]]) -> Any:
        try:
            return self.service.score(rows)
        except FaultyRows as error:
            raise kserve.errors.InvalidInput(str(error)) from None


def _plain(value: Any) -> Any:
    """Text, and None for a missing number."""
    if isinstance(value, bytes):
        return value.decode()
    return None if value != value else value


if __name__ == "__main__":
    parser = argparse.ArgumentParser(parents=[kserve.model_server.parser])
    parser.add_argument("--model", required=True)
    given = parser.parse_args()
    model = SplinefmModel(given.model_name, given.model)
    model.load()
    kserve.ModelServer().start([model])
