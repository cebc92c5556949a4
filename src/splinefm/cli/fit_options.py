"""Options that `fit` and `tune` share, and the request that they make."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splinefm.cli.options import amount_option, column_option, count_option, out_option

if TYPE_CHECKING:
    from splinefm.cli.actions.fit import FitRequest
    from splinefm.train.losses import Loss


class ModelName(StrEnum):
    """The models by their names on the command line."""

    FFM = "ffm"
    FM = "fm"
    FWFM = "fwfm"
    FMFM = "fmfm"
    LOW_RANK_FWFM = "low-rank-fwfm"
    HIGHER_ORDER_FM = "higher-order-fm"


class ScheduleName(StrEnum):
    """Learning rate schedules."""

    COSINE = "cosine"
    CONSTANT = "constant"


class EngineName(StrEnum):
    """What computes the steps of training."""

    CPU = "cpu"
    TORCH = "torch"


class EffortName(StrEnum):
    """How much a fit searches."""

    FAST = "fast"
    DEFAULT = "default"
    BEST = "best"


class LossName(StrEnum):
    """The losses, and the choice by the target."""

    AUTO = "auto"
    LOGISTIC = "logistic"
    SQUARED = "squared"
    POISSON = "poisson"
    GAMMA = "gamma"
    TWEEDIE = "tweedie"
    QUANTILE = "quantile"
    HUBER = "huber"
    SOFTMAX = "softmax"


_MODEL, _TRAINING = "Model", "Training"
_LOSSES = (
    "Loss to minimize. logistic: two classes, or shares; softmax: more classes; squared: numbers; poisson: counts; "
    "gamma: positive, skewed amounts; tweedie: such amounts with zeros; quantile: see --quantile; huber: numbers with "
    "outliers; auto: logistic if the target has two values, softmax if it is text, squared otherwise."
)
_OWNERS = {"quantile": LossName.QUANTILE, "power": LossName.TWEEDIE, "delta": LossName.HUBER}

Target = Annotated[str, column_option("Column to predict.", show_default=False)]
Out = Annotated[Path, out_option("Model file to write, such as model.sfm.")]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Schema file, see 'splinefm schema'. By default the schema is inferred from the data."
    ),
]
Validation = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE|FILE",
        help="Rows used to choose the best epoch: a share of the data (0 for none), or a separate file.",
    ),
]
Balanced = Annotated[
    bool,
    typer.Option(
        "--balanced",
        help="Give all classes the same total weight. Predicted probabilities then no longer match their rates.",
    ),
]
Cross = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A,B",
        help="Add a cross of two or three columns, which act together. Repeat it for more. A name with a comma has "
        "quotes as in CSV: '\"price, net\",city'.",
        show_default=False,
    ),
]
CrossesFound = Annotated[
    str | None,
    typer.Option(
        metavar="auto|none|N",
        help="Look for crosses that lower the loss of held-out rows: up to three of columns and two of values that "
        "recur if the schema is inferred (auto, the default), none, or up to N of any columns.",
        show_default=False,
    ),
]
Model = Annotated[
    ModelName | None,
    typer.Option(
        help="Model. Default: the search decides; without one, fwfm with k = 16 and third = 16, fm beyond 256 fields.",
        rich_help_panel=_MODEL,
    ),
]
K = Annotated[
    int | None, typer.Option("--k", metavar="N", min=1, help="Length of the vectors.", rich_help_panel=_MODEL)
]
Rank = Annotated[int | None, count_option("Rank of the field weights of low-rank-fwfm.", _MODEL)]
Order = Annotated[
    int | None, count_option("Maximum number of fields in one product of higher-order-fm.", _MODEL, least=2)
]
Third = Annotated[
    int | None,
    count_option(
        "Length of the vectors of fwfm for products of three fields. Default: 16, or none with --model fwfm.",
        _MODEL,
        least=0,
    ),
]
LossOption = Annotated[LossName, typer.Option(help=_LOSSES, rich_help_panel=_MODEL)]
Quantile = Annotated[
    float | None, amount_option("Quantile to predict, with --loss quantile. Default: 0.5, the median.", _MODEL)
]
Power = Annotated[
    float | None,
    amount_option("Power of the mean that the variance follows, with --loss tweedie. Default: 1.5.", _MODEL),
]
Delta = Annotated[
    float | None,
    amount_option(
        "Distance from which --loss huber is linear, in the unit of the target. Default: from the data.", _MODEL
    ),
]
Epochs = Annotated[
    int | None,
    count_option("Maximum number of passes over the data. Default: 30, fewer beyond 1,000,000 rows.", _TRAINING),
]
Patience = Annotated[
    int | None,
    count_option(
        "Stop after this many epochs without a better validation loss. Default: a fifth of --epochs, at least 4.",
        _TRAINING,
    ),
]
BatchSize = Annotated[int | None, count_option("Rows per step.", _TRAINING)]
LearningRate = Annotated[float | None, amount_option("Peak learning rate.", _TRAINING)]
Schedule = Annotated[
    ScheduleName | None,
    typer.Option(
        help="Learning rate schedule. Default: cosine, which warms up and then decays.",
        show_default=False,
        rich_help_panel=_TRAINING,
    ),
]
L2 = Annotated[float | None, amount_option("L2 penalty on weights and vectors.", _TRAINING, "--l2")]
Smoothness = Annotated[float | None, amount_option("Penalty on the roughness of curves.", _TRAINING)]
Average = Annotated[
    bool | None,
    typer.Option(
        "--average/--no-average",
        help="Use a moving average of the weights, which takes as much memory as they do. Default: yes.",
        show_default=False,
        rich_help_panel=_TRAINING,
    ),
]
Members = Annotated[
    int | None, count_option("Train this many models and average their scores. Default: the search decides.", _TRAINING)
]
Effort = Annotated[
    EffortName,
    typer.Option(
        help="How much to search for settings that are not given: bases, penalties, the model, crosses.",
        rich_help_panel=_TRAINING,
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        help="Seconds after which the fit ends with the best model so far.",
        show_default=False,
        rich_help_panel=_TRAINING,
    ),
]
Engine = Annotated[
    EngineName | None,
    typer.Option(
        help="What computes the steps of training: the compiled loops, or PyTorch. Default: cpu.",
        show_default=False,
        rich_help_panel=_TRAINING,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Device of --engine torch, such as cuda, cuda:1 or cpu. Default: cuda if there is one.",
        show_default=False,
        rich_help_panel=_TRAINING,
    ),
]
Seed = Annotated[int | None, count_option("Random seed. The same seed gives the same model.", _TRAINING, least=0)]


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


def check_fit_options(
    command: str, data: str, model: ModelName | None, rank: int | None, order: int | None, third: int | None
) -> None:
    """Raise if the command cannot read the data, or if an option belongs to another model."""
    from splinefm.encode.tables.open import STANDARD

    if data == STANDARD:
        raise typer.BadParameter(
            f"{command} reads the data several times; write standard input to a file first", param_hint="DATA"
        )
    if rank is not None and model is not ModelName.LOW_RANK_FWFM:
        raise typer.BadParameter("only low-rank-fwfm has a rank; add --model low-rank-fwfm", param_hint="--rank")
    if order is not None and model is not ModelName.HIGHER_ORDER_FM:
        raise typer.BadParameter("only higher-order-fm has an order; add --model higher-order-fm", param_hint="--order")
    if third is not None and model not in (None, ModelName.FWFM):
        raise typer.BadParameter("only fwfm has vectors for products of three; add --model fwfm", param_hint="--third")


def given_loss(loss: LossName, **parameters: float | None) -> Loss | None:
    """The loss with its parameter, or None for the choice by the target."""
    from splinefm.train.losses import as_loss

    if loss is not LossName.AUTO:
        return as_loss(loss.value, **parameters)
    for name in given(**parameters):
        owner = _OWNERS[name].value
        raise typer.BadParameter(f"belongs to the {owner} loss; add --loss {owner}", param_hint=f"--{name}")
    return None


def make_fit_request(
    data: str,
    target: str,
    out: Path,
    schema: Path | None,
    ignore: list[str] | None,
    weight: str | None,
    validation: str | None,
    model: ModelName | None,
    sizes: dict[str, Any],
    loss: Loss | None,
    training: dict[str, Any],
    sep: str | None,
) -> FitRequest:
    """The request of `fit`, which is a part of that of `tune`."""
    from splinefm.cli.actions.fit import FitRequest

    return FitRequest(
        data=data,
        target=target,
        out=out,
        schema=schema,
        ignored=ignore or [],
        model=None if model is None else model.value,
        sizes=sizes,
        loss=loss,
        weight=weight,
        validation=share_or_file(validation),
        training=training,
        sep=sep,
    )


def given(**settings: Any) -> dict[str, Any]:
    """The settings that the user gave; the others keep the defaults of the library."""
    return {name: value for name, value in settings.items() if value is not None}


def share_or_file(text: str | None) -> float | str | None:
    """A share of rows, or the path of a file."""
    try:
        share = float(text or "")
    except ValueError:
        return text
    if not 0.0 <= share < 1.0:
        raise typer.BadParameter(
            f"must be a share of at least 0 and below 1, or a file; got {text}", param_hint="--validation"
        )
    return share
