"""The command line: `splinefm --help`.

Heavy modules are imported by the commands that need them, so that help comes at once.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperGroup

from splinefm._wording import on_command_line
from splinefm.cli import options as opt
from splinefm.cli.failures import plain_warnings, tell
from splinefm.cli.output import print_json, print_lines, say
from splinefm.cli.printing import print_demo, print_evaluation, print_fit, print_info

if TYPE_CHECKING:
    from splinefm.cli.commands.fit import FitRequest


# The class behind all errors of usage, which typer itself tells; it does not give it a name of its own.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]


class _Commands(TyperGroup):
    """What the user can mend is a message and exit code 1, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with on_command_line(), plain_warnings():
                result = super().invoke(ctx)
                sys.stdout.flush()  # here, where a full disk can still be told
                return result
        except (BrokenPipeError, _UsageError, typer.Exit, typer.Abort):
            raise
        except Exception as error:
            raise typer.Exit(tell(error)) from error


app = typer.Typer(
    cls=_Commands,
    help="Factorization machines for tables with numerical columns: splines instead of bins.",
    epilog="Begin with: splinefm demo. With data of your own: splinefm fit my.csv --target COLUMN --out model.sfm",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"splinefm {sys.modules['splinefm'].__version__}")  # not imported: that is for users of the library
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None: ...


@app.command()
def schema(
    data: opt.DataOrStandard,
    target: opt.SchemaTarget = None,
    ignore: opt.Ignore = None,
    sep: opt.Sep = None,
    out: opt.SchemaOut = None,
    as_json: opt.Json = False,
) -> None:
    """Look at a table and propose a schema, with the reason for every choice."""
    from splinefm.cli.destinations import check_schema_file
    from splinefm.encode.inference import infer_schema
    from splinefm.encode.tables.sources import open_data, refuse_overwriting, without

    table = open_data(data, sep=sep)
    if out is not None:
        refuse_overwriting(out, data)
        check_schema_file(out)
    inferred = without(infer_schema(table, target=target), ignore or [])
    if out is not None:
        inferred.save(out)
    if as_json:
        return print_json(inferred.to_dict())
    print_lines(str(inferred))
    if out is not None:
        print_lines(f"\nWritten to {out}; edit it as you like, and give it to fit: --schema {out}")


@app.command()
def fit(
    data: opt.Data,
    target: opt.FitTarget,
    out: opt.FitOut,
    schema: opt.SchemaFile = None,
    ignore: opt.Ignore = None,
    weight: opt.Weight = None,
    validation: opt.Validation = None,
    sep: opt.Sep = None,
    model: opt.ModelOption = None,
    k: opt.K = None,
    rank: opt.Rank = None,
    order: opt.Order = None,
    loss: opt.LossOption = opt.LossName.AUTO,
    epochs: opt.Epochs = None,
    patience: opt.Patience = None,
    batch_size: opt.BatchSize = None,
    learning_rate: opt.LearningRate = None,
    schedule: opt.Schedule = None,
    l2: opt.L2 = None,
    smoothness: opt.Smoothness = None,
    select_resolutions: opt.SelectResolutions = None,
    seed: opt.Seed = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Fit a model to a table and write it to a file.

    What you leave out has a default that suits most data. Ctrl-C ends training and keeps the best epoch so far.
    """
    from splinefm.cli.commands.fit import fit_file

    _check_fit_options("fit", data, model, rank, order)
    training = _given(
        epochs=epochs,
        patience=patience,
        batch_size=batch_size,
        learning_rate=learning_rate,
        schedule=None if schedule is None else schedule.value,
        l2=l2,
        smoothness=smoothness,
        select_resolutions=select_resolutions,
        seed=seed,
        threads=threads,
    )
    sizes = _given(k=k, rank=rank, order=order)
    request = _fit_request(data, target, out, schema, ignore, weight, validation, model, sizes, loss, training, sep)
    summary = fit_file(request, _remarks(quiet), not quiet)
    return print_json(summary) if as_json else print_fit(summary)


@app.command()
def tune(
    data: opt.Data,
    target: opt.FitTarget,
    out: opt.FitOut,
    trials: opt.Trials = 50,
    timeout: opt.Timeout = None,
    storage: opt.StorageOption = None,
    study_name: opt.StudyName = None,
    metric: opt.MetricOption = opt.MetricName.LOSS,
    prune: opt.Prune = True,
    plot: opt.StudyPlot = None,
    schema: opt.SchemaFile = None,
    ignore: opt.Ignore = None,
    weight: opt.Weight = None,
    validation: opt.Validation = None,
    sep: opt.Sep = None,
    model: opt.ModelOption = None,
    k: opt.K = None,
    rank: opt.Rank = None,
    order: opt.Order = None,
    loss: opt.LossOption = opt.LossName.AUTO,
    epochs: opt.Epochs = None,
    patience: opt.Patience = None,
    batch_size: opt.BatchSize = None,
    learning_rate: opt.LearningRate = None,
    schedule: opt.Schedule = None,
    l2: opt.L2 = None,
    smoothness: opt.Smoothness = None,
    seed: opt.Seed = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Search for the settings that are best on validation rows, and write a model that is fitted with them.

    Searched are k, learning rate, batch size, penalties, segments, degree and transform; what you give is kept. Ctrl-C
    ends the search and keeps what is done; with --storage, the same command goes on.
    """
    from splinefm.cli.commands.tune import TuneRequest, print_tuning, tune_file

    _check_fit_options("tune", data, model, rank, order)
    training = _given(
        epochs=epochs,
        patience=patience,
        batch_size=batch_size,
        learning_rate=learning_rate,
        schedule=None if schedule is None else schedule.value,
        l2=l2,
        smoothness=smoothness,
        seed=seed,
        threads=threads,
    )
    sizes = _given(k=k, rank=rank, order=order)
    wanted = _fit_request(data, target, out, schema, ignore, weight, validation, model, sizes, loss, training, sep)
    request = TuneRequest(wanted, trials, timeout, storage, study_name, metric.value, prune, plot)
    summary = tune_file(request, _remarks(quiet), not quiet)
    return print_json(summary) if as_json else print_tuning(summary)


@app.command()
def evaluate(
    model: opt.ModelFile,
    data: opt.DataOrStandard,
    target: opt.EvaluateTarget = None,
    by: opt.By = None,
    weight: opt.Weight = None,
    sep: opt.Sep = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Measure how well a model predicts a table."""
    from splinefm.learn.evaluation import evaluate_file

    evaluation = evaluate_file(model, data, target, by, weight, threads, not quiet, sep)
    return print_json(evaluation.to_dict()) if as_json else print_evaluation(evaluation)


@app.command()
def predict(
    model: opt.ModelFile,
    data: opt.DataOrStandard,
    out: opt.PredictOut = "-",
    ids: opt.Ids = None,
    sep: opt.Sep = None,
    format_name: opt.FormatOption = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.JsonBesideFile = False,
) -> None:
    """Write the predictions of a model, one row per row of the data, in the same order.

    Their column is called "probability" where the target had two values (it is that of 1, or of the second label in
    sorted order), otherwise "prediction".
    """
    from splinefm.cli.commands.predict import predict_file, prediction_name
    from splinefm.encode.tables.sources import STANDARD
    from splinefm.learn.description import predicted_thing

    if as_json and out == STANDARD:
        raise typer.BadParameter("the standard output is for the predictions; add --out FILE", param_hint="--json")
    if out == STANDARD and format_name is opt.FormatName.PARQUET and sys.stdout.isatty():
        raise typer.BadParameter("Parquet is not for a terminal; add --out FILE", param_hint="--format")
    chosen = None if format_name is None else format_name.value
    fitted, rows = predict_file(model, data, out, ids or [], chosen, threads, not quiet, sep)
    column, meaning = prediction_name(fitted), predicted_thing(fitted)
    if as_json:
        return print_json({"file": out, "rows": rows, "column": column, "meaning": meaning})
    _remarks(quiet)(f"{rows:,} rows; {column}: {meaning}")


@app.command()
def info(model: opt.ModelFile, as_json: opt.Json = False) -> None:
    """Tell what is inside a model file."""
    from splinefm.learn.description import describe_file

    description = describe_file(model)
    return print_json(description) if as_json else print_info(description)


@app.command()
def view(
    model: opt.ModelFile,
    along: opt.Along,
    segment: opt.SegmentValues = None,
    each: opt.Each = None,
    data: opt.Background = None,
    sep: opt.Sep = None,
    link: opt.Link = True,
    out: opt.ViewOut = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Show the model along one or two fields: a curve, bars or a surface, exactly.

    Fields that are not named are averaged over. Example: splinefm view model.sfm --along price --segment country=US
    """
    from splinefm.cli.commands.view import ViewRequest
    from splinefm.cli.commands.view_output import print_view, view_file

    if len(along) > 2 or len(set(along)) < len(along):
        raise typer.BadParameter("one field, or two different ones", param_hint="--along")
    for text in segment or []:
        if "=" not in text:
            raise typer.BadParameter(f"{text!r} is not of the form FIELD=VALUE", param_hint="--segment")
    seen = view_file(ViewRequest(model, along, segment or [], each, data, link, out, sep), not quiet)
    for remark in seen.segments.remarks:
        _remarks(quiet)(remark)
    if as_json:
        return print_json({**seen.to_dict(), **({} if out is None else {"file": str(out)})})
    print_view(seen, out)


@app.command()
def explain(
    model: opt.ModelFile,
    data: opt.DataOrStandard,
    out: opt.ExplainOut = None,
    target: opt.ExplainTarget = None,
    weight: opt.ExplainWeight = None,
    sample: opt.SampleRows = 10_000,
    sep: opt.Sep = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Explain a model on a table, as one page that opens in any browser, without a network.

    What it predicts and how well, which fields and pairs matter, curves, surfaces, calibration, and why single rows are
    predicted as they are. With --json, --out may be left out.
    """
    from splinefm.cli.commands.explain import print_explanation
    from splinefm.report.explanation import ExplainRequest, explain_file

    if out is None and not as_json:
        raise typer.BadParameter("where to? Give a folder, such as --out report", param_hint="--out")
    if weight is not None and target is None:
        raise typer.BadParameter("weights are for metrics; add --target COLUMN", param_hint="--weight")
    facts = explain_file(ExplainRequest(model, data, out, target, weight, sample, threads, sep), not quiet)
    return print_json(facts) if as_json else print_explanation(facts)


@app.command()
def discretize(
    model: opt.ModelFile,
    out: opt.BinnedOut,
    bins: opt.Bins = None,
    max_error: opt.MaxError = None,
    field: opt.BinnedFields = None,
    spacing: opt.Spacing = opt.SpacingName.U,
    data: opt.BinsData = None,
    sep: opt.Sep = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Replace curves by fine bins, for systems that bin, and tell how far scores move.

    Example: splinefm discretize model.sfm --bins recency=200 --spacing geometric --out binned.sfm
    """
    from splinefm.cli.commands.discretize import DiscretizeRequest, discretize_file, print_report, report_facts

    if (max_error is None) == (not bins):
        raise typer.BadParameter("give either --bins or --max-error", param_hint="--bins")
    if field and max_error is None:
        raise typer.BadParameter("goes with --max-error; with --bins write FIELD=N", param_hint="--field")
    request = DiscretizeRequest(model, out, bins or [], field or [], spacing.value, max_error, data, sep)
    report = discretize_file(request, not quiet)
    return print_json(report_facts(report, out)) if as_json else print_report(report, out)


@app.command()
def export(
    model: opt.ModelFile,
    to: opt.ExportTo,
    out: opt.ExportOut,
    csv: opt.AsCsv = False,
    raw: opt.RawScores = False,
    rows: opt.ExportRows = None,
    rows_out: opt.ExportRowsOut = None,
    target: opt.RowsTarget = None,
    sep: opt.Sep = None,
    as_json: opt.Json = False,
) -> None:
    """Write a model in a form that other systems read: a libffm model, an ONNX graph, or plain tables."""
    from splinefm.cli.commands.export import ExportRequest, export_file
    from splinefm.cli.output import print_facts

    for name, given, kind in (("--csv", csv, "tables"), ("--raw", raw, "libffm"), ("--rows", rows, "libffm")):
        if given and to != kind:
            raise typer.BadParameter(f"is for --to {kind}", param_hint=name)
    if (rows is None) != (rows_out is None):
        raise typer.BadParameter("--rows and --rows-out go together", param_hint="--rows")
    written = export_file(ExportRequest(model, out, to.value, csv, raw, rows, rows_out, target, sep))
    if as_json:
        return print_json(written)
    print_facts((kind, ", ".join(what) if isinstance(what, list) else what) for kind, what in written.items())


@app.command()
def rank(
    model: opt.ModelFile,
    items: opt.Items,
    context: opt.ContextOption,
    k: opt.TopK = 20,
    ids: opt.ItemIds = None,
    exclude: opt.Excluded = None,
    sep: opt.Sep = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Find the best items of a catalog for a context, best first.

    Example: splinefm rank model.sfm ads.parquet --ids ad_id --context '{"country": "US"}' --k 20
    """
    from splinefm.cli.commands.rank import RankRequest, print_ranking, rank_file

    found = rank_file(RankRequest(model, items, context, k, ids, exclude or [], threads, sep), not quiet)
    if as_json:
        return print_json({"contexts": found})
    print_ranking(found)


@app.command()
def demo(
    out: opt.DemoOut = Path("splinefm-demo"),
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Bins against splines on click data whose true curves are known: a table, a picture, a model."""
    from splinefm.cli.commands.demo import run_demo

    result = run_demo(out, verbose=not quiet)
    return print_json(result) if as_json else print_demo(result)


def _check_fit_options(
    command: str, data: str, model: opt.ModelName | None, rank: int | None, order: int | None
) -> None:
    from splinefm.encode.tables.sources import STANDARD

    if data == STANDARD:
        raise typer.BadParameter(
            f"{command} reads the data several times; write the standard input to a file", param_hint="DATA"
        )
    if rank is not None and model is not opt.ModelName.LOW_RANK_FWFM:
        raise typer.BadParameter("only low-rank-fwfm has a rank; add --model low-rank-fwfm", param_hint="--rank")
    if order is not None and model is not opt.ModelName.HIGHER_ORDER_FM:
        raise typer.BadParameter("only higher-order-fm has an order; add --model higher-order-fm", param_hint="--order")


def _fit_request(
    data: str,
    target: str,
    out: Path,
    schema: Path | None,
    ignore: list[str] | None,
    weight: str | None,
    validation: str | None,
    model: opt.ModelName | None,
    sizes: dict[str, Any],
    loss: opt.LossName,
    training: dict[str, Any],
    sep: str | None,
) -> FitRequest:
    from splinefm.cli.commands.fit import FitRequest

    return FitRequest(
        data=data,
        target=target,
        out=out,
        schema=schema,
        ignored=ignore or [],
        model=None if model is None else model.value,
        sizes=sizes,
        loss=None if loss is opt.LossName.AUTO else cast(Any, loss.value),
        weight=weight,
        validation=_share_or_file(validation),
        training=training,
        sep=sep,
    )


def _given(**settings: Any) -> dict[str, Any]:
    """The settings that the user gave; the others keep the defaults of the library."""
    return {name: value for name, value in settings.items() if value is not None}


def _share_or_file(text: str | None) -> float | str | None:
    try:
        share = float(text or "")
    except ValueError:
        return text
    if not 0.0 <= share < 1.0:
        raise typer.BadParameter(f"a share from 0 to below 1, or a file; got {text}", param_hint="--validation")
    return share


def _remarks(quiet: bool) -> Callable[[str], None]:
    return (lambda text: None) if quiet else say


def main() -> None:
    """Run a command, also where the output is closed, or the reader leaves early or cannot show all characters."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # for as long as the process lives
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError:
        # Nothing more can be written, and Python would complain about that when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
