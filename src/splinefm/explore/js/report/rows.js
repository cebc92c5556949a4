/** Sections about rows of the data: calibration of groups, and example rows. */

import { el, named } from "../base/dom.js";
import { number, signed } from "../base/format.js";
import { makeTable, scrolling } from "../base/table.js";
import { BarsCard, waterfall } from "../charts/bars.js";
import { PlainCard, domainOf } from "../charts/plain.js";
import {
  capital,
  card,
  cell,
  lead,
  measured,
  note,
  parts,
  percent,
  predicted,
  short,
  whole,
  withCaption,
} from "./text.js";

const MAX_CONTRIBUTIONS = 10;
const MAX_COLUMNS = 50;
const MAX_BY_COLUMN = 40;
const MAX_VALUES = 30;
const MIN_ROWS = 20;
const WIDE = 50; // ratio of predictions from which axes are logarithmic

export function calibrationSection(facts) {
  const { calibration, about } = facts;
  if (!calibration) return note("Calibration compares predictions with a target. Add --target COLUMN to see it.");
  const n = calibration.groups_compared;
  const compared = about.is_quantile
    ? "the quantile minus the share of targets at or below the prediction"
    : "the mean prediction minus the mean target";
  const heads = ["Column", "Values", "Rows", "Predicted", "Measured", "Error", "Deviation"];
  const deviating = calibration.deviating.map((group) => [named(group.column), ...groupCells(group, about)]);
  return parts(
    about.is_quantile ? coveragePlot(calibration.bins, about) : calibrationPlot(calibration.bins, about),
    card(
      "Groups that deviate most",
      lead(
        `Groups of rows with similar values of one column, ${whole(n)} in total. The deviation is ${compared}, in ` +
          `standard errors. By chance alone, about ${(0.05 * n).toFixed(0)} groups would be beyond 2.`,
        "note",
      ),
      scrolling("Groups that deviate most", makeTable(heads, deviating, { sortable: true })),
    ),
    byColumn(calibration.by_column, about),
  );
}

function calibrationPlot(bins, about) {
  const every = ["predicted", "measured", "low", "high"].flatMap((name) => bins[name]);
  const log = d3.min([...bins.predicted, ...bins.measured]) > 0 && d3.max(bins.predicted) > WIDE * d3.min(bins.predicted);
  const positive = every.filter((value) => value > 0);
  const domain = log ? [0.7 * d3.min(bins.predicted), 1.2 * d3.max(positive)] : domainOf(every);
  const text = (value) => predicted(value, about.is_share_compared);
  const plot = new PlainCard("By prediction", { height: 340 });
  const axis = { domain, log, ...(about.is_share_compared && !log ? { ticks: shareTicks } : {}) };
  plot.show({
    x: { ...axis, title: "mean prediction" },
    y: { ...axis, title: "mean target" },
    lines: [{ points: [domain, domain].map(([low, high], i) => (i ? [high, high] : [low, low])), class: "thin" }],
    points: bins.predicted.map((x, i) => ({
      x,
      y: bins.measured[i],
      low: Math.max(domain[0], bins.low[i]),
      high: Math.min(domain[1], bins.high[i]),
      class: "line-0",
    })),
    summary:
      "Mean target over mean prediction in ten groups; overall " + `${text(about.means.y)} and ${text(about.means.p)}`,
    table: {
      columns: ["mean prediction", "mean target", "from", "to"],
      rows: d3.zip(bins.predicted, bins.measured, bins.low, bins.high),
    },
  });
  return withCaption(
    plot,
    "Rows in ten groups by prediction: mean target over mean prediction, with 90 % intervals. " +
      `Overall, the mean target is ${text(about.means.y)} and the mean prediction ${text(about.means.p)}.`,
  );
}

/** The share of targets at or below the prediction, by prediction. */
function coveragePlot(bins, about) {
  const plot = new PlainCard("By prediction", { height: 340 });
  const ends = domainOf(bins.predicted);
  plot.show({
    x: { domain: ends, title: about.predicts },
    y: {
      domain: domainOf([...bins.measured, about.quantile]),
      title: "share of targets up to the prediction (dots), expected (dashes)",
      ticks: shareTicks,
    },
    lines: [
      { points: d3.zip(bins.predicted, bins.measured), class: "line-0" },
      { points: ends.map((x) => [x, about.quantile]), class: "thin" },
    ],
    points: bins.predicted.map((x, i) => ({ x, y: bins.measured[i], class: "line-0" })),
    summary: `Share of targets at or below the prediction in ten groups by prediction, expected ${about.quantile}`,
    table: { columns: [about.predicts, "share of targets up to it"], rows: d3.zip(bins.predicted, bins.measured) },
  });
  return withCaption(plot, "Rows in ten groups by prediction: share of targets at or below the prediction.");
}

function shareTicks(low, high, most) {
  return d3.ticks(low, high, most).map((share) => [share, percent(share)]);
}

function byColumn(columns, about) {
  const deviation = (groups) =>
    groups
      .filter((group) => group.rows >= MIN_ROWS)
      .reduce((worst, group) => (Math.abs(group.deviation) > Math.abs(worst) ? group.deviation : worst), 0);
  const worst = new Map(columns.map((one) => [one.column, deviation(one.groups)]));
  const listed = new Set(
    [...worst.keys()].sort((a, b) => Math.abs(worst.get(b)) - Math.abs(worst.get(a))).slice(0, MAX_COLUMNS),
  );
  const heads = ["Values", "Rows", "Predicted", "Measured", "Error", "Deviation"];
  const details = columns
    .filter((one) => listed.has(one.column))
    .map(({ column, groups }) => {
      const kept = new Set([...groups.keys()].sort((i, j) => groups[j].rows - groups[i].rows).slice(0, MAX_BY_COLUMN));
      const rows = groups.filter((_, i) => kept.has(i)).map((group) => groupCells(group, about));
      return el(
        "details",
        {},
        el(
          "summary",
          {},
          named(column),
          el("span", { class: "note" }, ` largest deviation ${signed(worst.get(column), 2)}`),
        ),
        scrolling(`Groups by ${column}`, makeTable(heads, rows, { sortable: true })),
        groups.length > rows.length
          ? lead(`The ${rows.length} largest of ${whole(groups.length)} groups.`, "note")
          : null,
      );
    });
  const more = columns.length > listed.size;
  return card(
    "By column",
    details,
    more ? lead(`The ${listed.size} columns that deviate most, of ${columns.length}.`, "note") : null,
  );
}

function groupCells(group, about) {
  const text = (value) => predicted(value, about.is_share_compared || about.is_quantile);
  const withSign = (value) => `${value > 0 ? "+" : ""}${value.toFixed(1)}`.replace("-", "−");
  const error = group.error === null ? "–" : `${withSign(100 * group.error)}%`;
  return [
    named(group.group),
    cell(whole(group.rows), group.rows),
    cell(text(group.predicted), group.predicted),
    cell(text(group.measured), group.measured),
    cell(error, group.error),
    cell(withSign(group.deviation), group.deviation),
  ];
}

export function rowsSection(facts) {
  const base = number(facts.base);
  return parts(
    facts.importance
      ? lead(
          `Exact Shapley values in ${facts.unit}: the contribution of each field to the difference between the score ` +
            `of the row and the average, ${base}.`,
        )
      : note(facts.not_available),
    el(
      "div",
      { class: "grid two" },
      facts.examples.map((example) => exampleCard(example, facts)),
    ),
  );
}

function exampleCard(example, facts) {
  const { about } = facts;
  const target = example.target === null ? "" : `, measured ${measured(example.target, about.classes)}`;
  const text = `Row ${whole(example.row + 1)}: predicted ${predicted(example.prediction, about.is_share)}${target}`;
  if (!Object.keys(example.shapley).length) {
    const rows = Object.entries(example.values)
      .slice(0, MAX_VALUES)
      .map((pair) => pair.map((one) => named(one)));
    return card(capital(example.title), lead(text, "note"), scrolling(text, makeTable(["Field", "Value"], rows)));
  }
  const label = (name) => (example.values[name] ? `${short(name)} = ${short(example.values[name])}` : short(name));
  const { bars, end, rows } = waterfall(facts.base, example.shapley, MAX_CONTRIBUTIONS + 1, label);
  const plot = new BarsCard(capital(example.title));
  plot.show({
    bars: [
      { name: "average", from: facts.base, to: facts.base, class: "total", text: number(facts.base) },
      ...bars,
      { name: "this row", from: end, to: end, class: "total", text: number(end) },
    ],
    waterfall: true,
    title: text,
    xTitle: facts.unit,
    table: { columns: ["field", "Shapley value"], rows: [["average", facts.base], ...rows, ["this row", end]] },
  });
  const more = signed(end - facts.base, 4);
  return withCaption(plot, `Average ${number(facts.base)}, contributions ${more}, score ${number(end)}`);
}
