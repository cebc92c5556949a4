"""Single rows against the encoder and the formula in float64; what a table refuses, a row refuses too."""

import copy
import math
import pickle
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.plans import compile_number, name_of
from splinefm.encode.slots import concatenate_slots
from splinefm.encode.tables.columns import as_categories
from splinefm.encode.transforms.bestfit import FAMILIES
from splinefm.encode.transforms.transform import transform_pieces
from splinefm.model.family.formula import formula_scores
from splinefm.rank.sides import FieldSubset
from splinefm.serve.scorer import Scorer
from support import averages, mixed_schema, mixed_table, one_of_each, random_classes, random_fitted, random_params

NAN = math.nan
MODELS = [*one_of_each(16), *averages()]
NUMBERS = [0.0, 1.5, -3.0, 75.0, 7, True, None, NAN, 1e300, -1e300, 5e-324, 2**60]
NUMBERS += [np.float32(0.3), np.int64(7), np.float64(NAN), np.uint8(3), np.bool_(True), Decimal("2.5")]
NUMBERS += [datetime(1970, 1, 1, 0, 0, 3), date(1970, 1, 2), np.timedelta64(1500, "ms"), timedelta(seconds=2)]
NAMES = ["u", "v", "w", "", "never seen", "na\u00efve", None, NAN, np.str_("v"), np.float64(NAN), date(2020, 1, 2)]
NAMES += ["\0", "u\0v", "x" * 5000, "\xfe1", "\xff"]
CODES = [0, 1, 3, 3.0, np.int32(3), np.float32(3.0), "3", True, False, np.bool_(True), 2.5, 2.5, 1e20, 10**17, -4, None]
CODES += [b"3", b"new", np.float32(0.1), 99, 2.0**53, 2**53]
LISTS = [
    [],
    ["a"],
    ["b", "a", "never seen"],
    ["a", None, ""],
    None,
    NAN,
    ("c",),
    list("abcabcabc"),
    np.array(["a", "b"]),
]
TEXTS = ["a|b", " a | b |", "", None, "|", "never seen|a", ["a", " b "], "c|c|c|c|c|c"]
WHOLE = [[1, 2], [2, None, 7], [], None, [1.0, 2.5], [True], (2,), ["2"], [0, 1], [np.int64(2)]]
VALUES = {
    "special": NUMBERS,
    "levels": NUMBERS,
    "apart": NUMBERS,
    "knots": NUMBERS,
    "polynomial": NUMBERS,
    "hour": NUMBERS,
    "bins": NUMBERS,
    "wave": NUMBERS,
    "own": NUMBERS,
    "name": NAMES,
    "code": CODES,
    "hashed": NAMES,
    "neutral": CODES,
    "tags": LISTS,
    "text": TEXTS,
    "whole": WHOLE,
}


def make_schema(reduction="sum"):
    return sf.Schema(
        [
            sf.Numerical(
                "special", sf.MinMax(), sf.BSpline(5), special=[0.0, "negative", ">= 50"], reduction=reduction
            ),
            sf.Categorical("name", min_count=2),
            sf.Numerical("levels", sf.Quantile(knots=20), sf.MultiResolution((2, 4)), reduction=reduction),
            sf.MultiValued("tags", reduction="mean" if reduction == "sum" else reduction),
            sf.Numerical("apart", sf.BestFitCDF(family="normal"), sf.BSpline(4, degree=2), reduction="identity"),
            sf.Categorical("code"),
            sf.Numerical("knots", sf.Log(), sf.BSpline(knots=(0.0, 0.2, 0.7, 1.0)), reduction=reduction),
            sf.Numerical("polynomial", sf.ArcsinhSquare(), sf.Polynomial(4, "chebyshev"), reduction=reduction),
            sf.Categorical("hashed", unseen="hash", buckets=3),
            sf.Numerical("hour", sf.MinMax(low=0, high=24), sf.BSpline(6, periodic=True), reduction=reduction),
            sf.Numerical("bins", sf.Quantile(), sf.Bins(6, "quantile"), reduction=reduction),
            sf.MultiValued("text", separator="|", reduction=reduction, unseen="neutral"),
            sf.Numerical("wave", sf.MinMax(), sf.Fourier(2), reduction=reduction),
            sf.Categorical("neutral", unseen="neutral"),
            sf.Numerical(
                "own",
                sf.CustomTransform(lambda x: 1 / (1 + np.exp(-np.clip(x, -50, 50))), lambda u: np.log(u / (1 - u))),
                sf.CustomBasis((np.ones_like, np.sin)),
                reduction=reduction,
            ),
            sf.MultiValued("whole", max_length=3, reduction=reduction),
        ]
    )


def table_of(schema, n=300, seed=0):
    rng = np.random.default_rng(seed)
    table = {}
    for item in schema:
        if isinstance(item, sf.Numerical):
            table[item.name] = rng.normal(3.0, 2.0, n).tolist()
        elif item.name in ("code", "neutral"):
            table[item.name] = rng.choice(["0", "1", "3", "true", "2.5", "1e+20", "u", "9007199254740992"], n).tolist()
        elif item.name == "whole":
            table[item.name] = [rng.choice(4, rng.integers(0, 5)).tolist() for _ in range(n)]
        elif isinstance(item, sf.MultiValued):
            lists = [rng.choice(list("abc"), rng.integers(0, 4)).tolist() for _ in range(n)]
            table[item.name] = ["|".join(words) for words in lists] if item.separator else lists
        else:
            table[item.name] = rng.choice(["u", "v", "w"], n).tolist()
    return table


def encode_row(encoder, row):
    """A table of one row."""
    return encoder.encode({name: [row[name]] for name in encoder.schema.names}, threads=1)


def expected_score(fitted, row):
    """By the encoder and the formula in float64."""
    return formula_scores(fitted.model, fitted.params, encode_row(fitted.encoder, row))[0]


def random_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return [{name: values[rng.integers(len(values))] for name, values in VALUES.items()} for _ in range(n)]


def one_field(item, values, model=None):
    """A model of one field that is fitted to some values, and its scorer."""
    fitted = random_fitted(model or sf.FM(k=4), sf.Schema([item]), {item.name: values})
    return fitted, fitted.scorer()


@pytest.fixture(scope="module", params=["sum", "identity"])
def reduction(request):
    return request.param


@cache
def every_field(reduction):
    """An encoder, rows and their slots, which do not depend on the model."""
    schema = make_schema(reduction)
    encoder, rows = sf.fit_encoder(schema, table_of(schema)), random_rows(25)
    return encoder, rows, concatenate_slots([encode_row(encoder, row) for row in rows])


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: type(model).__name__)
def fitted(request, reduction):
    encoder, _, _ = every_field(reduction)
    return sf.Fitted(encoder, request.param, random_params(request.param, encoder.layout, 1), sf.Loss())


@pytest.fixture(scope="module")
def scorer(fitted):
    return fitted.scorer()


@pytest.fixture(scope="module")
def plain():
    """A small model with fields that refuse things."""
    schema = sf.Schema(
        [
            sf.Numerical("x", sf.MinMax(), sf.BSpline(4)),
            sf.Numerical("sure", sf.MinMax(), sf.BSpline(4), missing="error"),
            sf.Categorical("c"),
            sf.Categorical("known", unseen="error", missing="error"),
            sf.MultiValued("tags"),
        ]
    )
    table = {"x": [0.0, 1.0], "sure": [0.0, 2.0], "c": ["a", "b"], "known": ["a", "b"], "tags": [["a"], ["b", "a"]]}
    return random_fitted(sf.FM(k=4), schema, table)


GOOD = {"x": 0.5, "sure": 1.0, "c": "a", "known": "b", "tags": ["a"]}


class TestEveryModel:
    def test_scores_are_those_of_the_encoder_and_the_formula(self, fitted, scorer, reduction):
        _, rows, slots = every_field(reduction)
        for row, expected in zip(rows, formula_scores(fitted.model, fitted.params, slots), strict=True):
            assert scorer(row) == pytest.approx(expected, rel=1e-5, abs=1e-5), row

    def test_scores_and_predictions_are_those_of_a_table(self, fitted, scorer):
        table = table_of(fitted.encoder.schema, 100, seed=5)
        rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
        expected = fitted.scores(table)
        np.testing.assert_array_equal([scorer(row) for row in rows], expected)  # to the bit
        np.testing.assert_array_equal(scorer.many(rows), expected)
        np.testing.assert_allclose([scorer.predict(row) for row in rows], fitted.predict(table), rtol=1e-12)
        np.testing.assert_allclose(scorer.many(rows, link=True), fitted.predict(table), rtol=1e-12)

    def test_only_what_is_custom_is_slow(self, scorer):
        assert scorer.slow_fields == ("own",)
        assert "slow_fields=('own',)" in repr(scorer)


@pytest.mark.parametrize("name", VALUES)
def test_each_value_means_what_it_means_in_a_table(name, hostile):
    fitted, scorer = hostile
    for value in VALUES[name]:
        row = {**random_rows(1, seed=3)[0], name: value}
        expected = pytest.approx(expected_score(fitted, row), rel=1e-5, abs=1e-5)
        assert scorer(row) == expected, value
        assert scorer(row) == expected, value  # it may be a key by now


@pytest.mark.parametrize("fields", [tuple(range(16)), (1, 3, 5, 8), (0, 2, 6, 9, 14)], ids=str)
def test_the_context_of_an_index_is_encoded_like_columns_of_one_value(fields, reduction):
    schema = make_schema(reduction)
    part = FieldSubset(random_fitted(sf.FM(k=4), schema, table_of(schema)), fields)

    def feature_weights(slots):
        width = np.diff(slots.layout.weight_ptr)
        rows = np.concatenate([start + np.arange(n) for start, n in zip(slots.start[0], width, strict=True)])
        return np.bincount(rows, slots.weight[0], minlength=500)

    for row in random_rows(20, seed=9):
        slots = part.encode_row(row)
        np.testing.assert_allclose(
            feature_weights(slots), feature_weights(part._encode_columns(row)), rtol=0, atol=1e-6
        )
        assert (slots.start.dtype, slots.weight.dtype) == (np.int32, np.float32)


@pytest.fixture(scope="module")
def hostile():
    schema = make_schema()
    fitted = random_fitted(sf.FwFM(k=4), schema, table_of(schema))
    return fitted, fitted.scorer()


@pytest.mark.parametrize("k", [1, 3, 7, 8, 10, 16, 20, 32, 40])
@pytest.mark.parametrize("make", [sf.FM, sf.FwFM, sf.FmFM, sf.FFM, sf.HigherOrderFM], ids=lambda make: make.__name__)
def test_vectors_of_any_length(make, k):
    schema = sf.Schema([sf.Numerical("x", sf.MinMax()), sf.Categorical("c"), sf.MultiValued("l", reduction="identity")])
    table = {"x": [0.0, 0.4, 1.0], "c": ["a", "b", "c"], "l": [["a"], ["b", "a"], []]}
    fitted = random_fitted(make(k=k), schema, table)
    scorer = fitted.scorer()
    for x, c, names in ((0.3, "a", ["a", "b"]), (None, "new", []), (1.0, None, None), (0.9, "c", ["b", "b"])):
        row = {"x": x, "c": c, "l": names}
        assert scorer(row) == pytest.approx(expected_score(fitted, row), rel=1e-5, abs=1e-5)


class TestNumbers:
    BASES = (
        *(sf.BSpline(7, degree) for degree in range(6)),
        sf.BSpline(1, periodic=True),
        sf.BSpline(5, degree=2, periodic=True),
        sf.BSpline(degree=1, knots=(0.0, 0.5, 1.0)),
        sf.BSpline(degree=5, knots=(0.0, 0.1, 0.11, 0.9, 1.0), periodic=True),
        sf.BSpline(degree=0, knots=(0.0, 0.3, 1.0)),
        sf.MultiResolution((8, 32, 128)),
        sf.MultiResolution((1, 3), degree=1),
        sf.Bins(1),
        sf.Bins(9),
        sf.Bins(9, "quantile"),
        sf.Bins(edges=(-1.0, 0.5, 1.0, 2.5, 100.0)),
        *(sf.Polynomial(degree, family) for degree in (0, 1, 9) for family in ("bernstein", "chebyshev", "legendre")),
        sf.Fourier(1),
        sf.Fourier(6),
        sf.Powers((1.0, 2.0, 3.0)),
    )
    TRANSFORMS = (sf.MinMax(), sf.Quantile(), sf.Log(), sf.ArcsinhSquare(), sf.BestFitCDF(family="gamma"))

    @staticmethod
    def values():
        rng = np.random.default_rng(0)
        return np.concatenate([np.abs(rng.normal(2.0, 2.0, 300)), [0.5, 1.0, 2.5, 2.5], np.arange(9.0)])

    @staticmethod
    def grid(field):
        """Training values, borders, what is just below and above them, and what is far away."""
        x = np.concatenate([TestNumbers.values(), field.transform.inverse(np.linspace(0.0, 1.0, 57))])
        x = np.concatenate([x, [0.5, 1.0, 2.5, -1.0, 100.0, 0.0, 1e308, -1e308]])
        x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf)])
        if not isinstance(field.transform, sf.BestFitCDF) or not isinstance(field.basis, sf.Bins | sf.BSpline):
            return x
        # The last digits of some CDFs are noise: only values that borders were made of are sure to be on their side.
        cuts = np.array(field.basis.cuts if isinstance(field.basis, sf.Bins) else field.basis.extended_knots)
        near = (np.abs(field.transform(x)[:, None] - cuts) < 1e-14).any(axis=1)
        return np.concatenate([x[~near], TestNumbers.values(), [0.5, 1.0, 2.5, 100.0]])

    @pytest.mark.parametrize("basis", BASES, ids=str)
    @pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: type(transform).__name__)
    def test_every_transform_and_basis(self, transform, basis):
        fitted, scorer = one_field(sf.Numerical("x", transform, basis), self.values())
        x = self.grid(fitted.encoder.fields[0])
        slots = fitted.encoder.encode({"x": x})
        expected = formula_scores(fitted.model, fitted.params, slots)
        np.testing.assert_allclose(scorer.many([{"x": value} for value in x]), expected, rtol=1e-5, atol=1e-5)
        assert scorer.slow_fields == ()

    @pytest.mark.parametrize("family", FAMILIES)
    def test_every_family_is_followed_closely(self, family):
        rng = np.random.default_rng(1)
        values = rng.beta(2.0, 3.0, 500) if FAMILIES[family].support == "bounded" else rng.gamma(2.0, 3.0, 500)
        transform = sf.BestFitCDF(family=family).fit(values)
        knots, cubics = transform_pieces(transform)
        x = np.concatenate([rng.choice(values, 500) * rng.uniform(0.5, 1.5, 500), knots, [-1e300, 1e300, 0.0]])
        inside = np.clip(x, knots[0], knots[-1])
        piece = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(cubics) - 1)
        t = (inside - knots[piece]) / (knots[piece + 1] - knots[piece])
        u = sum(cubics[piece, power] * t**power for power in range(4))
        np.testing.assert_allclose(u, transform(x), rtol=0, atol=2e-9)
        assert len(cubics) < 1000

    @pytest.mark.parametrize(
        "field",
        [
            sf.Numerical("x", sf.MinMax(), sf.Powers()),
            sf.Numerical("x", sf.MinMax(), sf.CustomBasis((np.sin,))),
            sf.Numerical("x", sf.CustomTransform(np.tanh, np.arctanh), sf.BSpline(4)),
            sf.Numerical("x", sf.CustomTransform(np.tanh, np.arctanh), sf.Bins(4)),
            sf.Numerical("x", sf.MinMax(), sf.MultiResolution((2, 4), degree=0)),
            sf.Numerical("x", sf.ArcsinhSquare(low=-1e290, high=1e290), sf.BSpline(4)),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("reduction", ["sum", "identity"])
    def test_what_is_not_compiled_works_too(self, field, reduction):
        fitted, scorer = one_field(replace(field, reduction=reduction, special=(0.0,)), [0.0, 0.1, 0.7, 0.9])
        assert scorer.slow_fields == ("x",)
        for value in (0.0, 0.05, 0.9, 7, None, NAN, Decimal("0.5")):
            row = {"x": value}
            assert scorer(row) == pytest.approx(expected_score(fitted, row), rel=1e-5, abs=1e-6)

    @pytest.mark.parametrize("transform", TRANSFORMS[:4], ids=lambda transform: type(transform).__name__)
    @pytest.mark.parametrize("value", [0.0, 3.0, -2e17])
    def test_a_constant_column(self, transform, value):
        fitted, scorer = one_field(sf.Numerical("x", transform, sf.BSpline(4)), [value] * 5)
        for x in (value, np.nextafter(value, np.inf), np.nextafter(value, -np.inf), value + 1.0, 1e300, -1e300):
            row = {"x": float(x)}
            assert scorer(row) == pytest.approx(expected_score(fitted, row), rel=1e-5, abs=1e-6)

    def test_special_values_come_in_the_order_of_their_rules(self):
        special = [5.0, "< 1", "<= 2", "> 9", ">= 8", "== 3", float("inf"), "negative"]
        values = np.linspace(0.0, 10.0, 41)
        fitted, scorer = one_field(sf.Numerical("x", sf.MinMax(), sf.BSpline(4), special=special), values)
        for x in [*values, math.inf, -math.inf, -1.0, None]:
            row = {"x": x}
            assert scorer(row) == pytest.approx(expected_score(fitted, row), rel=1e-5, abs=1e-6)

    def test_compiled_code_that_disagrees_is_not_used(self, monkeypatch):
        field = sf.fit_encoder(sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(4))]), {"x": [0.0, 1.0]}).fields[0]
        assert compile_number(field) is not None
        knots, cubics = transform_pieces(field.transform)
        monkeypatch.setattr(
            "splinefm.encode.fields.numerical.transform_pieces", lambda transform: (knots, cubics + 1e-4)
        )
        assert compile_number(field) is None


class TestCategories:
    @given(st.one_of(st.floats(), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.text(), st.none()))
    @example(2.0**53)
    @example(1e15 + 0.5)
    @example(1e10 + 0.5)
    @example(-0.0)
    @example(0.0001)
    def test_values_have_the_names_that_the_encoder_gives_them(self, value):
        name = name_of(value)
        if name is not None:
            assert as_categories(pa.array([value], from_pandas=True), "c").names.to_pylist() == [name]
        else:  # what is left takes the slow way
            assert value is None or (isinstance(value, float) and not 0.01 < abs(value) < 1e9)

    def test_true_is_not_one_in_whatever_order_they_come(self):
        _, scorer = one_field(sf.Categorical("c"), ["1", "0", "true", "false"])
        first = [scorer({"c": value}) for value in (1, True, 0, False, "1", "true", 1.0, np.bool_(True))]
        again = [scorer({"c": value}) for value in (1, True, 0, False, "1", "true", 1.0, np.bool_(True))]
        assert first == again
        assert len(set(first[:4])) == 4
        assert first[4:] == [first[0], first[1], first[0], first[1]]

    def test_large_floats_are_spelled_as_in_a_table(self):
        values = [2**53, 2.0**53, 2**53 - 1, 2.0**53 - 1, 10**20, 1e20]
        names = ["9007199254740992", "9.007199254740992e+15", "9007199254740991", "1e+20"]
        fitted, scorer = one_field(sf.Categorical("c"), names)
        for value in values * 2:
            if value != 10**20:  # beyond what Arrow takes
                assert scorer({"c": value}) == pytest.approx(expected_score(fitted, {"c": value}), abs=1e-6)

    def test_names_may_hold_what_separates_them(self):
        names = ["a", "a\0", "\0a", "\0", "", "a\0b", "b"]
        table = {"c": names, "d": names[::-1]}
        schema = sf.Schema([sf.Categorical("c"), sf.Categorical("d", unseen="error")])
        fitted = random_fitted(sf.FM(k=4), schema, table)
        rows = [{"c": c, "d": d} for c in [*names, None, "new\0"] for d in names]
        expected = [expected_score(fitted, row) for row in rows]
        scorer = fitted.scorer()
        np.testing.assert_allclose([scorer(row) for row in rows], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scorer.many(rows), expected, rtol=1e-5, atol=1e-6)
        with pytest.raises(ValueError, match="column 'd' holds the unseen category"):
            scorer({"c": "a\0", "d": "\0\0"})

    def test_long_names_find_room(self):
        long = ["x" * 3000 + str(i) for i in range(9)]
        fitted, scorer = one_field(sf.Categorical("c"), long)
        expected = [expected_score(fitted, {"c": name}) for name in long]
        np.testing.assert_allclose([scorer({"c": name}) for name in long], expected, rtol=1e-5)
        np.testing.assert_allclose(fitted.scorer().many([{"c": name} for name in long]), expected, rtol=1e-5)

    def test_a_column_that_was_never_known_still_scores(self):
        fitted, scorer = one_field(sf.Categorical("c", min_count=99, unseen="neutral"), ["a", "b"])
        for value in ("a", None):
            assert scorer({"c": value}) == pytest.approx(expected_score(fitted, {"c": value}), abs=1e-6)


class TestLosses:
    @pytest.mark.parametrize(
        "loss",
        [
            *(
                sf.Loss("logistic"),
                sf.Loss("squared", center=12.0, scale=3.0),
                sf.Loss("poisson"),
                sf.Loss("gamma", scale=40.0),
            ),
            *(sf.Loss("tweedie", scale=0.5), sf.Loss("quantile", 9.0, 2.0, quantile=0.9), sf.Loss("huber", -3.0, 2.0)),
        ],
        ids=lambda loss: loss.name,
    )
    def test_the_link_is_that_of_the_loss(self, loss):
        fitted = random_fitted(sf.FM(k=4), sf.Schema([sf.Categorical("c")]), {"c": ["a", "b", "c"]}, loss=loss)
        fitted.params["linear"][:] = [-800.0, 800.0, 0.0, 1.0, -30.0]
        scorer = fitted.scorer()
        for value in ("a", "b", "c", None, "unseen"):
            expected = float(fitted.predict({"c": [value]})[0])
            assert scorer.predict({"c": value}) == pytest.approx(expected, rel=1e-5)
            assert scorer({"c": value}, link=True) == scorer.predict({"c": value})

    def test_a_model_that_has_diverged_gives_nan_like_a_table(self):
        fitted = random_fitted(sf.FM(k=4), sf.Schema([sf.Numerical("x", sf.MinMax())]), {"x": [0.0, 1.0]})
        fitted.params["linear"][:] = np.nan
        assert math.isnan(fitted.scorer()({"x": 0.5}))
        assert np.isnan(fitted.scorer().many([{"x": 0.5}])).all()


class TestManyRows:
    def test_the_same_as_one_by_one(self, hostile):
        _, scorer = hostile
        for n in (0, 1, 8, 19):
            rows = random_rows(n, seed=n)
            assert scorer.many(iter(rows)).tolist() == [scorer(row) for row in rows]

    def test_errors_name_the_row(self, plain):
        rows = [GOOD] * 70
        for at, bad, message in ((3, {"x": "y"}, "column 'x'"), (69, {"sure": None}, "column 'sure'")):
            with pytest.raises(ValueError, match=f"^row {at}: .*{message}"):
                plain.scorer().many([*rows[:at], {**GOOD, **bad}, *rows[at:]])
        with pytest.raises(TypeError, match=r"^row 1: a row is a dict"):
            plain.scorer().many([GOOD, [1.0]])

    def test_one_row_is_not_a_list_of_rows(self, plain):
        with pytest.raises(TypeError, match="for one row call the scorer"):
            plain.scorer().many(GOOD)


class TestBadRows:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"x": "much"}, "column 'x' should hold numbers, but has 'much'"),
            ({"x": [0.5]}, "column 'x' holds lists"),
            ({"x": 1 + 2j}, "column 'x': cannot read the complex"),
            ({"x": np.array(0.5)}, "column 'x'"),
            ({"x": 10**400}, "column 'x': cannot read the int"),
            ({"x": math.inf}, "column 'x' holds inf; remove it"),
            ({"x": np.float32(-math.inf)}, "column 'x' holds -inf"),
            ({"sure": None}, "column 'sure' has missing values"),
            ({"sure": NAN}, "column 'sure' has missing values"),
            ({"c": ["a"]}, r"column 'c' holds lists; use sf.MultiValued\('c'\)"),
            ({"c": {"a": 1}}, "column 'c' is of the nested type"),
            ({"c": {"a"}}, "column 'c'"),
            ({"c": ("a", "b")}, "column 'c' holds lists"),
            pytest.param({"c": object()}, "column 'c': cannot read the object", id="object"),
            ({"c": b"\xff"}, "column 'c'"),
            ({"c": "\ud800"}, "column 'c' holds text that is not valid Unicode"),
            ({"known": "z"}, "column 'known' holds the unseen category 'z'"),
            ({"known": 3}, "column 'known' holds the unseen category '3'"),
            ({"known": None}, "column 'known' has missing values"),
            ({"known": NAN}, "column 'known' has missing values"),
            ({"tags": "a"}, "column 'tags' holds text, not lists"),
            ({"tags": 3}, "column 'tags' should hold lists"),
            ({"tags": [["a"]]}, "column 'tags'"),
            ({"tags": ["\ud800"]}, "column 'tags' holds text that is not valid Unicode"),
        ],
        ids=str,
    )
    def test_the_error_names_the_column(self, plain, change, message):
        scorer = plain.scorer()
        with pytest.raises(ValueError, match=message):
            scorer({**GOOD, **change})
        assert scorer(GOOD) == pytest.approx(expected_score(plain, GOOD), rel=1e-5)  # and it goes on working

    @pytest.mark.parametrize("name", GOOD)
    def test_an_absent_column_is_named(self, plain, name):
        row = {key + "s" if key == name else key: value for key, value in GOOD.items()}
        with pytest.raises(
            ValueError, match=f"no column '{name}' in the row; nearest: '{name}s'.*a missing value is None"
        ):
            plain.scorer()(row)

    @pytest.mark.parametrize("row", [None, 3, [1.0, 2.0], "text", np.zeros(4)], ids=str)
    def test_a_row_is_a_dict(self, plain, row):
        with pytest.raises(TypeError, match="a row is a dict of values by column"):
            plain.scorer()(row)

    def test_further_columns_are_ignored(self, plain):
        assert plain.scorer()({**GOOD, "other": object()}) == plain.scorer()(GOOD)

    def test_a_scorer_is_made_from_a_model(self):
        with pytest.raises(TypeError, match=r"must be a sf\.Fitted, got dict"):
            Scorer({})


class TestSharing:
    def test_threads_do_not_disturb_each_other(self, plain):
        scorer = plain.scorer()
        rows = [{**GOOD, "x": i / 40, "sure": i / 20, "c": "ab"[i % 2], "tags": ["a", "b"][: i % 3]} for i in range(40)]
        expected = [scorer(row) for row in rows]
        wrong = []

        def work(shift):
            for i in range(40 * 25):
                at = (i + shift) % 40
                if scorer(rows[at]) != expected[at]:
                    wrong.append(at)

        threads = [threading.Thread(target=work, args=(5 * shift,)) for shift in range(8)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # threads take turns in the midst of everything
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert not wrong

    def test_a_call_in_the_midst_of_another_has_memory_of_its_own(self):
        interruptions = []

        def transform(x):
            if interruptions:
                interruptions.pop()()
            return np.clip(x, 0.0, 1.0)

        own = sf.Numerical("own", sf.CustomTransform(transform, np.asarray), sf.BSpline(4))
        schema = sf.Schema([sf.Categorical("c"), own, sf.Categorical("d")])
        fitted = random_fitted(sf.FwFM(k=4), schema, {"c": ["a", "b"], "own": [0.0, 1.0], "d": ["a", "b"]})
        scorer, row, other = fitted.scorer(), {"c": "a", "own": 0.3, "d": "b"}, {"c": "b", "own": 0.9, "d": "a"}
        expected = scorer(row)
        for interrupt in (lambda: scorer(other), lambda: scorer.many([other] * 20)):
            interruptions.append(interrupt)
            assert scorer(row) == expected
            interruptions.append(interrupt)
            assert scorer.many([row] * 2).tolist() == [expected] * 2
        assert not interruptions

    def test_a_row_may_use_the_scorer_itself(self, plain):
        scorer = plain.scorer()

        class Lazy(Mapping):
            def __getitem__(self, name):
                scorer({**GOOD, "x": 0.1, "c": "b"})
                return GOOD[name]

            def __iter__(self):
                return iter(GOOD)

            def __len__(self):
                return len(GOOD)

        assert scorer(Lazy()) == scorer(GOOD)

    def test_copies_score_alike(self, plain):
        scorer = plain.scorer()
        for other in (pickle.loads(pickle.dumps(scorer)), copy.deepcopy(scorer)):
            assert other(GOOD) == scorer(GOOD)
            assert other.many([GOOD, GOOD]).tolist() == [scorer(GOOD)] * 2

    def test_the_scorer_keeps_what_it_needs(self, plain):
        scorer = random_fitted(sf.FM(k=4), plain.encoder.schema, {name: [GOOD[name]] * 2 for name in GOOD}).scorer()
        first = scorer(GOOD)
        _ = [np.full(1000, np.nan, np.float32) for _ in range(1000)]  # would overwrite what was let go
        assert scorer(GOOD) == first


@pytest.mark.parametrize("model", one_of_each(6), ids=repr)
def test_a_row_has_a_score_for_every_class(model):
    table = mixed_table(40)
    rows = [{name: values[i] for name, values in table.items()} for i in range(40)]
    fitted = random_classes(model, mixed_schema(), table, ("a", "b", "c", "d"))
    scorer = fitted.scorer()
    expected = formula_scores(model, fitted.params, fitted.encoder.encode(table))
    probabilities = fitted.predict(table)
    np.testing.assert_allclose(scorer.many(rows), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scorer.many(rows, link=True), probabilities, atol=1e-5)
    many, linked = scorer.many(rows[:5]), scorer.many(rows[:5], link=True)
    for i in range(5):
        assert scorer(rows[i]).shape == (4,)
        np.testing.assert_array_equal(scorer(rows[i]), many[i])
        np.testing.assert_array_equal(scorer.predict(rows[i]), linked[i])
    assert scorer.many([]).shape == (0, 4)
    with pytest.raises(ValueError, match=r"row 1: .*'x'"):
        scorer.many([rows[0], {}])
    for c, label in enumerate("abcd"):
        one = fitted.for_class(label).scorer()
        assert isinstance(one(rows[0]), float) and one(rows[0]) == scorer(rows[0])[c] == one.predict(rows[0])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(scorer))(rows[0]), scorer(rows[0]))


def test_large_scores_of_classes_do_not_overflow():
    table = mixed_table(20)
    fitted = random_classes(sf.FM(k=2), mixed_schema(), table)
    fitted.params["bias"][:, 0] = [1e4, 0.0, -1e4]
    row = {name: values[0] for name, values in table.items()}
    np.testing.assert_array_equal(fitted.scorer().predict(row), [1.0, 0.0, 0.0])
