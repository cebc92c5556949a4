"""The loop of examples/hourly: what was served, hour by hour, is what one uninterrupted series of updates predicts."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import splinefm as sf
from splinefm.serve.feedback import read_log

HOURS, BAD = 4, 2
SMALL = {"log_days": 1, "log_auctions_per_hour": 150, "auctions_per_hour": 900, "k": 4, "epochs": 2, "campaigns": 8}
SMALL["rival_level"] = 0.3  # most auctions are won, so that few of them have many clicks
ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.filterwarnings("ignore::splinefm.DriftWarning"),
    pytest.mark.thorough,  # hours take seconds; servers, logs and updates have quicker tests of their own
]


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    pytest.importorskip("uvicorn")
    path = list(sys.path)
    from examples.hourly import run as hourly

    sys.path[:] = path  # the script adds the folder of the repository
    folder = tmp_path_factory.mktemp("hourly")
    options = hourly.Options(folder, hours=HOURS, bad_hours=(BAD,), settings=SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        return folder, hourly.simulate(options)


def lines_by_hour(folder):
    """Return predictions, rows and arms of every simulated hour, as the server has logged them."""
    found = [{"control": ([], []), "splines": ([], [])} for _ in range(HOURS)]
    for line in read_log(folder / "log"):
        if "predictions" in line:
            by_arm = found[int(line["id"][1:6]) - 24]
            arms = line["arms"] * len(line["rows"]) if len(line["arms"]) == 1 else line["arms"]
            for arm, row, prediction in zip(arms, line["rows"], line["predictions"], strict=True):
                by_arm[arm][0].append({name: value for name, value in row.items() if name != "user_id"})
                by_arm[arm][1].append(prediction)
    return found


def test_every_hour_is_served_by_the_model_of_the_hour_before(loop):
    folder, _ = loop
    served = lines_by_hour(folder)
    for arm in ("control", "splines"):
        learner, outcomes = sf.Learner.load(folder / f"{arm}.start.sfm"), []
        for hour in range(HOURS):
            rows, predictions = served[hour][arm]
            assert len(rows) > 200
            fitted = learner.fitted()
            scores = np.array([*map(fitted.scorer(), rows)], np.float32)
            assert predictions == fitted.loss.predict(scores.astype(np.float64)).tolist()
            before = learner.fitted(), learner.state()
            new = pq.read_table(folder / "new" / arm / f"{24 + hour:05}.parquet")
            try:
                learner.update(new, "click", guard=sf.Guard())
                outcomes.append("learned")
            except sf.UpdateRefused:
                learner = sf.Learner(before[0], None, before[1])
                outcomes.append("refused")
        assert outcomes == ["learned", "learned", "refused", "learned"]
        assert np.array_equal(sf.load(folder / f"{arm}.sfm").params["factors"], learner.fitted().params["factors"])
        assert (folder / f"{arm}.rejected.sfm").exists()


def test_the_report_has_what_was_shown_in_simulated_hours(loop):
    folder, found = loop
    rows = {(row["arm"], row["hour"]): row for row in found["report"]}
    for arm in ("control", "splines"):
        for hour in range(HOURS):
            new = pq.read_table(folder / "new" / arm / f"{24 + hour:05}.parquet")
            row = rows[arm, f"2024-01-02 {hour:02}:00"]
            assert row["rows"] == len(new) and row["outcomes"] == sum(new["click"].to_pylist())
        assert rows[arm, "all"]["rows"] == sum(rows[key]["rows"] for key in rows if key[0] == arm and key[1] != "all")
        assert found["value"][arm] > 0.0
    assert rows["control", f"2024-01-02 {BAD:02}:00"]["outcomes"] == 0


def test_users_keep_their_arm(loop):
    folder, _ = loop
    arm_of = {}
    for line in read_log(folder / "log"):
        if "predictions" in line:
            arms = line["arms"] * len(line["keys"]) if len(line["arms"]) == 1 else line["arms"]
            for key, arm in zip(line["keys"], arms, strict=True):
                assert arm_of.setdefault(key, arm) == arm
    share = sum(arm == "splines" for arm in arm_of.values()) / len(arm_of)
    assert 0.3 < share < 0.5
    assert "Traceback" not in (folder / "server.log").read_text()
    assert json.loads((folder / "server.log").read_text().splitlines()[0])["event"]
