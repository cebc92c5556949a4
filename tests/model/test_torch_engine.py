"""The torch engine on the CPU: the battery of all engines."""

import numpy as np
import pytest

from battery import EngineBattery

pytest.importorskip("torch", reason="needs PyTorch: pip install 'splinefm[torch]'")
engines = pytest.importorskip("splinefm.model.torch.engine")


class TestTorchEngine(EngineBattery):
    sampled = True

    def assert_equal(self, actual, expected):
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)

    def engine(self, *arguments, **options):
        return engines.TorchEngine(*arguments, **options, device="cpu")

    def gradient_of(self, engine):
        return {name: engine.state[name].m.reshape(values.shape) for name, values in engine.values.items()}
