"""A setting: everything about a fit that a search can choose."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from splinefm.encode.bases import BSpline, MultiResolution
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Schema
from splinefm.encode.slots import SlotLayout
from splinefm.model.family import AnyModel
from splinefm.model.family.field_weighted import FwFM
from splinefm.model.family.fm import FM
from splinefm.model.family.higher_order import HigherOrderFM
from splinefm.train.settings import Penalty, Training, penalties_by_field, round_setting

# The bases that an inferred schema has, which a search may replace.
INFERRED = (BSpline(), MultiResolution())


@dataclass(frozen=True)
class Setting:
    """The fields, the model and the settings of training.

    Parameters
    ----------
    schema : Schema
        The fields, with their bases and crosses.
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.
    training : Training
        The settings of training. What it leaves open follows from the number of rows.
    """

    schema: Schema
    model: AnyModel
    training: Training

    def with_l2(self, factor: float) -> Setting:
        """Return a setting with all L2 penalties multiplied by a factor.

        Examples
        --------
        >>> import splinefm as sf
        >>> setting = Setting(sf.Schema([sf.Numerical("x")]), sf.FM(k=4), sf.Training(l2=1e-4))
        >>> setting.with_l2(10.0).training.l2
        0.001
        """
        return self._with(l2=_scaled(self.training.l2, factor))

    def with_penalties(self, l2: float | None, smoothness: float | None) -> Setting:
        """Return a setting with these penalties for all fields; None leaves one as it is."""
        given = {"l2": l2, "smoothness": smoothness}
        return self._with(**{name: round_setting(value) for name, value in given.items() if value is not None})

    def with_model(self, model: AnyModel) -> Setting:
        """Return a setting with another model."""
        return replace(self, model=model)

    def with_epochs(self, epochs: int) -> Setting:
        """Return a setting with another number of epochs."""
        return self._with(epochs=epochs)

    def with_basis(self, basis: BSpline | MultiResolution) -> Setting:
        """Return a setting with this basis for all numbers whose basis was inferred."""
        return replace(self, schema=self.schema.with_bases(dict.fromkeys(free_bases(self.schema), basis)))

    def with_columns(self, names: Collection[str]) -> Setting:
        """Return a setting with these fields only."""
        schema = self.schema
        kept = tuple(item for item in schema.fields if item.name in names)
        return replace(self, schema=schema.having(kept))

    def _with(self, **changes: object) -> Setting:
        return replace(self, training=replace(self.training, **changes))  # type: ignore[arg-type]

    @property
    def basis(self) -> str:
        """The bases of the numbers, most frequent first."""
        bases = [_describe(item) for item in self.schema.numerical]
        return ", ".join(sorted(dict.fromkeys(bases), key=lambda each: -bases.count(each))[:2])

    @property
    def crosses(self) -> tuple[str, ...]:
        """The names of the crosses."""
        return tuple(item.name for item in self.schema.crosses)


def free_bases(schema: Schema) -> list[str]:
    """Return the fields whose basis was inferred and not changed since."""
    return [item.name for item in schema.numerical if schema.is_chosen(item.name) and item.basis in INFERRED]


def smallest_penalty(penalty: Penalty, names: Sequence[str]) -> float | None:
    """Return the penalty that most fields have: crosses that were found can have larger ones."""
    if penalty is None or isinstance(penalty, float):
        return penalty
    return min((value for name, value in penalties_by_field(penalty).items() if name in names), default=None)


def names_of_columns(schema: Schema) -> list[str]:
    """Return the names of the fields that are not crosses."""
    return [item.name for item in schema.singles]


def _scaled(penalty: Penalty, factor: float) -> Penalty:
    if penalty is None or isinstance(penalty, float):
        return None if penalty is None else round_setting(penalty * factor)
    return {name: round_setting(value * factor) for name, value in penalties_by_field(penalty).items()}


def _describe(item: Numerical) -> str:
    basis = item.basis
    if isinstance(basis, MultiResolution):
        return "+".join(map(str, basis.segments)) + " segments"
    return f"{basis.segments} segments" if isinstance(basis, BSpline) else type(basis).__name__


# The work of a fit: an estimate in seconds of one core, the same on every machine.
#
# What a search tries depends on it, so it must not depend on a clock: two machines would find two models.

# Seconds per number that a step touches, measured on two busy cores of a Zen 3 processor: weights of a row times length
# of a vector, products of pairs, products of higher order, and features that a step smooths times length of a vector.
PER_WEIGHT, PER_PAIR, PER_PRODUCT, PER_SMOOTHED, PER_ROW = 0.3e-9, 0.12e-9, 0.6e-9, 1.8e-9, 40e-9
# A field with more features than this does not stay in the nearest caches, and a weight takes this many times as long.
MAX_CACHED, SLOWER = 1_000, 4


def seconds_of_epoch(model: AnyModel, layout: SlotLayout, n_outputs: int, n_rows: int, batch_size: int) -> float:
    """Estimate the seconds of one epoch."""
    n_fields = len(layout.fields)
    width = model.width(n_fields)
    n_weights = sum(sum(each.widths) * (1 if each.n_features <= MAX_CACHED else SLOWER) for each in layout.fields)
    per_row = PER_ROW + PER_WEIGHT * n_weights * width + _products(model, n_fields)
    # Splines are smoothed as a whole in every step; categories and the large tables of crosses are not.
    smoothed = sum(
        field.n_features for field in layout.fields if max(field.widths) > 1 and field.n_features <= MAX_CACHED
    )
    per_step = PER_SMOOTHED * smoothed * width
    return n_outputs * (n_rows * per_row + n_rows / batch_size * per_step)


def _products(model: AnyModel, n_fields: int) -> float:
    """Return the seconds of the products of one row."""
    if isinstance(model, HigherOrderFM):
        return PER_PRODUCT * n_fields * model.order * model.k
    pairs = n_fields * n_fields / 2
    if isinstance(model, FM):
        return PER_PAIR * n_fields * model.k
    if isinstance(model, FwFM):
        return PER_PAIR * pairs * model.k + PER_PRODUCT * 3 * n_fields * model.third
    return PER_PAIR * pairs * model.width(n_fields)
