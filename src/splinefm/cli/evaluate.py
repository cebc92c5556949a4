"""`splinefm evaluate`: measure how well a model predicts a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from splinefm._wording import number
from splinefm.cli import options as opt
from splinefm.cli.output import print_json, print_lines, print_table

if TYPE_CHECKING:
    from splinefm.fit.evaluation import Evaluation
    from splinefm.metrics import GroupCalibration

MAX_GROUPS = 30

Target = Annotated[
    str | None,
    opt.column_option("Column with the true values. Optional if all other columns are fields of the model."),
]
ClassName = Annotated[str | None, opt.class_option("Measure one of more than two classes, against the rest.")]
By = Annotated[str | None, opt.column_option("Also print the calibration for every value of this column.")]


def evaluate(
    model: opt.ModelFile,
    data: opt.DataOrStandard,
    target: Target = None,
    by: By = None,
    weight: opt.Weight = None,
    class_name: ClassName = None,
    sep: opt.Sep = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Measure how well a model predicts a table."""
    from splinefm.fit.evaluation import evaluate_file

    evaluation = evaluate_file(model, data, target, by, weight, threads, not quiet, sep, class_name)
    return print_json(evaluation.to_dict()) if as_json else print_evaluation(evaluation)


def print_evaluation(evaluation: Evaluation) -> None:
    """Print the metrics with their meaning, and the calibration by group."""
    rows = [[metric.name, number(metric.value), metric.meaning] for metric in evaluation.metrics]
    print_table(["metric", ">value", "meaning"], rows, f"{evaluation.n_rows:,} rows, target {evaluation.target!r}")
    if evaluation.by is not None:
        print()
        _print_groups(evaluation.by, evaluation.groups)


def _print_groups(by: str, groups: list[GroupCalibration]) -> None:
    heavy = sorted(groups, key=lambda group: -group.weight)[:MAX_GROUPS]
    least = heavy[-1].weight
    rows = [
        [
            "(missing)" if group.group is None else str(group.group),
            number(group.weight),
            number(group.predicted),
            number(group.measured),
            number(group.error, "+.2%"),
        ]
        for group in groups
        if group.weight >= least
    ][:MAX_GROUPS]
    print_table([by, ">weight", ">predicted", ">measured", ">error"], rows, f"calibration by {by!r}")
    if len(groups) > len(rows):
        print_lines(f"The {len(rows)} values with the most weight of {len(groups):,}; --json has all.")
