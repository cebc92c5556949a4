"""The default search space of each model, and what its points mean."""

from dataclasses import replace

import pytest

import splinefm as sf
from splinefm.learn.tuning.space import SEGMENTS, Base, Range, TrialSettings, merge_spaces

PLAIN = sf.Schema([sf.Numerical("x"), sf.Numerical("z", basis=sf.MultiResolution()), sf.Categorical("c")])


def base(model=None, schema=PLAIN, n_rows=10_000, **training):
    return Base(TrialSettings(model or sf.FM(k=8), schema, sf.Training(**training)), n_rows)


@pytest.mark.parametrize(
    ("model", "lengths"),
    [
        (sf.FM(k=8), (4, 8, 16, 32)),
        (sf.FwFM(k=16), (4, 8, 16, 32)),
        (sf.LowRankFwFM(k=16), (4, 8, 16, 32)),
        (sf.HigherOrderFM(k=8), (4, 8, 16, 32)),
        (sf.FmFM(k=8), (4, 8, 16)),
        (sf.FFM(k=8), (2, 4, 8, 16)),
        (sf.FFM(k=3), (2, 3, 4, 8, 16)),
    ],
)
def test_every_model_has_lengths_of_vectors_and_the_start_is_one_of_them(model, lengths):
    searched = base(model)
    assert searched.space()["k"] == lengths and searched.start["k"] == model.k in lengths
    assert searched.at({"k": 4}).model == type(model)(k=4)


def test_the_kind_of_model_can_be_searched():
    searched = base(sf.LowRankFwFM(k=8, rank=2))
    assert searched.start["model"] == "LowRankFwFM" and "model" not in searched.space()
    assert searched.at({"model": "LowRankFwFM", "k": 4}).model == sf.LowRankFwFM(k=4, rank=2)
    assert searched.at({"model": "FFM", "k": 4, "rank": 3}).model == sf.FFM(k=4)
    assert searched.at({"model": "HigherOrderFM"}).model == sf.HigherOrderFM()
    searched.check("model", ["FM", "FwFM"])
    with pytest.raises(ValueError, match=r"space\['model'\] has the value 'GBDT': model must be one of 'FM', 'FwFM'"):
        searched.check("model", ["FM", "GBDT"])


def test_products_of_three_are_searched_where_there_are_some():
    assert "third" not in base(sf.FwFM(k=4)).space()
    searched = base(sf.FwFM(k=4, third=6))
    assert searched.space()["third"] == (0, 4, 6, 8, 16) and searched.start["third"] == 6
    assert searched.at({"third": 0}).model == sf.FwFM(k=4)
    base(sf.FwFM(k=4)).check("third", [0, 8])


def test_an_fmfm_with_lengths_by_field_keeps_them():
    assert "k" not in base(sf.FmFM(k=(2, 3, 4))).space()


def test_every_start_value_lies_in_its_range():
    searched = base(learning_rate=0.2, l2=0.05, smoothness=1e-6, batch_size=100)
    start = searched.start
    for name, entry in searched.space().items():
        if isinstance(entry, Range):
            assert entry.low <= start[name] <= entry.high, name
        else:
            assert start[name] in entry, name
    assert searched.space()["learning_rate"] == Range(1e-3, 0.2)
    assert searched.at(start).training == sf.Training(learning_rate=0.2, l2=0.05, smoothness=1e-6, batch_size=100)
    assert searched.at(start).schema == PLAIN


@pytest.mark.parametrize(
    ("n_rows", "sizes"),
    [
        (60, (16, 32)),
        (1_000, (16, 32, 64, 128)),
        (100_000, (128, 256, 512, 1024, 2048)),
        (10**8, (1024, 2048, 4096, 8192, 16384)),
    ],
)
def test_batches_depend_on_the_number_of_rows(n_rows, sizes):
    assert base(n_rows=n_rows).space()["batch_size"] == sizes


@pytest.mark.parametrize(
    ("n_rows", "start", "sizes"),
    [(9, 1, (1, 2)), (150, 4, (2, 4, 8, 16)), (250, 8, (4, 8, 16, 32)), (500, 16, (8, 16, 32, 64))],
)
def test_small_batches_are_searched_around_those_of_a_small_table(n_rows, start, sizes):
    assert base(n_rows=n_rows, batch_size=start).space()["batch_size"] == sizes


@pytest.mark.parametrize(("strength", "l2_strength"), [(6.0, 6.0), (1.0, 0.1)], ids=["small", "large"])
def test_ranges_of_penalties_follow_the_defaults_of_a_table(strength, l2_strength):
    usual = base()
    changed = replace(usual, strength=strength, l2_strength=l2_strength)
    for name, times in {"l2": l2_strength, "smoothness": strength}.items():
        one, other = usual.space()[name], changed.space()[name]
        assert (other.low, other.high) == pytest.approx((times * one.low, times * one.high))
        assert changed.start[name] == pytest.approx(times * usual.start[name])
    assert changed.space()["learning_rate"] == usual.space()["learning_rate"]


def test_penalties_by_field_and_zeros_are_kept():
    space = base(l2={"x": 1e-3}, smoothness=0.0).space()
    assert "l2" not in space and "smoothness" not in space and "learning_rate" in space


def test_without_numerical_columns_there_are_no_curves_to_search():
    space = base(schema=sf.Schema([sf.Categorical("c"), sf.Categorical("d")])).space()
    assert set(space) == {"k", "batch_size", "learning_rate", "l2"}


class TestFields:
    MIXED = sf.Schema(
        [
            sf.Numerical("free"),
            sf.Numerical("basis", basis=sf.BSpline(12)),
            sf.Numerical("transform", transform=sf.MinMax()),
            sf.Numerical("hour", transform=sf.MinMax(0, 24), basis=sf.BSpline(24, periodic=True)),
            sf.Numerical("edges", basis=sf.Bins(edges=[0.0, 1.0, 5.0])),
            sf.Categorical("c"),
        ]
    )

    def test_what_the_user_chose_stays(self):
        schema = base(schema=self.MIXED).at({"segments": "50", "degree": 2, "transform": "quantile"}).schema
        changed = sf.BSpline(50, 2)
        assert schema["free"].basis == schema["transform"].basis == changed
        assert type(schema["free"].transform) is type(schema["basis"].transform) is sf.Quantile
        assert schema["basis"].basis == sf.BSpline(12) and schema["transform"].transform == sf.MinMax()
        for name in ("hour", "edges", "c"):
            assert schema[name] == self.MIXED[name]

    def test_if_the_user_chose_all_there_is_nothing_to_search(self):
        kept = sf.Schema([item for item in self.MIXED if item.name in ("hour", "edges", "c")])
        assert not {"segments", "degree", "transform"} & set(base(schema=kept).space())
        assert "smoothness" in base(schema=kept).space()

    def test_every_default_choice_can_be_made(self):
        searched = base()
        space = searched.space()
        assert space["segments"] == SEGMENTS
        for name in ("segments", "degree", "transform"):
            searched.check(name, space[name])
        assert searched.at({"segments": "schema", "degree": 1}).schema["z"].basis == sf.MultiResolution(degree=1)
        assert searched.at({"segments": "16+64+256"}).schema["x"].basis == sf.MultiResolution((16, 64, 256))

    @pytest.mark.parametrize("name", ["quantile", "minmax", "best-fit", "arcsinh-square", "log"])
    def test_all_transforms_can_be_fitted(self, name):
        schema = base(schema=sf.Schema([sf.Numerical("x")])).at({"transform": name}).schema
        slots = sf.fit_encoder(schema, {"x": [0.5, 1.0, 2.0, 4.0, -1.0] * 20}).encode({"x": [0.7]})
        assert slots.weight.sum() == pytest.approx(1.0)


def test_a_space_is_changed_entry_by_entry():
    default = base().space()
    merged = merge_spaces(default, {"k": [2], "degree": None, "epochs": [5, 10]})
    assert merged["k"] == (2,) and merged["epochs"] == (5, 10) and "degree" not in merged
    assert merged["l2"] == default["l2"] and merge_spaces(default, None) == default
    assert base().at({"epochs": 5}).training.epochs == 5


def test_names_that_cannot_be_tuned_are_told_with_those_that_can():
    with pytest.raises(ValueError, match="'rank', which cannot be tuned") as caught:
        base().check("rank", [2])
    assert "'smoothness_order'" in str(caught.value) and "'seed'" not in str(caught.value)
    base(sf.LowRankFwFM()).check("rank", [2])
