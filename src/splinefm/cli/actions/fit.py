"""Fit a model to a table and write it to a file, with a remark on every choice."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc

from splinefm._files import check_writable
from splinefm.cli.actions.targets import Choice, suggest_loss
from splinefm.cli.destinations import save_model
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.inference import LOOK_AT, infer_schema
from splinefm.encode.schema import Schema
from splinefm.encode.tables.columns import is_text
from splinefm.encode.tables.open import open_data, refuse_overwriting, require_columns, without
from splinefm.encode.tables.table import Table
from splinefm.fit.fitting import default_model, describe_default, fit_model
from splinefm.model.family import AnyModel
from splinefm.model.family.field_aware import FFM
from splinefm.model.family.field_matrixed import FmFM
from splinefm.model.family.field_weighted import FwFM, LowRankFwFM
from splinefm.model.family.fm import FM
from splinefm.model.family.higher_order import HigherOrderFM
from splinefm.store.description import describe_remarks, describe_search, describe_validation
from splinefm.train.fitted import Fitted
from splinefm.train.losses import Loss
from splinefm.train.progress import make_progress
from splinefm.train.settings import Training
from splinefm.train.targets import SHOWN

_MODELS: dict[str, type[AnyModel]] = {
    "ffm": FFM,
    "fm": FM,
    "fwfm": FwFM,
    "fmfm": FmFM,
    "low-rank-fwfm": LowRankFwFM,
    "higher-order-fm": HigherOrderFM,
}


MAX_LABELS = 100
"""Text with more values is not taken for classes unless the user says so."""
MAX_REMARKS = 5


@dataclass(frozen=True)
class FitRequest:
    """What the user asked for.

    Parameters
    ----------
    data, target, out
        The table, the column to predict, and the model file to write.
    schema : Path, optional
        A schema file. Inferred by default.
    ignored : list of str
        Columns to leave out of the schema.
    crosses : list of str
        Crosses to add to the schema, each as two or three names of fields with commas between, and quotes as in CSV.
    model : str, optional
        Name of a model on the command line. By default `default_model` of the number of fields.
    sizes : dict
        The given settings of the model, such as k.
    loss : Loss, optional
        By default chosen by the target.
    weight : str, optional
        A column of sample weights.
    validation : float or str, optional
        A share of the rows, or a file.
    class_weight : "balanced", optional
        Give all classes the same total weight.
    training : dict
        The given settings of `Training`.
    sep : str, optional
        Column separator of CSV files.
    """

    data: str
    target: str
    out: Path
    schema: Path | None = None
    ignored: list[str] = field(default_factory=list)
    crosses: list[str] = field(default_factory=list)
    model: str | None = None
    sizes: dict[str, Any] = field(default_factory=dict)
    loss: Loss | None = None
    weight: str | None = None
    validation: float | str | None = None
    training: dict[str, Any] = field(default_factory=dict)
    sep: str | None = None
    class_weight: Literal["balanced"] | None = None

    def open(self) -> Table:
        """Open the table."""
        return open_data(self.data, sep=self.sep)

    def open_validation(self) -> float | Table | None:
        """The share of validation rows, or a table of them, which must have the target."""
        if not isinstance(self.validation, str):
            return self.validation
        table = open_data(self.validation, sep=self.sep)
        require_columns(table, [self.target])
        return table


def fit_file(request: FitRequest, say: Callable[[str], None], verbose: bool) -> dict[str, Any]:
    """Fit a model, save it, and summarize the fit."""
    begin = time.perf_counter()
    check_writable(request.out)  # before an hour of training, not after it
    refuse_overwriting(request.out, request.data, *(path for path in (request.schema,) if path is not None))
    training = replace(Training(), **request.training)
    table, validation = request.open(), request.open_validation()
    choice = choose_loss(table, request.target, request.loss)
    suggestion = say_loss(choice, table, request.target, say)
    schema = find_schema(request, table, say, verbose)
    is_open = request.model is None and not request.sizes and training.effort != "fast"
    model = None if is_open else make_model(request, schema, say)
    given: dict[str, Any] = {} if validation is None else {"validation": validation}
    fitted = fit_model(
        table,
        request.target,
        schema=schema,
        model=model,
        loss=choice.loss,
        sample_weight=request.weight,
        training=training,
        class_weight=request.class_weight,
        verbose=verbose,
        **given,
    )
    save_model(fitted, request.out)
    return {**summarize(fitted, request, choice, time.perf_counter() - begin), "loss_suggestion": suggestion}


def choose_loss(table: Table, target: str, given: Loss | None = None) -> Choice:
    """Choose a loss by the target unless one is given.

    It is logistic for two values, softmax for other text, and squared for other numbers.
    """
    values, kind, complete = _distinct_values(table, target)
    if not values:
        raise ValueError(f"the target {target!r} has no values")
    shown = ", ".join(sorted(map(repr, values))[:SHOWN])
    more = ", ..." if len(values) > SHOWN or not complete else ""
    if len(values) == 1 and complete:
        raise ValueError(f"the target {target!r} is {shown} in all rows; there is nothing to learn")
    if given is not None:
        return Choice(given, "as given")
    if len(values) <= 2:
        return Choice(Loss("logistic"), f"the target {target!r} has two values: {shown}")
    if is_text(kind):
        if len(values) > MAX_LABELS:
            raise ValueError(
                f"the target {target!r} is text with more than {MAX_LABELS} values ({shown}, ...), which looks like "
                "names; if they are classes, add --loss softmax"
            )
        return Choice(Loss("softmax"), f"the target {target!r} is text with more than two values: {shown}{more}")
    return Choice(
        Loss("squared"),
        f"the target {target!r} has more than two values; for shares use logistic, for counts poisson, for classes "
        "softmax",
    )


def say_loss(choice: Choice, table: Table, target: str, say: Callable[[str], None]) -> str | None:
    """Say which loss is minimized, and suggest another one if the target asks for it."""
    say(f"loss: {choice.loss} ({choice.reason})")
    found = suggest_loss(table, target) if choice.loss.name == "squared" else None
    if found is None:
        return None
    say(f"suggestion: {found.reason}; --loss {found.loss.name} may fit better, and never predicts a negative number")
    return found.loss.name


def _distinct_values(table: Table, target: str) -> tuple[set[object], pa.DataType, bool]:
    """Distinct values of a column (not all if there are very many), its type, and whether all rows were read."""
    require_columns(table, [target])
    values: set[object] = set()
    rows, kind = 0, table.schema.field(target).type
    text = is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)
    most = MAX_LABELS if text else 2
    for batch in table.chunks([target]):
        column = batch.column(0)
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        values.update(value for value in pc.unique(column).to_pylist() if value is not None and value == value)
        rows += batch.num_rows
        if len(values) > most or rows >= LOOK_AT:
            break
    return values, kind.value_type if pa.types.is_dictionary(kind) else kind, rows < LOOK_AT


def find_schema(request: FitRequest, table: Table, say: Callable[[str], None], verbose: bool) -> Schema:
    """The given schema, or one inferred from the data."""
    if request.weight == request.target:
        raise ValueError(f"--weight {request.weight!r}: this is the target; name a column of weights, or leave it out")
    if request.schema is not None:
        return _with_crosses(without(Schema.load(request.schema), request.ignored, request.target), request.crosses)
    with make_progress(verbose) as progress:
        progress.begin("inspecting the columns")
        inferred = infer_schema(table, target=request.target)
    ignored = [*request.ignored, *([request.weight] if request.weight is not None else [])]
    schema = without(inferred, ignored, request.target)
    numerical = sum(isinstance(item, Numerical) for item in schema)
    say(f"fields: {numerical} numerical, {len(schema) - numerical} others, inferred from the data")
    for line in _questions(schema):
        say(line)
    return _with_crosses(schema, request.crosses)


def _questions(schema: Schema) -> list[str]:
    """The remarks of an inferred schema that ask the user something, one line each."""
    asked = [f"remark: {name}: {why}" for name, why in schema.provenance.items() if why.question]
    more = len(asked) - MAX_REMARKS
    return asked[:MAX_REMARKS] + ([f"... and {more:,} more remarks; splinefm schema prints all"] if more > 0 else [])


def _with_crosses(schema: Schema, given: list[str]) -> Schema:
    """The schema with the crosses of --cross."""
    for text in given:
        try:
            schema = Schema([*schema, Cross(*_cross_names(text))], schema.provenance)
        except ValueError as error:
            raise ValueError(f"--cross {text}: {error}") from error
    return schema


def _cross_names(text: str) -> list[str]:
    """The names of a cross, with quotes as in CSV around one that has a comma itself.

    Examples
    --------
    >>> _cross_names('"price, net",city')
    ['price, net', 'city']
    """
    try:
        (names,) = csv.reader([text], skipinitialspace=True, strict=True)
    except csv.Error as error:
        raise ValueError('quotes are not closed around a name; write "price, net",city') from error
    return [name.strip() for name in names]


def make_model(request: FitRequest, schema: Schema, say: Callable[[str], None]) -> AnyModel:
    """The requested model, or the default one with the requested sizes; and say which it is."""
    if request.model is not None:
        model = _MODELS[request.model](**request.sizes)
        say(f"model: {model}")
        return model
    default: Any = default_model(len(schema))
    if "third" in request.sizes and not isinstance(default, FwFM):
        raise ValueError(
            f"--third is for fwfm, but the default for {len(schema)} fields is {default}; add --model fwfm"
        )
    model = cast(AnyModel, replace(default, **request.sizes))
    say(f"model: {describe_default(len(schema)) if model == default else model}")
    return model


def summarize(fitted: Fitted, request: FitRequest, choice: Choice, seconds: float) -> dict[str, Any]:
    """Facts about a fit that is written to its file, or to its folder."""
    validation = describe_validation(fitted)
    return {
        "file": str(request.out),
        "bytes": sum(path.stat().st_size for path in [request.out, *request.out.glob("*")] if path.is_file()),
        "model": str(fitted.model),
        "target": request.target,
        "loss": fitted.loss.name,
        "loss_parameters": fitted.loss.parameters,
        "loss_reason": choice.reason,
        "rows": fitted.encoder.n_rows,
        "fields": len(fitted.encoder.fields),
        "epochs": validation["epochs"],
        "best_epoch": validation["best_epoch"],
        "validation_metric": validation["metric"],
        "validation_loss": validation["value"],
        "seconds": round(seconds, 3),
        "remarks": describe_remarks(fitted),
        "search": describe_search(fitted),
    }
