"""The default search space of each model, and what its points mean."""

import pytest

import splinefm as sf
from splinefm.encode.schema import Provenance
from splinefm.search.crosses import with_cross
from splinefm.search.setting import Setting
from splinefm.train.loop import settings_for
from splinefm.tuning.space import PENALTIES, SEGMENTS, Range, Space, merge_spaces

PLAIN = sf.Schema([sf.Numerical("x"), sf.Numerical("z", basis=sf.MultiResolution()), sf.Categorical("c")])


def space_of(model=None, schema=PLAIN, n_rows=10_000, found=None, **training):
    """The space of a setting that was given, or of what the search of a fit has found beyond it."""
    given = Setting(schema, model or sf.FM(k=8), sf.Training(**training))
    base = found or given
    filled = settings_for(base.training, base.schema, n_rows)
    return Space(Setting(base.schema, base.model, filled), given, n_rows)


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
    searched = space_of(model)
    assert searched.entries()["k"] == lengths and searched.start["k"] == model.k in lengths
    assert searched.at({"k": 4}).model == type(model)(k=4)


def test_the_kind_of_model_can_be_searched():
    searched = space_of(sf.LowRankFwFM(k=8, rank=2))
    assert searched.start["model"] == "LowRankFwFM" and "model" not in searched.entries()
    assert searched.at({"model": "LowRankFwFM", "k": 4}).model == sf.LowRankFwFM(k=4, rank=2)
    assert searched.at({"model": "FFM", "k": 4, "rank": 3}).model == sf.FFM(k=4)
    assert searched.at({"model": "HigherOrderFM"}).model == sf.HigherOrderFM()
    searched.check("model", ["FM", "FwFM"])
    with pytest.raises(ValueError, match=r"space\['model'\] has the value 'GBDT': model must be one of 'FM', 'FwFM'"):
        searched.check("model", ["FM", "GBDT"])


def test_products_of_three_are_searched_where_there_are_some():
    assert "third" not in space_of(sf.FwFM(k=4)).entries()
    searched = space_of(sf.FwFM(k=4, third=6))
    assert searched.entries()["third"] == (0, 4, 6, 8, 16) and searched.start["third"] == 6
    assert searched.at({"third": 0}).model == sf.FwFM(k=4)
    space_of(sf.FwFM(k=4)).check("third", [0, 8])


def test_an_fmfm_with_lengths_by_field_keeps_them():
    assert "k" not in space_of(sf.FmFM(k=(2, 3, 4))).entries()


def test_every_start_value_lies_in_its_range():
    searched = space_of(learning_rate=0.2, l2=0.05, smoothness=1e-6, batch_size=100)
    start = searched.start
    for name, entry in searched.entries().items():
        if isinstance(entry, Range):
            assert entry.low <= start[name] <= entry.high, name
        else:
            assert start[name] in entry, name
    assert searched.entries()["learning_rate"] == Range(1e-3, 0.2)
    assert searched.at(start) == searched.base
    assert searched.base.training.batch_size == 100 and searched.base.schema == PLAIN


@pytest.mark.parametrize(
    ("n_rows", "sizes"),
    [
        (60, (2, 4, 8)),
        (1_000, (16, 32, 64, 128)),
        (100_000, (128, 256, 512, 1024, 2048)),
        (10**8, (1024, 2048, 4096, 8192, 16384)),
    ],
)
def test_batches_depend_on_the_number_of_rows(n_rows, sizes):
    assert space_of(n_rows=n_rows).entries()["batch_size"] == sizes


@pytest.mark.parametrize(
    ("n_rows", "start", "sizes"),
    [(9, 1, (1, 2)), (150, 4, (2, 4, 8, 16)), (250, 8, (4, 8, 16, 32)), (500, 16, (8, 16, 32, 64))],
)
def test_small_batches_are_searched_around_those_of_a_small_table(n_rows, start, sizes):
    assert space_of(n_rows=n_rows, batch_size=start).entries()["batch_size"] == sizes


@pytest.mark.parametrize("n_rows", [100, 10_000, 10_000_000])
def test_ranges_of_penalties_are_multiples_of_those_of_the_base(n_rows):
    searched = space_of(n_rows=n_rows)
    for name, multiples in PENALTIES.items():
        value, entry = getattr(searched.base.training, name), searched.entries()[name]
        assert searched.start[name] == value
        assert (entry.low, entry.high) == (value * multiples.low, value * multiples.high)
        assert getattr(searched.at({name: 3.0 * value}).training, name) == 3.0 * value


def test_penalties_by_field_and_zeros_are_kept():
    space = space_of(l2={"x": 1e-3}, smoothness=0.0).entries()
    assert "l2" not in space and "smoothness" not in space and "learning_rate" in space


def test_without_numerical_columns_there_are_no_curves_to_search():
    space = space_of(schema=sf.Schema([sf.Categorical("c"), sf.Categorical("d")])).entries()
    assert set(space) == {"k", "batch_size", "learning_rate", "l2"}


class TestFound:
    """What the search of a fit has found is where the space begins."""

    SCHEMA = with_cross(PLAIN, sf.Cross("x", "z"), gain=0.1)
    TRAINING = sf.Training(l2={"x": 1e-5, "z": 1e-5, "c": 1e-5, "x × z": 1e-3}, epochs=60)
    FOUND = Setting(SCHEMA, sf.FM(k=48), TRAINING).with_basis(sf.BSpline(4, degree=1))

    def test_the_start_is_the_base(self):
        searched = space_of(found=self.FOUND)
        start, entries = searched.start, searched.entries()
        assert (start["l2"], start["epochs"], start["k"], start["crosses"]) == (1e-5, 60, 48, True)
        assert entries["crosses"] == (True, False) and 48 in entries["k"]
        assert searched.at({name: start[name] for name in (*entries, "epochs")}) == searched.base

    def test_crosses_can_be_left_out_with_their_penalties(self):
        setting = space_of(found=self.FOUND).at({"crosses": False})
        assert setting.schema == PLAIN and "x × z" not in dict(setting.training.l2)
        setting.training.check_fields(setting.schema.names)

    def test_penalties_of_crosses_stay_as_much_larger(self):
        training = space_of(found=self.FOUND).at({"l2": 2e-5, "smoothness": 1.0}).training
        assert dict(training.l2) == {"x": 2e-5, "z": 2e-5, "c": 2e-5, "x × z": pytest.approx(2e-3)}
        assert dict(training.smoothness) == {"x": 1.0, "z": 1.0, "c": 1.0, "x × z": 0.0}

    def test_found_bases_are_one_of_the_values_of_segments(self):
        schema = sf.Schema(
            [sf.Numerical("x"), sf.Numerical("mine", basis=sf.BSpline(12))], {"x": Provenance("inferred")}
        )
        found = Setting(schema, sf.FM(k=8), sf.Training()).with_basis(sf.BSpline(4, degree=1))
        searched = space_of(schema=schema, found=found)
        assert searched.start["degree"] == 1 and searched.entries()["segments"] == SEGMENTS
        bases = {value: searched.at({"segments": value}).schema["x"].basis for value in ("schema", "8")}
        assert bases == {"schema": sf.BSpline(4, 1), "8": sf.BSpline(8, 1)}
        changed = searched.at({"segments": "8", "degree": 2}).schema
        assert changed["x"].basis == sf.BSpline(8, 2) and changed["mine"].basis == sf.BSpline(12)

    def test_crosses_of_the_user_stay(self):
        schema = sf.Schema([*PLAIN.fields, sf.Cross("x", "c")])
        searched = space_of(schema=schema)
        assert "crosses" not in searched.entries() and searched.at({"crosses": False}).schema == schema
        with pytest.raises(ValueError, match=r"space\['crosses'\] has the value 2: crosses must be True or False"):
            searched.check("crosses", [True, 2])


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
        schema = space_of(schema=self.MIXED).at({"segments": "50", "degree": 2, "transform": "quantile"}).schema
        changed = sf.BSpline(50, 2)
        assert schema["free"].basis == schema["transform"].basis == changed
        assert type(schema["free"].transform) is type(schema["basis"].transform) is sf.Quantile
        assert schema["basis"].basis == sf.BSpline(12) and schema["transform"].transform == sf.MinMax()
        for name in ("hour", "edges", "c"):
            assert schema[name] == self.MIXED[name]

    def test_if_the_user_chose_all_there_is_nothing_to_search(self):
        kept = sf.Schema([item for item in self.MIXED if item.name in ("hour", "edges", "c")])
        assert not {"segments", "degree", "transform"} & set(space_of(schema=kept).entries())
        assert "smoothness" in space_of(schema=kept).entries()

    def test_every_default_choice_can_be_made(self):
        searched = space_of()
        space = searched.entries()
        assert space["segments"] == SEGMENTS
        for name in ("segments", "degree", "transform"):
            searched.check(name, space[name])
        assert searched.at({"segments": "schema", "degree": 1}).schema["z"].basis == sf.MultiResolution(degree=1)
        assert searched.at({"segments": "16+64+256"}).schema["x"].basis == sf.MultiResolution((16, 64, 256))

    @pytest.mark.parametrize("name", ["quantile", "minmax", "best-fit", "arcsinh-square", "log"])
    def test_all_transforms_can_be_fitted(self, name):
        schema = space_of(schema=sf.Schema([sf.Numerical("x")])).at({"transform": name}).schema
        slots = sf.fit_encoder(schema, {"x": [0.5, 1.0, 2.0, 4.0, -1.0] * 20}).encode({"x": [0.7]})
        assert slots.weight.sum() == pytest.approx(1.0)


def test_a_space_is_changed_entry_by_entry():
    default = space_of().entries()
    merged = merge_spaces(default, {"k": [2], "degree": None, "epochs": [5, 10]})
    assert merged["k"] == (2,) and merged["epochs"] == (5, 10) and "degree" not in merged
    assert merged["l2"] == default["l2"] and merge_spaces(default, None) == default
    assert space_of().at({"epochs": 5}).training.epochs == 5


def test_names_that_cannot_be_tuned_are_told_with_those_that_can():
    with pytest.raises(ValueError, match="'rank', which cannot be tuned") as caught:
        space_of().check("rank", [2])
    assert "'smoothness_order'" in str(caught.value) and "'seed'" not in str(caught.value)
    space_of(sf.LowRankFwFM()).check("rank", [2])
