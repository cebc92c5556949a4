"""The arguments and options of the command line, with their help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class ModelName(StrEnum):
    """The models by their names on the command line."""

    FFM = "ffm"
    FM = "fm"
    FWFM = "fwfm"
    FMFM = "fmfm"
    LOW_RANK_FWFM = "low-rank-fwfm"
    HIGHER_ORDER_FM = "higher-order-fm"


class ScheduleName(StrEnum):
    """Courses of the learning rate."""

    COSINE = "cosine"
    CONSTANT = "constant"


class LossName(StrEnum):
    """The losses, and the choice by the target."""

    AUTO = "auto"
    LOGISTIC = "logistic"
    SQUARED = "squared"
    POISSON = "poisson"


class FormatName(StrEnum):
    """Formats of predictions."""

    CSV = "csv"
    PARQUET = "parquet"


class SpacingName(StrEnum):
    """Where bins are put."""

    U = "u"
    UNIFORM = "uniform"
    GEOMETRIC = "geometric"
    QUANTILE = "quantile"


class MetricName(StrEnum):
    """What trials are compared by."""

    LOSS = "loss"
    AUC = "auc"
    NORMALIZED_ENTROPY = "normalized_entropy"
    MAE = "mae"
    R2 = "r2"


class ExportName(StrEnum):
    """What a model can be exported to."""

    LIBFFM = "libffm"
    ONNX = "onnx"
    TABLES = "tables"


def _column(text: str, **settings: Any) -> Any:
    return typer.Option(metavar="COLUMN", help=text, **settings)


def _count(text: str, panel: str | None = None, least: int = 1) -> Any:
    return typer.Option(metavar="N", min=least, help=text, rich_help_panel=panel)


def _amount(text: str, panel: str, *names: str) -> Any:
    return typer.Option(*names, metavar="NUMBER", min=0.0, help=text, rich_help_panel=panel)


def _parse_separator(text: str | None) -> str | None:
    if text is None:
        return None
    from splinefm.encode.tables.open import check_separator

    sep = "\t" if text == r"\t" else text
    try:
        check_separator(sep)
    except ValueError:
        message = f"one character, such as ';', or '\\t' for a tab; got {text!r}"
        raise typer.BadParameter(message, param_hint="--sep") from None
    return sep


_MODEL, _TRAINING, _SEARCH = "Model", "Training", "Search"
_FILES = "A CSV, TSV or Parquet file, a folder of such files, or a pattern such as 'logs/*.parquet'"
_LOSSES = (
    "What to minimize. logistic: two classes, or shares; squared: numbers; poisson: counts; "
    "auto: logistic if the target has two values, otherwise squared."
)

Data = Annotated[str, typer.Argument(metavar="DATA", help=f"{_FILES}.", show_default=False)]
DataOrStandard = Annotated[
    str, typer.Argument(metavar="DATA", help=f"{_FILES}; - for CSV on the standard input.", show_default=False)
]
Sep = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        callback=_parse_separator,
        help="What separates the columns of CSV, such as ';' or '\\t' for a tab; by default it is found.",
    ),
]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file, as 'splinefm fit' writes it.", show_default=False)
]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks.")]
Threads = Annotated[int | None, _count("Threads to use; all cores by default. Results do not depend on it.")]
Weight = Annotated[str | None, _column("A column of sample weights.")]
Ignore = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="A column to leave out, such as an identifier; may be given several times."),
]

SchemaTarget = Annotated[str | None, _column("The column to be predicted, to leave it out.")]
SchemaOut = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the schema to this .toml or .json file.")]

FitTarget = Annotated[str, _column("The column to predict.", show_default=False)]
FitOut = Annotated[
    Path, typer.Option(metavar="FILE", help="The model file to write, such as model.sfm.", show_default=False)
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A schema, see 'splinefm schema'; by default it is inferred from the data."),
]
Validation = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE|FILE",
        help="Rows that choose the best epoch: a share of the data (0: none), or a file of their own.",
    ),
]
ModelOption = Annotated[ModelName | None, typer.Option(help="By default fwfm, with k = 16.", rich_help_panel=_MODEL)]
K = Annotated[
    int | None, typer.Option("--k", metavar="N", min=1, help="Length of the vectors.", rich_help_panel=_MODEL)
]
Rank = Annotated[int | None, _count("For low-rank-fwfm: rank of the weights between columns.", _MODEL)]
Order = Annotated[int | None, _count("For higher-order-fm: most columns in one product.", _MODEL, least=2)]
LossOption = Annotated[LossName, typer.Option(help=_LOSSES, rich_help_panel=_MODEL)]
Epochs = Annotated[int | None, _count("Passes over the data, at most.", _TRAINING)]
SelectResolutions = Annotated[
    bool | None,
    typer.Option(
        "--select-resolutions/--no-select-resolutions",
        help="Whether to train a second time with resolutions by column, as is done for up to 200,000 rows.",
        show_default=False,
        rich_help_panel=_TRAINING,
    ),
]
Patience = Annotated[int | None, _count("Stop after so many epochs without a better validation loss.", _TRAINING)]
BatchSize = Annotated[int | None, _count("Rows per step.", _TRAINING)]
LearningRate = Annotated[float | None, _amount("Size of the steps, at most.", _TRAINING)]
Schedule = Annotated[
    ScheduleName | None,
    typer.Option(
        help="The course of the learning rate; by default cosine: up for a while, then down.",
        show_default=False,
        rich_help_panel=_TRAINING,
    ),
]
L2 = Annotated[float | None, _amount("Penalty on the size of weights and vectors.", _TRAINING, "--l2")]
Smoothness = Annotated[float | None, _amount("Penalty on the roughness of curves.", _TRAINING)]
Seed = Annotated[int | None, _count("The same seed gives the same model.", _TRAINING, least=0)]

Trials = Annotated[
    int,
    _count("Trials in all, those that the storage has already and those of other processes included.", _SEARCH),
]
Timeout = Annotated[
    float | None, _amount("Seconds for the trials; fitting the best settings comes after them.", _SEARCH)
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|URL",
        help="Keep the trials, to go on later or to share them between processes: a SQLite file (.db, .sqlite), a "
        "journal (.journal, .log), or the address of a database.",
        rich_help_panel=_SEARCH,
    ),
]
StudyName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Name of the study in the storage; by default target and model.", rich_help_panel=_SEARCH
    ),
]
MetricOption = Annotated[
    MetricName,
    typer.Option(
        help="What to compare. auc and normalized_entropy are for two classes, mae and r2 for numbers.",
        rich_help_panel=_SEARCH,
    ),
]
Prune = Annotated[
    bool,
    typer.Option(
        "--prune/--no-prune", help="End trials that are worse than the median of others.", rich_help_panel=_SEARCH
    ),
]
StudyPlot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw the trials and the settings: .png, .svg or .pdf.", rich_help_panel=_SEARCH),
]

EvaluateTarget = Annotated[
    str | None, _column("The column that was to be predicted; not needed if all others are fields of the model.")
]
By = Annotated[str | None, _column("Calibration for every value of this column, too.")]

PredictOut = Annotated[
    str, typer.Option(metavar="FILE", help="Where to: a .csv or .parquet file, or - for the standard output.")
]
Ids = Annotated[
    list[str] | None, typer.Option("--id", metavar="COLUMN", help="A column to copy; may be given several times.")
]
FormatOption = Annotated[
    FormatName | None, typer.Option("--format", help="By default as the name of the file says; csv for -.")
]
JsonBesideFile = Annotated[bool, typer.Option("--json", help="Print one JSON object about the run; needs --out FILE.")]

DemoOut = Annotated[
    Path, typer.Option(metavar="FOLDER", help="The folder for the picture, the model and the data; made if needed.")
]

Along = Annotated[
    list[str],
    typer.Option(metavar="FIELD", help="The field that varies; given twice, the two of a surface.", show_default=False),
]
SegmentValues = Annotated[
    list[str] | None,
    typer.Option(
        "--segment",
        metavar="FIELD=VALUE",
        help="The value of another field; FIELD= is missing, a|b a list. May be given several times; several values of "
        "one field make a curve each.",
    ),
]
Each = Annotated[
    str | None,
    typer.Option(
        metavar="FIELD", help="A curve for each of the categories of this field, at most the twelve most frequent."
    ),
]
Background = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="A table to average the other fields over, and whose distribution is drawn; by default the training rows "
        "as the model remembers them. - for CSV on the standard input.",
    ),
]
Link = Annotated[
    bool, typer.Option("--link/--score", help="Show predictions, such as probabilities, or the scores behind them.")
]
ViewOut = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A picture (.png, .svg, .pdf) or the values (.csv, .json); by default a table is printed."
    ),
]

ExplainTarget = Annotated[str | None, _column("The column that was to be predicted: adds metrics and calibration.")]
ExplainWeight = Annotated[str | None, _column("A column of sample weights, for metrics and calibration.")]
ExplainOut = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="The folder for the page, index.html; made if needed.", show_default=False),
]
SampleRows = Annotated[
    int, typer.Option("--sample", metavar="N", min=1, help="Rows to explain, at most: a random sample of larger data.")
]

Bins = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=N",
        help="The number of bins of a field; may be given several times. N alone: all numerical fields.",
    ),
]
Spacing = Annotated[
    SpacingName,
    typer.Option(
        help="Where bins are put: equal widths after the transform (u) or in the unit of the column (uniform), widths "
        "that grow by a factor (geometric), or equal numbers of rows (quantile)."
    ),
]
MaxError = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER", min=0.0, help="Instead of --bins: as few bins as keep every score this close, for any row."
    ),
]
BinnedFields = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="FIELD", help="With --max-error: a field to bin; by default all numerical ones."),
]
BinsData = Annotated[
    str | None,
    typer.Option(metavar="DATA", help="A table: its range and quantiles place the bins, its scores tell the change."),
]
BinnedOut = Annotated[
    Path, typer.Option(metavar="FILE", help="The model file to write, such as binned.sfm.", show_default=False)
]

ExportTo = Annotated[ExportName, typer.Option(help="The form.", show_default=False)]
ExportOut = Annotated[
    Path, typer.Option(metavar="PATH", help="The file to write; for tables a folder.", show_default=False)
]
AsCsv = Annotated[bool, typer.Option("--csv", help="For tables: CSV instead of Parquet.")]
RawScores = Annotated[
    bool, typer.Option("--raw", help="For libffm: allow a model that is not logistic; readers must use its raw scores.")
]
ExportRows = Annotated[
    str | None, typer.Option("--rows", metavar="DATA", help="For libffm: a table to write in its form, to --rows-out.")
]
ExportRowsOut = Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write --rows.")]
RowsTarget = Annotated[str | None, _column("The column of labels in --rows.")]

Items = Annotated[
    str, typer.Argument(metavar="ITEMS", help=f"The catalog: {_FILES[0].lower()}{_FILES[1:]}.", show_default=False)
]
ContextOption = Annotated[
    str,
    typer.Option(
        metavar="JSON|FILE",
        help="The other fields: a JSON object or a list of them, a file of that, or - for standard input.",
        show_default=False,
    ),
]
TopK = Annotated[int, typer.Option("--k", metavar="N", min=1, help="How many items.")]
ItemIds = Annotated[str | None, _column("The column of ids of the items; by default rows are counted from 0.")]
Excluded = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="ID", help="An item to leave out; may be given several times."),
]
