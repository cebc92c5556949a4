"""More than two classes: labels, weights, training, probabilities, metrics, files and updates."""

import pickle
from dataclasses import replace

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference
from sklearn.model_selection import cross_val_score
from sklearn.utils.class_weight import compute_class_weight

import splinefm as sf
from splinefm import metrics
from splinefm.model.family.formula import formula_scores
from splinefm.train.losses import log_softmax, softmax
from splinefm.train.target_summary import TargetSummary
from splinefm.train.targets import as_targets, balanced_weights, class_weights, find_classes
from support import examples

LABELS = np.array(["blue", "green", "red", "white"])
QUICK = {"epochs": 4, "learning_rate": 0.02, "n_jobs": 1}


def colors(n=800, seed=0, n_classes=4):
    """A table whose first classes depend on a number and a category."""
    rng = np.random.default_rng(seed)
    x, c = rng.uniform(-1, 1, n), rng.integers(0, 3, n)
    score = np.stack([4 * x, -4 * x, 3.0 * (c == 1), 3.0 * (c == 2), *np.zeros((n_classes, n))])[:n_classes]
    table = {"x": x, "c": np.array(["u", "v", "w"])[c]}
    return table, (score + rng.gumbel(size=score.shape)).argmax(axis=0)


TABLE, CODES = colors()
Y = LABELS[CODES]
SCHEMA = sf.Schema([sf.Numerical("x", basis=sf.BSpline(segments=6)), sf.Categorical("c")])


def classifier(**settings):
    return sf.SplineFMClassifier(sf.FwFM(k=4), schema=SCHEMA, **{**QUICK, **settings})


@pytest.fixture(scope="module")
def model():
    return classifier(epochs=8).fit(TABLE, Y)


# The loss


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_the_slope_of_the_loss_is_its_derivative(seed, n_classes):
    rng = np.random.default_rng(seed)
    loss = sf.Loss("softmax", classes=tuple(range(n_classes)))
    score, y = rng.normal(0, 3, (5, n_classes)), rng.integers(0, n_classes, 5).astype(float)
    np.testing.assert_allclose(loss.value(y, score), -np.log(softmax(score)[np.arange(5), y.astype(int)]))
    for c in range(n_classes):
        h = np.zeros(n_classes)
        h[c] = 1e-6
        slope = (loss.value(y, score + h) - loss.value(y, score - h)) / 2e-6
        np.testing.assert_allclose(loss.slope(y, score)[:, c], slope, atol=1e-6)
    np.testing.assert_allclose(loss.predict(score + 7.0), loss.predict(score))


def test_large_scores_neither_overflow_nor_warn():
    score = np.array([[1e4, 0.0, -1e4]])
    np.testing.assert_array_equal(softmax(score), [[1.0, 0.0, 0.0]])
    np.testing.assert_array_equal(log_softmax(score), [[0.0, -1e4, -2e4]])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "softmax", "classes": ("a",)}, "not for 1 classes"),
        ({"name": "logistic", "classes": ("a", "b", "c")}, "not for 3 classes"),
        ({"name": "squared", "classes": ("a", "b")}, "squared loss is not for 2 classes"),
        ({"name": "quantile", "class_weights": (1.0, 2.0)}, "quantile loss is not for 2 classes"),
        ({"name": "softmax", "classes": tuple(range(1001))}, "not for 1001 classes"),
        ({"name": "softmax", "classes": ("a", "a", "b")}, "classes must differ"),
        ({"name": "softmax", "quantile": 0.9}, "quantile belongs to the quantile loss"),
        ({"name": "softmax", "classes": ("a", "b"), "of_class": "c"}, "of_class must be one of the classes"),
        (
            {"name": "logistic", "classes": ("a", "b"), "of_class": "a"},
            "of_class must be one of the classes of a softmax",
        ),
    ],
)
def test_losses_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        sf.Loss(**settings)


@pytest.mark.parametrize("bad", [-1.0, 4.0, 0.5])
def test_targets_that_are_no_class_are_refused(bad):
    with pytest.raises(ValueError, match="must be an integer below 4"):
        sf.Loss("softmax", classes=tuple(LABELS)).check(np.array([0.0, bad]))


@examples(30)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 4))
def test_a_table_in_parts_starts_from_the_weighted_shares_of_the_classes(seed, n_classes, parts):
    rng = np.random.default_rng(seed)
    loss = sf.Loss("softmax", classes=tuple(range(n_classes)))
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, 20)).astype(float)
    weight = rng.uniform(0.125, 4, len(y))
    summary = TargetSummary(loss)
    for rows in np.array_split(rng.permutation(len(y)), parts):
        summary.add(y[rows], weight[rows])
    found, start = summary.fit_loss()
    assert found == loss
    shares = np.array([weight[y == c].sum() for c in range(n_classes)]) / weight.sum()
    np.testing.assert_allclose(loss.predict(start), shares, rtol=1e-9)
    np.testing.assert_allclose(start, loss.start(y, weight), rtol=1e-9)
    # No other constant is better: the weighted slopes sum to zero.
    np.testing.assert_allclose(weight @ loss.slope(y, np.tile(start, (len(y), 1))), 0.0, atol=1e-9)


def test_a_class_without_rows_has_a_finite_start():
    loss, summary = (
        sf.Loss("softmax", classes=("a", "b", "c")),
        TargetSummary(sf.Loss("softmax", classes=("a", "b", "c"))),
    )
    with pytest.raises(ValueError, match="all sample weights are 0"):
        summary.fit_loss()
    summary.add(np.array([0.0, 2.0]), np.ones(2))
    np.testing.assert_allclose(loss.predict(summary.fit_loss()[1]), [0.5, 0.0, 0.5], atol=2e-6)


def test_the_score_of_one_class_is_its_prediction_and_has_no_loss():
    loss = sf.Loss("softmax", classes=("a", "b", "c"), of_class="b")
    score = np.array([-2.0, 3.0])
    np.testing.assert_array_equal(loss.predict(score), score)
    assert loss.link == "identity" and loss.n_outputs == 1 and not loss.predicts_mean
    for use in (lambda: loss.value(np.zeros(2), score), lambda: loss.slope(np.zeros(2), score)):
        with pytest.raises(ValueError, match="score of class 'b' only"):
            use()
    with pytest.raises(ValueError, match="score of class 'b' only"):
        loss.check(np.zeros(2))


def test_targets_and_scores_of_different_lengths_are_refused():
    loss = sf.Loss("softmax", classes=("a", "b"))
    for function in (loss.value, loss.slope):
        with pytest.raises((ValueError, IndexError), match="broadcast"):
            function(np.zeros(3), np.zeros((4, 2)))


# Labels


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["b", "a", None, "c"], ("a", "b", "c")),
        ([7, 3, None, 5], (3, 5, 7)),
        ([2.0, 1.0, float("nan"), 3.0], (1.0, 2.0, 3.0)),
    ],
)
def test_labels_become_their_positions(values, classes):
    for column in (pa.array(values), pa.array(values).dictionary_encode()):
        assert find_classes([column], "t", max_classes=10) == classes
        expected = [np.nan if value is None or value != value else classes.index(value) for value in values]
        np.testing.assert_array_equal(as_targets(column, "t", classes), expected)


def test_labels_of_another_type_of_number_are_the_same_labels():
    for kind in (pa.int8(), pa.int64(), pa.float32(), pa.float64()):
        np.testing.assert_array_equal(as_targets(pa.array([3, 1, 2], kind), "t", (1.0, 2.0, 3.0)), [2.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="'t' was 'a', 'b' or 'c' before, now it is int64"):
        as_targets(pa.array([1, 2, 3]), "t", ("a", "b", "c"))
    with pytest.raises(ValueError, match="is 1, 2 or 3, got 4"):
        as_targets(pa.array([1, 4]), "t", (1, 2, 3))


def test_columns_that_hold_no_labels_are_refused():
    with pytest.raises(ValueError, match=r"labels must be integers, .* 't' has 0.5"):
        find_classes([pa.array([0.5, 1.0, 2.0, 3.0])], "t", max_classes=10)
    with pytest.raises(ValueError, match="more than 3 classes"):
        find_classes([pa.array([1, 2]), pa.array([3, 4])], "t", max_classes=3)
    assert find_classes([pa.array([0, 1]), pa.array([2])], "t", max_classes=3, shares=False) == (0, 1, 2)


def test_weights_of_classes():
    assert class_weights({"b": 2.0}, ("a", "b", "c")) == (1.0, 2.0, 1.0)
    with pytest.raises(ValueError, match="label 'd'; the classes are 'a', 'b' or 'c'"):
        class_weights({"d": 2.0}, ("a", "b", "c"))
    with pytest.raises(ValueError, match="0 for all classes"):
        class_weights({"a": 0, "b": 0, "c": 0}, ("a", "b", "c"))
    expected = compute_class_weight("balanced", classes=LABELS, y=Y)
    np.testing.assert_allclose(balanced_weights(*np.bincount(CODES)), expected)
    with pytest.raises(ValueError, match="needs rows of all classes"):
        balanced_weights(1.0, 0.0, 2.0)


# Training


def test_a_model_of_four_classes(model):
    fitted = model.fitted_
    assert model.classes_.tolist() == LABELS.tolist() and fitted.classes == tuple(LABELS)
    assert fitted.n_outputs == 4 and fitted.loss.name == "softmax"
    assert fitted.params["factors"].shape[0] == 4
    scores, p = model.decision_function(TABLE), model.predict_proba(TABLE)
    slots = fitted.encoder.encode(TABLE)
    np.testing.assert_allclose(scores, formula_scores(fitted.model, fitted.params, slots), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(p, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True), atol=1e-6)
    np.testing.assert_array_equal(fitted.predict(TABLE), p)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(TABLE)), p)
    np.testing.assert_array_equal(model.predict(TABLE), LABELS[p.argmax(axis=1)])
    assert fitted.scores({"x": [], "c": []}).shape == (0, 4)
    counts = np.bincount(CODES) / len(CODES)
    entropy = -(counts * np.log(counts)).sum()
    assert reference.log_loss(Y, p) < entropy - 0.3
    assert fitted.history[-1].validation_loss < entropy


def test_cross_validation_and_pickle(model):
    assert cross_val_score(classifier(), pandas.DataFrame(TABLE), Y, cv=3).min() > 0.4
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(TABLE), model.predict_proba(TABLE))


@pytest.mark.parametrize(
    "labels", [LABELS, np.array([3, 10, 11, 40]), np.array([0, 1, 2, 3]), np.array([-1.0, 0.0, 1.0, 2.0])], ids=str
)
def test_a_column_of_labels_gives_the_model_of_y(labels, tmp_path):
    y = labels[CODES]
    one = classifier().fit(TABLE, y)
    path = tmp_path / "table.parquet"
    pyarrow.parquet.write_table(pa.table({**TABLE, "y": y}), path)
    two = classifier().fit(path, target="y")
    fitted = sf.fit_model(path, "y", loss="softmax", schema=SCHEMA, model=sf.FwFM(k=4), training=one._training())
    for other in (two.fitted_, fitted):
        assert other.classes == one.fitted_.classes == tuple(labels.tolist())
        np.testing.assert_array_equal(other.scores(TABLE), one.fitted_.scores(TABLE))
    assert two.classes_.tolist() == one.classes_.tolist() == labels.tolist()
    np.testing.assert_array_equal(two.predict(TABLE), one.predict(TABLE))


def test_a_loss_brings_its_classes_and_their_weights():
    options = {"schema": SCHEMA, "model": sf.FM(k=4), "training": sf.Training(epochs=2, threads=1)}
    table = {**TABLE, "y": Y}
    more = (*LABELS.tolist(), "yellow")
    fitted = sf.fit_model(table, "y", loss=sf.Loss("softmax", classes=more), **options)
    assert fitted.classes == more and fitted.scores(TABLE).shape == (800, 5)
    first = sf.fit_model(table, "y", loss="softmax", class_weight={"red": 3.0}, **options)
    again = sf.fit_model(table, "y", loss=first.loss, **options)
    assert again.loss == first.loss and again.loss.class_weights == (1.0, 1.0, 3.0, 1.0)
    np.testing.assert_array_equal(again.scores(TABLE), first.scores(TABLE))
    with pytest.raises(ValueError, match="class_weight='balanced' conflicts with the class weights of the Loss"):
        sf.fit_model(table, "y", loss=first.loss, class_weight="balanced", **options)
    with pytest.raises(ValueError, match=r"the target 'y' is 'blue', 'green' or 'red', got 'white'"):
        sf.fit_model(table, "y", loss=sf.Loss("softmax", classes=("blue", "green", "red")), **options)
    with pytest.raises(ValueError, match="score of class 'red' only"):
        sf.fit_model(table, "y", loss=first.for_class("red").loss, **options)
    with pytest.raises(ValueError, match="'z'"):
        sf.fit_model(table, "z", loss=first.loss, **options)


def test_threads_do_not_change_a_single_bit():
    models = [classifier(n_jobs=n).set_params(schema=None).fit(TABLE, Y) for n in (1, 2, 3)]
    for other in models[1:]:
        for name, values in models[0].fitted_.params.items():
            np.testing.assert_array_equal(other.fitted_.params[name], values)


def test_two_classes_have_one_score_as_before():
    two = classifier().fit(TABLE, CODES > 1)
    assert two.fitted_.n_outputs == 1 and two.fitted_.loss.name == "logistic"
    assert two.decision_function(TABLE).ndim == 1 and two.predict_proba(TABLE).shape == (800, 2)
    with pytest.raises(ValueError, match="one score per row"):
        two.fitted_.for_class(True)


def test_softmax_of_two_classes_agrees_with_the_logistic_loss():
    table, y = colors(3000, n_classes=2)
    training = sf.Training(epochs=8, learning_rate=0.02, threads=1)
    options = {"schema": SCHEMA, "model": sf.FM(k=4), "training": training}
    losses = []
    for loss in ("softmax", "logistic"):
        fitted = sf.fit_model({**table, "y": y}, "y", loss=loss, **options)
        p = fitted.predict(table)
        losses.append(metrics.logloss(y, p[:, 1] if p.ndim == 2 else p))
    assert losses[0] == pytest.approx(losses[1], abs=0.01)


def test_many_classes():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 150, 1500)
    table = {"x": rng.normal(y, 0.2), "c": rng.choice(list("ab"), 1500)}
    many = sf.SplineFMClassifier(sf.FM(k=2), epochs=1, n_jobs=1, effort="fast").fit(table, y)
    p = many.predict_proba(table)
    assert p.shape == (1500, 150)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    many.partial_fit(table, y)
    with pytest.raises(ValueError, match="1,001 classes"):
        sf.SplineFMClassifier().fit({"x": np.arange(3003.0)}, np.arange(3003) % 1001)


def test_the_bias_starts_at_the_shares_of_the_classes():
    training = sf.Training(epochs=1, learning_rate=0.0, threads=1, refit_on_all=False)
    weight = np.where(CODES == 0, 3.0, 0.5)
    table = {**TABLE, "y": Y, "w": weight}
    fitted = sf.fit_model(
        table, "y", loss="softmax", schema=SCHEMA, sample_weight="w", model=sf.FM(k=2), training=training
    )
    expected = np.bincount(CODES, weight) / weight.sum()
    np.testing.assert_allclose(softmax(fitted.params["bias"][:, 0].astype(float)), expected, rtol=1e-5)


def test_class_weights_are_those_of_repeated_rows():
    times = {"blue": 3.0, "green": 1.0, "red": 2.0, "white": 0.0}
    by_class = classifier(class_weight=times, validation=0).fit(TABLE, Y)
    weight = np.array([times[label] for label in Y])
    by_row = classifier(validation=0).fit(TABLE, Y, sample_weight=weight)
    np.testing.assert_array_equal(by_class.decision_function(TABLE), by_row.decision_function(TABLE))
    assert by_class.fitted_.loss.class_weights == (3.0, 1.0, 2.0, 0.0)
    balanced = classifier(class_weight="balanced", validation=0).fit(TABLE, Y)
    each = compute_class_weight("balanced", classes=LABELS, y=Y)
    same = classifier(validation=0).fit(TABLE, Y, sample_weight=each[CODES])
    np.testing.assert_allclose(balanced.decision_function(TABLE), same.decision_function(TABLE), atol=1e-4)


def test_importances_are_shares_over_all_classes(model):
    shares = model.feature_importances_
    assert shares.shape == (2,) and shares.sum() == pytest.approx(1.0) and shares.min() > 0.1


# Bad input


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda m: m.fit(TABLE, ["blue"] * 800), "only one class, 'blue'"),
        (lambda m: m.fit(TABLE, [None, *Y[1:]]), "1 of 800 labels are missing"),
        (lambda m: m.fit({**TABLE, "y": [None, *Y[1:]]}, target="y"), "missing or infinite"),
        (lambda m: m.fit(TABLE, Y, eval_set=(TABLE, ["pink", *Y[1:]])), "label 'pink'; the classes are"),
        (lambda m: m.fit({**TABLE, "y": Y}, target="y", eval_set={**TABLE, "y": ["pink", *Y[1:]]}), "got 'pink'"),
        (lambda m: m.fit(TABLE, Y[:-1]), "X has 800 rows, but y has 799"),
        (lambda m: m.set_params(class_weight={"pink": 2.0}).fit(TABLE, Y), "label 'pink'; the classes are"),
        (lambda m: m.partial_fit(TABLE, Y, classes=LABELS[:3]), "label 'white'; the classes are"),
    ],
)
def test_bad_labels_are_refused(fit, message):
    with pytest.raises(ValueError, match=message):
        fit(classifier())


def test_the_logistic_loss_names_the_other_one():
    with pytest.raises(ValueError, match=r'more than two classes .*use loss="softmax"'):
        sf.fit_model({**TABLE, "y": Y}, "y")
    with pytest.raises(ValueError, match='more than two classes, use loss="softmax"'):
        sf.fit_model({**TABLE, "y": CODES}, "y")


# Updates


def test_a_class_without_rows_in_the_first_batch_is_named():
    first = CODES < 3
    part = {name: values[first] for name, values in TABLE.items()}
    one = classifier().partial_fit(part, Y[first], classes=LABELS)
    assert one.classes_.tolist() == LABELS.tolist()
    before = one.predict_proba(part)
    assert before.shape[1] == 4 and 0.0 < before[:, 3].max() < 0.05
    for _ in range(5):
        one.partial_fit(TABLE, Y)
    assert one.predict_proba(TABLE)[:, 3].mean() > 2 * before[:, 3].mean()
    assert one.history_[-1].run == "update"
    with pytest.raises(ValueError, match="label 'pink'; the classes are"):
        one.partial_fit(TABLE, ["pink", *Y[1:]])
    with pytest.raises(ValueError, match="differ from the fit"):
        one.partial_fit(TABLE, Y, classes=["blue", "green", "pink", "red", "white"])


def test_new_categories_get_features_for_every_class():
    one = classifier().fit(TABLE, Y)
    fitted = one.fitted_
    other = {"x": TABLE["x"], "c": np.where(TABLE["c"] == "u", "new", TABLE["c"])}
    learner = sf.Learner(fitted)
    learner.update({**other, "y": Y}, "y")
    grown = learner.fitted()
    n = grown.encoder.layout.n_features
    assert n == fitted.encoder.layout.n_features + 1
    assert grown.params["factors"].shape == (4, n, 4) and grown.params["linear"].shape == (4, n)
    one.partial_fit(other, Y)
    np.testing.assert_array_equal(one.fitted_.scores(other), grown.scores(other))


# Files and one class


def test_files_keep_every_class(model, tmp_path):
    path = tmp_path / "model.sfm"
    for kind in (sf.FM(5), sf.LowRankFwFM(4), sf.FmFM(3), sf.FFM(2), sf.HigherOrderFM(4)):
        fitted = classifier(epochs=1).set_params(model=kind).fit(TABLE, Y).fitted_
        fitted.save(path)
        for mmap in (False, True):
            again = sf.load(path, mmap=mmap)
            assert again.loss == fitted.loss and again.classes == tuple(LABELS)
            np.testing.assert_array_equal(again.scores(TABLE), fitted.scores(TABLE))
    model.save(path)
    loaded = sf.SplineFMClassifier.load(path)
    np.testing.assert_array_equal(loaded.predict(TABLE), model.predict(TABLE))
    loaded.partial_fit(TABLE, Y)
    with pytest.raises(ValueError, match=r"use sf\.SplineFMClassifier\.load"):
        sf.SplineFMRegressor.load(path)


def test_parameters_that_do_not_fit_the_classes_are_not_saved(model, tmp_path):
    fitted = model.fitted_
    for loss in (replace(fitted.loss, classes=tuple(LABELS[:3])), sf.Loss(), sf.Loss("softmax")):
        with pytest.raises(sf.ModelFileError, match=r"has the shape|dimensions instead|no classes"):
            replace(fitted, loss=loss).save(tmp_path / "model.sfm")


def test_the_model_of_one_class(model, tmp_path):
    fitted = model.fitted_
    for c, label in enumerate(LABELS):
        one = fitted.for_class(label)
        assert one.n_outputs == 1 and one.loss.of_class == label
        assert np.shares_memory(one.params["factors"], fitted.params["factors"])
        np.testing.assert_array_equal(one.scores(TABLE), fitted.scores(TABLE)[:, c])
        np.testing.assert_array_equal(one.predict(TABLE), one.scores(TABLE))
    one.save(tmp_path / "one.sfm")
    again = sf.load(tmp_path / "one.sfm")
    assert again.loss == one.loss
    np.testing.assert_array_equal(again.scores(TABLE), one.scores(TABLE))
    with pytest.raises(ValueError, match="classes of the model are 'blue', 'green', 'red' or 'white', got 'pink'"):
        fitted.for_class("pink")
    with pytest.raises(ValueError, match="score of class 'white' only"):
        sf.Learner(one)


ONE_SCORE = {
    "segment": lambda f, _: f.segment({"c": "u"}, along="x"),
    "segments": lambda f, _: sf.segments(f, {"c": ["u", "v"]}, along="x"),
    "shapley_values": lambda f, _: sf.shapley_values(f, TABLE, TABLE),
    "decompose": lambda f, _: sf.decompose(f, TABLE, TABLE),
    "importance": lambda f, _: sf.importance(f, TABLE),
    "partial_dependence": lambda f, _: sf.partial_dependence(f, "x", [0.0, 0.5], TABLE),
    "ice_curves": lambda f, _: sf.ice_curves(f, TABLE, "x", [0.0, 0.5]),
    "discretize": lambda f, _: sf.discretize(f, {"x": 20}),
    "libffm": lambda f, path: f.export_libffm(path / "model.ffm", raw=True),
    "tables": lambda f, path: sf.discretize(f, {"x": 20}).export_tables(path / "tables"),
    "ItemIndex": lambda f, _: sf.ItemIndex(f, {"c": ["u", "v"]}, ids=[1, 2]),
}


@pytest.mark.parametrize("name", ONE_SCORE)
def test_what_needs_one_score_takes_one_class_and_says_so(name, model, tmp_path):
    use = ONE_SCORE[name]
    with pytest.raises(ValueError, match=r"score for each of 4 classes.*fitted\.for_class\('blue'\)"):
        use(model.fitted_, tmp_path)
    use(model.fitted_.for_class("red"), tmp_path)


# Metrics


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.booleans())
def test_metrics_are_those_of_scikit_learn(seed, n_classes, weighted):
    rng = np.random.default_rng(seed)
    n = 40
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    p = rng.dirichlet(np.ones(n_classes), n)
    weight = rng.uniform(0.2, 3.0, n) if weighted else None
    labels = np.arange(n_classes)
    expected = reference.log_loss(y, p, sample_weight=weight, labels=labels)
    assert metrics.class_logloss(y, p, weight) == pytest.approx(expected)
    expected = reference.accuracy_score(y, p.argmax(axis=1), sample_weight=weight)
    assert metrics.accuracy(y, p, weight) == pytest.approx(expected)
    each = [reference.roc_auc_score(y == c, p[:, c], sample_weight=weight) for c in labels]
    assert metrics.class_auc(y, p, weight) == pytest.approx(np.mean(each))


@pytest.mark.parametrize("metric", [metrics.class_logloss, metrics.accuracy, metrics.class_auc])
@pytest.mark.parametrize(
    ("y", "p", "message"),
    [
        ([0, 1], [0.5, 0.5], r"shape \(n, classes\), got \(2,\)"),
        ([0, 2], [[0.5, 0.5], [0.5, 0.5]], "numbers of the 2 classes, got 2; for labels, pass classes=model.classes_"),
        (["a", "b"], [[0.5, 0.5], [0.5, 0.5]], "numbers of classes, got 'a'; for labels, pass classes=model.classes_"),
        ([0, 0.5], [[0.5, 0.5], [0.5, 0.5]], "numbers of the 2 classes, got 0.5"),
        ([0], [[0.5, 0.5], [0.5, 0.5]], "arrays of one length"),
        ([0, 1], [[0.5, 0.5], [0.5, 1.5]], "between 0 and 1, got 1.5"),
        ([0, 1], [[0.5, np.nan], [0.5, 0.5]], "between 0 and 1, got nan"),
    ],
)
def test_metrics_refuse_what_is_no_probability(metric, y, p, message):
    with pytest.raises(ValueError, match=message):
        metric(y, p)


@pytest.mark.parametrize("metric", [metrics.class_logloss, metrics.accuracy, metrics.class_auc])
@pytest.mark.parametrize("labels", [[1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0], ["a", "b", "c", "d"], [False, True, 2, 3]])
def test_metrics_take_labels_by_the_classes_of_the_model(metric, labels):
    rng = np.random.default_rng(3)
    y, p = rng.integers(0, 3, 40), rng.dirichlet(np.ones(4), 40)  # no row has the last class
    named = [labels[i] for i in y]
    for classes in (labels, tuple(labels), np.array(labels)):
        for of_rows in (named, np.array(named), pandas.Series(named), pandas.Categorical(named)):
            assert metric(of_rows, p, classes=classes) == metric(y, p)
    with pytest.raises(ValueError, match="classes must have a label for each of the 4 columns of p, got 3"):
        metric(named, p, classes=labels[:3])
    with pytest.raises(ValueError, match=r"targets must be labels among classes: .*, got 'z'"):
        metric(["z", *named[1:]], p, classes=labels)


def test_a_study_of_classes():
    pytest.importorskip("optuna")
    tuned = sf.tune(classifier(epochs=2), TABLE, Y, trials=2, metric="accuracy")
    assert tuned.estimator.classes_.tolist() == LABELS.tolist()


@pytest.mark.parametrize(("classes", "loss"), [(("b", "a", "c"), "softmax"), (("yes", "no"), "logistic")])
def test_a_loaded_classifier_learns_labels_that_are_not_in_sorted_order(classes, loss, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    labels = np.array(classes)[np.digitize(x, np.linspace(-0.5, 0.5, len(classes) - 1))]
    training = sf.Training(epochs=5, threads=1, crosses=None)
    fitted = sf.fit_model({"x": x, "y": labels}, "y", loss=sf.Loss(loss, classes=classes), training=training)
    fitted.save(tmp_path / "m.sfm")
    model = sf.SplineFMClassifier.load(tmp_path / "m.sfm")
    before = np.mean(model.predict({"x": x}) == labels)
    for _ in range(20):
        model.partial_fit({"x": x}, labels, classes=sorted(classes))
    assert before > 0.9 and np.mean(model.predict({"x": x}) == labels) >= before
