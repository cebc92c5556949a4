"""Tables and figures of the synthetic experiment, from its results alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper.harness import Json, Results, bootstrap_band, markdown_table, mean_sd
from paper.synthetic.data import SEGMENTS
from splinefm.plots import figures
from splinefm.plots.curves import COLORS

FloatArray = npt.NDArray[np.float64]

# Printed by the authors' notebook: by knots, the mean test loss of bins and of cubic splines over 15 runs.
PAPER = {
    5: (0.35089, 0.34883),
    6: (0.34926, 0.34849),
    7: (0.34937, 0.34880),
    9: (0.34928, 0.34810),
    11: (0.34943, 0.34906),
    13: (0.34933, 0.34834),
    16: (0.34898, 0.34854),
    20: (0.34944, 0.34894),
    24: (0.34910, 0.34864),
    30: (0.34934, 0.34884),
    36: (0.34928, 0.34916),
    44: (0.35006, 0.34942),
    54: (0.35018, 0.34983),
    66: (0.35049, 0.34963),
    80: (0.35137, 0.34994),
}
PAPER_OPTIMAL = 0.347628  # of the true probabilities, there
PAPER_PANELS = {"4 bins": 0.3474, "11 bins": 0.3442, "119 bins": 0.3478, "6 knots": 0.3432}
# The arms of the figure, and the controls: what the library's training does without a choice of smoothness.
ARMS = {"bins": "bins", "splines": "cubic splines", "chosen": "splines with smoothness"}
CONTROLS = {
    "library bins": "bins, library",
    "smoothness 0": "splines, library",
    "smoothness 0.01": "default smoothness",
}


class Sweep:
    """The losses of the sweep as arrays: one row per number of knots, one column per repetition."""

    def __init__(self, results: Results) -> None:
        settings = results.settings
        rows = {
            knots: [
                results.units[name]
                for repetition in range(settings["repetitions"])
                if (name := f"sweep {knots} knots, repetition {repetition}") in results.units
            ]
            for knots in settings["knots"]
        }
        # Runs that were interrupted are reported as far as all numbers of knots have the same repetitions.
        self.repetitions = min(len(row) for row in rows.values())
        self.knots = list(rows)
        self.units = [row[: self.repetitions] for row in rows.values()]
        self.optimal = np.array([[unit["optimal"] for unit in row] for row in self.units])

    def losses(self, arm: str) -> FloatArray:
        """Test losses of an arm."""
        return np.array([[unit["test_loss"][arm] for unit in row] for row in self.units])

    def gaps(self, arm: str) -> FloatArray:
        """Test loss minus that of the true probabilities on the same rows, in units of 10⁻⁵."""
        return np.asarray(1e5 * (self.losses(arm) - self.optimal))

    def chosen(self) -> list[float]:
        """The median of the chosen smoothness for each number of knots."""
        return [sorted(unit["chosen"] for unit in row)[len(row) // 2] for row in self.units]


def report(results: Results, folder: Path) -> str:
    """Return the section of the report; draw the figures into `folder`."""
    panels = {name: unit for name, unit in results.units.items() if name.startswith("curves")}
    parts = [_introduction(results.settings)]
    if panels:
        draw_panels(panels, folder / "curves.png")
        parts += ["![learned curves](curves.png)", _panel_table(panels)]
    sweep = Sweep(results)
    if sweep.repetitions:
        draw_sweep(sweep, folder / "sweep.png")
        parts += ["![test loss by number of knots](sweep.png)", _findings(sweep)]
        parts += [_loss_table(sweep), _gap_table(sweep)]
    if "timing" in results.units:
        parts.append(_seconds(results.units["timing"]))
    return "\n\n".join([*parts, _differences(results.settings)])


def _introduction(settings: Json) -> str:
    return (
        f"Eight known curves of click probability in recency, one for each age, gender and ad. An FFM (k = "
        f"{settings['k']}) learns them from {settings['train_rows']:,} rows; the other "
        f"{settings['rows'] - settings['train_rows']:,} are the test part. n knots are n − 1 bins, or n − 1 pieces of "
        "a cubic spline."
    )


def _panel_table(panels: dict[str, Json]) -> str:
    rows = [
        (_short(name), PAPER_PANELS.get(_short(name)), f"{unit['test_loss']:.4f}", f"{unit['optimal']:.4f}")
        for name, unit in sorted(panels.items(), key=lambda item: -item[1]["test_loss"])
    ]
    return "Test loss of the panels (one fit each):\n\n" + markdown_table(
        ["", "paper", "ours", "true probabilities, on our test part"], rows
    )


def _findings(sweep: Sweep) -> str:
    bins, splines, chosen = (sweep.gaps(arm) for arm in ARMS)
    below, n_knots = int((splines.mean(1) < bins.mean(1)).sum()), len(sweep.knots)
    lines = [
        f"- Cubic splines are below bins at {below} of {n_knots} numbers of knots, and in "
        f"{(splines < bins).mean():.0%} of the {bins.size} pairs of fits on the same split.",
        *(f"- {_rise(name, sweep, sweep.gaps(arm))}" for arm, name in ARMS.items()),
        f"- At most {chosen.mean(1).max():.0f} · 10⁻⁵ above the true probabilities with smoothness, whatever the "
        f"number of knots; splines without: {splines.mean(1).max():.0f}, bins: {bins.mean(1).max():.0f}.",
    ]
    return "\n".join(lines)


def _rise(name: str, sweep: Sweep, gaps: FloatArray) -> str:
    means = gaps.mean(1)
    best = int(means.argmin())
    low, high = bootstrap_band(gaps[-1] - gaps[best])
    return (
        f"{name[0].upper()}{name[1:]}: best with {sweep.knots[best]} knots, {means[best]:.0f} · 10⁻⁵ above the true "
        f"probabilities; {means[-1] - means[best]:.0f} (90 % interval {low:.0f} to {high:.0f}) more with "
        f"{sweep.knots[-1]} knots."
    )


def _loss_table(sweep: Sweep) -> str:
    losses = {arm: sweep.losses(arm) for arm in ARMS}
    rows = []
    for at, knots in enumerate(sweep.knots):
        ours = {arm: "{:.5f} ({:.5f})".format(*mean_sd(values[at])) for arm, values in losses.items()}
        paper = [f"{value:.5f}" for value in PAPER[knots]] if knots in PAPER else [None, None]
        rows.append((knots, paper[0], ours["bins"], paper[1], ours["splines"], ours["chosen"]))
    header = ["knots", "bins, paper", "bins, ours", "splines, paper", "splines, ours", "with smoothness, ours"]
    optimal = "{:.5f} ({:.5f})".format(*mean_sd(sweep.optimal[0]))
    return (
        f"Test loss, mean (standard deviation) of {sweep.repetitions} repetitions. The true probabilities have "
        f"{optimal} on our test parts, and {PAPER_OPTIMAL:.5f} on the authors' labels.\n\n"
        + markdown_table(header, rows)
    )


def _gap_table(sweep: Sweep) -> str:
    gaps = {arm: sweep.gaps(arm) for arm in [*ARMS, *CONTROLS]}
    rows = []
    for at, (knots, smoothness) in enumerate(zip(sweep.knots, sweep.chosen(), strict=True)):
        ours = ["{:.0f} ± {:.0f}".format(*mean_sd(values[at])) for values in gaps.values()]
        paper = [f"{1e5 * (value - PAPER_OPTIMAL):.0f}" for value in PAPER[knots]] if knots in PAPER else [None, None]
        rows.append((knots, *paper, *ours, f"{smoothness:g}"))
    header = ["knots", "paper, bins", "paper, splines", *ARMS.values(), *CONTROLS.values(), "chosen (median)"]
    return (
        "The same as a distance to the true probabilities on the same test rows, in 10⁻⁵, mean ± standard deviation: "
        "most of the spread above is that of the test parts. The three columns before the last are controls: the "
        "library's training (AdamW, best epoch by validation, moving average) without smoothness for bins and splines, "
        "and with its default smoothness, untuned.\n\n" + markdown_table(header, rows)
    )


def _seconds(unit: Json) -> str:
    best = unit["best"]
    return (
        f"Seconds per fit on one core with {unit['knots']} knots, the best of five: {best['bins']:.2f} (bins) and "
        f"{best['splines']:.2f} (splines) as the authors train, {best['library bins']:.2f} (bins) and "
        f"{best['library splines']:.2f} (splines with the default smoothness) by the library."
    )


def _differences(settings: Json) -> str:
    grid = ", ".join(f"{value:g}" for value in settings["smoothness"])
    return "\n".join(
        [
            "Where the protocol differs:",
            "",
            "- Recencies and segments are drawn as the authors do, with their seed. Labels come from NumPy instead of "
            "torch, so they differ. The authors redraw the split for every fit; here all arms and numbers of knots "
            "share the splits and seeds of a repetition.",
            "- Bins and splines are trained as the authors do (Adagrad, constant learning rate, L2, six epochs without "
            "shuffling, last epoch). Their feature values of ½ are replaced by an equivalent learning rate, "
            "initialization and decay. Decay applies to the features that are active in a batch, and the bias learns "
            "at half their rate, without decay. Boundary knots are not repeated, which spans the same splines.",
            f"- “With smoothness” is the library's training, which the controls use as well. Smoothness is one of "
            f"{grid}, chosen by the loss on {settings['validation']:.0%} of the training rows; the model is then refit "
            "on all of them, as many rows as the other arms have.",
            "- The paper's figure says 5, 12 and 120 bins; the authors' code has 4, 11 and 119.",
        ]
    )


def draw_panels(panels: dict[str, Json], path: Path) -> None:
    """A panel for each basis: the true curves of all segments, and what was learned."""
    figure, axes = figures.make_panels(2, 2)
    figure.set_size_inches(8.0, 5.6)
    fine = np.linspace(0.0, 40.0, 400)
    for (name, unit), ax in zip(sorted(panels.items(), key=lambda item: _order(item[0])), axes, strict=False):
        recency = np.linspace(0.0, 40.0, len(unit["curves"][0]))
        for segment, curve in zip(SEGMENTS, unit["curves"], strict=True):
            (true,) = ax.plot(fine, segment.probability(fine), color=COLORS[0], linewidth=1.0)
            (learned,) = ax.plot(recency, curve, color=COLORS[1], linewidth=0.8)
        ax.set_title(f"{_short(name)}, test loss {unit['test_loss']:.4f}")
        ax.set_xlabel("recency")
        ax.set_ylabel("click probability")
    axes[0].legend([true, learned], ["true", "learned"])
    figure.savefig(path, dpi=80)


def draw_sweep(sweep: Sweep, path: Path) -> None:
    """Test loss by number of knots with 90 % bands, as it is and as a distance to the true probabilities."""
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax in axes:
        ax.set_xscale("log")
        ax.set_xticks([], minor=True)
        ax.set_xticks(sweep.knots[:: max(1, len(sweep.knots) // 7)])
        ax.get_xaxis().set_major_formatter("{x:.0f}")
        ax.set_xlabel("knots")
    for color, (arm, name) in zip(COLORS, ARMS.items(), strict=False):
        _draw_band(axes[0], sweep.knots, sweep.losses(arm), color, name)
        _draw_band(axes[1], sweep.knots, sweep.gaps(arm), color, name)
    axes[0].axhline(sweep.optimal[0].mean(), color=COLORS[4], linestyle=":", label="true probabilities")
    axes[0].set_ylabel("test loss")
    known = [knots for knots in sweep.knots if knots in PAPER]
    for column, color in enumerate(COLORS[:2]):
        gaps = [1e5 * (PAPER[knots][column] - PAPER_OPTIMAL) for knots in known]
        name = f"{list(ARMS.values())[column]}, paper"
        axes[1].plot(known, gaps, "x", color=color, markersize=5.0, label=name)
    axes[1].set_ylim(bottom=0.0)
    axes[1].set_ylabel("above the true probabilities, 10⁻⁵")
    for ax in axes:
        ax.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _draw_band(ax: Axes, x: list[int], values: FloatArray, color: Any, name: str) -> None:
    """Means over repetitions, and a band of their bootstrap intervals."""
    low, high = np.array([bootstrap_band(row) for row in values]).T
    ax.plot(x, values.mean(1), color=color, label=name)
    ax.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0.0)


def _short(name: str) -> str:
    return name.removeprefix("curves ")


def _order(name: str) -> tuple[bool, int]:
    """Bins before splines, few before many."""
    return "knots" in name, int(_short(name).split()[0])
