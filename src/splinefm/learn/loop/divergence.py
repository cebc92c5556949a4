"""What to say about a run that diverged."""

from __future__ import annotations

from splinefm._wording import setting
from splinefm.learn.penalty import Penalty, by_name
from splinefm.learn.training import L2, SMOOTHNESS, Training

# Settings that exceed their defaults by this factor are the first suspects when a run diverges.
SUSPICIOUS_FACTORS = {"learning_rate": 20.0, "l2": 1e3, "smoothness": 1e3}


class Diverged(ValueError):
    """Training diverged: the loss is NaN or infinite. The message says which setting to change.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> training = sf.Training(epochs=2, learning_rate=1e30, threads=1)
    >>> sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=training)
    Traceback (most recent call last):
    splinefm.learn.loop.divergence.Diverged: training diverged in epoch 1: ... lower learning_rate (now 1e+30; ...)
    """


def divergence_advice(training: Training) -> str:
    """Say what to change after a divergence: the settings far from their defaults, or else the usual ones."""
    defaults = {"learning_rate": Training.learning_rate, "l2": L2, "smoothness": SMOOTHNESS}
    now = {name: _largest(name, getattr(training, name), default) for name, default in defaults.items()}
    too_large = [name for name, (_, value) in now.items() if value > SUSPICIOUS_FACTORS[name] * defaults[name]]
    described = {name: f"{label} (now {value:g}; usually {defaults[name]:g})" for name, (label, value) in now.items()}
    if too_large:
        return "lower " + " and ".join(described[name] for name in too_large)
    return f"lower {described['learning_rate']}, or raise {described['l2']} or {described['smoothness']}"


def _largest(name: str, penalty: Penalty, default: float) -> tuple[str, float]:
    """Return the name of a setting (with the field, if given by field) and its largest value."""
    found = by_name(penalty)
    if not found:
        return setting(name), penalty if isinstance(penalty, float) else default
    field = max(found, key=found.__getitem__)
    return f"{setting(name)} of {field!r}", found[field]


def divergence_message(training: Training, epoch: int) -> str:
    """Return the message of `Diverged` for an epoch, counted from 0."""
    advice = divergence_advice(training)
    return f"training diverged in epoch {epoch + 1}: the loss is not finite; {advice}"
