"""`splinefm demo`: compare bins and splines on click data whose true curves are known."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from splinefm.cli import options as opt
from splinefm.cli.output import penalty_text, print_json, print_lines, print_table

Out = Annotated[
    Path,
    typer.Option(metavar="FOLDER", help="Folder for the plot, the model and the data. Created if it does not exist."),
]


def demo(out: Out = Path("splinefm-demo"), quiet: opt.Quiet = False, as_json: opt.Json = False) -> None:
    """Compare bins and splines on click data whose true curves are known: a table, a plot, a model."""
    from splinefm.cli.actions.demo import run_demo

    result = run_demo(out, verbose=not quiet)
    return print_json(result) if as_json else print_demo(result)


def print_demo(result: dict[str, Any]) -> None:
    """Print the table of the demo, its files, and what to type next."""
    bayes = result["bayes_loss"]
    losses = [("the same for all rows", result["constant_loss"])]
    losses += [(arm["name"], arm["test_loss"]) for arm in result["arms"]]
    rows = [[name, f"{loss:.5f}", f"{loss - bayes:.5f}"] for name, loss in losses]
    rows.append(["the true probabilities", f"{bayes:.5f}", ""])
    title = f"{result['train_rows']:,} training rows, {result['test_rows']:,} test rows"
    print_table(["probabilities from", ">test loss", ">above the best possible"], rows, title)
    penalties = ", ".join(f"{name} {penalty_text(value)}" for name, value in result["penalties"].items())
    print_lines(
        f"All are {result['model']} with the same training ({penalties}); they differ in the encoding of recency."
    )
    files = result["files"]
    model, data = (shlex.quote(files[name]) for name in ("model", "data"))
    same = f"it makes the same prediction for {result['reloaded_rows']:,} of {result['test_rows']:,} rows"
    print_lines(f"\nThe best model ({result['best']}) is in {files['model']}. After reloading, {same}.")
    if files["plot"] is None:
        print_lines("No plot: matplotlib is not installed. To get it: pip install 'splinefm[plots]'")
    else:
        print_lines(f"The learned curves over the true ones: {files['plot']}")
    print_lines("\nTry next:")
    print_lines(f"  splinefm info {model}")
    print_lines(f"  splinefm evaluate {model} {data} --by ad")
    print_lines(f"  splinefm predict {model} {data} | head")
    print_lines("\nWith your own CSV, and COLUMN the column to predict:")
    print_lines("  splinefm schema YOUR.csv --target COLUMN")
    print_lines("  splinefm fit YOUR.csv --target COLUMN --out model.sfm")
    print_lines("  splinefm predict model.sfm NEW.csv --out predictions.csv")
