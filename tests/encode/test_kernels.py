"""Compiled loops against plain Python; the file also runs with NUMBA_DISABLE_JIT=1."""

import gc
import subprocess
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config, njit
from numba.core.errors import TypingError

from splinefm.encode import kernels
from splinefm.encode.pipeline import Short
from splinefm.encode.transforms import _make_guide
from splinefm.encode.vocabulary import Vocabulary, _count

words = st.lists(st.text(max_size=12), max_size=30)


# Hashing overflows on purpose; NumPy scalars warn about it where the loops run as plain Python.
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@settings(deadline=None)
@given(words.map(lambda names: sorted(set(names))), words)
def test_look_up_is_a_dictionary(known, asked):
    place = {name: i for i, name in enumerate(known)}
    found = Vocabulary(pa.array(known, pa.large_string())).find(pa.array(asked, pa.large_string()))
    assert found.tolist() == [place.get(name, -1) for name in asked]


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@settings(deadline=None)
@given(words, st.integers(0, 5), st.integers(0, 20))
def test_look_up_in_a_slice_of_an_array(asked, begin, length):
    asked = pa.array(asked, pa.large_string()).slice(begin, length)
    found = Vocabulary(pa.array(["", "a", "é"], pa.large_string())).find(asked)
    assert found.tolist() == [{"": 0, "a": 1, "é": 2}.get(name, -1) for name in asked.to_pylist()]


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@settings(deadline=None)
@given(st.lists(st.none() | st.sampled_from(["", "a", "b", "12345678", "123456789", "é"]) | st.text(max_size=3)))
def test_counting_is_that_of_a_counter(names):
    counted, count = _count(pa.array(names, pa.large_string()))
    found = dict(zip(counted.to_pylist(), count.to_pylist(), strict=True))
    assert found == dict(Counter(name for name in names if name is not None))


def interpolate(x, knots, values):
    out = np.empty(len(x))
    kernels.interpolate(x, knots, values, *_make_guide(knots), out)
    return out


@settings(deadline=None)
@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=40, unique=True).map(sorted),
    st.lists(st.floats(-2e6, 2e6), max_size=20),
    st.sampled_from([1.0, 1e-9, 1e250]),
    st.booleans(),
)
def test_interpolation_is_that_of_numpy(knots, x, scale, skewed):
    knots = np.array(knots) / 7.0
    knots = (np.sinh(knots / 1e4) if skewed else knots) * scale
    values = np.linspace(0.0, 1.0, len(knots))
    x = np.concatenate([np.array(x) * scale, knots, (knots[1:] + knots[:-1]) / 2])
    np.testing.assert_allclose(interpolate(x, knots, values), np.interp(x, knots, values), atol=1e-12)


def test_nan_stays_nan_and_infinity_is_beyond_the_ends():
    found = interpolate(np.array([np.nan, 0.5, np.inf, -np.inf]), np.array([0.0, 1.0]), np.array([0.25, 0.75]))
    np.testing.assert_array_equal(found, [np.nan, 0.5, 0.75, 0.25])


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=300), st.integers(8, 40))
def test_a_summary_keeps_ends_and_heavy_values_with_exact_ranks(x, capacity):
    x = np.sort(np.array(x, float))
    value, below, at = np.empty((3, capacity))
    kept = kernels.summarize_sorted(x, capacity, value, below, at)
    distinct, count = np.unique(x, return_counts=True)
    assert kept <= capacity
    if len(distinct) <= capacity:
        np.testing.assert_array_equal(value[:kept], distinct)
    assert set(distinct[count > len(x) / (capacity // 2)]) | {x[0], x[-1]} <= set(value[:kept])
    np.testing.assert_array_equal(below[:kept], np.searchsorted(x, value[:kept]))
    np.testing.assert_array_equal(at[:kept], [(x == v).sum() for v in value[:kept]])
    between = np.diff(below[:kept]) - at[: kept - 1]
    assert between.max(initial=0) <= 2 * len(x) / max(1, capacity // 2 - 3) + 1


def test_private_parts_of_numba_are_used_with_a_known_version_alone():
    code = (
        "import numba; numba.version_info = numba.version_info._replace(short=(0, 99));"
        "from splinefm.encode import pipeline; assert pipeline.Part is pipeline.Short"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize("collects", [True, False])
def test_compilation_leaves_the_collector_of_garbage_as_it_was(collects):
    during = []

    def known(x):
        return x + 1

    def unknown(x):
        return x.no_such_thing

    class Watched(Short):
        def define_pipelines(self):
            during.append(gc.isenabled())
            return super().define_pipelines()

    (gc.enable if collects else gc.disable)()
    try:
        assert njit(pipeline_class=Watched)(known)(2) == 3
        assert gc.isenabled() == collects
        with pytest.raises(TypingError):
            njit(pipeline_class=Watched)(unknown)(2)
        assert gc.isenabled() == collects and during and not any(during)
    finally:
        gc.enable()
