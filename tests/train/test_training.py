"""Training: it learns what is there, the same way every time, and says what goes wrong."""

import json
import re
from dataclasses import asdict, replace
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import splinefm as sf
from splinefm.cli.click_data import click_data
from splinefm.fit import fitting
from splinefm.metrics import logloss, rmse
from splinefm.train import chunks
from splinefm.train import loop as passes
from splinefm.train import penalties as penalties_module
from splinefm.train.loop import EpochSelector, divergence_advice, make_engine
from splinefm.train.penalties import AdaptivePenalties, make_groups
from splinefm.train.progress import SILENT
from splinefm.train.results import StopReason
from splinefm.train.rows import Chunk

MODELS = [
    sf.FM(k=4),
    sf.FwFM(k=4),
    sf.LowRankFwFM(k=4, rank=2),
    sf.FmFM(k=3),
    sf.FFM(k=3),
    sf.HigherOrderFM(k=3, order=3),
    sf.FwFM(k=3, third=2),
]
QUICK = sf.Training(
    epochs=3,
    batch_size=64,
    seed=1,
    threads=1,
    learning_rate=0.01,
    l2=1e-4,
    smoothness=3e-4,
    refit_on_all=False,
    effort="fast",
)


def waves(rows=1500, seed=0):
    """y depends on x differently in each group: an interaction of a number and a category."""
    rng = np.random.default_rng(seed)
    x, group = rng.random(rows), rng.integers(0, 2, rows)
    y = np.where(group == 0, np.sin(6 * x), 2 * x - 1)
    return pa.table({"x": x, "group": np.array(["a", "b"])[group], "y": y})


def same_params(first, second):
    return all(np.array_equal(first.params[name], second.params[name]) for name in first.params)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
class TestEveryModel:
    def test_it_learns_an_interaction(self, model):
        table = waves()
        fitted = sf.fit_model(
            table, "y", model=model, loss="squared", training=sf.Training(epochs=25, batch_size=32, threads=1)
        )
        test = waves(500, seed=1)
        assert rmse(test["y"].to_numpy(), fitted.predict(test)) < 0.12 * np.std(test["y"].to_numpy())

    def test_the_same_seed_gives_the_same_parameters_for_any_number_of_threads(self, model, monkeypatch):
        monkeypatch.setattr("splinefm.model.workspace.LARGE", 0)
        fits = [
            sf.fit_model(waves(400), "y", model=model, loss="squared", training=sf.Training(epochs=2, threads=threads))
            for threads in (1, 1, 2)
        ]
        assert same_params(fits[0], fits[1]) and same_params(fits[0], fits[2])
        other = sf.fit_model(
            waves(400), "y", model=model, loss="squared", training=sf.Training(epochs=2, threads=1, seed=1)
        )
        assert not same_params(fits[0], other)


def test_splines_beat_bins_on_the_papers_clicks():
    table, probability = click_data(30_000)
    y = table["click"].to_numpy()
    bayes = logloss(y, probability)

    def loss(basis):
        fields = [sf.Categorical(name) for name in ("age", "gender", "ad")]
        schema = sf.Schema([*fields, sf.Numerical("recency", sf.MinMax(0, 40), basis)])
        training = sf.Training(epochs=8, threads=1)
        fitted = sf.fit_model(table.slice(0, 15_000), "click", schema=schema, model=sf.FFM(k=4), training=training)
        return logloss(y[15_000:], fitted.predict(table.slice(15_000)))

    assert bayes - 0.01 < loss(sf.BSpline(20)) < loss(sf.Bins(5))


def test_aggregated_rows_are_the_expanded_ones():
    rng = np.random.default_rng(0)
    cells = pa.table({"c": list("abcdefgh"), "shown": rng.integers(20, 60, 8).astype(float)})
    clicks = np.ceil(cells["shown"].to_numpy() * rng.uniform(0.1, 0.9, 8))
    counted = cells.append_column("share", pa.array(clicks / cells["shown"].to_numpy()))
    schema, training = (
        sf.Schema([sf.Categorical("c")]),
        sf.Training(epochs=400, batch_size=512, learning_rate=0.1, threads=1, l2=0.0, smoothness=0.0),
    )
    fitted = sf.fit_model(
        counted, "share", schema=schema, sample_weight="shown", validation=0.0, model=sf.FM(k=2), training=training
    )
    np.testing.assert_allclose(fitted.predict(cells), counted["share"].to_numpy(), atol=0.02)


def test_poisson_rates():
    rng = np.random.default_rng(0)
    x = rng.random(4000)
    table = pa.table({"x": x, "count": rng.poisson(np.exp(2 * x))})
    fitted = sf.fit_model(table, "count", loss="poisson", model=sf.FM(k=2), training=sf.Training(epochs=10, threads=1))
    grid = np.linspace(0.05, 0.95, 91)
    assert np.abs(fitted.predict({"x": grid}) / np.exp(2 * grid) - 1).mean() < 0.07


def test_smoothness_makes_many_segments_safe():
    rng = np.random.default_rng(0)
    x = rng.random(400)
    table = pa.table({"x": x, "y": np.sin(6 * x) + rng.normal(0, 0.3, 400)})
    schema = sf.Schema([sf.Numerical("x", sf.MinMax(0, 1), sf.BSpline(150))])
    grid = np.linspace(0.02, 0.98, 97)

    def error(smoothness):
        training = sf.Training(epochs=60, smoothness=smoothness, l2=0.0, threads=1, patience=None)
        fitted = sf.fit_model(
            table, "y", schema=schema, loss="squared", model=sf.FM(k=2), validation=0.0, training=training
        )
        return rmse(np.sin(6 * grid), fitted.predict({"x": grid}))

    assert error(1e-3) < 0.8 * error(0.0)


def test_a_table_on_disk_trains_like_the_same_table_in_memory(tmp_path, monkeypatch):
    table = waves(1000)
    pq.write_table(table, tmp_path / "t.parquet")
    in_memory = sf.fit_model(table, "y", loss="squared", training=QUICK)
    monkeypatch.setattr(chunks, "MEMORY_BYTES", 0)
    streamed = sf.fit_model(tmp_path / "t.parquet", "y", loss="squared", training=QUICK)
    # One chunk: the same rows in the same order, read anew for every epoch.
    assert same_params(in_memory, streamed)
    monkeypatch.setattr(chunks, "STREAM_ROWS", 128)
    chunked = [sf.fit_model(tmp_path / "t.parquet", "y", loss="squared", training=QUICK) for _ in range(2)]
    assert same_params(*chunked) and not same_params(chunked[0], streamed)
    assert chunked[0].history[-1].validation_loss < 1.5 * in_memory.history[-1].validation_loss


def test_history_and_early_stopping():
    table = waves(600)
    seen = []
    noise = table.set_column(2, "y", pa.array(np.random.default_rng(0).normal(size=600)))
    training = sf.Training(epochs=50, patience=2, threads=1, effort="fast", refit_on_all=False)
    fitted = sf.fit_model(noise, "y", loss="squared", training=training, callbacks=[seen.append])
    assert list(fitted.history) == seen and 3 <= len(seen) < 50
    best = min(range(len(seen)), key=lambda i: seen[i].validation_loss)
    assert best == len(seen) - 3
    assert [epoch.epoch for epoch in seen] == list(range(1, len(seen) + 1))


def test_a_validation_table_can_be_given():
    fitted = sf.fit_model(waves(500), "y", loss="squared", validation=waves(200, seed=2), training=QUICK)
    scores = fitted.scores(waves(200, seed=2)).astype(float)
    y = fitted.loss.standardize(waves(200, seed=2)["y"].to_numpy())
    best = min(epoch.validation_loss for epoch in fitted.history)
    assert fitted.loss.value(y, scores).mean() == pytest.approx(best, rel=1e-5)


def test_the_unit_of_the_target_does_not_matter():
    table = waves(500)
    dollars = table.set_column(2, "y", pa.array(table["y"].to_numpy() * 1e5 + 3e6))
    plain, large = (sf.fit_model(t, "y", loss="squared", training=QUICK).predict(table) for t in (table, dollars))
    np.testing.assert_allclose(large, plain * 1e5 + 3e6, rtol=1e-4)


def test_ctrl_c_keeps_the_best_so_far():
    def stop(epoch):
        if epoch.epoch == 2:
            raise KeyboardInterrupt

    training = sf.Training(epochs=50, threads=1)
    with pytest.warns(UserWarning, match=r"^interrupted: the best epoch so far is kept \(2 of 50\)$") as warned:
        fitted = sf.fit_model(waves(500), "y", loss="squared", training=training, callbacks=[stop])
    assert warned[0].filename == __file__  # the line of the user
    assert len(fitted.history) == 2 and np.isfinite(fitted.predict(waves(10))).all()


def test_divergence_says_what_to_lower():
    training = sf.Training(epochs=20, learning_rate=1e25, optimizer="adagrad", warmup=0.0, threads=1)
    with pytest.raises(sf.Diverged, match="lower learning_rate"), np.errstate(all="ignore"):
        sf.fit_model(waves(500), "y", model=sf.FFM(k=3), loss="squared", training=training)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"l2": 1e300}, r"lower l2 \(now 1e\+300; usually 0\.0001\)$"),
        ({"smoothness": 1e300}, r"lower smoothness \(now 1e\+300; usually 0\.01\)$"),
        ({"smoothness": {"x": 1e300}}, r"lower smoothness of 'x' \(now 1e\+300"),
        ({"l2": 1e300, "learning_rate": 1.0}, r"lower learning_rate \(now 1; .*\) and l2 \(now 1e\+300"),
    ],
    ids=str,
)
def test_divergence_says_which_penalty_to_lower(settings, advice):
    training = replace(QUICK, **settings)
    with pytest.raises(sf.Diverged, match=advice):
        sf.fit_model(waves(500), "y", loss="squared", model=sf.FM(k=2), training=training)


def test_divergence_with_usual_settings_names_all_that_helps():
    advice = divergence_advice(sf.Training(l2={"x": 1e-3}))
    assert advice == (
        "lower learning_rate (now 0.01; usually 0.01), or raise l2 of 'x' (now 0.001; usually 0.0001) "
        "or smoothness (now 0.01; usually 0.01)"
    )


def test_a_diverging_epoch_is_not_finished():
    class Engine:
        batch_size, losses = 3, iter([1.0, float("nan"), 1.0])

        def steps(self, *_):
            return np.array([next(self.losses)])

    chunk = Chunk(None, np.zeros(3), np.ones(3))
    batches = [(chunk, np.arange(3))] * 3
    loss, _, rows, _ = passes._pass(Engine(), batches, sf.Loss("squared"), lambda seen: 0.1, SILENT)
    assert np.isnan(loss) and rows == 6


def test_the_schedule_rises_and_falls():
    training = sf.Training(learning_rate=1.0, warmup=0.1)
    rates = [training.rate_at(step, 100) for step in range(100)]
    assert np.argmax(rates) == 10 and rates[0] < 0.2 and rates[-1] < 0.01
    assert (np.diff(rates[:10]) > 0).all() and (np.diff(rates[10:]) < 0).all()


def test_the_schedule_follows_the_rows_and_not_the_batches():
    training = sf.Training(epochs=4, batch_size=64, learning_rate=1.0, warmup=0.1)
    rates = [training.rates(epoch, 1000)(seen) for epoch in range(4) for seen in range(0, 1000, 10)]
    assert rates[0] < 0.2 and max(rates) > 0.99 and rates[-1] < 1e-3
    assert (np.diff(rates[:40]) > 0).all() and (np.diff(rates[40:]) < 0).all()


def groups_of(training):
    schema = sf.Schema([sf.Numerical("x", basis=sf.MultiResolution((3, 9)), special=[0.0]), sf.Categorical("group")])
    return make_groups(sf.fit_encoder(schema, waves(100)), training)


def test_groups_cover_every_row():
    groups = groups_of(sf.Training(smoothness=0.5))
    assert [[group.size for group in own] for own in groups] == [[2, 6, 12], [4]]
    assert [[group.smoothness for group in own] for own in groups] == [[0.0, 0.5, 0.5], [0.0]]


def test_penalties_by_field():
    groups = groups_of(sf.Training(l2={"group": 0.5}, smoothness={"x": 0.25}))
    assert [[group.l2 for group in own] for own in groups] == [[1e-4] * 3, [0.5]]
    assert [[group.l2_linear for group in own] for own in groups] == [[1e-5] * 3, [0.05]]
    assert [[group.smoothness for group in own] for own in groups] == [[0.0, 0.25, 0.25], [0.0]]
    groups = groups_of(sf.Training(l2={"x": 0.0}, smoothness={"group": 3.0}))
    assert [[group.l2 for group in own] for own in groups] == [[0.0] * 3, [1e-4]]
    assert [[group.smoothness for group in own] for own in groups] == [[0.0, 1e-2, 1e-2], [0.0]]


def test_order_of_smoothness():
    orders = [[group.order for group in groups_of(sf.Training(smoothness_order=order))[0]] for order in (1, 3)]
    assert orders == [[2, 1, 1], [2, 3, 3]]
    periodic = sf.Schema([sf.Numerical("x", sf.MinMax(0, 1), sf.BSpline(3, 3, periodic=True))])
    encoder = sf.fit_encoder(periodic, waves(100))
    for order, smooth in ((2, 1e-2 * 0.15**3), (3, 0.0)):  # three functions have no third differences
        group = make_groups(encoder, sf.Training(smoothness_order=order))[0][-1]
        assert group.smoothness == pytest.approx(smooth)


@pytest.mark.parametrize(
    ("basis", "order", "expected"),
    [
        (sf.BSpline(20), 2, 0.5),
        (sf.BSpline(5), 2, 0.5 / 4**3),
        (sf.BSpline(80), 2, 0.5 * 4**3),
        (sf.BSpline(40, 1), 1, 0.5 * 2),
        (sf.BSpline(30, periodic=True), 3, 0.5 * 1.5**5),
        (sf.BSpline(20, 0), 2, 0.0),
        (sf.Bins(20), 2, 0.0),
        (sf.Fourier(4), 2, 0.0),
        (sf.Polynomial(8), 2, 0.0),
    ],
    ids=str,
)
def test_smoothness_is_scaled_by_the_number_of_segments_and_for_splines_alone(basis, order, expected):
    schema = sf.Schema([sf.Numerical("x", sf.MinMax(0, 1), basis)])
    groups = make_groups(sf.fit_encoder(schema, waves(100)), sf.Training(smoothness=0.5, smoothness_order=order))
    assert groups[0][-1].size == sum(basis.sizes)
    assert groups[0][-1].smoothness == pytest.approx(expected)


@pytest.mark.parametrize(
    ("cross", "smoothness", "shapes"),
    [
        (sf.Cross("group", "x", segments=5, min_count=1), [0.5], [(8,)]),
        (sf.Cross("x", "z", segments=5), [0.5], [(8, 8)]),
        (sf.Cross("x", "z", segments=(3, 6)), [0.5, 0.5], [(6, 6), (9, 9)]),
    ],
    ids=str,
)
def test_smoothness_of_a_cross_is_the_one_that_was_asked_for(cross, smoothness, shapes):
    table = waves(100).append_column("z", pa.array(np.linspace(0, 1, 100)))
    schema = sf.Schema([sf.Numerical("x"), sf.Numerical("z"), sf.Categorical("group"), cross])
    encoder = sf.fit_encoder(schema, table)
    *_, groups = make_groups(encoder, sf.Training(smoothness=dict.fromkeys(schema.names, 0.5)))
    assert [(group.smoothness, group.shape) for group in groups] == list(zip(smoothness, shapes, strict=True))
    assert sum(group.size for group in groups) == encoder.layout.fields[-1].n_features


def fit_curve(basis, smoothness):
    """Predictions on a grid of a model of one column."""
    rng = np.random.default_rng(0)
    x = rng.random(2000)
    table = pa.table({"x": x, "y": np.sin(9 * x) + rng.normal(0, 0.3, 2000)})
    schema = sf.Schema([sf.Numerical("x", sf.MinMax(0, 1), basis)])
    training = sf.Training(epochs=15, learning_rate=0.02, l2=0.0, smoothness=smoothness, threads=1)
    options = {"model": sf.FM(k=2), "validation": 0.0, "training": training}
    return sf.fit_model(table, "y", schema=schema, loss="squared", **options).predict({"x": np.linspace(0, 1, 201)})


def test_curves_are_equally_smooth_for_any_number_of_segments():
    def bending(curve):
        return np.sqrt(np.mean(np.diff(curve, 2) ** 2)) * 200**2

    curves = [fit_curve(sf.BSpline(segments), 0.1) for segments in (5, 20, 80)]
    assert bending(curves[0]) == pytest.approx(bending(curves[1]), rel=0.1)
    assert bending(curves[2]) == pytest.approx(bending(curves[1]), rel=0.1)
    assert np.abs(curves[2] - curves[1]).max() < 0.1
    assert bending(curves[1]) < 0.97 * bending(fit_curve(sf.BSpline(20), 1e-3))  # it is smoothed at all


def test_bins_are_not_smoothed():
    np.testing.assert_array_equal(fit_curve(sf.Bins(12), 100.0), fit_curve(sf.Bins(12), 0.0))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_much_smoothness_leaves_a_polynomial_of_lower_degree(order):
    rng = np.random.default_rng(0)
    x = rng.random(2000)
    table = pa.table({"x": x, "y": 5 * x**2 + rng.normal(0, 1.5, 2000)})
    schema = sf.Schema([sf.Numerical("x", sf.MinMax(0, 1), sf.BSpline(10))])
    much = 100 * 2.0 ** (2 * order - 1)  # with 10 segments
    training = sf.Training(epochs=30, learning_rate=0.03, l2=0.0, smoothness=much, smoothness_order=order, threads=1)
    fitted = sf.fit_model(
        table, "y", schema=schema, loss="squared", model=sf.FM(k=2), validation=0.0, training=training
    )
    grid = np.linspace(0, 1, 50)
    curve = fitted.predict({"x": grid})

    def distance(degree):
        return np.abs(curve - np.polyval(np.polyfit(grid, curve, degree), grid)).max()

    assert distance(order - 1) < 0.02
    assert order == 1 or distance(order - 2) > 0.1


def test_training_settings_are_values():
    given = sf.Training(l2={"b": 1, "a": 0.5}, smoothness=np.float32(0.25))
    assert given == sf.Training(l2={"a": 0.5, "b": 1.0}, smoothness=0.25)
    assert hash(given) == hash(sf.Training(l2=(("a", 0.5), ("b", 1.0)), smoothness=0.25))
    assert given != sf.Training(l2={"a": 0.5, "b": 2.0}, smoothness=0.25)
    assert dict(given.l2) == {"a": 0.5, "b": 1.0}
    assert replace(given, epochs=3) == sf.Training(epochs=3, l2={"a": 0.5, "b": 1.0}, smoothness=0.25)
    assert sf.Training(**json.loads(json.dumps(asdict(given)))) == given
    assert sf.Training(l2=0) == sf.Training(l2=0.0)


def test_penalties_that_are_left_out_get_the_default():
    training = sf.Training(epochs=1, threads=1, smoothness={"x": 0.125})
    kept = sf.fit_model(waves(300), "y", loss="squared", training=training).training
    assert (kept.l2, dict(kept.smoothness)) == (6e-4, {"x": 0.125, "group": 6e-2})  # the penalties of a small table


def test_penalties_follow_the_length_of_vectors_and_the_noise():
    table = waves(300)
    encoder = sf.fit_encoder(sf.infer_schema(table, target="y"), table, target="y")
    training = sf.Training(l2=0.5, smoothness=0.25, threads=1)
    for model, parts in ((sf.FM(k=2), 1), (sf.FFM(k=2), 2)):
        engine = make_engine(model, encoder, sf.Loss("squared"), training, 300, np.random.default_rng(0))
        penalties = AdaptivePenalties(engine)
        factors = np.zeros_like(engine.values["factors"])
        first = engine.penalty.end[0]
        factors[:first] = 3.0
        penalties.adapt(factors, 0.1)
        # k = 2, and as many times the length as vectors have parts.
        assert engine.penalty.l2[0] == pytest.approx(0.1 * 0.5 / (3.0 * np.sqrt(2) * parts))
        assert engine.penalty.l2[-1] == pytest.approx(0.1 * 0.5 / penalties_module.MIN_LENGTH)
        assert max(engine.penalty.smoothness) == pytest.approx(0.1 * 0.25)
        assert factors.shape[1] == 2 * parts
        penalties.adapt(factors, 0.1)  # from the same units again
        assert max(engine.penalty.smoothness) == pytest.approx(0.1 * 0.25)


def test_vectors_for_products_of_three_have_a_penalty_of_their_own():
    table = waves(300)
    encoder = sf.fit_encoder(sf.infer_schema(table, target="y"), table, target="y")
    training = sf.Training(l2=0.5, threads=1)
    rng = np.random.default_rng(0)
    engine = make_engine(sf.FwFM(k=2, third=3), encoder, sf.Loss("squared"), training, 300, rng)
    np.testing.assert_array_equal(engine.penalty.l2_third, engine.penalty.l2)
    factors = np.zeros_like(engine.values["factors"])
    first, last = engine.penalty.end[0], engine.penalty.begin[-1]
    factors[:first, :2], factors[last:, 2:] = 3.0, 4.0
    AdaptivePenalties(engine).adapt(factors, 0.1)
    most = 0.1 * 0.5 / penalties_module.MIN_LENGTH
    assert engine.penalty.l2[[0, -1]] == pytest.approx([0.1 * 0.5 / (3.0 * np.sqrt(2)), most])
    assert engine.penalty.l2_third[[0, -1]] == pytest.approx([most, 0.1 * 0.5 / (4.0 * np.sqrt(3))])


def three_signs(n, seed=0):
    """Three columns of signs, and two targets: their sum and their product, with noise."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], (3, n))
    table = {name: np.where(sign > 0, "p", "n") for name, sign in zip("abc", signs, strict=True)}
    noise = rng.normal(size=n)
    return table | {"sum": signs.sum(axis=0) + 0.3 * noise, "product": signs.prod(axis=0) + 0.3 * noise}


@pytest.mark.parametrize(("target", "helps"), [("sum", False), ("product", True)])
def test_products_of_three_are_learned_where_they_help_and_vanish_elsewhere(target, helps):
    table, other = three_signs(3000), three_signs(1000, 1)
    schema = sf.Schema([sf.Categorical(name) for name in "abc"])
    options = {"refit_on_all": False, "effort": "fast", "threads": 1}
    training = sf.Training(epochs=12, learning_rate=0.02, l2=3e-3, batch_size=32, **options)
    for third in (0, 4):
        fitted = sf.fit_model(
            table, target, schema=schema, model=sf.FwFM(k=4, third=third), loss="squared", training=training
        )
        error = np.sqrt(np.mean((fitted.predict(other) - other[target]) ** 2))
        assert (error < 0.35) == (third > 0 or not helps)
    active = np.concatenate(fitted.encoder.feature_counts) > 0
    lengths = np.linalg.norm(fitted.params["factors"][active, 4:], axis=1)
    assert lengths.min() > 0.5 if helps else lengths.max() < 0.01


def test_noise_is_residual_variance_or_deviance():
    rng = np.random.default_rng(0)
    y, weight = rng.poisson(3.0, 10_000).astype(float), np.ones(10_000)
    loss = sf.Loss("poisson")
    excess = loss.value(y, np.full(len(y), np.log(3.0))).mean() - loss.floor(y, weight) / len(y)
    assert loss.dispersion(excess) == pytest.approx(1.0, abs=0.1)
    noise = rng.normal(0.0, 0.3, 10_000)
    assert sf.Loss("squared").dispersion(sf.Loss("squared").value(noise, np.zeros(10_000)).mean()) == pytest.approx(
        0.09, rel=0.05
    )
    assert sf.Loss("logistic").dispersion(0.6) == 1.0


def test_the_last_run_uses_all_rows():
    table = waves(1000)
    apart, whole = (
        sf.fit_model(table, "y", loss="squared", training=replace(QUICK, refit_on_all=again)) for again in (False, True)
    )
    assert apart.history[-1].validation_loss == whole.history[-1].validation_loss
    assert not same_params(apart, whole)
    # With the validation rows in a table of their own there is nothing to be won.
    valid = waves(200, seed=1)
    given = [
        sf.fit_model(table, "y", loss="squared", validation=valid, training=replace(QUICK, refit_on_all=again))
        for again in (False, True)
    ]
    assert same_params(*given)


@pytest.mark.parametrize("by_ctrl_c", [False, True])
@pytest.mark.parametrize("at", [1, 2])
def test_a_fit_that_is_stopped_keeps_what_there_is(monkeypatch, recwarn, at, by_ctrl_c):
    """In the first run there is no second one; in the second the result of the first is kept. Ctrl-C is told."""
    real, runs, words = fitting.train, [], "the best epoch so far is kept"
    stop = StopReason.INTERRUPT if by_ctrl_c else StopReason.CALLBACK

    def interrupted(*args, **options):
        trained = real(*args, **options)
        runs.append(trained)
        return trained._replace(stop=stop, kept=words) if len(runs) == at else trained

    monkeypatch.setattr(fitting, "train", interrupted)
    fitted = sf.fit_model(waves(500), "y", loss="squared", training=replace(QUICK, refit_on_all=True))
    assert len(runs) == at
    assert fitted.params is runs[0].params
    kept = words if at == 1 else "the model of the first run is kept"
    assert [str(warning.message) for warning in recwarn] == ([f"interrupted: {kept}"] if by_ctrl_c else [])


def test_a_wrong_field_name_is_told_before_the_table_is_read(monkeypatch):
    monkeypatch.setattr(fitting, "prepare_chunks", lambda *_: pytest.fail("the table is read"))
    with pytest.raises(ValueError, match="l2 is given for 'z', which is not a field"):
        sf.fit_model(waves(100), "y", loss="squared", training=sf.Training(l2={"z": 1.0}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "z"}, "no column 'z'"),
        ({"target": "group", "loss": "squared"}, "target 'group' must hold numbers"),
        ({"loss": "hinge"}, "loss must be one of"),
        ({"loss": "logistic"}, "a logistic target must lie between 0 and 1"),
        ({"loss": "poisson"}, "a Poisson target must be at least 0"),
        ({"sample_weight": "w"}, "no column 'w'"),
        ({"sample_weight": "y"}, "weights in column 'y' must be"),
        ({"validation": 1.5}, "validation must be a share"),
        (
            {"training": sf.Training(l2={"grp": 1.0})},
            "l2 is given for 'grp', which is not a field; nearest: 'group'. Fi",
        ),
        ({"training": sf.Training(smoothness={"y": 1.0})}, "smoothness is given for 'y', which .* Fields: 'x', 'gr"),
        ({"schema": sf.Schema([sf.Numerical("y")])}, "target 'y' is a field of the schema"),
        ({"schema": sf.Schema([sf.Numerical("xx")])}, "nearest: 'x'"),
        ({"model": sf.FmFM(k=(2, 2, 2))}, "k has 3 entries"),
    ],
    ids=str,
)
def test_bad_input(change, message):
    settings = {"target": "y", "loss": "squared", "training": QUICK, **change}
    target = settings.pop("target")
    with pytest.raises(ValueError, match=message):
        sf.fit_model(waves(100), target, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer of at least 1"),
        ({"epochs": "3"}, "epochs must be an integer of at least 1, got '3'"),
        ({"epochs": 2.5}, "epochs must be an integer"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
        ({"patience": 0}, "patience must be an integer of at least 1"),
        ({"threads": 0}, "threads must be an integer of at least 1"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"learning_rate": -1.0}, "learning_rate must be at least 0"),
        ({"l2": float("nan")}, "l2 must be at least 0"),
        ({"l2": {"x": -1.0}}, "l2 of 'x' must be at least 0, got -1.0"),
        ({"l2": {"x": "much"}}, "l2 of 'x' must be at least 0, got much"),
        ({"smoothness": "much"}, "smoothness must be a number or a mapping from field names to numbers, got 'much'"),
        ({"smoothness": [1.0, 2.0]}, "smoothness must be a number or a mapping"),
        ({"smoothness_order": 0}, "smoothness_order must be 1, 2 or 3, got 0"),
        ({"smoothness_order": 4}, "smoothness_order must be 1, 2 or 3, got 4"),
        ({"warmup": 2.0}, "warmup must be a share"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        sf.Training(**settings)


def test_missing_targets_are_refused():
    table = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": [0.0, None, 1.0, np.inf]})
    message = re.escape(
        "the target 'y' has missing or infinite values: 2 of the first 4 rows, beginning with row 1 (counted from 0); "
        "drop those rows"
    )
    with pytest.raises(ValueError, match=message):
        sf.fit_model(table, "y", loss="squared", training=QUICK)
    with pytest.raises(ValueError, match="the target 'y' has missing or infinite values: 2 of 4 rows; drop"):
        sf.fit_model({"x": [1.0, 2.0], "y": [0.0, 1.0]}, "y", loss="squared", validation=table, training=QUICK)


def test_rows_of_missing_targets_are_counted_from_the_start_of_the_table(monkeypatch):
    monkeypatch.setattr("splinefm.train.chunks.CHUNK", 10)
    table = {"x": np.arange(50.0), "y": np.where(np.isin(np.arange(50), [23, 28, 41]), np.nan, 1.0)}
    with pytest.raises(ValueError, match=r"2 of the first 30 rows, beginning with row 23 \(counted"):
        sf.fit_model(table, "y", loss="squared", training=QUICK)


def test_scores_of_a_folder_come_chunk_by_chunk_in_its_order(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    table = pa.table({"x": rng.random(5000), "c": rng.choice(["a", "b"], 5000), "y": rng.random(5000)})
    for part in range(3):
        pq.write_table(table.slice(part * 2000, 2000), tmp_path / f"{part}.parquet")
    training = sf.Training(epochs=1, threads=1, refit_on_all=False, effort="fast")
    fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=training)
    sizes = []
    chunks = fitted.encoder.encode_chunks

    def in_small_chunks(self, source, **options):
        for slots in chunks(source, **{**options, "rows": 700}):
            sizes.append(len(slots))
            yield slots

    monkeypatch.setattr(type(fitted.encoder), "encode_chunks", in_small_chunks)
    scores = fitted.scores(tmp_path)
    assert max(sizes) == 700 and sum(sizes) == 5000
    np.testing.assert_array_equal(scores, fitted.scores(fitted.encoder.encode(table)))
    assert fitted.scores(table.slice(0, 0)).shape == (0,)


class TestJudge:
    """The best epoch, and the last one that is as good."""

    def judge(self, epochs, weight=None):
        n = len(epochs[0])
        validation = Chunk(None, np.zeros(n), np.ones(n) if weight is None else np.asarray(weight))
        judge, engine = EpochSelector(validation), Mock()
        found = []
        for scores in epochs:  # the squared loss of a target of zero is half of the squared score
            engine.scores_of.return_value = np.sqrt(2.0 * np.asarray(scores))
            found.append(judge.update(engine, {}, sf.Loss("squared")))
        return found, judge.last_tied_epoch

    def test_a_later_epoch_that_differs_by_chance_is_as_good(self):
        early, late = [1.0, 1.0, 1.0, 9.0], [0.9, 0.9, 0.9, 9.4]
        found, last_tied_epoch = self.judge([early, late])
        assert [is_best for _, is_best in found] == [True, False]
        assert found[1][0] == pytest.approx(3.025)
        assert last_tied_epoch == 2

    def test_a_later_epoch_that_is_worse_for_most_rows_is_not(self):
        assert self.judge([[1.0, 1.1, 1.2, 1.3], [1.1, 1.2, 1.3, 1.4]])[1] == 1

    def test_rows_count_by_their_weight(self):
        epochs = [[1.0, 1.0, 1.0, 9.0], [0.9, 0.9, 0.9, 9.5]]
        found, last_tied_epoch = self.judge(epochs, [1.0, 1.0, 1.0, 0.0])
        assert [is_best for _, is_best in found] == [True, True]
        assert last_tied_epoch == 2

    def test_an_epoch_that_diverges_does_not_tie(self):
        found, last_tied_epoch = self.judge([[1.0, 1.0], [1.0, 1e300], [np.inf, np.nan]])
        assert [is_best for _, is_best in found] == [True, False, False]
        assert last_tied_epoch == 1

    def test_without_validation_rows_the_last_epoch_counts(self):
        judge = EpochSelector(None)
        assert [judge.update(Mock(), {}, sf.Loss("squared"))[1] for _ in range(3)] == [True] * 3
        assert judge.last_tied_epoch == 3

    def test_the_run_on_all_rows_takes_as_many_epochs(self, monkeypatch):
        rng = np.random.default_rng(0)
        table = {"x": rng.normal(size=400), "y": rng.normal(size=400)}
        runs = []
        monkeypatch.setattr(
            EpochSelector, "last_tied_epoch", property(lambda self: 2, lambda self, value: None), raising=False
        )
        training = sf.Training(epochs=4, threads=1, patience=None, effort="fast")
        sf.fit_model(table, "y", loss="squared", training=training, callbacks=[lambda epoch: runs.append(epoch.run)])
        assert runs == ["first"] * 4 + ["all rows"] * 2


def test_averages_are_over_about_half_an_epoch():
    """A step counts e⁻² of the last one after an epoch of further steps."""
    table = waves(320)
    encoder = sf.fit_encoder(sf.infer_schema(table, target="y"), table, target="y")
    training = sf.Training(batch_size=16, threads=1)
    engine = make_engine(sf.FM(k=2), encoder, sf.Loss("squared"), training, 320, np.random.default_rng(0))
    assert engine.optimizer.ema**20 == pytest.approx(np.exp(-2.0))
