"""Changes of a schema that a search tries: crosses of columns that act together, and values that recur."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import Cross
from splinefm.learn.progress import Progress
from splinefm.learn.rows.chunks import Chunks
from splinefm.learn.search.crosses import find_candidates, with_cross, with_names
from splinefm.learn.search.recurring import MIN_COUNT, find_recurring, recurring_l2
from splinefm.learn.search.setting import Setting
from splinefm.learn.search.unexplained import Unexplained, find_unexplained
from splinefm.learn.search.values import read_names
from splinefm.learn.training import Training

# The most crosses of columns, and of values that recur, that "auto" tries.
MAX_CROSSES, MAX_RECURRING = 3, 2


@dataclass(frozen=True)
class Change:
    """A field to add to a setting, or a column whose rare names get features.

    Parameters
    ----------
    field : Cross or Categorical
        The field.
    gain : float
        The share of the squared residuals that it explains.
    l2 : float, optional
        A penalty of its own.
    """

    field: Cross | Categorical
    gain: float
    l2: float | None = None

    @property
    def name(self) -> str:
        """The name of the field."""
        return self.field.name

    def of(self, setting: Setting) -> Setting:
        """Return the setting with this change."""
        field, schema = self.field, setting.schema
        with_field = with_cross(schema, field, self.gain) if isinstance(field, Cross) else None
        changed = replace(setting, schema=with_field or with_names(schema, field.name, self.gain))
        training, names = changed.training, changed.schema.names
        if self.l2 is not None:
            training = training.with_l2(self.name, self.l2, names)
        return replace(changed, training=training)


def find_changes(
    setting: Setting, chunks: Chunks, training: Training, names: Sequence[str], max_learned: int, progress: Progress
) -> list[Change]:
    """Return changes that explain what a setting leaves unexplained, the most promising first.

    Parameters
    ----------
    setting, chunks, training, names, max_learned, progress
        As `find_unexplained` takes them.
    """
    schema = setting.schema
    left = find_unexplained(setting, chunks, training, names, max_learned, progress)
    if left is None:
        return []
    candidates = find_candidates(chunks.encoder, left, training.seed, training.threads)
    changes = [Change(each.cross, each.gain) for each in candidates if _is_new(each.cross.name, setting)]
    changes = changes[: _most(MAX_CROSSES, training)]
    recurring = _find_recurring(setting, chunks, training, names, left, progress)
    changes += [each for each in recurring if isinstance(each.field, Categorical) or _is_new(each.name, setting)]
    return [each for each in changes if each.name in schema.names or each.name not in schema.columns]


def _find_recurring(
    setting: Setting,
    chunks: Chunks,
    training: Training,
    names: Sequence[str],
    left: Unexplained,
    progress: Progress,
) -> list[Change]:
    inferred = [name for name in names if name in setting.schema.reasons]  # others stay as given
    rare = read_names(chunks, inferred, left.rows, MIN_COUNT)
    search = partial(find_recurring, chunks.encoder, left.values, names=rare, progress=progress)
    found = [(each, residual) for residual in left.residuals for each in search(residual)]
    # Pairs of values have the effects of each of them, too: single values come first.
    found.sort(key=lambda pair: (pair[0].has_one_column, pair[0].gain), reverse=True)
    size = setting.training.rows_per_step(chunks.n_rows)
    changes: dict[str, Change] = {}
    for each, residual in found:
        l2 = recurring_l2(each, chunks.n_rows, residual, left.dispersion, size)
        changes.setdefault(each.field.name, Change(each.field, each.gain, l2))
    return list(changes.values())[: _most(MAX_RECURRING, training)]


def _most(usual: int, training: Training) -> int:
    return usual if training.crosses == "auto" else int(training.crosses or 0)


def _is_new(name: str, setting: Setting) -> bool:
    return name not in setting.schema.names
