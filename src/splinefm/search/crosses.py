"""Crosses that a fit finds: candidates, changes of a schema, and what the schema says about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import SEPARATOR, VALUES, Cross
from splinefm.encode.schema import Provenance, Schema
from splinefm.encode.tables.names import quoted
from splinefm.search.recurring import MIN_COUNT, find_recurring, recurring_l2
from splinefm.search.screening import Candidate, Unexplained, find_unexplained, read_names, screen
from splinefm.search.setting import Setting
from splinefm.train.chunks import Chunks
from splinefm.train.progress import SILENT, Progress
from splinefm.train.settings import Crosses, Penalty, Training, penalties_by_field

# Crosses that a fit finds by itself: which are candidates, and what a schema says about them.


def candidates_for(schema: Schema, crosses: Crosses) -> list[str]:
    """Return the fields that may become parts of crosses: with "auto", the fields that were inferred."""
    if not crosses or schema.crosses:
        return []
    # A cross could undo a shape.
    fields = (item for item in schema.singles if not item.holds_lists and item.required_shape is None)
    return [item.name for item in fields if crosses != "auto" or schema.is_chosen(item.name)]


def without_found(training: Training, schema: Schema, progress: Progress = SILENT) -> Training:
    """Return settings without penalties of crosses that the search of an earlier fit has added.

    The settings of a fitted model have them. The search of another fit chooses its own.
    """
    known = schema.names if candidates_for(schema, training.crosses) else ()
    given = {name for penalty in (training.l2, training.smoothness) for name in penalties_by_field(penalty)}
    found = sorted(name for name in given if _may_be_found(name, known))
    if not found:
        return training
    progress.say(f"the search for crosses chooses their penalties; those given for {quoted(found)} are left out")

    def kept(penalty: Penalty) -> Penalty:
        if penalty is None or isinstance(penalty, float):
            return penalty
        return {name: value for name, value in penalties_by_field(penalty).items() if name not in found}

    return replace(training, l2=kept(training.l2), smoothness=kept(training.smoothness))


def _may_be_found(name: str, known: Collection[str]) -> bool:
    """Return whether this is a name that a search gives to a cross of these fields."""
    parts = name.removesuffix(VALUES).split(SEPARATOR)
    return name not in known and all(part in known for part in parts)


def find_candidates(encoder: Encoder, left: Unexplained, seed: int, threads: int | None = None) -> list[Candidate]:
    """Return pairs of columns whose cells explain what is left, the best first."""
    parts = zip(left.residuals, left.scores, strict=True)
    found = [screen(encoder, left.values, residual, score, seed, threads) for residual, score in parts]
    best: dict[str, Candidate] = {}
    for candidate in (each for of_class in found for each in of_class):
        known = best.get(candidate.cross.name)
        best[candidate.cross.name] = candidate if known is None or known.gain < candidate.gain else known
    return sorted(best.values(), key=lambda candidate: (-candidate.gain, candidate.cross.name))


def with_cross(schema: Schema, cross: Cross, gain: float) -> Schema:
    """Return the schema with a cross at its end, and the reason for it."""
    return schema.having((*schema.fields, cross), {**schema.provenance, cross.name: Provenance("searched", gain=gain)})


def with_names(schema: Schema, name: str, gain: float) -> Schema:
    """Return the schema with features for more names of a column, and the reason for them."""
    fields = [
        replace(item, min_count=MIN_COUNT) if item.name == name and isinstance(item, Categorical) else item
        for item in schema.fields
    ]
    found = replace(schema.provenance.get(name, Provenance("given")), source="searched", gain=gain)
    return schema.having(fields, {**schema.provenance, name: found})


def findings(schema: Schema, given: Schema) -> dict[str, Provenance]:
    """Return the provenance of every field that a search has added to a given schema, or changed.

    The given schema may have findings of an earlier fit, which say nothing about this one.
    """
    new = {name: each for name, each in schema.provenance.items() if each != given.provenance.get(name)}
    return {name: each for name, each in new.items() if each.gain is not None}


def with_findings(encoder: Encoder, found: Mapping[str, Provenance]) -> Encoder:
    """Return the encoder with the provenance of what a search has found."""
    new = {name: replace(each, reason=encoder.provenance[name].reason) for name, each in found.items()}
    return replace(encoder, provenance={**encoder.provenance, **new})


def has_one_name_per_number(schema: Schema, name: str) -> bool:
    """Return whether the numbers that a fitted cross takes as names have one name each, however they are spelled.

    A number in a text such as "$1,200" is read as one by its own field, but has the whole text for a name.
    """
    numbers, cross = {item.column for item in schema.numerical}, schema[name]
    parts = cross.category_parts if isinstance(cross, Cross) else ()
    return all(part.values == "numbers" for part in parts if part.column in numbers)


# Changes of a schema that a search tries: crosses of columns that act together, and values that recur.

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
    changes = changes[: _max_changes(MAX_CROSSES, training)]
    recurring = _find_recurring(setting, chunks, training, names, left)
    changes += [each for each in recurring if isinstance(each.field, Categorical) or _is_new(each.name, setting)]
    return [each for each in changes if each.name in schema.names or each.name not in schema.columns]


def _find_recurring(
    setting: Setting, chunks: Chunks, training: Training, names: Sequence[str], left: Unexplained
) -> list[Change]:
    inferred = [name for name in names if setting.schema.is_chosen(name)]  # others stay as given
    rare = read_names(chunks, inferred, left.rows, MIN_COUNT)
    search = partial(find_recurring, chunks.encoder, left.values, names=rare)
    found = [(each, residual) for residual in left.residuals for each in search(residual)]
    # Pairs of values have the effects of each of them, too: single values come first.
    found.sort(key=lambda pair: (pair[0].has_one_column, pair[0].gain), reverse=True)
    size = setting.training.rows_per_step(chunks.n_rows)
    changes: dict[str, Change] = {}
    for each, residual in found:
        l2 = recurring_l2(each, chunks.n_rows, residual, left.dispersion, size)
        changes.setdefault(each.field.name, Change(each.field, each.gain, l2))
    return list(changes.values())[: _max_changes(MAX_RECURRING, training)]


def _max_changes(usual: int, training: Training) -> int:
    return usual if training.crosses == "auto" else int(training.crosses or 0)


def _is_new(name: str, setting: Setting) -> bool:
    return name not in setting.schema.names
