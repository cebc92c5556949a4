"""The demo, small, and the plots."""

import json
import sys

import numpy as np
import pyarrow.csv
import pytest

import splinefm as sf
from splinefm.cli import demo as module
from splinefm.cli.click_data import SEGMENTS, click_data
from splinefm.cli.demo import print_demo, run_demo
from splinefm.metrics import logloss
from splinefm.plots.curves import COLORS, lines
from splinefm.plots.figures import make_panels

SMALL = {
    "train_rows": 2000,
    "test_rows": 1000,
    "model": sf.FM(k=2),
    "training": sf.Training(epochs=2, threads=1, l2=0.0, smoothness=0.0),
}


def test_the_data_follow_the_curves_of_the_paper():
    table, probability = click_data(50_000)
    click = table["click"].to_numpy()
    # Segment by segment the clicks are as many as the probabilities say, within four standard deviations.
    for segment in SEGMENTS:
        own = np.all([table[name].to_numpy() == getattr(segment, name) for name in ("age", "gender", "ad")], axis=0)
        spread = np.sqrt((probability[own] * (1 - probability[own])).sum())
        assert abs(click[own].sum() - probability[own].sum()) < 4 * spread
        assert np.allclose(segment.probability(table["recency"].to_numpy()[own]), probability[own])
    # Values that were computed apart from this code, from the formula in the paper.
    assert SEGMENTS[0].probability(np.array([0.0, 10.0])) == pytest.approx([0.2025, 0.2566], abs=5e-5)
    assert SEGMENTS[7].probability(np.array([30.0, 39.6])) == pytest.approx([0.1119, 0.0877], abs=5e-5)


def test_the_demo_leaves_plot_model_and_data(tmp_path, capsys):
    result = run_demo(tmp_path / "new" / "folder", **SMALL)
    assert [arm["name"] for arm in result["arms"]] == ["5 bins", "12 bins", "120 bins", "cubic splines"]
    assert result["reloaded_rows"] == 1000
    assert (tmp_path / "new" / "folder" / "curves.png").read_bytes().startswith(b"\x89PNG")
    test = pyarrow.csv.read_csv(result["files"]["data"])
    table, probability = click_data(3000)
    assert test["click"].to_pylist() == table["click"].to_pylist()[2000:]
    assert result["bayes_loss"] == logloss(test["click"].to_numpy(), probability[2000:])
    best = min(result["arms"], key=lambda arm: arm["test_loss"])
    saved = sf.load(result["files"]["model"])
    assert result["best"] == best["name"]
    assert logloss(test["click"].to_numpy(), saved.predict(test)) == pytest.approx(best["test_loss"], abs=1e-12)
    progress = capsys.readouterr().err
    assert "120 bins: test loss" in progress


@pytest.mark.usefixtures("empty_plots")
def test_the_command_prints_table_and_next_steps(run, monkeypatch, tmp_path):
    for name, value in {
        "train_rows": 500,
        "test_rows": 200,
        "model": SMALL["model"],
        "training": SMALL["training"],
    }.items():
        monkeypatch.setitem(run_demo.__kwdefaults__, name, value)
    result = run("demo", "--out", "here", "--quiet")
    assert not result.stderr
    for part in (
        "cubic splines",
        "the true probabilities",
        "here/curves.png",
        "here/model.sfm",
        "splinefm fit YOUR.csv",
    ):
        assert part in result.stdout
    assert "clicks.csv" in json.loads(run("demo", "--out", "here", "--json").stdout)["files"]["data"]
    (tmp_path / "file").write_text("")
    assert "file" in run("demo", "--out", "file", code=1).stderr


def test_ctrl_c_ends_the_demo_and_leaves_its_files_alone(tmp_path, monkeypatch, capsys):
    def interrupt(epoch):
        if epoch.epoch == 2:
            raise KeyboardInterrupt
        return ""

    (tmp_path / "model.sfm").write_text("of an earlier demo")
    monkeypatch.setattr(module, "_epoch_text", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path, **SMALL)
    assert "5 bins" not in capsys.readouterr().err
    assert [file.read_text() for file in tmp_path.iterdir()] == ["of an earlier demo"]


def test_without_matplotlib_everything_but_the_plot(tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "splinefm.plots.figures")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    result = run_demo(tmp_path, **SMALL, verbose=False)
    assert result["files"]["plot"] is None and sf.load(result["files"]["model"])
    print_demo(result)
    assert "pip install 'splinefm[plots]'" in capsys.readouterr().out


@pytest.mark.usefixtures("empty_plots")
def test_the_plot_has_the_learned_curve_over_the_true_one_in_every_panel(tmp_path, monkeypatch):
    import splinefm.plots.figures as plots

    drawn = []

    def remember(rows, columns):
        figure, panels = make_panels(rows, columns)
        drawn.append((figure, panels))
        return figure, panels

    monkeypatch.setattr(plots, "make_panels", remember)
    table, _ = click_data(2000)
    fitted = sf.fit_model(table, "click", model=SMALL["model"], training=SMALL["training"])
    module._draw(tmp_path / "c.png", {"cubic splines": fitted})
    ((figure, panels),) = drawn
    for segment, panel in zip(SEGMENTS, panels, strict=True):
        truth, learned = panel.get_lines()
        assert np.array_equal(truth.get_ydata(), segment.probability(truth.get_xdata()))
        assert np.array_equal(learned.get_ydata(), fitted.predict(segment.table(learned.get_xdata())))
        assert segment.ad in panel.get_title() and segment.gender in panel.get_title()
    assert panels[4].get_xlabel() == "recency" and panels[0].get_ylabel() == "click probability"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["truth", "cubic splines"]


def test_more_curves_than_colors_are_refused():
    with pytest.raises(ValueError, match="at most 5 curves"):
        lines([0, 1], {str(i): [0, 1] for i in range(len(COLORS) + 1)})
