"""The results of the commands as people read them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from splinefm._wording import in_bytes, number
from splinefm.cli.output import print_facts, print_lines, print_table

if TYPE_CHECKING:
    from splinefm.learn.evaluation import Evaluation
    from splinefm.learn.metrics import GroupCalibration

MOST_GROUPS, LAST_EPOCHS = 30, 5


def print_fit(summary: dict[str, Any]) -> None:
    """What came out of a fit, and what to type next."""
    best = f"best of {summary['epochs']} epochs: {summary['best_epoch']}"
    value = summary["validation_loss"]
    measured = (
        f"{summary['validation_metric']} {value:.5g}; {best}" if value is not None else "none; the last epoch is kept"
    )
    print_facts(
        [
            ("validation", measured),
            ("model", f"{summary['model']}, {summary['loss']} loss"),
            ("data", f"{summary['rows']:,} rows, {summary['fields']} fields"),
            ("time", f"{summary['seconds']:.1f} seconds"),
            ("file", f"{summary['file']}, {in_bytes(summary['bytes'])}"),
        ]
    )
    file, target = shlex.quote(summary["file"]), shlex.quote(summary["target"])
    print_lines("\nNext, with rows that the model has not seen:")
    print_lines(f"  splinefm evaluate {file} NEW.csv --target {target}")
    print_lines(f"  splinefm predict {file} NEW.csv --out predictions.csv")


def print_evaluation(evaluation: Evaluation) -> None:
    """Metrics with what they mean, and calibration by groups."""
    rows = [[metric.name, number(metric.value), metric.meaning] for metric in evaluation.metrics]
    print_table(["metric", ">value", "meaning"], rows, f"{evaluation.n_rows:,} rows, target {evaluation.target!r}")
    if evaluation.by is not None:
        print()
        _print_groups(evaluation.by, evaluation.groups)


def _print_groups(by: str, groups: list[GroupCalibration]) -> None:
    heavy = sorted(groups, key=lambda group: -group.weight)[:MOST_GROUPS]
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
    ][:MOST_GROUPS]
    print_table([by, ">weight", ">predicted", ">measured", ">error"], rows, f"calibration by {by!r}")
    if len(groups) > len(rows):
        print_lines(f"The {len(rows)} heaviest of {len(groups):,} values; --json has all.")


def print_info(about: dict[str, Any]) -> None:
    """What is inside a model file."""
    model = about["model"]
    settings = ", ".join(f"{name}={value}" for name, value in model.items() if name != "kind")
    print_facts(
        [
            ("file", f"{about['file']}, {in_bytes(about['bytes'])}"),
            ("format", f"{about['format']}, written by splinefm {about['version']}"),
            ("model", f"{model['kind']}({settings}), {about['parameters']:,} parameters"),
            ("predicts", f"{about['prediction']} ({about['loss']} loss)"),
            ("fitted to", f"{about['rows']:,} rows"),
            ("training", _training(about)),
            *([("study", study_line(about["study"]))] if about["study"] is not None else []),
        ]
    )
    print()
    rows = [
        [field["name"], field["kind"], f"{field['rows']:,}", _content(field), field["note"]]
        for field in about["fields"]
    ]
    print_table(["field", "kind", ">rows", "content", "note"], rows)
    if about["history"]:
        print()
        _print_history(about["history"][-LAST_EPOCHS:])


def study_line(about: dict[str, Any]) -> str:
    """A study in a few words.

    Examples
    --------
    >>> about = {"trials": 3, "metric": "RMSE", "value": 0.5, "start_value": 0.6, "best_trial": 2}
    >>> study_line({**about, "params": {"k": 4}})
    'trial 2 of 3 with RMSE 0.5 (0.6 before): k=4'
    """
    improved = about["best_trial"] > 0 and about["start_value"] is not None
    before = f" ({number(about['start_value'])} before)" if improved else ""
    settings = ", ".join(f"{name}={_short(value)}" for name, value in about["params"].items())
    measured = f"{about['metric']} {number(about['value'])}"
    return f"trial {about['best_trial']} of {about['trials']} with {measured}{before}: {settings}"


def _training(about: dict[str, Any]) -> str:
    training, validation = about["training"], about["validation"]
    penalties = ", ".join(f"{name} {_penalty(training[name])}" for name in ("l2", "smoothness"))
    if validation["metric"] is None:
        return f"{validation['epochs']} epochs, {penalties}"
    measured = f"{validation['metric']} {number(validation['value'])}"
    return f"epoch {validation['best_epoch']} of {validation['epochs']} with {measured}, {penalties}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _penalty(value: Any) -> str:
    return "by field" if isinstance(value, dict) else "none" if value is None else f"{value:g}"


def _content(field: dict[str, Any]) -> str:
    if field["kind"] == "Numerical":
        special = f", {len(field['special'])} special values" if field["special"] else ""
        return f"{field['transform']}, {field['basis']} of {field['functions']} functions{special}"
    return f"{field['vocabulary']:,} values, unseen: {field['unseen']}"


def _print_history(history: list[dict[str, Any]]) -> None:
    rows = [
        [
            str(epoch["epoch"]),
            number(epoch["train_loss"]),
            number(epoch["validation_loss"]),
            number(epoch["rows_per_second"], ",.0f"),
            number(epoch["seconds"], ".1f"),
        ]
        for epoch in history
    ]
    print_table([">epoch", ">training loss", ">validation loss", ">rows/s", ">seconds"], rows, "last epochs")


def print_demo(result: dict[str, Any]) -> None:
    """The table of the demo, where its files are, and what to type next."""
    bayes = result["bayes_loss"]
    losses = [("the same for all rows", result["constant_loss"])]
    losses += [(arm["name"], arm["test_loss"]) for arm in result["arms"]]
    rows = [[name, f"{loss:.5f}", f"{loss - bayes:.5f}"] for name, loss in losses]
    rows.append(["the true probabilities", f"{bayes:.5f}", ""])
    title = f"{result['train_rows']:,} rows to learn from, {result['test_rows']:,} others to test"
    print_table(["probabilities from", ">test loss", ">above the best possible"], rows, title)
    penalties = ", ".join(f"{name} {_penalty(value)}" for name, value in result["penalties"].items())
    print_lines(
        f"All are {result['model']} with the same training ({penalties}); they differ in how recency is encoded."
    )
    files = result["files"]
    model, data = (shlex.quote(files[name]) for name in ("model", "data"))
    again = f"it predicts the same for {result['reloaded_rows']:,} of {result['test_rows']:,} rows"
    print_lines(f"\nThe best model ({result['best']}) is in {files['model']}. Loaded again, {again}.")
    if files["picture"] is None:
        print_lines("No picture: matplotlib is not installed. To get it: pip install 'splinefm[plots]'")
    else:
        print_lines(f"The learned curves over the true ones: {files['picture']}")
    print_lines("\nLook around:")
    print_lines(f"  splinefm info {model}")
    print_lines(f"  splinefm evaluate {model} {data} --by ad")
    print_lines(f"  splinefm predict {model} {data} | head")
    print_lines("\nWith a CSV of your own, and COLUMN the one to predict:")
    print_lines("  splinefm schema YOUR.csv --target COLUMN")
    print_lines("  splinefm fit YOUR.csv --target COLUMN --out model.sfm")
    print_lines("  splinefm predict model.sfm NEW.csv --out predictions.csv")
