// Exact Shapley values of a score, compared with a background (see splinefm.explain).
//
// With s_f the vector of field f, m_f its mean over the background, z_f = s_f - m_f and h_f = Σ_e M_fe m_e, each field
// of a pair gets half of what the pair changes:
//
//   φ_f = a_f + z_f' h_f + ½ Σ_e z_f' M_fe z_e - (the mean of this over the background)
//
// where a_f is the linear part of the field and the products of its units with each other. Products of three fields
// need second moments of the background. Terms with crosses are small games of their columns: see games.js.

import { Units, dot } from "../formula.js";
import { CrossShares } from "./games.js";
import { tripleShares, unitSums } from "./triples.js";

/** Shapley values of one score of a row. */
export class Shapley {
  /**
   * @param {object} model
   * @param {number} output
   */
  constructor(model, output) {
    const { explain } = model.payload;
    if (explain.reason) throw new Error(explain.reason);
    const known = explain.outputs[output];
    this.model = model;
    this.output = output;
    this.formula = model.formulas[output];
    this.players = explain.players;
    this.ofField = explain.of_parts.map((players) => [...new Set(players)].sort((a, b) => a - b));
    this.base = known.base;
    [this.center, this.slope, this.terms] = [known.center, known.slope, known.terms].map((name) => model.buffers[name]);
    this.pairWidth = this.center.length / model.fields.length;
    this.triples = null;
    if (known.triples) {
      this.triples = {};
      for (const [name, buffer] of Object.entries(known.triples)) this.triples[name] = model.buffers[buffer];
    }
    this.crosses = null;
    if (explain.background) this.crosses = new CrossShares(this, explain, model.buffers[explain.background]);
  }

  /** The player of each unit; -1 for units of crosses. */
  playersOf(units) {
    const alone = this.ofField.map((players) => (players.length === 1 ? players[0] : -1));
    return Array.from(units.fields.subarray(0, units.n), (f) => alone[f]);
  }

  /** The contribution of each player to the score of a row: `base` and the sum of them are the score. */
  of(values) {
    const units = this.model.unitsOf(values, this.output);
    const shares = new Float64Array(this.players.length);
    this.pairShares(units).forEach((value, f) => {
      if (this.ofField[f].length === 1) shares[this.ofField[f][0]] += value;
    });
    if (this.triples) {
      const sums = unitSums(this.formula, units, this.playersOf(units), this.players.length);
      tripleShares(this.triples, sums).forEach((value, player) => {
        shares[player] += value;
      });
    }
    this.crosses?.addShares(values, units, shares);
    return { base: this.base, values: Object.fromEntries(this.players.map((name, i) => [name, shares[i]])) };
  }

  /** φ_f of all fields, as if crosses were zero. */
  pairShares(units) {
    const { formula, pairWidth } = this;
    const { width } = formula;
    const n = this.model.fields.length;
    const inner = new Float64Array(n);
    const Z = new Float64Array(n * width);
    for (let f = 0; f < n; ++f) for (let d = 0; d < pairWidth; ++d) Z[f * width + d] = -this.center[f * pairWidth + d];
    for (let u = 0; u < units.n; ++u) {
      const f = units.fields[u];
      if (this.ofField[f].length > 1) continue;
      inner[f] += units.linear[u] + this.before(units, u);
      for (let d = 0; d < pairWidth; ++d) Z[f * width + d] += units.vectors[u * width + d];
    }
    const toward = new Float64Array(width);
    return inner.map((own, f) => {
      toward.fill(0);
      for (let e = 0; e < n; ++e) if (e !== f) formula.addSlope(f, e, Z, e * width, toward);
      let sum = own - this.terms[f];
      for (let d = 0; d < pairWidth; ++d) sum += Z[f * width + d] * (this.slope[f * pairWidth + d] + toward[d] / 2);
      return sum;
    });
  }

  /** Products of a unit with earlier units of its field. */
  before(units, v) {
    const { formula } = this;
    const { width } = formula;
    const slope = new Float64Array(width);
    for (let u = 0; u < v; ++u) {
      if (units.fields[u] === units.fields[v]) {
        formula.addSlope(units.fields[v], units.fields[u], units.vectors, u * width, slope, true);
      }
    }
    return dot(slope, 0, units.vectors, v * width, width);
  }

  /** The sum of the units of each field, crosses included: shape (fields, width). */
  fieldVectors(units) {
    const { width } = this.formula;
    const sums = new Units(width, this.model.fields.length);
    for (let f = 0; f < this.model.fields.length; ++f) sums.push(f);
    for (let u = 0; u < units.n; ++u) {
      const to = units.fields[u] * width;
      sums.linear[units.fields[u]] += units.linear[u];
      for (let d = 0; d < width; ++d) sums.vectors[to + d] += units.vectors[u * width + d];
    }
    return sums;
  }
}
