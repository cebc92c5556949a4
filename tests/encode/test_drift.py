"""Warnings when a table differs from the training data."""

import warnings

import numpy as np
import pytest

import splinefm as sf
from splinefm.encode.drift import Tally, Watch, expected_shares

RNG = np.random.default_rng


def plain_table(n: int = 500, seed: int = 0) -> dict:
    """Rows of every kind of field."""
    rng = RNG(seed)
    return {
        "x": rng.normal(size=n),
        "c": rng.choice(["a", "b", "c"], n),
        "tags": [["u", "v"][: 1 + i % 2] for i in range(n)],
        "y": rng.integers(0, 2, n),
    }


@pytest.fixture(scope="module")
def fitted():
    return sf.fit_model(plain_table(), "y", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))


def message(fitted, table) -> str:
    """What the warning says."""
    with pytest.warns(sf.DriftWarning) as caught:
        fitted.scores(table)
    assert len(caught) == 1
    return str(caught[0].message)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"c": ["A", "B"] * 250}, "'c': 100% of the values are unseen, 0% in training, such as 'A', 'B'"),
        ({"x": RNG(1).normal(size=500) * 1000}, "'x': 9[0-9]% of the values are out of the range of training, 0.4%"),
        ({"x": [None] * 500}, "'x': 100% of the values are missing, 0% in training"),
        ({"c": [None, "a"] * 250}, "'c': 50% of the values are missing"),
        ({"tags": [["w"]] * 500}, "'tags': 100% of the values are unseen, 0% in training, such as 'w'"),
        ({"tags": [None] * 500}, "'tags': 100% of the values are missing"),
    ],
)
def test_what_is_unusual_is_told(fitted, change, words):
    with pytest.warns(sf.DriftWarning, match=words):
        fitted.predict({**plain_table(seed=5), **change})


def test_all_columns_are_in_one_warning(fitted):
    text = message(fitted, {**plain_table(), "x": [None] * 500, "c": ["new"] * 500})
    assert "'x'" in text and "'c'" in text and "'tags'" not in text


def test_rows_like_the_training_rows_are_no_reason(fitted):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(5):
            fitted.scores(plain_table(seed=10 + seed))
        fitted.scores({**plain_table(1), "c": ["new"]})  # a single row is no evidence


def test_it_can_be_turned_off(fitted):
    odd = {**plain_table(), "c": ["new"] * 500}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.scores(odd, watch=False)
        fitted.predict(odd, watch=False)


def test_new_identifiers_are_expected_as_good_and_turing_say():
    rng = RNG(0)
    ids = rng.zipf(1.3, 20_000).astype(str)
    for min_count in (1, 10):
        encoder = sf.fit_encoder(sf.Schema([sf.Categorical("id", min_count=min_count)]), {"id": ids[:10_000]})
        watch = Watch(encoder)
        encoder.encode({"id": ids[10_000:]}, watch=watch)
        odd = watch.odd[0].count / watch.odd[0].total
        assert odd > 0.02 and not watch.report()
        assert abs(odd - expected_shares(encoder, 0)[0]) < 0.02


@pytest.mark.parametrize("unseen", ["rare", "neutral", "hash"])
def test_unseen_values_are_counted_however_they_are_treated(unseen):
    schema = sf.Schema([sf.Categorical("c", unseen=unseen)])
    encoder = sf.fit_encoder(schema, {"c": ["a", "b", None] * 50})
    watch = Watch(encoder)
    encoder.encode({"c": ["a", "new", "new", None] * 25}, watch=watch)
    assert (watch.odd[0].count, watch.missing[0].count) == (50, 25)
    assert "'c': 50% of the values are unseen, 0% in training, such as 'new'" in watch.report()


def test_special_values_beyond_the_range_are_none_of_it():
    schema = sf.Schema([sf.Numerical("x", special=[999.0])])
    encoder = sf.fit_encoder(schema, {"x": [*range(100), 999]})
    assert encoder.ranges.tolist() == [[0.0, 99.0]]
    watch = Watch(encoder)
    encoder.encode({"x": [999.0] * 100}, watch=watch)
    assert not watch.report()


def test_text_that_is_no_number_is_shown():
    schema = sf.Schema([sf.Numerical("x", text="missing")])
    encoder = sf.fit_encoder(schema, {"x": [str(i) for i in range(100)]})
    watch = Watch(encoder)
    encoder.encode({"x": ["1,5 kg"] * 60 + ["3"] * 40}, watch=watch)
    assert watch.report() == ["'x': 60% of the values are missing, 0% in training, such as '1,5 kg'"]


def test_time_goes_on_and_cycles_have_no_ends():
    times = np.datetime64("2020-01-01T08:00") + np.arange(0, 60 * 24 * 800, 60 * 24)
    encoder = sf.fit_encoder(sf.Schema([sf.Timestamp("t")]), {"t": times})
    watch = Watch(encoder)
    encoder.encode({"t": times + np.timedelta64(5 * 365 * 24 * 60 + 300, "m")}, watch=watch)
    assert not watch.report()


def test_missing_dates_are_told_once():
    times = np.datetime64("2020-01-01T08:00") + np.arange(0, 60 * 24 * 800, 60 * 24)
    encoder = sf.fit_encoder(sf.Schema([sf.Timestamp("t")]), {"t": times})
    watch = Watch(encoder)
    encoder.encode({"t": [None] * 50}, watch=watch)
    assert watch.report() == ["'t': 100% of the values are missing, 0% in training"]


def test_updates_evaluations_and_catalogs_are_watched(fitted):
    odd = {**plain_table(), "c": ["new"] * 500}
    with pytest.warns(sf.DriftWarning, match="'c': 100% of the values are unseen"):
        sf.Learner(fitted).update(odd, "y")
    items = {"c": [f"new {i}" for i in range(50)], "id": range(50)}
    with pytest.warns(sf.DriftWarning, match="'c'"):
        index = sf.ItemIndex(fitted, items, ids="id")
    with pytest.warns(sf.DriftWarning, match="'x': 100% of the values are missing"):
        index.top_k({"x": [None] * 50, "tags": [["u"]] * 50}, k=1)


def test_a_catalog_may_have_many_new_items_but_not_only_new_ones(fitted):
    """A catalog has each item once, so that its shares differ from rows; ranges are compared."""
    items = {"c": ["a", "b", "c", *(f"new {i}" for i in range(40))], "id": range(43)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", sf.DriftWarning)
        sf.ItemIndex(fitted, items, ids="id")
    watch = Watch(fitted.encoder, each_once=True)
    table = plain_table()
    fitted.encoder.encode({**table, "x": np.asarray(table["x"]) + 1e6}, watch=watch)
    assert any("'x': 100% of the values are out of the range" in line for line in watch.report())


def test_shares_and_ranges_are_kept_with_the_model(fitted, tmp_path):
    fitted.save(tmp_path / "m.sfm")
    again = sf.load(tmp_path / "m.sfm")
    odd = {**plain_table(), "x": [None, 1e9] * 250, "c": ["new"] * 500}
    assert message(again, odd) == message(fitted, odd)


def test_the_share_must_exceed_chance_and_a_margin():
    assert Tally(5, 5).is_unusual(0.0) and not Tally(4, 4).is_unusual(0.0)
    assert not Tally(49, 1000).is_unusual(0.0) and Tally(51, 1000).is_unusual(0.0)
    assert not Tally(560, 1000).is_unusual(0.5) and Tally(700, 1000).is_unusual(0.5)
