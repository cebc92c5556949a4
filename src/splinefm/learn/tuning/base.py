"""The base of a study: the setting that a fit finds, and its form in the storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from splinefm.encode.schema import Schema
from splinefm.learn.files.container import Array
from splinefm.learn.files.describe import describe
from splinefm.learn.files.restore import restore
from splinefm.learn.search.setting import Setting


class Base(NamedTuple):
    """The setting that trials start from.

    Parameters
    ----------
    setting : Setting
        What the search of a fit has found, or the setting of the estimator if there was no search.
    n_members : int
        How many members the model of that fit has.
    """

    setting: Setting
    n_members: int = 1

    def describe(self, given: Schema) -> dict[str, Any]:
        """Return a description for JSON; fields that are as in the given schema are named only.

        A study that is resumed reads it: what a search finds can depend on its time limit and, in the last digit, on
        the machine.
        """
        schema, arrays = self.setting.schema, dict[str, Array]()
        known = {item.name: item for item in given.fields}
        described = {
            "fields": [
                item.name
                if known.get(item.name) == item
                else describe(item, f"fields/{i}", f"field {item.name!r}", arrays)
                for i, item in enumerate(schema.fields)
            ],
            "reasons": {name: text for name, text in schema.reasons.items() if given.reasons.get(name) != text},
            "model": describe(self.setting.model, "model", "the model", arrays),
            "training": describe(self.setting.training, "training", "the training", arrays),
            "members": self.n_members,
        }
        return {**described, "arrays": {name: array.tolist() for name, array in arrays.items()}}

    @classmethod
    def restore(cls, described: Mapping[str, Any], given: Setting) -> Base:
        """Return the base that was described, for the same given schema; the machine is that of the given setting."""
        arrays = {name: np.array(values, np.float64) for name, values in described["arrays"].items()}
        fields = [
            given.schema[item] if isinstance(item, str) else restore(item, arrays, "the study")
            for item in described["fields"]
        ]
        own = given.training
        training = replace(
            restore(described["training"], arrays, "the study"),
            threads=own.threads,
            engine=own.engine,
            device=own.device,
            time_limit=own.time_limit,
        )
        schema = Schema(fields, {**given.schema.reasons, **described["reasons"]})
        model = restore(described["model"], arrays, "the study")
        return cls(Setting(schema, model, training), int(described["members"]))
