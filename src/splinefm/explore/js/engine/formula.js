// The score of every model of the family (paper, equation of the field reductions):
//
//   score = b + Σ linear + Σ_{u<v} p_u[columns(e)]' M_fe p_v[columns(f)]
//     + productWeight Σ_{t=3}^{order} Σ_{u1<..<ut} Σ_d Π p_ui[d]
//
// where u is a unit of field f and v one of field e, and p_u = Σ_j weight_j V[feature_j]. M_fe is a weight (FM: 1, FwFM
// and LowRankFwFM: r_fe, HigherOrderFM: 1 by its members), a weight for each coordinate (means of several FwFM) or a matrix (FmFM). Only FFM has other
// columns for every field that a vector meets. Products of more than two units (HigherOrderFM, FwFM with `third`) are
// over the coordinates d in `product`.

/** The units of a row for one score: their vectors, linear parts and fields. */
export class Units {
  constructor(width, capacity = 64) {
    this.width = width;
    this.vectors = new Float64Array(capacity * width);
    this.linear = new Float64Array(capacity);
    this.fields = new Int32Array(capacity);
    this.n = 0;
  }

  /** Adds a unit of a field, with zeros; returns its number. */
  push(field) {
    const { width } = this;
    if (this.n === this.fields.length) {
      const more = new Units(width, 2 * this.n);
      more.vectors.set(this.vectors);
      more.linear.set(this.linear);
      more.fields.set(this.fields);
      Object.assign(this, { vectors: more.vectors, linear: more.linear, fields: more.fields });
    }
    const u = this.n++;
    this.vectors.fill(0, u * width, (u + 1) * width);
    this.linear[u] = 0;
    this.fields[u] = field;
    return u;
  }

  /** Appends unit u of others. */
  copy(others, u) {
    const { width } = this;
    const at = this.push(others.fields[u]);
    for (let d = 0; d < width; ++d) this.vectors[at * width + d] = others.vectors[u * width + d];
    this.linear[at] = others.linear[u];
  }
}

/** The formula of a model, with the parameters of one output. */
export class Formula {
  /**
   * @param {object} model of the payload
   * @param {Object<string, Float32Array>} buffers
   * @param {number} output which score of a row
   */
  constructor(model, buffers, output) {
    const { width, part, order, columns, features } = model;
    Object.assign(this, { width, part, order, columns, features });
    this.nFields = columns.length;
    this.axes = model.between_axes;
    const part_of = (name, size) => buffers[name].subarray(output * size, (output + 1) * size);
    this.factors = part_of(model.factors, features * width);
    this.linear = part_of(model.linear, features);
    this.bias = buffers[model.bias][output];
    this.between = part_of(model.between, this.nFields ** 2 * part ** this.axes);
    [this.productFrom, this.productTo] = model.product;
    this.productWeight = model.product_weight;
  }

  /** Adds p_u = Σ_j weight_j V[feature_j] of the units of terms. */
  addUnits(terms, units) {
    const { width, factors, linear } = this;
    for (let u = 0; u < terms.units; ++u) {
      const at = units.push(terms.fields[u]) * width;
      const { vectors } = units;
      let sum = 0;
      for (let t = terms.begin(u); t < terms.ends[u]; ++t) {
        const weight = terms.weights[t];
        const row = terms.features[t] * width;
        sum += weight * linear[terms.features[t]];
        for (let d = 0; d < width; ++d) vectors[at + d] += weight * factors[row + d];
      }
      units.linear[units.n - 1] = sum;
    }
    return units;
  }

  /**
   * Adds M_fe p to `slope`, where p is a vector of field e: what the vector of a unit of field f is multiplied with.
   * @param {number} f
   * @param {number} e
   * @param {Float64Array} vectors
   * @param {number} at where p begins
   * @param {Float64Array} slope of length width
   * @param {boolean} flipped whether to multiply with M_fe' instead: for two units of one field, p being the first
   */
  addSlope(f, e, vectors, at, slope, flipped = false) {
    const { part, between, axes } = this;
    const to = this.columns[e];
    const from = at + this.columns[f];
    if (axes === 0) {
      const weight = between[f * this.nFields + e];
      for (let d = 0; d < part; ++d) slope[to + d] += weight * vectors[from + d];
    } else if (axes === 1) {
      const row = (f * this.nFields + e) * part;
      for (let d = 0; d < part; ++d) slope[to + d] += between[row + d] * vectors[from + d];
    } else {
      const first = (f * this.nFields + e) * part * part;
      for (let i = 0; i < part; ++i) {
        let sum = 0;
        const [begin, step] = flipped ? [first + i, part] : [first + i * part, 1];
        for (let j = 0; j < part; ++j) sum += between[begin + j * step] * vectors[from + j];
        slope[to + i] += sum;
      }
    }
  }

  /** Σ_{u<v} p_u' M p_v over all pairs of units. */
  pairs(units) {
    return this.axes === 0 ? this.weightedPairs(units) : this.mappedPairs(units);
  }

  /** The same where M_fe is a weight: Σ_{u<v} r_fe p_u' p_v. */
  weightedPairs({ n, fields, vectors }) {
    const { width, part, between, columns, nFields } = this;
    let total = 0;
    for (let v = 1; v < n; ++v) {
      const f = fields[v];
      for (let u = 0; u < v; ++u) {
        const e = fields[u];
        const atU = u * width + columns[f];
        const atV = v * width + columns[e];
        let sum = 0;
        for (let d = 0; d < part; ++d) sum += vectors[atU + d] * vectors[atV + d];
        total += between[f * nFields + e] * sum;
      }
    }
    return total;
  }

  mappedPairs(units) {
    const { width } = this;
    const slope = new Float64Array(width);
    let total = 0;
    for (let v = 1; v < units.n; ++v) {
      slope.fill(0);
      const field = units.fields[v];
      for (let u = 0; u < v; ++u) {
        const other = units.fields[u];
        this.addSlope(field, other, units.vectors, u * width, slope, other === field);
      }
      total += dot(slope, 0, units.vectors, v * width, width);
    }
    return total;
  }

  /**
   * e_0 .. e_most of the units, coordinate by coordinate: sums of the products of t different units.
   * @returns {Float64Array[]} one array for each t
   */
  symmetricSums(units, most) {
    const size = this.productTo - this.productFrom;
    const sums = Array.from({ length: most + 1 }, (_, t) => new Float64Array(size).fill(t ? 0 : 1));
    for (let u = 0; u < units.n; ++u) this.extendSums(sums, units.vectors, u * this.width);
    return sums;
  }

  /** Adds a unit to `symmetricSums`. */
  extendSums(sums, vectors, at) {
    const from = at + this.productFrom;
    for (let t = sums.length - 1; t > 0; --t) {
      const [lower, sum] = [sums[t - 1], sums[t]];
      for (let d = 0; d < sum.length; ++d) sum[d] += vectors[from + d] * lower[d];
    }
  }

  /** Products of three to `order` units. */
  products(units) {
    if (this.order < 3) return 0;
    return this.productWeight * sumFrom(this.symmetricSums(units, this.order), 3);
  }

  /** The score of a row. */
  score(units) {
    let total = this.bias;
    for (let u = 0; u < units.n; ++u) total += units.linear[u];
    return total + this.pairs(units) + this.products(units);
  }
}

/** The inner product of parts of two arrays. */
export function dot(a, atA, b, atB, n) {
  let sum = 0;
  for (let i = 0; i < n; ++i) sum += a[atA + i] * b[atB + i];
  return sum;
}

/** The sum of all numbers of the arrays from `first` on. */
export function sumFrom(arrays, first) {
  let total = 0;
  for (let t = first; t < arrays.length; ++t) for (const value of arrays[t]) total += value;
  return total;
}

/**
 * What a row leaves of the model when some of its fields are free: the score is
 *
 *   β + Σ_a (linear_a + g_f(a)' p_a) + Σ_{a<b} p_a' M p_b + productWeight Σ_t Σ_s e_s(free)' e_{t-s}(fixed)
 *
 * for the units a, b of the free fields, where g_f = Σ M_fe p_e and e_t are of the fixed units.
 */
export class Rest {
  /**
   * @param {Formula} formula
   * @param {Units} units of all fields; units of free fields are left out
   * @param {Set<number>} free fields
   * @param {number|null} score of all units, if it is known: then a single free unit is subtracted from it
   */
  constructor(formula, units, free, score = null) {
    this.formula = formula;
    this.units = units;
    this.free = free;
    this.sums = formula.order > 2 ? formula.symmetricSums(this.fixed, formula.order - 1) : null;
    this.slopes = new Map();
    const u = score === null ? -1 : this.onlyFree();
    if (u < 0) {
      this.base = formula.score(this.fixed);
    } else {
      const gradient = this.gradient(units.fields[u]);
      this.base = score - units.linear[u] - dot(gradient, 0, units.vectors, u * formula.width, formula.width);
    }
  }

  /** The only unit that is free; -1 if there are none or several. */
  onlyFree() {
    let found = -1;
    for (let u = 0; u < this.units.n; ++u) {
      if (!this.free.has(this.units.fields[u])) continue;
      if (found >= 0) return -1;
      found = u;
    }
    return found;
  }

  /** The units of the other fields. */
  get fixed() {
    const { units, formula } = this;
    const fixed = new Units(formula.width, Math.max(1, units.n));
    for (let u = 0; u < units.n; ++u) if (!this.free.has(units.fields[u])) fixed.copy(units, u);
    return fixed;
  }

  /** g_f of pairs: Σ M_fe p_e over the fixed units. */
  slope(f) {
    let slope = this.slopes.get(f);
    if (!slope) {
      slope = new Float64Array(this.formula.width);
      const { n, fields, vectors } = this.units;
      for (let u = 0; u < n; ++u) {
        if (!this.free.has(fields[u])) this.formula.addSlope(f, fields[u], vectors, u * this.formula.width, slope);
      }
      this.slopes.set(f, slope);
    }
    return slope;
  }

  /** The derivative of the score by the vector of field f, if it is the only free unit. */
  gradient(f) {
    const gradient = Float64Array.from(this.slope(f));
    const { productFrom: from, productWeight } = this.formula;
    for (let t = 2; this.sums && t < this.sums.length; ++t) {
      this.sums[t].forEach((value, d) => {
        gradient[from + d] += productWeight * value;
      });
    }
    return gradient;
  }

  /** The score with units of the free fields. */
  score(units) {
    const { formula } = this;
    const { width } = formula;
    let total = this.base;
    for (let a = 0; a < units.n; ++a) {
      total += units.linear[a] + dot(this.slope(units.fields[a]), 0, units.vectors, a * width, width);
    }
    if (units.n > 1) total += formula.pairs(units);
    return this.sums ? total + this.mixedProducts(units) : total;
  }

  /** Products of three to `order` units, at least one of which is free: Σ_t Σ_{s≥1} e_s(free)' e_{t-s}(fixed). */
  mixedProducts(units) {
    const { order, productWeight } = this.formula;
    const free = this.formula.symmetricSums(units, Math.min(order, units.n));
    let total = 0;
    for (let s = 1; s < free.length; ++s) {
      for (let t = Math.max(3, s); t <= order; ++t) {
        total += dot(free[s], 0, this.sums[t - s], 0, free[s].length);
      }
    }
    return productWeight * total;
  }
}
