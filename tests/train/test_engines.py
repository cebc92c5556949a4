"""Fits, updates and estimators with the torch engine: the models of the CPU engine; and the choice of an engine."""

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

import splinefm as sf

TRAINING = sf.Training(epochs=3, threads=1, batch_size=64, refit_on_all=False, effort="fast", learning_rate=0.02)
MISSING = """
import sys


class WithoutTorch:  # as if it were not installed
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")


sys.meta_path.insert(0, WithoutTorch())
import splinefm as sf

table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "y": [0, 0, 1, 1] * 50}
for name in ("fit", "estimator", "to_torch"):
    try:
        if name == "fit":
            sf.fit_model(table, "y", engine="torch")
        elif name == "estimator":
            sf.SplineFMClassifier(engine="torch").fit(table, target="y")
        else:
            sf.to_torch(sf.fit_model(table, "y", training=sf.Training(epochs=1, threads=1)))
    except ModuleNotFoundError as error:
        assert str(error) == (
            "the torch engine needs PyTorch, which is not installed: pip install 'splinefm[torch]'"
        ), error
    else:
        raise AssertionError(name)
"""


def visits(n, seed=0, names="abc"):
    rng = np.random.default_rng(seed)
    x, c = rng.normal(size=n), rng.choice(list(names), n)
    rate = 0.5 * np.sin(2 * x) + 0.8 * (c == names[0]) * x
    return {
        "x": x,
        "c": c.tolist(),
        "click": (rng.random(n) < 1 / (1 + np.exp(-3 * rate))).astype(int),
        "amount": np.exp(rate + 0.3 * rng.normal(size=n)),
        "kind": np.array(["low", "middle", "high"])[np.digitize(rate + 0.2 * rng.normal(size=n), [-0.3, 0.3])].tolist(),
    }


def without(table, *names):
    return {name: values for name, values in table.items() if name not in names}


def test_without_torch_there_is_a_way_out(monkeypatch):
    if find_spec("torch") is None:  # a process of its own would only take time
        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
        exec(MISSING, {})
    else:
        subprocess.run([sys.executable, "-c", MISSING], check=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "gpu"}, "engine must be one of cpu, torch, got 'gpu'"),
        ({"device": "cuda"}, "device is for the torch engine, got 'cuda' with the cpu engine"),
        ({"engine": "torch", "device": 3}, "device must be a string such as"),
    ],
)
def test_an_engine_that_does_not_exist_is_refused(settings, message):
    table = visits(50)
    with pytest.raises(ValueError, match=message):
        sf.fit_model(table, "click", **settings)
    with pytest.raises(ValueError, match=message):
        sf.SplineFMClassifier(**settings).fit(without(table, "click"), table["click"])
    with pytest.raises(ValueError, match=message):
        sf.Training(**settings)


def test_an_engine_is_given_in_one_place():
    training = sf.Training(engine="torch", device="cpu", threads=1)
    with pytest.raises(ValueError, match=r"device='cuda' conflicts with Training\(device='cpu'\)"):
        sf.fit_model(visits(50), "click", training=training, device="cuda")


def test_a_device_that_is_not_there_is_seen_before_the_data_are_read():
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'splinefm[torch]'")
    with pytest.raises(ValueError, match="device 'cuda:99' cannot be used here"):
        sf.fit_model(visits(50), "click", engine="torch", device="cuda:99")


class TestTorch:
    @pytest.fixture(autouse=True)
    def needs_torch(self):
        pytest.importorskip("torch", reason="needs PyTorch: pip install 'splinefm[torch]'")

    @pytest.mark.parametrize(
        ("target", "loss", "model"),
        [
            ("click", "logistic", sf.FwFM(k=4, third=2)),
            ("amount", "gamma", sf.FFM(k=2)),
            ("kind", "softmax", sf.FM(k=4)),
        ],
    )
    def test_a_fit_has_the_losses_of_the_cpu_engine(self, target, loss, model):
        table = visits(600)
        table = without(table, *({"click", "amount", "kind"} - {target}))
        fits = [
            sf.fit_model(table, target, loss=loss, model=model, training=TRAINING, engine=engine)
            for engine in ("cpu", "torch")
        ]
        losses = np.array([[epoch.validation_loss for epoch in fitted.history] for fitted in fits])
        assert losses[0, -1] < losses[0, 0]
        np.testing.assert_allclose(losses[1], losses[0], rtol=2e-3)
        np.testing.assert_allclose(fits[1].scores(table), fits[0].scores(table), atol=0.02)
        assert (fits[1].training.engine, fits[1].training.device) == ("cpu", None)  # a file may go anywhere

    @pytest.mark.parametrize("members", [1, 2])
    def test_an_update_learns_new_categories(self, members):
        old, new = without(visits(400), "amount", "kind"), without(visits(400, 1, "cde"), "amount", "kind")
        fitted = sf.fit_model(old, "click", model=sf.FwFM(k=4), training=replace(TRAINING, members=members))
        training = replace(fitted.training, engine="torch", device="cpu")
        learners = [sf.Learner(fitted, chosen) for chosen in (fitted.training, training)]
        for _ in range(2):
            losses = [learner.update(new, "click") for learner in learners]
            assert losses[1] == pytest.approx(losses[0], rel=1e-4)
        updated = [learner.fitted() for learner in learners]
        assert updated[1].encoder.layout.n_features == fitted.encoder.layout.n_features + 2
        np.testing.assert_allclose(updated[1].scores(new), updated[0].scores(new), atol=1e-3)
        assert updated[1].training.engine == "cpu"

    def test_an_estimator_fits_and_updates_on_torch(self):
        from splinefm.model.torch.engine import TorchEngine

        table = visits(300)
        y, X = table["click"], without(table, "click", "amount", "kind")
        settings = {"epochs": 2, "batch_size": 64, "n_jobs": 1, "effort": "fast"}
        estimator = sf.SplineFMClassifier(sf.FM(k=4), engine="torch", device="cpu", **settings).fit(X, y)
        other = sf.SplineFMClassifier(sf.FM(k=4), **settings).fit(X, y)
        assert estimator.get_params()["engine"] == "torch" and estimator.get_params()["device"] == "cpu"
        np.testing.assert_allclose(estimator.predict_proba(X), other.predict_proba(X), atol=5e-3)
        for each in (estimator, other):
            each.partial_fit(X, y)
        assert isinstance(estimator._learner.engine, TorchEngine) and not isinstance(other._learner.engine, TorchEngine)
        np.testing.assert_allclose(estimator.predict_proba(X), other.predict_proba(X), atol=5e-3)

    def test_a_run_that_diverges_says_so(self):
        table = without(visits(200), "click", "kind")
        with pytest.raises(sf.Diverged, match="training diverged in epoch 1"):
            sf.fit_model(
                table,
                "amount",
                loss="squared",
                model=sf.FM(k=2),
                training=replace(TRAINING, learning_rate=1e30),
                engine="torch",
            )

    def test_members_and_all_rows_are_fitted_on_torch(self):
        table = without(visits(200), "amount", "kind")
        training = replace(TRAINING, epochs=1, members=2, refit_on_all=True, engine="torch")
        fits = [
            sf.fit_model(table, "click", model=sf.FwFM(k=2), training=replace(training, engine=engine))
            for engine in ("cpu", "torch")
        ]
        assert fits[1].model == sf.FwFM(k=4, members=2)
        np.testing.assert_allclose(fits[1].scores(table), fits[0].scores(table), atol=5e-3)
