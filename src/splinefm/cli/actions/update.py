"""Update a model file with the rows of files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from splinefm.encode.tables.open import open_table, refuse_overwriting
from splinefm.encode.tables.table import Table
from splinefm.fit.evaluation import find_target
from splinefm.store.model_file import load
from splinefm.update.files import UpdateReport, refuse_sharded, update_model
from splinefm.update.guard import Guard


@dataclass(frozen=True)
class UpdateRequest:
    """What the user asked for.

    Parameters
    ----------
    model : Path
        The model file.
    data : list of str
        Files, folders or patterns with the new rows.
    target : str, optional
        Its target; by default the only column that is not a field.
    out : Path, optional
        The model file to write; by default the same.
    weight : str, optional
        A column of sample weights.
    guard : Guard, optional
        When to refuse the update; its `validation` may be the path of a file.
    sep : str, optional
        Column separator of CSV files.
    threads : int, optional
        Number of threads.
    """

    model: Path
    data: list[str]
    target: str | None = None
    out: Path | None = None
    weight: str | None = None
    guard: Guard | None = None
    sep: str | None = None
    threads: int | None = None

    def open(self) -> Table:
        """Open the new rows."""
        return open_table(list(self.data), sep=self.sep)


def update_file(request: UpdateRequest, say: Callable[[str], None]) -> UpdateReport:
    """Update a model file; say which column is the target if it was found."""
    refuse_sharded(request.model)
    if request.out is not None:
        refuse_overwriting(request.out, *request.data)
    guard, target = request.guard, request.target
    if guard is not None and isinstance(guard.validation, str):
        guard = replace(guard, validation=open_table(guard.validation, sep=request.sep))
    table = request.open()
    if target is None:
        target = find_target(request.data[0], table, load(request.model, mmap=True), {request.weight})
        say(f"target: {target!r}, the only column that is not a field of the model")
    if table.n_rows is not None:  # known before they are read, as in Parquet files
        say(f"learning from {table.n_rows:,} rows")
    return update_model(
        request.model,
        table,
        target,
        out=request.out,
        sample_weight=request.weight,
        guard=guard,
        threads=request.threads,
    )
