"""Whom a score is attributed to: the fields, or the columns of the table if the model has crosses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from splinefm._cached import cached_property
from splinefm.encode.schema import Schema
from splinefm.encode.slots import SlotLayout
from splinefm.learn.fitted import Fitted


@dataclass(frozen=True)
class Players:
    """The players of the game that Shapley values divide, and who takes part in which field.

    Without crosses every field is a player. With crosses every column is one: the fields that read the same column,
    such as the parts of a date, belong to one player.

    Parameters
    ----------
    names : tuple of str
        Names of the fields, or of the columns.
    of_parts : tuple of tuples of int
        For each field the player of every column that it reads.
    """

    names: tuple[str, ...]
    of_parts: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(fitted: Fitted) -> Players:
        """The players of a model."""
        schema: Schema = fitted.encoder.schema
        if not schema.crosses:
            return Players(schema.names, tuple((f,) for f in range(len(schema.names))))
        return Players(schema.columns, schema.column_indices)

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.names)

    @cached_property
    def of_field(self) -> tuple[tuple[int, ...], ...]:
        """For each field its players, ascending."""
        return tuple(tuple(sorted(set(players))) for players in self.of_parts)

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """Fields of several players."""
        return tuple(f for f, players in enumerate(self.of_field) if len(players) > 1)

    @cached_property
    def are_fields(self) -> bool:
        """Whether every field is a player."""
        return self.of_field == tuple((f,) for f in range(len(self.names)))

    def of_units(self, layout: SlotLayout) -> npt.NDArray[np.int32]:
        """The player of every unit; -1 for units of fields of several players."""
        alone = [players[0] if len(players) == 1 else -1 for players in self.of_field]
        return np.array(alone, np.int32)[layout.unit_field]
