"""Fitted: an encoder, a model and its parameters; immutable."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import pyarrow as pa

from splinefm._arrays import Float32Array, FloatArray
from splinefm.encode.drift import Watch, watch_scores
from splinefm.encode.encoder import CHUNK, Encoder
from splinefm.encode.fields.numerical import naming_rows
from splinefm.encode.slots import Slots
from splinefm.encode.tables.names import counted
from splinefm.encode.tables.open import open_table
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.parameters import params_of
from splinefm.model.scores import BatchScorer
from splinefm.train.losses import Loss
from splinefm.train.offsets import Offset
from splinefm.train.results import SAMPLED, Epoch, Evidence, Remark, SearchEntry, StudySummary, best_epoch, find_remarks
from splinefm.train.settings import Training
from splinefm.train.targets import Classes, Label, listed

if TYPE_CHECKING:
    from splinefm.export.scorer import Indexed
    from splinefm.inspect.certificates import Certificate, Certificates
    from splinefm.inspect.curves import Bars, Curve, Surface
    from splinefm.serve.scorer import Scorer


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model: everything that is needed to score a table.

    Parameters
    ----------
    encoder : Encoder
        Turns tables into slots.
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The formula of the score.
    params : dict of arrays
        The parameters of the model; do not modify them.
    loss : Loss
        The loss that was minimized; it defines what a prediction is.
    history : tuple of Epoch
        One entry per epoch of training.
    training : Training
        How the model was trained, including the penalties.
    study, evidence : StudySummary and Evidence, optional
        The search that found the settings, if `sf.tune` fitted the model; what the held-out rows told: see `remarks`.
    search : tuple of SearchEntry
        The settings that the fit tried by itself, the chosen one first; a mixture has several that were chosen.
    offset : Offset, optional
        The column that is added to the score, or whose logarithm is: see `fit_model`.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> fitted.predict({"x": [1.5]}).shape
    (1,)
    """

    encoder: Encoder
    model: AnyModel
    params: Params
    loss: Loss
    history: tuple[Epoch, ...] = ()
    training: Training = field(default_factory=Training)
    study: StudySummary | None = None
    evidence: Evidence | None = None
    search: tuple[SearchEntry, ...] = ()
    offset: Offset | None = None

    def __repr__(self) -> str:
        best = best_epoch(self.history)
        value = math.nan if best is None else self.loss.metric(best.validation_loss)
        measured = "" if math.isnan(value) else f", validation {self.loss.metric_name} {value:.5g}"
        names = counted("field", self.encoder.schema.names)
        rows = f"{'a sample of ' if self.has_sample else ''}{self.encoder.n_rows:,} rows"
        offset = "" if self.offset is None else f", {self.offset}"
        return f"Fitted({self.model}, {self.loss} loss, {rows}{measured}, {names}{offset})"

    @property
    def has_sample(self) -> bool:
        """Whether the parameters were trained on a sample of the rows, because the user stopped the fit that early."""
        return any(epoch.run in SAMPLED for epoch in self.history)

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What may be wrong with the table or the fit, with a way out; printed, each is a sentence or two.

        Examples
        --------
        >>> import splinefm as sf
        >>> table = {"x": np.arange(500) % 7, "click": np.arange(500) * 37 % 101 % 2}
        >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
        >>> [remark.kind.value for remark in fitted.remarks]
        ['no gain']
        """
        return find_remarks(self.evidence, self.training)

    @property
    def classes(self) -> Classes | None:
        """The labels that the targets 0, 1, ... had in the table; None if they were numbers."""
        return self.loss.classes

    @property
    def columns(self) -> list[str]:
        """The columns that a prediction reads: those of the fields, and that of the offset if there is one.

        Examples
        --------
        >>> import splinefm as sf
        >>> table = {"x": [0.0, 1.0] * 50, "years": [1.0, 2.0] * 50, "claims": [0, 1] * 50}
        >>> training = sf.Training(epochs=1, threads=1, effort="fast")
        >>> sf.fit_model(table, "claims", loss="poisson", exposure="years", training=training).columns
        ['x', 'years']
        """
        own = [] if self.offset is None else [self.offset.column]
        return list(dict.fromkeys([*self.encoder.schema.columns, *own]))

    @property
    def n_outputs(self) -> int:
        """Scores per row: one for each class if there are more than two, otherwise 1."""
        return self.loss.n_outputs

    def for_class(self, label: Label) -> Fitted:
        """Return the model of the score of one class, if there are more than two: a view, without copies.

        All that needs one score per row takes it: segments, Shapley values, importance, bins, rankings, and exports.
        Its predictions are its scores, because a probability needs the scores of all classes.

        Parameters
        ----------
        label : label
            One of `classes`.

        Examples
        --------
        >>> import splinefm as sf
        >>> table = {"x": [0.0, 1.0, 2.0] * 50, "color": ["red", "green", "blue"] * 50}
        >>> fitted = sf.fit_model(table, "color", loss="softmax", training=sf.Training(epochs=2, threads=1))
        >>> fitted.classes, fitted.scores(table).shape
        (('blue', 'green', 'red'), (150, 3))
        >>> bool((fitted.for_class("green").scores(table) == fitted.scores(table)[:, 1]).all())
        True
        """
        if self.n_outputs == 1 or self.classes is None:
            raise ValueError(f"the model has one score per row (loss {self.loss.name!r}); use it as it is")
        if label not in self.classes:
            raise ValueError(f"the classes of the model are {listed(self.classes)}, got {label!r}")
        output = self.classes.index(label)
        loss = replace(self.loss, of_class=self.classes[output])
        return replace(self, params=params_of(self.params, output), loss=loss)

    def without_offset(self) -> Fitted:
        """Return the model whose scores leave out the offset: a view, without copies; itself if it has none.

        With an exposure, it predicts rates per unit of exposure.

        Examples
        --------
        >>> import splinefm as sf
        >>> table = {"x": [0.0, 1.0, 2.0] * 50, "years": [1.0, 0.5] * 75, "claims": [0, 0, 1] * 50}
        >>> training = sf.Training(epochs=2, threads=1)
        >>> fitted = sf.fit_model(table, "claims", loss="poisson", exposure="years", training=training)
        >>> rates = fitted.without_offset().predict({"x": table["x"]})
        >>> bool(np.allclose(fitted.predict(table), rates * table["years"]))
        True
        """
        return self if self.offset is None else replace(self, offset=None)

    def scores(self, table: object, *, threads: int | None = None, watch: bool | Watch = True) -> Float32Array:
        """Return the raw scores of all rows of a table, in order: shape (n,), or (n, classes) for more than two.

        The table is encoded in chunks and does not have to fit in memory. If the model has an offset, the table must
        have its column.

        Parameters
        ----------
        table : table, path or dataset
            Anything that `open_table` takes, or slots.
        threads : int, optional
            Number of threads; all cores by default.
        watch : bool
            Warn (`DriftWarning`) if many more values are unseen, out of range or missing than in training.
        """
        if isinstance(table, Slots):
            self.check_slots(table)
            return BatchScorer(self.model, self.params, table.layout, threads)(table)
        return watch_scores(lambda found: self.table_scorer(threads=threads, watch=found)(table), watch, self.encoder)

    def table_scorer(
        self, *, threads: int | None = None, watch: Watch | None = None
    ) -> Callable[[object], Float32Array]:
        """Return a function that computes the scores of tables, for code that reads a table in chunks itself.

        The parameters are prepared once for all tables.

        Parameters
        ----------
        threads : int, optional
            Number of threads; all cores by default.
        watch : Watch, optional
            Counts unusual values; call its `warn` at the end.

        Examples
        --------
        >>> import splinefm as sf
        >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
        >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
        >>> score = fitted.table_scorer(threads=1)
        >>> [len(score(chunk)) for chunk in sf.open_table(table).chunks(["c"], rows=60)]
        [60, 40]
        """
        score = BatchScorer(self.model, self.params, self.encoder.layout, threads)

        def scores(table: object) -> Float32Array:
            parts = [score(slots) for slots in encode_rows(self, table, threads=threads, watch=watch)]
            empty = (0,) if self.n_outputs == 1 else (0, self.n_outputs)
            return np.concatenate(parts) if parts else np.empty(empty, np.float32)

        return scores

    def predict(self, table: object, *, threads: int | None = None, watch: bool | Watch = True) -> FloatArray:
        """Return predictions for all rows: probabilities, means, rates or quantiles; see `Loss`.

        The probabilities of more than two classes have shape (n, classes).

        Parameters
        ----------
        table, threads, watch
            As in `scores`.
        """
        return self.loss.predict(self.scores(table, threads=threads, watch=watch).astype(np.float64))

    def column_types(self) -> dict[str, pa.DataType]:
        """Return the types in which text files are read for predictions."""
        own = {} if self.offset is None else {self.offset.column: pa.large_string()}
        return {**own, **self.encoder.schema.column_types()}

    def check_offset(self, batch: pa.RecordBatch, first: int) -> None:
        """Raise for an invalid offset in a batch of a table, whose first row has this number in the table."""
        if self.offset is not None:
            self.offset.in_scores(self.offset.of_batch(batch, first), self.loss, first)

    def check_slots(self, slots: Slots) -> None:
        """Raise unless encoded rows have an offset if the model has one, and none if it has none."""
        if (self.offset is None) != (slots.offset is None):
            have, has = ("an offset", "has none") if self.offset is None else ("no offset", f"has the {self.offset}")
            raise ValueError(f"these slots have {have}, and the model {has}; pass the table instead of its slots")

    # The methods below import against the order of the folders: users look for them on the model that they hold. The
    # imports happen in the call, so that importing `train` needs none of the later folders.

    def segment(
        self,
        values: Mapping[str, object],
        along: str | Sequence[str],
        *,
        rest: Literal["error", "mean"] = "error",
        background: object = None,
        watch: bool = True,
    ) -> Curve | Bars | Surface:
        """Return the score along one or two fields with the other fields fixed.

        Parameters
        ----------
        values : mapping of str to value
            The segment: the value of every other field (None is a missing value, a list belongs to a multi-valued
            field). A date sets all parts of its column, unless the parts are named themselves: {"seen_at":
            "2024-05-28"}, {"seen_at.hour": 13.5}.
        along : str or pair of str
            The field, or the two fields, that vary. Crosses that contain their columns vary with them.
        rest : {"error", "mean"}
            What to do with fields that `values` does not name: raise an error, or average the score over their values.
            The average is exact for independent fields: it is the score of the mean of each field's vectors.
        background : table, optional
            The rows to average over. By default the rows that the encoder was fitted to, whose mean weights it keeps
            (see `Encoder.feature_means`).
        watch : bool
            Whether to warn about categories that the model does not know, which are shown as unseen values.

        Returns
        -------
        Curve, Bars or Surface
            A curve along a numerical field, bars along a categorical or multi-valued one, a surface along two fields.

        Examples
        --------
        >>> import splinefm as sf
        >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "click": [0, 0, 1, 1] * 50}
        >>> schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
        >>> fitted = sf.fit_model(table, "click", schema=schema, training=sf.Training(epochs=2, threads=1))
        >>> curve = fitted.segment({"c": "a"}, along="x")
        >>> bool(abs(curve(1.5) - fitted.scores({"x": [1.5], "c": ["a"]})[0]) < 1e-5)
        True
        """
        from splinefm.inspect.segment import segment

        return segment(self, values, along, rest=rest, background=background, watch=watch)

    @overload
    def certify(self, field: str) -> Certificate: ...

    @overload
    def certify(self) -> Certificates: ...

    def certify(self, field: str | None = None) -> Certificate | Certificates:
        """Find out whether the score rises or falls along a field for every combination of the others.

        The answer covers combinations that no row has, and missing and unseen values. It is exact for models of pairs
        without crosses of the field: then the steepest slopes are attained by the segments that are reported. Crosses
        of the field and products of more than two vectors are bounded; where the bound does not decide, the answer is
        None.

        Parameters
        ----------
        field : str, optional
            Name of a numerical field whose basis is a spline, a polynomial or bins, or of ordered categories; without
            it, all of them.

        Examples
        --------
        >>> import splinefm as sf
        >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 2.0, 3.0] * 50}
        >>> schema = sf.Schema([sf.Numerical("x", basis=sf.BSpline(2, degree=1)), sf.Categorical("c", missing="error")])
        >>> training = sf.Training(epochs=20, threads=1, effort="fast")
        >>> fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
        >>> certificate = fitted.certify("x")
        >>> certificate.increasing, certificate.decreasing, certificate.lowest.attained
        (True, False, True)
        >>> print(certificate)
        x: the score never falls along it, whatever the other columns are
        """
        from splinefm.inspect.certificates import certify, certify_all

        return certify_all(self) if field is None else certify(self, field)

    def scorer(self) -> Scorer:
        """Return a function that scores single rows, given as dicts, in microseconds.

        Examples
        --------
        >>> import splinefm as sf
        >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
        >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
        >>> score = fitted.scorer()
        >>> bool(abs(score({"c": "b"}) - fitted.scores({"c": ["b"]})[0]) < 1e-5)
        True
        """
        from splinefm.serve.scorer import Scorer

        return Scorer(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file that `sf.load` reads.

        The file contains no code. An existing file is replaced in one step, or not at all.

        Parameters
        ----------
        path : path
            The file, usually with the suffix ".sfm".

        Raises
        ------
        ModelFileError
            If the model has a custom transform or basis, or if its parameters contain NaN or infinity.

        Examples
        --------
        >>> import tempfile
        >>> import splinefm as sf
        >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
        >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fitted.save(f"{folder}/model.sfm")
        ...     again = sf.load(f"{folder}/model.sfm")
        >>> bool((again.scores(table) == fitted.scores(table)).all())
        True
        """
        from splinefm.store.model_file import save

        save(self, path)

    def export_onnx(self, path: str | os.PathLike[str], *, opset: int = 17, integers: Collection[str] = ()) -> None:
        """Write the model as an ONNX graph; see `sf.export_onnx`.

        Parameters
        ----------
        path : path
            The file, usually with the suffix ".onnx".
        opset : int
            Version of the ONNX operators, 17 or higher.
        integers : names of fields
            Categorical fields to read as int64 instead of strings.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import splinefm as sf
        >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
        >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fitted.export_onnx(f"{folder}/model.onnx")
        ...     Path(f"{folder}/model.onnx").exists()
        True
        """
        from splinefm.export.onnx.model import export_onnx

        export_onnx(self, path, opset=opset, integers=integers)

    def export_libffm(
        self, path: str | os.PathLike[str], *, format: Literal["text", "binary"] = "text", raw: bool = False
    ) -> None:
        """Write the model as a libffm model file, with its features as JSON beside it; see `sf.export_libffm`.

        Parameters
        ----------
        path : path
            The file; the features are in path + ".json".
        format : {"text", "binary"}
            The text format of libffm up to 1.14 and its forks, or the binary format since 1.21.
        raw : bool
            Allow losses other than the logistic one. libffm turns every score into a probability;
            systems that only read its files need not.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import splinefm as sf
        >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
        >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fitted.export_libffm(f"{folder}/model.ffm")
        ...     Path(f"{folder}/model.ffm").read_text().splitlines()[:3]
        ['n 6', 'm 3', 'k 2']
        """
        from splinefm.export.libffm import export_libffm

        export_libffm(self, path, format=format, raw=raw)

    def export_scorer(self, path: str | os.PathLike[str], *, index: Indexed | None = None) -> None:
        """Write the model as a scorer file for the C library; see `sf.export_scorer`.

        Parameters
        ----------
        path : path
            The file, usually with the suffix ".sfs".
        index : ItemIndex, optional
            A catalog of items of this model, to be part of the file.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import splinefm as sf
        >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
        >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fitted.export_scorer(f"{folder}/model.sfs")
        ...     Path(f"{folder}/model.sfs").exists()
        True
        """
        from splinefm.export.scorer import export_scorer

        export_scorer(self, path, index=index)

    def export_tables(self, folder: str | os.PathLike[str], *, format: Literal["parquet", "csv"] = "parquet") -> Path:
        """Write the model as plain tables and a manifest, and return the folder; see `sf.export_tables`.

        Parameters
        ----------
        folder : path
            The folder to create; its parent must exist.
        format : {"parquet", "csv"}
            Format of the tables; the manifest is JSON.

        Examples
        --------
        >>> import tempfile
        >>> import splinefm as sf
        >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
        >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     written = fitted.export_tables(f"{folder}/tables")
        ...     sorted(path.name for path in written.iterdir())
        ['field-0-c.parquet', 'manifest.json']
        """
        from splinefm.export.tables import export_tables

        return export_tables(self, folder, format=format)


def encode_rows(
    fitted: Fitted, table: object, *, rows: int = CHUNK, threads: int | None = None, watch: Watch | None = None
) -> Iterator[Slots]:
    """Encode a table in chunks as `Encoder.encode_chunks` does, with the offset of the model if it has one."""
    encoder, offset = fitted.encoder, fitted.offset
    if offset is None:
        yield from encoder.encode_chunks(table, rows=rows, threads=threads, watch=watch)
        return
    source = open_table(table, types=fitted.column_types())
    encoder.schema.check_columns(source.names)
    offset.check_columns(source.names)
    first = 0
    for batch in source.chunks(fitted.columns, rows):
        added = offset.in_scores(offset.of_batch(batch, first), fitted.loss, first)
        with naming_rows(first):
            slots = encoder.encode_batch(batch, threads=threads, watch=watch)
        yield replace(slots, offset=added)
        first += batch.num_rows
