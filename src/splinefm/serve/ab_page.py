"""The page of `splinefm ab report`: one HTML text, with plots as SVG, no scripts, and nothing to load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, NamedTuple

import numpy as np

from splinefm.serve.ab import ArmFigures, Difference, Interval, Report

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 230, 74, 12, 10, 28
_N_COLORS = 5
_STYLE = """
:root { color-scheme: light dark; --ink: #1b2430; --muted: #5a6675; --page: #f6f7f9; --card: #fff; --line: #dfe4ea;
  --c0: #0067a8; --c1: #c2480a; --c2: #00795a; --c3: #a64d82; --c4: #7a6400; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf2; --muted: #9fabba; --page: #12161c; --card: #1a2029;
  --line: #2c3542; --c0: #5db4f2; --c1: #f2995c; --c2: #4cc9a0; --c3: #e09bc4; --c4: #d9c14a; } }
body { margin: 0 auto; max-width: 800px; padding: 20px; background: var(--page); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
h1 { font-size: 18px; } h2 { font-size: 15px; margin: 0 0 6px; } p { margin: 4px 0; } .muted { color: var(--muted); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 9px; padding: 14px; margin: 14px 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: 3px 8px; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } svg { width: 100%; height: auto; }
svg text { fill: var(--muted); font-size: 11px; } .grid { stroke: var(--line); } .zero { stroke: var(--ink); }
.line { fill: none; stroke-width: 2; } .band { opacity: 0.18; } .dashed { stroke-dasharray: 4 3; }
"""
_COLORS = "".join(
    f".s{i} {{ stroke: var(--c{i}); }} .f{i} {{ fill: var(--c{i}); color: var(--c{i}); }}\n" for i in range(_N_COLORS)
)


class Series(NamedTuple):
    """A line of a plot, by hour, with a band around it."""

    name: str
    color: int
    points: dict[str, Interval]
    is_dashed: bool = False


def ab_page(report: Report, about: str) -> str:
    """Render a report as a page.

    Parameters
    ----------
    report : Report
        What `ab_report` returned.
    about : str
        What was compared: the folder of the log and the settings.

    Examples
    --------
    >>> ab_page(Report([], [], 0, []), "an empty log").count("<section>")
    1
    """
    sections = [_arms(report)]
    if report.differences:
        sections.insert(0, _comparison(report))
    if len({item.hour for item in report.figures}) > 2:  # several, and all
        sections.append(_hours(report))
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<title>A/B report</title>\n<link rel="icon" href="data:,">\n<style>{_STYLE}{_COLORS}</style>',
            f'</head>\n<body>\n<h1>A/B report</h1>\n<p class="muted">{escape(about)}</p>',
            *(f"<section>{section}</section>" for section in sections),
            "</body>\n</html>\n",
        ]
    )


def verdict(item: Difference) -> str:
    """What a difference says so far.

    Examples
    --------
    >>> verdict(Difference("new", "old", 900, Interval(0.02, 0.01, 0.03), 0.0))
    'new has a higher mean outcome than old'
    """
    if item.difference.low > 0.0:
        return f"{item.arm} has a higher mean outcome than {item.base}"
    if item.difference.high < 0.0:
        return f"{item.arm} has a lower mean outcome than {item.base}"
    return f"{item.arm} and {item.base} are not told apart yet"


def _comparison(report: Report) -> str:
    lines = ["<h2>Differences of the mean outcome</h2>"]
    for item in report.differences:
        explained = f"; outcomes before the test explain {item.reduction:.0%} of the variance" if item.reduction else ""
        text = f"{_signed(item.difference)} per row, {item.keys:,} keys{explained}"
        lines.append(f"<p><strong>{escape(verdict(item))}.</strong> {escape(f'{item.arm} - {item.base}')}: {text}.</p>")
    by_arm: dict[str, dict[str, Interval]] = {}
    for item in report.history:
        by_arm.setdefault(item.arm, {})[item.hour] = item.difference
    series = [Series(f"{arm} - {report.differences[0].base}", i, by_arm[arm]) for i, arm in enumerate(by_arm)]
    lines.append(_plot(series, "Difference by the end of each hour", has_zero=True))
    lines.append(
        '<p class="muted">The band is a confidence sequence: it holds the true difference at all times at once. '
        "You may look whenever you like, and stop when 0 is outside.</p>"
    )
    return "".join(lines)


def _arms(report: Report) -> str:
    header = ["arm", "rows", "outcomes", "predicted", "measured", "predicted / measured - 1"]
    rows = [_cells(item) for item in report.figures if item.hour == "all"]
    text = "<h2>Arms</h2>" + _table(header, rows)
    if report.unmatched:
        text += f"<p>{report.unmatched:,} outcomes are of no prediction in this log.</p>"
    return text


def _hours(report: Report) -> str:
    by_arm: dict[str, list[ArmFigures]] = {}
    for item in report.figures:
        if item.hour != "all" and not item.shadow:
            by_arm.setdefault(item.arm, []).append(item)
    measured, ratios = [], []
    for i, (arm, items) in enumerate(by_arm.items()):
        measured.append(Series(f"{arm}, measured", i, {item.hour: item.measured for item in items}))
        predicted = {item.hour: Interval(item.predicted, math.nan, math.nan) for item in items}
        measured.append(Series(f"{arm}, predicted", i, predicted, is_dashed=True))
        ratios.append(Series(arm, i, {item.hour: item.ratio for item in items if math.isfinite(item.ratio.value)}))
    header = ["hour (UTC)", "arm", "rows", "outcomes", "predicted", "measured", "predicted / measured - 1"]
    rows = [[item.hour, *_cells(item)] for item in report.figures if item.hour != "all"]
    return (
        "<h2>By hour</h2><p>Mean outcome and mean prediction</p>"
        + _plot(measured, "Mean outcome and mean prediction by hour")
        + "<p>Predicted / measured - 1</p>"
        + _plot(ratios, "Predicted / measured - 1 by hour", has_zero=True)
        + f"<details><summary>All figures</summary>{_table(header, rows)}</details>"
    )


def _cells(item: ArmFigures) -> list[str]:
    name = f"{item.arm} (shadow)" if item.shadow else item.arm
    ratio = _signed(item.ratio) if math.isfinite(item.ratio.value) else "no outcomes"
    sizes = [f"{item.rows:,}", f"{item.outcomes:,.6g}"]
    return [name, *sizes, f"{item.predicted:.4g}", _text(item.measured, ".4g"), ratio]


def _text(item: Interval, form: str) -> str:
    if not math.isfinite(item.low):
        return format(item.value, form)
    return f"{item.value:{form}} ({item.low:{form}} to {item.high:{form}})"


def _signed(item: Interval) -> str:
    return _text(item, "+.3g")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


# Plots


def _plot(series: Sequence[Series], title: str, *, has_zero: bool = False) -> str:
    """Lines with bands over the hours; the range is that of the lines, with as much again for bands."""
    hours = sorted({hour for each in series for hour in each.points})
    values = np.array([item.value for each in series for item in each.points.values()] + [0.0] * has_zero)
    if not hours:
        return ""
    ends = [end for each in series for item in each.points.values() for end in (item.low, item.high)]
    known = np.array([end for end in ends if math.isfinite(end)] or [0.0])
    spread = float(np.ptp(values)) or abs(float(values[0])) or 1.0
    low = max(min(known.min(), values.min()), values.min() - 2.0 * spread)
    high = min(max(known.max(), values.max()), values.max() + 2.0 * spread)
    margin = 0.04 * (high - low) or 0.5 * spread
    low, high = low - margin, high + margin
    times = {hour: datetime.strptime(hour, "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp() for hour in hours}
    first, length = times[hours[0]], (times[hours[-1]] - times[hours[0]]) or 1.0

    def at(hour: str, value: float) -> tuple[float, float]:
        share = (min(max(value, low), high) - low) / (high - low)
        x = _LEFT + (times[hour] - first) / length * (_WIDTH - _LEFT - _RIGHT)
        return round(x, 1), round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)

    parts = [_axes(low, high, hours, at)]
    if has_zero:
        y = at(hours[0], 0.0)[1]
        parts.append(f'<line class="zero" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
    parts += [_band(each, at) for each in series] + [_line(each, at) for each in series]
    legend = "".join(
        f'<span class="f{s.color % _N_COLORS}">■</span> {escape(s.name)} ' for s in series if not s.is_dashed
    )
    note = " (dashed: predicted)" if any(each.is_dashed for each in series) else ""
    picture = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    return f'{picture}<p class="muted">{legend}{note}</p>'


def _axes(low: float, high: float, hours: Sequence[str], at: Any) -> str:
    step = 10.0 ** math.floor(math.log10((high - low) / 3.0))
    step *= next(factor for factor in (5.0, 2.0, 1.0) if factor * step <= (high - low) / 2.0)
    parts = []
    for i in range(math.ceil(low / step), math.floor(high / step) + 1):
        y = at(hours[0], i * step)[1]
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{i * step:.6g}</text>')
    for hour, anchor in {hours[0]: "start", hours[-1]: "end"}.items():
        x = at(hour, low)[0] if len(hours) > 1 or anchor == "start" else _LEFT
        parts.append(f'<text x="{x}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{escape(hour)} UTC</text>')
    return "".join(parts)


def _band(series: Series, at: Any) -> str:
    color, hours = series.color % _N_COLORS, [h for h in sorted(series.points) if math.isfinite(series.points[h].low)]
    upper, lower = ([at(hour, getattr(series.points[hour], end)) for hour in hours] for end in ("high", "low"))
    if len(hours) != 1:
        return f'<polygon class="band f{color}" points="{_points([*upper, *reversed(lower)])}"/>' if hours else ""
    (x, top), (_, bottom) = *upper, *lower  # an hour has no width
    return f'<line class="s{color}" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'


def _line(series: Series, at: Any) -> str:
    color, points = series.color % _N_COLORS, [at(hour, series.points[hour].value) for hour in sorted(series.points)]
    if series.is_dashed:
        return f'<polyline class="line dashed s{color}" points="{_points(points)}"/>'
    circles = "".join(f'<circle class="f{color}" cx="{x}" cy="{y}" r="3"/>' for x, y in points)
    return f'<polyline class="line s{color}" points="{_points(points)}"/>{circles}'


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)
