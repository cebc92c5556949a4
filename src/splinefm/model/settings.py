"""Settings of a model by name, as scikit-learn asks for them: `model__k` in grids."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Self


class WithSettings:
    """What the models share: their settings can be read by name, and changed in a copy.

    Models are values: two of the same kind with the same settings are equal, and neither changes. So `set_params` gives
    a new one, and an estimator puts it in the place of the old: `estimator.set_params(model__k=8)`.

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
        """The settings by name; `deep` is what scikit-learn passes and changes nothing."""
        return {item.name: getattr(self, item.name) for item in _fields(self)}

    def set_params(self, **params: Any) -> Self:
        """A copy with these settings; this model stays as it is."""
        known = [item.name for item in _fields(self)]
        for name in params:
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no setting {name!r}; it has {', '.join(known)}")
        return replace(self, **params)  # type: ignore[type-var]  # all models are dataclasses

    def __sklearn_clone__(self) -> Self:
        # What never changes needs no copy.
        return self


def _fields(model: object) -> tuple[Any, ...]:
    return fields(model)  # type: ignore[arg-type]  # all models are dataclasses
