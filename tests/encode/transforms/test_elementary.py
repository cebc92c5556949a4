"""Elementary functions have the bits of the C library, whatever NumPy does on this processor; arcsinh has its own."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm import _core
from splinefm.encode.transforms import scaling as elementary


def arcsinh(x):
    """The formulas of fdlibm, as in glibc 2.36."""
    z = abs(x)
    if z < 2.0**-28:
        return x
    nearly = 1.0 + 2.0**-20  # they are chosen by the first 20 bits
    if z >= 2.0**28 * nearly:
        w = math.log(z) + math.log(2.0)
    elif z >= 2.0 * nearly:
        w = math.log(2.0 * z + 1.0 / (math.sqrt(z * z + 1.0) + z))
    else:
        w = math.log1p(z + z * z / (1.0 + math.sqrt(1.0 + z * z)))
    return math.copysign(w, x)


POSITIVE = st.floats(1e-300, 1e300)
SMALL = st.floats(-700.0, 700.0)
FUNCTIONS = {
    "log": (math.log, POSITIVE),
    "log1p": (math.log1p, POSITIVE),
    "exp": (math.exp, SMALL),
    "expm1": (math.expm1, SMALL),
    "arcsinh": (arcsinh, st.floats(-1e300, 1e300) | st.floats(-100.0, 100.0)),
    "arctan": (math.atan, st.floats(-1e300, 1e300)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
def test_they_are_those_of_the_c_library(name, data):
    function, values = FUNCTIONS[name]
    # Vectors of NumPy hold eight numbers, and what is left over may go another way.
    x = np.array(data.draw(st.lists(values, min_size=1, max_size=40)))
    expected = np.array([function(value) for value in x.tolist()])
    np.testing.assert_array_equal(getattr(elementary, name)(x), expected)
    np.testing.assert_array_equal(getattr(elementary, name)(x[:, None, None])[:, 0, 0], expected)
    assert getattr(elementary, name)(float(x[0])) == expected[0]


@given(st.lists(st.floats(1e-20, 1e20), min_size=1, max_size=40), st.floats(-3.0, 3.0))
def test_powers_too(x, exponent):
    expected = [value**exponent for value in x]
    np.testing.assert_array_equal(elementary.power(x, exponent), expected)


def test_what_is_not_a_number_stays():
    np.testing.assert_array_equal(elementary.log([np.nan, 0.0, -1.0, np.inf]), [np.nan, -np.inf, np.nan, np.inf])
    special = [np.nan, -np.inf, np.inf, -0.0, 5e-324]
    np.testing.assert_array_equal(np.signbit(elementary.arcsinh(special)[1:]), np.signbit(special[1:]))
    np.testing.assert_array_equal(elementary.arcsinh(special), special)


def test_arcsinh_has_the_same_bits_with_every_c_library():
    """In models that were fitted with glibc 2.36; 2.43 rounds all of these differently."""
    x = np.array([6.0, 14.0, 31.0])
    assert [value.hex() for value in elementary.arcsinh(x).tolist()] == [
        "0x1.3ef2a467f8864p+1",
        "0x1.aaaf64c0ced0dp+1",
        "0x1.08273af6da849p+2",
    ]


def test_an_unknown_function_is_refused():
    with pytest.raises(ValueError, match="no function is called sqrt"):
        _core.elementary("sqrt", np.ones(3))


@given(st.lists(st.integers(1, 10**6), min_size=3, max_size=60, unique=True))
def test_a_count_on_an_edge_belongs_to_the_bin_on_its_right_on_every_processor(counts):
    """The model files of this test would be read on another machine: the formula in Python stands for that one."""
    low, high = float(min(counts)), float(max(counts))
    transform = sf.ArcsinhSquare(low=low, high=high)

    def w(x):
        return arcsinh(x) * arcsinh(x)

    start, stop = w(low), w(high)
    there = [min(1.0, (w(count) - start) / (stop - start)) for count in counts]
    np.testing.assert_array_equal(transform(np.array(counts, np.float64)), there)
