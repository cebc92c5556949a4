// Views of a segment beyond single curves: bars, surfaces, extrema, the spread over real rows, bases.

import { Segment } from "./curves.js";
import { Functions } from "./encode/crosses.js";
import { Piece, chebyshevNodes, localExtrema, throughNodes } from "./polynomials.js";
import { quantilesOf, similarRows } from "./rows.js";

const MAX_DEGREE = 24; // more cannot be told from values without loss

/**
 * The pieces of polynomials, in u, that the score along a numerical column is made of. Units that vary multiply, so
 * that the degree is the degree of the splines times the number of units in a product. Degrees above 24, and crosses
 * that read the column by another transform than its field does, are followed closely instead of exactly.
 * @param {object} model
 * @param {Segment} segment along one column
 * @returns {Piece[]}
 */
export function piecesOf(model, segment) {
  const axis = model.axes[segment.sources[0]];
  const highest = Math.max(0, ...axis.readers.flatMap((number) => number.windows.map((window) => window.degree)));
  const n = 1 + Math.min(MAX_DEGREE, highest * Math.min(model.unitsAlong(segment), model.payload.model.order));
  const nodes = chebyshevNodes(n);
  const breaks = axis.breaks();
  const scores = segment.along(axis.inside(nodes));
  const inside = (i) => throughNodes(scores.subarray(i * n, (i + 1) * n));
  return breaks.slice(1).map((high, i) => new Piece(breaks[i], high, inside(i)));
}

/**
 * Local extrema along a numerical column, from left to right; exact, from the pieces of polynomials.
 * @returns {{x: number, u: number, score: number, prediction: number|null, kind: string, isEnd: boolean,
 *   isGlobal: boolean}[]}
 */
export function extremaOf(model, values, source, cls) {
  const axis = model.axes[source];
  const found = localExtrema(piecesOf(model, new Segment(model, values, [source], cls)));
  const scores = found.map(({ score }) => score);
  const best = { maximum: Math.max(...scores), minimum: Math.min(...scores) };
  return found.map((one) => ({
    ...one,
    x: axis.transform.inverse(one.u),
    prediction: model.link === "softmax" ? null : model.predicted([Float64Array.of(one.score)], 0)[0],
    isGlobal: one.score === best[one.kind],
  }));
}

/** A value for each category of a column: its name, or a list of it alone. */
function categoryValues(column, most) {
  return column.categories.slice(0, most).map((name) => (column.kind === "multivalued" ? [name] : name));
}

/**
 * Values along a column: a grid of a numerical one, or the categories, the most frequent first.
 * @returns {{values: Array, u: Float64Array|null}}
 */
export function valuesAlong(model, source, most) {
  const axis = model.axes[source];
  const column = model.columns[source];
  if (!axis) return { values: categoryValues(column, most), u: null };
  const step = (axis.high - axis.low) / Math.max(1, most - 1);
  const u = Float64Array.from({ length: most }, (_, i) => axis.low + step * i);
  const x = u.map((value) => axis.transform.inverse(value));
  return { values: x, u: x.map((value) => axis.at(value)) };
}

/**
 * The score over two columns, all others fixed.
 * @returns {{x: Array, y: Array, u: Float64Array|null, v: Float64Array|null, score: Float64Array,
 *   prediction: Float64Array}} scores of x[i] and y[j] are at i · y.length + j
 */
export function surfaceOf(model, values, sources, sizes, cls) {
  const [one, other] = sources.map((source, i) => valuesAlong(model, source, sizes[i]));
  const every = model.link === "softmax" ? model.formulas.map((_, c) => c) : [cls];
  const scores = every.map((c) => new Segment(model, values, sources, c).over(one.values, other.values));
  const position = every.indexOf(cls);
  return {
    x: one.values,
    y: other.values,
    u: one.u,
    v: other.u,
    score: scores[position],
    prediction: model.predicted(scores, position),
  };
}

/**
 * The score of each category of a column, and of values that are missing or unseen.
 * @returns {{names: string[], score: Float64Array, prediction: Float64Array}}
 */
export function barsOf(model, values, source, cls, most = Infinity) {
  const column = model.columns[source];
  const names = column.categories.slice(0, most);
  const each = [...categoryValues(column, most), ...(column.missing ? [null] : [])];
  const every = model.link === "softmax" ? model.formulas.map((_, c) => c) : [cls];
  const scores = every.map((c) => new Segment(model, values, [source], c).along(each));
  const position = every.indexOf(cls);
  return {
    names: [...names, ...(column.missing ? ["missing"] : [])],
    score: scores[position],
    prediction: model.predicted(scores, position),
  };
}

/**
 * The curve of a column for rows of the data that are most like a row: quantiles of their scores.
 * @returns {{x: Float64Array, u: Float64Array, levels: number[], score: Float64Array[], rows: number[]}}
 */
export function spreadOf(model, values, source, points, cls, most = 50, levels = [0.1, 0.25, 0.5, 0.75, 0.9]) {
  const { x, u } = model.axes[source].grid(points);
  const rows = similarRows(model, values, new Set([source]), most);
  const curves = rows.map((i) => new Segment(model, model.rows.values(i), [source], cls).along(x));
  return { x, u, levels, score: quantilesOf(curves, levels), rows };
}

/**
 * T and the functions of the basis along a numerical column.
 * @returns {{x: Float64Array, u: Float64Array, functions: Float64Array[]}}
 */
export function basisOf(model, source, points) {
  const { x, u } = model.axes[source].grid(points);
  const [number] = model.axes[source].readers;
  const functions = Array.from({ length: model.columns[source].basis.functions }, () => new Float64Array(x.length));
  x.forEach((value, i) => {
    const each = new Functions();
    const at = number.position(value);
    for (const window of number.windows) window.addTerms(at, 0, each);
    each.features.forEach((f, t) => {
      if (f < functions.length) functions[f][i] += each.weights[t];
    });
  });
  return { x, u, functions };
}
