"""Targets with two labels of any kind."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import splinefm as sf
from splinefm.encode import encoder as encoders
from splinefm.fit import estimators
from splinefm.train.targets import as_targets, as_weights, find_classes

TRAINING = sf.Training(epochs=1, threads=1)


@pytest.mark.parametrize(
    ("parts", "classes"),
    [
        ([["no", "yes", None], ["no"]], ("no", "yes")),
        ([["a"], ["b"]], ("a", "b")),
        ([[True, False]], (False, True)),
        ([[2, 1, 2]], (1, 2)),
        ([[-1.0, float("nan")], [1.0]], (-1.0, 1.0)),
        ([[0, 1]], None),
        ([[0.0, 0.25, None]], None),
        ([[1, 1], [2]], (1, 2)),  # a table that is sorted by label
        ([[0, 0], [0, 1], [0.5]], None),
        ([[0, 1], []], None),
    ],
)
def test_classes_are_found_and_sorted(parts, classes):
    columns = [pa.array(part) for part in parts]
    assert find_classes(columns, "t") == classes
    coded = [column.dictionary_encode() for column in columns]
    assert find_classes(coded, "t") == classes


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", "b", "c"], "'t' has more than two classes.*softmax"),
        ([1, 2, 3], "must lie between 0 and 1 or have two values.*squared"),
        (["a", None], "only one class .'a'."),
        (pa.array([None, None], pa.string()), "no values"),
        ([[1.0], [0.0]], "one value per row, but 't' holds list"),
    ],
)
def test_other_than_two_labels_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        find_classes([pa.array(values)], "t")


def test_labels_become_0_and_1():
    expected = [0.0, 1.0, np.nan, 1.0]
    for values, classes in (
        (["no", "yes", None, "yes"], ("no", "yes")),
        ([False, True, None, True], (False, True)),
        ([1, 2, None, 2], (1, 2)),
        ([1.0, 2.0, float("nan"), 2.0], (1, 2)),
    ):
        column = pa.array(values)
        np.testing.assert_array_equal(as_targets(column, "t", classes), expected)
        np.testing.assert_array_equal(as_targets(column.dictionary_encode(), "t", classes), expected)
    # The same labels may come back as another type.
    np.testing.assert_array_equal(as_targets(pa.array([1.0, 0.0]), "t", (False, True)), [1.0, 0.0])
    np.testing.assert_array_equal(as_targets(pa.array([2, 1], pa.int8()), "t", (1.0, 2.0)), [1.0, 0.0])
    np.testing.assert_array_equal(as_targets(pa.array(["é"], pa.large_string()), "t", ("e", "é")), [1.0])
    np.testing.assert_array_equal(as_targets(pa.array([0.25]), "t", None), [0.25])
    np.testing.assert_array_equal(as_targets(pa.nulls(2), "t", ("no", "yes")), [np.nan, np.nan])


@pytest.mark.parametrize(
    ("values", "message"),
    [(["no", "maybe"], "'no' or 'yes', got 'maybe'"), ([1, 2], "'no' or 'yes' before, now it is")],
)
def test_a_label_that_was_not_there_is_an_error(values, message):
    with pytest.raises(ValueError, match=message):
        as_targets(pa.array(values), "t", ("no", "yes"))


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(21, 1)])
@pytest.mark.parametrize("classes", [(False, True), (0, 1), (0.0, 1.0)], ids=str)
def test_true_is_one_whatever_the_column_is_made_of(kind, classes):
    column = pa.array([1, 0, None, 1]).cast(kind) if kind != pa.bool_() else pa.array([True, False, None, True])
    np.testing.assert_array_equal(as_targets(column, "t", classes), [1.0, 0.0, np.nan, 1.0])


@pytest.mark.parametrize("classes", [None, (False, True), (0, 1), (0.0, 1.0)], ids=str)
def test_truth_values_in_words_are_truth_values(classes):
    for words in (["True", "False", None, "true"], ["TRUE", "false", None, "True"]):
        column = pa.array(words)
        for each in (column, column.cast(pa.large_string()), column.dictionary_encode()):
            np.testing.assert_array_equal(as_targets(each, "t", classes), [1.0, 0.0, np.nan, 1.0])
    np.testing.assert_array_equal(as_targets(pa.array(["True"]), "t", ("True", "true")), [0.0])


def test_a_number_that_is_text_is_told_as_a_target():
    with pytest.raises(ValueError, match=r"the target 't' must hold numbers or booleans, but is text.*'maybe'"):
        as_targets(pa.array([None, "maybe", "true"]), "t", None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array(["2", None, "many"]), "must be numbers, but the column has 'many'; name a column of numbers"),
        (pa.array(["a", "b"]).dictionary_encode(), "must be numbers, but the column has 'a'"),
        (pa.array([[1.0]]), "must be numbers, but the column has type list<item: double>"),
        (pa.array([1.0, None]), "must be finite and at least 0"),
    ],
)
def test_weights_that_are_none_are_told_as_weights(values, message):
    with pytest.raises(ValueError, match=f"the weights in column 'w' {re.escape(message)}") as told:
        as_weights(values, "w")
    assert "Categorical" not in str(told.value)


@pytest.mark.parametrize("kind", [pa.int64(), pa.int8(), pa.uint8(), pa.float64()])
def test_labels_are_not_cut_to_whole_numbers(kind):
    with pytest.raises(ValueError, match=r"'t' is 0\.5 or 1\.5, got 1"):
        as_targets(pa.array([1, 1], kind), "t", (0.5, 1.5))
    with pytest.raises(ValueError, match=r"'t' is -1 or 300, got 1"):  # which have no place in eight bits
        as_targets(pa.array([None, 1], kind), "t", (-1, 300))


def test_other_kinds_of_columns_are_refused_in_plain_words():
    with pytest.raises(ValueError, match="the target 't' was a number or a boolean before, now it is date32"):
        as_targets(pa.array([1], pa.date32()), "t", (False, True))
    with pytest.raises(ValueError, match="the target 't' was False or True before, now it is string"):
        as_targets(pa.array(["yes"]), "t", (False, True))


@pytest.mark.parametrize("labels", [("no", "yes"), (False, True), (1, 2), (-1.0, 1.0)])
def test_a_model_is_the_same_whatever_the_labels_are_called(labels, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.random(300)
    second = rng.random(300) < x
    plain = sf.fit_model({"x": x, "y": second.astype(float)}, "y", model=sf.FM(k=2), training=TRAINING)
    table = pa.table({"x": x, "y": pa.array([labels[int(is_second)] for is_second in second])})
    pa_csv.write_csv(table, tmp_path / "t.csv")
    for source in (table, tmp_path / "t.csv"):
        fitted = sf.fit_model(source, "y", model=sf.FM(k=2), training=TRAINING)
        assert fitted.classes == labels
        np.testing.assert_array_equal(fitted.predict(table), plain.predict(table))
    assert plain.classes is None
    fitted.save(tmp_path / "m.sfm")
    loaded = sf.load(tmp_path / "m.sfm")
    assert loaded.classes == labels
    learner = sf.Learner(loaded)
    assert learner.update(table, "y") > 0.0
    assert learner.fitted().classes == labels
    with pytest.raises(ValueError, match="missing"):
        learner.update({"x": [0.5], "y": pa.nulls(1, table["y"].type)}, "y")


def test_more_than_two_labels_that_come_late():
    columns = [pa.array(part) for part in ([0, 0], [0, 1], [2])]
    assert find_classes(columns, "t", max_classes=3) == (0, 1, 2)
    with pytest.raises(ValueError, match="must lie between 0 and 1 or have two values"):
        find_classes(columns, "t")


class TestSpellings:
    SPELLED = ("Yes", "no", "yes ", "No", "maybe")
    WARNING = (
        "differ only in case or white space and count as different classes: 'No' and 'no', 'Yes' and 'yes '; write"
    )

    def test_labels_that_differ_only_in_case_or_white_space_are_warned_of_once(self):
        table = {"x": np.arange(100.0), "t": self.SPELLED * 20}
        with pytest.warns(UserWarning, match=f"the target 't' has labels that {self.WARNING}") as told:
            fitted = sf.fit_model(table, "t", loss="softmax", model=sf.FM(k=2), training=TRAINING)
        assert len(told) == 1 and len(fitted.classes) == 5

    @pytest.mark.parametrize("target", [None, "t"])
    def test_estimators_warn_of_them_once(self, target):
        x, t = np.arange(100.0), np.array(self.SPELLED * 20)
        y = (t, None) if target is None else (None, target)
        table = {"x": x} if target is None else {"x": x, "t": t}
        with pytest.warns(UserWarning, match=self.WARNING) as told:
            sf.SplineFMClassifier(sf.FM(k=2), epochs=1, n_jobs=1).fit(table, y[0], target=y[1])
        assert len(told) == 1

    def test_a_logistic_target_that_has_too_many_is_warned_of_before_the_error(self):
        with (
            pytest.warns(UserWarning, match="'Yes' and 'yes '"),
            pytest.raises(ValueError, match="more than two classes"),
        ):
            find_classes([pa.array(["Yes", "no", "yes "])], "t")

    def test_other_labels_are_not(self):
        assert find_classes([pa.array(["a", "b b", "bb", "c"])], "t", 10) == ("a", "b b", "bb", "c")


INFINITE = [
    np.append(np.ones(39), np.inf),
    np.append(np.tile([0.0, 1.0], 20)[:39], -np.inf),
    np.append(np.tile([0.0, 1.0, 2.0], 13), np.inf),
    np.where(np.arange(40) % 2, np.inf, -np.inf),
    np.append(np.ones(39), np.inf).astype(np.float32),
    np.append(np.ones(39), np.inf).astype(object),
]


@pytest.mark.parametrize("y", INFINITE, ids=["one", "two", "three", "both", "float32", "object"])
class TestAnInfiniteTargetIsNoClass:
    @pytest.mark.parametrize("loss", ["logistic", "softmax", "squared"])
    def test_in_a_fit(self, y, loss):
        with pytest.raises(ValueError, match=r"the target 'y' has .*infinite value"):
            sf.fit_model({"x": np.arange(40.0), "y": y}, "y", loss=loss, training=TRAINING)

    def test_in_an_estimator(self, y):
        estimator = sf.SplineFMClassifier(epochs=1, n_jobs=1)
        with pytest.raises(ValueError, match="y has an infinite value"):
            estimator.fit({"x": np.arange(40.0)}, y)
        with pytest.raises(ValueError, match="has an infinite value"):
            estimator.fit({"x": np.arange(40.0), "y": y}, target="y")
        with pytest.raises(ValueError, match="has an infinite value"):
            estimator.partial_fit({"x": np.arange(40.0)}, np.tile([0.0, 1.0], 20), classes=np.unique(y))

    def test_in_an_update(self, y, fitted_to_labels):
        learner = sf.Learner(fitted_to_labels)
        with pytest.raises(ValueError, match=r"the target 'y' is .* got -?inf"):
            learner.update({"x": np.arange(40.0), "y": np.where(np.isinf(y.astype(float)), y, 1.0)}, "y")


@pytest.fixture(scope="module")
def fitted_to_labels():
    table = {"x": np.arange(40.0), "y": np.tile([1.0, 2.0], 20)}
    return sf.fit_model(table, "y", loss="logistic", model=sf.FM(k=2), training=TRAINING)


@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson", "gamma", "tweedie", "quantile", "huber", "softmax"])
@pytest.mark.parametrize("weight", [5e-324, 1e-310])
def test_weights_that_are_too_small_are_named_and_not_the_learning_rate(loss, weight):
    y = np.tile([1.0, 2.0, 3.0], 20) if loss != "logistic" else np.tile([0.0, 1.0, 1.0], 20)
    table = {"x": np.arange(60.0), "y": y, "w": np.full(60, weight)}
    with pytest.raises(ValueError, match=r"the sample weights are so small that they sum to .*divide all of them"):
        sf.fit_model(table, "y", loss=loss, sample_weight="w", training=TRAINING)


def test_weights_that_are_too_small_are_named_in_an_update(fitted_to_labels):
    table = {"x": np.arange(40.0), "y": np.tile([1.0, 2.0], 20), "w": np.full(40, 5e-324)}
    with pytest.raises(ValueError, match="the sample weights are so small"):
        sf.Learner(fitted_to_labels).update(table, "y", sample_weight="w")


def test_a_few_weights_next_to_zero_count_as_zero(fitted_to_labels):
    """Even if a batch has no others."""
    x, y, w = np.arange(64.0), np.tile([1.0, 2.0], 32), np.ones(64)
    training = sf.Training(epochs=1, threads=1, batch_size=1, crosses=None)
    first, second = (
        sf.fit_model(
            {"x": x, "y": y, "w": np.where(x < 8, small, w)}, "y", loss="logistic", model=sf.FM(k=2),
            sample_weight="w", training=training, validation=0.0,
        )
        for small in (0.0, 5e-324)
    )  # fmt: skip
    np.testing.assert_allclose(first.scores({"x": x}), second.scores({"x": x}), atol=1e-6)


def test_weights_whose_sum_overflows_are_named():
    table = {"x": np.arange(40.0), "y": np.tile([1.0, 2.0], 20), "w": np.full(40, 1e308)}
    with pytest.raises(ValueError, match="the weights in column 'w' sum to infinity; divide"):
        sf.fit_model(table, "y", loss="squared", sample_weight="w", training=TRAINING)


def test_labels_are_read_once(monkeypatch):
    read, times = estimators.read_labels, []
    monkeypatch.setattr(estimators, "read_labels", lambda y: times.append(1) or read(y))
    table, y = {"x": np.arange(200.0)}, np.repeat(["no", "yes"], 100)
    fitted = sf.SplineFMClassifier(sf.FM(k=2), epochs=2, effort="fast", n_jobs=1).fit(table, y)
    assert len(times) == 1 and fitted.classes_.tolist() == ["no", "yes"]


def test_a_table_is_opened_once_and_not_for_every_batch(monkeypatch):
    opened, open_table = [], encoders.open_table
    monkeypatch.setattr(
        encoders, "open_table", lambda *args, **options: opened.append(1) or open_table(*args, **options)
    )
    table = {"x": np.arange(200.0), "click": np.arange(200) % 2}
    sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=2, effort="fast", threads=1))
    assert not opened
