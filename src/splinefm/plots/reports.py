"""Plots of explanations, training and predictions: importance, pairs, history, study, calibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from splinefm.inspect.importance import Importance
from splinefm.plots.draw.reports import (
    calibration_arrays,
    draw_calibration,
    draw_history,
    draw_importance,
    draw_pairs,
    find_history,
)
from splinefm.plots.draw.study import draw_slice, draw_trials, find_study, searched
from splinefm.plots.figures import Axes, check_count, check_kind, make_wide_and_small_panels, use_axes


def importance(importance: Importance, ax: Axes | None = None, *, most: int = 20) -> Axes:
    """Plot how much each field contributes to the score: mean absolute Shapley values, the largest on top.

    Parameters
    ----------
    importance : Importance
        Made by `sf.importance`.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.
    most : int
        Maximum number of fields to plot. A note gives the number of the others.

    Examples
    --------
    >>> import numpy as np
    >>> found = Importance(("x", "c"), np.array([0.1, 0.7]), np.array([0.1, 0.6]), np.zeros((2, 2)))
    >>> [text.get_text() for text in importance(found).get_yticklabels()]
    ['c', 'x']
    """
    check_kind("importance", importance, Importance, "made by sf.importance")
    check_count("most", most)
    ax = use_axes(ax, lines=min(most, len(importance.fields)))
    draw_importance(ax, importance, most=most)
    return ax


def pairs(importance: Importance, ax: Axes | None = None, *, most: int = 15) -> Axes:
    """Plot how much each pair of fields contributes to the score: standard deviations of pair effects, as a matrix.

    Parameters
    ----------
    importance : Importance
        Made by `sf.importance`, with two or more fields.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.
    most : int
        Maximum number of fields to plot, those with the strongest pairs.

    Examples
    --------
    >>> import numpy as np
    >>> found = Importance(("x", "c"), np.array([0.1, 0.7]), np.array([0.1, 0.6]), np.array([[0.0, 0.2], [0.2, 0.0]]))
    >>> [text.get_text() for text in pairs(found).texts]
    ['0.20']
    """
    check_kind("importance", importance, Importance, "made by sf.importance")
    check_count("most", most, 2)
    ax = use_axes(ax)
    draw_pairs(ax, importance, most=most)
    return ax


def history(history: object, ax: Axes | None = None) -> Axes:
    """Plot training and validation loss by epoch; the best epoch is marked.

    Parameters
    ----------
    history : Fitted, estimator, or sequence of Epoch
        A trained model or its history.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.

    Examples
    --------
    >>> from splinefm.train.settings import Epoch
    >>> ax = history([Epoch(1, 0.7, 0.6, 0.1, 1e6, 1.0), Epoch(2, 0.5, 0.55, 0.1, 1e6, 2.0)])
    >>> [line.get_label() for line in ax.get_lines()]
    ['training', 'validation', 'best: epoch 2, 0.55']
    """
    epochs, title = find_history(history)
    ax = use_axes(ax)
    draw_history(ax, epochs, title)
    return ax


def study(study: object, axes: Sequence[Axes] | None = None) -> list[Axes]:
    """Plot the trials of a search, and the result over each of the settings.

    The first panel shows the value of every trial and the best so far, the others the complete trials by setting. If
    good trials crowd at an edge, a wider space may help. Outliers are triangles at the edge of a panel.

    Parameters
    ----------
    study : Tuned, Fitted, estimator or StudySummary
        The result of `sf.tune`, or a model that it fitted.
    axes : sequence of Axes, optional
        Axes to draw on, one per panel; a single one gets the first panel. By default a new figure is created,
        `axes[0].figure`.

    Examples
    --------
    >>> import splinefm as sf
    >>> from splinefm.train.trials import StudySummary, TrialSummary
    >>> trials = [TrialSummary(i, "complete", 1.0 - 0.1 * i, 20, 0.5, (("k", 2**i),)) for i in range(3)]
    >>> axes = study(StudySummary("y", "RMSE", False, 2, tuple(trials)))
    >>> [ax.get_xlabel() for ax in axes]
    ['trial', 'k']
    """
    found = find_study(study)
    names = searched(found)
    panels = make_wide_and_small_panels(len(names)) if axes is None else [use_axes(ax) for ax in axes]
    if len(panels) not in (1, 1 + len(names)):
        raise ValueError(f"axes must have 1 or {1 + len(names)} elements, one per panel, got {len(panels)}")
    draw_trials(panels[0], found)
    for ax, name in zip(panels[1:], names, strict=False):
        draw_slice(ax, found, name)
    return panels


def calibration(
    y: npt.ArrayLike,
    prediction: npt.ArrayLike,
    ax: Axes | None = None,
    *,
    bins: int = 10,
    sample_weight: npt.ArrayLike | None = None,
) -> Axes:
    """Plot calibration: do events with a predicted probability of 10 % happen in 10 % of the rows?

    Rows are binned by their prediction into bins of equal weight; each is a point at the mean prediction and the mean
    target. The error bars are 90 % intervals: Wilson's for targets of 0 and 1, the mean ± 1.645 standard errors for
    others. A histogram of the predictions is below.

    Parameters
    ----------
    y : array
        Targets.
    prediction : array
        Their predictions: probabilities, means or rates.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.
    bins : int
        Number of bins. Equal predictions share a bin, so there may be fewer.
    sample_weight : array, optional
        Weights of the rows.

    Examples
    --------
    >>> ax = calibration([0, 1, 1, 1], [0.2, 0.4, 0.8, 1.0], bins=2)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('mean prediction', 'mean target')
    """
    check_count("bins", bins)
    target, p, weight = calibration_arrays(y, prediction, sample_weight)
    ax = use_axes(ax)
    draw_calibration(ax, target, p, weight, bins)
    return ax
