"""What a model does on a table, as facts and as one page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from splinefm._files import check_destination, check_writable, replacing
from splinefm.encode.tables.open import refuse_overwriting
from splinefm.fit.evaluation import Measured, measure
from splinefm.inspect.values import number_or_none, numbers
from splinefm.plots.files import import_plots
from splinefm.plots.reliability import Calibration, calibration_bins
from splinefm.report.effects import Effects, find_effects
from splinefm.report.survey import MIN_ROWS, NOTHING, FieldTally, Survey, ValueGroup, largest, survey
from splinefm.store.description import describe_fields, describe_fit, describe_validation, one_class
from splinefm.store.model_file import load
from splinefm.train.fitted import Fitted
from splinefm.train.progress import Progress, make_progress

PAGE = "index.html"
CALIBRATION_BINS, MAX_GROUPS, MAX_BY_COLUMN = 10, 15, 100
"""Number of prediction bins, and maximum number of deviating groups and of groups per column."""


@dataclass(frozen=True)
class ExplainRequest:
    """What the user asked for.

    Parameters
    ----------
    model, data
        The model file and the table.
    out : Path, optional
        The folder of the page. Without it, no page is written.
    target, weight : str, optional
        Columns of the table.
    sample : int
        Maximum number of rows to explain.
    threads : int, optional
        All cores by default.
    sep : str, optional
        Column separator of CSV files.
    class_name : str, optional
        One of more than two classes, as text.
    """

    model: Path
    data: str
    out: Path | None = None
    target: str | None = None
    weight: str | None = None
    sample: int = 10_000
    threads: int | None = None
    sep: str | None = None
    class_name: str | None = None


@dataclass(frozen=True, eq=False)
class Explanation:
    """The content of the page.

    Parameters
    ----------
    request : ExplainRequest
        What the user asked for.
    fitted : Fitted
        The model.
    survey : Survey
        The result of a pass over the data.
    effects : Effects
        The effects of the fields.
    metrics : list of Measured
        Empty without a target.
    deviating : list of ValueGroup
        Groups of rows whose mean prediction and mean target differ most, in standard errors.
    n_groups : int
        Number of compared groups.
    """

    request: ExplainRequest
    fitted: Fitted
    survey: Survey
    effects: Effects
    metrics: list[Measured]
    deviating: list[ValueGroup]
    n_groups: int

    def fields(self) -> list[dict[str, Any]]:
        """One dict per field."""
        starved, tallies = self._starved(), {tally.item.name: tally for tally in self.survey.tallies}
        return [
            {
                **described,
                **_shares(self, f, tallies.get(described["name"])),
                "starved": starved.get(described["name"], 0),
            }
            for f, described in enumerate(describe_fields(self.fitted))
        ]

    def calibration(self) -> dict[str, Any] | None:
        """Mean predictions and targets by prediction bin, and deviating groups; None without a target."""
        bins = self.bins()
        if bins is None:
            return None
        columns = [{"column": name, "groups": groups} for name, groups in self._groups()]
        return {
            "bins": {name: numbers(values) for name, values in bins._asdict().items()},
            "deviating": [_group(group) for group in self.deviating],
            "groups_compared": self.n_groups,
            "by_column": columns,
        }

    def bins(self) -> Calibration | None:
        """Bins of predictions with what was measured in them: mean targets, or coverage for a quantile."""
        y, loss = self.survey.y, self.survey.loss
        if y is None:
            return None
        p = loss.predict(self.survey.judged)
        return calibration_bins(loss.compared(y, p)[1], p, self.survey.weight, CALIBRATION_BINS)

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain lists, dicts, strings and numbers."""
        fitted, found = self.fitted, self.survey
        return {
            "model": {
                "file": str(self.request.model),
                "kind": type(fitted.model).__name__,
                **asdict(fitted.model),
                **describe_fit(fitted),
            },
            "data": {
                "file": self.request.data,
                "rows": found.n_rows,
                "sample_rows": found.sample.num_rows,
                "target": self.request.target,
                "weight": self.request.weight,
                "other_columns": found.other_columns,
            },
            "metrics": {metric.name.lower().replace(" ", "_"): number_or_none(metric.value) for metric in self.metrics},
            "validation": describe_validation(fitted),
            "history": [epoch._asdict() for epoch in fitted.history],
            "fields": self.fields(),
            **self.effects.to_dict(),
            "calibration": self.calibration(),
        }

    def _groups(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for tally in self.survey.tallies:
            yield tally.item.name, [_group(group) for group in largest(tally.groups(), MAX_BY_COLUMN)]

    def _starved(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for share in self.fitted.encoder.starvation().functions:
            counts[share.field] = counts.get(share.field, 0) + share.starved
        return counts


def explain_file(request: ExplainRequest, verbose: bool = False) -> dict[str, Any]:
    """Explain a model on a table: return the facts, and write the page if a folder is given."""
    begin = time.perf_counter()
    page = None if request.out is None else _check_out(request.out, request)
    with make_progress(verbose) as progress:
        explanation = make_explanation(request, progress)
        facts = explanation.to_dict()
        if page is not None:
            from splinefm.report.page import render

            content = render(explanation, progress).encode()
            page.parent.mkdir(parents=True, exist_ok=True)
            with replacing(check_destination(page)) as file:
                file.write(content)
            facts |= {"page": str(page), "page_bytes": len(content)}
    return {**facts, "seconds": round(time.perf_counter() - begin, 3)}


def make_explanation(request: ExplainRequest, progress: Progress) -> Explanation:
    """Compute everything that the page shows."""
    progress.begin("reading the model")
    whole = load(request.model)
    fitted = one_class(whole, request.class_name, "explain")
    output = None if fitted.loss.of_class is None else (whole.classes or ()).index(fitted.loss.of_class)
    columns = (request.data, request.target, request.weight)
    found = survey(whole, *columns, request.sample, request.threads, progress, request.sep, output)
    metrics, deviating, n_groups = [], [], 0
    if found.y is not None:
        metrics = list(measure(found.loss, found.y, found.judged, found.weight))
        groups = [group for tally in found.tallies for group in tally.groups() if group.rows >= MIN_ROWS]
        deviating = sorted(groups, key=lambda group: -abs(group.deviation))[:MAX_GROUPS]
        n_groups = len(groups)
    effects = find_effects(fitted, found, request.target, request.threads, progress)
    return Explanation(request, fitted, found, effects, metrics, deviating, n_groups)


def _check_out(out: Path, request: ExplainRequest) -> Path:
    """The page to write; raise before the work, not after it, if it cannot be written."""
    if out.suffix.lower() in (".html", ".htm"):
        raise ValueError(f"--out {str(out)!r} must be a folder; the page in it will be {PAGE}")
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out {str(out)!r} is a file; give a folder")
    if not out.exists() and not out.resolve().parent.is_dir():
        raise FileNotFoundError(f"--out {str(out)!r}: no folder {str(out.resolve().parent)!r}; create it first")
    page = out / PAGE
    check_writable(page if out.exists() else out)
    refuse_overwriting(page, request.model, request.data)
    import_plots()
    return page


def _shares(explanation: Explanation, f: int, tally: FieldTally | None) -> dict[str, Any]:
    """Shares of missing and other values, in the data and in training; none for a cross, whose columns have them."""
    encoder = explanation.fitted.encoder
    found, n = {} if tally is None else tally.token_rows(), explanation.survey.n_rows
    tokens = [] if tally is None else tally.tokens
    trained = dict(zip(tokens, encoder.feature_counts[f].tolist(), strict=False))
    special = [name for name in tokens if name not in ("missing", "rare") and not name.startswith("bucket ")]
    return {
        "missing": found.get("missing", 0) / n,
        "missing_in_training": trained.get("missing", 0.0) / encoder.n_rows,
        "special_values": {name: found[name] / n for name in special},
        "rare_or_unseen": found.get("rare", 0) / n,
        "without_category": found.get(NOTHING, 0) / n,
    }


def _group(group: ValueGroup) -> dict[str, Any]:
    return {
        "column": group.column,
        "group": group.name,
        "rows": group.rows,
        "predicted": number_or_none(group.predicted),
        "measured": number_or_none(group.measured),
        "error": number_or_none(group.error),
        "deviation": group.deviation,
    }
