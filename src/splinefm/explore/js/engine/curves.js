// Curves, bars and surfaces of a segment: the score along one or two columns, with the values of the others fixed.
//
// With the other fields fixed, the score is affine in the vector of a field with the sum reduction (spanning lemma):
//
//   score(z) = β + Σ_i α_i B_i(T(z)),    α_i = w_i + g' v_i,    g = ∂ score / ∂ p_f
//
// so that a whole curve takes one inner product per basis function. Where crosses contain the column, or its field has
// the identity reduction, several units vary, and `Rest` puts them together.

import { NumberField, Terms } from "./encode/fields.js";
import { Rest, Units, dot } from "./formula.js";
import { pathsAlong } from "./paths.js";
import { Transform, numberBelow } from "./encode/numbers.js";

const NEAR = 1e-9; // points of a grid that are closer in u are one

/** The axis of a numerical column: its transform, the fields that vary along it, and grids of values. */
export class Axis {
  /**
   * @param {object} column of the payload
   * @param {number} source its number
   * @param {object[]} fields of the model
   * @param {Object<string, Float64Array>} buffers
   */
  constructor(column, source, fields, buffers) {
    const { knots, values, powers } = column.transform;
    this.source = source;
    this.transform = new Transform(buffers[knots], buffers[values], powers);
    [this.low, this.high] = column.range;
    this.readers = numbersOf(fields, source);
    this.grids = new Map();
    this.nodes = new Map();
    this.borders = null;
  }

  /** T(z). */
  at(x) {
    return this.transform.at(x);
  }

  /** Borders of the polynomials along the axis, in u, of all fields that vary. */
  breaks() {
    if (this.borders) return this.borders;
    const found = [this.low, this.high];
    for (const number of this.readers) {
      for (const window of number.windows) {
        for (const edge of window.breaks()) {
          if (!Number.isFinite(edge)) continue;
          found.push(number.transform ? this.at(number.transform.inverse(edge)) : this.at(edge));
        }
      }
    }
    this.borders = distinct(found.filter((u) => u >= this.low && u <= this.high));
    return this.borders;
  }

  /**
   * Values along the axis: evenly spaced in u, and all knots; both sides of the edges of steps.
   * @param {number} points
   * @returns {{x: Float64Array, u: Float64Array}}
   */
  grid(points) {
    let grid = this.grids.get(points);
    if (!grid) {
      const even = Array.from({ length: points }, (_, i) => this.low + ((this.high - this.low) * i) / (points - 1));
      let x = distinct([...even, ...this.breaks()]).map((u) => this.transform.inverse(u));
      x = [...x, ...this.stepEdges()].sort((a, b) => a - b);
      x = Float64Array.from(x.filter((value, i) => i === 0 || value !== x[i - 1]));
      grid = { x, u: x.map((value) => this.at(value)) };
      this.grids.set(points, grid);
    }
    return grid;
  }

  /** For each piece between two breaks the raw values at positions from -1 to 1 inside, one after the other. */
  inside(positions) {
    let xs = this.nodes.get(positions.length);
    if (!xs) {
      const breaks = this.breaks();
      xs = Float64Array.from(
        breaks.slice(1).flatMap((high, i) => {
          const width = high - breaks[i];
          return Array.from(positions, (t) => this.transform.inverse(breaks[i] + ((t + 1) / 2) * width));
        }),
      );
      this.nodes.set(positions.length, xs);
    }
    return xs;
  }

  /** Raw values where steps begin, and those just below. */
  stepEdges() {
    const edges = this.readers.filter((number) => !number.transform).flatMap((number) => number.windows[0].breaks());
    const inside = edges.filter((x) => Number.isFinite(x) && this.at(x) >= this.low && this.at(x) <= this.high);
    return inside.flatMap((x) => [numberBelow(x), x]);
  }
}

/** The fields, and parts of crosses, that read a source as a number. */
function numbersOf(fields, source) {
  return fields
    .flatMap((field) => {
      if (field.sources.length === 1) return field.sources[0] === source ? [field.encoder] : [];
      return field.encoder.parts.filter((_, i) => field.sources[i] === source);
    })
    .filter((encoder) => encoder instanceof NumberField);
}

function distinct(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted.filter((u, i) => i === 0 || i === sorted.length - 1 || u - sorted[i - 1] > NEAR);
}

/** The score along one source for one score of a row, everything else being fixed. */
export class Segment {
  /**
   * @param {object} model
   * @param {Array} values of all sources
   * @param {number[]} sources that vary
   * @param {number} output
   * @param {{units: Units, score: number}|null} whole the row, if it is known: see `Model.whole`
   */
  constructor(model, values, sources, output, whole = null) {
    this.model = model;
    this.values = [...values];
    this.sources = sources;
    this.formula = model.formulas[output];
    this.free = model.readersOf(sources);
    const free = new Set(this.free);
    this.rest = new Rest(this.formula, whole?.units ?? model.unitsOf(values, output, free), free, whole?.score ?? null);
    this.terms = new Terms();
    this.units = new Units(this.formula.width);
    this.effects = null;
    const [field] = this.free;
    if (this.free.length === 1 && !model.fields[field].encoder.apart) this.effects = this.featureEffects(field);
  }

  /** α_i = w_i + g' v_i of all features of the only field that varies. */
  featureEffects(field) {
    const { width, factors, linear } = this.formula;
    const { first, features } = this.model.fields[field];
    const gradient = this.rest.gradient(field);
    const effects = new Float64Array(features);
    for (let i = 0; i < features; ++i) {
      let sum = linear[first + i];
      for (let d = 0, at = (first + i) * width; d < width; ++d) sum += gradient[d] * factors[at + d];
      effects[i] = sum;
    }
    return effects;
  }

  /** The score at values of the sources that vary. */
  at(...varying) {
    this.sources.forEach((source, i) => {
      this.values[source] = varying[i];
    });
    this.terms.clear();
    for (const f of this.free) this.model.encodeField(f, this.values, this.terms);
    return this.effects ? this.fromEffects() : this.fromUnits();
  }

  /** β + Σ_i α_i weight_i. */
  fromEffects() {
    const { terms, effects } = this;
    const { first } = this.model.fields[this.free[0]];
    let total = this.rest.base;
    for (let t = 0; t < terms.n; ++t) total += effects[terms.features[t] - first] * terms.weights[t];
    return total;
  }

  fromUnits() {
    this.units.n = 0;
    return this.rest.score(this.formula.addUnits(this.terms, this.units));
  }

  /** Scores at many values of one source; an array of numbers that is used again is encoded once. */
  along(xs) {
    const isNumbers = xs instanceof Float64Array && this.model.axes[this.sources[0]];
    const paths = isNumbers && pathsAlong(this.model, this.formula, this.values, this.sources[0], this.free);
    if (!paths) return Float64Array.from(xs, (x) => this.at(x));
    const encoded = paths.map((path) => path.along(xs));
    return this.effects ? this.alongEffects(encoded[0]) : this.alongPaths(paths, encoded, xs.length);
  }

  /** β + Σ_i α_i weight_i at every value. */
  alongEffects({ features, weights, ends }) {
    const { effects } = this;
    const { base } = this.rest;
    const scores = new Float64Array(ends.length);
    for (let i = 0, t = 0; i < ends.length; ++i) {
      let total = base;
      for (; t < ends[i]; ++t) total += effects[features[t]] * weights[t];
      scores[i] = total;
    }
    return scores;
  }

  /** The score with the units of all paths at every value. */
  alongPaths(paths, encoded, n) {
    const { units } = this;
    const scores = new Float64Array(n);
    for (let i = 0; i < n; ++i) {
      units.n = 0;
      for (let p = 0; p < paths.length; ++p) paths[p].addUnit(encoded[p], i, units);
      scores[i] = this.rest.score(units);
    }
    return scores;
  }

  /** The units of some fields for every value of a source. */
  unitsAlong(fields, source, xs) {
    return Array.from(xs, (x) => {
      this.values[source] = x;
      this.terms.clear();
      for (const f of fields) this.model.encodeField(f, this.values, this.terms);
      return this.formula.addUnits(this.terms, new Units(this.formula.width, fields.length || 1));
    });
  }

  /**
   * Scores at a grid of two sources, row by row: values of the second source are next to each other. Without crosses of
   * both and products of three, the score is β + a(x) + b(y) + Σ p(x)' M p(y) (pairwise lemma).
   */
  over(xs, ys) {
    const [one, other] = this.sources;
    const reads = (source) => this.free.filter((f) => this.model.fields[f].sources.includes(source));
    const [ofOne, ofOther] = [reads(one), reads(other)];
    if (this.formula.order > 2 || ofOne.some((f) => ofOther.includes(f))) return this.overEach(xs, ys);
    const [rows, columns] = [this.unitsAlong(ofOne, one, xs), this.unitsAlong(ofOther, other, ys)];
    const alone = columns.map((units) => this.rest.score(units) - this.rest.base);
    const scores = new Float64Array(xs.length * ys.length);
    let at = 0;
    for (const units of rows) {
      const first = this.rest.score(units);
      const slopes = ofOther.map((f) => new Rest(this.formula, units, new Set()).slope(f));
      columns.forEach((others, j) => {
        let total = first + alone[j];
        for (let u = 0; u < others.n; ++u) {
          const slope = slopes[ofOther.indexOf(others.fields[u])];
          total += dot(slope, 0, others.vectors, u * others.width, others.width);
        }
        scores[at++] = total;
      });
    }
    return scores;
  }

  overEach(xs, ys) {
    const scores = new Float64Array(xs.length * ys.length);
    let at = 0;
    for (const x of xs) for (const y of ys) scores[at++] = this.at(x, y);
    return scores;
  }
}
