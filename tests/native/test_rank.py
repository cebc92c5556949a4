"""Search through a catalog and the table of ids: against a sort and a dict, and arrays that do not fit."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splinefm._core import TOGETHER, IdTable, TopK
from support import examples

NOTHING, ALL = np.zeros(0, np.uint8), np.zeros(0, np.int32)
ANY = {"keep": NOTHING, "codes": ALL, "wanted": NOTHING}  # no filter
TYPES = {"float32": np.float32, "float16": np.uint16, "int8": np.int8}


def make_vectors(rng, dtype, n_panels, length, size, n_rows):
    """Panels with the lines that they stand for; few different ones, so that scores are often equal."""
    lines = rng.integers(-3, 4, (n_panels * size, length)).astype(np.float32)
    scales = np.zeros(0, np.float32)
    if dtype == "int8":
        scales = rng.choice(np.array([0.5, 1.0], np.float32), n_panels * size)
    stored = lines.astype(dtype).view(TYPES[dtype])
    panels = np.ascontiguousarray(stored.reshape(n_panels, size, length).transpose(0, 2, 1))
    offsets = rng.choice(np.array([0.0, 1.0, -np.inf], np.float32), n_panels * size)
    meaning = lines * scales[:, None] if len(scales) else lines
    return TopK.vectors(panels, scales, offsets, n_rows), meaning[:n_rows], offsets[:n_rows]


def expected(scores, k):
    """All rows from the k-th best score up."""
    rows = np.flatnonzero(scores > -np.inf)
    if len(rows) > k:
        rows = rows[scores[rows] >= np.sort(scores[rows])[-k]]
    return dict(zip(rows.tolist(), scores[rows].tolist(), strict=True))


@examples(60)
@given(st.data())
def test_the_best_are_those_of_a_sort(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_panels, length, size = (
        data.draw(st.integers(1, 4)),
        data.draw(st.integers(0, 9)),
        64 * data.draw(st.integers(1, 3)),
    )
    n_rows = 64 * data.draw(st.integers(1, n_panels * size // 64))
    items, vectors, offsets = make_vectors(rng, data.draw(st.sampled_from(list(TYPES))), n_panels, length, size, n_rows)
    n = data.draw(st.integers(1, 5))
    queries, constants = rng.integers(-2, 3, (n, length)).astype(np.float32), np.arange(n).astype(np.float32)
    keep = rng.integers(0, 2, n_rows).astype(np.uint8) if data.draw(st.booleans()) else NOTHING
    codes, wanted = (
        rng.integers(-1, 3, n_rows).astype(np.int32),
        np.array([0, 1, 1], np.uint8)[: data.draw(st.sampled_from([0, 2, 3]))],
    )
    passing = np.ones(n_rows, bool) if not len(keep) else keep > 0
    if len(wanted):
        passing &= np.append(wanted, [0, 0])[codes] > 0
    visit = np.flatnonzero(rng.integers(0, 4, -(-n_rows // size)))
    passing &= np.isin(np.arange(n_rows) // size, visit)
    k, threads = data.draw(st.integers(1, n_rows)), data.draw(st.integers(1, 3))
    capacity = k + data.draw(st.integers(2, n_rows))
    found = items.search(
        queries, constants, k=k, capacity=capacity, visit=visit, keep=keep, codes=codes, wanted=wanted, threads=threads
    )
    for query, constant, (scores, rows) in zip(queries, constants, found, strict=True):
        every = np.where(passing, vectors @ query + (offsets + constant), -np.inf)
        assert dict(zip(rows.tolist(), scores.tolist(), strict=True)) == expected(every, k)
        assert len(set(rows.tolist())) == len(rows)


@examples(60)
@given(st.data())
def test_sums_of_effects_are_those_of_the_formula(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_panels, size, n_rows = 2, 64, 64 * data.draw(st.integers(1, 2))
    widths = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))  # 0: one weight of 1
    windows, first, place = [], 0, 0
    for width in widths:
        last = data.draw(st.integers(0, 20))
        windows.append([first, last, max(width, 1), place if width else -1])
        first, place = first + last + max(width, 1), place + width
    starts = rng.integers(-5, 30, (n_panels, len(widths), size)).astype(np.int32)  # some are outside
    weights = rng.integers(-2, 3, (n_panels, place, size)).astype(np.float32)
    offsets, n = rng.integers(-2, 3, n_panels * size).astype(np.float32), data.draw(st.integers(1, TOGETHER))
    effects = rng.integers(-3, 4, (first, 1 if n == 1 else TOGETHER)).astype(np.float32)
    items = TopK.effects(starts, weights, np.array(windows), offsets, n_rows)
    k = data.draw(st.integers(1, n_rows))
    constants = np.zeros(n, np.float32)
    visit = np.arange(-(-n_rows // size))
    found = items.search(
        effects, constants, k=k, capacity=k + data.draw(st.integers(2, 99)), visit=visit, **ANY, threads=2
    )
    for q, (scores, rows) in enumerate(found):
        every = offsets[:n_rows].copy()
        for w, (begin, last, width, at) in enumerate(windows):
            places = begin + np.minimum(starts[:, w].view(np.uint32), last).reshape(-1)[:n_rows]
            for j in range(width):
                factor = 1.0 if at < 0 else weights[:, at + j].reshape(-1)[:n_rows]
                every += factor * effects[places + j, q]
        assert dict(zip(rows.tolist(), scores.tolist(), strict=True)) == expected(every, k)


def test_all_halves_are_those_of_numpy():
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[np.isfinite(bits.view(np.float16))]
    bits = np.append(bits, np.zeros(-len(bits) % 64, np.uint16))
    n = len(bits)
    items = TopK.vectors(bits.reshape(1, 1, n), np.zeros(0, np.float32), np.zeros(n, np.float32), n)
    ((scores, rows),) = items.search(
        np.ones((1, 1), np.float32),
        np.zeros(1, np.float32),
        k=n,
        capacity=2 * n,
        visit=np.zeros(1, np.int64),
        **ANY,
        threads=1,
    )
    np.testing.assert_array_equal(scores[np.argsort(rows)], bits.view(np.float16).astype(np.float32))


def test_more_equal_scores_than_there_is_room():
    n = 64 * 50
    for value in (0.0, 1.0, -1.0):
        panels = np.full((50, 1, 64), value, np.float32)
        items = TopK.vectors(panels, np.zeros(0, np.float32), np.zeros(n, np.float32), n)
        for queries in (1, 3):
            found = items.search(
                np.ones((queries, 1), np.float32),
                np.zeros(queries, np.float32),
                k=5,
                capacity=20,
                visit=np.arange(50),
                **ANY,
                threads=2,
            )
            for scores, rows in found:
                assert (scores == value).all() and sorted(rows.tolist()) == list(range(n))


def test_effects_of_table_rows():
    rng = np.random.default_rng(0)
    panels, queries = rng.normal(size=(2, 5, 64)).astype(np.float32), rng.normal(size=(3, 5)).astype(np.float32)
    out = np.zeros((130, 3), np.float32)
    TopK.effects_of(panels, 128, queries, out)
    np.testing.assert_allclose(out[:128], panels.transpose(0, 2, 1).reshape(128, 5) @ queries.T, rtol=1e-4, atol=1e-5)
    assert not out[128:].any()


@examples(60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 200)), max_size=80), st.integers(1, 3), st.integers(1, 40))
def test_a_table_of_ids_is_a_dict(steps, width, distinct):
    """Rows come and go; ids repeat, and words become wider at the end."""
    words = np.zeros((201, width), np.uint64)
    words[:, -1] = np.arange(201) % distinct
    table, known = IdTable(), {}
    for enters, row in steps:
        name, one = row % distinct, np.array([row])
        if enters:
            assert table.insert(words, one) == (row if name in known else -1)
            known.setdefault(name, row)
        else:
            table.erase(words, one)
            known = {key: value for key, value in known.items() if value != row}
    wanted = np.zeros((distinct, width), np.uint64)
    wanted[:, -1] = np.arange(distinct)
    assert table.find(words, wanted).tolist() == [known.get(name, -1) for name in range(distinct)]
    wider, more = (np.pad(ids, ((0, 0), (0, 1))) for ids in (words, wanted))
    table.rebuild(wider)
    assert table.find(wider, more).tolist() == [known.get(name, -1) for name in range(distinct)]


def test_the_first_repeated_id():
    words = np.array([[5], [6], [5], [6]], np.uint64)
    assert IdTable().insert(words, np.arange(4)) == 2
    assert IdTable().insert(words, np.arange(2)) == -1


def good_ids():
    table, words = IdTable(), np.arange(100, dtype=np.uint64).reshape(50, 2)
    table.insert(words, np.arange(0, 40))
    return table, words


def good_search(form):
    """Arguments that fit, of the constructor and of a search."""
    last = [np.zeros(2, np.int64), np.ones(128, np.uint8), np.zeros(128, np.int32), np.ones(1, np.uint8)]
    if form == "effects":
        first = {
            "starts": np.zeros((2, 2, 64), np.int32),
            "weights": np.zeros((2, 3, 64), np.float32),
            "windows": np.array([[0, 4, 1, -1], [5, 2, 3, 0]]),
        }
        requests = np.zeros((10, TOGETHER), np.float32)
    else:
        panels = np.zeros((2, 3, 64), TYPES[form])
        first = {"panels": panels, "scales": np.zeros(128 * (form == "int8"), np.float32)}
        requests = np.zeros((2, 3), np.float32)
    first |= {"offsets": np.zeros(128, np.float32), "n_rows": 128}
    names = ["requests", "constants", "k", "capacity", "visit", "keep", "codes", "wanted", "threads"]
    second = dict(zip(names, [requests, np.zeros(2, np.float32), 3, 9, *last, 2], strict=True))
    return first, second


def build(form):
    return TopK.effects if form == "effects" else TopK.vectors


FORMS = [*TYPES, "effects"]
SEARCHES = [(form, name) for form in FORMS for part in good_search(form) for name in part]


def spoiled(value):
    """Values of the wrong type, shape, order or range, and random ones that may fit."""
    if isinstance(value, int):
        return st.one_of(
            st.integers(-(2**70), 2**70), st.sampled_from([-1, 0, 1, 2, 63, 64, 65, 192, 2**31, 2**62, None, "x", 1.5])
        )
    array = np.ascontiguousarray(value)
    wide = np.zeros((*array.shape, 2), array.dtype)
    shifted = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    kinds = [
        array.astype(np.complex64),
        array.astype(np.float64) if array.dtype != np.float64 else array.astype(np.int16),
        array.tolist(),
        wide[..., 0],
        wide,
        array[..., :-1],
        array[:-1],
        array[:0],
        np.asfortranarray(np.stack([array, array])),
        None,
        "x",
    ]
    if array.itemsize > 1:
        kinds.append(shifted)
    whole = [array.astype(array.dtype.newbyteorder())]
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        ends = st.sampled_from([limits.min, limits.max, 0, 1, 2, 3, 7, limits.max // 2])
        filled = st.lists(ends, min_size=array.size, max_size=array.size)
        return st.one_of(
            st.sampled_from(kinds + whole), filled.map(lambda all: np.array(all, array.dtype).reshape(array.shape))
        )
    return st.one_of(
        st.sampled_from(kinds + whole), st.sampled_from([np.full_like(array, np.nan), np.full_like(array, np.inf)])
    )


@examples(400)
@given(st.data(), st.sampled_from(SEARCHES))
def test_arrays_that_do_not_fit_raise(data, case):
    form, name = case
    first, second = good_search(form)
    part = first if name in first else second
    part[name] = data.draw(spoiled(part[name]))
    try:
        found = build(form)(**first).search(**second)
    except (TypeError, ValueError, MemoryError):
        return
    assert all(((rows >= 0) & (rows < 128)).all() for _, rows in found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_rows", 192, "all rows|every row"),
        ("n_rows", 65, "multiple of 64"),
        ("offsets", np.zeros(127, np.float32), "offsets must have an entry for every row"),
        ("k", 0, "k must be from 1"),
        ("k", 129, "k must be from 1"),
        ("capacity", 4, r"capacity must be larger than k \+ 1"),
        ("visit", np.array([2]), "panel that does not exist"),
        ("visit", np.array([-1]), "panel that does not exist"),
        ("keep", np.ones(127, np.uint8), "keep must be of all rows"),
        ("threads", 0, "threads must be at least 1"),
        ("requests", np.zeros((2, 4), np.float32), "requests must be|effects must be"),
    ],
)
def test_messages(form, name, value, message):
    first, second = good_search(form)
    build(form)(**first).search(**second)
    (first if name in first else second)[name] = value
    with pytest.raises(ValueError, match=message):
        build(form)(**first).search(**second)


def test_windows_stay_inside():
    first, second = good_search("effects")
    for window in (
        [0, 10, 1, -1],
        [0, 0, 4, 0],
        [0, 0, 3, 1],
        [-1, 0, 1, -1],
        [0, -1, 1, -1],
        [0, 0, 0, -1],
        [2**62] * 4,
    ):
        with pytest.raises(ValueError, match="window"):
            TopK.effects(**{**first, "windows": np.array([window, window])}).search(**second)


@examples(200)
@given(st.data(), st.sampled_from(["insert", "find", "erase", "rebuild"]), st.booleans())
def test_ids_that_do_not_fit_raise(data, function, words_too):
    table, words = good_ids()
    others = {"insert": [np.arange(40, 50)], "erase": [np.arange(5)], "find": [words[:7]], "rebuild": []}[function]
    if words_too or not others:
        words = data.draw(spoiled(words))
    else:
        others = [data.draw(spoiled(others[0]))]
    with contextlib.suppress(TypeError, ValueError, IndexError):
        getattr(table, function)(words, *others)
    same = np.arange(100, dtype=np.uint64).reshape(50, 2)
    assert table.find(same, same).shape == (50,)


def test_rows_without_words():
    table, words = good_ids()
    for row in (-1, 50):
        with pytest.raises(IndexError, match=f"row {row} has no words"):
            table.insert(words, np.array([row]))
    with pytest.raises(IndexError, match="words must reach"):
        table.find(words[:39], words[:1])
    with pytest.raises(ValueError, match="as wide as"):
        table.find(words, words[:, :1].copy())
