"""The shell blocks of the guide to the command line run, one after the other."""

import json
import re
import shlex
from pathlib import Path

import pyarrow.csv
import pytest

from support import THOROUGH

# Few epochs and trials do here.
FEWER = {"fit": ["--epochs", "2"], "tune": ["--epochs", "2", "--trials", "2"]}
PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("empty_plots")
def test_the_guide_runs_from_the_table_to_the_predictions(run, shell, tmp_path):
    for block in blocks("python"):
        exec(compile(block, "command-line.md", "exec"), {})
    for line in "".join(blocks("sh")).splitlines():
        # Pipes need a shell; starting a process for each of the other lines would only take time.
        command, _, out = line.partition(" > ")
        if "|" in line or not command.startswith("splinefm "):
            shell(line)
            continue
        words = shlex.split(command)[1:]
        if words[0] == "tune" and not THOROUGH:  # Optuna and a plot of its study take seconds: test_tune.py
            continue
        result = run(*words, *FEWER.get(words[0], []))
        if out:
            (tmp_path / out).write_text(result.stdout)
    assert pyarrow.csv.read_csv("predictions.csv").column_names == ["id", "probability"]
    assert json.loads((tmp_path / "metrics.json").read_text())["rows"] == 1000


def test_the_guide_has_a_word_on_every_command(run):
    names = re.findall(r"^│ (\w+) ", run("--help").stdout.split("Commands")[1], flags=re.MULTILINE)
    assert len(names) == 18
    for name in names:
        assert f"`{name}`" in PAGE or f"`splinefm {name}`" in PAGE
