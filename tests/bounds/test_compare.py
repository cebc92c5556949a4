"""The change from one model to another: no segment is beyond the bound, and small models are searched exactly."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.bounds import changes as changes_module
from splinefm.bounds.changes import Changes, NotComparable, Values
from splinefm.bounds.pairwise import bound_of_pairs
from splinefm.model.family.formula import formula_scores
from splinefm.train.offsets import Offset
from support import averages, examples, fit_encoder, one_of_each, random_params

RNG = np.random.default_rng(0)
N = 300
TABLE = {
    "x": RNG.uniform(0.0, 10.0, N),
    "z": RNG.normal(size=N),
    "b": RNG.uniform(0.0, 1.0, N),
    "c": RNG.choice(list("abcdef"), N),
    "d": RNG.choice(list("uvw"), N),
    "tags": [list(RNG.choice(list("pqrs"), RNG.integers(0, 3), replace=False)) for _ in range(N)],
}
FIELDS = [
    sf.Numerical("x", sf.MinMax(), sf.BSpline(5), special=[0.0]),
    sf.Numerical("z", basis=sf.MultiResolution((2, 4), degree=2)),
    sf.Numerical("b", sf.MinMax(), sf.Bins(4)),
    sf.Categorical("c"),
    sf.Categorical("d", unseen="neutral", missing="error"),
    sf.MultiValued("tags", reduction="mean"),
]
MODELS = [*one_of_each(len(FIELDS)), sf.HigherOrderFM(3, 4), *averages()]


def pair_of(model, schema, table, seed, spread):
    """Two models, of which the second has all parameters moved."""
    encoder = fit_encoder(schema, table)
    first = random_params(model, encoder.layout, seed)
    other = random_params(model, encoder.layout, seed + 1000)
    second = {name: (values + spread * (other[name] - values)).astype(np.float32) for name, values in first.items()}
    return tuple(sf.Fitted(encoder, model, params, sf.Loss()) for params in (first, second))


def change_of(old, new, rows):
    scores = [formula_scores(each.model, each.params, each.encoder.encode(rows, threads=1)) for each in (old, new)]
    return scores[1] - scores[0]


def draw_rows(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 12.0, n)
    x[: n // 10], x[n // 10 : n // 5] = 0.0, np.nan
    names = np.array([*"abcdef", "unseen", None], object)
    return {
        "x": x,
        "z": rng.normal(0.0, 3.0, n),
        "b": rng.uniform(-0.5, 1.5, n),
        "c": list(rng.choice(names, n)),
        "d": list(rng.choice(np.array([*"uvw", "unseen"], object), n)),
        "tags": [list(rng.choice(list("pqrst"), rng.integers(0, 4))) for _ in range(n)],
    }


@pytest.fixture(scope="module", autouse=True)
def few_steps():
    """A bound holds after any number of steps; fewer are faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes_module, "_MAX_STEPS", 4)
        patch.setattr(changes_module, "_STARTS", 2)
        yield


@pytest.fixture
def all_steps(monkeypatch):
    monkeypatch.setattr(changes_module, "_MAX_STEPS", 60)
    monkeypatch.setattr(changes_module, "_STARTS", 4)


class TestRandomSegments:
    @pytest.mark.parametrize("model", MODELS, ids=str)
    @examples(40)
    @given(st.integers(0, 10**6), st.sampled_from([0.02, 0.3, 1.0]))
    def test_no_random_segment_is_beyond_it(self, model, seed, spread):
        old, new = pair_of(model, sf.Schema(FIELDS), TABLE, seed, spread)
        found = sf.compare(old, new)
        change = change_of(old, new, draw_rows(2000, seed))
        assert change.max() <= found.rise.bound + 1e-9 and -change.min() <= found.fall.bound + 1e-9
        for largest, sign in ((found.rise, 1.0), (found.fall, -1.0)):
            row = {name: [value] for name, value in largest.segment.items()}
            stated = float(new.scores(row, watch=False)[0]) - float(old.scores(row, watch=False)[0])
            assert largest.change == pytest.approx(stated, abs=1e-5 + 1e-6 * abs(largest.change))
            assert sign * largest.change <= largest.bound


class TestBound:
    @pytest.mark.parametrize("model", [sf.FM(4), sf.FwFM(4), sf.LowRankFwFM(4), sf.FmFM(3), sf.FFM(3)], ids=str)
    def test_it_is_close_for_products_of_pairs(self, model, all_steps):
        old, new = pair_of(model, sf.Schema([FIELDS[0], *FIELDS[2:5]]), TABLE, 1, 0.1)
        found = sf.compare(old, new)
        assert 1.0 <= found.bound / abs(found.change) < 1.02

    def test_models_that_are_equal_do_not_differ(self):
        old, _ = pair_of(sf.FwFM(4, third=2), sf.Schema(FIELDS), TABLE, 0, 1.0)
        found = sf.compare(old, old, draw_rows(50, 1))
        assert found.change == found.rows.change == found.rows.mean_absolute == 0.0
        assert 0.0 <= found.bound < 1e-12


SMALL = {name: RNG.choice(list("abcd")[:n], N) for name, n in (("f", 2), ("g", 3), ("h", 4), ("i", 3))}


def assert_first_bounds_hold(old, new, change):
    """The bounds before anything is divided; the final ones are never below a change that was found."""
    changes = Changes(old, new)
    for sign in (1.0, -1.0):
        assert changes._solve(changes.domains, sign, 0.0).bound >= (sign * change).max() - 1e-9


class TestBruteForce:
    """Only categories, so that all segments can be listed."""

    @pytest.mark.parametrize("model", [*one_of_each(4)[:5], sf.FwFM(3, third=2), sf.HigherOrderFM(3, 4)], ids=str)
    @examples(60)
    @given(st.integers(0, 10**6))
    def test_the_bound_is_the_largest_change_of_all_segments(self, model, seed):
        old, new = pair_of(model, sf.Schema([sf.Categorical(name) for name in SMALL]), SMALL, seed, 1.0)
        values = [[*"abcd"[:n], "unseen", None] for n in (2, 3, 4, 3)]
        every = list(itertools.product(*values))
        change = change_of(old, new, {name: [row[i] for row in every] for i, name in enumerate(SMALL)})
        changes = Changes(old, new)
        for sign in (1.0, -1.0):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(changes_module, "_MAX_STEPS", 60)
                found = changes.highest(sign)
            true = float((sign * change).max())
            assert found.bound >= true - 1e-9
            assert_first_bounds_hold(old, new, change)
            assert found.reached <= true + 1e-9
            if model.pairwise:
                assert found.bound <= true + 2e-3 * abs(true) + 1e-9

    @pytest.mark.parametrize("model", [sf.FwFM(1, third=2), sf.HigherOrderFM(2, 3), sf.HigherOrderFM(2, 4)], ids=str)
    @pytest.mark.parametrize("moved", range(4))
    def test_products_of_three_where_one_field_changes(self, model, moved):
        old, new = pair_of(model, sf.Schema([sf.Categorical(name) for name in SMALL]), SMALL, 1, 1.0)
        ptr, factors = old.encoder.layout.feature_ptr, old.params["factors"].copy()
        third = slice(ptr[moved], ptr[moved + 1]), slice(model.k if model.third else 0, None)
        factors[third] = new.params["factors"][third]
        new = replace(old, params={**old.params, "factors": factors})
        every = list(itertools.product(*([*"abcd"[:n], "unseen", None] for n in (2, 3, 4, 3))))
        change = change_of(old, new, {name: [row[i] for row in every] for i, name in enumerate(SMALL)})
        found = sf.compare(old, new)
        assert 0.01 < np.abs(change).max() <= found.bound + 1e-9
        assert_first_bounds_hold(old, new, change)
        assert abs(found.change) == pytest.approx(np.abs(change).max(), abs=1e-9)

    @examples(200)
    @given(st.integers(0, 10**6), st.integers(2, 4))
    def test_messages_bound_the_largest_sum(self, seed, n):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(1, 5, n)
        unary = [rng.normal(size=size) for size in sizes]
        pairs = {(f, e): rng.normal(size=(sizes[f], sizes[e])) for f, e in itertools.combinations(range(n), 2)}
        sums = {}
        for chosen in itertools.product(*map(range, sizes)):
            total = sum(values[at] for values, at in zip(unary, chosen, strict=True))
            sums[chosen] = total + sum(table[chosen[f], chosen[e]] for (f, e), table in pairs.items())
        found = bound_of_pairs(unary, pairs)
        assert found.bound >= max(sums.values()) - 1e-9
        for f in range(n):  # what is left out can indeed not be the largest
            allowed = found.bound - found.beliefs[f].max() + found.beliefs[f]
            for chosen, total in sums.items():
                assert total <= allowed[chosen[f]] + 1e-9


class TestEncoders:
    def test_new_categories_are_compared_with_unseen_ones(self):
        table = {"c": list("aabbcc") * 20, "y": [0, 1, 0, 1, 1, 1] * 20}
        old = sf.fit_model(table, "y", model=sf.FM(2), training=sf.Training(epochs=2, effort="fast", threads=1))
        learner = sf.Learner(old)
        learner.update({"c": ["new"] * 200, "y": [1] * 200}, "y")
        new = learner.fitted()
        found = sf.compare(old, new)
        assert found.segment == {"c": "new"}
        both = [float(each.scores({"c": ["new"]}, watch=False)[0]) for each in (old, new)]
        assert found.change == pytest.approx(both[1] - both[0], abs=1e-6)
        assert found.bound == pytest.approx(abs(found.change), rel=2e-3)

    @pytest.mark.parametrize("value", ["unseen", None])
    def test_values_without_a_category_count_too(self, value):
        old, _ = pair_of(sf.FM(2), sf.Schema([sf.Categorical("f"), sf.Categorical("h")]), SMALL, 0, 0.0)
        linear = old.params["linear"].copy()
        linear[old.encoder.encode({"f": [value], "h": ["a"]}).start[0, 0]] += 1.0
        found = sf.compare(old, replace(old, params={**old.params, "linear": linear}))
        assert found.change == pytest.approx(1.0, abs=1e-6) and found.bound >= found.change
        assert found.segment["f"] == (None if value is None else "<unseen>")

    @pytest.mark.parametrize("hashed", [False, True])
    def test_unseen_values_that_are_hashed(self, hashed):
        fields = [sf.Categorical("f", unseen="hash" if hashed else "rare", buckets=5, min_count=2), sf.Categorical("h")]
        old, new = pair_of(sf.FM(3), sf.Schema(fields), SMALL, 3, 1.0)
        change = change_of(old, new, {"f": [f"v{i}" for i in range(400)], "h": list("abcd") * 100})
        found = sf.compare(old, new)
        assert np.abs(change).max() <= found.bound + 1e-9
        row = {name: [value] for name, value in found.segment.items()}
        assert change_of(old, new, row)[0] == pytest.approx(found.change, abs=1e-9)

    @pytest.mark.parametrize(
        "cross",
        [
            sf.Cross("c", "d", min_count=1),
            sf.Cross("x", "c", segments=3, min_count=1),
            sf.Cross("x", "z", segments=(2, 4)),
            sf.Cross("c", "d", buckets=7),
        ],
        ids=lambda cross: cross.name,
    )  # fmt: skip
    def test_crosses_are_bounded(self, cross):
        fields = [FIELDS[0], sf.Numerical("z"), FIELDS[3], sf.Categorical("d"), cross]
        old, new = pair_of(sf.FwFM(3), sf.Schema(fields), TABLE, 5, 0.2)
        found = sf.compare(old, new)
        rows = draw_rows(3000, 7)
        change = change_of(old, new, rows)
        assert change.max() <= found.rise.bound and -change.min() <= found.fall.bound
        assert abs(found.change) > 0.8 * np.abs(change).max()
        row = {name: [value] for name, value in found.segment.items()}
        assert change_of(old, new, row)[0] == pytest.approx(found.change, abs=1e-9)

    def test_new_combinations_of_a_cross_after_an_update(self):
        rng = np.random.default_rng(1)

        def draw(cities):
            table = {"c": rng.choice(list(cities), 600), "d": rng.choice(list("uv"), 600)}
            return {**table, "y": (rng.random(600) < 0.5).astype(int)}

        schema = sf.Schema([sf.Categorical("c"), sf.Categorical("d"), sf.Cross("c", "d", min_count=5)])
        training = sf.Training(epochs=2, effort="fast", threads=1)
        old = sf.fit_model(draw("ab"), "y", schema=schema, model=sf.FwFM(3), training=training)
        learner = sf.Learner(old)
        learner.update(draw("abxy"), "y")
        new = learner.fitted()
        assert len(new.encoder.crosses[2].cells) > len(old.encoder.crosses[2].cells)
        found = sf.compare(old, new)
        every = list(itertools.product([*"abxy", "unseen", None], [*"uv", "unseen", None]))
        change = change_of(old, new, {"c": [row[0] for row in every], "d": [row[1] for row in every]})
        assert np.abs(change).max() <= found.bound + 1e-9
        assert abs(found.change) == pytest.approx(np.abs(change).max(), abs=1e-9)
        linear = new.params["linear"].copy()
        linear[new.encoder.layout.feature_ptr[2] + len(old.encoder.crosses[2].cells) :] += 5.0
        new = replace(new, params={**new.params, "linear": linear})
        change = change_of(old, new, {"c": [row[0] for row in every], "d": [row[1] for row in every]})
        assert change.max() > 3.0
        assert_first_bounds_hold(old, new, change)

    def test_lists_that_are_added_up(self):
        fields = [FIELDS[3], sf.MultiValued("tags", reduction="sum", max_length=3)]
        old, new = pair_of(sf.FM(3), sf.Schema(fields), TABLE, 2, 0.5)
        found = sf.compare(old, new)
        change = change_of(old, new, {name: draw_rows(3000, 1)[name] for name in ("c", "tags")})
        assert np.abs(change).max() <= found.bound + 1e-9
        row = {name: [value] for name, value in found.segment.items()}
        assert change_of(old, new, row)[0] == pytest.approx(found.change, abs=1e-9)

    def test_two_fields_of_one_column(self):
        fields = [FIELDS[0], sf.Numerical("x2", sf.MinMax(), sf.BSpline(2), column="x"), FIELDS[3]]
        old, new = pair_of(sf.FwFM(3), sf.Schema(fields), TABLE, 2, 0.5)
        found = sf.compare(old, new)
        change = change_of(old, new, draw_rows(3000, 1))
        assert np.abs(change).max() <= found.bound + 1e-9
        assert set(found.segment) == {"x", "c"}
        row = {name: [value] for name, value in found.segment.items()}
        assert change_of(old, new, row)[0] == pytest.approx(found.change, abs=1e-9)

    def test_other_kinds_of_models_can_be_compared(self):
        encoder = fit_encoder(sf.Schema(FIELDS), TABLE)
        old, new = (
            sf.Fitted(encoder, model, random_params(model, encoder.layout, 1), sf.Loss())
            for model in (sf.FM(4), sf.FFM(2))
        )
        found = sf.compare(old, new)
        assert np.abs(change_of(old, new, draw_rows(3000, 1))).max() <= found.bound

    def test_very_many_categories_are_bounded_by_lengths(self, monkeypatch):
        monkeypatch.setattr(changes_module, "_MAX_PRODUCTS", 8)
        monkeypatch.setattr(changes_module, "_MAX_ATOMS", 2)
        old, new = pair_of(sf.FwFM(4), sf.Schema([sf.Categorical(name) for name in SMALL]), SMALL, 1, 0.3)
        values = [[*"abcd"[:n], "unseen", None] for n in (2, 3, 4, 3)]
        every = list(itertools.product(*values))
        change = change_of(old, new, {name: [row[i] for row in every] for i, name in enumerate(SMALL)})
        assert np.abs(change).max() <= sf.compare(old, new).bound

    def test_groups_of_values_are_divided_until_they_are_single(self):
        rng = np.random.default_rng(0)
        values = Values(rng.normal(size=(500, 3)), rng.normal(size=(500, 3)), str)
        assert len(values.ptr) - 1 < 500
        while (finer := values.divided(np.ones(len(values.ptr) - 1, bool))) is not None:
            values = finer
        assert (np.diff(values.ptr) == 1).all() and sorted(values.order) == list(range(500))


def two(first, second, table=None, **settings):
    """Two models with other fields."""
    made = []
    for fields in (first, second):
        encoder = fit_encoder(sf.Schema(fields), TABLE if table is None else table)
        made.append(sf.Fitted(encoder, sf.FM(2), random_params(sf.FM(2), encoder.layout), sf.Loss()))
    return made


class TestRefusals:
    @pytest.mark.parametrize(
        "first, second, match",
        [
            ([FIELDS[0], FIELDS[3]], [FIELDS[0]], "column 'c' is in one of the models only"),
            ([FIELDS[0], FIELDS[3]], [FIELDS[3], FIELDS[0]], "different orders"),
            ([FIELDS[0]], [sf.Numerical("x", sf.MinMax(0, 20), sf.BSpline(5), special=[0.0])], "another transform"),
            ([FIELDS[0]], [sf.Numerical("x", sf.MinMax(), sf.BSpline(6), special=[0.0])], "another basis"),
            ([FIELDS[0]], [sf.Numerical("x", sf.MinMax(), sf.BSpline(5))], "another special"),
            ([sf.Numerical("x")], [sf.Numerical("x", outside="missing")], "another outside"),
            ([sf.Numerical("x", outside="error")], [sf.Numerical("x", outside="error", limits=(-99, 99))],
             "another limits"),
            ([FIELDS[3]], [sf.Categorical("c", unseen="neutral")], "another unseen"),
            ([sf.Categorical("x")], [sf.Numerical("x")], "not of the same kind"),
            ([sf.Numerical("x", basis=sf.Fourier(2))] * 1, [sf.Numerical("x", basis=sf.Fourier(2))], "has a Fourier"),
            ([sf.Numerical("x", reduction="identity")], [sf.Numerical("x", reduction="identity")], "several vectors"),
            ([FIELDS[3], sf.Categorical("d"), sf.Cross("c", "d", buckets=3)],
             [FIELDS[3], sf.Categorical("d"), sf.Cross("c", "d", buckets=4)], "other combinations"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_compared_says_why(self, first, second, match):
        with pytest.raises(NotComparable, match=match):
            sf.compare(*two(first, second))

    def test_scores_in_other_units(self):
        old, new = two([FIELDS[0]], [FIELDS[0]])
        with pytest.raises(NotComparable, match="the scores have other units"):
            sf.compare(old, replace(new, loss=sf.Loss("squared", center=1.0, scale=2.0)))

    def test_offsets_are_the_same_and_leave_changes_as_they_are(self):
        old, new = pair_of(sf.FM(2), sf.Schema([FIELDS[0], FIELDS[3]]), TABLE, 0, 0.5)
        first, second = (replace(each, offset=Offset("years", "exposure")) for each in (old, new))
        rows = {name: TABLE[name] for name in ("x", "c")}
        assert sf.compare(first, second, rows) == sf.compare(old, new, rows)
        with pytest.raises(NotComparable, match="do not add the same to their scores"):
            sf.compare(old, second)

    def test_products_of_other_lengths(self):
        encoder = fit_encoder(sf.Schema(FIELDS), TABLE)
        old, new = (
            sf.Fitted(encoder, model, random_params(model, encoder.layout), sf.Loss())
            for model in (sf.FwFM(4, third=2), sf.FwFM(4, third=3))
        )
        with pytest.raises(NotComparable, match="products of different numbers"):
            sf.compare(old, new)

    def test_anything_but_a_model(self):
        old, _ = two([FIELDS[0]], [FIELDS[0]])
        with pytest.raises(TypeError, match=r"new must be a sf\.Fitted"):
            sf.compare(old, "model.sfm")
