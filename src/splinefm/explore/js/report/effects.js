/** Sections about effects: importance, pairs and triples, curves and surfaces. */

import { el, named } from "../base/dom.js";
import { number } from "../base/format.js";
import { makeTable, scrolling } from "../base/table.js";
import { BarsCard } from "../charts/bars.js";
import { CurveCard } from "../charts/curve.js";
import { HeatCard } from "../charts/heat.js";
import { domainOf } from "../charts/plain.js";
import { capital, card, cell, lead, note, parts, predicted, short, whole, withCaption } from "./text.js";

const MAX_LISTED = 10;
const MAX_BARS = 20;
const MAX_DOTS = 800;

export function importanceSection(facts) {
  const found = facts.importance;
  if (!found) return note(facts.not_available);
  const top = d3.max(found.fields, (one) => one.shapley) || 1;
  const rows = found.fields.map((one) => [
    named(one.name),
    shareBar(one.shapley / top),
    cell(number(one.shapley, 3), one.shapley),
    cell(number(one.main_effect, 3), one.main_effect),
  ]);
  const heads = ["Field", "", "Mean |Shapley value|", "Main effect"];
  return parts(
    lead(
      `In ${facts.unit}, on ${whole(found.rows)} rows. The mean absolute Shapley value is how far a field moves the ` +
        "score of a row from the average, up or down. The main effect is the standard deviation of the field's effect " +
        "alone. A field with a small main effect matters through its interactions.",
    ),
    card(null, scrolling("Importance of fields", makeTable(heads, rows, { sortable: true }))),
    facts.matrix && found.pairs.length ? pairs(facts) : null,
    found.triples.length ? triples(found.triples) : null,
  );
}

function shareBar(share) {
  const node = el("span", { class: "share" });
  node.style.setProperty("width", `${(100 * share).toFixed(1)}%`);
  return el("span", { class: "rail" }, node);
}

function pairs({ importance, matrix }) {
  const side = { name: "", kind: "categorical" };
  const heat = new HeatCard("Pairs of fields", (a, b) => draw(a, b), { height: 380 });
  const draw = (a, b) =>
    heat.show({
      a: side,
      b: side,
      x: matrix.fields,
      y: matrix.fields,
      z: Float64Array.from(matrix.effects),
      at: [a, b],
      even: [false, false],
      kind: "heat",
      title: a === null ? "pair effect (standard deviation)" : `${short(a)} × ${short(b)}`,
      value: a === null ? NaN : matrix.effects[matrix.fields.indexOf(b) * matrix.fields.length + matrix.fields.indexOf(a)],
    });
  draw(null, null);
  const [strongest] = importance.pairs;
  heat.plot.setAttribute(
    "aria-description",
    `Effects of pairs of fields; the strongest is ${strongest.fields.join(" with ")}, ${number(strongest.effect, 3)}`,
  );
  const text = "Standard deviation of the joint effect of two fields, beyond the effect of each alone.";
  const fewer = importance.fields.length - matrix.fields.length;
  return el(
    "div",
    { class: "grid two" },
    withCaption(heat, fewer > 0 ? `${text} ${whole(fewer)} fields with weaker pairs are not shown.` : text),
    card(
      "Strongest pairs",
      scrolling("Strongest pairs", makeTable(["Field", "and", "Pair effect"], joint(importance.pairs))),
    ),
  );
}

function triples(found) {
  return card(
    "Strongest triples",
    scrolling("Strongest triples", makeTable(["Field", "and", "and", "Triple effect"], joint(found))),
    lead(
      "Standard deviation of the joint effect of three fields, beyond the effects of each alone and of each pair.",
      "note",
    ),
  );
}

function joint(found) {
  return found
    .slice(0, MAX_LISTED)
    .map((one) => [...one.fields.map((name) => named(name)), cell(number(one.effect, 3), one.effect)]);
}

export function curvesSection(facts) {
  const n = facts.importance ? facts.importance.fields.length : facts.n_fields;
  const which = n > facts.curves.length ? `The ${facts.curves.length} most important of ${n} fields. ` : "";
  const how = facts.importance
    ? "Each plot sets one field to a value in all rows and averages the score over the rows"
    : "Each plot averages the score over the other fields, assuming that they are independent";
  const links = {
    logistic: ", then converts it to a probability",
    log: ", then converts it to a prediction by exp",
  };
  return parts(
    lead(
      `${which}${how}${links[facts.about.link] ?? ""}. Gray bars below a curve show where the rows are, marks beside it ` +
        "special and missing values.",
    ),
    el(
      "div",
      { class: "grid two" },
      facts.curves.map((curve) => (curve.categories ? bars(curve, facts) : line(curve, facts))),
    ),
  );
}

/** A curve; pointing at it reads a value. */
function line(curve, facts) {
  const column = facts.columns.find((one) => one.name === curve.name);
  const plain = facts.values.density(column);
  const density = plain.skewed && !column.part ? facts.values.density(column, true) : plain;
  const tokens = Object.entries(curve.tokens).map(([name, y]) => ({ name, y }));
  const inside = curve.y.filter((_, i) => curve.x[i] >= density.domain[0] && curve.x[i] <= density.domain[1]);
  const plot = new CurveCard(column, (value) => draw(value), { height: 240 });
  const draw = (value) =>
    plot.show({
      x: curve.x,
      lines: [{ name: facts.about.predicts, y: curve.y, at: value, value: value === null ? null : at(curve, value) }],
      value,
      xDomain: density.domain,
      yDomain: domainOf([...inside, ...tokens.map((token) => token.y)]),
      even: density.even,
      title: facts.about.predicts,
      density,
      knots: column.knots,
      extrema: ["maximum", "minimum"]
        .filter((kind) => curve[kind])
        .map((kind) => ({ x: curve[kind].at, y: curve[kind].y, kind })),
      tokens,
    });
  draw(null);
  plot.plot.setAttribute("aria-description", described(curve, facts));
  return withCaption(plot, captionOf(curve, facts));
}

/** The value of a curve between two of its points. */
function at({ x, y }, value) {
  const i = Math.min(x.length - 1, Math.max(1, d3.bisectLeft(x, value)));
  const share = x[i] > x[i - 1] ? (value - x[i - 1]) / (x[i] - x[i - 1]) : 0;
  return y[i - 1] + Math.min(1, Math.max(0, share)) * (y[i] - y[i - 1]);
}

/** The categories with the most rows: in their natural order, or the largest first. */
function drawnCategories({ categories, training_counts: counts, natural_order, y }) {
  const byCount = d3.range(categories.length).sort((i, j) => (counts[j] ?? 0) - (counts[i] ?? 0) || i - j);
  const drawn = byCount.slice(0, MAX_BARS);
  return natural_order ? drawn.sort((i, j) => i - j) : drawn.sort((i, j) => y[j] - y[i]);
}

function bars(curve, facts) {
  const drawn = drawnCategories(curve);
  const tokens = Object.entries(curve.tokens);
  const fromMean = facts.about.link === "identity";
  const base = fromMean ? (d3.mean(drawn.length ? drawn.map((i) => curve.y[i]) : tokens.map((one) => one[1])) ?? 0) : 0;
  const plot = new BarsCard(curve.name);
  const one = (name, value, className) => ({
    name,
    from: base,
    to: value,
    class: className,
    text: predicted(value, facts.about.is_share),
  });
  const rarer = curve.n_categories - drawn.length;
  const remarks = [fromMean ? "bars start at their mean" : "", rarer > 0 ? `${whole(rarer)} rarer not shown` : ""];
  plot.show({
    bars: [
      ...drawn.map((i) => one(curve.categories[i], curve.y[i], "line-0")),
      ...tokens.map(([name, value]) => one(`(${name})`, value, "total")),
    ],
    fromMean,
    title: [facts.about.predicts, ...remarks.filter(Boolean)].join("; "),
    xTitle: facts.about.predicts,
    table: {
      columns: [curve.name, facts.about.predicts, "training rows"],
      rows: [
        ...curve.categories.map((name, i) => [name, curve.y[i], curve.training_counts[i]]),
        ...tokens.map(([name, value]) => [`(${name})`, value, null]),
      ],
    },
  });
  plot.plot.setAttribute("aria-description", described(curve, facts));
  return withCaption(plot, captionOf(curve, facts));
}

function described({ name, y }, { about }) {
  const [low, high] = d3.extent(y);
  return `The ${about.predicts} by ${name}: from ${number(low, 5)} to ${number(high, 5)}`;
}

/** Where a curve is highest and lowest, and the predictions at special and missing values. */
function captionOf(curve, { about }) {
  const text = (value) => predicted(value, about.is_share);
  let ends = ["maximum", "minimum"]
    .filter((which) => curve[which])
    .map((which) => `${which === "maximum" ? "highest" : "lowest"} ${text(curve[which].y)} at ${curve[which].text}`);
  if (curve.categories) {
    const drawn = drawnCategories(curve);
    const best = [
      ["highest", (i, j) => curve.y[j] - curve.y[i]],
      ["lowest", (i, j) => curve.y[i] - curve.y[j]],
    ];
    ends = drawn.length
      ? best.map(([word, compare]) => {
          const [i] = [...drawn].sort(compare);
          return `${word} ${text(curve.y[i])} for ${short(curve.categories[i])}`;
        })
      : [];
  }
  const tokens = Object.entries(curve.tokens).map(([name, value]) => `${name}: ${text(value)}`);
  const whole_text = [ends.join(", "), tokens.join(", ")].filter(Boolean).join("; ");
  return whole_text ? `${capital(whole_text)}.` : "";
}

export function surfacesSection(facts) {
  if (!facts.importance) return note(facts.not_available);
  if (!facts.surfaces.length) return lead("There is no pair of fields to plot.");
  return parts(
    lead("The strongest pairs, averaged over the other fields. Dots are rows, if both fields are numerical."),
    el(
      "div",
      { class: "grid two" },
      facts.surfaces.map((surface) => surfaceCard(surface, facts)),
    ),
  );
}

/** A surface; pointing at it reads a value. */
function surfaceCard(surface, facts) {
  const sides = surface.names.map(
    (name) => facts.columns.find((column) => column.name === name) ?? { name, kind: "categorical" },
  );
  const numerical = sides.every((column) => column.kind === "numerical");
  const heat = new HeatCard(surface.names.join(" × "), (a, b) => draw(a, b), { height: 360 });
  const draw = (a, b) => {
    const [i, j] = [nearest(surface.x, a), nearest(surface.y, b)];
    heat.show({
      a: sides[0],
      b: sides[1],
      x: surface.x,
      y: surface.y,
      z: Float64Array.from(surface.z, (value) => value ?? NaN),
      at: a === null ? [null, null] : [surface.x[i], surface.y[j]],
      even: surface.even,
      stepped: surface.stepped,
      kind: "heat",
      title: facts.about.predicts,
      value: a === null ? NaN : surface.z[j * surface.x.length + i],
      dots: numerical ? dotsOf(surface.names, facts.values) : [],
    });
  };
  draw(null, null);
  const [low, high] = d3.extent(surface.z);
  const names = surface.names.join(" and ");
  heat.plot.setAttribute(
    "aria-description",
    `The ${facts.about.predicts} by ${names}: from ${number(low, 5)} to ${number(high, 5)}`,
  );
  return heat.root;
}

function nearest(values, value) {
  if (typeof value !== "number") return values.indexOf(value);
  return d3.scan(values, (a, b) => Math.abs(a - value) - Math.abs(b - value));
}

/** Rows with both values. */
function dotsOf(names, rows) {
  const [x, y] = names.map((name) => rows.of(name));
  const step = Math.ceil(rows.n / MAX_DOTS);
  return d3
    .range(0, rows.n, step)
    .map((i) => [x[i], y[i]])
    .filter((dot) => dot.every((value) => value !== null));
}
