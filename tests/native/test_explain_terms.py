"""The border of the loops of explanations: wrong arrays raise, and never crash; any k agrees."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splinefm import _core
from support import examples

# Fields of 6, 5 and 4 features: a spline window, three units of one feature, two windows of one unit.
LAYOUT = {
    "weight_ptr": np.array([0, 4, 5, 6, 7, 8, 10], np.int32),
    "window_unit": np.array([0, 1, 2, 3, 4, 4], np.int32),
    "unit_field": np.array([0, 1, 1, 1, 2], np.int32),
}
ROW_PTR, WIDTHS, N_FIELDS = [0, 6, 11, 15], [4, 1, 1, 1, 1, 2], 3
MODELS = ["fm", "fwfm", "fmfm", "ffm"]


def make_source(model, k, seed=0):
    rng = np.random.default_rng(seed)
    width = N_FIELDS * k if model == "ffm" else k
    n_between = {"fwfm": N_FIELDS**2, "fmfm": (N_FIELDS * k) ** 2}.get(model, 0)
    sizes = {"linear": ROW_PTR[-1], "between": n_between, "center": N_FIELDS * width, "slope": N_FIELDS * width}
    arrays = {name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    return {"model": model, "k": k, **LAYOUT, "factors": rng.normal(size=(15, width)).astype(np.float32), **arrays}


def make_rows(n, seed=1):
    rng = np.random.default_rng(seed)
    field_of = LAYOUT["unit_field"][LAYOUT["window_unit"]]
    pairs = zip(field_of, WIDTHS, strict=True)
    columns = [rng.integers(ROW_PTR[f], ROW_PTR[f + 1] - width + 1, n) for f, width in pairs]
    return np.stack(columns, axis=1).astype(np.int32), rng.random((n, 10)).astype(np.float32)


def by_hand(source, start, weight):
    """Own parts, terms, effects and vectors of rows, from their definitions in float64."""
    model, k = source["model"], source["k"]
    T, L = source["factors"].astype(float), source["linear"].astype(float)
    width = T.shape[1]
    center, slope = (source[name].reshape(N_FIELDS, width).astype(float) for name in ("center", "slope"))

    def between(f, e):
        if model == "fwfm":
            return source["between"].reshape(N_FIELDS, N_FIELDS)[f, e] * np.eye(k)
        return source["between"].reshape(N_FIELDS, N_FIELDS, k, k)[f, e] if model == "fmfm" else np.eye(k)

    def part(vector, f):
        return vector[f * k : (f + 1) * k] if model == "ffm" else vector

    inner, terms, effects, vectors = [], [], [], []
    for i in range(len(start)):
        P, linear = np.zeros((5, width)), np.zeros(N_FIELDS)
        for w, u in enumerate(LAYOUT["window_unit"]):
            for j in range(WIDTHS[w]):
                x = weight[i, LAYOUT["weight_ptr"][w] + j]
                P[u] += x * T[start[i, w] + j]
                linear[LAYOUT["unit_field"][u]] += x * L[start[i, w] + j]
        z = np.array([P[:1].sum(0), P[1:4].sum(0), P[4:].sum(0)]) - center
        a = linear.copy()
        for u, v in itertools.combinations((1, 2, 3), 2):
            a[1] += part(P[u], 1) @ between(1, 1) @ part(P[v], 1)
        main = a + (z * slope).sum(axis=1)
        pairs = {(f, e): part(z[f], e) @ between(f, e) @ part(z[e], f) for f, e in [(0, 1), (0, 2), (1, 2)]}
        inner.append(a)
        terms.append([main[f] + sum(0.5 * pair for key, pair in pairs.items() if f in key) for f in range(N_FIELDS)])
        effects.append([*main, *pairs.values()])
        vectors.append(z)
    return {"inner": inner, "terms": terms, "effects": effects, "vectors": vectors}


def without_slope_inside(source):
    """The slope of an FFM has no part for the field itself."""
    if source["model"] == "ffm":
        for f in range(N_FIELDS):
            source["slope"].reshape(N_FIELDS, N_FIELDS, -1)[f, f] = 0.0
    return source


def ask(terms, what, start, weight, width):
    if what == "vectors":
        out = np.full((len(start), N_FIELDS, width), np.nan, np.float32)
        terms.vectors(start, weight, out)
    else:
        out = np.full((len(start), 6 if what == "effects" else 3), np.nan)
        getattr(terms, what)(start, weight, np.array([1.0, 2.0, 3.0]), out)
        out[:, :3] += [1.0, 2.0, 3.0]
    return out


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 7, 8, 9, 10, 16, 20, 32, 33])
def test_any_length_of_vectors_equals_the_definitions(model, k):
    source = without_slope_inside(make_source(model, k))
    start, weight = make_rows(7)
    terms = _core.ExplainTerms(**source, threads=1)
    for what, expected in by_hand(source, start, weight).items():
        found = ask(terms, what, start, weight, source["factors"].shape[1])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4, err_msg=what)


@pytest.mark.parametrize("model", MODELS)
def test_threads_change_no_bit(model):
    source, (start, weight) = make_source(model, 10), make_rows(1500)
    one, three = (_core.ExplainTerms(**source, threads=threads) for threads in (1, 3))
    for what in ("inner", "terms", "effects", "vectors"):
        found = [ask(terms, what, start, weight, source["factors"].shape[1]) for terms in (one, three)]
        np.testing.assert_array_equal(*found)


def test_nan_stays_visible():
    source, (start, weight) = make_source("fwfm", 8), make_rows(3)
    source["factors"][start[1, 0]] = np.nan
    found = ask(_core.ExplainTerms(**source, threads=1), "terms", start, weight, 8)
    assert np.isnan(found[1]).any()


def terms_by_model():
    """For test_isas.py, which compares the results of each instruction set."""
    (start, weight), found = make_rows(9), {}
    for model, k, what in itertools.product(MODELS, (3, 8, 16, 32), ("effects", "terms")):
        terms = _core.ExplainTerms(**make_source(model, k), threads=1)
        found[f"{what} of {model}, {k}"] = ask(terms, what, start, weight, k)
    return found


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)
    other = np.ndarray(array.shape, array.dtype, memory, 1)
    other[...] = array
    return other


# What is no longer the array that was asked for. Those that are read may be read-only.
WRONG = {
    "another dtype": lambda array: array.astype(np.float16),
    "doubles or singles": lambda array: array.astype(np.float32 if array.dtype == np.float64 else np.float64),
    "another byte order": lambda array: array.astype(array.dtype.newbyteorder()),
    "too long": lambda array: np.concatenate([array, array[-1:]]),
    "too short": lambda array: array[:-1].copy(),
    "empty": lambda array: array[:0].copy(),
    "one more dimension": lambda array: array[None].copy(),
    "one dimension": lambda array: array.ravel() if array.ndim > 1 else array[:, None].copy(),
    "strides": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "backwards": lambda array: array[::-1],
    "unaligned": unaligned,
    "a list": lambda array: array.tolist(),
    "nothing": lambda array: None,
}


@examples(300)
@given(
    st.sampled_from(MODELS),
    st.sampled_from([1, 3, 4, 8, 16]),
    st.sampled_from([*LAYOUT, "factors", "linear", "between", "center", "slope"]),
    st.sampled_from(sorted(WRONG)),
)
def test_wrong_parameters_raise(model, k, name, wrong):
    source = make_source(model, k)
    if not source[name].size:
        return
    source[name] = WRONG[wrong](source[name])
    with pytest.raises((TypeError, ValueError)):
        _core.ExplainTerms(**source, threads=1)


@examples(300)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(["inner", "terms", "effects", "vectors"]),
    st.sampled_from(["start", "weight", "offset", "out"]),
    st.sampled_from([*sorted(WRONG), "read-only"]),
)
def test_wrong_rows_raise(model, what, name, wrong):
    source, (start, weight) = make_source(model, 4), make_rows(5)
    terms = _core.ExplainTerms(**source, threads=1)
    out = np.zeros((5, 6 if what == "effects" else 3))
    arguments = {"start": start, "weight": weight, "offset": np.zeros(3), "out": out}
    if what == "vectors":
        arguments["out"] = np.zeros((5, 3, source["factors"].shape[1]), np.float32)
        del arguments["offset"]
        if name == "offset":
            return
    if wrong == "read-only" and name != "out":
        arguments[name] = read_only(arguments[name])
        getattr(terms, what)(**arguments)
        return
    arguments[name] = (read_only if wrong == "read-only" else WRONG[wrong])(arguments[name])
    with pytest.raises((TypeError, ValueError)):
        getattr(terms, what)(**arguments)


@examples(200)
@given(st.data(), st.sampled_from(MODELS), st.sampled_from(["inner", "terms", "effects", "vectors"]), st.integers(1, 3))
def test_windows_outside_of_the_table_raise(data, model, what, threads):
    start, weight = make_rows(600)
    w = data.draw(st.integers(0, 5))
    beyond = st.integers(16 - WIDTHS[w], 2**31 - 1) | st.integers(-(2**31), -1)
    start[data.draw(st.integers(0, 599)), w] = data.draw(beyond)
    source = make_source(model, 4)
    terms = _core.ExplainTerms(**source, threads=threads)
    with pytest.raises(IndexError, match="start has features that do not exist"):
        ask(terms, what, start, weight, source["factors"].shape[1])


@examples(200)
@given(st.data(), st.sampled_from(list(LAYOUT)))
def test_layouts_that_contradict_themselves_raise(data, name):
    numbers = LAYOUT[name].copy()
    i = data.draw(st.integers(0, len(numbers) - 1))
    numbers[i] = data.draw(st.integers(-(2**31), 2**31 - 1))
    source = make_source("fwfm", 4) | {name: numbers}
    try:
        terms = _core.ExplainTerms(**source, threads=1)
    except ValueError:
        return
    # What is left is another layout: rows are checked against it.
    start, weight = make_rows(5)
    try:
        terms.terms(start, weight, np.zeros(3), np.zeros((5, 3)))
    except (IndexError, ValueError):
        return


def test_no_rows():
    source, (start, weight) = make_source("fmfm", 4), make_rows(0)
    assert ask(_core.ExplainTerms(**source, threads=2), "terms", start, weight, 4).shape == (0, 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "svm"}, "model must be one of fm, fwfm, low_rank, fmfm, ffm, higher, got 'svm'"),
        ({"model": "higher"}, "products of more than two units"),
        ({"k": 0}, "k must be at least 1"),
        ({"k": -4}, "k must be at least 1"),
        ({"k": 2**62}, "width of the model"),
        ({"k": 5}, "width of the model"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
    ],
)
def test_wrong_numbers_raise(wrong, message):
    for model in ("fm", "ffm"):
        with pytest.raises(ValueError, match=message):
            _core.ExplainTerms(**{**make_source(model, 4), "threads": 1, **wrong})
