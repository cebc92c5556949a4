"""The border of RowEncoder and RowScorer: whatever arrays and readers they are given, they raise or are right."""

import gc
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from splinefm import _core

NONE = np.zeros(0)
ASK, NO_ROW = -2, -1


def strings(*names: str):
    text = np.frombuffer("".join(names).encode(), np.uint8)
    return np.cumsum([0, *(len(name.encode()) for name in names)]).astype(np.int64), text


def number(encoder, **change):
    spec = {"first": 0, "signs": NONE, "bounds": NONE, "missing": True, "apart": False, "plain": True}
    spec |= {"low": -np.inf, "high": np.inf, "beyond_missing": False}
    encoder.add_number(**(spec | {"knots": np.array([0.0, 1.0]), "values": np.array([0.0, 1.0]), "powers": 1} | change))


def window(encoder, **change):
    spec = {"segments": 2, "edges": NONE, "coefficients": np.ones((1, 2, 3)), "start": 0, "moves": 1, "around": 99}
    encoder.add_window(**(spec | change))


def cross(encoder, **change):
    """A number with three functions and the names a and b (features 0 and 1), of which 0 and 4 are kept."""
    if "parts" not in change:
        parts = _core.RowEncoder()
        number(parts)
        window(parts)
        parts.add_names(*strings("a", "b"), 0, ASK, ASK)
        change = {"parts": parts, **change}
    spec = {"first": 0, "sizes": np.array([[3]]), "cells": np.array([[0], [4]], np.int32), "buckets": 0}
    encoder.add_cross(**(spec | {"multipliers": np.array([7]), "prime": 101} | change))


def made(n_rows=6, k=4, **change):
    """A scorer of a number (rows 0 to 3) and a name (rows 4 and 5: a and b; 0 is missing)."""
    encoder = _core.RowEncoder()
    number(encoder)
    window(encoder)
    encoder.add_names(*strings("a", "b"), 4, ASK, 0)
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(n_rows, abs(k))).astype(np.float32)
    params = {"model": "fm", "k": k, "members": 1, "order": 2, "factors": factors}
    params |= {"linear": np.arange(n_rows, dtype=np.float32), "between": np.ones(4, np.float32)}
    params |= {"bias": np.array([0.5], np.float32)}
    spec = {"encoder": encoder, "link": "logistic", "center": 0.0, "scale": 1.0}
    params |= {name: change.pop(name) for name in params if name in change}
    return _core.RowScorer(**(spec | {"params": _core.RowParams(**params)} | change))


COLUMNS = ("x", "c")
READERS = (float, lambda name: {"c": 5, "none": NO_ROW}[name])


def test_the_table_of_cells_has_every_position_once():
    cells = np.array([[3, 1], [2, 2], [5, 0]], np.int32)
    places = _core.cell_places(cells)
    assert sorted(places[places >= 0].tolist()) == [0, 1, 2]
    assert _core.cell_places(np.zeros((0, 0), np.int32)).tolist() == [-1]
    for wrong in (cells.astype(np.int64), cells[:, 0], cells[:, ::-1], cells.tolist()):
        with pytest.raises(TypeError):
            _core.cell_places(wrong)


class TestFields:
    @pytest.mark.parametrize(
        "change",
        [
            {"first": -1},
            {"first": 2**40},
            {"signs": np.array([5.0]), "bounds": np.array([0.0])},
            {"signs": np.array([np.nan]), "bounds": np.array([0.0])},
            {"signs": np.array([1.0])},
            {"knots": np.array([1.0, 0.0])},
            {"knots": np.array([0.0, np.nan])},
            {"knots": np.array([0.0])},
            {"values": np.array([0.0])},
            {"powers": 2},
            {"powers": 4},
            {"knots": NONE},
        ],
        ids=str,
    )
    def test_bad_numbers(self, change):
        with pytest.raises(ValueError, match=r"must be|must have"):
            number(_core.RowEncoder(), **change)

    @pytest.mark.parametrize(
        "change",
        [
            {"segments": 0},
            {"segments": 2**40},
            {"coefficients": np.ones((3, 2, 3))},
            {"coefficients": np.ones((1, 0, 3))},
            {"coefficients": np.ones((1, 2, 0))},
            {"edges": np.array([0.0, 1.0])},
            {"edges": np.array([0.0, 2.0, 1.0])},
            {"start": -1},
            {"moves": -1},
            {"around": 0},
        ],
        ids=str,
    )
    def test_bad_windows(self, change):
        encoder = _core.RowEncoder()
        number(encoder)
        with pytest.raises(ValueError, match="must"):
            window(encoder, **change)

    def test_a_window_belongs_to_a_number(self):
        encoder = _core.RowEncoder()
        with pytest.raises(ValueError, match="belongs to a field of numbers"):
            window(encoder)
        encoder.add_given(3, apart=False)
        with pytest.raises(ValueError, match="belongs to a field of numbers"):
            window(encoder)

    @pytest.mark.parametrize(
        ("offsets", "rows"),
        [
            *(([], (0, 0, 0)), ([0, 3], (0, 0, 0)), ([-1, 1], (0, 0, 0)), ([1, 0], (0, 0, 0)), ([0, 1], (-1, 0, 0))),
            *(([0, 1], (0, -3, 0)), ([0, 1], (0, 0, NO_ROW)), ([0, 1], (2**31, 0, 0)), ([0, 1], (0, 2**40, 0))),
        ],
        ids=str,
    )
    def test_bad_names(self, offsets, rows):
        with pytest.raises(ValueError, match="must"):
            _core.RowEncoder().add_names(np.array(offsets, np.int64), np.zeros(2, np.uint8), *rows)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"first": -1}, "first must be"),
            ({"first": 2**31 - 2}, "first must be"),
            ({"sizes": np.array([[1]])}, "sizes must be at least those"),
            ({"sizes": np.array([[2**40]])}, "sizes must be at least those"),
            ({"sizes": np.array([[3], [3]])}, "a row for every window"),
            ({"sizes": np.zeros((1, 0), np.int64)}, "a row for every window"),
            ({"sizes": np.array([[3, 3]])}, "a column for every number"),
            ({"cells": np.zeros((2, 2), np.int32)}, "cells must have a column"),
            ({"buckets": -1}, "buckets must not be negative"),
            ({"buckets": 2**31 - 1}, "first must be"),
            ({"buckets": 4, "multipliers": np.array([3, 5])}, "a multiplier for every name"),
            ({"buckets": 4, "multipliers": np.array([0])}, "multipliers must be positive"),
            ({"buckets": 4, "prime": 0}, "a multiplier for every name"),
        ],
        ids=str,
    )
    def test_bad_crosses(self, change, message):
        with pytest.raises(ValueError, match=message):
            cross(_core.RowEncoder(), **change)

    def test_parts_of_crosses_are_numbers_and_names(self):
        parts = _core.RowEncoder()
        with pytest.raises(ValueError, match="one to eight fields"):
            cross(_core.RowEncoder(), parts=parts)
        parts.add_given(3, apart=False)
        with pytest.raises(ValueError, match="numbers and of one name"):
            cross(_core.RowEncoder(), parts=parts)

    def test_a_cross_has_a_bounded_number_of_products(self):
        parts = _core.RowEncoder()
        for _ in range(8):
            number(parts)
            window(parts, coefficients=np.ones((1, 99, 1)), moves=0)
        with pytest.raises(ValueError, match=r"too many products|first must be"):
            cross(_core.RowEncoder(), parts=parts, sizes=np.full((1, 8), 99))

    def test_a_cross_reads_a_value_per_part(self):
        encoder = _core.RowEncoder()
        cross(encoder, first=10)
        readers = (float, {"c": 4, "d": -1}.get)
        with pytest.raises(ValueError, match="or part of a cross"):
            encoder.encode({"x": 0.0, "c": "a"}, ("x",), readers)
        found = [encoder.encode({"x": 0.75, "c": name}, ("x", "c"), readers)[0].tolist() for name in "abcd"]
        assert found == [[11, 12], [], [14, 15], []]  # features 0 and 4 of the names are kept
        assert encoder.encode({"x": None, "c": "a"}, ("x", "c"), readers)[0].tolist() == []

    def test_no_fields_after_rows(self):
        encoder = _core.RowEncoder()
        number(encoder)
        window(encoder)
        encoder.encode({"x": 0.5}, ("x",), (float,))
        for add in (lambda: number(encoder), lambda: window(encoder), lambda: encoder.add_given(1, apart=False)):
            with pytest.raises(ValueError, match="takes no more fields"):
                add()

    @given(
        st.floats(),
        arrays(np.float64, st.integers(2, 6), elements=st.floats(-5, 5), unique=True).map(np.sort),
        st.integers(1, 5),
        st.integers(1, 4),
        st.integers(0, 3),
        st.integers(1, 9),
        st.booleans(),
    )
    def test_any_number_has_terms_inside_the_field(self, x, knots, segments, functions, moves, around, has_edges):
        encoder = _core.RowEncoder()
        values = np.linspace(0.0, 1.0, len(knots))
        number(encoder, first=7, signs=np.array([0.0]), bounds=np.array([2.0]), knots=knots, values=values)
        edges = np.linspace(0.0, 1.0, segments + 1) if has_edges else NONE
        shape = {"coefficients": np.ones((segments, functions, 1)), "moves": moves, "around": around}
        window(encoder, segments=segments, edges=edges, **shape)
        if np.isinf(x):
            with pytest.raises(ValueError, match="column 'x' does not take the number"):
                encoder.encode({"x": x}, ("x",), (float,))
            return
        rows, weights, ends, owners = encoder.encode({"x": x}, ("x",), (float,))
        if np.isnan(x) or x == 2.0:
            assert rows.tolist() == [8 if np.isnan(x) else 7]
        else:
            u = np.interp(x, knots, values)
            assert len(rows) == functions
            segment = min(int(u * segments), segments - 1)
            possible = [{segment}, {max(0, segment - 1), segment, min(segments - 1, segment + 1)}]
            starts = {9 + (at * moves if at * moves < around else at * moves - around) for at in possible[1]}
            assert rows[0] in starts
        assert weights.tolist() == [1.0] * len(rows)
        assert ends.tolist() == [0, len(rows)]
        assert owners.tolist() == [0]


class TestNames:
    @given(st.lists(st.text(), unique=True, max_size=8), st.lists(st.text(), max_size=4), st.booleans())
    def test_names_and_lists_are_found(self, known, asked, averages):
        encoder = _core.RowEncoder()
        try:
            names = strings(*known)
            "".join(asked).encode()
        except UnicodeEncodeError:
            return
        encoder.add_names(*names, 10, NO_ROW, 0)
        encoder.add_lists(*names, 30, 29, 28, 3, averages, False)
        name = asked[0] if asked else None
        rows, weights, _, owners = encoder.encode({"c": name, "l": asked}, ("c", "l"), (None, None))
        first = [0] if name is None else [10 + known.index(name)] if name in known else []
        kept = [other for other in asked if other][:3]
        expected = [30 + known.index(other) if other in known else 29 for other in kept]
        assert rows.tolist() == first + expected
        share = np.float32(1 / len(kept)) if averages and kept else 1.0
        assert weights.tolist() == [1.0] * len(first) + [share] * len(kept)
        assert owners.tolist() == [0] * len(first) + [1] * bool(kept)

    @pytest.mark.parametrize(
        "value", [b"a", object(), 1 + 2j, "\ud800", 10**30, 2.5, 2.0**53, 1e300], ids=lambda value: type(value).__name__
    )
    def test_readers_are_asked_about_the_rest(self, value):
        encoder = _core.RowEncoder()
        encoder.add_names(*strings("a", "true", "7", "-3"), 1, NO_ROW, 0)
        assert encoder.encode([value], (0,), (lambda asked: 3 if asked is value else 99,))[0].tolist() == [3]
        for plain, row in ((True, 2), (7, 3), (7.0, 3), (-3, 4), (-3.0, 4), ("a", 1), (None, 0), (np.nan, 0)):
            assert encoder.encode([plain], (0,), (None,))[0].tolist() == [row]


class TestScores:
    @pytest.mark.parametrize(
        "change",
        [
            {"model": "mlp"},
            {"link": "probit"},
            {"k": 0},
            {"k": 5},
            {"k": 8},
            {"k": -4},
            {"order": 1},
            {"order": 2**40},
            {"n_rows": 5},
            {"linear": np.zeros(5, np.float32)},
            {"model": "ffm"},
            {"model": "fwfm", "between": np.ones(3, np.float32)},
            {"model": "fmfm"},
            {"members": 0},
            {"members": 2},
            {"model": "fwfm", "members": 2},
            {"model": "higher", "members": 0},
            {"model": "higher", "members": 2**60},
            {"model": "higher", "members": -1},
            {"model": "fwfm", "members": -1},
            {"model": "fwfm", "members": 2**60},
            {"model": "fwfm", "k": 16, "members": 2, "factors": np.zeros((6, 16), np.float32)},
            {"model": "fwfm", "factors": np.zeros((6, 12), np.float32)},
        ],
        ids=str,
    )
    def test_bad_parameters(self, change):
        factors = {"factors": np.zeros((6, 4), np.float32)} if "k" in change else {}
        with pytest.raises(ValueError, match=r"must|unknown"):
            made(**(factors | change))

    @pytest.mark.parametrize(
        "change",
        [{"factors": np.zeros((6, 4))}, {"factors": np.zeros((6, 8), np.float32)[:, ::2]}, {"linear": [0.0] * 6}],
        ids=["float64", "strided", "list"],
    )
    def test_other_arrays_are_refused(self, change):
        with pytest.raises(TypeError):
            made(**change)

    @pytest.mark.parametrize(
        ("readers", "error"),
        [
            ((float, lambda _: 6), IndexError),
            ((float, lambda _: -2), IndexError),
            ((float, lambda _: 2**70), (RuntimeError, TypeError)),
            ((float, lambda _: "a"), (RuntimeError, TypeError)),
            ((float, None), TypeError),
            ((float,), ValueError),
        ],
    )
    def test_bad_readers(self, readers, error):
        scorer = made()
        with pytest.raises(error):
            scorer.score({"x": 0.5, "c": "new"}, COLUMNS, readers, False)
        assert np.isfinite(scorer.score({"x": 0.5, "c": "c"}, COLUMNS, READERS, False))

    @pytest.mark.parametrize(
        "answer", [([9], [1.0]), ([0, 1], [1.0]), ([0] * 3, [1.0] * 3), ([-2], [1.0]), None, [0.5]], ids=str
    )
    def test_bad_rows_of_readers(self, answer):
        encoder = _core.RowEncoder()
        encoder.add_given(2, apart=False)
        scorer = made(encoder=encoder)
        with pytest.raises((IndexError, ValueError, RuntimeError, TypeError)):
            scorer.score({"x": 1}, ("x",), (lambda _: answer,), False)

    @pytest.mark.parametrize("row", [None, 3, {}, [1], {"x": 0.5}], ids=str)
    def test_bad_rows(self, row):
        with pytest.raises((TypeError, KeyError)):
            made().score(row, COLUMNS, READERS, False)

    def test_lists_of_rows(self):
        scorer, rows = made(), [{"x": x, "c": c} for x in (0.1, 0.9, None) for c in ("a", "b", "c", "none", None)]
        out = np.empty(len(rows))
        scorer.many(rows, COLUMNS, READERS, True, out)
        assert out.tolist() == [scorer.score(row, COLUMNS, READERS, True) for row in rows]
        with pytest.raises(ValueError, match="same length"):
            scorer.many(rows, COLUMNS, READERS, True, np.empty(3))
        for bad in (np.empty(15, np.float32), np.empty(30)[::2]):
            with pytest.raises(TypeError):
                scorer.many(rows, COLUMNS, READERS, True, bad)

    def test_a_list_that_shrinks_while_it_is_read(self):
        rows = [{"x": 0.5, "c": "new"}] * 20

        def shrink(name):
            rows.clear()
            return 5

        with pytest.raises(ValueError, match="same length"):
            made().many(rows, COLUMNS, (float, shrink), False, np.empty(20))

    def test_arrays_are_kept(self):
        scorer = made()
        expected = scorer.score({"x": 0.5, "c": "b"}, COLUMNS, READERS, False)
        gc.collect()
        _ = [np.full(24, np.nan, np.float32) for _ in range(1000)]
        assert scorer.score({"x": 0.5, "c": "b"}, COLUMNS, READERS, False) == expected

    def test_threads(self):
        scorer, rows = made(), [{"x": i / 7, "c": "ab"[i % 2]} for i in range(8)]
        expected = [scorer.score(row, COLUMNS, READERS, False) for row in rows] * 50
        found = [np.empty(400) for _ in range(4)]
        threads = [
            threading.Thread(target=scorer.many, args=(rows * 50, COLUMNS, READERS, False, out)) for out in found
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(out.tolist() == expected for out in found)


class TestClasses:
    BIASES = np.array([0.5, 0.25], np.float32)

    def two(self, **change):
        rng = np.random.default_rng(0)
        spec = {"factors": rng.normal(size=(12, 4)).astype(np.float32), "linear": np.arange(12, dtype=np.float32)}
        return made(**(spec | {"bias": self.BIASES, "link": "softmax", "between": np.ones(8, np.float32)} | change))

    def test_scores_of_all_classes(self):
        scorer, row = self.two(), {"x": 0.5, "c": "a"}
        found = scorer.scores(row, COLUMNS, READERS, False)
        out = np.zeros(4)
        scorer.many([row, row], COLUMNS, READERS, False, out)
        np.testing.assert_array_equal(out.reshape(2, 2), [found, found])
        probabilities = np.exp(found - found.max())
        expected = probabilities / probabilities.sum()
        np.testing.assert_allclose(scorer.scores(row, COLUMNS, READERS, True), expected)
        with pytest.raises(ValueError, match="a score for every class"):
            scorer.score(row, COLUMNS, READERS, False)
        with pytest.raises(ValueError, match="for every class of a row"):
            scorer.many([row], COLUMNS, READERS, False, np.zeros(3))

    @pytest.mark.parametrize(
        "change",
        [
            {"bias": np.zeros(0, np.float32)},
            {"bias": np.zeros(1, np.float32)},
            {"bias": np.zeros(5, np.float32)},
            {"link": "logistic"},
            {"linear": np.zeros(6, np.float32)},
            {"linear": np.zeros(13, np.float32)},
            {"between": np.ones(7, np.float32)},
            {"model": "fwfm", "between": np.ones(2, np.float32)},
            {"factors": np.ones((10, 4), np.float32), "linear": np.ones(10, np.float32)},
        ],
        ids=str,
    )
    def test_arrays_that_do_not_fit_the_classes(self, change):
        with pytest.raises(ValueError, match=r"must have|needs a bias"):
            self.two(**change)
