"""The order in which categories are shown: the size of numbers, truth, the calendar; the vocabulary stays as it is."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.fields.vocabulary import natural_ranks


def shown(vocabulary, field=sf.Categorical):
    item = field("c", vocabulary=vocabulary)
    return [vocabulary[i] for i in item.display_order(np.arange(len(vocabulary)))]


@pytest.mark.parametrize("field", [sf.Categorical, sf.MultiValued])
@pytest.mark.parametrize(
    ("vocabulary", "expected"),
    [
        (["0", "7688", "15024", "99999", "594"], ["0", "594", "7688", "15024", "99999"]),
        (["10", "2", "-1.5", "1e3", ".5", "5."], ["-1.5", ".5", "2", "5.", "10", "1e3"]),
        (["2", "unknown", "10", "1"], ["1", "2", "10", "unknown"]),
        (["true", "false"], ["false", "true"]),
        (["True", "False", "maybe"], ["False", "True", "maybe"]),
        (["Sunday", "monday", "Sat", "Wednesday"], ["monday", "Wednesday", "Sat", "Sunday"]),
        (["Dec", "May", "January"], ["January", "May", "Dec"]),
        (["2024-10", "2023-12", "2024-02"], ["2023-12", "2024-02", "2024-10"]),
        (["2024-01-10 12:30:00", "2024-01-09"], ["2024-01-09", "2024-01-10 12:30:00"]),
        (["US", "FR", "1"], ["US", "FR", "1"]),
        (["b", "a"], ["b", "a"]),
        ([], []),
    ],
)
def test_categories_are_shown_in_the_order_of_what_they_say(field, vocabulary, expected):
    assert shown(vocabulary, field) == expected


@given(st.lists(st.one_of(st.integers(-(10**6), 10**6), st.floats(allow_nan=False, allow_infinity=False)), unique=True))
def test_numbers_are_shown_by_size(values):
    names = list(dict.fromkeys(map(str, values)))
    assert [float(name) for name in shown(names)] == sorted(float(name) for name in names)


@given(st.lists(st.text(), unique=True))
def test_ranks_are_of_all_names_or_of_none(names):
    ranks = natural_ranks(pa.array(names, pa.large_string()))
    assert ranks is None or (len(ranks) == len(names) and set(ranks) == set(range(max(ranks) + 1)))


def test_some_positions_are_chosen_first_and_then_ordered():
    item = sf.Categorical("code", vocabulary=["40", "50", "7", "60"])
    assert item.display_order([0, 2, 1]).tolist() == [2, 0, 1]
    assert item.vocabulary.names.to_pylist() == ["40", "50", "7", "60"]
