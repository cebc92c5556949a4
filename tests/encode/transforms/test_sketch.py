"""The quantile summary keeps its promises: exact where it can be, within its stated bound elsewhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splinefm.encode.transforms.sketch import QuantileSketch, summarize
from support import examples

finite = st.floats(allow_nan=False, allow_infinity=False)
columns = st.lists(finite, min_size=1, max_size=60).map(np.array)


def sketch_of(*blocks, capacity=4096):
    sketch = QuantileSketch(capacity)
    for block in blocks:
        sketch.update(block)
    return sketch


def true_ranks(x, at):
    return np.array([(x < value).sum() for value in at]), np.array([(x == value).sum() for value in at])


@given(columns, st.lists(finite, min_size=1).map(np.array))
def test_below_capacity_ranks_of_kept_values_are_exact(x, _):
    summary = sketch_of(x).summary()
    below, at = summary.rank(summary.value)
    expected_below, expected_at = true_ranks(x, summary.value)
    np.testing.assert_array_equal(below, expected_below)
    np.testing.assert_array_equal(at, expected_at)
    assert summary.value[0] == x.min() and summary.value[-1] == x.max()


@given(st.lists(columns, min_size=2, max_size=6))
def test_merging_exact_parts_gives_the_whole(parts):
    whole = summarize(np.concatenate(parts))
    one = sketch_of(*parts).summary()
    left, right = sketch_of(*parts[:1]), sketch_of(*parts[1:])
    left.merge(right)
    for summary in (one, left.summary()):
        np.testing.assert_array_equal(summary.value, whole.value)
        np.testing.assert_array_equal(summary.at, whole.at)
        np.testing.assert_array_equal(summary.below, whole.below)
        assert summary.error == 0.0


@examples(30)
@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from(["normal", "cauchy", "counts", "sorted"]))
def test_ranks_are_within_the_stated_error(seed, n_blocks, kind):
    rng = np.random.default_rng(seed)
    size = 500 * n_blocks
    x = {
        "normal": lambda: rng.normal(size=size),
        "cauchy": lambda: rng.standard_cauchy(size),
        "counts": lambda: rng.poisson(rng.lognormal(3, 2, size)).astype(float),
        "sorted": lambda: np.sort(rng.random(size)),
    }[kind]()
    sketch = sketch_of(*np.split(x, n_blocks), capacity=64)
    asked = np.concatenate([rng.choice(x, 50), np.linspace(x.min(), x.max(), 50)])
    below, _ = sketch.summary().rank(asked)
    expected, _ = true_ranks(x, asked)
    assert np.abs(below - expected).max() <= sketch.rank_error() * size + 1e-6
    assert sketch.rank_error() < 0.5


def test_the_bound_is_useful_at_the_real_capacity():
    rng = np.random.default_rng(0)
    x = rng.lognormal(0, 2, 1_000_000)
    sketch = sketch_of(*np.array_split(x, 16))
    assert 0.0 < sketch.rank_error() < 0.005
    asked = rng.choice(x, 1000)
    below, _ = sketch.summary().rank(asked)
    measured = np.abs(below - np.searchsorted(np.sort(x), asked)) / len(x)
    assert measured.max() < 5e-4


def test_heavy_values_keep_their_exact_count():
    rng = np.random.default_rng(0)
    x = rng.random(200_000)
    x[rng.random(len(x)) < 0.1] = 0.25
    sketch = sketch_of(*np.array_split(x, 7))
    _, at = sketch.summary().rank(np.array([0.25]))
    assert at[0] == (x == 0.25).sum()


def test_capacity_is_kept_and_points_stand_for_all_rows():
    x = np.random.default_rng(0).normal(size=50_000)
    summary = sketch_of(*np.array_split(x, 11), capacity=100).summary()
    value, weight = summary.points()
    assert len(value) <= 100
    assert weight.sum() == pytest.approx(50_000)
    assert (np.diff(value) > 0).all() and (weight >= 0).all()


def test_the_same_blocks_give_the_same_sketch():
    x = np.random.default_rng(0).normal(size=50_000)
    first, second = (sketch_of(*np.array_split(x, 5), capacity=100).summary() for _ in range(2))
    np.testing.assert_array_equal(first.value, second.value)
    np.testing.assert_array_equal(first.below, second.below)


def test_extreme_values_do_not_overflow():
    largest = np.finfo(float).max
    sketch = sketch_of(np.array([-largest, largest]), np.array([0.0, -0.0]))
    np.testing.assert_array_equal(sketch.summary().value, [-largest, 0.0, largest])


def test_an_empty_sketch_has_no_summary():
    sketch = sketch_of(np.zeros(0))
    assert sketch.summary() is None and sketch.rank_error() == 0.0
