// Counterfactuals: the smallest change of one column, or of two, that reaches a wanted prediction.
//
// The size of a change of a number is how far it moves in u = T(z), which is the share of the data in between for
// a quantile transform. Another category, and a number instead of a special or missing value, count as 1.

import { Segment } from "../curves.js";
import { scoreOf } from "../links.js";
import { bisect } from "../polynomials.js";
import { unitPosition } from "../rows.js";
import { piecesOf } from "../views.js";

const NUDGE = 1e-9; // inside an interval, where its end belongs to the next one
const SOFTMAX_POINTS = 400;
const PAIR_POINTS = 25;
const PAIR_COLUMNS = 6;

/** Finds counterfactuals of one row for one output. */
export class Search {
  /**
   * @param {object} model
   * @param {Array} values
   * @param {number} wanted prediction
   * @param {number} cls
   */
  constructor(model, values, wanted, cls) {
    Object.assign(this, { model, values, wanted, cls });
    this.current = model.predictValues(values)[cls];
    this.sign = Math.sign(wanted - this.current);
    this.target = model.link === "softmax" ? NaN : scoreOf(model.loss, wanted);
  }

  /** The values, with changed columns in all fields that read them. */
  together(values) {
    const own = [...values];
    this.model.alike.forEach(([first], source) => {
      if (values[first] !== this.values[first]) own[source] = values[first];
    });
    return own;
  }

  /** The prediction for values. */
  predict(values) {
    return this.model.predictValues(this.together(values))[this.cls];
  }

  /** Whether a prediction reaches the wanted one, up to rounding. */
  isReached(prediction) {
    const size = Math.max(Math.abs(this.wanted), Math.abs(this.current));
    return this.sign * (prediction - this.wanted) >= -1e-7 * size;
  }

  /** Intervals of u where the curve of a numerical column reaches the wanted prediction. */
  intervals(values, source) {
    if (this.model.link === "softmax") return this.sampledIntervals(values, source);
    const pieces = piecesOf(this.model, new Segment(this.model, values, [source], this.cls));
    return pieces.flatMap((piece) => {
      const ends = [piece.low, ...piece.crossings(this.target), piece.high];
      const found = [];
      for (let i = 1; i < ends.length; ++i) {
        const middle = (ends[i - 1] + ends[i]) / 2;
        const t = (2 * (middle - piece.low)) / (piece.high - piece.low) - 1;
        const value = piece.coefficients.reduceRight((sum, c) => sum * t + c, 0);
        if (ends[i] > ends[i - 1] && this.sign * (value - this.target) >= 0) found.push([ends[i - 1], ends[i]]);
      }
      return found;
    });
  }

  /** The same for probabilities of several classes, which are not polynomials: between the points of a grid. */
  sampledIntervals(values, source) {
    const axis = this.model.axes[source];
    const own = [...values];
    const gap = (u) => {
      own[source] = axis.transform.inverse(u);
      return this.sign * (this.predict(own) - this.wanted);
    };
    const { u } = axis.grid(SOFTMAX_POINTS);
    const gaps = u.map(gap);
    const found = [];
    for (let i = 1; i < u.length; ++i) {
      const root = bisect(gap, u[i - 1], u[i]);
      const [low, high] = [gaps[i - 1] >= 0 ? u[i - 1] : root, gaps[i] >= 0 ? u[i] : root];
      if (low !== null && high !== null && high > low) found.push([low, high]);
    }
    return found;
  }

  /** The change of a numerical column: {value, cost}, or null. */
  ofNumber(values, source) {
    const axis = this.model.axes[source];
    const from = unitPosition(axis, this.values[source]);
    const own = [...values];
    const candidates = merged(this.intervals(values, source)).map(([low, high]) => {
      const end = low > axis.low ? low : high < axis.high ? high : (low + high) / 2;
      const near = Number.isNaN(from) ? end : Math.min(Math.max(from, low), high);
      return { low, high, near, cost: Number.isNaN(from) ? 1 : Math.abs(near - from) };
    });
    candidates.sort((a, b) => a.cost - b.cost);
    for (const { low, high, near, cost } of candidates) {
      for (const u of [near, near + NUDGE * (high - low), near - NUDGE * (high - low), (low + high) / 2]) {
        if (u < low || u > high) continue;
        own[source] = axis.transform.inverse(u);
        if (unitPosition(axis, own[source]) >= 0 && this.isReached(this.predict(own))) {
          return { value: own[source], cost: Number.isNaN(from) ? 1 : Math.abs(u - from), near: cost };
        }
      }
    }
    return null;
  }

  /** The change of a column of categories: the one that goes beyond the wanted prediction the least. */
  ofCategory(values, source) {
    const names = this.model.columns[source].categories.filter((name) => name !== values[source]);
    const predicted = this.model.predictedAt(values, this.model.alike[source], names, this.cls);
    let best = -1;
    predicted.forEach((prediction, i) => {
      if (this.isReached(prediction) && (best < 0 || this.sign * (prediction - predicted[best]) < 0)) best = i;
    });
    return best < 0 ? null : { value: names[best], cost: 1 };
  }

  /** The changes of single columns that reach the wanted prediction, the smallest first. */
  single(sources) {
    const found = [];
    for (const source of sources) {
      const { kind } = this.model.columns[source];
      if (kind === "multivalued" || this.model.alike[source][0] !== source) continue;
      const change = kind === "numerical" ? this.ofNumber(this.values, source) : this.ofCategory(this.values, source);
      if (change) found.push(this.result([[source, change.value]], change.cost));
    }
    return found.sort((a, b) => a.cost - b.cost);
  }

  /** The changes of two numerical columns: one on a grid, the other exactly. */
  pairs(sources) {
    const numbers = sources.filter((source) => this.model.axes[source]);
    const strongest = numbers
      .map((source) => [source, this.reach(source)])
      .sort((a, b) => b[1] - a[1])
      .slice(0, PAIR_COLUMNS)
      .map(([source]) => source);
    const found = [];
    strongest.forEach((one, i) => {
      for (const other of strongest.slice(i + 1)) {
        const best = this.pair(one, other);
        if (best) found.push(best);
      }
    });
    return found.sort((a, b) => a.cost - b.cost);
  }

  /** How far a column moves the score toward the wanted prediction. */
  reach(source) {
    const { x } = this.model.axes[source].grid(PAIR_POINTS);
    const scores = new Segment(this.model, this.values, [source], this.cls).along(x);
    return scores.reduce((most, score) => Math.max(most, this.sign * score), -Infinity);
  }

  /** The smallest change of two columns, or null. */
  pair(one, other) {
    const axis = this.model.axes[one];
    const from = unitPosition(axis, this.values[one]);
    const own = [...this.values];
    const at = (u) => {
      own[one] = axis.transform.inverse(u);
      const change = this.ofNumber(own, other);
      const moved = Number.isNaN(from) ? 1 : Math.abs(u - from);
      return change && { u, value: own[one], other: change.value, cost: moved + change.cost };
    };
    let best = null;
    const step = (axis.high - axis.low) / (PAIR_POINTS - 1);
    for (let i = 0; i < PAIR_POINTS; ++i) best = smaller(best, at(axis.low + i * step));
    for (let width = step / 2; best && width > step / 64; width /= 2) {
      const { u } = best;
      for (const near of [u - width, u + width]) {
        if (near >= axis.low && near <= axis.high) best = smaller(best, at(near));
      }
    }
    return (
      best &&
      this.result(
        [
          [one, best.value],
          [other, best.other],
        ],
        best.cost,
      )
    );
  }

  result(changes, cost) {
    const own = [...this.values];
    for (const [source, value] of changes) own[source] = value;
    const named = Object.fromEntries(changes.map(([source, value]) => [this.model.columns[source].name, value]));
    return { changes: named, cost, prediction: this.predict(own) };
  }
}

/** Intervals, ascending, with those that touch made one. */
function merged(intervals) {
  const found = [];
  for (const [low, high] of intervals) {
    const last = found[found.length - 1];
    if (last && last[1] === low) last[1] = high;
    else found.push([low, high]);
  }
  return found;
}

function smaller(best, found) {
  return found && (!best || found.cost < best.cost) ? found : best;
}
