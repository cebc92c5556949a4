"""The torch engine on the CPU: the battery of all engines."""

import pytest

from battery import EngineBattery

pytest.importorskip("torch", reason="needs PyTorch: pip install 'splinefm[torch]'")
engines = pytest.importorskip("splinefm.model.torch.engine")


class TestTorchEngine(EngineBattery):
    def engine(self, *arguments, **options):
        return engines.TorchEngine(*arguments, **options, device="cpu")

    def gradient_of(self, engine):
        return {name: engine.state[name].m.reshape(values.shape) for name, values in engine.values.items()}
