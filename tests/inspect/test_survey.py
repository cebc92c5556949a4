"""Groups of rows: intervals of numbers, frequent categories, and what is predicted and measured there."""

import json

import numpy as np
import pyarrow as pa
import pytest

import splinefm as sf
from splinefm.inspect import survey as survey_module
from splinefm.inspect.survey import NOTHING, OTHERS, make_tally


def test_a_column_is_cut_into_intervals_of_the_data():
    tally = make_tally(sf.Numerical("x", sf.MinMax(0, 100), special=[">= 90"]))
    x, ones = np.arange(0.0, 100.0), np.ones(100)
    for part in (slice(0, 30), slice(30, 100)):  # in chunks, which must not matter
        tally.add(pa.array(x[part]), ones[part], x[part], x[part], ones[part])
    groups = tally.groups()
    assert groups[0].name == "(>= 90)" and groups[0].rows == 10
    assert groups[1].name == "0 to 8" and groups[-1].name.endswith("to 89") and len(groups) == 11
    assert all(group.deviation == 0.0 and group.predicted == pytest.approx(group.measured) for group in groups)


def test_large_values_keep_their_digits():
    tally = make_tally(sf.Numerical("time", sf.MinMax(1.7e9, 1.8e9)))
    tally.add(pa.array([1_704_067_200.0, 1_704_067_201.0]), *[np.ones(2)] * 4)
    assert [group.name for group in tally.groups()] == ["1,704,067,200 to 1,704,067,201"]


def test_frequent_categories_are_told_apart_and_others_are_not(monkeypatch):
    monkeypatch.setattr(survey_module, "MAX_CATEGORIES", 2)
    tally = make_tally(sf.Categorical("c", vocabulary=["a", "b", "d", "e"], unseen="neutral"))
    ones = np.ones(6)
    tally.add(pa.array(["a", "d", "e", "new", None, "b"]), ones, ones, np.full(6, np.nan), ones)
    found = {group.name: group.rows for group in tally.groups()}
    assert found == {"(missing)": 1, "a": 1, "b": 1, OTHERS: 2, NOTHING: 1}
    assert tally.token_rows() == {"missing": 1, NOTHING: 1}


def test_groups_of_categories_are_in_their_order_and_all_others_last(monkeypatch):
    monkeypatch.setattr(survey_module, "MAX_CATEGORIES", 3)
    tally = make_tally(sf.Categorical("code", vocabulary=["10", "9", "100", "1"], unseen="neutral"))
    values, ones = ["100", "10", "9", "1", None, "new"], np.ones(6)
    tally.add(pa.array(values), ones, ones, np.full(6, np.nan), ones)
    assert [group.name for group in tally.groups()] == ["(missing)", "9", "10", "100", OTHERS, NOTHING]
    assert [group.name for group in survey_module.largest(tally.groups(), 2)] == ["(missing)", "9"]


@pytest.mark.parametrize(("loss", "variance"), [("squared", 4.0), ("poisson", 3.0), ("logistic", 0.1875)])
def test_the_variance_of_a_target_suits_the_loss(loss, variance):
    p = 0.25 if loss == "logistic" else 3.0
    assert survey_module._variance(sf.Loss(loss), np.array([p]), np.array([1.0])) == variance


def test_chunks_do_not_matter(run, model, data, monkeypatch):
    def numbers():
        facts = json.loads(run("explain", model, data, "--target", "click", "--json").stdout)
        return facts["metrics"], facts["importance"], facts["calibration"]["by_column"]

    whole = numbers()
    monkeypatch.setattr(survey_module, "ROWS", 70)
    for one, other in zip(whole, numbers(), strict=True):
        assert json.dumps(_rounded(one)) == json.dumps(_rounded(other))


def _rounded(value):
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 9) if isinstance(value, float) else value
