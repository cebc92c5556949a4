"""Losses for positive, skewed and dirty targets, from the table to the prediction."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import mean_gamma_deviance, mean_pinball_loss, mean_tweedie_deviance

import splinefm as sf
from splinefm.train import chunks as chunks_module

SCHEMA = sf.Schema([sf.Numerical("x", basis=sf.BSpline(8)), sf.Categorical("c")])
MODEL = sf.FM(k=4)
# The rows of `table`, and their expected log.
N, SIGMA = 6000, 0.8


def table(seed=0, n=N):
    """A column, a category, and the log of a lognormal target's median."""
    rng = np.random.default_rng(seed)
    x, c = rng.uniform(0, 10, n), rng.choice(list("abcd"), n)
    return {"x": x, "c": c}, 1.5 * np.sin(x) + (c == "a") * np.cos(x), rng


def lognormal(seed=0):
    columns, log_median, rng = table(seed)
    y = 100.0 * np.exp(log_median + SIGMA * rng.normal(size=N))
    return {**columns, "y": y}, 100.0 * np.exp(log_median + SIGMA**2 / 2)


def fit(data, loss, **options):
    training = sf.Training(threads=1, effort="fast")
    return sf.fit_model(data, "y", loss=loss, schema=SCHEMA, model=MODEL, training=training, **options)


def test_losses_for_amounts_beat_the_squared_loss_on_lognormal_targets():
    train, _ = lognormal()
    test, mean = lognormal(1)
    predicted = {loss: fit(train, loss).predict(test) for loss in ("squared", "gamma", "tweedie")}
    assert min(predicted["gamma"].min(), predicted["tweedie"].min()) > 0
    errors = {loss: np.sqrt(np.mean((p - mean) ** 2)) for loss, p in predicted.items()}
    assert errors["gamma"] < 0.9 * errors["squared"] and errors["tweedie"] < 0.9 * errors["squared"]
    best = mean_gamma_deviance(test["y"], mean)
    assert mean_gamma_deviance(test["y"], predicted["gamma"]) < 1.02 * best
    assert predicted["gamma"].mean() == pytest.approx(test["y"].mean(), rel=0.05)


def test_a_tweedie_loss_takes_zeros():
    (train, mean), (test, _) = lognormal(), lognormal(1)
    for data, seed in ((train, 2), (test, 3)):
        data["y"] *= np.random.default_rng(seed).random(N) < 0.4
    fitted = fit(train, sf.Loss("tweedie", power=1.6))
    p = fitted.predict(test)
    constant = np.full(N, train["y"].mean())
    assert p.min() > 0 and p.mean() == pytest.approx(test["y"].mean(), rel=0.08)
    assert np.corrcoef(fitted.predict(train), mean)[0, 1] > 0.9
    ours, theirs = (mean_tweedie_deviance(test["y"], values, power=1.6) for values in (p, constant))
    assert ours < 0.95 * theirs
    with pytest.raises(ValueError, match="a gamma target must be above 0, got 0"):
        fit(train, "gamma")


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_quantiles_are_calibrated_on_rows_that_were_not_seen(level):
    train, _ = lognormal()
    test, _ = lognormal(1)
    p = fit(train, sf.Loss("quantile", quantile=level)).predict(test)
    assert sf.metrics.coverage(test["y"], p) == pytest.approx(level, abs=0.03)
    constant = np.full(N, np.quantile(train["y"], level))
    ours, theirs = (mean_pinball_loss(test["y"], values, alpha=level) for values in (p, constant))
    assert ours < 0.95 * theirs


def test_outliers_do_not_move_a_huber_loss():
    columns, curve, rng = table()
    clean = 3.0 * curve + rng.normal(size=N)
    dirty = {**columns, "y": np.where(rng.random(N) < 0.05, clean + 300.0, clean)}
    errors = {
        loss: np.sqrt(np.mean((fit(dirty, loss).predict(columns) - 3.0 * curve) ** 2)) for loss in ("squared", "huber")
    }
    assert errors["huber"] < 0.5 and errors["squared"] > 10.0


@pytest.mark.parametrize(
    "loss",
    [sf.Loss("gamma"), sf.Loss("tweedie", power=1.3), sf.Loss("quantile", quantile=0.8), sf.Loss("huber")],
    ids=str,
)
class TestEveryLoss:
    def fit(self, loss, factor=1.0, **options):
        data, _ = lognormal()
        data["y"] = data["y"] * factor
        training = sf.Training(epochs=3, threads=1)
        return data, sf.fit_model(data, "y", loss=loss, schema=SCHEMA, model=MODEL, training=training, **options)

    def test_the_unit_of_the_target_does_not_matter(self, loss):
        data, first = self.fit(loss)
        _, other = self.fit(loss, 1024.0)
        np.testing.assert_array_equal(other.scores(data), first.scores(data))
        np.testing.assert_allclose(other.predict(data), 1024.0 * first.predict(data), rtol=1e-12)

    def test_files_scorers_and_views_predict_the_same(self, loss, tmp_path):
        data, fitted = self.fit(loss)
        fitted.save(tmp_path / "m.sfm")
        again = sf.load(tmp_path / "m.sfm")
        assert again.loss == fitted.loss and (loss.name == "huber" or again.loss.parameters == loss.parameters)
        p = fitted.predict(data)
        np.testing.assert_array_equal(again.predict(data), p)
        rows = [{"x": x, "c": c} for x, c in zip(data["x"][:20], data["c"][:20], strict=True)]
        np.testing.assert_allclose(fitted.scorer().many(rows, link=True), p[:20], rtol=1e-5)
        curve = fitted.segment({"c": str(data["c"][0])}, along="x")
        assert curve(data["x"][0], link=True) == pytest.approx(p[0], rel=1e-5)

    def test_a_table_that_is_streamed_gives_the_same_loss(self, loss, monkeypatch):
        _, kept = self.fit(loss)
        monkeypatch.setattr(chunks_module, "MEMORY_BYTES", 0)
        _, streamed = self.fit(loss)
        assert streamed.loss == kept.loss

    def test_the_validation_metric_is_that_of_predictions(self, loss):
        data, _ = lognormal(1)
        _, fitted = self.fit(loss, validation=data)
        epoch = min(fitted.history, key=lambda epoch: epoch.validation_loss)
        metric = {
            "gamma": sf.metrics.gamma_deviance,
            "tweedie": lambda y, p: sf.metrics.tweedie_deviance(y, p, power=1.3),
            "quantile": lambda y, p: sf.metrics.pinball_loss(y, p, quantile=0.8),
            "huber": lambda y, p: sf.metrics.huber_loss(y, p, delta=fitted.loss.delta),
        }[loss.name]
        expected = metric(data["y"], fitted.predict(data))
        assert fitted.loss.metric(epoch.validation_loss) == pytest.approx(expected, rel=1e-4)

    def test_a_learner_goes_on(self, loss):
        data, fitted = self.fit(loss)
        learner = sf.Learner(fitted)
        first = learner.update(data, "y")
        assert np.isfinite(first) and learner.update(data, "y") < first * 1.05
        assert learner.fitted().loss == fitted.loss
        with pytest.raises(
            ValueError, match=f"the target 'y' has missing or infinite values: {N:,} of the first {N:,}"
        ):
            learner.update({**data, "y": np.full(N, np.nan)}, "y")

    def test_an_estimator_takes_the_loss_as_an_object(self, loss):
        data, fitted = self.fit(loss)
        columns = {name: data[name] for name in ("x", "c")}
        estimator = sf.SplineFMRegressor(MODEL, loss=loss, schema=SCHEMA, epochs=3, n_jobs=1)
        by_name = sf.SplineFMRegressor(MODEL, loss=loss.name, **loss.parameters, schema=SCHEMA, epochs=3, n_jobs=1)
        for one in (estimator, by_name):
            np.testing.assert_array_equal(clone(one).fit(columns, data["y"]).predict(columns), fitted.predict(data))


def test_sample_weights_move_a_quantile():
    data, _ = lognormal()
    data["w"] = np.where(data["y"] > np.median(data["y"]), 3.0, 1.0)
    loss = sf.Loss("quantile", quantile=0.5)
    p = fit(data, loss, sample_weight="w").predict(data)
    assert (
        sf.metrics.coverage(data["y"], p, data["w"]) == pytest.approx(0.5, abs=0.04)
        and sf.metrics.coverage(data["y"], p) > 0.55
    )


def test_other_losses_by_name_are_refused():
    with pytest.raises(ValueError, match="loss must be one of logistic, squared, poisson, gamma"):
        fit(lognormal()[0], "mse")
    with pytest.raises(ValueError, match=r"got 0\.9 with the squared loss"):
        sf.Loss("squared", quantile=0.9)
