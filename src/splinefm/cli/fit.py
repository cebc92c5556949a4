"""`splinefm fit`: fit a model to a table and write it to a file."""

from __future__ import annotations

import csv
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from splinefm._wording import in_bytes, number
from splinefm.cli import options as opt
from splinefm.cli.failures import save_model
from splinefm.cli.output import loss_text, print_facts, print_json, print_lines, print_remarks, print_search
from splinefm.cli.processes import ProcessOptions, refuse_process_options, run_job, start_processes

if TYPE_CHECKING:
    from splinefm.cli.targets import Choice
    from splinefm.distribute.processes import Processes
    from splinefm.encode.schema import Schema
    from splinefm.encode.tables.table import Table
    from splinefm.model.family import AnyModel
    from splinefm.train.fitted import Fitted
    from splinefm.train.losses import Loss

MAX_REMARKS, SHOWN_SETTINGS = 5, 5

ModelName = Literal["ffm", "fm", "fwfm", "fmfm", "low-rank-fwfm", "higher-order-fm"]
LossName = Literal["auto", "logistic", "squared", "poisson", "gamma", "tweedie", "quantile", "huber", "softmax"]
_LOSS_OF_PARAMETER = {"quantile": "quantile", "power": "tweedie", "delta": "huber"}


_model, _training = partial(opt.option, panel="Model"), partial(opt.option, panel="Training")


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The options that `fit` and `tune` share; a setting that is None keeps the default of the library."""

    data: opt.Data
    target: Annotated[str, opt.column_option("Column to predict.", show_default=False)]
    out: Annotated[Path, opt.out_option("Model file to write, such as model.sfm.")]
    schema: Path | None = opt.option(
        "Schema file, see 'splinefm schema'. By default the schema is inferred from the data.", metavar="FILE"
    )
    ignore: opt.Ignore = None
    weight: opt.Weight = None
    offset: opt.OffsetColumn = None
    exposure: opt.Exposure = None
    validation: str | None = opt.option(
        "Rows used to choose the best epoch: a share of the data (0 for none), or a separate file.",
        metavar="SHARE|FILE",
    )
    crosses: str | None = opt.option(
        "Look for crosses that lower the loss of held-out rows: up to three of columns and two of values that recur if "
        "the schema is inferred (auto, the default), none, or up to N of any columns.",
        metavar="auto|none|N",
    )
    sep: opt.Sep = None
    model: ModelName | None = _model(
        "Model. Default: the search decides; without one, fwfm with k = 16 and third = 16, fm beyond 256 fields."
    )
    k: int | None = _model("Length of the vectors.", "--k", **opt.COUNT)
    rank: int | None = _model("Rank of the field weights of low-rank-fwfm.", **opt.COUNT)
    order: int | None = _model("Maximum number of fields in one product of higher-order-fm.", metavar="N", min=2)
    third: int | None = _model(
        "Length of the vectors of fwfm for products of three fields. Default: 16, or none with --model fwfm.",
        metavar="N",
        min=0,
    )
    loss: LossName = _model(
        "Loss to minimize. logistic: two classes, or shares; softmax: more classes; squared: numbers; poisson: counts; "
        "gamma: positive, skewed amounts; tweedie: such amounts with zeros; quantile: see --quantile; huber: numbers "
        "with outliers; auto: logistic if the target has two values, softmax if it is text, squared otherwise.",
        default="auto",
    )
    quantile: float | None = _model(
        "Quantile to predict, with --loss quantile. Default: 0.5, the median.", **opt.AMOUNT
    )
    power: float | None = _model(
        "Power of the mean that the variance follows, with --loss tweedie. Default: 1.5.", **opt.AMOUNT
    )
    delta: float | None = _model(
        "Distance from which --loss huber is linear, in the unit of the target. Default: from the data.", **opt.AMOUNT
    )
    epochs: int | None = _training(
        "Maximum number of passes over the data. Default: 30, fewer beyond 1,000,000 rows.", **opt.COUNT
    )
    patience: int | None = _training(
        "Stop after this many epochs without a better validation loss. Default: a fifth of --epochs, at least 4.",
        **opt.COUNT,
    )
    batch_size: int | None = _training("Rows per step.", **opt.COUNT)
    learning_rate: float | None = _training("Peak learning rate.", **opt.AMOUNT)
    schedule: Literal["cosine", "constant"] | None = _training(
        "Learning rate schedule. Default: cosine, which warms up and then decays."
    )
    l2: float | None = _training("L2 penalty on weights and vectors.", "--l2", **opt.AMOUNT)
    smoothness: float | None = _training("Penalty on the roughness of curves.", **opt.AMOUNT)
    effort: Literal["fast", "default", "best"] = _training(
        "How much to search for settings that are not given: bases, penalties, the model, crosses.", default="default"
    )
    time_limit: float | None = _training("Seconds after which the fit ends with the best model so far.")
    members: int | None = _training(
        "Train this many models and average their scores. Default: the search decides.", **opt.COUNT
    )
    seed: int | None = _training("Random seed. The same seed gives the same model.", metavar="N", min=0)
    threads: opt.Threads = None
    engine: Literal["cpu", "torch"] | None = _training(
        "What computes the steps of training: the compiled loops, or PyTorch. Default: cpu."
    )
    device: str | None = _training(
        "Device of --engine torch, such as cuda, cuda:1 or cpu. Default: cuda if there is one.", metavar="NAME"
    )

    def check(self, command: str) -> None:
        """Raise for wrong usage: data that cannot be read twice, or an option of another model."""
        parse_crosses(self.crosses)
        opt.share_or_file(self.validation)
        if self.data == "-":
            raise typer.BadParameter(
                f"{command} reads the data several times; write standard input to a file first", param_hint="DATA"
            )
        if self.rank is not None and self.model != "low-rank-fwfm":
            raise typer.BadParameter("only low-rank-fwfm has a rank; add --model low-rank-fwfm", param_hint="--rank")
        if self.order is not None and self.model != "higher-order-fm":
            raise typer.BadParameter(
                "only higher-order-fm has an order; add --model higher-order-fm", param_hint="--order"
            )
        if self.third is not None and self.model not in (None, "fwfm"):
            raise typer.BadParameter(
                "only fwfm has vectors for products of three; add --model fwfm", param_hint="--third"
            )

    def open_table(self) -> Table:
        """Open the table."""
        from splinefm.encode.tables.open import open_data

        return open_data(self.data, sep=self.sep)

    def open_validation(self) -> float | Table | None:
        """The share of validation rows, or a table of them, which must have the target."""
        from splinefm.encode.tables.open import open_data, require_columns

        rows = opt.share_or_file(self.validation)
        if not isinstance(rows, str):
            return rows
        table = open_data(rows, sep=self.sep)
        require_columns(table, [self.target])
        return table

    def model_settings(self) -> dict[str, Any]:
        """The given settings of the model."""
        return self._given("k", "rank", "order", "third")

    def training_settings(self) -> dict[str, Any]:
        """The given settings of `Training`."""
        names = "epochs patience batch_size learning_rate schedule l2 smoothness effort time_limit average members"
        return self._given(*names.split(), "seed", "threads", "engine", "device") | parse_crosses(self.crosses)

    def given_loss(self) -> Loss | None:
        """The loss with its parameter, or None for the choice by the target."""
        from splinefm.train.losses import as_loss

        parameters = {name: getattr(self, name) for name in _LOSS_OF_PARAMETER}
        if self.loss != "auto":
            return as_loss(self.loss, **parameters)
        for name, loss in _LOSS_OF_PARAMETER.items():
            if parameters[name] is not None:
                raise typer.BadParameter(f"belongs to the {loss} loss; add --loss {loss}", param_hint=f"--{name}")
        return None

    def complete(self, schema: Schema) -> Schema:
        """The schema with what options ask of its columns."""
        return schema

    def _given(self, *names: str) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name, None)) is not None}


@dataclass(frozen=True, kw_only=True)
class FitOptions(TrainingOptions):
    """The options of `fit`."""

    balanced: bool = opt.option(
        "Give all classes the same total weight. Predicted probabilities then no longer match their rates.",
        "--balanced",
        default=False,
    )
    cross: list[str] | None = opt.option(
        "Add a cross of two or three columns, which act together. Repeat it for more. A name with a comma has quotes "
        "as in CSV: '\"price, net\",city'.",
        metavar="A,B",
    )
    shape: list[str] | None = opt.option(
        "The score never falls (or never rises, or is convex or concave) along a numerical column or one of ordered "
        "categories, whatever the other columns are. Two words that go together have a comma: "
        "income=increasing,concave. Repeat it for more columns.",
        metavar="NAME=increasing|decreasing|convex|concave",
    )
    slope: list[str] | None = opt.option(
        "The lowest and the highest slope of the score per unit of a numerical column, whatever the other columns are; "
        "one of them may be left out: age=0, has no highest. Repeat it for more columns.",
        metavar="NAME=LOW,HIGH",
    )
    outside: list[str] | None = opt.option(
        "What a value of a numerical column is that is beyond the range of the training rows: the end of the range "
        "(clip, the default), a missing value, or an error. Repeat it for more columns.",
        metavar="NAME=clip|missing|error",
    )
    interactions: list[str] | None = opt.option(
        "Columns that may interact: pairwise (products of two columns only), no_interactions, or the columns of a set; "
        "repeat it for more sets. Columns that are in no set form another one.",
        metavar="pairwise|no_interactions|A,B",
    )
    average: bool | None = _training(
        "Use a moving average of the weights, which takes as much memory as they do. Default: yes.",
        "--average/--no-average",
    )

    def complete(self, schema: Schema) -> Schema:
        """The schema with the crosses, shapes, ends and constraints on interactions that are given."""
        schema = _with_shapes(_with_crosses(schema, self.cross or []), self.shape or [], self.slope or [])
        return _with_interactions(_with_ends(schema, self.outside or []), self.interactions or [])


@opt.with_option_groups
def fit(
    ctx: typer.Context,
    options: FitOptions,
    job_options: ProcessOptions,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Fit a model to a table and write it to a file.

    The defaults suit most data. Press Ctrl-C to stop training and keep the best epoch so far.
    """
    options.check("fit")
    loss = options.given_loss()
    if job_options.processes is not None and not job_options.as_process:
        return start_processes(ctx, job_options)
    if job_options.as_process:
        summary = fit_in_process(options, loss, job_options, quiet)
    else:
        refuse_process_options(ctx)
        summary = fit_file(options, loss, quiet)
    if summary is not None:
        print_json(summary) if as_json else print_fit(summary)
    return None


def parse_crosses(text: str | None) -> dict[str, Any]:
    """The setting of --crosses, if it is given.

    Examples
    --------
    >>> parse_crosses("2"), parse_crosses("none"), parse_crosses(None)
    ({'crosses': 2}, {'crosses': None}, {})
    """
    if text is None:
        return {}
    if text in ("auto", "none"):
        return {"crosses": "auto" if text == "auto" else None}
    if not (text.isascii() and text.isdigit()):
        raise typer.BadParameter(f"must be auto, none or a number of crosses; got {text}", param_hint="--crosses")
    return {"crosses": int(text)}


def fit_file(options: FitOptions, loss: Loss | None, quiet: bool) -> dict[str, Any]:
    """Fit a model, save it, and summarize the fit."""
    from splinefm.cli.targets import choose_loss
    from splinefm.fit.fitting import fit_model
    from splinefm.train.settings import Training

    begin, say = time.perf_counter(), opt.remarks(quiet)
    check_output(options, options.data)
    settings, sizes = options.training_settings(), options.model_settings()
    training = replace(Training(), **settings)
    table, validation = options.open_table(), options.open_validation()
    choice = choose_loss(table, options.target, loss, say)
    schema = find_schema(options, table, say, not quiet)
    is_open = options.model is None and not sizes and training.effort != "fast"
    fitted = fit_model(
        table,
        options.target,
        schema=schema,
        model=None if is_open else make_model(options, schema, say),
        loss=choice.loss,
        sample_weight=options.weight,
        offset=options.offset,
        exposure=options.exposure,
        training=training,
        class_weight="balanced" if options.balanced else None,
        verbose=not quiet,
        **({} if validation is None else {"validation": cast(Any, validation)}),
    )
    save_model(fitted, options.out)
    return summarize(fitted, options, choice, time.perf_counter() - begin)


def fit_in_process(
    options: FitOptions, loss: Loss | None, job_options: ProcessOptions, quiet: bool
) -> dict[str, Any] | None:
    """Fit on this process together with the others; process 0 returns a summary."""
    from splinefm.cli.targets import choose_loss
    from splinefm.distribute.fit import DistributedFit, fit_on_processes
    from splinefm.train.offsets import as_offset
    from splinefm.train.progress import make_progress
    from splinefm.train.settings import Training

    settings = job_options.settings(options.out)
    begin, training = time.perf_counter(), options.training_settings()
    result: list[dict[str, Any]] = []
    device, engine = training.pop("device", None), training.pop("engine", "torch")
    if engine != "torch":
        raise ValueError(f"several processes train on torch; leave out --engine {engine}")

    def job(processes: Processes) -> None:
        with processes.fail_together():
            say = opt.remarks(quiet or not processes.first)
            check_output(options, options.data, check_write=processes.first and not settings.sharded)
            if training.get("effort") == "best" or training.get("time_limit") is not None:
                raise ValueError("--effort and --time-limit are for one machine; several processes search nothing")
            table = options.open_table()
            choice = choose_loss(table, options.target, loss, say)
            schema = find_schema(options, table, say, processes.first and not quiet)
            model = make_model(options, schema, say)
        validation = opt.share_or_file(options.validation)
        fit = DistributedFit(
            options.data,
            options.target,
            schema,
            model,
            choice.loss,
            options.weight,
            0.1 if validation is None else validation,
            replace(Training(), **training),
            "balanced" if options.balanced else None,
            as_offset(options.offset, options.exposure, choice.loss),
        )
        with make_progress(processes.first and not quiet) as progress:
            fitted = fit_on_processes(fit, settings, processes, progress)
        if processes.first:
            result.append(summarize(fitted, options, choice, time.perf_counter() - begin))

    run_job(job, settings, job_options.timeout, device)
    return result[0] if result else None


def check_output(options: TrainingOptions, *inputs: str, check_write: bool = True) -> None:
    """Raise if the model file cannot be written: before an hour of training, not after it."""
    from splinefm._files import check_writable
    from splinefm.encode.tables.open import refuse_overwriting

    if check_write:
        check_writable(options.out)
    refuse_overwriting(options.out, *inputs, *([] if options.schema is None else [options.schema]))


def find_schema(options: TrainingOptions, table: Table, say: Callable[[str], None], verbose: bool) -> Schema:
    """The given schema, or one inferred from the data."""
    from splinefm.encode.inference import infer_schema
    from splinefm.encode.schema import Schema
    from splinefm.encode.tables.open import without
    from splinefm.train.progress import make_progress

    target, weight, ignored = options.target, options.weight, options.ignore or []
    if weight == target:
        raise ValueError(f"--weight {weight!r}: this is the target; name a column of weights, or leave it out")
    if options.schema is not None:
        return options.complete(without(Schema.load(options.schema), ignored, target))
    with make_progress(verbose) as progress:
        progress.begin("inspecting the columns")
        inferred = infer_schema(table, target=target)
    others = (weight, options.offset, options.exposure)
    schema = without(inferred, [*ignored, *(name for name in others if name is not None)], target)
    numerical = len(schema.numerical)
    say(f"fields: {numerical} numerical, {len(schema) - numerical} others, inferred from the data")
    for line in questions(schema):
        say(line)
    return options.complete(schema)


def questions(schema: Schema) -> list[str]:
    """The remarks of an inferred schema that ask the user something, one line each."""
    asked = [f"remark: {name}: {why}" for name, why in schema.provenance.items() if why.question]
    more = len(asked) - MAX_REMARKS
    return asked[:MAX_REMARKS] + ([f"... and {more:,} more remarks; splinefm schema prints all"] if more > 0 else [])


def _with_crosses(schema: Schema, given: list[str]) -> Schema:
    """The schema with the crosses of --cross."""
    from splinefm.encode.fields.cross import Cross

    for text in given:
        try:
            schema = schema.having([*schema, Cross(*_cross_names(text))])
        except ValueError as error:
            raise ValueError(f"--cross {text}: {error}") from error
    return schema


def _with_shapes(schema: Schema, given: list[str], slopes: list[str]) -> Schema:
    """The schema with the shapes of --shape and the limits of --slope."""
    from splinefm.encode.fields.shapes import SHAPES

    for text in given:
        name, _, shape = text.rpartition("=")
        words = shape.split(",")
        if not name or not set(words) <= set(SHAPES):
            raise ValueError(f"--shape {text}: write NAME= and one of {', '.join(SHAPES)}, or two with a comma")
        try:
            schema = schema.with_shapes({name: words[0] if len(words) == 1 else tuple(words)})
        except ValueError as error:
            raise ValueError(f"--shape {text}: {error}") from error
    for text in slopes:
        name, _, limits = text.rpartition("=")
        try:
            low, high = (float(limit) if limit.strip() else None for limit in limits.split(","))
        except ValueError as error:
            raise ValueError(
                f"--slope {text}: write NAME=LOW,HIGH with two numbers, one of which may be empty"
            ) from error
        try:
            schema = schema.with_shapes({}, {name: (low, high)})
        except ValueError as error:
            raise ValueError(f"--slope {text}: {error}") from error
    return schema


def _with_ends(schema: Schema, given: list[str]) -> Schema:
    """The schema with what values out of range are, of --outside."""
    from splinefm.encode.fields.numerical import Numerical
    from splinefm.encode.schema import Provenance

    for text in given:
        name, _, outside = text.rpartition("=")
        item = schema[name] if name in schema.names else None
        if not isinstance(item, Numerical):
            raise ValueError(f"--outside {text}: write NAME=clip, NAME=missing or NAME=error, with a numerical field")
        try:
            changed = replace(item, outside=cast("Any", outside))
        except ValueError as error:
            raise ValueError(f"--outside {text}: {error}") from error
        known = {**schema.provenance, name: Provenance("given")}  # a search must not make it a category
        schema = schema.having((changed if one.name == name else one for one in schema.fields), known)
    return schema


def _with_interactions(schema: Schema, given: list[str]) -> Schema:
    """The schema with the constraints of --interactions."""
    from splinefm.encode.interactions import SHORTHANDS

    if not given:
        return schema
    words = [text for text in given if text in SHORTHANDS]
    if words and len(given) > 1:
        raise ValueError(f"--interactions {words[0]}: give it alone, or only sets of columns")
    try:
        return schema.with_interactions(words[0] if words else [_cross_names(text) for text in given])
    except ValueError as error:
        raise ValueError(f"--interactions: {error}") from error


def _cross_names(text: str) -> list[str]:
    """The names of a cross or of a set of columns, with quotes as in CSV around one that has a comma itself.

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


def make_model(options: TrainingOptions, schema: Schema, say: Callable[[str], None]) -> AnyModel:
    """The requested model, or the default one with the requested sizes; and say which it is."""
    from splinefm.fit.fitting import default_model, describe_default
    from splinefm.model.family import MODELS, FwFM

    sizes = options.model_settings()
    if options.model is not None:
        models = {model.__name__.lower(): model for model in MODELS}
        model: AnyModel = models[options.model.replace("-", "")](**sizes)
        say(f"model: {model}")
        return model
    default: Any = default_model(schema)
    if "third" in sizes and not isinstance(default, FwFM):
        raise ValueError(
            f"--third is for fwfm, but the default for {len(schema)} fields is {default}; add --model fwfm"
        )
    model = cast("AnyModel", replace(default, **sizes))
    say(f"model: {describe_default(schema) if model == default else model}")
    return model


def summarize(fitted: Fitted, options: TrainingOptions, choice: Choice, seconds: float) -> dict[str, Any]:
    """Facts about a fit that is written to its file, or to its folder."""
    from splinefm.store.description import describe_remarks, describe_search, describe_validation

    validation = describe_validation(fitted)
    return {
        "file": str(options.out),
        "bytes": sum(path.stat().st_size for path in [options.out, *options.out.glob("*")] if path.is_file()),
        "model": str(fitted.model),
        "target": options.target,
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
        "loss_suggestion": choice.suggestion,
    }


def print_fit(summary: dict[str, Any]) -> None:
    """Print the result of a fit, and what to type next."""
    value = summary["validation_loss"]
    best = f"best of {summary['epochs']} epochs: {summary['best_epoch']}"
    measured = f"{summary['validation_metric']} {number(value)}; {best}" if value is not None else ""
    print_facts(
        [
            ("validation", measured or "none; the last epoch is kept"),
            ("model", f"{summary['model']}, {loss_text(summary)}"),
            ("data", f"{summary['rows']:,} rows, {summary['fields']} fields"),
            ("time", f"{summary['seconds']:.1f} seconds"),
            ("file", f"{summary['file']}, {in_bytes(summary['bytes'])}"),
        ]
    )
    print_search(summary["search"], SHOWN_SETTINGS)
    print_remarks(summary["remarks"])
    file, target = shlex.quote(summary["file"]), shlex.quote(summary["target"])
    print_lines("\nNext, with rows that the model has not seen:")
    print_lines(f"  splinefm evaluate {file} NEW.csv --target {target}")
    print_lines(f"  splinefm predict {file} NEW.csv --out predictions.csv")
