"""Settings of a model by name, as scikit-learn asks for them: `model__k` in grids."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Self


class WithSettings:
    """Read the settings of a model by name, and change them in a copy.

    Models are immutable values: two of the same class with the same settings are equal. So `set_params` returns a new
    model, and an estimator replaces its model by that: `estimator.set_params(model__k=8)`.

    Examples
    --------
    >>> from splinefm.model.family import LowRankFwFM
    >>> model = LowRankFwFM(k=8)
    >>> model.get_params()
    {'k': 8, 'rank': 3}
    >>> model.set_params(rank=2), model
    (LowRankFwFM(k=8, rank=2), LowRankFwFM(k=8, rank=3))
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; `deep` is for scikit-learn and has no effect."""
        return {item.name: getattr(self, item.name) for item in _fields(self)}

    def set_params(self, **params: Any) -> Self:
        """A copy with other settings; this model does not change."""
        known = [item.name for item in _fields(self)]
        for name in params:
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no setting {name!r}; it has {', '.join(known)}")
        return replace(self, **params)  # type: ignore[type-var]  # all models are dataclasses

    def __sklearn_clone__(self) -> Self:
        # An immutable object needs no copy.
        return self


def _fields(model: object) -> tuple[Any, ...]:
    return fields(model)  # type: ignore[arg-type]  # all models are dataclasses
