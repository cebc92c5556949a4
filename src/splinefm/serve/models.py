"""Models that are served: loaded from verified files, with everything that answers need."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from splinefm._arrays import Float32Array, FloatArray
from splinefm._cached import cached_property
from splinefm.encode.drift import Watch
from splinefm.encode.tables.names import quoted
from splinefm.inspect.shapley import Background
from splinefm.rank.index import ItemIndex
from splinefm.serve.scorer import Row, Scorer
from splinefm.store.model_file import load
from splinefm.train.fitted import Fitted
from splinefm.train.targets import Label


@dataclass(frozen=True)
class Published:
    """A verified copy of a model file and its index, in a folder of the service."""

    arm: str
    model: str
    index: str | None
    sha256: str
    index_sha256: str | None
    source: str
    generation: int
    index_file_sha256: str | None = None
    """Of the index file; `index_sha256` differs once items were changed over HTTP."""

    @property
    def version(self) -> str:
        """A short name of the content: the beginning of its checksum."""
        return self.sha256[:12] + (f"-{self.index_sha256[:6]}" if self.index_sha256 else "")


@dataclass(eq=False)
class LoadedModel:
    """A model in memory.

    Parameters
    ----------
    published : Published
        The files.
    fitted : Fitted
        The model, mapped into memory.
    index : ItemIndex, optional
        Items to rank.
    background : table, optional
        Path of the rows that explanations compare with.
    """

    published: Published
    fitted: Fitted
    index: ItemIndex | None = None
    background_path: str | None = None
    loaded_at: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self.scorer = Scorer(self.fitted)
        self.columns = tuple(self.fitted.columns)
        self.n_outputs = self.fitted.n_outputs
        self._table_scores = self.fitted.table_scorer(threads=1)
        self.watch = Watch(self.fitted.encoder)
        self._backgrounds: dict[Label | None, Background] = {}

    def background(self, label: Label | None = None) -> Background | None:
        """The rows that explanations of a class compare with, by default of the only score; read on first use."""
        if self.background_path is not None and label not in self._backgrounds:
            one = self.fitted if label is None else self.fitted.for_class(label)
            self._backgrounds[label] = Background.of(one, self.background_path, threads=1)
        return self._backgrounds.get(label)

    @cached_property
    def explorer_page(self) -> bytes:
        """The page that explores this model on the rows of the background; made on first use."""
        from splinefm.explore.explorer import describe_model

        assert self.background_path is not None
        name = Path(self.published.source).name
        explorer = describe_model(self.fitted, self.background_path, name=name, index=self.index, threads=1)
        return explorer.page(f"./v1/rank?arm={self.published.arm}").encode()

    def scores(self, rows: Sequence[Row]) -> Float32Array:
        """The scores of a list of rows."""
        return np.asarray(self.scorer.many(rows), np.float32)

    def table_scores(self, table: object) -> Float32Array:
        """The scores of a table."""
        return self._table_scores(table)

    def predict(self, scores: Float32Array) -> FloatArray:
        """The predictions of scores, as `Fitted.predict` has them."""
        return self.fitted.loss.predict(scores.astype(np.float64))

    def warm(self) -> None:
        """Touch what requests will touch: the pages of the parameters, and the code that scores."""
        for values in self.fitted.params.values():
            if values.size:
                values.max()
        self.background(_first_label(self.fitted))
        row = example_row(self.fitted)
        self.scores([row, row])
        self.table_scores({name: [value] for name, value in row.items()})


def load_model(published: Published, background: str | None = None, before: LoadedModel | None = None) -> LoadedModel:
    """Load files that were verified before: the arrays are mapped, and shared between processes.

    If only the items differ from those before, the model is not read again.
    """
    is_same = before is not None and before.published.model == published.model
    fitted = before.fitted if before is not None and is_same else load(published.model, mmap=True)
    index = None if published.index is None else ItemIndex.load(published.index, fitted)
    return LoadedModel(published, fitted, index, background)


def verify(model: Path, index: Path | None, background: str | None = None) -> Fitted:
    """Read files with all their checksums, and make what a worker makes of them; raise where one is damaged."""
    fitted = load(model)
    if index is not None:
        ItemIndex.load(index, fitted, mmap=False)
    if background is not None:
        label = _first_label(fitted)
        Background.of(fitted if label is None else fitted.for_class(label), background, threads=1)
    Scorer(fitted)(example_row(fitted))
    return fitted


def _first_label(fitted: Fitted) -> Label | None:
    """The first of more than two classes; None for a model with one score."""
    return None if fitted.n_outputs == 1 or fitted.classes is None else fitted.classes[0]


def contract(fitted: Fitted) -> dict[str, Any]:
    """What clients, metrics and other workers rely on: it stays the same when an arm gets a new file."""
    return {
        "columns": sorted(fitted.columns),
        "fields": sorted(watched_fields(fitted)),
        "classes": [str(label) for label in fitted.classes or ()],
        "scores per row": fitted.n_outputs,
        "loss": fitted.loss.name,
    }


def check_compatible(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raise where clients of the old model could not talk to the new one.

    Examples
    --------
    >>> check_compatible({"columns": ["a", "b"]}, {"columns": ["a", "c"]})
    Traceback (most recent call last):
    ValueError: its columns differ from those that are served: gone 'b', new 'c'; clients would break: ...
    """
    for what, before in old.items():
        now = new[what]
        if before == now:
            continue
        detail = f"{now!r} instead of {before!r}"
        if isinstance(before, list):
            gone, more = quoted(sorted({*before} - {*now})), quoted(sorted({*now} - {*before}))
            detail = ", ".join(f"{word} {names}" for word, names in (("gone", gone), ("new", more)) if names)
        raise ValueError(
            f"its {what} differ from those that are served: {detail or 'another order'}; clients would break: "
            "serve it as another arm, or restart the server with it"
        )


def watched_fields(fitted: Fitted) -> list[str]:
    """Names of the fields whose values are watched for drift: all but crosses, whose columns have fields."""
    return [item.name for item in fitted.encoder.schema.singles]


def example_row(fitted: Fitted) -> dict[str, Any]:
    """A row that the model takes, to try it and to show it in examples."""
    ranges = fitted.encoder.ranges
    read = [(single, ranges[f, 0]) for f, item in enumerate(fitted.encoder.fields) for single in item.singles]
    row: dict[str, Any] = {}
    for part, low in sorted(read, key=lambda each: each[0].example_rank):
        row.setdefault(part.column, part.example_value(float(low)))
    if fitted.offset is not None and not fitted.offset.takes(row.get(fitted.offset.column)):
        row[fitted.offset.column] = 1.0
    return row
