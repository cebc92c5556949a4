"""The same rows for another schema: fields that both schemas have are neither fitted nor encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.encode.encoder import CHUNK, Encoder, EncoderStatistics
from splinefm.encode.schema import Schema
from splinefm.encode.slots import Slots, concatenate_slots, empty_slots
from splinefm.learn.progress import SILENT, Progress
from splinefm.learn.rows.source import Source, ahead


class Origin(NamedTuple):
    """Where a field of a new encoder comes from: an encoder, and the number of the field there."""

    encoder: Encoder
    field: int


def find_origins(
    source: Source, old: Source, encoder: Encoder, threads: int | None, progress: Progress = SILENT
) -> list[Origin]:
    """Return where each field of the new schema comes from: the old encoder, or one of the new fields alone.

    The fields of the old encoder are those of the old schema, fitted.
    """
    known = {item.name: (item, f) for f, item in enumerate(old.schema.resolved)}
    fresh = [item for item in source.schema.resolved if item.name not in known or known[item.name][0] != item]
    numbers = {item.name: f for f, item in enumerate(fresh)}
    more = _fit(Schema(fresh), source, threads, progress) if fresh else encoder
    return [
        Origin(more, numbers[name]) if name in numbers else Origin(encoder, known[name][1])
        for name in source.schema.names
    ]


def _fit(schema: Schema, source: Source, threads: int | None, progress: Progress) -> Encoder:
    statistics = EncoderStatistics(schema, threads)
    for batch in ahead(source.opened.chunks(schema.columns, CHUNK)):
        progress.tick()
        statistics.update(batch)
    progress.tick()
    return statistics.encoder()


def join_encoder(origins: Sequence[Origin]) -> Encoder:
    """Return an encoder of fields from several encoders, which were fitted to the same rows."""
    fields = tuple(encoder.fields[f] for encoder, f in origins)
    return Encoder(
        fields,
        origins[0].encoder.n_rows,
        {item.name: encoder.notes[item.name] for item, (encoder, _) in zip(fields, origins, strict=True)},
        tuple(encoder.feature_counts[f] for encoder, f in origins),
        tuple(encoder.feature_weights[f] for encoder, f in origins),
        np.array([encoder.ranges[f] for encoder, f in origins]),
    )


def join_slots(origins: Sequence[Origin], encoder: Encoder, parts: Sequence[tuple[Encoder, Slots]]) -> Slots:
    """Return the slots of a joined encoder, given those of its origins for the same rows."""
    slots = empty_slots(len(parts[0][1]), encoder.layout)
    new = encoder.layout
    for f, (origin, g) in enumerate(origins):
        part = next(found for known, found in parts if known is origin)
        old = part.layout
        to, of = (slice(*layout.window_ptr[i : i + 2]) for layout, i in ((new, f), (old, g)))
        slots.start[:, to] = part.start[:, of] + (new.feature_ptr[f] - old.feature_ptr[g])
        to, of = (slice(*layout.weight_ptr[[w.start, w.stop]]) for layout, w in ((new, to), (old, of)))
        slots.weight[:, to] = part.weight[:, of]
    return slots


def encode_fresh(
    encoder: Encoder,
    source: Source,
    held_out: npt.NDArray[np.bool_],
    threads: int | None,
    progress: Progress = SILENT,
) -> tuple[Slots, Slots]:
    """Return the slots of the training rows and of the rows that are held out."""
    parts = []
    for batch in ahead(source.opened.chunks(encoder.schema.columns, CHUNK)):
        parts.append(encoder.encode(batch, threads=threads))
        progress.advance(batch.num_rows)
    slots = concatenate_slots(parts)
    return slots[~held_out], slots[held_out]
