"""Two servers for all tests of this folder: a plain one, and one with arms, a shadow and tokens."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import splinefm as sf

__all__ = ["commands_made_once", "run"]
from commands import commands_made_once, run
from live import ADMIN, TOKEN, LiveServer, as_columns, visits_model, visits_rows
from support import THOROUGH


@pytest.fixture(scope="session")
def visits():
    """The model of the plain server."""
    return visits_model()


@pytest.fixture(scope="session")
def index(visits):
    items = {"country": ["US", "FR", "DE", "US"], "device": ["phone", "desk", "phone", "desk"]}
    return sf.ItemIndex(visits, items, ids=[10, 20, 30, 40], groups=["a", "b", "a", "b"])


@pytest.fixture(scope="session")
def server(visits, index, tmp_path_factory):
    pytest.importorskip("uvicorn")
    folder = tmp_path_factory.mktemp("served")
    visits.save(folder / "model.sfm")
    index.save(folder / "items.sfi")
    pq.write_table(pa.table(as_columns(visits_rows(50, seed=9, hostile=False))), folder / "background.parquet")
    options = [
        "--host",
        "0.0.0.0",
        "--workers",
        2 if THOROUGH else 1,
        "--index",
        folder / "items.sfi",
        "--background",
        folder / "background.parquet",
        "--explore",
        "--admin-from-loopback",
    ]
    options += ["--max-rows", 2000, "--max-bulk-rows", 5000, "--max-body", 1 << 20, "--read-seconds", 1]
    live = LiveServer(folder / "model.sfm", *options, "--log", folder / "log")
    live.folder = folder
    yield live
    assert live.stop() == 0


@pytest.fixture(scope="session")
def split_server(tmp_path_factory):
    pytest.importorskip("uvicorn")
    folder = tmp_path_factory.mktemp("split")
    models = {name: visits_model(seed) for name, seed in (("control", 1), ("splines", 2), ("later", 3))}
    for name, model in models.items():
        model.save(folder / f"{name}.sfm")
    (folder / "tokens").write_text(f"# ours\n{TOKEN}\nadmin {ADMIN}\n")
    arms = ["--arm", f"control={folder}/control.sfm:90", "--arm", f"splines={folder}/splines.sfm:10"]
    arms += ["--shadow", f"later={folder}/later.sfm", "--key", "user"]
    live = LiveServer(*arms, "--tokens", folder / "tokens", "--log", folder / "log", "--log-rows", "--log-requests")
    live.folder, live.models = folder, models
    yield live
    assert live.stop() == 0
