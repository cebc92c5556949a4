"""The recipes of examples/serve for KServe and BentoML, with stand-ins for both: what they do with our service.

The stand-ins have what the recipes use; docs/serve.md says with which versions the recipes themselves were run.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from live import visits_model, visits_rows
from splinefm.serve import App

FOLDER = Path(__file__).parents[2] / "examples" / "serve"


class Tensor:
    """A tensor, given or answered."""

    def __init__(self, name, shape, datatype, values=None):
        self.name, self.shape, self.datatype, self.values = name, shape, datatype, values

    def as_numpy(self):
        return self.values

    def set_data_from_numpy(self, values, *, binary_data):
        self.values = values


class Model:
    """A model that is not ready."""

    def __init__(self, name):
        self.name, self.ready = name, False


def stand_in(monkeypatch, name, **members):
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def load(path):
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def model(tmp_path):
    fitted = visits_model(1)
    fitted.save(tmp_path / "model.sfm")
    return fitted, tmp_path / "model.sfm"


class Refused(Exception):
    pass


def test_kserve(monkeypatch, model):
    stand_in(
        monkeypatch, "kserve", Model=Model, InferOutput=Tensor, errors=SimpleNamespace(InvalidInput=Refused),
        InferResponse=lambda name, model, outputs: (name, model, outputs),
    )  # fmt: skip
    fitted, path = model
    served = load(FOLDER / "kserve_model.py").SplinefmModel("visits", str(path))
    assert served.load() and served.ready
    try:
        rows = visits_rows(4, hostile=False)
        expected = fitted.predict({name: [row[name] for row in rows] for name in rows[0]})
        np.testing.assert_array_equal(served.predict({"instances": rows})["predictions"], expected)
        row = rows[0] | {"price": None}
        values = {
            name: np.array([[np.nan if name == "price" else row[name]]], object) for name in row if name != "tags"
        }
        values = {name: one.astype(float) if name in ("recency", "price") else one for name, one in values.items()}
        values["country"][0, 0] = row["country"].encode()
        tags = np.empty((1, 1), object)
        tags[0, 0] = row["tags"]
        inputs = [Tensor(name, [1, 1], "", one) for name, one in (values | {"tags": tags}).items()]
        name, of, (score, prediction) = served.predict(SimpleNamespace(id=None, inputs=inputs))
        assert len(name) == 32 and of == "visits" and (score.datatype, prediction.datatype) == ("FP32", "FP64")
        assert prediction.values == fitted.predict({column: [value] for column, value in row.items()})
        assert served.predict(SimpleNamespace(id="r1", inputs=inputs))[0] == "r1"
        with pytest.raises(Refused, match="no column 'price'"):
            served.predict({"instances": [{name: row[name] for name in row if name != "price"}]})
    finally:
        served.service.close()


def test_bentoml(monkeypatch, model):
    mounted = []
    stand_in(
        monkeypatch, "bentoml", service=lambda **_: lambda found: found, api=lambda function: function,
        asgi_app=lambda app, path: mounted.append((app, path)) or (lambda found: found),
        exceptions=SimpleNamespace(InvalidArgument=Refused),
    )  # fmt: skip
    fitted, path = model
    monkeypatch.setenv("MODEL", str(path))
    for name in ("INDEX", "FOLDER", "LOG"):
        monkeypatch.delenv(name, raising=False)
    service = load(FOLDER / "bento_service.py").Splinefm()
    ((app, where),) = mounted
    assert isinstance(app, App) and where == "/splinefm"
    try:
        rows = visits_rows(4, hostile=False)
        found = service.score(rows)
        expected = fitted.predict({name: [row[name] for row in rows] for name in rows[0]})
        np.testing.assert_array_equal(found["predictions"], expected)
        assert list(found["versions"]) == ["default"]
        with pytest.raises(Refused, match="row 0"):
            service.score([{}])
        with pytest.raises(LookupError, match="no index"):
            service.rank({})
    finally:
        app.close()
