"""Crosses that a fit finds by itself: which are candidates, and what a schema says about them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import SEPARATOR, VALUES, Cross
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Schema
from splinefm.encode.tables.names import quoted
from splinefm.learn.penalty import Penalty, by_name
from splinefm.learn.progress import SILENT, Progress
from splinefm.learn.search.recurring import MIN_COUNT
from splinefm.learn.search.screening import Candidate, screen
from splinefm.learn.search.unexplained import Unexplained
from splinefm.learn.training import Crosses, Training

FOUND = "found: "  # how the reason of what a search has added begins


def candidates_for(schema: Schema, crosses: Crosses) -> list[str]:
    """Return the fields that may become parts of crosses: with "auto", those of columns that were inferred."""
    if not crosses or schema.crosses:
        return []
    fields = (item for item in schema if isinstance(item, Numerical | Categorical))
    return [item.name for item in fields if crosses != "auto" or item.name in schema.reasons]


def without_found(training: Training, schema: Schema, progress: Progress = SILENT) -> Training:
    """Return settings without penalties of crosses that the search of an earlier fit has added.

    The settings of a fitted model have them. The search of another fit chooses its own.
    """
    known = schema.names if candidates_for(schema, training.crosses) else ()
    given = {name for penalty in (training.l2, training.smoothness) for name in by_name(penalty)}
    found = sorted(name for name in given if _may_be_found(name, known))
    if not found:
        return training
    progress.say(f"the search for crosses chooses their penalties; those given for {quoted(found)} are left out")

    def kept(penalty: Penalty) -> Penalty:
        if penalty is None or isinstance(penalty, float):
            return penalty
        return {name: value for name, value in by_name(penalty).items() if name not in found}

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
    return Schema((*schema.fields, cross), {**schema.reasons, cross.name: reason_of(gain)})


def with_names(schema: Schema, name: str, gain: float) -> Schema:
    """Return the schema with features for more names of a column, and the reason for them."""
    fields = [
        replace(item, min_count=MIN_COUNT) if item.name == name and isinstance(item, Categorical) else item
        for item in schema.fields
    ]
    before = schema.reasons.get(name, "").split(f"; {FOUND}")[0]
    return Schema(fields, {**schema.reasons, name: f"{before}; {reason_of(gain)}"})


def found_reasons(schema: Schema, given: Schema) -> dict[str, str]:
    """Return the reason for every field that a search has added or changed.

    The given schema may have reasons of an earlier fit, which say nothing about this one.
    """
    new = {name: reason for name, reason in schema.reasons.items() if reason != given.reasons.get(name)}
    return {name: FOUND + reason.split(FOUND)[1] for name, reason in new.items() if FOUND in reason}


def with_reasons(encoder: Encoder, schema: Schema, given: Schema) -> Encoder:
    """Return the encoder with the reason of what was found in its notes."""
    reasons = found_reasons(schema, given)
    notes = {name: f"{note}; {reasons[name]}" if name in reasons else note for name, note in encoder.notes.items()}
    return replace(encoder, notes=notes) if reasons else encoder


def reason_of(gain: float) -> str:
    """Say why a cross was added.

    Examples
    --------
    >>> reason_of(0.08)
    'found: explains 8.0% of what the model without it leaves unexplained, and lowers the loss of held-out rows'
    """
    explained = f"explains {gain:.1%} of what the model without it leaves unexplained"
    return f"{FOUND}{explained}, and lowers the loss of held-out rows"


def has_one_name_per_number(schema: Schema, name: str) -> bool:
    """Return whether the numbers that a fitted cross takes as names have one name each, however they are spelled.

    A number in a text such as "$1,200" is read as one by its own field, but has the whole text for a name.
    """
    numbers, cross = {item.column for item in schema.fields if isinstance(item, Numerical)}, schema[name]
    parts = cross.category_parts if isinstance(cross, Cross) else ()
    return all(part.values == "numbers" for part in parts if part.column in numbers)
